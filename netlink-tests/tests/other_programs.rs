//! Other programs change elements of tables without an owner, while services change.
//!
//! `SERVICES=20000` measures it in a larger cluster, with `--nocapture`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use daemon::observe::Observe;
use daemon::run::{Parts, Run};
use daemon::writer::Writer;
use engine::Engine;
use engine::model::{
    Arrival, Change, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Resource, Service,
    ServicePort,
};
use engine::routing::Routing;
use engine::ruleset::{self, Layouts, SetId};
use netlink_tests::{Namespace, eventually};
use nft::kernel::{
    CommitError, Committed, Contents, ElementRead, Kernel, Nftables, OthersChanges, ReadError,
};
use nft::{Element, ElementView, Family, Operation, TableFlags, TableRef, Transaction, Value};
use tokio::sync::{mpsc, oneshot};

/// A kernel that sends an event as soon as the daemon learns of a change by another program.
struct Observed {
    kernel: Nftables,
    shared: Arc<Shared>,
    /// This is the socket beside the one that commits.
    is_beside: bool,
}

impl Observed {
    fn open(shared: &Arc<Shared>, is_beside: bool) -> Self {
        Self { kernel: Nftables::open().unwrap(), shared: Arc::clone(shared), is_beside }
    }
}

struct Shared {
    /// How often the elements of a set were read, over the socket that commits and beside it.
    reads: AtomicUsize,
    reads_beside: AtomicUsize,
    /// How often elements were looked up by their keys, so far and when the event was committed.
    lookups: AtomicUsize,
    lookups_at_commit: AtomicUsize,
    /// The event to be sent, and when it was.
    event: Mutex<Option<Event>>,
    sent: Mutex<Option<Instant>>,
    /// From the event to its commit.
    took: Mutex<Option<Duration>>,
    events: mpsc::Sender<Arrival>,
}

impl Kernel for Observed {
    fn max_batch(&self) -> usize {
        self.kernel.max_batch()
    }

    fn port(&self) -> u32 {
        self.kernel.port()
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let outcome = self.kernel.commit(transaction);
        let address = Value::new().ip(ADDED.into());
        let is_event = transaction.operations.iter().filter_map(Operation::elements).flatten();
        let mut data = is_event.filter_map(|element| element.data.clone());
        if data.any(|data| data.as_bytes().starts_with(address.as_bytes())) {
            let lookups = self.shared.lookups.load(Ordering::Relaxed);
            self.shared.lookups_at_commit.store(lookups, Ordering::Relaxed);
            *self.shared.took.lock().unwrap() =
                self.shared.sent.lock().unwrap().map(|at| at.elapsed());
        }
        outcome
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        self.kernel.watch_others(tables)
    }

    fn ignore_others(&mut self) {
        self.kernel.ignore_others();
    }

    fn others_changes(&mut self) -> OthersChanges {
        let changes = self.kernel.others_changes();
        if changes != OthersChanges::Nothing
            && let Some(event) = self.shared.event.lock().unwrap().take()
        {
            let now = Instant::now();
            *self.shared.sent.lock().unwrap() = Some(now);
            self.shared.events.blocking_send(Arrival::new(vec![event], now)).unwrap();
        }
        changes
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        self.kernel.read_table(table)
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        let Shared { reads, reads_beside, .. } = &*self.shared;
        if self.is_beside { reads_beside } else { reads }.fetch_add(1, Ordering::Relaxed);
        self.kernel.read_elements(table, set, each)
    }

    fn count_elements(&mut self, table: &TableRef, set: &str) -> Result<Option<u32>, ReadError> {
        self.kernel.count_elements(table, set)
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        self.shared.lookups.fetch_add(1, Ordering::Relaxed);
        self.kernel.find_elements(table, set, keys, each)
    }
}

/// The endpoint that the change adds.
const ADDED: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 255);

/// Deleted elements that are looked up one by one.
const FEW: usize = 40;

/// So many that all elements are compared.
const MANY: usize = 400;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_change_does_not_wait_after_another_program_deleted_elements() {
    Namespace::new().run(|| delete(FEW));
}

#[test]
fn a_change_does_not_wait_until_all_elements_are_compared() {
    Namespace::new().run(|| delete(MANY));
}

