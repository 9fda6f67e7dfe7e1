//! The registry of all metrics, and our own metrics that concern neither commits nor watches.

use std::time::SystemTime;

use nft::family::Family as IpFamily;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use super::background_check::CheckMetrics;
use super::commits::Commits;
use super::component::Component;
use super::kube_proxy::{ChangedObject, KubeProxy};
use super::least_connections::LeastConnections;
use super::process::Process;
use super::requests::Requests;
use super::service_counts::Store;
use super::watches::Watches;
use super::{Observe, buckets};

pub(super) type Label<V> = [(&'static str, V); 1];
pub(super) type Floating = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Answers to probes, by status code.
pub(super) type Answers = Family<Label<u16>, Counter>;

/// A metric with kube-proxy's label `ip_family`: one handle for each value.
pub(super) type PerFamily<M> = [M; 2];

/// All metrics, and the registry that writes them out.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    pub(super) kube_proxy: KubeProxy,
    pub(super) commits: Commits,
    pub(super) own: Own,
    pub(super) check: CheckMetrics,
    pub(super) least_connections: LeastConnections,
    pub(super) watches: Watches,
    pub(super) requests: Requests,
    pub(super) component: Component,
}

/// Other metrics of our own.
#[derive(Debug)]
pub(super) struct Own {
    problems: Family<Label<&'static str>, Counter>,
    events: Counter,
    pub(super) flows_cleaned: Histogram,
    cleanings_failed: Counter,
    programmed: PerFamily<Gauge>,
    log_lines_dropped: Counter,
    pub(super) readyz: Answers,
    /// Absent until the kernel has reported a value.
    affinity_clients: Family<Label<&'static str>, Gauge>,
    affinity_clients_max: Gauge,
    services: Family<Label<&'static str>, Gauge>,
    slots_budget: Gauge,
    slots_requested: Gauge,
    slots_given: Gauge,
    services_reduced: Gauge,
}

/// Slots of weights and hash tables, and the services that get fewer than they request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots that services may use beyond one for each endpoint.
    pub budget: u64,
    /// Slots that they request.
    pub requested: u64,
    /// Slots that they get.
    pub given: u64,
    /// Services that get fewer than they request.
    pub reduced: usize,
}

impl Metrics {
    /// Creates all metrics at zero, and those of `counts`.
    pub(super) fn new(counts: Store) -> Self {
        let mut registry = Registry::default();
        let kube_proxy = KubeProxy::register(&mut Names::new(&mut registry, "kubeproxy_"));
        let mut names = Names::new(&mut registry, "deltaproxy_");
        let commits = Commits::register(&mut names);
        let own = Own::register(&mut names);
        let check = CheckMetrics::register(&mut names);
        let least_connections = LeastConnections::register(&mut names);
        let watches = Watches::register(&mut names);
        let requests = Requests::register(&mut Names::new(&mut registry, "rest_client_"));
        let component = Component::register(&mut Names::new(&mut registry, "kubernetes_"));
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("deltaproxy_build", "The version of this program", version);
        registry.register_collector(Box::new(Process));
        registry.register_collector(Box::new(counts));
        Self {
            registry,
            kube_proxy,
            commits,
            own,
            check,
            least_connections,
            watches,
            requests,
            component,
        }
    }
}

impl Own {
    fn register(names: &mut Names<'_>) -> Self {
        Self {
            programmed: names.per_family(
                "programmed",
                "Whether the last sync of the family succeeded",
                Gauge::default,
            ),
            problems: names.add(
                "problems",
                "Objects, or parts of them, that were left out, by kind of problem",
                Family::default(),
            ),
            events: names.add(
                "events",
                "Changes of objects that were received",
                Counter::default(),
            ),
            flows_cleaned: names.add(
                "conntrack_delete_duration_seconds",
                "Time that deleting the conntrack entries of stale flows took",
                Histogram::new(buckets::fine()),
            ),
            cleanings_failed: names.add(
                "conntrack_delete_failures",
                "Deletions of the conntrack entries of stale flows that failed",
                Counter::default(),
            ),
            log_lines_dropped: names.add(
                "log_lines_dropped",
                "Log lines that were dropped because standard error was not read",
                Counter::default(),
            ),
            readyz: names.add("readyz", "Answers of /readyz", Family::default()),
            affinity_clients: names.add(
                "affinity_clients",
                "Places of clients that session affinity remembers, if the kernel reports them",
                Family::default(),
            ),
            affinity_clients_max: names.add(
                "affinity_clients_max",
                "The most places of clients that are remembered in each family",
                Gauge::default(),
            ),
            services: names.add(
                "services",
                "Services that are routed, by scheduler",
                Family::default(),
            ),
            slots_budget: names.add(
                "slots_budget",
                "Slots that services may use beyond one for each endpoint",
                Gauge::default(),
            ),
            slots_requested: names.add(
                "slots_requested",
                "Slots that services request beyond one for each endpoint",
                Gauge::default(),
            ),
            slots_given: names.add(
                "slots_given",
                "Slots that services get beyond one for each endpoint",
                Gauge::default(),
            ),
            services_reduced: names.add(
                "services_reduced",
                "Services that get fewer slots than they request",
                Gauge::default(),
            ),
        }
    }
}

