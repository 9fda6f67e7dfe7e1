//! What the kernel knows about the neighbours with requested addresses.
//!
//! A neighbour that failed stays failed until it answers: while the kernel asks it again, or after
//! the kernel has removed its entry, it is no more reachable than before.

use std::collections::BTreeMap;
use std::net::IpAddr;

use engine::direct::{Reach, Unreachable};
use network::{Neighbour, NeighbourChange, NeighbourState};

/// An address and the index of the interface that leads to it.
pub(super) type Place = (IpAddr, u32);

/// Neighbours by place.
#[derive(Debug, Default)]
pub(super) struct KnownNeighbours {
    known: BTreeMap<Place, Known>,
}

/// What is known about one neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    entry: Option<Neighbour>,
    has_failed: bool,
    /// It was asked for its hardware address after it was last usable.
    is_asked: bool,
}

impl KnownNeighbours {
    /// Records all neighbours of the kernel. Forgets those that are not `requested`.
    pub(super) fn list(&mut self, listed: &[Neighbour], requested: impl Fn(Place) -> bool) {
        self.known.retain(|place, _| requested(*place));
        self.known.values_mut().for_each(|known| known.entry = None);
        for neighbour in listed.iter().filter(|it| requested((it.address, it.interface))) {
            self.learn(*neighbour);
        }
    }

    /// Records a change of a neighbour.
    pub(super) fn apply(&mut self, change: NeighbourChange) {
        match change {
            NeighbourChange::Is(neighbour) => self.learn(neighbour),
            NeighbourChange::Gone(address, interface) => {
                if let Some(known) = self.known.get_mut(&(address, interface)) {
                    known.entry = None;
                }
            }
        }
    }

    fn learn(&mut self, neighbour: Neighbour) {
        let known = self.known.entry((neighbour.address, neighbour.interface)).or_default();
        known.entry = Some(neighbour);
        known.has_failed = match neighbour.state {
            NeighbourState::Failed => true,
            NeighbourState::New | NeighbourState::Incomplete => known.has_failed,
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::NoArp
            | NeighbourState::Permanent => false,
        };
        known.is_asked &= usable(&neighbour).is_none();
    }

    /// Returns how packets get to an address on the link of an interface.
    pub(super) fn reach(&self, (address, device): Place) -> Reach {
        let known = self.known.get(&(address, device)).copied().unwrap_or_default();
        match known.entry.and_then(|entry| usable(&entry)) {
            Some(hardware_address) => Reach::OnLink { device, hardware_address },
            None if known.has_failed => Reach::Not(Unreachable::Failed),
            None => Reach::Not(Unreachable::HardwareAddressUnknown),
        }
    }

    /// Returns whether the kernel is to ask the neighbour for its hardware address at once: it was
    /// usable until now, or was never asked.
    pub(super) fn is_urgent(&self, place: Place) -> bool {
        let known = self.known.get(&place).copied().unwrap_or_default();
        !known.is_asked && known.entry.is_none_or(|entry| usable(&entry).is_none())
    }

    /// Returns whether asking leaves the entry's settings as they are.
    pub(super) fn can_be_probed(&self, place: Place) -> bool {
        let entry = self.known.get(&place).and_then(|known| known.entry);
        entry.is_none_or(|entry| entry.can_be_probed())
    }

    /// Records that the kernel asks the neighbour.
    pub(super) fn asked(&mut self, place: Place) {
        let known = self.known.entry(place).or_default();
        known.is_asked = known.entry.is_none_or(|entry| usable(&entry).is_none());
    }
}

/// Returns the hardware address to which packets may be sent.
fn usable(neighbour: &Neighbour) -> Option<[u8; 6]> {
    match neighbour.state {
        NeighbourState::New | NeighbourState::Incomplete | NeighbourState::Failed => None,
        NeighbourState::Reachable
        | NeighbourState::Stale
        | NeighbourState::Delay
        | NeighbourState::Probe
        | NeighbourState::NoArp
        | NeighbourState::Permanent => neighbour.hardware_address.filter(is_of_one_station),
    }
}

/// Returns whether an Ethernet address can be that of one station: not zero, and not of a group
/// (IEEE 802, the first bit on the wire).
fn is_of_one_station(address: &[u8; 6]) -> bool {
    *address != [0; 6] && address[0] & 1 == 0
}

#[cfg(test)]
mod tests {
    use NeighbourState::{
        Delay, Failed, Incomplete, New, NoArp, Permanent, Probe, Reachable, Stale,
    };

    use super::*;

