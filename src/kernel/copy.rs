//! Copies a table of the kernel into another one, whatever its rules are.
//!
//! Sets are dumped and written one by one, so memory is needed for the largest set only. Elements
//! precede the rules that look them up: the kernel then checks no element against a rule, and a copy
//! has no effect before it is complete.

use std::io;

use super::answer::Outcome;
use super::nftables::Nftables;
use super::read::Seen;
use super::{CommitError, Kernel, ReadError};
use crate::nft::copy::{
    CopyError, CopyTarget, ListedSet, RawMessage, is_base_chain, listed_chain, uses_flowtable,
};
use crate::nft::request::Request;
use crate::nft::{Batch, Family, Name, Rule, TableRef, decode_elements};

/// Most attempts to dump a set during changes of other programs.
const DUMP_ATTEMPTS: usize = 10;

/// A table without the elements of its named sets, as the kernel lists it.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The table.
    pub table: TableRef,
    header: Vec<u8>,
    chains: Vec<Vec<u8>>,
    rules: Vec<Vec<u8>>,
    flowtables: Vec<Vec<u8>>,
    /// The named sets and maps.
    pub sets: Vec<ListedSet>,
    /// The sets of single rules, with their elements.
    anonymous: Vec<(ListedSet, Vec<Vec<u8>>)>,
}

/// What a copy takes from elsewhere than its definition.
pub struct CopySource<'a> {
    /// The table with the elements.
    pub from: &'a TableRef,
    /// A table with the name of the copy exists, and goes in the same transaction.
    pub replaces: bool,
    /// Size in bytes from which on a part of the copy is sent.
    pub piece: usize,
    /// Rules that precede all others of their chains.
    pub first_rules: &'a [Rule],
    /// Called between pieces; if it returns true, the copy ends with
    /// [`CopyTableError::Interrupted`].
    pub is_interrupted: &'a dyn Fn() -> bool,
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
    #[error("interrupted")]
    Interrupted,
}

impl Definition {
    /// Returns the names of the base chains.
    ///
    /// # Errors
    /// A listed chain is damaged.
    pub fn base_chains(&self) -> Result<Vec<Name>, CopyTableError> {
        let mut names = Vec::new();
        for chain in &self.chains {
            if is_base_chain(chain).map_err(CopyError::from)? {
                names.push(listed_chain(chain).map_err(CopyError::from)?);
            }
        }
        Ok(names)
    }

    /// Returns the messages that create the table, its named sets, its chains and flowtables.
    fn frame(&self, target: &CopyTarget) -> Result<Vec<RawMessage>, CopyError> {
        let mut messages = vec![target.table(&self.header)?];
        for (id, set) in (1..).zip(&self.sets) {
            messages.push(target.set(set, id)?);
        }
        for flowtable in self.flowtables.iter().filter(|_| target.lifetime.is_none()) {
            messages.push(target.flowtable(flowtable)?);
        }
        for chain in &self.chains {
            messages.push(target.chain(chain)?);
        }
        Ok(messages)
    }

    /// Returns the messages that create the rules, each with its anonymous sets before it.
    fn rules(&self, target: &CopyTarget, first: &[Rule]) -> Result<Vec<RawMessage>, CopyError> {
        let family = self.table.family;
        let rules = first.iter().map(|rule| target.own_rule(rule, family));
        let mut messages = rules.collect::<Result<Vec<_>, _>>()?;
        // Unique in a batch that has the named sets too.
        let ids = u32::try_from(self.sets.len() + 1).unwrap_or(u32::MAX)..;
        for (id, (set, elements)) in ids.zip(&self.anonymous) {
            messages.push(target.set(set, id)?);
            for list in elements {
                messages.push(target.elements(list, false)?);
            }
        }
        for rule in &self.rules {
            if target.lifetime.is_none() || !uses_flowtable(rule)? {
                messages.push(target.rule(rule)?);
            }
        }
        Ok(messages)
    }
}

