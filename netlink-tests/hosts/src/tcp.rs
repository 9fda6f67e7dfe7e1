//! TCP probes: one connection and one answer, or a connection for several.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::answer::Answer;
use crate::deadline::{Deadline, stretched};
use crate::namespace::Namespace;
use crate::transfer;

/// An open connection to one of our servers.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    first: Answer,
}

impl Connection {
    /// Connects from `namespace`, from `source` if one is chosen. Waits for each answer for `limit`.
    pub(crate) fn open(
        (namespace, limit): (&Namespace, Duration),
        source: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<Self, Answer> {
        let socket = namespace
            .run(|| Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP)));
        let socket = socket.expect("a TCP socket");
        bind(&socket, source);
        // A reset at the end leaves no TIME_WAIT, so a port can be used again at once.
        socket.set_linger(Some(Duration::ZERO)).expect("a TCP socket");
        connect(&socket, to, limit).map_err(|error| Answer::from_error(&error))?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(stretched(limit))).expect("it is not zero");
        let first = read_answer(&mut stream);
        Ok(Self { stream, first })
    }

    /// The server's answer when the connection was opened.
    #[must_use]
    pub fn first(&self) -> &Answer {
        &self.first
    }

    /// Sends a line and waits for the answer. [`Answer::Refused`] also when the connection is over.
    pub fn ask(&mut self) -> Answer {
        let sent = self.send();
        self.answer(sent)
    }

    /// As [`Self::ask`], with many connections at once: on a busy machine an answer may take
    /// milliseconds, during which the others are idle.
    pub fn ask_all(connections: &mut [Self]) -> Vec<Answer> {
        let sent: Vec<_> = connections.iter_mut().map(Self::send).collect();
        connections.iter_mut().zip(sent).map(|(connection, sent)| connection.answer(sent)).collect()
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(b"again\n")
    }

    fn answer(&mut self, sent: io::Result<()>) -> Answer {
        match sent {
            Ok(()) => read_answer(&mut self.stream),
            Err(error) => from_error(&error),
        }
    }

    /// Lets the server send this number of bytes.
    ///
    /// # Errors
    /// The transfer stood still for as long as an answer may take, or the connection is over.
    pub fn download(&mut self, bytes: usize) -> io::Result<()> {
        transfer::download(&mut self.stream, bytes)
    }

    /// Sends this number of bytes to the server and waits for its answer.
    ///
    /// # Errors
    /// As [`Self::download`].
    pub fn upload(&mut self, bytes: usize) -> io::Result<Answer> {
        transfer::upload(&mut self.stream, bytes)?;
        Ok(read_answer(&mut self.stream))
    }

    /// The probe's own address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket")
    }
}

/// Connects within `limit`, and before the kernel would send again what was lost.
///
/// An ICMP error that comes while the kernel still works on `connect`, as between namespaces it
/// does, is only noted, and the kernel tries again after a second. So this looks for noted errors.
fn connect(socket: &Socket, to: SocketAddr, limit: Duration) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {}
        connected => return connected.and_then(|()| socket.set_nonblocking(false)),
    }
    let deadline = Deadline::after(limit.min(NOT_SENT_AGAIN));
    loop {
        // The outcome may have come while this thread did not run: the last check is after the limit.
        let is_last = deadline.left().is_none();
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        if poll(&mut fds, if is_last { 0 } else { LOOK_AGAIN })? > 0 {
            return socket.take_error()?.map_or_else(|| socket.set_nonblocking(false), Err);
        }
        if is_last {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// A first segment without answer is sent again after a second (RFC 6298), which would hide that
/// one was lost.
const NOT_SENT_AGAIN: Duration = Duration::from_millis(900);

/// Milliseconds until the next check for a noted error.
const LOOK_AGAIN: u8 = 10;

/// Binds `socket` to the source that the test chose.
#[track_caller]
pub(crate) fn bind(socket: &Socket, source: Option<SocketAddr>) {
    let Some(source) = source else { return };
    socket.set_reuse_address(true).expect("an unbound socket");
    socket
        .bind(&source.into())
        .unwrap_or_else(|error| panic!("cannot send from {source}: {error}"));
}

fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = [0; 256];
    // A line is so short that it arrives in one segment.
    match stream.read(&mut bytes) {
        Ok(0) => Answer::Refused,
        Ok(len) => Answer::parse(&bytes[..len]),
        Err(error) => from_error(&error),
    }
}

fn from_error(error: &io::Error) -> Answer {
    if error.raw_os_error() == Some(Errno::EPIPE as i32) {
        return Answer::Refused;
    }
    Answer::from_error(error)
}
