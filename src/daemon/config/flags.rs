//! The flags of `run`, `apply`, `plan` and `verify`, and how flags and file become a `Config`.
//!
//! As in kube-proxy, a file replaces all flags; only `--hostname-override`, `--manifests` and the
//! flags of the log are allowed beside `--config`. Others are an error.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use engine::counters::Counters;
use engine::flowtable::{Devices, Offload, Threshold};
use engine::routing::local::DetectLocalMode;
use engine::routing::{
    ClusterCidrs, InterfaceName, LeastConnections, LocalDetection, NodePortAddresses, Routing,
};
use serde_json::Value;

use super::address::{self, AddressError};
use super::file::File;
use super::kube_proxy::KubeProxyFlags;
use super::least_connections;
use super::log::LogFlags;
use super::scheduler::ChosenScheduler;
use super::{
    CHECK_PERIOD, Config, ConfigError, ConntrackSettings, FeatureGates, Loaded, Notes, Source,
    duration, node_name,
};

/// Flags about the source of objects.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceFlags {
    /// Use a file or folder of manifests instead of an API server
    #[arg(long, value_name = "PATH", conflicts_with = "kubeconfig")]
    pub manifests: Option<PathBuf>,
    /// Kubeconfig file of the API server; without it, and without --manifests, the service account
    /// of the pod is used
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub kubeconfig: Option<PathBuf>,
}

/// The flags of `deltaproxy run`.
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub source: SourceFlags,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub node: NodeFlags,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub daemon: DaemonFlags,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub log: LogFlags,
}

/// The flags of `deltaproxy verify`.
#[derive(Debug, Clone, Args)]
pub struct VerifyFlags {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub source: SourceFlags,
    /// Source of the settings: the running daemon, or the flags with defaults for the others
    /// [default: flags, if they or --config have settings, else daemon; with --manifests and
    /// without a daemon, flags]
    #[arg(long, value_name = "WHOSE")]
    pub settings: Option<SettingsOf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub node: NodeFlags,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub log: LogFlags,
}

/// The flags of `deltaproxy apply` and `deltaproxy plan`.
#[derive(Debug, Clone, Args)]
pub struct OnceFlags {
    /// File or folder of manifests: Services, EndpointSlices, Nodes, ServiceCIDRs, Lists
    #[arg(long, value_name = "PATH")]
    pub manifests: PathBuf,
    /// Accept manifests without any usable object, which remove every service
    #[arg(long)]
    pub allow_empty: bool,
    /// Source of the settings: the running daemon, or the flags with defaults for the others
    /// [default: daemon, if one runs and neither flags nor --config have settings]
    #[arg(long, value_name = "WHOSE")]
    pub settings: Option<SettingsOf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub node: NodeFlags,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub log: LogFlags,
}

/// Origin of the settings of a command beside a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SettingsOf {
    /// The daemon of this network namespace.
    Daemon,
    /// The flags, or the file of --config; defaults for the others.
    Flags,
}

