//! The daemon's loop on the fake kernel: whatever goes wrong with a commit, the tables end right.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // It waits for the daemon, with a limit.

mod tables;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use daemon::handover::Step;
use daemon::observe::Observe;
use daemon::run::{Handovers, MissingNode, Parts, RouteLocalnet, Run, RunError, Steps};
use daemon::source::notice::Notice;
use daemon::writer::Writer;
use engine::model::{
    Arrival, Change, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Problem, Protocol,
    Resource, Service, ServicePort, Target,
};
use engine::routing::Routing;
use engine::ruleset::base::has_guard;
use engine::ruleset::number::ListId;
use engine::ruleset::{Layouts, SetId, TableElement, table};
use engine::{Engine, GRACE};
use fake_kernel::{Fake, Mishap};
use nft::Errno;
use nft::kernel::{
    CommitError, Committed, Contents, CopyTableError, ElementRead, Kernel, OthersChanges, ReadError,
};
use nft::{
    Element, ElementView, Family, Operation, Table, TableFamily, TableFlags, TableRef, Transaction,
    Value,
};
use tables::{contents, elements, engine, from_scratch, owning_engine};
use tokio::sync::{mpsc, oneshot};

/// A fake kernel that the test sees too.
#[derive(Clone)]
struct Shared {
    kernel: Arc<Mutex<Fake>>,
    /// What another program commits before our next transaction.
    overtaking: Arc<Mutex<Option<Transaction>>>,
    /// What the kernel refuses besides.
    objection: Arc<Mutex<Option<Objection>>>,
    /// How often a table was read, others' changes were looked for, a set was dumped, and a
    /// transaction met the objection.
    calls: Arc<[AtomicUsize; 4]>,
    /// Netlink ports of other programs that own our tables.
    owners: Arc<Mutex<HashMap<TableRef, u32>>>,
    /// Lookups by keys wait.
    holds_lookups: Arc<AtomicBool>,
    /// Lookups so far, and their number at each commit.
    lookups: Arc<Mutex<(usize, Vec<usize>)>>,
}

type Objection = fn(&Transaction) -> Option<CommitError>;

impl Shared {
    fn new(kernel: Fake) -> Self {
        Self {
            kernel: Arc::new(Mutex::new(kernel)),
            overtaking: Arc::default(),
            objection: Arc::default(),
            owners: Arc::default(),
            calls: Arc::default(),
            holds_lookups: Arc::default(),
            lookups: Arc::default(),
        }
    }

    fn with<T>(&self, read: impl FnOnce(&mut Fake) -> T) -> T {
        read(&mut self.kernel.lock().unwrap())
    }

    /// Whether both tables are there.
    fn has_tables(&self) -> bool {
        self.with(|kernel| {
            let mut families = nft::family::Family::ALL.into_iter();
            families.all(|family| {
                let table = engine::ruleset::table(family);
                kernel.read_table(&table).unwrap().is_some()
            })
        })
    }
}

impl Shared {
    /// Whether packets of other hosts to loopback addresses are dropped.
    fn is_guarded(&self) -> bool {
        let contents = self.with(|kernel| kernel.read_table(&table(Family::Ip)).unwrap());
        contents.is_some_and(|contents| has_guard(&contents.rules))
    }
}

impl Kernel for Shared {
    fn max_batch(&self) -> usize {
        self.with(|kernel| kernel.max_batch())
    }

    fn port(&self) -> u32 {
        self.with(|kernel| kernel.port())
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        if let Some(others) = self.overtaking.lock().unwrap().take() {
            self.with(|kernel| kernel.tamper(&others).unwrap());
        }
        let objection = *self.objection.lock().unwrap();
        if let Some(error) = objection.and_then(|objection| objection(transaction)) {
            self.calls[3].fetch_add(1, Ordering::Relaxed);
            return Err(error);
        }
        for operation in &transaction.operations {
            let table = operation.table();
            if let Some(&port) = self.owners.lock().unwrap().get(&table) {
                return Err(CommitError::Owned { table, port });
            }
        }
        let lookups = &mut *self.lookups.lock().unwrap();
        lookups.1.push(lookups.0);
        self.with(|kernel| kernel.commit(transaction))
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        self.with(|kernel| kernel.watch_others(tables))
    }

    fn ignore_others(&mut self) {
        self.with(Kernel::ignore_others);
    }

    fn others_changes(&mut self) -> OthersChanges {
        self.calls[1].fetch_add(1, Ordering::Relaxed);
        self.with(Kernel::others_changes)
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        self.calls[0].fetch_add(1, Ordering::Relaxed);
        let found = self.with(|kernel| kernel.read_table(table))?;
        let owner = self.owners.lock().unwrap().get(table).copied();
        Ok(found.map(|found| Contents { owner: owner.or(found.owner), ..found }))
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        self.calls[2].fetch_add(1, Ordering::Relaxed);
        self.with(|kernel| kernel.read_elements(table, set, each))
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        while self.holds_lookups.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.lookups.lock().unwrap().0 += 1;
        self.with(|kernel| kernel.find_elements(table, set, keys, each))
    }
}

