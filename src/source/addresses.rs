//! The addresses of this node's interfaces.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{SockaddrLike, SockaddrStorage};

/// Addresses of all interfaces in this network namespace, in no order.
///
/// # Errors
/// What getifaddrs(3) reports.
pub fn local_addresses() -> nix::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    Ok(addresses.filter_map(|address| ip_of(&address)).collect())
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
        .filter(|_| address.family().is_some())
}
