//! The connection to the real kernel: one socket, one request or transaction at a time.
//!
//! The socket of the commits stays open as long as the value exists, because it owns the tables with
//! the owner flag.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ahash::HashMap;
use nix::errno::Errno;

use super::answer::{self, Outcome};
use super::error::{OpenError, ReadError};
use super::other_programs::Others;
use super::release::Release;
use crate::abi::NETLINK_NETFILTER;
use crate::batch::{Acknowledge, Batch};
use crate::netlink::socket::{Socket, Wait};
use crate::request::Generation;
use crate::table::{TableFlags, TableRef};
use crate::transaction::Transaction;
use crate::whole::WholeTable;

/// Longest accepted answer in bytes, about ten million set elements. A longer one counts as
/// endless.
pub const MAX_ANSWER_BYTES: usize = 2 << 30;
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
    pub(super) acknowledge: Acknowledge,
    release: Option<Release>,
    /// The buffer of the last small batch.
    pub(super) buffer: Vec<u8>,
    /// Generation of the last read; `None` since a commit.
    pub(super) last: Option<Generation>,
    pub(super) others: Option<Others>,
    /// Tables as [`Nftables::update_and_keep`] left them.
    pub(super) kept: HashMap<TableRef, WholeTable>,
    pub(super) stop_of_reads: Arc<AtomicBool>,
}

impl Nftables {
    /// Opens the socket and detects the features of this kernel. Changes nothing.
    ///
    /// The socket is of the calling thread's network namespace. The read after one that was stopped
    /// or failed opens another socket, so call all methods in that namespace.
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
            buffer: Vec::new(),
            last: None,
            others: None,
            kept: HashMap::default(),
            stop_of_reads: Arc::default(),
        };
        nftables.acknowledge = nftables.probe_acknowledgement()?;
        nftables.generation().map_err(io::Error::other)?;
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
        let generation = self.read_generation()?;
        self.last = Some(generation);
        Ok(generation)
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
}

fn open_error(error: io::Error) -> OpenError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => OpenError::NoPermission,
        // A kernel without netfilter returns the first, nfnetlink without nf_tables the second.
        Some(Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP) => OpenError::NoNfTables,
        _ => OpenError::Io(error),
    }
}
