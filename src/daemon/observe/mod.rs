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
use std::time::{Instant, SystemTime};

use health_state::Health;
use metrics::Metrics;
use nft::family::Family;
use page::Page;
use service_health::HealthChecks;
use slis::Slis;

pub use background_check::Difference;
pub use commits::{SetSizes, Stage, Transaction};
pub use http_responses::Site;
pub use kube_proxy::{ChangedObject, SyncExtent};
pub use metrics::SlotCounts;
pub use page::{LeftOut, PageSetup, Query, Search};
pub use server::{bind, serve, serve_at};
pub use service_counts::{Counted, ReadCounts, ServiceCounts, ServicePortCount};
pub use service_health::{ClosedPort, HealthCheck, serve_health_checks};
pub use zpages::Startup;

/// State of the daemon that is visible from outside. Clones share it.
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
    counts: service_counts::Store,
}

impl Observe {
    /// Returns the health of a daemon that has done nothing yet, and metrics at zero.
    pub fn new() -> Self {
        let started = SystemTime::now();
        let counts = service_counts::Store::default();
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

    /// Returns all metrics in the OpenMetrics text format.
    pub fn metrics_text(&self) -> String {
        self.shared.metrics.text()
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
