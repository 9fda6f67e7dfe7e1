//! The sockets of the proxy, with limits of their buffers.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, TcpKeepCount, TcpKeepIdle, TcpKeepInterval};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Bytes of a socket's buffer; the kernel doubles it. Without a limit a peer that does not read
/// could make it grow to some MiB.
const SOCKET_BUFFER: u32 = 64 << 10;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 256;

/// Seconds after which an idle connection is probed, seconds between probes, and their number: a
/// dead peer is noticed after two minutes.
const KEEPALIVE: (u32, u32, u32) = (60, 15, 4);

/// Listens at `[::1]`.
pub(super) fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = limited()?;
    // Without it a restarted daemon could not bind until the old connections time out.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port))?;
    // Connections inherit the sizes of buffers.
    socket.listen(BACKLOG)
}

/// Connects to a service.
pub(super) async fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    limited()?.connect(target).await
}

fn limited() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v6()?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    Ok(socket)
}

/// Lets a connection pass small messages at once, and notice a dead peer. It works without, too.
pub(super) fn prepare(stream: &TcpStream) {
    let (idle, interval, count) = KEEPALIVE;
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, KeepAlive, &true);
    let _ = setsockopt(stream, TcpKeepIdle, &idle);
    let _ = setsockopt(stream, TcpKeepInterval, &interval);
    let _ = setsockopt(stream, TcpKeepCount, &count);
}
