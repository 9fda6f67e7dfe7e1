//! What an update costs beside services that have source ranges or session affinity, and with
//! counters in the elements, and what a table of a scheduler costs beside `random`; all else of
//! `make bench` is `deltaproxy bench` and the bench `sessions`.
//!
//! Each size has a network namespace and an engine of its own. User space is the time from an
//! event to the encoded batch; kernel is the time in the system call that commits it.
//!
//! `SERVICES=100,20000` chooses the sizes, `ROUNDS` how often each update is made.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use daemon::converge::commit_all;
use daemon::read_back::read_back;
use engine::Engine;
use engine::counters::Counters;
use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Event, HashedSource, ObjectName, Resource,
    Scheduler, Service, ServicePort,
};
use engine::routing::Routing;
use netlink_tests::Namespace;
use nft::kernel::{Kernel, Nftables};
use nft::{Acknowledge, Operation, TableFlags};

const ENDPOINTS: u32 = 5;

/// One in so many services has source ranges, and another one session affinity.
const UNUSUAL_EACH: u32 = 10;

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let sizes = std::env::var("SERVICES").unwrap_or_else(|_| "100,20000".to_owned());
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    println!(
        "| every {UNUSUAL_EACH}th service has source ranges, and another {UNUSUAL_EACH}th session \
         affinity | user space | kernel |"
    );
    println!("|---|---|---|");
    for size in sizes.split(',') {
        let services: u32 = size.parse().unwrap();
        Namespace::new().run(|| measure(services, rounds));
    }
    println!();
    println!(
        "| option counters | one endpoint added, kernel | class change 4 to 3 and back, kernel |"
    );
    println!("|---|---|---|");
    for size in sizes.split(',') {
        compare_counters(size.parse().unwrap(), rounds);
    }
    println!();
    println!("| one endpoint goes and comes back | elements added | user space | kernel |");
    println!("|---|---|---|---|");
    for endpoints in [10, 100, 5_000] {
        compare_schedulers(endpoints, rounds.div_ceil(10));
    }
}

/// Times of changes of one endpoint by `random` and by a table, in turns.
fn compare_schedulers(endpoints: u32, rounds: u32) {
    let schedulers = [Scheduler::Random, Scheduler::Maglev(HashedSource::Address)];
    let load = |scheduler| {
        Namespace::new().run(|| {
            let mut bench = Bench::load(0, Routing { scheduler, ..Routing::default() });
            let events = vec![Event::Service(Change::Is(plain(0))), slice(0, 0..endpoints)];
            let _ = bench.update_all(events);
            bench
        })
    };
    let mut benches = schedulers.map(load);
    let mut samples = schedulers.map(|_| [Vec::new(), Vec::new(), Vec::new()]);
    for round in 0..rounds {
        for turn in 0..benches.len() {
            let place = (turn + round as usize) % benches.len();
            // Not always the same one: each has slots of its own.
            let gone = round % endpoints;
            for left in [without(gone, endpoints), slice(0, 0..endpoints)] {
                let (elements, user, kernel) = benches[place].update_all(vec![left]);
                for (samples, sample) in samples[place].iter_mut().zip([elements, user, kernel]) {
                    samples.push(sample);
                }
            }
        }
    }
    for (scheduler, samples) in schedulers.into_iter().zip(samples) {
        let [elements, user, kernel] = samples.map(spread);
        println!("| `{scheduler}`, {endpoints} endpoints | {elements} | {user} | {kernel} |");
    }
}

/// The slice of service 0 with one endpoint less.
fn without(gone: u32, endpoints: u32) -> Event {
    let mut left = slice(0, 0..endpoints);
    if let Event::EndpointSlice(Change::Is(slice)) = &mut left {
        let all: Vec<_> = slice.endpoints.iter().map(|it| Endpoint::ready(it.address)).collect();
        let kept = all.into_iter().enumerate().filter(|(i, _)| *i != gone as usize);
        slice.endpoints = kept.map(|(_, endpoint)| endpoint).collect();
    }
    left
}

/// Kernel times of the same updates with each setting of the option `counters`, in turns.
fn compare_counters(services: u32, rounds: u32) {
    let load = |counters| {
        let routing = Routing { counters, ..Routing::default() };
        Namespace::new().run(|| Bench::load(services, routing))
    };
    let mut benches = Counters::ALL.map(load);
    let mut samples = Counters::ALL.map(|_| [Vec::new(), Vec::new()]);
    for round in 0..rounds {
        let number = round * UNUSUAL_EACH % services + PLAIN;
        for turn in 0..benches.len() {
            let place = (turn + round as usize) % benches.len();
            let (bench, [added, class]) = (&mut benches[place], &mut samples[place]);
            // Sizes of 9 and 10 are of one class; below 9 each size is one of its own.
            bench.update(vec![slice(number, 0..9)]);
            added.push(bench.update(vec![slice(number, 0..10)]).1);
            bench.update(vec![slice(number, 0..4)]);
            let down = bench.update(vec![slice(number, 0..3)]).1;
            class.push(down + bench.update(vec![slice(number, 0..4)]).1);
            bench.update(vec![slice(number, 0..ENDPOINTS)]);
        }
    }
    for (counters, [added, class]) in Counters::ALL.into_iter().zip(samples) {
        let (added, class) = (spread(added), spread(class));
        println!("| {counters}, {services} services | {added} | {class} |");
    }
}

