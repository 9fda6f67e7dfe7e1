//! The Services that this program serves. It leaves the others to other programs.

use std::fmt;
use std::str::FromStr;

use crate::model::ObjectName;
use crate::setting_error::SettingError;

/// Label that assigns a Service to the program of that name (KEP-2447).
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// The Services that are served: those that fulfil all of this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedServices {
    /// Value of the label [`SERVICE_PROXY_NAME`]; without it, Services that have no such label.
    pub proxy_name: Option<LabelValue>,
    /// Services that are not served.
    pub except: Vec<ServicePattern>,
    /// What their labels fulfil.
    pub labels: Vec<LabelRequirement>,
}

impl ServedServices {
    /// Returns whether no setting leaves Services to other programs.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the label selector of an API server's list.
    pub fn label_selector(&self) -> String {
        let own = match &self.proxy_name {
            Some(LabelValue(name)) => format!("{SERVICE_PROXY_NAME}={name}"),
            None => format!("!{SERVICE_PROXY_NAME}"),
        };
        self.labels.iter().fold(own, |selector, it| format!("{selector},{it}"))
    }

    /// Returns whether a Service is served by its name and its label [`SERVICE_PROXY_NAME`].
    pub fn admit(&self, name: &ObjectName, proxy_name: Option<&str>) -> bool {
        let desired = self.proxy_name.as_ref().map(|LabelValue(name)| name.as_str());
        proxy_name == desired && self.exception(name).is_none()
    }

    /// Returns the setting of [`Self::except`] that leaves a Service of this name to other
    /// programs.
    pub fn exception(&self, name: &ObjectName) -> Option<&ServicePattern> {
        self.except.iter().find(|pattern| pattern.matches(name))
    }

    /// Returns whether a Service is served by its labels.
    pub fn admit_labels<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.labels.iter().all(|it| it.is_fulfilled(label(&it.key)))
    }
}

/// Value of a label: at most 63 letters, digits, dashes, underscores and dots, with a letter or a
/// digit at both ends; not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelValue(pub String);

impl FromStr for LabelValue {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        if is_label_part(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(wrong(text, "the value of a label"))
    }
}

/// A Service, or all of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePattern {
    namespace: String,
    /// `None` for all Services of the namespace.
    name: Option<String>,
}

impl ServicePattern {
    fn matches(&self, service: &ObjectName) -> bool {
        let (namespace, name) = service.parts();
        namespace == Some(&self.namespace) && self.name.as_ref().is_none_or(|own| own == name)
    }
}

impl FromStr for ServicePattern {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        match text.split_once('/') {
            Some((namespace, "*")) if is_name(namespace) => {
                Ok(Self { namespace: namespace.to_owned(), name: None })
            }
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: Some(name.to_owned()) })
            }
            _ => {
                let expected = "NAMESPACE/NAME, or NAMESPACE/* for all of a namespace";
                Err(wrong(text, expected))
            }
        }
    }
}

impl fmt::Display for ServicePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name.as_deref().unwrap_or("*"))
    }
}

/// What one label must be, as in a label selector of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    condition: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Present,
    Absent,
    Is(String),
    /// Absent, or with another value.
    IsNot(String),
}

impl LabelRequirement {
    fn is_fulfilled(&self, value: Option<&str>) -> bool {
        match &self.condition {
            Condition::Present => value.is_some(),
            Condition::Absent => value.is_none(),
            Condition::Is(desired) => value == Some(desired),
            Condition::IsNot(unwanted) => value != Some(unwanted),
        }
    }
}

impl FromStr for LabelRequirement {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (key, condition) = if let Some((key, value)) = text.split_once("!=") {
            (key, Condition::IsNot(value.to_owned()))
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            (key, Condition::Is(value.to_owned()))
        } else if let Some(key) = text.strip_prefix('!') {
            (key, Condition::Absent)
        } else {
            (text, Condition::Present)
        };
        let is_valid = match &condition {
            Condition::Present | Condition::Absent => true,
            // A label may have an empty value.
            Condition::Is(value) | Condition::IsNot(value) => {
                value.is_empty() || is_label_part(value)
            }
        };
        if is_valid && is_label_key(key) {
            return Ok(Self { key: key.to_owned(), condition });
        }
        let expected = "KEY, !KEY, KEY=VALUE or KEY!=VALUE of a label";
        Err(wrong(text, expected))
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.condition {
            Condition::Present => f.write_str(key),
            Condition::Absent => write!(f, "!{key}"),
            Condition::Is(value) => write!(f, "{key}={value}"),
            Condition::IsNot(value) => write!(f, "{key}!={value}"),
        }
    }
}

