//! The installed state after a refused step, which lookups restore without reading the tables.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod tables;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use daemon::read_back::look_up_changed;
use engine::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Protocol,
    Resource, Service, ServicePort, TrafficPolicy,
};
use engine::ruleset::SetId;
use engine::{Answer, Cause, Engine, Refused};
use fake_kernel::Fake;
use nft::Errno;
use nft::kernel::{CommitError, Kernel};
use nft::{Operation, Transaction};
use tables::{contents, engine, from_scratch, settle};

const PORT: NonZeroU16 = NonZeroU16::new(53).unwrap();

/// A UDP service and its endpoints, the first of them local.
fn service(number: u8, policy: TrafficPolicy, endpoints: &[u8]) -> Vec<Event> {
    let name = ObjectName::namespaced("default", &format!("service{number}"));
    let (protocol, port_name) = (Protocol::Udp, "dns");
    let port = ServicePort { protocol, ..ServicePort::tcp(port_name, PORT) };
    let service = Service {
        ports: vec![port],
        internal_traffic_policy: policy,
        ..Service::new(name.clone(), vec![IpAddr::from([10, 96, 0, number])])
    };
    let endpoint = |last: &u8| Endpoint::ready([10, 244, number, *last].into());
    let mut endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    let local = Conditions { local: true, ..Conditions::READY };
    endpoints.iter_mut().take(1).for_each(|first| first.conditions = local);
    let slice = EndpointSlice {
        name: name.clone(),
        service: name,
        ports: [EndpointPort { protocol, ..EndpointPort::tcp(port_name, PORT) }].into(),
        endpoints: endpoints.into_iter().collect(),
        triggered: None,
        weighing: None,
    };
    vec![Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
}

/// Two settled services with three endpoints each.
fn two_services() -> (Engine, Fake, Vec<Event>) {
    let (mut engine, mut kernel) = (engine(), Fake::new());
    let mut events: Vec<_> =
        [1, 2].into_iter().flat_map(|it| service(it, TrafficPolicy::Cluster, &[1, 2, 3])).collect();
    events.extend(Resource::ALL.map(Event::Listed));
    engine.apply(events.clone());
    settle(&mut engine, &mut kernel, usize::MAX);
    engine.take_stale_flows();
    (engine, kernel, events)
}

/// Makes the next step and lets the kernel refuse it as a whole.
fn refuse(engine: &mut Engine, kernel: &mut Fake) -> Transaction {
    let transaction = engine.next_transaction(usize::MAX).unwrap();
    let refused = Err(CommitError::refused(&transaction, None, Errno::EINVAL));
    assert_eq!(engine.answer(&transaction, &refused), Answer::ReadBack(Cause::Unattributed));
    undo(engine, kernel, &transaction);
    transaction
}

/// Looks the elements of a refused transaction up.
fn undo(engine: &mut Engine, kernel: &mut Fake, transaction: &Transaction) {
    let Some(Refused::Elements(places)) = engine.refused(transaction, None) else {
        panic!("{transaction}")
    };
    let changed = look_up_changed(kernel, &places).unwrap();
    assert!(engine.undo_step(&changed));
}

fn commit_next(engine: &mut Engine, kernel: &mut Fake) -> Transaction {
    let transaction = engine.next_transaction(usize::MAX).unwrap();
    kernel.commit(&transaction).unwrap();
    engine.committed(Duration::ZERO);
    transaction
}

#[test]
fn a_refused_step_is_sent_again() {
    let (mut engine, mut kernel, mut events) = two_services();
    let steps = [
        service(1, TrafficPolicy::Cluster, &[1, 4]),
        service(1, TrafficPolicy::Cluster, &[4, 5, 6, 7, 8, 9]),
        service(1, TrafficPolicy::Local, &[4, 5]),
        service(3, TrafficPolicy::Cluster, &[1]),
        service(2, TrafficPolicy::Cluster, &[]),
        vec![Event::Service(Change::Gone(ObjectName::namespaced("default", "service3")))],
    ];
    for step in steps {
        let before = contents(&mut kernel);
        engine.apply(step.clone());
        events.extend(step);
        refuse(&mut engine, &mut kernel);
        assert_eq!(contents(&mut kernel), before);
        settle(&mut engine, &mut kernel, usize::MAX);
        assert_eq!(contents(&mut kernel), from_scratch(&events));
    }
}

#[test]
fn a_kernel_without_memory_excludes_no_service() {
    let (mut engine, mut kernel, mut events) = two_services();
    let more = service(1, TrafficPolicy::Cluster, &[1, 2, 3, 4]);
    engine.apply(more.clone());
    events.extend(more);
    for _ in 0..3 {
        let transaction = engine.next_transaction(usize::MAX).unwrap();
        let refused = Err(CommitError::refused(&transaction, Some((0, Some(0))), Errno::ENOMEM));
        assert_eq!(engine.answer(&transaction, &refused), Answer::ReadBack(Cause::Unattributed));
        undo(&mut engine, &mut kernel, &transaction);
    }
    settle(&mut engine, &mut kernel, usize::MAX);
    assert_eq!(contents(&mut kernel), from_scratch(&events));
}

/// Another program, or a fault of the kernel, has removed them.
#[test]
fn elements_that_are_gone_before_they_are_deleted_exclude_no_service() {
    let (mut engine, mut kernel, mut events) = two_services();
    let fewer = service(1, TrafficPolicy::Cluster, &[1]);
    engine.apply(fewer.clone());
    events.extend(fewer);
    let mut refused = Vec::new();
    while let Some(transaction) = engine.next_transaction(usize::MAX) {
        let deletions = |it: &&Operation| matches!(it, Operation::DeleteElements(_, set, _) if set.name == "endpoints");
        let Some(Operation::DeleteElements(table, set, slots)) =
            transaction.operations.iter().find(deletions)
        else {
            kernel.commit(&transaction).unwrap();
            engine.committed(Duration::ZERO);
            continue;
        };
        let lost = Operation::DeleteElements(table.clone(), set.clone(), [slots[0].clone()].into());
        kernel.corrupt(&Transaction { operations: vec![lost] }).unwrap();
        let answer = engine.answer(&transaction, &kernel.commit(&transaction));
        assert!(matches!(answer, Answer::ReadBack(Cause::Suspected(_))), "{answer:?}");
        refused.push(slots[0].key.clone());
        undo(&mut engine, &mut kernel, &transaction);
    }
    assert_eq!(refused.len(), 2);
    assert_eq!(contents(&mut kernel), from_scratch(&events));
}

/// The next transaction updates one service only.
#[test]
fn flows_are_stale_once_their_own_service_is_committed() {
    let (mut engine, mut kernel, _) = two_services();
    engine.apply([1, 2].into_iter().flat_map(|it| service(it, TrafficPolicy::Cluster, &[1, 2])));
    refuse(&mut engine, &mut kernel);
    let mut flows = Vec::new();
    for _ in 0..2 {
        commit_next(&mut engine, &mut kernel);
        let stale: Vec<_> = engine.take_stale_flows().iter().map(ToString::to_string).collect();
        assert_eq!(stale.len(), 1, "{stale:?}");
        flows.extend(stale);
    }
    let has_flow_to = |endpoint: &str| flows.iter().any(|flow| flow.contains(endpoint));
    assert!(has_flow_to("10.244.1.3") && has_flow_to("10.244.2.3"), "{flows:?}");
}

#[test]
fn flows_of_a_deleted_service_are_stale_once_its_deletion_is_committed() {
    let (mut engine, mut kernel, _) = two_services();
    engine.apply([Event::Service(Change::Gone(ObjectName::namespaced("default", "service1")))]);
    refuse(&mut engine, &mut kernel);
    assert_eq!(engine.take_stale_flows(), [], "the route is still in the kernel");
    commit_next(&mut engine, &mut kernel);
    let stale: Vec<_> = engine.take_stale_flows().iter().map(ToString::to_string).collect();
    assert_eq!(stale, ["to 10.96.0.1:53"]);
}

/// Packets may still look up the slots of a list when its last route is replaced.
#[test]
fn a_list_stays_until_its_routes_are_replaced_and_released() {
    let (mut engine, mut kernel, _) = two_services();
    let slots = |transaction: &Transaction| {
        let deletions = transaction.operations.iter().filter_map(|operation| match operation {
            Operation::DeleteElements(_, set, elements) => {
                (*set.name == *SetId::Endpoints.name()).then_some(elements.len())
            }
            _ => None,
        });
        deletions.sum::<usize>()
    };
    engine.keep_unused_elements();
    engine.apply(service(1, TrafficPolicy::Local, &[1, 2, 3]));
    assert_eq!(slots(&refuse(&mut engine, &mut kernel)), 0);
    assert!(engine.kept_unused_elements().is_none(), "the route is as before");
    assert_eq!(slots(&commit_next(&mut engine, &mut kernel)), 0);
    assert!(engine.next_transaction(usize::MAX).is_none());
    let kept = engine.kept_unused_elements().unwrap();
    engine.release(kept);
    assert_eq!(slots(&commit_next(&mut engine, &mut kernel)), 3);
}
