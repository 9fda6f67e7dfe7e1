//! All flags of kube-proxy 1.36 (`cmd/kube-proxy/app/options.go`).

use super::super::fields;

/// A flag of kube-proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// Name, with dashes.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) meaning: Meaning,
    /// Value of an absent flag; empty if no text is the default.
    pub(super) default: &'static str,
    /// What it sets or does.
    about: &'static str,
}

/// Type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// true or false; true without a value.
    Flag,
    /// true, false or raw; true without a value.
    Version,
    Whole,
    Number,
    Duration,
    Text,
    /// Texts between commas.
    List,
}

/// Effect of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Sets a field of the configuration.
    Field(&'static str),
    /// Sets the port of an address; 0 disables the server.
    Port(&'static str),
    /// Sets `masqueradeAll` of all modes.
    MasqueradeAll,
    Gates,
    Config,
    NodeName,
    Server,
    Verbosity,
    LogFormat,
    WriteConfig,
    Cleanup,
    InitOnly,
    Version,
    Help,
    /// No effect.
    Nothing,
}

impl Flag {
    /// Returns the flag with a description.
    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Returns the flag's lines of `--help`.
    pub(super) fn usage(&self) -> String {
        let value = match self.kind {
            Kind::Flag | Kind::Version => "",
            Kind::Whole => " INT",
            Kind::Number => " NUMBER",
            Kind::Duration => " DURATION",
            Kind::Text => " TEXT",
            Kind::List => " LIST",
        };
        let default = match self.default {
            "" => String::new(),
            default => format!(" (default {default})"),
        };
        let mark = if self.has_effect() { "" } else { " *" };
        format!("      --{}{value}{mark}\n            {}{default}\n", self.name, self.about)
    }

    /// Path of the field, if the flag sets one and has no other effect.
    pub(super) fn field(&self) -> Option<&'static str> {
        let Meaning::Field(path) = self.meaning else { return None };
        Some(path)
    }

    /// Returns whether the flag has an effect, in one mode at least.
    pub(super) fn has_effect(&self) -> bool {
        let has = |path| fields::find(path).is_some_and(|field| field.effect || field.in_mode);
        self.meaning != Meaning::Nothing && self.field().is_none_or(has)
    }
}

const fn field(name: &'static str, kind: Kind, default: &'static str, path: &'static str) -> Flag {
    Flag { name, kind, meaning: Meaning::Field(path), default, about: "" }
}

const fn other(name: &'static str, kind: Kind, default: &'static str, meaning: Meaning) -> Flag {
    Flag { name, kind, meaning, default, about: "" }
}

