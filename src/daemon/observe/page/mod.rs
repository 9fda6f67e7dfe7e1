//! The status page: the present state of the daemon, for people, at `/` of the metrics port.
//!
//! The page is one file. It polls `/status.json` and `/status.json?draining`, and requests
//! `/status.json?services=TEXT` for a search.

mod problems;
mod recent;

use std::fmt;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode, Uri};
use nft::family::Family;
use percent_encoding::percent_decode_str;
use problems::Problems;
use recent::Recent;
use serde_json::{Value, json};

use super::Observe;
use super::commits::Transaction;
use super::http_responses::Site;
use super::http_responses::{JSON, text};

pub use problems::LeftOut;

/// Path of the document.
const STATUS: &str = "/status.json";

/// Most bytes of a search text.
const QUERY: usize = 200;

const INDEX: &str = include_str!("index.html");

const HTML: &str = "text/html; charset=utf-8";

/// Nothing is loaded from elsewhere, and only the file's own script runs.
const POLICY: &str = "default-src 'none'; \
     script-src 'sha256-LeHw2wuNsO7tP8onmCRC9dD90olQrqGfOO6EB01Z2xs='; \
     style-src 'sha256-/8SEygadMBHWd/s28OdC582Pp+AvmuSFvBqAsEfZiMQ='; \
     img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// A query of the page that reads the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Services whose name or address contains a text.
    Services(String),
    /// Endpoints that get no new connections, but still have connections.
    Draining,
}

/// Runs a query: returns a document, or the reason why there is none.
pub type Search = Arc<dyn Fn(Query) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// Content of the status page that is fixed at the start.
pub struct PageSetup {
    /// The name of this node.
    pub node: String,
    /// The source of objects.
    pub source: String,
    /// Why the process does not own the tables that it writes; `None` if it does.
    pub without_owner: Option<&'static str>,
    /// Finds services and draining endpoints.
    pub search: Search,
}

impl fmt::Debug for PageSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageSetup").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Content of the page beyond health and metrics. Each lock is held for a few instructions.
#[derive(Debug)]
pub(super) struct Page {
    opened: Instant,
    recent: Mutex<Recent>,
    problems: Mutex<Problems>,
    watches: Mutex<Vec<Watch>>,
    blocked: Mutex<[Option<String>; 2]>,
    setup: OnceLock<PageSetup>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    resource: &'static str,
    is_connected: bool,
    heard_at: Option<SystemTime>,
    failures: u64,
    /// Reason of the last failure.
    reason: Option<&'static str>,
}

impl Page {
    pub(super) fn new() -> Self {
        Self {
            opened: super::server::now(),
            recent: Mutex::default(),
            problems: Mutex::default(),
            watches: Mutex::default(),
            blocked: Mutex::default(),
            setup: OnceLock::new(),
        }
    }

    pub(super) fn committed(&self, transaction: &Transaction<'_>) {
        lock(&self.recent).committed(transaction, SystemTime::now());
    }

    pub(super) fn events_committed(&self, took: Duration) {
        lock(&self.recent).events_committed(took, self.opened.elapsed());
    }

    pub(super) fn watch_heard(&self, resource: &'static str, at: SystemTime) {
        self.watch(resource, |watch| {
            watch.is_connected = true;
            watch.heard_at = Some(at);
        });
    }

    pub(super) fn watch_lost(&self, resource: &'static str, reason: &'static str) {
        self.watch(resource, |watch| {
            watch.is_connected = false;
            watch.failures += 1;
            watch.reason = Some(reason);
        });
    }

    pub(super) fn left_out(&self, left_out: LeftOut) {
        lock(&self.problems).add(left_out, SystemTime::now());
    }

    pub(super) fn table_blocked(&self, family: Family, reason: Option<&str>) {
        lock(&self.blocked)[family.index()] = reason.map(str::to_owned);
    }

    /// Sets the content that is fixed at the start; only the first call has an effect.
    pub(super) fn set_up(&self, setup: PageSetup) {
        let _ = self.setup.set(setup);
    }

    fn watch(&self, resource: &'static str, change: impl FnOnce(&mut Watch)) {
        let mut watches = lock(&self.watches);
        let place = watches.iter().position(|it| it.resource == resource).unwrap_or_else(|| {
            let (heard_at, reason) = (None, None);
            watches.push(Watch { resource, is_connected: false, heard_at, failures: 0, reason });
            watches.len() - 1
        });
        change(&mut watches[place]);
    }

    /// Returns the owner of a table that this process writes.
    fn owner(&self) -> String {
        match self.setup.get().and_then(|setup| setup.without_owner) {
            None => format!("this process ({})", process::id()),
            Some(reason) => format!("none: {reason}"),
        }
    }
}