/// Nothing takes longer than this.
const LIMIT: Duration = Duration::from_secs(20);

/// A daemon on a thread of its own.
struct Daemon {
    kernel: Shared,
    events: mpsc::Sender<Arrival>,
    notices: mpsc::Receiver<Notice>,
    observe: Observe,
    /// All events so far.
    applied: Vec<Event>,
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Daemon {
    fn start(kernel: Fake) -> Self {
        let mut daemon = Self::start_unlisted(engine(), Shared::new(kernel));
        daemon.list(Vec::new());
        daemon
    }

    /// One that waits for its first lists.
    fn start_unlisted(engine: Engine, kernel: Shared) -> Self {
        Self::start_with(engine, kernel, None)
    }

    fn start_with(engine: Engine, kernel: Shared, route_localnet: Option<RouteLocalnet>) -> Self {
        Self::start_changed(engine, kernel, |parts| parts.route_localnet = route_localnet)
    }

    /// Changes the loop before it starts.
    fn start_changed(
        engine: Engine,
        kernel: Shared,
        change: impl FnOnce(&mut Parts<Shared>),
    ) -> Self {
        let writer = Writer::spawn(kernel.clone()).unwrap();
        let (events, queue) = mpsc::channel(16);
        let observe = Observe::new();
        let (report, notices) = mpsc::channel(16);
        // As with manifests, of which none has to be a Node.
        let node = ("node".to_owned(), MissingNode::Eligible);
        let mut parts = Parts { notices: Some(report), node, ..Parts::default() };
        change(&mut parts);
        let run = Run::new(engine, writer, queue, observe.clone(), parts);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let ended = runtime.unwrap().block_on(run.until(async { drop(stopped.await) }));
            ended.expect("the kernel's thread goes on");
        });
        Self { kernel, events, notices, observe, applied: Vec::new(), stop, thread }
    }

    /// Sends the first lists, which hold these objects.
    fn list(&mut self, mut objects: Vec<Event>) {
        objects.extend(Resource::ALL.map(Event::Listed));
        self.send(objects);
    }

    fn send(&mut self, events: Vec<Event>) {
        self.applied.extend(events.clone());
        self.events.blocking_send(Arrival::new(events, Instant::now())).unwrap();
    }

    fn expect(&self, mishap: Mishap) {
        self.kernel.with(|kernel| kernel.expect_mishap(mishap));
    }

    /// Waits for the next problem.
    #[track_caller]
    fn problem(&mut self) -> Problem {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Ok(Notice::LeftOut(problem)) = self.notices.try_recv() {
                return problem;
            }
            assert!(Instant::now() < deadline, "no problem within {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the tables are what a daemon would write that starts now.
    #[track_caller]
    fn wait(&self) {
        let expected = from_scratch(&self.applied);
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            self.wait_for_quiet();
            // Between two transactions the contents may contradict each other, which panics.
            let found = catch_unwind(AssertUnwindSafe(|| self.found()));
            if found.is_ok_and(|found| found == expected) {
                return;
            }
        }
        let found = self.found();
        assert!(found == expected, "{found:#?} is not {expected:#?}");
    }

    /// The meaning of both tables; empty while one is missing.
    fn found(&self) -> BTreeMap<String, String> {
        if self.kernel.has_tables() {
            contents(&mut self.kernel.with(|kernel| kernel.clone()))
        } else {
            BTreeMap::new()
        }
    }

    /// Between two transactions there may be lists that no route names, for [`GRACE`]; after one
    /// that went wrong the next one comes 50 ms later.
    fn wait_for_quiet(&self) {
        let committed = || self.kernel.with(|kernel| kernel.commits());
        let mut before = usize::MAX;
        while before != committed() {
            before = committed();
            std::thread::sleep(GRACE + Duration::from_millis(150));
        }
    }

    /// Waits until so many transactions were committed since the kernel began.
    #[track_caller]
    fn wait_for_commits(&self, count: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.kernel.with(|kernel| kernel.commits()) < count {
            assert!(Instant::now() < deadline, "no {count} commits in {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the loop has taken in all events and the kernel's thread has read the tables.
    #[track_caller]
    fn wait_until_taken(&self) {
        let deadline = Instant::now() + LIMIT;
        while self.events.capacity() < self.events.max_capacity() {
            assert!(Instant::now() < deadline, "events wait after {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
    }

    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().expect("the loop ends by itself");
    }
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

/// A service with so many endpoints.
fn service(number: u8, endpoints: u8) -> Vec<Event> {
    let name = ObjectName::namespaced("default", &format!("service{number}"));
    let service = Service {
        ports: vec![ServicePort::tcp("http", port(80))],
        ..Service::new(name.clone(), vec![IpAddr::from([10, 96, 0, number])])
    };
    let slice = EndpointSlice {
        name: name.clone(),
        service: name,
        ports: vec![EndpointPort::tcp("http", port(8080))],
        endpoints: (0..endpoints).map(|i| Endpoint::ready([10, 244, number, i].into())).collect(),
        triggered: None,
        weighing: None,
    };
    vec![Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
}

/// Objects for a first sync of several transactions of [`SMALL_BATCH`].
fn many_services() -> Vec<Event> {
    (0..200).flat_map(|number| service(number, 9)).collect()
}

const SMALL_BATCH: usize = 150_000;

fn small_batches() -> Fake {
    let mut kernel = Fake::new();
    kernel.set_max_batch(SMALL_BATCH);
    kernel
}

#[test]
fn events_reach_the_kernel() {
    let mut daemon = Daemon::start(Fake::new());
    for endpoints in [3, 4, 9, 0, 1] {
        daemon.send(service(1, endpoints));
        daemon.wait();
    }
    daemon.end();
}

#[test]
fn a_list_stays_a_while_after_the_last_route_to_it() {
    let mut daemon = Daemon::start(Fake::new());
    daemon.send(service(1, 3));
    daemon.wait();
    let before = daemon.kernel.with(|kernel| kernel.commits());
    let start = Instant::now();
    daemon.send(service(1, 0));
    // One deletes the route to the list, the next one the list.
    daemon.wait_for_commits(before + 2);
    assert!(start.elapsed() >= GRACE, "packets may still look the list up");
    daemon.wait();
    daemon.end();
}

#[test]
fn whatever_goes_wrong_with_a_commit_the_tables_end_right() {
    for mishap in [
        Mishap::Refused(Errno::ENOMEM),
        Mishap::Refused(Errno::EINVAL),
        Mishap::AnswerLost,
        Mishap::NotSent,
    ] {
        let mut daemon = Daemon::start(Fake::new());
        daemon.send(service(1, 3));
        daemon.wait();
        daemon.expect(mishap);
        daemon.expect(mishap);
        daemon.send(service(1, 4));
        daemon.send(service(2, 2));
        daemon.wait();
        daemon.end();
    }
}

#[test]
fn tables_that_another_program_removes_come_back() {
    let mut daemon = Daemon::start(Fake::new());
    daemon.send(service(1, 3));
    daemon.wait();
    daemon.kernel.with(Fake::flush_ruleset);
    daemon.wait();
    daemon.end();
}

#[test]
fn a_large_change_goes_to_a_kernel_that_takes_small_batches() {
    let mut daemon = Daemon::start(small_batches());
    daemon.send(many_services());
    daemon.wait();
    assert!(daemon.kernel.with(|kernel| kernel.commits()) > 2);
    daemon.end();
}

/// As [`service`], with an address for each of very many.
fn one_of_many(number: u16, endpoints: u8) -> Vec<Event> {
    let [high, low] = number.to_be_bytes();
    let name = ObjectName::namespaced("default", &format!("service{number:05}"));
    let mut events = service(low, endpoints);
    for event in &mut events {
        if let Event::Service(Change::Is(service)) = event {
            service.name = name.clone();
            service.cluster_ips = vec![[10, 97, high, low].into()];
        } else if let Event::EndpointSlice(Change::Is(slice)) = event {
            (slice.name, slice.service) = (name.clone(), name.clone());
        }
    }
    events
}

#[test]
fn a_start_on_existing_tables_commits_a_change_before_all_lists_are_read() {
    const SERVICES: u16 = 1_500;
    let kernel = Shared::new(Fake::new());
    let objects = || (0..SERVICES).flat_map(|number| one_of_many(number, 2)).collect();
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(objects());
    daemon.wait();
    daemon.end();

    *kernel.lookups.lock().unwrap() = Default::default();
    kernel.holds_lookups.store(true, Ordering::Relaxed);
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(objects());
    // Its list has the highest number, so it would be read last. A new service needs a number.
    daemon.send(one_of_many(SERVICES - 1, 3));
    daemon.send(one_of_many(SERVICES, 1));
    daemon.wait_until_taken();
    kernel.holds_lookups.store(false, Ordering::Relaxed);
    daemon.wait();
    let (lookups, commits) = kernel.lookups.lock().unwrap().clone();
    assert!(commits[0] < lookups, "the change: {commits:?} of {lookups} lookups");
    let with_number = commits.iter().find(|at| **at == lookups);
    assert!(with_number.is_some(), "the new service: {commits:?} of {lookups} lookups");
    daemon.end();
}

#[test]
fn a_list_that_no_route_names_is_found_before_its_number_is_given_out() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(service(1, 2));
    daemon.wait();
    daemon.end();

    let set = Arc::clone(Layouts::default().of(Family::Ip).get(SetId::Endpoints));
    let target = Target { address: [10, 244, 9, 9].into(), port: port(80) };
    let elements = (0x100..0x110).map(|number| {
        let list = ListId::plain(number);
        TableElement::Endpoint(list, Protocol::Tcp, 3, target).to_element()
    });
    let add = Operation::AddElements(table(Family::Ip), set, elements.collect());
    kernel.with(|kernel| kernel.corrupt(&Transaction { operations: vec![add] }).unwrap());
    let mut daemon = Daemon::start_unlisted(engine(), kernel);
    daemon.list([service(1, 2), service(2, 4)].concat());
    daemon.wait();
    let none = "deltaproxy_transactions_total{result=\"refused\"} 0";
    assert!(daemon.observe.metrics_text().contains(none), "a number was given out");
    daemon.end();
}

/// The kernel of a daemon that ended with many services installed, and a transaction with which
/// another program deletes one of the endpoints.
fn killed_daemon() -> (Shared, Transaction) {
    let kernel = Shared::new(small_batches());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(many_services());
    daemon.wait();
    daemon.end();
    let (set, last) = (SetId::Endpoints, |elements: Vec<Element>| elements.last().cloned());
    let endpoint = kernel.with(|kernel| last(elements(kernel, Family::Ip, set))).unwrap();
    let set = Arc::clone(Layouts::default().of(Family::Ip).get(set));
    let endpoint = Element { data: None, ..endpoint };
    let operation = Operation::DeleteElements(table(Family::Ip), set, vec![endpoint]);
    (kernel, Transaction { operations: vec![operation] })
}

#[test]
fn a_transaction_made_ahead_is_dropped_if_the_one_before_is_not_applied() {
    for mishap in [Mishap::Refused(Errno::EINVAL), Mishap::AnswerLost, Mishap::NotSent] {
        for commits in 1..4 {
            let mut kernel = small_batches();
            kernel.expect_mishap_after(commits, mishap);
            let mut daemon = Daemon::start_unlisted(engine(), Shared::new(kernel));
            daemon.list(many_services());
            daemon.wait_for_commits(commits);
            // The transaction made ahead is out of date by the time of the next attempt.
            std::thread::sleep(Duration::from_millis(10));
            daemon.send((0..200).flat_map(|number| service(number, 2)).collect());
            daemon.wait();
            assert_eq!(daemon.kernel.with(|kernel| kernel.failures()), 1);
            daemon.end();
        }
    }
}

#[test]
fn what_was_read_before_the_lists_came_is_read_again_if_it_has_changed() {
    let (kernel, deletion) = killed_daemon();
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.send(service(1, 9));
    daemon.wait_until_taken();
    kernel.with(|kernel| kernel.tamper(&deletion).unwrap());
    daemon.list(many_services());
    daemon.wait();
    daemon.end();
}

#[test]
fn what_others_did_just_before_the_tables_were_ours_is_undone() {
    let (kernel, deletion) = killed_daemon();
    let before = kernel.with(|kernel| kernel.commits());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    *kernel.overtaking.lock().unwrap() = Some(deletion);
    daemon.list(many_services().into_iter().chain(service(7, 3)).collect());
    // One commit for the changed service, and one for the deleted endpoint.
    daemon.wait_for_commits(before + 2);
    daemon.wait();
    daemon.end();
}

/// A service with one endpoint at this address and the address of the same number in IPv6.
fn dual_stack(number: u8) -> Vec<Event> {
    let mut events = service(number, 1);
    let six = |last: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, last, u16::from(number)]);
    if let Event::Service(Change::Is(service)) = &mut events[0] {
        service.cluster_ips.push(six(1));
    }
    let name = ObjectName::namespaced("default", &format!("service{number}"));
    events.push(Event::EndpointSlice(Change::Is(EndpointSlice {
        name: ObjectName::namespaced("default", &format!("service{number}-six")),
        service: name,
        ports: vec![EndpointPort::tcp("http", port(8080))],
        endpoints: vec![Endpoint::ready(six(2))],
        triggered: None,
        weighing: None,
    })));
    events
}

/// Elements of the frontends of both families.
fn frontends(kernel: &Shared) -> [usize; 2] {
    let count = |family| kernel.with(|kernel| elements(kernel, family, SetId::Services).len());
    [count(Family::Ip), count(Family::Ip6)]
}

#[track_caller]
fn wait_for(condition: impl Fn() -> bool) -> Duration {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    started.elapsed()
}

#[test]
fn a_table_that_another_program_owns_keeps_nothing_from_the_other_one() {
    let kernel = Shared::new(Fake::new());
    kernel.owners.lock().unwrap().insert(table(Family::Ip6), 77);
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [1, 0]);
    daemon.send(dual_stack(2));
    wait_for(|| frontends(&kernel) == [2, 0]);
    let has = |line: &str| daemon.observe.metrics_text().contains(line);
    wait_for(|| has("deltaproxy_programmed{ip_family=\"IPv4\"} 1"));
    wait_for(|| has("deltaproxy_programmed{ip_family=\"IPv6\"} 0"));
    kernel.owners.lock().unwrap().clear();
    wait_for(|| frontends(&kernel) == [2, 2]);
    wait_for(|| has("deltaproxy_programmed{ip_family=\"IPv6\"} 1"));
    daemon.wait();
    daemon.end();
}

#[test]
fn a_table_whose_rules_are_refused_keeps_nothing_from_the_other_one() {
    let kernel = Shared::new(Fake::new());
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let rule = transaction.operations.iter().position(
            |it| matches!(it, Operation::AddRule(table, _) if table.family == TableFamily::Ip),
        )?;
        Some(CommitError::refused(transaction, Some((rule, None)), Errno::EOPNOTSUPP))
    });
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [0, 1]);
    daemon.send(dual_stack(2));
    wait_for(|| frontends(&kernel) == [0, 2]);
    *kernel.objection.lock().unwrap() = None;
    daemon.wait();
    daemon.end();
}

