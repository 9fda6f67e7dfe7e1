//! Limits of a service's lists whose lengths multiply, so that a tenant's small object stays small.
//!
//! Ports, addresses, source ranges and endpoints are lists of an object, and its elements are their
//! products. Without limits a short object could need more elements than a node can hold.

use std::net::IpAddr;

use nft::family::Family;

use crate::model::Service;

/// Maximum number of external addresses times ports.
const FRONTENDS: usize = 16_384;

/// Maximum number of source ranges times frontends that they guard.
const GUARDED: usize = 16_384;

/// Maximum number of endpoints times ports.
const ENDPOINTS: usize = 262_144;

/// The most of each list of a service in one family; each at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProductLimits {
    /// Load balancer addresses, and then external IPs.
    pub(super) addresses: usize,
    /// Source ranges, in ascending order. Other sources are not admitted.
    pub(super) ranges: usize,
    /// Endpoints of each port.
    pub(super) endpoints: usize,
}

impl ProductLimits {
    pub(super) fn of(service: &Service, family: Family) -> Self {
        let ports = ports(service);
        let ranges = part(GUARDED, guarded(service, family));
        Self { addresses: part(FRONTENDS, ports), ranges, endpoints: part(ENDPOINTS, ports) }
    }
}

/// Returns the number of frontends of a service that its source ranges guard: each has all of them.
pub(super) fn guarded(service: &Service, family: Family) -> usize {
    let ports = ports(service);
    let addresses = service.load_balancer_ips.iter().filter(|ip| Family::of(**ip) == family);
    ports * addresses.count().min(part(FRONTENDS, ports))
}

/// Returns the number of elements of the port ranges of a service: each address has all blocks.
pub(super) fn range_elements(service: &Service, family: Family) -> usize {
    let of_family = |ip: &&IpAddr| Family::of(**ip) == family;
    let external = service.load_balancer_ips.iter().chain(&service.external_ips).filter(of_family);
    let external = external.count().min(part(FRONTENDS, ports(service)));
    blocks(service) * (service.cluster_ips.iter().filter(of_family).count() + external)
}

/// Returns the ports of a service, and the blocks of its port ranges, which are elements too.
fn ports(service: &Service) -> usize {
    service.ports.len() + blocks(service)
}

fn blocks(service: &Service) -> usize {
    service.port_ranges.iter().map(|range| range.blocks().len()).sum()
}

