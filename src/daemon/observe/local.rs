//! The socket for commands on this node: the same pages as those of the metrics port, even if that is
//! off.
//!
//! Each process of the network namespace can connect. Only root and the daemon's own user get more
//! than the configuration.

use std::sync::Arc;
use std::time::Duration;

use futures::future::Either;
use futures::future::ready;
use hyper::StatusCode;
use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::content::Content;
use super::http_responses::{CONFIGURATION, Site};
use super::response::{PLAIN, text};
use super::server::{ACCEPT_RETRY, answer, connection};

/// Most connections at once; further ones wait until one ends.
const MOST: usize = 16;

/// Time limit of a connection; a search may read large tables.
const TIME: Duration = Duration::from_secs(10);

/// Answers the requests on `listener`, and never returns.
pub async fn serve_local(content: Arc<Content>, listener: UnixListener) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MOST {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(timeout(TIME, serve_one(Arc::clone(&content), stream)));
            }
            Err(error) => {
                debug!(%error, "cannot accept a command's connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn serve_one(content: Arc<Content>, stream: UnixStream) {
    let user = stream.peer_cred().map(|peer| peer.uid());
    let is_trusted = user.is_ok_and(|user| user == 0 || user == geteuid().as_raw());
    connection(stream, |request| {
        if is_trusted || request.uri().path() == CONFIGURATION {
            return Either::Left(answer(&content, Site::Local, request));
        }
        let why = "only root and the user of the daemon may read this\n";
        Either::Right(ready(text(StatusCode::FORBIDDEN, PLAIN, why)))
    })
    .await;
}