#[test]
fn a_service_for_which_the_kernel_refuses_whole_transactions_is_found_and_left_out() {
    let kernel = Shared::new(small_batches());
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let is_bad = transaction.operations.iter().any(|it| it.to_string().contains("10.96.0.77 "));
        is_bad.then(|| CommitError::refused(transaction, None, Errno::EINVAL))
    });
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(many_services());
    wait_for(|| frontends(&kernel) == [199, 0]);
    let problem = daemon.problem();
    assert_eq!(problem.object.name.as_str(), "default/service77");
    daemon.send(service(3, 2));
    wait_for(|| {
        let slots = kernel.with(|kernel| elements(kernel, Family::Ip, SetId::Endpoints).len());
        slots == 198 * 9 + 2
    });
    *kernel.objection.lock().unwrap() = None;
    daemon.wait();
    daemon.end();
}

fn names_service_77(operation: &Operation) -> bool {
    operation.to_string().contains("10.96.0.77 ")
}

/// The service is the last one, so no later commit confirms that it is the cause.
#[test]
fn a_refused_service_is_reported_and_retried_without_a_dump() {
    let unnamed: Objection = |transaction| {
        let is_bad = transaction.operations.iter().any(names_service_77);
        is_bad.then(|| CommitError::refused(transaction, None, Errno::EINVAL))
    };
    let named: Objection = |transaction| {
        let operation = transaction.operations.iter().position(names_service_77)?;
        let mut elements = transaction.operations[operation].elements()?.iter();
        let place =
            (operation, elements.position(|it| it.key.as_bytes().starts_with(&[10, 96, 0, 77])));
        Some(CommitError::refused(transaction, Some(place), Errno::EINVAL))
    };
    for objection in [unnamed, named] {
        let kernel = Shared::new(Fake::new());
        let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
        daemon.list(service(1, 1));
        daemon.wait();
        // The kernel's answer was handled too: the first sync is over.
        wait_for(|| syncs(&daemon, "full") == 1.0);
        *kernel.objection.lock().unwrap() = Some(objection);
        let dumps = || kernel.calls[2].load(Ordering::Relaxed);
        let before = dumps();
        daemon.send([service(1, 3), service(77, 1)].concat());
        let problem = daemon.problem();
        assert_eq!(problem.object.name.as_str(), "default/service77");
        *kernel.objection.lock().unwrap() = None;
        daemon.send(service(77, 2));
        daemon.wait();
        assert_eq!(dumps(), before);
        daemon.end();
    }
}