/// Flags about this node and its packets.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct NodeFlags {
    /// KubeProxyConfiguration file (kubeproxy.config.k8s.io/v1alpha1); it replaces all flags but
    /// --manifests, --hostname-override, --log-level and --log-format
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Name of this machine's Node object, if it is not the host name
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// How traffic from pods is detected; other traffic is masqueraded on its way to a ClusterIP:
    /// ClusterCIDR, NodeCIDR (the Node's podCIDRs), BridgeInterface or InterfaceNamePrefix
    /// [default: ClusterCIDR]
    #[arg(long, value_name = "MODE", conflicts_with = "config")]
    pub detect_local_mode: Option<DetectLocalMode>,
    /// Interface on which traffic from pods arrives, for mode BridgeInterface
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub pod_bridge_interface: Option<InterfaceName>,
    /// Prefix of the names of the interfaces on which traffic from pods arrives, for mode
    /// InterfaceNamePrefix
    #[arg(long, value_name = "PREFIX", conflicts_with = "config")]
    pub pod_interface_name_prefix: Option<InterfaceName>,
    /// Pod addresses, for mode ClusterCIDR: one range of each family, such as
    /// 10.244.0.0/16,fd00:10:244::/56
    #[arg(long, value_name = "CIDRS", conflicts_with = "config")]
    pub cluster_cidr: Option<ClusterCidrs>,
    /// Masquerade all traffic to ClusterIPs
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        conflicts_with = "config"
    )]
    pub masquerade_all: Option<bool>,
    /// Bit of the packet mark for masquerade, 0 to 31 [default: 14]
    #[arg(
        long,
        value_name = "BIT",
        value_parser = clap::value_parser!(u8).range(0..=31),
        conflicts_with = "config"
    )]
    pub masquerade_bit: Option<u8>,
    /// AllowServiceExternalIPs=false ignores external IPs of services
    #[arg(long, value_name = "GATES", conflicts_with = "config")]
    pub feature_gates: Option<FeatureGates>,
    /// Local addresses that serve NodePorts, separated by commas: ranges, "primary" for the node's
    /// primary addresses, "localhost" for 127.0.0.1 on the node itself (sets the sysctl
    /// net.ipv4.conf.all.route_localnet), "all" for all others [default: primary]
    #[arg(long, value_name = "CIDRS", conflicts_with = "config")]
    pub nodeport_addresses: Option<NodePortAddresses>,
    /// Count new connections in the kernel: off, services, or endpoints (of services too)
    /// [default: off]
    #[arg(long, value_name = "OF", conflicts_with = "config")]
    pub counters: Option<Counters>,
    /// Let established packets of services skip the kernel's forwarding path: off or on. Other
    /// programs' forward rules, such as network policies, then no longer see these packets
    /// [default: off]
    #[arg(long, value_name = "SWITCH", conflicts_with = "config")]
    pub flowtable: Option<Switch>,
    /// Size from which on a connection uses the flowtable, such as 65536bytes [default: 20packets]
    #[arg(long, value_name = "SIZE", conflicts_with = "config")]
    pub flowtable_after: Option<Threshold>,
    /// Devices of the flowtable, separated by commas: names, prefixes such as cali*, or * for all
    /// but the loopback device and ports of bridges [default: *]
    #[arg(long, value_name = "PATTERNS", conflicts_with = "config")]
    pub flowtable_devices: Option<Devices>,
    /// Scheduler of services that name none in the annotation deltaproxy.io/scheduler: random, rr,
    /// wrr, lc, wlc, sh, sh-port, mh or mh-port; rr is random: even over time, not in turn
    /// [default: random]
    #[arg(long, value_name = "NAME", value_parser = ChosenScheduler::parse, conflicts_with = "config")]
    pub scheduler: Option<ChosenScheduler>,
    /// Seed of the hash by which the schedulers sh and mh choose; all nodes need the same one
    /// [default: 1]
    #[arg(long, value_name = "NUMBER", conflicts_with = "config")]
    pub hash_seed: Option<u32>,
    /// Elements that services may use together for weights, tables and the scheduler lc, beyond one
    /// for each endpoint; about 100 bytes of kernel memory each. All nodes need the same number
    /// [default: 1048576]
    #[arg(long, value_name = "NUMBER", conflicts_with = "config")]
    pub slot_budget: Option<u32>,
    /// Time between two counts of live connections, such as 5s, for the schedulers lc and wlc; 0
    /// turns them off [default: 0]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = least_connections::parse_interval,
        conflicts_with = "config"
    )]
    pub least_connections: Option<Duration>,
}

