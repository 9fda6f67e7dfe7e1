//! What is known of the links of this node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nft::{Family, Name};

use super::reach::Reach;

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

/// Why packets of a device cannot be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsuitable {
    /// The device is a bridge whose packets netfilter sees at its ports: they are translated before
    /// the ingress of the bridge (sysctl `bridge-nf-call-iptables` or `bridge-nf-call-ip6tables`).
    BridgeWithNetfilter,
    /// The device drops packets of clients that another node hands on, because the default route
    /// leads to another device (sysctl `rp_filter` = 1).
    ReversePathStrict,
}

impl Unsuitable {
    /// Returns the name of the reason in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BridgeWithNetfilter => "bridge-with-netfilter",
            Self::ReversePathStrict => "reverse-path-strict",
        }
    }
}
