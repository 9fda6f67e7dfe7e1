//! A configuration as a KubeProxyConfiguration.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::local::DetectLocalMode;
use super::{Config, LeastConnections, LocalDetection, Source, duration};

impl Config {
    /// Sets each field of `whole`, a KubeProxyConfiguration, that this configuration determines.
    pub(super) fn write_to(&self, whole: &mut Value) {
        overlay(whole, self.fields(), |_| true);
    }

    fn fields(&self) -> Value {
        let routing = &self.routing;
        let listen =
            |address: Option<SocketAddr>| address.map_or(String::new(), |it| it.to_string());
        let (mode, [ranges, bridge, prefix]) = detection(&routing.local_detection);
        let (verbosity, format) = self.log.fields();
        json!({
            "mode": "nftables",
            "clientConnection": { "kubeconfig": match &self.source {
                Source::Kubeconfig(path) | Source::Server { kubeconfig: Some(path), .. } => {
                    path.display().to_string()
                }
                Source::Manifests(_) | Source::InCluster | Source::Server { .. } => String::new(),
            } },
            "hostnameOverride": self.node_name,
            "nodePortAddresses": routing.node_port_addresses.entries(),
            "nftables": {
                "masqueradeAll": routing.masquerade_all,
                "masqueradeBit": routing.masquerade_bit,
                "minSyncPeriod": duration::text(self.min_sync_period),
            },
            "featureGates": { "AllowServiceExternalIPs": routing.external_ips },
            "healthzBindAddress": listen(self.healthz_bind_address),
            "metricsBindAddress": listen(self.metrics_bind_address),
            "logging": { "verbosity": verbosity, "format": format },
            "oomScoreAdj": self.oom_score_adj,
            "conntrack": {
                "maxPerCore": self.conntrack.max_per_core,
                "min": self.conntrack.min,
                "tcpEstablishedTimeout": duration::text(self.conntrack.tcp_established_timeout),
                "tcpCloseWaitTimeout": duration::text(self.conntrack.tcp_close_wait_timeout),
                "tcpBeLiberal": self.conntrack.tcp_be_liberal,
                "udpTimeout": duration::text(self.conntrack.udp_timeout),
                "udpStreamTimeout": duration::text(self.conntrack.udp_stream_timeout),
            },
            "detectLocalMode": mode.to_string(),
            "detectLocal": { "bridgeInterface": bridge, "interfaceNamePrefix": prefix },
            "clusterCIDR": ranges,
            "deltaproxy": {
                "counters": routing.counters.word(),
                "flowtable": if routing.flowtable.is_some() { "on" } else { "off" },
                "flowtableAfter": routing.flowtable.clone().unwrap_or_default().after.to_string(),
                "flowtableDevices": routing.flowtable.clone().unwrap_or_default().devices.to_string(),
                "checkPeriod": duration::text(self.check_period),
                "scheduler": routing.scheduler.name(),
                "hashSeed": routing.hash_seed,
                "slotBudget": routing.slot_budget,
                "leastConnections": least_connections(routing.least_connections),
            },
        })
    }
}

fn least_connections(settings: Option<LeastConnections>) -> Value {
    let interval = settings.map_or(Duration::ZERO, |it| it.interval);
    let changes = settings.map_or(LeastConnections::DEFAULT_CHANGES, |it| it.changes_per_second);
    json!({ "interval": duration::text(interval), "changesPerSecond": changes })
}

/// Returns the mode, and the values of its settings: pod ranges, bridge, prefix of interfaces.
fn detection(detection: &LocalDetection) -> (DetectLocalMode, [String; 3]) {
    let none = String::new;
    match detection {
        LocalDetection::ClusterCidr(ranges) => {
            (DetectLocalMode::ClusterCidr, [ranges.to_string(), none(), none()])
        }
        LocalDetection::NodeCidr => (DetectLocalMode::NodeCidr, [none(), none(), none()]),
        LocalDetection::BridgeInterface(name) => {
            (DetectLocalMode::BridgeInterface, [none(), name.as_str().to_owned(), none()])
        }
        LocalDetection::InterfaceNamePrefix(prefix) => {
            (DetectLocalMode::InterfaceNamePrefix, [none(), none(), prefix.as_str().to_owned()])
        }
    }
}

/// Sets the fields of `whole` from `fields`, including nested objects, if `counts` accepts the
/// value.
pub(super) fn overlay(whole: &mut Value, fields: Value, counts: fn(&Value) -> bool) {
    match (whole, fields) {
        (Value::Object(whole), Value::Object(fields)) => {
            for (key, value) in fields.into_iter().filter(|(_, value)| counts(value)) {
                let field = whole.entry(key).or_insert_with(|| Value::Object(Map::new()));
                overlay(field, value, counts);
            }
        }
        (whole, value) => *whole = value,
    }
}
