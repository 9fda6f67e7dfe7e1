//! The node, the hosts around it, and the proxy under test.

use std::net::IpAddr;

use engine::routing::Routing;

use super::expect::{Expect, Scope};
use super::node::Node;
use super::object::{Object, ServiceCidr};
use super::probe::failures;
use super::proxy::{Proxy, Sent, routing};
use super::world::World;

/// The hosts and the proxy.
#[derive(Debug)]
pub struct Lab {
    /// The hosts.
    pub world: World,
    /// The proxy on the node.
    pub proxy: Proxy,
}

impl Lab {
    /// A lab with the usual cluster CIDRs, Node and ServiceCIDR.
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        Self::with(routing())
    }

    /// A lab with other settings.
    #[must_use]
    #[track_caller]
    pub fn with(routing: Routing) -> Self {
        Self::with_node_addresses(routing, &[])
    }

    /// A lab whose node has more addresses, on its loopback interface.
    ///
    /// # Panics
    /// When an address is none.
    #[must_use]
    #[track_caller]
    pub fn with_node_addresses(routing: Routing, addresses: &[&str]) -> Self {
        let world = World::new();
        for address in addresses {
            world.node().add_address(address.parse::<IpAddr>().expect("an address"));
        }
        let proxy = Proxy::start(world.node(), routing);
        let mut lab = Self { world, proxy };
        let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let _ = lab.apply(&[&Node::new(), &cidrs]);
        lab
    }

    /// A lab that has nothing but hosts: neither Node nor ServiceCIDR.
    #[must_use]
    #[track_caller]
    pub fn without_objects(routing: Routing) -> Self {
        let world = World::new();
        let proxy = Proxy::start(world.node(), routing);
        Self { world, proxy }
    }

    /// Makes objects so, and commits.
    #[track_caller]
    pub fn apply(&mut self, objects: &[&dyn Object]) -> Sent {
        self.proxy.apply(objects)
    }

    /// Removes objects, and commits.
    #[track_caller]
    pub fn remove(&mut self, objects: &[&dyn Object]) -> Sent {
        self.proxy.remove(objects)
    }

    /// Checks rows of (client, destination, expectation) by every protocol in both families.
    #[track_caller]
    pub fn check(&self, rows: &[(&str, &str, Expect)]) {
        self.check_in(Scope::ALL, rows);
    }

    /// Checks rows by some protocols and families.
    ///
    /// # Panics
    /// With everything that was otherwise than expected.
    #[track_caller]
    pub fn check_in(&self, scope: Scope, rows: &[(&str, &str, Expect)]) {
        let failures = failures(&self.world, scope, rows);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}
