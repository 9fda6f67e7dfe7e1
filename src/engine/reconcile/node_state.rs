//! What this node is: its addresses, and what its kernel supports.

use std::net::{IpAddr, Ipv6Addr};

use super::node_addresses::NodeAddresses;
use super::routing::ClosedNodePorts;
use crate::model::HostAddresses;
use crate::ruleset::Lookups;

/// What this node is, besides its Node object.
#[derive(Debug, Default)]
pub struct NodeState {
    /// Addresses of this node's interfaces, and of what it must reach.
    pub(super) addresses: HostAddresses,
    /// Loopback addresses of IPv4 serve NodePorts.
    pub serves_localhost: bool,
    /// The installed IPv4 table has the rule that drops packets of other hosts to loopback addresses,
    /// and no setting needs it: the next commit removes it.
    pub loses_guard: bool,
    /// A flowtable is configured, but the kernel lacks flowtables.
    pub lacks_flowtables: bool,
    /// How often the rules look a frontend up, for this kernel.
    pub(super) lookups: Lookups,
    /// Families in which no address of this node serves NodePorts.
    pub closed_node_ports: Option<ClosedNodePorts>,
    /// Addresses that serve node ports.
    pub(super) serving: NodeAddresses,
}

impl NodeState {
    /// Returns an IPv6 address that serves node ports and that this node can connect to without
    /// further settings.
    pub fn ipv6_node_port_address(&self) -> Option<Ipv6Addr> {
        self.serving.desired().iter().find_map(|address| match address {
            IpAddr::V6(address) if !address.is_loopback() && !address.is_unicast_link_local() => {
                Some(*address)
            }
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        })
    }

    /// Returns whether an address belongs to this node or serves its node ports.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.serving.desired().contains(&address) || self.addresses.local.contains(&address)
    }
}