impl Observe {
    /// Returns the content of the page, without services.
    fn status(&self, now: (Instant, SystemTime)) -> Value {
        let page = &self.shared.page;
        let verdict = self.health().verdict(now.0);
        // Copied first, so that no lock is held while the documents are built.
        let (recent, problems) = (lock(&page.recent).clone(), lock(&page.problems).clone());
        let (watches, blocked) = (lock(&page.watches).clone(), lock(&page.blocked).clone());
        let watches = watches.iter().map(|watch| {
            json!({
                "resource": watch.resource,
                "connected": watch.is_connected,
                "heard_ms": watch.heard_at.map(since_1970_ms),
                "failures": watch.failures,
                "reason": watch.reason,
            })
        });
        let families = Family::ALL.into_iter().zip(blocked).zip(verdict.families);
        let families = families.map(|((family, blocked), verdict)| {
            let is_written = blocked.is_none() && verdict.synced_ago.is_some();
            let synced_at = verdict.synced_ago.and_then(|ago| now.1.checked_sub(ago));
            json!({
                "family": family.name(),
                "programmed": self.shared.metrics.is_programmed(family),
                "blocked": blocked,
                "owner": is_written.then(|| page.owner()),
                "synced_ms": synced_at.map(since_1970_ms),
            })
        });
        let setup = page.setup.get();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "node": setup.map(|setup| &*setup.node),
            "source": setup.map(|setup| &*setup.source),
            "started_ms": since_1970_ms(self.shared.started),
            "now_ms": since_1970_ms(now.1),
            "ready": verdict.ready,
            "healthy": verdict.healthy(),
            "node_eligible": verdict.node_eligible,
            "families": families.collect::<Value>(),
            "watches": watches.collect::<Value>(),
            "latency": recent.latency(page.opened.elapsed()),
            "transactions": recent.transactions(),
            "problems": problems.document(),
        })
    }
}

/// Returns the page or its document, if `path` names one of them.
pub(super) fn answer(
    observe: &Observe,
    path: &str,
    now: (Instant, SystemTime),
) -> Option<Response<Full<Bytes>>> {
    match path {
        "/" => {
            let mut response = text(StatusCode::OK, HTML, INDEX);
            let headers = response.headers_mut();
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
            headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            Some(fresh(response))
        }
        STATUS => Some(document(&observe.status(now))),
        _ => None,
    }
}

/// Answers a request that reads the kernel, if it is one.
pub(super) fn found(
    observe: &Observe,
    site: Site,
    uri: &Uri,
) -> Option<BoxFuture<'static, Response<Full<Bytes>>>> {
    if site != Site::Metrics || uri.path() != STATUS {
        return None;
    }
    let query = uri.query()?.split('&').find_map(query)?;
    let found = (observe.shared.page.setup.get()?.search)(query);
    Some(Box::pin(async move {
        document(&found.await.unwrap_or_else(|error| json!({ "error": error })))
    }))
}

/// Parses a part of a request's query.
fn query(part: &str) -> Option<Query> {
    if part == "draining" {
        return Some(Query::Draining);
    }
    let text = percent_decode_str(part.strip_prefix("services=")?);
    let mut text = text.decode_utf8_lossy().into_owned();
    text.truncate(text.floor_char_boundary(QUERY));
    Some(Query::Services(text))
}

fn document(value: &Value) -> Response<Full<Bytes>> {
    fresh(text(StatusCode::OK, JSON, value.to_string()))
}

fn fresh(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic elsewhere a value may be missing from the page, which does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn since_1970_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use ring::digest::{SHA256, digest};

    use super::*;

    fn part(start: &str, end: &str) -> &'static str {
        INDEX.split_once(start).unwrap().1.split_once(end).unwrap().0
    }

    #[test]
    fn the_policy_allows_the_script_and_style_of_the_page_alone() {
        for (source, content) in [
            ("script-src", part("<script>", "</script>")),
            ("style-src", part("<style>", "</style>")),
        ] {
            let hash = BASE64_STANDARD.encode(digest(&SHA256, content.as_bytes()));
            let expected = format!("{source} 'sha256-{hash}';");
            assert!(POLICY.contains(&expected), "{expected} is not in {POLICY}");
        }
        assert_eq!(INDEX.matches("<script").count() + INDEX.matches("<style").count(), 2);
    }

    #[test]
    fn the_page_names_no_other_place_and_writes_no_markup() {
        let addresses = INDEX.matches("://").count();
        assert_eq!(addresses, INDEX.matches("http://www.w3.org/2000/svg").count());
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!INDEX.contains(way), "{way}");
        }
    }

    #[test]
    fn a_daemon_that_has_done_nothing_is_not_ready() {
        let observe = Observe::new();
        observe.table_blocked(Family::Ip6, Some("table ip6 kube-proxy is owned by another"));
        observe.watch_lost("services", "tls");
        let status = observe.status((super::super::server::now(), SystemTime::now()));
        assert_eq!(status["ready"], false);
        assert_eq!(status["families"][0]["blocked"], Value::Null);
        assert_eq!(status["families"][1]["blocked"], "table ip6 kube-proxy is owned by another");
        assert_eq!(status["families"][0]["owner"], Value::Null);
        assert_eq!(
            (&status["watches"][0]["connected"], &status["watches"][0]["reason"]),
            (&json!(false), &json!("tls"))
        );
    }
}