#[test]
fn added_elements_are_found_over_another_socket() {
    Namespace::new().run(add_many);
}

fn services() -> u32 {
    std::env::var("SERVICES").ok().and_then(|it| it.parse().ok()).unwrap_or(5_000)
}

/// A daemon with services, and another program's socket.
struct Running {
    shared: Arc<Shared>,
    other: Nftables,
    /// The endpoints before anything changed.
    before: BTreeMap<Value, Value>,
    stop: oneshot::Sender<()>,
    daemon: thread::JoinHandle<()>,
}

impl Running {
    fn start(services: u32) -> Self {
        let (events, queue) = mpsc::channel(1_000);
        let shared = Arc::new(Shared {
            reads: AtomicUsize::new(0),
            reads_beside: AtomicUsize::new(0),
            lookups: AtomicUsize::new(0),
            lookups_at_commit: AtomicUsize::new(0),
            event: Mutex::default(),
            sent: Mutex::default(),
            took: Mutex::default(),
            events: events.clone(),
        });
        let kernel = Observed::open(&shared, false);
        let engine = Engine::new(Routing::default(), TableFlags::default());
        let writer = Writer::spawn(kernel).unwrap();
        let own = Arc::clone(&shared);
        let parts = Parts {
            open_reader: Some(Box::new(move || Writer::spawn(Observed::open(&own, true)).ok())),
            ..Parts::default()
        };
        let run = Run::new(engine, writer, queue, Observe::new(), parts);
        let (stop, stopped) = oneshot::channel::<()>();
        let daemon = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(run.until(async { drop(stopped.await) })).unwrap();
        });
        let objects = (0..services).flat_map(|number| [service(number), slice(number, None)]);
        let objects = objects.chain(Resource::ALL.map(Event::Listed)).collect();
        events.blocking_send(Arrival::new(objects, Instant::now())).unwrap();
        let mut other = Nftables::open().unwrap();
        let count = services as usize * ENDPOINTS.len();
        wait_for(|| endpoints(&mut other).len() == count);
        let before = endpoints(&mut other);
        Self { shared, other, before, stop, daemon }
    }

    /// Another program changes the endpoints. A service that this does not concern gets one more as
    /// soon as the daemon learns of it. Returns the time from this event to its commit.
    fn change(&mut self, services: u32, operation: Operation) -> Duration {
        *self.shared.event.lock().unwrap() = Some(slice(services - 1, Some(ADDED)));
        self.other.commit(&Transaction { operations: vec![operation] }).unwrap();
        wait_for(|| self.shared.took.lock().unwrap().is_some());
        self.shared.took.lock().unwrap().unwrap()
    }

    fn reads(&self) -> [usize; 2] {
        [&self.shared.reads, &self.shared.reads_beside].map(|it| it.load(Ordering::Relaxed))
    }

    /// Whether the kernel reports the number of elements of a set.
    fn has_sizes(&mut self) -> bool {
        let (table, set) = (ruleset::table(Family::Ip), SetId::Endpoints.name());
        self.other.count_elements(&table, set).unwrap().is_some()
    }

    /// Waits until the endpoints are those of before and the one of the event; ends the daemon.
    fn end(mut self) {
        wait_for(|| {
            let after = endpoints(&mut self.other);
            after.len() == self.before.len() + 1
                && self.before.iter().all(|(key, data)| after.get(key) == Some(data))
        });
        drop(self.stop);
        self.daemon.join().unwrap();
    }
}

fn operation(
    of: fn(TableRef, Arc<nft::Set>, nft::ElementList) -> Operation,
    elements: Vec<Element>,
) -> Operation {
    let set = Arc::clone(Layouts::default().of(Family::Ip).get(SetId::Endpoints));
    of(ruleset::table(Family::Ip), set, elements.into())
}