/// Refusals from which on a first bisection of four services is over, in any order.
const MORE_THAN_A_BISECTION: usize = 12;

/// Refuses a transaction until one has all of these services, or none because they are in the
/// kernel. A bisection goes on, since it would blame a service if the refusals ended within it.
fn refuse_unless(transaction: &Transaction, numbers: [u8; 4]) -> Option<CommitError> {
    let text = transaction.to_string();
    let count = numbers.iter().filter(|it| text.contains(&format!("10.96.0.{it} "))).count();
    let is_part = (1..numbers.len()).contains(&count);
    is_part.then(|| CommitError::refused(transaction, None, Errno::EPERM))
}

#[test]
fn a_kernel_that_refuses_everything_is_asked_again_and_no_service_is_left_out() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(service(1, 1));
    daemon.wait();
    *kernel.objection.lock().unwrap() =
        Some(|transaction| Some(CommitError::refused(transaction, None, Errno::EPERM)));
    daemon.send((2..6).flat_map(|number| service(number, 2)).collect());
    wait_for(|| kernel.calls[3].load(Ordering::Relaxed) > MORE_THAN_A_BISECTION);
    let text = daemon.observe.metrics_text();
    assert!(text.contains("deltaproxy_programmed{ip_family=\"IPv4\"} 0"), "{text}");
    assert!(daemon.notices.try_recv().is_err());
    *kernel.objection.lock().unwrap() =
        Some(|transaction| refuse_unless(transaction, [2, 3, 4, 5]));
    daemon.wait();
    assert!(daemon.notices.try_recv().is_err());
    daemon.end();
}

