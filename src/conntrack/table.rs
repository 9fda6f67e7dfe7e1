//! The kernel's conntrack table, on a socket of its own.

use std::io;
use std::time::{Duration, Instant};

use ahash::{HashMap, HashSet};
use engine::flow::{Flow, StaleFlow};
use engine::model::Protocol;
use nft::netlink::message::{ACK, Meaning, Message, MessageError, Messages, REQUEST};
use nft::netlink::socket::{ReceiveError, Socket, Wait};
use nix::errno::Errno;

use super::abi::{IPS_DST_NAT, IPS_OFFLOAD, IPS_SEEN_REPLY};
use super::connection::Connection;
use super::filter::Filter;
use super::message::{self, Entry};
use super::search::{Durations, Search};

/// Why a request on the conntrack table failed. A part of the entries may have been deleted.
#[derive(Debug, thiserror::Error)]
pub enum ConntrackError {
    /// The socket failed.
    #[error("the conntrack socket: {0}")]
    Io(#[from] io::Error),
    /// No answer came.
    #[error("the conntrack socket: {0}")]
    Receive(#[from] ReceiveError),
    /// The answer is not a netlink message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The kernel refused a request.
    #[error("the kernel refused a conntrack request: {0}")]
    Refused(Errno),
}

/// The conntrack table of the network namespace in which it was opened.
#[derive(Debug)]
pub struct ConntrackTable {
    socket: Socket,
    sequence: u32,
    /// Measures dumps; without it, assumed durations decide how stale flows are searched.
    clock: Option<Clock>,
    durations: Durations,
    /// Identifiers of the connections without an answer, and the times of the looks that found them
    /// first.
    unanswered: HashMap<u32, Instant>,
    /// Those of them that may be deleted.
    waiting: Vec<Entry>,
}

/// Returns a time that only grows, such as the processor time of the thread.
pub type Clock = fn() -> Duration;

/// Answer to the deletion of an entry that no longer exists.
const NO_ENTRY: i32 = Errno::ENOENT as i32;

/// Answer to the deletion of an entry in a flowtable, of some kernels before 6.4.
const IN_FLOWTABLE: i32 = Errno::EBUSY as i32;

/// Most stale entries in memory: about 20 MB.
const MAX_ENTRIES: usize = 1 << 17;

/// Most connections without an answer in memory: about 5 MB. A dump has the same ones first.
const MAX_UNANSWERED: usize = 1 << 15;

/// Deletions in one datagram.
const DELETES: usize = 256;

/// Most distinct flows in a list: about 10 MB while the list exists.
const MAX_FLOWS: usize = 100_000;

/// Most datagrams of one answer; a dump of ten million entries needs fewer.
const MAX_DATAGRAMS: usize = 1 << 17;

/// Entries that a request did not delete.
#[derive(Default)]
struct NotDeleted {
    /// Number of entries that no longer existed.
    gone: usize,
    /// Sequence numbers of the requests for entries that are in a flowtable.
    busy: Vec<u32>,
}

impl ConntrackTable {
    /// Time within which an endpoint answers, if it does.
    pub const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

    /// Opens the table of the calling thread's network namespace.
    ///
    /// # Errors
    /// See [`Socket::open`].
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(netlink_sys::protocols::NETLINK_NETFILTER)?;
        let (durations, unanswered, waiting) = Default::default();
        Ok(Self { socket, sequence: 0, clock: None, durations, unanswered, waiting })
    }

    /// Measures the dumps of UDP entries with `clock`, and from then on searches stale flows by the
    /// dumps that are expected to take the least time.
    #[must_use]
    pub fn timed_by(self, clock: Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Makes the kernel load its modules of conntrack, and with them the sysctls, by a request that
    /// reads one number (`nfnetlink_rcv_msg` loads the module of a request).
    ///
    /// # Errors
    /// See [`ConntrackError`]. EINVAL if the kernel has no such module.
    pub fn load() -> Result<(), ConntrackError> {
        let mut table = Self::open()?;
        table.ask(message::statistics, |_| {})
    }

    /// Deletes all entries of these flows. Returns the number of deleted entries of each family.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn delete(&mut self, flows: &HashSet<StaleFlow>) -> Result<[u64; 2], ConntrackError> {
        let unanswered = self.delete_unanswered(flows)?;
        let [v4, v6] = self.delete_in_parts(flows, MAX_ENTRIES)?;
        Ok([v4 + unanswered[0], v6 + unanswered[1]])
    }

    /// Returns the flows of the connections without an answer that may be deleted, and the number of
    /// all without one. Connections that are translated may be deleted from the second look on, if
    /// [`Self::ANSWERED_WITHIN`] has passed since the first: their endpoint may be about to answer.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn unanswered(&mut self, now: Instant) -> Result<(Vec<Flow>, usize), ConntrackError> {
        let former = std::mem::take(&mut self.unanswered);
        self.waiting.clear();
        let (mut unanswered, mut waiting) = (HashMap::default(), Vec::new());
        self.dump_with_status(0, IPS_SEEN_REPLY, |object| {
            let entry = Entry::decode(object.kind, object.payload);
            let entry = entry.filter(|it| it.zone.is_none() && it.flow.protocol != Protocol::Udp);
            let Some((entry, id)) = entry.and_then(|entry| entry.id.map(|id| (entry, id))) else {
                return;
            };
            if unanswered.len() < MAX_UNANSWERED {
                let since = *former.get(&id).unwrap_or(&now);
                let has_waited = now.saturating_duration_since(since) >= Self::ANSWERED_WITHIN;
                let is_first = unanswered.insert(id, since).is_none();
                waiting.extend(
                    Some(entry).filter(|it| is_first && (has_waited || !it.flow.is_translated())),
                );
            }
        })?;
        (self.unanswered, self.waiting) = (unanswered, waiting);
        Ok((self.waiting.iter().map(|entry| entry.flow).collect(), self.unanswered.len()))
    }

