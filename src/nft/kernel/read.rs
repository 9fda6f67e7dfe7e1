//! Read-back: sends requests to the real kernel and reads its answers.
//!
//! An answer is received to its end even after an error, because the kernel starts no second dump
//! on a socket before the first one ends. Where that is impossible, later requests use another
//! socket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ahash::RandomState;
use nix::errno::Errno;

use super::error::{Malformed, ReadError, unless_missing};
use super::interface::Contents;
use super::nftables::Nftables;
use crate::abi::NETLINK_NETFILTER;
use crate::any::AnyElement;
use crate::chain::{Chain, HookPoint};
use crate::element::ElementView;
use crate::fields::DecodeError;
use crate::flowtable::Flowtable;
use crate::netlink::message::{Acknowledgement, Meaning, Message, Messages};
use crate::netlink::socket::{ReceiveError, Socket, Wait};
use crate::request::{self, Generation, Request};
use crate::set::DecodedSet;
use crate::table::{Table, TableRef};
use crate::whole::WholeTable;

/// Longest accepted duration of one answer: a set of 2.5 million elements took 262 s.
pub const MAX_ANSWER_TIME: Duration = Duration::from_secs(600);

/// Whether all objects of an answer are of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Whole,
    /// The ruleset changed during the dump.
    Interrupted,
    /// The caller ended it.
    Stopped,
}

/// State of reading the answer to one request.
struct Walk<'a> {
    request: Request<'a>,
    sequence: u32,
    bytes: usize,
    interrupted: bool,
    /// The first error.
    error: Option<ReadError>,
    ended: bool,
}

/// Callback for the attributes of each object of an answer.
pub(super) type EachObject<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), DecodeError>;

impl Nftables {
    /// Sends `request` and calls `each` with every object of the answer.
    pub(super) fn ask(
        &mut self,
        request: Request<'_>,
        each: EachObject<'_>,
    ) -> Result<Read, ReadError> {
        self.ask_until(request, each, &|| false)
    }

    /// Does the same until `is_stopped` returns true, between two datagrams of the answer.
    pub(super) fn ask_until(
        &mut self,
        request: Request<'_>,
        each: EachObject<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Read, ReadError> {
        let sequence = self.next_sequence();
        let send_error = |error| ReadError::Send { what: request.to_string(), error };
        let bytes = request.encode(sequence).map_err(io::Error::other).map_err(send_error)?;
        let most = self.max_answer;
        let socket = self.reader().map_err(send_error)?;
        socket.send(&bytes).map_err(send_error)?;
        let mut walk = Walk::new(request, sequence);
        let deadline = now() + MAX_ANSWER_TIME;
        while !walk.ended {
            // The kernel creates the next part of a dump when the previous one is received. After a
            // lost part, nothing more will arrive.
            let wait = if walk.error.is_some() { Wait::No } else { Wait::Limited };
            match socket.receive(wait) {
                Ok(datagram) => walk.take_datagram(datagram, each),
                Err(error @ ReceiveError::Truncated { .. }) => walk.receive_error(error),
                Err(error) => {
                    walk.receive_error(error);
                    break;
                }
            }
            if walk.bytes > most || now() > deadline {
                walk.fail(ReadError::Endless { what: request.to_string() });
                break;
            }
            if !walk.ended && is_stopped() {
                self.has_unread_answer = true;
                return Ok(Read::Stopped);
            }
        }
        self.has_unread_answer = !walk.ended;
        walk.result()
    }

    /// Does the same until reads are stopped ([`super::Kernel::stop_of_reads`]).
    pub(super) fn ask_unless_stopped(
        &mut self,
        request: Request<'_>,
        each: EachObject<'_>,
    ) -> Result<Read, ReadError> {
        let flag = Arc::clone(&self.stop_of_reads);
        let stops = || flag.load(Ordering::Relaxed);
        let read = if stops() { Read::Stopped } else { self.ask_until(request, each, &stops)? };
        match read {
            Read::Stopped => Err(ReadError::Stopped { what: request.to_string() }),
            Read::Whole | Read::Interrupted => Ok(read),
        }
    }

    /// Returns the socket for requests: that of the commits until an answer on it was not received
    /// to its end. The kernel refuses the next dump on such a socket with EBUSY
    /// (`__netlink_dump_start`). The socket of the commits stays open, because it owns the tables;
    /// a commit ignores the remaining answer.
    fn reader(&mut self) -> io::Result<&mut Socket> {
        if self.has_unread_answer {
            self.reader = Some(Socket::open(NETLINK_NETFILTER)?);
            self.has_unread_answer = false;
        }
        Ok(self.reader.as_mut().unwrap_or(&mut self.socket))
    }

    /// Returns the generation without changing `last`.
    pub(super) fn read_generation(&mut self) -> Result<Generation, ReadError> {
        let request = Request::Generation;
        let read = self.read_objects(request, request::generation)?;
        read.into_iter().next().ok_or_else(|| no_object(request))
    }

    /// Returns a table without its contents; `None` if the table does not exist.
    pub(super) fn read_header(
        &mut self,
        table: &TableRef,
    ) -> Result<Option<WholeTable>, ReadError> {
        let request = Request::Table(table);
        let decode = |attributes: &[u8]| WholeTable::decode_header(table.family, attributes);
        let Some(read) = unless_missing(self.read_objects(request, decode))? else {
            return Ok(None);
        };
        read.into_iter().next().map(Some).ok_or_else(|| no_object(request))
    }

    /// Reads the contents of a table. They are consistent if the generation is the same afterwards.
    pub(super) fn read_contents_once(
        &mut self,
        table: &TableRef,
        generation: Generation,
    ) -> Result<Option<Contents>, ReadError> {
        let Some(header) = self.read_header(table)? else {
            return Ok(None);
        };
        let chains = self.read_objects(Request::Chains(table), Chain::decode)?;
        let (chains, others): (Vec<_>, Vec<_>) = chains.into_iter().partition(is_of_ours);
        let known = header.known();
        Ok(Some(Contents {
            generation,
            foreign: usize::from(known.is_none()) + others.len(),
            table: known.unwrap_or_else(|| Table::new(table.family, table.name.clone())),
            owner: header.owner,
            chains,
            rules: self.rules(table)?.into(),
            sets: self.read_objects(Request::Sets(table), DecodedSet::decode)?,
            flowtables: self.read_objects(Request::Flowtables(table), Flowtable::decode)?,
        }))
    }
}

/// Fingerprints of the elements of a dump, to detect repeated elements.
///
/// The kernel does not report when a hash table grows during a dump, which happens in the
/// background after many insertions. `nft_rhash_walk` then starts each datagram by skipping as many
/// elements as it returned before, in the new order. As many elements are then missing as are
/// repeated (seen on 6.18 with 120,000 elements).
pub(super) struct Seen {
    state: RandomState,
    fingerprints: Vec<u64>,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self { state: RandomState::new(), fingerprints: Vec::new() }
    }

