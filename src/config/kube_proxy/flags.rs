//! All flags of kube-proxy 1.36 (`cmd/kube-proxy/app/options.go`).

use super::super::fields;

/// A flag of kube-proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// Name, with dashes.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) meaning: Meaning,
    /// Value of an absent flag.
    pub(super) default: &'static str,
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
    /// Returns the flag's line of `--help`.
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
        format!("{}{value}{default}{mark}", self.name)
    }

    /// Path of the field, if the flag sets one and has no other effect.
    pub(super) fn field(&self) -> Option<&'static str> {
        let Meaning::Field(path) = self.meaning else { return None };
        Some(path)
    }

    fn has_effect(&self) -> bool {
        let has = |path| fields::find(path).is_some_and(|field| field.effect);
        self.meaning != Meaning::Nothing && self.field().is_none_or(has)
    }
}

const fn field(name: &'static str, kind: Kind, default: &'static str, path: &'static str) -> Flag {
    Flag { name, kind, meaning: Meaning::Field(path), default }
}

const fn other(name: &'static str, kind: Kind, default: &'static str, meaning: Meaning) -> Flag {
    Flag { name, kind, meaning, default }
}

/// Finds a flag by its name.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// In the order of options.go.
#[rustfmt::skip]
pub(super) static FLAGS: [Flag; 60] = [
    other("config", Kind::Text, "", Meaning::Config),
    other("write-config-to", Kind::Text, "", Meaning::WriteConfig),
    other("cleanup", Kind::Flag, "false", Meaning::Cleanup),
    other("init-only", Kind::Flag, "false", Meaning::InitOnly),
    other("feature-gates", Kind::Text, "", Meaning::Gates),
    field("kubeconfig", Kind::Text, "", "clientConnection.kubeconfig"),
    other("master", Kind::Text, "", Meaning::Server),
    field("kube-api-content-type", Kind::Text, "application/vnd.kubernetes.protobuf", "clientConnection.contentType"),
    field("kube-api-qps", Kind::Number, "5", "clientConnection.qps"),
    field("kube-api-burst", Kind::Whole, "10", "clientConnection.burst"),
    other("hostname-override", Kind::Text, "", Meaning::NodeName),
    field("bind-address", Kind::Text, "0.0.0.0", "bindAddress"),
    field("healthz-bind-address", Kind::Text, "0.0.0.0:10256", "healthzBindAddress"),
    other("healthz-port", Kind::Whole, "10256", Meaning::Port("healthzBindAddress")),
    field("metrics-bind-address", Kind::Text, "127.0.0.1:10249", "metricsBindAddress"),
    other("metrics-port", Kind::Whole, "10249", Meaning::Port("metricsBindAddress")),
    field("bind-address-hard-fail", Kind::Flag, "false", "bindAddressHardFail"),
    field("profiling", Kind::Flag, "false", "enableProfiling"),
    field("show-hidden-metrics-for-version", Kind::Text, "", "showHiddenMetricsForVersion"),
    field("proxy-mode", Kind::Text, "", "mode"),
    field("strict-proxy-mode", Kind::Flag, "false", "deltaproxy.strictMode"),
    field("iptables-masquerade-bit", Kind::Whole, "14", "iptables.masqueradeBit"),
    other("masquerade-all", Kind::Flag, "false", Meaning::MasqueradeAll),
    field("iptables-localhost-nodeports", Kind::Flag, "true", "iptables.localhostNodePorts"),
    field("iptables-sync-period", Kind::Duration, "30s", "nftables.syncPeriod"),
    field("iptables-min-sync-period", Kind::Duration, "1s", "nftables.minSyncPeriod"),
    field("ipvs-sync-period", Kind::Duration, "30s", "ipvs.syncPeriod"),
    field("ipvs-min-sync-period", Kind::Duration, "0s", "ipvs.minSyncPeriod"),
    field("ipvs-scheduler", Kind::Text, "", "ipvs.scheduler"),
    field("ipvs-exclude-cidrs", Kind::List, "", "ipvs.excludeCIDRs"),
    field("ipvs-strict-arp", Kind::Flag, "false", "ipvs.strictARP"),
    field("ipvs-tcp-timeout", Kind::Duration, "0s", "ipvs.tcpTimeout"),
    field("ipvs-tcpfin-timeout", Kind::Duration, "0s", "ipvs.tcpFinTimeout"),
    field("ipvs-udp-timeout", Kind::Duration, "0s", "ipvs.udpTimeout"),
    field("detect-local-mode", Kind::Text, "", "detectLocalMode"),
    field("pod-bridge-interface", Kind::Text, "", "detectLocal.bridgeInterface"),
    field("pod-interface-name-prefix", Kind::Text, "", "detectLocal.interfaceNamePrefix"),
    field("cluster-cidr", Kind::Text, "", "clusterCIDR"),
    field("nodeport-addresses", Kind::List, "", "nodePortAddresses"),
    field("oom-score-adj", Kind::Whole, "-999", "oomScoreAdj"),
    field("conntrack-max-per-core", Kind::Whole, "32768", "conntrack.maxPerCore"),
    field("conntrack-min", Kind::Whole, "131072", "conntrack.min"),
    field("conntrack-tcp-timeout-established", Kind::Duration, "24h0m0s", "conntrack.tcpEstablishedTimeout"),
    field("conntrack-tcp-timeout-close-wait", Kind::Duration, "1h0m0s", "conntrack.tcpCloseWaitTimeout"),
    field("conntrack-tcp-be-liberal", Kind::Flag, "false", "conntrack.tcpBeLiberal"),
    field("conntrack-udp-timeout", Kind::Duration, "0s", "conntrack.udpTimeout"),
    field("conntrack-udp-timeout-stream", Kind::Duration, "0s", "conntrack.udpStreamTimeout"),
    field("config-sync-period", Kind::Duration, "15m0s", "configSyncPeriod"),
    other("logging-format", Kind::Text, "text", Meaning::LogFormat),
    other("log-flush-frequency", Kind::Duration, "5s", Meaning::Nothing),
    other("v", Kind::Whole, "0", Meaning::Verbosity),
    other("vmodule", Kind::Text, "", Meaning::Nothing),
    other("log-text-split-stream", Kind::Flag, "false", Meaning::Nothing),
    other("log-text-info-buffer-size", Kind::Text, "0", Meaning::Nothing),
    other("log-json-split-stream", Kind::Flag, "false", Meaning::Nothing),
    other("log-json-info-buffer-size", Kind::Text, "0", Meaning::Nothing),
    other("version", Kind::Version, "false", Meaning::Version),
    other("machine-id-file", Kind::Text, "/etc/machine-id,/var/lib/dbus/machine-id", Meaning::Nothing),
    other("boot-id-file", Kind::Text, "/proc/sys/kernel/random/boot_id", Meaning::Nothing),
    other("help", Kind::Flag, "false", Meaning::Help),
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
        }
    }
}
