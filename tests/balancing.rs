//! Scheduler lc on the fake kernel: which services change, by how much, and what a restart finds.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod tables;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use daemon::read_back::read_back;
use engine::Engine;
use engine::model::{
    Adjusted, Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName,
    PortRange, Resource, Scheduler, Service, ServicePort, Weighing,
};
use engine::routing::{LeastConnections, Routing};
use fake_kernel::Fake;
use nft::kernel::Kernel;
use nft::{Family, TableFlags};
use tables::{Table, contents, settle};

/// A daemon with its kernel.
struct Daemon {
    engine: Engine,
    kernel: Fake,
    changes: u32,
}

fn engine(changes_per_second: u32) -> Engine {
    let interval = Duration::from_secs(1);
    let least_connections = Some(LeastConnections { interval, changes_per_second });
    Engine::new(Routing { least_connections, ..Routing::default() }, TableFlags::default())
}

impl Daemon {
    fn start(changes: u32, events: Vec<Event>) -> Self {
        let (engine, kernel) = (engine(changes), Fake::new());
        let mut daemon = Self { engine, kernel, changes };
        daemon.apply(events);
        daemon
    }

    fn apply(&mut self, events: Vec<Event>) {
        self.engine.apply(events);
        settle(&mut self.engine, &mut self.kernel, usize::MAX);
    }

    /// Adjusts weights to so many connections of each endpoint, by the last byte of its address.
    /// Returns what changed, and the number of operations that were sent.
    fn balance(&mut self, connections: impl Fn(u8) -> u32) -> (Adjusted, usize) {
        let mut live = self.engine.cluster().to_be_balanced();
        for ((_, target), count) in &mut live.endpoints {
            *count = connections(last_byte(target.address));
        }
        let adjusted = self.engine.balance(&live);
        let mut operations = 0;
        while let Some(transaction) = self.engine.next_transaction(usize::MAX) {
            self.kernel.commit(&transaction).expect("the kernel accepts every transaction");
            self.engine.committed(Duration::ZERO);
            operations += transaction.operations.len();
        }
        (adjusted, operations)
    }

    /// Adjusts weights several times to the same connections.
    fn balance_often(&mut self, times: usize, connections: impl Fn(u8) -> u32) {
        for _ in 0..times {
            self.balance(&connections);
        }
    }

    /// Another daemon takes over. It gets the events before it reads the tables.
    fn restart(&mut self, events: Vec<Event>) {
        self.engine = engine(self.changes);
        self.engine.apply(events);
        let found = read_back(&mut self.kernel, self.engine.tables().layouts()).unwrap();
        self.engine.replace_installed_state(found);
    }

    /// The slots of each endpoint of a service, by the last byte of its address.
    fn slots(&mut self, service: u8) -> BTreeMap<u8, usize> {
        self.slots_of(&format!("default/web-{service}:http lc"))
    }

    fn slots_of(&mut self, label: &str) -> BTreeMap<u8, usize> {
        let table = Table::read(&mut self.kernel, Family::Ip).expect("a table");
        let mut routes = table.routes.values().filter(|(_, it)| it.as_deref() == Some(label));
        let (route, _) = routes.next().expect("a route of the service");
        let mut slots = BTreeMap::new();
        for (_, target) in table.slots_of(route.list().unwrap()).unwrap().into_values() {
            *slots.entry(last_byte(target.address)).or_default() += 1;
        }
        slots
    }
}

fn last_byte(address: IpAddr) -> u8 {
    let IpAddr::V4(address) = address else { panic!("{address} is of IPv6") };
    address.octets()[3]
}

fn name(number: u8) -> ObjectName {
    ObjectName::namespaced("default", &format!("web-{number}"))
}

fn service(number: u8, scheduler: Scheduler) -> Event {
    Event::Service(Change::Is(Service {
        ports: vec![ServicePort::tcp("http", NonZeroU16::new(80).unwrap())],
        scheduler: Some(scheduler),
        ..Service::new(name(number), vec![[10, 96, 0, number].into()])
    }))
}

fn slice(number: u8, endpoints: &[u8]) -> Event {
    let endpoint = |last: &u8| Endpoint {
        address: IpAddr::from([10, 244, number, *last]),
        conditions: Conditions::READY,
        zones: None,
    };
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name(number),
        service: name(number),
        ports: [EndpointPort::tcp("http", NonZeroU16::new(8080).unwrap())].into(),
        endpoints: endpoints.iter().map(endpoint).collect(),
        triggered: None,
        weighing: None,
    }))
}

