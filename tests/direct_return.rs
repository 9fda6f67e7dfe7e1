//! Direct return on the fake kernel: the elements of services and nodes through their changes, a
//! restart, and refusals.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // The first time of each test is any time.

mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::read_back::{Lists, read_direct_return as read, read_watching};
use engine::direct::ruleset::{Destination, DirectElement, DirectSet, NodeNumber, table};
use engine::direct::{Links, Reach, Unreachable, Unsuitable};
use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Event, Forwarding, Node, ObjectName, Peer,
    Problem, ProblemKind, Protocol, Resource, Service, ServicePort, Weighing,
};
use engine::routing::{DirectMode, DirectReturn, Routing};
use engine::{Answer, Cause, Engine, Refused, TableId};
use fake_kernel::{Fake, Mishap};
use nft::kernel::{CommitError, Kernel as _};
use nft::{Errno, Expression, Family, Operation, TableFlags, Transaction};
use proptest::prelude::*;

use crate::tables::contents_of_direct_return;

const REMEMBER: Duration = Duration::from_secs(300);
const PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();
const VIP: [u8; 4] = [203, 0, 113, 1];
const OTHER_VIP: [u8; 4] = [203, 0, 113, 9];

/// Node `n1` with direct return, on a fake kernel.
struct World {
    engine: Engine,
    kernel: Fake,
    /// What [`World::learn`] tells besides how nodes are reached.
    links: Links,
    start: Instant,
    passed: Duration,
}

impl World {
    fn new(mode: DirectMode) -> Self {
        let mut world = Self::with(mode, Fake::new());
        world.apply((2..=3).map(|n| peer(n, true)));
        world
    }

    /// Starts on what the kernel holds.
    fn with(mode: DirectMode, kernel: Fake) -> Self {
        Self::with_routing(Routing::default(), DirectReturn::new(mode), kernel)
    }

    fn with_routing(routing: Routing, settings: DirectReturn, kernel: Fake) -> Self {
        let direct_return = Some(DirectReturn { remember: REMEMBER, ..settings });
        let routing = Routing { direct_return, ..routing };
        let mut engine = Engine::new(routing, TableFlags::default());
        let start = Instant::now();
        engine.hand_packets_on(start);
        engine.apply([Event::Node(Change::Is(Node {
            name: ObjectName::cluster_scoped("n1"),
            zone: None,
            addresses: vec![node_address(1)],
            pod_cidrs: Vec::new(),
            leaving: false,
        }))]);
        Self { engine, kernel, links: Links::default(), start, passed: Duration::ZERO }
    }

    fn apply(&mut self, events: impl IntoIterator<Item = Event>) {
        self.engine.apply(events);
    }

    /// Ends the first lists, and commits on the tables that exist.
    fn begin(&mut self) {
        self.apply(Resource::ALL.map(Event::Listed));
        let layouts = Arc::clone(self.engine.tables().layouts());
        let reading = read_watching(&mut self.kernel, &layouts, (Lists::Now, &|| ())).unwrap();
        self.engine.replace_installed_state(reading.tables);
        self.commit();
    }

    fn read_direct(&mut self) {
        let found = read(&mut self.kernel).unwrap();
        self.engine.replace_direct_return(found);
    }

    /// Lets all nodes be on the link but for those of `unreachable`.
    fn learn(&mut self, unreachable: &[(u8, Unreachable)]) {
        let reach = (2..=9).map(|n| {
            let known = unreachable.iter().find(|(node, _)| *node == n);
            let on_link = Reach::OnLink { device: 7, hardware_address: [2, 0, 0, 0, 0, n] };
            (node_address(n), known.map_or(on_link, |(_, reason)| Reach::Not(*reason)))
        });
        let devices = vec!["eth0".into()];
        let links = Links { reach: reach.collect(), devices, ..self.links.clone() };
        if self.engine.learn_links(links) {
            self.read_direct();
        }
        // Unknown hardware addresses are awaited no longer.
        self.wait(Duration::from_secs(3));
    }

