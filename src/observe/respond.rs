//! What a request gets, from its path alone: answers of kube-proxy's health and metrics ports.

use std::time::{Duration, Instant, SystemTime};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;

use super::Observe;
use super::health::Verdict;
use super::metrics::Answers;

/// Which of the two ports a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// `/healthz` and `/livez`.
    Health,
    /// `/metrics`, `/proxyMode`, and a `/healthz` that only says that the daemon answers.
    Metrics,
}

/// The answer to a request for `path`, whatever its method.
pub(super) fn respond(
    observe: &Observe,
    site: Site,
    path: &str,
    now: (Instant, SystemTime),
) -> Response<Full<Bytes>> {
    let metrics = &observe.shared.metrics;
    let verdict = || observe.health().verdict(now.0);
    match (site, path) {
        (Site::Health, "/healthz") => {
            let verdict = verdict();
            let probed = Probed { healthy: verdict.healthy(), node: Some(verdict.node_eligible) };
            probe(verdict, probed, now.1, &metrics.kube_proxy.healthz)
        }
        (Site::Health, "/livez") => {
            let verdict = verdict();
            let probed = Probed { healthy: verdict.alive, node: None };
            probe(verdict, probed, now.1, &metrics.kube_proxy.livez)
        }
        (Site::Metrics, "/metrics") => text(StatusCode::OK, OPEN_METRICS, metrics.text()),
        (Site::Metrics, "/healthz" | "/healthz/ping") => text(StatusCode::OK, PLAIN, "ok"),
        (Site::Metrics, "/proxyMode") => text(StatusCode::OK, PLAIN, "nftables"),
        (Site::Health | Site::Metrics, _) => {
            text(StatusCode::NOT_FOUND, PLAIN, "404 page not found\n")
        }
    }
}

/// The body of kube-proxy's answers, in its order of fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    last_updated: String,
    current_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    status: Status,
}

/// By family. kube-proxy leaves out families that were never synced, and so do we.
#[derive(Serialize)]
struct Status {
    #[serde(rename = "IPv4", skip_serializing_if = "Option::is_none")]
    v4: Option<FamilyStatus>,
    #[serde(rename = "IPv6", skip_serializing_if = "Option::is_none")]
    v6: Option<FamilyStatus>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyStatus {
    last_updated: String,
    healthy: bool,
}

/// What a path is about.
#[derive(Clone, Copy)]
struct Probed {
    healthy: bool,
    /// Whether the node wants traffic, if the path is about that too.
    node: Option<bool>,
}

/// The answer to a probe; adds it to `answers`.
fn probe(
    verdict: Verdict,
    probed: Probed,
    now: SystemTime,
    answers: &Answers,
) -> Response<Full<Bytes>> {
    let Probed { healthy, node: node_eligible } = probed;
    let at = |ago: Option<Duration>| ago.and_then(|ago| now.checked_sub(ago));
    let synced_at = at(verdict.synced_ago());
    let [v4, v6] = verdict.families.map(|family| {
        let healthy = family.healthy;
        at(family.synced_ago)
            .map(|time| FamilyStatus { last_updated: timestamp(Some(time)), healthy })
    });
    let body = Body {
        // kube-proxy: the time of the answer while all is well, else that of the last sync.
        last_updated: timestamp(if healthy { Some(now) } else { synced_at }),
        current_time: timestamp(Some(now)),
        node_eligible,
        healthy,
        status: Status { v4, v6 },
    };
    let status = match healthy && node_eligible != Some(false) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    answers.get_or_create(&[("code", status.as_u16())]).inc();
    // Texts and truth values always serialize.
    let body = serde_json::to_string(&body).unwrap_or_default();
    let mut response = text(status, "application/json", body);
    let no_sniffing = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, no_sniffing);
    response
}

