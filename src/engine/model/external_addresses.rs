//! The external IPs and load balancer addresses that Services may have.
//!
//! Anyone who can write a Service controls its external IPs. An address outside of these settings
//! is left out of the [`super::ServiceView`], so that no part of the tables has it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::event::Problem;
use super::node::Node;
use super::service::Service;

/// Which external IPs and load balancer addresses are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAddresses {
    /// Serve the `spec.externalIPs` of services, which anyone who can write a Service controls.
    pub external_ips: bool,
    /// Ranges that hold all of them; an empty list allows every address.
    pub allowed: Vec<IpNet>,
    /// Refuse addresses of this node and those in the pod and service ranges of the cluster.
    pub refuse_internal: bool,
}

impl Default for ExternalAddresses {
    fn default() -> Self {
        Self { external_ips: true, allowed: Vec::new(), refuse_internal: false }
    }
}

/// The addresses that [`ExternalAddresses::refuse_internal`] is about.
pub(super) struct Internal<'a> {
    pub(super) node: Option<&'a Node>,
    pub(super) service_cidrs: &'a [IpNet],
    /// Pod ranges from the settings.
    pub(super) pod_ranges: &'a [IpNet],
}

impl ExternalAddresses {
    /// Removes the addresses from `service` that it may not have, and returns a problem for each.
    pub(super) fn restrict(&self, service: &mut Service, internal: &Internal<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        let name = &service.name;
        for (field, addresses) in [
            ("spec.externalIPs", &mut service.external_ips),
            ("status.loadBalancer.ingress", &mut service.load_balancer_ips),
        ] {
            addresses.retain(|address| {
                let refusal = self.refusal(*address, internal);
                problems.extend(
                    refusal.as_ref().map(|message| Problem::of_service(name, field, message)),
                );
                refusal.is_none()
            });
        }
        problems
    }

    /// Returns why an address is not served.
    fn refusal(&self, address: IpAddr, internal: &Internal<'_>) -> Option<String> {
        if !self.allowed.is_empty() && !holds(&self.allowed, address) {
            let ranges = self.allowed.iter().map(ToString::to_string).collect::<Vec<_>>();
            let ranges = ranges.join(", ");
            return Some(format!(
                "{address} is not served: expected an address in {ranges} \
                 (deltaproxy.externalAddresses.allowed)"
            ));
        }
        let whose = internal.owner(address).filter(|_| self.refuse_internal)?;
        Some(format!(
            "{address} is not served: it is {whose}; expected one outside of the node and the \
             cluster (deltaproxy.externalAddresses.refuseInternal)"
        ))
    }
}

impl Internal<'_> {
    /// Returns what an address of the node or of the cluster is.
    fn owner(&self, address: IpAddr) -> Option<&'static str> {
        let of_node = |node: &Node| node.addresses.contains(&address);
        let of_pods = |node: &Node| holds(&node.pod_cidrs, address);
        if self.node.is_some_and(of_node) {
            Some("an address of this node")
        } else if holds(self.service_cidrs, address) {
            Some("in a range of cluster IPs")
        } else if holds(self.pod_ranges, address) || self.node.is_some_and(of_pods) {
            Some("in a range of pods")
        } else {
            None
        }
    }
}

fn holds(ranges: &[IpNet], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectName;

    const EXTERNAL: [&str; 5] = ["192.0.2.1", "10.0.0.1", "10.96.0.9", "10.244.1.1", "fd00::1"];

    /// Returns the remaining addresses and the problems of a service that has `EXTERNAL` in both
    /// fields.
    fn restricted(allowed: &[&str], refuse_internal: bool) -> (Vec<String>, Vec<Problem>) {
        let addresses = || EXTERNAL.map(|address| address.parse().unwrap()).to_vec();
        let mut service = Service {
            external_ips: addresses(),
            load_balancer_ips: addresses(),
            ..Service::new(ObjectName::namespaced("default", "web"), Vec::new())
        };
        let node = Node {
            name: ObjectName::cluster_scoped("node"),
            zone: None,
            addresses: vec![[10, 0, 0, 1].into()],
            pod_cidrs: vec!["fd00::/64".parse().unwrap()],
            leaving: false,
        };
        let internal = Internal {
            node: Some(&node),
            service_cidrs: &["10.96.0.0/16".parse().unwrap()],
            pod_ranges: &["10.244.0.0/16".parse().unwrap()],
        };
        let allowed = allowed.iter().map(|range| range.parse().unwrap()).collect();
        let settings =
            ExternalAddresses { allowed, refuse_internal, ..ExternalAddresses::default() };
        let problems = settings.restrict(&mut service, &internal);
        assert_eq!(service.external_ips, service.load_balancer_ips);
        (service.external_ips.iter().map(ToString::to_string).collect(), problems)
    }

    #[test]
    fn every_address_is_served_by_default() {
        assert_eq!(restricted(&[], false), (EXTERNAL.map(str::to_owned).to_vec(), Vec::new()));
    }

    #[test]
    fn an_address_outside_of_the_allowed_ranges_is_a_problem_with_its_field() {
        let (left, problems) = restricted(&["192.0.2.0/24", "10.0.0.0/8"], false);
        assert_eq!(left, EXTERNAL[..4]);
        let [external, load_balancer] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(
            external.to_string(),
            "Service default/web: spec.externalIPs: fd00::1 is not served: expected an address in \
             192.0.2.0/24, 10.0.0.0/8 (deltaproxy.externalAddresses.allowed)"
        );
        assert_eq!(load_balancer.field, "status.loadBalancer.ingress");
    }

    #[test]
    fn addresses_of_the_node_and_of_the_cluster_are_refused_by_choice() {
        let (left, problems) = restricted(&[], true);
        assert_eq!(left, ["192.0.2.1"]);
        let reasons =
            problems[..4].iter().map(|problem| problem.message.split("; ").next().unwrap());
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            [
                "10.0.0.1 is not served: it is an address of this node",
                "10.96.0.9 is not served: it is in a range of cluster IPs",
                "10.244.1.1 is not served: it is in a range of pods",
                "fd00::1 is not served: it is in a range of pods",
            ]
        );
    }

    #[test]
    fn a_range_that_is_allowed_does_not_open_the_cluster() {
        assert_eq!(restricted(&["10.0.0.0/8", "192.0.2.0/24"], true).0, ["192.0.2.1"]);
    }
}