    /// Commits all that differs; returns the transactions.
    fn commit(&mut self) -> Vec<Transaction> {
        let mut transactions = Vec::new();
        while let Some(transaction) = self.engine.next_transaction(self.kernel.max_batch()) {
            let outcome = self.kernel.commit(&transaction);
            assert_eq!(self.engine.answer(&transaction, &outcome), Answer::Applied, "{outcome:?}");
            transactions.push(transaction);
        }
        transactions
    }

    /// Commits the next transaction; returns the cause of a refusal.
    fn commit_next(&mut self) -> Option<Cause> {
        let transaction = self.engine.next_transaction(self.kernel.max_batch()).unwrap();
        let outcome = self.kernel.commit(&transaction);
        match self.engine.answer(&transaction, &outcome) {
            Answer::Applied => None,
            Answer::ReadBack(cause) => {
                assert_eq!(self.engine.refused(&transaction, None), Some(Refused::DirectReturn));
                Some(cause)
            }
            Answer::Blocked(_) | Answer::Devices { .. } => panic!("{outcome:?}"),
        }
    }

    fn wait(&mut self, time: Duration) {
        self.passed += time;
        self.engine.note_time(self.start + self.passed);
        self.commit();
    }

    /// Waits until the first connections of new services are remembered.
    fn end_news(&mut self) {
        self.commit();
        self.wait(Duration::from_secs(1));
    }

    fn elements(&mut self) -> BTreeSet<DirectElement> {
        read(&mut self.kernel).unwrap().elements.into_iter().collect()
    }

    /// Returns the number of slots of each node in the list of the service, by the node's name.
    fn shares(&mut self) -> BTreeMap<String, usize> {
        let elements = self.elements();
        let names =
            (1..=9).map(|n| (format!("n{n}"), engine::direct::node_number(&format!("n{n}"))));
        let names: BTreeMap<NodeNumber, String> =
            names.map(|(name, number)| (number, name)).collect();
        let mut shares = BTreeMap::new();
        for element in elements {
            if let DirectElement::Slot(_, _, node) = element {
                *shares.entry(names[&node].clone()).or_default() += 1;
            }
        }
        shares
    }

    fn has_table(&mut self) -> bool {
        self.kernel.read_table(&table()).unwrap().is_some()
    }

    /// Returns whether packets to the service's address go to endpoints of this node alone.
    fn is_local(&mut self) -> bool {
        let rules = self.engine.cluster().service(&name("web")).unwrap();
        rules.is_handed(nft::Family::Ip)
    }

    fn problems(&mut self) -> Vec<Problem> {
        self.engine.take_problems()
    }
}

fn name(service: &str) -> ObjectName {
    ObjectName::namespaced("default", service)
}

fn node_address(n: u8) -> IpAddr {
    [192, 168, 0, n].into()
}

fn peer(n: u8, ready: bool) -> Event {
    let name = ObjectName::cluster_scoped(&format!("n{n}"));
    Event::Peer(Change::Is(Peer { name, addresses: vec![node_address(n)], ready }))
}

fn service(forwarding: Option<Forwarding>) -> Service {
    Service {
        load_balancer_ips: vec![VIP.into()],
        ports: vec![ServicePort::tcp("http", PORT)],
        forwarding,
        ..Service::new(name("web"), vec![[10, 96, 0, 1].into()])
    }
}

fn is(service: Service) -> Event {
    Event::Service(Change::Is(service))
}

/// Endpoints of `web`, one on each of these nodes.
fn endpoints(nodes: &[u8]) -> Event {
    endpoints_of(nodes, Protocol::Tcp)
}