/// What services without ranges and affinity cost beside others, and what those with affinity do.
fn measure(services: u32, rounds: u32) {
    let mut bench = Bench::load(services, Routing::default());
    for (what, first) in [("plain", PLAIN), ("with affinity", STICKY)] {
        let mut samples = Vec::new();
        for round in 0..rounds {
            let number = round * UNUSUAL_EACH % services + first;
            samples.push(bench.update(vec![slice(number, 0..ENDPOINTS + 1)]));
            bench.update(vec![slice(number, 0..ENDPOINTS)]);
        }
        let (user, kernel): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
        let (user, kernel) = (spread(user), spread(kernel));
        println!("| {what}: one endpoint added, {services} services | {user} | {kernel} |");
    }
}

/// Of each [`UNUSUAL_EACH`] services the first has source ranges.
const PLAIN: u32 = 1;
const STICKY: u32 = 2;

struct Bench {
    engine: Engine,
    kernel: Nftables,
}

impl Bench {
    fn load(services: u32, routing: Routing) -> Self {
        let mut kernel = Nftables::open().unwrap();
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.apply([Event::Relist(Resource::Services), Event::Relist(Resource::EndpointSlices)]);
        for number in 0..services {
            engine.apply([service(number), slice(number, 0..ENDPOINTS)]);
        }
        engine.apply(Resource::ALL.map(Event::Listed));
        let found = read_back(&mut kernel, engine.tables().layouts()).unwrap();
        engine.replace_installed_state(found);
        assert!(matches!(commit_all(&mut engine, &mut kernel, &mut |_, _| ()), Ok(None)));
        Self { engine, kernel }
    }

    /// Microseconds in user space and in the kernel.
    fn update(&mut self, events: Vec<Event>) -> (f64, f64) {
        let start = Instant::now();
        self.engine.apply(events);
        let transaction = self.engine.next_transaction(self.kernel.max_batch()).unwrap();
        let batch = transaction.encode(1, Acknowledge::BatchEnd).unwrap();
        let user = start.elapsed();
        std::hint::black_box(batch);
        let committed = self.kernel.commit(&transaction).unwrap();
        self.engine.committed(committed.kernel_time);
        (micros(user), micros(committed.kernel_time))
    }

    /// How many elements are added, in as many transactions as it takes, and microseconds in user
    /// space and in the kernel.
    fn update_all(&mut self, events: Vec<Event>) -> (f64, f64, f64) {
        let start = Instant::now();
        self.engine.apply(events);
        let (mut elements, mut kernel) = (0, Duration::ZERO);
        while let Some(transaction) = self.engine.next_transaction(self.kernel.max_batch()) {
            let committed = self.kernel.commit(&transaction).unwrap();
            self.engine.committed(committed.kernel_time);
            kernel += committed.kernel_time;
            let operations = transaction.operations.iter();
            let added = operations.filter(|it| matches!(it, Operation::AddElements(..)));
            elements += added.filter_map(Operation::elements).map(<[_]>::len).sum::<usize>();
        }
        (elements as f64, micros(start.elapsed().saturating_sub(kernel)), micros(kernel))
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn spread(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    let at = |percent: usize| samples[(samples.len() * percent / 100).min(samples.len() - 1)];
    format!("{:.1} / {:.1} / {:.1}", at(50), at(99), at(100))
}

fn name(number: u32) -> ObjectName {
    ObjectName::namespaced("bench", &format!("service-{number}"))
}

/// Some services have an address that three ranges of sources may use, some remember clients.
fn service(number: u32) -> Event {
    let mut service = plain(number);
    if number % UNUSUAL_EACH == STICKY {
        service.session_affinity = Some(Duration::from_secs(10_800));
    }
    if number.is_multiple_of(UNUSUAL_EACH) {
        service.load_balancer_ips = vec![Ipv4Addr::from(0xc612_0000 + number).into()];
        let ranges = [0xc000_0200_u32, 0xc633_6400, 0xcb00_7100].map(Ipv4Addr::from);
        service.source_ranges = ranges.map(|first| format!("{first}/24").parse().unwrap()).into();
    }
    Event::Service(Change::Is(service))
}

fn plain(number: u32) -> Service {
    let cluster_ip = Ipv4Addr::from(0x0a60_0000 + number).into();
    Service {
        ports: vec![ServicePort::tcp("http", NonZeroU16::new(80).unwrap())],
        ..Service::new(name(number), vec![cluster_ip])
    }
}

fn slice(service: u32, endpoints: std::ops::Range<u32>) -> Event {
    let endpoint =
        |i| Endpoint::ready(IpAddr::from(Ipv4Addr::from(0x0b00_0000 + service * 16 + i)));
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name(service),
        service: name(service),
        ports: [EndpointPort::tcp("http", NonZeroU16::new(8080).unwrap())].into(),
        endpoints: endpoints.map(endpoint).collect(),
        triggered: None,
        weighing: None,
    }))
}
