//! Metrics of the path from an event to the kernel: stages, transactions and sizes of sets.
//!
//! Every commit updates them, so handles are created in advance: only kinds of messages are looked
//! up.

use std::num::NonZeroU64;
use std::time::Duration;

use engine::model::ObjectName;
use nft::Operation;
use nft::family::Family as IpFamily;

use super::buckets;
use super::causes::Causes;
use super::histogram::Histogram;
use super::metric::{Counter, Family, Gauge, as_f64, metrics};

engine::named! {
    /// A stage of the path of an event to the kernel, in order.
    pub enum CommitStage {
        /// From the last bytes of an arrival to its events.
        Parse = "parse",
        /// From there until the loop takes the arrival.
        Queue = "queue",
        /// From events to a transaction.
        Compare = "compare",
        /// From the transaction to messages.
        Encode = "encode",
        /// The system call that commits.
        Commit = "commit",
        /// The remaining time of a commit: acknowledgements, handing a transaction of many elements to
        /// the writer's thread and back, and the update of the installed elements.
        Acknowledge = "acknowledge",
    }
}

/// A transaction that the kernel applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct Transaction<'a> {
    /// Messages by kind: the kind's name and their number.
    pub operations: &'a [(&'static str, usize)],
    /// Elements that the transaction adds.
    pub added: usize,
    /// Elements that the transaction deletes.
    pub removed: usize,
    /// Number of services that it updates.
    pub services: usize,
    /// The first of these services.
    pub names: &'a [ObjectName],
    /// Why it was made.
    pub causes: Causes,
    /// Resource version of the last object that changed before.
    pub resource_version: Option<NonZeroU64>,
    /// Length of the encoded transaction in bytes.
    pub bytes: usize,
    /// Family of its table, if it changes only one table.
    pub family: Option<IpFamily>,
    /// Time of encoding and of the system call that commits.
    pub took: Duration,
}

