//! The settings of direct return, and the services to which it applies.

use std::num::NonZeroU16;
use std::time::Duration;

use super::local::InterfaceName;
use crate::model::{Forwarding, Service, TrafficPolicy};

/// Settings of direct return: nodes hand packets from outside to a node with an endpoint, which
/// sees the client's address and answers the client itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectReturn {
    /// The services to which it applies.
    pub mode: DirectMode,
    /// Devices on which packets from outside arrive; empty for the device of the node's address.
    pub devices: Vec<InterfaceName>,
    /// Time without packets after which a connection is forgotten.
    pub remember: Duration,
    /// Limit of remembered connections.
    pub connections: u32,
    /// It also applies to node ports of TCP, at the node's own address.
    pub node_ports: bool,
    /// UDP port of the VXLAN device over which nodes behind a router are reached; without it, they are
    /// not.
    pub vxlan_port: Option<NonZeroU16>,
}

/// Services to which direct return applies, besides those that annotations name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectMode {
    /// No others.
    Annotated,
    /// Services with load balancer addresses.
    LoadBalancers,
}

impl DirectReturn {
    /// Default of [`DirectReturn::remember`].
    pub const DEFAULT_REMEMBER: Duration = Duration::from_mins(5);

    /// Default of [`DirectReturn::connections`]: 34 MB of kernel memory, at 130 bytes each.
    pub const DEFAULT_CONNECTIONS: u32 = 1 << 18;

    /// Returns the settings of a mode, with defaults for the others.
    pub const fn new(mode: DirectMode) -> Self {
        Self {
            mode,
            devices: Vec::new(),
            remember: Self::DEFAULT_REMEMBER,
            connections: Self::DEFAULT_CONNECTIONS,
            node_ports: false,
            vxlan_port: None,
        }
    }

    /// Returns whether it applies to packets from outside to `service`. Policy `Local` keeps the
    /// client's address by itself.
    pub fn includes(&self, service: &Service) -> bool {
        let is_chosen = match (service.forwarding, self.mode) {
            (Some(Forwarding::Direct), _) => true,
            (Some(Forwarding::Translate), _) | (None, DirectMode::Annotated) => false,
            (None, DirectMode::LoadBalancers) => !service.load_balancer_ips.is_empty(),
        };
        is_chosen && service.external_traffic_policy == TrafficPolicy::Cluster
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectName;

    #[test]
    fn an_annotation_wins_over_the_mode_and_policy_local_over_both() {
        use DirectMode::{Annotated, LoadBalancers};
        use Forwarding::{Direct, Translate};
        for (forwarding, of_others, of_load_balancers) in [
            (None, [false; 2], [false, true]),
            (Some(Direct), [true; 2], [true; 2]),
            (Some(Translate), [false; 2], [false; 2]),
        ] {
            for (addresses, expected) in
                [(vec![], of_others), (vec![[192, 0, 2, 1].into()], of_load_balancers)]
            {
                let name = ObjectName::namespaced("default", "web");
                let service = Service {
                    forwarding,
                    load_balancer_ips: addresses,
                    ..Service::new(name, vec![[10, 96, 0, 1].into()])
                };
                let local =
                    Service { external_traffic_policy: TrafficPolicy::Local, ..service.clone() };
                for (mode, expected) in [Annotated, LoadBalancers].into_iter().zip(expected) {
                    let settings = DirectReturn::new(mode);
                    assert_eq!(settings.includes(&service), expected, "{mode:?} {service:?}");
                    assert!(!settings.includes(&local), "{mode:?} {local:?}");
                }
            }
        }
    }
}
