//! The hub: passes each report of the daemon to health, metrics and the record of recent events.
//!
//! Its methods never block: they add to counters, or hold a lock for a few instructions. The servers
//! read it from tasks of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use engine::model::Event;
use nft::family::Family;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::commit_metrics::Transaction;
use super::health_checks::HealthChecks;
use super::health_state::Health;
use super::metrics::Metrics;
use super::problems::{Finder, LeftOut};
use super::record::Record;
use super::service_counts::CountStore;
use super::slis::Slis;
use super::times::{now, since_1970_ms};

/// State of the daemon that is visible from outside. Clones share it.
///
/// A report about one part goes to that part. The methods of this type report to several parts.
#[derive(Clone, Debug)]
pub struct Observe {
    pub(super) shared: Arc<SharedState>,
}

#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) started: Instant,
    pub(super) health: Mutex<Health>,
    pub(super) metrics: Metrics,
    health_checks: HealthChecks,
    pub(super) slis: Slis,
    pub(super) record: Record,
    is_reload: AtomicBool,
    family_changed: Notify,
}

impl Observe {
    /// Returns the health of a daemon that has done nothing yet, and metrics at zero.
    pub fn new() -> Self {
        Self::with(Metrics::new())
    }

    /// The same, with the counts of the kernel, which are read for each scrape.
    pub fn with_counts(counts: CountStore) -> Self {
        let mut metrics = Metrics::new();
        metrics.registry.add(move || counts.metrics());
        Self::with(metrics)
    }

