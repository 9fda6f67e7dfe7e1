//! Commits and reads of the real kernel: [`Nftables`] as a [`Kernel`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::answer::{self, Outcome, Refusal};
use super::error::{CommitError, ReadError, unless_missing};
use super::interface::{Committed, Contents, ElementRead, Kernel, OthersChanges};
use super::nftables::Nftables;
use super::other_programs::Others;
use super::read::{Read, Seen};
use super::{culprit, lost_answer};
use crate::batch::Batch;
use crate::element::{ElementView, decode_elements};
use crate::netlink::socket::Wait;
use crate::request::Request;
use crate::set::DecodedSet;
use crate::table::TableRef;
use crate::transaction::Transaction;
use crate::value::Value;

/// Most attempts to send a batch that the kernel aborted before it processed the whole of it.
const MAX_COMMIT_ATTEMPTS: usize = 4;
/// Longest buffer that is kept for the next batch, in bytes: a change of few endpoints needs less.
const KEPT_BUFFER: usize = 4_096;
/// Most attempts to read chains, rules and sets during other commits; one takes about 1 ms.
const MAX_TABLE_ATTEMPTS: usize = 50;
/// Most attempts to read the elements of a set during other commits.
const MAX_ELEMENT_ATTEMPTS: usize = 10;

impl Nftables {
    /// Calls `each` once with every element of a set or map, despite other commits. Returns whether
    /// the dump is consistent; otherwise elements may be missing or repeated.
    ///
    /// # Errors
    /// See [`ReadError`]; [`ReadError::is_missing`] if there is no such set.
    pub fn read_elements_once(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<bool, ReadError> {
        let mut seen = Seen::new();
        let read = self.ask(Request::Elements(table, set), &mut |attributes| {
            decode_elements(attributes, |element| {
                seen.insert(&element);
                each(element);
            })
        })?;
        Ok(read == Read::Whole && seen.were_different())
    }

    fn encode(&mut self, transaction: &Transaction) -> Result<Batch, CommitError> {
        let sequence = self.next_sequence();
        let buffer = std::mem::take(&mut self.buffer);
        let batch = transaction
            .encode_into(buffer, sequence, self.acknowledge)
            .map_err(|error| CommitError::unencodable(transaction, &error))?;
        self.note_sequences(&batch);
        let (length, most) = (batch.bytes.len(), self.socket.max_send());
        if length > most {
            return Err(CommitError::too_long(length, most));
        }
        Ok(batch)
    }

    /// Sends `batch` and receives its outcome. Repeats both after a transient refusal.
    pub(super) fn deliver(&mut self, batch: &Batch) -> Result<(Outcome, Duration), CommitError> {
        let mut attempt = 1;
        loop {
            let (sent, took) = timed(|| self.socket.send(&batch.bytes));
            let outcome = match sent {
                Ok(()) => {
                    let (socket, acknowledge) = (&mut self.socket, self.acknowledge);
                    answer::receive_outcome(socket, batch, acknowledge, Wait::Limited)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    let (sequence, errno) = (batch.first_sequence, Errno::EINTR);
                    Outcome::Refused(Refusal { sequence, errno, offset: None, reason: None })
                }
                Err(error) => return Err(CommitError::NotSent(error)),
            };
            if let Outcome::Refused(refusal) = &outcome
                && refusal.is_transient(batch)
                && attempt < MAX_COMMIT_ATTEMPTS
            {
                attempt += 1;
                continue;
            }
            return Ok((outcome, took));
        }
    }

    /// Returns the result of an applied batch; `times` are the durations of encoding and sending.
    pub(super) fn committed(&mut self, batch: &Batch, times: [Duration; 2]) -> Committed {
        self.last = None;
        let [encode_time, kernel_time] = times;
        Committed { bytes: batch.bytes.len(), messages: batch.counts(), encode_time, kernel_time }
    }

    /// Returns whether a transaction without an answer was applied, if that can be found out. If
    /// the generation is the same as before, nothing was applied since.
    fn was_applied(&mut self, transaction: &Transaction) -> Option<bool> {
        if self.last.is_some() && self.read_generation().ok() == self.last {
            return Some(false);
        }
        lost_answer::was_applied(self, transaction)
    }

    fn refused(
        &mut self,
        transaction: &Transaction,
        batch: &Batch,
        refusal: Refusal,
    ) -> CommitError {
        let is_forbidden = refusal.errno == Errno::EPERM;
        let (error, table) = culprit::find(transaction, batch, refusal);
        let owner = |table: TableRef| {
            let header = self.read_header(&table).ok()??;
            let port = header.owner.filter(|owner| *owner != self.port())?;
            Some(CommitError::Owned { table, port })
        };
        table.filter(|_| is_forbidden).and_then(owner).unwrap_or(error)
    }
}

impl Kernel for Nftables {
    fn max_batch(&self) -> usize {
        self.socket.max_send()
    }