#[test]
fn elements_that_another_program_changes_are_repaired_without_a_reading() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list((1..9).flat_map(|number| service(number, 3)).collect());
    daemon.wait();
    let reads = || kernel.calls[0].load(Ordering::Relaxed);
    let before = reads();
    for set in [SetId::Endpoints, SetId::Services, SetId::ClusterIps] {
        let elements = kernel.with(|kernel| elements(kernel, Family::Ip, set));
        let [first, second, ..] = &elements[..] else { panic!("{elements:?}") };
        let layout = Arc::clone(Layouts::default().of(Family::Ip).get(set));
        let keys = [first, second].map(|it| Element { data: None, comment: None, ..it.clone() });
        let delete = Operation::DeleteElements(table(Family::Ip), Arc::clone(&layout), keys.into());
        // The second one gets the data of the first.
        let forged = Element { data: first.data, ..second.clone() };
        let add = Operation::AddElements(table(Family::Ip), layout, vec![forged]);
        let operations = vec![delete, add];
        kernel.with(|kernel| kernel.tamper(&Transaction { operations }).unwrap());
        daemon.send(service(20, 2));
        daemon.wait();
    }
    assert_eq!(reads(), before);
    daemon.end();
}

#[test]
fn what_others_commit_to_their_own_tables_leads_to_no_reading() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(service(1, 3));
    daemon.wait();
    let calls = |index: usize| kernel.calls[index].load(Ordering::Relaxed);
    wait_for(|| calls(1) > 2);
    let (reads, looks) = (calls(0), calls(1));
    let other = Operation::AddTable(Table::new(Family::Ip, "other"));
    for _ in 0..20 {
        kernel.with(|fake| fake.tamper(&Transaction { operations: vec![other.clone()] }).unwrap());
    }
    wait_for(|| calls(1) > looks + 1);
    assert_eq!(calls(0), reads);
    kernel.with(Fake::flush_ruleset);
    daemon.wait();
    assert!(calls(0) > reads);
    daemon.end();
}

