//! The command line of kube-proxy, in the syntax of Go's pflag.
//!
//! As in kube-proxy, each flag sets a field of the KubeProxyConfiguration, and a file (`--config`)
//! replaces all flags but `--hostname-override`, `--master` and those of the log. Flags and file
//! share the checks and the notes.

mod flags;
mod words;

use std::net::IpAddr;
use std::path::PathBuf;

use flags::{Flag, Meaning};
use serde_json::Value;
use words::FlagWords;

use super::effective::set;
use super::file::Origin;
use super::given::Given;
use super::log::{LevelError, LogFlags, LogFormat, level};
use super::notes::Notes;
use super::options::{self, OptionKind, Values};
use super::{Config, ConfigError, Loaded, Source, listen_address, server_flags};
use crate::yaml;

/// A parsed command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KubeProxyFlags {
    /// The action of this command line.
    pub action: Action,
    /// Flags about the log.
    pub log: LogFlags,
    config: Option<PathBuf>,
    hostname_override: Option<String>,
    /// `--master`, which replaces the address of a kubeconfig file.
    server: Option<String>,
    fields: Given,
    /// Given flags without effect.
    without_effect: Vec<&'static str>,
    /// All given flags, with their values.
    given: Vec<(&'static str, String)>,
}

/// The action of a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Action {
    /// Watch the API server.
    #[default]
    Run,
    /// `--init-only`: check nftables, apply the settings of the node, remove what other modes left,
    /// and exit.
    InitOnly,
    /// `--cleanup`: remove the tables and what other modes left.
    Cleanup,
    /// `--write-config-to`: write the configuration to this file.
    Write(PathBuf),
    /// `--version`; raw adds the build's properties.
    Version {
        /// `--version=raw`.
        raw: bool,
    },
    /// `--help`.
    Help,
}

impl KubeProxyFlags {
    /// Returns the command line with `--config` alone.
    pub fn of_file(file: PathBuf) -> Self {
        Self { config: Some(file), ..Self::default() }
    }

