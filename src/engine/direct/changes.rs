//! Changes of elements, in the order in which packets may see them.

use std::sync::Arc;

use nft::{Element, ElementList, Operation, Set, TableRef};

use super::ruleset::{self, DirectElement, DirectKey, DirectSet, NodeListId, NodeNumber};
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
pub(super) struct DirectChange {
    pub(super) key: DirectKey,
    pub(super) old: Option<DirectElement>,
    pub(super) new: Option<DirectElement>,
}

impl DirectChange {
    /// Returns the changes between the slots of one list.
    pub(super) fn of_slots<'a>(
        list: NodeListId,
        old: &'a [Option<NodeNumber>],
        new: &'a [Option<NodeNumber>],
    ) -> impl Iterator<Item = Self> + 'a {
        (0..).take(old.len().max(new.len())).map(move |slot: u32| {
            let at = |slots: &[Option<NodeNumber>]| {
                let node = slots.get(slot as usize).copied().flatten();
                node.map(|node| DirectElement::Slot(list, slot, node))
            };
            Self { key: DirectKey::Slot(list, slot), old: at(old), new: at(new) }
        })
    }

    /// Returns the stage to which the change belongs.
    pub(super) fn stage(&self) -> Stage {
        match self.key {
            DirectKey::Frontend(_) | DirectKey::ErrorFrontend(_) => Stage::Switch,
            DirectKey::NodeAddress(..) => Stage::Make,
            DirectKey::Address(_)
            | DirectKey::HardwareAddress(_)
            | DirectKey::NodeDevice(_)
            | DirectKey::Slot(..) => {
                if self.new.is_some() {
                    Stage::Make
                } else {
                    Stage::Break
                }
            }
        }
    }
}

/// Returns the operations of changes, deletions first, so that an element can be replaced.
pub(super) fn operations(changes: &[DirectChange], base: &Base) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut add = |of: fn(&DirectChange) -> Option<DirectElement>,
                   encode: fn(&DirectElement) -> Element,
                   operation: fn(TableRef, Arc<Set>, ElementList) -> Operation| {
        for (id, set) in DirectSet::ALL.into_iter().zip(&base.sets) {
            let elements = changes.iter().filter_map(of).filter(|it| it.set() == id);
            let elements: ElementList = elements.map(|it| encode(&it)).collect();
            if !elements.is_empty() {
                operations.push(operation(ruleset::table(), Arc::clone(set), elements));
            }
        }
    };
    add(|it| it.old, DirectElement::to_key, Operation::DeleteElements);
    add(|it| it.new, DirectElement::to_element, Operation::AddElements);
    operations
}