    const PLACE: Place = (IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 50, 3)), 7);
    const MAC: [u8; 6] = [2, 0, 1, 0, 0, 0x65];
    const UNKNOWN: Reach = Reach::Not(Unreachable::HardwareAddressUnknown);
    const FAILED: Reach = Reach::Not(Unreachable::Failed);
    const ON_LINK: Reach = Reach::OnLink { device: 7, hardware_address: MAC };

    fn entry(state: NeighbourState) -> Neighbour {
        let hardware_address = (!matches!(state, New | Incomplete | Failed)).then_some(MAC);
        let (address, interface) = PLACE;
        Neighbour { address, interface, state, hardware_address, is_external: false }
    }

    fn after(states: &[NeighbourState]) -> KnownNeighbours {
        let mut known = KnownNeighbours::default();
        states.iter().for_each(|state| known.apply(NeighbourChange::Is(entry(*state))));
        known
    }

    #[test]
    fn each_state_with_a_hardware_address_is_reachable() {
        for state in [Reachable, Stale, Delay, Probe, NoArp, Permanent] {
            assert_eq!(after(&[state]).reach(PLACE), ON_LINK, "{state:?}");
            assert_eq!(after(&[Failed, state]).reach(PLACE), ON_LINK, "{state:?}");
        }
        assert_eq!(after(&[Reachable]).reach((PLACE.0, 8)), UNKNOWN, "another link");
    }

    #[test]
    fn a_neighbour_is_failed_until_it_answers() {
        assert_eq!(after(&[]).reach(PLACE), UNKNOWN);
        assert_eq!(after(&[New, Incomplete]).reach(PLACE), UNKNOWN);
        assert_eq!(after(&[Reachable, Failed]).reach(PLACE), FAILED);
        assert_eq!(after(&[Failed, Incomplete]).reach(PLACE), FAILED);
        let mut gone = after(&[Failed]);
        gone.apply(NeighbourChange::Gone(PLACE.0, PLACE.1));
        assert_eq!(gone.reach(PLACE), FAILED);
        gone.list(&[], |_| true);
        assert_eq!(gone.reach(PLACE), FAILED);
        gone.list(&[entry(Stale)], |_| true);
        assert_eq!(gone.reach(PLACE), ON_LINK);
    }

    #[test]
    fn a_neighbour_that_is_gone_has_no_hardware_address() {
        let mut gone = after(&[Stale]);
        gone.apply(NeighbourChange::Gone(PLACE.0, PLACE.1));
        assert_eq!(gone.reach(PLACE), UNKNOWN);
        let mut unlisted = after(&[Stale]);
        unlisted.list(&[], |_| true);
        assert_eq!(unlisted.reach(PLACE), UNKNOWN);
    }

    #[test]
    fn neighbours_that_are_not_requested_are_forgotten() {
        let mut known = after(&[Failed]);
        known.list(&[entry(Reachable)], |place| place.1 != PLACE.1);
        assert!(known.known.is_empty());
    }

    #[test]
    fn a_group_address_and_zero_are_unusable() {
        for hardware_address in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
            let mut known = KnownNeighbours::default();
            let hardware_address = Some(hardware_address);
            let neighbour = Neighbour { hardware_address, ..entry(Reachable) };
            known.apply(NeighbourChange::Is(neighbour));
            assert_eq!(known.reach(PLACE), UNKNOWN);
        }
    }

    #[test]
    fn a_neighbour_is_asked_at_once_when_it_stops_being_usable_and_then_no_more() {
        let mut known = after(&[]);
        assert!(known.is_urgent(PLACE), "it was never asked");
        known.asked(PLACE);
        for state in [Incomplete, Failed] {
            known.apply(NeighbourChange::Is(entry(state)));
            assert!(!known.is_urgent(PLACE), "{state:?}");
        }
        known.apply(NeighbourChange::Is(entry(Probe)));
        known.asked(PLACE);
        assert!(!known.is_urgent(PLACE), "it is usable");
        known.apply(NeighbourChange::Is(entry(Failed)));
        assert!(known.is_urgent(PLACE), "it may have another hardware address");
        known.asked(PLACE);
        known.apply(NeighbourChange::Gone(PLACE.0, PLACE.1));
        assert!(!known.is_urgent(PLACE));
        known.apply(NeighbourChange::Is(entry(Reachable)));
        known.apply(NeighbourChange::Gone(PLACE.0, PLACE.1));
        assert!(known.is_urgent(PLACE));
    }

    #[test]
    fn entries_of_others_are_not_probed() {
        assert!(after(&[]).can_be_probed(PLACE));
        assert!(after(&[Reachable]).can_be_probed(PLACE));
        assert!(!after(&[Permanent]).can_be_probed(PLACE));
    }
}
