//! The requests of an informer of client-go 0.36, which kube-proxy 1.36 uses, without its decoder.
//!
//! After `tools/cache/reflector.go`: a streaming list is the beginning of a watch. A refused
//! connection and 429 are retried after a backoff; a watch that ended begins again at once, from the
//! last version; after 410 the list begins after a backoff (`RunWithContext`).
//! As in `rest/with_retry.go`, it waits exactly as long as `Retry-After` says, ten times. A real client
//! has one connection for all informers, by HTTP/2.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::Kind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::herd::{Counter, NODE};

/// `defaultBackoffInit`.
const FIRST: Duration = Duration::from_millis(800);

/// `defaultBackoffMax`.
const LONGEST: Duration = Duration::from_secs(30);

/// `defaultBackoffReset`.
const RESET: Duration = Duration::from_secs(120);

/// `maxRetries` of `rest/request.go`.
const RETRIES: u32 = 10;

/// Bytes that are read at once: the few events after a restart and an error arrive together.
const READ: usize = 64 << 10;

/// Annotation of the bookmark that ends a list, the same bytes in JSON and protobuf.
const END: &[u8] = b"k8s.io/initial-events-end";

/// Part of the message of code 410.
const EXPIRED: &[u8] = b"too old resource version";

/// Why a watch ended.
enum End {
    Closed,
    Expired,
    /// The connection was refused, or the server was busy ten times.
    Refused,
}

/// Follows one resource without end.
pub(crate) async fn follow(address: SocketAddr, kind: Kind, counter: Counter) {
    let mut informer = Informer { address, kind, counter, version: None, backoff: Backoff::new() };
    loop {
        let is_listed = informer.version.is_some();
        match informer.watch(!is_listed).await {
            End::Closed => {}
            End::Expired => {
                informer.backoff.wait().await;
                informer.list_again().await;
            }
            End::Refused => informer.backoff.wait().await,
        }
    }
}

struct Informer {
    address: SocketAddr,
    kind: Kind,
    counter: Counter,
    /// Last version that was received; `None` before the first list.
    version: Option<u64>,
    backoff: Backoff,
}

impl Informer {
    /// Begins a list until one is complete.
    async fn list_again(&mut self) {
        while let End::Refused = self.watch(true).await {
            self.backoff.wait().await;
        }
    }

    /// Watches until the end, perhaps after a list.
    async fn watch(&mut self, begins_with_list: bool) -> End {
        for _ in 0..=RETRIES {
            let opened = self.open(begins_with_list).await;
            self.counter.request(opened.is_ok());
            match opened {
                Ok((mut socket, head, rest)) if head.starts_with("HTTP/1.1 200") => {
                    return self.read(&mut socket, rest, begins_with_list).await;
                }
                Ok((_, head, _)) => tokio::time::sleep(retry_after(&head)).await,
                Err(_) => return End::Refused,
            }
        }
        End::Refused
    }

    /// Sends the request, and returns the head of the answer and what came with it.
    async fn open(&self, begins_with_list: bool) -> io::Result<(TcpStream, String, Vec<u8>)> {
        let mut socket = TcpStream::connect(self.address).await?;
        socket.write_all(self.request(begins_with_list).as_bytes()).await?;
        let mut bytes = Vec::new();
        loop {
            bytes.reserve(READ);
            if socket.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(length) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = bytes.split_off(length + 4);
                return Ok((socket, String::from_utf8_lossy(&bytes).into_owned(), rest));
            }
        }
    }

    fn request(&self, begins_with_list: bool) -> String {
        let target = match self.kind {
            Kind::Service => "/api/v1/services?labelSelector=%21service.kubernetes.io/headless%2C\
                              %21service.kubernetes.io/service-proxy-name"
                .to_owned(),
            Kind::EndpointSlice => "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=\
                                    %21service.kubernetes.io/headless%2C\
                                    %21service.kubernetes.io/service-proxy-name"
                .to_owned(),
            Kind::Node => format!("/api/v1/nodes?fieldSelector=metadata.name%3D{NODE}"),
            Kind::ServiceCidr | Kind::Namespace => {
                "/apis/networking.k8s.io/v1/servicecidrs?".to_owned()
            }
        };
        let version = self.version.map(|version| version.to_string()).unwrap_or_default();
        let list = if begins_with_list {
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        } else {
            ""
        };
        let seconds = Duration::from_secs(300).mul_f64(1.0 + random()).as_secs();
        format!(
            "GET {target}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}\
             &resourceVersion={version}{list} HTTP/1.1\r\nHost: {}\r\n\
             Accept: application/vnd.kubernetes.protobuf\r\n\r\n",
            self.address
        )
    }

    /// Reads events until the watch ends.
    async fn read(
        &mut self,
        socket: &mut TcpStream,
        mut bytes: Vec<u8>,
        mut is_listing: bool,
    ) -> End {
        loop {
            if contains(&bytes, EXPIRED) {
                return End::Expired;
            }
            is_listing &= !contains(&bytes, END);
            if !is_listing && has_event(&bytes) {
                self.version = Some(self.counter.version());
                self.counter.received(self.kind);
                bytes.clear();
            }
            // What may be the beginning of a mark is kept.
            let kept = bytes.len().saturating_sub(END.len());
            bytes.drain(..kept);
            bytes.reserve(READ);
            match socket.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return End::Closed,
                Ok(_) => {}
            }
        }
    }
}

/// Whether this is more than the end of a list of chunks.
fn has_event(bytes: &[u8]) -> bool {
    bytes.len() > b"0\r\n\r\n".len()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn retry_after(head: &str) -> Duration {
    let value = head.lines().find_map(|line| line.strip_prefix("Retry-After: "));
    Duration::from_secs(value.and_then(|text| text.parse().ok()).unwrap_or(1))
}

/// `wait.Backoff` with a factor of 2 and a jitter of 1.
struct Backoff {
    next: Duration,
    last: Instant,
}

impl Backoff {
    fn new() -> Self {
        Self { next: FIRST, last: Instant::now() }
    }

    async fn wait(&mut self) {
        if self.last.elapsed() > RESET {
            self.next = FIRST;
        }
        let wait = self.next.mul_f64(1.0 + random());
        self.next = (self.next * 2).min(LONGEST);
        self.last = Instant::now();
        tokio::time::sleep(wait).await;
    }
}

/// A random number from 0 to 1.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let hash = RandomState::new().hash_one(());
    f64::from((hash >> 32) as u32) / f64::from(u32::MAX)
}
