//! The thread that owns the kernel's socket.
#![allow(clippy::unwrap_used, missing_docs)]

use daemon::writer::Writer;
use fake_kernel::Fake;
use nft::kernel::Kernel;
use nft::{Family, Operation, Table, Transaction};

fn table(family: Family) -> Transaction {
    Transaction { operations: vec![Operation::AddTable(Table::new(family, "kube-proxy"))] }
}

#[tokio::test]
async fn the_writer_runs_requests_in_their_order() {
    let writer = Writer::spawn(Fake::new()).unwrap();
    let (_, first) = writer.commit(table(Family::Ip)).await.unwrap();
    let (_, second) = writer.commit(table(Family::Ip6)).await.unwrap();
    assert_eq!(second.unwrap().generation.0, first.unwrap().generation.0 + 1);
    let count = writer.run(|fake: &mut Fake| fake.commits()).await.unwrap();
    assert_eq!(count, 2);
}

#[tokio::test]
async fn a_request_that_panics_ends_the_writer_and_later_ones_fail() {
    let writer = Writer::spawn(Fake::new()).unwrap();
    assert!(writer.run(|_: &mut Fake| panic!("on purpose")).await.is_err());
    assert!(writer.run(Kernel::tampered).await.is_err());
}