#[test]
fn a_table_that_refuses_everything_is_blocked_while_the_other_takes_services() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(Vec::new());
    daemon.wait();
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let is_refused = transaction.family() == Some(Family::Ip);
        is_refused.then(|| CommitError::refused(transaction, None, Errno::EPERM))
    });
    let only_ipv6 = |number| dual_stack(number).into_iter().map(without_ipv4).collect();
    let mixed = (1..9).flat_map(|number| match number % 2 {
        0 => service(number, 1),
        _ => only_ipv6(number),
    });
    daemon.send(mixed.collect());
    for number in 0..20 {
        wait_for(|| frontends(&kernel) == [0, 4 + number]);
        daemon.send(only_ipv6(21 + u8::try_from(number).unwrap()));
    }
    let text = daemon.observe.metrics_text();
    assert!(text.contains("deltaproxy_programmed{ip_family=\"IPv4\"} 0"), "{text}");
    assert!(daemon.notices.try_recv().is_err());
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let is_refused = transaction.family() == Some(Family::Ip);
        refuse_unless(transaction, [2, 4, 6, 8]).filter(|_| is_refused)
    });
    daemon.wait();
    assert!(daemon.notices.try_recv().is_err());
    daemon.end();
}

/// The same event without what is of IPv4.
fn without_ipv4(mut event: Event) -> Event {
    if let Event::Service(Change::Is(service)) = &mut event {
        service.cluster_ips.retain(IpAddr::is_ipv6);
    }
    if let Event::EndpointSlice(Change::Is(slice)) = &mut event {
        slice.endpoints.retain(|endpoint| endpoint.address.is_ipv6());
    }
    event
}

/// A daemon that serves localhost, and a channel with whether its tables protected loopback addresses
/// when it set `route_localnet`, which succeeds if `can_route`.
fn localhost_daemon(kernel: &Shared, can_route: bool) -> (Daemon, std::sync::mpsc::Receiver<bool>) {
    let node_port_addresses = "primary,localhost".parse().unwrap();
    let routing = Routing { node_port_addresses, ..Routing::default() };
    let mut engine = Engine::new(routing, TableFlags::default());
    engine.set_local_addresses(vec![[127, 0, 0, 1].into()]);
    let (sender, calls) = std::sync::mpsc::channel();
    let own = kernel.clone();
    let route_localnet = move || {
        sender.send(own.is_guarded()).unwrap();
        can_route
    };
    let daemon = Daemon::start_with(engine, kernel.clone(), Some(Box::new(route_localnet)));
    (daemon, calls)
}

const A_WHILE: Duration = Duration::from_millis(100);

