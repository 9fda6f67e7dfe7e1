//! Names of fields, and fixed values of KubeProxyConfiguration, that the code needs.

use engine::routing::local::DetectLocalMode;

pub(super) const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
pub(super) const KIND: &str = "KubeProxyConfiguration";

/// The mode of a file without one, as in kube-proxy.
pub(super) const DEFAULT_MODE: &str = "iptables";

pub(super) const OWN_SCHEDULER: &str = "deltaproxy.scheduler";
pub(super) const STRICT_MODE: &str = "deltaproxy.strictMode";

/// Field of mode iptables that opens NodePorts at loopback addresses.
pub(super) const LOCALHOST_NODE_PORTS: &str = "iptables.localhostNodePorts";

/// Fields with an effect in one mode of local detection.
pub(super) const DETECTION_FIELDS: [&str; 3] =
    [CLUSTER_CIDR, BRIDGE_INTERFACE, INTERFACE_NAME_PREFIX];
pub(super) const DETECT_LOCAL_MODE: &str = "detectLocalMode";
pub(super) const CLUSTER_CIDR: &str = "clusterCIDR";
pub(super) const BRIDGE_INTERFACE: &str = "detectLocal.bridgeInterface";
pub(super) const INTERFACE_NAME_PREFIX: &str = "detectLocal.interfaceNamePrefix";

/// The scheduler of mode ipvs.
pub(super) const IPVS_SCHEDULER: &str = "ipvs.scheduler";

/// Returns the field that has an effect in a mode of local detection; empty if none has.
pub(super) fn detection_field(mode: DetectLocalMode) -> &'static str {
    match mode {
        DetectLocalMode::ClusterCidr => CLUSTER_CIDR,
        DetectLocalMode::NodeCidr => "",
        DetectLocalMode::BridgeInterface => BRIDGE_INTERFACE,
        DetectLocalMode::InterfaceNamePrefix => INTERFACE_NAME_PREFIX,
    }
}