/// Flags for a daemon only.
#[derive(Debug, Clone, Default, Args)]
pub struct DaemonFlags {
    /// Address of /healthz, /livez and /readyz; "" turns them off [default: 0.0.0.0:10256]
    #[arg(long, value_name = "ADDRESS", value_parser = healthz, conflicts_with = "config")]
    pub healthz_bind_address: Option<Listen>,
    /// Address of /metrics; "" turns it off [default: 127.0.0.1:10249]
    #[arg(long, value_name = "ADDRESS", value_parser = metrics, conflicts_with = "config")]
    pub metrics_bind_address: Option<Listen>,
    /// Minimum time between two transactions, such as 1s or 500ms; 0 is no minimum [default: 0]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "config")]
    pub min_sync_period: Option<Duration>,
    /// Time in which the background check compares all services with the kernel; 0 turns it off
    /// [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "config")]
    pub check_period: Option<Duration>,
    /// Own the tables while the daemon runs, so that no other program changes them (Linux 6.9 and
    /// later) [default: on]
    #[arg(long, value_name = "SWITCH", conflicts_with = "config")]
    pub table_ownership: Option<Switch>,
}

/// A setting that is off or on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Off.
    Off,
    /// On.
    On,
}

/// An address to serve on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(
    /// The address; `None` disables the server.
    pub Option<SocketAddr>,
);

impl RunFlags {
    /// Returns whether the configuration is in a file.
    pub fn has_file(&self) -> bool {
        self.node.config.is_some()
    }

    /// Builds the configuration from the flags and the file that they name.
    ///
    /// # Errors
    /// The file cannot be read or is invalid, or the node has no name.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let file = self.node.file()?;
        let source = self.source.choose(file.as_ref());
        load(&self.node, &self.daemon, self.log, (file, source))
    }

    /// Returns the effective KubeProxyConfiguration of `config`, which was loaded from these flags.
    ///
    /// # Errors
    /// The file can no longer be read.
    pub fn effective(&self, config: &Config) -> Result<Value, ConfigError> {
        let file = self.node.config.clone();
        file.map_or_else(KubeProxyFlags::none, KubeProxyFlags::of_file).effective(config)
    }
}

impl VerifyFlags {
    /// Builds the configuration from the flags, and from the file that they name or from the
    /// KubeProxyConfiguration of a running daemon.
    ///
    /// # Errors
    /// The file cannot be read or is invalid, or the node has no name.
    pub fn load(&self, running: Option<&Value>) -> Result<Loaded, ConfigError> {
        let file = self.node.file_or(running)?;
        let source = self.source.choose(file.as_ref());
        load(&self.node, &DaemonFlags::default(), self.log, (file, source))
    }
}

impl SourceFlags {
    /// Returns the source of the flags, else of the file, else the pod's API server.
    fn choose(&self, file: Option<&File>) -> Source {
        let kubeconfig = self.kubeconfig.as_ref().or_else(|| file?.kubeconfig.as_ref());
        let manifests = self.manifests.clone().map(Source::Manifests);
        manifests
            .or_else(|| kubeconfig.cloned().map(Source::Kubeconfig))
            .unwrap_or(Source::InCluster)
    }
}

impl OnceFlags {
    /// Builds the configuration from the flags, and from the file that they name or from the
    /// KubeProxyConfiguration of a running daemon.
    ///
    /// # Errors
    /// The file cannot be read or is invalid, or the node has no name.
    pub fn load(&self, running: Option<&Value>) -> Result<Loaded, ConfigError> {
        let source = Source::Manifests(self.manifests.clone());
        let file = self.node.file_or(running)?;
        load(&self.node, &DaemonFlags::default(), self.log, (file, source))
    }
}

impl Loaded {
    /// Builds the configuration of a pod from the text of a file, without flags. Errors call the
    /// file `config`.
    ///
    /// # Errors
    /// The text is invalid, or the node has no name.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file = File::parse(Path::new("config"), text)?;
        let (node, daemon) = (NodeFlags::default(), DaemonFlags::default());
        load(&node, &daemon, LogFlags::default(), (Some(file), Source::InCluster))
    }
}

impl NodeFlags {
    fn file(&self) -> Result<Option<File>, ConfigError> {
        self.config.as_deref().map(File::read).transpose()
    }