fn endpoints_of(nodes: &[u8], protocol: Protocol) -> Event {
    let endpoint = |n: &u8| {
        let mut endpoint = Endpoint::ready([10, 244, *n, 1].into());
        endpoint.conditions.local = *n == 1;
        endpoint
    };
    let node = |n: &u8| Arc::new(Arc::from(format!("n{n}")));
    let weighing = Weighing { nodes: nodes.iter().map(node).collect(), ..Weighing::default() };
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name("web-1"),
        service: name("web"),
        ports: [EndpointPort { protocol, ..EndpointPort::tcp("http", PORT) }].into(),
        endpoints: nodes.iter().map(endpoint).collect(),
        triggered: None,
        weighing: Some(Box::new(weighing)),
    }))
}

fn shares(shares: &[(&str, usize)]) -> BTreeMap<String, usize> {
    shares.iter().map(|(node, slots)| ((*node).to_owned(), *slots)).collect()
}

#[test]
fn packets_of_a_new_service_are_spread_over_its_nodes_after_a_second() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    assert!(!world.has_table(), "without such a service there is no table");
    world.apply([is(service(None)), endpoints(&[1, 2, 3])]);
    world.commit();
    assert_eq!(world.shares(), shares(&[("n1", 251)]), "table kube-proxy had it first");
    world.end_news();
    assert_eq!(world.shares(), shares(&[("n1", 84), ("n2", 83), ("n3", 84)]));
    assert!(world.is_local());
    let elements = world.elements();
    let destination = Destination { address: VIP.into(), protocol: Protocol::Tcp, port: PORT };
    assert!(elements.contains(&DirectElement::Address(VIP.into())));
    let has_route =
        |it: &DirectElement| matches!(it, DirectElement::Frontend(at, _) if *at == destination);
    assert!(elements.iter().any(has_route));
    let addresses = elements.iter().filter(|it| matches!(it, DirectElement::NodeAddress(..)));
    assert_eq!(addresses.count(), 2, "this node has no address there");
}

#[test]
fn connections_of_a_live_service_are_learned_before_others_are_handed_on() {
    let mut world = World::new(DirectMode::Annotated);
    world.apply([is(service(None)), endpoints(&[1, 2, 3])]);
    world.begin();
    world.learn(&[]);
    assert!(!world.has_table());
    world.apply([is(service(Some(Forwarding::Direct)))]);
    world.commit();
    assert_eq!(world.shares(), shares(&[("n1", 251)]));
    assert!(!world.is_local(), "packets are translated as before");
    world.wait(REMEMBER - Duration::from_secs(1));
    assert_eq!(world.shares(), shares(&[("n1", 251)]));
    world.wait(Duration::from_secs(1));
    assert_eq!(world.shares(), shares(&[("n1", 84), ("n2", 83), ("n3", 84)]));
    assert!(world.is_local());
}

#[test]
fn a_service_that_leaves_hands_known_connections_on_for_a_while() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[2, 3])]);
    world.end_news();
    let list = |world: &mut World| {
        let elements = world.elements();
        let slot = elements.iter().find(|it| matches!(it, DirectElement::Slot(..))).copied();
        let Some(DirectElement::Slot(list, ..)) = slot else { panic!("there is no list") };
        list
    };
    let before = list(&mut world);
    world.apply([is(service(Some(Forwarding::Translate)))]);
    world.commit();
    assert_eq!(world.shares(), shares(&[("n1", 251)]), "new connections stay");
    assert_eq!(list(&mut world), before, "connections are remembered under its number");
    assert!(!world.is_local());
    world.wait(REMEMBER);
    assert!(!world.has_table());
}

#[test]
fn a_node_that_is_not_ready_leaves_at_once_and_others_keep_most_clients() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[1, 2, 3])]);
    world.end_news();
    let before = world.elements();
    world.apply([peer(2, false)]);
    let first = world.commit().remove(0);
    let gone = DirectElement::NodeAddress(engine::direct::node_number("n2"), node_address(2));
    let deletes_it = |operation: &Operation| {
        let Operation::DeleteElements(_, set, elements) = operation else { return false };
        *set.name == *DirectSet::NodeAddresses(Family::Ip).name()
            && elements.contains(&gone.to_key())
    };
    assert!(first.operations.iter().any(deletes_it), "{first}");
    assert_eq!(world.shares(), shares(&[("n1", 126), ("n3", 125)]));
    let after = world.elements();
    let guard = DirectElement::HardwareAddress([2, 0, 0, 0, 0, 2]);
    assert!(after.contains(&guard), "it may still hand packets on");
    let kept = |it: &&DirectElement| matches!(it, DirectElement::Slot(..)) && after.contains(it);
    assert!(before.iter().filter(kept).count() >= 150);
}

