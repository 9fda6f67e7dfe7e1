//! The addresses of this node's interfaces, and their changes.
//!
//! What the kernel tells of a change only says that there was one: then all addresses are listed.
//! So a notification that is lost, or one that is not understood, makes nothing wrong.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures::FutureExt;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use tokio::sync::watch;

/// Addresses of all interfaces in this network namespace, in no order.
///
/// # Errors
/// What getifaddrs(3) reports.
pub fn local_addresses() -> nix::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    Ok(addresses.filter_map(|address| ip_of(&address)).collect())
}

/// Keeps `addresses` what [`local_addresses`] gives, sorted, until nobody reads them any more. It
/// must be polled in the network namespace that it concerns.
pub async fn follow_local_addresses(addresses: watch::Sender<Vec<IpAddr>>) {
    while !addresses.is_closed() {
        let followed = tokio::select! {
            followed = follow(&addresses) => followed,
            () = addresses.closed() => return,
        };
        if let Err(error) = followed {
            tracing::warn!("cannot follow the addresses of interfaces: {error}; trying again");
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Only returns with an error, after which nothing is known of changes.
async fn follow(addresses: &watch::Sender<Vec<IpAddr>>) -> io::Result<()> {
    // Before the first listing, so that no change falls between.
    let mut changes = Changes::open()?;
    loop {
        let mut listed = local_addresses()?;
        listed.sort_unstable();
        addresses.send_if_modified(|known| {
            known.sort_unstable();
            let is_new = *known != listed;
            *known = listed;
            is_new
        });
        changes.next().await?;
        tokio::time::sleep(SETTLE_TIME).await;
        changes.skip()?;
    }
}

/// What the kernel tells of addresses that came or went.
struct Changes {
    socket: TokioSocket,
    buffer: Vec<u8>,
}

impl Changes {
    fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        socket.socket_mut().bind(&SocketAddr::new(0, ADDRESS_GROUPS))?;
        Ok(Self { socket, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Waits for a change.
    async fn next(&mut self) -> io::Result<()> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer).await {
            // More changed than the receive buffer could hold.
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => Ok(()),
            received => received,
        }
    }

    /// Passes over what has come already.
    fn skip(&mut self) -> io::Result<()> {
        for _ in 0..MOST_SKIPPED {
            match self.next().now_or_never() {
                Some(skipped) => skipped?,
                None => break,
            }
        }
        Ok(())
    }
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

/// `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR` of <linux/rtnetlink.h>.
const ADDRESS_GROUPS: u32 = 0x10 | 0x100;

/// Addresses often change several at a time: those that follow within this time are listed
/// together.
const SETTLE_TIME: Duration = Duration::from_millis(3);

/// How long after a failure the next attempt is made.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Bytes of a notification that are received. Nothing reads them, so it may be cut.
const BUFFER: usize = 512;

/// Notifications that one listing stands for at most, so that it is made even if they never end.
const MOST_SKIPPED: usize = 10_000;
