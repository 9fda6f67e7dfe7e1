//! Fragments as they are kept while nothing changes: small, because there are very many of them.
//!
//! Nothing is lost. An IPv4 endpoint takes six bytes, a key that is only a member of sets sixteen,
//! and what few keys have takes no room where it is missing.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

use super::affinity::{Affinity, Session};
use super::{Fragment, Patch, Range};
use crate::diff::Keep;
use crate::model::Target;

/// A fragment in little room, which can be put together from single elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptFragment {
    sets: u64,
    /// `None` if the key is only a member of sets.
    rest: Option<Box<Rest>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rest {
    label: Option<Arc<str>>,
    /// All endpoints, if all are of IPv4.
    slots: Box<[Ipv4Slot]>,
    unusual: Option<Box<Unusual>>,
}

/// What few fragments have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unusual {
    /// All endpoints, if not all are of IPv4.
    slots: Box<[Option<Target>]>,
    local_slots: Box<[Option<Target>]>,
    ranges: Box<[Range]>,
    affinity: Option<Box<Affinity>>,
}

/// A hole has port 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ipv4Slot {
    address: Ipv4Addr,
    port: u16,
}

impl Keep for Fragment {
    type Kept = KeptFragment;
    type Patch = Patch;

    fn keep(self) -> KeptFragment {
        let Self { sets, label, slots, local_slots, ranges, affinity } = self;
        let is_ipv4 = slots.iter().flatten().all(|target| target.address.is_ipv4());
        let (of_ipv4, others) = match is_ipv4 {
            true => (slots.iter().map(Ipv4Slot::new).collect(), Box::default()),
            false => (Box::default(), slots),
        };
        let unusual = Unusual { slots: others, local_slots, ranges, affinity };
        let rest = Rest {
            label,
            slots: of_ipv4,
            unusual: (unusual != Unusual::default()).then(|| Box::new(unusual)),
        };
        KeptFragment { sets, rest: (rest != Rest::default()).then(|| Box::new(rest)) }
    }

    fn restore(kept: &KeptFragment) -> Self {
        let plain = Self::member(kept.sets);
        let Some(rest) = kept.rest.as_deref() else { return plain };
        let of_ipv4 = || rest.slots.iter().map(Ipv4Slot::target).collect();
        let plain = Self { label: rest.label.clone(), ..plain };
        match rest.unusual.as_deref() {
            None => Self { slots: of_ipv4(), ..plain },
            Some(unusual) => Self {
                slots: if unusual.slots.is_empty() { of_ipv4() } else { unusual.slots.clone() },
                local_slots: unusual.local_slots.clone(),
                ranges: unusual.ranges.clone(),
                affinity: unusual.affinity.clone(),
                ..plain
            },
        }
    }

    fn is(&self, kept: &KeptFragment) -> bool {
        let Some(rest) = kept.rest.as_deref() else { return *self == Self::member(kept.sets) };
        if rest.unusual.is_some() {
            return *self == Self::restore(kept);
        }
        let Self { sets, label, slots, local_slots, ranges, affinity } = self;
        *sets == kept.sets
            && *label == rest.label
            && local_slots.is_empty()
            && ranges.is_empty()
            && affinity.is_none()
            && slots.iter().copied().eq(rest.slots.iter().map(Ipv4Slot::target))
    }

    fn patch(kept: &mut KeptFragment, patch: Patch) {
        kept.sets = patch.sets;
        let rest = kept.rest();
        match rest.unusual.as_deref_mut() {
            Some(unusual) if !unusual.slots.is_empty() => {
                let slots = patch.slots.into_iter().map(|(slot, target)| (slot, Some(target)));
                edit(&mut unusual.slots, patch.length, slots, None);
            }
            Some(_) | None => {
                let slots = patch.slots.into_iter();
                let slots = slots.map(|(slot, target)| (slot, Ipv4Slot::new(&Some(target))));
                edit(&mut rest.slots, patch.length, slots, Ipv4Slot::HOLE);
            }
        }
    }
}

fn edit<T: Clone>(
    slots: &mut Box<[T]>,
    length: usize,
    edits: impl Iterator<Item = (usize, T)>,
    hole: T,
) {
    if slots.len() != length {
        let mut resized = std::mem::take(slots).into_vec();
        resized.reserve_exact(length.saturating_sub(resized.len()));
        resized.resize(length, hole);
        *slots = resized.into_boxed_slice();
    }
    for (slot, new) in edits {
        if let Some(slot) = slots.get_mut(slot) {
            *slot = new;
        }
    }
}

impl KeptFragment {
    /// The sets it is a member of.
    pub fn sets(&self) -> u64 {
        self.sets
    }

    /// How many slots there are, of all endpoints or of those on this node.
    pub fn len(&self, is_local: bool) -> usize {
        let Some(rest) = self.rest.as_deref() else { return 0 };
        let unusual = rest.unusual.as_deref();
        match is_local {
            true => unusual.map_or(0, |unusual| unusual.local_slots.len()),
            false => rest.slots.len() + unusual.map_or(0, |unusual| unusual.slots.len()),
        }
    }

