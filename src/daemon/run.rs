//! The loop: receives events and commits transactions. The engine gets its time here, from tokio's
//! clock, which a simulation can advance.
//!
//! It takes events between two commits, never during one. Those that arrived together are committed
//! together.

mod arrivals;
mod blocked;
mod cleaning;
mod clients;
mod commits;
mod corrections;
mod direct;
mod ending;
mod error;
mod figures;
mod flags;
mod flows;
mod latency;
mod least_connections;
mod own_node;
mod ownership;
mod parts;
mod pending_causes;
mod reading;
mod reads;
mod refusals;
mod report;
mod unused;
mod wait;

pub use cleaning::Cleaning;
pub use direct::DirectFollowing;
pub use ending::{Ending, Left};
pub use error::RunError;
pub use least_connections::Balancing;
pub use own_node::{Localhost, MissingNode, RouteLocalnet};
pub use ownership::{HandOver, Handovers, ListOutcome, ListTable, Steps, shared_steps};
pub use parts::{Links, Parts};
pub use reads::OpenReader;

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use engine::LinkNews;
use engine::doubt::{self, Request};
use engine::model::{Arrival, HostAddresses};
use engine::ruleset::CLIENTS;
use engine::schedule::{Input, Schedule, Task};
use engine::{Answer, Engine, TableId};
use futures::future::{FutureExt, OptionFuture};
use nft::Transaction;
use nft::family::Family;
use nft::kernel::Kernel;
use tokio::sync::mpsc;

use self::arrivals::Arrivals;
use self::blocked::BlockedTables;
use self::clients::Clients;
use self::commits::{Commits, Follows, SyncOutcome};
use self::flows::Flows;
use self::least_connections::{counted, due};
use self::own_node::{OwnNode, changed};
use self::ownership::listed_table;
use self::reads::Reads;
use self::refusals::log_refusal;
use self::report::{Applied, ArrivalTimes, Report};
use self::wait::{now, sleep_until, task_at};
use crate::observe::{Cause, Observe};
use crate::writer::{Writer, WriterGone};

/// The daemon, from the source's channel to the kernel.
///
/// Each part keeps an invariant of its own. This type decides which part acts next, and what the
/// others learn of it.
pub struct Run<K> {
    engine: Engine,
    schedule: Schedule,
    writer: Writer<K>,
    arrivals: Arrivals,
    commits: Commits,
    reads: Reads<K>,
    blocked: BlockedTables,
    node: OwnNode,
    flows: Flows,
    links: Links,
    handovers: Option<Handovers<K>>,
    report: Report,
}

/// Interval at which changes of other programs are checked.
const OTHERS_INTERVAL: Duration = Duration::from_millis(500);

