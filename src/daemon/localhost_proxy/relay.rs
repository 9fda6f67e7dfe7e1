//! One relay: two connections, joined until both have ended.
//!
//! An end of one direction is passed on, and so is a reset. Only the buffers of [`BUFFER`] bytes and
//! those of the sockets are between a fast sender and a slow receiver.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::socket::{connect, prepare};

/// Time limit for a connection to an endpoint, as in kube-proxy.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Bytes of each direction between the two sockets.
const BUFFER: usize = 8 << 10;

/// Time that relays have to end by themselves after a stop.
pub(super) const END_TIME: Duration = Duration::from_secs(2);

/// Time that peers have to answer the end of a connection.
pub(super) const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Joins `client` to a new connection to `target` until both have ended, or until some time after
/// the stop.
///
/// # Errors
/// There is no connection to `target`; the client's is reset.
pub(super) async fn run(
    mut client: TcpStream,
    target: SocketAddr,
    mut is_stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    prepare(&client);
    let connected = timeout(CONNECT_TIME, connect(target)).await;
    let mut server = match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(server) => server,
        Err(error) => {
            reset(client);
            return Err(error);
        }
    };
    prepare(&server);
    let joined = tokio::select! {
        joined = join(&mut client, &mut server) => Some(joined),
        () = end_of_time(&mut is_stopped) => None,
    };
    match joined {
        Some(Ok(_)) => {}
        Some(Err(_)) => {
            reset(client);
            reset(server);
        }
        None => close(client, server).await,
    }
    Ok(())
}

async fn join(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<(u64, u64)> {
    // An idle relay has no buffers.
    tokio::select! {
        ready = client.readable() => ready?,
        ready = server.readable() => ready?,
    }
    copy_bidirectional_with_sizes(client, server, BUFFER, BUFFER).await
}

/// Completes when the relays must end after a stop.
async fn end_of_time(is_stopped: &mut watch::Receiver<bool>) {
    // The sender is dropped with the proxy only.
    let _ = is_stopped.wait_for(|is_stopped| *is_stopped).await;
    sleep(END_TIME).await;
}

/// Ends both connections. The kernel resets a connection that is closed with unread bytes, so these
/// are read.
async fn close(mut client: TcpStream, mut server: TcpStream) {
    let _ = client.shutdown().await;
    let _ = server.shutdown().await;
    let _ = timeout(CLOSE_TIME, async {
        tokio::join!(discard(&mut client), discard(&mut server));
    })
    .await;
}

async fn discard(stream: &mut TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(1..) = stream.read(&mut buffer).await {}
}

/// Resets a connection, so that its peer does not take what it got for the whole.
pub(super) fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}