    fn port(&self) -> u32 {
        self.socket.port()
    }

    fn stop_of_reads(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_of_reads)
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let (batch, encode_time) = timed(|| self.encode(transaction));
        let batch = batch?;
        if batch.messages.is_empty() {
            return Ok(Committed::nothing());
        }
        if self.last.is_none() && !lost_answer::is_of_elements(transaction) {
            // Without it, the outcome is unknown if the answer is lost, and the commit goes on.
            self.last = self.read_generation().ok();
        }
        let mut is_repeated = false;
        loop {
            let (outcome, kernel_time) = self.deliver(&batch)?;
            let error = match outcome {
                Outcome::Applied => {
                    let committed = self.committed(&batch, [encode_time, kernel_time]);
                    if batch.bytes.capacity() <= KEPT_BUFFER {
                        self.buffer = batch.bytes;
                    }
                    return Ok(committed);
                }
                Outcome::Refused(refusal) => {
                    return Err(self.refused(transaction, &batch, refusal));
                }
                Outcome::Lost(error) => error,
            };
            match self.was_applied(transaction) {
                Some(true) => return Ok(self.committed(&batch, [encode_time, kernel_time])),
                Some(false) if is_repeated => return Err(CommitError::NotSent(error)),
                Some(false) => is_repeated = true,
                None => return Err(CommitError::Unknown(error)),
            }
        }
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        if self.others.is_none() {
            let opened = Others::open(tables.to_vec(), self.socket.port());
            let what = || "changes by others".to_owned();
            self.others = Some(opened.map_err(|error| ReadError::Send { what: what(), error })?);
        }
        Ok(())
    }

    fn ignore_others(&mut self) {
        self.others = None;
    }

    fn others_changes(&mut self) -> OthersChanges {
        self.others.as_mut().map(Others::changes).unwrap_or_default()
    }

    fn owner(&mut self, table: &TableRef) -> Result<Option<u32>, ReadError> {
        Ok(self.read_header(table)?.and_then(|header| header.owner))
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        for _ in 0..MAX_TABLE_ATTEMPTS {
            let generation = self.read_generation()?;
            let contents = self.read_contents_once(table, generation);
            // A change may also cause an error, for example when the table is deleted during the
            // read.
            if self.read_generation()? == generation {
                return contents;
            }
        }
        Err(ReadError::Changing { what: Request::Table(table).to_string() })
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        let request = Request::Elements(table, set);
        for _ in 0..MAX_ELEMENT_ATTEMPTS {
            each(ElementRead::Start);
            let mut seen = Seen::new();
            let read = self.ask_unless_stopped(request, &mut |attributes| {
                decode_elements(attributes, |element| {
                    seen.insert(&element);
                    each(ElementRead::Element(element));
                })
            })?;
            let is_whole = read == Read::Whole || self.others.is_some();
            if is_whole && seen.were_different() {
                return Ok(());
            }
        }
        Err(ReadError::Changing { what: request.to_string() })
    }

    fn count_elements(&mut self, table: &TableRef, set: &str) -> Result<Option<u32>, ReadError> {
        let count = |attributes: &[u8]| Ok(DecodedSet::decode(attributes)?.elements);
        let counts = unless_missing(self.read_objects(Request::Set(table, set), count))?;
        Ok(counts.and_then(|counts| counts.into_iter().next().flatten()))
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        let mut found = 0;
        // The kernel looks up each element by its key (`nft_get_set_elem`) and answers with one
        // datagram for each.
        let read =
            self.ask_unless_stopped(Request::ElementsOf(table, set, keys), &mut |attributes| {
                decode_elements(attributes, |element| {
                    found += 1;
                    each(element);
                })
            });
        unless_missing(read)?;
        Ok(found)
    }
}

#[expect(clippy::disallowed_methods, reason = "measures the kernel at the edge to it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
