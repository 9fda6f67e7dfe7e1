//! The registry of all metrics, and those that concern neither commits nor kube-proxy's names.

use std::time::{Duration, SystemTime};

use nft::family::Family as IpFamily;

use super::buckets;
use super::commit_metrics::CommitMetrics;
use super::exposition::{MetricsFormat, written};
use super::histogram::Histogram;
use super::kube_proxy_metrics::KubeProxy;
use super::localhost::LocalhostMetrics;
use super::loop_metrics::{CheckMetrics, DirectMetrics, LeastConnectionsMetrics, ServiceGauges};
use super::metric::{Counter, Described, FAMILIES, Family, Floating, Gauge, MetricKind, Registry};
use super::metric::{Sample, as_f64, labels, metrics};
use super::process;
use super::times::seconds_since_1970;

/// All metrics, and the registry that collects them.
#[derive(Debug)]
pub struct Metrics {
    pub(super) registry: Registry,
    /// Metrics that kube-proxy has too.
    pub kube_proxy: KubeProxy,
    /// Metrics of commits.
    pub commits: CommitMetrics,
    /// Metrics of problems, events, flows and the log.
    pub own: Own,
    /// Gauges of the desired state and of session affinity.
    pub figures: ServiceGauges,
    /// Metrics of direct return.
    pub direct: DirectMetrics,
    /// Metrics of the background check.
    pub check: CheckMetrics,
    /// Metrics of scheduler `lc`.
    pub balancing: LeastConnectionsMetrics,
    /// Metrics of the proxy for node ports at `[::1]`.
    pub localhost: LocalhostMetrics,
    /// Metrics of watches of the API server, and of requests to it.
    pub server: ServerMetrics,
    /// Metrics of the configuration file and the feature gates.
    pub configuration: Configuration,
}

metrics! {
    /// Other metrics of our own.
    pub struct Own {
        problems: Family<1, Counter> = "deltaproxy_problems",
            "Objects, or parts of them, that were left out, by kind of problem", by ["kind"];
        problems_present: Family<1, Gauge> = "deltaproxy_problems_present",
            "Present problems: objects, or parts of them, that are left out now, by kind", by ["kind"];
        pub(super) node_missing: Gauge = "deltaproxy_node_missing",
            "Whether the cluster has no Node object of this node's name";
        pub node_ports_closed: [Gauge; 2] = "deltaproxy_node_ports_closed",
            "Whether no address of this node serves NodePorts of the family", by FAMILIES;
        pub(super) events: Counter = "deltaproxy_events", "Changes of objects that were received";
        pub(super) flows_cleaned: Histogram = "deltaproxy_conntrack_delete_duration_seconds",
            "Time that deleting the conntrack entries of stale flows took", in buckets::fine();
        pub cleanings_failed: Counter = "deltaproxy_conntrack_delete_failures",
            "Deletions of the conntrack entries of stale flows that failed";
        pub(super) programmed: [Gauge; 2] = "deltaproxy_programmed",
            "Whether the last sync of the family succeeded", by FAMILIES;
        pub log_lines_dropped: Counter = "deltaproxy_log_lines_dropped",
            "Log lines that were dropped because standard error was not read";
        pub(super) readyz: Family<1, Counter> = "deltaproxy_readyz",
            "Answers of /readyz", by ["code"];
    }
}

metrics! {
    /// Metrics of the watches by resource, for those that a source has reported, and of requests
    /// under the names of Kubernetes' Go client (k8s.io/component-base/metrics/prometheus/restclient).
    /// There is one host unless the kubeconfig changes.
    pub struct ServerMetrics {
        connected: Family<1, Gauge> = "deltaproxy_watch_connected",
            "Whether the API server answers the watch of a resource", by ["resource"];
        heard_at: Family<1, Floating> = "deltaproxy_watch_last_heard_timestamp_seconds",
            "When the API server last sent something about a resource, bookmarks included", by ["resource"];
        failures: Family<2, Counter> = "deltaproxy_watch_failures",
            "Lists and watches of a resource that failed or broke off, by reason", by ["resource", "reason"];
        answered: Family<3, Counter> = "rest_client_requests",
            "Requests to the API server, by HTTP status, or \"<error>\" without an answer",
            by ["code", "method", "host"];
        durations: Family<2, Histogram> = "rest_client_request_duration_seconds",
            "Time of a request until its answer is read; watches do not count",
            by ["verb", "host"], in buckets::request_times();
        request_sizes: Family<2, Histogram> = "rest_client_request_size_bytes",
            "Length of a request's body", by ["verb", "host"], in buckets::request_sizes();
        response_sizes: Family<2, Histogram> = "rest_client_response_size_bytes",
            "Length of an answer's body; watches do not count",
            by ["verb", "host"], in buckets::request_sizes();
    }
}

