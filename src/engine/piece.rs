//! Element changes of both tables by set, and their operations in an order that the kernel accepts.

use std::sync::Arc;

use ahash::HashMap;
use nft::{Element, ElementList, Family, Operation, Value};
use smallvec::SmallVec;

use crate::ruleset::{self, Layouts, SetId, TableElement};

/// Element changes of both tables, until it is full: the part of a large change that one step makes.
#[derive(Debug)]
pub struct Piece {
    /// Changes by table and set, unsorted: a change touches few sets.
    sets: SmallVec<[((Family, SetId), SetChanges); 4]>,
    elements: usize,
    limits: PieceLimits,
}

/// Limits of a piece, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceLimits {
    /// Soft limit: above it, no further service is started.
    pub budget: usize,
    /// Hard limit: only the first addition to an empty piece may exceed it.
    pub limit: usize,
}

/// The piece is full: further changes belong to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Upper estimate of an element's average bytes, comment or second key included.
pub(crate) const MEAN_ELEMENT_BYTES: usize = 112;

/// Estimates the bytes of the elements of `operations`.
pub fn bytes_of(operations: &[Operation]) -> usize {
    let elements = operations.iter().filter_map(Operation::elements);
    elements.map(<[Element]>::len).sum::<usize>() * MEAN_ELEMENT_BYTES
}

/// Changes of one set or map.
#[derive(Debug, Default)]
struct SetChanges {
    deleted: KeyedElements,
    added: KeyedElements,
}

/// Elements of different keys: none of our sets has intervals.
#[derive(Debug, Default)]
struct KeyedElements {
    list: ElementList,
    /// Built when many elements are searched.
    index: Option<Box<Index>>,
}

/// Positions of the first `length` elements of a list.
#[derive(Debug, Default)]
struct Index {
    positions: HashMap<Value, usize>,
    length: usize,
}

/// Up to this many elements are searched linearly.
const FEW: usize = 16;

impl Piece {
    /// Returns an empty piece.
    pub fn new(limits: PieceLimits) -> Self {
        Self { sets: SmallVec::new(), elements: 0, limits }
    }

    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Estimates the bytes of the operations.
    pub fn bytes(&self) -> usize {
        self.elements * MEAN_ELEMENT_BYTES
    }

    /// Returns whether another service may be started.
    pub fn has_room(&self) -> bool {
        self.bytes() < self.limits.budget
    }

    /// Checks that this many elements fit the budget. Use it for elements that can wait for the
    /// next piece. An empty piece accepts any number.
    ///
    /// # Errors
    /// The elements exceed the budget.
    pub fn fits_budget(&self, elements: usize) -> Result<(), Full> {
        self.has_room_for(elements, self.limits.budget)
    }

    /// Checks that this many elements of a started service may be added. An empty piece accepts any
    /// number.
    ///
    /// # Errors
    /// The elements exceed the limit.
    pub fn fits_limit(&self, elements: usize) -> Result<(), Full> {
        self.has_room_for(elements, self.limits.limit)
    }

    fn has_room_for(&self, elements: usize, bytes: usize) -> Result<(), Full> {
        let fits = self.is_empty() || self.bytes() + elements * MEAN_ELEMENT_BYTES <= bytes;
        fits.then_some(()).ok_or(Full)
    }

    /// Adds an element. One without data that this piece deletes stays instead, because a packet
    /// may miss an element that is deleted and added again (before Linux 6.17).
    pub fn add(&mut self, family: Family, element: &TableElement<'_>) {
        let changes = self.changes(family, element.set());
        let element = element.to_element();
        if element.data.is_none() && changes.deleted.take(&element) {
            self.elements -= 1;
        } else {
            changes.added.list.push(element);
            self.elements += 1;
        }
    }

    /// Deletes an element, which this piece may have added.
    pub fn delete(&mut self, family: Family, element: &TableElement<'_>) {
        let changes = self.changes(family, element.set());
        let element = element.to_key();
        if changes.added.take(&element) {
            self.elements -= 1;
        } else {
            changes.deleted.list.push(element);
            self.elements += 1;
        }
    }

    /// Deletes `old` and adds `new`, if given; if both are, they have the same key.
    pub fn replace(
        &mut self,
        family: Family,
        old: Option<TableElement<'_>>,
        new: Option<TableElement<'_>>,
    ) {
        if let Some(old) = old {
            self.delete(family, &old);
        }
        if let Some(new) = new {
            self.add(family, &new);
        }
    }