fn wrong(text: &str, expected: &str) -> SettingError {
    SettingError(format!("is {text:?}; expected {expected}"))
}

/// Returns whether this is a key of a label: a name, perhaps after the name of a domain and `/`.
fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_name(domain) && is_label_part(name),
        None => is_label_part(text),
    }
}

fn is_label_part(text: &str) -> bool {
    is_made_of(text, b"-_.", 63)
}

/// Returns whether this may be the name of an object or of a domain (RFC 1123 subdomain).
fn is_name(text: &str) -> bool {
    is_made_of(text, b"-.", 253)
}

/// Returns whether a text has letters and digits at its ends, and those or `inner` between.
fn is_made_of(text: &str, inner: &[u8], longest: usize) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= longest
        && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || inner.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(proxy_name: &str, except: &[&str], labels: &[&str]) -> ServedServices {
        ServedServices {
            proxy_name: (!proxy_name.is_empty()).then(|| proxy_name.parse().unwrap()),
            except: except.iter().map(|it| it.parse().unwrap()).collect(),
            labels: labels.iter().map(|it| it.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn services_of_other_programs_are_left_out_by_proxy_name_and_by_name() {
        let (web, other) =
            (ObjectName::namespaced("default", "web"), ObjectName::namespaced("storage", "web"));
        let all = ServedServices::default();
        assert!(all.admit(&web, None) && !all.admit(&web, Some("")) && !all.admit(&web, Some("x")));
        let canary = served("canary", &[], &[]);
        assert!(canary.admit(&web, Some("canary")));
        assert!(!canary.admit(&web, None) && !canary.admit(&web, Some("x")));
        for (except, expected) in [
            ("default/web", [false, true]),
            ("default/we", [true, true]),
            ("default/*", [false, true]),
            ("storage/*", [true, false]),
        ] {
            let served = served("", &[except], &[]);
            assert_eq!([&web, &other].map(|name| served.admit(name, None)), expected, "{except}");
        }
    }

    #[test]
    fn labels_are_required_as_in_a_selector_of_kubernetes() {
        for (requirement, of_a, of_b, without) in [
            ("team", true, true, false),
            ("!team", false, false, true),
            ("team=a", true, false, false),
            ("team==a", true, false, false),
            ("team!=a", false, true, true),
        ] {
            let served = served("", &[], &[requirement, "!other"]);
            for (value, expected) in [(Some("a"), of_a), (Some("b"), of_b), (None, without)] {
                let label = |key: &str| value.filter(|_| key == "team");
                assert_eq!(served.admit_labels(label), expected, "{requirement} {value:?}");
            }
        }
    }

    #[test]
    fn the_selector_has_the_proxy_name_and_all_requirements() {
        let selector = |name, labels| served(name, &["a/b"], labels).label_selector();
        assert_eq!(selector("", &[]), "!service.kubernetes.io/service-proxy-name");
        assert_eq!(
            selector("dp-1", &["!x", "example.com/team!=a", "y==", "z"]),
            "service.kubernetes.io/service-proxy-name=dp-1,!x,example.com/team!=a,y=,z"
        );
    }

    #[test]
    fn wrong_texts_are_refused_with_what_is_expected() {
        for text in ["", "web", "/web", "a/", "a/b/c", "a b/c", "*/*", "a/*x"] {
            let error = text.parse::<ServicePattern>().unwrap_err().to_string();
            assert!(error.contains("expected NAMESPACE/NAME"), "{error}");
        }
        for text in ["", "!", "=", "a=b=c", "a in (b)", "a!=-b", "/a", "a//b", "!!a", "a=b,c"] {
            let error = text.parse::<LabelRequirement>().unwrap_err().to_string();
            assert!(error.contains("expected KEY, !KEY"), "{text}: {error}");
        }
        for text in ["", "-a", "a b", &"a".repeat(64)] {
            assert!(text.parse::<LabelValue>().is_err(), "{text}");
        }
    }
}