#[test]
fn an_endpoint_without_a_reachable_node_is_left_out_or_stops_direct_return() {
    for (reason, expected) in [
        (Unreachable::Failed, Some(shares(&[("n1", 251)]))),
        (Unreachable::HardwareAddressUnknown, Some(shares(&[("n1", 251)]))),
        (Unreachable::NotOnLink, None),
        (Unreachable::OtherDevice, None),
    ] {
        let mut world = World::new(DirectMode::LoadBalancers);
        world.begin();
        world.learn(&[(2, reason)]);
        world.problems();
        world.apply([is(service(None)), endpoints(&[1, 2])]);
        world.commit();
        let problems = world.problems();
        match expected {
            Some(expected) => {
                assert_eq!(world.shares(), expected, "{reason:?}");
                assert_eq!(problems, []);
            }
            None => {
                assert!(!world.has_table(), "{reason:?}");
                assert_eq!(problems.len(), 1, "{problems:?}");
                assert_eq!(problems[0].kind, ProblemKind::DirectReturn);
                assert!(problems[0].message.contains(reason.name()), "{}", problems[0]);
            }
        }
    }
}

#[test]
fn an_unsuitable_device_stops_direct_return_of_its_family_until_it_is_suitable() {
    for reason in [Unsuitable::BridgeWithNetfilter, Unsuitable::ReversePathStrict] {
        let mut world = World::new(DirectMode::LoadBalancers);
        world.begin();
        world.links.unsuitable = [(Family::Ip, ("eth0".into(), reason))].into();
        world.learn(&[]);
        world.apply([is(service(None)), endpoints(&[1, 2])]);
        world.commit();
        assert!(!world.has_table(), "{reason:?}");
        let problems = world.problems();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(problem.kind, ProblemKind::DirectReturn);
        let expected = format!("IPv4 packets are translated: {}: ", reason.name());
        assert!(problem.message.starts_with(&expected), "{problem}");

        world.links.unsuitable.clear();
        world.learn(&[]);
        world.wait(REMEMBER);
        world.commit();
        assert!(world.has_table(), "{reason:?}");
        assert_eq!(world.problems(), []);
    }
}

#[test]
fn an_unsuitable_device_for_ipv6_leaves_ipv4_as_it_is() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.links.unsuitable =
        [(Family::Ip6, ("eth0".into(), Unsuitable::BridgeWithNetfilter))].into();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[1, 2])]);
    world.commit();
    assert!(world.has_table());
    assert_eq!(world.problems(), []);
}

#[test]
fn a_service_address_that_the_node_answers_for_is_a_problem_and_is_handed_on() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.links.answered = [(VIP.into(), "eth0".into())].into();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[1, 2])]);
    world.commit();
    assert!(world.has_table());
    let problems = world.problems();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.message.starts_with("vip-on-interface: "), "{problem}");
}

#[test]
fn a_restart_keeps_lists_numbers_and_routes() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[1, 2, 3])]);
    world.end_news();
    let before = world.elements();
    let mut world = World::with(DirectMode::LoadBalancers, world.kernel);
    world.apply([peer(2, true), peer(3, true), is(service(None)), endpoints(&[1, 2, 3])]);
    let commits = world.kernel.commits();
    // The first news come before the addresses of this node and of others were requested.
    world.engine.learn_links(Links::default());
    world.begin();
    assert!(world.is_local(), "before the links are known");
    assert_eq!(world.kernel.commits(), commits);
    world.learn(&[]);
    assert_eq!(world.kernel.commits(), commits, "nothing differs");
    assert_eq!(world.elements(), before);
    assert!(world.is_local());
}

