//! How often a change of one endpoint allocates, from the API server's frame of protobuf to the
//! bytes for the kernel.
//!
//! The limits are what it takes now. Allocations are not free, and one that comes with each
//! element or each service is a sign of work that grows with the cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../benches/cluster/mod.rs"]
mod cluster;

use std::time::Duration;

use allocation_counter::measure;
use daemon::observe::{CommitStage, Observe, Transaction};
use daemon::source::kube::Line;
use daemon::source::objects::Converter;
use engine::Engine;
use engine::model::{Change, Event, ObjectName, Resource};
use engine::schedule::Task;
use nft::Acknowledge;
use nft::family::Family;

/// From the event to the batch, its commit included.
const WITHOUT_DECODING: u64 = 5;

/// From the frame to the event, in a slice of five or six endpoints; each endpoint names its node.
const DECODING: u64 = 5;

/// Changes after which every buffer that is kept has its size.
const WARM: usize = 4;

struct Bench {
    engine: Engine,
    converter: Converter,
    /// Of the last batch, as the connection to the kernel keeps it.
    buffer: Vec<u8>,
}

impl Bench {
    fn new(services: u32) -> Self {
        let (engine, converter) = (cluster::engine(services, 5), Converter::new("node-1"));
        Self { engine, converter, buffer: Vec::new() }
    }

    fn decode(&mut self, frame: &[u8]) -> Event {
        let line = Line::decode(Resource::EndpointSlices, frame).unwrap();
        line.convert(&mut self.converter).unwrap().0
    }

    fn commit(&mut self, event: Event) {
        self.engine.apply([event]);
        let transaction = self.engine.next_transaction(cluster::MAX_BATCH).unwrap();
        let buffer = std::mem::take(&mut self.buffer);
        let batch = transaction.encode_into(buffer, 1, Acknowledge::BatchEnd).unwrap();
        self.buffer = batch.bytes;
        self.engine.committed(Duration::ZERO);
        assert!(self.engine.is_settled());
        self.engine.take_stale_flows();
    }
}

/// The maximum of allocations for decoding and for all else, when an endpoint is added and
/// removed again.
fn count(services: u32) -> (u64, u64) {
    let mut bench = Bench::new(services);
    let mut most = (0, 0);
    for round in 0..WARM + 8 {
        let endpoints = if round % 2 == 0 { 0..6 } else { 0..5 };
        let line = serde_json::from_str(&cluster::watch_line(7, endpoints)).unwrap();
        let frame = test_messages::event(&line).unwrap();
        let mut event = None;
        let decoding = measure(|| event = Some(bench.decode(&frame))).count_total;
        let event = event.unwrap();
        let rest = measure(|| bench.commit(event)).count_total;
        if round >= WARM {
            most = (most.0.max(decoding), most.1.max(rest));
        }
    }
    most
}

#[test]
fn a_change_of_one_endpoint_allocates_a_few_times_at_any_cluster_size() {
    for services in [10, 2_000] {
        let (decoding, rest) = count(services);
        assert!(decoding <= DECODING, "decoding allocates {decoding} times, not {DECODING}");
        assert!(
            rest <= WITHOUT_DECODING,
            "all but decoding allocates {rest} times, not {WITHOUT_DECODING}"
        );
    }
}

#[test]
fn the_metrics_of_a_commit_allocate_nothing() {
    let observe = Observe::new();
    let sizes = observe.metrics().commits.set_sizes(["endpoints"]);
    let took = Duration::from_micros(50);
    let names = [ObjectName::written("default/web")];
    let event = Event::EndpointSlice(Change::Gone(names[0].clone()));
    let note = || {
        observe.event(&event);
        CommitStage::ALL
            .into_iter()
            .for_each(|stage| observe.metrics().commits.stage_took(stage, took));
        let operations = &[("newsetelem", 1), ("delsetelem", 1)];
        observe.committed(&Transaction {
            operations,
            added: 1,
            removed: 1,
            bytes: 300,
            family: Some(Family::Ip),
            took,
            services: 1,
            names: &names,
            ..Transaction::default()
        });
        sizes.add(Family::Ip, "endpoints", 1);
        sizes.add(Family::Ip, "endpoints", -1);
        observe.events_committed(took);
        observe.metrics().kube_proxy.sync_took(Task::Commit, took);
    };
    // The first message of a kind makes its counter.
    note();
    assert_eq!(measure(note).count_total, 0);
}
