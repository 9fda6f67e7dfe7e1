//! Commits to nftables, by any program, that name an endpoint.
//!
//! The kernel announces the additions of a commit, and then the new generation. A commit counts if
//! a rule or element that it adds holds both the address and the port of the endpoint. In elements
//! and `dnat` of nftables, and in the target DNAT of iptables-nft, each begins at a multiple of
//! four bytes. Commits of other programs therefore do not count.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nft::kernel::Notifications;
use nft::{Notification, Value};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::endpoint::Which;

/// A commit that names an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenCommit {
    /// Time of the notification of its generation, since the start of the run.
    pub(super) at: Duration,
    /// The commit names each endpoint.
    names: [bool; 2],
    /// Name of the thread that committed.
    pub(super) program: String,
}

/// Receiver of commits.
#[derive(Debug)]
pub(super) struct Commits {
    received: mpsc::Receiver<SeenCommit>,
    /// At least one commit named an endpoint.
    is_recognised: bool,
}

/// Longest time between the effect of a commit and its notification.
const BEHIND: Duration = Duration::from_secs(2);

impl Commits {
    /// Subscribes to the commits of this thread's network namespace.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`, or no sockets or threads are available.
    pub(super) fn follow(endpoints: [SocketAddr; 2], base: Instant) -> io::Result<Self> {
        let notifications = Notifications::open()?;
        let (sender, received) = mpsc::channel();
        let reading = Reading { endpoints, names: [false; 2] };
        let follow = move || follow(notifications, reading, base, &sender);
        thread::Builder::new().name("commits".into()).spawn(follow)?;
        Ok(Self { received, is_recognised: false })
    }

    /// Discards the commits received so far.
    pub(super) fn drain(&mut self) {
        self.is_recognised |= self.received.try_iter().count() > 0;
    }

    /// Returns the first commit after `start` that names the endpoint.
    pub(super) fn first(&mut self, endpoint: Which, start: Duration) -> Option<SeenCommit> {
        let wait = if self.is_recognised { BEHIND } else { Duration::ZERO };
        while let Ok(commit) = self.received.recv_timeout(wait) {
            self.is_recognised = true;
            if commit.at >= start && commit.names[endpoint.index()] {
                return Some(commit);
            }
        }
        None
    }
}

/// Reads until the socket fails or the receiver is dropped.
fn follow(
    mut notifications: Notifications,
    mut reading: Reading,
    base: Instant,
    sender: &mpsc::Sender<SeenCommit>,
) {
    loop {
        let mut commits = Vec::new();
        let taken = notifications.take(&mut |it| commits.extend(reading.next(it, base.elapsed())));
        if commits.into_iter().any(|commit| sender.send(commit).is_err()) {
            return;
        }
        match taken {
            Ok(true) => {}
            Ok(false) => {
                let mut ready = [PollFd::new(notifications.as_fd(), PollFlags::POLLIN)];
                match poll(&mut ready, PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(_) => return,
                }
            }
            // Announcements were lost, so those of the present commit are incomplete.
            Err(error) if error.raw_os_error().is_none() => reading.names = [false; 2],
            Err(_) => return,
        }
    }
}

/// Announcements of an unfinished commit.
#[derive(Debug)]
struct Reading {
    endpoints: [SocketAddr; 2],
    names: [bool; 2],
}

impl Reading {
    /// Adds an notification. Returns the commit that it completes, if that names an endpoint.
    fn next(&mut self, notification: Notification<'_>, at: Duration) -> Option<SeenCommit> {
        match notification {
            Notification::Added(attributes) => {
                for (names, endpoint) in self.names.iter_mut().zip(self.endpoints) {
                    *names |= holds(attributes, endpoint);
                }
                None
            }
            Notification::Other => None,
            Notification::Generation { program } => {
                let names = std::mem::take(&mut self.names);
                let program = program.unwrap_or("unknown").to_owned();
                names.contains(&true).then_some(SeenCommit { at, names, program })
            }
        }
    }
}

/// Returns whether attributes hold both the address and the port.
fn holds(attributes: &[u8], endpoint: SocketAddr) -> bool {
    let holds = |bytes: &[u8]| {
        let mut starts = (0..attributes.len()).step_by(4);
        starts.any(|start| attributes.get(start..start + bytes.len()) == Some(bytes))
    };
    holds(&endpoint.port().to_be_bytes()) && holds(Value::new().ip(endpoint.ip()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "192.0.2.1:30001";
    const B: &str = "192.0.2.1:30002";

    fn bytes(address: [u8; 4], port: u16) -> Vec<u8> {
        // Other attributes precede, separate and follow them.
        let port = port.to_be_bytes();
        [&[8, 0, 1, 0][..], &address, &[6, 0, 1, 0], &port, &[0, 0], &[8, 0, 2, 0]].concat()
    }

    fn reading() -> Reading {
        Reading { endpoints: [A, B].map(|it| it.parse().unwrap()), names: [false; 2] }
    }

    #[test]
    fn a_commit_counts_for_the_endpoint_that_it_adds() {
        let mut reading = reading();
        let at = Duration::from_millis(7);
        let ours = bytes([192, 0, 2, 1], 30_002);
        let foreign = bytes([192, 0, 2, 9], 30_001);
        let end = Notification::Generation { program: Some("nft") };
        assert_eq!(reading.next(Notification::Added(&foreign), at), None);
        assert_eq!(reading.next(end, at), None);
        assert_eq!(reading.next(Notification::Added(&ours), at), None);
        assert_eq!(reading.next(Notification::Other, at), None);
        let commit = SeenCommit { at, names: [false, true], program: "nft".into() };
        assert_eq!(reading.next(end, at), Some(commit));
        assert_eq!(reading.next(end, at), None);
    }

    #[test]
    fn bytes_at_odd_places_are_no_port() {
        let mut shifted = bytes([192, 0, 2, 1], 30_001);
        assert!(holds(&shifted, A.parse().unwrap()));
        shifted.insert(8, 0);
        assert!(!holds(&shifted, A.parse().unwrap()));
    }

    #[test]
    fn ipv6_endpoints_are_found_too() {
        let endpoint: SocketAddr = "[fd00::1]:30001".parse().unwrap();
        let address = "fd00::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
        let port = 30_001_u16.to_be_bytes();
        assert!(holds(&[&address[..], &port].concat(), endpoint));
        assert!(!holds(&[&address[..15], &[9], &port].concat(), endpoint));
    }
}
