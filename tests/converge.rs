//! Random storms of events, refusals and changes by others end with the kernel holding what is
//! desired.
//!
//! The kernel is the fake one; `netlink-tests/tests/fake.rs` shows that it accepts and refuses
//! what the real one does.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod tables;
mod world;

use std::net::IpAddr;
use std::time::Duration;

use daemon::converge::converge;
use daemon::read_back::read_back;
use engine::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Resource, Service,
    ServicePort, TrafficPolicy,
};
use engine::ruleset::SetId;
use engine::{Answer, Cause, Engine};
use fake_kernel::Fake;
use nft::kernel::Kernel;
use nft::{Element, Family, Operation, Transaction, Value};
use proptest::prelude::*;
use tables::{config, contents, elements, engine, from_scratch, settle};
use world::damage;
use world::kernel::Hostile;
use world::objects::{cluster_ip, event, name, port};

/// Events that come before anything is committed.
#[derive(Clone, Debug)]
struct Burst {
    events: Vec<Event>,
    /// So many transactions are committed after it.
    steps: usize,
    /// The answer to one more is lost, and whether that one is applied.
    lost: Option<bool>,
}

prop_compose! {
    fn burst()(
        events in proptest::collection::vec(event(), 1..5),
        steps in 0usize..4,
        lost in proptest::option::of(any::<bool>()),
    ) -> Burst {
        Burst { events, steps, lost }
    }
}

fn listed() -> [Event; 4] {
    Resource::ALL.map(Event::Listed)
}

fn converge_all(engine: &mut Engine, kernel: &mut Fake) {
    converge(engine, kernel, &mut |_, _| ()).expect("it converges");
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn updates_one_by_one_end_where_a_fresh_start_ends(
        events in proptest::collection::vec(event(), 1..40),
        max_batch in prop_oneof![Just(usize::MAX), 400_000usize..420_000],
    ) {
        let (mut engine, mut kernel) = (engine(), Fake::new());
        for event in &events {
            engine.apply([event.clone()]);
            settle(&mut engine, &mut kernel, max_batch);
        }
        prop_assert_eq!(contents(&mut kernel), from_scratch(&events));
    }

    #[test]
    fn updates_in_bursts_end_where_a_fresh_start_ends(
        bursts in proptest::collection::vec(burst(), 1..25),
        max_batch in 600usize..30_000,
    ) {
        let (mut engine, mut kernel) = (engine(), Fake::new());
        settle(&mut engine, &mut kernel, usize::MAX);
        for burst in &bursts {
            engine.apply(burst.events.clone());
            for _ in 0..burst.steps {
                let Some(transaction) = engine.next_transaction(max_batch) else { break };
                kernel.commit(&transaction).expect("the kernel accepts every transaction");
                engine.committed(Duration::ZERO);
            }
            if let Some(is_applied) = burst.lost {
                if let Some(next) = engine.next_transaction(max_batch).filter(|_| is_applied) {
                    kernel.commit(&next).expect("the kernel accepts every transaction");
                }
                read_again(&mut engine, &mut kernel);
            }
        }
        settle(&mut engine, &mut kernel, max_batch);
        let events: Vec<_> = bursts.into_iter().flat_map(|burst| burst.events).collect();
        prop_assert_eq!(contents(&mut kernel), from_scratch(&events));
    }

    #[test]
    fn changes_of_other_programs_are_repaired_and_nothing_else_is_sent(
        events in proptest::collection::vec(event(), 1..20),
        number in 0u8..8,
    ) {
        let (mut engine, mut kernel) = (engine(), Fake::new());
        engine.apply(events.clone().into_iter().chain(listed()));
        converge_all(&mut engine, &mut kernel);
        let before = contents(&mut kernel);
        let transactions = kernel.commits();

        converge_all(&mut engine, &mut kernel);
        prop_assert_eq!(kernel.commits(), transactions, "nothing differed");

        kernel.commit(&damage(number)).expect("the table is there");
        converge_all(&mut engine, &mut kernel);
        prop_assert_eq!(contents(&mut kernel), before);
    }

    #[test]
    fn a_restarted_daemon_adopts_the_tables_and_sends_only_the_changes(
        before in proptest::collection::vec(event(), 1..20),
        meanwhile in proptest::collection::vec(event(), 0..6),
    ) {
        let mut kernel = Fake::new();
        let mut first = engine();
        first.apply(before.clone());
        settle(&mut first, &mut kernel, usize::MAX);
        let transactions = kernel.commits();

        let mut second = engine();
        let all: Vec<_> = before.into_iter().chain(meanwhile.clone()).collect();
        second.apply(all.clone());
        converge_all(&mut second, &mut kernel);
        prop_assert_eq!(contents(&mut kernel), from_scratch(&all));
        if meanwhile.is_empty() {
            prop_assert_eq!(kernel.commits(), transactions);
        }
    }
}

