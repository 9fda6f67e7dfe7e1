//! Counters and histograms, under kube-proxy's names where they mean the same.
//!
//! kube-proxy has a label `ip_family` on most of its metrics. One sync here is for both families, so
//! times and queued changes are the same for both values of the label.

use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use super::watches::Watches;
use super::{Observe, Transaction};
use crate::family::Family as IpFamily;

/// What the source spoke of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A Service.
    Service,
    /// An EndpointSlice.
    EndpointSlice,
    /// The Node or a ServiceCIDR.
    Other,
}

pub(super) type Label<V> = [(&'static str, V); 1];
pub(super) type Floating = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Answers to probes, by their code.
pub(super) type Answers = Family<Label<u16>, Counter>;

/// A metric with kube-proxy's label `ip_family`: one handle for each of its values.
type PerFamily<M> = [M; 2];

/// All metrics, and the registry that writes them out.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    pub(super) kube_proxy: KubeProxy,
    pub(super) own: Own,
    pub(super) watches: Watches,
}

/// Metrics that kube-proxy has too.
#[derive(Debug)]
pub(super) struct KubeProxy {
    sync_duration: PerFamily<Histogram>,
    sync_failures: PerFamily<Counter>,
    synced_at: PerFamily<Floating>,
    queued_at: PerFamily<Floating>,
    network_programming: PerFamily<Histogram>,
    flows_cleaned: PerFamily<Histogram>,
    endpoint_changes: Pending,
    service_changes: Pending,
    pub(super) healthz: Answers,
    pub(super) livez: Answers,
}

/// Metrics of our own.
#[derive(Debug)]
pub(super) struct Own {
    committed: Counter,
    refused: Counter,
    operations: Family<Label<String>, Counter>,
    bytes: Counter,
    commit_duration: Histogram,
    problems: Counter,
    events: Counter,
    entries_deleted: Counter,
    programmed: PerFamily<Gauge>,
    log_lines_dropped: Counter,
    pub(super) readyz: Answers,
    /// Without a value until the kernel has reported one.
    affinity_clients: Family<Label<&'static str>, Gauge>,
    affinity_clients_max: Gauge,
}

/// Changes: all that came, and those that are not in the kernel.
#[derive(Debug, Default)]
struct Pending {
    total: Counter,
    pending: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let kube_proxy =
            KubeProxy::register(Names { registry: &mut registry, prefix: "kubeproxy_" });
        let own = Own::register(Names { registry: &mut registry, prefix: "deltaproxy_" });
        let watches =
            Watches::register(&mut Names { registry: &mut registry, prefix: "deltaproxy_" });
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("deltaproxy_build", "The version of this program", version);
        Self { registry, kube_proxy, own, watches }
    }
}

impl KubeProxy {
    fn register(mut names: Names<'_>) -> Self {
        Self {
            sync_duration: names.per_family(
                "sync_proxy_rules_duration_seconds",
                "Time that leading the kernel to the desired state took",
                || Histogram::new(sync_buckets()),
            ),
            sync_failures: names.per_family(
                "sync_proxy_rules_nftables_sync_failures",
                "Syncs that failed",
                Counter::default,
            ),
            synced_at: names.per_family(
                "sync_proxy_rules_last_timestamp_seconds",
                "When everything was in the kernel last",
                Floating::default,
            ),
            queued_at: names.per_family(
                "sync_proxy_rules_last_queued_timestamp_seconds",
                "When a change was queued last",
                Floating::default,
            ),
            network_programming: names.per_family(
                "network_programming_duration_seconds",
                "Time from the change of a pod or service to its being in the kernel",
                || Histogram::new(network_programming_buckets()),
            ),
            flows_cleaned: names.per_family(
                "conntrack_reconciler_sync_duration_seconds",
                "Time that deleting the conntrack entries of stale flows took",
                || Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            ),
            endpoint_changes: names.pending("sync_proxy_rules_endpoint_changes", "slices"),
            service_changes: names.pending("sync_proxy_rules_service_changes", "services"),
            healthz: names.add("proxy_healthz", "Answers of /healthz", Family::default()),
            livez: names.add("proxy_livez", "Answers of /livez", Family::default()),
        }
    }
}

