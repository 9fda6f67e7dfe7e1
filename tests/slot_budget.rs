//! Weights and hash tables of several namespaces on the fake kernel: how slots are shared, and that
//! only large demands are reduced.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod tables;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use engine::Engine;
use engine::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, HashedSource, ObjectName,
    Problem, ProblemKind, Resource, Scheduler, Service, ServicePort, TrafficPolicy, Weighing,
};
use engine::routing::Routing;
use engine::ruleset::SetId;
use fake_kernel::Fake;
use ipnet::IpNet;
use nft::kernel::Kernel as _;
use nft::{Family, TableFlags};
use proptest::prelude::*;
use tables::{config, contents, elements, settle, settle_unencoded};

const MAGLEV: Scheduler = Scheduler::Maglev(HashedSource::Address);

/// A service of a test: its namespace and number, and its demand.
#[derive(Clone, Debug)]
struct Wish {
    namespace: u8,
    number: u8,
    /// The weight of each endpoint.
    weights: Vec<u16>,
    scheduler: Scheduler,
    ports: u8,
    is_local: bool,
    has_ipv6: bool,
}

impl Wish {
    fn weighted(namespace: u8, number: u8, weights: &[u16]) -> Self {
        Self {
            namespace,
            number,
            weights: weights.to_vec(),
            scheduler: Scheduler::Random,
            ports: 1,
            is_local: false,
            has_ipv6: false,
        }
    }

    fn table(namespace: u8, number: u8, endpoints: usize) -> Self {
        Self { scheduler: MAGLEV, ..Self::weighted(namespace, number, &vec![1; endpoints]) }
    }

    fn name(&self) -> ObjectName {
        ObjectName::namespaced(&format!("ns-{}", self.namespace), &format!("web-{}", self.number))
    }

    fn families(&self) -> impl Iterator<Item = Family> + use<> {
        [Family::Ip, Family::Ip6].into_iter().take(1 + usize::from(self.has_ipv6))
    }

    fn address(&self, family: Family, endpoint: Option<u8>) -> IpAddr {
        let (range, last) = endpoint.map_or((96, 1), |endpoint| (244, endpoint));
        match family {
            Family::Ip => [10, range + self.namespace, self.number, last].into(),
            Family::Ip6 => {
                let (namespace, number) = (self.namespace.into(), self.number.into());
                [0xfd00, range.into(), namespace, number, 0, 0, 0, last.into()].into()
            }
        }
    }

    fn service(&self) -> Event {
        let port =
            |i: u8| ServicePort::tcp(&i.to_string(), NonZeroU16::new(80 + u16::from(i)).unwrap());
        let policy = if self.is_local { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
        let cluster_ips = self.families().map(|family| self.address(family, None)).collect();
        Event::Service(Change::Is(Service {
            ports: (0..self.ports).map(port).collect(),
            scheduler: Some(self.scheduler),
            external_traffic_policy: policy,
            external_ips: self
                .is_local
                .then(|| [192, 0, 2, self.number].into())
                .into_iter()
                .collect(),
            ..Service::new(self.name(), cluster_ips)
        }))
    }

    /// A slice for each endpoint and family, as a slice has one weight.
    fn slices(&self) -> Vec<Event> {
        let endpoints = || (1..).zip(self.weights.iter().copied());
        let all = self.families().flat_map(|family| {
            endpoints().map(move |(endpoint, weight)| self.slice(family, endpoint, weight))
        });
        all.collect()
    }

    fn slice(&self, family: Family, endpoint: u8, weight: u16) -> Event {
        let port = |i: u8| EndpointPort::tcp(&i.to_string(), NonZeroU16::new(8_080).unwrap());
        let conditions = Conditions { local: endpoint.is_multiple_of(2), ..Conditions::READY };
        let address = self.address(family, Some(endpoint));
        let name = format!("{}-{}-{endpoint}", self.name().parts().1, family.name());
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: ObjectName::namespaced(&format!("ns-{}", self.namespace), &name),
            service: self.name(),
            ports: (0..self.ports).map(port).collect(),
            endpoints: [Endpoint { address, conditions, zones: None }].into_iter().collect(),
            triggered: None,
            weighing: Some(Box::new(Weighing { weight: Some(weight), ..Weighing::default() })),
        }))
    }

    fn events(&self) -> Vec<Event> {
        let mut events = vec![self.service()];
        events.extend(self.slices());
        events
    }

    /// Endpoints of all lists.
    fn endpoints(&self) -> usize {
        let local = if self.is_local { self.weights.len() / 2 } else { 0 };
        (self.weights.len() + local) * usize::from(self.ports) * self.families().count()
    }
}

