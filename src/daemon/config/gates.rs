//! Feature gates: two of kube-proxy's gates have an effect here.

use serde_json::{Map, Value};

/// `AllowServiceExternalIPs` (KEP-5707): external IPs of services are served. The gate is generally
/// available and can be off (`pkg/features/kube_features.go`).
pub const EXTERNAL_IPS: &str = "AllowServiceExternalIPs";

/// `KubeProxyNFTablesLocalhostNodePorts` (KEP-6032).
pub const LOCALHOST_NODE_PORTS: &str = "KubeProxyNFTablesLocalhostNodePorts";

/// Gates of kube-proxy in Kubernetes 1.36 to 1.38 that have no effect here: those of its own
/// (`pkg/features/kube_features.go`), of k8s.io/component-base and of k8s.io/client-go.
const WITHOUT_EFFECT: &str = "AllAlpha AllBeta AtomicFIFO ClientsAllowCARotation ClientsAllowCBOR \
    ClientsAllowTLSCacheGC ClientsPreferCBOR ComponentFlagz ComponentStatusz ContextualLogging \
    DisableNodeKubeProxyVersion InOrderInformers InOrderInformersBatchProcess \
    InformerResourceVersion KubeProxyIPVS LoggingAlphaOptions LoggingBetaOptions \
    MultiCIDRServiceAllocator NFTablesNetlink NFTablesProxyMode NativeHistograms \
    PreferSameTrafficDistribution RelaxedServiceNameValidation StrictIPCIDRValidation \
    UnlockWhileProcessingFIFO WatchListClient";

/// Returns whether kube-proxy has the gate, and it has no effect here.
pub(super) fn is_without_effect(name: &str) -> bool {
    WITHOUT_EFFECT.split_ascii_whitespace().any(|it| it == name)
}

/// The expectation of errors.
pub(super) const EXPECTED: &str = "AllowServiceExternalIPs=true or AllowServiceExternalIPs=false";

/// Parses `name=true` and `name=false`, separated by commas, into an object.
pub(super) fn read(text: &str) -> Option<Value> {
    let mut gates = Map::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('=')?;
        gates.insert(name.trim().to_owned(), boolean(value.trim())?.into());
    }
    Some(gates.into())
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gates_with_an_effect_are_true_or_false_and_others_are_named() {
        assert_eq!(read(""), Some(json!({})));
        assert_eq!(read("AllowServiceExternalIPs=true"), Some(json!({ EXTERNAL_IPS: true })));
        let gates = json!({ EXTERNAL_IPS: false, "AllAlpha": true, "AllBeta": false });
        assert_eq!(read(" AllowServiceExternalIPs = F,AllAlpha=true,AllBeta=0"), Some(gates));
        let gates = json!({ LOCALHOST_NODE_PORTS: false, "NFTablesNetlink": false });
        let text = "KubeProxyNFTablesLocalhostNodePorts=false,NFTablesNetlink=false";
        assert_eq!(read(text), Some(gates));
        for wrong in ["AllowServiceExternalIPs", "AllowServiceExternalIPs=perhaps", "A="] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
