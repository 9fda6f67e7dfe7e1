//! A large change is committed in pieces, and a small one with the next piece.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../benches/cluster/mod.rs"]
mod cluster;

use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use cluster::{MAX_BATCH, endpoint_address, service, slice};
use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Event, Node, ObjectName, Resource, Service,
    ServicePort,
};
use engine::ruleset;
use engine::{Engine, FoundTable, FoundTables};
use nft::kernel::{Contents, Generation};
use nft::{Family, Operation, Table, Transaction};
use nix::time::{ClockId, clock_gettime};

/// What the kernel takes for a piece of the usual size.
const TIME: Duration = Duration::from_millis(10);

/// As many as fill several pieces.
const MANY: u32 = 4_000;

/// Whether the transaction has a slot for this endpoint.
fn has(transaction: &Transaction, endpoint: Ipv4Addr) -> bool {
    let slot = format!(": {endpoint} . 8080");
    transaction.operations.iter().any(|operation| operation.to_string().contains(&slot))
}

/// Gives service `number` one endpoint more, while a piece of something large is in the kernel, and
/// checks that the next piece has it and is not the last.
#[track_caller]
fn check_not_delayed(engine: &mut Engine, number: u32) {
    let piece = engine.next_transaction(MAX_BATCH).unwrap();
    let endpoint = endpoint_address(number, 5);
    assert!(!has(&piece, endpoint));
    engine.apply([slice(number, 0..6)]);
    engine.committed(TIME);
    let next = engine.next_transaction(MAX_BATCH).unwrap();
    assert!(has(&next, endpoint), "the small change waits for another piece");
    engine.committed(TIME);
    assert!(!engine.is_settled(), "the large change was too small to show anything");
    settle(engine);
}

/// Commits what is left; how many transactions that took.
fn settle(engine: &mut Engine) -> usize {
    let steps = std::iter::from_fn(|| {
        engine.next_transaction(MAX_BATCH)?;
        engine.committed(TIME);
        Some(())
    });
    let count = steps.count();
    assert!(engine.is_settled());
    count
}

fn load(engine: &mut Engine, numbers: std::ops::Range<u32>) {
    let events = numbers.flat_map(|number| [service(number), slice(number, 0..5)]);
    engine.apply(events.collect::<Vec<_>>());
}

#[test]
fn a_change_of_a_queued_service_is_brought_forward() {
    let mut engine = cluster::engine(1, 5);
    load(&mut engine, 1..MANY);
    check_not_delayed(&mut engine, MANY - 1);
}

#[test]
fn a_change_during_a_load_is_not_delayed() {
    let mut engine = cluster::engine(1, 5);
    load(&mut engine, 1..MANY);
    check_not_delayed(&mut engine, 0);
}

#[test]
fn a_change_while_all_other_services_are_removed_is_not_delayed() {
    let mut engine = cluster::engine(MANY, 5);
    let (kept, again) = ([service(0), slice(0, 0..5)], [Resource::Services].map(Event::Relist));
    let listed = [Event::Listed(Resource::Services)];
    engine.apply(again.into_iter().chain(kept).chain(listed));
    check_not_delayed(&mut engine, 0);
}

#[test]
fn a_change_while_a_huge_service_grows_is_not_delayed() {
    let mut engine = cluster::engine(2, 5);
    engine.apply([slice(1, 0..20_000)]);
    check_not_delayed(&mut engine, 0);
}

#[test]
fn a_change_beside_many_others_of_its_size_is_not_delayed() {
    let mut engine = cluster::engine(300, 5);
    load(&mut engine, 300..MANY);
    engine.apply((1..250).map(|number| slice(number, 0..6)));
    check_not_delayed(&mut engine, 0);
}

