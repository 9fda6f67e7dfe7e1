//! Sets: whether they are equal, and the elements in which they differ.

use std::cmp::Ordering;

use super::{Replaced, Script};
use crate::abi::*;
use crate::any::{AnyElement, AnySet, SetContents};
use crate::element::write_list;
use crate::message_kind::MessageKind;
use crate::netlink::attr::TooLong;

impl AnySet {
    /// Returns whether the sets are equal but for names, counts of elements and state.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.comparable() == other.comparable()
    }

    fn comparable(&self) -> Self {
        let mut set = self.clone();
        set.name.clear();
        set.expressions = crate::expression::normal_form(&set.expressions);
        if set.data_type == Self::VERDICT {
            set.data_length = 0;
        }
        set
    }
}

/// An element, or the two elements of a range in a set of single-field ranges.
#[derive(Clone, Copy)]
struct Unit<'a> {
    /// The first bytes of the key as a number. Units with different numbers have their order, and
    /// most comparisons need no more.
    leading: u64,
    element: &'a AnyElement,
    end: Option<&'a AnyElement>,
}

/// What identifies a unit, in the order of units: key, last key, and whether it is no end without a
/// start.
type UnitKey<'a> = (&'a [u8], Option<&'a [u8]>, bool);

/// Most bytes of a key in [`Unit::leading`].
const LEADING: usize = size_of::<u64>();

impl<'a> Unit<'a> {
    fn of(element: &'a AnyElement) -> Self {
        let mut bytes = [0; LEADING];
        bytes.iter_mut().zip(&*element.key).for_each(|(byte, of_key)| *byte = *of_key);
        Self { leading: u64::from_be_bytes(bytes), element, end: None }
    }

    fn order(&self, other: &Self) -> Ordering {
        self.leading.cmp(&other.leading).then_with(|| self.key().cmp(&other.key()))
    }

    fn key(&self) -> UnitKey<'a> {
        (&self.element.key, self.element.details().key_end.as_deref(), !self.element.is_end)
    }

    fn is_like(&self, other: &Self) -> bool {
        let (a, b) = (self.element, other.element);
        let (end, other_end) = (self.end.map(|it| &it.key), other.end.map(|it| &it.key));
        end == other_end
            && a.data == b.data
            && (a.details.is_none() && b.details.is_none() || a.details().is_like(b.details()))
    }

    fn elements(self) -> impl Iterator<Item = &'a AnyElement> {
        std::iter::once(self.element).chain(self.end)
    }
}

/// The units of a set in the order of their keys.
struct Units<'a> {
    list: Vec<Unit<'a>>,
    /// Each is a key in [`Unit::leading`] and nothing else, so equal numbers are equal units. The
    /// elements, which are anywhere in memory, need not be read then.
    are_keys: bool,
}

impl<'a> Units<'a> {
    fn of(contents: &'a SetContents) -> Self {
        let length = contents.set.key_length;
        let mut are_keys = length <= LEADING;
        let unit = |element: &'a AnyElement| {
            let is_key = element.key.len() == length && !element.is_end;
            are_keys &= is_key && element.data.is_none() && element.details.is_none();
            Unit::of(element)
        };
        let mut list: Vec<_> = contents.elements.iter().map(unit).collect();
        // The addresses have the order of the elements, so that equal ones keep theirs.
        list.sort_unstable_by_key(|unit| (unit.leading, std::ptr::from_ref(unit.element)));
        for equal in list.chunk_by_mut(|a, b| a.leading == b.leading).filter(|it| it.len() > 1) {
            equal.sort_by(Unit::order);
        }
        // The kernel has an element once, however often it is added.
        list.dedup_by(|next, unit| next.order(unit).is_eq() && next.is_like(unit));
        if contents.set.is_interval() {
            // The end of a range comes before the start of the next one.
            list.dedup_by(|next, start| {
                let is_range = next.element.is_end
                    && start.end.is_none()
                    && !start.element.is_end
                    && !start.element.is_catch_all();
                if is_range {
                    start.end = Some(next.element);
                }
                is_range
            });
        }
        Self { list, are_keys }
    }
}

