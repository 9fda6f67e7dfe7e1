//! Metrics and health. Depends on no module above it; receives values only.
//!
//! Methods of [`Observe`] never block: they add to counters, or hold a lock for a few instructions.
//! The servers read it from tasks of their own.

mod background_check;
mod buckets;
mod commits;
mod component;
mod connections;
mod exposition;
mod figures;
mod health_state;
mod http_responses;
mod kube_proxy;
mod least_connections;
mod metrics;
mod page;
mod process;
mod requests;
mod server;
mod service_counts;
mod service_health;
mod shares;
mod slis;
mod watches;
mod zpages;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use health_state::Health;
use metrics::Metrics;
use nft::family::Family;
use page::Page;
use slis::Slis;

pub use background_check::{CheckMetrics, Difference};
pub use commits::{Commits, SetSizes, Stage, Transaction};
pub use component::Component;
pub use figures::{Figures, SlotCounts};
pub use http_responses::Site;
pub use kube_proxy::{ChangedObject, KubeProxy, SyncExtent};
pub use least_connections::LeastConnections;
pub use metrics::Own;
pub use page::{LeftOut, PageSetup, Query, Search};
pub use requests::Requests;
pub use server::{bind, serve, serve_at};
pub use service_counts::{CountStore, Counted, ReadCounts, ServiceCounts, ServicePortCount};
pub use service_health::{ClosedPort, HealthCheck, HealthChecks, serve_health_checks};
pub use zpages::Startup;

/// State of the daemon that is visible from outside. Clones share it.
///
/// A report about one part goes to that part. The methods of this type report to several parts.
#[derive(Clone, Debug)]
pub struct Observe {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    started: SystemTime,
    health: Mutex<Health>,
    metrics: Metrics,
    health_checks: HealthChecks,
    slis: Slis,
    startup: OnceLock<Startup>,
    page: Page,
    counts: CountStore,
}

impl Observe {
    /// Returns the health of a daemon that has done nothing yet, and metrics at zero.
    pub fn new() -> Self {
        let started = SystemTime::now();
        let counts = CountStore::default();
        let (health, metrics) = (Mutex::default(), Metrics::new(counts.clone()));
        let health_checks = HealthChecks::default();
        let (slis, startup) = (Slis::default(), OnceLock::new());
        let page = Page::new();
        let shared =
            Shared { started, health, metrics, health_checks, slis, startup, page, counts };
        Self { shared: Arc::new(shared) }
    }

    /// Sets the content of `/configz` and `/flagz`; only the first call has an effect.
    pub fn set_startup(&self, startup: Startup) {
        let _ = self.shared.startup.set(startup);
    }

    /// Records that a change waits for the kernel since `now`, unless one waits already.
    pub fn queued(&self, now: Instant) {
        self.health().queued(now);
        self.shared.metrics.kube_proxy.queued(SystemTime::now());
    }

    /// Records that all waiting changes of a family are in the kernel at `now`.
    pub fn synced(&self, family: Family, now: Instant) {
        self.health().synced(family, now);
        self.shared.metrics.synced(family, SystemTime::now());
    }

    /// Records that a commit failed, so that the kernel lacks desired elements of a family at
    /// `now`. With `is_blocked` the table cannot be programmed at present.
    pub fn sync_failed(&self, family: Family, is_blocked: bool, now: Instant) {
        self.health().failed(family, is_blocked, now);
        self.shared.metrics.sync_failed(family);
    }

    /// Records that the daemon waits for an API server since `now`.
    pub fn awaits_source(&self, now: Instant) {
        self.health().source_heard(now);
    }

    /// Records progress at `now` with a change that takes long, such as reading large tables.
    pub fn progressed(&self, now: Instant) {
        self.health().progressed(now);
    }

    /// Sets whether load balancers should send traffic to this node: its Node object is not being
    /// deleted and has no taint of the cluster autoscaler. False by default.
    pub fn node_eligible(&self, eligible: bool) {
        self.health().node_eligible = eligible;
    }

