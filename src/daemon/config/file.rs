//! The KubeProxyConfiguration file, `kubeproxy.config.k8s.io/v1alpha1`, as YAML or JSON.
//!
//! Every field of the API is accepted and its type checked. [`Notes`] lists fields that have a
//! value but no effect here, and fields that the API does not have.

mod own;
mod reader;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::model::Scheduler;
use engine::routing::local::DetectLocalMode;
use engine::routing::{
    InterfaceName, LeastConnections, LocalDetection, NodePortAddresses, Routing,
};
use serde_json::{Map, Value};

use self::reader::{Origin, Reader};
use super::fields::{self, Type};
use super::least_connections;
use super::log::{LogFlags, LogFormat, of_verbosity};
use super::scheduler::ChosenScheduler;
use super::section::{IPVS_SCHEDULER, Section};
use super::{
    CHECK_PERIOD, Config, ConfigError, ConntrackSettings, Loaded, Notes, Source, address, duration,
    node_name,
};
use crate::yaml::{self, Document};

/// Settings from the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct File {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) hostname_override: Option<String>,
    pub(super) routing: Routing,
    pub(super) min_sync_period: Duration,
    pub(super) check_period: Duration,
    pub(super) owns_tables: bool,
    pub(super) healthz_bind_address: SocketAddr,
    pub(super) metrics_bind_address: SocketAddr,
    pub(super) bind_address_hard_fail: bool,
    log: LogFlags,
    pub(super) conntrack: ConntrackSettings,
    pub(super) oom_score_adj: i16,
    pub(super) notes: Notes,
}

impl File {
    /// Reads the file at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &read_text(path)?)
    }

    /// Reads the file at `path` as a value, without checks.
    pub(super) fn value(path: &Path) -> Result<Value, ConfigError> {
        let first = documents(path, &read_text(path)?)?.next();
        Ok(first.unwrap_or_else(Document::empty).value)
    }

    /// Parses `text`; errors name the file `path`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut documents = documents(path, text)?;
        let document = documents.next().unwrap_or_else(Document::empty);
        let reader = Reader::new(Origin::File(path), &document);
        if let Some(second) = documents.next() {
            let message = "begins a second document; expected one".to_owned();
            reader.report_at(second.line_of(""), "kind", message);
        }
        reader.read()
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
        let config = Config {
            node_name: node_name(wanted_name.or(self.hostname_override.as_deref()))?,
            source,
            log: log.or(self.log),
            routing: self.routing,
            min_sync_period: self.min_sync_period,
            check_period: self.check_period,
            owns_tables: self.owns_tables,
            healthz_bind_address: Some(self.healthz_bind_address),
            metrics_bind_address: Some(self.metrics_bind_address),
            bind_address_hard_fail: self.bind_address_hard_fail,
            conntrack: self.conntrack,
            oom_score_adj: Some(self.oom_score_adj),
        };
        Ok(Loaded { config, notes: self.notes })
    }

    /// Reads the fields that flags set. Errors name the flag that `flag_of` returns for a field.
    pub(super) fn of_flags(
        fields: Value,
        flag_of: &dyn Fn(&str) -> String,
    ) -> Result<Self, ConfigError> {
        let document = Document::of(fields);
        Reader::new(Origin::Flags(flag_of), &document).read()
    }
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Read { path: path.to_owned(), source };
    std::fs::read_to_string(path).map_err(unreadable)
}

fn documents(path: &Path, text: &str) -> Result<impl Iterator<Item = Document>, ConfigError> {
    let syntax = |source| ConfigError::Syntax { path: path.to_owned(), source };
    Ok(yaml::parse(text).map_err(syntax)?.into_iter())
}

impl<'a> Reader<'a> {
    /// Returns the settings of the document, or all its errors.
    fn read(self) -> Result<File, ConfigError> {
        let Some(root) = self.root() else { return Err(self.into_error()) };
        let mut notes = Notes { other_mode: self.other_mode(), ..Notes::default() };
        self.check(root, "", &mut notes);
        let file = self.file(notes);
        if self.has_errors() { Err(self.into_error()) } else { Ok(file) }
    }

