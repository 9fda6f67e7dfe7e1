//! An EndpointSlice with packed endpoints: one of IPv4 takes eight bytes.
//!
//! The source packs them once, and the cluster keeps, compares and reads them in this form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::SystemTime;

use smallvec::SmallVec;

use super::endpoint::{Conditions, Endpoint, EndpointPorts, Zones};
use super::interner::Interner;
use super::name::ObjectName;
use super::weights::Weighing;

/// Some endpoints of one service, with the ports they share.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSlice {
    /// Namespace and name of the slice.
    pub name: ObjectName,
    /// Service of the slice: label `kubernetes.io/service-name` in the slice's namespace.
    pub service: ObjectName,
    /// Ports with a number; others are not routed.
    pub ports: EndpointPorts,
    /// Endpoints in the order of the object, all of one address family.
    pub endpoints: Endpoints,
    /// Time of the event that caused the last change: annotation
    /// `endpoints.kubernetes.io/last-change-trigger-time`. Not stored.
    pub triggered: Option<SystemTime>,
    /// Data for weights, and for direct return; `None` for most slices without the latter.
    pub weighing: Option<Box<Weighing>>,
}

/// Endpoints in the order of their object, all of one address family. Endpoints of another family
/// than the first one are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoints {
    list: PackedList,
    /// `None` without zone hints. Shared, because clusters have few combinations of zones.
    zones: Option<Arc<ZoneLists>>,
}

/// Distinct zone lists in the hints of a slice's ready endpoints; hints of other endpoints have no
/// effect.
pub(super) type ZoneLists = SmallVec<[Arc<Zones>; 3]>;

/// Packed endpoints and the summary of their hints.
#[derive(Clone, Debug, PartialEq)]
enum PackedList {
    V4(Hints, Box<[PackedEndpoint<Ipv4Addr>]>),
    V6(Hints, Box<[PackedEndpoint<Ipv6Addr>]>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct PackedEndpoint<A> {
    address: A,
    conditions: u8,
    /// 0 without a zone hint, else the index in `zones` plus one.
    zones: u16,
}

/// Topology hints of the ready endpoints of a list, reduced to what decides whether they apply. The
/// default is that of an empty list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    pub(super) any_ready: bool,
    pub(super) any_for_this_node: bool,
    pub(super) any_without_nodes: bool,
    pub(super) any_without_zones: bool,
}

impl FromIterator<Endpoint> for Endpoints {
    fn from_iter<I: IntoIterator<Item = Endpoint>>(endpoints: I) -> Self {
        let endpoints = endpoints.into_iter();
        let most = endpoints.size_hint().1.unwrap_or(0);
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let (mut hints, mut zones) = (Hints::default(), ZoneLists::new());
        for Endpoint { address, conditions, zones: hinted } in endpoints {
            let of_endpoint = Hints::of(conditions, hinted.as_ref());
            let hinted = hinted.filter(|_| conditions.ready);
            let conditions = bits(conditions);
            match address {
                IpAddr::V4(address) if v6.is_empty() => {
                    let zones = place(hinted, &mut zones);
                    push(&mut v4, PackedEndpoint { address, conditions, zones }, most);
                }
                IpAddr::V6(address) if v4.is_empty() => {
                    let zones = place(hinted, &mut zones);
                    push(&mut v6, PackedEndpoint { address, conditions, zones }, most);
                }
                IpAddr::V4(_) | IpAddr::V6(_) => continue,
            }
            hints = hints.and(of_endpoint);
        }
        let list = if v6.is_empty() {
            PackedList::V4(hints, v4.into())
        } else {
            PackedList::V6(hints, v6.into())
        };
        Self { list, zones: (!zones.is_empty()).then(|| Arc::new(zones)) }
    }
}

/// Appends to a list of mostly `most` items, whose conversion to a box then does not reallocate.
fn push<T>(list: &mut Vec<T>, item: T, most: usize) {
    if list.capacity() == 0 {
        list.reserve_exact(most);
    }
    list.push(item);
}

/// Returns the place of a zone list, from 1; 0 without one.
fn place(hinted: Option<Arc<Zones>>, zones: &mut ZoneLists) -> u16 {
    let Some(hinted) = hinted else { return 0 };
    let position = zones.iter().position(|known| *known == hinted).unwrap_or_else(|| {
        zones.push(hinted);
        zones.len() - 1
    });
    // The API allows 1,000 endpoints in a slice, so the number of zone lists fits.
    u16::try_from(position + 1).unwrap_or(0)
}

impl Endpoints {
    /// Shares the zone lists with other slices.
    pub(super) fn share_zones(&mut self, known: &mut Interner<ZoneLists>) {
        if let Some(zones) = &mut self.zones {
            *zones = known.share(Arc::clone(zones));
        }
    }