    /// Sets the fixed content of the status page; only the first call has an effect.
    pub fn set_page(&self, setup: PageSetup) {
        self.shared.page.set_up(setup);
    }

    /// Counts a problem and shows it on the status page.
    pub fn left_out(&self, left_out: LeftOut) {
        self.own().problems(left_out.kind, 1);
        self.shared.page.left_out(left_out);
    }

    /// Sets why the table of a family is not written; `None` if it is.
    pub fn table_blocked(&self, family: Family, reason: Option<&str>) {
        self.shared.page.table_blocked(family, reason);
    }

    /// Counts an event about an object.
    pub fn event(&self, change: ChangedObject) {
        self.shared.metrics.event(change);
    }

    /// Counts a transaction that the kernel applied.
    pub fn committed(&self, transaction: &Transaction<'_>) {
        self.commits().committed(transaction);
        self.shared.page.committed(transaction);
    }

    /// Adds the time from the last bytes of an arrival to its commit.
    pub fn events_committed(&self, duration: Duration) {
        self.commits().events_committed(duration);
        self.shared.page.events_committed(duration);
    }

    /// Records that changes of endpoints are in the kernel; `triggers` are the times of their
    /// causes. Times before the start are ignored, as in kube-proxy.
    pub fn network_programmed(&self, triggers: &[SystemTime]) {
        self.kube_proxy().network_programmed(triggers, self.shared.started);
    }

    /// Records the deletion of conntrack entries of stale flows: their number by family, and the
    /// time it took.
    pub fn flows_cleaned(&self, entries: [u64; 2], took: Duration) {
        self.kube_proxy().flows_cleaned(entries, took);
        self.own().flows_cleaned.observe(took.as_secs_f64());
    }

    /// Records that the API server sent something for a resource at `now`: an answer, or on its
    /// watch.
    pub fn watch_heard(&self, resource: &'static str, now: Instant) {
        self.health().source_heard(now);
        let at = SystemTime::now();
        self.shared.metrics.watches.heard(resource, at);
        self.shared.page.watch_heard(resource, at);
    }

    /// Records that a resource cannot be watched at present; `reason` is one of a few names.
    pub fn watch_lost(&self, resource: &'static str, reason: &'static str) {
        self.shared.metrics.watches.lost(resource, reason);
        self.shared.page.watch_lost(resource, reason);
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn metrics_text(&self) -> String {
        self.shared.metrics.text()
    }

    /// Metrics of the background check.
    pub fn check(&self) -> &CheckMetrics {
        &self.shared.metrics.check
    }

    /// Metrics of commits.
    pub fn commits(&self) -> &Commits {
        &self.shared.metrics.commits
    }

    /// Metrics that every component of Kubernetes has.
    pub fn component(&self) -> &Component {
        &self.shared.metrics.component
    }

    /// Figures of the desired state and of session affinity.
    pub fn figures(&self) -> &Figures {
        &self.shared.metrics.figures
    }

    /// Health check ports of Services.
    pub fn health_checks(&self) -> &HealthChecks {
        &self.shared.health_checks
    }

    /// Metrics that kube-proxy has too.
    pub fn kube_proxy(&self) -> &KubeProxy {
        &self.shared.metrics.kube_proxy
    }

    /// Metrics of scheduler `lc`.
    pub fn least_connections(&self) -> &LeastConnections {
        &self.shared.metrics.least_connections
    }

    /// Metrics of problems, events, flows and the log.
    pub fn own(&self) -> &Own {
        &self.shared.metrics.own
    }

    /// Metrics of requests to the API server.
    pub fn requests(&self) -> &Requests {
        &self.shared.metrics.requests
    }

    /// Counts of connections to service ports.
    pub fn service_counts(&self) -> &CountStore {
        &self.shared.counts
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        // Health is consistent after each of its methods, so a panic elsewhere does no harm.
        self.shared.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Observe {
    fn default() -> Self {
        Self::new()
    }
}