/// Finds a flag by its name.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// In the order of options.go.
#[rustfmt::skip]
pub(super) static FLAGS: [Flag; 60] = [
    other("config", Kind::Text, "", Meaning::Config)
        .about("Read this KubeProxyConfiguration file; it replaces all other flags but --hostname-override, --master and those of the log"),
    other("write-config-to", Kind::Text, "", Meaning::WriteConfig)
        .about("Write the configuration with all defaults to this file, and exit"),
    other("cleanup", Kind::Flag, "false", Meaning::Cleanup)
        .about("Remove the tables and the leftovers of kube-proxy's other modes, and exit"),
    other("init-only", Kind::Flag, "false", Meaning::InitOnly)
        .about("Check nftables, apply the settings of the node, remove leftovers of other modes, and exit"),
    other("feature-gates", Kind::Text, "", Meaning::Gates)
        .about("AllowServiceExternalIPs=false leaves external IPs alone; other gates have no effect"),
    field("kubeconfig", Kind::Text, "", "clientConnection.kubeconfig")
        .about("File with address and credentials of the API server; without it, the pod's service account is used"),
    other("master", Kind::Text, "", Meaning::Server)
        .about("Address of the API server; replaces that of --kubeconfig"),
    field("kube-api-content-type", Kind::Text, "application/vnd.kubernetes.protobuf", "clientConnection.contentType")
        .about("Content type of requests; JSON is used"),
    field("kube-api-qps", Kind::Number, "5", "clientConnection.qps")
        .about("Requests a second to the API server; a few watches need no limit"),
    field("kube-api-burst", Kind::Whole, "10", "clientConnection.burst")
        .about("Requests at once to the API server"),
    other("hostname-override", Kind::Text, "", Meaning::NodeName)
        .about("Name of this machine's Node object; without it, the host name"),
    field("bind-address", Kind::Text, "0.0.0.0", "bindAddress")
        .about("The node's own address, unless unspecified; its family is that of the default addresses of healthz and metrics"),
    field("healthz-bind-address", Kind::Text, "0.0.0.0:10256", "healthzBindAddress")
        .about("Address and port of /healthz, /livez and /readyz; empty serves them nowhere"),
    other("healthz-port", Kind::Whole, "10256", Meaning::Port("healthzBindAddress"))
        .about("Port of --healthz-bind-address; 0 serves nothing"),
    field("metrics-bind-address", Kind::Text, "127.0.0.1:10249", "metricsBindAddress")
        .about("Address and port of /metrics; empty serves it nowhere"),
    other("metrics-port", Kind::Whole, "10249", Meaning::Port("metricsBindAddress"))
        .about("Port of --metrics-bind-address; 0 serves nothing"),
    field("bind-address-hard-fail", Kind::Flag, "false", "bindAddressHardFail")
        .about("End if the address of healthz or metrics cannot be used, instead of trying again"),
    field("profiling", Kind::Flag, "false", "enableProfiling")
        .about("Serve profiles of Go programs"),
    field("show-hidden-metrics-for-version", Kind::Text, "", "showHiddenMetricsForVersion")
        .about("Show metrics that this version of Kubernetes has hidden"),
    field("proxy-mode", Kind::Text, "", "mode")
        .about("Mode: nftables, iptables or ipvs; the rules are nftables in each. It selects the meaning of other flags; without it, iptables"),
    field("strict-proxy-mode", Kind::Flag, "false", "deltaproxy.strictMode")
        .about("Refuse modes other than nftables"),
    field("iptables-masquerade-bit", Kind::Whole, "14", "iptables.masqueradeBit")
        .about("Bit of the packet mark for masquerade, in modes iptables and ipvs"),
    other("masquerade-all", Kind::Flag, "false", Meaning::MasqueradeAll)
        .about("Masquerade all traffic to cluster IPs"),
    field("iptables-localhost-nodeports", Kind::Flag, "true", "iptables.localhostNodePorts")
        .about("Serve NodePorts at loopback addresses; --nodeport-addresses localhost does it here"),
    field("iptables-sync-period", Kind::Duration, "30s", "nftables.syncPeriod")
        .about("Time between two full updates of the rules; changes are applied at once"),
    field("iptables-min-sync-period", Kind::Duration, "0s", "nftables.minSyncPeriod")
        .about("Least time between two updates of the rules, in every mode; 0 is no minimum"),
    field("ipvs-sync-period", Kind::Duration, "30s", "ipvs.syncPeriod")
        .about("Time between two full updates of IPVS"),
    field("ipvs-min-sync-period", Kind::Duration, "0s", "ipvs.minSyncPeriod")
        .about("Least time between two updates of IPVS"),
    field("ipvs-scheduler", Kind::Text, "", "ipvs.scheduler")
        .about("Scheduler of services that name none, in mode ipvs; without it, rr. rr is random: even over time, not in turn"),
    field("ipvs-exclude-cidrs", Kind::List, "", "ipvs.excludeCIDRs")
        .about("Virtual servers of others that IPVS leaves alone; all are left alone"),
    field("ipvs-strict-arp", Kind::Flag, "false", "ipvs.strictARP")
        .about("Set arp_ignore and arp_announce; no service address is on an interface here"),
    field("ipvs-tcp-timeout", Kind::Duration, "0s", "ipvs.tcpTimeout")
        .about("Timeout of idle TCP connections of IPVS; see --conntrack-tcp-timeout-established"),
    field("ipvs-tcpfin-timeout", Kind::Duration, "0s", "ipvs.tcpFinTimeout")
        .about("Timeout of TCP connections of IPVS after a FIN"),
    field("ipvs-udp-timeout", Kind::Duration, "0s", "ipvs.udpTimeout")
        .about("Timeout of UDP flows of IPVS; see --conntrack-udp-timeout"),
    field("detect-local-mode", Kind::Text, "", "detectLocalMode")
        .about("Detection of traffic from pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; without it, ClusterCIDR"),
    field("pod-bridge-interface", Kind::Text, "", "detectLocal.bridgeInterface")
        .about("Interface on which traffic from pods arrives, for mode BridgeInterface"),
    field("pod-interface-name-prefix", Kind::Text, "", "detectLocal.interfaceNamePrefix")
        .about("Prefix of the interfaces on which traffic from pods arrives, for mode InterfaceNamePrefix"),
    field("cluster-cidr", Kind::Text, "", "clusterCIDR")
        .about("Addresses of pods, for mode ClusterCIDR: a range of each family"),
    field("nodeport-addresses", Kind::List, "", "nodePortAddresses")
        .about("Addresses that serve NodePorts: ranges, primary, localhost or all; without it, primary in mode nftables, else all"),
    field("oom-score-adj", Kind::Whole, "-999", "oomScoreAdj")
        .about("Value of oom_score_adj of this process, -1000 to 1000"),
    field("conntrack-max-per-core", Kind::Whole, "32768", "conntrack.maxPerCore")
        .about("Limit of entries of conntrack for each processor; 0 leaves the kernel's"),
    field("conntrack-min", Kind::Whole, "131072", "conntrack.min")
        .about("Least limit of entries of conntrack that --conntrack-max-per-core results in"),
    field("conntrack-tcp-timeout-established", Kind::Duration, "24h0m0s", "conntrack.tcpEstablishedTimeout")
        .about("Timeout of idle TCP connections; 0 leaves the kernel's"),
    field("conntrack-tcp-timeout-close-wait", Kind::Duration, "1h0m0s", "conntrack.tcpCloseWaitTimeout")
        .about("Timeout of TCP connections that one side has closed; 0 leaves the kernel's"),
    field("conntrack-tcp-be-liberal", Kind::Flag, "false", "conntrack.tcpBeLiberal")
        .about("Accept TCP packets outside the window"),
    field("conntrack-udp-timeout", Kind::Duration, "0s", "conntrack.udpTimeout")
        .about("Timeout of UDP flows without answers; 0 leaves the kernel's"),
    field("conntrack-udp-timeout-stream", Kind::Duration, "0s", "conntrack.udpStreamTimeout")
        .about("Timeout of UDP flows with answers; 0 leaves the kernel's"),
    field("config-sync-period", Kind::Duration, "15m0s", "configSyncPeriod")
        .about("Time between two lists of all objects; the watches suffice"),
    other("logging-format", Kind::Text, "text", Meaning::LogFormat)
        .about("Format of the log: text or json"),
    other("log-flush-frequency", Kind::Duration, "5s", Meaning::Nothing)
        .about("Time between two writes of the log; each line is written at once"),
    other("v", Kind::Whole, "0", Meaning::Verbosity)
        .about("Verbosity of the log, 0 to 10"),
    other("vmodule", Kind::Text, "", Meaning::Nothing)
        .about("Verbosity of the log by source file of kube-proxy"),
    other("log-text-split-stream", Kind::Flag, "false", Meaning::Nothing)
        .about("Write errors to standard error and all else to standard output"),
    other("log-text-info-buffer-size", Kind::Text, "0", Meaning::Nothing)
        .about("Buffer of the text log in bytes"),
    other("log-json-split-stream", Kind::Flag, "false", Meaning::Nothing)
        .about("Write errors to standard error and all else to standard output, as JSON"),
    other("log-json-info-buffer-size", Kind::Text, "0", Meaning::Nothing)
        .about("Buffer of the JSON log in bytes"),
    other("version", Kind::Version, "false", Meaning::Version)
        .about("Print the version, with =raw the properties of the build too, and exit"),
    other("machine-id-file", Kind::Text, "/etc/machine-id,/var/lib/dbus/machine-id", Meaning::Nothing)
        .about("Files with the machine's id"),
    other("boot-id-file", Kind::Text, "/proc/sys/kernel/random/boot_id", Meaning::Nothing)
        .about("Files with the id of the boot"),
    other("help", Kind::Flag, "false", Meaning::Help)
        .about("Print this text, and exit"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_unique_and_their_fields_exist() {
        for (i, flag) in FLAGS.iter().enumerate() {
            assert!(FLAGS[..i].iter().all(|other| other.name != flag.name), "{}", flag.name);
            assert!(!flag.name.contains('_'), "{}", flag.name);
            if let Meaning::Field(path) | Meaning::Port(path) = flag.meaning {
                assert!(fields::find(path).is_some(), "{}", flag.name);
            }
            assert!(flag.default.is_empty() || flag.kind.read(flag.default).is_ok());
            assert!(flag.about.len() > 10 && !flag.about.ends_with('.'), "{}", flag.name);
        }
    }
}
