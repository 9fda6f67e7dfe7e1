//! The program itself, as a user starts it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "cli/apply.rs"]
mod apply;
#[path = "cli/input.rs"]
mod input;
#[path = "cli/kubectl.rs"]
mod kubectl;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/run.rs"]
mod run;
#[path = "cli/service_manager.rs"]
mod service_manager;
#[path = "cli/verify.rs"]
mod verify;

use std::time::Duration;

use netlink_tests::reader::{Family, Table};
use netlink_tests::scenario::{Manifests, Node, Protocol, Service, ServiceCidr};
use netlink_tests::{Host, eventually, kernel_has_owners};

/// How long a daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A node, a ServiceCIDR and the service `web` with these endpoints.
fn manifests(endpoints: &str) -> Manifests {
    let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16"]);
    let manifests = Manifests::new(&[("cidr", &cidr), ("node", &Node::new()), ("web", &web())]);
    manifests.set_endpoints(endpoints);
    manifests
}

fn web() -> Service {
    Service::new("web", "10.96.0.10").named_port("p80-tcp", Protocol::Tcp, 80, 30080)
}

fn tables(host: &Host) -> [Option<Table>; 2] {
    [Family::Ip, Family::Ip6].map(|family| host.read_table(family))
}

/// Waits until the IPv4 table sends `web` to so many endpoints, and the IPv6 table is there.
#[track_caller]
fn wait_for_endpoints(host: &Host, count: usize) {
    eventually(&format!("{count} endpoints"), SOON, || {
        let table = host.read_table(Family::Ip)?;
        host.read_table(Family::Ip6)?;
        (table.sets.get("endpoints")?.elements.len() == count).then_some(())
    });
}
