//! `make demo-direct-return`: the same clients through translation and through direct return.
//!
//! Everything happens in network namespaces and temporary folders; they go with the program, also
//! when it is interrupted.

#![allow(clippy::expect_used)] // Like a test: an error ends it.
#![allow(clippy::print_stdout)] // It prints its results.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;

use netlink_tests::cluster::{ADDRESS, Cluster, slice, web};
use netlink_tests::scenario::{Family, Protocol};
use netlink_tests::{Answer, CLIENT, Interrupted, Interruption, NODES};

/// Connections of each kind.
const CONNECTIONS: usize = 30;

/// The endpoints of service `web`: the letter is that of the node.
const SERVERS: &str = "a1 b1 b2 c1";

fn main() -> ExitCode {
    match show(&Interruption::listen()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Interrupted) => {
            println!("\ninterrupted; nothing is left behind");
            ExitCode::FAILURE
        }
    }
}

fn show(interruption: &Interruption) -> Result<(), Interrupted> {
    println!(
        "Three nodes on one link. Behind a router, a client {CLIENT} connects to service web at\n\
         {ADDRESS}, whose external traffic policy is Cluster and whose endpoints are {SERVERS}\n\
         (a1 is on node-a). The router sends its packets to node-a.\n"
    );
    for (mode, words) in [("off", "node-a translates"), ("annotated", "nodes hand packets on")] {
        println!("directReturn.mode {mode}: {words}");
        let cluster = cluster(mode);
        for family in Family::ALL {
            show_answers(&cluster, family, interruption)?;
        }
        show_tracking(&cluster);
        show_other_entry(&cluster, interruption)?;
        if mode != "off" {
            show_fewer_endpoints(&cluster, interruption)?;
        }
        println!();
    }
    println!("The namespaces go with this program.");
    Ok(())
}

/// The cluster in its two modes.
fn cluster(mode: &str) -> Cluster {
    let is_direct = mode != "off";
    let mut cluster = Cluster::without_daemons(&format!("mode: {mode}"));
    let apply = |cluster: &Cluster| {
        cluster.apply("web", &web());
        cluster.apply("slice", &slice(SERVERS));
    };
    if !is_direct {
        apply(&cluster);
    }
    (0..NODES.len()).for_each(|place| cluster.start(place));
    if is_direct {
        // A service that is younger than the daemons has no connections to be learned first.
        apply(&cluster);
        cluster.wait_for_slots_everywhere("abc");
    }
    cluster
}

/// Who answers, and which client it sees.
fn show_answers(
    cluster: &Cluster,
    family: Family,
    interruption: &Interruption,
) -> Result<(), Interrupted> {
    let mut servers = BTreeMap::new();
    let mut clients: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for _ in 0..CONNECTIONS {
        interruption.check()?;
        let seen = cluster.ask(Protocol::Tcp, family);
        *servers.entry(seen.server).or_insert(0) += 1;
        *clients.entry(seen.source.ip()).or_default() += 1;
    }
    println!("  {}: {} answer", family.name(), counts(&servers));
    println!("    they see the clients {}", counts(&clients));
    Ok(())
}

/// The nodes that track a connection to a server of another node than the entry.
fn show_tracking(cluster: &Cluster) {
    let asked = (0..CONNECTIONS).map(|_| cluster.ask(Protocol::Tcp, Family::Ipv4));
    let Some(seen) = asked.into_iter().find(|seen| seen.place() != 0) else { return };
    let tracking = (0..NODES.len()).filter(|place| cluster.tracks(*place, &seen));
    let names: Vec<_> = tracking.map(|place| NODES[place]).collect();
    println!("  a connection to {} is tracked by {}", seen.server, names.join(" and "));
}

/// Open connections when the router chooses another entry.
fn show_other_entry(cluster: &Cluster, interruption: &Interruption) -> Result<(), Interrupted> {
    let mut connections = cluster.open(CONNECTIONS, Family::Ipv4);
    cluster.link.enter_at(1);
    let mut count = 0;
    for connection in &mut connections {
        interruption.check()?;
        let server = connection.first().clone();
        count += usize::from(connection.ask() == server);
    }
    println!(
        "  the router changes the entry to node-b: {count} of {CONNECTIONS} connections go on"
    );
    Ok(())
}

/// Open connections when an endpoint goes.
fn show_fewer_endpoints(cluster: &Cluster, interruption: &Interruption) -> Result<(), Interrupted> {
    let mut connections = cluster.open(CONNECTIONS, Family::Ipv6);
    let fewer = "a1 b1 b2";
    cluster.replace_endpoints(fewer);
    let (mut count, mut others) = (0, 0);
    for connection in &mut connections {
        interruption.check()?;
        let server = connection.first().clone();
        if matches!(&server, Answer::From { server, .. } if server != "c1") {
            others += 1;
            count += usize::from(connection.ask() == server);
        }
    }
    println!("  endpoint c1 goes: {count} of {others} connections to the others go on");
    Ok(())
}

fn counts<T: std::fmt::Display>(counts: &BTreeMap<T, usize>) -> String {
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} x {what}")).collect();
    counts.join(", ")
}