#[test]
fn loopback_addresses_are_routed_once_the_tables_protect_them_or_left_out() {
    for can_route in [true, false] {
        let kernel = Shared::new(Fake::new());
        let (mut daemon, calls) = localhost_daemon(&kernel, can_route);
        assert!(calls.recv_timeout(A_WHILE).is_err(), "nothing is listed");
        daemon.list(service(1, 3));
        assert_eq!(calls.recv_timeout(LIMIT), Ok(true));
        let served = || kernel.with(|it| elements(it, Family::Ip, SetId::NodePortIps).len());
        wait_for(|| (kernel.is_guarded(), served()) == (can_route, usize::from(can_route)));
        daemon.wait_for_quiet();
        assert_eq!((kernel.is_guarded(), served()), (can_route, usize::from(can_route)));
        daemon.end();
    }
}

#[test]
fn loopback_addresses_are_not_routed_while_another_program_owns_the_table() {
    let kernel = Shared::new(Fake::new());
    kernel.owners.lock().unwrap().insert(table(Family::Ip), 77);
    let (mut daemon, calls) = localhost_daemon(&kernel, true);
    daemon.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [0, 1]);
    assert!(calls.recv_timeout(A_WHILE).is_err());
    kernel.owners.lock().unwrap().clear();
    assert_eq!(calls.recv_timeout(LIMIT), Ok(true));
    daemon.end();
}

/// The value of a metric, by its name and labels; 0 while it is absent.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    let text = daemon.observe.metrics_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// How many syncs of a kind (`full`, `partial`) succeeded or failed.
fn syncs(daemon: &Daemon, kind: &str) -> f64 {
    let name = format!("kubeproxy_sync_{kind}_proxy_rules_duration_seconds_count");
    metric(daemon, &format!("{name}{{ip_family=\"IPv4\"}}"))
}

#[test]
fn a_batch_is_measured_from_its_last_bytes_to_its_last_commit() {
    let mut daemon = Daemon::start(Fake::new());
    let measured = "deltaproxy_event_to_commit_duration_seconds";
    let count = |daemon: &Daemon| metric(daemon, &format!("{measured}_count"));
    wait_for(|| syncs(&daemon, "full") == 1.0);
    assert_eq!(count(&daemon), 0.0, "the first lists do not count");

    let (events, now, second) = (service(1, 3), Instant::now(), Duration::from_secs(1));
    let (received, parsed) = (now - 3 * second, now - second);
    daemon.applied.extend(events.clone());
    daemon.events.blocking_send(Arrival { received, ..Arrival::new(events, parsed) }).unwrap();
    wait_for(|| syncs(&daemon, "partial") == 1.0);
    let more = now.elapsed().as_secs_f64();
    let sum = |name: &str| metric(&daemon, name);
    let stage =
        |name: &str| sum(&format!("deltaproxy_stage_duration_seconds_sum{{stage={name:?}}}"));
    let took = [sum(&format!("{measured}_sum")), stage("parse"), stage("queue")];
    for (took, least) in took.into_iter().zip([3.0, 2.0, 1.0]) {
        assert!((least..=least + more).contains(&took), "{took} s instead of {least} s");
    }
    assert_eq!(count(&daemon), 1.0);

    daemon.send(service(1, 3));
    daemon.wait_until_taken();
    // The loop looks for others' changes between two batches.
    let looks = || daemon.kernel.calls[1].load(Ordering::Relaxed);
    let before = looks();
    wait_for(|| looks() > before);
    daemon.send(service(2, 3));
    wait_for(|| syncs(&daemon, "partial") == 2.0);
    assert_eq!(count(&daemon), 2.0, "a batch that changes nothing is not committed");
    daemon.end();
}

#[test]
fn a_refused_deletion_of_leftovers_is_a_failed_cleanup() {
    let mut daemon = Daemon::start(Fake::new());
    daemon.send(service(1, 3));
    daemon.wait();
    let failures = |daemon: &Daemon, what| {
        let name = format!("kubeproxy_sync_proxy_rules_nftables_{what}_failures_total");
        metric(daemon, &format!("{name}{{ip_family=\"IPv4\"}}"))
    };
    daemon.expect(Mishap::Refused(Errno::EINVAL));
    daemon.send(service(1, 4));
    daemon.wait();
    assert_eq!([failures(&daemon, "sync"), failures(&daemon, "cleanup")], [1.0, 0.0]);
    let before = daemon.kernel.with(|kernel| kernel.commits());
    daemon.kernel.with(|kernel| kernel.expect_mishap_after(1, Mishap::Refused(Errno::EINVAL)));
    daemon.send(service(1, 0));
    wait_for(|| [failures(&daemon, "sync"), failures(&daemon, "cleanup")] == [2.0, 1.0]);
    daemon.wait_for_commits(before + 2);
    daemon.wait();
    daemon.end();
}

