//! The registry of all metrics, and our own metrics that concern neither commits nor watches.

use std::time::SystemTime;

use nft::family::Family as IpFamily;
use prometheus_client::collector::Collector;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::background_check::CheckMetrics;
use super::buckets;
use super::commits::Commits;
use super::component::Component;
use super::configuration::Configuration;
use super::figures::Figures;
use super::histogram::Histogram;
use super::kube_proxy::{ChangedObject, KubeProxy};
use super::least_connections::LeastConnections;
use super::localhost::Localhost;
use super::names::{Answers, Label, Names, PerFamily, metrics, text};
use super::process::Process;
use super::requests::Requests;
use super::watches::Watches;

/// All metrics, and the registry that writes them out.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    pub(super) kube_proxy: KubeProxy,
    pub(super) commits: Commits,
    pub(super) own: Own,
    pub(super) figures: Figures,
    pub(super) check: CheckMetrics,
    pub(super) least_connections: LeastConnections,
    pub(super) localhost: Localhost,
    pub(super) watches: Watches,
    pub(super) requests: Requests,
    pub(super) component: Component,
    pub(super) configuration: Configuration,
}

metrics! {
    /// Other metrics of our own.
    pub struct Own(names: &mut Names<'_>) {
        problems: Family<Label<&'static str>, Counter> = names.add("problems",
            "Objects, or parts of them, that were left out, by kind of problem");
        problems_present: Family<Label<&'static str>, Gauge> = names.add("problems_present",
            "Present problems: objects, or parts of them, that are left out now, by kind");
        pub(super) node_missing: Gauge = names.add("node_missing",
            "Whether the cluster has no Node object of this node's name");
        node_ports_closed: PerFamily<Gauge> = names.per_family("node_ports_closed",
            "Whether no address of this node serves NodePorts of the family", Gauge::default);
        events: Counter = names.add("events", "Changes of objects that were received");
        pub(super) flows_cleaned: Histogram = names.register("conntrack_delete_duration_seconds",
            "Time that deleting the conntrack entries of stale flows took",
            Histogram::new(buckets::fine()));
        cleanings_failed: Counter = names.add("conntrack_delete_failures",
            "Deletions of the conntrack entries of stale flows that failed");
        programmed: PerFamily<Gauge> = names.per_family("programmed",
            "Whether the last sync of the family succeeded", Gauge::default);
        log_lines_dropped: Counter = names.add("log_lines_dropped",
            "Log lines that were dropped because standard error was not read");
        pub(super) readyz: Answers = names.add("readyz", "Answers of /readyz");
    }
}

impl Metrics {
    /// Creates all metrics at zero.
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        let kube_proxy = KubeProxy::register(&mut Names::new(&mut registry, "kubeproxy_"));
        let mut names = Names::new(&mut registry, "deltaproxy_");
        let commits = Commits::register(&mut names);
        let own = Own::register(&mut names);
        let figures = Figures::register(&mut names);
        let check = CheckMetrics::register(&mut names);
        let configuration = Configuration::register(&mut names);
        let least_connections = LeastConnections::register(&mut names);
        let watches = Watches::register(&mut names);
        let localhost = Localhost::register(&mut registry);
        let requests = Requests::register(&mut Names::new(&mut registry, "rest_client_"));
        let component = Component::register(&mut Names::new(&mut registry, "kubernetes_"));
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("deltaproxy_build", "The version of this program", version);
        registry.register_collector(Box::new(Process));
        Self {
            registry,
            kube_proxy,
            commits,
            own,
            figures,
            check,
            least_connections,
            localhost,
            watches,
            requests,
            component,
            configuration,
        }
    }

    /// Adds metrics that are read for each scrape.
    pub(super) fn add(&mut self, collector: impl Collector) {
        self.registry.register_collector(Box::new(collector));
    }
}

/// Counters and gauges.
impl Own {
    /// Counts a failed deletion of conntrack entries of stale flows.
    pub fn flow_cleaning_failed(&self) {
        self.cleanings_failed.inc();
    }

    /// Creates a counter for each of these kinds of problems.
    pub fn problem_kinds(&self, kinds: impl IntoIterator<Item = &'static str>) {
        for kind in kinds {
            self.problems(kind, 0);
            self.problem_is_present(kind, 0);
        }
    }

    /// Adds to the number of present problems of a kind.
    pub(super) fn problem_is_present(&self, kind: &'static str, count: i64) {
        self.problems_present.get_or_create(&[("kind", kind)]).inc_by(count);
    }

    /// Sets whether no address of this node serves NodePorts of a family.
    pub fn node_ports_closed(&self, family: IpFamily, is_closed: bool) {
        self.node_ports_closed[family.index()].set(is_closed.into());
    }

    /// Returns whether no address of this node serves NodePorts.
    pub(super) fn are_node_ports_closed(&self) -> bool {
        self.node_ports_closed.iter().all(|closed| closed.get() == 1)
    }

    /// Counts objects, or parts of objects, that were left out for a kind of problem.
    pub fn problems(&self, kind: &'static str, count: u64) {
        self.problems.get_or_create(&[("kind", kind)]).inc_by(count);
    }

    /// Counts a dropped log line.
    pub fn log_line_dropped(&self) {
        self.log_lines_dropped.inc();
    }

    /// Returns the number of dropped log lines.
    pub fn dropped_log_lines(&self) -> u64 {
        self.log_lines_dropped.get()
    }
}

impl Metrics {
    /// Counts an event about an object.
    pub(super) fn event(&self, change: ChangedObject) {
        self.own.events.inc();
        self.kube_proxy.changed(change);
    }

    pub(super) fn synced(&self, family: IpFamily, now: SystemTime) {
        self.kube_proxy.synced(family, now);
        self.own.programmed[family.index()].set(1);
    }

    pub(super) fn is_programmed(&self, family: IpFamily) -> bool {
        self.own.programmed[family.index()].get() == 1
    }

    pub(super) fn sync_failed(&self, family: IpFamily) {
        self.kube_proxy.sync_failed(family);
        self.own.programmed[family.index()].set(0);
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(super) fn text(&self) -> String {
        text(&self.registry)
    }
}

#[cfg(test)]
pub(super) mod tests {
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
}