    /// Returns the number of endpoints.
    pub fn len(&self) -> usize {
        let (v4, v6) = self.lists();
        v4.len() + v6.len()
    }

    /// Returns whether there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the endpoints in the order of the object.
    pub fn iter(&self) -> impl Iterator<Item = Endpoint<&Arc<Zones>>> + Clone {
        let (v4, v6) = self.lists();
        v4.iter().map(|it| self.unpack(it)).chain(v6.iter().map(|it| self.unpack(it)))
    }

    /// Returns the endpoint at a position in the object.
    pub fn get(&self, position: usize) -> Option<Endpoint<&Arc<Zones>>> {
        match &self.list {
            PackedList::V4(_, list) => list.get(position).map(|it| self.unpack(it)),
            PackedList::V6(_, list) => list.get(position).map(|it| self.unpack(it)),
        }
    }

    /// Returns the endpoints of this address.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = Endpoint<&Arc<Zones>>> {
        let (v4, v6) = self.lists();
        let (v4, v6) = match address {
            IpAddr::V4(address) => (find(v4, address), find(&[], Ipv6Addr::UNSPECIFIED)),
            IpAddr::V6(address) => (find(&[], Ipv4Addr::UNSPECIFIED), find(v6, address)),
        };
        v4.map(|it| self.unpack(it)).chain(v6.map(|it| self.unpack(it)))
    }

    /// Returns the summary of the hints.
    pub(super) fn hints(&self) -> Hints {
        match &self.list {
            PackedList::V4(hints, _) | PackedList::V6(hints, _) => *hints,
        }
    }

    /// Returns the distinct zone lists in the hints of ready endpoints.
    pub(super) fn zones(&self) -> &[Arc<Zones>] {
        self.zones.as_ref().map_or(&[], |zones| zones)
    }

    fn lists(&self) -> (&[PackedEndpoint<Ipv4Addr>], &[PackedEndpoint<Ipv6Addr>]) {
        match &self.list {
            PackedList::V4(_, list) => (list, &[]),
            PackedList::V6(_, list) => (&[], list),
        }
    }

    fn unpack<A: Copy + Into<IpAddr>>(&self, packed: &PackedEndpoint<A>) -> Endpoint<&Arc<Zones>> {
        let position = usize::from(packed.zones).checked_sub(1);
        Endpoint {
            address: packed.address.into(),
            conditions: conditions(packed.conditions),
            zones: position.and_then(|position| self.zones().get(position)),
        }
    }
}

impl Hints {
    /// Returns the summary of one endpoint.
    fn of(conditions: Conditions, zones: Option<&Arc<Zones>>) -> Self {
        let any_ready = conditions.ready;
        Self {
            any_ready,
            any_for_this_node: any_ready && conditions.hinted_for_node,
            any_without_nodes: any_ready && !conditions.has_node_hints,
            any_without_zones: any_ready && zones.is_none(),
        }
    }

    /// Returns the summary of both lists.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            any_ready: self.any_ready || other.any_ready,
            any_for_this_node: self.any_for_this_node || other.any_for_this_node,
            any_without_nodes: self.any_without_nodes || other.any_without_nodes,
            any_without_zones: self.any_without_zones || other.any_without_zones,
        }
    }
}

/// Returns the endpoints with this address. Most lists lack it, and a scan without early exit
/// detects that fastest.
fn find<A: Copy + PartialEq>(
    list: &[PackedEndpoint<A>],
    address: A,
) -> impl Iterator<Item = &PackedEndpoint<A>> {
    let is_there = list.iter().fold(false, |found, it| found | (it.address == address));
    let list = if is_there { list } else { &[] };
    list.iter().filter(move |endpoint| endpoint.address == address)
}

