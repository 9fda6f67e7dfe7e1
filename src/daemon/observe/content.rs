//! The content of the ports for health and metrics.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::hub::Observe;
use super::page::PageSetup;
use super::zpages::Startup;

/// Reads the counters of service ports; completes after it stored them.
pub type ReadCounts = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Health and metrics, and the other pages. Fixed before the servers start.
pub struct ServedContent {
    /// Health and metrics.
    pub observe: Observe,
    /// ServedContent of `/configz` and `/flagz`.
    pub startup: Startup,
    /// Fixed content of the status page.
    pub page: Option<PageSetup>,
    /// Called before each answer to a scrape.
    pub read_counts: Option<ReadCounts>,
}

impl ServedContent {
    /// Returns health and metrics with other pages that are empty.
    pub fn new(observe: Observe) -> Self {
        Self { observe, startup: Startup::default(), page: None, read_counts: None }
    }
}