#[test]
fn a_source_that_ends_is_an_error_and_a_stop_at_the_same_time_is_none() {
    let end = |is_stopped: bool| {
        let writer = Writer::spawn(Shared::new(Fake::new())).unwrap();
        let (events, queue) = mpsc::channel(16);
        let run = Run::new(engine(), writer, queue, Observe::new(), Parts::default());
        drop(events);
        let stop = async move {
            if !is_stopped {
                std::future::pending().await
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = async { tokio::time::timeout(LIMIT, run.until(stop)).await };
        runtime.unwrap().block_on(ended).unwrap()
    };
    let error = end(false).unwrap_err();
    assert!(matches!(error, RunError::SourceGone), "{error}");
    assert!(error.to_string().contains("the source of the objects ended"), "{error}");
    end(true).unwrap();
}

/// Handovers whose parts begin with a message and end when the test allows it.
struct HeldHandovers {
    began: std::sync::mpsc::Receiver<&'static str>,
    allow: std::sync::mpsc::Sender<()>,
}

impl HeldHandovers {
    fn new() -> (Self, Handovers<Shared>) {
        let (tell, began) = std::sync::mpsc::channel();
        let (allow, allowed) = std::sync::mpsc::channel();
        let allowed = Arc::new(Mutex::new(allowed));
        let hold = move |part| {
            tell.send(part).unwrap();
            let _ = allowed.lock().unwrap().recv_timeout(LIMIT);
        };
        let (of_list, of_removal) = (hold.clone(), hold);
        let list = move |_: &mut Shared, _, is_interrupted: &dyn Fn() -> bool| {
            of_list("list");
            if is_interrupted() {
                return Err(CopyTableError::Interrupted);
            }
            let hold = of_list.clone();
            let mut steps = [
                ("copy", Step::Copied),
                ("serve", Step::Serving),
                ("replace", Step::Serving),
                ("end", Step::Done),
            ]
            .into_iter();
            Ok(Some(Box::new(move |_: &mut Shared| {
                let (name, step) = steps.next().unwrap();
                hold(name);
                Ok(step)
            }) as Steps<_>))
        };
        let remove = move |_: &mut Shared| {
            of_removal("remove");
            Ok(Vec::new())
        };
        let flags = TableFlags { owner: true, persist: true };
        let hand_over = Arc::new(|_: &mut Shared, _: &dyn Fn() -> bool| Ok(Vec::new()));
        let mut handovers = Handovers::with(flags, Arc::new(list), hand_over, Arc::new(remove));
        handovers.idle = Duration::from_millis(1);
        handovers.pause = Duration::from_millis(1);
        (Self { began, allow }, handovers)
    }

    /// Waits for the beginning of a part.
    #[track_caller]
    fn expect(&self, part: &str) {
        assert_eq!(self.began.recv_timeout(LIMIT), Ok(part));
    }

    fn allow(&self) {
        self.allow.send(()).unwrap();
    }

    #[track_caller]
    fn pass(&self, parts: &[&str]) {
        for part in parts {
            self.expect(part);
            self.allow();
        }
    }
}

#[test]
fn changes_are_committed_while_the_ownership_is_being_taken() {
    let kernel = Shared::new(Fake::new());
    let mut before = Daemon::start_unlisted(engine(), kernel.clone());
    before.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [1, 1]);
    before.end();
    let (held, handovers) = HeldHandovers::new();
    let reader = kernel.clone();
    let mut daemon = Daemon::start_changed(owning_engine(), kernel.clone(), |parts| {
        parts.handovers = Some(handovers);
        parts.open_reader = Some(Box::new(move || Writer::spawn(reader.clone()).ok()));
    });
    daemon.list(dual_stack(1));
    held.pass(&["remove"]);

    // A commit does not wait for the list, and ends the attempt.
    held.expect("list");
    daemon.send(dual_stack(2));
    wait_for(|| frontends(&kernel) == [2, 2]);
    held.allow();

    // A commit between two steps ends the attempt as long as nothing has changed.
    held.pass(&["remove", "list"]);
    held.expect("copy");
    daemon.send(dual_stack(3));
    held.allow();
    held.expect("remove");
    assert_eq!(frontends(&kernel), [3, 3]);
    held.allow();

    // Later the steps go on after a commit.
    held.pass(&["list", "copy"]);
    for (number, part) in [(4, "serve"), (5, "replace")] {
        held.expect(part);
        assert_eq!(frontends(&kernel), [number - 1; 2]);
        daemon.send(dual_stack(u8::try_from(number).unwrap()));
        held.allow();
    }
    held.expect("end");
    assert_eq!(frontends(&kernel), [5, 5]);
    held.allow();
    // The other table.
    held.pass(&["list", "copy", "serve", "replace", "end"]);
    daemon.send(dual_stack(6));
    wait_for(|| frontends(&kernel) == [6, 6]);
    daemon.end();
}