    /// Deletes the entries of these flows that the last look returned and that still have no answer.
    fn delete_unanswered(
        &mut self,
        flows: &HashSet<StaleFlow>,
    ) -> Result<[u64; 2], ConntrackError> {
        let stale = self.waiting.extract_if(.., |entry| entry.flow.is_among(flows));
        let mut unanswered = Vec::new();
        for entry in stale.collect::<Vec<_>>() {
            let mut now = None;
            let get = |out: &mut Vec<u8>, sequence| message::get(out, sequence, &entry);
            self.ask(get, |it| now = Entry::decode(it.kind, it.payload))?;
            unanswered.extend(Some(entry).filter(|entry| now.as_ref() == Some(entry)));
        }
        self.delete_entries(&unanswered)
    }

    /// Does the same with at most `most` entries in memory: further ones are found by another
    /// search, after these are deleted.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn delete_in_parts(
        &mut self,
        flows: &HashSet<StaleFlow>,
        most: usize,
    ) -> Result<[u64; 2], ConntrackError> {
        let search = self.durations.choose(flows);
        let mut deleted = [0, 0];
        loop {
            let entries = self.entries(&search, flows, most)?;
            let of_part = self.delete_entries(&entries)?;
            for (deleted, of_part) in deleted.iter_mut().zip(of_part) {
                *deleted += of_part;
            }
            if entries.len() < most || of_part == [0, 0] {
                return Ok(deleted);
            }
        }
    }

    /// Returns the entries that match a pattern in `flows`, at most `most`.
    ///
    /// `CTA_FILTER` in a delete request would save these dumps, but kernels before 6.8 refuse it,
    /// and it cannot contain IPv6 addresses: see `Compared`.
    fn entries(
        &mut self,
        search: &Search,
        flows: &HashSet<StaleFlow>,
        most: usize,
    ) -> Result<Vec<Entry>, ConntrackError> {
        let mut entries = Vec::new();
        self.search(search, |entry| {
            if entries.len() < most && entry.flow.is_among(flows) {
                entries.push(entry);
            }
        })?;
        Ok(entries)
    }

    /// Returns all UDP flows of both families, each once, sorted.
    ///
    /// Leaves out entries of other zones, in which a packet is tracked a second time before or
    /// after its translation, and all beyond 100,000 distinct flows.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn flows(&mut self) -> Result<Vec<Flow>, ConntrackError> {
        let mut flows = HashSet::default();
        self.search(&Search::all(), |Entry { flow, zone, .. }| {
            if zone.is_none() && flows.len() < MAX_FLOWS {
                flows.insert(flow);
            }
        })?;
        let mut flows: Vec<_> = flows.into_iter().collect();
        flows.sort_unstable();
        Ok(flows)
    }

    /// Calls `each` with every translated connection of both families during the kernel's dump. A
    /// connection may be reported twice or not at all if its entry moves meanwhile.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn connections(&mut self, mut each: impl FnMut(Connection)) -> Result<(), ConntrackError> {
        self.dump_with_status(IPS_DST_NAT, IPS_DST_NAT, |object| {
            if let Some(connection) = Connection::decode(object.kind, object.payload) {
                each(connection);
            }
        })
    }

    /// Returns the number of translated connections whose packets a flowtable forwards.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn count_offloaded(&mut self) -> Result<u64, ConntrackError> {
        let (status, mut count) = (IPS_DST_NAT | IPS_OFFLOAD, 0);
        self.dump_with_status(status, status, |object| {
            let connection = Connection::decode(object.kind, object.payload);
            count += u64::from(connection.is_some_and(|connection| connection.is_offloaded));
        })?;
        Ok(count)
    }

    /// Makes the dumps of a search, and records how long the longest one took.
    fn search(
        &mut self,
        search: &Search,
        mut each: impl FnMut(Entry),
    ) -> Result<(), ConntrackError> {
        let mut longest = Duration::ZERO;
        for filter in &search.filters {
            let started = self.clock.map(|clock| clock());
            self.dump(filter, &mut each)?;
            if let (Some(clock), Some(started)) = (self.clock, started) {
                longest = longest.max(clock().saturating_sub(started));
            }
        }
        if !longest.is_zero() {
            self.durations.record(search.grouping, longest);
        }
        Ok(())
    }

    fn dump(&mut self, filter: &Filter, mut each: impl FnMut(Entry)) -> Result<(), ConntrackError> {
        let request = |out: &mut Vec<u8>, sequence| message::dump(out, sequence, filter);
        self.ask(request, |object| {
            if let Some(entry) = Entry::decode(object.kind, object.payload) {
                each(entry);
            }
        })
    }

    fn dump_with_status(
        &mut self,
        status: u32,
        mask: u32,
        each: impl FnMut(Message<'_>),
    ) -> Result<(), ConntrackError> {
        let request =
            |out: &mut Vec<u8>, sequence| message::dump_with_status(out, sequence, status, mask);
        self.ask(request, each)
    }

    /// Sends one request, and calls `each` with the objects of its answer.
    fn ask(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u32),
        each: impl FnMut(Message<'_>),
    ) -> Result<(), ConntrackError> {
        let (sequence, mut request) = (self.next_sequence(1), Vec::new());
        write(&mut request, sequence);
        self.socket.send(&request)?;
        self.receive_answer(sequence, each).map(drop)
    }

    /// Deletes these entries. Returns how many of each family still existed.
    fn delete_entries(&mut self, entries: &[Entry]) -> Result<[u64; 2], ConntrackError> {
        let mut deleted = [0, 0];
        let mut request = Vec::new();
        let of_families = entries.chunk_by(|entry, next| entry.family() == next.family());
        for entries in of_families.flat_map(|entries| entries.chunks(DELETES)) {
            request.clear();
            let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            let first = self.next_sequence(count);
            let last = first + (count - 1);
            for (entry, sequence) in entries.iter().zip(first..) {
                let flags = if sequence == last { REQUEST | ACK } else { REQUEST };
                message::delete(&mut request, sequence, entry, flags);
            }
            self.socket.send(&request)?;
            let refused = self.receive_answer(last, |_| {})?;
            deleted[entries[0].family().index()] += (entries.len() - refused.gone) as u64;
            let busy = refused.busy.iter().filter_map(|sequence| sequence.checked_sub(first));
            let busy = busy.filter_map(|place| entries.get(usize::try_from(place).ok()?));
            self.expire_entries(busy)?;
        }
        Ok(deleted)
    }

    /// Deletes entries that are in a flowtable. Some kernels before 6.4 refuse that
    /// (`ctnetlink_del_conntrack`), but accept a timeout of 0 and delete an expired entry when
    /// the entry is looked up.
    fn expire_entries<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Result<(), ConntrackError> {
        let mut request = Vec::new();
        for entry in entries {
            request.clear();
            let first = self.next_sequence(2);
            message::expire(&mut request, first, entry, REQUEST);
            message::delete(&mut request, first + 1, entry, REQUEST | ACK);
            self.socket.send(&request)?;
            self.receive_answer(first + 1, |_| {})?;
        }
        Ok(())
    }

    /// Receives until the end of the request `last`. Returns the entries that were not deleted.
    fn receive_answer(
        &mut self,
        last: u32,
        mut object: impl FnMut(Message<'_>),
    ) -> Result<NotDeleted, ConntrackError> {
        let (mut refused, mut outcome) = (NotDeleted::default(), Ok(()));
        for _ in 0..MAX_DATAGRAMS {
            let datagram = self.socket.receive(Wait::Limited)?;
            for message in Messages::new(datagram) {
                let message = message?;
                match message.meaning()? {
                    Meaning::Object(message) if message.sequence == last => object(message),
                    Meaning::Acknowledgement(end) | Meaning::Done(end) => {
                        match end.errno {
                            0 => {}
                            NO_ENTRY => refused.gone += 1,
                            IN_FLOWTABLE => refused.busy.push(message.sequence),
                            errno => outcome = Err(ConntrackError::Refused(Errno::from_raw(errno))),
                        }
                        if message.sequence == last {
                            return outcome.map(|()| refused);
                        }
                    }
                    Meaning::Overrun => return Err(ReceiveError::Overrun.into()),
                    Meaning::Object(_) | Meaning::Nothing => {}
                }
            }
        }
        Err(ReceiveError::TimedOut.into())
    }

    /// Returns the first of `count` consecutive numbers that no recent request has.
    fn next_sequence(&mut self, count: u32) -> u32 {
        let first = self.sequence.checked_add(count).map_or(0, |_| self.sequence);
        self.sequence = first + count;
        first
    }
}

/// Decodes a message of type `kind` as the entry of a UDP flow and returns the request to delete
/// it. Returns `None` for any other message.
pub fn delete_request(kind: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let entry = Entry::decode(kind, payload)?;
    let mut request = Vec::new();
    message::delete(&mut request, 0, &entry, REQUEST);
    Some(request)
}