    /// Returns the same for the node of that name.
    pub fn with_node(self, name: Option<String>) -> Self {
        Self { hostname_override: name, ..self }
    }

    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// All flags that are unknown or have no value or an invalid one, and all arguments that are
    /// not a flag.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, ConfigError> {
        let (mut flags, mut errors) = (Self::default(), Vec::new());
        for word in FlagWords::new(arguments) {
            errors.extend(word.and_then(|(flag, value)| flags.set(flag, value)).err());
        }
        // A file replaces the fields.
        if flags.config.is_none() {
            flags.complete_addresses();
        }
        if errors.is_empty() {
            return Ok(flags);
        }
        if flags.config.is_none() {
            errors.extend(flags.fields().err().into_iter().flat_map(ConfigError::into_each));
        }
        Err(ConfigError::all(errors))
    }

    /// Returns the settings of the fields that flags set.
    fn fields(&self) -> Result<Values, ConfigError> {
        Values::of_fields(self.fields.document(), Origin::Flags(&|field| self.flag_of(field)))
    }

    /// Returns the path of the configuration's file, if it is in one.
    pub fn file_path(&self) -> Option<PathBuf> {
        self.config.clone()
    }

    /// Builds the configuration from the file of `--config`, or from the flags.
    ///
    /// # Errors
    /// The file cannot be read, a field or flag is invalid, or the node has no name.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let mut flags = self.without_effect.clone();
        if self.config.is_some() {
            flags.extend(self.fields.flags());
        }
        let file = match &self.config {
            Some(path) => Values::read(path)?,
            None => self.fields()?,
        };
        let source = match (self.server.clone(), file.kubeconfig.clone()) {
            (Some(url), kubeconfig) => Source::Server { url, kubeconfig },
            (None, Some(path)) => Source::Kubeconfig(path),
            (None, None) => Source::InCluster,
        };
        let Loaded { config, notes, sha256 } =
            file.into_config(self.node_name(), source, self.log)?;
        Ok(Loaded { config, notes: Notes { flags, ..notes }, sha256 })
    }

    /// Returns the configuration as a KubeProxyConfiguration in YAML, with all fields that have an
    /// effect. Read again, it has the same meaning, apart from the address of `--master`.
    ///
    /// # Errors
    /// Those of [`Self::load`]; a flag turns a server off, which no field can.
    pub fn written(&self) -> Result<String, ConfigError> {
        let loaded = self.load()?;
        let config = &loaded.config;
        for (address, field) in [
            (config.healthz_bind_address, "healthzBindAddress"),
            (config.metrics_bind_address, "metricsBindAddress"),
        ] {
            if address.is_none() {
                let message = "turns the server off, which no field of a file can".to_owned();
                return Err(ConfigError::Flag { flag: self.flag_of(field), message });
            }
        }
        let mut whole = loaded.written(self.given()?);
        if let Some(name) = self.node_name() {
            set(&mut whole, "hostnameOverride", name.into());
        }
        // Flags of the log replace the fields.
        let (verbosity, format) = config.log.fields();
        if self.log.log_level.is_some() {
            set(&mut whole, "logging.verbosity", verbosity.into());
        }
        if self.log.log_format.is_some() {
            set(&mut whole, "logging.format", format.into());
        }
        Ok(serde_saphyr::to_string(&whole).unwrap_or_else(|_| whole.to_string()))
    }

    /// Returns the effective KubeProxyConfiguration of `config`, which was loaded from these flags.
    ///
    /// # Errors
    /// The file can no longer be read.
    pub fn effective(&self, config: &Config) -> Result<Value, ConfigError> {
        Ok(config.effective(self.given()?))
    }

    /// Returns the given fields.
    fn given(&self) -> Result<Value, ConfigError> {
        match &self.config {
            Some(path) => Values::value(path),
            None => Ok(self.fields.document()),
        }
    }

    /// Returns the name of the node that `--hostname-override` gives.
    fn node_name(&self) -> Option<&str> {
        self.hostname_override.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns all flags with their values; absent flags have their defaults.
    pub fn listed(&self) -> Vec<(String, String)> {
        let value = |flag: Flag| {
            let given = self.given.iter().filter(|(name, _)| *name == flag.name);
            let given: Vec<_> = given.map(|(_, text)| text.as_str()).collect();
            match (flag.kind, given.last()) {
                (_, None) => flag.default(),
                (OptionKind::Texts, Some(_)) => given.join(","),
                (_, Some(last)) => (*last).to_owned(),
            }
        };
        flags::all().map(|flag| (flag.name.to_owned(), value(flag))).collect()
    }

    /// Returns the text of `--help`.
    pub fn help() -> String {
        let lines: String = flags::all().map(|flag| flag.usage()).collect();
        format!(
            "Routes packets to Services by nftables, with the command line of kube-proxy.\n\n\
             Usage: kube-proxy [flags]\n\nFlags:\n{lines}\n\
             Flags marked with * are accepted without effect.\n\
             `deltaproxy help` shows the commands of this program.\n"
        )
    }

    fn set(&mut self, flag: Flag, text: String) -> Result<(), ConfigError> {
        let wrong = |expected: &str| ConfigError::Flag {
            flag: format!("--{}", flag.name),
            message: format!("is {text:?}; expected {expected}"),
        };
        let value = flag.kind.read(&text).map_err(wrong)?;
        let is_set = value == Value::Bool(true);
        self.given.push((flag.name, text.clone()));
        match flag.meaning {
            // As in kube-proxy, an empty address leaves what is before it.
            Meaning::Field { path, .. } if text.is_empty() && path.ends_with("indAddress") => {}
            // Errors and notes name each gate as a field.
            Meaning::Field { path, .. } => self.fields.set(flag.name, path, value),
            Meaning::Config => self.config = (!text.is_empty()).then(|| text.into()),
            Meaning::NodeName => self.hostname_override = Some(text),
            Meaning::Server if text.is_empty() => self.server = None,
            Meaning::Server if server_flags::is_server(&text) => self.server = Some(text),
            Meaning::Server => return Err(wrong(server_flags::EXPECTED_SERVER)),
            Meaning::Verbosity => {
                let level = level(&text).map_err(|_| wrong(LevelError::EXPECTED))?;
                self.log.log_level = Some(level);
            }
            Meaning::LogFormat => {
                self.log.log_format = Some(LogFormat::parse(&text).map_err(wrong)?);
            }
            Meaning::WriteConfig if !text.is_empty() => self.choose(Action::Write(text.into())),
            Meaning::Cleanup if is_set => self.choose(Action::Cleanup),
            Meaning::InitOnly if is_set => self.choose(Action::InitOnly),
            Meaning::Help if is_set => self.choose(Action::Help),
            Meaning::Version if is_set => self.choose(Action::Version { raw: false }),
            Meaning::Version if value == "raw" => self.choose(Action::Version { raw: true }),
            Meaning::Nothing if text != flag.default() => self.without_effect.push(flag.name),
            Meaning::Port(_)
            | Meaning::WriteConfig
            | Meaning::Cleanup
            | Meaning::InitOnly
            | Meaning::Version
            | Meaning::Help
            | Meaning::Nothing => {}
        }
        Ok(())
    }

    /// Keeps the action that kube-proxy checks first.
    fn choose(&mut self, action: Action) {
        let rank = |action: &Action| match action {
            Action::Help => 0,
            Action::Version { .. } => 1,
            Action::Write(_) => 2,
            Action::Cleanup => 3,
            Action::InitOnly => 4,
            Action::Run => 5,
        };
        if rank(&action) < rank(&self.action) {
            self.action = action;
        }
    }

    /// Completes addresses to listen on as kube-proxy does: a port is that of an address without
    /// one, 0 disables the server, and the defaults do not have the family of `--bind-address`.
    fn complete_addresses(&mut self) {
        for flag in flags::all() {
            let Meaning::Port(path) = flag.meaning else { continue };
            let given = self.given.iter().rfind(|(name, _)| *name == flag.name);
            let port = given.and_then(|(_, text)| yaml::whole(text)?.as_i64());
            let before = self.fields.value(path).and_then(Value::as_str);
            let address = match (port, before.and_then(listen_address::ip)) {
                (Some(0), _) => String::new(),
                (Some(port), Some(IpAddr::V4(ip))) => format!("{ip}:{port}"),
                (Some(port), Some(IpAddr::V6(ip))) => format!("[{ip}]:{port}"),
                (port, _) => {
                    let is_unused = port.is_some_and(|port| port.to_string() != flag.default());
                    self.without_effect.extend(is_unused.then_some(flag.name));
                    let default = options::find(path).filter(|_| before.is_none());
                    default.map_or_else(|| before.unwrap_or_default(), |it| it.default).to_owned()
                }
            };
            if given.is_some() || self.fields.value("bindAddress").is_some() {
                self.fields.set(flag.name, path, address.into());
            }
        }
    }

    fn flag_of(&self, field: &str) -> String {
        let of_option = || options::find(field)?.kube_proxy.map(|(flag, _)| flag);
        let flag = self.fields.flag_of(field).or_else(of_option);
        flag.map_or_else(|| field.to_owned(), |flag| format!("--{flag}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::routing::{LocalDetection, NodePortAddresses};
    use serde_json::json;
    use tempfile::NamedTempFile;
    use tracing::level_filters::LevelFilter;

    use super::*;
    use crate::config::ConntrackSettings;
    use crate::config::fields::{API_VERSION, KIND};

    fn parse(line: &str) -> Result<KubeProxyFlags, ConfigError> {
        KubeProxyFlags::parse(line.split_whitespace().map(str::to_owned))
    }

    #[track_caller]
    fn load(line: &str) -> Loaded {
        parse(&format!("--hostname-override=n {line}")).unwrap().load().unwrap()
    }

    #[track_caller]
    fn refused(line: &str) -> String {
        let flags = parse(&format!("--hostname-override=n {line}"));
        flags.and_then(|flags| flags.load()).unwrap_err().to_string()
    }

    fn file(text: &str) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn config_flag(file: &NamedTempFile) -> String {
        format!("--config={}", file.path().display())
    }

    /// Command lines under which a flag may have an effect.
    const CONTEXTS: [&str; 6] = [
        "",
        "--healthz-bind-address=192.0.2.9 --metrics-bind-address=192.0.2.9",
        "--proxy-mode=nftables",
        "--proxy-mode=ipvs",
        "--detect-local-mode=BridgeInterface",
        "--detect-local-mode=InterfaceNamePrefix",
    ];

    /// Returns what a command line results in.
    fn result(line: &str) -> (Action, LogFlags, Result<Config, String>) {
        let flags = parse(line).unwrap();
        let config = flags.load().map(|loaded| loaded.config);
        (flags.action, flags.log, config.map_err(|error| error.to_string()))
    }

    /// Returns a value that is not the default.
    fn another_value(flag: Flag) -> &'static str {
        match (flag.name, flag.kind) {
            (_, OptionKind::Flag) if flag.default() == "true" => "false",
            (_, OptionKind::Flag | OptionKind::Version) => "true",
            (_, OptionKind::Whole | OptionKind::Number) => "7",
            (_, OptionKind::Duration) => "7s",
            (_, OptionKind::Texts) => "10.1.0.0/16",
            ("proxy-mode", _) => "nftables",
            (_, OptionKind::Gate) => "AllowServiceExternalIPs=false",
            ("master", _) => "https://192.0.2.1:6443",
            ("bind-address", _) => "192.0.2.1",
            ("healthz-bind-address" | "metrics-bind-address", _) => "192.0.2.1:99",
            ("ipvs-scheduler", _) => "mh",
            ("detect-local-mode", _) => "NodeCIDR",
            ("cluster-cidr", _) => "10.1.0.0/16",
            ("logging-format", _) => "json",
            ("log-text-info-buffer-size" | "log-json-info-buffer-size", _) => "1",
            (_, OptionKind::Text | OptionKind::Object | OptionKind::Opaque | OptionKind::Any) => {
                "other"
            }
        }
    }

    #[test]
    fn help_marks_the_flags_of_which_no_value_changes_anything() {
        for flag in flags::all() {
            let given = format!("--{}={}", flag.name, another_value(flag));
            let changes = |context: &&str| {
                let line = format!("{context} {given}");
                result(&line) != result(context)
            };
            let has_effect = CONTEXTS.iter().any(changes);
            assert_eq!(flag.has_effect(), has_effect, "{given}");
            let first = flag.usage().lines().next().unwrap().to_owned();
            assert_eq!(first.ends_with('*'), !has_effect, "{first}");
        }
    }

    #[test]
    fn a_flag_with_its_default_is_as_if_absent() {
        for flag in flags::all().filter(|flag| !flag.default().is_empty()) {
            let name = format!("--{}=", flag.name);
            for context in CONTEXTS.into_iter().filter(|it| !it.contains(&name)) {
                let line = format!("{context} --{}={}", flag.name, flag.default());
                let (action, _, config) = result(&line);
                let (absent_action, _, absent) = result(context);
                assert_eq!((action, config), (absent_action, absent), "{line}");
            }
        }
    }

    #[test]
    fn all_spellings_of_pflag_are_accepted() {
        for line in [
            "--proxy-mode=nftables --cluster-cidr=10.0.0.0/8 --masquerade-all -v=4",
            "--proxy-mode nftables --cluster-cidr 10.0.0.0/8 --masquerade-all=T -v 4",
            "--proxy_mode nftables --cluster_cidr=10.0.0.0/8 --masquerade_all=true --v=4",
            "--proxy-mode=iptables --proxy-mode=nftables --cluster-cidr=10.0.0.0/8 \
             --masquerade-all=1 -v4",
        ] {
            let flags = parse(&format!("--hostname-override=N1 {line}")).unwrap();
            assert_eq!(flags.log.log_level, Some(LevelFilter::DEBUG), "{line}");
            let Loaded { config, notes, .. } = flags.load().unwrap();
            assert_eq!(notes, Notes::default(), "{line}");
            assert_eq!(config.node_name, "n1");
            assert_eq!(config.source, Source::InCluster);
            assert!(config.routing.masquerade_all, "{line}");
            let cidrs = "10.0.0.0/8".parse().unwrap();
            assert_eq!(config.routing.local_detection, LocalDetection::ClusterCidr(cidrs));
            assert_eq!(config.routing.node_port_addresses, NodePortAddresses::PRIMARY);
        }
    }

    #[test]
    fn all_wrong_flags_are_reported_together() {
        let text = refused(
            "--nodeport-addresses=nonsense --no-such-flag 7 --masquerade-all=perhaps -v=loud word \
             --cluster-cidr=10.0.0.0/99 --config-sync-period",
        );
        let lines: Vec<_> = text.lines().collect();
        let starts = [
            "--no-such-flag: is not a flag of kube-proxy",
            "--masquerade-all: is \"perhaps\"",
            "--v: is \"loud\"; expected a whole number",
            "\"word\": is not a flag",
            "--config-sync-period: has no value",
            "--cluster-cidr: ",
            "--nodeport-addresses: ",
        ];
        assert_eq!(lines.len(), starts.len(), "{text}");
        assert!(starts.iter().all(|it| lines.iter().any(|line| line.starts_with(it))), "{text}");
        // A file replaces the fields, so those of flags are not checked.
        let beside_a_file = refused("--config=/none --nodeport-addresses=nonsense --no-such-flag");
        assert_eq!(beside_a_file.lines().count(), 1, "{beside_a_file}");
        let level = "--v: is \"-1\"; expected error, warn, info, debug, trace, or a number from 0";
        assert_eq!(refused("--v=-1"), level);
    }

    #[test]
    fn master_is_the_address_with_and_without_kubeconfig_and_file() {
        let source = |line: &str| load(line).config.source;
        let server = |kubeconfig: Option<&str>| Source::Server {
            url: "http://a:1".into(),
            kubeconfig: kubeconfig.map(PathBuf::from),
        };
        assert_eq!(source("--master=http://a:1"), server(None));
        assert_eq!(source("--kubeconfig=/k --master=http://a:1"), server(Some("/k")));
        assert_eq!(source("--kubeconfig=/k --master="), Source::Kubeconfig("/k".into()));
        let error = KubeProxyFlags::parse(["--master=/x".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("--master: is \"/x\"; expected the URL"), "{error}");
    }

    #[test]
    fn each_flag_sets_its_field() {
        let config = load(
            "--proxy-mode=nftables --kubeconfig=/k --detect-local-mode=BridgeInterface \
             --pod-bridge-interface=br0 --nodeport-addresses=10.0.0.0/8 \
             --nodeport-addresses=fd00::/8 --iptables-min-sync-period=2s \
             --feature-gates=AllowServiceExternalIPs=false --healthz-bind-address=127.0.0.1 \
             --metrics-bind-address=[::1]:1 --conntrack-max-per-core=0 --conntrack-min=7 \
             --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=5s \
             --conntrack-tcp-be-liberal --conntrack-udp-timeout=1m \
             --conntrack-udp-timeout-stream=2m --oom-score-adj=-5 \
             --kube-api-content-type=application/json",
        )
        .config;
        let conntrack = ConntrackSettings {
            max_per_core: 0,
            min: 7,
            tcp_established_timeout: Duration::ZERO,
            tcp_close_wait_timeout: Duration::from_secs(5),
            tcp_be_liberal: true,
            udp_timeout: Duration::from_mins(1),
            udp_stream_timeout: Duration::from_mins(2),
        };
        assert_eq!(config.conntrack, conntrack);
        assert_eq!(config.oom_score_adj, Some(-5));
        assert!(config.content_types.are_json());
        assert_eq!(config.source, Source::Kubeconfig("/k".into()));
        let bridge = LocalDetection::BridgeInterface("br0".parse().unwrap());
        assert_eq!(config.routing.local_detection, bridge);
        let ranges = "10.0.0.0/8,fd00::/8".parse().unwrap();
        assert_eq!(config.routing.node_port_addresses, ranges);
        assert_eq!(config.periods.min_sync.as_secs(), 2);
        assert!(!config.routing.external_addresses.external_ips);
        assert_eq!(config.healthz_bind_address, Some("127.0.0.1:10256".parse().unwrap()));
        assert_eq!(config.metrics_bind_address, Some("[::1]:1".parse().unwrap()));
    }

    #[test]
    fn servers_listen_where_those_of_kube_proxy_do() {
        let default = ["0.0.0.0:10256", "127.0.0.1:10249"];
        for (line, [healthz, metrics]) in [
            ("", default),
            (
                "--healthz-bind-address=127.0.0.1 --healthz-port=9001",
                ["127.0.0.1:9001", default[1]],
            ),
            (
                "--healthz-port=9001 --healthz-bind-address=127.0.0.1",
                ["127.0.0.1:9001", default[1]],
            ),
            (
                "--healthz-port 1 --healthz-port 2 --healthz-bind-address ::1",
                ["[::1]:2", default[1]],
            ),
            ("--metrics-bind-address=0.0.0.0 --metrics-port=0x10", [default[0], "0.0.0.0:16"]),
            ("--metrics-port=7 --metrics-bind-address=::", [default[0], "[::]:7"]),
            // The port of an address stays, and the defaults have one.
            ("--healthz-port=9001", default),
            ("--metrics-port=9001 --metrics-bind-address=[::1]:2", [default[0], "[::1]:2"]),
            ("--healthz-bind-address=1.2.3.4:5 --healthz-port=6", ["1.2.3.4:5", default[1]]),
            ("--healthz-port=0", ["", default[1]]),
            ("--healthz-port=0 --healthz-bind-address=1.2.3.4:5", ["", default[1]]),
            ("--metrics-port=0", [default[0], ""]),
            // An empty address leaves what is before it.
            ("--healthz-bind-address= --metrics-bind-address=", default),
            (
                "--healthz-bind-address=1.2.3.4 --healthz-bind-address=",
                ["1.2.3.4:10256", default[1]],
            ),
            ("--bind-address=", default),
            // The defaults have the family of the default of --bind-address.
            ("--bind-address=::", default),
            ("--bind-address=fd00::1 --metrics-port=7", default),
            ("--bind-address=:: --metrics-bind-address=::", [default[0], "[::]:10249"]),
            ("--bind-address=:: --healthz-port=0", ["", default[1]]),
        ] {
            let config = load(line).config;
            assert_eq!(listen_address::text(config.healthz_bind_address), healthz, "{line}");
            assert_eq!(listen_address::text(config.metrics_bind_address), metrics, "{line}");
        }
        let flags = load("--healthz-port=9001 --metrics-port=10249").notes.flags;
        assert_eq!(flags, ["healthz-port"]);
        for line in ["--healthz-port=70000", "--healthz-port=-1", "--healthz-port=x"] {
            let error = refused(&format!("--healthz-bind-address=1.2.3.4 {line}"));
            assert!(error.starts_with("--healthz-"), "{error}");
        }
        let file = file(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                         mode: nftables\nbindAddress: '::'\n",
        );
        let config = load(&format!("--healthz-port=0 {}", config_flag(&file))).config;
        assert_eq!(listen_address::text(config.healthz_bind_address), "[::]:10256");
        assert_eq!(listen_address::text(config.metrics_bind_address), "[::1]:10249");
    }

    #[test]
    fn values_of_flags_have_the_syntax_of_go() {
        for (line, field, expected) in [
            ("--conntrack-min=0x10", "/conntrack/min", json!(16)),
            ("--conntrack-min=017", "/conntrack/min", json!(15)),
            ("--conntrack-min 1_000", "/conntrack/min", json!(1000)),
            ("--conntrack_min=0b11", "/conntrack/min", json!(3)),
            ("--masquerade-all=T", "/nftables/masqueradeAll", json!(true)),
            ("--masquerade-all=0", "/nftables/masqueradeAll", json!(false)),
            ("--ipvs-tcp-timeout=-5s", "/ipvs/tcpTimeout", json!("-5s")),
            (
                "--nodeport-addresses=\"10.0.0.0/8\",::/0",
                "/nodePortAddresses",
                json!(["10.0.0.0/8", "::/0"]),
            ),
            (
                "--nodeport-addresses=10.0.0.0/8 --nodeport-addresses=::/0",
                "/nodePortAddresses",
                json!(["10.0.0.0/8", "::/0"]),
            ),
            (
                "--feature-gates=A=1,B=F --feature-gates=A=false",
                "/featureGates",
                json!({"A": false, "B": false}),
            ),
            ("--kube-api-qps=1_0", "/clientConnection/qps", json!(10.0)),
        ] {
            let flags = parse(&format!("--proxy-mode=nftables {line}")).unwrap();
            let given = flags.fields.document();
            assert_eq!(given.pointer(field), Some(&expected), "{line}");
            flags.load().unwrap();
        }
        for line in [
            "--conntrack-min=08",
            "--conntrack-min=1e1",
            "--conntrack-min=",
            "--cluster-cidr",
            "--nodeport-addresses=\"::/0",
            "--nodeport-addresses=a\"b",
            "--conntrack-udp-timeout=-5s",
            "--feature-gates=A",
            "-v=-1",
            "--masquerade-all=y",
        ] {
            refused(line);
        }
        assert_eq!(parse("-v=99").unwrap().log.log_level, Some(LevelFilter::TRACE));
        // An empty word is no argument, as a template may leave it.
        let words = ["", "--proxy-mode=nftables", "", "--", ""].map(str::to_owned);
        assert_eq!(KubeProxyFlags::parse(words).unwrap().load().unwrap().notes, Notes::default());
    }

    #[test]
    fn flags_that_kube_proxy_refuses_are_taken_with_a_note() {
        for (line, note) in [
            ("--metrics-port=0", "--metrics-port: is \"\"; it expects IP or IP:port"),
            ("--cluster-cidr=", "--cluster-cidr: is \"\"; it expects ranges without blanks"),
            ("--feature-gates=NFTablesProxyMode=false", "it expects true, always"),
            ("--config-sync-period=0", "--config-sync-period: is \"0\"; it expects more than 0s"),
            ("--nodeport-addresses=10.0.0.0/8,", "it expects ranges, or primary alone"),
            ("--iptables-min-sync-period=1m", "--iptables-min-sync-period: is \"1m\""),
            ("--iptables-sync-period=0", "--iptables-sync-period: is \"0\"; it expects more"),
            ("--healthz-port=0 --conntrack-udp-timeout=0 --iptables-min-sync-period=0", ""),
        ] {
            let notes = load(&format!("--proxy-mode=nftables {line}")).notes.refused;
            assert_eq!(notes.len(), usize::from(!note.is_empty()), "{line}: {notes:?}");
            assert!(notes.iter().all(|it| it.contains(note)), "{line}: {notes:?}");
        }
    }

    #[test]
    fn other_modes_are_replaced_with_a_warning_and_keep_their_settings() {
        for mode in ["iptables", "ipvs"] {
            let loaded =
                load(&format!("--proxy-mode={mode} --masquerade-all --iptables-masquerade-bit=3"));
            let routing = loaded.config.routing;
            assert!(routing.masquerade_all);
            assert_eq!(routing.masquerade_bit, 3);
            assert_eq!(routing.node_port_addresses, "0.0.0.0/0,::/0".parse().unwrap());
            let lines = loaded.notes.lines();
            assert!(lines[0].starts_with(&format!("mode {mode} is not supported")), "{lines:?}");
            assert_eq!(lines.len(), 1, "{lines:?}");
        }
        assert_eq!(load("").notes.other_mode.as_deref(), Some("iptables"));
        assert_eq!(load("--proxy-mode=nftables").notes.other_mode, None);
        assert_eq!(
            refused("--proxy-mode=ipvs --strict-proxy-mode"),
            "--proxy-mode: is \"ipvs\"; with deltaproxy.strictMode only nftables is accepted"
        );
    }

    #[test]
    fn flags_fields_and_gates_without_effect_are_named() {
        let lines = load(
            "--proxy-mode=nftables --vmodule=a=1 --log-flush-frequency=5s --kube-api-qps=9 \
             --feature-gates=NFTablesProxyMode=true,Unheard=true --ipvs-scheduler=rr",
        )
        .notes
        .lines();
        assert_eq!(
            lines,
            [
                "fields of the configuration without effect: clientConnection.qps, \
                 featureGates.NFTablesProxyMode, ipvs.scheduler",
                "flags without effect: --vmodule",
                "unknown fields of the configuration: featureGates.Unheard",
            ]
        );
    }

    #[test]
    fn a_file_replaces_all_flags_but_the_node_name_and_the_log() {
        let head = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        let body = "mode: \"\"\nhostnameOverride: in-file\nclusterCIDR: 10.0.0.0/8\n\
                    clientConnection: {kubeconfig: /k}\niptables: {masqueradeAll: true}\n";
        let file = file(&(head + body));
        let flags = "--cluster-cidr=192.168.0.0/16 -v=2";
        let Loaded { config, notes, .. } = load(&format!("{flags} {}", config_flag(&file)));
        assert_eq!(config.node_name, "n");
        assert_eq!(config.source, Source::Kubeconfig("/k".into()));
        assert!(config.routing.masquerade_all);
        let cidrs = "10.0.0.0/8".parse().unwrap();
        assert_eq!(config.routing.local_detection, LocalDetection::ClusterCidr(cidrs));
        assert_eq!(notes.flags, ["cluster-cidr"]);
    }

    #[test]
    fn wrong_flags_are_named_with_what_was_expected() {
        for (line, error) in [
            (
                "--hostnam-override=n",
                "--hostnam-override: is not a flag of kube-proxy; did you mean --hostname-override?",
            ),
            ("--xyzzy", "--xyzzy: is not a flag of kube-proxy; --help lists them"),
            ("-x", "-x: is not a flag of kube-proxy; --help lists them"),
            ("run", "\"run\": is not a flag; kube-proxy accepts only flags"),
            ("-- run", "\"run\": is not a flag; kube-proxy accepts only flags"),
            ("-", "\"-\": is not a flag; kube-proxy accepts only flags"),
            ("--cluster-cidr", "--cluster-cidr: has no value; expected one after it"),
            (
                "--cluster-cidr=x",
                "--cluster-cidr: \"x\" is not an address range such as 10.244.0.0/16 or fd00:10::/64",
            ),
            ("--masquerade-all=maybe", "--masquerade-all: is \"maybe\"; expected true or false"),
            ("--oom-score-adj=1.5", "--oom-score-adj: is \"1.5\"; expected a whole number"),
            (
                "--iptables-masquerade-bit=32",
                "--iptables-masquerade-bit: is 32; expected a bit from 0 to 31",
            ),
            ("--conntrack-min=many", "--conntrack-min: is \"many\"; expected a whole number"),
            (
                "--config-sync-period=5",
                "--config-sync-period: is \"5\"; expected a duration such as 1s, 1m30s or 500ms, or 0",
            ),
            (
                "--proxy-mode=userspace",
                "--proxy-mode: is \"userspace\"; expected nftables, iptables or ipvs",
            ),
            (
                "--detect-local-mode=BridgeInterface",
                "--pod-bridge-interface: is empty; expected a name for mode BridgeInterface",
            ),
            ("--logging-format=xml", "--logging-format: is \"xml\"; expected text or json"),
            ("-v=loud", "--v: is \"loud\"; expected a whole number"),
            ("--version=maybe", "--version: is \"maybe\"; expected true, false or raw"),
        ] {
            assert_eq!(refused(line), error);
        }
    }

    #[test]
    fn the_first_action_in_kube_proxys_order_wins() {
        let action = |line: &str| parse(line).unwrap().action;
        assert_eq!(action(""), Action::Run);
        assert_eq!(action("--cleanup --config=/nowhere"), Action::Cleanup);
        assert_eq!(action("--cleanup=false"), Action::Run);
        assert_eq!(action("--init-only"), Action::InitOnly);
        assert_eq!(action("--version=raw --cleanup"), Action::Version { raw: true });
        assert_eq!(action("--version"), Action::Version { raw: false });
        assert_eq!(action("--version -h"), Action::Help);
        assert_eq!(action("--write-config-to=/f --cleanup"), Action::Write("/f".into()));
    }

    #[test]
    fn flags_are_listed_with_their_values_and_defaults() {
        let listed = parse("--v=2 --nodeport-addresses=10.0.0.0/8 --nodeport-addresses=::/0 -v 4");
        let listed = listed.unwrap().listed();
        let value = |name: &str| &listed.iter().find(|(it, _)| it == name).unwrap().1;
        assert_eq!(value("v"), "4");
        assert_eq!(value("nodeport-addresses"), "10.0.0.0/8,::/0");
        assert_eq!(value("iptables-masquerade-bit"), "14");
        assert_eq!(value("config"), "");
        assert_eq!(listed.len(), flags::all().count());
    }

    #[test]
    fn the_effective_configuration_loads_as_the_same_configuration() {
        for line in [
            "--cluster-cidr=10.0.0.0/8,fd00::/8 --masquerade-all --iptables-min-sync-period=1500ms",
            "--detect-local-mode=BridgeInterface --pod-bridge-interface=br0 --proxy-mode=nftables",
            "--detect-local-mode=InterfaceNamePrefix --pod-interface-name-prefix=cali",
            "--detect-local-mode=NodeCIDR --nodeport-addresses=10.0.0.0/8 --oom-score-adj=3",
            "--kubeconfig=/k --conntrack-tcp-timeout-established=90m --conntrack-max-per-core=0",
            "--feature-gates=AllowServiceExternalIPs=false --healthz-port=7",
        ] {
            let flags = parse(&format!("--hostname-override=n {line}")).unwrap();
            let config = flags.load().unwrap().config;
            let effective = flags.effective(&config).unwrap();
            assert_eq!(effective["mode"], "nftables");
            let again = load(&config_flag(&file(&effective.to_string())));
            assert_eq!(again.config, config, "{effective}");
        }
    }

    #[test]
    fn a_written_configuration_loads_as_the_same_configuration() {
        let flags = "--hostname-override=n --proxy-mode=nftables --cluster-cidr=10.0.0.0/8 \
                     --masquerade-all --nodeport-addresses=10.0.0.0/8 --healthz-port=7";
        let flags = parse(flags).unwrap();
        let text = flags.written().unwrap();
        let again = load(&config_flag(&file(&text)));
        assert_eq!(again.config, flags.load().unwrap().config, "{text}");
        assert_eq!(again.notes, Notes::default(), "{text}");
    }
}
