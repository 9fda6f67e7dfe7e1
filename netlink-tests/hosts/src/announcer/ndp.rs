//! Neighbour discovery for an IPv6 address (RFC 4861).

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{LinkAddr, SockaddrIn6, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};

use super::hardware_address;

/// A raw socket for ICMPv6, of which the kernel fills in checksums.
pub(super) struct Ndp {
    socket: Socket,
    device: LinkAddr,
    address: Ipv6Addr,
}

impl Ndp {
    /// Opens the socket in the calling thread's namespace.
    pub(super) fn open(device: LinkAddr, address: Ipv6Addr) -> Self {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6));
        let socket = socket.expect("CAP_NET_RAW");
        let ndp = Self { socket, device, address };
        ndp.prepare().expect("an existing device");
        ndp
    }

    fn prepare(&self) -> std::io::Result<()> {
        self.socket.set_nonblocking(true)?;
        self.socket.set_unicast_hops_v6(HOP_LIMIT)?;
        self.socket.set_multicast_hops_v6(HOP_LIMIT)?;
        self.socket.set_multicast_if_v6(self.index())?;
        self.socket.join_multicast_v6(&solicited_node(self.address), self.index())
    }

    fn index(&self) -> u32 {
        u32::try_from(self.device.ifindex()).expect("a small number")
    }

    /// Sends an advertisement of the address, which replaces an earlier one.
    fn advertise(&self, to: Ipv6Addr, flags: u8) {
        // Type, code, checksum, flags, target; and the option with the target's hardware address.
        let mut packet = vec![ADVERTISEMENT, 0, 0, 0, flags | OVERRIDE, 0, 0, 0];
        packet.extend(self.address.octets());
        packet.extend([TARGET_HARDWARE_ADDRESS, 1]);
        packet.extend(hardware_address(&self.device));
        let to = SocketAddrV6::new(to, 0, 0, self.index());
        // A packet that is lost is asked for again.
        let _ = self.socket.send_to(&packet, &to.into());
    }

    /// Receives a packet; returns who asks, if it asks for the address.
    fn asker(&self) -> Option<Ipv6Addr> {
        let mut packet = [0; 256];
        let (len, from) = recvfrom::<SockaddrIn6>(self.socket.as_raw_fd(), &mut packet).ok()?;
        let packet = packet.get(..len)?;
        let is_asked = packet.first() == Some(&SOLICITATION)
            && packet.get(8..24) == Some(&self.address.octets());
        is_asked.then_some(from?.ip())
    }
}

impl super::Protocol for Ndp {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn tell(&self) {
        self.advertise(ALL_NODES, 0);
    }

    fn answer(&self) {
        if let Some(asker) = self.asker() {
            self.advertise(asker, SOLICITED);
        }
    }
}

/// The group to which questions for an address are sent (RFC 4291, section 2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., sixth, last] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (sixth & 0xff), last)
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Receivers drop others: a router has decremented them.
const HOP_LIMIT: u32 = 255;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// The option "target link-layer address", whose length is counted in 8 bytes.
const TARGET_HARDWARE_ADDRESS: u8 = 2;

const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