    /// Returns the operations, deletions before additions, so that an element can be replaced.
    pub fn into_operations(mut self, layouts: &Layouts) -> Vec<Operation> {
        self.sets.sort_unstable_by_key(|(place, _)| *place);
        let mut operations = Vec::with_capacity(2 * self.sets.len());
        let place = |(family, set): (Family, SetId)| {
            (ruleset::table(family), Arc::clone(layouts.of(family).get(set)))
        };
        for (at, changes) in &mut self.sets {
            let deleted = std::mem::take(&mut changes.deleted.list);
            if !deleted.is_empty() {
                let (table, set) = place(*at);
                operations.push(Operation::DeleteElements(table, set, deleted));
            }
        }
        for (at, changes) in self.sets {
            if !changes.added.list.is_empty() {
                let (table, set) = place(at);
                operations.push(Operation::AddElements(table, set, changes.added.list));
            }
        }
        operations
    }

    fn changes(&mut self, family: Family, set: SetId) -> &mut SetChanges {
        let known = self.sets.iter().position(|(place, _)| *place == (family, set));
        let position = known.unwrap_or_else(|| {
            self.sets.push(((family, set), SetChanges::default()));
            self.sets.len() - 1
        });
        &mut self.sets[position].1
    }
}

impl KeyedElements {
    /// Removes the element with this key. Returns whether there was one.
    fn take(&mut self, element: &Element) -> bool {
        let Some(position) = self.position(&element.key) else { return false };
        self.list.swap_remove(position);
        if let Some(index) = &mut self.index {
            index.positions.remove(&element.key);
            index.length = index.length.min(self.list.len());
            // `swap_remove` moved the last element here.
            if position < index.length {
                index.positions.insert(self.list[position].key.clone(), position);
            }
        }
        true
    }

    fn position(&mut self, key: &Value) -> Option<usize> {
        if self.list.len() <= FEW {
            return self.list.iter().position(|element| element.key == *key);
        }
        let index = self.index.get_or_insert_default();
        let new = self.list.iter().enumerate().skip(index.length);
        index.positions.extend(new.map(|(position, element)| (element.key.clone(), position)));
        index.length = self.list.len();
        index.positions.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ruleset::Member;

    const LIMITS: PieceLimits = PieceLimits { budget: usize::MAX, limit: usize::MAX };

    fn cluster_ip(number: u8) -> TableElement<'static> {
        TableElement::Member(Member::ClusterIp([10, 96, 0, number].into()))
    }

    fn texts(piece: Piece) -> Vec<String> {
        piece.into_operations(&Layouts::default()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn deletions_come_before_additions() {
        let mut piece = Piece::new(LIMITS);
        piece.add(Family::Ip, &cluster_ip(1));
        piece.delete(Family::Ip, &cluster_ip(2));
        let expected = [
            "delete element ip kube-proxy cluster-ips { 10.96.0.2 }",
            "add element ip kube-proxy cluster-ips { 10.96.0.1 }",
        ];
        assert_eq!(texts(piece), expected);
    }

    #[test]
    fn a_large_change_stops_at_the_budget_and_a_started_service_at_the_limit() {
        let mut piece =
            Piece::new(PieceLimits { budget: MEAN_ELEMENT_BYTES, limit: 2 * MEAN_ELEMENT_BYTES });
        assert_eq!(
            [piece.fits_budget(9), piece.fits_limit(9)],
            [Ok(()); 2],
            "the first elements always fit"
        );
        piece.add(Family::Ip, &cluster_ip(1));
        assert!(!piece.has_room());
        assert_eq!(
            [piece.fits_budget(1), piece.fits_limit(1), piece.fits_limit(2)],
            [Err(Full), Ok(()), Err(Full)]
        );
    }

    proptest! {
        #[test]
        fn an_element_that_comes_and_goes_again_is_not_sent(
            installed in proptest::array::uniform32(any::<bool>()),
            changes in proptest::collection::vec((0u8..32, any::<bool>()), 0..200)
        ) {
            let mut piece = Piece::new(LIMITS);
            let mut present = installed;
            for (number, is_desired) in changes {
                match (std::mem::replace(&mut present[usize::from(number)], is_desired), is_desired) {
                    (false, true) => piece.add(Family::Ip, &cluster_ip(number)),
                    (true, false) => piece.delete(Family::Ip, &cluster_ip(number)),
                    (false, false) | (true, true) => {}
                }
            }
            let count = |was, is| {
                installed.iter().zip(&present).filter(|pair| *pair == (&was, &is)).count()
            };
            let (added, deleted) = (count(false, true), count(true, false));
            prop_assert_eq!(piece.elements, added + deleted);
            let sent = piece.sets.iter().map(|(_, set)| (set.added.list.len(), set.deleted.list.len()));
            prop_assert_eq!(sent.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), (added, deleted));
        }
    }
}
