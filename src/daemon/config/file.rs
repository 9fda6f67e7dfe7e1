//! The KubeProxyConfiguration file, `kubeproxy.config.k8s.io/v1alpha1`, as YAML or JSON.
//!
//! Every field of the API is accepted and its type checked. [`Notes`] lists fields that have a
//! value but no effect here, and fields that the API does not have.

mod field_reader;
mod way_back;

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use engine::routing::NodePortAddresses;
use engine::routing::local::DetectLocalMode;
use nft::Family;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};

pub(super) use self::field_reader::Origin;
use self::field_reader::Reader;
use super::fields::{
    API_VERSION, BRIDGE_INTERFACE, DEFAULT_MODE, DETECTION_FIELDS, INTERFACE_NAME_PREFIX,
    IPVS_SCHEDULER, KIND, LOCALHOST_NODE_PORTS, OWN_SCHEDULER, STRICT_MODE, detection_field,
};
use super::log::LogFlags;
use super::notes::Notes;
use super::options::{self, OptionKind, SETTINGS, Values, shortened};
use super::section::Section;
use super::{Config, ConfigError, Loaded, Source, duration, node_name};
use crate::named_file;
use crate::yaml::{self, Document};

impl Values {
    /// Reads the file at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path)?;
        Ok(Self { sha256: Some(sha256(&text)), ..Self::parse(path, &text)? })
    }

    /// Reads the file at `path` as a value, without checks.
    pub(super) fn value(path: &Path) -> Result<Value, ConfigError> {
        Ok(document(path, &read_text(path)?)?.value)
    }

    /// Parses `text`; errors name the file `path`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Reader::new(Origin::File(path), &document(path, text)?).read()
    }

    /// Returns the configuration for the given node name, else for the name in the file. `log`
    /// takes precedence over the log settings of the file.
    ///
    /// # Errors
    /// The name is blank, or there is none.
    pub(super) fn into_config(
        self,
        wanted_name: Option<&str>,
        source: Source,
        log: LogFlags,
    ) -> Result<Loaded, ConfigError> {
        let node_name = node_name(wanted_name.or(self.hostname_override.as_deref()))?;
        let config = Config { node_name, source, log: log.or(self.log), ..self.config };
        Ok(Loaded { config, notes: self.notes, sha256: self.sha256 })
    }

    /// Reads the fields that flags or a running daemon set.
    pub(super) fn of_fields(fields: Value, origin: Origin<'_>) -> Result<Self, ConfigError> {
        let document = Document::of(fields);
        Reader::new(origin, &document).read()
    }
}

/// Returns the digest as `sha256sum` prints it.
fn sha256(text: &str) -> String {
    let bytes = digest(&SHA256, text.as_bytes());
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let text = named_file::read(path, named_file::LONGEST)
        .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// Parses the first document, as kube-proxy does.
fn document(path: &Path, text: &str) -> Result<Document, ConfigError> {
    let syntax = |source| ConfigError::Syntax { path: path.to_owned(), source };
    let mut document = yaml::first(text).map_err(syntax)?;
    let is_json = text.trim_start().starts_with('{');
    if is_json && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        let message = "kube-proxy would refuse text that begins with { and is not JSON".to_owned();
        document.warnings.push((1, message));
    }
    Ok(document)
}

impl<'a> Reader<'a> {
    /// Returns the settings of the document, or all its errors.
    fn read(self) -> Result<Values, ConfigError> {
        let Some(root) = self.root() else { return Err(self.into_error()) };
        let mut notes = Notes { other_mode: self.other_mode(), ..Notes::default() };
        notes.unexpected =
            self.document.warnings.iter().map(|(line, it)| format!("line {line}: {it}")).collect();
        self.check(root, "", &mut notes);
        self.note_periods(&mut notes);
        let values = self.values(notes);
        if self.has_errors() { Err(self.into_error()) } else { Ok(values) }
    }

    /// Reads all fields with an effect in the mode, and notes those without effect in the mode of
    /// local detection.
    fn values(&self, notes: Notes) -> Values {
        let section = Section::of(&notes);
        let mut values = Values { notes, ..Values::default() };
        if values.notes.other_mode.is_some() {
            let (all, _) = NodePortAddresses::read_entries(&["all"]);
            values.config.routing.node_port_addresses = all;
        }
        for setting in SETTINGS {
            let path = setting.path(section.name);
            let Some(value) = self.value(&path).filter(|_| section.has(setting, &path)) else {
                continue;
            };
            // An empty text means the default, but as the flag of a server's address it turns that
            // server off.
            let is_unset = value == "" && setting.kind != OptionKind::Any;
            let is_flag = !matches!(self.origin, Origin::File(_));
            if is_unset && !(is_flag && path.ends_with("BindAddress")) {
                continue;
            }
            let own = detection_field(values.detect_local_mode);
            if DETECTION_FIELDS.contains(&&*path) && path != own {
                values.notes.without_effect.push(path);
                continue;
            }
            for error in setting.set(&mut values, value).err().unwrap_or_default() {
                self.report(&path, error);
            }
        }
        self.check_detection(values.detect_local_mode);
        if section.is_ipvs() && self.text(OWN_SCHEDULER).and(self.text(IPVS_SCHEDULER)).is_some() {
            values.notes.without_effect.push(IPVS_SCHEDULER.to_owned());
        }
        let scheduler = mem::take(&mut values.scheduler);
        let scheduler = scheduler.with(values.config.routing.least_connections);
        values.config.routing.scheduler = scheduler.scheduler;
        values.notes.scheduler = scheduler.reservation;
        values.notes.closes_localhost = self.closes_localhost(&values);
        values
    }

    /// Returns whether kube-proxy would serve NodePorts at 127.0.0.1, which needs `localhost` here.
    fn closes_localhost(&self, values: &Values) -> bool {
        let addresses = &values.config.routing.node_port_addresses;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        values.notes.other_mode.as_deref() == Some("iptables")
            && self.value(LOCALHOST_NODE_PORTS) != Some(&Value::Bool(false))
            && !addresses.opens_localhost(Family::Ip)
            && addresses.ranges.iter().any(|range| range.contains(&loopback))
    }

