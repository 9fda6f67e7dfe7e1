//! Health check port of a service: load balancers query it for local endpoints.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ahash::HashSet;
use nft::family::Family;

use super::cluster::Cluster;
use super::endpoint::EndpointPort;
use super::name::ObjectName;
use super::stored::{StoredService, StoredSlice};

/// The health check port of a service and the content of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// `spec.healthCheckNodePort`.
    pub port: NonZeroU16,
    /// Number of distinct addresses of ready endpoints on this node, by [`Family::ALL`].
    pub local_endpoints: [usize; 2],
}

impl HealthCheck {
    /// Returns the health check of a service, if it has one.
    pub fn of(cluster: &Cluster, name: &ObjectName) -> Option<Self> {
        let (service, slices) = cluster.stored(name)?;
        let port = service.health_check_node_port()?;
        Some(Self { port, local_endpoints: local_endpoints(service, slices) })
    }
}

fn local_endpoints(service: &StoredService, slices: &[StoredSlice]) -> [usize; 2] {
    let serves = |slice: &&StoredSlice| {
        service.ports().iter().any(|port| !EndpointPort::serving(&slice.ports, port).is_empty())
    };
    let endpoints = slices.iter().filter(serves).flat_map(|slice| slice.endpoints.iter());
    let counted = endpoints.filter(|it| it.conditions.ready && it.conditions.local);
    let addresses: HashSet<IpAddr> = counted.map(|endpoint| endpoint.address).collect();
    Family::ALL.map(|family| addresses.iter().filter(|it| Family::of(**it) == family).count())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::model::{
        Change, Conditions, Endpoint, EndpointSlice, Event, Service, ServicePort, Touched,
    };

    const PORT: NonZeroU16 = NonZeroU16::MIN;

    /// Returns a cluster whose service `web` has these endpoints, some in two slices and for two
    /// ports.
    fn cluster(endpoints: &[(&str, Conditions)]) -> (Cluster, ObjectName) {
        let web = ObjectName::namespaced("default", "web");
        let service = Service {
            health_check_node_port: Some(PORT),
            ports: vec![ServicePort::tcp("http", PORT), ServicePort::tcp("https", PORT)],
            ..Service::new(web.clone(), vec![IpAddr::from([10, 96, 0, 1])])
        };
        let slice = |nth: usize, port: &str, endpoints: &[(&str, Conditions)]| EndpointSlice {
            name: ObjectName::namespaced("default", &format!("web-{nth}")),
            service: web.clone(),
            ports: [EndpointPort::tcp(port, PORT)].into(),
            endpoints: endpoints
                .iter()
                .map(|(ip, conditions)| Endpoint {
                    conditions: *conditions,
                    ..Endpoint::ready(ip.parse().unwrap())
                })
                .collect(),
            triggered: None,
            weighing: None,
        };
        let mut cluster = Cluster::default();
        let mut apply = |event| cluster.apply(event, &mut Touched::default());
        apply(Event::Service(Change::Is(service)));
        for (nth, port) in ["http", "https"].into_iter().enumerate() {
            apply(Event::EndpointSlice(Change::Is(slice(nth, port, endpoints))));
        }
        let ipv6 = [("fd00::1", Conditions { local: true, ..Conditions::READY })];
        apply(Event::EndpointSlice(Change::Is(slice(2, "http", &ipv6))));
        // Serves no port of the service.
        let other = [("10.244.0.99", Conditions { local: true, ..Conditions::READY })];
        apply(Event::EndpointSlice(Change::Is(slice(9, "other", &other))));
        (cluster, web)
    }

    #[test]
    fn ready_addresses_on_this_node_count_once_and_by_family() {
        let local = Conditions { local: true, ..Conditions::READY };
        let terminating = Conditions { ready: false, terminating: true, ..local };
        let (cluster, web) = cluster(&[
            ("10.244.0.1", local),
            ("10.244.0.2", local),
            ("10.244.0.3", terminating),
            ("10.244.1.1", Conditions::READY),
        ]);
        let expected = HealthCheck { port: PORT, local_endpoints: [2, 1] };
        assert_eq!(HealthCheck::of(&cluster, &web), Some(expected));
        assert_eq!(HealthCheck::of(&cluster, &ObjectName::namespaced("default", "other")), None);
    }
}
