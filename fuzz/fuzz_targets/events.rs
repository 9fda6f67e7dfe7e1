//! After random changes, refusals, lost answers and restarts, the kernel has the same tables as
//! after a fresh start.
//!
//! Addresses, ports and names have small ranges, so that objects collide.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use daemon::read_back::{look_up_changed, read_back};
use engine::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Node, ObjectName, Peer,
    PortRange, Protocol, Resource, Scheduler, Service, ServiceCidr, ServicePort, TrafficPolicy,
    Zones,
};
use engine::routing::Routing;
use engine::{Answer, Engine, Refused};
use fake_kernel::{Fake, Mishap};
use ipnet::IpNet;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use nft::kernel::Kernel;
use nft::{TableFlags, Transaction};
use nix::errno::Errno;

/// Most rounds; more find nothing new.
const MAX_ROUNDS: usize = 8;

/// Far more commits than a few failures cause.
const MAX_COMMITS: usize = 10_000;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let mut events = Vec::new();
    let mut kernel = Fake::new();
    let mut engine = started(&events);
    for _ in 0..MAX_ROUNDS {
        if input.is_empty() {
            break;
        }
        // An event at the end of the input may be incomplete.
        let round: Vec<_> = (0..8).map_while(|_| event(&mut input).ok()).collect();
        events.extend(round.iter().cloned());
        if happen(&mut input, &mut kernel).unwrap_or_default() {
            engine = started(&events);
            kernel.reopen();
        } else {
            engine.apply(round);
        }
        observe(&mut engine, &mut kernel);
        commit_all(&mut engine, &mut kernel);
    }
    kernel.forgive();
    engine.retry_refused();
    observe(&mut engine, &mut kernel);
    commit_all(&mut engine, &mut kernel);
    assert!(engine.is_settled(), "no transaction is left, but the engine is not settled");
    let mut restarted = started(&events);
    // Before its first commit, it may have chains that these events no longer need.
    let mut empty = Fake::new();
    observe(&mut restarted, &mut empty);
    commit_all(&mut restarted, &mut empty);
    for mut engine in [engine, restarted] {
        observe(&mut engine, &mut kernel);
        if let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
            panic!("the kernel does not hold what is desired:\n{transaction}");
        }
    }
});

/// Starts an engine with an empty cluster and applies `events`.
fn started(events: &[Event]) -> Engine {
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    engine.set_local_addresses(vec![[192, 168, 50, 2].into()]);
    let resources =
        [Resource::Services, Resource::EndpointSlices, Resource::Nodes, Resource::ServiceCidrs];
    for resource in resources {
        engine.apply([Event::Relist(resource), Event::Listed(resource)]);
    }
    engine.apply(events.iter().cloned());
    engine
}

/// Plans failures of later commits. Returns true if the daemon restarts.
fn happen(input: &mut Unstructured<'_>, kernel: &mut Fake) -> Result<bool> {
    const ERRNOS: [Errno; 4] = [Errno::EINVAL, Errno::ENOMEM, Errno::EMSGSIZE, Errno::ENOSPC];
    kernel.set_max_batch(*input.choose(&[usize::MAX, usize::MAX, 65_536, 16_384])?);
    for _ in 0..input.int_in_range(0..=3u8)? {
        let mishap = match input.int_in_range(0..=3u8)? {
            0 => Mishap::AnswerLost,
            1 => Mishap::NotSent,
            _ => Mishap::Refused(*input.choose(&ERRNOS)?),
        };
        kernel.expect_mishap_after(input.int_in_range(0..=5)?, mishap);
    }
    input.ratio(1, 8)
}

fn observe(engine: &mut Engine, kernel: &mut Fake) {
    let found = read_back(kernel, engine.tables().layouts()).expect("the fake can be read");
    engine.replace_installed_state(found);
}

/// Looks up the elements of a refused transaction; returns false if the tables must be read.
fn undo(engine: &mut Engine, kernel: &mut Fake, transaction: &Transaction) -> bool {
    let Some(Refused::Elements(places)) = engine.refused(transaction, None) else { return false };
    let changed = look_up_changed(kernel, &places);
    changed.is_some_and(|changed| engine.undo_step(&changed))
}

