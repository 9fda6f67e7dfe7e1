//! A blocking netlink socket with buffers large enough for a transaction.
//!
//! The kernel does all work of a request inside `send`, so a send has no time limit; every receive
//! has one. A truncated datagram is an error.

use std::io;
use std::os::fd::AsFd;

use netlink_sys::{Socket as Descriptor, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use socket2::{SockFilter, SockRef};

use super::message::{Message, Messages};

/// Requested send buffer in bytes; the kernel doubles it. Enough for some 1.5 million set elements
/// in one transaction.
const SEND_BUFFER: usize = 64 << 20;
/// Requested receive buffer in bytes; the kernel doubles it.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Receive length in bytes. A dump datagram of the kernel has at most 32 KiB (`netlink_recvmsg`);
/// an acknowledgement that echoes a message stays below 128 KiB.
const DATAGRAM: usize = 256 << 10;
/// The kernel queues answers before `send` returns, so this expires only if an answer was lost.
const RECEIVE_TIMEOUT_SECONDS: i64 = 5;
/// Bytes of the send buffer that `netlink_sendmsg` reserves.
const SEND_OVERHEAD: usize = 32;
/// Most datagrams of other senders than the kernel that one receive skips.
const MAX_FOREIGN_DATAGRAMS: usize = 1000;

/// Why a receive failed.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// Nothing arrived within the time limit.
    #[error("the kernel did not answer in {RECEIVE_TIMEOUT_SECONDS} s")]
    TimedOut,
    /// ENOBUFS: answers were dropped because the receive buffer was full.
    #[error("the receive buffer was full and answers were lost")]
    Overrun,
    /// A datagram was longer than the buffer for it.
    #[error("an answer of {length} bytes was cut to {received}")]
    Truncated {
        /// Length of the datagram in bytes.
        length: usize,
        /// Bytes that fit.
        received: usize,
    },
    /// Another error of the socket.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How long a receive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until an answer arrives or the time limit expires.
    Limited,
    /// Not at all: returns only what has arrived.
    No,
}

/// A netlink socket bound to a port of its own.
#[derive(Debug)]
pub struct Socket {
    descriptor: Descriptor,
    buffer: Vec<u8>,
    port: u32,
    send_buffer: usize,
}