fn bits(conditions: Conditions) -> u8 {
    let Conditions { ready, serving, terminating, local, has_node_hints, hinted_for_node } =
        conditions;
    let all = [hinted_for_node, has_node_hints, local, terminating, serving, ready];
    all.into_iter().fold(0, |bits, holds| bits << 1 | u8::from(holds))
}

fn conditions(bits: u8) -> Conditions {
    let [ready, serving, terminating, local, has_node_hints, hinted_for_node] =
        std::array::from_fn(|bit| bits & 1 << bit != 0);
    Conditions { ready, serving, terminating, local, has_node_hints, hinted_for_node }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_ipv4_endpoint_takes_8_bytes_and_a_slice_104_besides_its_lists() {
        assert_eq!(size_of::<EndpointSlice>(), 104);
        assert_eq!(size_of::<PackedEndpoint<Ipv4Addr>>(), 8);
        assert_eq!(size_of::<PackedEndpoint<Ipv6Addr>>(), 20);
    }

    #[test]
    fn slices_with_the_same_zones_share_one_list() {
        let mut known = Interner::default();
        let mut zones_of = |zone: &str| {
            let zones = Some(Arc::new(vec![zone.into()]));
            let endpoint = Endpoint { zones, ..Endpoint::ready([10, 244, 0, 1].into()) };
            let mut endpoints = Endpoints::from_iter([endpoint]);
            endpoints.share_zones(&mut known);
            endpoints.zones.unwrap()
        };
        let [one, same, other] = ["a", "a", "b"].map(&mut zones_of);
        assert!(Arc::ptr_eq(&one, &same));
        assert_ne!(one, other);
    }

    fn any_address(is_v4: bool) -> BoxedStrategy<IpAddr> {
        if is_v4 {
            any::<[u8; 4]>().prop_map(IpAddr::from).boxed()
        } else {
            any::<[u8; 16]>().prop_map(IpAddr::from).boxed()
        }
    }

    fn any_endpoint(is_v4: bool) -> impl Strategy<Value = Endpoint> {
        let zones = proptest::option::of(0u8..4).prop_map(|zone| {
            zone.map(|zone| Arc::new(vec![Arc::<str>::from(format!("zone-{zone}").as_str())]))
        });
        (any_address(is_v4), 0u8..1 << 6, zones).prop_map(|(address, bits, zones)| Endpoint {
            address,
            conditions: conditions(bits),
            zones,
        })
    }

    fn any_endpoints() -> impl Strategy<Value = Vec<Endpoint>> {
        any::<bool>().prop_flat_map(|is_v4| proptest::collection::vec(any_endpoint(is_v4), 0..20))
    }

    proptest! {
        #[test]
        fn endpoints_are_restored_as_they_were(all in any_endpoints()) {
            let endpoints: Endpoints = all.iter().cloned().collect();
            prop_assert_eq!(endpoints.len(), all.len());
            let known: Vec<_> = all
                .into_iter()
                .map(|it| Endpoint { zones: it.zones.filter(|_| it.conditions.ready), ..it })
                .collect();
            let restored = endpoints.iter().map(|Endpoint { address, conditions, zones }| {
                Endpoint { address, conditions, zones: zones.cloned() }
            });
            prop_assert_eq!(restored.collect::<Vec<_>>(), &known[..]);
            for (i, endpoint) in known.iter().enumerate() {
                let same = endpoints.get(i).map(|it| (it.address, it.conditions));
                prop_assert_eq!(same, Some((endpoint.address, endpoint.conditions)));
                let mut at = endpoints.at(endpoint.address);
                prop_assert!(at.any(|it| it.conditions == endpoint.conditions));
            }
        }

        #[test]
        fn endpoints_of_another_family_than_the_first_are_left_out(
            first in any_endpoint(true), other in any_endpoint(false),
        ) {
            let one = Endpoints::from_iter([first.clone()]);
            prop_assert_eq!(Endpoints::from_iter([first, other]), one);
        }
    }
}
