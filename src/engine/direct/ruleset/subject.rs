//! The part of a service that an element belongs to, by its key alone.

use std::net::IpAddr;

use nft::Family;

use super::element::Destination;
use super::number::List;
use super::sets::SetId;
use crate::ruleset::Fields;

/// The part of a service that an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectSubject {
    /// An address of services.
    Address(IpAddr),
    /// A destination of one service.
    Destination(Destination),
    /// A list of nodes of one service.
    List(List),
}

impl DirectSubject {
    /// Reads the key of an element; `None` for elements of nodes and for those of packets.
    pub fn read(set: SetId, key: &[u8]) -> Option<Self> {
        let mut key = Fields::new(key);
        match set {
            SetId::Addresses4 => key.address(Family::Ip).map(Self::Address),
            SetId::Addresses6 => key.address(Family::Ip6).map(Self::Address),
            SetId::Frontends4 | SetId::ErrorFrontends4 => {
                Destination::read(Family::Ip, &mut key).map(Self::Destination)
            }
            SetId::Frontends6 | SetId::ErrorFrontends6 => {
                Destination::read(Family::Ip6, &mut key).map(Self::Destination)
            }
            SetId::Nodes => List::from_key(key.number()?).map(Self::List),
            SetId::NodeHardwareAddresses
            | SetId::NodeAddresses4
            | SetId::NodeAddresses6
            | SetId::NodeDevices
            | SetId::Connections
            | SetId::Fragments4
            | SetId::Fragments6 => None,
        }
    }
}