    /// The endpoint in a slot of all.
    pub fn slot(&self, slot: usize) -> Option<Target> {
        let rest = self.rest.as_deref()?;
        match rest.slots.get(slot) {
            Some(of_ipv4) => of_ipv4.target(),
            None => rest.unusual.as_deref()?.slots.get(slot).copied().flatten(),
        }
    }

    /// The first slot of all that holds an endpoint.
    pub fn position(&self, endpoint: &Target) -> Option<usize> {
        let rest = self.rest.as_deref()?;
        let wanted = Some(*endpoint);
        let of_ipv4 = Ipv4Slot::new(&wanted);
        let position = match endpoint.address {
            IpAddr::V4(_) => rest.slots.iter().position(|slot| *slot == of_ipv4),
            IpAddr::V6(_) => None,
        };
        position.or_else(|| {
            let slots = &rest.unusual.as_deref()?.slots;
            slots.iter().position(|slot| *slot == wanted)
        })
    }

    /// The label, if there is one.
    pub fn label(&self) -> Option<&Arc<str>> {
        self.rest.as_ref()?.label.as_ref()
    }

    /// Adds membership in the set of this bit; the label may come with any of them.
    pub fn add_membership(&mut self, bit: u32, label: Option<&str>) {
        self.sets |= 1 << bit;
        if let Some(label) = label
            && self.label().is_none_or(|known| **known != *label)
        {
            self.rest().label = Some(label.into());
        }
    }

    /// Puts an endpoint into a slot of all, or of those on this node. Elements come in no order,
    /// so there is room to spare until [`KeptFragment::finish`].
    pub fn put(&mut self, is_local: bool, slot: usize, target: Target) {
        let rest = self.rest();
        match target.address {
            IpAddr::V4(address) if !is_local => {
                let port = target.port.get();
                *at(&mut rest.slots, slot, Ipv4Slot::HOLE) = Ipv4Slot { address, port };
            }
            IpAddr::V4(_) | IpAddr::V6(_) => {
                let unusual = rest.unusual();
                let slots = if is_local { &mut unusual.local_slots } else { &mut unusual.slots };
                *at(slots, slot, None) = Some(target);
            }
        }
    }

    /// Takes back what is said by these bits.
    pub fn remove_memberships(&mut self, bits: u64) {
        self.sets &= !bits;
    }

    /// Takes all endpoints out of their slots, or all of those on this node.
    pub fn empty(&mut self, is_local: bool) {
        let Some(rest) = self.rest.as_deref_mut() else { return };
        if !is_local {
            rest.slots = Box::default();
        }
        if let Some(unusual) = rest.unusual.as_deref_mut() {
            let slots = if is_local { &mut unusual.local_slots } else { &mut unusual.slots };
            *slots = Box::default();
        }
    }

    /// Sets the sources that may use the frontend, ascending and disjoint.
    pub fn set_ranges(&mut self, ranges: Box<[Range]>) {
        self.rest().unusual().ranges = ranges;
    }

    /// What session affinity adds.
    pub fn affinity(&self) -> Option<&Affinity> {
        self.rest.as_ref()?.unusual.as_ref()?.affinity.as_deref()
    }

    /// Sets the session of a frontend: of all endpoints, or of those on this node.
    pub fn set_session(&mut self, tree: usize, session: Option<Session>) {
        let affinity = &mut self.rest().unusual().affinity;
        let known = affinity.get_or_insert_with(|| Box::new(Affinity::Frontend([None; 2])));
        if let Affinity::Frontend(sessions) = known.as_mut() {
            sessions[tree] = session;
        }
        affinity.take_if(|known| **known == Affinity::Frontend([None; 2]));
    }

    /// Gives back the room to spare.
    pub fn finish(&mut self) {
        let Some(rest) = self.rest.as_deref_mut() else { return };
        trim(&mut rest.slots, |slot| *slot == Ipv4Slot::HOLE);
        if let Some(unusual) = rest.unusual.as_deref_mut() {
            trim(&mut unusual.slots, Option::is_none);
            trim(&mut unusual.local_slots, Option::is_none);
        }
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }
}

impl Rest {
    fn unusual(&mut self) -> &mut Unusual {
        self.unusual.get_or_insert_default()
    }
}

impl Ipv4Slot {
    const HOLE: Self = Self { address: Ipv4Addr::UNSPECIFIED, port: 0 };

    /// The same slot, which is a hole or of IPv4.
    fn new(slot: &Option<Target>) -> Self {
        match slot {
            Some(Target { address: IpAddr::V4(address), port }) => {
                Self { address: *address, port: port.get() }
            }
            Some(Target { address: IpAddr::V6(_), .. }) | None => Self::HOLE,
        }
    }