metrics! {
    /// Metrics of the configuration file and the feature gates, of which the latter have the names of
    /// Kubernetes (k8s.io/component-base/metrics/prometheus/feature).
    pub struct Configuration {
        info: Family<1, Gauge> = "deltaproxy_configuration_info",
            "The SHA-256 of the configuration file in use", by ["sha256"];
        loaded_at: Floating = "deltaproxy_configuration_last_load_timestamp_seconds",
            "When the configuration in use was loaded";
        pub(super) refused: Gauge = "deltaproxy_configuration_refused",
            "Whether the present configuration file is invalid, so that an earlier one is in use";
        build: Family<5, Gauge> = "kubernetes_build_info",
            "The version of this program, which is not Kubernetes'",
            by ["major", "minor", "git_version", "compiler", "platform"];
        pub features: Family<2, Gauge> = "kubernetes_feature_enabled",
            "Whether a feature gate is on, of those that have an effect", by ["name", "stage"];
    }
}

impl Metrics {
    /// Creates all metrics at zero.
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        let new = &mut registry;
        let mut metrics = Self {
            kube_proxy: KubeProxy::register(new),
            commits: CommitMetrics::register(new),
            own: Own::register(new),
            figures: ServiceGauges::register(new),
            direct: DirectMetrics::register(new),
            check: CheckMetrics::register(new),
            balancing: LeastConnectionsMetrics::register(new),
            localhost: LocalhostMetrics::register(new),
            server: ServerMetrics::register(new),
            configuration: Configuration::register(new),
            registry,
        };
        metrics.configuration.build.with(VERSION).set(1);
        metrics.registry.add(|| vec![build()]);
        metrics.registry.add(process::metrics);
        metrics
    }

    pub(super) fn synced(&self, family: IpFamily, now: SystemTime) {
        self.kube_proxy.synced(family, now);
        self.own.programmed[family.index()].set(1);
    }

    pub(super) fn sync_failed(&self, family: IpFamily) {
        self.kube_proxy.sync_failures[family.index()].inc();
        self.own.programmed[family.index()].set(0);
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(super) fn text(&self) -> String {
        String::from_utf8(written(MetricsFormat::OpenMetrics, &self.registry)).unwrap_or_default()
    }
}

fn build() -> Described {
    let version = labels(["version"], [env!("CARGO_PKG_VERSION")]);
    Described {
        name: "deltaproxy_build".to_owned(),
        help: "The version of this program.".to_owned(),
        kind: MetricKind::Info,
        series: vec![(version, Sample::Whole(1))],
    }
}

/// Labels of `kubernetes_build_info`. Those about Go and its repository are absent.
const VERSION: [&str; 5] = [
    env!("CARGO_PKG_VERSION_MAJOR"),
    env!("CARGO_PKG_VERSION_MINOR"),
    concat!("v", env!("CARGO_PKG_VERSION")),
    "rustc",
    PLATFORM,
];

/// Operating system and architecture in Go's notation.
const PLATFORM: &str = if cfg!(target_arch = "x86_64") {
    "linux/amd64"
} else if cfg!(target_arch = "aarch64") {
    "linux/arm64"
} else if cfg!(all(target_arch = "powerpc64", target_endian = "little")) {
    "linux/ppc64le"
} else if cfg!(target_arch = "s390x") {
    "linux/s390x"
} else {
    "linux"
};

impl Own {
    /// Creates a counter for each of these kinds of problems.
    pub fn problem_kinds(&self, kinds: impl IntoIterator<Item = &'static str>) {
        for kind in kinds {
            self.problems.with([kind]);
            self.problem_is_present(kind, 0);
        }
    }

    /// Returns whether NodePorts are closed in both families.
    pub(super) fn are_node_ports_closed(&self) -> bool {
        self.node_ports_closed.iter().all(|closed| closed.get() == 1)
    }

    /// Counts an object, or a part of one, that was left out.
    pub fn problem(&self, kind: &'static str) {
        self.problems.with([kind]).inc();
    }

    /// Adds to the number of present problems of a kind.
    pub(super) fn problem_is_present(&self, kind: &'static str, count: i64) {
        self.problems_present.with([kind]).add(count);
    }
}

impl ServerMetrics {
    pub(super) fn heard(&self, resource: &'static str, at: SystemTime) {
        self.connected.with([resource]).set(1);
        self.heard_at.with([resource]).set(seconds_since_1970(at));
    }

    pub(super) fn lost(&self, resource: &'static str, reason: &'static str) {
        self.connected.with([resource]).set(0);
        self.failures.with([resource, reason]).inc();
    }

    /// Counts a request of `size` bytes to the API server at `host`, with its HTTP status, or
    /// `None` without an answer.
    pub fn answered(&self, [verb, host]: [&str; 2], size: u64, code: Option<u16>) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.answered.with([&code, verb, host]).inc();
        self.request_sizes.with([verb, host]).observe(as_f64(size));
    }

    /// Adds the time from sending a request to the end of its answer, and the answer's length in
    /// bytes, if there was one.
    pub fn took(&self, target: [&str; 2], duration: Duration, response: Option<u64>) {
        self.durations.with(target).took(duration);
        if let Some(size) = response {
            self.response_sizes.with(target).observe(as_f64(size));
        }
    }
}

