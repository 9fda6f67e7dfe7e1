//! The loop: receives events and commits transactions. It alone reads the clock, which is tokio's,
//! so that a simulation can advance it.
//!
//! It waits for a commit before it takes the next event. Events that arrive meanwhile are committed
//! together.

mod background_check;
mod blocked;
mod cleaning;
mod clients;
mod devices;
mod error;
mod handover;
mod health_checks;
mod least_connections;
mod leaving;
mod leftovers;
mod localhost;
mod measures;
mod orphans;
mod problems;
mod reading;
mod refusals;
mod repair;
mod urgent_check;
mod wait;

pub use background_check::BackgroundCheck;
pub use cleaning::Cleaning;
pub use devices::DeviceFollowing;
pub use error::RunError;
pub use handover::{HandOver, Handovers, ListTable, RemoveTables, Steps};
pub use least_connections::Balancing;
pub use localhost::RouteLocalnet;
pub use orphans::OpenReader;
pub use problems::left_out;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use engine::flow::Flow;
use engine::model::{Arrival, Event, Resource};
use engine::ruleset::CLIENTS;
use engine::schedule::{Input, Schedule, Task};
use engine::{Answer, Blocked, Cause, ClosedNodePorts, Engine};
use futures::FutureExt;
use futures::future::BoxFuture;
use nft::Transaction;
use nft::family::Family;
use nft::kernel::Kernel;
use tokio::sync::{mpsc, watch};

use self::blocked::Retry;
use self::clients::Clients;
use self::devices::next_step;
use self::handover::listed_table;
use self::least_connections::{counted, due};
use self::leaving::left;
use self::leftovers::Leftovers;
use self::measures::{Measures, is_cleanup};
use self::orphans::dumped;
use self::reading::{ReadOutcome, Watch};
use self::refusals::log_refusal;
use self::wait::{changed, listed, now, sleep_until};
use crate::observe::{Observe, SyncExtent};
use crate::source::notice::Notice;
use crate::writer::{Writer, WriterGone};

/// The parts of the daemon, from the source's channel to the kernel.
pub struct Run<K> {
    engine: Engine,
    schedule: Schedule,
    writer: Writer<K>,
    events: mpsc::Receiver<Arrival>,
    observe: Observe,
    watch: Watch,
    /// The addresses of this node's interfaces; `None` if they never change.
    pub addresses: Option<watch::Receiver<Vec<IpAddr>>>,
    /// Deletes stale UDP flows.
    pub cleaning: Option<Cleaning>,
    /// Adjusts weights to live connections, for scheduler `lc`.
    pub balancing: Option<Balancing>,
    /// Keeps the devices of the flowtables; `None` without flowtables.
    pub devices: Option<DeviceFollowing>,
    /// Removes the rules of other proxy modes; returns whether there were any. Starts once both
    /// tables are in place.
    pub leaving: Option<BoxFuture<'static, bool>>,
    /// Changes flags of the tables, and leaves them at the end; `None` if they stay as they are.
    pub handovers: Option<Handovers<K>>,
    /// Called once the IPv4 table is in place, for localhost NodePorts.
    pub route_localnet: Option<RouteLocalnet>,
    /// Receives problems, in addition to the log. Never blocks the loop.
    pub notices: Option<mpsc::Sender<Notice>>,
    /// Compares the kernel with the desired state in the background; off by default.
    pub check: BackgroundCheck,
    /// Opens another socket for long dumps, so that commits do not wait for them.
    pub open_reader: Option<OpenReader<K>>,
    /// Whether load balancers should use a node without a Node object.
    pub missing_node: MissingNode,
    /// The closed NodePorts that were logged last.
    closed_node_ports: Option<ClosedNodePorts>,
    /// The blocked tables, as logged last.
    blocked: [Option<Blocked>; 2],
    retry: Option<Retry>,
    max_batch: usize,
    /// Both tables, read while the source lists objects.
    early_read: Option<BoxFuture<'static, ReadOutcome>>,
    /// The kernel has never held the desired state.
    is_initial_sync: bool,
    /// The last commit or read-back ended without a failure; a table may be blocked.
    is_synced: bool,
    /// The next transaction, rendered while the kernel applied the previous one.
    ahead: Option<Transaction>,
    clients: Clients,
    leftovers: Leftovers,
    measures: Measures,
    /// End of the wait for ServiceCIDRs; `Some` while only they are unlisted.
    service_cidrs_due: Option<Instant>,
}