    fn target(&self) -> Option<Target> {
        Some(Target { address: self.address.into(), port: NonZeroU16::new(self.port)? })
    }
}

/// The slot at this position, after growing the list to hold it.
fn at<T: Copy>(slots: &mut Box<[T]>, slot: usize, hole: T) -> &mut T {
    if slot >= slots.len() {
        let mut grown = std::mem::take(slots).into_vec();
        let spare = grown.len() / 2;
        grown.reserve_exact(slot + 1 + spare - grown.len());
        grown.resize(slot + 1 + spare, hole);
        *slots = grown.into_boxed_slice();
    }
    &mut slots[slot]
}

fn trim<T>(slots: &mut Box<[T]>, is_hole: impl Fn(&T) -> bool) {
    if slots.last().is_some_and(&is_hole) {
        let mut trimmed = std::mem::take(slots).into_vec();
        while trimmed.last().is_some_and(&is_hole) {
            trimmed.pop();
        }
        *slots = trimmed.into_boxed_slice();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_kept_fragment_takes_16_bytes_its_rest_40_and_an_ipv4_endpoint_6() {
        assert_eq!(size_of::<KeptFragment>(), 16);
        assert_eq!(size_of::<Rest>(), 40);
        assert_eq!(size_of::<Ipv4Slot>(), 6);
    }

    #[test]
    fn what_is_read_twice_can_be_taken_back() {
        let target = |last: u8| Target { address: [10, 0, 0, last].into(), port: NonZeroU16::MIN };
        let mut kept = KeptFragment::default();
        kept.add_membership(0, Some("default/web"));
        kept.put(false, 1, target(1));
        kept.put(true, 0, target(2));
        kept.set_session(1, Some(Session::new(Session::FIRST)));
        let whole = Fragment::restore(&kept);

        kept.add_membership(5, None);
        kept.remove_memberships(1 << 5);
        kept.set_session(0, Some(Session::new(Session::LAST)));
        kept.set_session(0, None);
        kept.empty(false);
        kept.put(false, 1, target(1));
        kept.empty(true);
        kept.put(true, 0, target(2));
        assert_eq!(Fragment::restore(&kept), whole);

        kept.set_session(1, None);
        kept.empty(false);
        kept.empty(true);
        let label = Some("default/web".into());
        assert_eq!(Fragment::restore(&kept), Fragment { label, ..Fragment::member(1) });
    }

    fn any_slot() -> impl Strategy<Value = Option<Target>> {
        let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
        let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
        let address = prop_oneof![9 => v4, 1 => v6];
        let target = (address, 1u16..)
            .prop_map(|(address, port)| Target { address, port: NonZeroU16::new(port).unwrap() });
        proptest::option::weighted(0.8, target)
    }

    prop_compose! {
        fn any_fragment()(
            sets in 0u64..4,
            label in proptest::option::of("[a-z]{1,3}"),
            slots in proptest::collection::vec(any_slot(), 0..6),
            local_slots in proptest::collection::vec(any_slot(), 0..3),
            range in proptest::option::of(any::<[u8; 4]>()),
            session in proptest::option::weighted(0.2, Session::FIRST..9),
        ) -> Fragment {
            let ranges = range.map(|first| Range::of_network(IpAddr::from(first).into()));
            Fragment {
                sets,
                label: label.map(Into::into),
                slots: slots.into(),
                local_slots: local_slots.into(),
                ranges: ranges.into_iter().collect(),
                affinity: session.map(|number| {
                    Box::new(Affinity::Frontend([Some(Session::new(number)), None]))
                }),
            }
        }
    }

    proptest! {
        #[test]
        fn a_fragment_is_restored_as_it_was(one in any_fragment(), other in any_fragment()) {
            let kept = one.clone().keep();
            prop_assert_eq!(&Fragment::restore(&kept), &one);
            prop_assert!(one.is(&kept));
            prop_assert_eq!(other.is(&kept), one == other);
        }

        #[test]
        fn elements_in_any_order_make_the_fragment(
            targets in proptest::collection::vec(any::<[u8; 4]>(), 1..40),
            order in any::<proptest::sample::Index>(),
            is_v6: bool,
        ) {
            let address = |octets: [u8; 4]| match is_v6 {
                true => std::net::Ipv4Addr::from(octets).to_ipv6_mapped().into(),
                false => IpAddr::from(octets),
            };
            let target = |octets| Target { address: address(octets), port: NonZeroU16::MIN };
            let mut kept = KeptFragment::default();
            kept.add_membership(0, Some("default/web"));
            kept.add_membership(3, None);
            let first = order.index(targets.len());
            for slot in (first..targets.len()).chain(0..first).rev() {
                kept.put(false, slot, target(targets[slot]));
            }
            kept.finish();
            let slots = targets.iter().map(|octets| Some(target(*octets))).collect();
            let label = Some("default/web".into());
            prop_assert_eq!(
                kept,
                Fragment { label, slots, ..Fragment::member(0b1001) }.keep()
            );
        }
    }
}