    /// Returns the file, else the settings of a running daemon.
    fn file_or(&self, running: Option<&Value>) -> Result<Option<File>, ConfigError> {
        let of_daemon = |value: &Value| {
            let mut value = value.clone();
            // The log is this command's own.
            value.as_object_mut().and_then(|fields| fields.remove("logging"));
            File::of_flags(value, &|field| format!("the running daemon: {field}"))
        };
        match self.file()? {
            Some(file) => Ok(Some(file)),
            None => running.map(of_daemon).transpose(),
        }
    }

    /// Returns whether the flags have settings beside the node's name.
    pub fn has_settings(&self) -> bool {
        let hostname_override = self.hostname_override.clone();
        *self != Self { hostname_override, ..Self::default() }
    }

    fn routing(&self) -> Result<Routing, ConfigError> {
        let default = Routing::default();
        Ok(Routing {
            local_detection: self.local_detection()?,
            masquerade_all: self.masquerade_all.unwrap_or_default(),
            masquerade_bit: self.masquerade_bit.unwrap_or(default.masquerade_bit),
            external_ips: self.feature_gates.clone().unwrap_or_default().external_ips,
            node_ip: None,
            node_port_addresses: self
                .nodeport_addresses
                .clone()
                .unwrap_or(default.node_port_addresses),
            counters: self.counters.unwrap_or_default(),
            flowtable: self.offload(),
            scheduler: self.scheduler().scheduler,
            hash_seed: self.hash_seed.unwrap_or(default.hash_seed),
            slot_budget: self.slot_budget.unwrap_or(default.slot_budget),
            least_connections: self.least_connections(),
        })
    }

    fn least_connections(&self) -> Option<LeastConnections> {
        let interval = self.least_connections.unwrap_or_default();
        // The parser has checked it.
        least_connections::settings(interval, LeastConnections::DEFAULT_CHANGES).ok().flatten()
    }

    /// Returns the scheduler in effect.
    fn scheduler(&self) -> ChosenScheduler {
        self.scheduler.clone().unwrap_or_default().with(self.least_connections())
    }

    fn offload(&self) -> Option<Offload> {
        let is_on = self.flowtable == Some(Switch::On);
        is_on.then(|| Offload {
            after: self.flowtable_after.unwrap_or_default(),
            devices: self.flowtable_devices.clone().unwrap_or_default(),
        })
    }

    fn local_detection(&self) -> Result<LocalDetection, ConfigError> {
        let mode = self.detect_local_mode.unwrap_or_default();
        let needed = |name: &Option<InterfaceName>, flag| {
            name.clone().ok_or(ConfigError::DetectLocal { mode, flag })
        };
        Ok(match mode {
            DetectLocalMode::ClusterCidr => {
                LocalDetection::ClusterCidr(self.cluster_cidr.clone().unwrap_or_default())
            }
            DetectLocalMode::NodeCidr => LocalDetection::NodeCidr,
            DetectLocalMode::BridgeInterface => LocalDetection::BridgeInterface(needed(
                &self.pod_bridge_interface,
                "pod-bridge-interface",
            )?),
            DetectLocalMode::InterfaceNamePrefix => LocalDetection::InterfaceNamePrefix(needed(
                &self.pod_interface_name_prefix,
                "pod-interface-name-prefix",
            )?),
        })
    }
}