#[test]
fn a_change_waits_for_one_piece_that_was_made_ahead_and_is_urgent_until_its_commit() {
    let mut engine = cluster::engine(1, 5);
    load(&mut engine, 1..MANY);
    engine.next_transaction(MAX_BATCH).unwrap();
    let ahead = engine.next_transaction_ahead(MAX_BATCH, || false).unwrap();
    assert!(!engine.has_urgent_changes(), "both are pieces of a large change");
    engine.apply([slice(0, 0..6)]);
    assert!(engine.has_urgent_changes());
    engine.committed(TIME);
    assert!(!has(&ahead, endpoint_address(0, 5)) && engine.has_urgent_changes());
    engine.committed(TIME);
    let small = engine.next_transaction(MAX_BATCH).unwrap();
    assert!(has(&small, endpoint_address(0, 5)), "the small change waits for another piece");
    assert!(engine.has_urgent_changes());
    engine.committed(TIME);
    assert!(!engine.has_urgent_changes() && !engine.is_settled());
    settle(&mut engine);
}

#[test]
fn the_services_of_a_piece_made_ahead_are_not_committed_at_the_end() {
    let mut engine = cluster::engine(1, 5);
    load(&mut engine, 1..MANY);
    engine.next_transaction(MAX_BATCH).unwrap();
    engine.next_transaction_ahead(MAX_BATCH, || false).unwrap();
    assert_eq!(engine.take_uncommitted().count, MANY as usize - 1);
}

#[test]
fn a_piece_made_ahead_ends_soon_after_an_interruption() {
    let mut engine = cluster::engine(1, 5);
    load(&mut engine, 1..MANY);
    let whole = elements(&engine.next_transaction(MAX_BATCH).unwrap());
    let ahead = engine.next_transaction_ahead(MAX_BATCH, || true).unwrap();
    assert!(elements(&ahead) < whole / 2, "{} of {whole}", elements(&ahead));
}

/// Elements that the transaction adds or deletes.
fn elements(transaction: &Transaction) -> usize {
    let count = |operation: &Operation| {
        if let Operation::AddElements(_, _, elements) | Operation::DeleteElements(_, _, elements) =
            operation
        {
            elements.len()
        } else {
            0
        }
    };
    transaction.operations.iter().map(count).sum()
}

#[test]
fn small_changes_go_by_themselves_and_a_piece_of_the_large_one_follows() {
    let mut engine = cluster::engine(10, 5);
    load(&mut engine, 10..MANY);
    for number in 0..4 {
        let piece = engine.next_transaction(MAX_BATCH).unwrap();
        assert!(elements(&piece) > 1_000, "a piece of the large change");
        engine.apply([slice(number, 0..6)]);
        engine.committed(TIME);
        let small = engine.next_transaction(MAX_BATCH).unwrap();
        assert!(has(&small, endpoint_address(number, 5)));
        assert!(elements(&small) < 10, "{} elements", elements(&small));
        // The next piece is one of the large change, although another small change waits.
        engine.apply([slice(number, 0..7)]);
        engine.committed(TIME);
    }
    settle(&mut engine);
}

fn with_zone_hints(mut slice: Event) -> Event {
    let Event::EndpointSlice(Change::Is(object)) = &mut slice else { panic!("not a slice") };
    let zones = Arc::new(vec!["zone".into()]);
    let addresses: Vec<_> = object.endpoints.iter().map(|endpoint| endpoint.address).collect();
    let hinted = |address| Endpoint { zones: Some(zones.clone()), ..Endpoint::ready(address) };
    object.endpoints = addresses.into_iter().map(hinted).collect();
    slice
}

#[test]
fn rendering_without_differences_can_be_interrupted() {
    let mut engine = cluster::engine(MANY, 5);
    // Hints for zones make every service depend on the zone of the node.
    engine.apply((0..MANY).map(|number| with_zone_hints(slice(number, 0..5))).collect::<Vec<_>>());
    settle(&mut engine);
    engine.apply([Event::Node(Change::Is(Node {
        name: ObjectName::cluster_scoped("node"),
        zone: Some("zone".into()),
        addresses: Vec::new(),
        pod_cidrs: Vec::new(),
        leaving: false,
    }))]);
    assert!(engine.next_transaction_unless(MAX_BATCH, || true).is_none());
    assert!(!engine.is_settled());
    engine.apply([slice(0, 0..6)]);
    let transaction = engine.next_transaction_unless(MAX_BATCH, || true).unwrap();
    assert!(has(&transaction, endpoint_address(0, 5)));
    engine.committed(TIME);
    assert_eq!(settle(&mut engine), 0);
}