    /// Returns the root object if it is a KubeProxyConfiguration. As in kube-proxy, the case of these
    /// two keys does not matter.
    fn root(&self) -> Option<&'a Map<String, Value>> {
        let root = self.document.value.as_object();
        for (field, expected) in HEAD.into_iter().zip([API_VERSION, KIND]) {
            let mut fields = root.into_iter().flatten().filter(|(_, value)| !value.is_null());
            let found = fields.rfind(|(key, _)| key.eq_ignore_ascii_case(field));
            if found.is_none_or(|(_, value)| value != expected) {
                let shown = found.map_or("nothing".to_owned(), |(_, value)| shortened(value));
                let field = found.map_or(field, |(key, _)| key);
                self.report(field, format!("is {shown}; expected {expected}"));
            }
        }
        root.filter(|_| !self.has_errors())
    }

    /// Checks the types of all fields below `prefix` and notes those without effect.
    fn check(&self, object: &Map<String, Value>, prefix: &str, notes: &mut Notes) {
        for (key, value) in object {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            let Some(kind) = options::kind_of(&path) else {
                // Their names have any case.
                if !HEAD.iter().any(|name| name.eq_ignore_ascii_case(&path)) {
                    notes.unknown.push(self.place(&path));
                }
                continue;
            };
            if let Some(expected) = kind.mismatch(value) {
                self.report(&path, format!("is {}; expected {expected}", shortened(value)));
                continue;
            }
            let section = Section::of(notes);
            self.note_refusal(&path, kind, value, notes);
            let is_gate = prefix == "featureGates" && value.is_boolean();
            let is_used = options::find(&path).is_some_and(|setting| section.has(setting, &path));
            match value.as_object() {
                Some(inner) if kind == OptionKind::Object => self.check(inner, &path, notes),
                _ if !is_used && (is_gate || has_effect(value)) => notes.without_effect.push(path),
                _ => {}
            }
        }
    }

    /// Returns the mode if it is not nftables; with `deltaproxy.strictMode` that is an error.
    fn other_mode(&self) -> Option<String> {
        let (mode, shown) = match self.text("mode") {
            Some("nftables") => return None,
            None if self.found("mode").is_some_and(|mode| !mode.is_string()) => return None,
            None => (DEFAULT_MODE, format!("absent, which is {DEFAULT_MODE}")),
            Some(mode @ ("iptables" | "ipvs")) => (mode, format!("{mode:?}")),
            Some(other) => {
                let expected = "expected nftables, iptables or ipvs";
                self.report("mode", format!("is {other:?}; {expected}"));
                return None;
            }
        };
        if self.value(STRICT_MODE) == Some(&Value::Bool(true)) {
            let message = format!("is {shown}; with {STRICT_MODE} only nftables is accepted");
            self.report("mode", message);
        }
        Some(mode.to_owned())
    }

    /// Reports an absent name of an interface.
    fn check_detection(&self, mode: DetectLocalMode) {
        let field = detection_field(mode);
        let needs_name = [BRIDGE_INTERFACE, INTERFACE_NAME_PREFIX].contains(&field);
        if !needs_name || self.found(field).is_some_and(|name| name != "") {
            return;
        }
        match self.origin {
            Origin::Own => {
                let flag = options::own_flag(field);
                self.push(1, ConfigError::DetectLocal { mode, flag });
            }
            Origin::File(_) | Origin::Flags(_) => {
                self.report(field, format!("is empty; expected a name for mode {mode}"));
            }
        }
    }
}

/// The fields that name the type of the file.
const HEAD: [&str; 2] = ["apiVersion", "kind"];

