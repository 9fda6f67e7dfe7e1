//! Elements and rules that are not certain.

use std::collections::BTreeSet;
use std::time::Instant;

use nft::Family;

use super::limits::{KEYS, SECOND_LOOKUP};
use super::request::Request;
use crate::ElementId;

/// Elements, and tables whose rules are not certain.
#[derive(Debug)]
pub(super) struct Parts {
    keys: BTreeSet<ElementId>,
    rules: [bool; 2],
    due: Instant,
    /// The most urgent origin since nothing was left.
    origin: Origin,
}

/// Why parts are not certain, the most urgent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A lookup of the background check showed a difference, which is to be confirmed.
    Check,
    /// A comparison of everything begins with them, or a search has found them. They are looked up
    /// between commits.
    Search,
    /// Another program changed them. Commits wait.
    OtherProgram,
    /// They belong to a step that was refused. Commits wait.
    Refused,
}

impl Origin {
    /// Returns whether commits wait until the parts are certain.
    pub(super) fn stops_commits(self) -> bool {
        match self {
            Self::Check | Self::Search => false,
            Self::OtherProgram | Self::Refused => true,
        }
    }

    /// Returns whether the parts are looked up before those of the background check.
    pub(super) fn is_urgent(self) -> bool {
        match self {
            Self::Check => false,
            Self::Search | Self::OtherProgram | Self::Refused => true,
        }
    }
}

impl Parts {
    pub(super) fn none(now: Instant) -> Self {
        Self { keys: BTreeSet::new(), rules: [false; 2], due: now, origin: Origin::Check }
    }

    pub(super) fn add_keys(
        &mut self,
        keys: impl IntoIterator<Item = ElementId>,
        origin: Origin,
        now: Instant,
    ) {
        self.note(origin, now);
        self.keys.extend(keys);
    }

    pub(super) fn add_rules(&mut self, families: &[Family], origin: Origin, now: Instant) {
        self.note(origin, now);
        families.iter().for_each(|family| self.rules[family.index()] = true);
    }

    fn note(&mut self, origin: Origin, now: Instant) {
        let due = if origin == Origin::Check { now + SECOND_LOOKUP } else { now };
        if self.are_none() {
            (self.origin, self.due) = (origin, due);
        } else {
            (self.origin, self.due) = (self.origin.max(origin), self.due.min(due));
        }
    }

    /// Takes the next request. Rules come first: packets pass them first, and without a set its
    /// elements cannot be looked up.
    pub(super) fn next(&mut self) -> Option<Request> {
        let with_rules = Family::ALL.into_iter().find(|family| self.rules[family.index()]);
        if let Some(family) = with_rules {
            self.rules[family.index()] = false;
            return Some(Request::Rules(family));
        }
        // A step is undone as a whole, and commits wait for what others changed.
        let most = if self.origin.stops_commits() { self.keys.len() } else { KEYS };
        let keys: Vec<_> = std::iter::from_fn(|| self.keys.pop_first()).take(most).collect();
        (!keys.is_empty()).then_some(Request::Keys(keys))
    }

    pub(super) fn forget(&mut self) {
        self.keys.clear();
        self.rules = [false; 2];
    }

    /// Returns the most urgent origin. It stays after the last part was taken, until another is
    /// added.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    pub(super) fn are_none(&self) -> bool {
        self.keys.is_empty() && !self.have_rules()
    }

    pub(super) fn have_rules(&self) -> bool {
        self.rules.contains(&true)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        (!self.are_none()).then_some(self.due)
    }
}
