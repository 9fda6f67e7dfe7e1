//! The prefix lengths of source ranges. For each length in use, a rule looks up the sources.

use ahash::HashMap;
use ipnet::IpNet;
use nft::family::Family;

use super::name::ObjectName;
use super::node::Node;
use super::protocol::Protocol;
use super::stored::StoredService;

/// Prefix lengths of one family from 1 on, for each protocol in the order of [`Protocol::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixLengths([u128; Protocol::ALL.len()]);

/// The prefix lengths that the services need, of source ranges or of port ranges, in both families.
#[derive(Debug, Default)]
pub(super) struct UsedLengths {
    by_service: HashMap<ObjectName, [PrefixLengths; 2]>,
    /// Number of services with each length.
    services: HashMap<(Family, Protocol, u8), usize>,
}

/// IPv6 ranges are looked up with lengths that are multiples of this one: there are 32 at most then,
/// as in IPv4, and all usual ones are among them.
const IPV6_STEP: u8 = 4;

/// Returns the prefix length with which the sources in a range are looked up: its own, or a longer
/// one.
pub(crate) fn looked_up_length(range: &IpNet) -> u8 {
    match range {
        IpNet::V4(range) => range.prefix_len(),
        IpNet::V6(range) => range.prefix_len().next_multiple_of(IPV6_STEP),
    }
}

impl PrefixLengths {
    /// Returns whether there is none.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns those of a protocol, ascending.
    pub fn of(self, protocol: Protocol) -> impl Iterator<Item = u8> {
        let bits = self.0[protocol.index()];
        (1..=128).filter(move |length| bits >> (length - 1) & 1 == 1)
    }

    fn all(self) -> impl Iterator<Item = (Protocol, u8)> {
        let of = move |protocol| self.of(protocol).map(move |length| (protocol, length));
        Protocol::ALL.into_iter().flat_map(of)
    }

    /// Returns the lengths of either.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(bits, others)| *bits |= others);
        self
    }

    /// Returns the lengths of both.
    #[must_use]
    pub fn intersection(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(bits, others)| *bits &= others);
        self
    }
}

/// Length 0 has no meaning.
impl FromIterator<(Protocol, u8)> for PrefixLengths {
    fn from_iter<T: IntoIterator<Item = (Protocol, u8)>>(lengths: T) -> Self {
        let mut all = Self::default();
        for (protocol, length) in lengths {
            all.0[protocol.index()] |= length.checked_sub(1).map_or(0, |bit| 1 << bit);
        }
        all
    }
}

impl UsedLengths {
    /// Sets the lengths of a service.
    pub(super) fn set(&mut self, service: &ObjectName, lengths: [PrefixLengths; 2]) {
        let has_any = lengths.iter().any(|it| !it.is_empty());
        if !has_any && self.by_service.is_empty() {
            return;
        }
        let former = if has_any {
            self.by_service.insert(service.clone(), lengths)
        } else {
            self.by_service.remove(service)
        };
        for family in Family::ALL {
            let former = former.unwrap_or_default()[family.index()];
            for (protocol, length) in lengths[family.index()].all() {
                *self.services.entry((family, protocol, length)).or_default() += 1;
            }
            for (protocol, length) in former.all() {
                // It was counted when the service got it.
                let count = self.services.entry((family, protocol, length)).or_default();
                *count = count.saturating_sub(1);
            }
        }
        self.services.retain(|_, count| *count > 0);
    }

    /// Returns the lengths in use in one family.
    pub(super) fn of(&self, family: Family) -> PrefixLengths {
        let own = self.services.keys().filter(|(of, ..)| *of == family);
        own.map(|(_, protocol, length)| (*protocol, *length)).collect()
    }
}

/// Returns the lengths of the source ranges of a service with these ports and port ranges. Ranges with
/// an address of the node also admit load balancer addresses.
pub(super) fn of_source_ranges(service: &StoredService, node: Option<&Node>) -> [PrefixLengths; 2] {
    let ranges = service.source_ranges();
    if ranges.is_empty() {
        return [PrefixLengths::default(); 2];
    }
    // A service may have thousands of ports.
    let mut used = Protocol::ALL.to_vec();
    used.retain(|protocol| {
        service.ports().iter().any(|port| port.protocol == *protocol)
            || service.port_ranges().iter().any(|range| range.protocol == *protocol)
    });
    Family::ALL.map(|family| {
        let own = ranges.iter().filter(|range| Family::of(range.addr()) == family);
        let mut on_node = node.iter().flat_map(|node| &node.addresses);
        let admits_node = on_node.any(|address| own.clone().any(|it| it.contains(address)));
        let single = own.clone().map(IpNet::max_prefix_len).take(usize::from(admits_node));
        let own = own.map(looked_up_length).chain(single);
        own.flat_map(|it| used.iter().map(move |of| (*of, it))).collect()
    })
}

/// Returns the lengths of the port ranges of a service.
pub(super) fn of_port_ranges(service: &StoredService) -> [PrefixLengths; 2] {
    let blocks = service
        .port_ranges()
        .iter()
        .flat_map(|range| range.blocks().into_iter().map(|block| (range.protocol, block.length())));
    [blocks.collect(); 2]
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::model::stored::SharedLists;
    use crate::model::{Service, ServicePort};

    #[test]
    fn a_length_is_in_use_as_long_as_a_service_has_it() {
        let [a, b] = ["a", "b"].map(|name| ObjectName::namespaced("default", name));
        let ranges = |texts: &[&str]| -> Vec<IpNet> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let node = Node {
            name: ObjectName::cluster_scoped("node"),
            zone: None,
            addresses: vec![[192, 0, 2, 1].into()],
            pod_cidrs: Vec::new(),
            leaving: false,
        };
        let mut lengths = UsedLengths::default();
        let in_use = |lengths: &UsedLengths, protocol| {
            Family::ALL.map(|family| lengths.of(family).of(protocol).collect::<Vec<_>>())
        };
        let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
        let ports = |protocols: &[Protocol]| -> Vec<_> {
            let port = ServicePort::tcp("http", NonZeroU16::new(80).unwrap());
            protocols.iter().map(|it| ServicePort { protocol: *it, ..port.clone() }).collect()
        };
        let all = ["10.0.0.0/8", "10.1.0.0/24", "fd00::/33"];
        let set =
            |lengths: &mut UsedLengths, name: &ObjectName, texts: &[&str], of: &[Protocol]| {
                let service = Service {
                    source_ranges: ranges(texts),
                    ports: ports(of),
                    ..Service::new(name.clone(), Vec::new())
                };
                let service = StoredService::new(service, 0, &mut SharedLists::default());
                lengths.set(name, of_source_ranges(&service, Some(&node).filter(|_| *name == b)));
            };
        set(&mut lengths, &a, &all, &[tcp, tcp, udp]);
        set(&mut lengths, &b, &["192.0.2.0/24"], &[tcp]);
        assert_eq!(in_use(&lengths, tcp), [vec![8, 24, 32], vec![36]]);
        set(&mut lengths, &a, &["192.0.2.0/25"], &[udp]);
        assert_eq!(in_use(&lengths, tcp), [vec![24, 32], vec![]]);
        assert_eq!(in_use(&lengths, udp), [vec![25], vec![]]);
        set(&mut lengths, &a, &[], &[udp]);
        set(&mut lengths, &b, &[], &[]);
        assert!(Family::ALL.into_iter().all(|family| lengths.of(family).is_empty()));
    }
}
