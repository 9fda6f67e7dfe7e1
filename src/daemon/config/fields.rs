//! Every field of KubeProxyConfiguration v1alpha1, with its type and whether it has an effect here.

use serde_json::Value;

use super::duration;

/// The type of a field in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Text.
    Text,
    /// true or false.
    Flag,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// Go's notation of a duration, or 0.
    Duration,
    /// A list of texts.
    Texts,
    /// An object whose fields are in the table too.
    Object,
    /// An object whose fields are ignored.
    Opaque,
    /// Any value.
    Any,
}

impl Type {
    /// Returns the expected type if `value` has another one. Null has every type: it means the
    /// default.
    pub(super) fn mismatch(self, value: &Value) -> Option<&'static str> {
        let (right, expected) = match self {
            Self::Text => (value.is_string(), "text (in quotes if need be)"),
            Self::Flag => (value.is_boolean(), "true or false"),
            Self::Whole => (value.is_i64() || value.is_u64(), "a whole number"),
            Self::Number => (value.is_number(), "a number"),
            Self::Duration => (is_duration(value), "a duration such as 1s, 1m30s or 500ms, or 0"),
            Self::Texts => (is_list_of_texts(value), "a list of texts"),
            Self::Object | Self::Opaque => (value.is_object(), "an object"),
            Self::Any => (true, ""),
        };
        (!right && !value.is_null()).then_some(expected)
    }
}

fn is_duration(value: &Value) -> bool {
    value.as_u64() == Some(0)
        || value.as_str().is_some_and(|text| text.is_empty() || duration::parse(text).is_ok())
}

fn is_list_of_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

/// One field of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    /// Path from the root, such as `nftables.masqueradeBit`.
    pub(super) path: &'static str,
    /// Type of the value.
    pub(super) kind: Type,
    /// The field has an effect here, in every mode.
    pub(super) effect: bool,
    /// The field has an effect in some modes.
    pub(super) in_mode: bool,
}

/// Finds the field at `path` in the API.
pub(super) fn find(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// Returns all fields.
#[cfg(test)]
pub(super) fn all() -> &'static [Field] {
    &FIELDS
}

const fn used(path: &'static str, kind: Type) -> Field {
    Field { path, kind, effect: true, in_mode: false }
}

/// Returns a field that has an effect in its own mode.
const fn of_mode(path: &'static str, kind: Type) -> Field {
    Field { path, kind, effect: false, in_mode: true }
}

const fn unused(path: &'static str, kind: Type) -> Field {
    Field { path, kind, effect: false, in_mode: false }
}

