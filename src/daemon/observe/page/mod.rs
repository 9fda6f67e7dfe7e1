//! The status page: the present state of the daemon, for people, at `/` of the metrics port.
//!
//! The page is one file. It polls `/status.json` and `/status.json?draining`, and requests
//! `/status.json?services=TEXT` for a search.

use std::process;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY};
use hyper::{Response, StatusCode, Uri};
use nft::family::Family;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::condition::Condition;
use super::health_state::Verdict;
use super::hub::Observe;
use super::record::Recorded;
use super::response::{JSON, text};
use super::times::since_1970_ms;

/// Path of the document.
const STATUS: &str = "/status.json";

/// Path of the history of commits.
const HISTORY: &str = "/history.json";

/// Most bytes of a search text.
const QUERY: usize = 200;

const INDEX: &str = include_str!("index.html");

const HTML: &str = "text/html; charset=utf-8";

/// Nothing is loaded from elsewhere, and only the file's own script runs.
const POLICY: &str = "default-src 'none'; \
     script-src 'sha256-pAWGbZxVh6Jc2ww52ISjVqTUNTMD3tuGWBf1D/dsYbQ='; \
     style-src 'sha256-iZ3Q1YfL+Dq7cffsaQXlK9/MAFX0HkYeFrppuZice6Q='; \
     img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// A query of the page that reads the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Services whose name or address contains a text.
    Services(String),
    /// Endpoints that get no new connections, but still have connections; and refused packets.
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
    /// Finds services, draining endpoints and refused packets.
    pub search: Search,
}

impl PageSetup {
    /// Returns the owner of a table that this process writes.
    fn owner(&self) -> String {
        match self.without_owner {
            None => format!("this process ({})", process::id()),
            Some(reason) => format!("none: {reason}"),
        }
    }
}

/// Returns the condition in one line, and whether nothing is wrong.
pub(super) fn condition(
    observe: &Observe,
    (verdict, record): (&Verdict, &Recorded),
    now: Instant,
) -> (String, bool) {
    let metrics = &observe.shared.metrics;
    let (lost, lost_at) = &record.lost;
    let lost_for = lost_at.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
    let condition = Condition {
        verdict,
        lost: (lost, lost_for),
        unusable: record.unusable.as_deref(),
        programmed: metrics.own.programmed.each_ref().map(|it| it.get() == 1),
        are_node_ports_closed: metrics.own.are_node_ports_closed(),
        is_configuration_refused: metrics.configuration.refused.get() == 1,
    };
    condition.line()
}

/// Returns the content of the page, without services.
fn status(observe: &Observe, setup: Option<&PageSetup>, now: (Instant, SystemTime)) -> Value {
    let verdict = observe.shared.health.lock().verdict(now.0);
    let record = observe.shared.record.read();
    let metrics = &observe.shared.metrics;
    let (line, is_good) = condition(observe, (&verdict, &record), now.0);
    let families = Family::ALL.into_iter().zip(record.blocked).zip(verdict.families);
    let families = families.map(|((family, blocked), verdict)| {
        let is_free = blocked.is_none();
        let is_written = is_free && verdict.synced_ago.is_some();
        // The daemon sets this and `blocked` one after the other.
        let is_programmed = is_free && metrics.own.programmed[family.index()].get() == 1;
        let synced_at = verdict.synced_ago.and_then(|ago| now.1.checked_sub(ago));
        json!({
            "family": family.name(),
            "programmed": is_programmed,
            "blocked": blocked,
            "owner": setup.filter(|_| is_written).map(PageSetup::owner),
            "synced_ms": synced_at.map(since_1970_ms),
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "node": setup.map(|setup| &*setup.node),
        "source": setup.map(|setup| &*setup.source),
        "started_ms": since_1970_ms(observe.started(now)),
        "now_ms": since_1970_ms(now.1),
        "condition": line,
        "good": is_good,
        "ready": verdict.ready,
        "healthy": verdict.healthy(),
        "node_eligible": verdict.node_eligible,
        "families": families.collect::<Value>(),
        "direct_return": observe.metrics().direct.document(),
        "watches": record.watches,
        "latency": record.latency,
        "transactions": record.transactions,
        "problems_present": record.problems.count,
        "problems": record.problems.document(),
    })
}

/// Returns the page or its document, if `path` names one of them.
pub(super) fn answer(
    observe: &Observe,
    setup: Option<&PageSetup>,
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
        STATUS => Some(document(&status(observe, setup, now))),
        HISTORY => Some(document(&observe.history())),
        _ => None,
    }
}

/// Answers a request that reads the kernel, if it is one.
pub(super) fn found(
    setup: Option<&PageSetup>,
    uri: &Uri,
) -> Option<BoxFuture<'static, Response<Full<Bytes>>>> {
    if uri.path() != STATUS {
        return None;
    }
    let query = uri.query()?.split('&').find_map(query)?;
    let found = (setup?.search)(query);
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
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use ring::digest::{SHA256, digest};

    use super::super::times::now;
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
    fn the_time_since_the_start_does_not_depend_on_the_wall_clock() {
        let observe = Observe::new();
        let up = Duration::from_secs(100);
        for clock in [SystemTime::now(), SystemTime::UNIX_EPOCH + up * 2] {
            let status = status(&observe, None, (observe.shared.started + up, clock));
            let ms = |field: &str| status[field].as_u64().unwrap();
            assert_eq!(ms("now_ms") - ms("started_ms"), 100_000);
        }
    }

    #[test]
    fn a_family_is_not_programmed_while_its_table_is_blocked() {
        let observe = Observe::new();
        observe.synced(Family::Ip, now());
        for (reason, programmed) in [(None, true), (Some("owned by another process"), false)] {
            observe.table_blocked(Family::Ip, reason);
            let status = status(&observe, None, (now(), SystemTime::now()));
            assert_eq!(status["families"][0]["programmed"], programmed);
        }
    }

    #[test]
    fn a_daemon_that_has_done_nothing_is_not_ready() {
        let observe = Observe::new();
        observe.table_blocked(Family::Ip6, Some("table ip6 kube-proxy is owned by another"));
        observe.watch_lost("services", "tls");
        let status = status(&observe, None, (now(), SystemTime::now()));
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
