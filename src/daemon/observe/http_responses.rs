//! Answers a request by its path and accepted format, like kube-proxy's health and metrics ports.

use std::time::{Duration, Instant, SystemTime};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{HeaderMap, Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;

use super::content::ServedContent;
use super::exposition::{MetricsFormat, written};
use super::health_state::Verdict;
use super::hub::Observe;
use super::metric::{Counter, Family, Registry};
use super::metrics::Metrics;
use super::page;
use super::response::{JSON, PLAIN, coded, text};
use super::zpages::statusz;

/// The port that received a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// `/healthz`, `/livez` and `/readyz`.
    Health,
    /// The status page, `/problems.json`, `/metrics`, `/metrics/slis`, `/proxyMode`, `/configz`, `/flagz`,
    /// `/statusz`, and a `/healthz` that always succeeds.
    Metrics,
    /// The socket for commands: `/configuration.json`, `/localhost.json`, and what the metrics port serves.
    Local,
}

/// Path of the configuration and the version.
pub(super) const CONFIGURATION: &str = "/configuration.json";

/// Path of the node ports at `[::1]`.
const LOCALHOST: &str = "/localhost.json";

/// Path of the present problems.
const PROBLEMS: &str = "/problems.json";

/// Returns the answer to a request for `path` with these headers, whatever its method.
pub(super) fn respond(
    content @ ServedContent { observe, startup, page, .. }: &ServedContent,
    site: Site,
    (path, headers): (&str, &HeaderMap),
    now: (Instant, SystemTime),
) -> Response<Full<Bytes>> {
    if let (Site::Health, Some(found)) = (site, PROBES.iter().find(|it| it.path == path)) {
        return probe(observe, found, now);
    }
    if let (Site::Metrics, Some(answer)) = (site, page::answer(observe, page.as_ref(), path, now)) {
        return answer;
    }
    match (site, path) {
        (Site::Metrics, "/metrics") => metrics(headers, &observe.shared.metrics.registry),
        (Site::Metrics, "/metrics/slis") => metrics(headers, &observe.shared.slis.registry),
        (Site::Metrics, "/configz") => text(StatusCode::OK, JSON, startup.configz()),
        (Site::Metrics, "/flagz") => startup.flagz().answer(headers),
        (Site::Metrics, "/statusz") => statusz(observe.started(now), now.1).answer(headers),
        (Site::Metrics, "/healthz" | "/healthz/ping") => text(StatusCode::OK, PLAIN, "ok"),
        (Site::Metrics, "/proxyMode") => text(StatusCode::OK, PLAIN, "nftables"),
        (Site::Metrics, PROBLEMS) => {
            text(StatusCode::OK, JSON, observe.problems_document(now.1).to_string())
        }
        (Site::Local, CONFIGURATION) => text(StatusCode::OK, JSON, startup.document()),
        (Site::Local, LOCALHOST) => {
            text(StatusCode::OK, JSON, observe.metrics().localhost.document().to_string())
        }
        (Site::Local, _) => respond(content, Site::Metrics, (path, headers), now),
        (Site::Health | Site::Metrics, _) => {
            text(StatusCode::NOT_FOUND, PLAIN, "404 page not found\n")
        }
    }
}

fn metrics(headers: &HeaderMap, registry: &Registry) -> Response<Full<Bytes>> {
    let format = MetricsFormat::accepted(headers);
    coded(headers, format.content_type(), || written(format, registry).into())
}

/// ProbeBody of kube-proxy's answers, with its order of fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProbeBody {
    last_updated: String,
    current_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    status: FamilyStatuses,
    /// Of `/readyz`: what is wrong, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
}

