//! The addresses of this node's interfaces, and their changes.
//!
//! The content of a notification is ignored: after each one, all addresses are listed. A lost or
//! undecodable notification therefore does no harm.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::time::Duration;

use engine::model::HostAddresses;
use futures::FutureExt;
use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use tokio::sync::watch;

/// Returns the addresses of all interfaces in this network namespace, sorted.
///
/// # Errors
/// Errors of getifaddrs(3).
pub fn local_addresses() -> nix::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    let mut addresses: Vec<_> = addresses.filter_map(|address| ip_of(&address)).collect();
    addresses.sort_unstable();
    Ok(addresses)
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

/// Returns the routers of the default routes in the network namespace of this thread; none where
/// the kernel does not list them.
pub fn gateways() -> Vec<IpAddr> {
    let routes = |file| {
        let mut text = String::new();
        let found = File::open(format!("/proc/thread-self/net/{file}"));
        let read = found.and_then(|file| file.take(MOST_ROUTES).read_to_string(&mut text));
        read.map(|_| text).unwrap_or_default()
    };
    let [v4, v6] = ["route", "ipv6_route"].map(routes);
    v4.lines().filter_map(gateway_v4).chain(v6.lines().filter_map(gateway_v6)).collect()
}

/// Updates `addresses` with the [`local_addresses`] and the gateways after each change of the
/// former, until all receivers are dropped. Must be polled in the network namespace of the addresses.
pub async fn follow_local_addresses(addresses: watch::Sender<HostAddresses>) {
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
async fn follow(addresses: &watch::Sender<HostAddresses>) -> io::Result<()> {
    // Opened before the first listing, so that no change is missed between them.
    let mut changes = Changes::open()?;
    loop {
        let listed = local_addresses()?;
        let gateways = gateways();
        addresses.send_if_modified(|known| {
            let is_new = (&known.local, &known.gateways) != (&listed, &gateways);
            (known.local, known.gateways) = (listed, gateways);
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

/// Returns the gateway of a line of `/proc/net/route`, if it is a default route (`fib_route_seq_show`).
fn gateway_v4(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let mut number = || u32::from_str_radix(fields.next()?, 16).ok();
    let (destination, gateway) = (number()?, number()?);
    let mask = u32::from_str_radix(fields.nth(4)?, 16).ok()?;
    let is_default = (destination, mask) == (0, 0) && gateway != 0;
    is_default.then(|| IpAddr::from(gateway.to_ne_bytes()))
}

/// Returns the gateway of a line of `/proc/net/ipv6_route`, if it is a default route
/// (`ipv6_route_native_seq_show`).
fn gateway_v6(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_ascii_whitespace();
    let length = fields.nth(1)?;
    let gateway = u128::from_str_radix(fields.nth(2)?, 16).ok()?;
    (length == "00" && gateway != 0).then(|| IpAddr::from(gateway.to_be_bytes()))
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

/// Most bytes of routes that are read. The default routes come first.
const MOST_ROUTES: u64 = 1 << 20;

/// Receive buffer of a notification in bytes. The content is ignored, so it may be truncated.
const BUFFER: usize = 512;

/// Most notifications that one listing covers, so that an endless stream of them does not delay it.
const MOST_SKIPPED: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_are_those_of_default_routes() {
        let gateway = [192, 168, 50, 1];
        let hex = format!("{:08X}", u32::from_ne_bytes(gateway));
        let line = |destination: &str, gateway: &str, mask: &str| {
            gateway_v4(&format!("eth0\t{destination}\t{gateway}\t0003\t0\t0\t0\t{mask}\t0\t0\t0"))
        };
        let none = "00000000";
        assert_eq!(line(none, &hex, none), Some(gateway.into()));
        assert_eq!(line(none, none, none), None, "a default route without a router");
        assert_eq!(line("0000000A", &hex, "000000FF"), None);
        assert_eq!(gateway_v4("Iface\tDestination\tGateway \tFlags"), None);
        let zero = "0".repeat(32);
        let router = "fd000192016800500000000000000001";
        let line = |length: &str, gateway: &str| {
            gateway_v6(&format!("{zero} {length} {zero} 00 {gateway} 00000400 1 0 3 eth0"))
        };
        assert_eq!(line("00", router), Some("fd00:192:168:50::1".parse().unwrap()));
        assert_eq!((line("40", router), line("00", &zero)), (None, None));
    }
}
