//! Why packets of a service cannot be handed to other nodes.

use std::fmt;
use std::net::IpAddr;

use nft::Name;

use super::links::{Unreachable, Unsuitable};

/// Why packets of a service cannot be handed to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// An endpoint has no `nodeName`.
    NodeNameUnknown,
    /// There is no Node object of this name, or it has no address of the family.
    NodeAddressUnknown(String),
    /// The node cannot be reached without a router, or only on another device.
    NotOnLink(String, Unreachable),
    /// A device of this node cannot take part.
    UnsuitableDevice(Name, Unsuitable),
    /// This machine has no Node object.
    NoNode,
    /// The kernel lacks `fwd to` with an address.
    KernelWithoutFwd,
    /// The kernel refuses its elements, or the table.
    Refused,
    /// Services of its namespace request more than its share of the slot budget.
    NoSlots,
    /// Packets of UDP or SCTP to this address of a node may be answers to masqueraded connections.
    NoTcpAtNodeAddress(IpAddr),
}

impl Obstacle {
    /// Returns the name of the reason in messages and metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::NodeNameUnknown => "node-name-unknown",
            Self::NodeAddressUnknown(_) => "node-address-unknown",
            Self::NotOnLink(_, reason) => reason.name(),
            Self::UnsuitableDevice(_, reason) => reason.name(),
            Self::NoNode => "no-node",
            Self::KernelWithoutFwd => "kernel-without-fwd",
            Self::Refused => "refused",
            Self::NoSlots => "no-slots",
            Self::NoTcpAtNodeAddress(_) => "udp-at-node-address",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::NodeNameUnknown => f.write_str(": an endpoint has no nodeName"),
            Self::NodeAddressUnknown(node) => {
                write!(
                    f,
                    ": Node {node} does not exist or has no InternalIP of this family of its own"
                )
            }
            Self::NotOnLink(node, Unreachable::OtherDevice) => {
                write!(
                    f,
                    ": Node {node} is on the link of a device that directReturn.devices lacks"
                )
            }
            Self::NotOnLink(node, _) => write!(f, ": Node {node} is not on a link of this node"),
            Self::UnsuitableDevice(device, Unsuitable::BridgeWithNetfilter) => write!(
                f,
                ": bridge {device} hands packets to netfilter at its ports, before direct return \
                 sees them; name the port in directReturn.devices, or set bridge-nf-call-iptables \
                 and bridge-nf-call-ip6tables to 0"
            ),
            Self::UnsuitableDevice(device, Unsuitable::ReversePathStrict) => write!(
                f,
                ": {device} drops packets of clients, because the default route leads to another \
                 device; set its rp_filter to 2 on all nodes"
            ),
            Self::NoNode => f.write_str(": this machine has no Node object"),
            Self::KernelWithoutFwd => {
                f.write_str(": this kernel cannot forward packets to an address (fwd ip to)")
            }
            Self::Refused => f.write_str(": the kernel refuses table direct-return or an element"),
            Self::NoSlots => f.write_str(
                ": services of this namespace request more than its share of the node's slots \
                 (deltaproxy.slotBudget)",
            ),
            Self::NoTcpAtNodeAddress(address) => {
                write!(f, ": {address} is an address of a node, where only TCP can be handed on")
            }
        }
    }
}
