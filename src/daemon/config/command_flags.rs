//! The flags of `run`, `apply`, `plan` and `verify`, and how flags and file become a `Config`.
//!
//! As in kube-proxy, a file replaces all flags; only `--hostname-override`, `--manifests` and the
//! flags of the log are allowed beside `--config`. Others are an error.

#![allow(missing_docs, reason = "documentation of a flattened field becomes that of the command")]

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use super::file::Origin;
use super::given::Given;
use super::kube_proxy::KubeProxyFlags;
use super::log::LogFlags;
use super::notes::Notes;
use super::options::{OptionKind, OptionScope, SETTINGS, Setting, Values};
use super::{Config, ConfigError, ConntrackSettings, Loaded, Source};

/// Flags for the source of objects.
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
    pub source: SourceFlags,
    #[command(flatten)]
    pub node: NodeFlags,
    #[command(flatten)]
    pub daemon: DaemonFlags,
    #[command(flatten)]
    pub log: LogFlags,
}

/// The flags of `deltaproxy verify`.
#[derive(Debug, Clone, Default, Args)]
pub struct VerifyFlags {
    #[command(flatten)]
    pub source: SourceFlags,
    /// Source of the settings: the running daemon, or the flags (or --config), with defaults for
    /// all others [default: flags if any setting is given, otherwise daemon; with --manifests and
    /// without a daemon, flags]
    #[arg(long, value_name = "SOURCE")]
    pub settings: Option<SettingsOf>,
    #[command(flatten)]
    pub node: NodeFlags,
    #[command(flatten)]
    pub log: LogFlags,
}

/// The flags of `deltaproxy plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanFlags {
    #[command(flatten)]
    pub compared: VerifyFlags,
    /// Accept manifests without any usable object, which remove every service
    #[arg(long)]
    pub allow_empty: bool,
    /// Print each command of nft(8), not only their number [default: with --manifests]
    #[arg(long)]
    pub commands: bool,
}

/// The flags of `deltaproxy apply`.
#[derive(Debug, Clone, Args)]
pub struct OnceFlags {
    /// File or folder of manifests: Services, EndpointSlices, Nodes, ServiceCIDRs, Lists
    #[arg(long, value_name = "PATH")]
    pub manifests: PathBuf,
    /// Accept manifests without any usable object, which remove every service
    #[arg(long)]
    pub allow_empty: bool,
    /// Source of the settings: the running daemon, or the flags (or --config), with defaults for
    /// all others [default: flags if any setting is given or no daemon runs, otherwise daemon]
    #[arg(long, value_name = "SOURCE")]
    pub settings: Option<SettingsOf>,
    #[command(flatten)]
    pub node: NodeFlags,
    #[command(flatten)]
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

/// Flags for this node and its packets.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct NodeFlags {
    /// KubeProxyConfiguration file (kubeproxy.config.k8s.io/v1alpha1); it replaces all flags but
    /// --manifests, --hostname-override, --log-level and --log-format
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Name of this machine's Node object, if it is not the host name
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    #[command(flatten)]
    options: TableFlags,
}

/// Flags of options that change tables.
type TableFlags = OptionFlags<false>;

/// Flags of options of a daemon only.
type DaemonFlags = OptionFlags<true>;

/// Flags of options, from the table of options.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptionFlags<const OF_DAEMON: bool>(Given);

impl<const OF_DAEMON: bool> OptionFlags<OF_DAEMON> {
    fn settings() -> impl Iterator<Item = (&'static str, &'static str, &'static Setting)> {
        let scope = if OF_DAEMON { OptionScope::Daemon } else { OptionScope::Tables };
        let settings = SETTINGS.iter().filter(move |setting| setting.scope == scope);
        settings.filter_map(|setting| setting.flag.map(|(name, value)| (name, value, setting)))
    }
}

