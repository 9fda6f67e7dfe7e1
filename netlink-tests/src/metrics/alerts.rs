//! The alerts of `deploy/alerts.yaml`.

use std::collections::BTreeMap;
use std::path::Path;

use daemon::yaml;

use super::evaluation::evaluate;
use super::expression::Expression;
use super::sample::Labels;
use super::scrapes::Scrapes;

/// The alerts.
#[derive(Clone, Debug)]
pub struct Alerts(Vec<Alert>);

#[derive(Clone, Debug)]
struct Alert {
    name: String,
    expression: Expression,
    summary: String,
}

/// The alerts that are active, each with its summaries. One with `for` fires if it stays active.
pub type Active = BTreeMap<String, Vec<String>>;

impl Alerts {
    /// The alerts of `deploy/alerts.yaml`.
    ///
    /// # Panics
    /// When the file is not as it should be.
    #[must_use]
    pub fn deployed() -> Self {
        let alert = |rule: &serde_json::Value| Alert {
            name: rule["alert"].as_str().expect("a name").to_owned(),
            expression: Expression::parse(rule["expr"].as_str().expect("an expression")),
            summary: rule["annotations"]["summary"].as_str().expect("a summary").to_owned(),
        };
        Self(rules("deploy/alerts.yaml").iter().map(alert).collect())
    }

    /// The alerts that are active after the newest scrape.
    ///
    /// # Panics
    /// When a summary names a label that the result of its expression has not.
    #[must_use]
    pub fn active(&self, scrapes: &Scrapes) -> Active {
        let mut active = Active::new();
        for alert in &self.0 {
            for sample in evaluate(&alert.expression, scrapes).vector() {
                let summary = filled_in(&alert.summary, &sample.labels, sample.value);
                active.entry(alert.name.clone()).or_default().push(summary);
            }
        }
        active
    }
}

/// The rules of the only group of a file.
pub(super) fn rules(path: &str) -> Vec<serde_json::Value> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path);
    let text = std::fs::read_to_string(&path).expect("a file of the repository");
    let document = yaml::parse(&text).expect("valid YAML").remove(0).value;
    document["groups"][0]["rules"].as_array().expect("rules").clone()
}

/// Replaces `{{ $labels.NAME }}` and `{{ $value }}`.
pub(super) fn filled_in(summary: &str, labels: &Labels, value: f64) -> String {
    let mut parts = summary.split("{{ ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (variable, rest) = part.split_once(" }}").expect("the end of a variable");
        match variable.strip_prefix("$labels.") {
            Some(label) => {
                let value = labels.get(label);
                text += value.unwrap_or_else(|| panic!("no label {label} for {summary:?}"));
            }
            None if variable == "$value" => text += &value.to_string(),
            None => panic!("the variable {variable} of {summary:?}"),
        }
        text += rest;
    }
    text
}
