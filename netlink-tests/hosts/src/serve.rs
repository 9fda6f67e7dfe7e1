//! Background servers that send each peer their name and the address they see.
//!
//! A server is one thread that sleeps in `poll` until a packet arrives or the [`Server`] is dropped.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::answer::Answer;
use crate::datagram::{self, Datagram};
use crate::transfer::Transfer;

/// A server that runs until this is dropped.
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct Server {
    /// The server's thread ends when this end is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves every connection with one line at its start and one for each chunk that it sends.
    pub(crate) fn tcp(listener: TcpListener, name: &str) -> Self {
        let name = name.to_owned();
        Self::spawn(move |stop| {
            let mut connections = Vec::new();
            loop {
                let mut sources = vec![listener.as_fd()];
                sources.extend(connections.iter().map(AsFd::as_fd));
                let Some(ready) = wait(&stop, &sources) else { return };
                let mut ready = ready.into_iter();
                let accept = ready.next().unwrap_or(false);
                connections.retain_mut(|connection| {
                    !ready.next().unwrap_or(false) || answer_next(connection, &name)
                });
                if accept && let Ok((connection, peer)) = listener.accept() {
                    let _ = (&connection).write_all(Answer::text(&name, peer).as_bytes());
                    connections.push(connection);
                }
            }
        })
    }

    /// Answers each datagram of `sockets` with the result of `reply`.
    pub(crate) fn datagrams(
        sockets: [OwnedFd; 2],
        mut reply: impl FnMut(&Datagram) -> Option<Vec<u8>> + Send + 'static,
    ) -> Self {
        Self::spawn(move |stop| {
            while let Some(ready) = wait(&stop, &sockets.each_ref().map(AsFd::as_fd)) {
                for (socket, _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready) {
                    datagram::serve_one(socket, &mut reply);
                }
            }
        })
    }

    fn spawn(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let (stop, stopped) = UnixStream::pair().expect("a socket pair");
        let thread = thread::spawn(move || serve(stopped));
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "a server's thread panicked");
        }
    }
}

/// Answers the lines on `connection`; false when it is closed.
fn answer_next(connection: &mut TcpStream, name: &str) -> bool {
    let mut bytes = [0; 1024];
    let read = connection.read(&mut bytes).unwrap_or(0);
    if let Some(transfer) = Transfer::parse(&bytes[..read]) {
        if transfer.serve(connection).is_err() {
            return false;
        }
        if matches!(transfer, Transfer::Send(_)) {
            return true;
        }
    }
    read > 0
        && connection
            .peer_addr()
            .is_ok_and(|peer| connection.write_all(Answer::text(name, peer).as_bytes()).is_ok())
}

/// Waits until some of `sources` are readable and returns them, or `None` at the end.
fn wait(stop: &UnixStream, sources: &[BorrowedFd<'_>]) -> Option<Vec<bool>> {
    let fds = [stop.as_fd()].into_iter().chain(sources.iter().copied());
    let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    while let Err(errno) = poll(&mut fds, PollTimeout::NONE) {
        assert_eq!(errno, Errno::EINTR, "poll");
    }
    let mut ready = fds.iter().map(|fd| fd.any().unwrap_or(true));
    let stopped = ready.next().unwrap_or(true);
    (!stopped).then(|| ready.collect())
}