#[test]
fn an_element_that_another_program_deleted_is_added_after_a_refusal() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[1, 2, 3])]);
    world.end_news();
    let before = world.elements();
    let set = Arc::new(DirectSet::NodeDevices.set(1));
    let keys =
        before.iter().filter(|it| it.set() == DirectSet::NodeDevices).map(DirectElement::to_key);
    let delete = Operation::DeleteElements(table(), set, keys.collect());
    world.kernel.tamper(&Transaction { operations: vec![delete] }).unwrap();
    world.apply([Event::Peer(Change::Gone(ObjectName::cluster_scoped("n3")))]);
    let refused = std::iter::from_fn(|| Some(world.commit_next())).take(9).flatten().next();
    assert_eq!(refused, Some(Cause::Table(TableId::DirectReturn)), "its deletion was refused");
    world.read_direct();
    world.commit();
    let after = world.elements();
    let device = DirectElement::NodeDevice(engine::direct::node_number("n2"), 7);
    assert!(after.contains(&device), "{after:?}");
}

#[test]
fn without_the_kernels_part_services_are_translated_with_a_problem() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[1, 2, 3])]);
    let refused = loop {
        let transaction = world.engine.next_transaction(usize::MAX).unwrap();
        let forwards = |operation: &Operation| {
            let Operation::AddRule(_, rule) = operation else { return false };
            rule.expressions.iter().any(|it| matches!(it, Expression::Fwd(_)))
        };
        if let Some(operation) = transaction.operations.iter().position(forwards) {
            break (transaction, operation);
        }
        let outcome = world.kernel.commit(&transaction);
        world.engine.answer(&transaction, &outcome);
    };
    let (transaction, operation) = refused;
    let error = CommitError::Refused {
        operation: Some(operation),
        element: None,
        errno: Errno::EOPNOTSUPP,
        reason: None,
        what: "a rule".to_owned(),
    };
    let answer = world.engine.answer(&transaction, &Err(error));
    assert_eq!(answer, Answer::ReadBack(Cause::NoForwarding));
    world.read_direct();
    world.commit();
    assert!(!world.has_table());
    assert!(!world.is_local());
    let problems = world.problems();
    assert!(problems.iter().any(|it| it.message.contains("kernel-without-fwd")), "{problems:?}");
}

#[test]
fn node_ports_of_tcp_are_handed_on_at_the_nodes_address_where_they_are_open() {
    let node_port = NonZeroU16::new(30_080).unwrap();
    for (node_ports, open_at, protocol, expected) in [
        (true, "", Protocol::Tcp, true),
        (true, "primary", Protocol::Tcp, true),
        (true, "10.0.0.0/8", Protocol::Tcp, false),
        (true, "", Protocol::Udp, false),
        (false, "", Protocol::Tcp, false),
    ] {
        let case = format!("{node_ports} {open_at:?} {protocol:?}");
        let node_port_addresses = open_at.parse().unwrap();
        let routing = Routing { node_port_addresses, ..Routing::default() };
        let settings = DirectReturn { node_ports, ..DirectReturn::new(DirectMode::Annotated) };
        let mut world = World::with_routing(routing, settings, Fake::new());
        world.engine.set_local_addresses(vec![node_address(1)]);
        world.apply([peer(2, true)]);
        world.begin();
        world.learn(&[]);
        let mut web = service(Some(Forwarding::Direct));
        web.load_balancer_ips.clear();
        web.ports[0] = ServicePort { node_port: Some(node_port), protocol, ..web.ports[0].clone() };
        world.apply([is(web), endpoints_of(&[1, 2], protocol)]);
        world.end_news();
        let elements = world.elements();
        let at_node = Destination { address: node_address(1), protocol, port: node_port };
        let route = elements.iter().find_map(|element| {
            let DirectElement::Frontend(at, route) = element else { return None };
            (*at == at_node).then_some(*route)
        });
        assert_eq!(route.map(|route| route.from_start), expected.then_some(true), "{case}");
        // What the other node hands on has its own address.
        let has_other = elements.contains(&DirectElement::Address(node_address(2)));
        assert_eq!(has_other, expected, "{case}");
    }
}