impl Own {
    fn register(mut names: Names<'_>) -> Self {
        let help = "Transactions, by what the kernel said";
        let transactions = Family::<Label<&'static str>, Counter>::default();
        let transactions = names.add("transactions", help, transactions);
        let result = |result| transactions.get_or_create_owned(&[("result", result)]);
        Self {
            committed: result("committed"),
            refused: result("refused"),
            operations: names.add(
                "operations",
                "Messages in transactions that the kernel applied, by kind",
                Family::default(),
            ),
            bytes: names.add(
                "transaction_bytes",
                "Bytes of transactions that the kernel applied",
                Counter::default(),
            ),
            commit_duration: names.add(
                "commit_duration_seconds",
                "Time that the kernel took for a transaction",
                Histogram::new(commit_buckets()),
            ),
            programmed: names.per_family(
                "programmed",
                "Whether the last sync of the family succeeded",
                Gauge::default,
            ),
            problems: names.add(
                "problems",
                "Objects, or parts of them, that were left out",
                Counter::default(),
            ),
            events: names.add("events", "Statements of the source", Counter::default()),
            entries_deleted: names.add(
                "conntrack_deleted_entries",
                "Conntrack entries of stale flows that were deleted, of both families",
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
        }
    }
}

/// What is only counted and measured.
impl Observe {
    /// Leading the kernel to the desired state took this long, from the first look at the
    /// changes to the kernel's last answer.
    pub fn sync_took(&self, duration: Duration) {
        observe_all(&self.shared.metrics.kube_proxy.sync_duration, duration);
    }

    /// Changes of endpoints are in the kernel now; what led to them happened at these times. Those
    /// from before the start do not count, as in kube-proxy.
    pub fn network_programmed(&self, triggers: &[SystemTime]) {
        let now = SystemTime::now();
        for trigger in triggers.iter().filter(|trigger| **trigger > self.shared.started) {
            // The clocks of two machines differ.
            let duration = now.duration_since(*trigger).unwrap_or_default();
            observe_all(&self.shared.metrics.kube_proxy.network_programming, duration);
        }
    }

    /// The kernel applied a transaction.
    pub fn committed(&self, transaction: &Transaction<'_>) {
        let metrics = &self.shared.metrics.own;
        metrics.committed.inc();
        metrics.bytes.inc_by(transaction.bytes as u64);
        metrics.commit_duration.observe(transaction.kernel_time.as_secs_f64());
        for (kind, count) in transaction.operations {
            let label = [("kind", (*kind).to_owned())];
            metrics.operations.get_or_create(&label).inc_by(*count as u64);
        }
    }

    /// Conntrack entries of stale flows were deleted: how many, and how long that took.
    pub fn flows_cleaned(&self, entries: u64, took: Duration) {
        observe_all(&self.shared.metrics.kube_proxy.flows_cleaned, took);
        self.shared.metrics.own.entries_deleted.inc_by(entries);
    }

    /// Session affinity remembers so many places of clients in this family.
    pub fn affinity_clients(&self, family: IpFamily, count: u32) {
        let label = [("ip_family", family.name())];
        self.shared.metrics.own.affinity_clients.get_or_create(&label).set(count.into());
    }

    /// Session affinity remembers at most so many places of clients in each family.
    pub fn affinity_clients_max(&self, most: u32) {
        self.shared.metrics.own.affinity_clients_max.set(most.into());
    }

    /// The kernel refused a transaction.
    pub fn refused(&self) {
        self.shared.metrics.own.refused.inc();
    }

    /// This many objects, or parts of objects, were left out.
    pub fn problems(&self, count: u64) {
        self.shared.metrics.own.problems.inc_by(count);
    }

    /// A log line was dropped.
    pub fn log_line_dropped(&self) {
        self.shared.metrics.own.log_lines_dropped.inc();
    }

    /// Log lines that were dropped so far.
    pub fn dropped_log_lines(&self) -> u64 {
        self.shared.metrics.own.log_lines_dropped.get()
    }

    /// The source said something about an object.
    pub fn event(&self, change: Change) {
        let metrics = &self.shared.metrics;
        metrics.own.events.inc();
        match change {
            Change::Service => metrics.kube_proxy.service_changes.add_one(),
            Change::EndpointSlice => metrics.kube_proxy.endpoint_changes.add_one(),
            Change::Other => {}
        }
    }
}

impl Metrics {
    pub(super) fn queued(&self, now: SystemTime) {
        let now = seconds_since_1970(now);
        for gauge in &self.kube_proxy.queued_at {
            gauge.set(now);
        }
    }

    pub(super) fn synced(&self, family: IpFamily, now: SystemTime) {
        self.kube_proxy.synced_at[family.index()].set(seconds_since_1970(now));
        self.own.programmed[family.index()].set(1);
        self.kube_proxy.endpoint_changes.pending.set(0);
        self.kube_proxy.service_changes.pending.set(0);
    }

    pub(super) fn sync_failed(&self, family: IpFamily) {
        self.kube_proxy.sync_failures[family.index()].inc();
        self.own.programmed[family.index()].set(0);
    }

