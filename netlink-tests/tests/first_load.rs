//! A large first load reaches the kernel in pieces, and the services of each work at once.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use daemon::read_back::read_back;
use engine::Engine;
use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Resource, Service,
    ServicePort,
};
use engine::routing::Routing;
use netlink_tests::{Answer, Net};
use nft::kernel::{Kernel, Nftables};
use nft::{Element, Operation, TableFlags, Transaction};

/// As many as fill several pieces, whatever the kernel's time.
const SERVICES: u32 = 6_000;

const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 5);

#[test]
fn services_are_served_as_soon_as_their_piece_is_in_the_kernel() {
    let net = Net::new();
    let pod = net.pod("pod", &POD.to_string());
    let _server = pod.serve_tcp(8080, "pod");
    let outside = net.outside("outside", "192.0.2.10");
    let mut kernel = net.node().run(|| Nftables::open().unwrap());
    let mut engine = engine(&mut kernel);
    let mut waiting: BTreeSet<u32> = (0..SERVICES).collect();
    let mut pieces = 0;
    while let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
        let committed = kernel.commit(&transaction).unwrap();
        let new = services_of(&transaction);
        engine.committed(committed.kernel_time);
        pieces += 1;
        waiting.retain(|number| !new.contains(number));
        for number in new.first().into_iter().chain(new.last()) {
            let answer = outside.connect_tcp((cluster_ip(*number), 80));
            assert_eq!(answer.server(), "pod", "piece {pieces} is in the kernel");
        }
        if let Some(number) = waiting.first() {
            let answer = outside.connect_tcp((cluster_ip(*number), 80));
            assert!(!matches!(answer, Answer::From { .. }), "its piece is still to come");
        }
    }
    assert!(waiting.is_empty() && pieces >= 3, "{waiting:?} after {pieces} pieces");
}

/// An engine that has everything to send.
fn engine(kernel: &mut Nftables) -> Engine {
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    engine.apply((0..SERVICES).flat_map(|number| [service(number), slice(number)]));
    engine.apply(Resource::ALL.map(Event::Listed));
    let found = read_back(kernel, engine.tables().layouts()).unwrap();
    engine.replace_installed_state(found);
    engine
}

/// The services that get a route.
fn services_of(transaction: &Transaction) -> BTreeSet<u32> {
    let elements = transaction.operations.iter().filter_map(|operation| match operation {
        Operation::AddElements(_, set, elements) if set.name == "services" => Some(elements),
        _ => None,
    });
    let number = |element: &Element| {
        let address = element.key.as_bytes().first_chunk::<4>().unwrap();
        u32::from_be_bytes(*address) - u32::from(cluster_ip(0))
    };
    elements.flatten().map(number).collect()
}

fn cluster_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a60_0000 + number)
}

fn name(number: u32) -> ObjectName {
    ObjectName::namespaced("default", &format!("service-{number}"))
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn service(number: u32) -> Event {
    Event::Service(Change::Is(Service {
        ports: vec![ServicePort::tcp("http", port(80))],
        ..Service::new(name(number), vec![cluster_ip(number).into()])
    }))
}

fn slice(number: u32) -> Event {
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name(number),
        service: name(number),
        ports: [EndpointPort::tcp("http", port(8080))].into(),
        endpoints: [Endpoint::ready(IpAddr::from(POD))].into_iter().collect(),
        triggered: None,
        weighing: None,
    }))
}