/// The elements in which two sets differ.
#[derive(Default)]
pub(super) struct Elements<'a> {
    pub(super) added: Vec<&'a AnyElement>,
    pub(super) deleted: Vec<&'a AnyElement>,
    /// No element stays.
    pub(super) deletes_all: bool,
}

impl<'a> Elements<'a> {
    /// Returns the elements of a new set.
    pub(super) fn all(contents: &'a SetContents) -> Self {
        let added = Units::of(contents).list.into_iter().flat_map(Unit::elements).collect();
        Self { added, ..Self::default() }
    }

    /// Compares the elements of two sets of one definition.
    pub(super) fn between(
        installed: &'a SetContents,
        desired: &'a SetContents,
        replaced: &Replaced<'_>,
    ) -> Self {
        let (from, to) = (Units::of(installed), Units::of(desired));
        let are_keys = from.are_keys && to.are_keys;
        let (kind, is_dynamic) = (desired.set.object_type, desired.set.is_dynamic());
        let mut elements = Self { deletes_all: from.list.len() > 1, ..Self::default() };
        let (mut from, mut to) = (from.list.into_iter().peekable(), to.list.into_iter().peekable());
        // Both are in the order of their keys.
        loop {
            let order = match (from.peek(), to.peek()) {
                (Some(before), Some(after)) if are_keys => before.leading.cmp(&after.leading),
                (Some(before), Some(after)) => before.order(after),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return elements,
            };
            let before = from.next_if(|_| order.is_le());
            let after = to.next_if(|_| order.is_ge());
            let stays = match (&before, &after) {
                (Some(before), Some(after)) => {
                    is_dynamic
                        || are_keys
                        || before.is_like(after)
                            && !replaced.is_used_by_element(after.element, kind)
                }
                (Some(_), None) => is_dynamic,
                (None, _) => false,
            };
            if stays {
                elements.deletes_all = false;
                continue;
            }
            elements.deleted.extend(before.into_iter().flat_map(Unit::elements));
            elements.added.extend(after.into_iter().flat_map(Unit::elements));
        }
    }
}

