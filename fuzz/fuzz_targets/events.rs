//! Whatever the cluster says, the kernel accepts what the engine sends and holds what it desires.
//!
//! Addresses, ports and names come from small ranges, so that objects collide.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::time::Duration;

use deltaproxy::config::Routing;
use deltaproxy::engine::{Engine, read_back};
use deltaproxy::kernel::Kernel;
use deltaproxy::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Node, ObjectName, Protocol,
    Resource, Service, ServiceCidr, ServicePort, TrafficPolicy,
};
use deltaproxy::nft::TableFlags;
use fake_kernel::Fake;
use ipnet::IpNet;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// More rounds than this say nothing new.
const MAX_ROUNDS: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    let mut kernel = Fake::new();
    engine.set_local_addresses(vec![[192, 168, 50, 2].into()]);
    start(&mut engine, &mut kernel);
    for _ in 0..MAX_ROUNDS {
        if input.is_empty() {
            break;
        }
        // Input that ends in the middle of an event says nothing.
        let events: Vec<_> = (0..8).map_while(|_| event(&mut input).ok()).collect();
        engine.apply(events);
        commit_all(&mut engine, &mut kernel);
    }
    // What is read back is what is desired.
    observe(&mut engine, &mut kernel);
    if let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
        panic!("the kernel does not hold what is desired:\n{transaction}");
    }
});

/// Tells the engine that the cluster is empty, and makes the tables.
fn start(engine: &mut Engine, kernel: &mut Fake) {
    let resources =
        [Resource::Services, Resource::EndpointSlices, Resource::Nodes, Resource::ServiceCidrs];
    for resource in resources {
        engine.apply([Event::Relist(resource), Event::Listed(resource)]);
    }
    observe(engine, kernel);
    commit_all(engine, kernel);
}

fn observe(engine: &mut Engine, kernel: &mut Fake) {
    let found = read_back(kernel, engine.layouts()).expect("the fake can be read");
    engine.observe(found);
}

fn commit_all(engine: &mut Engine, kernel: &mut Fake) {
    while let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
        // The fake encodes it too.
        if let Err(error) = kernel.commit(&transaction) {
            panic!("{error} in\n{transaction}");
        }
        engine.committed(Duration::ZERO);
    }
    assert!(engine.is_settled(), "nothing is left to do, and not everything is done");
}

fn event(input: &mut Unstructured<'_>) -> Result<Event> {
    Ok(match input.int_in_range(0..=9)? {
        0..=2 => Event::Service(change(input, service)?),
        3..=5 => Event::EndpointSlice(change(input, slice)?),
        6 => Event::Node(change(input, node)?),
        7 => Event::ServiceCidr(change(input, service_cidr)?),
        8 => Event::Relist(resource(input)?),
        _ => Event::Listed(resource(input)?),
    })
}