impl Configuration {
    /// Records that a configuration is in use, with the digest of its file, if there is one.
    pub fn loaded(&self, sha256: Option<&str>) {
        self.refused.set(0);
        if self.loaded_at.get() > 0.0 && sha256.is_none_or(|sha256| self.info.has([sha256])) {
            return;
        }
        self.info.clear();
        if let Some(sha256) = sha256 {
            self.info.with([sha256]).set(1);
        }
        self.loaded_at.set(seconds_since_1970(SystemTime::now()));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use crate::observe::Observe;

    #[track_caller]
    pub(in crate::observe) fn has(observe: &Observe, lines: &[&str]) {
        let text = observe.shared.metrics.text();
        for line in lines {
            assert!(text.lines().any(|other| other == *line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn metrics_that_nothing_was_told_are_zero_and_there() {
        has(
            &Observe::new(),
            &[
                "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} 0",
                "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 0",
                "kubeproxy_sync_proxy_rules_service_changes_pending 0",
                "deltaproxy_transactions_total{result=\"refused\"} 0",
                concat!("deltaproxy_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
                "# EOF",
            ],
        );
    }

    #[allow(clippy::disallowed_methods, reason = "some instant")]
    fn now() -> std::time::Instant {
        std::time::Instant::now()
    }

    #[test]
    fn a_watch_is_connected_from_the_first_answer_to_the_next_failure() {
        let observe = Observe::new();
        observe.watch_lost("services", "tls");
        observe.watch_lost("services", "tls");
        let connected = "deltaproxy_watch_connected{resource=\"services\"}";
        has(&observe, &[&format!("{connected} 0")]);
        observe.watch_heard("services", now());
        has(
            &observe,
            &[
                &format!("{connected} 1"),
                "deltaproxy_watch_failures_total{resource=\"services\",reason=\"tls\"} 2",
            ],
        );
        let text = observe.shared.metrics.text();
        let heard = "deltaproxy_watch_last_heard_timestamp_seconds{resource=\"services\"} 1";
        assert!(text.contains(heard), "{text}");
        observe.watch_lost("services", "refused");
        has(&observe, &[&format!("{connected} 0")]);
    }

    #[test]
    fn the_digest_is_that_of_the_last_file_in_use() {
        let observe = Observe::new();
        observe.metrics().configuration.loaded(Some("aa"));
        observe.metrics().configuration.refused.set(1);
        let refused = "deltaproxy_configuration_refused";
        let info = |sha256| format!("deltaproxy_configuration_info{{sha256=\"{sha256}\"}} 1");
        has(&observe, &[&info("aa"), &format!("{refused} 1")]);
        observe.metrics().configuration.loaded(Some("bb"));
        has(&observe, &[&info("bb"), &format!("{refused} 0")]);
        assert!(!observe.metrics_text().contains("\"aa\""));
    }

    #[test]
    fn version_and_gates_are_those_of_this_program() {
        let observe = Observe::new();
        observe.metrics().configuration.features.with(["SomeGate", ""]).set(0);
        has(&observe, &["kubernetes_feature_enabled{name=\"SomeGate\",stage=\"\"} 0"]);
        let text = observe.metrics_text();
        let version = concat!("git_version=\"v", env!("CARGO_PKG_VERSION"), "\"");
        let info = text.lines().find(|line| line.starts_with("kubernetes_build_info{")).unwrap();
        assert!(info.contains(version) && info.ends_with("} 1"), "{info}");
    }

    #[test]
    fn requests_have_the_labels_of_the_go_client() {
        let observe = Observe::new();
        let get = ["GET", "10.96.0.1:443"];
        observe.metrics().server.answered(get, 0, Some(200));
        observe.metrics().server.answered(get, 0, None);
        observe.metrics().server.took(get, Duration::from_millis(20), Some(5_000));
        observe.metrics().server.took(get, Duration::from_millis(200), None);
        let (target, host) = ("verb=\"GET\",host=\"10.96.0.1:443\"", "host=\"10.96.0.1:443\"");
        let answered =
            |code| format!("rest_client_requests_total{{code=\"{code}\",method=\"GET\",{host}}} 1");
        let lines = [
            answered("200"),
            answered("<error>"),
            format!("rest_client_request_duration_seconds_bucket{{le=\"0.025\",{target}}} 1"),
            format!("rest_client_request_duration_seconds_count{{{target}}} 2"),
            format!("rest_client_request_size_bytes_count{{{target}}} 2"),
            format!("rest_client_response_size_bytes_bucket{{le=\"4096.0\",{target}}} 0"),
            format!("rest_client_response_size_bytes_bucket{{le=\"16384.0\",{target}}} 1"),
        ];
        has(&observe, &lines.each_ref().map(String::as_str));
    }
}
