//! The owner of the kernel's socket: its thread, or its caller.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use daemon::writer::Writer;
use fake_kernel::Fake;
use futures::FutureExt;
use nft::kernel::Kernel;
use nft::{Element, Family, Operation, Set, Table, Transaction, Type, Value};

fn table(family: Family) -> Transaction {
    Transaction { operations: vec![Operation::AddTable(Table::new(family, "kube-proxy"))] }
}

#[tokio::test]
async fn the_writer_runs_requests_in_their_order() {
    let writer = Writer::spawn(Fake::new()).unwrap();
    let (_, first) = writer.commit(table(Family::Ip)).await.unwrap();
    let (_, second) = writer.commit(table(Family::Ip6)).await.unwrap();
    assert!(first.is_ok() && second.is_ok());
    let count = writer.run(|fake: &mut Fake| fake.commits()).await.unwrap();
    assert_eq!(count, 2);
}

fn set() -> Arc<Set> {
    Arc::new(Set { name: "cluster-ips".into(), key: vec![Type::Ipv4Addr], ..Set::default() })
}

fn add(addresses: std::ops::Range<u8>) -> Transaction {
    let table = Table::new(Family::Ip, "kube-proxy").reference();
    let element = |last| Element::new(Value::new().ip([10, 96, 0, last].into()));
    let operation = Operation::AddElements(table, set(), addresses.map(element).collect());
    Transaction { operations: vec![operation] }
}

/// A writer whose kernel has a table with a set.
async fn with_set() -> Writer<Fake> {
    let writer = Writer::spawn(Fake::new()).unwrap();
    let mut transaction = table(Family::Ip);
    let table = Table::new(Family::Ip, "kube-proxy").reference();
    transaction.operations.push(Operation::AddSet(table, set()));
    writer.commit(transaction).await.unwrap().1.unwrap();
    writer
}

#[tokio::test]
async fn a_few_elements_are_committed_by_the_caller_if_nothing_is_queued() {
    let writer = with_set().await;
    let caller = Some(thread::current().id());
    // The thread answers a request before it is idle.
    for last in 0..100 {
        writer.commit(add(last..last + 1)).await.unwrap().1.unwrap();
        if writer.run(|fake: &mut Fake| fake.committer()).await.unwrap() == caller {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the caller commits nothing");
}

#[tokio::test]
async fn a_few_elements_wait_for_requests_before_them() {
    let writer = with_set().await;
    let (release, released) = mpsc::channel();
    let first = writer.run(move |_| released.recv());
    let mut second = Box::pin(writer.commit(add(0..1)));
    assert!((&mut second).now_or_never().is_none());
    release.send(()).unwrap();
    first.await.unwrap().unwrap();
    assert!(second.await.unwrap().1.is_ok());
}

#[tokio::test]
async fn a_request_that_panics_ends_the_writer_and_later_ones_fail() {
    let writer = Writer::spawn(Fake::new()).unwrap();
    assert!(writer.run(|_: &mut Fake| panic!("on purpose")).await.is_err());
    assert!(writer.run(Kernel::tampered).await.is_err());
}