fn load(
    node: &NodeFlags,
    daemon: &DaemonFlags,
    log: LogFlags,
    (file, source): (Option<File>, Source),
) -> Result<Loaded, ConfigError> {
    let wanted_name = node.hostname_override.as_deref().filter(|name| !name.is_empty());
    if let Some(file) = file {
        return file.into_config(wanted_name, source, log);
    }
    let listen = |flag: Option<Listen>, default| flag.map_or(Some(default), |listen| listen.0);
    let config = Config {
        node_name: node_name(wanted_name)?,
        source,
        log: log.or(LogFlags::default()),
        routing: node.routing()?,
        min_sync_period: daemon.min_sync_period.unwrap_or_default(),
        check_period: daemon.check_period.unwrap_or(CHECK_PERIOD),
        owns_tables: daemon.table_ownership != Some(Switch::Off),
        healthz_bind_address: listen(daemon.healthz_bind_address, address::DEFAULT_HEALTHZ),
        metrics_bind_address: listen(daemon.metrics_bind_address, address::DEFAULT_METRICS),
        bind_address_hard_fail: false,
        conntrack: ConntrackSettings::default(),
        oom_score_adj: None,
    };
    let gates = node.feature_gates.as_ref().map(|gates| gates.others.clone()).unwrap_or_default();
    let without_effect = gates.iter().map(|name| format!("featureGates.{name}")).collect();
    let scheduler = node.scheduler().reservation;
    Ok(Loaded { config, notes: Notes { without_effect, scheduler, ..Notes::default() } })
}

fn healthz(text: &str) -> Result<Listen, AddressError> {
    listen(text, address::HEALTHZ_PORT)
}

fn metrics(text: &str) -> Result<Listen, AddressError> {
    listen(text, address::METRICS_PORT)
}