impl Socket {
    /// Opens a socket of `protocol` with extended and capped acknowledgements.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel lacks the protocol; other errors of `socket(2)` and
    /// `setsockopt(2)`.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Self::bound(protocol)?;
        socket.descriptor.set_ext_ack(true)?;
        socket.descriptor.set_cap_ack(true)?;
        socket.set_send_buffer(SEND_BUFFER)?;
        Ok(socket)
    }

    /// Opens a socket of `protocol` that receives the notifications of a multicast group. With a
    /// netlink port in `except`, those caused by that socket are left out.
    ///
    /// # Errors
    /// As for [`Socket::open`].
    pub fn listen(protocol: isize, group: u32, except: Option<u32>) -> io::Result<Self> {
        let socket = Self::bound(protocol)?;
        if let Some(except) = except {
            // Before the socket joins, so that no other notification arrives.
            SockRef::from(&socket.descriptor).attach_filter(&unless_caused_by(except))?;
        }
        socket.descriptor.add_membership(group)?;
        Ok(socket)
    }

    /// Also receives the notifications of another multicast group of the same protocol.
    ///
    /// # Errors
    /// Errors of `setsockopt(2)`.
    pub fn join(&mut self, group: u32) -> io::Result<()> {
        self.descriptor.add_membership(group)
    }

    /// Returns a socket with a port, a receive buffer and a receive timeout.
    fn bound(protocol: isize) -> io::Result<Self> {
        let mut descriptor = Descriptor::new(protocol)?;
        let port = descriptor.bind_auto()?.port_number();
        let timeout = TimeVal::seconds(RECEIVE_TIMEOUT_SECONDS);
        setsockopt(&descriptor, sockopt::ReceiveTimeout, &timeout)?;
        let mut socket = Self { descriptor, buffer: vec![0; DATAGRAM], port, send_buffer: 0 };
        socket.set_receive_buffer(RECEIVE_BUFFER)?;
        Ok(socket)
    }

    /// Returns the netlink port of this socket, which identifies the owner of a table.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Returns the longest datagram in bytes that this socket can send. `netlink_sendmsg` refuses
    /// more than the send buffer less 32 bytes with EMSGSIZE.
    pub fn max_send(&self) -> usize {
        self.send_buffer.saturating_sub(SEND_OVERHEAD)
    }

    /// Sets the send buffer to twice `bytes`. Where SO_SNDBUFFORCE is not permitted, as in a user
    /// namespace, `net.core.wmem_max` limits it.
    ///
    /// # Errors
    /// Errors of `setsockopt(2)` other than EPERM.
    pub fn set_send_buffer(&mut self, bytes: usize) -> io::Result<()> {
        match setsockopt(&self.descriptor, sockopt::SndBufForce, &bytes) {
            Err(Errno::EPERM) => setsockopt(&self.descriptor, sockopt::SndBuf, &bytes)?,
            forced => forced?,
        }
        self.send_buffer = nix::sys::socket::getsockopt(&self.descriptor, sockopt::SndBuf)?;
        Ok(())
    }

    /// Sets the receive buffer to twice `bytes`, or to the limit `net.core.rmem_max`.
    ///
    /// # Errors
    /// Errors of `setsockopt(2)` other than EPERM.
    pub fn set_receive_buffer(&mut self, bytes: usize) -> io::Result<()> {
        match setsockopt(&self.descriptor, sockopt::RcvBufForce, &bytes) {
            Err(Errno::EPERM) => Ok(setsockopt(&self.descriptor, sockopt::RcvBuf, &bytes)?),
            forced => Ok(forced?),
        }
    }

    /// Sets the length in bytes of the longest datagram that can be received whole.
    pub fn set_max_receive(&mut self, bytes: usize) {
        self.buffer = vec![0; bytes];
    }

    /// Sends one datagram. When this returns, the kernel has processed it.
    ///
    /// # Errors
    /// EMSGSIZE if it is longer than [`Socket::max_send`]; EINTR and ENOBUFS before the kernel
    /// processes anything. After any error the kernel has not seen the datagram.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.descriptor.send(datagram, 0).map(drop)
    }

    /// Receives one datagram from the kernel. Skips those of other senders.
    ///
    /// # Errors
    /// See [`ReceiveError`]. A truncated datagram is lost.
    pub fn receive(&mut self, wait: Wait) -> Result<&[u8], ReceiveError> {
        let length = self.receive_from_kernel(wait)?;
        let received = self.buffer.len();
        if length > received {
            return Err(ReceiveError::Truncated { length, received });
        }
        Ok(&self.buffer[..length])
    }

    /// Calls `each` with the messages of at most `most` datagrams, and with an error in place of lost
    /// or damaged ones. `wait` holds for each datagram. Returns whether it received all that there
    /// are.
    ///
    /// # Errors
    /// Those of `each`; the socket failed.
    pub fn take(
        &mut self,
        most: usize,
        wait: Wait,
        each: &mut dyn FnMut(io::Result<Message<'_>>) -> io::Result<()>,
    ) -> io::Result<bool> {
        for _ in 0..most {
            match self.receive(wait) {
                Ok(datagram) => Messages::new(datagram)
                    .try_for_each(|message| each(message.map_err(io::Error::other)))?,
                Err(ReceiveError::TimedOut) => return Ok(true),
                Err(ReceiveError::Io(error)) => return Err(error),
                Err(error @ (ReceiveError::Overrun | ReceiveError::Truncated { .. })) => {
                    each(Err(io::Error::other(error)))?;
                }
            }
        }
        Ok(false)
    }

    fn receive_from_kernel(&mut self, wait: Wait) -> Result<usize, ReceiveError> {
        // With MSG_TRUNC the kernel returns the full length of a truncated datagram.
        let flags = match wait {
            Wait::Limited => MsgFlags::MSG_TRUNC,
            Wait::No => MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT,
        };
        for _ in 0..MAX_FOREIGN_DATAGRAMS {
            let mut target = &mut self.buffer[..];
            match self.descriptor.recv_from(&mut target, flags.bits()) {
                Ok((length, sender)) if is_kernel(&sender) => return Ok(length),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(receive_error(error)),
            }
        }
        Err(ReceiveError::TimedOut)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Returns a classic BPF program that drops messages with this port in `nlmsg_pid`, at offset 12 of
/// `struct nlmsghdr`. BPF loads the number as big-endian.
fn unless_caused_by(port: u32) -> [SockFilter; 4] {
    /// `BPF_LD | BPF_W | BPF_ABS` of `<linux/filter.h>`.
    const LOAD: u16 = 0x20;
    /// `BPF_JMP | BPF_JEQ | BPF_K`.
    const JUMP_IF_EQUAL: u16 = 0x15;
    /// `BPF_RET | BPF_K`.
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD, 0, 0, 12),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, u32::from_be_bytes(port.to_ne_bytes())),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

fn is_kernel(sender: &SocketAddr) -> bool {
    sender.port_number() == 0
}

fn receive_error(error: io::Error) -> ReceiveError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOBUFS) => ReceiveError::Overrun,
        Some(Errno::EAGAIN) => ReceiveError::TimedOut,
        _ => ReceiveError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn every_socket_has_a_receive_timeout() {
        let opened = Socket::open(netlink_sys::protocols::NETLINK_ROUTE);
        let listening = Socket::listen(netlink_sys::protocols::NETLINK_ROUTE, 1, None);
        for socket in [opened, listening] {
            let timeout = getsockopt(&socket.unwrap(), sockopt::ReceiveTimeout).unwrap();
            assert_eq!(timeout, TimeVal::seconds(RECEIVE_TIMEOUT_SECONDS));
        }
    }
}
