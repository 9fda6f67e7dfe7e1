//! The data of copies and replacements of a table: what was listed, what is sent, what failed.

use std::fmt;
use std::io;

use super::error::{CommitError, ReadError};
use crate::chain::chain_name;
use crate::copy::{
    CopyError, CopyTarget, ListedSet, RawMessage, is_base_chain, rule_chain, uses_flowtable,
};
use crate::rule::Rule;
use crate::table::TableRef;
use crate::text::Name;
use crate::transaction::Transaction;

/// A table without the elements of its named sets, as the kernel lists it.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The table.
    pub table: TableRef,
    pub(super) header: Vec<u8>,
    pub(super) chains: Vec<Vec<u8>>,
    pub(super) rules: Vec<Vec<u8>>,
    pub(super) flowtables: Vec<Vec<u8>>,
    /// The named sets and maps.
    pub sets: Vec<ListedSet>,
    /// The sets of single rules, with their elements.
    pub(super) anonymous: Vec<(ListedSet, Vec<Vec<u8>>)>,
}

/// The elements of the named sets of a table, as the kernel lists them; in the order of the sets.
#[derive(Debug, Default)]
pub struct ListedElements(pub(super) Vec<Vec<Vec<u8>>>);

/// What a copy takes from elsewhere than its definition.
pub struct CopySource<'a> {
    /// The elements.
    pub elements: &'a ListedElements,
    /// A table with the name of the copy exists, and goes in the same transaction.
    pub replaces: bool,
    /// Size in bytes from which on a part of the copy is sent.
    pub piece: usize,
    /// Rules that precede all others of their base chains.
    pub first_rules: &'a [Rule],
    /// The rules of base chains follow the last element, so that the copy has an effect.
    pub completes: bool,
}

/// The parts of a copy that were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyProgress {
    pub(super) has_frame: bool,
    /// The next elements: the number of the set, and of the message that lists them.
    pub(super) next: (usize, usize),
}

/// Why a table could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyTableError {
    /// The table could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel lists an object that cannot be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The kernel did not apply a piece.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A piece could not be encoded or sent, or was refused.
    #[error("a piece of the copy was not applied: {0}")]
    Piece(io::Error),
    /// The caller interrupted the copy.
    #[error("interrupted: it took too long, or something else is to be done")]
    Interrupted,
}

impl ListedElements {
    /// Returns the elements at a place, or those at the next place that has some.
    pub(super) fn at(&self, place: &mut (usize, usize)) -> Option<&[u8]> {
        loop {
            let lists = self.0.get(place.0)?;
            if let Some(list) = lists.get(place.1) {
                return Some(list);
            }
            *place = (place.0 + 1, 0);
        }
    }
}

impl CopyProgress {
    /// Returns whether all elements were sent.
    pub(super) fn has_elements(&mut self, elements: &ListedElements) -> bool {
        self.has_frame && elements.at(&mut self.next).is_none()
    }

    /// Returns whether anything was sent.
    pub(super) fn has_begun(&self) -> bool {
        self.has_frame
    }
}

impl Definition {
    /// Returns the names of the base chains.
    ///
    /// # Errors
    /// A listed chain is damaged.
    pub fn base_chains(&self) -> Result<Vec<Name>, CopyError> {
        let mut names = Vec::new();
        for chain in &self.chains {
            if is_base_chain(chain)? {
                names.push(chain_name(chain)?.to_owned().into());
            }
        }
        Ok(names)
    }

    /// Returns the messages that create the table, its named sets, its chains and flowtables.
    pub(super) fn frame(&self, target: &CopyTarget) -> Result<Vec<RawMessage>, CopyError> {
        let mut messages = vec![target.table(&self.header)?];
        for (id, set) in (1..).zip(&self.sets) {
            messages.push(target.set(set, id)?);
        }
        for flowtable in self.flowtables.iter().filter(|_| target.lifetime.is_none()) {
            messages.push(target.flowtable(flowtable)?);
        }
        for chain in &self.chains {
            messages.push(target.chain(chain, None)?);
        }
        Ok(messages)
    }

    /// Returns the messages that create the rules of some chains, each with the anonymous sets that it
    /// looks up before it.
    pub(super) fn rules(
        &self,
        target: &CopyTarget,
        is_wanted: &dyn Fn(&Name) -> bool,
    ) -> Result<Vec<RawMessage>, CopyError> {
        let mut messages = Vec::new();
        for rule in &self.rules {
            let is_left_out = target.lifetime.is_some() && uses_flowtable(rule)?;
            if is_left_out || !is_wanted(&rule_chain(rule)?) {
                continue;
            }
            // Unique in a batch that has the named sets too.
            let ids = u32::try_from(self.sets.len() + 1).unwrap_or(u32::MAX)..;
            for (id, (set, elements)) in ids.zip(&self.anonymous) {
                if looks_up(rule, &set.name) {
                    messages.push(target.set(set, id)?);
                    for list in elements {
                        messages.push(target.elements(list, false)?);
                    }
                }
            }
            messages.push(target.rule(rule)?);
        }
        Ok(messages)
    }
}

/// Returns whether the attributes of a rule have the name of a set, whose number makes it unique.
fn looks_up(rule: &[u8], set: &str) -> bool {
    let name: Vec<u8> = set.bytes().chain([0]).collect();
    rule.windows(name.len()).any(|part| part == name)
}

/// A table that is to be replaced.
pub struct Replacement {
    /// The table, which has no base chains any more.
    pub definition: Definition,
    /// Its elements.
    pub elements: ListedElements,
    /// The new table.
    pub target: CopyTarget,
    /// The copy that serves meanwhile.
    pub serving: TableRef,
    /// Size in bytes from which on a part of the new table is sent.
    pub piece: usize,
}

/// A replacement that is under way.
pub(super) struct Replacing {
    pub(super) it: Replacement,
    /// Sets whose elements of packets were listed again.
    pub(super) listed: usize,
    pub(super) sent: CopyProgress,
    /// Transactions that the serving copy has, in their order.
    pub(super) committed: Vec<Transaction>,
    /// How many of them the new table has too.
    pub(super) repeated: usize,
    pub(super) attempt: usize,
    /// The new table lacks a transaction.
    pub(super) failure: Option<CopyTableError>,
}

impl fmt::Debug for Replacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacing").field("sent", &self.sent).finish_non_exhaustive()
    }
}