/// A world in which nodes hand the packets of `web` to each other.
fn world_with_web() -> World {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    world.apply([is(service(None)), endpoints(&[1, 2, 3])]);
    world.end_news();
    assert!(world.is_local());
    world
}

/// Refuses what adds the frontend of another address than that of `web`.
fn refusal(transaction: &Transaction) -> Option<CommitError> {
    let web = Destination { address: VIP.into(), protocol: Protocol::Tcp, port: PORT };
    let others = |it: &Operation| {
        let Operation::AddElements(_, set, elements) = it else { return None };
        let is_frontend = set.name == DirectSet::Frontends(web.family()).name();
        let other = elements.iter().position(|it| !it.key.as_bytes().starts_with(&VIP));
        other.filter(|_| is_frontend)
    };
    let operations = transaction.operations.iter().map(others).enumerate();
    let (operation, element) = operations.filter_map(|(i, element)| Some((i, element?))).next()?;
    let (errno, reason, what) = (Errno::EINVAL, None, "an element".to_owned());
    let (operation, element) = (Some(operation), Some(element));
    Some(CommitError::Refused { operation, element, errno, reason, what })
}

#[test]
fn a_service_whose_element_is_refused_twice_is_translated_until_it_changes() {
    let mut world = world_with_web();
    let mut other = Service { load_balancer_ips: vec![[203, 0, 113, 2].into()], ..service(None) };
    other.name = name("other");
    other.cluster_ips = vec![[10, 96, 0, 2].into()];
    let Event::EndpointSlice(Change::Is(slice)) = endpoints(&[1, 2]) else { panic!("no slice") };
    let slice = EndpointSlice { name: name("other-1"), service: name("other"), ..slice };
    world.apply([is(other.clone()), Event::EndpointSlice(Change::Is(slice))]);
    let mut causes = Vec::new();
    while let Some(transaction) = world.engine.next_transaction(usize::MAX) {
        let outcome = match refusal(&transaction) {
            Some(error) => Err(error),
            None => world.kernel.commit(&transaction),
        };
        if let Answer::ReadBack(cause) = world.engine.answer(&transaction, &outcome) {
            assert_eq!(world.engine.refused(&transaction, None), Some(Refused::DirectReturn));
            causes.push(cause);
            assert!(causes.len() < 9, "{causes:?}");
            world.read_direct();
        }
    }
    assert_eq!(causes, [Cause::Suspected(name("other")), Cause::Excluded(name("other"))]);
    assert!(world.is_local(), "web is handed on");
    let problems = world.problems();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.message.starts_with("IPv4 packets are translated: refused: "), "{problem}");

    let frontends = |world: &mut World| {
        world.elements().iter().filter(|it| matches!(it, DirectElement::Frontend(..))).count()
    };
    assert_eq!(frontends(&mut world), 1);
    other.ports[0].node_port = NonZeroU16::new(30_080);
    world.apply([is(other)]);
    world.end_news();
    assert_eq!(frontends(&mut world), 2);
}

#[test]
fn services_are_translated_while_the_table_is_not_written() {
    let mut world = world_with_web();
    let error = CommitError::NotSent(std::io::Error::other("another program owns it"));
    world.engine.block(TableId::DirectReturn, &error);
    let commits = world.commit();
    assert!(commits.iter().all(|commit| commit.family().is_some()), "{commits:?}");
    assert!(!world.is_local());
    assert!(world.engine.is_settled());
    world.read_direct();
    world.end_news();
    world.wait(REMEMBER);
    world.end_news();
    assert!(world.is_local(), "handed on again");
}

