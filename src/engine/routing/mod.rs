//! Treatment of packets that does not come from objects of the cluster.

mod direct_return;
mod least_connections;
pub mod local;
pub mod ranges;
pub mod served_services;

use std::net::IpAddr;

pub use direct_return::{DirectMode, DirectReturn};
pub use least_connections::LeastConnections;
pub use local::{InterfaceName, LocalDetection};
pub use ranges::{ClusterCidrs, NodePortAddresses};
pub use served_services::ServedServices;

use crate::counters::Counters;
use crate::flowtable::Offload;
use crate::model::{EndedSettings, ExternalAddresses, Scheduler};

/// Treatment of packets that does not come from objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// Detection of packets from pods.
    pub local_detection: LocalDetection,
    /// Masquerade all traffic to ClusterIPs.
    pub masquerade_all: bool,
    /// Bit of the packet mark for masquerade, 0 to 31.
    pub masquerade_bit: u8,
    /// The Services that are served.
    pub services: ServedServices,
    /// The external IPs and load balancer addresses that services may have.
    pub external_addresses: ExternalAddresses,
    /// The node's own address of its family; replaces that of the Node object.
    pub node_ip: Option<IpAddr>,
    /// The node's addresses that serve NodePorts.
    pub node_port_addresses: NodePortAddresses,
    /// Elements that count new connections.
    pub counters: Counters,
    /// Connections that skip the forwarding path; `None` for none.
    pub flowtable: Option<Offload>,
    /// Scheduler of services that name none.
    pub scheduler: Scheduler,
    /// Seed of the hash of the schedulers. Nodes with the same seed choose the same endpoints.
    pub hash_seed: u32,
    /// Slots that services may use together for weights and hash tables, beyond one for each endpoint.
    pub slot_budget: u32,
    /// Settings of scheduler `lc`; `None` turns it off.
    pub least_connections: Option<LeastConnections>,
    /// Settings of direct return; `None` turns it off.
    pub direct_return: Option<DirectReturn>,
    /// Whose connections end when their endpoints are gone; `None` keeps all.
    pub ended_connections: Option<EndedSettings>,
}

impl Routing {
    /// Returns the packet mark for masquerade.
    pub fn masquerade_mark(&self) -> u32 {
        1 << self.masquerade_bit
    }
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            local_detection: LocalDetection::default(),
            masquerade_all: false,
            masquerade_bit: DEFAULT_MASQUERADE_BIT,
            services: ServedServices::default(),
            external_addresses: ExternalAddresses::default(),
            node_ip: None,
            node_port_addresses: NodePortAddresses::PRIMARY,
            counters: Counters::Off,
            flowtable: None,
            scheduler: Scheduler::default(),
            hash_seed: DEFAULT_HASH_SEED,
            slot_budget: DEFAULT_SLOT_BUDGET,
            least_connections: None,
            direct_return: None,
            ended_connections: None,
        }
    }
}

/// Any number works if all nodes share it.
const DEFAULT_HASH_SEED: u32 = 1;

/// Some 105 MB of kernel memory.
const DEFAULT_SLOT_BUDGET: u32 = 1 << 20;

/// kube-proxy's mark is 0x4000.
const DEFAULT_MASQUERADE_BIT: u8 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_mark_is_that_of_kube_proxy() {
        assert_eq!(Routing::default().masquerade_mark(), 0x4000);
    }
}