struct Node {
    engine: Engine,
    kernel: Fake,
}

impl Node {
    fn new(slot_budget: u32) -> Self {
        let routing = Routing { slot_budget, ..Routing::default() };
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.apply(Resource::ALL.map(Event::Listed));
        Self { engine, kernel: Fake::new() }
    }

    fn apply(&mut self, events: Vec<Event>) -> Vec<Problem> {
        self.engine.apply(events);
        settle_unencoded(&mut self.engine, &mut self.kernel);
        self.engine.take_problems()
    }

    fn with<'a>(slot_budget: u32, wishes: impl IntoIterator<Item = &'a Wish>) -> Self {
        let mut node = Self::new(slot_budget);
        node.apply(wishes.into_iter().flat_map(Wish::events).collect());
        node
    }

    /// Slots in the tables.
    fn slots(&self) -> usize {
        let of = |family| elements(&self.kernel, family, SetId::Endpoints).len();
        of(Family::Ip) + of(Family::Ip6)
    }

    /// The tables' elements of the services of a namespace.
    fn elements_of(&mut self, namespace: u8) -> BTreeMap<String, String> {
        let name = format!("ns-{namespace}/");
        let mut texts = contents(&mut self.kernel);
        texts.retain(|_, text| text.contains(&name));
        texts
    }
}

fn any_wish() -> impl Strategy<Value = Wish> {
    let weight = prop_oneof![3 => 0..10_u16, 1 => Just(2_003_u16), 1 => 0..300_u16];
    let scheduler = prop_oneof![Just(Scheduler::Random), Just(MAGLEV)];
    let switches = (any::<bool>(), any::<bool>());
    (0..4_u8, 0..5_u8, prop::collection::vec(weight, 1..8), scheduler, 1..3_u8, switches).prop_map(
        |(namespace, number, weights, scheduler, ports, (is_local, has_ipv6))| Wish {
            namespace,
            number,
            weights,
            scheduler,
            ports,
            is_local,
            has_ipv6,
        },
    )
}

/// Wishes of distinct services.
fn any_wishes() -> impl Strategy<Value = Vec<Wish>> {
    prop::collection::vec(any_wish(), 1..12).prop_map(|wishes| {
        let distinct: BTreeMap<_, _> =
            wishes.into_iter().map(|it| ((it.namespace, it.number), it)).collect();
        distinct.into_values().collect()
    })
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn slots_stay_within_the_budget_whatever_the_order_and_the_history(
        wishes in any_wishes(),
        budget in prop_oneof![1 => Just(0_u32), 4 => 0..3_000_u32, 2 => 0..20_000_u32],
        order in any::<prop::sample::Index>(),
        former in any_wishes(),
    ) {
        let mut node = Node::with(budget, &wishes);
        let sums = node.engine.slots_in_use();
        prop_assert!(sums.given <= sums.budget.min(sums.requested), "{sums:?}");
        let endpoints: usize = wishes.iter().map(Wish::endpoints).sum();
        prop_assert!(node.slots() as u64 <= endpoints as u64 + sums.given, "{} of {sums:?}", node.slots());

        // Other services before them, one by one, in another order.
        let mut later = Node::with(budget, &former);
        let gone = former.iter().map(|it| Event::Service(Change::Gone(it.name())));
        let mut events: Vec<_> = wishes.iter().flat_map(Wish::events).collect();
        let start = order.index(events.len());
        events.rotate_left(start);
        for event in gone {
            later.apply(vec![event]);
        }
        // Slices of services that are gone would count for those of the same name.
        for slice in former.iter().flat_map(Wish::slices) {
            let Event::EndpointSlice(Change::Is(slice)) = slice else { unreachable!() };
            later.apply(vec![Event::EndpointSlice(Change::Gone(slice.name))]);
        }
        for event in events {
            later.apply(vec![event]);
        }
        prop_assert_eq!(later.engine.slots_in_use(), sums);
        prop_assert_eq!(contents(&mut later.kernel), contents(&mut node.kernel));
    }

    #[test]
    fn a_greedy_namespace_takes_nothing_from_those_that_ask_for_their_part_at_most(
        wishes in any_wishes(),
        greed in prop::collection::vec(any_wish(), 1..4),
    ) {
        const GREEDY: u8 = 9;
        let alone = Node::with(u32::MAX, &wishes);
        let requested = u32::try_from(alone.engine.slots_in_use().requested).unwrap();
        // Five namespaces, each of which may have the demands of all others together.
        let budget = requested * 5;
        let mut alone = Node::with(budget, &wishes);
        let greed: Vec<_> =
            (0..).zip(greed).map(|(number, it)| Wish { namespace: GREEDY, number, ..it }).collect();
        let mut both = Node::with(budget, greed.iter().chain(&wishes));
        for namespace in 0..4 {
            prop_assert_eq!(both.elements_of(namespace), alone.elements_of(namespace));
        }
    }
}

