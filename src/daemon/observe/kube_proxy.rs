//! Metrics under kube-proxy's names, with its labels and buckets.
//!
//! kube-proxy has a label `ip_family` on most of its metrics. One sync here covers both families,
//! so times and queued changes are equal for both values of the label.

use std::time::{Duration, SystemTime};

use nft::family::Family as IpFamily;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::buckets;
use super::histogram::Histogram;
use super::names::{Answers, Floating, Names, PerFamily, metrics};
use super::times::seconds_since_1970;

/// The part of the tables that a sync compares with the desired elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncExtent {
    /// Both tables, as read back.
    Full,
    /// The changed services.
    Partial,
}

/// The changed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedObject {
    /// A Service.
    Service,
    /// An EndpointSlice.
    EndpointSlice,
    /// The Node or a ServiceCIDR.
    Other,
}

metrics! {
    /// Metrics that kube-proxy has too.
    pub struct KubeProxy(names: &mut Names<'_>) {
        sync_duration: PerFamily<Histogram> = names.per_family(
            "sync_proxy_rules_duration_seconds", "Time of a sync", sync_times);
        full_sync_duration: PerFamily<Histogram> = names.per_family(
            "sync_full_proxy_rules_duration_seconds",
            "Time of a sync that compared all of both tables after reading them", sync_times);
        partial_sync_duration: PerFamily<Histogram> = names.per_family(
            "sync_partial_proxy_rules_duration_seconds",
            "Time of a sync that compared what changed", sync_times);
        network_programming: PerFamily<Histogram> = names.per_family(
            "network_programming_duration_seconds",
            "Time from the change of a pod or service to its being in the kernel",
            || Histogram::new(buckets::network_programming()));
        flows_cleaned: PerFamily<Histogram> = names.per_family(
            "conntrack_reconciler_sync_duration_seconds",
            "Time that deleting the conntrack entries of stale flows took", sync_times);
        sync_failures: PerFamily<Counter> = names.per_family(
            "sync_proxy_rules_nftables_sync_failures", "Syncs that failed", Counter::default);
        cleanup_failures: PerFamily<Counter> = names.per_family(
            "sync_proxy_rules_nftables_cleanup_failures",
            "Failed transactions that only delete what is not used any more", Counter::default);
        flows_deleted: PerFamily<Counter> = names.per_family(
            "conntrack_reconciler_deleted_entries",
            "Conntrack entries of stale flows that were deleted", Counter::default);
        synced_at: PerFamily<Floating> = names.per_family(
            "sync_proxy_rules_last_timestamp_seconds",
            "When everything was in the kernel last", Floating::default);
        queued_at: PerFamily<Floating> = names.per_family(
            "sync_proxy_rules_last_queued_timestamp_seconds",
            "When a change was queued last", Floating::default);
        no_local_endpoints: Family<[(&'static str, &'static str); 2], Gauge> = names.add(
            "sync_proxy_rules_no_local_endpoints_total",
            "Service ports with a Local traffic policy and endpoints, but none on this node");
        endpoint_changes: Pending = Pending::register(names, "endpoint", "EndpointSlices");
        service_changes: Pending = Pending::register(names, "service", "Services");
        pub(super) healthz: Answers = names.add("proxy_healthz", "Answers of /healthz");
        pub(super) livez: Answers = names.add("proxy_livez", "Answers of /livez");
    }
}

fn sync_times() -> Histogram {
    Histogram::new(buckets::sync())
}

/// Counters of changes: all that arrived, and those not yet in the kernel.
#[derive(Debug, Default)]
struct Pending {
    total: Counter,
    pending: Gauge,
}

impl KubeProxy {
    pub(super) fn queued(&self, now: SystemTime) {
        let now = seconds_since_1970(now);
        for gauge in &self.queued_at {
            gauge.set(now);
        }
    }

    pub(super) fn synced(&self, family: IpFamily, now: SystemTime) {
        self.synced_at[family.index()].set(seconds_since_1970(now));
        self.endpoint_changes.pending.set(0);
        self.service_changes.pending.set(0);
    }

    pub(super) fn sync_failed(&self, family: IpFamily) {
        self.sync_failures[family.index()].inc();
    }

    pub(super) fn changed(&self, change: ChangedObject) {
        match change {
            ChangedObject::Service => self.service_changes.add_one(),
            ChangedObject::EndpointSlice => self.endpoint_changes.add_one(),
            ChangedObject::Other => {}
        }
    }
}

