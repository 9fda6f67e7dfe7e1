//! Assigns the addresses of a synthetic cluster to the loopback device, by rtnetlink.
//!
//! An address with a prefix makes its whole range local on this device (`fib_add_ifaddr`), so three
//! addresses cover all cluster IPs, endpoints and clients.

use std::io;
use std::net::Ipv4Addr;

use network::Rtnetlink;
use nft::netlink::message::CREATE;
use nix::libc::{IFA_ADDRESS, IFA_LOCAL, IFF_UP, RTM_NEWADDR, RTM_NEWLINK};

use super::cluster::{CLUSTER_IP_BITS, FIRST_CLUSTER_IP, FIRST_ENDPOINT};

/// First address of clients: 12.0.0.1.
pub(super) const FIRST_CLIENT: u32 = 0x0c00_0001;

/// Index of the loopback device in every namespace.
const LOOPBACK: i32 = 1;

/// Ranges on the loopback: the first address and the length of the prefix.
const RANGES: [(u32, u8); 3] =
    [(FIRST_CLUSTER_IP, CLUSTER_IP_BITS), (FIRST_ENDPOINT, 8), (FIRST_CLIENT, 8)];

// From <linux/socket.h>.
const AF_INET: u8 = 2;

/// Sets the loopback of the present network namespace up, with the cluster's addresses.
///
/// # Errors
/// Errors of rtnetlink.
pub(super) fn prepare() -> io::Result<()> {
    let mut requests = Rtnetlink::open()?;
    // struct ifinfomsg: family, type, index, flags and the mask of changed flags.
    let up = IFF_UP.to_ne_bytes();
    let device = [[0; 4], LOOPBACK.to_ne_bytes(), up, up].concat();
    requests.change(RTM_NEWLINK, CREATE, &device, |_| {})?;
    for (first, prefix) in RANGES {
        // struct ifaddrmsg: family, prefix, flags, scope, index.
        let body = [[AF_INET, prefix, 0, 0], LOOPBACK.to_ne_bytes()].concat();
        let address = Ipv4Addr::from(first).octets();
        requests.change(RTM_NEWADDR, CREATE, &body, |w| {
            w.bytes(IFA_LOCAL, &address);
            w.bytes(IFA_ADDRESS, &address);
        })?;
    }
    Ok(())
}