    /// All metrics in the OpenMetrics text format.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` does not fail, and no metric of ours refuses to be written.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Pending {
    fn add_one(&self) {
        self.total.inc();
        self.pending.inc();
    }
}

/// Registers metrics whose names have the same beginning.
pub(super) struct Names<'a> {
    registry: &'a mut Registry,
    prefix: &'static str,
}

impl Names<'_> {
    pub(super) fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(format!("{}{name}", self.prefix), help, metric.clone());
        metric
    }

    fn per_family<M: Metric + Clone>(
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

    /// `name_total`, and `name_pending` of which a sync leaves none.
    fn pending(&mut self, name: &str, what: &str) -> Pending {
        let total = format!("Changes of {what}");
        let pending = format!("Changes of {what} that are not in the kernel");
        Pending {
            total: self.add(name, &total, Counter::default()),
            pending: self.add(&format!("{name}_pending"), &pending, Gauge::default()),
        }
    }
}

fn observe_all(histograms: &PerFamily<Histogram>, duration: Duration) {
    histograms.iter().for_each(|histogram| histogram.observe(duration.as_secs_f64()));
}

pub(super) fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// kube-proxy's buckets, and finer ones below, in seconds.
fn sync_buckets() -> impl Iterator<Item = f64> {
    let finer = [0.000_05, 0.000_1, 0.000_2, 0.000_5];
    finer.into_iter().chain(exponential_buckets(0.001, 2.0, 15))
}

/// From 10 microseconds, less than the kernel needs for one element, to 10 seconds.
fn commit_buckets() -> impl Iterator<Item = f64> {
    [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
        .into_iter()
        .flat_map(|decade| [decade, 2.0 * decade, 5.0 * decade])
        .chain([10.0])
}

/// kube-proxy's buckets in seconds: 0.25, 0.5, 1 to 59, 60 to 115 by 5, 120 to 300 by 30.
fn network_programming_buckets() -> impl Iterator<Item = f64> {
    let whole = (1..60).chain((60..120).step_by(5)).chain((120..=300).step_by(30));
    [0.25, 0.5].into_iter().chain(whole.map(f64::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn has(observe: &Observe, lines: &[&str]) {
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
    fn a_transaction_is_counted_by_kind_bytes_and_time() {
        let observe = Observe::new();
        let operations = &[("newsetelem", 3), ("delsetelem", 1)][..];
        let kernel_time = Duration::from_micros(40);
        observe.committed(&Transaction { operations, bytes: 900, kernel_time });
        observe.committed(&Transaction { operations, bytes: 100, kernel_time });
        observe.refused();
        has(
            &observe,
            &[
                "deltaproxy_transactions_total{result=\"committed\"} 2",
                "deltaproxy_transactions_total{result=\"refused\"} 1",
                "deltaproxy_operations_total{kind=\"newsetelem\"} 6",
                "deltaproxy_operations_total{kind=\"delsetelem\"} 2",
                "deltaproxy_transaction_bytes_total 1000",
                "deltaproxy_commit_duration_seconds_bucket{le=\"0.00002\"} 0",
                "deltaproxy_commit_duration_seconds_bucket{le=\"0.00005\"} 2",
            ],
        );
    }

    #[test]
    fn a_sync_leaves_no_change_pending() {
        let observe = Observe::new();
        for change in [Change::Service, Change::EndpointSlice, Change::EndpointSlice, Change::Other]
        {
            observe.event(change);
        }
        has(
            &observe,
            &[
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending 2",
                "kubeproxy_sync_proxy_rules_service_changes_pending 1",
                "deltaproxy_events_total 4",
            ],
        );
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        observe.shared.metrics.synced(IpFamily::Ip, time);
        has(
            &observe,
            &[
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
                "kubeproxy_sync_proxy_rules_endpoint_changes_total 2",
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.5",
            ],
        );
    }

    #[test]
    fn clients_with_affinity_have_a_value_once_they_are_counted() {
        let observe = Observe::new();
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

    #[test]
    fn changes_are_measured_from_their_triggers_after_the_start() {
        let observe = Observe::new();
        let (started, second) = (observe.shared.started, Duration::from_secs(1));
        observe.network_programmed(&[started - second, started, started + second * 3600]);
        observe.network_programmed(&[started + Duration::from_nanos(1)]);
        let count = "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"}";
        has(&observe, &[&format!("{count} 2")]);
    }

    #[test]
    fn buckets_are_those_of_kube_proxy_at_least() {
        assert_eq!(sync_buckets().last(), Some(16.384));
        assert_eq!(network_programming_buckets().count(), 80);
        assert!(commit_buckets().is_sorted());
    }
}
