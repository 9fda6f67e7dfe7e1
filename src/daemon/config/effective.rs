//! A configuration as a KubeProxyConfiguration.
//!
//! What is written means the same when it is read again: each field with an effect is there, with
//! the value in effect, and the mode and each given value stay as they are.

use serde_json::{Map, Value, json};

use super::fields::OWN_SCHEDULER;
use super::options::{SETTINGS, Setting};
use super::section::Section;
use super::{Config, Loaded};

impl Config {
    /// Returns the effective KubeProxyConfiguration, in mode nftables, with the other fields of
    /// `given`.
    pub(super) fn effective(&self, given: Value) -> Value {
        let mut whole = fields(&Section::NFTABLES, Setting::written_default);
        merge(&mut whole, given);
        let own = fields(&Section::NFTABLES, |setting| setting.written(self));
        overlay(&mut whole, own, |_| true);
        whole
    }
}

impl Loaded {
    /// Returns the KubeProxyConfiguration from which this was loaded, with all fields that have an
    /// effect in its mode. It names no node unless `given` does, so that nodes can share it.
    pub(super) fn written(&self, given: Value) -> Value {
        let section = Section::of(&self.notes);
        let value = |it: &Setting| it.written(&self.config).or_else(|| it.written_default());
        let mut whole = fields(&section, value);
        set(&mut whole, "hostnameOverride", "".into());
        // Our own scheduler would win.
        if section.is_ipvs() && given.pointer("/ipvs/scheduler").is_some_and(is_set) {
            set(&mut whole, OWN_SCHEDULER, "".into());
        }
        merge(&mut whole, given);
        whole
    }
}

/// Returns the fields with an effect in the mode of `section` that `value` has a value of.
fn fields(section: &Section, value: impl Fn(&Setting) -> Option<Value>) -> Value {
    let mut fields = json!({});
    for setting in SETTINGS {
        let path = setting.path(section.name);
        if let Some(value) = value(setting).filter(|_| section.has(setting, &path)) {
            set(&mut fields, &path, value);
        }
    }
    set(&mut fields, "mode", section.mode.into());
    fields
}

/// Sets the field at `path`, with dots between its parts.
pub(super) fn set(whole: &mut Value, path: &str, value: Value) {
    let nested = path.rsplit('.').fold(value, |inner, key| json!({ key: inner }));
    overlay(whole, nested, |_| true);
}

/// Copies the values of `more` to `whole` that are set.
fn merge(whole: &mut Value, more: Value) {
    overlay(whole, more, is_set);
}

/// Returns false for null, an empty text and an empty list, which mean the default.
fn is_set(value: &Value) -> bool {
    !value.is_null() && value != "" && value.as_array().is_none_or(|items| !items.is_empty())
}

