//! Adding and removing endpoints one by one gives the same tables as rendering all of them.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod tables;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use daemon::read_back::read_back;
use engine::Engine;
use engine::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Node, ObjectName, Service,
    ServicePort, TrafficPolicy,
};
use fake_kernel::Fake;
use proptest::prelude::*;
use tables::{config, contents, engine, from_scratch, settle};

/// One edit of one slice, or of the node.
#[derive(Clone, Debug)]
enum Edit {
    Put { slice: usize, at: prop::sample::Index, endpoint: Endpoint },
    Insert { slice: usize, at: prop::sample::Index, endpoint: Endpoint },
    Remove { slice: usize, at: prop::sample::Index },
    Zone(Option<Arc<str>>),
    Restart,
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn name(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn zone() -> impl Strategy<Value = Option<Arc<str>>> {
    proptest::option::weighted(0.8, prop_oneof![Just("z1".into()), Just("z2".into())])
}

/// Mostly ready ones on other nodes, out of so few addresses that some are named twice.
fn endpoint() -> impl Strategy<Value = Endpoint> {
    let rarely = proptest::bool::weighted(0.1);
    let conditions = (rarely, rarely, rarely, proptest::bool::weighted(0.02));
    (0u8..30, conditions, zone(), proptest::bool::weighted(0.02)).prop_map(
        |(last, (unready, terminating, local, node_hint), zone, for_node)| Endpoint {
            address: IpAddr::from([10, 244, 0, last]),
            conditions: Conditions {
                ready: !unready,
                serving: true,
                terminating,
                local,
                has_node_hints: node_hint,
                hinted_for_node: node_hint && for_node,
            },
            zones: zone.map(|zone| Arc::new(vec![zone])),
        },
    )
}

fn edit() -> impl Strategy<Value = Edit> {
    let (slice, at) = (0..3usize, any::<prop::sample::Index>());
    prop_oneof![
        6 => (slice.clone(), at.clone(), endpoint())
            .prop_map(|(slice, at, endpoint)| Edit::Put { slice, at, endpoint }),
        6 => (slice.clone(), at.clone(), endpoint())
            .prop_map(|(slice, at, endpoint)| Edit::Insert { slice, at, endpoint }),
        6 => (slice, at).prop_map(|(slice, at)| Edit::Remove { slice, at }),
        1 => zone().prop_map(Edit::Zone),
        1 => Just(Edit::Restart),
    ]
}

/// A service with an address of each kind, the policies aside.
fn service(internal: TrafficPolicy, external: TrafficPolicy) -> Service {
    let http = ServicePort { node_port: Some(port(30_080)), ..ServicePort::tcp("http", port(80)) };
    Service {
        external_ips: vec![IpAddr::from([192, 0, 2, 1])],
        internal_traffic_policy: internal,
        external_traffic_policy: external,
        ports: vec![http, ServicePort::tcp("metrics", port(9100))],
        ..Service::new(name("web"), vec![IpAddr::from([10, 96, 0, 1])])
    }
}

fn slice(number: usize, endpoints: &[Endpoint]) -> Event {
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: name(&format!("web-{number}")),
        service: name("web"),
        ports: vec![
            EndpointPort::tcp("http", port(8080)),
            EndpointPort::tcp("metrics", port(9100)),
        ]
        .into(),
        endpoints: endpoints.iter().cloned().collect(),
        triggered: None,
        weighing: None,
    }))
}

fn node(zone: Option<Arc<str>>) -> Event {
    Event::Node(Change::Is(Node {
        name: ObjectName::cluster_scoped("node"),
        zone,
        addresses: Vec::new(),
        pod_cidrs: Vec::new(),
        leaving: false,
    }))
}

/// A daemon with its kernel.
struct Daemon {
    engine: Engine,
    kernel: Fake,
}

impl Daemon {
    fn new() -> Self {
        Self { engine: engine(), kernel: Fake::new() }
    }

    fn apply(&mut self, events: impl IntoIterator<Item = Event>) {
        self.engine.apply(events);
        settle(&mut self.engine, &mut self.kernel, usize::MAX);
    }

    /// Another one takes over what this one leaves.
    fn restart(&mut self, events: impl IntoIterator<Item = Event>) {
        self.engine = engine();
        self.engine.apply(events);
        let found = read_back(&mut self.kernel, self.engine.tables().layouts()).unwrap();
        self.engine.replace_installed_state(found);
        self.apply([]);
    }
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    prop_oneof![3 => Just(TrafficPolicy::Cluster), 1 => Just(TrafficPolicy::Local)]
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn single_changes_and_one_large_change_end_in_the_same_tables(
        mut slices in proptest::collection::vec(proptest::collection::vec(endpoint(), 0..12), 3),
        edits in proptest::collection::vec(edit(), 1..16),
        at_once in 1usize..4,
        policies in (policy(), policy()),
    ) {
        let mut zone = Some("z1".into());
        let service = service(policies.0, policies.1);
        let all = |slices: &[Vec<Endpoint>], zone: &Option<Arc<str>>| {
            let slices = slices.iter().enumerate().map(|(i, endpoints)| slice(i, endpoints));
            let others = [Event::Service(Change::Is(service.clone())), node(zone.clone())];
            slices.chain(others).collect::<Vec<_>>()
        };
        let mut daemon = Daemon::new();
        daemon.apply(all(&slices, &zone));
        for edits in edits.chunks(at_once) {
            let mut events = Vec::new();
            for edit in edits {
                let (i, is_changed) = match edit {
                    Edit::Put { slice, at, endpoint } if !slices[*slice].is_empty() => {
                        let at = at.index(slices[*slice].len());
                        slices[*slice][at] = endpoint.clone();
                        (*slice, true)
                    }
                    Edit::Put { slice, at, endpoint } | Edit::Insert { slice, at, endpoint } => {
                        let at = at.index(slices[*slice].len() + 1);
                        slices[*slice].insert(at, endpoint.clone());
                        (*slice, true)
                    }
                    Edit::Remove { slice, at } if !slices[*slice].is_empty() => {
                        let at = at.index(slices[*slice].len());
                        slices[*slice].remove(at);
                        (*slice, true)
                    }
                    Edit::Remove { slice, .. } => (*slice, false),
                    Edit::Zone(other) => {
                        zone.clone_from(other);
                        events.push(node(zone.clone()));
                        (0, false)
                    }
                    Edit::Restart => {
                        daemon.restart(all(&slices, &zone));
                        (0, false)
                    }
                };
                events.extend(is_changed.then(|| slice(i, &slices[i])));
            }
            daemon.apply(events);
        }
        prop_assert_eq!(contents(&mut daemon.kernel), from_scratch(&all(&slices, &zone)));
    }
}
