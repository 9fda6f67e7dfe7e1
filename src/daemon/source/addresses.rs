//! The addresses of this node's interfaces, and their changes.
//!
//! The content of a notification is ignored: after each one, all addresses are listed. A lost or
//! undecodable notification therefore does no harm.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures::FutureExt;
use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use tokio::sync::watch;

/// Returns the addresses of all interfaces in this network namespace, in no particular order.
///
/// # Errors
/// Errors of getifaddrs(3).
pub fn local_addresses() -> nix::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    Ok(addresses.filter_map(|address| ip_of(&address)).collect())
}

/// Returns the addresses of all interfaces in this network namespace, each with the length of its
/// prefix and the name of its interface; for an IPv4 address with a label, the label.
///
/// # Errors
/// Errors of getifaddrs(3).
pub fn local_networks() -> nix::Result<Vec<(String, IpNet)>> {
    let networks = getifaddrs()?.filter_map(|interface| {
        let address = ip_of(&interface.address?)?;
        let network = IpNet::with_netmask(address, ip_of(&interface.netmask?)?).ok()?;
        Some((interface.interface_name, network))
    });
    Ok(networks.collect())
}

/// Returns the name of an interface in this network namespace that has `address`; for an IPv4
/// address with a label, the label.
///
/// # Errors
/// Errors of getifaddrs(3).
pub fn interface_with(address: IpAddr) -> nix::Result<Option<String>> {
    let has_address = |found: Option<SockaddrStorage>| {
        found.and_then(|found| ip_of(&found)).is_some_and(|found| found == address)
    };
    let interface = getifaddrs()?.find(|interface| has_address(interface.address));
    Ok(interface.map(|interface| interface.interface_name))
}

/// Updates `addresses` with the sorted [`local_addresses`] after each change, until all receivers
/// are dropped. Must be polled in the network namespace of the addresses.
pub async fn follow_local_addresses(addresses: watch::Sender<Vec<IpAddr>>) {
    while !addresses.is_closed() {
        let followed = tokio::select! {
            followed = follow(&addresses) => followed,
            () = addresses.closed() => return,
        };
        if let Err(error) = followed {
            tracing::warn!("cannot watch the addresses of interfaces: {error}; trying again");
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Updates `addresses` after each change. Returns only with an error; changes after it are missed.
async fn follow(addresses: &watch::Sender<Vec<IpAddr>>) -> io::Result<()> {
    // Opened before the first listing, so that no change is missed between them.
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

/// Receiver of address notifications.
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

    /// Waits for a notification.
    async fn next(&mut self) -> io::Result<()> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer).await {
            // The receive buffer overflowed: more changed.
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => Ok(()),
            received => received,
        }
    }

    /// Discards the notifications that have arrived.
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

/// Addresses often change several at a time: changes within this time share one listing.
const SETTLE_TIME: Duration = Duration::from_millis(3);

/// Time between a failure and the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Receive buffer of a notification in bytes. The content is ignored, so it may be truncated.
const BUFFER: usize = 512;

/// Most notifications that one listing covers, so that an endless stream of them does not delay it.
const MOST_SKIPPED: usize = 10_000;
