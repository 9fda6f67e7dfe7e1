//! Copies a table of the kernel into another one, whatever its rules are.
//!
//! The rules that look up many elements come first: the kernel walks a whole map for each rule that
//! is added later (`nf_tables_bind_set`). Those of base chains come last, so that a copy has no
//! effect before it is complete.

use std::io;

use super::answer::Outcome;
use super::nftables::Nftables;
use super::read::{Read, Seen};
use super::{CommitError, Kernel, ReadError};
use crate::copy::{
    CopyError, CopyTarget, ListedSet, RawMessage, is_base_chain, listed_chain, rule_chain,
    uses_flowtable,
};
use crate::request::Request;
use crate::{Batch, Family, Name, Rule, TableRef, decode_elements};

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

/// The elements of the named sets of a table, as the kernel lists them; in the order of the sets.
#[derive(Debug, Default)]
pub struct ListedElements(Vec<Vec<Vec<u8>>>);

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
    has_frame: bool,
    /// The next elements: the number of the set, and of the message that lists them.
    next: (usize, usize),
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
    fn at(&self, place: &mut (usize, usize)) -> Option<&[u8]> {
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
                names.push(listed_chain(chain)?);
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

    /// Returns the messages that create the rules of base chains, or those of all others, each with
    /// the anonymous sets that it looks up before it.
    fn rules(&self, target: &CopyTarget, of_base: bool) -> Result<Vec<RawMessage>, CopyError> {
        let base_chains = self.base_chains()?;
        let mut messages = Vec::new();
        for rule in &self.rules {
            let is_left_out = target.lifetime.is_some() && uses_flowtable(rule)?;
            if is_left_out || base_chains.contains(&rule_chain(rule)?) != of_base {
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

    /// Sends the next piece of a copy. Returns whether the copy is complete.
    ///
    /// # Errors
    /// See [`CopyTableError`]; a part of the copy may exist.
    pub fn copy_piece(
        &mut self,
        definition: &Definition,
        source: &CopySource<'_>,
        target: &CopyTarget,
        sent: &mut CopyProgress,
    ) -> Result<bool, CopyTableError> {
        let family = definition.table.family;
        let mut piece = Piece::new(source.piece.min(self.max_batch() / 2));
        if !sent.has_frame {
            let deletion = source.replaces.then(|| target.delete_table()).transpose();
            piece.messages.extend(deletion.map_err(CopyError::from)?);
            piece.extend(definition.frame(target)?);
            piece.extend(definition.rules(target, false)?);
            sent.has_frame = true;
        }
        while let Some(list) = source.elements.at(&mut sent.next).filter(|_| !piece.is_full()) {
            let set = &definition.sets[sent.next.0];
            piece.extend([target.elements(list, set.has_timeouts)?]);
            sent.next.1 += 1;
        }
        let is_complete = source.completes && sent.has_elements(source.elements);
        if is_complete {
            for rule in source.first_rules {
                piece.extend([target.own_rule(rule)?]);
            }
            piece.extend(definition.rules(target, true)?);
        }
        self.send_piece(family, &mut piece)?;
        Ok(is_complete)
    }

    /// Reads the elements of the named sets of a table. Stops with [`CopyTableError::Interrupted`]
    /// if `is_interrupted` returns true; it is called for each buffer of elements.
    ///
    /// # Errors
    /// See [`CopyTableError`].
    pub fn list_elements(
        &mut self,
        definition: &Definition,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<ListedElements, CopyTableError> {
        let mut lists = Vec::new();
        for set in &definition.sets {
            lists.push(self.dump(&definition.table, &set.name, is_interrupted)?);
        }
        Ok(ListedElements(lists))
    }

    /// Reads the elements of a set again, from a copy of the table, if packets write them.
    pub(super) fn list_again(
        &mut self,
        definition: &Definition,
        copy: &TableRef,
        elements: &mut ListedElements,
        number: usize,
    ) -> Result<(), CopyTableError> {
        let set = &definition.sets[number];
        if set.has_timeouts {
            elements.0[number] = self.dump(copy, &set.name, &|| false)?;
        }
        Ok(())
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
    fn dump(
        &mut self,
        table: &TableRef,
        set: &str,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>, CopyTableError> {
        let request = Request::Elements(table, set);
        for _ in 0..DUMP_ATTEMPTS {
            let (mut lists, mut seen) = (Vec::new(), Seen::new());
            let mut each = |attributes: &[u8]| {
                lists.push(attributes.to_vec());
                decode_elements(attributes, |element| seen.insert(&element))
            };
            let read = self.ask_until(request, &mut each, is_interrupted)?;
            if read == Read::Stopped || is_interrupted() {
                return Err(CopyTableError::Interrupted);
            }
            if seen.were_different() {
                return Ok(lists);
            }
        }
        Err(ReadError::Changing { what: request.to_string() }.into())
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