/// The slice of a service with an endpoint for each of these, which tell whether it is local.
fn slice(service: u8, are_local: &[bool]) -> Event {
    let endpoint = |local| Endpoint {
        address: IpAddr::from([10, 244, service, u8::from(local)]),
        conditions: Conditions { local, ..Conditions::READY },
        zones: None,
    };
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name("slice", service),
        service: name("service", service),
        ports: [EndpointPort::tcp("http", port(8080))].into(),
        endpoints: are_local.iter().map(|local| endpoint(*local)).collect(),
        triggered: None,
        weighing: None,
    }))
}

/// Reads the tables and starts over from them.
fn read_again(engine: &mut Engine, kernel: &mut Fake) {
    let found = read_back(kernel, engine.tables().layouts()).unwrap();
    engine.replace_installed_state(found);
}

#[test]
fn a_restart_changes_nothing_where_an_external_ip_is_the_cluster_ip_of_another_policy() {
    let address = IpAddr::from([10, 96, 0, 1]);
    let service = Service {
        session_affinity: Some(Duration::from_secs(60)),
        external_ips: vec![address],
        internal_traffic_policy: TrafficPolicy::Local,
        ports: vec![ServicePort::tcp("http", port(80))],
        ..Service::new(name("service", 1), vec![address])
    };
    let mut kernel = Fake::new();
    let start = |kernel: &mut Fake| {
        let mut engine = engine();
        let events = [Event::Service(Change::Is(service.clone())), slice(1, &[true, false])];
        engine.apply(events);
        converge_all(&mut engine, kernel);
        kernel.commits()
    };
    assert_eq!(start(&mut kernel), start(&mut kernel));
    assert_eq!(elements(&kernel, Family::Ip, SetId::AffinityLists).len(), 1);
}

#[test]
fn a_conflict_is_present_while_the_service_waits_for_the_frontend() {
    let address = IpAddr::from([192, 0, 2, 1]);
    let service = |number: u8, external_ips| Service {
        external_ips,
        created: number.into(),
        ports: vec![ServicePort::tcp("http", port(80))],
        ..Service::new(name("service", number), vec![[10, 96, 0, number].into()])
    };
    let is = |service| Event::Service(Change::Is(service));
    let ends = [
        Event::Service(Change::Gone(name("service", 1))),
        is(service(1, Vec::new())),
        Event::Service(Change::Gone(name("service", 2))),
        is(service(2, Vec::new())),
    ];
    for end in ends {
        let (mut engine, mut kernel) = (engine(), Fake::new());
        let mut settled = |event| {
            engine.apply([event]);
            settle(&mut engine, &mut kernel, usize::MAX);
            (engine.take_problems().len(), engine.take_changed_problems())
        };
        assert_eq!(settled(is(service(1, vec![address]))), (0, Vec::new()));
        let (found, present) = settled(is(service(2, vec![address])));
        assert_eq!((found, present[0].1.len()), (1, 1));
        let again = Service { created: 3, ..service(2, vec![address]) };
        assert_eq!(settled(is(again)), (0, Vec::new()), "it is reported once");
        assert_eq!(settled(end.clone()), (0, vec![(name("service", 2), Vec::new())]), "{end:?}");
    }
}