impl Script<'_> {
    /// Adds the messages that add elements to a set.
    pub(super) fn add_elements(
        &mut self,
        set: &str,
        elements: &[&AnyElement],
    ) -> Result<(), TooLong> {
        self.elements(MessageKind::NewSetElem, set, elements)
    }

    /// Adds the messages that delete elements of a set, one message if none stays.
    pub(super) fn delete_elements(
        &mut self,
        set: &str,
        elements: &Elements<'_>,
    ) -> Result<(), TooLong> {
        if elements.deletes_all {
            return self.message(MessageKind::DelSetElem, |w| w.str(NFTA_SET_ELEM_LIST_SET, set));
        }
        self.elements(MessageKind::DelSetElem, set, &elements.deleted)
    }

    fn elements(
        &mut self,
        kind: MessageKind,
        set: &str,
        elements: &[&AnyElement],
    ) -> Result<(), TooLong> {
        let mut rest = elements;
        while !rest.is_empty() {
            let mut written = 0;
            self.message(kind, |w| {
                w.str(NFTA_SET_ELEM_LIST_SET, set);
                written = write_list(w, rest, |element, w| {
                    if kind == MessageKind::DelSetElem {
                        element.encode_key(w);
                    } else {
                        element.encode(w);
                    }
                });
            })?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::ElementDetails;
    use crate::expression::Data;

    fn set(flags: u32, elements: Vec<AnyElement>) -> SetContents {
        let set = AnySet { flags, ..AnySet::of_types("s", "inet_service").unwrap() };
        SetContents { set, elements }
    }

    fn ports(ranges: &[(u16, u16)]) -> SetContents {
        let range = |&(first, last): &(u16, u16)| {
            AnyElement::range(first.to_be_bytes(), &last.to_be_bytes())
        };
        set(AnySet::INTERVAL, ranges.iter().flat_map(range).collect())
    }

    fn numbers(elements: &[&AnyElement]) -> Vec<(u16, bool)> {
        let number = |element: &AnyElement| u16::from_be_bytes([element.key[0], element.key[1]]);
        elements.iter().map(|element| (number(element), element.is_end)).collect()
    }

    #[test]
    fn a_range_that_changes_its_end_is_deleted_and_added() {
        let (from, to) = (ports(&[(1, 9), (20, 29)]), ports(&[(1, 9), (20, 24), (30, 65_535)]));
        let elements = Elements::between(&from, &to, &Replaced::default());
        assert_eq!(numbers(&elements.deleted), [(20, false), (30, true)]);
        assert_eq!(numbers(&elements.added), [(20, false), (25, true), (30, false)]);
        assert!(!elements.deletes_all);
    }

    #[test]
    fn ranges_that_touch_are_two() {
        let (from, to) = (ports(&[(10, 19), (20, 29)]), ports(&[(20, 29)]));
        let elements = Elements::between(&from, &to, &Replaced::default());
        assert_eq!(numbers(&elements.deleted), [(10, false), (20, true)]);
        assert!(elements.added.is_empty());
    }

    #[test]
    fn an_element_that_is_wanted_twice_is_one() {
        let element = |key: u16| AnyElement::new(key.to_be_bytes());
        let twice = set(0, vec![element(1), element(2), element(1)]);
        let once = set(0, vec![element(1), element(2)]);
        assert_eq!(numbers(&Elements::all(&twice).added), [(1, false), (2, false)]);
        let (range, ranges) = (ports(&[(1, 9), (10, 11)]), ports(&[(1, 9), (10, 11), (1, 9)]));
        let pairs = [(&once, &twice), (&twice, &once), (&range, &ranges), (&ranges, &range)];
        for (from, to) in pairs {
            let elements = Elements::between(from, to, &Replaced::default());
            assert!(elements.added.is_empty() && elements.deleted.is_empty());
        }
    }

    #[test]
    fn elements_differ_in_all_that_they_have() {
        let set = |key_length: usize, elements: &[&AnyElement]| {
            let set = AnySet { key_length, ..AnySet::default() };
            SetContents { set, elements: elements.iter().copied().cloned().collect() }
        };
        let key = AnyElement::new([0, 0]);
        let data = |byte: u8| Some(Data::Value([byte].into()));
        let [one, two] = [1, 2].map(|byte| AnyElement { data: data(byte), ..key.clone() });
        let comment = Some(Box::new(ElementDetails {
            userdata: Some([0, 1, 9].into()),
            ..Default::default()
        }));
        let commented = AnyElement { details: comment, ..key.clone() };
        let [long, longer] = [8, 9].map(|byte| AnyElement::new([1, 2, 3, 4, 5, 6, 7, 8, byte]));
        let all = AnyElement::default();
        let cases = [
            (2, &key, &one),
            (2, &one, &two),
            (2, &key, &commented),
            (9, &long, &longer),
            (2, &key, &all),
        ];
        for (length, from, to) in cases {
            let (from, to) = (set(length, &[from]), set(length, &[to]));
            let elements = Elements::between(&from, &to, &Replaced::default());
            assert_eq!((elements.deleted.len(), elements.added.len()), (1, 1), "{from:?} {to:?}");
            assert!(Elements::between(&from, &from, &Replaced::default()).added.is_empty());
        }
    }

    #[test]
    fn elements_of_packets_stay() {
        let element = |key: u16| AnyElement::new(key.to_be_bytes());
        let from = set(AnySet::DYNAMIC, vec![element(1), element(2)]);
        let to = set(AnySet::DYNAMIC, vec![element(2), element(3)]);
        let elements = Elements::between(&from, &to, &Replaced::default());
        assert!(elements.deleted.is_empty() && !elements.deletes_all);
        assert_eq!(numbers(&elements.added), [(3, false)]);
    }
}
