//! What an update costs, at three sizes of cluster: `make bench` prints the README's table.
//!
//! Each size has a network namespace and an engine of its own. User space is the time from an
//! event to the encoded batch; kernel is the time in the system call that commits it. A last table
//! is about services beside others that ask for more.
//!
//! `SERVICES=1000,50000` chooses the sizes, `ROUNDS` how often each update is made.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use deltaproxy::config::Routing;
use deltaproxy::engine::{Engine, read_back};
use deltaproxy::kernel::{Kernel, Nftables};
use deltaproxy::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Protocol,
    Resource, Service, ServicePort,
};
use deltaproxy::nft::{Acknowledge, TableFlags};
use netlink_tests::Namespace;

const ENDPOINTS: u32 = 5;

/// One in so many services has source ranges, where some do.
const RESTRICTED_EACH: u32 = 10;

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let sizes = std::env::var("SERVICES").unwrap_or_else(|_| "1000,10000,50000".to_owned());
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    println!(
        "Linux {}, {} CPUs, {ENDPOINTS} endpoints a service, {rounds} rounds; p50 / p99 / max in µs\n",
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim(),
        std::thread::available_parallelism().unwrap(),
    );
    for size in sizes.split(',') {
        let services: u32 = size.parse().unwrap();
        Namespace::new().run(|| measure(services, rounds));
    }
    println!("| every {RESTRICTED_EACH}th service has source ranges | user space | kernel |");
    println!("|---|---|---|");
    for services in [100, 20_000] {
        Namespace::new().run(|| measure_beside_ranges(services, rounds));
    }
}

fn measure(services: u32, rounds: u32) {
    let before = resident_bytes();
    let mut bench = Bench::load(services, service);
    println!("| {services} services | user space | kernel |\n|---|---|---|");
    println!("| everything into an empty table | {:.2} s | {:.2} s |", bench.user, bench.kernel);
    let mut random = 1u32;
    let mut pick = move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % services
    };
    let mut rows = [const { Vec::new() }; 5];
    for round in 0..rounds {
        let (one, other, new) = (pick(), pick(), services + round);
        rows[0].push(bench.update(vec![slice(one, 0..ENDPOINTS + 1)]));
        rows[1].push(bench.update(vec![slice(one, 0..ENDPOINTS)]));
        rows[2].push(bench.update(vec![slice(other, 1..ENDPOINTS + 1)]));
        bench.update(vec![slice(other, 0..ENDPOINTS)]);
        rows[3].push(bench.update(vec![service(new), slice(new, 0..ENDPOINTS)]));
        let gone = vec![
            Event::Service(Change::Gone(name(new))),
            Event::EndpointSlice(Change::Gone(name(new))),
        ];
        rows[4].push(bench.update(gone));
    }
    let names = [
        "one endpoint added",
        "one endpoint removed",
        "one endpoint replaced",
        "one service added",
        "one service removed",
    ];
    for (name, row) in names.iter().zip(rows) {
        let (user, kernel): (Vec<_>, Vec<_>) = row.into_iter().unzip();
        println!("| {name} | {} | {} |", spread(user), spread(kernel));
    }
    let taken = (bench.resident - before) / u64::from(services);
    println!("| resident memory | {} MB | |", bench.resident >> 20);
    println!("| of it a service with its endpoints | {taken} bytes | |\n");
}

/// What a service without ranges costs beside others that have them.
fn measure_beside_ranges(services: u32, rounds: u32) {
    let mut bench = Bench::load(services, sometimes_restricted);
    let mut samples = Vec::new();
    for round in 0..rounds {
        let plain = round * RESTRICTED_EACH % services + 1;
        samples.push(bench.update(vec![slice(plain, 0..ENDPOINTS + 1)]));
        bench.update(vec![slice(plain, 0..ENDPOINTS)]);
    }
    let (user, kernel): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
    let (user, kernel) = (spread(user), spread(kernel));
    println!("| one endpoint added, {services} services | {user} | {kernel} |");
}