    fn file(&self, mut notes: Notes) -> File {
        let (healthz_bind_address, metrics_bind_address) = self.bind_addresses();
        let section = Section::of(&notes);
        let least_connections = self.least_connections();
        let defaults = Routing::default();
        File {
            kubeconfig: self.text("clientConnection.kubeconfig").map(PathBuf::from),
            hostname_override: self.hostname_override(),
            routing: Routing {
                local_detection: self.local_detection(&mut notes),
                masquerade_all: self.flag(section.masquerade_all, false),
                masquerade_bit: self.masquerade_bit(section.masquerade_bit),
                external_ips: self.flag("featureGates.AllowServiceExternalIPs", true),
                node_ip: self.bind_address().filter(|address| !address.is_unspecified()),
                node_port_addresses: self.node_port_addresses(&notes),
                counters: self.counters(),
                flowtable: self.flowtable(),
                scheduler: self.scheduler(&mut notes, least_connections),
                hash_seed: self.count("deltaproxy.hashSeed", defaults.hash_seed),
                slot_budget: self.count("deltaproxy.slotBudget", defaults.slot_budget),
                least_connections,
            },
            min_sync_period: self.timeout("nftables.minSyncPeriod", Duration::ZERO),
            check_period: self.timeout("deltaproxy.checkPeriod", CHECK_PERIOD),
            owns_tables: self.table_ownership(),
            healthz_bind_address,
            metrics_bind_address,
            bind_address_hard_fail: self.flag("bindAddressHardFail", false),
            log: self.log(),
            conntrack: self.conntrack(),
            oom_score_adj: self.oom_score_adj(),
            notes,
        }
    }

    fn log(&self) -> LogFlags {
        let expected = |text: &str| format!("is {text:?}; expected text or json");
        let parse = |text: &str| LogFormat::parse(text).map_err(|_| expected(text));
        let verbosity = "logging.verbosity";
        let level = self.value(verbosity).map(|_| of_verbosity(self.count(verbosity, 0)));
        LogFlags { log_level: level, log_format: self.parsed("logging.format", parse) }
    }

    fn conntrack(&self) -> ConntrackSettings {
        let default = ConntrackSettings::of_kube_proxy();
        ConntrackSettings {
            max_per_core: self.count("conntrack.maxPerCore", default.max_per_core),
            min: self.count("conntrack.min", default.min),
            tcp_established_timeout: self
                .timeout("conntrack.tcpEstablishedTimeout", default.tcp_established_timeout),
            tcp_close_wait_timeout: self
                .timeout("conntrack.tcpCloseWaitTimeout", default.tcp_close_wait_timeout),
            tcp_be_liberal: self.flag("conntrack.tcpBeLiberal", default.tcp_be_liberal),
            udp_timeout: self.timeout("conntrack.udpTimeout", default.udp_timeout),
            udp_stream_timeout: self
                .timeout("conntrack.udpStreamTimeout", default.udp_stream_timeout),
        }
    }

    fn count(&self, field: &str, default: u32) -> u32 {
        let Some(value) = self.value(field) else { return default };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        let expected = || format!("is {value}; expected a number from 0 to {}", u32::MAX);
        count.unwrap_or_else(|| {
            self.report(field, expected());
            default
        })
    }

    fn timeout(&self, field: &str, default: Duration) -> Duration {
        match self.value(field).and_then(Value::as_u64) {
            Some(0) => Duration::ZERO,
            _ => self.parsed(field, duration::parse).unwrap_or(default),
        }
    }

    fn oom_score_adj(&self) -> i16 {
        let field = "oomScoreAdj";
        let Some(value) = self.value(field) else { return DEFAULT_OOM_SCORE_ADJ };
        let score = value.as_i64().and_then(|score| i16::try_from(score).ok());
        score.filter(|score| (-1000..=1000).contains(score)).unwrap_or_else(|| {
            self.report(field, format!("is {value}; expected -1000 to 1000"));
            DEFAULT_OOM_SCORE_ADJ
        })
    }