fn change<T>(
    input: &mut Unstructured<'_>,
    object: fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Change<T>> {
    Ok(match input.int_in_range(0..=7)? {
        0 => Change::Invalid(name(input)?),
        1 => Change::Gone(name(input)?),
        _ => Change::Is(object(input)?),
    })
}

fn resource(input: &mut Unstructured<'_>) -> Result<Resource> {
    Ok(*input.choose(&[
        Resource::Services,
        Resource::EndpointSlices,
        Resource::Nodes,
        Resource::ServiceCidrs,
    ])?)
}

fn service(input: &mut Unstructured<'_>) -> Result<Service> {
    Ok(Service {
        name: name(input)?,
        created: i64::from(input.int_in_range(0..=3u8)?),
        cluster_ips: vec![address(input)?],
        external_ips: few(input, address)?,
        load_balancer_ips: few(input, address)?,
        source_ranges: few(input, range)?,
        internal_traffic_policy: policy(input)?,
        external_traffic_policy: policy(input)?,
        session_affinity: input.ratio(1, 4)?.then_some(Duration::from_secs(10_800)),
        health_check_node_port: None,
        ports: few(input, |input| {
            Ok(ServicePort {
                name: port_name(input)?.into(),
                protocol: protocol(input)?,
                port: port(input)?,
                node_port: if input.arbitrary()? { Some(port(input)?) } else { None },
            })
        })?,
    })
}

fn slice(input: &mut Unstructured<'_>) -> Result<EndpointSlice> {
    let ipv6 = input.ratio(1, 4)?;
    let service = name(input)?;
    Ok(EndpointSlice {
        name: ObjectName::namespaced(
            "default",
            &format!("{service}-{}", input.arbitrary::<bool>()?),
        ),
        service,
        ports: few(input, |input| {
            let (protocol, port) = (protocol(input)?, port(input)?);
            Ok(EndpointPort { name: port_name(input)?.into(), protocol, port })
        })?,
        endpoints: few(input, |input| {
            Ok(Endpoint {
                address: address_of(ipv6, input)?,
                conditions: conditions(input)?,
                zones: None,
            })
        })?,
        triggered: None,
    })
}

fn conditions(input: &mut Unstructured<'_>) -> Result<Conditions> {
    let bits: u8 = input.arbitrary()?;
    let bit = |number: u8| bits & (1 << number) != 0;
    Ok(Conditions {
        ready: bit(0),
        serving: bit(1),
        terminating: bit(2),
        local: bit(3),
        has_node_hints: bit(4),
        hinted_for_node: bit(5),
    })
}

fn node(input: &mut Unstructured<'_>) -> Result<Node> {
    Ok(Node {
        name: ObjectName::cluster_scoped("node"),
        zone: None,
        addresses: few(input, address)?,
        pod_cidrs: few(input, range)?,
        leaving: input.arbitrary()?,
    })
}

fn service_cidr(input: &mut Unstructured<'_>) -> Result<ServiceCidr> {
    let cidrs = few(input, range)?;
    Ok(ServiceCidr { name: name(input)?, cidrs })
}

/// Up to seven of something.
fn few<T>(
    input: &mut Unstructured<'_>,
    mut one: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = input.int_in_range(0..=7u8)?;
    (0..count).map(|_| one(input)).collect()
}

fn name(input: &mut Unstructured<'_>) -> Result<ObjectName> {
    Ok(ObjectName::namespaced("default", input.choose(&["a", "b", "c", "d"])?))
}

fn port_name(input: &mut Unstructured<'_>) -> Result<&'static str> {
    Ok(input.choose(&["", "http", "dns"])?)
}

fn protocol(input: &mut Unstructured<'_>) -> Result<Protocol> {
    Ok(*input.choose(&[Protocol::Tcp, Protocol::Udp, Protocol::Sctp])?)
}

fn policy(input: &mut Unstructured<'_>) -> Result<TrafficPolicy> {
    Ok(*input.choose(&[TrafficPolicy::Cluster, TrafficPolicy::Local])?)
}

fn port(input: &mut Unstructured<'_>) -> Result<NonZeroU16> {
    Ok(NonZeroU16::MIN.saturating_add(input.int_in_range(0..=3)?))
}

fn address(input: &mut Unstructured<'_>) -> Result<IpAddr> {
    let ipv6 = input.ratio(1, 4)?;
    address_of(ipv6, input)
}

fn address_of(ipv6: bool, input: &mut Unstructured<'_>) -> Result<IpAddr> {
    let last = input.int_in_range(0..=15u8)?;
    Ok(if ipv6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(10, 96, 0, last).into()
    })
}

/// A network with its host bits zero.
fn range(input: &mut Unstructured<'_>) -> Result<IpNet> {
    let host = IpNet::from(address(input)?);
    let length = input.int_in_range(0..=host.max_prefix_len())?;
    Ok(IpNet::new(host.addr(), length).unwrap_or(host).trunc())
}
