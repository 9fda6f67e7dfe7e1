//! The fields in which two configurations differ, and their effect.
//!
//! The fields of the log are left out: flags of a daemon replace them, so that a file does not tell
//! what will be in effect.

use serde_json::Value;

use super::Config;
use super::options::SETTINGS;
use super::section::Section;

/// A field with another value.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// Path of the field, such as `nftables.masqueradeBit`.
    pub field: String,
    /// Value that the field had.
    pub from: Value,
    /// Value that it has.
    pub to: Value,
    /// Whether the tables depend on it.
    pub is_of_tables: bool,
}

impl Config {
    /// Returns the fields that differ in `other`, in the order of docs/options.md.
    pub fn changes(&self, other: &Self) -> Vec<FieldChange> {
        // Only the settings of the daemon differ.
        let (node_name, routing) = (self.node_name.clone(), self.routing.clone());
        let of_daemon = Self { node_name, routing, ..other.clone() };
        let changed = SETTINGS.iter().filter_map(|setting| {
            let [from, to, without] =
                [self, other, &of_daemon].map(|config| setting.written(config));
            let (field, is_of_tables) = (setting.path(Section::NFTABLES.name), to != without);
            let is_reported = from != to && !field.starts_with("logging.");
            let (from, to) = (from.filter(|_| is_reported)?, to?);
            Some(FieldChange { field, from, to, is_of_tables })
        });
        let address = |config: &Self| {
            config.routing.node_ip.map_or_else(|| "".into(), |address| address.to_string().into())
        };
        let (from, to): (Value, Value) = (address(self), address(other));
        let bound = (from != to).then(|| FieldChange {
            field: "bindAddress".to_owned(),
            from,
            to,
            is_of_tables: true,
        });
        bound.into_iter().chain(changed).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::config::Loaded;

    fn changes(from: &str, to: &str) -> Vec<(String, serde_json::Value, serde_json::Value, bool)> {
        let load = |body: &str| {
            let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n\
                        kind: KubeProxyConfiguration\nmode: nftables\n";
            Loaded::parse(&format!("{head}hostnameOverride: 'n'\n{body}")).unwrap().config
        };
        let changes = load(from).changes(&load(to)).into_iter();
        changes.map(|it| (it.field, it.from, it.to, it.is_of_tables)).collect()
    }

    #[test]
    fn each_changed_field_is_named_with_its_effect() {
        let to = "bindAddress: 10.0.0.1\nnftables: {masqueradeBit: 3}\n\
                  conntrack: {min: 7}\nhealthzBindAddress: 10.0.0.1:1\n\
                  deltaproxy: {counters: services, checkPeriod: 1h}\nlogging: {verbosity: 4}\n";
        let expected = [
            ("bindAddress", json!(""), json!("10.0.0.1"), true),
            ("healthzBindAddress", json!("0.0.0.0:10256"), json!("10.0.0.1:1"), false),
            ("nftables.masqueradeBit", json!(14), json!(3), true),
            ("conntrack.min", json!(131_072), json!(7), false),
            ("deltaproxy.counters", json!("off"), json!("services"), true),
            ("deltaproxy.checkPeriod", json!("10m0s"), json!("1h0m0s"), false),
        ];
        let expected =
            expected.map(|(field, from, to, tables)| (field.to_owned(), from, to, tables));
        assert_eq!(changes("", to), expected);
        assert_eq!(changes(to, to), []);
    }

    #[test]
    fn another_mode_of_local_detection_changes_each_of_its_fields() {
        let to = "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: br0}\n";
        let fields: Vec<_> =
            changes("clusterCIDR: 10.0.0.0/8\n", to).into_iter().map(|it| (it.0, it.3)).collect();
        let expected = ["detectLocalMode", "clusterCIDR", "detectLocal.bridgeInterface"];
        assert_eq!(fields, expected.map(|field| (field.to_owned(), true)));
    }
}
