//! Other programs delete elements of tables without an owner, while services change.
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

use deltaproxy::config::Routing;
use deltaproxy::engine::Engine;
use deltaproxy::kernel::{
    CommitError, Committed, Contents, ElementRead, Kernel, Nftables, OthersChanges, ReadError,
    Writer,
};
use deltaproxy::model::{
    Batch, Change, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Resource, Service,
    ServicePort,
};
use deltaproxy::nft::{
    Element, ElementView, Family, Operation, TableFlags, TableRef, Transaction, Value,
};
use deltaproxy::observe::Observe;
use deltaproxy::ruleset::{self, Layouts, SetId};
use deltaproxy::run::Run;
use netlink_tests::{Namespace, eventually};
use tokio::sync::{mpsc, oneshot};

/// A kernel that sends an event as soon as the daemon learns of a change by another program.
struct Observed {
    kernel: Nftables,
    shared: Arc<Shared>,
}

struct Shared {
    /// How often the elements of a set were read.
    reads: AtomicUsize,
    /// The event to be sent, and when it was.
    event: Mutex<Option<Event>>,
    sent: Mutex<Option<Instant>>,
    /// From the event to its commit.
    took: Mutex<Option<Duration>>,
    events: mpsc::Sender<Batch>,
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
        let mut data = is_event.filter_map(|element| element.data);
        if data.any(|data| data.as_bytes().starts_with(address.as_bytes())) {
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
            self.shared.events.blocking_send(Batch::new(vec![event], now)).unwrap();
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
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
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
    Namespace::new().run(|| check(services(), FEW));
}

#[test]
fn a_change_does_not_wait_until_all_elements_are_compared() {
    Namespace::new().run(|| check(services(), MANY));
}

fn services() -> u32 {
    std::env::var("SERVICES").ok().and_then(|it| it.parse().ok()).unwrap_or(5_000)
}

fn check(services: u32, deletions: usize) {
    let (events, queue) = mpsc::channel(1_000);
    let shared = Arc::new(Shared {
        reads: AtomicUsize::new(0),
        event: Mutex::default(),
        sent: Mutex::default(),
        took: Mutex::default(),
        events: events.clone(),
    });
    let kernel = Observed { kernel: Nftables::open().unwrap(), shared: Arc::clone(&shared) };
    let engine = Engine::new(Routing::default(), TableFlags::default());
    let writer = Writer::spawn(kernel).unwrap();
    let run = Run::new(engine, writer, queue, Observe::new(), Duration::ZERO);
    let (stop, stopped) = oneshot::channel::<()>();
    let daemon = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(run.until(async { drop(stopped.await) })).unwrap();
    });
    let objects = (0..services).flat_map(|number| [service(number), slice(number, None)]);
    let objects = objects.chain(Resource::ALL.map(Event::Listed)).collect();
    events.blocking_send(Batch::new(objects, Instant::now())).unwrap();

    let mut other = Nftables::open().unwrap();
    wait_for(|| endpoints(&mut other).len() == services as usize * ENDPOINTS.len());
    let before = endpoints(&mut other);
    // The change concerns a service of which nothing is deleted.
    let changed = ENDPOINTS.map(|last| Value::new().ip(endpoint(services - 1, last)));
    let is_other =
        |data: &Value| !changed.iter().any(|it| data.as_bytes().starts_with(it.as_bytes()));
    let deleted = before.iter().filter(|(_, data)| is_other(data)).map(|(key, _)| *key);
    let deleted: Vec<Value> = deleted.step_by(7).take(deletions).collect();
    let reads = shared.reads.load(Ordering::Relaxed);
    *shared.event.lock().unwrap() = Some(slice(services - 1, Some(ADDED)));
    let set = Arc::clone(Layouts::default().of(Family::Ip).get(SetId::Endpoints));
    let elements = deleted.iter().copied().map(Element::new).collect();
    let operation = Operation::DeleteElements(ruleset::table(Family::Ip), set, elements);
    other.commit(&Transaction { operations: vec![operation] }).unwrap();

    wait_for(|| shared.took.lock().unwrap().is_some());
    let took = shared.took.lock().unwrap().unwrap();
    println!("{services} services, {deletions} deleted: committed {took:?} after the event");
    wait_for(|| is_there(&mut other, &deleted));
    let after = endpoints(&mut other);
    assert!(before.iter().all(|(key, data)| after.get(key) == Some(data)));
    assert_eq!(after.len(), before.len() + 1);
    let (table, set) = (ruleset::table(Family::Ip), SetId::Endpoints.name());
    // On other kernels, added elements are searched by a dump after the change was committed.
    if deletions == FEW || other.count_elements(&table, set).unwrap().is_some() {
        assert_eq!(shared.reads.load(Ordering::Relaxed), reads, "sets were read");
    }
    drop(stop);
    daemon.join().unwrap();
}

#[track_caller]
fn wait_for(mut is_reached: impl FnMut() -> bool) {
    eventually("the tables", LIMIT, || is_reached().then_some(()));
}

fn is_there(kernel: &mut Nftables, keys: &[Value]) -> bool {
    let (table, set) = (ruleset::table(Family::Ip), SetId::Endpoints.name());
    let are_there = |keys: &[Value]| {
        kernel.find_elements(&table, set, keys, &mut |_| ()).unwrap() == keys.len()
    };
    keys.chunks(100).all(are_there)
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
        ports: vec![EndpointPort::tcp("http", NonZeroU16::MIN)],
        endpoints: addresses.map(Endpoint::ready).collect(),
        triggered: None,
        weighing: None,
    }))
}
