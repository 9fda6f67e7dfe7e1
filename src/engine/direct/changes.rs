//! Changes of elements, in the order in which packets may see them.

use std::sync::Arc;

use nft::{Element, Operation, Set, TableRef};

use super::ruleset::{self, DirectElement, DirectSet, NodeListId, NodeNumber};
use crate::ruleset::base::Base;

/// A part of a change that is committed before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// What frontends lead to is added or replaced. Nodes that cannot be reached go at once.
    Make,
    /// Frontends.
    Switch,
    /// What no frontend leads to any more is deleted.
    Break,
}

impl Stage {
    pub(super) const ALL: [Self; 3] = [Self::Make, Self::Switch, Self::Break];
}

/// A change of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectChange {
    Add(DirectElement),
    /// Of the same key.
    Replace(DirectElement, DirectElement),
    Delete(DirectElement),
}

impl DirectChange {
    /// Returns the change between the elements of one key.
    pub(super) fn between(old: Option<DirectElement>, new: Option<DirectElement>) -> Option<Self> {
        match (old, new) {
            (Some(old), Some(new)) if old == new => None,
            (Some(old), Some(new)) => Some(Self::Replace(old, new)),
            (Some(old), None) => Some(Self::Delete(old)),
            (None, Some(new)) => Some(Self::Add(new)),
            (None, None) => None,
        }
    }

    /// Returns the changes between the slots of one list.
    pub(super) fn of_slots<'a>(
        list: NodeListId,
        old: &'a [Option<NodeNumber>],
        new: &'a [Option<NodeNumber>],
    ) -> impl Iterator<Item = Self> + 'a {
        (0..).take(old.len().max(new.len())).filter_map(move |slot: u32| {
            let at = |slots: &[Option<NodeNumber>]| {
                let node = slots.get(slot as usize).copied().flatten();
                node.map(|node| DirectElement::Slot(list, slot, node))
            };
            Self::between(at(old), at(new))
        })
    }

    /// Returns the stage to which the change belongs.
    pub(super) fn stage(&self) -> Stage {
        use DirectElement::{
            Address, ErrorFrontend, Frontend, HardwareAddress, NodeAddress, NodeDevice, Slot,
        };
        match self {
            Self::Add(Frontend(..) | ErrorFrontend(..))
            | Self::Replace(Frontend(..) | ErrorFrontend(..), _)
            | Self::Delete(Frontend(..) | ErrorFrontend(..)) => Stage::Switch,
            Self::Delete(Address(_) | HardwareAddress(_) | NodeDevice(..) | Slot(..)) => {
                Stage::Break
            }
            Self::Add(_) | Self::Replace(..) | Self::Delete(NodeAddress(..)) => Stage::Make,
        }
    }

    /// Returns the element after the change, or the deleted one.
    pub(super) fn element(&self) -> &DirectElement {
        match self {
            Self::Add(element) | Self::Replace(_, element) | Self::Delete(element) => element,
        }
    }

    fn deleted(&self) -> Option<&DirectElement> {
        match self {
            Self::Delete(old) | Self::Replace(old, _) => Some(old),
            Self::Add(_) => None,
        }
    }

    fn added(&self) -> Option<&DirectElement> {
        match self {
            Self::Add(new) | Self::Replace(_, new) => Some(new),
            Self::Delete(_) => None,
        }
    }
}

/// Returns the operations of changes, deletions first, so that an element can be replaced.
pub(super) fn operations(changes: &[DirectChange], base: &Base) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut add = |of: fn(&DirectChange) -> Option<&DirectElement>,
                   encode: fn(&DirectElement) -> Element,
                   operation: fn(TableRef, Arc<Set>, Vec<Element>) -> Operation| {
        for (id, set) in DirectSet::ALL.into_iter().zip(&base.sets) {
            let elements = changes.iter().filter_map(of).filter(|it| it.set() == id);
            let elements: Vec<_> = elements.map(encode).collect();
            if !elements.is_empty() {
                operations.push(operation(ruleset::table(), Arc::clone(set), elements));
            }
        }
    };
    add(DirectChange::deleted, DirectElement::to_key, Operation::DeleteElements);
    add(DirectChange::added, DirectElement::to_element, Operation::AddElements);
    operations
}