impl<K: Kernel + Send + 'static> Run<K> {
    /// Returns a daemon of these parts.
    pub fn new(
        mut engine: Engine,
        writer: Writer<K>,
        events: mpsc::Receiver<Arrival>,
        observe: Observe,
        parts: Parts<K>,
    ) -> Self {
        engine.keep_unused_elements();
        observe.metrics().figures.affinity_clients_max.set(CLIENTS);
        let Localhost { route_localnet, ports } = parts.localhost;
        if ports.is_some() {
            engine.follow_localhost_ports();
        }
        let Parts { cleaning, balancing, leaving, node: (node_name, missing_node), .. } = parts;
        let ends_connections = engine.cluster().ended().is_some();
        let mut report = Report::new(observe, parts.notices, node_name, ends_connections);
        report.localhost = ports;
        Self {
            engine,
            schedule: Schedule::new(parts.min_interval),
            writer,
            arrivals: Arrivals::new(events),
            commits: Commits::new(),
            reads: Reads::new(parts.check_period, parts.open_reader, now()),
            blocked: BlockedTables::default(),
            node: OwnNode::new(parts.addresses, route_localnet, missing_node),
            flows: Flows { cleaning, balancing, leaving, clients: Clients::default() },
            links: parts.links,
            handovers: parts.handovers,
            report,
        }
    }

    /// Runs until `stop` is ready. The kernel keeps its tables. Returns how they are left.
    ///
    /// The end waits for nothing that the loop waits for: what is queued for the kernel's thread runs
    /// first, but reads are stopped.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn until(mut self, stop: impl Future<Output = ()>) -> Result<Left, RunError> {
        tokio::select! {
            biased;
            () = stop => {}
            served = self.serve() => match served? {},
        }
        Ok(self.leave().await?)
    }

    /// Takes events and commits. May be dropped at any await.
    async fn serve(&mut self) -> Result<Infallible, RunError> {
        let of_kernel = self.writer.run(|kernel| (kernel.max_batch(), kernel.stop_of_reads()));
        (self.commits.max_batch, self.reads.stop) = of_kernel.await?;
        DirectFollowing::begin(self.links.direct.as_mut(), &mut self.engine, &self.writer).await?;
        // Slots of least connections show the last weights, so these need all lists.
        let early = match self.flows.balancing {
            None => Request::TablesWithoutLists,
            Some(_) => Request::Tables,
        };
        self.reads.long_request = Some(self.request(early, &self.writer).boxed());
        let mut others = tokio::time::interval(OTHERS_INTERVAL);
        others.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let next = self.schedule.due(self.reads.doubt.tables_due());
            let request_due = self.reads.doubt.due();
            let is_dumping = self.reads.doubt.is_dumping();
            let is_early = next.is_none() && self.reads.doubt.is_start();
            let handover_due = Handovers::due(self.handovers.as_ref());
            let service_cidrs_due = self.arrivals.service_cidrs_due();
            let count_due = due(self.flows.balancing.as_ref());
            let engine_due = self.engine.due();
            tokio::select! {
                // The first ready branch runs: first a due commit, so that a stream of events does not
                // delay it. Checks and background requests come last: no service waits for them.
                // A branch without `Some` is passed over.
                biased;
                task = task_at(next) => self.perform(task).await?,
                Some(flows) = Cleaning::piece(&mut self.flows.cleaning), if self.is_at_rest() =>
                    self.flows.compare(&flows, &mut self.engine),
                arrival = self.arrivals.next() => match arrival {
                    Some(arrival) => self.apply_arrivals([arrival]),
                    None => return Err(RunError::SourceGone),
                },
                Some(addresses) = changed(&mut self.node.addresses) => self.take_addresses(addresses),
                () = sleep_until(service_cidrs_due) =>
                    self.apply_arrivals([Arrivals::without_service_cidrs(now())]),
                () = sleep_until(self.commits.unused.due()) => {
                    self.release_unused();
                    self.note_change();
                }
                Some(news) = parts::next(&mut self.links.devices) => self.learn_devices(news),
                Some(links) = direct::changed(&mut self.links.direct) => self.take_links(links).await?,
                () = sleep_until(engine_due) => self.note_time(),
                Some(reply) = self.reads.answered(), if is_early || is_dumping => {
                    if is_early {
                        self.take_early_part(reply?);
                    } else {
                        self.take_reply(reply?).await?;
                    }
                }
                Some(has_removed) = OptionFuture::from(self.flows.leaving.as_mut()), if self.are_tables_in_place() =>
                    self.flows.note_left(has_removed),
                _ = others.tick(), if !self.is_replacing() => {
                    self.check_tables().await?;
                    self.count_clients().await?;
                }
                () = sleep_until(count_due), if self.is_at_rest() => self.request_count(),
                Some(count) = counted(&mut self.flows.balancing) => {
                    if self.flows.balance(count, &mut self.engine, &self.report.observe) {
                        self.report.causes.add(Cause::Connections);
                        self.note_change();
                    }
                }
                Some(listed) = listed_table(&mut self.handovers) => self.take_listed(listed?).await?,
                () = sleep_until(handover_due), if self.may_hand_over() =>
                    self.handover_step().await?,
                () = sleep_until(request_due), if self.may_request() => self.make_request().await?,
            }
        }
    }

    /// Returns whether the kernel holds the desired state.
    fn is_at_rest(&self) -> bool {
        self.commits.is_synced && self.engine.is_settled()
    }

    fn are_tables_in_place(&self) -> bool {
        let tables = self.engine.tables();
        self.commits.is_synced && Family::ALL.iter().all(|family| tables.blocked(*family).is_none())
    }

    /// Applies `arrivals` and all that wait in the channel, one by one: a small change that arrives
    /// with a large one stays small.
    fn apply_arrivals(&mut self, arrivals: impl IntoIterator<Item = Arrival>) {
        let was_listed = self.engine.is_listed();
        for arrival in arrivals.into_iter().chain(self.arrivals.waiting()) {
            apply(&mut self.engine, &mut self.report, arrival);
        }
        self.engine.note_time(now());
        if let Some(following) = &self.links.direct {
            following.follow(self.engine.cluster());
        }
        let (cluster, is_listed) = (self.engine.cluster(), self.engine.is_listed());
        self.report.observe.node_eligible(self.node.is_eligible(cluster.node(), is_listed));
        if is_listed && !was_listed {
            self.schedule.handle(Input::Ready, now());
        }
        if let Some(absence) = self.node.changed_absence(cluster) {
            self.report.missing_node(absence);
        }
        self.report.other_nodes(cluster.contested_addresses());
        self.arrivals.limit_service_cidrs(cluster.unlisted(), now());
        self.note_activity();
        self.note_change();
    }

    fn take_addresses(&mut self, addresses: HostAddresses) {
        if self.engine.set_local_addresses(addresses) {
            self.report.causes.add(Cause::Addresses);
        }
        self.report_problems();
        self.note_change();
        // If all addresses serve node ports, no commit follows that would delete stale flows and
        // report the addresses.
        self.flows.clean(&mut self.engine);
        if self.engine.is_settled() {
            self.report.localhost(&mut self.engine);
        }
    }

    fn report_problems(&mut self) {
        self.report.problems(&self.engine.take_problems());
        self.report.present(self.engine.take_changed_problems());
    }

    /// Schedules a commit if the installed state may differ from the desired one.
    fn note_change(&mut self) {
        self.node.report_closed_node_ports(&self.engine, &self.report.observe);
        if !self.engine.is_settled() {
            let now = now();
            self.report.observe.queued(now);
            self.schedule.handle(Input::Changed, now);
        } else {
            self.report.latency.forget_pending();
            self.report.causes.clear();
        }
    }

    fn release_unused(&mut self) {
        if self.commits.unused.release(&mut self.engine, now()) {
            self.report.causes.add(Cause::Unused);
        }
    }

    fn learn_devices(&mut self, news: LinkNews) {
        self.engine.learn_devices(news);
        self.note_change();
    }

    /// Takes what is known of the links, and reads the table of direct return if the kernel may have
    /// changed it.
    async fn take_links(&mut self, links: engine::direct::Links) -> Result<(), WriterGone> {
        self.engine.note_time(now());
        if self.engine.learn_links(links) {
            self.reads.doubt.handle(doubt::DoubtInput::DirectReturn, now());
            self.make_certain().await?;
        }
        self.note_time();
        Ok(())
    }

    /// Schedules a commit if something of direct return or of ended endpoints differs now.
    fn note_time(&mut self) {
        self.engine.note_time(now());
        let has_direct_return = self.engine.direct().is_some();
        self.report.causes.add(if has_direct_return { Cause::Nodes } else { Cause::Unused });
        self.note_change();
    }

    /// Sets `route_localnet` if the IPv4 table is in place. Leaves localhost NodePorts out if the
    /// sysctl cannot be set.
    fn route_localnet(&mut self) {
        if !self.commits.is_synced || self.engine.tables().blocked(Family::Ip).is_some() {
            return;
        }
        if !self.node.set_route_localnet() {
            self.engine.leave_out_localhost();
            self.report.causes.add(Cause::Addresses);
            self.note_change();
        }
    }

    async fn count_clients(&mut self) -> Result<(), WriterGone> {
        if let Some(following) = &mut self.links.direct {
            following.report(&self.engine, &self.writer, &self.report.observe).await?;
        }
        let has_affinity = self.engine.tables().has_affinity();
        self.flows.clients.count(has_affinity, &self.writer, &self.report.observe).await
    }

    fn request_count(&mut self) {
        if let Some(balancing) = &mut self.flows.balancing {
            balancing.request(self.engine.cluster(), now());
        }
    }

    async fn perform(&mut self, task: Task) -> Result<(), WriterGone> {
        let started = now();
        let is_known = task == Task::Commit || self.read_back().await?;
        self.engine.note_time(now());
        let outcome = if is_known { self.commit_all().await? } else { SyncOutcome::Failed };
        let is_done = outcome == SyncOutcome::Done;
        self.report_problems();
        self.commits.is_synced = is_done;
        self.route_localnet();
        let now = now();
        self.report.observe.metrics().kube_proxy.sync_took(task, now - started);
        if is_done {
            self.flows.note_synced();
            self.report.desired(&mut self.engine);
            self.reads.note_synced(&self.report.observe);
        }
        self.report.families(self.engine.tables(), is_done, now);
        self.blocked.report(self.engine.tables(), &self.report.observe, now);
        if self.are_tables_in_place() {
            self.end_handover().await?;
        }
        match outcome.follows() {
            Follows::Schedule(input) => self.schedule.handle(input, now),
            Follows::Doubt(input) => self.reads.doubt.handle(input, now),
        }
        // The last commit may have released unused elements, which need one more.
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
            } else if self.reads.doubt.has_unread_lists() {
                self.make_request().await?;
                if self.reads.doubt.tables_due().is_some() {
                    return Ok(SyncOutcome::Narrowed);
                }
            } else if self.engine.is_settled() || self.arrivals.is_empty() {
                break;
            }
            if !self.engine.is_settled() && !self.arrivals.is_empty() {
                self.apply_arrivals(None);
            }
        }
        self.reads.doubt.handle(doubt::DoubtInput::Committed, now());
        self.report.all_changes();
        self.flows.clean(&mut self.engine);
        if self.engine.is_settled() {
            self.report.causes.clear();
        }
        self.release_unused();
        self.stop_watching().await?;
        Ok(SyncOutcome::Done)
    }

    /// Returns the next transaction; `None` if nothing differs, or if events arrived meanwhile.
    fn next_transaction(&mut self) -> Option<Transaction> {
        let started = now();
        let (arrivals, max_batch) = (&self.arrivals, self.commits.max_batch);
        let next =
            self.commits.ahead.take().or_else(|| {
                self.engine.next_transaction_unless(max_batch, || !arrivals.is_empty())
            });
        self.report.latency.compared(now() - started);
        next
    }

    /// Commits a transaction. A transaction for a blocked table counts as done.
    async fn commit(&mut self, transaction: Transaction) -> Result<SyncOutcome, WriterGone> {
        // Small transactions are committed at once, and the end is noticed at an await.
        tokio::task::consume_budget().await;
        let started = now();
        self.commits.has_sent = true;
        let outcome = Handovers::commit(self.handovers.as_mut(), &self.writer, transaction);
        let mut outcome = pin!(outcome);
        // Small transactions are applied already.
        let (answered, ahead) = match outcome.as_mut().now_or_never() {
            Some(answered) => (answered, None),
            None => {
                let (engine, is_start) = (&mut self.engine, self.reads.doubt.is_start());
                let (begun, arrivals) = (now(), &self.arrivals);
                let ahead =
                    self.commits.transaction_ahead(engine, is_start, || !arrivals.is_empty());
                self.report.latency.compared(now() - begun);
                (outcome.await, ahead)
            }
        };
        let (transaction, outcome) = answered?;
        let services = self.engine.services_in_flight();
        let answer = self.engine.answer(&transaction, &outcome);
        match outcome {
            Ok(committed) => {
                let now = now();
                let waited = ahead.is_none().then(|| now - started);
                let (transaction, committed, services) = (&transaction, &committed, &services);
                self.report.committed(Applied { transaction, committed, services }, waited, now);
                if !self.engine.has_urgent_changes() {
                    self.report.small_changes(now);
                }
                self.stop_watching().await?;
                self.flows.clean(&mut self.engine);
                self.release_unused();
                self.commits.made_ahead(ahead);
                Ok(SyncOutcome::Done)
            }
            Err(error) => {
                self.report.refused(&transaction);
                log_refusal(&answer, &error);
                let is_undone = match &answer {
                    Answer::ReadBack(cause) => {
                        self.undo(cause, &transaction, ahead.as_ref()).await?
                    }
                    Answer::Blocked(table) => {
                        let other = |it: &Transaction| TableId::written_by(it) != Some(*table);
                        self.commits.made_ahead(ahead.filter(other));
                        false
                    }
                    Answer::Devices { .. } | Answer::Applied => false,
                };
                Ok(SyncOutcome::of_refusal(&answer, is_undone))
            }
        }
    }
}

/// Applies an arrival. The first lists wait for each other, so they are not measured.
fn apply(engine: &mut Engine, report: &mut Report, arrival: Arrival) {
    let Arrival { events, received, parsed, resource_version } = arrival;
    report.events(&events);
    let (taken, was_listed) = (now(), engine.is_listed());
    report.causes.add_arrival(was_listed, resource_version);
    let size = engine.apply(events);
    report.latency.compared(now() - taken);
    if was_listed {
        report.arrived(ArrivalTimes { received, parsed, taken }, size);
    }
}