/// What happens between commits in [`after_any_faults_the_table_is_that_of_a_new_start`].
#[derive(Clone, Debug)]
enum Happening {
    /// Endpoints of `web` are on these nodes, if bit `n - 1` is set.
    Endpoints(u8),
    /// `web` is of this kind, or gone.
    Web(Option<Option<Forwarding>>),
    Peer(u8, bool),
    /// The commit after some others fails.
    Mishap(usize, Mishap),
    /// Another program deletes the table.
    Deleted,
    Time(u64),
    Commits(usize),
    Restart,
}

fn happening() -> impl Strategy<Value = Happening> {
    let mishap = prop_oneof![
        Just(Mishap::AnswerLost),
        Just(Mishap::NotSent),
        Just(Mishap::Refused(Errno::EINVAL)),
        Just(Mishap::Refused(Errno::ENOMEM)),
    ];
    let kind = prop_oneof![Just(None), Just(Some(Forwarding::Translate))];
    prop_oneof![
        4 => (0u8..8).prop_map(Happening::Endpoints),
        2 => proptest::option::of(kind).prop_map(Happening::Web),
        2 => (2u8..4, any::<bool>()).prop_map(|(n, ready)| Happening::Peer(n, ready)),
        2 => (0usize..4, mishap).prop_map(|(after, mishap)| Happening::Mishap(after, mishap)),
        1 => Just(Happening::Deleted),
        2 => (1u64..400).prop_map(Happening::Time),
        3 => (1usize..4).prop_map(Happening::Commits),
        1 => Just(Happening::Restart),
    ]
}

/// The objects of the cluster, beside [`World`].
#[derive(Clone, Debug)]
struct Objects {
    web: Option<Option<Forwarding>>,
    nodes: Vec<u8>,
    ready: [bool; 2],
}

impl Objects {
    fn events(&self) -> Vec<Event> {
        let web = match self.web {
            Some(forwarding) => is(service(forwarding)),
            None => Event::Service(Change::Gone(name("web"))),
        };
        vec![peer(2, self.ready[0]), peer(3, self.ready[1]), web, endpoints(&self.nodes)]
    }

    fn take(&mut self, happening: &Happening) {
        match happening {
            Happening::Endpoints(bits) => {
                self.nodes = (1..=3).filter(|n| bits >> (n - 1) & 1 == 1).collect();
            }
            Happening::Web(web) => self.web = *web,
            Happening::Peer(n, ready) => self.ready[usize::from(n - 2)] = *ready,
            Happening::Mishap(..)
            | Happening::Deleted
            | Happening::Time(_)
            | Happening::Commits(_)
            | Happening::Restart => {}
        }
    }

    /// Returns a world that starts with these objects on a kernel.
    fn world(&self, kernel: Fake) -> World {
        let mut world = World::with(DirectMode::LoadBalancers, kernel);
        world.apply(self.events());
        world.apply(Resource::ALL.map(Event::Listed));
        world.read_all();
        world.engine.learn_links(links());
        world
    }
}

fn links() -> Links {
    let on_link = |n| Reach::OnLink { device: 7, hardware_address: [2, 0, 0, 0, 0, n] };
    let reach = (2..=3).map(|n| (node_address(n), on_link(n))).collect();
    Links { reach, devices: vec!["eth0".into()], ..Links::default() }
}

impl World {
    fn read_all(&mut self) {
        let layouts = Arc::clone(self.engine.tables().layouts());
        let reading = read_watching(&mut self.kernel, &layouts, (Lists::Now, &|| ())).unwrap();
        self.engine.replace_installed_state(reading.tables);
    }

