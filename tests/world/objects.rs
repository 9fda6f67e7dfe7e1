//! Random events about the objects of a small cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use engine::model::{
    Change, Conditions, Endpoint, EndpointNames, EndpointPort, EndpointSlice, Event, Forwarding,
    Node, ObjectName, Peer, PortRange, Protocol, Resource, Scheduler, Service, ServiceCidr,
    ServicePort, TrafficPolicy, Weighing, Weights, Zones,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample;

const SERVICES: u8 = 5;
const SLICES: u8 = 8;

/// The name of this node.
const NODE: &str = "node";

/// Numbers of the other nodes.
pub(crate) const PEERS: RangeInclusive<u8> = 1..=2;

pub(crate) fn peer_address(number: u8) -> IpAddr {
    IpAddr::from([192, 168, 1, number])
}

pub(crate) fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a port is not 0")
}

pub(crate) fn name(prefix: &str, number: u8) -> ObjectName {
    ObjectName::namespaced("default", &format!("{prefix}{number}"))
}

/// The second of two is named after a service, which need not be its own.
fn slice_name(number: u8) -> ObjectName {
    if number.is_multiple_of(2) {
        name("slice", number)
    } else {
        name(&format!("service{}-", number / 2), number)
    }
}

/// One that may be the address of a load balancer, or a cluster IP.
fn external_ip(number: u8) -> IpAddr {
    match number {
        0 | 1 => IpAddr::from([192, 0, 2, number]),
        _ => cluster_ip(number),
    }
}

pub(crate) fn cluster_ip(number: u8) -> IpAddr {
    IpAddr::from([10, 96, 0, number])
}

fn tcp_and_udp(node_port: Option<u16>) -> Vec<ServicePort> {
    let tcp = ServicePort {
        node_port: node_port.map(|number| port(30_000 + number)),
        ..ServicePort::tcp("http", port(80))
    };
    let udp = ServicePort {
        name: "dns".into(),
        protocol: Protocol::Udp,
        port: port(53),
        node_port: node_port.map(|number| port(30_053 + number)),
    };
    vec![tcp, udp]
}

const PORT_RANGES: [&str; 3] = ["udp/5000-5009", "tcp/*", "udp/1-5004,tcp/79-81"];

fn ranges_of(text: &str) -> Vec<PortRange> {
    PortRange::parse_list(text).expect("port ranges")
}

fn slice_ports() -> Vec<EndpointPort> {
    let udp = EndpointPort { name: "dns".into(), protocol: Protocol::Udp, port: port(5353) };
    vec![EndpointPort::tcp("http", port(8080)), udp]
}

prop_compose! {
    /// A service out of few, with addresses that services contest.
    fn service()(
        number in 0..SERVICES,
        created in 0i64..3,
        cluster in 0u8..6,
        dual in any::<bool>(),
        external in vec(0u8..4, 0..3),
        policies in any::<(bool, bool)>(),
        ranges in vec(0u8..3, 0..3),
        node_port in option::of(0u16..2),
        affinity in option::weighted(0.3, 1u64..4),
        scheduler in option::weighted(0.3, sample::select(Scheduler::ALL.to_vec())),
        weights in option::weighted(0.1, 0u8..4),
        (ports, port_ranges) in (0usize..4, option::weighted(0.3, 0usize..3)),
    ) -> Event {
        let policy = |local| if local { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
        let mut cluster_ips = vec![cluster_ip(cluster)];
        if dual {
            cluster_ips.push(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(cluster)]));
        }
        let mut kept = tcp_and_udp(node_port);
        if ports > 1 {
            kept.remove(ports - 2);
        }
        Event::Service(Change::Is(Service {
            created,
            session_affinity: affinity.map(Duration::from_secs),
            scheduler,
            weights: weights.map(|n| Weights::parse(&format!("node/n1={n},*=2")).unwrap()),
            external_ips: external.iter().map(|n| external_ip(*n)).collect(),
            load_balancer_ips: vec![IpAddr::from([192, 0, 2, 1])],
            source_ranges: ranges.iter().map(|n| format!("198.51.100.{n}/24").parse().unwrap()).collect(),
            internal_traffic_policy: policy(policies.0),
            external_traffic_policy: policy(policies.1),
            ports: kept,
            port_ranges: port_ranges.map(|it| ranges_of(PORT_RANGES[it])).unwrap_or_default(),
            ..Service::new(name("service", number), cluster_ips)
        }))
    }
}

