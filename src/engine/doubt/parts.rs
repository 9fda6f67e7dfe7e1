//! Elements and rules that are not certain.

use std::collections::BTreeSet;

use nft::Family;

use super::limits::KEYS;
use super::request::Request;
use crate::ElementId;

/// Elements, and tables whose rules are not certain.
#[derive(Debug, Default)]
pub(super) struct Parts {
    keys: BTreeSet<ElementId>,
    rules: [bool; 2],
    /// The most urgent origin since nothing was left.
    origin: Origin,
}

/// Why parts are not certain, the most urgent last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A comparison of everything begins with them, or a search has found them. They are looked up
    /// between commits.
    #[default]
    Search,
    /// Another program changed them. Commits wait.
    OtherProgram,
    /// They belong to a step that was refused. Commits wait.
    Refused,
}

impl Parts {
    pub(super) fn add_keys(&mut self, keys: impl IntoIterator<Item = ElementId>, origin: Origin) {
        self.note(origin);
        self.keys.extend(keys);
    }

    /// Adds the rules of both tables.
    pub(super) fn add_rules(&mut self, origin: Origin) {
        self.note(origin);
        self.rules = [true; 2];
    }

    fn note(&mut self, origin: Origin) {
        self.origin = if self.are_none() { origin } else { self.origin.max(origin) };
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
        let most = if self.stop_commits() { self.keys.len() } else { KEYS };
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

    /// Returns whether commits wait until the parts are certain.
    pub(super) fn stop_commits(&self) -> bool {
        !self.are_none() && self.origin > Origin::Search
    }
}
