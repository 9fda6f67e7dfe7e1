//! The holdings of a service, compact because there are very many services.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use nft::family::Family;
use smallvec::SmallVec;

use crate::desired::{DesiredPort, Scope};
use crate::model::Protocol;
use crate::ruleset::number::ListId;
use crate::ruleset::{Frontend, ListUse, Member};

/// The holdings and claims of a service, in 16 bytes.
#[derive(Debug)]
pub(super) enum PackedHoldings {
    /// One port of an IPv4 cluster IP and the list of its endpoints, as for most services.
    Usual { address: Ipv4Addr, protocol: Protocol, port: NonZeroU16, list: Option<ListId> },
    /// All other holdings.
    Other(Box<Holdings>),
}

/// The holdings and claims of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    pub(super) frontends: SmallVec<[Frontend; 2]>,
    pub(super) members: SmallVec<[Member; 2]>,
    pub(super) lists: SmallVec<[ServiceList; 2]>,
}

/// The purpose of an endpoint list of a service: port at the cluster IP, and scope.
pub(super) type ListPurpose = (Family, ListUse, NonZeroU16, Scope);

/// An endpoint list of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServiceList {
    pub(super) family: Family,
    pub(super) of: ListUse,
    /// Port at the cluster IP; without a meaning for port ranges.
    pub(super) port: NonZeroU16,
    pub(super) scope: Scope,
    pub(super) id: ListId,
}

impl ServiceList {
    pub(super) fn purpose(&self) -> ListPurpose {
        (self.family, self.of, self.port, self.scope)
    }

    /// Returns the key of the list among those of the service.
    pub(super) fn key(&self) -> (ListPurpose, bool) {
        (self.purpose(), self.id.has_affinity())
    }
}

/// Returns the purpose of the list of a port and scope.
pub(super) fn purpose_of(port: &DesiredPort, scope: Scope) -> ListPurpose {
    (port.family, port.list_use(), port.port, scope)
}

impl PackedHoldings {
    pub(super) fn unpack(&self) -> Holdings {
        match self {
            Self::Usual { address, protocol, port, list } => {
                let (address, protocol, port) = (IpAddr::V4(*address), *protocol, *port);
                let list = list.map(|id| ServiceList {
                    family: Family::Ip,
                    of: ListUse::Port(protocol),
                    port,
                    scope: Scope::Cluster,
                    id,
                });
                Holdings {
                    frontends: [Frontend::Address { address, protocol, port }]
                        .into_iter()
                        .collect(),
                    members: [Member::ClusterIp(address)].into_iter().collect(),
                    lists: list.into_iter().collect(),
                }
            }
            Self::Other(holdings) => (**holdings).clone(),
        }
    }
}

impl Holdings {
    pub(super) fn is_empty(&self) -> bool {
        self.frontends.is_empty() && self.members.is_empty() && self.lists.is_empty()
    }

    pub(super) fn pack(mut self) -> PackedHoldings {
        if let [Frontend::Address { address: IpAddr::V4(address), protocol, port }] =
            self.frontends[..]
            && self.members[..] == [Member::ClusterIp(IpAddr::V4(address))]
        {
            let usual = (Family::Ip, ListUse::Port(protocol), port, Scope::Cluster);
            match self.lists[..] {
                [] => return PackedHoldings::Usual { address, protocol, port, list: None },
                [list] if list.purpose() == usual => {
                    return PackedHoldings::Usual { address, protocol, port, list: Some(list.id) };
                }
                _ => {}
            }
        }
        self.frontends.shrink_to_fit();
        self.members.shrink_to_fit();
        self.lists.shrink_to_fit();
        PackedHoldings::Other(Box::new(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holdings_are_unpacked_as_they_were_packed_and_take_16_bytes() {
        assert_eq!(size_of::<PackedHoldings>(), 16);
        let [one, other] = [[10, 96, 0, 1], [10, 96, 0, 2]].map(IpAddr::from);
        let (protocol, port) = (Protocol::Tcp, NonZeroU16::MIN);
        let frontend = |address| Frontend::Address { address, protocol, port };
        let list = |scope| ServiceList {
            family: Family::Ip,
            of: ListUse::Port(protocol),
            port,
            scope,
            id: ListId::plain(300),
        };
        for (frontends, members, lists, is_usual) in [
            (&[][..], &[][..], &[][..], false),
            (&[frontend(one)], &[one], &[], true),
            (&[frontend(one)], &[one], &[list(Scope::Cluster)], true),
            (&[frontend(one)], &[one], &[list(Scope::Local)], false),
            (&[frontend(one)], &[other], &[], false),
            (&[frontend(one), frontend(other)], &[one], &[list(Scope::Cluster)], false),
        ] {
            let holdings = Holdings {
                frontends: frontends.iter().copied().collect(),
                members: members.iter().copied().map(Member::ClusterIp).collect(),
                lists: lists.iter().copied().collect(),
            };
            let packed = holdings.clone().pack();
            assert_eq!(matches!(packed, PackedHoldings::Usual { .. }), is_usual, "{holdings:?}");
            assert_eq!(packed.unpack(), holdings);
        }
    }
}