    /// Returns the root object if it is a KubeProxyConfiguration.
    fn root(&self) -> Option<&'a Map<String, Value>> {
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            if self.text(field) != Some(expected) {
                let found = self.found(field).map_or("nothing".to_owned(), shortened);
                self.report(field, format!("is {found}; expected {expected}"));
            }
        }
        self.document.value.as_object().filter(|_| !self.has_errors())
    }

    /// Checks the types of all fields below `prefix` and notes those without effect.
    fn check(&self, object: &Map<String, Value>, prefix: &str, notes: &mut Notes) {
        for (key, value) in object {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            let Some(field) = fields::find(&path) else {
                notes.unknown.push(match self.origin {
                    Origin::File(_) => format!("line {}: {path}", self.document.line_of(&path)),
                    Origin::Flags(_) => path,
                });
                continue;
            };
            if let Some(expected) = field.kind.mismatch(value) {
                self.report(&path, format!("is {}; expected {expected}", shortened(value)));
                continue;
            }
            match value.as_object() {
                Some(inner) if field.kind == Type::Object => self.check(inner, &path, notes),
                _ if field.effect || Section::of(notes).has(&path) => {}
                _ if has_effect(value) => notes.without_effect.push(path),
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
        if self.flag(STRICT_MODE, false) {
            let message = format!("is {shown}; with {STRICT_MODE} only nftables is accepted");
            self.report("mode", message);
        }
        Some(mode.to_owned())
    }

    fn least_connections(&self) -> Option<LeastConnections> {
        let interval = self.timeout(least_connections::INTERVAL, Duration::ZERO);
        let changes = self.count(least_connections::CHANGES, LeastConnections::DEFAULT_CHANGES);
        least_connections::settings(interval, changes).unwrap_or_else(|(field, why)| {
            self.report(field, why);
            None
        })
    }

    /// Returns the scheduler of our own field, else that of mode ipvs.
    fn scheduler(
        &self,
        notes: &mut Notes,
        least_connections: Option<LeastConnections>,
    ) -> Scheduler {
        let own = self.parsed(OWN_SCHEDULER, ChosenScheduler::of_field);
        let of_ipvs = self.text(IPVS_SCHEDULER).filter(|_| Section::of(notes).is_ipvs);
        if own.is_some() && of_ipvs.is_some() {
            notes.without_effect.push(IPVS_SCHEDULER.to_owned());
        }
        let chosen = own.or(of_ipvs.map(ChosenScheduler::of_ipvs)).unwrap_or_default();
        let chosen = chosen.with(least_connections);
        notes.scheduler = chosen.reservation;
        chosen.scheduler
    }

    fn local_detection(&self, notes: &mut Notes) -> LocalDetection {
        let mode = self.parsed("detectLocalMode", str::parse).unwrap_or_default();
        let (own, detection) = match mode {
            DetectLocalMode::ClusterCidr => {
                let cidrs = self.parsed(CLUSTER_CIDR, str::parse).unwrap_or_default();
                (CLUSTER_CIDR, Some(LocalDetection::ClusterCidr(cidrs)))
            }
            DetectLocalMode::NodeCidr => ("", Some(LocalDetection::NodeCidr)),
            DetectLocalMode::BridgeInterface => {
                let name = self.interface_name(BRIDGE_INTERFACE, mode);
                (BRIDGE_INTERFACE, name.map(LocalDetection::BridgeInterface))
            }
            DetectLocalMode::InterfaceNamePrefix => {
                let prefix = self.interface_name(INTERFACE_NAME_PREFIX, mode);
                (INTERFACE_NAME_PREFIX, prefix.map(LocalDetection::InterfaceNamePrefix))
            }
        };
        let others = [CLUSTER_CIDR, BRIDGE_INTERFACE, INTERFACE_NAME_PREFIX].into_iter();
        let idle = others.filter(|field| *field != own && self.text(field).is_some());
        notes.without_effect.extend(idle.map(str::to_owned));
        // An invalid name is reported.
        detection.unwrap_or_default()
    }

    fn interface_name(&self, field: &str, mode: DetectLocalMode) -> Option<InterfaceName> {
        if self.found(field).is_none_or(|name| name == "") {
            self.report(field, format!("is empty; expected a name for mode {mode}"));
        }
        self.parsed(field, str::parse)
    }

    /// Returns the addresses of healthz and metrics. Where the file does not name them, the family
    /// follows `bindAddress`.
    fn bind_addresses(&self) -> (SocketAddr, SocketAddr) {
        let (mut healthz, mut metrics) = (address::DEFAULT_HEALTHZ, address::DEFAULT_METRICS);
        let text = self.text("bindAddress").and_then(|text| text.parse::<IpAddr>().ok());
        if text.is_some_and(|address| address.is_ipv6()) {
            healthz.set_ip(Ipv6Addr::UNSPECIFIED.into());
            metrics.set_ip(Ipv6Addr::LOCALHOST.into());
        }
        let read = |field, default: SocketAddr| {
            let address = self.parsed(field, |text| address::parse(text, default.port()));
            address.unwrap_or(default)
        };
        (read("healthzBindAddress", healthz), read("metricsBindAddress", metrics))
    }

    fn bind_address(&self) -> Option<IpAddr> {
        self.parsed("bindAddress", |text| {
            text.parse().map_err(|_| format!("is {text:?}; expected an IP address"))
        })
    }

    fn hostname_override(&self) -> Option<String> {
        let field = "hostnameOverride";
        let name = self.text(field);
        if name.is_some_and(|name| name.trim().is_empty()) {
            self.report(field, "is blank; expected the name of a Node".to_owned());
        }
        name.map(str::to_owned)
    }

    fn masquerade_bit(&self, field: &str) -> u8 {
        let default = Routing::default().masquerade_bit;
        let Some(value) = self.value(field) else { return default };
        let bit = value.as_u64().and_then(|bit| u8::try_from(bit).ok()).filter(|bit| *bit < 32);
        bit.unwrap_or_else(|| {
            self.report(field, format!("is {value}; expected a bit from 0 to 31"));
            default
        })
    }

    /// An empty list means the primary addresses in mode nftables, and all addresses in the others.
    fn node_port_addresses(&self, notes: &Notes) -> NodePortAddresses {
        let field = "nodePortAddresses";
        let entries = self.value(field).and_then(Value::as_array);
        let mut entries: Vec<_> = entries.into_iter().flatten().filter_map(Value::as_str).collect();
        if entries.is_empty() && notes.other_mode.is_some() {
            entries = vec!["all"];
        }
        let (addresses, errors) = NodePortAddresses::read_entries(&entries);
        errors.iter().for_each(|error| self.report(field, error.to_string()));
        addresses
    }
}

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

/// Formats the value as JSON, truncated for a log line.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

pub(super) const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
pub(super) const KIND: &str = "KubeProxyConfiguration";

/// The mode of a file without one, as in kube-proxy.
pub(super) const DEFAULT_MODE: &str = "iptables";

/// kube-proxy's default: the OOM killer chooses nearly every other process first.
const DEFAULT_OOM_SCORE_ADJ: i16 = -999;

pub(super) const OWN_SCHEDULER: &str = "deltaproxy.scheduler";
const STRICT_MODE: &str = "deltaproxy.strictMode";
const CLUSTER_CIDR: &str = "clusterCIDR";
const BRIDGE_INTERFACE: &str = "detectLocal.bridgeInterface";
const INTERFACE_NAME_PREFIX: &str = "detectLocal.interfaceNamePrefix";

/// Most characters of an invalid value in an error.
const MAX_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use engine::counters::Counters;
    use engine::flowtable::{Offload, Threshold};
    use engine::model::HashedSource;
    use tracing::level_filters::LevelFilter;

    use super::reader::MOST_ERRORS;
    use super::*;
    use crate::config::LogSettings;

    const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n\
                        kind: KubeProxyConfiguration\nmode: nftables\n";

    fn parse(body: &str) -> Result<File, ConfigError> {
        File::parse(Path::new("k.yaml"), &format!("{HEAD}{body}"))
    }

    #[track_caller]
    fn read(body: &str) -> File {
        parse(body).unwrap()
    }

    #[track_caller]
    fn refused(body: &str) -> String {
        parse(body).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_configuration_has_the_defaults() {
        let expected = File {
            kubeconfig: None,
            hostname_override: None,
            routing: Routing::default(),
            min_sync_period: Duration::ZERO,
            check_period: CHECK_PERIOD,
            owns_tables: true,
            healthz_bind_address: address::DEFAULT_HEALTHZ,
            metrics_bind_address: address::DEFAULT_METRICS,
            bind_address_hard_fail: false,
            log: LogFlags::default(),
            conntrack: ConntrackSettings::of_kube_proxy(),
            oom_score_adj: -999,
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
    fn the_example_says_what_it_means() {
        let text = include_str!("../../../examples/kube-proxy-config.yaml");
        let file = File::parse(Path::new("example"), text).unwrap();
        assert_eq!(
            file.routing.local_detection,
            LocalDetection::ClusterCidr("10.244.0.0/16,fd00:10:244::/56".parse().unwrap())
        );
        assert_eq!(file.kubeconfig, Some("/var/lib/kube-proxy/kubeconfig.conf".into()));
        assert_eq!(file.min_sync_period, Duration::ZERO);
        assert_eq!(file.check_period, CHECK_PERIOD);
        assert_eq!(file.notes, Notes::default());
    }

    #[test]
    fn every_field_with_an_effect_has_it() {
        let file = read(
            "clientConnection: {kubeconfig: /k}\nclusterCIDR: 10.0.0.0/8\nhostnameOverride: n\n\
             nftables: {masqueradeAll: true, masqueradeBit: 31, minSyncPeriod: 1m30s}\n\
             nodePortAddresses: [primary, localhost, 192.168.0.0/16, '::/0']\nhealthzBindAddress: 127.0.0.1\n\
             metricsBindAddress: '[::1]:9999'\ndetectLocalMode: ClusterCIDR\n\
             deltaproxy: {checkPeriod: 1h, tableOwnership: off}\n",
        );
        assert_eq!(file.kubeconfig, Some("/k".into()));
        assert_eq!(file.hostname_override.as_deref(), Some("n"));
        let cidrs = "10.0.0.0/8".parse().unwrap();
        assert_eq!(file.routing.local_detection, LocalDetection::ClusterCidr(cidrs));
        assert!(file.routing.masquerade_all);
        assert_eq!(file.routing.masquerade_mark(), 1 << 31);
        let node_ports = "192.168.0.0/16,::/0,primary,localhost".parse().unwrap();
        assert_eq!(file.routing.node_port_addresses, node_ports);
        assert_eq!(file.min_sync_period, Duration::from_secs(90));
        assert_eq!(file.check_period, Duration::from_secs(3600));
        assert!(!file.owns_tables);
        assert_eq!(file.healthz_bind_address.to_string(), "127.0.0.1:10256");
        assert_eq!(file.metrics_bind_address.to_string(), "[::1]:9999");
        assert_eq!(file.notes, Notes::default());
    }

    #[test]
    fn pods_are_told_by_what_the_mode_says_and_settings_of_other_modes_have_no_effect() {
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
            assert_eq!(file.routing.local_detection, expected);
            let mut others = vec![CLUSTER_CIDR, BRIDGE_INTERFACE, INTERFACE_NAME_PREFIX];
            others.retain(|field| *field != own);
            assert_eq!(file.notes.without_effect, others);
        }
    }

    #[test]
    fn flags_about_the_log_go_before_the_file() {
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
        assert_eq!(file.healthz_bind_address.to_string(), "[::]:10256");
        assert_eq!(file.metrics_bind_address.to_string(), "[::1]:10249");
        assert_eq!((file.routing.node_ip, file.notes), (None, Notes::default()));
        let file = read("bindAddress: 10.0.0.1\n");
        assert_eq!(file.routing.node_ip, Some([10, 0, 0, 1].into()));
        assert_eq!(file.notes, Notes::default());
    }

    #[test]
    fn conntrack_and_the_oom_score_are_read() {
        let file = read(
            "oomScoreAdj: 0\nconntrack: {maxPerCore: 0, min: 5, tcpBeLiberal: true, \
             tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 2h, udpTimeout: 10s, \
             udpStreamTimeout: 0}\n",
        );
        assert_eq!(file.oom_score_adj, 0);
        let expected = ConntrackSettings {
            max_per_core: 0,
            min: 5,
            tcp_established_timeout: Duration::ZERO,
            tcp_close_wait_timeout: Duration::from_hours(2),
            tcp_be_liberal: true,
            udp_timeout: Duration::from_secs(10),
            udp_stream_timeout: Duration::ZERO,
        };
        assert_eq!(file.conntrack, expected);
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
        assert!(read("").routing.external_ips);
        assert!(read("featureGates: {NFTablesProxyMode: true}\n").routing.external_ips);
        let file = read("featureGates: {AllowServiceExternalIPs: false}\n");
        assert!(!file.routing.external_ips);
        assert!(file.notes.without_effect.is_empty());
    }

    #[test]
    fn json_is_accepted() {
        let text = format!(
            r#"{{"apiVersion": "{API_VERSION}", "kind": "{KIND}", "nftables": {{"masqueradeBit": 3}}}}"#
        );
        let file = File::parse(Path::new("k.json"), &text).unwrap();
        assert_eq!(file.notes.other_mode.as_deref(), Some("iptables"));
        assert_eq!(file.routing.masquerade_bit, 14);
        assert_eq!(file.notes.without_effect, ["nftables.masqueradeBit"]);
    }

    #[test]
    fn the_scheduler_is_that_of_mode_ipvs_or_of_our_own_field() {
        let maglev = Scheduler::Maglev(HashedSource::Address);
        let head = HEAD.replace("mode: nftables", "mode: ipvs");
        let ipvs = |body: &str| File::parse(Path::new("k.yaml"), &format!("{head}{body}")).unwrap();
        let file = ipvs("ipvs: {scheduler: sh}\n");
        assert_eq!(file.routing.scheduler, maglev);
        assert_eq!((file.notes.without_effect, file.notes.scheduler), (vec![], None));
        assert_eq!(ipvs("ipvs: {scheduler: ''}\n").routing.scheduler, Scheduler::Random);
        let file = ipvs("ipvs: {scheduler: wlc}\n");
        assert_eq!(file.routing.scheduler, Scheduler::Random);
        let lines = file.notes.lines();
        assert!(lines[1].starts_with("scheduler lc is off: random is used"), "{lines:?}");
        let file = ipvs("ipvs: {scheduler: wlc}\ndeltaproxy: {leastConnections: {interval: 5s}}\n");
        assert_eq!(file.routing.scheduler, Scheduler::LeastConnections);
        let settings = file.routing.least_connections.unwrap();
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
        assert_eq!((file.routing.scheduler, file.routing.hash_seed), (by_port, 7));
        assert_eq!(file.routing.slot_budget, 0);
        assert_eq!(read("").routing.slot_budget, 1_048_576);
        assert_eq!(file.notes.without_effect, ["ipvs.scheduler"]);
        assert_eq!(read("ipvs: {scheduler: mh}\n").routing.scheduler, Scheduler::Random);
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
             featureGates: {NFTablesProxyMode: true, A: true}\nmtu: 9000\nnftables:\n  speed: high\n",
        );
        assert_eq!(
            file.notes.lines(),
            [
                "fields of the configuration without effect: \
                 configSyncPeriod, featureGates.NFTablesProxyMode, ipvs.scheduler",
                "unknown fields of the configuration: line 6: featureGates.A, line 7: mtu, line 9: nftables.speed",
            ]
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
            ("---\nkind: X\n", "k.yaml:5: kind: begins a second document; expected one"),
            ("mode: x\n", "k.yaml: line 4, column 1: key \"mode\" is already on line 3"),
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
                    nftables: []\ndetectLocalMode: Guess\nnodePortAddresses: [x, primary, y]\n\
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
            let head = HEAD.replace("nftables", mode);
            let body = "iptables: {masqueradeAll: true, masqueradeBit: 3}\n";
            let file = File::parse(Path::new("k"), &(head + body)).unwrap();
            assert!(file.routing.masquerade_all, "{mode}");
            assert_eq!(file.routing.masquerade_bit, 3, "{mode}");
            assert_eq!(file.routing.node_port_addresses, "0.0.0.0/0,::/0".parse().unwrap());
            let [line] = &file.notes.lines()[..] else { panic!("{mode}: {:?}", file.notes) };
            assert!(line.contains("mode nftables is used"), "{line}");
        }
        let file = read("iptables: {masqueradeAll: true, masqueradeBit: 3}\n");
        assert!(!file.routing.masquerade_all);
        assert_eq!(file.notes.without_effect, ["iptables.masqueradeAll", "iptables.masqueradeBit"]);
    }

    #[test]
    fn unknown_modes_and_other_kinds_are_refused() {
        let refused = |text: &str| File::parse(Path::new("k"), text).unwrap_err().to_string();
        let userspace = HEAD.replace("nftables", "userspace");
        assert_eq!(
            refused(&userspace),
            "k:3: mode: is \"userspace\"; expected nftables, iptables or ipvs"
        );
        let strict = HEAD.replace("nftables", "iptables") + "deltaproxy: {strictMode: true}\n";
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
            refused(&HEAD.replace("Configuration", "Config")),
            "k:2: kind: is \"KubeProxyConfig\"; expected KubeProxyConfiguration"
        );
    }

    #[test]
    fn counters_are_a_word_and_off_needs_no_quotes() {
        let counters = |value: &str| {
            let file = parse(&format!("deltaproxy: {{counters: {value}}}\n"));
            file.map(|file| file.routing.counters).map_err(|error| error.to_string())
        };
        assert_eq!(read("").routing.counters, Counters::Off);
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
    fn the_flowtable_is_off_unless_it_is_on() {
        let flowtable = |body: &str| read(&format!("deltaproxy:\n{body}")).routing.flowtable;
        assert_eq!(read("").routing.flowtable, None);
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
