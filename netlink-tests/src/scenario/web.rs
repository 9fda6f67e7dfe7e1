//! The service that most tests use: `web`, port 80, with its addresses as tests write them.

use super::object::{Service, Slice};

/// The ClusterIP of `web`.
pub const WEB: &str = "10.96.0.10:80";
/// The node port of `web`, at the node's address.
pub const NODE_PORT: &str = "192.168.50.2:30080";
/// The external IP of `web`.
pub const EXTERNAL: &str = "198.51.100.1:80";
/// The load balancer's IP of `web`.
pub const VIP: &str = "198.51.100.2:80";
/// Every case of the external traffic policy.
pub const EXTERNAL_WAYS: [&str; 3] = [NODE_PORT, EXTERNAL, VIP];

/// `web` with every kind of address.
#[must_use]
pub fn web_everywhere() -> Service {
    web_with_node_port().external_ip("198.51.100.1").load_balancer_ip("198.51.100.2")
}

/// `web` with a ClusterIP and a node port.
#[must_use]
pub fn web_with_node_port() -> Service {
    Service::new("web", "10.96.0.10").node_port(80, 30080)
}

/// The slice of `web`, with ready endpoints on these hosts.
#[must_use]
pub fn slice(hosts: &str) -> Slice {
    Slice::new("web").endpoints(hosts)
}
