//! Which number each session has, and which its endpoints have.
//!
//! Numbers go round: one that was given back is taken again as late as possible, so that what
//! clients remember of the former holder has expired by then.

use ahash::{HashMap, HashSet};

use super::Fragment;
use super::affinity::{EndpointId, LAST_ENDPOINT, Session};
use super::slots::Slots;
use crate::model::{ObjectName, Protocol, Target};
use crate::nft::Family;

/// Numbers that are left free after those that were found in the kernel: an earlier run may have
/// given back higher ones.
const DISTANCE: u32 = 1_024;

/// A list of endpoints of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum List {
    /// All that the port may use.
    Cluster,
    /// Those on this node.
    Local,
}

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) service: ObjectName,
    pub(super) protocol: Protocol,
    /// The service's port.
    pub(super) port: u16,
    pub(super) list: List,
}

/// The sessions of both tables, which have numbers of their own.
#[derive(Debug, Default)]
pub(super) struct SessionTables([Sessions; 2]);

impl SessionTables {
    /// The sessions of one table.
    pub(super) fn of(&mut self, family: Family) -> &mut Sessions {
        let [v4, v6] = &mut self.0;
        match family {
            Family::Ip => v4,
            Family::Ip6 => v6,
        }
    }

    /// Everybody has asked: sessions that were found and are nobody's are about to go.
    pub(super) fn sweep(&mut self) {
        self.0.iter_mut().for_each(|sessions| sessions.found = HashSet::default());
    }
}

/// The sessions that services ask for in one table.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_owner: HashMap<Owner, Session>,
    entries: HashMap<Session, Entry>,
    /// Sessions that were found in the kernel, until everybody has asked for theirs.
    found: HashSet<Session>,
    last: u32,
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    last_endpoint: u32,
    /// Numbers of the endpoints that it has.
    ids: HashMap<Target, EndpointId>,
}

impl Sessions {
    /// Notes the sessions that the kernel holds.
    pub(super) fn observe(&mut self, found: impl Iterator<Item = Session>) {
        self.found = found.collect();
        let highest = self.found.iter().map(|session| session.number()).max();
        self.last = highest.map_or(self.last, |highest| self.last.max(highest + DISTANCE));
    }

    /// The session of `owner`: the one it has, or the one that its frontends were found with, or a
    /// new one. `None` if all numbers are taken.
    pub(super) fn session(
        &mut self,
        owner: Owner,
        found: impl Iterator<Item = Session>,
    ) -> Option<Session> {
        if let Some(session) = self.by_owner.get(&owner) {
            return Some(*session);
        }
        let mut found = found.filter(|session| !self.entries.contains_key(session));
        let found = found.next();
        let session = found.or_else(|| self.free())?;
        let entry = Entry { owner: owner.clone(), last_endpoint: 0, ids: HashMap::default() };
        self.entries.insert(session, entry);
        self.by_owner.insert(owner, session);
        Some(session)
    }

    fn free(&mut self) -> Option<Session> {
        const COUNT: u32 = Session::LAST - Session::FIRST + 1;
        let start = (self.last + 1).max(Session::FIRST) - Session::FIRST;
        let mut numbers = (0..COUNT).map(|i| Session::FIRST + (start + i) % COUNT);
        let is_free = |number: &u32| {
            let session = Session::new(*number);
            !self.entries.contains_key(&session) && !self.found.contains(&session)
        };
        let number = numbers.find(is_free)?;
        self.last = number;
        Some(Session::new(number))
    }

    /// The number of the endpoint in each slot: what `installed` or the last rendering gave it, or a
    /// new one. There are more numbers than endpoints that the kernel has, that were rendered last and
    /// that are new, so one is always free.
    pub(super) fn endpoint_ids(
        &mut self,
        session: Session,
        installed: Option<&Fragment>,
        slots: &Slots,
    ) -> Box<[EndpointId]> {
        let Some(entry) = self.entries.get_mut(&session) else { return Box::default() };
        let mut known = std::mem::take(&mut entry.ids);
        known.extend(
            installed
                .into_iter()
                .flat_map(|fragment| fragment.session_slots().flatten())
                .map(|(id, target)| (target, id)),
        );
        let mut taken: HashSet<EndpointId> = known.values().copied().collect();
        if entry.last_endpoint == 0 {
            let highest = taken.iter().copied().max();
            entry.last_endpoint = highest.map_or(0, |highest| u32::from(highest) + DISTANCE);
        }
        let mut next = || loop {
            entry.last_endpoint = entry.last_endpoint % u32::from(LAST_ENDPOINT) + 1;
            let id = EndpointId::try_from(entry.last_endpoint).unwrap_or(LAST_ENDPOINT);
            if taken.insert(id) {
                return id;
            }
        };
        let mut id = |target: &Target| known.get(target).copied().unwrap_or_else(&mut next);
        let ids: HashMap<Target, EndpointId> =
            slots.iter().flatten().map(|target| (*target, id(target))).collect();
        let of_slot = |slot: &Option<Target>| slot.and_then(|target| ids.get(&target).copied());
        let in_slots = slots.iter().map(|slot| of_slot(slot).unwrap_or_default()).collect();
        entry.ids = ids;
        in_slots
    }

