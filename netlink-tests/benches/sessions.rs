//! What the first packet of a connection costs with session affinity, by the number of endpoints.
//!
//! All is on the loopback device: clients, services and endpoints have addresses of 127.0.0.0/8,
//! and one socket serves every endpoint. Sending a datagram includes its whole way through the
//! tables and to that socket. Each flow is a new one; `new` clients have an address that was not
//! used before, `known` ones one that the tables remember. Kinds take turns, so what else the
//! machine does concerns all of them. `ROUNDS` says how many flows of each kind there are.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use daemon::converge::commit_all;
use engine::Engine;
use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Protocol, Resource, Service,
    ServicePort,
};
use engine::routing::Routing;
use netlink_tests::Net;
use nft::TableFlags;
use nft::kernel::Nftables;

const ENDPOINT_PORT: u16 = 8080;
const SERVICE_PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();

/// Endpoints of each service, and whether it has affinity.
const SERVICES: [(u32, bool); 6] =
    [(3, false), (300, false), (3_000, false), (3, true), (300, true), (3_000, true)];

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    let net = Net::new();
    net.node().run(|| measure(rounds));
}

/// A kind of flow: the service, if it goes through one, and whether its client is a new one.
type Kind = (Option<usize>, bool);

fn measure(rounds: u32) {
    load();
    let server = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ENDPOINT_PORT)).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let through = (0..SERVICES.len()).flat_map(|i| [(Some(i), true), (Some(i), false)]);
    let kinds: Vec<Kind> = [(None, true)].into_iter().chain(through).collect();
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); kinds.len()];
    let mut clients = (0x7f20_0000u32..).map(Ipv4Addr::from);
    for _ in 0..rounds {
        for (kind, samples) in kinds.iter().zip(&mut samples) {
            let client = if kind.1 { clients.next().unwrap() } else { Ipv4Addr::LOCALHOST };
            samples.push(send(&server, client, destination(kind.0)));
        }
    }
    println!("| first packet of a flow | client | median, us | 99 of 100, us |");
    println!("|---|---|---|---|");
    for (kind, samples) in kinds.iter().zip(samples) {
        println!("| {} | {} |", name(*kind), spread(samples));
    }
}

fn name((service, is_new): Kind) -> String {
    let client = if is_new { "new" } else { "known" };
    match service.map(|i| SERVICES[i]) {
        None => format!("without a service | {client}"),
        Some((count, false)) => format!("service of {count} endpoints | {client}"),
        Some((count, true)) => format!("service of {count} endpoints, affinity | {client}"),
    }
}

fn spread(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    let at = |percent: usize| samples[samples.len() * percent / 100];
    format!("{:.2} | {:.2}", at(50), at(99))
}

fn destination(service: Option<usize>) -> SocketAddrV4 {
    match service {
        Some(i) => SocketAddrV4::new(address_of(i), SERVICE_PORT.get()),
        None => SocketAddrV4::new(Ipv4Addr::new(127, 16, 0, 1), ENDPOINT_PORT),
    }
}

fn address_of(service: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 96, 0, u8::try_from(service + 1).unwrap())
}

/// Microseconds for the first packet of a new flow.
fn send(server: &UdpSocket, client: Ipv4Addr, to: SocketAddrV4) -> f64 {
    let client = UdpSocket::bind((client, 0)).unwrap();
    let start = Instant::now();
    client.send_to(b"bench", to).unwrap();
    let took = start.elapsed();
    let length = server.recv(&mut [0; 16]).unwrap();
    assert_eq!(length, 5);
    took.as_secs_f64() * 1e6
}

fn load() {
    let mut kernel = Nftables::open().unwrap();
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    engine.apply([Event::Relist(Resource::Services), Event::Relist(Resource::EndpointSlices)]);
    for (i, (count, sticky)) in SERVICES.into_iter().enumerate() {
        engine.apply(service(i, count, sticky));
    }
    engine.apply(Resource::ALL.map(Event::Listed));
    assert!(matches!(commit_all(&mut engine, &mut kernel, &mut |_, _| ()), Ok(None)));
}

fn service(i: usize, count: u32, sticky: bool) -> [Event; 2] {
    let name = ObjectName::namespaced("bench", &format!("service-{i}"));
    let port = ServicePort { protocol: Protocol::Udp, ..ServicePort::tcp("dns", SERVICE_PORT) };
    let service = Service {
        ports: vec![port],
        session_affinity: sticky.then_some(Duration::from_secs(10_800)),
        ..Service::new(name.clone(), vec![address_of(i).into()])
    };
    let endpoint = |n| Endpoint::ready(IpAddr::from(Ipv4Addr::from(0x7f10_0001 + n)));
    let target = NonZeroU16::new(ENDPOINT_PORT).unwrap();
    let slice = EndpointSlice {
        name: name.clone(),
        service: name,
        ports: [EndpointPort { protocol: Protocol::Udp, ..EndpointPort::tcp("dns", target) }]
            .into(),
        endpoints: (0..count).map(endpoint).collect(),
        triggered: None,
        weighing: None,
    };
    [Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
}
