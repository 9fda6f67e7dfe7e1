//! What the loop reports: metrics, the status page, the log, and notices.

use std::time::{Duration, Instant};

use engine::model::{Event, ObjectName, Problem};
use engine::printable::Printable;
use engine::ruleset::{OptionalSets, SetId};
use engine::{ChangeSize, Engine, StepServices, Tables};
use nft::family::Family;
use nft::kernel::Committed;
use nft::{Operation, Transaction};
use tokio::sync::mpsc;

use super::figures::Figures;
use super::latency::Latency;
use super::own_node::{Absence, missing_object};
use super::pending_causes::PendingCauses;
use super::wait::now;
use crate::localhost_proxy::ServedPorts;
use crate::observe::{self, Cause, Causes, CommitStage, Finder, LeftOut, Observe, SetSizes};
use crate::source::notice::Notice;

/// The receivers of reports, and what was measured for them. Never blocks the loop.
pub(super) struct Report {
    pub(super) observe: Observe,
    notices: Option<mpsc::Sender<Notice>>,
    node_name: String,
    first_sync: Option<FirstSync>,
    pub(super) sizes: SetSizes,
    pub(super) latency: Latency,
    pub(super) causes: PendingCauses,
    figures: Figures,
    /// The problems of other nodes that were reported last.
    of_nodes: Vec<Problem>,
    pub(super) localhost: Option<ServedPorts>,
}

/// A transaction that the kernel applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied<'a> {
    pub(super) transaction: &'a Transaction,
    pub(super) committed: &'a Committed,
    pub(super) services: &'a StepServices,
}

/// What the first sync took so far.
#[derive(Clone, Copy, Debug)]
struct FirstSync {
    started: Instant,
    transactions: usize,
}

/// The times of an arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalTimes {
    pub(super) received: Instant,
    pub(super) parsed: Instant,
    /// The loop took the arrival out of the channel.
    pub(super) taken: Instant,
}

impl Report {
    pub(super) fn new(
        observe: Observe,
        notices: Option<mpsc::Sender<Notice>>,
        node_name: String,
        ended_endpoints: bool,
    ) -> Self {
        let optional = OptionalSets { ended_endpoints, port_ranges: true };
        let sets = SetId::written(optional).map(SetId::name);
        let sizes = observe.metrics().commits.set_sizes(sets);
        let start = if observe.is_reload() { Cause::Reload } else { Cause::Start };
        Self {
            observe,
            notices,
            node_name,
            first_sync: Some(FirstSync { started: now(), transactions: 0 }),
            sizes,
            latency: Latency::default(),
            causes: PendingCauses::new(start),
            figures: Figures::default(),
            of_nodes: Vec::new(),
            localhost: None,
        }
    }

    /// Counts the changes of objects.
    pub(super) fn events(&self, events: &[Event]) {
        events.iter().for_each(|event| self.observe.event(event));
    }

    /// Measures an arrival until now, and its latency later.
    pub(super) fn arrived(&mut self, times: ArrivalTimes, size: ChangeSize) {
        let ArrivalTimes { received, parsed, taken } = times;
        let commits = &self.observe.metrics().commits;
        commits.stage_took(CommitStage::Parse, parsed.saturating_duration_since(received));
        commits.stage_took(CommitStage::Queue, taken.saturating_duration_since(parsed));
        self.latency.arrived(received, size);
    }

    /// Reports problems of objects: in the log, in the metrics, on the status page and as Events.
    pub(super) fn problems(&self, problems: &[Problem]) {
        for problem in problems {
            self.observe.left_out(LeftOut::from(problem));
            tracing::warn!("{problem}");
            if let Some(listener) = &self.notices {
                // Drops the notice when the channel is full.
                let _ = listener.try_send(Notice::LeftOut(problem.clone()));
            }
        }
    }

    /// Replaces the present problems of services.
    pub(super) fn present(&self, changed: Vec<(ObjectName, Vec<Problem>)>) {
        for (service, problems) in changed {
            let problems = problems.iter().map(LeftOut::from).collect();
            self.observe.present(Finder::Engine, service.as_str(), problems);
        }
    }

    /// Reports why this node has no Node object, or that it has one.
    pub(super) fn missing_node(&self, absence: Option<Absence>) {
        self.observe.lacks_node(absence == Some(Absence::Never));
        let problem = absence.map(|absence| missing_object(&self.node_name, absence));
        let present = problem.iter().map(LeftOut::from).collect();
        self.observe.present(Finder::OwnNode, "", present);
        match problem {
            Some(problem) => self.problems(&[problem]),
            None => tracing::info!("Node {} exists now", Printable(&self.node_name)),
        }
    }

    /// Reports problems of other nodes if they changed. Each daemon finds them, so none writes Events.
    pub(super) fn other_nodes(&mut self, problems: &[Problem]) {
        if self.of_nodes == problems {
            return;
        }
        for problem in problems.iter().filter(|it| !self.of_nodes.contains(it)) {
            self.observe.left_out(LeftOut::from(problem));
            tracing::warn!("{problem}");
        }
        let present = problems.iter().map(LeftOut::from).collect();
        self.observe.present(Finder::OtherNodes, "", present);
        self.of_nodes = problems.to_vec();
    }

