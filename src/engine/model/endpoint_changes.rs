//! Changes of a few endpoints of a service when nothing else about it changed.
//!
//! Services have thousands of endpoints, in slices of a hundred. Iterating over all of them on each
//! slice change is expensive, so a change is reported here only if it is certain without that.

use std::net::IpAddr;
use std::sync::Arc;

use nft::family::Family;
use smallvec::SmallVec;

use super::choice::Choice;
use super::endpoint::{EndpointPort, EndpointPorts};
use super::service::ServicePort;
use super::stored::StoredSlice;
use super::target::Target;

/// Added and removed endpoints of other nodes. All slices of their family have the same ports, and
/// the choice of endpoints follows the same rule as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointChanges {
    ports: Arc<EndpointPorts>,
    addresses: SmallVec<[(IpAddr, bool); FEW]>,
}

/// Most addresses of one change; beyond it the service as a whole is touched.
const LIMIT: usize = 8;

/// Addresses stored inline: most changes have one or two.
const FEW: usize = 2;

impl EndpointChanges {
    /// Returns what the replacement of `old` by the slice at `position` of `slices` changes.
    /// Returns `None` if it may change more than a few endpoints of other nodes. `zone` is the zone
    /// of this node.
    pub(super) fn between(
        old: &StoredSlice,
        slices: &[StoredSlice],
        position: usize,
        zone: Option<&Arc<str>>,
    ) -> Option<Self> {
        let new = slices.get(position)?;
        let family = Family::of(new.endpoints.get(0).or(old.endpoints.get(0))?.address);
        let of_family = slices.iter().filter(|slice| slice.is_of(family));
        let mut before = std::iter::once(old).chain(of_family.clone());
        // Port lists are shared, so equal lists have the same address. With weights, a change
        // affects all endpoints.
        if !before.all(|slice| Arc::ptr_eq(&slice.ports, &new.ports) && !slice.is_weighed())
            || !old.is_of(family)
        {
            return None;
        }
        let others = || of_family.clone().filter(|slice| !std::ptr::eq(*slice, new));
        let choice = Choice::of(of_family.clone(), zone);
        if Choice::of(others().chain([old]), zone) != choice {
            return None;
        }
        let mut addresses = SmallVec::new();
        for address in differing(old, new)? {
            let (mut is_usable, mut is_local) = (false, false);
            for endpoint in of_family.clone().flat_map(|slice| slice.endpoints.at(address)) {
                is_usable |= choice.includes(&endpoint);
                is_local |= endpoint.conditions.local;
            }
            if is_local || old.endpoints.at(address).any(|endpoint| endpoint.conditions.local) {
                return None;
            }
            addresses.push((address, is_usable));
        }
        Some(Self { ports: Arc::clone(&new.ports), addresses })
    }

    /// Returns the endpoints of a port that may have changed, each with whether it is usable now.
    /// None of them is on this node. Returns `None` if the port has several numbers in the slices.
    pub fn of_port(&self, port: &ServicePort) -> Option<impl Iterator<Item = (Target, bool)>> {
        let mut numbers = EndpointPort::serving(&self.ports, port).iter().map(|it| it.port);
        let number = numbers.next();
        let addresses = self.addresses.iter();
        let targets = number.into_iter().flat_map(move |port| {
            addresses
                .clone()
                .map(move |(address, is_usable)| (Target { address: *address, port }, *is_usable))
        });
        numbers.next().is_none().then_some(targets)
    }

    /// Adds later changes. Returns false if one value cannot hold both.
    pub(super) fn add(&mut self, later: &Self) -> bool {
        for (address, is_usable) in &later.addresses {
            match self.addresses.iter_mut().find(|(known, _)| known == address) {
                Some((_, known)) => *known = *is_usable,
                None => self.addresses.push((*address, *is_usable)),
            }
        }
        Arc::ptr_eq(&self.ports, &later.ports) && self.addresses.len() <= LIMIT
    }
}

