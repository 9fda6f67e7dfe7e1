//! Changes of other programs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::ruleset::{Layouts, SetId, table};
use fake_kernel::Fake;
use nft::{Element, Family, Operation, Table, Transaction};

use crate::kernel::Shared;
use crate::objects::service;
use crate::running::{Daemon, wait_for};
use crate::tables::{elements, engine};

#[test]
fn tables_that_another_program_removes_come_back() {
    let mut daemon = Daemon::start(Fake::new());
    daemon.send(service(1, 3));
    daemon.wait();
    daemon.kernel.with(Fake::flush_ruleset);
    daemon.wait();
    daemon.end();
}

#[test]
fn elements_that_another_program_changes_are_repaired_without_a_reading() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list((1..9).flat_map(|number| service(number, 3)).collect());
    daemon.wait();
    let reads = || kernel.calls.reads.load(Ordering::Relaxed);
    let before = reads();
    for set in [SetId::Endpoints, SetId::Services, SetId::ClusterIps] {
        let elements = kernel.with(|kernel| elements(kernel, Family::Ip, set));
        let [first, second, ..] = &elements[..] else { panic!("{elements:?}") };
        let layout = Arc::clone(Layouts::default().of(Family::Ip).get(set));
        let keys = [first, second].map(|it| Element { data: None, comment: None, ..it.clone() });
        let delete = Operation::DeleteElements(
            table(Family::Ip),
            Arc::clone(&layout),
            keys.as_slice().into(),
        );
        // The second one gets the data of the first.
        let forged = Element { data: first.data.clone(), ..second.clone() };
        let add = Operation::AddElements(table(Family::Ip), layout, [forged].into());
        let operations = vec![delete, add];
        kernel.with(|kernel| kernel.tamper(&Transaction { operations }).unwrap());
        daemon.send(service(20, 2));
        daemon.wait();
    }
    assert_eq!(reads(), before);
    daemon.end();
}

#[test]
fn what_others_commit_to_their_own_tables_leads_to_no_reading() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(engine(), kernel.clone());
    daemon.list(service(1, 3));
    daemon.wait();
    let reads = || kernel.calls.reads.load(Ordering::Relaxed);
    let looks = || kernel.calls.looks_for_others.load(Ordering::Relaxed);
    wait_for(|| looks() > 2);
    let (reads_before, looks_before) = (reads(), looks());
    let other = Operation::AddTable(Table::new(Family::Ip, "other"));
    for _ in 0..20 {
        kernel.with(|fake| fake.tamper(&Transaction { operations: vec![other.clone()] }).unwrap());
    }
    wait_for(|| looks() > looks_before + 1);
    assert_eq!(reads(), reads_before);
    kernel.with(Fake::flush_ruleset);
    daemon.wait();
    assert!(reads() > reads_before);
    daemon.end();
}