#[test]
fn a_cluster_ip_beats_every_other_claim_at_any_time() {
    let address = IpAddr::from([10, 96, 0, 1]);
    let ports = || vec![ServicePort::tcp("http", port(80))];
    let owner =
        Service { created: 20, ports: ports(), ..Service::new(name("service", 1), vec![address]) };
    let other = IpAddr::from([10, 96, 0, 2]);
    // Older, and first by name.
    let thief = Service {
        external_ips: vec![address],
        created: 10,
        ports: ports(),
        ..Service::new(name("service", 0), vec![other])
    };
    let endpoint = |number| {
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: name("slice", number),
            service: name("service", number),
            ports: [EndpointPort::tcp("http", port(8080))].into(),
            endpoints: [Endpoint::ready([10, 244, 0, number].into())].into_iter().collect(),
            triggered: None,
            weighing: None,
        }))
    };
    let labels = |kernel: &Fake| {
        let routes = elements(kernel, Family::Ip, SetId::Services).into_iter();
        routes.map(|route| route.comment.unwrap().to_string()).collect::<Vec<_>>()
    };
    let [owner, thief] = [owner, thief].map(|service| Event::Service(Change::Is(service)));
    for (first, second) in [(&owner, &thief), (&thief, &owner)] {
        let (mut engine, mut kernel) = (engine(), Fake::new());
        engine.apply([endpoint(0), endpoint(1), first.clone()]);
        settle(&mut engine, &mut kernel, usize::MAX);
        engine.apply([second.clone()]);
        settle(&mut engine, &mut kernel, usize::MAX);
        let expected = ["default/service1:http", "default/service0:http"];
        assert_eq!(labels(&kernel), expected);
        let problems = engine.take_problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].object.to_string(), "Service default/service0");
        let present = engine.take_changed_problems();
        assert_eq!(present, [(name("service", 0), problems)]);
        let mut restarted = tables::engine();
        restarted.apply([endpoint(0), endpoint(1), second.clone(), first.clone()]);
        let before = kernel.commits();
        converge_all(&mut restarted, &mut kernel);
        assert_eq!(
            (labels(&kernel), kernel.commits()),
            (expected.map(Into::into).to_vec(), before)
        );
    }
}

#[test]
fn a_service_keeps_the_lists_of_its_policies_apart_when_both_change_before_a_read_back() {
    let service = |internal_traffic_policy, external_traffic_policy, node_port| {
        let ports = vec![ServicePort { node_port, ..ServicePort::tcp("http", port(80)) }];
        let cluster_ip = IpAddr::from([10, 96, 0, 1]);
        Event::Service(Change::Is(Service {
            internal_traffic_policy,
            external_traffic_policy,
            ports,
            ..Service::new(name("service", 1), vec![cluster_ip])
        }))
    };
    let slice = slice(1, &[true, false]);
    let (mut engine, mut kernel) = (engine(), Fake::new());
    engine.apply([slice.clone(), service(TrafficPolicy::Local, TrafficPolicy::Cluster, None)]);
    settle(&mut engine, &mut kernel, usize::MAX);
    read_again(&mut engine, &mut kernel);
    let changed = service(TrafficPolicy::Cluster, TrafficPolicy::Local, Some(port(30_000)));
    engine.apply([changed.clone()]);
    settle(&mut engine, &mut kernel, usize::MAX);
    assert_eq!(contents(&mut kernel), from_scratch(&[slice, changed]));
}

#[test]
fn a_queued_service_survives_a_read_back() {
    let service = |number: u8, created, address: u8| {
        Event::Service(Change::Is(Service {
            created,
            ports: vec![ServicePort::tcp("http", port(80))],
            ..Service::new(name("service", number), vec![IpAddr::from([10, 96, 0, address])])
        }))
    };
    // The tables have the address as the second service's; the first service is older.
    let mut kernel = Fake::new();
    let mut before = engine();
    before.apply([service(2, 10, 1)]);
    settle(&mut before, &mut kernel, usize::MAX);
    let others = (3..9).map(|number| service(number, 20, number));
    let all: Vec<_> = [service(1, 5, 1), service(2, 10, 1)].into_iter().chain(others).collect();
    let mut engine = engine();
    engine.apply(all.clone());
    read_again(&mut engine, &mut kernel);
    // The first transaction is not sent.
    assert!(engine.next_transaction(600).is_some());
    read_again(&mut engine, &mut kernel);
    settle(&mut engine, &mut kernel, usize::MAX);
    assert_eq!(contents(&mut kernel), from_scratch(&all));
}