    /// Records a transaction that was applied at `now`. `waited` is the time from the start of the
    /// commit, if the loop did nothing else meanwhile.
    pub(super) fn committed(
        &mut self,
        Applied { transaction, committed, services }: Applied<'_>,
        waited: Option<Duration>,
        now: Instant,
    ) {
        let operations: smallvec::SmallVec<[_; 4]> =
            committed.messages.iter().map(|(kind, count)| (kind.name(), *count)).collect();
        let Committed { encode_time, kernel_time, .. } = *committed;
        let (added, removed) = changed_elements(transaction);
        let PendingCauses { mut causes, mut resource_version, .. } = self.causes;
        if transaction.operations.iter().any(|it| it.devices().is_some()) {
            // It contains nothing else.
            (causes, resource_version) = (Causes::only(Cause::Devices), None);
        }
        self.observe.committed(&observe::Transaction {
            operations: &operations,
            added,
            removed,
            services: services.count,
            names: &services.first,
            causes,
            resource_version,
            bytes: committed.bytes,
            family: transaction.family(),
            took: encode_time + kernel_time,
        });
        let commits = &self.observe.metrics().commits;
        commits.stage_took(CommitStage::Compare, self.latency.take_compared());
        commits.stage_took(CommitStage::Encode, encode_time);
        commits.stage_took(CommitStage::Commit, kernel_time);
        if let Some(waited) = waited {
            let rest = waited.saturating_sub(encode_time + kernel_time);
            commits.stage_took(CommitStage::Acknowledge, rest);
        }
        for operation in &transaction.operations {
            self.sizes.applied(operation);
        }
        if let Some(first) = &mut self.first_sync {
            first.transactions += 1;
        }
        self.latency.committed(now);
        tracing::debug!(
            bytes = committed.bytes,
            kernel_us = committed.kernel_time.as_micros(),
            operations = transaction.operations.len(),
            added,
            removed,
            services = services.count,
            such_as = services.first.first().map(|name| tracing::field::display(Printable(name))),
            %causes,
            resource_version,
            "committed"
        );
    }

    /// Measures the small changes. All of them must be in the kernel at `now`.
    pub(super) fn small_changes(&mut self, now: Instant) {
        for took in self.latency.take_small(now) {
            self.observe.events_committed(took);
        }
    }

    /// Measures the remaining changes. The kernel must hold the desired state.
    pub(super) fn all_changes(&mut self) {
        for took in self.latency.take_all() {
            self.observe.events_committed(took);
        }
    }

    /// Records a refused transaction.
    pub(super) fn refused(&self, transaction: &Transaction) {
        self.observe.metrics().commits.refused();
        if is_cleanup(transaction)
            && let Some(family) = transaction.family()
        {
            self.observe.metrics().kube_proxy.cleanup_failures[family.index()].inc();
        }
    }

    /// Reports figures and health checks of the committed state. The kernel must hold the desired
    /// state.
    pub(super) fn desired(&mut self, engine: &mut Engine) {
        if let Some(FirstSync { started, transactions }) = self.first_sync.take() {
            let (cluster, took) = (engine.cluster(), now().saturating_duration_since(started));
            tracing::info!(
                services = cluster.service_count(),
                endpoints = cluster.endpoint_count(),
                transactions,
                seconds = took.as_secs_f64(),
                "the tables are complete"
            );
        }
        self.figures.report(engine, &self.observe);
        self.observe.network_programmed(&engine.take_triggers());
        for (service, check) in engine.take_health_checks() {
            self.observe.health_checks().set(service.as_str(), check);
        }
        if let Some(addresses) = engine.take_health_check_addresses() {
            self.observe.health_checks().set_addresses(addresses);
        }
        self.localhost(engine);
    }

    /// Passes the node ports at `[::1]` on to the proxy. The kernel must hold the desired state.
    pub(super) fn localhost(&self, engine: &mut Engine) {
        let Some(served) = &self.localhost else { return };
        served.set_address(engine.node().ipv6_node_port_address());
        for (service, ports) in engine.take_localhost_ports() {
            served.set(service.as_str(), ports.as_ref());
        }
    }

    /// Reports whether each family has the desired state after commits that are done or not.
    pub(super) fn families(&self, tables: &Tables, is_done: bool, now: Instant) {
        for family in Family::ALL {
            let is_blocked = tables.blocked(family).is_some();
            if is_done && !is_blocked {
                self.observe.synced(family, now)
            } else {
                self.observe.sync_failed(family, is_blocked, now)
            }
        }
    }
}

/// Returns the numbers of elements, or devices, that a transaction adds and deletes.
fn changed_elements(transaction: &Transaction) -> (usize, usize) {
    transaction.operations.iter().fold((0, 0), |(added, removed), operation| {
        let devices = operation.devices().map(<[_]>::len);
        let count = devices.or(operation.elements().map(<[_]>::len)).unwrap_or_default();
        let is_removal = matches!(
            operation,
            Operation::DeleteElements(..) | Operation::DeleteDevices(..) | Operation::Destroy(..)
        );
        if is_removal { (added, removed + count) } else { (added + count, removed) }
    })
}

/// Returns whether a transaction only deletes what is no longer used.
fn is_cleanup(transaction: &Transaction) -> bool {
    transaction.operations.iter().all(|operation| {
        matches!(
            operation,
            Operation::DeleteElements(..)
                | Operation::DeleteSet(..)
                | Operation::DeleteFlowtable(..)
                | Operation::DeleteChain(..)
                | Operation::FlushChain(..)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_but_that_of_packets_is_counted_once() {
        for (ended_endpoints, total) in [(false, 25), (true, 26)] {
            let report = Report::new(Observe::new(), None, String::new(), ended_endpoints);
            let optional = OptionalSets { ended_endpoints, port_ranges: true };
            for set in SetId::ALL {
                report.sizes.set(Family::Ip, set.name(), 1);
                let is_counted = SetId::written(optional).any(|it| it == set);
                let counted = i64::from(is_counted);
                assert_eq!(report.sizes.get(Family::Ip, set.name()), counted, "{set:?}");
            }
            assert_eq!(report.sizes.total(), total);
        }
    }
}