    fn with(metrics: Metrics) -> Self {
        let shared = SharedState {
            started: now(),
            health: Mutex::default(),
            metrics,
            health_checks: HealthChecks::default(),
            slis: Slis::default(),
            record: Record::new(),
            is_reload: AtomicBool::default(),
            family_changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records that the daemon did not start, but follows itself with another configuration.
    pub fn note_reload(&self) {
        self.shared.is_reload.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Self::note_reload`] was called.
    pub fn is_reload(&self) -> bool {
        self.shared.is_reload.load(Ordering::Relaxed)
    }

    /// Records that a change waits for the kernel since `now`, unless one waits already.
    pub fn queued(&self, now: Instant) {
        self.shared.health.lock().queued(now);
        self.metrics().kube_proxy.queued(SystemTime::now());
    }

    /// Records that all waiting changes of a family are in the kernel at `now`.
    pub fn synced(&self, family: Family, now: Instant) {
        self.shared.health.lock().synced(family, now);
        self.shared.family_changed.notify_waiters();
        self.metrics().synced(family, SystemTime::now());
    }

    /// Records that a commit failed, so that the kernel lacks desired elements of a family at
    /// `now`. With `is_blocked` the table cannot be programmed at present.
    pub fn sync_failed(&self, family: Family, is_blocked: bool, now: Instant) {
        self.shared.health.lock().failed(family, is_blocked, now);
        self.shared.family_changed.notify_waiters();
        self.metrics().sync_failed(family);
    }

    /// Completes when every family that can be programmed was synced once.
    pub async fn tables_complete(&self) {
        loop {
            // Before the look, so that no change between both is missed.
            let changed = self.shared.family_changed.notified();
            if self.shared.health.lock().is_ready() {
                return;
            }
            changed.await;
        }
    }

    /// Records that the daemon waits for an API server since `now`.
    pub fn awaits_source(&self, now: Instant) {
        self.shared.health.lock().source_heard(now);
    }

    /// Records progress at `now` with a change that takes long, such as reading large tables.
    pub fn progressed(&self, now: Instant) {
        self.shared.health.lock().progressed(now);
    }

    /// Sets whether load balancers should send traffic to this node: its Node object is not being
    /// deleted and has no taint of the cluster autoscaler. False by default.
    pub fn node_eligible(&self, eligible: bool) {
        self.shared.health.lock().node_eligible = eligible;
    }

    /// Counts a problem and shows it on the status page.
    pub fn left_out(&self, left_out: LeftOut) {
        self.metrics().own.problem(left_out.kind);
        self.shared.record.problems.lock().add(left_out, SystemTime::now());
    }

    /// Replaces the present problems that `finder` found in an object. Empty if they are over.
    pub fn present(&self, finder: Finder, object: &str, problems: Vec<LeftOut>) {
        let (owner, now) = ((finder, object), SystemTime::now());
        let [former, new] = self.shared.record.problems.lock().replace(owner, problems, now);
        let own = &self.metrics().own;
        former.into_iter().for_each(|kind| own.problem_is_present(kind, -1));
        new.into_iter().for_each(|kind| own.problem_is_present(kind, 1));
    }

    /// Returns all present problems as a document.
    pub(super) fn problems_document(&self, now: SystemTime) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "now_ms": since_1970_ms(now),
            "problems": self.shared.record.problems.lock().present(),
        })
    }

    /// Returns when the daemon started by the present wall clock, which may have been set since.
    pub(super) fn started(&self, now: (Instant, SystemTime)) -> SystemTime {
        let up = now.0.saturating_duration_since(self.shared.started);
        now.1.checked_sub(up).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns the history of commits as a document.
    pub fn history(&self) -> Value {
        let now = (now(), SystemTime::now());
        // Copied first, so that no lock is held while the document is built.
        let history = self.shared.record.history.lock().clone();
        history.document(self.started(now), now.1)
    }

    /// Returns whether the daemon makes progress, as `/livez` answers.
    pub fn is_alive(&self) -> bool {
        self.shared.health.lock().verdict(now()).alive
    }

    /// Sets whether this node never had a Node object, although everything was listed.
    pub fn lacks_node(&self, lacks_node: bool) {
        self.shared.health.lock().lacks_node = lacks_node;
        self.metrics().own.node_missing.set(lacks_node);
    }

    /// Sets why the table of a family is not written; `None` if it is.
    pub fn table_blocked(&self, family: Family, reason: Option<&str>) {
        self.shared.record.blocked.lock()[family.index()] = reason.map(str::to_owned);
    }

    /// Sets why the present configuration file is refused; empty if it can be used.
    pub fn configuration_refused(&self, problems: Vec<LeftOut>) {
        self.metrics().configuration.refused.set(!problems.is_empty());
        self.present(Finder::Configuration, "", problems);
    }

    /// Counts an event, if it is about an object.
    pub fn event(&self, event: &Event) {
        match event {
            Event::Service(_)
            | Event::EndpointSlice(_)
            | Event::Node(_)
            | Event::Peer(_)
            | Event::ServiceCidr(_) => self.metrics().own.events.inc(),
            Event::Relist(_) | Event::Listed(_) => {}
        }
        self.metrics().kube_proxy.event(event);
    }

    /// Counts a transaction that the kernel applied.
    pub fn committed(&self, transaction: &Transaction<'_>) {
        self.metrics().commits.committed(transaction);
        self.shared.record.history.lock().add(transaction, SystemTime::now());
    }

    /// Adds a transaction to the history that updates no service.
    pub fn committed_beside(&self, transaction: &Transaction<'_>) {
        self.shared.record.history.lock().add(transaction, SystemTime::now());
    }

    /// Adds the time from the last bytes of an arrival to its commit.
    pub fn events_committed(&self, duration: Duration) {
        self.metrics().commits.event_to_commit.took(duration);
        self.shared.record.events_committed(duration);
    }

    /// Records that changes of endpoints are in the kernel; `triggers` are the times of their
    /// causes. Times before the start are ignored, as in kube-proxy.
    pub fn network_programmed(&self, triggers: &[SystemTime]) {
        let (clock, now) = (now(), SystemTime::now());
        let started = self.started((clock, now));
        self.metrics().kube_proxy.network_programmed(triggers, (started, now));
    }

    /// Records the deletion of conntrack entries of stale flows: their number by family, and the
    /// time it took.
    pub fn flows_cleaned(&self, entries: [u64; 2], took: Duration) {
        self.metrics().kube_proxy.flows_cleaned(entries, took);
        self.metrics().own.flows_cleaned.took(took);
    }

    /// Records that the API server sent something for a resource at `now`: an answer, or on its
    /// watch.
    pub fn watch_heard(&self, resource: &'static str, now: Instant) {
        self.shared.health.lock().source_heard(now);
        let at = SystemTime::now();
        self.metrics().server.heard(resource, at);
        self.shared.record.watch_heard(resource, at);
    }

    /// Records that a resource cannot be watched at present; `reason` is one of a few names.
    pub fn watch_lost(&self, resource: &'static str, reason: &'static str) {
        self.metrics().server.lost(resource, reason);
        self.shared.record.watch_lost(resource, reason, now());
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn metrics_text(&self) -> String {
        self.metrics().text()
    }

    /// Metrics of single parts.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Health check ports of Services.
    pub fn health_checks(&self) -> &HealthChecks {
        &self.shared.health_checks
    }
}

impl Default for Observe {
    fn default() -> Self {
        Self::new()
    }
}
