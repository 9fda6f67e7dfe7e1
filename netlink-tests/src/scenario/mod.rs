//! Scenarios: objects, then packets, with the expected servers and source addresses.
//!
//! A [`Lab`] is a node with pods and hosts around it, and the proxy that programs the node. A test
//! applies objects, checks rows of (client, destination, [`Expect`]), changes objects and checks
//! again. Every row is probed in both families and by TCP, UDP and SCTP at once, so a test says a
//! thing once:
//!
//! ```no_run
//! use netlink_tests::scenario::{Lab, Service, Slice, keeps_source, masquerades};
//!
//! let mut lab = Lab::new();
//! let web = Service::new("web", "10.96.0.10").port(80);
//! lab.apply(&[&web, &Slice::new("web").endpoints("a c")]);
//! lab.check(&[
//!     ("pod", "10.96.0.10:80", keeps_source("a c")),
//!     ("outside", "10.96.0.10:80", masquerades("a c")),
//! ]);
//! ```
//!
//! `a` and `b` are pods on the node, `c` and `d` pods on another one; `hosts.rs` has all hosts.
//! Addresses are written as IPv4; [`crate::ip6_of`] gives the IPv6 counterpart.

mod even;
mod every_chain;
mod expect;
mod hosts;
pub mod kube_proxy;
mod lab;
mod manifests;
mod node;
mod object;
mod oracle;
mod probe;
mod proxy;
mod race;
mod replacement;
mod web;
mod world;

pub use even::{assert_even, assert_weighted};
pub use every_chain::objects_for_every_chain;
pub use expect::{Expect, Family, Protocol, Scope, keeps_source, masquerades};
pub use hosts::NODE_NAME;
pub use lab::Lab;
pub use manifests::Manifests;
pub use node::Node;
pub use object::{Endpoint, Object, Raw, Service, ServiceCidr, Slice};
pub use proxy::{Proxy, Sent, routing};
pub use race::{Race, Way, cycle};
pub use replacement::{Call, Fate, Replacement};
pub use web::{
    EXTERNAL, EXTERNAL_WAYS, NODE_PORT, VIP, WEB, slice, web_everywhere, web_with_node_port,
};
pub use world::World;
