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
        let holder = self.holders.entry(key).or_insert_with(|| service.clone());
        if holder == service {
            return Outcome::Held;
        }
        let former = std::mem::replace(holder, service.clone());
        self.wait(key, former.clone());
        Outcome::TakenFrom(former)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const KEY: Key = Key::ClusterIp(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn name(number: u8) -> ObjectName {
        ObjectName::namespaced("default", &number.to_string())
    }

    /// Asks for the key as a service does that is rendered, and others that are to ask again; how
    /// many did.
    fn render(claims: &mut Claims, ages: &BTreeMap<ObjectName, i64>, service: ObjectName) -> usize {
        let precedence =
            |name: &ObjectName| (ages.get(name).copied().unwrap_or(i64::MAX), name.clone());
        let (mut waiting, mut rendered) = (vec![service], 0);
        while let Some(service) = waiting.pop() {
            rendered += 1;
            if ages.contains_key(&service) {
                let would_hold = claims.would_hold(&KEY, &service, precedence);
                let outcome = claims.claim(KEY, &service, precedence);
                let is_held = matches!(outcome, Outcome::Held | Outcome::TakenFrom(_));
                assert_eq!(is_held, would_hold, "{outcome:?}");
                if let Outcome::TakenFrom(other) | Outcome::YieldedTo(other) = outcome {
                    waiting.push(other);
                }
            } else if let Released::Awaited(other) = claims.release(&KEY, &service, precedence) {
                waiting.push(other);
            }
        }
        rendered
    }

    proptest! {
        #[test]
        fn the_first_of_all_that_ask_holds_the_key(
            changes in proptest::collection::vec(
                proptest::collection::vec((0u8..5, proptest::option::of(0i64..4)), 1..4),
                1..12,
            ),
        ) {
            let (mut claims, mut ages) = (Claims::default(), BTreeMap::new());
            // Of changes that come together all are known before the first is rendered.
            for together in changes {
                for (number, age) in &together {
                    match age {
                        Some(age) => ages.insert(name(*number), *age),
                        None => ages.remove(&name(*number)),
                    };
                }
                for (number, _) in &together {
                    let rendered = render(&mut claims, &ages, name(*number));
                    prop_assert!(rendered <= 12, "{rendered} were rendered");
                }
                let first = ages.iter().min_by_key(|(name, age)| (**age, (*name).clone()));
                prop_assert_eq!(claims.holder(&KEY), first.map(|(name, _)| name));
                let others = claims.waiting.get(&KEY).map_or(0, Vec::len);
                prop_assert_eq!(others, ages.len().saturating_sub(1));
            }
        }
    }
}