/// In the order of k8s.io/kube-proxy/config/v1alpha1/types.go, Kubernetes 1.36; our own are last.
static FIELDS: [Field; 88] = [
    used("apiVersion", Type::Text),
    used("kind", Type::Text),
    used("featureGates", Type::Object),
    used("featureGates.AllowServiceExternalIPs", Type::Flag),
    unused("featureGates.ComponentFlagz", Type::Flag),
    unused("featureGates.ComponentStatusz", Type::Flag),
    unused("featureGates.KubeProxyNFTablesLocalhostNodePorts", Type::Flag),
    unused("featureGates.MultiCIDRServiceAllocator", Type::Flag),
    unused("featureGates.NFTablesProxyMode", Type::Flag),
    unused("featureGates.PreferSameTrafficDistribution", Type::Flag),
    used("clientConnection", Type::Object),
    used("clientConnection.kubeconfig", Type::Text),
    unused("clientConnection.acceptContentTypes", Type::Text),
    unused("clientConnection.contentType", Type::Text),
    unused("clientConnection.qps", Type::Number),
    unused("clientConnection.burst", Type::Whole),
    used("logging", Type::Object),
    used("logging.format", Type::Text),
    unused("logging.flushFrequency", Type::Any),
    used("logging.verbosity", Type::Whole),
    unused("logging.vmodule", Type::Any),
    unused("logging.options", Type::Opaque),
    used("hostnameOverride", Type::Text),
    used("bindAddress", Type::Text),
    used("healthzBindAddress", Type::Text),
    used("metricsBindAddress", Type::Text),
    used("bindAddressHardFail", Type::Flag),
    unused("enableProfiling", Type::Flag),
    unused("showHiddenMetricsForVersion", Type::Text),
    used("mode", Type::Text),
    used("iptables", Type::Object),
    of_mode("iptables.masqueradeBit", Type::Whole),
    of_mode("iptables.masqueradeAll", Type::Flag),
    unused("iptables.localhostNodePorts", Type::Flag),
    unused("iptables.syncPeriod", Type::Duration),
    unused("iptables.minSyncPeriod", Type::Duration),
    used("ipvs", Type::Object),
    unused("ipvs.syncPeriod", Type::Duration),
    unused("ipvs.minSyncPeriod", Type::Duration),
    of_mode("ipvs.scheduler", Type::Text),
    unused("ipvs.excludeCIDRs", Type::Texts),
    unused("ipvs.strictARP", Type::Flag),
    unused("ipvs.tcpTimeout", Type::Duration),
    unused("ipvs.tcpFinTimeout", Type::Duration),
    unused("ipvs.udpTimeout", Type::Duration),
    used("nftables", Type::Object),
    of_mode("nftables.masqueradeBit", Type::Whole),
    of_mode("nftables.masqueradeAll", Type::Flag),
    unused("nftables.syncPeriod", Type::Duration),
    used("nftables.minSyncPeriod", Type::Duration),
    used("winkernel", Type::Object),
    unused("winkernel.networkName", Type::Text),
    unused("winkernel.sourceVip", Type::Text),
    unused("winkernel.enableDSR", Type::Flag),
    unused("winkernel.rootHnsEndpointName", Type::Text),
    unused("winkernel.forwardHealthCheckVip", Type::Flag),
    used("detectLocalMode", Type::Text),
    used("detectLocal", Type::Object),
    used("detectLocal.bridgeInterface", Type::Text),
    used("detectLocal.interfaceNamePrefix", Type::Text),
    used("clusterCIDR", Type::Text),
    used("nodePortAddresses", Type::Texts),
    used("oomScoreAdj", Type::Whole),
    used("conntrack", Type::Object),
    used("conntrack.maxPerCore", Type::Whole),
    used("conntrack.min", Type::Whole),
    used("conntrack.tcpEstablishedTimeout", Type::Duration),
    used("conntrack.tcpCloseWaitTimeout", Type::Duration),
    used("conntrack.tcpBeLiberal", Type::Flag),
    used("conntrack.udpTimeout", Type::Duration),
    used("conntrack.udpStreamTimeout", Type::Duration),
    unused("configSyncPeriod", Type::Duration),
    unused("portRange", Type::Text),
    unused("windowsRunAsService", Type::Flag),
    used("deltaproxy", Type::Object),
    used("deltaproxy.strictMode", Type::Flag),
    used("deltaproxy.counters", Type::Any),
    used("deltaproxy.flowtable", Type::Any),
    used("deltaproxy.flowtableAfter", Type::Text),
    used("deltaproxy.flowtableDevices", Type::Text),
    used("deltaproxy.checkPeriod", Type::Duration),
    used("deltaproxy.tableOwnership", Type::Any),
    used("deltaproxy.scheduler", Type::Text),
    used("deltaproxy.hashSeed", Type::Whole),
    used("deltaproxy.slotBudget", Type::Whole),
    used("deltaproxy.leastConnections", Type::Object),
    used("deltaproxy.leastConnections.interval", Type::Duration),
    used("deltaproxy.leastConnections.changesPerSecond", Type::Whole),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_there_once_and_so_is_its_parent() {
        for (i, field) in FIELDS.iter().enumerate() {
            assert!(FIELDS[..i].iter().all(|other| other.path != field.path), "{}", field.path);
            if let Some((parent, _)) = field.path.rsplit_once('.') {
                assert_eq!(find(parent).unwrap().kind, Type::Object, "{}", field.path);
            }
        }
    }
}
