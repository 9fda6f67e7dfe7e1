//! Copies a table of the kernel into another one, whatever its rules are.
//!
//! The rules that look up many elements come first: the kernel walks a whole map for each rule that
//! is added later (`nf_tables_bind_set`). Those of base chains come last, so that a copy has no
//! effect before it is complete.

use std::io;

use super::answer::Outcome;
use super::definition::{CopyProgress, CopySource, CopyTableError, Definition, ListedElements};
use super::error::ReadError;
use super::interface::Kernel;
use super::nftables::Nftables;
use super::read::{Read, Seen};
use crate::batch::Batch;
use crate::chain::chain_name;
use crate::copy::{CopyError, CopyTarget, ListedSet, RawMessage};
use crate::element::decode_elements;
use crate::family::TableFamily;
use crate::request::Request;
use crate::rule::Rule;
use crate::table::TableRef;

/// Most attempts to dump a set during changes of other programs.
const DUMP_ATTEMPTS: usize = 10;

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
        let (family, base_chains) = (definition.table.family, definition.base_chains()?);
        let mut piece = Piece::new(source.piece.min(self.max_batch() / 2));
        if !sent.has_frame {
            let deletion = source.replaces.then(|| target.delete_table()).transpose();
            piece.messages.extend(deletion.map_err(CopyError::from)?);
            piece.extend(definition.frame(target)?);
            piece.extend(definition.rules(target, &|chain| !base_chains.contains(chain))?);
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
            piece.extend(definition.rules(target, &|chain| base_chains.contains(chain))?);
        }
        self.send_piece(family, &mut piece)?;
        Ok(is_complete)
    }

    /// Creates base chains of a copy anew, with another priority. Of chains with one priority, the
    /// kernel then calls them first.
    ///
    /// # Errors
    /// See [`CopyTableError`].
    pub fn move_chains(
        &mut self,
        definition: &Definition,
        (chains, priority): (&[&str], i32),
        first_rules: &[Rule],
        target: &CopyTarget,
    ) -> Result<(), CopyTableError> {
        let mut piece = Piece::new(usize::MAX);
        for chain in &definition.chains {
            if chains.contains(&chain_name(chain).map_err(CopyError::from)?) {
                let moved = target.chain(chain, Some(priority))?;
                piece.extend([target.delete_chain(chain)?, moved]);
            }
        }
        for rule in first_rules {
            piece.extend([target.own_rule(rule)?]);
        }
        piece.extend(definition.rules(target, &|chain| chains.contains(&&**chain))?);
        self.send_piece(definition.table.family, &mut piece)
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

    fn send_piece(&mut self, family: TableFamily, piece: &mut Piece) -> Result<(), CopyTableError> {
        let messages = piece.take();
        let sequence = self.next_sequence();
        let batch = Batch::of_messages(&messages, family, sequence, self.acknowledge);
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