/// Returns the addresses whose entries may differ between two slices, each once; `None` if they are
/// many.
///
/// Compares both lists side by side, since most endpoints are in the same order in both.
fn differing(old: &StoredSlice, new: &StoredSlice) -> Option<SmallVec<[IpAddr; FEW]>> {
    let mut addresses = SmallVec::<[IpAddr; FEW]>::new();
    let (mut i, mut j) = (0, 0);
    loop {
        let (was, is) = (old.endpoints.get(i), new.endpoints.get(j));
        if was == is {
            if was.is_none() {
                return Some(addresses);
            }
            (i, j) = (i + 1, j + 1);
            continue;
        }
        // A removed or added endpoint is skipped in its own list only.
        let has_left = old.endpoints.get(i + 1) == is;
        let has_come = !has_left && new.endpoints.get(j + 1) == was;
        let left = was.filter(|_| !has_come);
        let come = is.filter(|_| !has_left);
        for address in [left, come].into_iter().flatten().map(|endpoint| endpoint.address) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        i += usize::from(!has_come);
        j += usize::from(!has_left);
        if addresses.len() > LIMIT {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::model::stored::SharedLists;
    use crate::model::{Conditions, Endpoint, EndpointSlice, Endpoints, ObjectName, Weighing};

    const READY: Conditions = Conditions::READY;
    const UNREADY: Conditions = Conditions { ready: false, ..READY };
    const LOCAL: Conditions = Conditions { local: true, ..READY };

    fn endpoint(last: u8, conditions: Conditions) -> Endpoint {
        Endpoint { address: IpAddr::from([10, 244, 0, last]), conditions, zones: None }
    }

    fn in_zone(last: u8, zone: &str) -> Endpoint {
        Endpoint { zones: Some(Arc::new(vec![zone.into()])), ..endpoint(last, READY) }
    }

    fn ready(lasts: &[u8]) -> Vec<Endpoint> {
        lasts.iter().map(|last| endpoint(*last, READY)).collect()
    }

    fn port(number: u16) -> EndpointPort {
        EndpointPort::tcp("http", NonZeroU16::new(number).unwrap())
    }

    fn slice(name: &str, number: u16, endpoints: &[Endpoint]) -> EndpointSlice {
        EndpointSlice {
            name: ObjectName::namespaced("default", name),
            service: ObjectName::namespaced("default", "web"),
            ports: [port(number)].into(),
            endpoints: endpoints.iter().cloned().collect(),
            triggered: None,
            weighing: None,
        }
    }

    /// Returns the changes when a slice changes beside another.
    fn between(
        old: &EndpointSlice,
        new: &EndpointSlice,
        other: &EndpointSlice,
    ) -> Option<Vec<(u8, bool)>> {
        let mut lists = SharedLists::default();
        let mut stored = |slice: &EndpointSlice| StoredSlice::alone(slice, &mut lists);
        let (old, slices) = (stored(old), [stored(other), stored(new)]);
        let zone = Arc::from("z1");
        let changes = EndpointChanges::between(&old, &slices, 1, Some(&zone))?;
        let web = ServicePort::tcp("http", NonZeroU16::MIN);
        let changed = changes.of_port(&web)?.map(|(target, is_usable)| match target.address {
            IpAddr::V4(address) => (address.octets()[3], is_usable),
            IpAddr::V6(_) => panic!("{target:?} is of another family"),
        });
        Some(changed.collect())
    }

    #[track_caller]
    fn check(old: &[Endpoint], new: &[Endpoint], other: &[Endpoint], expected: &[(u8, bool)]) {
        let [old, new] = [old, new].map(|endpoints| slice("one", 8080, endpoints));
        let changed = between(&old, &new, &slice("other", 8080, other)).unwrap();
        assert_eq!(changed, expected);
    }

    #[test]
    fn kept_names_of_nodes_do_not_affect_all_endpoints_and_weights_do() {
        let [old, new] = [ready(&[1]), ready(&[1, 2])].map(|it| slice("one", 8080, &it));
        let nodes = |count| (0..count).map(|_| Arc::new("n".into())).collect();
        let with = |slice: &EndpointSlice, weighing| EndpointSlice {
            weighing: Some(Box::new(weighing)),
            ..slice.clone()
        };
        let named = |slice: &EndpointSlice| {
            let nodes = nodes(slice.endpoints.len());
            with(slice, Weighing { nodes, ..Weighing::default() })
        };
        let other = named(&slice("other", 8080, &ready(&[7])));
        assert_eq!(between(&named(&old), &named(&new), &other), Some(vec![(2, true)]));
        let weighed = with(&other, Weighing { weight: Some(1), ..Weighing::default() });
        assert_eq!(between(&named(&old), &named(&new), &weighed), None);
    }

    #[test]
    fn added_and_removed_endpoints_are_returned() {
        let others = ready(&[7, 8]);
        check(&ready(&[1, 2, 3]), &ready(&[1, 2, 3, 4]), &others, &[(4, true)]);
        check(&ready(&[1, 2, 3]), &ready(&[1, 3]), &others, &[(2, false)]);
        check(&ready(&[1, 2, 3]), &ready(&[1, 9, 3]), &others, &[(2, false), (9, true)]);
        let unready = [endpoint(1, UNREADY), endpoint(2, READY)];
        check(&ready(&[1, 2]), &unready, &others, &[(1, false)]);
        check(&unready, &ready(&[1, 2]), &others, &[(1, true)]);
        check(&ready(&[1]), &[], &others, &[(1, false)]);
        check(&[], &ready(&[1]), &others, &[(1, true)]);
    }

    #[test]
    fn an_endpoint_in_another_slice_stays() {
        check(&ready(&[1, 2]), &ready(&[1]), &ready(&[2]), &[(2, true)]);
    }

    #[test]
    fn only_endpoints_hinted_for_this_zone_are_returned() {
        let all = [in_zone(1, "z1"), in_zone(2, "z2"), in_zone(3, "z1")];
        check(&all[..2], &all, &all[..1], &[(3, true)]);
        check(&all, &[all[0].clone(), all[2].clone()], &all[..1], &[(2, false)]);
        let moved = [all[0].clone(), in_zone(2, "z1"), all[2].clone()];
        check(&all, &moved, &all[..1], &[(2, true)]);
    }

    #[test]
    fn a_change_that_may_affect_other_endpoints_needs_a_whole_update() {
        let none = |old: &EndpointSlice, new: &EndpointSlice, other: &EndpointSlice| {
            assert_eq!(between(old, new, other), None, "{old:?} -> {new:?}");
        };
        let slice = |endpoints: &[Endpoint]| slice("one", 8080, endpoints);
        let (few, more) = (slice(&ready(&[1, 2])), slice(&ready(&[1, 2, 3])));
        let other =
            EndpointSlice { name: ObjectName::namespaced("default", "other"), ..few.clone() };
        assert!(between(&few, &more, &other).is_some());

        let ports = || [port(9090)].into();
        none(&few, &EndpointSlice { ports: ports(), ..more.clone() }, &other);
        none(&few, &more, &EndpointSlice { ports: ports(), ..other.clone() });
        none(&few, &slice(&[endpoint(1, READY), endpoint(2, LOCAL)]), &other);
        none(&slice(&[endpoint(1, LOCAL), endpoint(2, READY)]), &more, &other);
        none(&few, &slice(&ready(&(10..30).collect::<Vec<_>>())), &other);
        let hinted = [in_zone(1, "z1"), in_zone(2, "z1"), endpoint(3, READY)];
        let alone = EndpointSlice { endpoints: Endpoints::from_iter([]), ..other.clone() };
        none(&few, &slice(&hinted[..2]), &alone);
        none(&slice(&hinted[..2]), &slice(&hinted), &alone);
    }
}