/// Results by family. Families that were never synced are absent, as in kube-proxy.
#[derive(Serialize)]
struct FamilyStatuses {
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

/// A probe: its path, whether it succeeds, and the metric of its answers.
struct Probe {
    path: &'static str,
    is_met: fn(&Verdict) -> bool,
    answers: fn(&Metrics) -> &Family<1, Counter>,
}

const PROBES: [Probe; 3] = [
    // The daemon is up to date. The node must accept traffic too.
    Probe { path: HEALTHZ, is_met: Verdict::healthy, answers: |it| &it.kube_proxy.healthz },
    // The daemon works.
    Probe { path: LIVEZ, is_met: |it| it.alive, answers: |it| &it.kube_proxy.livez },
    // The first sync is done.
    Probe { path: READYZ, is_met: |it| it.ready, answers: |it| &it.own.readyz },
];

const HEALTHZ: &str = "/healthz";
const LIVEZ: &str = "/livez";
const READYZ: &str = "/readyz";

/// Answers a probe and counts it.
fn probe(observe: &Observe, probe: &Probe, now: (Instant, SystemTime)) -> Response<Full<Bytes>> {
    let verdict = observe.shared.health.lock().verdict(now.0);
    let healthy = (probe.is_met)(&verdict);
    let node_eligible = (probe.path == HEALTHZ).then_some(verdict.node_eligible);
    let (monotonic, now) = now;
    let line = || {
        let record = observe.shared.record.read();
        page::condition(observe, (&verdict, &record), monotonic)
    };
    let condition = (probe.path == READYZ).then(line);
    let condition = condition.and_then(|(line, is_good)| (!is_good).then_some(line));
    let at = |ago: Option<Duration>| ago.and_then(|ago| now.checked_sub(ago));
    let synced_at = at(verdict.synced_ago());
    let [v4, v6] = verdict.families.map(|family| {
        let healthy = family.healthy;
        at(family.synced_ago)
            .map(|time| FamilyStatus { last_updated: timestamp(Some(time)), healthy })
    });
    let body = ProbeBody {
        // As in kube-proxy: the time of the answer if healthy, else that of the last sync.
        last_updated: timestamp(if healthy { Some(now) } else { synced_at }),
        current_time: timestamp(Some(now)),
        node_eligible,
        healthy,
        status: FamilyStatuses { v4, v6 },
        condition,
    };
    let status = if healthy && node_eligible != Some(false) {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let was_success = observe.shared.slis.answered(&probe.path[1..], status == StatusCode::OK);
    if probe.path == LIVEZ && was_success && !healthy {
        // The kubelet may restart the daemon, and shows no more than the status.
        tracing::warn!("/livez answers {}: {}", status.as_u16(), line().0);
    }
    let answers = (probe.answers)(&observe.shared.metrics);
    answers.with([status.as_str()]).inc();
    // Strings and booleans always serialize.
    text(status, JSON, serde_json::to_string(&body).unwrap_or_default())
}

/// Formats a time as RFC 3339 with nanoseconds; `None` is Go's zero time.
fn timestamp(time: Option<SystemTime>) -> String {
    time.and_then(|time| Timestamp::try_from(time).ok())
        .map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |time| time.to_string())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "some instant to count from")]
mod tests {
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use hyper::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
    use nft::family::Family;

    use super::*;

    fn content(observe: &Observe) -> ServedContent {
        ServedContent::new(observe.clone())
    }

    fn synced(observe: &Observe, now: Instant) {
        Family::ALL.into_iter().for_each(|family| observe.synced(family, now));
    }

    /// Sends a request `seconds` after `start`, which is 2026-01-02T03:04:05.5Z.
    fn ask(observe: &Observe, start: Instant, seconds: u64, path: &str) -> (u16, String) {
        let passed = Duration::from_secs(seconds);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_500) + passed;
        let response = respond(
            &content(observe),
            Site::Health,
            (path, &HeaderMap::new()),
            (start + passed, wall),
        );
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
    fn a_node_is_ready_from_its_first_sync_on() {
        let (observe, start) = (Observe::new(), Instant::now());
        let not_yet = r#"{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-01-02T03:04:05.5Z","healthy":false,"status":{},"condition":"not ready"}"#;
        assert_eq!(ask(&observe, start, 0, "/readyz"), (503, not_yet.to_owned()));
        observe.synced(Family::Ip, start);
        assert_eq!(ask(&observe, start, 0, "/readyz").0, 503);
        observe.sync_failed(Family::Ip6, true, start);
        assert_eq!(ask(&observe, start, 0, "/readyz").0, 200);
        let (code, body) = ask(&observe, start, 100, "/readyz");
        assert_eq!(code, 200);
        assert!(body.ends_with(r#""healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05.5Z","healthy":true}},"condition":"ready, but IPv6 is not programmed; a change waits for too long"}"#), "{body}");
        let metrics = observe.metrics_text();
        assert!(metrics.contains("deltaproxy_readyz_total{code=\"503\"} 2"), "{metrics}");
    }

    #[test]
    fn each_port_has_its_own_paths() {
        let observe = Observe::new();
        for (site, path, code, text) in [
            (Site::Metrics, "/healthz", 200, "ok"),
            (Site::Metrics, "/healthz/ping", 200, "ok"),
            (Site::Metrics, "/proxyMode", 200, "nftables"),
            (Site::Metrics, "/livez", 404, "404 page not found\n"),
            (Site::Metrics, "/readyz", 404, "404 page not found\n"),
            (Site::Metrics, "/configz", 200, r#"{"kubeproxy.config.k8s.io":null}"#),
            (Site::Metrics, "/debug/pprof", 404, "404 page not found\n"),
            (Site::Metrics, "/debug/pprof/profile", 404, "404 page not found\n"),
            (Site::Health, "/metrics", 404, "404 page not found\n"),
            (Site::Health, "/metrics/slis", 404, "404 page not found\n"),
            (Site::Health, "/configz", 404, "404 page not found\n"),
            (Site::Health, "/", 404, "404 page not found\n"),
            (Site::Health, "/status.json", 404, "404 page not found\n"),
            (Site::Metrics, "/status", 404, "404 page not found\n"),
            (Site::Metrics, CONFIGURATION, 404, "404 page not found\n"),
            (Site::Local, "/healthz", 200, "ok"),
            (Site::Local, "/livez", 404, "404 page not found\n"),
        ] {
            let response = respond(
                &content(&observe),
                site,
                (path, &HeaderMap::new()),
                (Instant::now(), SystemTime::now()),
            );
            assert_eq!(response.status().as_u16(), code, "{site:?} {path}");
            assert_eq!(body(response), text);
        }
    }
}
