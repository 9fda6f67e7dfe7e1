//! Scheduler lc: new connections avoid the endpoint that holds many.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::thread;
use std::time::Duration;

use netlink_tests::scenario::{
    Family, Lab, Manifests, Protocol, Slice, WEB, assert_weighted, routing, web_everywhere,
};
use netlink_tests::{Host, Process, deltaproxy_binary, eventually};
use serde_json::Value;

/// Turns the scheduler on.
const ON: &str = "--least-connections=1s";

const SCHEDULER: &str = "deltaproxy.io/scheduler";

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Long connections to the crowded endpoint.
const LONG: usize = 40;

/// Connections whose endpoints are counted.
const SHORT: usize = 300;

fn web() -> SocketAddr {
    let to: SocketAddrV4 = WEB.parse().unwrap();
    SocketAddr::new(IpAddr::V4(*to.ip()), to.port())
}

/// A row of a frontend, in JSON.
fn shown(node: &Host, frontend: &str) -> Option<Value> {
    let finished = node.output(deltaproxy_binary(), &["show", frontend, "--output", "json"]);
    let document: Value = serde_json::from_str(&finished.stdout).ok()?;
    Some(document["services"][0].clone())
}

/// The frontend of [`WEB`].
const WEB_TCP: &str = "10.96.0.10:80/tcp";

/// The cluster IP of IPv6, and its frontend over UDP.
const WEB6: &str = "[fd00:10:96::10]:80";
const WEB6_UDP: &str = "[fd00:10:96::10]:80/udp";

/// A flow of UDP counts once it is assured: it was answered, and goes on after two seconds
/// (`nf_conntrack_udp_packet`).
const ASSURED: Duration = Duration::from_millis(2_500);

fn open_tcp(pod: &Host) -> Box<dyn Any> {
    Box::new((0..LONG).map(|_| pod.open_tcp(web()).unwrap()).collect::<Vec<_>>())
}

fn open_udp_over_ipv6(pod: &Host) -> Box<dyn Any> {
    let mut flows: Vec<_> = (0..LONG).map(|_| pod.open_udp(WEB6)).collect();
    for pause in [Duration::ZERO, ASSURED] {
        thread::sleep(pause);
        flows.iter_mut().for_each(|flow| assert_eq!(flow.ask().server(), "a"));
    }
    Box::new(flows)
}

/// The share of the endpoint with this address.
fn share(row: &Value, address: &str) -> Option<f64> {
    let endpoints = row["endpoints"].as_array()?;
    endpoints.iter().find(|it| it["address"] == address)?["chance"].as_f64()
}

/// A daemon with a service whose only endpoint holds many connections, before two more join.
struct Crowded {
    lab: Lab,
    manifests: Manifests,
    _daemon: Process,
    _connections: Box<dyn Any>,
}

impl Crowded {
    #[track_caller]
    fn start(scheduler: &str, more: &[&str], open: fn(&Host) -> Box<dyn Any>) -> Self {
        let lab = Lab::without_objects(routing());
        let node = lab.world.node();
        let service = web_everywhere().annotation(SCHEDULER, scheduler);
        let manifests =
            Manifests::new(&[("web", &service), ("slice", &Slice::new("web").endpoints("a"))]);
        let flags = [&["--healthz-bind-address=", "--metrics-bind-address="], more].concat();
        let daemon = manifests.run_with(node, &flags);
        eventually("the only endpoint", SOON, || share(&shown(node, WEB_TCP)?, "10.244.1.5"));
        let connections = open(lab.world.host("pod"));
        manifests.write("slice", &Slice::new("web").endpoints("a c d"));
        eventually("three endpoints", SOON, || {
            (shown(node, WEB_TCP)?["endpoints"].as_array()?.len() == 3).then_some(())
        });
        Self { lab, manifests, _daemon: daemon, _connections: connections }
    }

    fn shares(&self, way: (Family, Protocol)) -> BTreeMap<String, usize> {
        self.lab.world.shares("pod", WEB, way, SHORT)
    }
}

const TCP: (Family, Protocol) = (Family::Ipv4, Protocol::Tcp);