prop_compose! {
    /// Conditions and zone hints of an endpoint.
    fn endpoint()(
        conditions in any::<(bool, bool, bool, bool)>(),
        hints in option::weighted(0.2, (0u8..3, any::<bool>(), any::<bool>())),
    ) -> (Conditions, Option<Arc<Zones>>) {
        let (ready, serving, terminating, local) = conditions;
        let (zone, has_node_hints, hinted_for_node) = hints.unwrap_or_default();
        let conditions = Conditions {
            ready: ready && !terminating,
            serving: serving || ready,
            terminating,
            local,
            has_node_hints,
            hinted_for_node: hinted_for_node && has_node_hints,
        };
        (conditions, hints.map(|_| Arc::new(vec![format!("zone{zone}").into()])))
    }
}

prop_compose! {
    fn slice()(
        number in 0..SLICES,
        owner in 0..SERVICES,
        ipv6 in proptest::bool::weighted(0.3),
        weighed in option::weighted(0.3, option::weighted(0.3, 0u16..3)),
        endpoints in prop_oneof![
            2 => btree_map(0u8..40, endpoint(), 0..5),
            1 => btree_map(0u8..40, endpoint(), 0..30),
        ]
        .prop_map(|it| it.into_iter().collect::<Vec<_>>())
        .prop_shuffle(),
    ) -> Event {
        let node = |n: usize| ["n1", "n2"][n % 2].into();
        let names = |n| EndpointNames { node: node(n), ..EndpointNames::default() };
        let weighing = weighed.map(|weight| {
            let names = (0..endpoints.len()).map(names).collect();
            Box::new(Weighing { weight, names, ..Weighing::default() })
        });
        let nodes = endpoints.iter().enumerate().map(|(n, (_, (conditions, _)))| {
            Arc::new(if conditions.local { NODE.into() } else { node(n) })
        });
        let nodes = Weighing { nodes: nodes.collect(), ..Weighing::default() };
        let weighing = weighing.unwrap_or_else(|| Box::new(nodes));
        let endpoints = endpoints.into_iter().map(|(last, (conditions, zones))| Endpoint {
            address: if ipv6 { IpAddr::from([0xfd01, 0, 0, 0, 0, 0, 0, u16::from(last)]) } else { IpAddr::from([10, 244, 0, last]) },
            conditions,
            zones,
        });
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: slice_name(number),
            service: name("service", owner),
            ports: slice_ports().into(),
            endpoints: endpoints.collect(),
            triggered: None,
            weighing: Some(weighing),
        }))
    }
}

prop_compose! {
    fn node()(
        address in 0u8..3,
        zone in option::of(0u8..3),
        leaving in any::<bool>(),
    ) -> Event {
        Event::Node(Change::Is(Node {
            name: ObjectName::cluster_scoped(NODE),
            zone: zone.map(|number| format!("zone{number}").into()),
            addresses: vec![IpAddr::from([192, 168, 0, address])],
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            leaving,
        }))
    }
}

prop_compose! {
    /// Another node, of which there are as many as [`PEERS`].
    fn peer()(number in PEERS, ready in proptest::bool::weighted(0.8), is_gone in proptest::bool::weighted(0.1)) -> Event {
        let name = ObjectName::cluster_scoped(&format!("n{number}"));
        let peer = Peer { name: name.clone(), addresses: vec![peer_address(number)], ready };
        Event::Peer(if is_gone { Change::Gone(name) } else { Change::Is(peer) })
    }
}