/// Numbers of elements that the sets and maps of both tables should have: they change with what is
/// read, written, and found missing or added.
#[derive(Debug)]
pub struct SetSizes(Vec<(&'static str, [Gauge; 2])>);

metrics! {
    /// Metrics of commits.
    pub struct CommitMetrics {
        results: [Counter; 2] = "deltaproxy_transactions",
            "Transactions, by the kernel's answer", by ("result", ["committed", "refused"]);
        operations: Family<1, Counter> = "deltaproxy_operations",
            "Messages in transactions that the kernel applied, by kind", by ["kind"];
        bytes: Histogram = "deltaproxy_transaction_size_bytes",
            "Length of the transactions that the kernel applied", in buckets::bytes();
        elements: Histogram = "deltaproxy_transaction_elements",
            "Elements added and deleted by the transactions that the kernel applied", in buckets::elements();
        stages: [Histogram; CommitStage::ALL.len()] = "deltaproxy_stage_duration_seconds",
            "Time of a stage on the way of events to the kernel",
            by ("stage", CommitStage::ALL.map(CommitStage::name)), in buckets::fine();
        pub(super) event_to_commit: Histogram = "deltaproxy_event_to_commit_duration_seconds",
            "Time from the last bytes of a batch of events to their last commit", in buckets::fine();
        set_elements: Family<2, Gauge> = "deltaproxy_set_elements",
            "Elements of the sets and maps of our tables", by ["ip_family", "set"];
    }
}

impl CommitMetrics {
    pub(super) fn committed(&self, transaction: &Transaction<'_>) {
        self.results[0].inc();
        self.bytes.observe(as_f64(transaction.bytes as u64));
        self.elements.observe(as_f64((transaction.added + transaction.removed) as u64));
        for (kind, count) in transaction.operations {
            self.operations.with([kind]).add(*count);
        }
    }

    /// Counts a transaction that the kernel refused.
    pub fn refused(&self) {
        self.results[1].inc();
    }

    /// Adds the duration of a stage.
    pub fn stage_took(&self, stage: CommitStage, duration: Duration) {
        self.stages[stage as usize].took(duration);
    }

    /// Creates gauges at zero for the sets and maps `names`.
    pub fn set_sizes(&self, names: impl IntoIterator<Item = &'static str>) -> SetSizes {
        let gauges = |set| (set, IpFamily::ALL.map(|ip| self.set_elements.with([ip.name(), set])));
        SetSizes(names.into_iter().map(gauges).collect())
    }
}

impl SetSizes {
    /// Adds elements to a set; a negative number subtracts them. A set without a gauge is ignored,
    /// here and below.
    pub fn add(&self, family: IpFamily, set: &str, count: i64) {
        if let Some(gauge) = self.gauge(family, set) {
            gauge.add(count);
        }
    }

    /// Sets the number of elements of a set.
    pub fn set(&self, family: IpFamily, set: &str, count: usize) {
        if let Some(gauge) = self.gauge(family, set) {
            gauge.set(count);
        }
    }

    /// Returns the number of elements of a set.
    pub fn get(&self, family: IpFamily, set: &str) -> i64 {
        self.gauge(family, set).map_or(0, Gauge::get)
    }

    /// Returns the number of elements of all sets.
    pub fn total(&self) -> i64 {
        self.0.iter().flat_map(|(_, gauges)| gauges).map(Gauge::get).sum()
    }

    /// Adjusts the numbers to an operation that was applied.
    pub fn applied(&self, operation: &Operation) {
        let Some(family) = operation.family() else { return };
        let count = as_i64(operation.elements().map_or(0, <[_]>::len));
        if let Operation::AddElements(_, set, _) = operation {
            self.add(family, &set.name, count);
        } else if let Operation::DeleteElements(_, set, _) = operation {
            self.add(family, &set.name, -count);
        } else if let Operation::DeleteSet(_, set) | Operation::FlushSet(_, set) = operation {
            self.set(family, set, 0);
        } else if let Operation::DeleteTable(_) = operation {
            self.0.iter().for_each(|(set, _)| self.set(family, set, 0));
        }
    }

    fn gauge(&self, family: IpFamily, set: &str) -> Option<&Gauge> {
        let found = self.0.iter().find(|(name, _)| *name == set);
        found.map(|(_, gauges)| &gauges[family.index()])
    }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nft::{Element, Set, TableRef, Value};

    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn a_transaction_is_counted_by_kind_elements_and_bytes() {
        let observe = Observe::new();
        let operations = &[("newsetelem", 3), ("delsetelem", 1)][..];
        let committed = |(added, removed), bytes| {
            let rest = Transaction::default();
            observe.committed(&Transaction { operations, added, removed, bytes, ..rest });
        };
        committed((3, 2), 900);
        committed((4, 0), 100);
        observe.metrics().commits.refused();
        has(
            &observe,
            &[
                "deltaproxy_transactions_total{result=\"committed\"} 2",
                "deltaproxy_transactions_total{result=\"refused\"} 1",
                "deltaproxy_operations_total{kind=\"newsetelem\"} 6",
                "deltaproxy_operations_total{kind=\"delsetelem\"} 2",
                "deltaproxy_transaction_size_bytes_sum 1000.0",
                "deltaproxy_transaction_size_bytes_bucket{le=\"256.0\"} 1",
                "deltaproxy_transaction_elements_bucket{le=\"4.0\"} 1",
                "deltaproxy_transaction_elements_bucket{le=\"16.0\"} 2",
            ],
        );
    }

    #[test]
    fn each_stage_has_its_own_times() {
        let observe = Observe::new();
        for (i, stage) in CommitStage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, i);
        }
        observe.metrics().commits.stage_took(CommitStage::Commit, Duration::from_micros(40));
        observe.events_committed(Duration::from_micros(300));
        let bucket = "deltaproxy_stage_duration_seconds_bucket";
        has(
            &observe,
            &[
                &format!("{bucket}{{le=\"2e-05\",stage=\"commit\"}} 0"),
                &format!("{bucket}{{le=\"5e-05\",stage=\"commit\"}} 1"),
                &format!("{bucket}{{le=\"+Inf\",stage=\"acknowledge\"}} 0"),
                "deltaproxy_event_to_commit_duration_seconds_bucket{le=\"0.0002\"} 0",
                "deltaproxy_event_to_commit_duration_seconds_bucket{le=\"0.0005\"} 1",
            ],
        );
    }

    #[test]
    fn a_set_has_a_size_in_each_family() {
        let observe = Observe::new();
        let sizes = observe.metrics().commits.set_sizes(["endpoints", "services"]);
        sizes.set(IpFamily::Ip, "services", 7);
        sizes.add(IpFamily::Ip, "services", 2);
        sizes.add(IpFamily::Ip, "services", -1);
        has(
            &observe,
            &[
                "deltaproxy_set_elements{ip_family=\"IPv4\",set=\"services\"} 8",
                "deltaproxy_set_elements{ip_family=\"IPv6\",set=\"services\"} 0",
                "deltaproxy_set_elements{ip_family=\"IPv4\",set=\"endpoints\"} 0",
            ],
        );
    }

    #[test]
    fn the_size_of_a_set_changes_with_what_is_applied() {
        let observe = Observe::new();
        let sizes = observe.metrics().commits.set_sizes(["services"]);
        let table = TableRef::new(IpFamily::Ip6, "kube-proxy");
        let set = Arc::new(Set { name: "services".into(), ..Set::default() });
        let elements = |count| vec![Element::new(Value::new()); count].into();
        let add = |count| Operation::AddElements(table.clone(), Arc::clone(&set), elements(count));
        let delete = Operation::DeleteElements(table.clone(), Arc::clone(&set), elements(1));
        let flush = Operation::FlushSet(table.clone(), set.name.clone());
        let whole = Operation::DeleteTable(table.clone());
        for (operation, size) in [(add(3), 3), (delete, 2), (flush, 0), (add(2), 2), (whole, 0)] {
            sizes.applied(&operation);
            assert_eq!(sizes.get(IpFamily::Ip6, "services"), size, "{operation:?}");
            assert_eq!(sizes.get(IpFamily::Ip, "services"), 0);
        }
    }
}