fn balanced(number: u8, endpoints: &[u8]) -> Vec<Event> {
    let service = service(number, Scheduler::LeastConnections);
    vec![service, slice(number, endpoints)]
}

/// All lists are complete.
fn listed() -> impl Iterator<Item = Event> {
    Resource::ALL.into_iter().map(Event::Listed)
}

#[test]
fn without_connections_nothing_is_sent_and_each_endpoint_has_one_slot() {
    let mut daemon = Daemon::start(1_000, balanced(1, &[1, 2, 3]));
    for connections in [0, 50] {
        for _ in 0..5 {
            let idle = (Adjusted { services: 1, slots: 0 }, 0);
            assert_eq!(daemon.balance(|_| connections), idle);
        }
    }
    assert_eq!(daemon.slots(1), BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
    let mut none = Daemon::start(1_000, vec![service(1, Scheduler::Random)]);
    assert!(!none.engine.cluster().has_balanced_services());
    assert_eq!(none.balance(|_| 9), (Adjusted::default(), 0));
}

#[test]
fn only_services_with_the_scheduler_follow_connections_and_settle() {
    let mut events = balanced(1, &[1, 2, 3]);
    events.extend([service(2, Scheduler::Random), slice(2, &[1, 2, 3])]);
    let mut daemon = Daemon::start(1_000, events);
    let of_others = |daemon: &mut Daemon| {
        let mut texts = contents(&mut daemon.kernel);
        texts.retain(|_, value| !value.contains("web-1"));
        texts
    };
    let before = of_others(&mut daemon);
    let crowded = |last| if last == 1 { 60 } else { 0 };
    let (adjusted, operations) = daemon.balance(crowded);
    assert!(adjusted.services == 1 && operations > 0, "{adjusted:?}");
    for _ in 0..20 {
        daemon.balance(crowded);
    }
    assert_eq!(daemon.slots(1), BTreeMap::from([(1, 1), (2, 12), (3, 11)]));
    assert_eq!(daemon.balance(crowded).1, 0);
    assert_eq!(of_others(&mut daemon), before);
    // Once they end, the list is as before.
    daemon.balance_often(20, |_| 0);
    assert_eq!(daemon.slots(1), BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
}

#[test]
fn port_ranges_stay_random_and_demand_no_slots() {
    let Event::Service(Change::Is(of_port)) = service(1, Scheduler::LeastConnections) else {
        unreachable!()
    };
    let port_ranges = PortRange::parse_list("tcp/5000-5003").unwrap();
    let with_ranges = Event::Service(Change::Is(Service { port_ranges, ..of_port }));
    let mut daemon = Daemon::start(1_000, balanced(1, &[1, 2, 3]));
    let demanded = daemon.engine.slots_in_use().requested;
    daemon.apply(vec![with_ranges]);
    daemon.balance_often(20, |last| if last == 1 { 60 } else { 0 });
    assert_eq!(daemon.slots(1), BTreeMap::from([(1, 1), (2, 12), (3, 11)]));
    assert_eq!(daemon.slots_of("default/web-1:*"), BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
    assert_eq!(daemon.engine.slots_in_use().requested, demanded);
}

/// A slice whose endpoints have a weight.
fn weighted(weight: u16, endpoints: &[u8]) -> Event {
    let Event::EndpointSlice(Change::Is(slice)) = slice(1, endpoints) else { unreachable!() };
    let weighing = Weighing { weight: Some(weight), ..Weighing::default() };
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: ObjectName::namespaced("default", &format!("web-of-{weight}")),
        weighing: Some(Box::new(weighing)),
        ..slice
    }))
}

#[test]
fn weights_of_annotations_multiply_with_those_of_connections_and_0_stays_0() {
    let service = service(1, Scheduler::LeastConnections);
    let mut daemon = Daemon::start(1_000, vec![service, weighted(3, &[1]), weighted(1, &[2])]);
    // A weight of three bears three times the connections.
    daemon.balance_often(20, |last| if last == 1 { 90 } else { 30 });
    assert_eq!(daemon.slots(1), BTreeMap::from([(1, 3), (2, 1)]));
    daemon.balance_often(20, |_| 60);
    assert_eq!(daemon.slots(1), BTreeMap::from([(1, 21), (2, 1)]));
    daemon.apply(vec![weighted(0, &[3])]);
    daemon.balance_often(20, |last| if last == 3 { 0 } else { 60 });
    assert!(!daemon.slots(1).contains_key(&3), "{:?}", daemon.slots(1));
}

