//! The sockets of health and metrics: listens, and answers requests within limits.
//!
//! A failure to bind an address is logged and retried for as long as the daemon runs.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::Either;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt::Ipv6V6Only};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info};

use super::connections::Connections;
use super::content::ServedContent;
use super::hosts;
use super::http_responses::{Site, respond};
use super::page;
use super::response::{PLAIN, text};
use super::times::now;
use crate::open_files::soft_limit;

/// Serves `site` at `address` and never returns. A failed bind is retried every 5 seconds, and
/// logged when the reason changes.
pub async fn serve_at(content: Arc<ServedContent>, site: Site, address: SocketAddr) {
    let mut logged = None;
    let failed = |error: io::Error| {
        if logged.replace(error.kind()) != Some(error.kind()) {
            error!(?site, %address, %error, "cannot listen; trying again");
        }
    };
    let listener = listen_until(BIND_RETRY, || bind(address), failed).await;
    info!(?site, %address, "listening");
    serve(content, site, listener).await;
}

/// Listens at `address`. As in Go, `0.0.0.0` and `[::]` both mean every address of both families;
/// on a machine without IPv6, every IPv4 address.
///
/// # Errors
/// The address is in use or not local, or its port is reserved.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return listen(address, true);
    }
    let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
    match listen(both, false) {
        Err(error) if address.is_ipv4() && is_absent(&error) => listen(address, true),
        result => result,
    }
}

/// Answers the requests on `listener`, and never returns.
pub async fn serve(content: Arc<ServedContent>, site: Site, listener: TcpListener) {
    let connections = Mutex::new(Connections::within(soft_limit()));
    serve_with(listener, &connections, move |request, _| answer(&content, site, request)).await;
}

/// Answers a request; those that read the kernel later than others.
pub(super) fn answer(
    content: &Arc<ServedContent>,
    site: Site,
    request: &Request<Incoming>,
) -> impl Future<Output = Response<Full<Bytes>>> + Send + use<> {
    let (path, headers) = (request.uri().path(), request.headers());
    let node = content.page.as_ref().map(|page| &*page.node);
    if site == Site::Metrics
        && let Some(name) = hosts::refused(request, node)
    {
        let why = format!(
            "{name} is not a name of this node: docs/metrics.md lists the names that are answered\n"
        );
        return Either::Right(ready(text(StatusCode::MISDIRECTED_REQUEST, PLAIN, why)));
    }
    if site != Site::Health
        && let Some(found) = page::found(content.page.as_ref(), request.uri())
    {
        return Either::Left(found);
    }
    if site != Site::Health
        && let ("/metrics", Some(read)) = (path, &content.read_counts)
    {
        let (read, content, headers) = (read(), Arc::clone(content), headers.clone());
        let answer = async move {
            read.await;
            respond(&content, site, ("/metrics", &headers), (now(), SystemTime::now()))
        };
        return Either::Left(answer.boxed());
    }
    let now = (now(), SystemTime::now());
    Either::Right(ready(respond(content, site, (path, headers), now)))
}

/// Calls `answer` for each request on `listener`, and never returns. `answer` receives the request
/// and its local address. Every connection is accepted at once.
pub(super) async fn serve_with<A, F>(
    listener: TcpListener,
    connections: &Mutex<Connections>,
    answer: A,
) where
    A: Fn(&Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let client = client.ip().to_canonical();
                // A connection that was closed already has no local address.
                let Ok(local) = stream.local_addr() else { continue };
                let local = local.ip().to_canonical();
                // A client on this node has the destination address, or a loopback address.
                let is_own = client.is_loopback() || local == client;
                let answer = answer.clone();
                let connection = connection(stream, move |request| answer(request, local));
                let task = tokio::spawn(async move {
                    // Errors of a client are not logged as ours.
                    if timeout(CONNECTION_TIME, connection).await.is_err() {
                        debug!(%local, "a request took too long");
                    }
                });
                let mut connections = connections.lock();
                connections.add(client, is_own, task.abort_handle());
            }
            Err(error) => {
                // Most likely too many open files; some may be closed soon.
                debug!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Answers one request on a connection.
pub(super) async fn connection<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(&Request<Incoming>) -> F,
) where
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(|request| {
        let response = answer(&request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(MAX_BUFFER)
        .keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        debug!(%error, "a request failed");
    }
}

/// Listens as soon as `listen` can. Calls `failed` after each attempt that fails.
pub(crate) async fn listen_until(
    retry: Duration,
    listen: impl Fn() -> io::Result<TcpListener>,
    mut failed: impl FnMut(io::Error),
) -> TcpListener {
    loop {
        match listen() {
            Ok(listener) => return listener,
            Err(error) => failed(error),
        }
        sleep(retry).await;
    }
}

/// Listens at `address`; at `[::]` for both families, unless `one_family` is set.
pub(super) fn listen(address: SocketAddr, one_family: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() {
        let socket = TcpSocket::new_v6()?;
        // The system's default (net.ipv6.bindv6only) may differ.
        setsockopt(&socket, Ipv6V6Only, &one_family)?;
        socket
    } else {
        TcpSocket::new_v4()?
    };
    // Without it a restarted daemon could not bind until the old connections time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns whether the address is not on this node, or the kernel lacks its family.
pub fn is_absent(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

/// Time between attempts to listen, as in kube-proxy.
pub(crate) const BIND_RETRY: Duration = Duration::from_secs(5);

/// Pause after a failed accept.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections that wait to be accepted; the kernel's limit is `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// Time limit of a client for sending its headers.
const HEADER_TIME: Duration = Duration::from_secs(2);

/// Time limit of a whole connection.
const CONNECTION_TIME: Duration = Duration::from_secs(30);

/// Most bytes of request headers.
const MAX_BUFFER: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_taken_when_it_becomes_free() {
        let holder = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = holder.local_addr().unwrap();
        assert_eq!(bind(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let retry = Duration::from_millis(5);
        let waiting = tokio::spawn(listen_until(retry, move || bind(address), |_| ()));
        sleep(4 * retry).await;
        assert!(!waiting.is_finished());
        drop(holder);
        let listener = timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
    }
}
