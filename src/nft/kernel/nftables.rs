//! The real kernel: one socket, one request or transaction at a time.
//!
//! The socket of the commits stays open as long as the value exists, because it owns the tables with
//! the owner flag.

use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::answer::{self, Outcome, Refusal};
use super::copy::CopyTableError;
use super::other_programs::Others;
use super::read::{MAX_ANSWER_BYTES, Read, Seen};
use super::replacement::Replacing;
use super::{
    CommitError, Committed, Contents, ElementRead, Generation, Kernel, OpenError, OthersChanges,
    ReadError, Release, culprit, lost_answer,
};
use crate::netlink::socket::{Socket, Wait};
use crate::request::Request;
use crate::{
    Acknowledge, Batch, DecodedSet, ElementView, TableFlags, TableRef, Transaction, Value,
    decode_elements,
};

/// `NETLINK_NETFILTER` of `<linux/netlink.h>`.
pub(super) const NETLINK_NETFILTER: isize = 12;
/// Most attempts to send a batch that the kernel aborted before it processed the whole of it.
const MAX_COMMIT_ATTEMPTS: usize = 4;
/// Most attempts to read chains, rules and sets during other commits; one takes about 1 ms.
const MAX_TABLE_ATTEMPTS: usize = 50;
/// Most attempts to read the elements of a set during other commits.
const MAX_ELEMENT_ATTEMPTS: usize = 10;
/// Sequence numbers restart at 1 above this, so that those of one batch never wrap.
const MAX_SEQUENCE: u32 = 1 << 31;

/// nf_tables of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Nftables {
    pub(super) socket: Socket,
    /// Another socket for requests, since an answer was not received to its end.
    pub(super) reader: Option<Socket>,
    /// The last answer was not received to its end.
    pub(super) has_unread_answer: bool,
    /// Longest accepted answer in bytes.
    pub(super) max_answer: usize,
    sequence: u32,
    acknowledge: Acknowledge,
    release: Option<Release>,
    /// Generation of the last read.
    last: Generation,
    others: Option<Others>,
    pub(super) replacing: Option<Box<Replacing>>,
    /// The outcome of a replacement that another call completed.
    pub(super) replaced: Option<Result<(), CopyTableError>>,
}

