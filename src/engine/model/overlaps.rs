//! Addresses and ranges of other uses inside the ranges of cluster IPs.
//!
//! Rules drop packets to addresses of these ranges that no service has. Addresses of the node
//! itself are never dropped; the gateways and the API server are exempt, so that the node can learn
//! of the mistake's end.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ahash::HashSet;
use ipnet::IpNet;

use super::cluster::Cluster;
use super::event::{ObjectRef, Problem, ProblemKind, Resource};
use super::name::ObjectName;

/// The Service of the API server.
pub const API_SERVER: &str = "default/kubernetes";

/// Addresses around this node that no object of the cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// Those of this node's interfaces.
    pub local: Vec<IpAddr>,
    /// Those of the routers of the default routes.
    pub gateways: Vec<IpAddr>,
    /// Those at which this program reaches the API server.
    pub api_server: Vec<IpAddr>,
}

impl From<Vec<IpAddr>> for HostAddresses {
    fn from(local: Vec<IpAddr>) -> Self {
        Self { local, ..Self::default() }
    }
}

impl HostAddresses {
    /// Returns the addresses to which packets are never dropped, sorted: the gateways, and the API
    /// server where no cluster IP leads to it.
    pub fn exempt(&self, cluster: &Cluster) -> Vec<IpAddr> {
        let mut exempt: Vec<_> =
            self.gateways.iter().copied().chain(self.servers(cluster)).collect();
        exempt.sort_unstable();
        exempt.dedup();
        exempt
    }

    /// Returns a problem for each address or range of another use inside a range of cluster IPs.
    pub fn overlaps(&self, cluster: &Cluster) -> Vec<Problem> {
        let ranges: BTreeMap<_, _> = cluster.service_ranges().collect();
        let mut addresses = BTreeMap::new();
        let gateways = self.gateways.iter().map(|it| (*it, "a gateway of this node"));
        let servers = self.servers(cluster).map(|it| (it, "an address of the API server"));
        addresses.extend(servers.chain(gateways));
        addresses.extend(self.local.iter().map(|it| (*it, "an address of this node")));
        addresses.retain(|address, _| ranges.values().any(|range| holds(range, *address)));
        if !addresses.is_empty() {
            // A cache, or mode ipvs, makes cluster IPs addresses of the node.
            let cluster_ips: HashSet<_> = cluster.all_cluster_ips().collect();
            addresses.retain(|address, _| !cluster_ips.contains(address));
        }
        let mut problems = Vec::new();
        for (name, ranges) in ranges {
            for range in ranges {
                let inside = addresses.iter().filter(|(address, _)| range.contains(*address));
                let inside = inside.map(|(address, whose)| format!("{address}, {whose}"));
                let pods = cluster.pod_ranges().filter(|pods| overlap(range, pods));
                let pods = pods.map(|pods| format!("addresses of {pods}, a range of pods"));
                let what = inside.chain(pods);
                problems.extend(what.map(|what| problem(name, &format!("{range} holds {what}"))));
            }
        }
        problems
    }

    fn servers<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = IpAddr> + 'a {
        let name = ObjectName::written(API_SERVER);
        let endpoints: Vec<_> = cluster.endpoint_addresses(&name).collect();
        let found = self.api_server.iter().copied().chain(endpoints);
        found.filter(move |address| !cluster.has_cluster_ip(&name, *address))
    }
}

fn problem(service_cidr: &ObjectName, what: &str) -> Problem {
    let object = ObjectRef { resource: Resource::ServiceCidrs, name: service_cidr.clone() };
    let message = format!("{what}; expected a range of which nothing else has an address");
    Problem::new(ProblemKind::Overlap, object, "spec.cidrs", message)
}

fn holds(ranges: &[IpNet], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Change, Conditions, Endpoint, EndpointSlice, Event, Service, ServiceCidr, Touched,
    };

    fn ips(list: &str) -> Vec<IpAddr> {
        list.split_whitespace().map(|ip| ip.parse().unwrap()).collect()
    }

    /// Returns a cluster with a range over much, and the Service of the API server.
    fn cluster() -> Cluster {
        let name = ObjectName::written(API_SERVER);
        let endpoint = |address| Endpoint { address, conditions: Conditions::READY, zones: None };
        let slice = EndpointSlice {
            name: name.clone(),
            service: name.clone(),
            ports: Default::default(),
            endpoints: ips("10.96.166.191 192.0.2.1").into_iter().map(endpoint).collect(),
            triggered: None,
            weighing: None,
        };
        let cidrs = ["10.96.0.0/12", "192.168.0.0/16"].map(|it| it.parse().unwrap()).into();
        let range = ServiceCidr { name: ObjectName::cluster_scoped("kubernetes"), cidrs };
        let dns = Service::new(ObjectName::written("kube-system/dns"), ips("10.96.0.10"));
        let mut cluster = Cluster::default();
        cluster.restrict_external(
            crate::model::ExternalAddresses::default(),
            vec!["10.97.0.0/16".parse().unwrap()],
        );
        for event in [
            Event::ServiceCidr(Change::Is(range)),
            Event::Service(Change::Is(Service::new(name, ips("10.96.0.1")))),
            Event::Service(Change::Is(dns)),
            Event::EndpointSlice(Change::Is(slice)),
        ] {
            cluster.apply(event, &mut Touched::default());
        }
        cluster
    }

    #[test]
    fn each_address_of_another_use_is_a_problem_and_bound_cluster_ips_are_none() {
        let host = HostAddresses {
            local: ips("127.0.0.1 10.96.0.10 192.168.50.2"),
            gateways: ips("192.168.50.1 fe80::1"),
            api_server: ips("10.96.0.1 192.168.50.2"),
        };
        let found = host.overlaps(&cluster());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "10.96.0.0/12 holds 10.96.166.191, an address of the API server",
            "10.96.0.0/12 holds addresses of 10.97.0.0/16, a range of pods",
            "192.168.0.0/16 holds 192.168.50.1, a gateway of this node",
            "192.168.0.0/16 holds 192.168.50.2, an address of this node",
        ];
        let problem = |what| {
            format!(
                "ServiceCIDR kubernetes: spec.cidrs: {what}; expected a range of which nothing else \
                 has an address"
            )
        };
        assert_eq!(found, expected.map(problem));
    }

    #[test]
    fn gateways_and_the_api_server_are_exempt_and_its_cluster_ip_is_not() {
        let host = HostAddresses {
            local: ips("192.168.50.2"),
            gateways: ips("192.168.50.1"),
            api_server: ips("10.96.0.1 192.168.50.9"),
        };
        let expected = ips("10.96.166.191 192.0.2.1 192.168.50.1 192.168.50.9");
        assert_eq!(host.exempt(&cluster()), expected);
    }
}
