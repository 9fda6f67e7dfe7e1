//! Direct return with packets: three nodes on one link, a router, and clients behind it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use netlink_tests::cluster::{Cluster, slice, web};
use netlink_tests::stretched;

#[path = "direct_return/announcements.rs"]
mod announcements;
#[path = "direct_return/changes.rs"]
mod changes;
#[path = "direct_return/commands.rs"]
mod commands;
#[path = "direct_return/daemons.rs"]
mod daemons;
#[path = "direct_return/device_kinds.rs"]
mod device_kinds;
#[path = "direct_return/devices.rs"]
mod devices;
#[path = "direct_return/explaining.rs"]
mod explaining;
#[path = "direct_return/hosts.rs"]
mod hosts;
#[path = "direct_return/late_node.rs"]
mod late_node;
#[path = "direct_return/loops.rs"]
mod loops;
#[path = "direct_return/memory.rs"]
mod memory;
#[path = "direct_return/node_addresses.rs"]
mod node_addresses;
#[path = "direct_return/node_ports.rs"]
mod node_ports;
#[path = "direct_return/obstacles.rs"]
mod obstacles;
#[path = "direct_return/sizes.rs"]
mod sizes;
#[path = "direct_return/source_ranges.rs"]
mod source_ranges;
#[path = "direct_return/status_page.rs"]
mod status_page;
#[path = "direct_return/switching.rs"]
mod switching;
#[path = "direct_return/tunnel.rs"]
mod tunnel;
#[path = "direct_return/ways.rs"]
mod ways;

/// Names of servers on all nodes.
const SERVERS: &str = "a1 b1 b2 c1";

/// A cluster whose nodes hand packets to `web` to each other. Its servers are [`SERVERS`].
#[track_caller]
fn cluster() -> Cluster {
    with_settings("mode: annotated")
}

/// The same with these fields of `deltaproxy.directReturn`.
#[track_caller]
fn with_settings(direct_return: &str) -> Cluster {
    with_web(Cluster::new(direct_return))
}

/// Settings with which a connection is remembered for some seconds, more on a slow machine.
fn remember(seconds: u64) -> String {
    let time = stretched(Duration::from_secs(seconds));
    format!("mode: annotated, remember: {}s", time.as_secs())
}

/// Gives a cluster the service `web`.
#[track_caller]
fn with_web(cluster: Cluster) -> Cluster {
    cluster.apply("web", &web());
    cluster.apply("slice", &slice(SERVERS));
    cluster.wait_for_slots_everywhere("abc");
    cluster
}
