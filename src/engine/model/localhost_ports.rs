//! Node ports of a service that the daemon serves at `[::1]`: the kernel cannot translate packets to
//! that address.

use std::net::Ipv6Addr;
use std::num::NonZeroU16;

use nft::family::Family;

use super::cluster::Cluster;
use super::name::ObjectName;
use super::protocol::Protocol;
use super::usable::has_usable;

/// The TCP node ports of a service that have IPv6 endpoints; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalhostPorts {
    /// Creation time in seconds since 1970: of several services the oldest has the node port.
    pub created: i64,
    /// The cluster IP of IPv6.
    pub cluster_ip: Ipv6Addr,
    /// The ports, in the order of the service.
    pub ports: Vec<LocalhostPort>,
}

/// A TCP port of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalhostPort {
    /// Port at the node's addresses.
    pub node_port: NonZeroU16,
    /// Port at the cluster IP.
    pub port: NonZeroU16,
}

impl LocalhostPorts {
    /// Returns the node ports of a service that are to be served at `[::1]`.
    pub fn of(cluster: &Cluster, name: &ObjectName) -> Option<Self> {
        let (service, slices) = cluster.stored(name)?;
        let cluster_ip = service.ipv6_cluster_ip()?;
        let ports = service.ports().iter().filter(|port| port.protocol == Protocol::Tcp);
        let ports = ports.filter_map(|port| {
            let node_port = port.node_port?;
            has_usable(slices, port, Family::Ip6)
                .then_some(LocalhostPort { node_port, port: port.port })
        });
        let ports: Vec<_> = ports.collect();
        let created = service.created();
        (!ports.is_empty()).then_some(Self { created, cluster_ip, ports })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::model::{
        Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Endpoints, Event, Service,
        ServicePort, Touched,
    };

    fn number(port: u16) -> NonZeroU16 {
        port.try_into().unwrap()
    }

    /// Returns the ports of a service with these cluster IPs and an endpoint with this address.
    fn ports(cluster_ips: &[&str], endpoint: &str, conditions: Conditions) -> Vec<(u16, u16)> {
        let web = ObjectName::namespaced("default", "web");
        let port = |name, port, node_port| ServicePort {
            node_port,
            ..ServicePort::tcp(name, number(port))
        };
        let udp = ServicePort { protocol: Protocol::Udp, ..port("dns", 53, Some(number(30053))) };
        let service = Service {
            ports: vec![
                port("http", 80, Some(number(30080))),
                port("inner", 81, None),
                port("unserved", 82, Some(number(30082))),
                udp,
            ],
            ..Service::new(web.clone(), cluster_ips.iter().map(|ip| ip.parse().unwrap()).collect())
        };
        let slice = EndpointSlice {
            name: ObjectName::namespaced("default", "web-1"),
            service: web.clone(),
            ports: vec![
                EndpointPort::tcp("http", number(8080)),
                EndpointPort::tcp("inner", number(8080)),
                EndpointPort { protocol: Protocol::Udp, ..EndpointPort::tcp("dns", number(53)) },
            ]
            .into(),
            endpoints: Endpoints::from_iter([Endpoint {
                conditions,
                ..Endpoint::ready(endpoint.parse::<IpAddr>().unwrap())
            }]),
            triggered: None,
            weighing: None,
        };
        let mut cluster = Cluster::default();
        for event in [Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
        {
            cluster.apply(event, &mut Touched::default());
        }
        let found = LocalhostPorts::of(&cluster, &web);
        found
            .into_iter()
            .flat_map(|it| it.ports)
            .map(|it| (it.node_port.get(), it.port.get()))
            .collect()
    }

    #[test]
    fn tcp_node_ports_with_ipv6_endpoints_are_served() {
        let terminating = Conditions { ready: false, terminating: true, ..Conditions::READY };
        let none = Conditions { ready: false, ..Conditions::READY };
        let both = &["10.96.0.1", "fd00:96::1"][..];
        for (cluster_ips, endpoint, conditions, expected) in [
            (both, "fd00::5", Conditions::READY, vec![(30080, 80)]),
            (&both[1..], "fd00::5", terminating, vec![(30080, 80)]),
            (both, "fd00::5", none, vec![]),
            (both, "10.244.1.5", Conditions::READY, vec![]),
            (&both[..1], "fd00::5", Conditions::READY, vec![]),
        ] {
            assert_eq!(
                ports(cluster_ips, endpoint, conditions),
                expected,
                "{cluster_ips:?} {endpoint}"
            );
        }
    }
}
