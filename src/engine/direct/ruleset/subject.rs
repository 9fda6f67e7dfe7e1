//! The part of a service that an element belongs to, by its key alone.

use std::net::IpAddr;

use nft::Family;

use super::element::Destination;
use super::number::NodeListId;
use super::sets::DirectSet;
use crate::ruleset::Fields;

/// The part of a service that an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectSubject {
    /// An address of services.
    Address(IpAddr),
    /// A destination of one service.
    Destination(Destination),
    /// A list of nodes of one service.
    List(NodeListId),
}

impl DirectSubject {
    /// Reads the key of an element; `None` for elements of nodes and for those of packets.
    pub fn read(set: DirectSet, key: &[u8]) -> Option<Self> {
        let mut key = Fields::new(key);
        match set {
            DirectSet::Addresses4 => key.address(Family::Ip).map(Self::Address),
            DirectSet::Addresses6 => key.address(Family::Ip6).map(Self::Address),
            DirectSet::Frontends4 | DirectSet::ErrorFrontends4 => {
                Destination::read(Family::Ip, &mut key).map(Self::Destination)
            }
            DirectSet::Frontends6 | DirectSet::ErrorFrontends6 => {
                Destination::read(Family::Ip6, &mut key).map(Self::Destination)
            }
            DirectSet::Nodes => NodeListId::from_key(key.number()?).map(Self::List),
            DirectSet::NodeHardwareAddresses
            | DirectSet::NodeAddresses4
            | DirectSet::NodeAddresses6
            | DirectSet::NodeDevices
            | DirectSet::Connections
            | DirectSet::Fragments4
            | DirectSet::Fragments6 => None,
        }
    }
}