fn text(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A time in RFC 3339 with nanoseconds; Go's zero time for never.
fn timestamp(time: Option<SystemTime>) -> String {
    time.and_then(|time| Timestamp::try_from(time).ok())
        .map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |time| time.to_string())
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// Prometheus reads the format by this type.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "some instant to count from")]
mod tests {
    use futures::FutureExt;
    use http_body_util::BodyExt;

    use super::*;
    use crate::family::Family;

    fn synced(observe: &Observe, now: Instant) {
        Family::ALL.into_iter().for_each(|family| observe.synced(family, now));
    }

    /// Asks `seconds` after `start`, which is 2026-01-02T03:04:05.5Z.
    fn ask(observe: &Observe, start: Instant, seconds: u64, path: &str) -> (u16, String) {
        let passed = Duration::from_secs(seconds);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_500) + passed;
        let response = respond(observe, Site::Health, path, (start + passed, wall));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        (response.status().as_u16(), body(response))
    }

    fn body(response: Response<Full<Bytes>>) -> String {
        let body = response.into_body().collect().now_or_never().unwrap().unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_node_that_is_synced_and_eligible_is_healthy() {
        let (observe, start) = (Observe::new(), Instant::now());
        observe.queued(start);
        synced(&observe, start);
        observe.node_eligible(true);
        let expected = r#"{"lastUpdated":"2026-01-02T03:04:15.5Z","currentTime":"2026-01-02T03:04:15.5Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05.5Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-02T03:04:05.5Z","healthy":true}}}"#;
        assert_eq!(ask(&observe, start, 10, "/healthz"), (200, expected.to_owned()));
    }

    #[test]
    fn a_node_that_leaves_is_alive_and_not_healthy() {
        let (observe, start) = (Observe::new(), Instant::now());
        let eligible_no = r#"{"lastUpdated":"2026-01-02T03:04:05.5Z","currentTime":"2026-01-02T03:04:05.5Z","nodeEligible":false,"healthy":true,"status":{}}"#;
        assert_eq!(ask(&observe, start, 0, "/healthz"), (503, eligible_no.to_owned()));
        let alive = r#"{"lastUpdated":"2026-01-02T03:04:05.5Z","currentTime":"2026-01-02T03:04:05.5Z","healthy":true,"status":{}}"#;
        assert_eq!(ask(&observe, start, 0, "/livez"), (200, alive.to_owned()));
    }

    #[test]
    fn a_change_that_waits_too_long_makes_both_answers_503() {
        let (observe, start) = (Observe::new(), Instant::now());
        observe.node_eligible(true);
        observe.queued(start);
        let never = r#"{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-01-02T03:05:05.5Z","healthy":false,"status":{}}"#;
        assert_eq!(ask(&observe, start, 60, "/livez"), (503, never.to_owned()));
        assert_eq!(ask(&observe, start, 60, "/healthz").0, 503);
        synced(&observe, start + Duration::from_secs(61));
        assert_eq!(ask(&observe, start, 61, "/healthz").0, 200);
        let metrics = observe.shared.metrics.text();
        for line in [
            "kubeproxy_proxy_livez_total{code=\"503\"} 1",
            "kubeproxy_proxy_healthz_total{code=\"503\"} 1",
            "kubeproxy_proxy_healthz_total{code=\"200\"} 1",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
    }

    #[test]
    fn each_port_has_its_own_paths() {
        let observe = Observe::new();
        for (site, path, code, text) in [
            (Site::Metrics, "/healthz", 200, "ok"),
            (Site::Metrics, "/healthz/ping", 200, "ok"),
            (Site::Metrics, "/proxyMode", 200, "nftables"),
            (Site::Metrics, "/livez", 404, "404 page not found\n"),
            (Site::Health, "/metrics", 404, "404 page not found\n"),
            (Site::Health, "/", 404, "404 page not found\n"),
        ] {
            let response = respond(&observe, site, path, (Instant::now(), SystemTime::now()));
            assert_eq!(response.status().as_u16(), code, "{site:?} {path}");
            assert_eq!(body(response), text);
        }
    }
}