    pub(super) fn insert(&mut self, element: &ElementView<'_>) {
        self.fingerprints.push(self.state.hash_one((element.key, element.key_end, element.flags)));
    }

    pub(super) fn insert_any(&mut self, element: &AnyElement) {
        let (last, end) = (&element.details().key_end, u32::from(element.is_end));
        self.fingerprints.push(self.state.hash_one((&element.key, last, end)));
    }

    pub(super) fn were_different(mut self) -> bool {
        self.fingerprints.sort_unstable();
        self.fingerprints.windows(2).all(|pair| pair[0] != pair[1])
    }
}

impl<'a> Walk<'a> {
    fn new(request: Request<'a>, sequence: u32) -> Self {
        Self { request, sequence, bytes: 0, interrupted: false, error: None, ended: false }
    }

    fn take_datagram(&mut self, datagram: &[u8], each: EachObject<'_>) {
        self.bytes = self.bytes.saturating_add(datagram.len());
        for message in Messages::new(datagram) {
            if let Err(error) = message.map(|message| self.take(message, each)) {
                self.malformed(error.into());
            }
        }
    }

    fn take(&mut self, message: Message<'_>, each: EachObject<'_>) {
        if message.sequence != self.sequence {
            // Part of the answer to an earlier request.
            return;
        }
        self.interrupted |= message.interrupted();
        match message.meaning() {
            Ok(Meaning::Object(message)) => self.take_object(message, each),
            Ok(Meaning::Acknowledgement(end) | Meaning::Done(end)) => self.end(end),
            Ok(Meaning::Overrun) => self.receive_error(ReceiveError::Overrun),
            Ok(Meaning::Nothing) => {}
            Err(error) => self.malformed(error.into()),
        }
    }

    fn take_object(&mut self, message: Message<'_>, each: EachObject<'_>) {
        // After an error, the answer is only read to its end.
        if self.error.is_some() {
            return;
        }
        if let Some(attributes) = self.request.attributes(message.kind, message.payload)
            && let Err(error) = each(attributes)
        {
            self.malformed(error.into());
        }
    }

    fn end(&mut self, end: Acknowledgement<'_>) {
        self.ended = true;
        let errno = Errno::from_raw(end.errno);
        if matches!(errno, Errno::EINTR | Errno::EAGAIN) {
            self.interrupted = true;
        } else if end.errno != 0 {
            let (what, reason) = (self.request.to_string(), end.reason.map(str::to_owned));
            self.fail(ReadError::Refused { what, errno, reason });
        }
    }

    fn malformed(&mut self, error: Malformed) {
        self.fail(ReadError::Malformed { what: self.request.to_string(), error });
    }