#[test]
fn the_more_a_namespace_asks_for_the_less_it_matters_to_others() {
    let modest = [Wish::weighted(1, 1, &[1, 999]), Wish::table(1, 2, 40)];
    let greedy = |services: u8| {
        (0..services).map(|number| Wish::weighted(2, number, &[15_999, 16_000])).collect::<Vec<_>>()
    };
    let tables = [1, 5, 50].map(|services| {
        let mut node = Node::with(20_000, greedy(services).iter().chain(&modest));
        let sums = node.engine.slots_in_use();
        assert!(sums.given > 17_000 && sums.given <= 20_000, "{sums:?}");
        assert_eq!(sums.reduced, usize::from(services));
        node.elements_of(1)
    });
    assert!(tables.iter().all(|it| *it == tables[0]));
    assert_eq!(tables[0], Node::with(u32::MAX, &modest).elements_of(1));
}

#[test]
fn a_reduced_service_is_reported_with_figures_and_gets_all_once_the_others_are_gone() {
    let weighted = Wish::weighted(1, 1, &[1, 2, 4_997]);
    let table = Wish::table(1, 2, 40);
    let large = Wish::table(1, 3, 200);
    let mut node = Node::new(5_000);
    assert_eq!(node.apply(table.events()), []);
    let problems = node.apply([weighted.events(), large.events()].concat());
    assert!(problems.iter().all(|it| it.kind == ProblemKind::Limit));
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let about = |wish: &Wish| {
        let name = format!("Service {}: ", wish.name());
        texts.iter().find(|text| text.starts_with(&name)).unwrap_or_else(|| panic!("{texts:?}"))
    };
    assert_eq!(
        *about(&weighted),
        "Service ns-1/web-1: metadata.annotations[deltaproxy.io/scheduler]: port 80: its 3 \
         endpoints request 4997 slots beyond one each and get 1792: the share of one differs from \
         its weight by 0.05 percentage points; services of this namespace request more than its \
         share of the node's slots (deltaproxy.slotBudget)"
    );
    let of_table = "of its 40 endpoints needs 4093 slots and gets 1021: the share of one differs";
    assert!(about(&table).contains(of_table));
    assert!(about(&large).contains("of its 200 endpoints needs 65521 slots and gets 1021"));
    assert_eq!(node.engine.slots_in_use().reduced, 3);
    let present = node.engine.take_changed_problems();
    assert_eq!(present.iter().map(|(_, problems)| problems.len()).collect::<Vec<_>>(), [1, 1, 1]);
    node.apply(vec![Event::Service(Change::Gone(large.name()))]);
    node.apply(vec![Event::Service(Change::Gone(table.name()))]);
    assert_eq!(node.slots(), 5_000);
    assert_eq!(node.engine.slots_in_use().reduced, 0);
    let present = node.engine.take_changed_problems();
    let over = present.iter().filter(|(_, problems)| problems.is_empty()).count();
    assert_eq!((over, present.len()), (3, 3), "{present:?}");
}