fn part(all: usize, count: usize) -> usize {
    (all / count.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU16;

    use super::*;
    use crate::desired::{DesiredService, GrantedTimeout, Scope, SlotBudget, SlotDemand, render};
    use crate::model::{
        Change, Cluster, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, PortRange,
        ServicePort, Touched,
    };
    use crate::ruleset::number::Timeout;

    fn service(ports: u16) -> Service {
        let name = ObjectName::namespaced("default", "web");
        let port = |n: u16| ServicePort::tcp(&n.to_string(), NonZeroU16::new(n).unwrap());
        Service {
            ports: (1..=ports).map(port).collect(),
            ..Service::new(name, vec![[10, 96, 0, 1].into()])
        }
    }

    fn addresses(first: u32, count: u32) -> Vec<IpAddr> {
        (first..first + count).map(|bits| Ipv4Addr::from(bits).into()).collect()
    }

    /// Renders a service with `endpoints` endpoints.
    fn rendered(service: Service, endpoints: u32) -> DesiredService {
        rendered_within(service, endpoints, &SlotBudget::default())
    }

    /// The same, with a budget of source ranges.
    fn rendered_within(service: Service, endpoints: u32, ranges: &SlotBudget) -> DesiredService {
        let (mut cluster, name) = (Cluster::default(), service.name.clone());
        let port = |port: &ServicePort| EndpointPort::tcp(&port.name, port.port);
        let endpoints = addresses(0x0af4_0000, endpoints);
        let slice = EndpointSlice {
            name: name.clone(),
            service: name.clone(),
            ports: service.ports.iter().map(port).collect(),
            endpoints: endpoints.into_iter().map(Endpoint::ready).collect(),
            triggered: None,
            weighing: None,
        };
        for event in [Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
        {
            cluster.apply(event, &mut Touched::default());
        }
        let slots = SlotBudget::default();
        let grants = slots.of(&name).with_ranges(ranges, &name);
        let view = cluster.service(&name).unwrap();
        let has_port_ranges = !view.service.port_ranges.is_empty();
        let none = || GrantedTimeout { number: Timeout::NONE, seconds: 0 };
        render(&view, has_port_ranges.then(none), grants)
    }

    #[track_caller]
    fn check_problem(desired: &DesiredService, expected: &str) {
        assert!(desired.problems.iter().any(|it| it.message == expected), "{:?}", desired.problems);
    }

    #[test]
    fn external_addresses_of_many_ports_are_limited_and_reported_once() {
        let external_ips = addresses(0xc000_0200, 200);
        let desired = rendered(Service { external_ips, ..service(200) }, 1);
        let frontends: usize = desired.ports.iter().map(|port| port.frontends.len()).sum();
        assert_eq!(frontends, 200 + 200 * 81);
        let of_cluster_ip =
            desired.ports.iter().all(|it| it.frontends[0].traffic.uses(Scope::Cluster));
        assert!(of_cluster_ip);
        assert_eq!(desired.problems.len(), 1);
        check_problem(
            &desired,
            "of its 200 external addresses only the first 81 are used, each with 200 ports",
        );
        let few = Service { external_ips: addresses(0xc000_0200, 81), ..service(200) };
        assert_eq!(rendered(few, 1).problems, []);
    }

    #[test]
    fn source_ranges_of_many_frontends_are_limited_and_admit_no_other_source() {
        let ranges = addresses(0xcb00_7000, 400).into_iter().map(|ip| ip.into()).collect();
        let load_balancer_ips = addresses(0xc000_0200, 2);
        let desired =
            rendered(Service { load_balancer_ips, source_ranges: ranges, ..service(100) }, 1);
        for port in &desired.ports {
            assert_eq!(port.ranges.len(), 81);
            assert_eq!(port.frontends.iter().filter(|it| it.has_source_ranges).count(), 2);
        }
        check_problem(&desired, "of its 400 source ranges only the first 81 are admitted");
    }

    #[test]
    fn source_ranges_come_out_of_a_budget_that_namespaces_share() {
        let guarded = |namespace: &str, ranges| Service {
            name: ObjectName::namespaced(namespace, "web"),
            load_balancer_ips: addresses(0xc000_0200, 1),
            source_ranges: addresses(0xcb00_7000, ranges).into_iter().map(Into::into).collect(),
            ..service(1)
        };
        let services = [guarded("greedy", 400), guarded("modest", 10)];
        let mut budget = SlotBudget::new(100);
        for service in &services {
            budget.request(&service.name, SlotDemand::of_ranges(service));
        }
        budget.share();
        let [greedy, modest] = services.map(|service| rendered_within(service, 1, &budget));
        assert_eq!([&greedy, &modest].map(|it| it.ports[0].ranges.len()), [80, 10]);
        assert_eq!(modest.problems, []);
        check_problem(
            &greedy,
            "of its 400 source ranges only the first 80 are admitted; services of this namespace \
             have more than its share of the node's source ranges",
        );
    }

    #[test]
    fn port_ranges_come_out_of_the_same_budget_and_are_left_out_as_a_whole() {
        let with_ranges = |namespace: &str, list: &str| Service {
            name: ObjectName::namespaced(namespace, "web"),
            external_ips: addresses(0xc000_0200, 2),
            port_ranges: PortRange::parse_list(list).unwrap(),
            ..service(1)
        };
        // 11 and 2 blocks, at 3 addresses.
        let services =
            [with_ranges("greedy", "udp/10000-20001"), with_ranges("modest", "tcp/5000-5011")];
        let counts = services.each_ref().map(|it| range_elements(it, Family::Ip));
        let mut budget = SlotBudget::new(u32::try_from(counts[0]).unwrap());
        for service in &services {
            budget.request(&service.name, SlotDemand::of_ranges(service));
        }
        budget.share();
        let [greedy, modest] = services.map(|service| rendered_within(service, 1, &budget));
        let blocks = |it: &DesiredService| it.ports.iter().map(|port| port.blocks.len()).sum();
        let blocks: [usize; 2] = [&greedy, &modest].map(blocks);
        assert_eq!((blocks, counts[1]), ([0, counts[1] / 3], 6));
        assert_eq!(modest.problems, []);
        check_problem(
            &greedy,
            "its port ranges are left out; services of this namespace have more than its share of \
             the node's ranges",
        );
    }

    #[test]
    fn endpoints_of_many_ports_are_limited() {
        let desired = rendered(service(1_000), 300);
        assert!(desired.ports.iter().all(|port| port.endpoints(Scope::Cluster).len() == 262));
        assert_eq!(desired.problems.len(), 1);
        check_problem(
            &desired,
            "port 1 and 999 others: of its 300 endpoints only the first 262 are used",
        );
        assert_eq!(rendered(service(4), 300).problems, []);
    }
}
