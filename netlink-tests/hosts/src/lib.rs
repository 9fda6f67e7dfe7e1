//! Hosts and links made of network namespaces: a node, pods, and hosts outside the cluster.
//!
//! ```text
//!   outside ----+                       +---- pod      10.244.1.x
//!   192.0.2.x   |      node             |
//!   (no CIDR)   +--- 192.168.50.2 ------+---- pod
//!               |    routes, runs the   |
//!   remote pod--+    program under test +---- ...
//!   10.244.2.x
//! ```
//!
//! [`Net`] builds that picture, [`Switched`] one of several nodes on a link, one namespace for each
//! [`Host`]; a host serves, probes, runs programs and reads the kernel back ([`reader`]). Invariants: a test sees only the namespaces that
//! it made, every wait has a limit, and dropping the values ends what they started, also when the
//! test panics. A test that cannot run fails with the command that makes it run.

#![allow(clippy::expect_used, clippy::unwrap_used)] // A broken expectation is a failed test.

pub mod datagram;
pub mod link;
pub mod reader;

mod announcer;
mod answer;
mod capture;
mod conntrack;
mod deadline;
mod device;
mod echo;
mod host;
mod interruption;
mod namespace;
mod net;
mod offload;
mod process;
mod sctp;
mod serve;
mod switched;
mod tcp;
mod transfer;
mod udp;

pub use announcer::Announcer;
pub use answer::Answer;
pub use capture::{Capture, Frame};
pub use conntrack::{Tracked, TrackedFlows};
pub use deadline::{Deadline, PATIENCE, SILENCE, eventually, stretched};
pub use device::DeviceKind;
pub use host::{
    Host, chromium_available, in_user_namespace, kernel_has_owners, nft_available, nft_can_load,
};
pub use interruption::{Interrupted, Interruption};
pub use namespace::Namespace;
pub use net::{NODE_IP, NODE_IP6, Net, ip6_of};
pub use offload::Segments;
pub use process::{Finished, Process, deltaproxy_binary};
pub use serve::Server;
pub use switched::{CLIENT, NODES, SERVICES, Switched};
pub use tcp::Connection;
pub use udp::Flow;
