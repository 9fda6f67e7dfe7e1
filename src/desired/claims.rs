//! Which service a key belongs to, when several ask for it.
//!
//! Frontends belong to one service: the oldest wins, then the first by name, so the winner does
//! not depend on the order of events. Cluster IPs and hairpin entries say the same whoever asks
//! for them and are there as long as anybody does.

use ahash::HashMap;

use super::key::Key;
use crate::model::ObjectName;

/// Who asks for which key.
#[derive(Debug, Default)]
pub(super) struct Claims {
    holders: HashMap<Key, ObjectName>,
    waiting: HashMap<Key, Vec<ObjectName>>,
    shared: HashMap<Key, u32>,
}

/// Age and name of a claimant; the lowest wins.
pub(super) type Precedence = (i64, ObjectName);

/// What a service gets when it asks for a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The key is its own.
    Held,
    /// The key is its own, and was this service's before, which should be told by rendering it.
    TakenFrom(ObjectName),
    /// The key is this service's or will be; the one that asks has to wait from now on.
    HeldBy(ObjectName),
    /// The key was its own and is to be this service's, which should ask again: the one that asked
    /// has become the younger.
    YieldedTo(ObjectName),
    /// The key is another service's, as it was before.
    StillHeld,
}

/// What remains of a key that a service gives back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// Nobody else asks for it.
    Free,
    /// It is still in use as it was.
    InUse,
    /// This service waits for it and should ask again.
    Awaited(ObjectName),
}

impl Claims {
    /// `service` asks for a key that only one service can have.
    pub(super) fn claim(
        &mut self,
        key: Key,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Outcome {
        let Some(first) = self.first_before(&key, service, precedence) else {
            return self.take(key, service);
        };
        let is_new = self.wait(key, service.clone());
        if self.holder(&key) == Some(service) {
            // Until that service has been rendered the key is nobody's; it follows at once.
            self.holders.remove(&key);
            return Outcome::YieldedTo(first);
        }
        match is_new {
            true => Outcome::HeldBy(first),
            false => Outcome::StillHeld,
        }
    }

    /// Whether the key is the service's own once it has asked for it.
    pub(super) fn would_hold(
        &self,
        key: &Key,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> bool {
        self.first_before(key, service, precedence).is_none()
    }

    /// `service` no longer asks for a key that only one service can have.
    pub(super) fn release(
        &mut self,
        key: &Key,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Released {
        self.forget_waiting(key, service);
        // Without a holder the key has just been given back, and was offered to this service.
        if self.holders.get(key).is_some_and(|holder| holder != service) {
            return Released::InUse;
        }
        self.holders.remove(key);
        self.first_waiting(key, precedence).map_or(Released::Free, Released::Awaited)
    }

    /// One more asks for a key that can be shared.
    pub(super) fn share(&mut self, key: Key) {
        *self.shared.entry(key).or_default() += 1;
    }

    /// One fewer asks for a key that can be shared; whether it was the last.
    pub(super) fn unshare(&mut self, key: &Key) -> Released {
        match self.shared.get_mut(key) {
            Some(count) if *count > 1 => {
                *count -= 1;
                Released::InUse
            }
            _ => {
                self.shared.remove(key);
                Released::Free
            }
        }
    }

    /// The service that has `key`.
    pub(super) fn holder(&self, key: &Key) -> Option<&ObjectName> {
        self.holders.get(key)
    }

    /// Whether anybody has `key`.
    pub(super) fn is_claimed(&self, key: &Key) -> bool {
        self.holders.contains_key(key) || self.shared.contains_key(key)
    }

    fn first_waiting(
        &self,
        key: &Key,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<ObjectName> {
        self.waiting.get(key)?.iter().min_by_key(|name| precedence(name)).cloned()
    }

    /// The first of all that have `key` or wait for it, if it comes before `service`.
    ///
    /// It may not be the holder: one that has become younger holds what it has until it is
    /// rendered, and then yields to the first.
    fn first_before(
        &self,
        key: &Key,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<ObjectName> {
        let waiting = self.waiting.get(key).into_iter().flatten();
        let others = self.holder(key).into_iter().chain(waiting).filter(|name| *name != service);
        let first = others.min_by_key(|name| precedence(name))?;
        (precedence(first) < precedence(service)).then(|| first.clone())
    }

    fn take(&mut self, key: Key, service: &ObjectName) -> Outcome {
        self.forget_waiting(&key, service);
        match self.holders.get_mut(&key) {
            None => {
                self.holders.insert(key, service.clone());
                Outcome::Held
            }
            Some(holder) if holder == service => Outcome::Held,
            Some(holder) => {
                let former = std::mem::replace(holder, service.clone());
                self.wait(key, former.clone());
                Outcome::TakenFrom(former)
            }
        }
    }

    /// Whether `service` has not waited before.
    fn wait(&mut self, key: Key, service: ObjectName) -> bool {
        let names = self.waiting.entry(key).or_default();
        let is_new = !names.contains(&service);
        if is_new {
            names.push(service);
        }
        is_new
    }

    fn forget_waiting(&mut self, key: &Key, service: &ObjectName) {
        if let Some(names) = self.waiting.get_mut(key) {
            names.retain(|name| name != service);
            if names.is_empty() {
                self.waiting.remove(key);
            }
        }
    }
}
