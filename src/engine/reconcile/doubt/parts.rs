//! Elements and rules that are not certain.

use std::collections::BTreeSet;

use nft::Family;

use super::limits::KEYS;
use super::request::Request;
use crate::reconcile::ElementId;

/// Elements, and tables whose rules are not certain.
#[derive(Debug, Default)]
pub(super) struct Parts {
    keys: BTreeSet<ElementId>,
    rules: [bool; 2],
    /// The table of direct return, which is read as a whole.
    direct_return: bool,
    /// The most urgent origin since nothing was left.
    origin: Origin,
}

/// Why a part is looked at, the most urgent reason last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// It is its turn in the background check.
    Background,
    /// It is its turn in the urgent check.
    Urgent,
    /// Another program changed something during the urgent check, or a search has found it. It is
    /// looked at between commits.
    #[default]
    Search,
    /// Another program changed it. Commits wait.
    OtherProgram,
    /// It belongs to a step that was refused. Commits wait.
    Refused,
}

impl Parts {
    pub(super) fn add_keys(&mut self, keys: impl IntoIterator<Item = ElementId>, origin: Origin) {
        self.note(origin);
        self.keys.extend(keys);
    }

    /// Adds the table of direct return.
    pub(super) fn add_direct_return(&mut self, origin: Origin) {
        self.note(origin);
        self.direct_return = true;
    }

    /// Adds the rules of both tables.
    pub(super) fn add_rules(&mut self, origin: Origin) {
        self.note(origin);
        self.rules = [true; 2];
    }

    fn note(&mut self, origin: Origin) {
        self.origin = if self.are_none() { origin } else { self.origin.max(origin) };
    }

    /// Takes the next request, with its origin. Rules come first: packets pass them first, and without a set its
    /// elements cannot be looked up.
    pub(super) fn next(&mut self) -> Option<(Request, Origin)> {
        let with_rules = Family::ALL.into_iter().find(|family| self.rules[family.index()]);
        if let Some(family) = with_rules {
            self.rules[family.index()] = false;
            return Some((Request::Rules(family), self.origin));
        }
        if std::mem::take(&mut self.direct_return) {
            return Some((Request::DirectReturn, self.origin));
        }
        // A step is undone as a whole, and commits wait for what others changed.
        let most = if self.stop_commits() { self.keys.len() } else { KEYS };
        let keys: Vec<_> = std::iter::from_fn(|| self.keys.pop_first()).take(most).collect();
        (!keys.is_empty()).then_some((Request::Keys(keys), self.origin))
    }

    pub(super) fn forget(&mut self) {
        self.keys.clear();
        (self.rules, self.direct_return) = ([false; 2], false);
    }

    pub(super) fn are_none(&self) -> bool {
        self.keys.is_empty() && !self.have_rules()
    }

    pub(super) fn have_rules(&self) -> bool {
        self.rules.contains(&true) || self.direct_return
    }

    /// Returns whether commits wait until the parts are certain.
    pub(super) fn stop_commits(&self) -> bool {
        !self.are_none() && self.origin > Origin::Search
    }
}
