//! What is known of the links of this node, and how packets get to other nodes over them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nft::{Family, Name};

/// The links of this node, as far as direct return depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// How packets get to the addresses of other nodes.
    pub reach: BTreeMap<IpAddr, Reach>,
    /// The devices whose packets are handed on.
    pub devices: Vec<Name>,
    /// The device over which nodes behind a router hand packets on, if there is one. What arrives
    /// there comes from nodes alone.
    pub tunnel: Option<Name>,
    /// Families whose packets cannot be handed on, with the first device that prevents it.
    pub unsuitable: BTreeMap<Family, (Name, Unsuitable)>,
    /// Addresses of this node for which it answers on the link of another device, with that device:
    /// machines there may send their packets to this node.
    pub answered: BTreeMap<IpAddr, Name>,
}

crate::named! {
    /// Why packets of a device cannot be handed on.
    pub enum Unsuitable {
        /// The device is a bridge whose packets netfilter sees at its ports: they are translated before
        /// the ingress of the bridge (sysctl `bridge-nf-call-iptables` or `bridge-nf-call-ip6tables`).
        BridgeWithNetfilter = "bridge-with-netfilter",
        /// The device drops packets of clients that another node hands on, because the default route
        /// leads to another device (sysctl `rp_filter` = 1).
        ReversePathStrict = "reverse-path-strict",
    }
}

/// How packets get to a node's address on this node's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The address is on a link of this node, or behind its tunnel, and its hardware address is known.
    OnLink {
        /// Index of the interface, as the kernel counts them.
        device: u32,
        /// Ethernet address of the node there.
        hardware_address: [u8; 6],
    },
    /// Packets cannot be handed to the node.
    Not(Unreachable),
}

crate::named! {
    /// Reason why packets cannot be handed to a node.
    #[derive(Hash, PartialOrd, Ord)]
    pub enum Unreachable {
        /// There is no route to the address, or the route has a gateway.
        NotOnLink = "node-not-on-link",
        /// The address is on the link of a device that is not among the allowed ones.
        OtherDevice = "node-on-other-device",
        /// The kernel has not learned the hardware address.
        HardwareAddressUnknown = "node-hardware-address-unknown",
        /// The node did not answer when the kernel asked for its hardware address: the state of the
        /// neighbour is `NUD_FAILED` or, after probes, still `NUD_INCOMPLETE`.
        Failed = "node-neighbour-failed",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Unreachable::ALL.map(Unreachable::name).into();
        assert_eq!(names.len(), Unreachable::ALL.len());
    }
}
