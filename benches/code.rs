//! Costs of each stage of an update in user space: `make bench-code` prints a tree of times.
//!
//! The kernel is not involved; `make bench` includes it. Stages are in the order of an update.
//! Decoding
//! belongs to a start on an existing table.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cluster;

use std::time::Duration;

use daemon::source::kube::Line;
use daemon::source::objects::Converter;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use engine::Engine;
use engine::model::{Cluster, Event, Resource, ServicePort, Touched};
use nft::family::Family;
use nft::{Acknowledge, Batch, Transaction, decode_elements};

fn main() {
    divan::main();
}

/// From a line of a watch to the model's slice. A slice has at most 100 endpoints by default.
#[divan::bench(args = [5, 100, 1000])]
fn parse(bencher: Bencher<'_, '_>, endpoints: u32) {
    let line = cluster::watch_line_with_hints(7, 0..endpoints);
    let mut converter = Converter::new("node-1");
    bencher.counter(BytesCount::of_str(&line)).bench_local(|| {
        let line = Line::parse(Resource::EndpointSlices, line.as_bytes()).unwrap();
        line.convert(&mut converter)
    });
}

/// The same slices as a frame of a watch in protobuf.
#[divan::bench(args = [5, 100, 1000])]
fn parse_protobuf(bencher: Bencher<'_, '_>, endpoints: u32) {
    let line = cluster::watch_line_with_hints(7, 0..endpoints);
    let event = serde_json::from_str(&line).unwrap();
    let frame = test_messages::event(&event).unwrap();
    let mut converter = Converter::new("node-1");
    bencher.counter(BytesCount::of_slice(&frame)).bench_local(|| {
        let line = Line::decode(Resource::EndpointSlices, &frame).unwrap();
        line.convert(&mut converter)
    });
}

/// Selects the usable endpoints of a service.
#[divan::bench(args = [5, 100, 1000, 5000])]
fn model(bencher: Bencher<'_, '_>, endpoints: u32) {
    let mut known = Cluster::default();
    for event in [cluster::service(7), cluster::slice(7, 0..endpoints)] {
        known.apply(event, &mut Touched::default());
    }
    let view = known.service(&cluster::service_name(7)).unwrap();
    let port: &ServicePort = &view.service.ports[0];
    bencher.bench_local(|| view.usable_endpoints(port, Family::Ip));
}

/// From the event to the transaction, and from its commit to the installed state, without encoding:
/// an endpoint is added and removed again.
#[divan::bench(args = [(1_000, 5), (50_000, 5), (1, 5_000)])]
fn diff(bencher: Bencher<'_, '_>, (services, endpoints): (u32, u32)) {
    let mut engine = cluster::engine(services, endpoints);
    let slices = [cluster::slice(0, 0..endpoints + 1), cluster::slice(0, 0..endpoints)];
    let mut next = slices.into_iter().cycle();
    bencher.with_inputs(|| next.next().unwrap()).bench_local_values(|slice| {
        change(&mut engine, slice);
        engine.committed(Duration::ZERO);
    });
}

/// Encodes a transaction: one endpoint, and the first piece of a large change.
#[divan::bench(args = [Size::OneEndpoint, Size::Piece])]
fn encode(bencher: Bencher<'_, '_>, size: Size) {
    let transaction = size.transaction();
    bencher
        .counter(BytesCount::new(encoded(&transaction).bytes.len()))
        .bench_local(|| encoded(&transaction));
}

/// Decodes a dump of elements.
#[divan::bench(args = [Size::OneEndpoint, Size::Piece])]
fn decode(bencher: Bencher<'_, '_>, size: Size) {
    let batch = encoded(&size.transaction());
    let messages = batch.messages.iter().map(|origin| &batch.message(*origin)[ATTRIBUTES..]);
    let messages: Vec<_> = messages.collect();
    let decode = || {
        let mut elements = 0_usize;
        for attributes in &messages {
            decode_elements(attributes, |view| elements += divan::black_box(view).key.len().min(1))
                .unwrap();
        }
        elements
    };
    bencher.counter(ItemsCount::new(decode())).bench_local(decode);
}

/// Offset of the attributes of a message: after `struct nlmsghdr` and `struct nfgenmsg`.
const ATTRIBUTES: usize = 20;

/// Size of a transaction.
#[derive(Clone, Copy, Debug)]
enum Size {
    OneEndpoint,
    Piece,
}

impl Size {
    fn transaction(self) -> Transaction {
        let mut engine = cluster::engine(1, 5);
        match self {
            Self::OneEndpoint => change(&mut engine, cluster::slice(0, 0..6)),
            Self::Piece => {
                let numbers = 1..10_000;
                let events = numbers.flat_map(|n| [cluster::service(n), cluster::slice(n, 0..5)]);
                engine.apply(events.collect::<Vec<Event>>());
                engine.next_transaction(cluster::MAX_BATCH).unwrap()
            }
        }
    }
}

/// Returns the transaction for a changed slice.
fn change(engine: &mut Engine, slice: Event) -> Transaction {
    engine.apply([slice]);
    engine.next_transaction(cluster::MAX_BATCH).unwrap()
}

fn encoded(transaction: &Transaction) -> Batch {
    transaction.encode(1, Acknowledge::BatchEnd).unwrap()
}