/// The outcome of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncOutcome {
    /// The transaction was applied, or dropped with a blocked table.
    Done,
    /// The kernel refused a transaction, and the installed state is known again.
    Undone,
    /// The kernel refused a transaction. The tables are read at once, and the next transaction is
    /// smaller.
    Narrowed,
    /// Retried after a pause.
    Failed,
}

/// Whether a node without a Node object accepts traffic from load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingNode {
    /// No: in a cluster, such a node was removed.
    Ineligible,
    /// Yes: no object excludes it.
    Eligible,
}

/// Interval at which changes of other programs are checked.
const OTHERS_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum delay of the first commit while only ServiceCIDRs are unlisted: servers may forbid them
/// or never answer.
const SERVICE_CIDRS_LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of event batches before a commit, so that a source that never pauses does not
/// prevent commits.
const MAX_BATCHES: usize = 1_000;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Returns a daemon that commits at most once per `min_interval`.
    pub fn new(
        mut engine: Engine,
        writer: Writer<K>,
        events: mpsc::Receiver<Arrival>,
        observe: Observe,
        min_interval: Duration,
    ) -> Self {
        let schedule = Schedule::new(min_interval);
        engine.keep_leftovers();
        observe.affinity_clients_max(CLIENTS);
        let measures = Measures::new(&observe);
        // Before the first reading there is no installed state that other programs could change.
        let watch = Watch::Owned;
        Self {
            engine,
            schedule,
            writer,
            events,
            observe,
            watch,
            addresses: None,
            cleaning: None,
            balancing: None,
            devices: None,
            leaving: None,
            handovers: None,
            route_localnet: None,
            notices: None,
            check: BackgroundCheck::every(Duration::ZERO),
            open_reader: None,
            missing_node: MissingNode::Ineligible,
            closed_node_ports: None,
            blocked: [None, None],
            retry: None,
            max_batch: 0,
            early_read: None,
            is_initial_sync: true,
            is_synced: false,
            ahead: None,
            clients: Clients::default(),
            leftovers: Leftovers::default(),
            measures,
            service_cidrs_due: None,
        }
    }

    /// Runs until `stop` is ready. The kernel keeps its tables.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn until(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        tokio::pin!(stop);
        self.max_batch = self.writer.run(|kernel| kernel.max_batch()).await?;
        self.early_read = Some(self.read().boxed());
        let mut look = tokio::time::interval(OTHERS_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let next = self.schedule.due();
            let check_due = self.check.due();
            let handover_due = Handovers::due(self.handovers.as_ref());
            let wait = async {
                match next {
                    Some((at, task)) => {
                        // tokio rounds up to milliseconds, even a time that has passed.
                        if at > now() {
                            tokio::time::sleep_until(at.into()).await;
                        }
                        task
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => return Ok(self.leave().await?),
                task = wait => self.perform(task).await?,
                flows = listed(&mut self.cleaning), if self.is_synced && self.engine.is_settled() =>
                    self.compare(&flows),
                batch = self.events.recv() => match batch {
                    Some(batch) => self.apply_batches([batch]),
                    None => return Err(RunError::SourceGone),
                },
                addresses = changed(&mut self.addresses) => {
                    self.engine.set_local_addresses(addresses);
                    self.note_change();
                    // If all addresses serve node ports, no commit follows that would delete stale
                    // flows.
                    self.clean();
                }
                () = sleep_until(self.service_cidrs_due) => self.give_up_service_cidrs(),
                () = sleep_until(self.leftovers.due()) => {
                    self.release_leftovers();
                    self.note_change();
                }
                step = next_step(&mut self.devices) => self.follow_devices(step?),
                dump = dumped(&mut self.check.search) => self.compare_dump(dump?),
                has_removed = left(&mut self.leaving), if self.are_tables_in_place() =>
                    self.note_left(has_removed),
                _ = look.tick(), if !self.is_replacing() => {
                    self.check_tables().await?;
                    self.count_clients().await?;
                }
                () = sleep_until(due(self.balancing.as_ref())), if self.is_synced
                    && self.engine.is_settled() => self.request_count(),
                count = counted(&mut self.balancing) => self.balance(count),
                listed = listed_table(&mut self.handovers) => self.take_listed(listed?).await?,
                () = sleep_until(handover_due), if self.may_hand_over() =>
                    self.handover_step().await?,
                () = sleep_until(check_due), if self.may_check() =>
                    self.check_piece().await?,
            }
        }
    }

    /// Applies `batches` and all batches that wait in the channel, one by one: a small change that
    /// arrives with a large one stays small.
    fn apply_batches(&mut self, batches: impl IntoIterator<Item = Arrival>) {
        let was_listed = self.engine.is_listed();
        batches.into_iter().for_each(|batch| self.apply(batch));
        for _ in 0..MAX_BATCHES {
            let Ok(more) = self.events.try_recv() else { break };
            self.apply(more);
        }
        self.observe.node_eligible(self.node_is_eligible());
        if self.engine.is_listed() && !was_listed {
            self.schedule.handle(Input::Ready, now());
        }
        self.limit_service_cidrs();
        self.note_activity();
        self.note_change();
    }

    /// Sets the time from which ServiceCIDRs count as listed, if only they are unlisted.
    fn limit_service_cidrs(&mut self) {
        let alone = self.engine.cluster().unlisted().eq([Resource::ServiceCidrs]);
        let due = self.service_cidrs_due.unwrap_or_else(|| now() + SERVICE_CIDRS_LIMIT);
        self.service_cidrs_due = alone.then_some(due);
    }

    fn give_up_service_cidrs(&mut self) {
        let limit = SERVICE_CIDRS_LIMIT.as_secs();
        tracing::warn!("ServiceCIDRs are not listed after {limit} s: going on without them");
        self.apply_batches([Arrival::new(vec![Event::Listed(Resource::ServiceCidrs)], now())]);
    }

    fn node_is_eligible(&self) -> bool {
        match (self.engine.cluster().node(), self.missing_node) {
            (Some(node), _) => !node.leaving,
            (None, MissingNode::Ineligible) => false,
            // Before everything is listed, the Node object may still arrive.
            (None, MissingNode::Eligible) => self.engine.is_listed(),
        }
    }

    /// Schedules a commit if the installed state may differ from the desired one.
    fn note_change(&mut self) {
        self.report_closed_node_ports();
        if !self.engine.is_settled() {
            let now = now();
            self.observe.queued(now);
            self.schedule.handle(Input::Changed, now);
        } else {
            self.measures.forget_pending();
        }
    }

    async fn perform(&mut self, task: Task) -> Result<(), WriterGone> {
        let started = now();
        let is_known = task == Task::Commit || self.read_back().await?;
        let outcome = if is_known { self.commit_all().await? } else { SyncOutcome::Failed };
        let is_done = outcome == SyncOutcome::Done;
        let problems = self.engine.take_problems();
        self.report(&problems);
        self.is_synced = is_done;
        self.route_localnet();
        if let Some(cleaning) = self.cleaning.as_mut().filter(|_| is_done) {
            cleaning.note_synced();
        }
        let now = now();
        let extent = match task {
            Task::Commit => SyncExtent::Partial,
            Task::ReadBack => SyncExtent::Full,
        };
        self.observe.sync_took(extent, now - started);
        if is_done {
            self.report_no_local_endpoints();
            self.report_schedulers();
            self.report_slots();
            self.observe.network_programmed(&self.engine.take_triggers());
            self.update_health_checks();
            self.check.note_synced(&self.observe);
            self.send_devices();
        }
        for family in Family::ALL {
            let is_blocked = self.engine.tables().blocked(family).is_some();
            if is_done && !is_blocked {
                self.observe.synced(family, now)
            } else {
                self.observe.sync_failed(family, is_blocked, now)
            }
        }
        self.report_blocked(now);
        if self.are_tables_in_place() {
            self.end_handover().await?;
        }
        let input = match outcome {
            SyncOutcome::Done => Input::Committed,
            SyncOutcome::Undone => Input::Undone,
            SyncOutcome::Narrowed => Input::ReadNow,
            SyncOutcome::Failed => Input::Refused,
        };
        self.schedule.handle(input, now);
        // The last commit may have released leftovers, which need one more.
        if is_done && !self.engine.is_settled() {
            self.schedule.handle(Input::Changed, now);
        }
        Ok(())
    }

    /// Commits step by step until the kernel holds the desired state. Applies waiting events
    /// between steps, so that they do not wait for the remaining steps.
    async fn commit_all(&mut self) -> Result<SyncOutcome, WriterGone> {
        loop {
            if let Some(transaction) = self.next_transaction() {
                let outcome = self.commit(transaction).await?;
                if outcome != SyncOutcome::Done {
                    return Ok(outcome);
                }
            } else if self.engine.is_settled() || self.events.is_empty() {
                break;
            }
            if !self.engine.is_settled() && !self.events.is_empty() {
                self.apply_batches(None);
            }
        }
        self.is_initial_sync = false;
        self.note_all_changes();
        self.clean();
        self.release_leftovers();
        self.stop_watching().await?;
        Ok(SyncOutcome::Done)
    }

    /// Returns the next transaction; `None` if nothing differs, or if events arrived meanwhile.
    fn next_transaction(&mut self) -> Option<Transaction> {
        let started = now();
        let events = &self.events;
        let next = self
            .ahead
            .take()
            .or_else(|| self.engine.next_transaction_unless(self.max_batch, || !events.is_empty()));
        self.measures.compared(started);
        next
    }

    /// Commits a transaction. A transaction for a blocked table counts as done.
    async fn commit(&mut self, transaction: Transaction) -> Result<SyncOutcome, WriterGone> {
        let started = now();
        self.spoil_handover();
        let outcome = self.writer.commit(transaction);
        // Only in the initial sync: later, a small change would wait for the transaction ahead too.
        let ahead = if self.is_initial_sync {
            self.engine.next_transaction_ahead(self.max_batch)
        } else {
            None
        };
        let (transaction, outcome) = outcome.await?;
        let answer = self.engine.answer(&transaction, &outcome);
        match outcome {
            Ok(committed) => {
                self.note(&transaction, &committed, started);
                self.stop_watching().await?;
                self.clean();
                self.release_leftovers();
                self.ahead = ahead;
                Ok(SyncOutcome::Done)
            }
            Err(error) => {
                self.observe.refused();
                if is_cleanup(&transaction)
                    && let Some(family) = transaction.family()
                {
                    self.observe.cleanup_failed(family);
                }
                log_refusal(&answer, &error);
                match answer {
                    Answer::Blocked(family) => {
                        self.ahead = ahead.filter(|ahead| ahead.family() != Some(family));
                        Ok(SyncOutcome::Done)
                    }
                    Answer::ReadBack(cause) if self.undo(&cause, &transaction).await? => {
                        Ok(SyncOutcome::Undone)
                    }
                    Answer::ReadBack(Cause::Unattributed | Cause::NoFlowtables) => {
                        Ok(SyncOutcome::Narrowed)
                    }
                    Answer::ReadBack(_) | Answer::Applied => Ok(SyncOutcome::Failed),
                }
            }
        }
    }

    /// Deletes the flows that the last commit made stale.
    fn clean(&mut self) {
        let flows = self.engine.take_stale_flows();
        if let Some(cleaning) = &self.cleaning {
            cleaning.delete(flows);
        }
    }

    /// Deletes those of `flows` that are stale.
    fn compare(&mut self, flows: &[Flow]) {
        if let Some(cleaning) = &self.cleaning {
            cleaning.compare(flows, &mut self.engine);
        }
    }

    /// Logs once when NodePorts close or open in a family.
    fn report_closed_node_ports(&mut self) {
        let closed = self.engine.node().closed_node_ports();
        if !self.engine.is_listed() || closed == self.closed_node_ports {
            return;
        }
        match closed {
            Some(closed) if closed.is_complete() => tracing::warn!("{closed}"),
            // Clusters of one family are common.
            Some(closed) => tracing::info!("{closed}"),
            None => tracing::info!("NodePorts are open in both families"),
        }
        self.closed_node_ports = closed;
    }
}
