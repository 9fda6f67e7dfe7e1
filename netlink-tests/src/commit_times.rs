//! When the kernel tells of commits of elements.

#![allow(clippy::disallowed_methods)] // It takes the time.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use nft::netlink::socket::{Socket, Wait};

use crate::Host;

/// Returns the times of the notifications about commits that add elements, from now on.
///
/// # Panics
/// The socket cannot be opened.
#[must_use]
pub fn listen(host: &Host) -> Receiver<Instant> {
    let (sender, commits) = mpsc::channel();
    host.run(|| {
        let mut socket = Socket::listen(NETFILTER, GROUP, None).unwrap();
        // A thread begins in the namespace of the one that starts it.
        thread::spawn(move || {
            loop {
                let Ok(datagram) = socket.receive(Wait::Limited) else { continue };
                let now = Instant::now();
                if adds_elements(datagram) && sender.send(now).is_err() {
                    return;
                }
            }
        });
    });
    commits
}

/// The microseconds from the return of the call that sent an event to its commit: negative if the
/// commit ended first.
#[must_use]
pub fn latency(committed: Instant, sent: Instant) -> f64 {
    let after = |later: Instant, earlier: Instant| (later - earlier).as_secs_f64() * 1e6;
    if committed < sent { -after(sent, committed) } else { after(committed, sent) }
}

/// `NETLINK_NETFILTER`.
const NETFILTER: isize = 12;

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;

/// Returns whether a datagram has a message of type `NFT_MSG_NEWSETELEM`.
fn adds_elements(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while let Some(head) = rest.first_chunk::<6>() {
        let [a, b, c, d, kind, subsystem] = *head;
        if (kind, subsystem) == (12, 10) {
            return true;
        }
        let length = u32::from_ne_bytes([a, b, c, d]).next_multiple_of(4).max(16) as usize;
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}