impl KubeProxy {
    /// Adds the duration of a sync, from the first comparison of the changes to the kernel's last
    /// answer.
    pub fn sync_took(&self, extent: SyncExtent, duration: Duration) {
        observe_all(&self.sync_duration, duration);
        match extent {
            SyncExtent::Full => observe_all(&self.full_sync_duration, duration),
            SyncExtent::Partial => observe_all(&self.partial_sync_duration, duration),
        }
    }

    /// Counts a failed transaction that only deletes unused elements.
    pub fn cleanup_failed(&self, family: IpFamily) {
        self.cleanup_failures[family.index()].inc();
    }

    /// Sets the number of service ports of a family that have endpoints, but none on this node
    /// although their internal or external traffic policy is `Local`.
    pub fn no_local_endpoints(&self, family: IpFamily, internal: usize, external: usize) {
        for (policy, count) in [("internal", internal), ("external", external)] {
            let label = [("ip_family", family.name()), ("traffic_policy", policy)];
            let gauge = self.no_local_endpoints.get_or_create(&label);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Records that changes of endpoints are in the kernel; `triggers` are the times of their
    /// causes. Times before `started` are ignored, as in kube-proxy.
    pub(super) fn network_programmed(&self, triggers: &[SystemTime], started: SystemTime) {
        let now = SystemTime::now();
        for trigger in triggers.iter().filter(|trigger| **trigger > started) {
            // The clocks of two machines may differ.
            let duration = now.duration_since(*trigger).unwrap_or_default();
            observe_all(&self.network_programming, duration);
        }
    }

    /// Records the deletion of conntrack entries of stale flows: their number by family, and the
    /// time it took.
    pub(super) fn flows_cleaned(&self, entries: [u64; 2], took: Duration) {
        observe_all(&self.flows_cleaned, took);
        for (deleted, entries) in self.flows_deleted.iter().zip(entries) {
            deleted.inc_by(entries);
        }
    }
}

impl Pending {
    /// Registers `name_total`, and `name_pending`, which is zero after a sync.
    fn register(names: &mut Names<'_>, name: &str, what: &str) -> Self {
        let name = format!("sync_proxy_rules_{name}_changes");
        let total = format!("Changes of {what}");
        let pending = format!("Changes of {what} that are not in the kernel");
        Self {
            total: names.add(&name, &total),
            pending: names.add(&format!("{name}_pending"), &pending),
        }
    }

    fn add_one(&self) {
        self.total.inc();
        self.pending.inc();
    }
}

fn observe_all(histograms: &PerFamily<Histogram>, duration: Duration) {
    histograms.iter().for_each(|histogram| histogram.observe(duration.as_secs_f64()));
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn a_sync_leaves_no_change_pending() {
        let observe = Observe::new();
        for change in [
            ChangedObject::Service,
            ChangedObject::EndpointSlice,
            ChangedObject::EndpointSlice,
            ChangedObject::Other,
        ] {
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
    fn a_sync_is_full_or_partial() {
        let observe = Observe::new();
        observe.kube_proxy().sync_took(SyncExtent::Full, Duration::from_millis(3));
        observe.kube_proxy().sync_took(SyncExtent::Partial, Duration::from_micros(300));
        observe.kube_proxy().sync_took(SyncExtent::Partial, Duration::from_micros(300));
        let bucket = |name, le| {
            format!("kubeproxy_{name}_duration_seconds_bucket{{le=\"{le}\",ip_family=\"IPv6\"}}")
        };
        let lines = [
            bucket("sync_proxy_rules", "0.001") + " 2",
            bucket("sync_proxy_rules", "0.004") + " 3",
            bucket("sync_full_proxy_rules", "0.004") + " 1",
            bucket("sync_partial_proxy_rules", "+Inf") + " 2",
        ];
        has(&observe, &lines.each_ref().map(String::as_str));
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
    fn deleted_conntrack_entries_are_counted_by_family() {
        let observe = Observe::new();
        observe.flows_cleaned([2, 1], Duration::from_micros(30));
        has(
            &observe,
            &[
                "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"} 2",
                "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv6\"} 1",
                "deltaproxy_conntrack_delete_duration_seconds_bucket{le=\"0.00002\"} 0",
                "deltaproxy_conntrack_delete_duration_seconds_bucket{le=\"0.00005\"} 1",
            ],
        );
    }
}