#[test]
fn a_service_that_loses_its_only_address_has_no_list_until_it_gets_it_back() {
    let same_address = |number: u8, created| {
        let address = IpAddr::from([10, 96, 0, 1]);
        Event::Service(Change::Is(Service {
            created,
            session_affinity: Some(Duration::from_secs(60)),
            ports: vec![ServicePort::tcp("http", port(80))],
            ..Service::new(name("service", number), vec![address])
        }))
    };
    let endpoint = |number: u8| {
        let address = IpAddr::from([10, 244, 0, number]);
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: name("slice", number),
            service: name("service", number),
            ports: [EndpointPort::tcp("http", port(8080))].into(),
            endpoints: [Endpoint::ready(address)].into_iter().collect(),
            triggered: None,
            weighing: None,
        }))
    };
    let (mut engine, mut kernel) = (engine(), Fake::new());
    let mut lists_after = |event: Event| {
        engine.apply([event]);
        settle(&mut engine, &mut kernel, usize::MAX);
        let lists = elements(&kernel, Family::Ip, SetId::AffinityLists).len();
        let routes = elements(&kernel, Family::Ip, SetId::Services).into_iter();
        let labels = routes.map(|route| route.comment.unwrap().to_string()).collect::<Vec<_>>();
        assert_eq!(lists, labels.len());
        labels
    };
    let [first, second] = [1, 2].map(|number| format!("default/service{number}:http"));
    let rows = [
        (same_address(1, 10), None),
        (endpoint(1), Some(&first)),
        (endpoint(2), Some(&first)),
        (same_address(2, 20), Some(&first)),
        (same_address(2, 5), Some(&second)),
        (same_address(2, 15), Some(&first)),
        (Event::Service(Change::Gone(name("service", 1))), Some(&second)),
    ];
    for (event, expected) in rows {
        let text = format!("{event:?}");
        assert!(lists_after(event).iter().eq(expected), "{text}");
    }
}

