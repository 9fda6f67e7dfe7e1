//! Metrics of the watches: whether each is connected, the time of its last message, and why it
//! failed.

use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::names::{Floating, Label, Names, metrics};
use super::times::seconds_since_1970;

type OfReason = [(&'static str, &'static str); 2];

metrics! {
    /// Metrics by resource, for those that a source has reported.
    pub(super) struct Watches(names: &mut Names<'_>) {
        connected: Family<Label<&'static str>, Gauge> = names.add("watch_connected",
            "Whether the API server answers the watch of a resource");
        heard_at: Family<Label<&'static str>, Floating> = names.add("watch_last_heard_timestamp_seconds",
            "When the API server last sent something about a resource, bookmarks included");
        failures: Family<OfReason, Counter> = names.add("watch_failures",
            "Lists and watches of a resource that failed or broke off, by reason");
    }
}

impl Watches {
    pub(super) fn heard(&self, resource: &'static str, at: SystemTime) {
        let label = [("resource", resource)];
        self.connected.get_or_create(&label).set(1);
        self.heard_at.get_or_create(&label).set(seconds_since_1970(at));
    }

    pub(super) fn lost(&self, resource: &'static str, reason: &'static str) {
        self.connected.get_or_create(&[("resource", resource)]).set(0);
        self.failures.get_or_create(&[("resource", resource), ("reason", reason)]).inc();
    }
}
