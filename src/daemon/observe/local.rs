//! The socket for commands on this node: the same pages as those of the metrics port, even if that is
//! off.
//!
//! Each process of the network namespace can connect. Only root and the daemon's own user get more
//! than the configuration. Connections of other users have a limit of their own, so that they do not
//! delay those of root.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::Either;
use futures::future::ready;
use hyper::StatusCode;
use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::content::ServedContent;
use super::http_responses::{CONFIGURATION, Site};
use super::response::{PLAIN, text};
use super::server::{ACCEPT_RETRY, answer, connection};

/// Most connections of root and the daemon's user at once; further ones wait until one ends.
const MOST: usize = 16;

/// Most connections of other users; each further one ends the oldest.
const MOST_OF_OTHERS: usize = 8;

/// Time limit of a connection; a search may read large tables.
const TIME: Duration = Duration::from_secs(10);

/// Answers the requests on `listener`, and never returns.
pub async fn serve_local(content: Arc<ServedContent>, listener: UnixListener) {
    serve_users(content, listener, |stream| {
        let user = stream.peer_cred().map(|peer| peer.uid());
        user.is_ok_and(|user| user == 0 || user == geteuid().as_raw())
    })
    .await;
}

/// Does the same, with more for the connections that `trusts` accepts.
async fn serve_users(
    content: Arc<ServedContent>,
    listener: UnixListener,
    trusts: impl Fn(&UnixStream) -> bool,
) {
    let (mut connections, mut others) = (JoinSet::new(), Others::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let is_trusted = trusts(&stream);
                let serving = timeout(TIME, serve_one(Arc::clone(&content), stream, is_trusted));
                if !is_trusted {
                    others.add(tokio::spawn(serving).abort_handle());
                    continue;
                }
                while connections.try_join_next().is_some() {}
                if connections.len() >= MOST {
                    connections.join_next().await;
                }
                connections.spawn(serving);
            }
            Err(error) => {
                debug!(%error, "cannot accept a command's connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Connections of other users, oldest first. They end with this value.
#[derive(Debug, Default)]
struct Others(VecDeque<AbortHandle>);

impl Others {
    fn add(&mut self, connection: AbortHandle) {
        self.0.retain(|connection| !connection.is_finished());
        if self.0.len() >= MOST_OF_OTHERS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(connection);
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

async fn serve_one(content: Arc<ServedContent>, stream: UnixStream, is_trusted: bool) {
    connection(stream, |request| {
        if is_trusted || request.uri().path() == CONFIGURATION {
            return Either::Left(answer(&content, Site::Local, request));
        }
        let why = "only root and the user of the daemon may read this\n";
        Either::Right(ready(text(StatusCode::FORBIDDEN, PLAIN, why)))
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::observe::Observe;

    /// More than a server of one group would accept at once.
    const IDLE: usize = 40;

    async fn status(mut stream: UnixStream, path: &str) -> String {
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_of_other_users_delay_nobody() {
        let name = format!("deltaproxy-local-{}", std::process::id());
        let address = net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = net::UnixListener::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        let content = Arc::new(ServedContent::new(Observe::new()));
        let accepted = AtomicUsize::new(0);
        tokio::spawn(serve_users(content, listener, move |_| {
            accepted.fetch_add(1, Ordering::Relaxed) == IDLE
        }));
        let connect = || {
            let stream = net::UnixStream::connect_addr(&address).unwrap();
            stream.set_nonblocking(true).unwrap();
            UnixStream::from_std(stream).unwrap()
        };
        let idle: Vec<_> = (0..IDLE).map(|_| connect()).collect();
        let since = tokio::time::Instant::now();
        assert_eq!(status(connect(), "/problems.json").await, "HTTP/1.0 200 OK");
        assert_eq!(status(connect(), "/problems.json").await, "HTTP/1.0 403 Forbidden");
        assert_eq!(status(connect(), CONFIGURATION).await, "HTTP/1.0 200 OK");
        assert_eq!(since.elapsed(), Duration::ZERO, "no idle connection timed out");
        drop(idle);
    }
}
