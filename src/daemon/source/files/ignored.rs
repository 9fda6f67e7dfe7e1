//! Objects of kinds that routing does not use: counted by kind and ignored.
//!
//! A kind that exists neither in Kubernetes nor in another API group is a misspelling, and a
//! problem.

use std::collections::BTreeMap;
use std::fmt;

use engine::printable::Printable;

/// Number of ignored objects by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(BTreeMap<String, usize>);

impl Ignored {
    /// Returns whether no object was ignored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, kind: &str, version: &str, count: usize) {
        let group = group(version);
        let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        *self.0.entry(kind).or_default() += count;
    }

    pub(super) fn extend(&mut self, more: &Self) {
        for (kind, count) in &more.0 {
            *self.0.entry(kind.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ignored objects of other kinds:")?;
        for (i, (kind, count)) in self.0.iter().take(MAX_SHOWN).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma} {count} {}", Printable(kind))?;
        }
        match self.0.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, ", and those of {more} more kinds"),
        }
    }
}

/// Returns whether `kind` belongs to another part of Kubernetes or to another API group. `is_ours`
/// states whether routing uses a kind of that name.
pub(super) fn is_other(kind: &str, version: &str, is_ours: bool) -> bool {
    let group = group(version);
    match OTHER_KINDS.iter().find(|(other, _)| *other == group) {
        Some((_, kinds)) => kinds.contains(&kind),
        // In Kubernetes, each of these kinds has one group. Groups of others have domain names.
        None if is_ours => group.contains('.') && !group.ends_with(".k8s.io"),
        None => true,
    }
}

fn group(version: &str) -> &str {
    version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// Most kinds in one log line.
const MAX_SHOWN: usize = 20;

/// The other kinds of the API groups that are read (`kubectl api-resources`, Kubernetes 1.36).
const OTHER_KINDS: [(&str, &[&str]); 3] = [
    (
        "",
        &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "ServiceAccount",
        ],
    ),
    ("discovery.k8s.io", &[]),
    (
        "networking.k8s.io",
        &["ClusterCIDR", "IPAddress", "Ingress", "IngressClass", "NetworkPolicy"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_other_if_kubernetes_or_another_group_has_it() {
        for (kind, version, is_ours, expected) in [
            ("ConfigMap", "v1", false, true),
            ("Servic", "v1", false, false),
            ("Ingress", "networking.k8s.io/v1", false, true),
            ("EndpointSlic", "discovery.k8s.io/v1", false, false),
            ("Deployment", "apps/v1", false, true),
            ("Service", "serving.knative.dev/v1", true, true),
            ("Service", "apps/v1", true, false),
            ("EndpointSlice", "discovery.k8s.io/v1beta1", true, false),
            ("ServiceCIDR", "network.k8s.io/v1", true, false),
        ] {
            assert_eq!(is_other(kind, version, is_ours), expected, "{kind} {version}");
        }
    }

    #[test]
    fn a_line_names_a_limited_number_of_kinds() {
        let mut ignored = Ignored::default();
        ignored.add("Pod", "v1", 2);
        ignored.add("Job", "batch/v1", 1);
        assert_eq!(ignored.to_string(), "ignored objects of other kinds: 1 Job.batch, 2 Pod");
        (0..30).for_each(|number| ignored.add(&format!("Z{number}"), "a.b/v1", 1));
        assert!(ignored.to_string().ends_with(", and those of 12 more kinds"), "{ignored}");
    }
}
