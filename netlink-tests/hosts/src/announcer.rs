//! Announces an IPv4 address on a link as the speakers of MetalLB do (its `internal/layer2/arp.go`):
//! a program answers ARP requests for it, and no interface has the address.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{LinkAddr, MsgFlags, bind, recv, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use crate::deadline::Deadline;
use crate::host::Host;
use crate::link::HardwareAddress;

/// Answers ARP requests until it is dropped.
#[derive(Debug)]
pub struct Announcer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// Answers requests for `address` on the link of the host's `eth0`, and tells everybody there
    /// again and again that it moved to this host (RFC 5944, section 4.6: gratuitous ARP). Linux
    /// believes that a second after the last answer of another host (sysctl `locktime`).
    ///
    /// # Panics
    /// Without `eth0` or packet sockets.
    #[must_use]
    #[track_caller]
    pub fn start(host: &Host, address: Ipv4Addr) -> Self {
        let link = host.run(Link::open);
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let answer = move || {
            let mut told: Option<Deadline> = None;
            while !seen.load(Ordering::Relaxed) {
                if told.as_ref().is_none_or(|deadline| deadline.left().is_none()) {
                    let gratuitous = Packet { operation: REPLY, to: (BROADCAST, address), address };
                    link.send(&gratuitous, BROADCAST);
                    told = Some(Deadline::after(AGAIN));
                }
                if let Some(asker) = link.asker(address) {
                    link.send(&Packet { operation: REPLY, to: asker, address }, asker.0);
                }
            }
        };
        Self { is_over, thread: Some(thread::spawn(answer)) }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A packet socket for ARP on a device.
struct Link {
    socket: OwnedFd,
    device: LinkAddr,
}

/// An ARP packet of this host (RFC 826).
struct Packet {
    operation: u16,
    to: (HardwareAddress, Ipv4Addr),
    /// The address that this host has.
    address: Ipv4Addr,
}

impl Link {
    /// Opens the socket in the calling thread's namespace.
    fn open() -> Self {
        let mut devices =
            getifaddrs().expect("the interfaces").filter(|it| it.interface_name == "eth0");
        let device = devices.find_map(|it| it.address?.as_link_addr().copied()).expect("an eth0");
        // The packet socket's protocol is in network byte order (packet(7)).
        let arp = Protocol::from(i32::from(ETH_P_ARP.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(arp)).expect("CAP_NET_RAW");
        socket.set_nonblocking(true).expect("an open socket");
        bind(socket.as_raw_fd(), &device).expect("an existing device");
        Self { socket: socket.into(), device }
    }

    fn own(&self) -> HardwareAddress {
        self.device.addr().expect("an Ethernet device")
    }

    fn send(&self, packet: &Packet, to: HardwareAddress) {
        let mut frame = [&to[..], &self.own(), &ETH_P_ARP.to_be_bytes()].concat();
        frame.extend(ETHERNET_AND_IPV4);
        frame.extend(packet.operation.to_be_bytes());
        frame.extend(self.own());
        frame.extend(packet.address.octets());
        frame.extend(packet.to.0);
        frame.extend(packet.to.1.octets());
        // A frame that is lost is asked for again.
        let _ = sendto(self.socket.as_raw_fd(), &frame, &self.device, MsgFlags::empty());
    }

    /// Waits a while for a request for `address`; returns who asks.
    fn asker(&self, address: Ipv4Addr) -> Option<(HardwareAddress, Ipv4Addr)> {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, WAIT).ok().filter(|ready| *ready > 0)?;
        let mut frame = [0; 64];
        let len = recv(self.socket.as_raw_fd(), &mut frame, MsgFlags::empty()).ok()?;
        let packet = frame.get(ETHERNET_HEADER..len)?;
        let is_request =
            packet.get(..8)? == [&ETHERNET_AND_IPV4[..], &REQUEST.to_be_bytes()].concat();
        let wanted = *packet.get(24..)?.first_chunk::<4>()?;
        let asker = (*packet.get(8..)?.first_chunk()?, *packet.get(14..)?.first_chunk::<4>()?);
        (is_request && Ipv4Addr::from(wanted) == address).then(|| (asker.0, asker.1.into()))
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

/// Time between two gratuitous packets.
const AGAIN: Duration = Duration::from_millis(300);

/// Milliseconds after which a dropped announcer is noticed.
const WAIT: u8 = 20;