#[test]
fn changes_are_limited_over_all_services_and_each_has_its_turn() {
    let services = 1..=8u8;
    let events = services.clone().flat_map(|number| balanced(number, &[1, 2, 3, 4]));
    let mut daemon = Daemon::start(1, events.collect());
    let even = BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 1)]);
    let mut crowded = 1;
    let (mut looks, mut changed, mut waiting) = (0, 0, services.collect::<Vec<_>>());
    while !waiting.is_empty() {
        // Every service has something to change after every count.
        let (adjusted, _) = daemon.balance(|last| if last == crowded { 100 } else { 0 });
        crowded = if adjusted.services == 0 { crowded } else { 3 - crowded };
        (looks, changed) = (looks + 1, changed + adjusted.slots);
        // A service that leaves even shares changes all its slots at once.
        assert!(changed <= looks + 4 * 7, "{changed} in {looks} looks");
        assert!(looks < 1_000, "services never had their turn: {waiting:?}");
        waiting.retain(|number| daemon.slots(*number) == even);
    }
}

#[test]
fn a_restart_and_a_comparison_find_the_weights_as_they_are() {
    let objects = || balanced(1, &[1, 2, 3]).into_iter().chain(listed()).collect::<Vec<_>>();
    let mut daemon = Daemon::start(1_000, objects());
    daemon.balance_often(3, |last| u32::from(last) * 30);
    let slots = daemon.slots(1);
    assert!(slots[&1] > slots[&3], "{slots:?}");
    daemon.restart(objects());
    assert!(daemon.engine.next_transaction(usize::MAX).is_none());
    assert_eq!(daemon.slots(1), slots);
    // It goes on from there.
    settle(&mut daemon.engine, &mut daemon.kernel, usize::MAX);
    daemon.balance_often(20, |_| 0);
    assert_eq!(daemon.slots(1), BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
}

#[test]
fn changes_of_objects_and_adjustments_lead_to_the_same_tables_in_any_order() {
    let load = |last: u8| u32::from(last) * 20;
    let run = |adjusts_first: bool| {
        let mut daemon = Daemon::start(1_000, balanced(1, &[1, 2, 3]));
        for endpoints in [&[1, 2, 3, 4][..], &[1, 3, 4], &[5, 4, 3, 1]] {
            if adjusts_first {
                daemon.balance(load);
            }
            daemon.apply(vec![slice(1, endpoints)]);
        }
        daemon.balance_often(30, load);
        // Even ones have no memory.
        daemon.balance_often(30, |_| 7);
        contents(&mut daemon.kernel)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn counts_of_endpoints_and_services_that_are_gone_do_no_harm() {
    let mut daemon = Daemon::start(1_000, balanced(1, &[1, 2, 3]));
    let mut late = daemon.engine.cluster().to_be_balanced();
    late.endpoints.values_mut().for_each(|count| *count = 100);
    daemon.apply(vec![slice(1, &[7, 8])]);
    daemon.engine.balance(&late);
    settle(&mut daemon.engine, &mut daemon.kernel, usize::MAX);
    assert_eq!(daemon.slots(1), BTreeMap::from([(7, 1), (8, 1)]));
    daemon.apply(vec![Event::Service(Change::Gone(name(1)))]);
    assert_eq!(daemon.engine.balance(&late), Adjusted::default());
    assert!(!daemon.engine.cluster().has_balanced_services());
}

#[test]
fn where_it_is_off_the_service_is_random_and_a_problem_says_how_to_turn_it_on() {
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    engine.apply(balanced(1, &[1, 2]));
    settle(&mut engine, &mut Fake::new(), usize::MAX);
    assert!(!engine.cluster().has_balanced_services());
    let problems = engine.take_problems();
    let expected = "Service default/web-1: metadata.annotations[deltaproxy.io/scheduler]: scheduler \
                    lc is off on this node; random is used. deltaproxy.leastConnections.interval, \
                    or --least-connections, turns it on";
    assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    let random = Scheduler::Random.place();
    assert_eq!(engine.diff().services_by_scheduler()[random], 1);
}
