//! core/v1 Service as protobuf.

use super::super::service::{
    ClientIp, LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec,
    ServiceStatus, SessionAffinityConfig,
};
use super::message::{MessageField, ReadMessage, messages};
use super::wire::{Fields, WireError};

messages! { 'a
    Service { 1 metadata, 2 spec, 3 status, }
    ServiceSpec {
        1 ports,
        3 cluster_ip,
        4 kind,
        5 external_ips,
        7 session_affinity,
        9 load_balancer_source_ranges,
        11 external_traffic_policy,
        12 health_check_node_port,
        14 session_affinity_config,
        18 cluster_ips,
        19 ip_families,
        22 internal_traffic_policy,
    }
    ServicePort { 1 name, 2 protocol, 3 port, 5 node_port, }
    SessionAffinityConfig { 1 client_ip, }
    ClientIp { 1 timeout_seconds, }
    ServiceStatus { 1 load_balancer, }
    LoadBalancerStatus { 1 ingress, }
    LoadBalancerIngress { 1 ip, 3 ip_mode, }
}