    /// Commits at most `most` times, and reacts to failures as the daemon does.
    fn commit_despite_faults(&mut self, most: usize) {
        for _ in 0..most {
            let Some(transaction) = self.engine.next_transaction(self.kernel.max_batch()) else {
                return;
            };
            let outcome = self.kernel.commit(&transaction);
            match self.engine.answer(&transaction, &outcome) {
                Answer::Applied | Answer::Devices { .. } | Answer::Blocked(_) => {}
                Answer::ReadBack(cause) => match self.engine.refused(&transaction, None) {
                    Some(Refused::DirectReturn) if cause.is_caused_by_services() => {
                        self.read_direct();
                    }
                    _ => self.read_all(),
                },
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.passed += time;
        self.engine.note_time(self.start + self.passed);
    }

    /// Returns the meaning of the table after all phases.
    fn settled(&mut self) -> BTreeMap<String, String> {
        for _ in 0..4 {
            self.commit_despite_faults(1_000);
            assert!(self.engine.is_settled());
            self.pass(REMEMBER);
        }
        self.commit_despite_faults(1_000);
        contents_of_direct_return(&mut self.kernel)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn after_any_faults_the_table_is_that_of_a_new_start(
        happenings in proptest::collection::vec(happening(), 1..40)
    ) {
        let mut objects = Objects { web: Some(None), nodes: vec![1, 2, 3], ready: [true; 2] };
        let mut world = objects.world(Fake::new());
        world.pass(Duration::from_secs(3));
        for happening in &happenings {
            objects.take(happening);
            match happening {
                Happening::Endpoints(_) | Happening::Web(_) | Happening::Peer(..) => {
                    world.apply(objects.events());
                }
                Happening::Mishap(after, mishap) => {
                    world.kernel.expect_mishap_after(*after, *mishap);
                }
                Happening::Deleted => {
                    let delete = Operation::DeleteTable(table());
                    let deletion = Transaction { operations: vec![delete] };
                    if world.kernel.tamper(&deletion).is_ok() && world.engine.tables().have_direct_return() {
                        world.read_direct();
                    }
                }
                Happening::Time(seconds) => world.pass(Duration::from_secs(*seconds)),
                Happening::Commits(most) => world.commit_despite_faults(*most),
                Happening::Restart => {
                    world = objects.world(world.kernel);
                    world.pass(Duration::from_secs(3));
                }
            }
        }
        world.kernel.forgive();
        // Services that were left out, and tables that were blocked, get another try.
        world.apply(objects.events());
        world.engine.retry_refused();
        world.read_all();
        let mut fresh = objects.world(Fake::new());
        fresh.pass(Duration::from_secs(3));
        prop_assert_eq!(world.settled(), fresh.settled());
        prop_assert_eq!(world.has_table(), fresh.has_table());
    }
}

#[test]
fn an_address_that_another_service_takes_over_leads_to_the_nodes_of_that_one() {
    let mut world = World::new(DirectMode::LoadBalancers);
    world.begin();
    world.learn(&[]);
    let mut web = service(None);
    web.external_ips.push(OTHER_VIP.into());
    world.apply([is(web), endpoints(&[2])]);
    world.commit();
    let first = Service { created: -1, ..service(None) };
    let first = Service { name: name("first"), cluster_ips: vec![[10, 96, 0, 2].into()], ..first };
    let Event::EndpointSlice(Change::Is(slice)) = endpoints(&[1]) else { panic!("no slice") };
    let slice = EndpointSlice { name: name("first-1"), service: name("first"), ..slice };
    world.apply([Event::EndpointSlice(Change::Is(slice))]);
    world.commit();
    world.apply([is(first)]);
    world.commit();
    world.wait(REMEMBER);
    assert_eq!(world.shares(), shares(&[("n1", 251), ("n2", 251)]));
    let list_at = |world: &mut World, address: IpAddr| {
        let list = |element: &DirectElement| {
            let DirectElement::Frontend(at, route) = element else { return None };
            (at.address == address).then_some(route.list)
        };
        world.elements().iter().find_map(list)
    };
    let [taken, kept] = [VIP.into(), OTHER_VIP.into()].map(|it| list_at(&mut world, it));
    assert!(taken.is_some() && kept.is_some() && taken != kept, "{taken:?} {kept:?}");
}
