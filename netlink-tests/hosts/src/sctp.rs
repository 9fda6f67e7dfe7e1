//! SCTP without a kernel that has it: an INIT and its answer on raw sockets (RFC 9260).
//!
//! Netfilter follows and translates SCTP also where the kernel has no SCTP sockets. The server puts
//! its answer where a real one puts its cookie.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};
use socket2::{Protocol, Type};

use crate::answer::Answer;
use crate::datagram::{self, Datagram};
use crate::deadline::Deadline;
use crate::echo;
use crate::namespace::Namespace;
use crate::serve::Server;

/// Sends an INIT from `source_port`, or from a port not used before, and waits for its INIT ACK
/// for `limit`.
pub(crate) fn probe(
    (namespace, limit): (&Namespace, Duration),
    source_port: Option<u16>,
    to: SocketAddr,
) -> Answer {
    let socket = match echo::raw(namespace, to.ip(), Protocol::from(SCTP)) {
        Ok(socket) => socket,
        Err(error) => return Answer::from_error(&error),
    };
    let source_port = source_port.unwrap_or_else(|| NEXT_PORT.fetch_add(1, Ordering::Relaxed));
    let init = Packet { source_port, port: to.port(), tag: 0, chunk: INIT, cookie: Vec::new() };
    while let Err(error) = socket.send(&init.encode()) {
        let answer = Answer::from_error(&error);
        // Dropped in our own output hook. A reject is reported by `recv`.
        if answer == Answer::Silent {
            break;
        }
        if !is_of_another_port(&socket, source_port) {
            return answer;
        }
    }
    let deadline = Deadline::after(limit);
    while let Some(left) = deadline.left() {
        match echo::receive(&socket, to.ip(), left) {
            Ok(bytes) => match Packet::decode(&bytes) {
                Some(ack) if ack.answers(&init) => return Answer::parse(&ack.cookie),
                Some(_) | None => {}
            },
            Err(_) if is_of_another_port(&socket, source_port) => {}
            Err(error) => return Answer::from_error(&error),
        }
    }
    Answer::Silent
}

/// Whether the ICMP error that the socket just reported is for a packet from another port: a raw
/// socket hears the errors of all packets of its protocol to its peer. Takes it from the queue of
/// errors, which has the start of the packet (ip(7), `IP_RECVERR`).
fn is_of_another_port(socket: &UdpSocket, source_port: u16) -> bool {
    let mut start = [0; 2];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let len = recv(socket.as_raw_fd(), &mut start, flags);
    len == Ok(start.len()) && u16::from_be_bytes(start) != source_port
}

/// Answers each INIT to `port` with an INIT ACK, in the calling thread's namespace.
pub(crate) fn serve(port: u16, name: &str) -> Server {
    let sockets = datagram::open_both(Type::RAW, Protocol::from(SCTP), 0);
    let name = name.to_owned();
    Server::datagrams(sockets, move |question| init_ack(question, port, &name))
}

fn init_ack(question: &Datagram, port: u16, name: &str) -> Option<Vec<u8>> {
    let mut bytes = question.bytes.clone();
    if question.to.is_ipv4() {
        bytes = echo::strip_ipv4_header(bytes);
    }
    let init = Packet::decode(&bytes).filter(|init| init.chunk == INIT && init.port == port)?;
    let seen = SocketAddr::new(question.from.ip(), init.source_port);
    let ack = Packet {
        source_port: port,
        port: init.source_port,
        tag: TAG,
        chunk: INIT_ACK,
        cookie: Answer::text(name, seen).into_bytes(),
    };
    Some(ack.encode())
}

/// The part of an SCTP packet with an INIT or INIT ACK chunk that the tests need.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Packet {
    source_port: u16,
    port: u16,
    /// 0 on an INIT, the peer's initiate tag on an INIT ACK.
    tag: u32,
    chunk: u8,
    /// The state cookie parameter; absent when empty.
    cookie: Vec<u8>,
}

impl Packet {
    fn answers(&self, init: &Self) -> bool {
        (self.chunk, self.port, self.source_port) == (INIT_ACK, init.source_port, init.port)
    }

    fn encode(&self) -> Vec<u8> {
        let parameter = if self.cookie.is_empty() { 0 } else { 4 + self.cookie.len() };
        let chunk_len = u16::try_from(INIT_LEN + parameter).expect("a name is short");
        let mut bytes = Vec::new();
        bytes.extend(self.source_port.to_be_bytes());
        bytes.extend(self.port.to_be_bytes());
        bytes.extend(self.tag.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend([self.chunk, 0]);
        bytes.extend(chunk_len.to_be_bytes());
        bytes.extend(TAG.to_be_bytes());
        bytes.extend(65_536_u32.to_be_bytes()); // receive window
        bytes.extend([0, 10, 0, 10]); // streams
        bytes.extend(1_u32.to_be_bytes()); // first TSN
        if parameter > 0 {
            bytes.extend(STATE_COOKIE.to_be_bytes());
            bytes.extend(u16::try_from(parameter).expect("checked above").to_be_bytes());
            bytes.extend(&self.cookie);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let checksum = crc32c(&bytes);
        bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` for anything else than one INIT or INIT ACK with the right checksum.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut unsigned = bytes.to_vec();
        unsigned.get_mut(CHECKSUM)?.fill(0);
        if bytes.get(CHECKSUM)? != crc32c(&unsigned).to_le_bytes() {
            return None;
        }
        let be16 = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let chunk = *bytes.get(12)?;
        let parameters = 12 + INIT_LEN;
        let cookie = if be16(14)? > 20 {
            let len = usize::from(be16(parameters + 2)?);
            bytes.get(parameters + 4..parameters + len)?.to_vec()
        } else {
            Vec::new()
        };
        let tag = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
        let packet = Self { source_port: be16(0)?, port: be16(2)?, tag, chunk, cookie };
        matches!(chunk, INIT | INIT_ACK).then_some(packet)
    }
}

/// CRC-32C, bit by bit (RFC 9260, appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    });
    !crc
}

/// The IP protocol number.
const SCTP: i32 = 132;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const STATE_COOKIE: u16 = 7;
/// Bytes of an INIT chunk without parameters.
const INIT_LEN: usize = 20;
const CHECKSUM: std::ops::Range<usize> = 8..12;
/// Everybody's initiate tag.
const TAG: u32 = 0x4d53_5043;

/// Conntrack takes a second INIT from a port for a part of the first one's flow.
static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_published_test_vector() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn decoding_reverses_encoding() {
        for cookie in [Vec::new(), b"a 10.0.0.1:5".to_vec(), b"abcde".to_vec()] {
            let packet = Packet { source_port: 7, port: 80, tag: 9, chunk: INIT_ACK, cookie };
            assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
    }

    #[test]
    fn a_packet_with_a_wrong_checksum_is_ignored() {
        let packet = Packet { source_port: 7, port: 80, tag: 0, chunk: INIT, cookie: Vec::new() };
        let mut bytes = packet.encode();
        bytes[0] ^= 1;
        assert_eq!(Packet::decode(&bytes), None);
    }
}