/// Counters and gauges.
impl Observe {
    /// Counts a failed deletion of conntrack entries of stale flows.
    pub fn flow_cleaning_failed(&self) {
        self.shared.metrics.own.cleanings_failed.inc();
    }

    /// Sets the number of places of clients that session affinity stores in a family.
    pub fn affinity_clients(&self, family: IpFamily, count: u32) {
        let label = [("ip_family", family.name())];
        self.shared.metrics.own.affinity_clients.get_or_create(&label).set(count.into());
    }

    /// Sets the most places of clients that session affinity stores in each family.
    pub fn affinity_clients_max(&self, most: u32) {
        self.shared.metrics.own.affinity_clients_max.set(most.into());
    }

    /// Sets the number of services with a scheduler.
    pub fn services(&self, scheduler: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.shared.metrics.own.services.get_or_create(&[("scheduler", scheduler)]).set(count);
    }

    /// Sets the slots of weights and tables.
    pub fn slots(&self, SlotCounts { budget, requested, given, reduced }: SlotCounts) {
        let own = &self.shared.metrics.own;
        let gauges =
            [&own.slots_budget, &own.slots_requested, &own.slots_given, &own.services_reduced];
        for (gauge, value) in gauges.into_iter().zip([budget, requested, given, reduced as u64]) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    /// Creates a counter for each of these kinds of problems.
    pub fn problem_kinds(&self, kinds: impl IntoIterator<Item = &'static str>) {
        kinds.into_iter().for_each(|kind| self.problems(kind, 0));
    }

    /// Counts objects, or parts of objects, that were left out for a kind of problem.
    pub fn problems(&self, kind: &'static str, count: u64) {
        self.shared.metrics.own.problems.get_or_create(&[("kind", kind)]).inc_by(count);
    }

    /// Counts a dropped log line.
    pub fn log_line_dropped(&self) {
        self.shared.metrics.own.log_lines_dropped.inc();
    }

    /// Returns the number of dropped log lines.
    pub fn dropped_log_lines(&self) -> u64 {
        self.shared.metrics.own.log_lines_dropped.get()
    }

    /// Counts an event about an object.
    pub fn event(&self, change: ChangedObject) {
        self.shared.metrics.own.events.inc();
        self.shared.metrics.kube_proxy.changed(change);
    }
}

impl Metrics {
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
        let mut text = String::new();
        // Writing to a `String` does not fail, and none of our metrics returns an error.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// Registers metrics with a common prefix of their names.
pub(super) struct Names<'a> {
    registry: &'a mut Registry,
    prefix: &'static str,
}

impl<'a> Names<'a> {
    fn new(registry: &'a mut Registry, prefix: &'static str) -> Self {
        Self { registry, prefix }
    }

    pub(super) fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(format!("{}{name}", self.prefix), help, metric.clone());
        metric
    }

    pub(super) fn per_family<M: Metric + Clone>(
        &mut self,
        name: &str,
        help: &str,
        constructor: fn() -> M,
    ) -> PerFamily<M>
    where
        Family<Label<&'static str>, M, fn() -> M>: Metric,
    {
        let family = Family::new_with_constructor(constructor);
        let family = self.add(name, help, family);
        IpFamily::ALL.map(|value| family.get_or_create_owned(&[("ip_family", value.name())]))
    }
}

pub(super) fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

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

    #[test]
    fn clients_with_affinity_have_a_value_once_they_are_counted() {
        let observe = Observe::new();
        observe.services("mh", 3);
        has(&observe, &["deltaproxy_services{scheduler=\"mh\"} 3"]);
        observe.slots(SlotCounts { budget: 9, requested: 8, given: 7, reduced: 6 });
        has(
            &observe,
            &[
                "deltaproxy_slots_budget 9",
                "deltaproxy_slots_requested 8",
                "deltaproxy_slots_given 7",
                "deltaproxy_services_reduced 6",
            ],
        );
        observe.affinity_clients_max(1_000);
        has(&observe, &["deltaproxy_affinity_clients_max 1000"]);
        assert!(!observe.shared.metrics.text().contains("deltaproxy_affinity_clients{"));
        observe.affinity_clients(IpFamily::Ip6, 7);
        has(&observe, &["deltaproxy_affinity_clients{ip_family=\"IPv6\"} 7"]);
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