/// Commits until there is no difference or all further changes are blocked.
fn commit_all(engine: &mut Engine, kernel: &mut Fake) {
    for _ in 0..MAX_COMMITS {
        let Some(transaction) = engine.next_transaction(kernel.max_batch()) else { return };
        let mishaps = kernel.mishaps_left();
        // The fake kernel also encodes it.
        let outcome = kernel.commit(&transaction);
        if let Err(error) = &outcome
            && kernel.mishaps_left() == mishaps
        {
            panic!("{error} in\n{transaction}");
        }
        match engine.answer(&transaction, &outcome) {
            Answer::Applied | Answer::Devices { .. } | Answer::Blocked(_) => {}
            Answer::ReadBack(cause) => {
                if !cause.is_caused_by_services() || !undo(engine, kernel, &transaction) {
                    observe(engine, kernel);
                }
            }
        }
    }
    panic!("commits do not end");
}

fn event(input: &mut Unstructured<'_>) -> Result<Event> {
    Ok(match input.int_in_range(0..=10)? {
        0..=2 => Event::Service(change(input, service)?),
        3..=5 => Event::EndpointSlice(change(input, slice)?),
        6 => Event::Node(change(input, node)?),
        7 => Event::ServiceCidr(change(input, service_cidr)?),
        8 => Event::Relist(resource(input)?),
        9 => Event::Peer(change(input, peer)?),
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
        session_affinity: affinity(input)?,
        scheduler: if input.ratio(1, 8)? { Some(*input.choose(&Scheduler::ALL)?) } else { None },
        weights: None,
        forwarding: None,
        ended_connections: None,
        health_check_node_port: None,
        ports: few(input, |input| {
            Ok(ServicePort {
                name: port_name(input)?.into(),
                protocol: protocol(input)?,
                port: port(input)?,
                node_port: if input.arbitrary()? { Some(port(input)?) } else { None },
            })
        })?
        .into(),
        port_ranges: if input.ratio(1, 8)? { port_ranges(input)? } else { Vec::new() },
    })
}

fn port_ranges(input: &mut Unstructured<'_>) -> Result<Vec<PortRange>> {
    let (protocol, first, last) = (protocol(input)?, port(input)?, port(input)?);
    let text = format!("{protocol}/{first}-{last},{protocol}/{first}");
    Ok(PortRange::parse_list(&text).unwrap_or_default())
}

fn slice(input: &mut Unstructured<'_>) -> Result<EndpointSlice> {
    let ipv6 = input.ratio(1, 4)?;
    let (service, named) = (name(input)?, name(input)?);
    let is_suffixed = input.arbitrary()?;
    Ok(EndpointSlice {
        name: if is_suffixed { ObjectName::written(&format!("{named}-x")) } else { named },
        service,
        ports: few(input, |input| {
            let (protocol, port) = (protocol(input)?, port(input)?);
            Ok(EndpointPort { name: port_name(input)?.into(), protocol, port })
        })?
        .into(),
        endpoints: few(input, |input| {
            Ok(Endpoint {
                address: address_of(ipv6, input)?,
                conditions: conditions(input)?,
                zones: zones(input)?,
            })
        })?
        .into_iter()
        .collect(),
        triggered: None,
        weighing: None,
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
        zone: zone(input)?,
        addresses: few(input, address)?,
        pod_cidrs: few(input, range)?,
        leaving: input.arbitrary()?,
    })
}

fn peer(input: &mut Unstructured<'_>) -> Result<Peer> {
    Ok(Peer { name: name(input)?, addresses: few(input, address)?, ready: input.arbitrary()? })
}

/// Returns a session affinity timeout; most services have none.
fn affinity(input: &mut Unstructured<'_>) -> Result<Option<Duration>> {
    let seconds = *input.choose(&[0, 0, 0, 1, 60, 10_800, 86_400])?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

fn zone(input: &mut Unstructured<'_>) -> Result<Option<Arc<str>>> {
    Ok(input.choose(&[None, Some("a"), Some("b")])?.map(Arc::from))
}

fn zones(input: &mut Unstructured<'_>) -> Result<Option<Arc<Zones>>> {
    let zones = (0..input.int_in_range(0..=2u8)?).map(|_| zone(input));
    let zones: Zones = zones.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    Ok((!zones.is_empty()).then(|| Arc::new(zones)))
}

fn service_cidr(input: &mut Unstructured<'_>) -> Result<ServiceCidr> {
    let cidrs = few(input, range)?;
    Ok(ServiceCidr { name: name(input)?, cidrs })
}

/// Returns up to seven values.
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

/// Returns a network with its host bits zero.
fn range(input: &mut Unstructured<'_>) -> Result<IpNet> {
    let host = IpNet::from(address(input)?);
    let length = input.int_in_range(0..=host.max_prefix_len())?;
    Ok(IpNet::new(host.addr(), length).unwrap_or(host).trunc())
}
