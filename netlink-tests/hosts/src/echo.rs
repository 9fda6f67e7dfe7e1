//! ICMP echo, in both families.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::answer::Answer;
use crate::deadline::{Deadline, eventually};
use crate::namespace::Namespace;
use crate::udp::hear_all_errors;

/// Sends one echo request and waits for its reply or an error for `limit`.
pub(crate) fn echo((namespace, limit): (&Namespace, Duration), to: IpAddr) -> Answer {
    match exchange(namespace, to, limit) {
        Ok(()) => Answer::Echoed,
        Err(error) => Answer::from_error(&error),
    }
}

/// Waits until `to` answers.
///
/// The kernel finishes a new interface (its queue, the local routes of its IPv6 addresses) in the
/// background, and loses packets until then.
///
/// # Panics
/// When it does not within seconds.
#[track_caller]
pub(crate) fn wait_for(namespace: &Namespace, to: IpAddr) {
    let answers = || exchange(namespace, to, TRY_AGAIN).ok();
    eventually(&format!("an echo from {to}"), READY_LIMIT, answers);
}

fn exchange(namespace: &Namespace, to: IpAddr, limit: Duration) -> io::Result<()> {
    let protocol = if to.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    let socket = raw(namespace, to, protocol)?;
    let request = request(to);
    match socket.send(&request) {
        // Dropped in our own output hook. A reject is reported by `recv`.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        sent => drop(sent?),
    }
    let deadline = Deadline::after(limit);
    let reply = if to.is_ipv4() { ECHO_REPLY } else { ECHO_REPLY_6 };
    while let Some(left) = deadline.left() {
        let message = receive(&socket, to, left)?;
        if message.first() == Some(&reply) && message.get(4..) == request.get(4..) {
            return Ok(());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// A raw socket connected to `to`, so that ICMP errors become socket errors.
pub(crate) fn raw(namespace: &Namespace, to: IpAddr, protocol: Protocol) -> io::Result<UdpSocket> {
    let to = SocketAddr::new(to, 0);
    let socket =
        namespace.run(|| Socket::new(Domain::for_address(to), Type::RAW, Some(protocol)))?;
    socket.connect(&to.into())?;
    // An unconnected raw socket also receives the ICMP errors of other sockets.
    let _ = socket.take_error()?;
    hear_all_errors(&socket, to);
    // The standard library has no raw socket; `send` and `recv` are the same calls.
    Ok(UdpSocket::from(OwnedFd::from(socket)))
}

/// Receives one packet from `peer` within `left`, without its IP header.
pub(crate) fn receive(socket: &UdpSocket, peer: IpAddr, left: Duration) -> io::Result<Vec<u8>> {
    socket.set_read_timeout(Some(left))?;
    let mut bytes = vec![0; 1500];
    let len = socket.recv(&mut bytes)?;
    bytes.truncate(len);
    if peer.is_ipv4() {
        bytes = strip_ipv4_header(bytes);
    }
    Ok(bytes)
}

/// The payload of a packet from a raw IPv4 socket, without the IP header.
pub(crate) fn strip_ipv4_header(mut packet: Vec<u8>) -> Vec<u8> {
    let words = packet.first().map_or(0, |byte| usize::from(byte & 0x0f));
    packet.drain(..(words * 4).min(packet.len()));
    packet
}

/// Type, code, checksum, identifier, sequence number (RFC 792, RFC 4443).
fn request(to: IpAddr) -> Vec<u8> {
    let kind = if to.is_ipv4() { ECHO_REQUEST } else { ECHO_REQUEST_6 };
    let mut request = vec![kind, 0, 0, 0, 0x4d, 0x53, 0, 1];
    // The kernel fills in the checksum of ICMPv6.
    if to.is_ipv4() {
        let checksum = internet_checksum(&request);
        request[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    request
}

/// The checksum of RFC 1071 over an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    !words.fold(0_u16, |sum, word| {
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST_6: u8 = 128;
const ECHO_REPLY_6: u8 = 129;

/// Between two questions to an interface that may not be ready.
const TRY_AGAIN: Duration = Duration::from_millis(5);
const READY_LIMIT: Duration = Duration::from_secs(10);