fn listen(text: &str, default_port: u16) -> Result<Listen, AddressError> {
    match text {
        "" => Ok(Listen(None)),
        _ => address::parse(text, default_port).map(Some).map(Listen),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;
    use engine::model::{HashedSource, Scheduler};
    use tempfile::NamedTempFile;

    use super::*;

    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        flags: RunFlags,
    }

    #[derive(Debug, Parser)]
    struct Once {
        #[command(flatten)]
        flags: OnceFlags,
    }

    fn run(flags: &str) -> Result<RunFlags, clap::Error> {
        let words = std::iter::once("run").chain(flags.split_whitespace());
        Run::try_parse_from(words).map(|run| run.flags)
    }

    #[track_caller]
    fn config(flags: &str) -> Config {
        run(flags).unwrap().load().unwrap().config
    }

    /// Writes a configuration file.
    fn file(body: &str) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        std::fs::write(file.path(), format!("{head}mode: nftables\n{body}")).unwrap();
        file
    }

    #[test]
    fn without_flags_everything_has_its_default() {
        let config = config("--hostname-override n1");
        let expected = Config {
            node_name: "n1".to_owned(),
            log: LogFlags::default().or(LogFlags::default()),
            source: Source::InCluster,
            routing: Routing::default(),
            min_sync_period: Duration::ZERO,
            check_period: CHECK_PERIOD,
            owns_tables: true,
            healthz_bind_address: Some("0.0.0.0:10256".parse().unwrap()),
            metrics_bind_address: Some("127.0.0.1:10249".parse().unwrap()),
            bind_address_hard_fail: false,
            conntrack: ConntrackSettings::default(),
            oom_score_adj: None,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn every_flag_has_its_effect() {
        let config = config(
            "--hostname-override N1 --kubeconfig /k --cluster-cidr 10.0.0.0/8,fd00::/8 \
             --masquerade-all --masquerade-bit 3 --nodeport-addresses 0.0.0.0/0 \
             --feature-gates=AllowServiceExternalIPs=false \
             --healthz-bind-address= --metrics-bind-address 1.2.3.4 --min-sync-period 500ms \
             --counters services --flowtable on --flowtable-after 9bytes \
             --flowtable-devices eth0 --check-period 1m --scheduler mh-port --hash-seed 5 --slot-budget 9 \
             --least-connections 5s --table-ownership off",
        );
        let expected = Config {
            node_name: "n1".to_owned(),
            log: LogFlags::default().or(LogFlags::default()),
            source: Source::Kubeconfig("/k".into()),
            routing: Routing {
                local_detection: LocalDetection::ClusterCidr(
                    "10.0.0.0/8,fd00::/8".parse().unwrap(),
                ),
                masquerade_all: true,
                masquerade_bit: 3,
                external_ips: false,
                node_ip: None,
                node_port_addresses: "0.0.0.0/0".parse().unwrap(),
                counters: Counters::Services,
                flowtable: Some(Offload {
                    after: Threshold::Bytes(9),
                    devices: "eth0".parse().unwrap(),
                }),
                scheduler: Scheduler::Maglev(HashedSource::AddressAndPort),
                hash_seed: 5,
                slot_budget: 9,
                least_connections: Some(LeastConnections {
                    interval: Duration::from_secs(5),
                    changes_per_second: LeastConnections::DEFAULT_CHANGES,
                }),
            },
            min_sync_period: Duration::from_millis(500),
            check_period: Duration::from_secs(60),
            owns_tables: false,
            healthz_bind_address: None,
            metrics_bind_address: Some("1.2.3.4:10249".parse().unwrap()),
            bind_address_hard_fail: false,
            conntrack: ConntrackSettings::default(),
            oom_score_adj: None,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn pods_are_told_by_what_the_mode_says() {
        let others = "--hostname-override n --cluster-cidr ::/0 --pod-bridge-interface 99 \
                      --pod-interface-name-prefix drop";
        for (mode, expected) in [
            ("ClusterCIDR", LocalDetection::ClusterCidr("::/0".parse().unwrap())),
            ("NodeCIDR", LocalDetection::NodeCidr),
            ("BridgeInterface", LocalDetection::BridgeInterface("99".parse().unwrap())),
            ("InterfaceNamePrefix", LocalDetection::InterfaceNamePrefix("drop".parse().unwrap())),
        ] {
            let flags = format!("{others} --detect-local-mode {mode}");
            assert_eq!(config(&flags).routing.local_detection, expected);
        }
        for (mode, flag) in [
            ("BridgeInterface", "pod-bridge-interface"),
            ("InterfaceNamePrefix", "pod-interface-name-prefix"),
        ] {
            let flags = format!("--hostname-override n --detect-local-mode {mode}");
            let error = run(&flags).unwrap().load().unwrap_err().to_string();
            assert_eq!(error, format!("--detect-local-mode={mode} needs --{flag}"));
        }
    }

    #[test]
    fn a_flag_of_go_may_say_false() {
        assert!(!config("--masquerade-all=false").routing.masquerade_all);
        assert!(config("--masquerade-all=true").routing.masquerade_all);
    }

    #[test]
    fn wrong_values_are_refused_with_the_flag_and_the_expectation() {
        for (flags, flag, expectation) in [
            ("--masquerade-bit 32", "--masquerade-bit", "0..=31"),
            ("--cluster-cidr x", "--cluster-cidr", "not an address range"),
            ("--detect-local-mode x", "--detect-local-mode", "NodeCIDR, BridgeInterface"),
            ("--pod-bridge-interface a/b", "--pod-bridge-interface", "1 to 15 bytes"),
            ("--pod-interface-name-prefix=", "--pod-interface-name-prefix", "1 to 15 bytes"),
            ("--nodeport-addresses primary,lo", "--nodeport-addresses", "item 2: \"lo\" is not"),
            ("--counters service", "--counters", "not one of off, services, endpoints"),
            ("--healthz-bind-address x", "--healthz-bind-address", "address to listen on"),
            ("--min-sync-period 5", "--min-sync-period", "duration such as"),
            ("-v loud", "--log-level", "expected error, warn"),
            ("--scheduler best", "--scheduler", "expected random, rr, wrr"),
            ("--hash-seed x", "--hash-seed", "invalid digit"),
            ("--log-format xml", "--log-format", "json"),
        ] {
            let error = run(flags).unwrap_err().to_string();
            assert!(error.contains(flag) && error.contains(expectation), "{error}");
        }
        assert!(matches!(
            run("--hostname-override= ").unwrap().load(),
            Ok(Loaded { .. }) | Err(ConfigError::NoHostName)
        ));
    }

    #[test]
    fn a_file_stands_for_flags_which_are_refused_beside_it() {
        for flag in [
            "--kubeconfig /k",
            "--cluster-cidr ::/0",
            "--detect-local-mode NodeCIDR",
            "--pod-bridge-interface br0",
            "--pod-interface-name-prefix cali",
            "--masquerade-all",
            "--masquerade-bit 1",
            "--nodeport-addresses ::/0",
            "--counters off",
            "--healthz-bind-address=",
            "--metrics-bind-address=",
            "--min-sync-period 0",
        ] {
            let error = run(&format!("--config /c {flag}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{flag}");
        }
        let error = run("--manifests /m --kubeconfig /k").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn node_name_and_manifests_beat_the_file() {
        let file = file(
            "hostnameOverride: in-file\nclientConnection: {kubeconfig: /k}\n\
             nftables: {masqueradeBit: 2}\n",
        );
        let flags = format!("--config {}", file.path().display());
        let from_file = config(&flags);
        assert_eq!(from_file.node_name, "in-file");
        assert_eq!(from_file.source, Source::Kubeconfig("/k".into()));
        assert_eq!(from_file.routing.masquerade_bit, 2);
        let beaten = config(&format!("{flags} --manifests /m --hostname-override n"));
        assert_eq!(beaten.node_name, "n");
        assert_eq!(beaten.source, Source::Manifests("/m".into()));
        assert_eq!(beaten.routing.masquerade_bit, 2);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = run("--config /nowhere/c.yaml").unwrap().load().unwrap_err();
        assert!(error.to_string().contains("/nowhere/c.yaml"), "{error}");
    }

    #[test]
    fn apply_needs_manifests_and_takes_the_nodes_flags() {
        assert!(Once::try_parse_from(["apply"]).is_err());
        let words = ["apply", "--manifests", "/m", "--masquerade-bit", "1", "-v", "4"];
        let flags = Once::try_parse_from(words).unwrap().flags;
        assert_eq!(flags.log.log_level, Some(tracing::level_filters::LevelFilter::DEBUG));
        let config = flags.load(None).unwrap().config;
        assert_eq!(config.source, Source::Manifests("/m".into()));
        assert_eq!(config.routing.masquerade_bit, 1);
    }

    #[test]
    fn settings_of_a_running_daemon_are_those_that_it_was_started_with() {
        let file = file(
            "clusterCIDR: 10.1.0.0/16\nnodePortAddresses: [localhost, 10.0.0.0/8]\n\
             bindAddress: 192.0.2.1\nnftables: {masqueradeAll: true, masqueradeBit: 3}\n",
        );
        let of_file = format!("--config {}", file.path().display());
        for line in [
            "",
            "--cluster-cidr 10.1.0.0/16,fd00::/56 --nodeport-addresses all --hash-seed 7",
            "--detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix cali",
            "--masquerade-all --masquerade-bit 5 --scheduler mh --counters endpoints",
            "--flowtable on --flowtable-after 9bytes --flowtable-devices eth0,cali*",
            "--least-connections 5s --scheduler lc --nodeport-addresses primary,10.0.0.0/8",
            "--feature-gates AllowServiceExternalIPs=false --detect-local-mode NodeCIDR",
            &of_file,
        ] {
            let daemon = run(&format!("--hostname-override n1 {line}")).unwrap();
            let used = daemon.load().unwrap().config;
            let effective = daemon.effective(&used).unwrap();
            let words = ["apply", "--manifests", "/m"];
            let flags = Once::try_parse_from(words).unwrap().flags;
            let taken = flags.load(Some(&effective)).unwrap().config;
            assert_eq!((taken.routing, taken.node_name), (used.routing, used.node_name), "{line}");
        }
    }

    #[test]
    fn a_node_name_alone_is_no_setting() {
        let has = |line: &str| run(line).unwrap().node.has_settings();
        assert!(!has("") && !has("--hostname-override n --kubeconfig /k"));
        assert!(has("--masquerade-all=false") && has("--config /c"));
    }
}
