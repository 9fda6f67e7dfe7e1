//! Starts on the tables of a former daemon.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::model::{Protocol, Target};
use engine::ruleset::number::ListId;
use engine::ruleset::{Layouts, SetId, TableElement, table};
use fake_kernel::Fake;
use nft::{Element, Family, Operation, Transaction};

use crate::kernel::Shared;
use crate::objects::{many_services, one_of_many, port, service, small_batches};
use crate::running::Daemon;
use crate::tables::{elements, engine, owning_engine};

#[test]
fn a_start_on_existing_tables_commits_a_change_before_all_lists_are_read() {
    // So many that two requests for lists are sent ahead.
    const SERVICES: u16 = 4_500;
    let kernel = Shared::new(Fake::new());
    let objects = || (0..SERVICES).flat_map(|number| one_of_many(number, 2)).collect();
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(objects());
    daemon.wait();
    daemon.end();

    *kernel.lookups.lock().unwrap() = Default::default();
    kernel.holds_lookups.store(true, Ordering::Relaxed);
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(objects());
    // Its list has the highest number, so it would be read last. A new service needs a number.
    daemon.send(one_of_many(SERVICES - 1, 3));
    daemon.send(one_of_many(SERVICES, 1));
    // A commit waits for the lookup, so the changes may still wait in the channel.
    daemon.wait_until_waiting(2);
    std::thread::sleep(Duration::from_millis(500));
    kernel.holds_lookups.store(false, Ordering::Relaxed);
    daemon.wait();
    let (lookups, commits) = kernel.lookups.lock().unwrap().clone();
    assert!(commits[0] < lookups, "the change: {commits:?} of {lookups} lookups");
    let with_number = commits.iter().find(|at| **at == lookups);
    assert!(with_number.is_some(), "the new service: {commits:?} of {lookups} lookups");
    daemon.end();
}

#[test]
fn a_list_that_no_route_names_is_found_before_its_number_is_given_out() {
    for endpoints in [2, 0] {
        for reads_before_the_lists in [false, true] {
            a_number_is_not_given_out(endpoints, reads_before_the_lists);
        }
    }
}

/// Starts on a list that no route names, beside the service of a former daemon with so many endpoints.
#[track_caller]
fn a_number_is_not_given_out(endpoints: u8, reads_before_the_lists: bool) {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(service(1, endpoints));
    daemon.wait();
    daemon.end();

    let set = Arc::clone(Layouts::default().of(Family::Ip).get(SetId::Endpoints));
    let target = Target { address: [10, 244, 9, 9].into(), port: port(80) };
    let elements = (0x100..0x110).map(|number| {
        let list = ListId::plain(number);
        TableElement::Endpoint(list, Protocol::Tcp, 3, target).to_element()
    });
    let add = Operation::AddElements(table(Family::Ip), set, elements.collect());
    kernel.with(|kernel| kernel.corrupt(&Transaction { operations: vec![add] }).unwrap());
    let mut daemon = Daemon::start_unlisted(engine(), kernel);
    if reads_before_the_lists {
        daemon.send(service(1, endpoints));
        daemon.wait_until_taken();
    }
    daemon.list([service(1, endpoints), service(2, 4)].concat());
    daemon.wait();
    let none = "deltaproxy_transactions_total{result=\"refused\"} 0";
    assert!(daemon.observe.metrics_text().contains(none), "a number was given out");
    daemon.end();
}

/// The kernel of a daemon that ended with many services installed, and a transaction with which
/// another program deletes one of the endpoints.
fn killed_daemon() -> (Shared, Transaction) {
    let kernel = Shared::new(small_batches());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(many_services());
    daemon.wait();
    daemon.end();
    let (set, last) = (SetId::Endpoints, |elements: Vec<Element>| elements.last().cloned());
    let endpoint = kernel.with(|kernel| last(elements(kernel, Family::Ip, set))).unwrap();
    let set = Arc::clone(Layouts::default().of(Family::Ip).get(set));
    let endpoint = Element { data: None, ..endpoint };
    let operation = Operation::DeleteElements(table(Family::Ip), set, [endpoint].into());
    (kernel, Transaction { operations: vec![operation] })
}

#[test]
fn what_was_read_before_the_lists_came_is_read_again_if_it_has_changed() {
    let (kernel, deletion) = killed_daemon();
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.send(service(1, 9));
    daemon.wait_until_taken();
    kernel.with(|kernel| kernel.tamper(&deletion).unwrap());
    daemon.list(many_services());
    daemon.wait();
    daemon.end();
}

#[test]
fn what_others_did_just_before_the_tables_were_ours_is_undone() {
    let (kernel, deletion) = killed_daemon();
    let before = kernel.with(|kernel| kernel.commits());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    *kernel.overtaking.lock().unwrap() = Some(deletion);
    daemon.list(many_services().into_iter().chain(service(7, 3)).collect());
    // One commit for the changed service, and one for the deleted endpoint.
    daemon.wait_for_commits(before + 2);
    daemon.wait();
    daemon.end();
}