    fn receive_error(&mut self, error: ReceiveError) {
        self.fail(ReadError::Receive { what: self.request.to_string(), error });
    }

    fn fail(&mut self, error: ReadError) {
        self.error.get_or_insert(error);
    }

    fn result(self) -> Result<Read, ReadError> {
        match self.error {
            Some(error) => Err(error),
            None if self.interrupted => Ok(Read::Interrupted),
            None => Ok(Read::Whole),
        }
    }
}

/// Returns whether a transaction can create such chains.
fn is_of_ours(chain: &Chain) -> bool {
    chain.base.as_ref().is_none_or(|base| {
        let kind = &*base.kind;
        !base.drops
            && matches!(kind, "filter" | "nat")
            && base.hook <= HookPoint::Postrouting as u32
    })
}

/// Returns the error for a successful answer without an object.
fn no_object(request: Request<'_>) -> ReadError {
    let (what, errno) = (request.to_string(), Errno::ENODATA);
    ReadError::Refused { what, errno, reason: None }
}

#[expect(clippy::disallowed_methods, reason = "a time limit at the edge to the kernel")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::BaseChain;
    use crate::netlink::message::{self, Header, MULTI};

    const NLMSG_DONE: u16 = 3;
    const NFT_MSG_NEWGEN: u16 = 10 << 8 | 15;

    /// Returns a message of sequence 5 with a payload.
    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let header = Header { kind, flags, sequence: 5 };
        message::append(&mut out, header, payload, |_| {}).unwrap();
        out
    }

    fn done(errno: i32) -> Vec<u8> {
        message(NLMSG_DONE, MULTI, &(-errno).to_ne_bytes())
    }

    /// Reads the datagrams as the answer to sequence 5 and counts the objects.
    fn walk(datagrams: &[Vec<u8>]) -> (usize, Option<Result<Read, ReadError>>) {
        let mut walk = Walk::new(Request::Generation, 5);
        let mut objects = 0;
        for datagram in datagrams {
            walk.take_datagram(datagram, &mut |_| {
                objects += 1;
                Ok(())
            });
        }
        (objects, walk.ended.then(|| walk.result()))
    }

    #[test]
    fn objects_are_given_until_the_dump_is_done() {
        let object = message(NFT_MSG_NEWGEN, MULTI, &[0; 4]);
        let (objects, end) = walk(&[object.clone(), [object, done(0)].concat()]);
        assert_eq!(objects, 2);
        assert!(matches!(end, Some(Ok(Read::Whole))));
    }

    #[test]
    fn a_dump_with_the_interrupted_flag_is_incomplete() {
        let object = message(NFT_MSG_NEWGEN, MULTI | message::DUMP_INTERRUPTED, &[0; 4]);
        assert!(matches!(walk(&[object, done(0)]).1, Some(Ok(Read::Interrupted))));
        assert!(matches!(walk(&[done(4)]).1, Some(Ok(Read::Interrupted))));
    }

    #[test]
    fn a_malformed_dump_is_read_to_its_end_and_is_an_error() {
        let object = message(NFT_MSG_NEWGEN, MULTI, &[0; 4]);
        let damaged = object[..18].to_vec();
        let (objects, end) = walk(&[object.clone(), damaged, object, done(0)]);
        assert_eq!(objects, 1);
        assert!(matches!(end, Some(Err(ReadError::Malformed { .. }))), "{end:?}");
    }

    #[test]
    fn a_refused_dump_is_an_error_with_its_number() {
        let (_, end) = walk(&[done(2)]);
        assert!(end.unwrap().unwrap_err().is_missing());
    }

    fn element(key: &[u8]) -> ElementView<'_> {
        ElementView { key, ..ElementView::default() }
    }

    #[test]
    fn a_repeated_element_marks_a_read_as_incomplete() {
        let were_different = |keys: &[&[u8]]| {
            let mut seen = Seen::new();
            keys.iter().for_each(|key| seen.insert(&element(key)));
            seen.were_different()
        };
        assert!(were_different(&[]));
        assert!(were_different(&[&[1], &[2], &[3]]));
        assert!(!were_different(&[&[1], &[2], &[1]]));
    }

    #[test]
    fn chains_of_other_programs_are_not_known() {
        let base = || BaseChain::new("nat", HookPoint::Postrouting, 100);
        let others = [
            BaseChain { drops: true, ..base() },
            BaseChain { kind: "route".into(), ..base() },
            BaseChain { hook: HookPoint::Postrouting as u32 + 1, ..base() },
        ];
        for base in others {
            assert!(!is_of_ours(&Chain::at_hook("c", base)));
        }
        assert!(is_of_ours(&Chain::at_hook("c", base())) && is_of_ours(&Chain::new("c")));
    }
}