impl<const OF_DAEMON: bool> Args for OptionFlags<OF_DAEMON> {
    fn augment_args(command: Command) -> Command {
        Self::settings().fold(command, |command, (name, value, setting)| {
            let flag = Arg::new(name)
                .long(name)
                .value_name(value)
                .help(setting.help())
                .value_parser(|text: &str| setting.read(text))
                .conflicts_with("config");
            let is_switch = setting.kind == OptionKind::Flag;
            command.arg(if is_switch {
                flag.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                flag
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const OF_DAEMON: bool> FromArgMatches for OptionFlags<OF_DAEMON> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (name, _, setting) in Self::settings() {
            if let Some(value) = matches.get_one::<Value>(name) {
                self.0.set(name, setting.target(), value.clone());
            }
        }
        Ok(())
    }
}

impl RunFlags {
    /// Returns the path of the configuration's file, if it is in one.
    pub fn file_path(&self) -> Option<PathBuf> {
        self.node.config.clone()
    }

    /// Builds the configuration from the flags and the file that they name.
    ///
    /// # Errors
    /// The file cannot be read or is invalid, or the node has no name.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let file = match self.node.file()? {
            Some(file) => file,
            None => of_flags(self.node.options.0.clone().with(&self.daemon.0))?,
        };
        let source = self.source.choose(&file);
        if let (Source::Manifests(path), Some(field)) =
            (&source, file.config.node_readiness.first_on())
        {
            let path = path.display();
            let message = format!(
                "is on; expected off with the manifests of {path}: they have no API server"
            );
            return Err(ConfigError::Flag { flag: field.to_owned(), message });
        }
        file.into_config(self.node.name(), source, self.log)
    }

    /// Returns the effective KubeProxyConfiguration of `config`, which was loaded from these flags.
    ///
    /// # Errors
    /// The file can no longer be read.
    pub fn effective(&self, config: &Config) -> Result<Value, ConfigError> {
        let file = self.node.config.clone();
        file.map_or_else(KubeProxyFlags::default, KubeProxyFlags::of_file).effective(config)
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
        let source = self.source.choose(&file);
        file.into_config(self.node.name(), source, self.log)
    }
}

impl PlanFlags {
    /// Builds the configuration of a file that a running daemon may get, and that of the daemon.
    /// Without a name of its own the node has the daemon's.
    ///
    /// # Errors
    /// Either is invalid.
    pub fn load_beside(&self, running: Value) -> Result<(Loaded, Config), ConfigError> {
        let Self { compared: VerifyFlags { source, node, log, .. }, .. } = self;
        let running = of_running(running)?;
        let chosen = source.choose(&running);
        let Loaded { config, .. } = running.into_config(None, chosen, *log)?;
        let file = node.file_or(None)?;
        let name = node.name().or(file.hostname_override.as_deref()).unwrap_or(&config.node_name);
        let (name, source) = (name.to_owned(), source.choose(&file));
        Ok((file.into_config(Some(&name), source, *log)?, config))
    }
}

impl SourceFlags {
    /// Returns the source of the flags, else of the file, else the pod's API server.
    fn choose(&self, file: &Values) -> Source {
        let kubeconfig = self.kubeconfig.as_ref().or(file.kubeconfig.as_ref());
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
        self.node.file_or(running)?.into_config(self.node.name(), source, self.log)
    }
}

impl Loaded {
    /// Builds the configuration of a pod from the text of a file, without flags. Errors call the
    /// file `config`.
    ///
    /// # Errors
    /// The text is invalid, or the node has no name.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file = Values::parse(Path::new("config"), text)?;
        file.into_config(None, Source::InCluster, LogFlags::default())
    }
}

impl NodeFlags {
    fn file(&self) -> Result<Option<Values>, ConfigError> {
        self.config.as_deref().map(Values::read).transpose()
    }

    /// Returns the file, else the settings of a running daemon, else those of the flags.
    fn file_or(&self, running: Option<&Value>) -> Result<Values, ConfigError> {
        if let Some(file) = self.file()? {
            return Ok(file);
        }
        match running {
            Some(running) => of_running(running.clone()),
            None => of_flags(self.options.0.clone()),
        }
    }

