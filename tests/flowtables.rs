//! The flowtable as a part of the tables: created, kept, removed, and left out where it is lacking.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use daemon::converge::converge;
use daemon::read_back::read_back;
use engine::Engine;
use engine::counters::Counters;
use engine::flowtable::Offload;
use engine::model::{Event, Resource};
use engine::routing::Routing;
use engine::ruleset;
use fake_kernel::Fake;
use nft::kernel::Kernel;
use nft::{Device, Family, Flowtable, Operation, TableFlags, Transaction};

fn engine(flowtable: Option<Offload>, counters: Counters) -> Engine {
    let routing = Routing { flowtable, counters, ..Routing::default() };
    let mut engine = Engine::new(routing, TableFlags::default());
    engine.apply(Resource::ALL.map(Event::Listed));
    engine
}

/// Brings the kernel into the state of the engine; returns the operations.
fn commit(engine: &mut Engine, kernel: &mut Fake) -> Vec<String> {
    let mut operations = Vec::new();
    converge(engine, kernel, &mut |transaction, _| {
        operations.extend(transaction.operations.iter().map(ToString::to_string));
    })
    .unwrap();
    operations
}

fn flowtables(kernel: &mut Fake, family: Family) -> Vec<String> {
    let contents = kernel.read_table(&ruleset::table(family)).unwrap().unwrap();
    contents.flowtables.into_iter().map(|it| it.name.into_owned()).collect()
}

fn tamper(kernel: &mut Fake, operation: Operation) {
    kernel.tamper(&Transaction { operations: vec![operation] }).unwrap();
}

#[test]
fn a_flowtable_is_created_once_and_kept_with_its_devices() {
    let mut kernel = Fake::new();
    commit(&mut engine(Some(Offload::default()), Counters::Off), &mut kernel);
    for family in Family::ALL {
        assert_eq!(flowtables(&mut kernel, family), ["established"]);
        let (table, devices) = (ruleset::table(family), vec![Device::Named("eth0".into())]);
        tamper(&mut kernel, Operation::AddDevices(table, ruleset::flowtable(), devices));
    }
    let mut next = engine(Some(Offload::default()), Counters::Off);
    assert_eq!(commit(&mut next, &mut kernel), [""; 0], "a restart");
    let found = read_back(&mut kernel, next.tables().layouts()).unwrap();
    for family in Family::ALL {
        let contents = found.contents(family.into()).unwrap();
        assert_eq!(contents.flowtables[0].devices.len(), 1);
        assert!(next.are_rules_as_desired(family, Some(contents)), "for the background check");
        assert!(next.tables().has_flowtable(family));
    }
}

#[test]
fn a_flowtable_that_is_turned_off_is_removed_after_its_rules() {
    let mut kernel = Fake::new();
    commit(&mut engine(Some(Offload::default()), Counters::Off), &mut kernel);
    let operations = commit(&mut engine(None, Counters::Off), &mut kernel);
    let place = |text: &str| operations.iter().position(|it| it.starts_with(text)).unwrap();
    assert!(place("flush chain ip kube-proxy established") < place("delete flowtable ip"));
    assert_eq!(flowtables(&mut kernel, Family::Ip), [""; 0]);
    assert_eq!(flowtables(&mut kernel, Family::Ip6), [""; 0]);
}

#[test]
fn the_table_is_replaced_if_its_flowtable_is_of_another_program() {
    let mut kernel = Fake::new();
    commit(&mut engine(None, Counters::Off), &mut kernel);
    let other = Flowtable { priority: 7, ..ruleset::flowtable() };
    tamper(&mut kernel, Operation::AddFlowtable(ruleset::table(Family::Ip), other));
    let operations = commit(&mut engine(Some(Offload::default()), Counters::Off), &mut kernel);
    assert!(operations.contains(&"delete table ip kube-proxy".to_owned()), "{operations:?}");
    assert!(!operations.contains(&"delete table ip6 kube-proxy".to_owned()));
    let found = kernel.read_table(&ruleset::table(Family::Ip)).unwrap().unwrap();
    assert_eq!(found.flowtables, [ruleset::flowtable()]);
}

#[test]
fn a_kernel_that_lacks_flowtables_gets_the_tables_without_them() {
    let mut kernel = Fake::new();
    kernel.lack_flowtables();
    let mut lacking = engine(Some(Offload::default()), Counters::Off);
    commit(&mut lacking, &mut kernel);
    assert!(lacking.node().lacks_flowtables);
    assert_eq!(commit(&mut engine(None, Counters::Off), &mut kernel), [""; 0], "as with off");

    // Commands that only compare accept this.
    let mut comparing = engine(Some(Offload::default()), Counters::Off);
    let found = read_back(&mut kernel, comparing.tables().layouts()).unwrap();
    comparing.accept_missing_flowtables(&found);
    comparing.replace_installed_state(found);
    assert!(comparing.next_transaction(usize::MAX).is_none());
}

/// A lookup of a map with counters counts a connection.
#[test]
fn with_counters_no_rule_about_established_packets_looks_up_a_map_that_counts() {
    for (counters, expected) in [(Counters::Off, true), (Counters::Services, false)] {
        let mut kernel = Fake::new();
        let operations = commit(&mut engine(Some(Offload::default()), counters), &mut kernel);
        let mut rules = operations.iter().filter(|it| it.contains("flow add @established"));
        assert_eq!(rules.clone().count(), if expected { 4 } else { 2 });
        assert_eq!(rules.any(|rule| rule.contains(" map @")), expected, "{counters}");
    }
}
