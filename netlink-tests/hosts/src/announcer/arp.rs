//! ARP for an IPv4 address (RFC 826).

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{LinkAddr, MsgFlags, bind, recv, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use super::hardware_address;
use crate::link::HardwareAddress;

/// A packet socket for ARP on a device.
pub(super) struct Arp {
    socket: OwnedFd,
    device: LinkAddr,
    address: Ipv4Addr,
}

impl Arp {
    /// Opens the socket in the calling thread's namespace.
    pub(super) fn open(device: LinkAddr, address: Ipv4Addr) -> Self {
        // The packet socket's protocol is in network byte order (packet(7)).
        let arp = Protocol::from(i32::from(ETH_P_ARP.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(arp)).expect("CAP_NET_RAW");
        socket.set_nonblocking(true).expect("an open socket");
        bind(socket.as_raw_fd(), &device).expect("an existing device");
        Self { socket: socket.into(), device, address }
    }

    /// Sends a reply to this hardware address, about this host and that one.
    fn reply(&self, to: HardwareAddress, (hardware, address): (HardwareAddress, Ipv4Addr)) {
        let own = hardware_address(&self.device);
        let mut frame = [&to[..], &own, &ETH_P_ARP.to_be_bytes()].concat();
        frame.extend(ETHERNET_AND_IPV4);
        frame.extend(REPLY.to_be_bytes());
        frame.extend(own);
        frame.extend(self.address.octets());
        frame.extend(hardware);
        frame.extend(address.octets());
        // A frame that is lost is asked for again.
        let _ = sendto(self.socket.as_raw_fd(), &frame, &self.device, MsgFlags::empty());
    }

    /// Receives a packet; returns who asks, if it asks for the address.
    fn asker(&self) -> Option<(HardwareAddress, Ipv4Addr)> {
        let mut frame = [0; 64];
        let len = recv(self.socket.as_raw_fd(), &mut frame, MsgFlags::empty()).ok()?;
        let packet = frame.get(ETHERNET_HEADER..len)?;
        let is_request =
            packet.get(..8)? == [&ETHERNET_AND_IPV4[..], &REQUEST.to_be_bytes()].concat();
        let wanted = *packet.get(24..)?.first_chunk::<4>()?;
        let asker = (*packet.get(8..)?.first_chunk()?, *packet.get(14..)?.first_chunk::<4>()?);
        let is_asked = is_request && Ipv4Addr::from(wanted) == self.address;
        is_asked.then(|| (asker.0, asker.1.into()))
    }
}

impl super::Protocol for Arp {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Gratuitous ARP (RFC 5944, section 4.6).
    fn tell(&self) {
        self.reply(BROADCAST, (BROADCAST, self.address));
    }

    fn answer(&self) {
        if let Some(asker) = self.asker() {
            self.reply(asker.0, asker);
        }
    }
}

const ETH_P_ARP: u16 = 0x0806;

/// Bytes before the packet of a frame.
const ETHERNET_HEADER: usize = 14;

/// Hardware type 1, protocol 0x0800, and the lengths of their addresses.
const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

const REQUEST: u16 = 1;
const REPLY: u16 = 2;

const BROADCAST: HardwareAddress = [0xff; 6];
