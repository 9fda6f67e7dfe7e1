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
    /// The key is its own, and was this service's before.
    TakenFrom(ObjectName),
    /// The key stays with this service; the one that asks has to wait from now on.
    HeldBy(ObjectName),
    /// The key was its own and is this service's now, which should ask again: the one that asked
    /// has become the younger.
    YieldedTo(ObjectName),
    /// The key stays with another service, as it did before.
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
        let Some(holder) = self.holders.get_mut(&key) else {
            self.holders.insert(key, service.clone());
            self.forget_waiting(&key, service);
            return Outcome::Held;
        };
        if holder == service {
            return self.keep_or_yield(key, service, precedence);
        }
        if precedence(service) < precedence(holder) {
            let former = std::mem::replace(holder, service.clone());
            self.forget_waiting(&key, service);
            self.wait(key, former.clone());
            // The former may have become younger than another that waits and is older still.
            let outcome = self.keep_or_yield(key, service, precedence);
            return if outcome == Outcome::Held { Outcome::TakenFrom(former) } else { outcome };
        }
        let holder = holder.clone();
        match self.wait(key, service.clone()) {
            true => Outcome::HeldBy(holder),
            false => Outcome::StillHeld,
        }
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

    fn keep_or_yield(
        &mut self,
        key: Key,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Outcome {
        let first = self.first_waiting(&key, &precedence);
        match first.filter(|first| precedence(first) < precedence(service)) {
            None => Outcome::Held,
            Some(first) => {
                self.holders.insert(key, first.clone());
                self.forget_waiting(&key, &first);
                self.wait(key, service.clone());
                Outcome::YieldedTo(first)
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