#[test]
fn a_replaced_table_has_all_services_at_once_despite_queued_changes() {
    let mut engine = cluster::engine(MANY, 5);
    let of_services = [Family::Ip, Family::Ip6].map(of_another_layout);
    engine.replace_installed_state(FoundTables { of_services, ..FoundTables::nothing() });
    engine.apply([slice(0, 0..6)]);
    let transaction = engine.next_transaction_unless(MAX_BATCH, || true).unwrap();
    for endpoint in [endpoint_address(0, 5), endpoint_address(MANY - 1, 0)] {
        assert!(has(&transaction, endpoint), "{endpoint} is in a later transaction");
    }
    engine.committed(TIME);
    assert_eq!(settle(&mut engine), 1, "the other table's");
}

fn of_another_layout(family: Family) -> FoundTable {
    let table = Table { comment: Some("layout 0".into()), ..Table::new(family, ruleset::TABLE) };
    let contents = Contents {
        generation: Generation(1),
        table,
        owner: None,
        chains: Vec::new(),
        rules: [].into(),
        sets: Vec::new(),
        flowtables: Vec::new(),
        foreign: 0,
    };
    FoundTable { contents: Some(contents), ..FoundTable::nothing(family) }
}

#[test]
fn a_kernel_that_takes_long_gets_more_and_smaller_pieces() {
    let pieces = |kernel_time| {
        let mut engine = cluster::engine(1, 5);
        load(&mut engine, 1..MANY);
        let mut pieces = 0;
        while engine.next_transaction(MAX_BATCH).is_some() {
            engine.committed(kernel_time);
            pieces += 1;
        }
        pieces
    };
    let usual = pieces(Duration::from_millis(10));
    let slow = pieces(Duration::from_millis(100));
    assert!(usual >= 5 && slow > 3 * usual, "{usual} pieces, and {slow} of a slow kernel");
}

/// A Service with so many ports and three endpoints; `last` is the address of one of them.
fn many_ports(ports: u16, last: u8) -> [Event; 2] {
    let name = ObjectName::namespaced("default", "many-ports");
    let number = |i: u16| NonZeroU16::new(1 + i).unwrap();
    let port = |i| ServicePort::tcp(&format!("p{i}"), number(i));
    let service = Service {
        ports: (0..ports).map(port).collect(),
        ..Service::new(name.clone(), vec![[10, 96, 255, 1].into()])
    };
    let slice = EndpointSlice {
        name: name.clone(),
        service: name,
        ports: (0..ports).map(|i| EndpointPort::tcp(&format!("p{i}"), number(i))).collect(),
        endpoints: [1, 2, last]
            .map(|last| Endpoint::ready([10, 244, 255, last].into()))
            .into_iter()
            .collect(),
        triggered: None,
        weighing: None,
    };
    [Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
}

/// Processor time that a change takes of a Service with so many ports, and of one of its endpoints.
fn time_of_changes(ports: u16) -> Duration {
    let mut engine = cluster::engine(1, 1);
    engine.apply(many_ports(ports, 3));
    settle(&mut engine);
    let before = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    let [service, slice] = many_ports(ports, 4);
    engine.apply([service]);
    engine.apply([slice]);
    settle(&mut engine);
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap()) - before.into()
}

#[test]
fn a_change_of_a_service_takes_time_that_grows_with_its_ports_and_no_faster() {
    let ratio = || time_of_changes(8_000).as_secs_f64() / time_of_changes(1_000).as_secs_f64();
    // 8 if it is linear, 64 with a search among all ports for each of them.
    let best = (0..3).map(|_| ratio()).fold(f64::MAX, f64::min);
    assert!(best < 20.0, "8,000 ports take {best:.0} times as long as 1,000");
}