struct Bench {
    engine: Engine,
    kernel_handle: Nftables,
    user: f64,
    kernel: f64,
    resident: u64,
}

impl Bench {
    fn load(services: u32, service: impl Fn(u32) -> Event) -> Self {
        let mut kernel = Nftables::open().unwrap();
        let mut engine = Engine::new(Routing::default(), TableFlags::default());
        let start = Instant::now();
        engine.apply([Event::Relist(Resource::Services), Event::Relist(Resource::EndpointSlices)]);
        for number in 0..services {
            engine.apply([service(number), slice(number, 0..ENDPOINTS)]);
        }
        engine.apply(
            [Resource::Services, Resource::EndpointSlices, Resource::Nodes].map(Event::Listed),
        );
        let found = read_back(&mut kernel, engine.layouts()).unwrap();
        engine.observe(found);
        let mut in_kernel = Duration::ZERO;
        while let Some(step) = engine.next_step(kernel.max_batch()) {
            in_kernel += kernel.commit(&step.transaction).unwrap().kernel_time;
            engine.committed(step);
        }
        let user = (start.elapsed() - in_kernel).as_secs_f64();
        let resident = resident_bytes();
        let kernel_seconds = in_kernel.as_secs_f64();
        Self { engine, kernel_handle: kernel, user, kernel: kernel_seconds, resident }
    }

    /// Microseconds in user space and in the kernel.
    fn update(&mut self, events: Vec<Event>) -> (f64, f64) {
        let start = Instant::now();
        self.engine.apply(events);
        let step = self.engine.next_step(self.kernel_handle.max_batch()).unwrap();
        let batch = step.transaction.encode(1, Acknowledge::BatchEnd).unwrap();
        let user = start.elapsed();
        std::hint::black_box(batch);
        let committed = self.kernel_handle.commit(&step.transaction).unwrap();
        self.engine.committed(step);
        (micros(user), micros(committed.kernel_time))
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn spread(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    let at = |percent: usize| samples[(samples.len() * percent / 100).min(samples.len() - 1)];
    format!("{:.0} / {:.0} / {:.0}", at(50), at(99), at(100))
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn name(number: u32) -> ObjectName {
    ObjectName::namespaced("bench", &format!("service-{number}"))
}

fn service(number: u32) -> Event {
    Event::Service(Change::Is(plain(number)))
}

/// Some services have an address that three ranges of sources may use.
fn sometimes_restricted(number: u32) -> Event {
    let mut service = plain(number);
    if number.is_multiple_of(RESTRICTED_EACH) {
        service.load_balancer_ips = vec![Ipv4Addr::from(0xc612_0000 + number).into()];
        let ranges = [0xc000_0200_u32, 0xc633_6400, 0xcb00_7100].map(Ipv4Addr::from);
        service.source_ranges = ranges.map(|first| (first.into(), 24)).into();
    }
    Event::Service(Change::Is(service))
}

fn plain(number: u32) -> Service {
    let cluster_ip = Ipv4Addr::from(0x0a60_0000 + number).into();
    Service {
        ports: vec![ServicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: NonZeroU16::new(80).unwrap(),
            node_port: None,
        }],
        ..Service::new(name(number), vec![cluster_ip])
    }
}

fn slice(service: u32, endpoints: std::ops::Range<u32>) -> Event {
    let endpoint = |i| Endpoint {
        address: IpAddr::from(Ipv4Addr::from(0x0b00_0000 + service * 8 + i)),
        conditions: Conditions { ready: true, serving: true, ..Conditions::default() },
        zones: None,
    };
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name(service),
        service: name(service),
        ports: vec![EndpointPort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: NonZeroU16::new(8080).unwrap(),
        }],
        endpoints: endpoints.map(endpoint).collect(),
    }))
}