/// With even shares each server gets about 100 of 300.
#[track_caller]
fn assert_a_is_avoided(shares: &BTreeMap<String, usize>) {
    let of_crowded = shares.get("a").copied().unwrap_or(0);
    assert!(of_crowded < 45, "{shares:?}");
    assert!(["c", "d"].iter().all(|server| shares[*server] > 80), "{shares:?}");
}

#[test]
fn flows_of_udp_over_ipv6_count_too() {
    let crowded = Crowded::start("lc", &[ON], open_udp_over_ipv6);
    eventually("a small share", SOON, || {
        let row = shown(crowded.lab.world.node(), WEB6_UDP)?;
        share(&row, "fd00:10:244:1::5").filter(|it| *it < 0.05)
    });
    assert_a_is_avoided(&crowded.shares((Family::Ipv6, Protocol::Udp)));
}

#[test]
fn new_connections_avoid_the_endpoint_that_holds_many() {
    let crowded = Crowded::start("wlc", &[ON], open_tcp);
    let node = crowded.lab.world.node();
    // One slot of 24 is a share of 0.042.
    let row = eventually("a small share", SOON, || {
        let row = shown(node, WEB_TCP);
        row.filter(|row| share(row, "10.244.1.5").is_some_and(|it| it < 0.05))
    });
    assert_eq!(row["scheduler"], "lc");
    assert_a_is_avoided(&crowded.shares(TCP));
    let listing = node.output(deltaproxy_binary(), &["show", "--output", "ipvsadm"]).stdout;
    assert!(listing.contains("TCP  10.96.0.10:80 lc\n"), "{listing}");
    let arguments = ["explain", WEB_TCP, "--from", "10.244.1.9"];
    let explained = node.output(deltaproxy_binary(), &arguments).stdout;
    assert!(explained.contains("scheduler lc: weights follow live connections"), "{explained}");
    assert!(explained.contains("service   default/web:"), "{explained}");
    let verify = [&crowded.manifests.arguments("verify"), &[ON][..]].concat();
    let verified = node.output(deltaproxy_binary(), &verify);
    assert!(verified.stdout.starts_with("the tables are as desired"), "{verified:?}");
}

#[test]
fn without_the_setting_connections_are_spread_evenly() {
    let crowded = Crowded::start("wlc", &[], open_tcp);
    let even = [("a", 1), ("c", 1), ("d", 1)];
    assert_weighted(&crowded.shares(TCP), &even);
    let row = shown(crowded.lab.world.node(), WEB_TCP).unwrap();
    assert_eq!(row["scheduler"], "random");
}

/// The sum of the times that the counting thread of a process was on a processor.
fn processor_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let times = tasks.filter_map(|task| {
        let folder = task.unwrap().path();
        let is_counter = read(&folder, "comm").trim() == "connections";
        let schedule = is_counter.then(|| read(&folder, "schedstat"))?;
        schedule.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

/// Prints the figures of docs/schedulers.md. Run it alone, with `--release`.
#[test]
#[ignore = "measures"]
fn time_of_a_count() {
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let service = web_everywhere().annotation(SCHEDULER, "lc");
    let manifests =
        Manifests::new(&[("web", &service), ("slice", &Slice::new("web").endpoints("a"))]);
    let flags = ["--healthz-bind-address=", "--metrics-bind-address=", ON, "--log-level=debug"];
    let daemon = manifests.run_with(node, &flags);
    eventually("the only endpoint", SOON, || share(&shown(node, WEB_TCP)?, "10.244.1.5"));
    node.run(|| fs::write("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "600")).unwrap();
    let sources = (0..50_000u32).map(|number| {
        let [_, _, block, last] = number.to_be_bytes();
        IpAddr::from([10, 244, block, last])
    });
    // Pod a itself is in this range.
    lab.world
        .host("pod")
        .spoof_udp(sources.filter(|it| *it != IpAddr::from([10, 244, 1, 5])), web());
    thread::sleep(Duration::from_secs(2));
    let before = processor_time(daemon.pid());
    thread::sleep(Duration::from_secs(20));
    let took = processor_time(daemon.pid()) - before;
    let log = daemon.output();
    let counts: Vec<_> = log.lines().filter(|line| line.contains("counted connections")).collect();
    println!("{took:?} of a processor in 20 s");
    counts.iter().rev().take(15).for_each(|line| println!("{line}"));
}