impl Nftables {
    /// Reads a table without the elements of its named sets; `None` without such a table.
    ///
    /// # Errors
    /// See [`CopyTableError`].
    pub fn read_definition(
        &mut self,
        table: &TableRef,
    ) -> Result<Option<Definition>, CopyTableError> {
        let Some(header) = self.list(Request::Table(table))?.into_iter().next() else {
            return Ok(None);
        };
        let sets = self.list(Request::Sets(table))?;
        let sets = sets.iter().map(|set| ListedSet::decode(set)).collect::<Result<Vec<_>, _>>();
        let (anonymous, sets): (Vec<_>, Vec<_>) =
            sets.map_err(CopyError::from)?.into_iter().partition(|set| set.is_anonymous);
        let mut with_elements = Vec::new();
        for set in anonymous {
            let elements = self.list(Request::Elements(table, &set.name))?;
            with_elements.push((set, elements));
        }
        Ok(Some(Definition {
            table: table.clone(),
            header,
            chains: self.list(Request::Chains(table))?,
            rules: self.list(Request::Rules(table))?,
            flowtables: self.list(Request::Flowtables(table))?,
            sets,
            anonymous: with_elements,
        }))
    }

    /// Creates a copy of a table, with the elements of the table `source.from`.
    ///
    /// # Errors
    /// See [`CopyTableError`]; a part of the copy may exist.
    pub fn create_copy(
        &mut self,
        definition: &Definition,
        source: &CopySource<'_>,
        target: &CopyTarget,
    ) -> Result<(), CopyTableError> {
        let mut piece = Piece::new(source.piece.min(self.max_batch() / 2));
        let deletion = source.replaces.then(|| target.delete_table()).transpose();
        piece.messages.extend(deletion.map_err(CopyError::from)?);
        piece.extend(definition.frame(target)?);
        for set in &definition.sets {
            for list in self.dump(source.from, &set.name)? {
                piece.extend([target.elements(&list, set.has_timeouts)?]);
                if piece.is_full() {
                    self.send_piece(definition.table.family, &mut piece)?;
                    if (source.is_interrupted)() {
                        return Err(CopyTableError::Interrupted);
                    }
                }
            }
        }
        piece.extend(definition.rules(target, source.first_rules)?);
        self.send_piece(definition.table.family, &mut piece)
    }

    /// Returns the attributes of each listed object; none if the table does not exist.
    fn list(&mut self, request: Request<'_>) -> Result<Vec<Vec<u8>>, ReadError> {
        let mut objects = Vec::new();
        let read = self.ask(request, &mut |attributes| {
            objects.push(attributes.to_vec());
            Ok(())
        });
        match read {
            Err(error) if !error.is_missing() => Err(error),
            Ok(_) | Err(_) => Ok(objects),
        }
    }

    /// Returns the messages that list the elements of a set. Commits of other programs to other
    /// tables do not matter, so an interrupted dump counts if no element is repeated or missing.
    fn dump(&mut self, table: &TableRef, set: &str) -> Result<Vec<Vec<u8>>, ReadError> {
        let request = Request::Elements(table, set);
        for _ in 0..DUMP_ATTEMPTS {
            let (mut lists, mut seen) = (Vec::new(), Seen::new());
            self.ask(request, &mut |attributes| {
                lists.push(attributes.to_vec());
                decode_elements(attributes, |element| seen.insert(&element))
            })?;
            if seen.were_different() {
                return Ok(lists);
            }
        }
        Err(ReadError::Changing { what: request.to_string() })
    }

    fn send_piece(&mut self, family: Family, piece: &mut Piece) -> Result<(), CopyTableError> {
        let messages = piece.take();
        let sequence = self.next_sequence();
        let batch = Batch::of_messages(&messages, family, sequence, self.acknowledgement());
        let batch = batch.map_err(|error| CopyTableError::Piece(io::Error::other(error)))?;
        self.note_sequences(&batch);
        match self.deliver(&batch)?.0 {
            Outcome::Applied => Ok(()),
            Outcome::Lost(error) => Err(CopyTableError::Piece(error)),
            Outcome::Refused(refusal) => {
                let origin = batch.origin(refusal.sequence);
                let kind = origin.map_or("batch", |origin| origin.kind.name());
                let reason = refusal.reason.unwrap_or_default();
                let error = format!("the kernel refused {kind}: {} {reason}", refusal.errno);
                Err(CopyTableError::Piece(io::Error::other(error)))
            }
        }
    }
}

/// Messages of the next batch.
struct Piece {
    messages: Vec<RawMessage>,
    bytes: usize,
    limit: usize,
}

impl Piece {
    fn new(limit: usize) -> Self {
        Self { messages: Vec::new(), bytes: 0, limit }
    }

    fn extend(&mut self, messages: impl IntoIterator<Item = RawMessage>) {
        for message in messages {
            self.bytes += message.attributes.len();
            self.messages.push(message);
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > self.limit
    }

    fn take(&mut self) -> Vec<RawMessage> {
        self.bytes = 0;
        std::mem::take(&mut self.messages)
    }
}