fn delete(count: usize) {
    let services = services();
    let mut running = Running::start(services);
    let changed = ENDPOINTS.map(|last| Value::new().ip(endpoint(services - 1, last)));
    let unchanged =
        |data: &Value| !changed.iter().any(|it| data.as_bytes().starts_with(it.as_bytes()));
    let deleted =
        running.before.iter().filter(|(_, data)| unchanged(data)).map(|(key, _)| key.clone());
    let deleted: Vec<Element> = deleted.step_by(7).take(count).map(Element::new).collect();
    let (reads, before) = (running.reads(), running.shared.lookups.load(Ordering::Relaxed));
    let took = running.change(services, operation(Operation::DeleteElements, deleted));
    let lookups = running.shared.lookups_at_commit.load(Ordering::Relaxed) - before;
    // A lookup reads a hundred elements or so at most, or one that is missing.
    let most = if count == FEW { 2 * FEW } else { running.before.len() / 100 / 4 };
    assert!(lookups <= most, "{lookups} lookups before the commit, more than {most}");
    println!("{services} services, {count} deleted: committed {took:?} after the event");
    wait_for(|| endpoints(&mut running.other).len() == running.before.len() + 1);
    let lookups = running.shared.lookups.load(Ordering::Relaxed) - before;
    if count == FEW {
        assert!(lookups <= most, "{lookups} lookups for the {count} that were deleted");
    }
    // Without sizes, added elements are searched by a dump.
    if count == FEW || running.has_sizes() {
        assert_eq!(running.reads(), reads, "sets were read");
    }
    running.end();
}

fn add_many() {
    let services = services();
    let mut running = Running::start(services);
    let orphan = |(number, (key, data)): (u32, (&Value, &Value))| {
        let mut key = key.as_bytes().to_vec();
        // The number of a list.
        key[..4].copy_from_slice(&(0x00ff_0000 + (number << 8)).to_ne_bytes());
        let key = Value::from_bytes(&key).unwrap();
        Element { data: Some(data.clone()), ..Element::new(key) }
    };
    let orphans: Vec<_> = (0..).zip(&running.before).take(MANY).map(orphan).collect();
    let reads = running.reads();
    let took = running.change(services, operation(Operation::AddElements, orphans));
    println!("{services} services, {MANY} added: committed {took:?} after the event");
    wait_for(|| running.reads()[1] > reads[1]);
    assert_eq!(running.reads()[0], reads[0], "sets were read over the socket that commits");
    running.end();
}

#[track_caller]
fn wait_for(mut is_reached: impl FnMut() -> bool) {
    eventually("the tables", LIMIT, || is_reached().then_some(()));
}

fn endpoints(kernel: &mut Nftables) -> BTreeMap<Value, Value> {
    let mut found = BTreeMap::new();
    let mut each = |read: ElementRead<'_>| match read {
        ElementRead::Start => found.clear(),
        ElementRead::Element(view) => {
            let data = view.data.and_then(Value::from_bytes).unwrap();
            found.insert(Value::from_bytes(view.key).unwrap(), data);
        }
    };
    let (table, set) = (ruleset::table(Family::Ip), SetId::Endpoints.name());
    match kernel.read_elements(&table, set, &mut each) {
        Ok(()) => found,
        // Before the daemon is done.
        Err(_) => BTreeMap::new(),
    }
}

/// The last part of the addresses of each service's endpoints.
const ENDPOINTS: [u32; 2] = [1, 2];

fn name(number: u32) -> ObjectName {
    ObjectName::namespaced("default", &format!("service{number}"))
}

fn service(number: u32) -> Event {
    let cluster_ip = Ipv4Addr::from(0x0a60_0000 + number);
    let ports = vec![ServicePort::tcp("http", NonZeroU16::MIN)];
    Event::Service(Change::Is(Service {
        ports,
        ..Service::new(name(number), vec![cluster_ip.into()])
    }))
}

fn endpoint(number: u32, last: u32) -> IpAddr {
    Ipv4Addr::from(0x0a80_0000 + number * 4 + last).into()
}

fn slice(number: u32, more: Option<Ipv4Addr>) -> Event {
    let addresses = ENDPOINTS.map(|last| endpoint(number, last));
    let addresses = addresses.into_iter().chain(more.map(IpAddr::from));
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name(number),
        service: name(number),
        ports: [EndpointPort::tcp("http", NonZeroU16::MIN)].into(),
        endpoints: addresses.map(Endpoint::ready).collect(),
        triggered: None,
        weighing: None,
    }))
}
