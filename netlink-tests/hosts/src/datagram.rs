//! Datagrams with both of their addresses, so that an answer leaves from where the question went.
//!
//! Serves UDP and raw sockets alike.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

/// A received packet.
#[derive(Debug)]
pub struct Datagram {
    /// The payload; a raw IPv4 socket adds the IP header in front.
    pub bytes: Vec<u8>,
    /// The sender; the port of a raw socket's peer is 0.
    pub from: SocketAddr,
    /// The local address that it was sent to.
    pub to: IpAddr,
}

/// Opens a socket of one family in the calling thread's namespace, bound to `port` of any address.
pub fn open(domain: Domain, kind: Type, protocol: Protocol, port: u16) -> OwnedFd {
    let socket = Socket::new(domain, kind, Some(protocol)).expect("a datagram socket");
    let any = if domain == Domain::IPV6 {
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true).expect("Linux 2.6.14 or later");
        // A raw socket is of one family anyway, and refuses this.
        if kind != Type::RAW {
            socket.set_only_v6(true).expect("it is not bound");
        }
        SocketAddr::from(([0_u16; 8], port))
    } else {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true).expect("Linux 2.2 or later");
        SocketAddr::from(([0_u8; 4], port))
    };
    socket.bind(&any.into()).unwrap_or_else(|error| panic!("cannot bind {any}: {error}"));
    socket.into()
}

/// Receives one packet.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Datagram> {
    let mut bytes = vec![0; MAX_LEN];
    let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
    let mut iov = [IoSliceMut::new(&mut bytes)];
    let fd = socket.as_raw_fd();
    let message = recvmsg::<SockaddrStorage>(fd, &mut iov, Some(&mut control), MsgFlags::empty())?;
    let (len, from) = (message.bytes, message.address.as_ref().and_then(socket_address));
    let to = message.cmsgs()?.find_map(|message| destination(&message));
    let (Some(from), Some(to)) = (from, to) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    bytes.truncate(len);
    Ok(Datagram { bytes, from, to })
}

/// Answers `question` from the address that it was sent to.
fn answer(socket: BorrowedFd<'_>, question: &Datagram, bytes: &[u8]) -> io::Result<()> {
    send(socket, question.to, question.from, bytes)
}

/// Sends a packet from an address.
pub fn send(socket: BorrowedFd<'_>, from: IpAddr, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
    let iov = [IoSlice::new(bytes)];
    let to = SockaddrStorage::from(to);
    let fd = socket.as_raw_fd();
    match from {
        IpAddr::V4(ip) => {
            let source = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from(ip).to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            let control = [ControlMessage::Ipv4PacketInfo(&source)];
            sendmsg(fd, &iov, &control, MsgFlags::empty(), Some(&to))?;
        }
        IpAddr::V6(ip) => {
            let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
            let source = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
            let control = [ControlMessage::Ipv6PacketInfo(&source)];
            sendmsg(fd, &iov, &control, MsgFlags::empty(), Some(&to))?;
        }
    }
    Ok(())
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = || Some(SocketAddrV4::from(*address.as_sockaddr_in()?).into());
    let v6 = || Some(SocketAddrV6::from(*address.as_sockaddr_in6()?).into());
    v4().or_else(v6)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum of all control messages")]
fn destination(message: &ControlMessageOwned) -> Option<IpAddr> {
    match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into())
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(info.ipi6_addr.s6_addr.into()),
        _ => None,
    }
}

/// Everything the tests send fits into an Ethernet frame.
const MAX_LEN: usize = 1500;

/// The two sockets that serve both families.
pub fn open_both(kind: Type, protocol: Protocol, port: u16) -> [OwnedFd; 2] {
    [open(Domain::IPV4, kind, protocol, port), open(Domain::IPV6, kind, protocol, port)]
}

/// Answers each datagram in the buffer of `socket` with the result of `reply`.
pub fn serve_one(socket: &OwnedFd, reply: impl FnOnce(&Datagram) -> Option<Vec<u8>>) {
    // An error here is a late ICMP message or a packet that was dropped on its way out. The probe
    // sees it as silence; the server goes on.
    if let Ok(question) = receive(socket.as_fd())
        && let Some(bytes) = reply(&question)
    {
        let _ = answer(socket.as_fd(), &question, &bytes);
    }
}