    /// Returns the name of the node that `--hostname-override` gives.
    fn name(&self) -> Option<&str> {
        self.hostname_override.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns whether the flags have settings beside the node's name.
    pub fn has_settings(&self) -> bool {
        self.config.is_some() || !self.options.0.is_empty()
    }
}

/// Returns the settings of a running daemon.
fn of_running(mut fields: Value) -> Result<Values, ConfigError> {
    // The log is this command's own.
    fields.as_object_mut().and_then(|fields| fields.remove("logging"));
    let name = |field: &str| format!("the running daemon: {field}");
    let running = Values::of_fields(fields, Origin::Flags(&name))?;
    Ok(Values { notes: Notes { refused: Vec::new(), ..running.notes }, ..running })
}

/// Returns the settings of flags. Without a file, the node keeps its settings.
fn of_flags(mut given: Given) -> Result<Values, ConfigError> {
    given.set("", "mode", "nftables".into());
    let mut file = Values::of_fields(given.document(), Origin::Own)?;
    file.config.conntrack = ConntrackSettings::default();
    file.config.oom_score_adj = None;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use clap::error::ErrorKind;
    use engine::counters::Counters;
    use engine::flowtable::{Offload, Threshold};
    use engine::model::{EndedSettings, ExternalAddresses, HashedSource, Scheduler};
    use engine::routing::{
        DirectMode, DirectReturn, LeastConnections, LocalDetection, Routing, ServedServices,
    };
    use tempfile::NamedTempFile;

    use super::*;
    use crate::config::{CHECK_PERIOD, ContentTypes, NodeReadiness, Periods};

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
            content_types: ContentTypes::default(),
            routing: Routing::default(),
            periods: Periods { min_sync: Duration::ZERO, check: CHECK_PERIOD },
            owns_tables: true,
            node_readiness: NodeReadiness::default(),
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
             --least-connections 5s --direct-return annotated --direct-return-devices eth0,br1 \
             --ended-connections annotated --node-condition on --startup-taint on \
             --table-ownership off --external-addresses 192.0.2.0/24 \
             --refuse-internal-addresses on --service-proxy-name canary \
             --except-services a/b,c/* --service-labels !x,y=z",
        );
        let expected = Config {
            node_name: "n1".to_owned(),
            log: LogFlags::default().or(LogFlags::default()),
            source: Source::Kubeconfig("/k".into()),
            content_types: ContentTypes::default(),
            routing: Routing {
                local_detection: LocalDetection::ClusterCidr(
                    "10.0.0.0/8,fd00::/8".parse().unwrap(),
                ),
                masquerade_all: true,
                masquerade_bit: 3,
                services: ServedServices {
                    proxy_name: Some("canary".parse().unwrap()),
                    except: vec!["a/b".parse().unwrap(), "c/*".parse().unwrap()],
                    labels: vec!["!x".parse().unwrap(), "y=z".parse().unwrap()],
                },
                external_addresses: ExternalAddresses {
                    external_ips: false,
                    allowed: vec!["192.0.2.0/24".parse().unwrap()],
                    refuse_internal: true,
                },
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
                direct_return: Some(DirectReturn {
                    devices: vec!["eth0".parse().unwrap(), "br1".parse().unwrap()],
                    ..DirectReturn::new(DirectMode::Annotated)
                }),
                ended_connections: Some(EndedSettings {
                    by_default: false,
                    remember: Duration::from_mins(15),
                }),
            },
            periods: Periods {
                min_sync: Duration::from_millis(500),
                check: Duration::from_secs(60),
            },
            owns_tables: false,
            node_readiness: NodeReadiness {
                condition: true,
                startup_taint: true,
                ..NodeReadiness::default()
            },
            healthz_bind_address: None,
            metrics_bind_address: Some("1.2.3.4:10249".parse().unwrap()),
            bind_address_hard_fail: false,
            conntrack: ConntrackSettings::default(),
            oom_score_adj: None,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn manifests_have_no_node_to_write_to() {
        let taint = file("deltaproxy: {nodeReadiness: {startupTaint: on}}\n");
        let path = taint.path().display();
        let loaded = run(&format!("--hostname-override n --config {path} --manifests /m"));
        assert_eq!(
            loaded.unwrap().load().unwrap_err().to_string(),
            "deltaproxy.nodeReadiness.startupTaint: is on; expected off with the manifests of /m: \
             they have no API server"
        );
        assert!(
            config(&format!("--hostname-override n --config {path}")).node_readiness.startup_taint
        );
        let once =
            Once::try_parse_from(["once", "--manifests", "/m", "--config", &path.to_string()]);
        assert!(once.unwrap().flags.load(None).is_ok(), "other commands write nothing");
    }

    #[test]
    fn the_mode_selects_how_pods_are_detected() {
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
            ("--masquerade-bit 32", "--masquerade-bit", "a bit from 0 to 31"),
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
            ("--direct-return on", "--direct-return", "expected off, annotated or loadBalancers"),
            ("--direct-return-devices a/b", "--direct-return-devices", "1 to 15 bytes"),
            ("--hash-seed x", "--hash-seed", "a whole number"),
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
            "--service-proxy-name canary --except-services a/b,c/* --service-labels !x,y!=z",
            "--external-addresses 192.0.2.0/24,fd00::/64 --refuse-internal-addresses on",
            "--least-connections 5s --scheduler lc --nodeport-addresses primary,10.0.0.0/8",
            "--direct-return loadBalancers --direct-return-devices eth0",
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
    fn a_pods_file_is_read_without_its_kubeconfig() {
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                    hostnameOverride: 'n'\nclientConnection: {kubeconfig: /k}\n";
        assert_eq!(Loaded::parse(text).unwrap().config.source, Source::InCluster);
    }

    #[test]
    fn a_node_name_alone_is_no_setting() {
        let has = |line: &str| run(line).unwrap().node.has_settings();
        assert!(!has("") && !has("--hostname-override n --kubeconfig /k"));
        assert!(has("--masquerade-all=false") && has("--config /c"));
    }
}