/// Services `service0` to `service2` with a cluster IP and an endpoint each.
fn three_services() -> Vec<Event> {
    let objects = (0u8..3).flat_map(|number| {
        let service = Service {
            ports: vec![ServicePort::tcp("http", port(80))],
            ..Service::new(name("service", number), vec![IpAddr::from([10, 96, 0, number])])
        };
        let conditions = Conditions::READY;
        let address = IpAddr::from([10, 244, 0, number]);
        let slice = EndpointSlice {
            name: name("slice", number),
            service: name("service", number),
            ports: [EndpointPort::tcp("http", port(8080))].into(),
            endpoints: [Endpoint { address, conditions, zones: None }].into_iter().collect(),
            triggered: None,
            weighing: None,
        };
        [Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
    });
    objects.collect()
}

#[test]
fn a_service_that_the_kernel_refuses_is_left_out_and_named_and_the_others_work() {
    let mut engine = engine();
    engine.apply(three_services());
    let mut kernel = Hostile::new(Fake::new());
    kernel.refused = Some(cluster_ip(1));
    converge(&mut engine, &mut kernel, &mut |_, _| ()).unwrap();
    let problems = engine.take_problems();
    let named: Vec<_> = problems.iter().map(|problem| problem.object.to_string()).collect();
    assert_eq!(named, ["Service default/service1"]);
    assert_eq!(elements(&kernel.inner, Family::Ip, SetId::Services).len(), 2);
}

#[test]
fn an_element_of_another_program_costs_one_more_attempt() {
    let (mut engine, mut kernel) = (engine(), Fake::new());
    converge_all(&mut engine, &mut kernel);
    engine.apply(three_services());
    let transaction = engine.next_transaction(usize::MAX).unwrap();
    let in_the_way = transaction.operations.iter().find_map(|operation| match operation {
        Operation::AddElements(table, set, elements) if set.name == "endpoints" => {
            let data = Value::new().ip(IpAddr::from([192, 0, 2, 1])).port(1);
            let element = Element::with_value(elements[0].key.clone(), data);
            Some(Operation::AddElements(table.clone(), set.clone(), [element].into()))
        }
        _ => None,
    });
    kernel.tamper(&Transaction { operations: vec![in_the_way.unwrap()] }).unwrap();
    let outcome = kernel.commit(&transaction);
    let answer = engine.answer(&transaction, &outcome);
    assert!(matches!(answer, Answer::ReadBack(Cause::Suspected(_))), "{answer:?}");
    converge_all(&mut engine, &mut kernel);
    assert_eq!(engine.take_problems(), []);
    assert_eq!(contents(&mut kernel), from_scratch(&three_services()));
}

/// `service1` takes an external IP from `service2`, whose policy is Local. Before the internal route
/// to the endpoints of `service2` is deleted, the tables are read again, and the policy of
/// `service1` becomes Local too. It needs a new list, since its session affinity and its cluster IP
/// change as well.
#[test]
fn a_list_of_another_service_is_not_taken_over_with_an_address() {
    let with_policy = |number, policy, address, session_affinity| {
        let service = Service {
            session_affinity,
            external_ips: vec![IpAddr::from([192, 0, 2, 1])],
            external_traffic_policy: policy,
            ports: vec![ServicePort::tcp("http", port(80))],
            ..Service::new(name("service", number), vec![IpAddr::from([10, 96, 0, address])])
        };
        Event::Service(Change::Is(service))
    };
    let affinity = Some(Duration::from_secs(60));
    let second = [with_policy(2, TrafficPolicy::Local, 2, affinity), slice(2, &[false])];
    let first = [with_policy(1, TrafficPolicy::Cluster, 1, None), slice(1, &[false])];
    let changed = with_policy(1, TrafficPolicy::Local, 3, affinity);
    let endpoints_of_second = |kernel: &Fake| {
        let all = elements(kernel, Family::Ip, SetId::AffinityEndpoints).into_iter();
        all.filter(|it| it.data.as_ref().is_some_and(|it| it.as_bytes()[..3] == [10, 244, 2]))
            .collect::<Vec<_>>()
    };
    let all: Vec<_> = second.iter().chain(&first).chain([&changed]).cloned().collect();
    for is_restarted in [false, true] {
        let (mut engine, mut kernel) = (self::engine(), Fake::new());
        engine.apply(second.clone());
        settle(&mut engine, &mut kernel, usize::MAX);
        engine.apply(first.clone());
        let transaction = engine.next_transaction(usize::MAX).unwrap();
        kernel.commit(&transaction).unwrap();
        engine.committed(Duration::ZERO);
        let before = endpoints_of_second(&kernel);
        assert_eq!(before.len(), 1);
        if is_restarted {
            engine = self::engine();
            engine.apply(all.clone());
        } else {
            engine.apply([changed.clone()]);
        }
        read_again(&mut engine, &mut kernel);
        settle(&mut engine, &mut kernel, usize::MAX);
        assert_eq!(endpoints_of_second(&kernel), before, "restarted: {is_restarted}");
        assert_eq!(contents(&mut kernel), from_scratch(&all));
    }
}

/// Two services are postponed after a read-back, because each claims an address that was found with
/// the label of a service that is gone. Each claims a second one, for which the other still waits
/// with precedence although it does not need it any more.
#[test]
fn postponed_services_do_not_wake_each_other_without_end() {
    let service = |number, own: u8, external: &[[u8; 4]], ports: &[u16]| {
        let ports = ports.iter().map(|number| ServicePort {
            name: format!("port-{number}").into(),
            ..ServicePort::tcp("", port(*number))
        });
        Event::Service(Change::Is(Service {
            created: i64::from(number),
            external_ips: external.iter().copied().map(IpAddr::from).collect(),
            ports: ports.collect(),
            ..Service::new(name("service", number), vec![IpAddr::from([10, 96, 0, own])])
        }))
    };
    let gone = |number| Event::Service(Change::Gone(name("service", number)));
    let [one, two, three] = [1, 2, 3].map(|last| [192, 0, 2, last]);
    let cluster_ip = [10, 96, 0, 4];
    let events = [
        service(0, 1, &[two, three], &[80]),
        service(1, 2, &[one], &[80]),
        service(2, 3, &[one, cluster_ip], &[80, 81]),
        service(3, 5, &[cluster_ip], &[81]),
    ];
    let (mut engine, mut kernel) = (engine(), Fake::new());
    engine.apply(events.clone());
    settle(&mut engine, &mut kernel, usize::MAX);
    engine.apply([gone(0)]);
    engine.next_transaction(usize::MAX).unwrap();
    // It is lost.
    let changes = [
        gone(1),
        service(2, 3, &[two, cluster_ip], &[80, 81]),
        service(3, 4, &[one, three], &[80]),
    ];
    engine.apply(changes.clone());
    read_again(&mut engine, &mut kernel);
    let calls = std::cell::Cell::new(0);
    let interrupted = || {
        calls.set(calls.get() + 1);
        assert!(calls.get() < 1_000, "updates have no end");
        false
    };
    while let Some(transaction) = engine.next_transaction_unless(usize::MAX, interrupted) {
        kernel.commit(&transaction).unwrap();
        engine.committed(Duration::ZERO);
    }
    let all: Vec<_> = events.into_iter().chain([gone(0)]).chain(changes).collect();
    assert_eq!(contents(&mut kernel), from_scratch(&all));
}
