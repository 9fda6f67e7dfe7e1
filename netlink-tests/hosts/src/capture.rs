//! The frames that enter the ports of a switch, by a packet socket.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{LinkAddr, MsgFlags, recvmsg};
use socket2::{Domain, Protocol, Socket, Type};

use crate::link::HardwareAddress;

/// Captures the frames that enter a namespace, on all its devices.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    frames: VecDeque<Frame>,
}

/// An Ethernet frame with a packet of IPv4 or IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The number of the device where it entered.
    pub device: u32,
    /// The hardware address that it was sent to.
    pub to_hardware: HardwareAddress,
    /// The hardware address of its sender.
    pub from_hardware: HardwareAddress,
    /// The source of the packet.
    pub from: IpAddr,
    /// The destination of the packet.
    pub to: IpAddr,
    /// The protocol of the packet, or its first extension header.
    pub protocol: u8,
    /// Its TTL or hop limit.
    pub ttl: u8,
    /// The bytes after the IP header.
    pub payload: Vec<u8>,
}

impl Capture {
    /// Opens a capture in the calling thread's namespace.
    pub(crate) fn open() -> Self {
        // The packet socket's protocol is in network byte order (packet(7)).
        let all = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).expect("CAP_NET_RAW");
        socket.set_nonblocking(true).expect("an open socket");
        socket.set_recv_buffer_size(BUFFER).expect("an open socket");
        Self { socket: socket.into(), frames: VecDeque::new() }
    }

    /// The frames with IP packets since the last call.
    ///
    /// # Panics
    /// When the socket fails.
    pub fn frames(&mut self) -> Vec<Frame> {
        while let Some(frame) = self.receive().expect("a packet socket") {
            self.frames.extend(frame);
        }
        self.frames.drain(..).collect()
    }

    /// Receives one frame; the inner value is `None` for one that leaves, or without an IP packet.
    fn receive(&self) -> io::Result<Option<Option<Frame>>> {
        let mut bytes = vec![0; LARGEST];
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<LinkAddr>(fd, &mut iov, None, MsgFlags::empty()) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let (len, address) = (message.bytes, message.address);
        let address = address.filter(|address| address.pkttype() != libc::PACKET_OUTGOING);
        let device = address.and_then(|address| u32::try_from(address.ifindex()).ok());
        bytes.truncate(len);
        Ok(Some(device.and_then(|device| Frame::parse(device, &bytes))))
    }
}

impl Frame {
    /// The source and destination port of a packet of TCP, UDP or SCTP.
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        let be16 = |at: usize| Some(u16::from_be_bytes(*self.payload.get(at..)?.first_chunk()?));
        Some((be16(0)?, be16(2)?))
    }

    fn parse(device: u32, bytes: &[u8]) -> Option<Self> {
        let (to_hardware, rest) = bytes.split_first_chunk::<6>()?;
        let (from_hardware, rest) = rest.split_first_chunk::<6>()?;
        let (kind, packet) = rest.split_first_chunk::<2>()?;
        let (from, to, protocol, ttl, header) = match u16::from_be_bytes(*kind) {
            ETH_P_IP => {
                let words = usize::from(packet.first()? & 0x0f);
                let address = |at: usize| {
                    Some(IpAddr::from(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)))
                };
                (address(12)?, address(16)?, *packet.get(9)?, *packet.get(8)?, words * 4)
            }
            ETH_P_IPV6 => {
                let address = |at: usize| {
                    Some(IpAddr::from(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?)))
                };
                (address(8)?, address(24)?, *packet.get(6)?, *packet.get(7)?, 40)
            }
            _ => return None,
        };
        Some(Self {
            device,
            to_hardware: *to_hardware,
            from_hardware: *from_hardware,
            from,
            to,
            protocol,
            ttl,
            payload: packet.get(header..)?.to_vec(),
        })
    }
}

/// Of `<linux/if_ether.h>`.
const ETH_P_ALL: u16 = 3;
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

/// The largest packet of segmentation offload, and its headers.
const LARGEST: usize = 70_000;

/// Bytes of the queue of frames.
const BUFFER: usize = 8 << 20;