prop_compose! {
    fn service_cidr()(number in 0u8..3) -> Event {
        let cidr = ["10.96.0.0/16", "10.0.0.0/8", "fd00::/112"][usize::from(number)];
        Event::ServiceCidr(Change::Is(ServiceCidr {
            name: ObjectName::cluster_scoped("kubernetes"),
            cidrs: vec![cidr.parse().unwrap()],
        }))
    }
}

/// Nodes hand the packets of this service to each other, if they have endpoints.
fn handed() -> impl Strategy<Value = Event> {
    let name = || ObjectName::namespaced("direct", "handed");
    let service = (any::<bool>(), sample::select(vec![None, Some(Forwarding::Translate)]));
    let service = service.prop_map(move |(has_udp, forwarding)| {
        let mut ports = tcp_and_udp(None);
        ports.truncate(1 + usize::from(has_udp));
        let service = Service::new(name(), vec![IpAddr::from([10, 96, 1, 0])]);
        let load_balancer_ips = vec![IpAddr::from([203, 0, 113, 1])];
        Event::Service(Change::Is(Service { load_balancer_ips, forwarding, ports, ..service }))
    });
    let slice = (0u8..8).prop_map(move |on| {
        let numbers = (0u8..3).filter(move |number| on >> number & 1 == 1);
        let endpoint = |number: u8| {
            let mut endpoint = Endpoint::ready(IpAddr::from([10, 245, number, 1]));
            endpoint.conditions.local = number == 0;
            endpoint
        };
        let node = |number: u8| {
            Arc::new(if number == 0 { NODE.into() } else { format!("n{number}").into() })
        };
        let nodes = numbers.clone().map(node).collect();
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: name(),
            service: name(),
            ports: slice_ports().into(),
            endpoints: numbers.map(endpoint).collect(),
            triggered: None,
            weighing: Some(Box::new(Weighing { nodes, ..Weighing::default() })),
        }))
    });
    prop_oneof![2 => service, 3 => slice, 1 => Just(Event::Service(Change::Gone(name())))]
}

/// An event about an object of the cluster.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let services = (0..SERVICES, any::<bool>()).prop_map(|(number, is_gone)| {
        let name = name("service", number);
        Event::Service(if is_gone { Change::Gone(name) } else { Change::Invalid(name) })
    });
    let slices = (0..SLICES, any::<bool>()).prop_map(|(number, is_gone)| {
        let name = slice_name(number);
        Event::EndpointSlice(if is_gone { Change::Gone(name) } else { Change::Invalid(name) })
    });
    let gone_node = Just(Event::Node(Change::Gone(ObjectName::cluster_scoped(NODE))));
    prop_oneof![
        8 => service(),
        10 => slice(),
        2 => services,
        2 => slices,
        2 => node(),
        2 => peer(),
        6 => handed(),
        1 => gone_node,
        1 => service_cidr(),
    ]
}

/// This node and the others, as they are before random events.
pub(crate) fn nodes() -> Vec<Event> {
    let this = Node {
        name: ObjectName::cluster_scoped(NODE),
        zone: None,
        addresses: vec![IpAddr::from([192, 168, 0, 0])],
        pod_cidrs: Vec::new(),
        leaving: false,
    };
    let others = PEERS.map(|number| Peer {
        name: ObjectName::cluster_scoped(&format!("n{number}")),
        addresses: vec![peer_address(number)],
        ready: true,
    });
    let others = others.map(|peer| Event::Peer(Change::Is(peer)));
    [Event::Node(Change::Is(this))].into_iter().chain(others).collect()
}