/// Sets the fields of `whole` from `fields`, including nested objects, if `counts` accepts the
/// value.
fn overlay(whole: &mut Value, fields: Value, counts: fn(&Value) -> bool) {
    match (whole, fields) {
        (Value::Object(whole), Value::Object(fields)) => {
            for (key, value) in fields.into_iter().filter(|(_, value)| counts(value)) {
                let field = whole.entry(key).or_insert_with(|| Value::Object(Map::new()));
                overlay(field, value, counts);
            }
        }
        (whole, value) => *whole = value,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::sample::select;
    use tempfile::NamedTempFile;

    use super::*;
    use crate::config::fields::{API_VERSION, KIND};
    use crate::config::kube_proxy::KubeProxyFlags;
    use crate::config::options::{self, OptionKind, SECTIONS};
    use crate::config::{ConfigError, Notes, Source};

    fn file(text: &str) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn of_file(path: &Path) -> KubeProxyFlags {
        KubeProxyFlags::of_file(path.to_owned())
    }

    fn flags(words: &[String]) -> Result<KubeProxyFlags, ConfigError> {
        KubeProxyFlags::parse(words.iter().cloned())
    }

    /// Returns the configuration and the notes, without the lines of unknown fields, and without what
    /// kube-proxy refuses, which is another form of the same meaning.
    fn load(flags: &KubeProxyFlags) -> Result<(Config, Notes), ConfigError> {
        let Loaded { config, mut notes, .. } = flags.load()?;
        notes.refused.clear();
        for unknown in &mut notes.unknown {
            if let Some((_, field)) = unknown.split_once(": ") {
                *unknown = field.to_owned();
            }
        }
        Ok((config, notes))
    }

    /// The paths of all values that are not objects.
    fn leaves(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
        let Some(object) = value.as_object() else {
            found.insert(prefix.to_owned());
            return;
        };
        for (key, inner) in object {
            let dot = if prefix.is_empty() { "" } else { "." };
            leaves(inner, &format!("{prefix}{dot}{key}"), found);
        }
    }

    fn document(fields: &BTreeMap<&str, Value>) -> Value {
        let mut document = json!({ "apiVersion": API_VERSION, "kind": KIND });
        for (path, value) in fields {
            set(&mut document, path, value.clone());
        }
        document
    }

    /// Values of a field that are valid by themselves.
    fn candidates(path: &str, kind: OptionKind) -> Vec<Value> {
        let texts = |texts: &[&str]| texts.iter().map(|text| json!(text)).collect();
        match path {
            "apiVersion" => texts(&[API_VERSION]),
            "kind" => texts(&[KIND]),
            "mode" => texts(&["", "nftables", "nftables", "iptables", "ipvs"]),
            "clientConnection.kubeconfig" => texts(&["", "/k", "~", "a: b", "#1"]),
            "clientConnection.acceptContentTypes" | "clientConnection.contentType" => {
                texts(&["", "application/json", "*/*", "application/vnd.kubernetes.protobuf"])
            }
            "logging.format" => texts(&["", "text", "json"]),
            "hostnameOverride" => texts(&[
                "", "n", "Node-1", "yes", "off", "123", "1e3", "0x1f", "1:30", "null", "- a",
            ]),
            "bindAddress" => texts(&["", "0.0.0.0", "::", "10.0.0.1", "fd00::1"]),
            "healthzBindAddress" => texts(&["", "127.0.0.1", "[::]:1", "10.0.0.1:10256"]),
            "metricsBindAddress" => texts(&["", "0.0.0.0:7", "::1", "[::]"]),
            "iptables.masqueradeBit" | "nftables.masqueradeBit" => {
                vec![json!(0), json!(14), json!(31)]
            }
            "ipvs.scheduler" => texts(&["", "rr", "wlc", "mh", "sed", "unheard"]),
            "detectLocalMode" => {
                texts(&["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"])
            }
            "detectLocal.bridgeInterface" => texts(&["br0", "no", "0"]),
            "detectLocal.interfaceNamePrefix" => texts(&["cali", "1_0"]),
            "clusterCIDR" => texts(&["", "10.0.0.1/8", "fd00::/8, 10.0.0.0/8"]),
            "nodePortAddresses" => vec![
                json!([]),
                json!(["primary"]),
                json!(["localhost", "all"]),
                json!(["10.0.0.9/8", "::/0", "primary"]),
            ],
            "oomScoreAdj" => vec![json!(0), json!(-1000), json!(1000)],
            "deltaproxy.counters" => vec![json!(false), json!("services"), json!("endpoints")],
            "deltaproxy.flowtable" | "deltaproxy.directReturn.nodePorts" => {
                vec![json!(true), json!(false), json!("on"), json!("off")]
            }
            "deltaproxy.flowtableAfter" => texts(&["", "9bytes", "3 packets"]),
            "deltaproxy.flowtableDevices" => texts(&["", "eth0,cali*", "*"]),
            "deltaproxy.scheduler" => texts(&["", "random", "sed", "lc", "mh-port"]),
            "deltaproxy.services.proxyName" => texts(&["", "canary", "-"]),
            "deltaproxy.services.except" => vec![json!([]), json!(["a/b", "c/*"]), json!(["a"])],
            "deltaproxy.services.labels" => vec![json!([]), json!(["a!=b", "!c"]), json!(["!"])],
            "deltaproxy.externalAddresses.allowed" => {
                vec![json!([]), json!(["192.0.2.0/24", "fd00::1/64"]), json!(["x"])]
            }
            "deltaproxy.directReturn.mode" => {
                vec![json!(false), json!("off"), json!("annotated"), json!("loadBalancers")]
            }
            "deltaproxy.directReturn.devices" => vec![json!([]), json!(["eth0", "bond1"])],
            "deltaproxy.endedConnections.mode" => texts(&["keep", "annotated", "reset"]),
            "deltaproxy.endedConnections.remember" => texts(&["", "1m", "24h"]),
            "deltaproxy.nodeReadiness.lostAfter" => texts(&["", "0s", "1m", "24h"]),
            "deltaproxy.directReturn.remember" => texts(&["", "1s", "24h", "1.5s"]),
            "deltaproxy.directReturn.connections" => vec![json!(1024), json!(16_777_216)],
            "deltaproxy.directReturn.vxlanPort" => vec![json!(0), json!(1), json!(65_535)],
            "deltaproxy.leastConnections.interval" => texts(&["", "0s", "1s", "1m30s"]),
            "deltaproxy.leastConnections.changesPerSecond" => vec![json!(1), json!(50)],
            _ => of_type(kind),
        }
    }

    fn of_type(kind: OptionKind) -> Vec<Value> {
        match kind {
            OptionKind::Text | OptionKind::Any => vec![json!(""), json!("x"), json!("on")],
            OptionKind::Flag | OptionKind::Gate | OptionKind::Version => {
                vec![json!(true), json!(false)]
            }
            OptionKind::Whole => vec![json!(1), json!(7), json!(4096)],
            OptionKind::Number => vec![json!(0), json!(1.5)],
            OptionKind::Duration => {
                vec![json!(0), json!(""), json!("0s"), json!("1.5s"), json!("1h")]
            }
            OptionKind::Texts => vec![json!([]), json!(["10.0.0.0/8"])],
            OptionKind::Object | OptionKind::Opaque => vec![json!({}), Value::Null],
        }
    }

    /// Paths and types of all fields.
    fn all_fields() -> Vec<(String, OptionKind)> {
        let paths = |setting: &'static Setting| {
            let paths: BTreeSet<_> = SECTIONS.map(|section| setting.path(section)).into();
            paths.into_iter().map(|path| (path, setting.kind))
        };
        SETTINGS.iter().flat_map(paths).collect()
    }

    /// Some fields of a file, most of them valid together; a third of all fields are given.
    fn a_file() -> impl Strategy<Value = Value> {
        let given = all_fields().into_iter().map(|(path, kind)| {
            let mut values = candidates(&path, kind);
            values.push(Value::Null);
            let is_needed =
                matches!(&*path, "apiVersion" | "kind") || path.starts_with("detectLocal.");
            let value = select(values).prop_map(Some);
            let absent = if is_needed { 0 } else { 2 };
            (Just(path), prop_oneof![1 => value, absent => Just(None)])
        });
        given.collect::<Vec<_>>().prop_map(|given| {
            let given = given.iter();
            document(&given.filter_map(|(path, value)| Some((&**path, value.clone()?))).collect())
        })
    }

    #[test]
    fn every_field_with_an_effect_in_the_mode_is_written_and_no_other() {
        for mode in ["", "nftables", "iptables", "ipvs"] {
            let given = file(&document(&[("mode", json!(mode))].into()).to_string());
            let text = of_file(given.path()).written().unwrap();
            let written = crate::yaml::parse(&text).unwrap().remove(0).value;
            let mut found = BTreeSet::new();
            leaves(&written, "", &mut found);
            let section = Section::of(&of_file(given.path()).load().unwrap().notes);
            let known = all_fields().into_iter().map(|(path, _)| path);
            let has_effect = |path: &String| section.has(options::find(path).unwrap(), path);
            assert_eq!(found, known.filter(has_effect).collect(), "{mode:?}");
            assert_eq!(written["mode"], if mode.is_empty() { "iptables" } else { mode });
        }
    }

    #[test]
    fn a_written_file_of_mode_iptables_serves_node_ports_at_all_addresses_in_every_mode() {
        let kubeadm = file(&document(&[("mode", json!(""))].into()).to_string());
        let text = of_file(kubeadm.path()).written().unwrap();
        for mode in ["iptables", "nftables"] {
            let again = file(&text.replace("mode: iptables", &format!("mode: {mode}")));
            let routing = of_file(again.path()).load().unwrap().config.routing;
            assert_eq!(routing.node_port_addresses, "all".parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_written_file_names_a_node_only_if_one_is_given() {
        let flags = |line: &str| flags(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let text = flags("--proxy-mode=nftables").unwrap().written().unwrap();
        assert!(text.contains("hostnameOverride: \"\""), "{text}");
        let text = flags("--hostname-override=n1").unwrap().written().unwrap();
        assert!(text.contains("hostnameOverride: n1"), "{text}");
    }

    /// Values of a flag that are valid by themselves.
    fn of_flag(name: &str, default: &str) -> Vec<&'static str> {
        match name {
            "feature-gates" => vec!["AllowServiceExternalIPs=false", "AllAlpha=true"],
            "kubeconfig" => vec!["/k", ""],
            "master" => vec!["https://10.0.0.1:6443"],
            "hostname-override" => vec!["n", "yes", "007", ""],
            "bind-address" => vec!["::", "10.0.0.1", "0.0.0.0"],
            "healthz-bind-address" => vec!["127.0.0.1", "[::1]:3", ""],
            "metrics-bind-address" => vec!["0.0.0.0", "[::1]:4"],
            "healthz-port" | "metrics-port" => vec!["0", "9"],
            "proxy-mode" => vec!["", "nftables", "iptables", "ipvs"],
            "iptables-masquerade-bit" => vec!["0", "31"],
            "ipvs-scheduler" => vec!["", "mh", "lc"],
            "detect-local-mode" => vec!["", "NodeCIDR", "InterfaceNamePrefix"],
            "pod-interface-name-prefix" => vec!["cali"],
            "cluster-cidr" => vec!["10.0.0.0/8", "fd00::/8,10.0.0.0/8", ""],
            "nodeport-addresses" => vec!["", "primary", "all,localhost", "10.0.0.0/8"],
            "oom-score-adj" => vec!["0", "-5"],
            "logging-format" => vec!["text", "json"],
            "v" => vec!["0", "3", "5", "10"],
            _ => match default {
                "true" | "false" => vec!["true", "false"],
                text if text.ends_with('s') => vec!["0", "1s", "90m"],
                text if text.parse::<u32>().is_ok() => vec!["0", "17"],
                _ => vec!["x"],
            },
        }
    }

    fn some_flags() -> impl Strategy<Value = Vec<String>> {
        const ACTIONS: [&str; 6] =
            ["config", "write-config-to", "cleanup", "init-only", "version", "help"];
        let flags = KubeProxyFlags::default().listed().into_iter();
        let flags = flags.filter(|(name, _)| !ACTIONS.contains(&&**name));
        let words = flags.map(|(name, default)| {
            let value = select(of_flag(&name, &default));
            let word = value.prop_map(move |value| Some(format!("--{name}={value}")));
            prop_oneof![1 => word, 2 => Just(None)]
        });
        words.collect::<Vec<_>>().prop_map(|words| words.into_iter().flatten().collect())
    }

    proptest! {
        // About one of ten files has no invalid value.
        #![proptest_config(ProptestConfig {
            cases: 100,
            max_global_rejects: 10_000,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_file_that_is_written_and_read_again_means_the_same(given in a_file()) {
            let given = file(&given.to_string());
            let first = of_file(given.path());
            let loaded = load(&first);
            prop_assume!(loaded.is_ok());
            let (config, notes) = loaded.unwrap();
            let text = first.written().unwrap();
            let written = file(&text);
            let again = of_file(written.path());
            prop_assert_eq!(load(&again).unwrap(), (config.clone(), notes), "{}", text);
            prop_assert_eq!(again.written().unwrap(), text);

            let effective = file(&first.effective(&config).unwrap().to_string());
            prop_assert_eq!(load(&of_file(effective.path())).unwrap().0, config);
        }

        #[test]
        fn flags_that_are_written_and_read_again_mean_the_same(words in some_flags()) {
            let first = flags(&words).unwrap();
            let loaded = first.load();
            prop_assume!(loaded.is_ok());
            let mut config = loaded.unwrap().config;
            let listens = config.healthz_bind_address.is_some()
                && config.metrics_bind_address.is_some();
            let Ok(text) = first.written() else {
                prop_assert!(!listens, "{words:?}");
                return Ok(());
            };
            prop_assert!(listens, "a file cannot turn a server off: {text}");
            let written = file(&text);
            let again = of_file(written.path()).load().unwrap().config;
            // No field has the address of `--master`.
            if let Source::Server { kubeconfig, .. } = config.source {
                config.source = kubeconfig.map_or(Source::InCluster, Source::Kubeconfig);
            }
            prop_assert_eq!(again, config, "{}", text);
        }
    }
}
