//! Metrics under kube-proxy's names, with its labels and buckets.
//!
//! kube-proxy has a label `ip_family` on most of its metrics. One sync here covers both families,
//! so times and queued changes are equal for both values of the label.

use std::time::{Duration, SystemTime};

use engine::model::Event;
use engine::schedule::Task;
use nft::family::Family as IpFamily;

use super::buckets;
use super::histogram::Histogram;
use super::metric::{Counter, FAMILIES, Family, Floating, Gauge, metrics};
use super::times::seconds_since_1970;

metrics! {
    /// Metrics that kube-proxy has too.
    pub struct KubeProxy {
        sync_duration: [Histogram; 2] = "kubeproxy_sync_proxy_rules_duration_seconds",
            "Time of a sync", by FAMILIES, in buckets::sync();
        full_sync_duration: [Histogram; 2] = "kubeproxy_sync_full_proxy_rules_duration_seconds",
            "Time of a sync that compared all of both tables after reading them", by FAMILIES, in buckets::sync();
        partial_sync_duration: [Histogram; 2] = "kubeproxy_sync_partial_proxy_rules_duration_seconds",
            "Time of a sync that compared what changed", by FAMILIES, in buckets::sync();
        network_programming: [Histogram; 2] = "kubeproxy_network_programming_duration_seconds",
            "Time from the change of a pod or service to its being in the kernel",
            by FAMILIES, in buckets::network_programming();
        flows_cleaned: [Histogram; 2] = "kubeproxy_conntrack_reconciler_sync_duration_seconds",
            "Time that deleting the conntrack entries of stale flows took", by FAMILIES, in buckets::sync();
        pub(super) sync_failures: [Counter; 2] = "kubeproxy_sync_proxy_rules_nftables_sync_failures",
            "Syncs that failed", by FAMILIES;
        pub cleanup_failures: [Counter; 2] = "kubeproxy_sync_proxy_rules_nftables_cleanup_failures",
            "Failed transactions that only delete what is not used any more", by FAMILIES;
        flows_deleted: [Counter; 2] = "kubeproxy_conntrack_reconciler_deleted_entries",
            "Conntrack entries of stale flows that were deleted", by FAMILIES;
        synced_at: [Floating; 2] = "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
            "When everything was in the kernel last", by FAMILIES;
        queued_at: [Floating; 2] = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
            "When a change was queued last", by FAMILIES;
        no_local_endpoints: Family<2, Gauge> = "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
            "Service ports with a Local traffic policy and endpoints, but none on this node",
            by ["ip_family", "traffic_policy"];
        endpoint_changes: Counter = "kubeproxy_sync_proxy_rules_endpoint_changes",
            "Changes of EndpointSlices";
        endpoint_changes_pending: Gauge = "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
            "Changes of EndpointSlices that are not in the kernel";
        service_changes: Counter = "kubeproxy_sync_proxy_rules_service_changes",
            "Changes of Services";
        service_changes_pending: Gauge = "kubeproxy_sync_proxy_rules_service_changes_pending",
            "Changes of Services that are not in the kernel";
        pub(super) healthz: Family<1, Counter> = "kubeproxy_proxy_healthz",
            "Answers of /healthz", by ["code"];
        pub(super) livez: Family<1, Counter> = "kubeproxy_proxy_livez",
            "Answers of /livez", by ["code"];
    }
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
        self.endpoint_changes_pending.set(0);
        self.service_changes_pending.set(0);
    }

    pub(super) fn event(&self, event: &Event) {
        let (total, pending) = match event {
            Event::Service(_) => (&self.service_changes, &self.service_changes_pending),
            Event::EndpointSlice(_) => (&self.endpoint_changes, &self.endpoint_changes_pending),
            Event::Node(_) | Event::Peer(_) | Event::ServiceCidr(_) => return,
            Event::Relist(_) | Event::Listed(_) => return,
        };
        total.inc();
        pending.add(1);
    }

    /// Adds the duration of a sync, from the first comparison of the changes to the kernel's last
    /// answer.
    pub fn sync_took(&self, task: Task, duration: Duration) {
        observe_all(&self.sync_duration, duration);
        match task {
            Task::ReadBack => observe_all(&self.full_sync_duration, duration),
            Task::Commit => observe_all(&self.partial_sync_duration, duration),
        }
    }

    /// Sets the number of service ports of a family that have endpoints, but none on this node
    /// although their internal or external traffic policy is `Local`.
    pub fn no_local_endpoints(&self, family: IpFamily, internal: usize, external: usize) {
        for (policy, count) in [("internal", internal), ("external", external)] {
            self.no_local_endpoints.with([family.name(), policy]).set(count);
        }
    }

    /// Records that changes of endpoints are in the kernel; `triggers` are the times of their
    /// causes. Times before the start are ignored, as in kube-proxy.
    pub(super) fn network_programmed(
        &self,
        triggers: &[SystemTime],
        (started, now): (SystemTime, SystemTime),
    ) {
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
            deleted.add(entries);
        }
    }
}

fn observe_all(histograms: &[Histogram; 2], duration: Duration) {
    histograms.iter().for_each(|histogram| histogram.took(duration));
}

#[cfg(test)]
mod tests {
    use engine::model::{ObjectName, ObjectRef, Resource};

    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn a_sync_leaves_no_change_pending() {
        let observe = Observe::new();
        let gone = |resource| {
            let name = ObjectName::written("default/web");
            observe.event(&Event::gone(ObjectRef { resource, name }));
        };
        use Resource::{EndpointSlices, ServiceCidrs, Services};
        [Services, EndpointSlices, EndpointSlices, ServiceCidrs].into_iter().for_each(gone);
        observe.event(&Event::Listed(Services));
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
        observe.metrics().kube_proxy.sync_took(Task::ReadBack, Duration::from_millis(3));
        observe.metrics().kube_proxy.sync_took(Task::Commit, Duration::from_micros(300));
        observe.metrics().kube_proxy.sync_took(Task::Commit, Duration::from_micros(300));
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
        let (started, second) = (SystemTime::now(), Duration::from_secs(1));
        let metrics = &observe.metrics().kube_proxy;
        let times = (started, started + second);
        metrics.network_programmed(&[started - second, started, started + second * 3600], times);
        metrics.network_programmed(&[started + Duration::from_nanos(1)], times);
        let count = "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"}";
        has(&observe, &[&format!("{count} 2")]);
        observe.network_programmed(&[started - second, started + second * 3600]);
        has(&observe, &[&format!("{count} 3")]);
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
                "deltaproxy_conntrack_delete_duration_seconds_bucket{le=\"2e-05\"} 0",
                "deltaproxy_conntrack_delete_duration_seconds_bucket{le=\"5e-05\"} 1",
            ],
        );
    }
}
