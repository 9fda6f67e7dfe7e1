//! New connections that firewalld drops while it reloads, beside the elements of many services.
//!
//! With the backend nftables it reads all elements for each command; `findings` has the reason.
//! `SERVICES=30000` measures a large cluster, with `--nocapture`.

use std::env;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netlink_tests::eventually;
use netlink_tests::scenario::NODE_PORT;

use crate::cluster::{Cluster, Tables};
use crate::firewalld::Firewalld;
use crate::machine::End;

/// A daemon without optimization reads a manifest in a millisecond.
const LOAD_LIMIT: Duration = Duration::from_secs(600);

/// Time between two connections.
const PAUSE: Duration = Duration::from_millis(20);

/// Manifests of so many services of five endpoints.
fn manifests(services: u32) -> String {
    (0..services).fold(String::new(), |mut text, number| {
        let [_, a, b, c] = number.to_be_bytes();
        let pods: Vec<_> = (1..6).map(|pod| format!("{{addresses: [10.244.{b}.{pod}]}}")).collect();
        let _ = write!(
            text,
            "---
apiVersion: v1
kind: Service
metadata: {{name: many-{number}, namespace: default}}
spec: {{clusterIP: 10.98.{b}.{c}, ports: [{{port: {port}, name: http}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: many-{number}
  namespace: default
  labels: {{kubernetes.io/service-name: many-{number}}}
addressType: IPv4
ports: [{{port: 8080, name: http}}]
endpoints: [{pods}]
",
            port = 80 + u32::from(a),
            pods = pods.join(", ")
        );
        text
    })
}

/// Connects to a node port every [`PAUSE`] while firewalld reloads. Returns how many connections
/// were tried, and how many had no answer.
fn reload(cluster: &Cluster) -> (usize, usize) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let mut running = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                running.push(scope.spawn(|| cluster.answers("outside", NODE_PORT)));
                thread::sleep(PAUSE);
            }
            let answered = running.into_iter().map(|it| it.join().unwrap());
            let answered: Vec<_> = answered.collect();
            (answered.len(), answered.iter().filter(|it| !**it).count())
        });
        let end = End(&stop);
        let mut command = cluster.machine.spawn("firewall-cmd --reload");
        eventually("the reload", LOAD_LIMIT, || (!command.is_running()).then_some(()));
        drop(end);
        clients.join().unwrap()
    })
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_reload_of_firewalld_drops_fewer_connections_beside_many_services_with_backend_iptables() {
    let services = env::var("SERVICES").map_or(10_000, |it| it.parse().unwrap());
    let cluster = Cluster::new(Tables::Owned);
    cluster.manifests.write_text("many", &manifests(services));
    let last = format!("default/many-{}:", services - 1);
    eventually("all services", LOAD_LIMIT, || {
        cluster.node().output("nft", &["list", "ruleset"]).stdout.contains(&last).then_some(())
    });
    let lost = ["nftables", "iptables"].map(|backend| {
        let setting = format!("FirewallBackend={backend}");
        let firewalld = Firewalld::start(&cluster.machine, &[&setting]);
        cluster.check("the start of firewalld");
        let (tried, lost) = reload(&cluster);
        eprintln!("{services} services, {backend}: {lost} of {tried} connections lost");
        cluster.check("a reload");
        firewalld.stop();
        lost
    });
    assert!(lost[1] < lost[0], "{lost:?}");
}
