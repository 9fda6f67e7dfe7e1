//! One affinity session as it was found in the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::desired::affinity::{Affinity, EndpointId};
use crate::desired::layout::Role;
use crate::desired::{Fragment, Key, KeyKind, Layout, elements};
use crate::model::Target;
use crate::nft::{Element, Set};

/// Elements of one set.
pub(super) type SetElements = (Arc<Set>, Vec<Element>);

/// The elements of a session, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct FoundSession {
    /// Slots with the numbers of their endpoints.
    pub(super) slots: Vec<(usize, EndpointId)>,
    /// Endpoints by their numbers.
    pub(super) endpoints: BTreeMap<EndpointId, Target>,
    /// Seconds that clients are remembered, with the label; more than one only if others wrote
    /// into the table.
    pub(super) timeouts: Vec<(u32, Option<Arc<str>>)>,
}

impl FoundSession {
    /// Adds the session to what else was found of its key. Returns elements to delete: slots of
    /// no endpoint, endpoints without slot, and every timeout but one.
    pub(super) fn into_fragment(
        mut self,
        layout: &Layout,
        key: &Key,
        fragment: &mut Fragment,
    ) -> Vec<SetElements> {
        let Key::Session { protocol, session, .. } = *key else { return Vec::new() };
        let (slots, holes): (Vec<_>, Vec<_>) =
            self.slots.into_iter().partition(|(_, id)| self.endpoints.contains_key(id));
        let length = slots.iter().map(|(slot, _)| slot + 1).max().unwrap_or_default();
        let (mut targets, mut ids) = (vec![None; length], vec![0; length]);
        for (slot, id) in slots {
            (targets[slot], ids[slot]) = (self.endpoints.get(&id).copied(), id);
        }
        let timeout = (!self.timeouts.is_empty()).then(|| self.timeouts.swap_remove(0));
        let (timeout, label) = timeout.unwrap_or_default();

        let mut strays = Vec::new();
        let mut stray = |role, elements: Vec<Element>| {
            let position = layout.position(KeyKind::Session, role);
            if let Some(position) = position.filter(|_| !elements.is_empty()) {
                strays.push((layout.set_at(position), elements));
            }
        };
        let slot = |(slot, _): (usize, EndpointId)| {
            let number = u32::try_from(slot).unwrap_or(u32::MAX);
            Element::new(elements::value_of(key).integer(number))
        };
        stray(Role::Slot(0), holes.into_iter().map(slot).collect());
        let used: BTreeSet<_> = ids.iter().collect();
        let unused = self.endpoints.keys().filter(|id| !used.contains(id));
        let endpoint = |id: &EndpointId| {
            Element::new(elements::value_of_session_endpoint(protocol, session, *id))
        };
        stray(Role::SessionEndpoint, unused.map(endpoint).collect());
        for (seconds, _) in self.timeouts {
            stray(Role::Timeout(seconds), vec![Element::new(elements::value_of(key))]);
        }
        (fragment.slots, fragment.label) = (targets.into(), label);
        fragment.affinity = Some(Box::new(Affinity::Session { timeout, ids: ids.into() }));
        strays
    }
}
