//! Objects of the tests, and how many are in the kernel.

use std::net::IpAddr;
use std::num::NonZeroU16;

use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Endpoints, Event, ObjectName, Service,
    ServicePort,
};
use engine::ruleset::SetId;
use fake_kernel::Fake;
use nft::Family;

use crate::kernel::Shared;
use crate::tables::elements;

pub(super) fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

/// A service with so many endpoints.
pub(super) fn service(number: u8, endpoints: u8) -> Vec<Event> {
    let name = ObjectName::namespaced("default", &format!("service{number}"));
    let service = Service {
        ports: vec![ServicePort::tcp("http", port(80))],
        ..Service::new(name.clone(), vec![IpAddr::from([10, 96, 0, number])])
    };
    let slice = EndpointSlice {
        name: name.clone(),
        service: name,
        ports: [EndpointPort::tcp("http", port(8080))].into(),
        endpoints: (0..endpoints).map(|i| Endpoint::ready([10, 244, number, i].into())).collect(),
        triggered: None,
        weighing: None,
    };
    vec![Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
}

/// Objects for a first sync of several transactions of [`SMALL_BATCH`].
pub(super) fn many_services() -> Vec<Event> {
    (0..200).flat_map(|number| service(number, 9)).collect()
}

pub(super) const SMALL_BATCH: usize = 150_000;

pub(super) fn small_batches() -> Fake {
    let mut kernel = Fake::new();
    kernel.set_max_batch(SMALL_BATCH);
    kernel
}

/// As [`service`], with an address for each of very many.
pub(super) fn one_of_many(number: u16, endpoints: u8) -> Vec<Event> {
    let [high, low] = number.to_be_bytes();
    let name = ObjectName::namespaced("default", &format!("service{number:05}"));
    let mut events = service(low, endpoints);
    for event in &mut events {
        if let Event::Service(Change::Is(service)) = event {
            service.name = name.clone();
            service.cluster_ips = vec![[10, 97, high, low].into()];
        } else if let Event::EndpointSlice(Change::Is(slice)) = event {
            (slice.name, slice.service) = (name.clone(), name.clone());
        }
    }
    events
}

/// A service with one endpoint at this address and the address of the same number in IPv6.
pub(super) fn dual_stack(number: u8) -> Vec<Event> {
    let mut events = service(number, 1);
    let six = |last: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, last, u16::from(number)]);
    if let Event::Service(Change::Is(service)) = &mut events[0] {
        service.cluster_ips.push(six(1));
    }
    let name = ObjectName::namespaced("default", &format!("service{number}"));
    events.push(Event::EndpointSlice(Change::Is(EndpointSlice {
        name: ObjectName::namespaced("default", &format!("service{number}-six")),
        service: name,
        ports: [EndpointPort::tcp("http", port(8080))].into(),
        endpoints: [Endpoint::ready(six(2))].into_iter().collect(),
        triggered: None,
        weighing: None,
    })));
    events
}

/// The same event without what is of IPv4.
pub(super) fn without_ipv4(mut event: Event) -> Event {
    if let Event::Service(Change::Is(service)) = &mut event {
        service.cluster_ips.retain(IpAddr::is_ipv6);
    }
    if let Event::EndpointSlice(Change::Is(slice)) = &mut event
        && slice.endpoints.get(0).is_some_and(|endpoint| endpoint.address.is_ipv4())
    {
        slice.endpoints = Endpoints::from_iter([]);
    }
    event
}

/// Elements of the frontends of both families.
pub(super) fn frontends(kernel: &Shared) -> [usize; 2] {
    let count = |family| kernel.with(|kernel| elements(kernel, family, SetId::Services).len());
    [count(Family::Ip), count(Family::Ip6)]
}