/// Two services that no random event changes, and their endpoints. The second has affinity.
pub(crate) fn bystanders() -> Vec<Event> {
    let objects = (0u8..2).flat_map(|number| {
        let service = Service {
            created: 1,
            session_affinity: (number == 1).then_some(Duration::from_secs(7)),
            ports: tcp_and_udp(None),
            ..Service::new(name("bystander", number), vec![bystander_address(number)])
        };
        let endpoints = (0..=number + 1).map(|i| bystander_address(0x10 * (number + 1) + i));
        let slice = EndpointSlice {
            name: name("bystander", number),
            service: service.name.clone(),
            ports: slice_ports().into(),
            endpoints: endpoints.map(Endpoint::ready).collect(),
            triggered: None,
            weighing: None,
        };
        [Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
    });
    objects.collect()
}

/// An address that only bystanders have.
fn bystander_address(number: u8) -> IpAddr {
    IpAddr::from([10, 99, 0, number])
}

/// Whether bytes of an element hold an address of a bystander.
pub(crate) fn are_of_bystander(bytes: &[u8]) -> bool {
    bytes.chunks_exact(4).any(|field| field.starts_with(&[10, 99, 0]))
}

/// All objects that exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    objects: BTreeMap<(u8, ObjectName), Event>,
    /// The last Node object that there was: what it said stays in force when it is gone.
    last_node: Option<Event>,
}

impl Objects {
    pub(crate) fn apply(&mut self, event: &Event) {
        let key = |name: &ObjectName| (resource_of(event) as u8, name.clone());
        if let Event::Node(Change::Is(_)) = event {
            self.last_node = Some(event.clone());
        }
        match event {
            Event::Service(Change::Is(Service { name, .. }))
            | Event::EndpointSlice(Change::Is(EndpointSlice { name, .. }))
            | Event::Node(Change::Is(Node { name, .. }))
            | Event::Peer(Change::Is(Peer { name, .. }))
            | Event::ServiceCidr(Change::Is(ServiceCidr { name, .. })) => {
                self.objects.insert(key(name), event.clone());
            }
            Event::Service(Change::Gone(name))
            | Event::EndpointSlice(Change::Gone(name))
            | Event::Node(Change::Gone(name))
            | Event::Peer(Change::Gone(name))
            | Event::ServiceCidr(Change::Gone(name)) => {
                self.objects.remove(&key(name));
            }
            // What an unusable object said before stays in force.
            Event::Service(Change::Invalid(_))
            | Event::EndpointSlice(Change::Invalid(_))
            | Event::Node(Change::Invalid(_))
            | Event::Peer(Change::Invalid(_))
            | Event::ServiceCidr(Change::Invalid(_))
            | Event::Relist(_)
            | Event::Listed(_) => {}
        }
    }

    /// Removes those random objects of a resource whose bit is set.
    pub(crate) fn lose(&mut self, resource: Resource, missing: u8) {
        let mut number = 0;
        self.objects.retain(|(of, name), _| {
            if *of != resource as u8 || name.as_str().contains("bystander") {
                return true;
            }
            number += 1;
            missing >> (number % 8) & 1 == 0
        });
    }

    /// The list of a resource.
    pub(crate) fn list(&self, resource: Resource) -> Vec<Event> {
        let objects = self.objects.iter().filter(|((of, _), _)| *of == resource as u8);
        let objects = objects.map(|(_, event)| event.clone());
        [Event::Relist(resource)]
            .into_iter()
            .chain(objects)
            .chain([Event::Listed(resource)])
            .collect()
    }

    /// A new daemon gets only the Node that exists.
    pub(crate) fn forget_gone(&mut self) {
        self.last_node =
            self.objects.values().find(|event| matches!(event, Event::Node(_))).cloned();
    }

    /// All objects that a daemon has received.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Event> {
        self.objects.values().chain(&self.last_node)
    }

    pub(crate) fn services(&self) -> impl Iterator<Item = &Service> {
        self.objects.values().filter_map(|event| match event {
            Event::Service(Change::Is(service)) => Some(service),
            _ => None,
        })
    }
}

fn resource_of(event: &Event) -> Resource {
    match event {
        Event::Service(_) => Resource::Services,
        Event::EndpointSlice(_) => Resource::EndpointSlices,
        Event::Node(_) | Event::Peer(_) => Resource::Nodes,
        Event::ServiceCidr(_) => Resource::ServiceCidrs,
        Event::Relist(resource) | Event::Listed(resource) => *resource,
    }
}