/// Returns true unless the API treats the value as unset.
fn has_effect(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => {
            !text.is_empty()
                && duration::parse(text).ok() != Some(Duration::ZERO)
                && !text.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
        }
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(has_effect),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use engine::counters::Counters;
    use engine::flowtable::{Offload, Threshold};
    use engine::model::{HashedSource, Scheduler};
    use engine::routing::{DirectMode, DirectReturn, LocalDetection, Routing};
    use tracing::level_filters::LevelFilter;

    use super::super::fields::CLUSTER_CIDR;
    use super::field_reader::MOST_ERRORS;
    use super::*;
    use crate::config::log::LogFormat;
    use crate::config::scheduler::ChosenScheduler;
    use crate::config::{
        CHECK_PERIOD, ConntrackSettings, ContentTypes, LogSettings, NodeReadiness, Periods,
        listen_address,
    };

    const HEADER: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n\
                        kind: KubeProxyConfiguration\nmode: nftables\n";

    fn parse(body: &str) -> Result<Values, ConfigError> {
        Values::parse(Path::new("k.yaml"), &format!("{HEADER}{body}"))
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = Values::read(Path::new("/dev/zero")).err().unwrap().to_string();
        let expected = "cannot read the configuration file /dev/zero: it is longer than 16 MiB";
        assert_eq!(error, expected);
    }

    #[track_caller]
    fn read(body: &str) -> Values {
        parse(body).unwrap()
    }

    #[track_caller]
    fn refused(body: &str) -> String {
        parse(body).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_configuration_has_the_defaults() {
        let expected = Values {
            sha256: None,
            kubeconfig: None,
            hostname_override: None,
            log: LogFlags::default(),
            detect_local_mode: DetectLocalMode::default(),
            scheduler: ChosenScheduler::default(),
            config: Config {
                node_name: String::new(),
                source: Source::InCluster,
                content_types: ContentTypes::default(),
                log: LogFlags::default().or(LogFlags::default()),
                routing: Routing::default(),
                periods: Periods { min_sync: Duration::ZERO, check: CHECK_PERIOD },
                owns_tables: true,
                node_readiness: NodeReadiness::default(),
                healthz_bind_address: Some(listen_address::DEFAULT_HEALTHZ),
                metrics_bind_address: Some(listen_address::DEFAULT_METRICS),
                bind_address_hard_fail: false,
                conntrack: ConntrackSettings::of_kube_proxy(),
                oom_score_adj: Some(-999),
            },
            notes: Notes::default(),
        };
        assert_eq!(read(""), expected);
        let said_nothing = "clientConnection:\n  kubeconfig: ''\nclusterCIDR: ''\nnftables:\n  \
                            masqueradeBit: null\n  minSyncPeriod: 0s\n  syncPeriod: 0s\n\
                            nodePortAddresses: null\nhealthzBindAddress: ''\nipvs: null\n\
                            conntrack: {min: null}\nwinkernel: {enableDSR: false}\n\
                            oomScoreAdj: null\ndetectLocalMode: ''\n";
        assert_eq!(read(said_nothing), expected);
    }

    #[test]
    fn the_example_file_sets_the_fields_that_it_shows() {
        let text = include_str!("../../../examples/kube-proxy-config.yaml");
        let file = Values::parse(Path::new("example"), text).unwrap();
        assert_eq!(
            file.config.routing.local_detection,
            LocalDetection::ClusterCidr("10.244.0.0/16,fd00:10:244::/56".parse().unwrap())
        );
        assert_eq!(file.kubeconfig, Some("/var/lib/kube-proxy/kubeconfig.conf".into()));
        assert_eq!(file.config.periods.min_sync, Duration::ZERO);
        assert_eq!(file.config.periods.check, CHECK_PERIOD);
        assert_eq!(file.notes, Notes::default());
    }

    #[test]
    fn every_field_with_an_effect_has_it() {
        let file = read(
            "clientConnection: {kubeconfig: /k}\nclusterCIDR: 10.0.0.0/8\nhostnameOverride: 'n'\n\
             nftables: {masqueradeAll: true, masqueradeBit: 31, minSyncPeriod: 1m30s}\n\
             nodePortAddresses: [primary, localhost, 192.168.0.0/16, '::/0']\nhealthzBindAddress: 127.0.0.1\n\
             metricsBindAddress: '[::1]:9999'\ndetectLocalMode: ClusterCIDR\n\
             deltaproxy: {checkPeriod: 1h, tableOwnership: off}\n",
        );
        assert_eq!(file.kubeconfig, Some("/k".into()));
        assert_eq!(file.hostname_override.as_deref(), Some("n"));
        let cidrs = "10.0.0.0/8".parse().unwrap();
        assert_eq!(file.config.routing.local_detection, LocalDetection::ClusterCidr(cidrs));
        assert!(file.config.routing.masquerade_all);
        assert_eq!(file.config.routing.masquerade_mark(), 1 << 31);
        let node_ports = "192.168.0.0/16,::/0,primary,localhost".parse().unwrap();
        assert_eq!(file.config.routing.node_port_addresses, node_ports);
        assert_eq!(file.config.periods.min_sync, Duration::from_secs(90));
        assert_eq!(file.config.periods.check, Duration::from_secs(3600));
        assert!(!file.config.owns_tables);
        assert_eq!(file.config.healthz_bind_address.unwrap().to_string(), "127.0.0.1:10256");
        assert_eq!(file.config.metrics_bind_address.unwrap().to_string(), "[::1]:9999");
        assert_eq!(Notes { refused: Vec::new(), ..file.notes }, Notes::default());
    }

    #[test]
    fn the_mode_selects_how_pods_are_detected_and_settings_of_other_modes_have_no_effect() {
        let all = "clusterCIDR: 10.0.0.0/8\ndetectLocal:\n  bridgeInterface: br0\n  \
                   interfaceNamePrefix: cali\ndetectLocalMode: ";
        let cluster_cidr = LocalDetection::ClusterCidr("10.0.0.0/8".parse().unwrap());
        let bridge = LocalDetection::BridgeInterface("br0".parse().unwrap());
        let prefix = LocalDetection::InterfaceNamePrefix("cali".parse().unwrap());
        for (mode, expected, own) in [
            ("ClusterCIDR", cluster_cidr, CLUSTER_CIDR),
            ("NodeCIDR", LocalDetection::NodeCidr, ""),
            ("BridgeInterface", bridge, BRIDGE_INTERFACE),
            ("InterfaceNamePrefix", prefix, INTERFACE_NAME_PREFIX),
        ] {
            let file = read(&format!("{all}{mode}\n"));
            assert_eq!(file.config.routing.local_detection, expected);
            let mut others = vec![CLUSTER_CIDR, BRIDGE_INTERFACE, INTERFACE_NAME_PREFIX];
            others.retain(|field| *field != own);
            assert_eq!(file.notes.without_effect, others);
        }
    }

    #[test]
    fn flags_of_the_log_have_precedence_over_the_file() {
        let text = "logging: {format: json, verbosity: 4, flushFrequency: 5s, vmodule: []}\n";
        let settings = |log: LogFlags| {
            read(text).into_config(Some("n"), Source::InCluster, log).unwrap().config.log
        };
        let of_file = LogSettings { level: LevelFilter::DEBUG, format: LogFormat::Json };
        assert_eq!(settings(LogFlags::default()), of_file);
        let flags =
            LogFlags { log_level: Some(LevelFilter::WARN), log_format: Some(LogFormat::Text) };
        let of_flags = LogSettings { level: LevelFilter::WARN, format: LogFormat::Text };
        assert_eq!(settings(flags), of_flags);
        assert_eq!(read(text).notes.without_effect, ["logging.flushFrequency"]);
        let wrong = parse("logging: {format: xml}\n").unwrap_err().to_string();
        assert_eq!(wrong, "k.yaml:4: logging.format: is \"xml\"; expected text or json");
    }

    #[test]
    fn an_ipv6_bind_address_makes_the_defaults_ipv6() {
        let file = read("bindAddress: '::'\n");
        assert_eq!(file.config.healthz_bind_address.unwrap().to_string(), "[::]:10256");
        assert_eq!(file.config.metrics_bind_address.unwrap().to_string(), "[::1]:10249");
        assert_eq!((file.config.routing.node_ip, file.notes), (None, Notes::default()));
        let file = read("bindAddress: 10.0.0.1\n");
        assert_eq!(file.config.routing.node_ip, Some([10, 0, 0, 1].into()));
        assert_eq!(file.notes, Notes::default());
    }

    #[test]
    fn conntrack_and_the_oom_score_are_read() {
        let file = read(
            "oomScoreAdj: 0\nconntrack: {maxPerCore: 0, min: 5, tcpBeLiberal: true, \
             tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 2h, udpTimeout: 10s, \
             udpStreamTimeout: 0s}\n",
        );
        assert_eq!(file.config.oom_score_adj, Some(0));
        let expected = ConntrackSettings {
            max_per_core: 0,
            min: 5,
            tcp_established_timeout: Duration::ZERO,
            tcp_close_wait_timeout: Duration::from_hours(2),
            tcp_be_liberal: true,
            udp_timeout: Duration::from_secs(10),
            udp_stream_timeout: Duration::ZERO,
        };
        assert_eq!(file.config.conntrack, expected);
        assert_eq!(file.notes, Notes::default());
        for (body, error) in [
            ("oomScoreAdj: -1001\n", "k.yaml:4: oomScoreAdj: is -1001; expected -1000 to 1000"),
            (
                "conntrack: {min: -1}\n",
                "k.yaml:4: conntrack.min: is -1; expected a number from 0 to 4294967295",
            ),
        ] {
            assert_eq!(refused(body), error);
        }
    }

    #[test]
    fn external_ips_are_served_unless_the_gate_says_otherwise() {
        assert!(read("").config.routing.external_addresses.external_ips);
        assert!(
            read("featureGates: {NFTablesProxyMode: true}\n")
                .config
                .routing
                .external_addresses
                .external_ips
        );
        let file = read("featureGates: {AllowServiceExternalIPs: false}\n");
        assert!(!file.config.routing.external_addresses.external_ips);
        assert!(file.notes.without_effect.is_empty());
    }

    #[test]
    fn content_types_are_protobuf_or_json() {
        let are_json = |fields: &str| {
            let file = read(&format!("clientConnection: {{{fields}}}\n"));
            assert!(file.notes.without_effect.is_empty(), "{:?}", file.notes);
            file.config.content_types.are_json()
        };
        assert!(!are_json("contentType: '', acceptContentTypes: ''"));
        assert!(are_json("contentType: application/json"));
        assert!(are_json("acceptContentTypes: 'application/json'"));
        assert!(!are_json(
            "contentType: application/json, acceptContentTypes: application/vnd.kubernetes.protobuf"
        ));
        assert_eq!(
            refused("clientConnection:\n  contentType: application/yaml\n"),
            "k.yaml:5: clientConnection.contentType: is \"application/yaml\"; \
             expected application/vnd.kubernetes.protobuf or application/json"
        );
    }

    #[test]
    fn json_is_accepted() {
        let text = format!(
            r#"{{"apiVersion": "{API_VERSION}", "kind": "{KIND}", "nftables": {{"masqueradeBit": 3}}}}"#
        );
        let file = Values::parse(Path::new("k.json"), &text).unwrap();
        assert_eq!(file.notes.other_mode.as_deref(), Some("iptables"));
        assert_eq!(file.config.routing.masquerade_bit, 14);
        assert_eq!(file.notes.without_effect, ["nftables.masqueradeBit"]);
    }

    #[test]
    fn the_scheduler_is_that_of_mode_ipvs_or_of_our_own_field() {
        let maglev = Scheduler::Maglev(HashedSource::Address);
        let head = HEADER.replace("mode: nftables", "mode: ipvs");
        let ipvs =
            |body: &str| Values::parse(Path::new("k.yaml"), &format!("{head}{body}")).unwrap();
        let file = ipvs("ipvs: {scheduler: sh}\n");
        assert_eq!(file.config.routing.scheduler, maglev);
        assert_eq!((file.notes.without_effect, file.notes.scheduler), (vec![], None));
        assert_eq!(ipvs("ipvs: {scheduler: ''}\n").config.routing.scheduler, Scheduler::Random);
        let file = ipvs("ipvs: {scheduler: wlc}\n");
        assert_eq!(file.config.routing.scheduler, Scheduler::Random);
        let lines = file.notes.lines();
        assert!(lines[1].starts_with("scheduler lc is off: random is used"), "{lines:?}");
        let file = ipvs("ipvs: {scheduler: wlc}\ndeltaproxy: {leastConnections: {interval: 5s}}\n");
        assert_eq!(file.config.routing.scheduler, Scheduler::LeastConnections);
        let settings = file.config.routing.least_connections.unwrap();
        assert_eq!((settings.interval.as_secs(), settings.changes_per_second), (5, 1_000));
        assert_eq!(file.notes.scheduler, None);
        assert_eq!(
            refused("deltaproxy:\n  leastConnections:\n    interval: 5ms\n"),
            "k.yaml:6: deltaproxy.leastConnections.interval: \
             is 5ms; expected at least 1s, or 0s for none"
        );
        let file = ipvs(
            "ipvs: {scheduler: mh}\ndeltaproxy: {scheduler: mh-port, hashSeed: 7, slotBudget: 0}\n",
        );
        let by_port = Scheduler::Maglev(HashedSource::AddressAndPort);
        assert_eq!((file.config.routing.scheduler, file.config.routing.hash_seed), (by_port, 7));
        assert_eq!(file.config.routing.slot_budget, 0);
        assert_eq!(read("").config.routing.slot_budget, 1_048_576);
        assert_eq!(file.notes.without_effect, ["ipvs.scheduler"]);
        assert_eq!(read("ipvs: {scheduler: mh}\n").config.routing.scheduler, Scheduler::Random);
        assert_eq!(
            refused("deltaproxy: {scheduler: best}\n"),
            "k.yaml:4: deltaproxy.scheduler: is \"best\"; \
             expected random, rr, wrr, lc, wlc, sh, sh-port, mh or mh-port"
        );
    }

    #[test]
    fn fields_without_effect_and_unknown_ones_are_named_in_one_line_each() {
        let file = read(
            "ipvs: {scheduler: rr}\nconfigSyncPeriod: 15m\n\
             featureGates: {NFTablesProxyMode: true, KubeProxyIPVS: true, A: true}\nmtu: 9000\nnftables:\n  speed: high\n",
        );
        assert_eq!(
            file.notes.lines(),
            [
                "fields of the configuration without effect: \
                 configSyncPeriod, featureGates.KubeProxyIPVS, featureGates.NFTablesProxyMode, ipvs.scheduler",
                "unknown fields of the configuration: line 6: featureGates.A, line 7: mtu, line 9: nftables.speed",
            ]
        );
    }

    #[test]
    fn yaml_that_kube_proxy_takes_has_the_same_meaning() {
        let bit = |file: &Values| file.config.routing.masquerade_bit;
        for value in ["14.0", "1e1", "1_4", "08", "0x1F", "017", "0b11", "0o7", "!!int '9'", "+5"] {
            let expected = match value {
                "14.0" | "1_4" => 14,
                "1e1" => 10,
                "08" => 8,
                "0x1F" => 31,
                "017" => 15,
                "0b11" => 3,
                "0o7" => 7,
                "+5" => 5,
                _ => 9,
            };
            let file = read(&format!("nftables: {{masqueradeBit: {value}}}\n"));
            assert_eq!((bit(&file), file.notes), (expected, Notes::default()), "{value}");
        }
        for (value, expected) in
            [("y", true), ("Y", true), ("n", false), ("N", false), ("on", true)]
        {
            let file = read(&format!("nftables: {{masqueradeAll: {value}}}\n"));
            assert_eq!(file.config.routing.masquerade_all, expected, "{value}");
        }
        for (body, unexpected) in [
            ("nftables: &x {masqueradeBit: 7}\niptables: *x\n", ""),
            ("x: &x {masqueradeBit: 7}\nnftables:\n  <<: *x\n", ""),
            ("x: &x {masqueradeBit: 7}\nnftables:\n  <<: [*x, {masqueradeBit: 8}]\n", ""),
            ("nftables:\n  <<: {masqueradeBit: 8}\n  masqueradeBit: 7\n", ""),
            ("nftables:\t\n  masqueradeBit:\t7\t\n", ""),
            ("nftables: {\n\tmasqueradeBit: 7\n}\n", ""),
            ("'nftables': {\"masqueradeBit\": 7} # comment\n", ""),
            ("nftables: {masqueradeBit: 7}\r\nmode: nftables\r\n", "key \"mode\" replaces"),
            ("nftables:\n  masqueradeBit: 8\n  masqueradeBit: 7\n", "line 6: key"),
            ("nftables: {masqueradeBit: 8}\nnftables: {masqueradeBit: 7}\n", "line 5: key"),
            ("nftables: {masqueradeBit: 7}\n---\nkind: X\n", "line 6: what follows"),
            ("nftables: {masqueradeBit: 7}\n---\n[\n", "line 6: what follows"),
            ("nftables: {masqueradeBit: 7}\n...\n", ""),
        ] {
            let file = read(body);
            assert_eq!(bit(&file), 7, "{body}");
            let notes = file.notes.unexpected;
            assert_eq!(notes.len(), usize::from(!unexpected.is_empty()), "{body}: {notes:?}");
            assert!(notes.iter().all(|it| it.contains(unexpected)), "{body}: {notes:?}");
        }
    }

    #[test]
    fn the_names_of_kind_and_api_version_have_any_case() {
        for (kind, version) in
            [("Kind", "APIVersion"), ("KIND", "apiversion"), ("kind", "ApiVersion")]
        {
            let head = HEADER.replace("kind", kind).replace("apiVersion", version);
            let file = Values::parse(Path::new("k"), &head).unwrap();
            assert_eq!(file.notes, Notes::default(), "{head}");
            let wrong = head.replace("Configuration", "X");
            let error = Values::parse(Path::new("k"), &wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("k:2: {kind}: is \"KubeProxyX\"")), "{error}");
        }
        // Other names have one case.
        assert_eq!(read("Nftables: {}\n").notes.unknown, ["line 4: Nftables"]);
        let json = "{\"apiVersion\": \"kubeproxy.config.k8s.io/v1alpha1\", \"Kind\": \
                    \"KubeProxyConfiguration\", \"mode\": \"nftables\"";
        let parsed = |end: &str| Values::parse(Path::new("k"), &format!("{json}{end}")).unwrap();
        assert_eq!(parsed("}").notes, Notes::default());
        let refused = "line 1: kube-proxy would refuse text that begins with { and is not JSON";
        assert_eq!(parsed(", }").notes.unexpected, [refused]);
    }

    /// What kube-proxy refuses, with a part of the note, and what it takes.
    const REFUSED: &[(&str, &str)] = &[
        ("configSyncPeriod: null", "configSyncPeriod: is null; it expects a duration in quotes"),
        ("nftables: {minSyncPeriod: null}", "nftables.minSyncPeriod: is null"),
        ("conntrack: {udpTimeout: 0}", "conntrack.udpTimeout: is 0; it expects a duration"),
        ("conntrack: {tcpEstablishedTimeout: ''}", "conntrack.tcpEstablishedTimeout: is \"\""),
        ("conntrack: {tcpEstablishedTimeout: null}", ""),
        ("conntrack: {maxPerCore: 3000000000}", "conntrack.maxPerCore: is 3000000000"),
        ("conntrack: {min: null, maxPerCore: 2147483647}", ""),
        ("featureGates: {NFTablesProxyMode: false}", "it expects true, always"),
        ("featureGates: {MultiCIDRServiceAllocator: null}", "it expects true, always"),
        ("featureGates: {ComponentFlagz: false, NFTablesProxyMode: true}", ""),
        ("clusterCIDR: '10.0.0.0/8, fd00::/8'", "it expects ranges without blanks"),
        ("clusterCIDR: ' '", "it expects ranges without blanks"),
        ("clusterCIDR: 010.0.0.0/08", ""),
        ("clusterCIDR: ' '\ndetectLocalMode: NodeCIDR", ""),
        ("clientConnection: {burst: -1}", "clientConnection.burst: is -1"),
        ("configSyncPeriod: -1s", "it expects more than 0s"),
        ("configSyncPeriod: 0s", ""),
        ("healthzBindAddress: '[::1]'", "healthzBindAddress: is \"[::1]\""),
        ("metricsBindAddress: ' 127.0.0.1'", "it expects IP or IP:port"),
        ("metricsBindAddress: ''\nhealthzBindAddress: '::1'", ""),
        ("iptables: {masqueradeBit: 32}", "it expects a bit from 0 to 31"),
        ("ipvs: {tcpTimeout: -5s, excludeCIDRs: [x]}", ""),
        ("nodePortAddresses: [primary, 10.0.0.0/8]", "it expects ranges, or primary alone"),
        ("nodePortAddresses: [localhost]", "nodePortAddresses: is [\"localhost\"]"),
        ("nodePortAddresses: [' ::/0']", "it expects ranges, or primary alone"),
        ("nodePortAddresses: ['']", "it expects ranges, or primary alone"),
        ("nodePortAddresses: [primary]", ""),
        ("nodePortAddresses: [10.0.0.0/8, '::/0']", ""),
        ("portRange: 1-x", "it expects ports such as 300-2000"),
        ("portRange: 300-2000", ""),
        ("showHiddenMetricsForVersion: '1.30'", "the minor version before its own"),
        ("nftables: {minSyncPeriod: 1m}", "it expects at most nftables.syncPeriod"),
        ("nftables: {syncPeriod: 500ms}", "at least nftables.minSyncPeriod, which is 1s"),
        ("nftables: {syncPeriod: -1s}", "nftables.syncPeriod: is \"-1s\""),
        ("nftables: {syncPeriod: 1m, minSyncPeriod: 1m}", ""),
        ("iptables: {syncPeriod: -1s, minSyncPeriod: 1h}", ""),
        ("logging: {flushFrequency: [5]}", "it expects a duration, or nanoseconds"),
        ("logging: {flushFrequency: 5000000000}", ""),
        ("logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}", "logging.vmodule"),
        ("logging: {vmodule: [{filePattern: a, verbosity: 1}]}", ""),
        ("logging: {options: {text: {splitStream: true}}}", "it expects gate LoggingAlphaOptions"),
        ("logging: {options: {json: {infoBufferSize: '0', splitStream: false}}}", ""),
        ("deltaproxy: {checkPeriod: 0, hashSeed: 4000000000}", ""),
    ];

    #[test]
    fn what_kube_proxy_refuses_is_taken_with_a_note() {
        for (body, note) in REFUSED {
            let notes = read(&format!("{body}\n")).notes.refused;
            assert_eq!(notes.len(), usize::from(!note.is_empty()), "{body}: {notes:?}");
            assert!(
                notes.iter().all(|it| it.starts_with("line ") && it.contains(note)),
                "{notes:?}"
            );
        }
        let ipvs = HEADER.replace("nftables", "ipvs");
        let body = "ipvs: {tcpTimeout: -5s, excludeCIDRs: [x], minSyncPeriod: 40s}\n";
        let file = Values::parse(Path::new("k"), &format!("{ipvs}{body}")).unwrap();
        assert_eq!(file.notes.refused.len(), 3, "{:?}", file.notes.refused);
        assert!(
            !read("featureGates: {AllowServiceExternalIPs: null}\n")
                .config
                .routing
                .external_addresses
                .external_ips
        );
    }

    #[test]
    fn wrong_values_are_errors_with_file_line_field_and_expectation() {
        for (body, error) in [
            (
                "nftables:\n  masqueradeBit: 40\n",
                "k.yaml:5: nftables.masqueradeBit: is 40; expected a bit from 0 to 31",
            ),
            (
                "nftables:\n  masqueradeBit: -1\n",
                "k.yaml:5: nftables.masqueradeBit: is -1; expected a bit from 0 to 31",
            ),
            (
                "nftables:\n  masqueradeAll: 1\n",
                "k.yaml:5: nftables.masqueradeAll: is 1; expected true or false",
            ),
            (
                "nftables: {minSyncPeriod: 5}\n",
                "k.yaml:4: nftables.minSyncPeriod: is 5; expected a duration such as 1s, 1m30s or 500ms, or 0",
            ),
            ("nftables: []\n", "k.yaml:4: nftables: is []; expected an object"),
            (
                "\nclusterCIDR: 10.0.0.0\n",
                "k.yaml:5: clusterCIDR: \"10.0.0.0\" is not an address range such as 10.244.0.0/16 or fd00:10::/64",
            ),
            (
                "clusterCIDR: 10\n",
                "k.yaml:4: clusterCIDR: is 10; expected text (in quotes if need be)",
            ),
            (
                "healthzBindAddress: 10256\n",
                "k.yaml:4: healthzBindAddress: is 10256; expected text (in quotes if need be)",
            ),
            (
                "metricsBindAddress: here\n",
                "k.yaml:4: metricsBindAddress: \"here\" is not an address to listen on such as 0.0.0.0:10256 or [::]:10256",
            ),
            (
                "hostnameOverride: ' '\n",
                "k.yaml:4: hostnameOverride: is blank; expected the name of a Node",
            ),
            (
                "detectLocalMode: Guess\n",
                "k.yaml:4: detectLocalMode: is \"Guess\"; expected ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
            ),
            (
                "detectLocalMode: BridgeInterface\n",
                "k.yaml:1: detectLocal.bridgeInterface: is empty; expected a name for mode BridgeInterface",
            ),
            (
                "detectLocal: {interfaceNamePrefix: a/b}\ndetectLocalMode: InterfaceNamePrefix\n",
                "k.yaml:4: detectLocal.interfaceNamePrefix: \"a/b\" is not the name of an interface: \
                 expected 1 to 15 bytes without spaces and without any of / : \" * \\",
            ),
            ("bindAddress: eth0\n", "k.yaml:4: bindAddress: is \"eth0\"; expected an IP address"),
            (
                "conntrack: {tcpBeLiberal: maybe}\n",
                "k.yaml:4: conntrack.tcpBeLiberal: is \"maybe\"; expected true or false",
            ),
        ] {
            assert_eq!(refused(body), error);
        }
    }

    #[test]
    fn all_errors_of_a_file_are_reported_in_the_order_of_its_lines() {
        let body = "oomScoreAdj: 2000\nclusterCIDR: 10\nconntrack:\n  min: -1\n  \
                    udpTimeout: soon\n  tcpBeLiberal: maybe\nlogging:\n  format: xml\n  \
                    verbosity: loud\nhealthzBindAddress: here\nbindAddress: eth0\n\
                    nftables: []\ndetectLocalMode: Guess\nnodePortAddresses: [x, primary, z]\n\
                    deltaproxy:\n  counters: all\n  flowtable: maybe\n  flowtableAfter: soon\n  \
                    scheduler: best\n  hashSeed: -1\n  leastConnections: {interval: 1ms}\n";
        let ConfigError::Several(errors) = parse(body).unwrap_err() else { panic!("one error") };
        let places = errors.iter().map(|error| {
            let ConfigError::Field { line, field, .. } = error else { panic!("{error}") };
            format!("{line} {field}")
        });
        let expected = [
            "4 oomScoreAdj",
            "5 clusterCIDR",
            "7 conntrack.min",
            "8 conntrack.udpTimeout",
            "9 conntrack.tcpBeLiberal",
            "11 logging.format",
            "12 logging.verbosity",
            "13 healthzBindAddress",
            "14 bindAddress",
            "15 nftables",
            "16 detectLocalMode",
            "17 nodePortAddresses",
            "17 nodePortAddresses",
            "19 deltaproxy.counters",
            "20 deltaproxy.flowtable",
            "21 deltaproxy.flowtableAfter",
            "22 deltaproxy.scheduler",
            "23 deltaproxy.hashSeed",
            "24 deltaproxy.leastConnections.interval",
        ];
        assert_eq!(places.collect::<Vec<_>>(), expected);
        let text = ConfigError::Several(errors).to_string();
        assert!(
            text.starts_with("k.yaml:4: oomScoreAdj: is 2000; expected -1000 to 1000\nk.yaml:5: ")
        );
        assert_eq!(text.lines().count(), expected.len());
    }

    #[test]
    fn errors_of_a_long_list_are_limited() {
        let items = vec!["x"; 1_000].join(", ");
        let error = parse(&format!("nodePortAddresses: [{items}]\n")).unwrap_err();
        assert_eq!(error.messages().len(), MOST_ERRORS);
    }

    #[test]
    fn wrong_items_of_a_list_are_errors_with_their_number() {
        for (body, error) in [
            (
                "nodePortAddresses: [primary, loopback]\n",
                "k.yaml:4: nodePortAddresses: item 2: \"loopback\" is not primary, localhost, all or \
                 an address range such as 192.168.0.0/16 or fd00::/64",
            ),
            (
                "nodePortAddresses: [localhost, 10.0.0.0/8, localhost]\n",
                "k.yaml:4: nodePortAddresses: item 3: \"localhost\" is there already; expected each \
                 keyword once",
            ),
            (
                "nodePortAddresses: primary\n",
                "k.yaml:4: nodePortAddresses: is \"primary\"; expected a list of texts",
            ),
        ] {
            assert_eq!(refused(body), error);
        }
    }

    #[test]
    fn other_modes_are_noted_and_keep_their_masquerade_fields() {
        for mode in ["iptables", "ipvs", "''"] {
            let head = HEADER.replace("nftables", mode);
            let body = "iptables: {masqueradeAll: true, masqueradeBit: 3}\n";
            let file = Values::parse(Path::new("k"), &(head + body)).unwrap();
            assert!(file.config.routing.masquerade_all, "{mode}");
            assert_eq!(file.config.routing.masquerade_bit, 3, "{mode}");
            assert_eq!(file.config.routing.node_port_addresses, "0.0.0.0/0,::/0".parse().unwrap());
            let [line] = &file.notes.lines()[..] else { panic!("{mode}: {:?}", file.notes) };
            assert!(line.contains("mode nftables is used"), "{line}");
        }
        let file = read("iptables: {masqueradeAll: true, masqueradeBit: 3}\n");
        assert!(!file.config.routing.masquerade_all);
        assert_eq!(file.notes.without_effect, ["iptables.masqueradeAll", "iptables.masqueradeBit"]);
    }

    #[test]
    fn node_ports_at_localhost_are_noted_where_kube_proxy_serves_them() {
        let head = HEADER.replace("nftables", "iptables");
        for (body, is_noted) in [
            ("", true),
            ("nodePortAddresses: [127.0.0.0/8]\n", false),
            ("iptables: {localhostNodePorts: true}\n", true),
            ("iptables: {localhostNodePorts: false}\n", false),
            ("nodePortAddresses: [localhost, all]\n", false),
            ("nodePortAddresses: [10.0.0.0/8]\n", false),
        ] {
            let file = Values::parse(Path::new("k"), &format!("{head}{body}")).unwrap();
            let line = file.notes.lines().remove(0);
            assert_eq!(line.contains("need localhost in nodePortAddresses"), is_noted, "{body}");
        }
        for mode in ["nftables", "ipvs"] {
            let head = HEADER.replace("nftables", mode);
            let file = Values::parse(Path::new("k"), &head).unwrap();
            assert!(!file.notes.closes_localhost, "{mode}");
        }
    }

    #[test]
    fn unknown_modes_and_other_kinds_are_refused() {
        let refused = |text: &str| Values::parse(Path::new("k"), text).unwrap_err().to_string();
        let userspace = HEADER.replace("nftables", "userspace");
        assert_eq!(
            refused(&userspace),
            "k:3: mode: is \"userspace\"; expected nftables, iptables or ipvs"
        );
        let strict = HEADER.replace("nftables", "iptables") + "deltaproxy: {strictMode: true}\n";
        assert_eq!(
            refused(&strict),
            "k:3: mode: is \"iptables\"; with deltaproxy.strictMode only nftables is accepted"
        );
        let expected = format!(
            "k:1: apiVersion: is nothing; expected {API_VERSION}\n\
             k:1: kind: is nothing; expected {KIND}"
        );
        assert_eq!(refused(""), expected);
        assert_eq!(refused("[1, 2]"), expected);
        assert_eq!(
            refused(&HEADER.replace("Configuration", "Config")),
            "k:2: kind: is \"KubeProxyConfig\"; expected KubeProxyConfiguration"
        );
    }

    #[test]
    fn counters_are_a_word_and_off_needs_no_quotes() {
        let counters = |value: &str| {
            let file = parse(&format!("deltaproxy: {{counters: {value}}}\n"));
            file.map(|file| file.config.routing.counters).map_err(|error| error.to_string())
        };
        assert_eq!(read("").config.routing.counters, Counters::Off);
        for off in ["off", "\"off\"", "null"] {
            assert_eq!(counters(off), Ok(Counters::Off), "{off}");
        }
        assert_eq!(counters("services"), Ok(Counters::Services));
        assert_eq!(counters("endpoints"), Ok(Counters::Endpoints));
        for (wrong, expectation) in [
            ("Services", "\"Services\" is not one of off, services, endpoints"),
            ("\"\"", "\"\" is not one of off, services, endpoints"),
            ("true", "is true; expected off, services or endpoints"),
            ("1", "is 1; expected off, services or endpoints"),
        ] {
            let error = counters(wrong).unwrap_err();
            assert!(error.ends_with(&format!("deltaproxy.counters: {expectation}")), "{error}");
        }
    }

    #[test]
    fn direct_return_is_off_unless_it_has_a_mode() {
        let parsed = |fields: &str| {
            let file = parse(&format!("deltaproxy: {{directReturn: {{{fields}}}}}\n"));
            file.map(|it| it.config.routing.direct_return).map_err(|error| error.to_string())
        };
        assert_eq!(read("").config.routing.direct_return, None);
        for off in ["", "mode: off", "mode: 'off'", "mode: null", "devices: [eth0], remember: 1m"] {
            assert_eq!(parsed(off), Ok(None), "{off}");
        }
        let annotated = DirectReturn::new(DirectMode::Annotated);
        assert_eq!(parsed("mode: annotated"), Ok(Some(annotated)));
        let all = "mode: loadBalancers, devices: [eth0, bond1], remember: 90s, connections: 4096, \
                   nodePorts: true, vxlanPort: 4789";
        let expected = DirectReturn {
            mode: DirectMode::LoadBalancers,
            devices: vec!["eth0".parse().unwrap(), "bond1".parse().unwrap()],
            remember: Duration::from_secs(90),
            connections: 4_096,
            node_ports: true,
            vxlan_port: NonZeroU16::new(4789),
        };
        assert_eq!(parsed(all), Ok(Some(expected)));
        for (wrong, expected) in [
            ("mode: on", "mode: is true; expected off, annotated or loadBalancers"),
            ("mode: ''", "mode: is \"\"; expected off, annotated or loadBalancers"),
            ("mode: dsr", "mode: is \"dsr\"; expected off, annotated or loadBalancers"),
            ("devices: eth0", "devices: is \"eth0\"; expected a list of texts"),
            ("devices: [a, b/c]", "devices: \"b/c\" is not the name of an interface"),
            ("devices: [a, a]", "devices: \"a\" is there twice"),
            ("remember: 500ms", "remember: is 500ms; expected 1s to 24h0m0s"),
            ("remember: 0", "remember: is 0s; expected 1s to 24h0m0s"),
            ("connections: 1023", "connections: is 1023; expected 1024 to 16777216"),
            ("nodePorts: 1", "nodePorts: is 1; expected off or on"),
            ("vxlanPort: 65536", "vxlanPort: is 65536; expected 0, or a port up to 65535"),
            ("connections: -1", "connections: is -1; expected a number from 0"),
        ] {
            for mode in ["", "mode: annotated, "] {
                let fields = if wrong.starts_with("mode") { "" } else { mode };
                let error = parsed(&format!("{fields}{wrong}")).unwrap_err();
                assert!(error.contains(&format!("deltaproxy.directReturn.{expected}")), "{error}");
            }
        }
    }

    #[test]
    fn the_flowtable_is_off_unless_it_is_on() {
        let flowtable = |body: &str| read(&format!("deltaproxy:\n{body}")).config.routing.flowtable;
        assert_eq!(read("").config.routing.flowtable, None);
        for off in ["  flowtable: off\n", "  flowtable: 'off'\n", "  flowtableDevices: eth0\n"] {
            assert_eq!(flowtable(off), None, "{off}");
        }
        for on in ["on", "'on'", "true"] {
            assert_eq!(flowtable(&format!("  flowtable: {on}\n")), Some(Offload::default()));
        }
        let all = "  flowtable: on\n  flowtableAfter: 64 bytes\n  flowtableDevices: eth0,cali*\n";
        let devices = "eth0,cali*".parse().unwrap();
        assert_eq!(flowtable(all), Some(Offload { after: Threshold::Bytes(64), devices }));
        for (wrong, expected) in [
            ("flowtable: maybe", "deltaproxy.flowtable: is \"maybe\"; expected off or on"),
            ("flowtableAfter: 5", "deltaproxy.flowtableAfter: is 5"),
            ("flowtableAfter: 5 kB", "such as 20packets or 65536bytes"),
            ("flowtableDevices: a b", "expected a name of 1 to 15 bytes"),
        ] {
            let error = refused(&format!("deltaproxy:\n  {wrong}\n"));
            assert!(error.contains(expected), "{error}");
        }
    }
}