    /// Nobody asks for the session any more.
    pub(super) fn release(&mut self, session: Session) {
        if let Some(entry) = self.entries.remove(&session) {
            self.by_owner.remove(&entry.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::desired::affinity::{Affinity, LIMIT};

    fn owner(port: u16) -> Owner {
        let service = ObjectName::namespaced("default", "web");
        Owner { service, protocol: Protocol::Tcp, port, list: List::Cluster }
    }

    fn session(sessions: &mut Sessions, port: u16) -> u32 {
        sessions.session(owner(port), std::iter::empty()).unwrap().number()
    }

    fn slots(numbers: &[u8]) -> Slots {
        let target = |number: &u8| {
            let port = NonZeroU16::new(8080).unwrap();
            Some(Target { address: [10, 244, 0, *number].into(), port })
        };
        numbers.iter().map(target).collect()
    }

    fn fragment(numbers: &[u8], ids: Box<[EndpointId]>) -> Fragment {
        let affinity = Some(Box::new(Affinity::Session { timeout: 60, ids }));
        Fragment { slots: slots(numbers), affinity, ..Fragment::default() }
    }

    #[test]
    fn a_number_that_was_given_back_is_not_taken_next() {
        let mut sessions = Sessions::default();
        assert_eq!(session(&mut sessions, 80), Session::FIRST);
        assert_eq!(session(&mut sessions, 80), Session::FIRST, "it keeps its number");
        sessions.release(Session::new(Session::FIRST));
        assert_eq!(session(&mut sessions, 80), Session::FIRST + 1);
    }

    #[test]
    fn what_was_found_in_the_kernel_is_kept_and_never_given_to_others() {
        let mut sessions = Sessions::default();
        let found = Session::new(7);
        sessions.observe([found].into_iter());
        assert_eq!(session(&mut sessions, 80), 7 + DISTANCE + 1);
        let kept = sessions.session(owner(443), [found].into_iter());
        assert_eq!(kept, Some(found));
        let other = sessions.session(owner(444), [found].into_iter());
        assert_ne!(other, Some(found));
    }

    #[test]
    fn numbers_go_round_and_end_until_those_that_were_found_are_swept() {
        let mut tables = SessionTables::default();
        let sessions = tables.of(Family::Ip);
        sessions.last = Session::LAST;
        assert_eq!(session(sessions, 80), Session::FIRST);
        sessions.found = (Session::FIRST..=Session::LAST).map(Session::new).collect();
        assert_eq!(sessions.session(owner(81), std::iter::empty()), None);
        tables.sweep();
        assert_eq!(session(tables.of(Family::Ip), 81), Session::FIRST + 1);
    }

    #[test]
    fn endpoints_that_are_all_replaced_twice_without_a_commit_have_numbers_of_their_own() {
        let mut sessions = Sessions::default();
        let session = Session::new(session(&mut sessions, 80));
        let many = |first: u32| -> Slots {
            let port = NonZeroU16::new(8080).unwrap();
            let address = |n: u32| std::net::Ipv4Addr::from(first + n).into();
            (0..LIMIT).map(|n| Some(Target { address: address(n), port })).collect()
        };
        let installed_slots = many(0x0a00_0000);
        let ids = sessions.endpoint_ids(session, None, &installed_slots);
        let affinity = Some(Box::new(Affinity::Session { timeout: 60, ids }));
        let installed = Fragment { slots: installed_slots, affinity, ..Fragment::default() };
        for first in [0x0b00_0000, 0x0c00_0000] {
            let ids = sessions.endpoint_ids(session, Some(&installed), &many(first));
            let different: HashSet<_> = ids.iter().collect();
            assert_eq!(different.len(), ids.len());
        }
    }

    #[test]
    fn an_endpoint_keeps_its_number_and_one_that_returns_gets_another() {
        let mut sessions = Sessions::default();
        let session = Session::new(session(&mut sessions, 80));
        let all = sessions.endpoint_ids(session, None, &slots(&[1, 2, 3]));
        assert_eq!(*all, [1, 2, 3]);
        let all = fragment(&[1, 2, 3], all);
        let fewer = sessions.endpoint_ids(session, Some(&all), &slots(&[1, 3]));
        assert_eq!(*fewer, [1, 3]);
        let fewer = fragment(&[1, 3], fewer);
        let back = sessions.endpoint_ids(session, Some(&fewer), &slots(&[1, 3, 2]));
        assert_eq!(*back, [1, 3, 4]);
        let lost = sessions.endpoint_ids(session, None, &slots(&[1, 3, 2]));
        assert_eq!(lost, back, "what the kernel has lost comes back as it was");
    }

    #[test]
    fn after_a_restart_numbers_are_left_free_that_may_be_remembered() {
        let mut sessions = Sessions::default();
        let session = Session::new(session(&mut sessions, 80));
        let found = fragment(&[1], Box::new([5]));
        let ids = sessions.endpoint_ids(session, Some(&found), &slots(&[1, 2]));
        assert_eq!(u32::from(ids[1]), 5 + DISTANCE + 1);
    }
}
