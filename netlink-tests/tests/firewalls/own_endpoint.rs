//! A service at the node's own address whose endpoint is that address and port: nothing is
//! translated, so the kernel sets no status `dnat`.

use netlink_tests::eventually;
use netlink_tests::scenario::{Service, Slice};

use crate::cluster::{Cluster, Tables};
use crate::firewalld::Firewalld;
use crate::machine::SOON;

const PORT: u16 = 9000;
const OWN: &str = "192.168.50.2:9000";
const CLUSTER_IP: &str = "10.96.0.20:9000";

/// A cluster with such a service.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(Tables::Owned);
    cluster.lab.world.serve("node", "own", PORT);
    let service = Service::new("own", "10.96.0.20").port(PORT).external_ip("192.168.50.2");
    cluster.manifests.write("own", &service);
    let slice = Slice::new("own").target(PORT, PORT).endpoints("node");
    cluster.manifests.write("own-slice", &slice);
    eventually("the service", SOON, || cluster.answers("pod", CLUSTER_IP).then_some(()));
    assert!(cluster.answers("outside", OWN));
    cluster
}

const BY_STATUS: &str = "table inet guard {
    chain input {
        type filter hook input priority filter; policy drop;
        ct state established accept
        iif lo accept
        ct status dnat accept
        icmp type echo-request accept
        meta l4proto ipv6-icmp accept
    }
}";

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_firewall_that_accepts_by_status_refuses_an_address_that_is_its_own_endpoint() {
    let cluster = cluster();
    cluster.node().nft_script(BY_STATUS);
    assert!(cluster.answers("pod", CLUSTER_IP), "its cluster IP is translated");
    assert!(!cluster.answers("outside", OWN), "its external IP is not");
    cluster.node().nft_script(&format!("add rule inet guard input tcp dport {PORT} accept"));
    assert!(cluster.answers("outside", OWN));
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn firewalld_and_ufw_serve_such_an_address_once_its_port_is_allowed() {
    let cluster = cluster();
    let machine = &cluster.machine;
    let firewalld = Firewalld::start(machine, &[]);
    assert!(cluster.answers("pod", CLUSTER_IP));
    assert!(!cluster.answers("outside", OWN));
    let _ = machine.run(&format!("firewall-cmd --add-port={PORT}/tcp"));
    assert!(cluster.answers("outside", OWN));
    firewalld.stop();

    let _ = machine.run("ufw --force enable");
    assert!(!cluster.answers("outside", OWN));
    // ufw does not accept by status: the cluster IP needs the rule too.
    assert!(!cluster.answers("pod", CLUSTER_IP));
    let _ = machine.run(&format!("ufw allow {PORT}/tcp"));
    assert!(cluster.answers("outside", OWN));
    assert!(cluster.answers("pod", CLUSTER_IP));
}