#[test]
fn a_service_without_slots_for_a_table_draws_and_is_reported() {
    let mut node = Node::new(250);
    let problems = node.apply(Wish::table(1, 1, 5).events());
    let text = problems.first().map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("needs 251 slots and gets none: connections go to any"), "{text}");
    assert_eq!((problems.len(), node.slots()), (1, 5));
}

#[test]
fn a_service_that_asks_for_nothing_goes_before_and_stays_as_it_is() {
    let plain = Wish { scheduler: Scheduler::Random, ..Wish::weighted(1, 0, &[1, 1, 1]) };
    let mut node = Node::with(1_000, [&plain]);
    let before = node.elements_of(1);
    let greedy: Vec<_> =
        (0..40).map(|number| Wish::weighted(2, number, &[15_999, 16_000])).collect();
    node.apply(greedy.iter().flat_map(Wish::events).collect());
    assert_eq!(node.elements_of(1), before);
    // A change of the greedy ones that touches each of them leaves the first place to others.
    let changed = Wish::weighted(2, 0, &[1, 2]);
    node.engine.apply(changed.slices());
    let more = Wish::weighted(1, 0, &[1, 1, 1, 1]);
    node.engine.apply(more.slices());
    let mut sent = 0;
    while node.elements_of(1) == before {
        let transaction = node.engine.next_transaction(4_096).expect("a change is left");
        node.kernel.commit(&transaction).unwrap();
        node.engine.committed(std::time::Duration::ZERO);
        sent += 1;
    }
    assert!(sent <= 2, "{sent} transactions first");
    settle(&mut node.engine, &mut node.kernel, usize::MAX);
    assert!(node.slots() <= 4 + 40 * 2 + 1_000);
}

/// The example of a tenant with 41 kB of YAML: 2,560,000 slots without a budget.
#[test]
fn forty_services_with_huge_weights_have_no_more_slots_than_their_part() {
    const BUDGET: u32 = 20_000;
    let services = |weights: &[u16]| {
        let wishes: Vec<_> = (0..40).map(|number| Wish::weighted(1, number, weights)).collect();
        Node::with(BUDGET, &wishes)
    };
    assert_eq!(services(&[16_000; 4]).slots(), 160);
    let node = services(&[16_000, 16_000, 16_000, 15_999]);
    assert_eq!(node.engine.slots_in_use().requested, 40 * 63_995);
    assert!((18_000..=160 + 20_000).contains(&node.slots()), "{}", node.slots());
}

/// A service with a load balancer address that this many networks may use.
fn guarded(namespace: &str, number: u8, ranges: u32) -> Event {
    let name = ObjectName::namespaced(namespace, &format!("lb-{number}"));
    let network = |n: u32| IpNet::new(IpAddr::from((0x0100_0000 + (n << 8)).to_be_bytes()), 24);
    Event::Service(Change::Is(Service {
        ports: vec![ServicePort::tcp("http", NonZeroU16::new(80).unwrap())],
        load_balancer_ips: vec![[192, 0, 2, number].into()],
        source_ranges: (0..ranges).map(|n| network(n).unwrap()).collect(),
        ..Service::new(name, vec![[10, 97, 0, number].into()])
    }))
}

#[test]
fn a_change_of_another_namespace_waits_for_one_piece_of_a_greedy_one() {
    let mut node = Node::new(0);
    // The rules are there.
    node.apply(vec![guarded("greedy", 99, 1)]);
    for number in 1..=8 {
        node.engine.apply([guarded("greedy", number, 16_384)]);
    }
    let commit = |node: &mut Node| {
        let transaction = node.engine.next_transaction(1 << 20).expect("a change is left");
        node.kernel.commit(&transaction).unwrap();
        node.engine.committed(std::time::Duration::ZERO);
        transaction.operations.iter().any(|it| it.to_string().contains("modest/lb-100"))
    };
    assert!(!commit(&mut node));
    node.engine.apply([guarded("modest", 100, 1)]);
    // The ranges of a new address are committed before its route.
    let sent: Vec<_> = (0..3).map(|_| commit(&mut node)).collect();
    assert!(sent.contains(&true), "{sent:?}");
    settle_unencoded(&mut node.engine, &mut node.kernel);
    let ranges = elements(&node.kernel, Family::Ip, SetId::SourceRanges).len();
    assert_eq!(ranges, 8 * 16_384 + 2);
}