impl Nftables {
    /// Opens the socket and detects the features of this kernel. Changes nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open() -> Result<Self, OpenError> {
        let release = Release::running();
        if let Some(release) = release.filter(|release| *release < Release::OLDEST) {
            return Err(OpenError::KernelTooOld { release });
        }
        let mut nftables = Self {
            socket: Socket::open(NETLINK_NETFILTER).map_err(open_error)?,
            reader: None,
            has_unread_answer: false,
            max_answer: MAX_ANSWER_BYTES,
            sequence: 1,
            acknowledge: Acknowledge::BatchEnd,
            release,
            last: Generation::default(),
            others: None,
            replacing: None,
            replaced: None,
        };
        nftables.acknowledge = nftables.probe_acknowledgement()?;
        nftables.last = nftables.read_generation().map_err(io::Error::other)?;
        Ok(nftables)
    }

    /// Returns the flags of our tables: owned by our socket, where the kernel lets tables persist
    /// after their owner.
    pub fn table_flags(&self) -> TableFlags {
        let owned = self.supports_ownership();
        TableFlags { owner: owned, persist: owned }
    }

    /// Returns whether a table can have an owner and persist after it (Linux 6.9 and later).
    pub fn supports_ownership(&self) -> bool {
        self.release.is_some_and(|release| release >= Release::PERSISTENT_OWNERSHIP)
    }

    /// Returns the release of the kernel, if its name can be parsed.
    pub fn release(&self) -> Option<Release> {
        self.release
    }

    /// Returns the ruleset generation of this network namespace.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn generation(&mut self) -> Result<Generation, ReadError> {
        self.last = self.read_generation()?;
        Ok(self.last)
    }

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

    /// Returns the socket, so that tests can shrink its buffers.
    pub fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Sets the length in bytes of the longest accepted answer, for tests.
    pub fn set_max_answer(&mut self, bytes: usize) {
        self.max_answer = bytes;
    }

    /// Uses the acknowledgements of kernels before 6.10, whatever this kernel supports.
    pub fn acknowledge_last_message(&mut self) {
        self.acknowledge = Acknowledge::LastMessage;
    }

    /// Sends an empty batch, which commits nothing, to detect whether the kernel acknowledges its
    /// end (Linux 6.10 and later) and whether this process may commit.
    fn probe_acknowledgement(&mut self) -> Result<Acknowledge, OpenError> {
        let batch = Transaction::default()
            .encode(self.next_sequence(), Acknowledge::BatchEnd)
            .map_err(io::Error::other)?;
        self.sequence = batch.last_sequence() + 1;
        self.socket.send(&batch.bytes)?;
        match answer::receive_outcome(&mut self.socket, &batch, Acknowledge::BatchEnd, Wait::No) {
            Outcome::Applied => Ok(Acknowledge::BatchEnd),
            Outcome::Refused(refusal) => Err(open_error(refusal.errno.into())),
            Outcome::Lost(_) => Ok(Acknowledge::LastMessage),
        }
    }

    /// Returns the sequence number of the next request.
    pub(super) fn next_sequence(&mut self) -> u32 {
        if self.sequence > MAX_SEQUENCE {
            self.sequence = 1;
        }
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// Makes the next sequence number that after those of `batch`.
    pub(super) fn note_sequences(&mut self, batch: &Batch) {
        self.sequence = batch.last_sequence().saturating_add(1);
    }

    /// Returns the acknowledgement that this kernel supports.
    pub(super) fn acknowledgement(&self) -> Acknowledge {
        self.acknowledge
    }

    fn encode(&mut self, transaction: &Transaction) -> Result<Batch, CommitError> {
        let sequence = self.next_sequence();
        let batch = transaction
            .encode(sequence, self.acknowledge)
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
        // An error here does not change that the transaction is applied.
        self.last = self.read_generation().unwrap_or(self.last);
        let [encode_time, kernel_time] = times;
        Committed {
            generation: self.last,
            bytes: batch.bytes.len(),
            messages: batch.counts(),
            encode_time,
            kernel_time,
        }
    }

    /// Returns whether a transaction without an answer was applied, if that can be found out. If
    /// the generation is unchanged since the last commit, nothing was applied since.
    fn was_applied(&mut self, transaction: &Transaction) -> Option<bool> {
        match self.read_generation() {
            Ok(now) if now == self.last => Some(false),
            Ok(_) | Err(_) => lost_answer::was_applied(self, transaction),
        }
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
            let (_, owner) = self.read_header(&table).ok()??;
            let port = owner.filter(|owner| *owner != self.port())?;
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

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        if let Some(committed) = self.commit_to_serving(transaction) {
            return Ok(committed);
        }
        let (batch, encode_time) = timed(|| self.encode(transaction));
        let batch = batch?;
        if batch.messages.is_empty() {
            return Ok(Committed::nothing(self.last));
        }
        let mut is_repeated = false;
        loop {
            let (outcome, kernel_time) = self.deliver(&batch)?;
            let error = match outcome {
                Outcome::Applied => return Ok(self.committed(&batch, [encode_time, kernel_time])),
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
        self.complete_replacement(table);
        Ok(self.read_header(table)?.and_then(|(_, owner)| owner))
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        self.complete_replacement(table);
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
        self.complete_replacement(table);
        let request = Request::Elements(table, set);
        for _ in 0..MAX_ELEMENT_ATTEMPTS {
            each(ElementRead::Start);
            let mut seen = Seen::new();
            let read = self.ask(request, &mut |attributes| {
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
        self.complete_replacement(table);
        let mut count = None;
        let read = self.ask(Request::Set(table, set), &mut |attributes| {
            count = DecodedSet::decode(attributes)?.elements;
            Ok(())
        });
        match read {
            Err(error) if !error.is_missing() => Err(error),
            Ok(_) | Err(_) => Ok(count),
        }
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        self.complete_replacement(table);
        let mut found = 0;
        // The kernel looks up each element by its key (`nft_get_set_elem`) and answers with one
        // datagram for each.
        let read = self.ask(Request::ElementsOf(table, set, keys), &mut |attributes| {
            decode_elements(attributes, |element| {
                found += 1;
                each(element);
            })
        });
        match read {
            Err(error) if !error.is_missing() => Err(error),
            Ok(_) | Err(_) => Ok(found),
        }
    }
}

fn open_error(error: io::Error) -> OpenError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => OpenError::NoPermission,
        // A kernel without netfilter returns the first, nfnetlink without nf_tables the second.
        Some(Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP) => OpenError::NoNfTables,
        _ => OpenError::Io(error),
    }
}

#[expect(clippy::disallowed_methods, reason = "measures the kernel at the edge to it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
