//! podman and netavark: a host port of a container.

use crate::cluster::{Cluster, NODE, Ownership, is_from};
use crate::containers::{SERVER, assert_container_reaches_all, wait_for_container};
use crate::life::{Neighbour, live_beside};

/// Without control groups, which belong to the whole machine.
const PODMAN: &str = "podman --cgroup-manager=cgroupfs --events-backend=file";

const PORT: u16 = 18080;

struct Podman {
    /// netavark's way to write its rules.
    driver: &'static str,
}

impl Neighbour for Podman {
    fn start(&mut self, cluster: &Cluster) {
        let driver = self.driver;
        let _ = cluster.machine.ok(&format!(
            "mkdir -p /etc/containers /srv/container
             echo '[network]' >/etc/containers/containers.conf
             echo 'firewall_driver = \"{driver}\"' >>/etc/containers/containers.conf
             [ -d /srv/container/usr ] || mount --bind / /srv/container
             {PODMAN} network exists hosts ||
                 {PODMAN} network create --disable-dns --subnet 10.89.7.0/24 hosts
             {PODMAN} run --detach --name web --cgroups=disabled --network hosts \
                 --publish {PORT}:8080 --rootfs /srv/container {SERVER} >/dev/null 2>&1"
        ));
        wait_for_container(cluster, PORT);
        let drops_invalid = cluster.machine.rules().contains("ct state invalid drop");
        assert_eq!(drops_invalid, self.driver == "nftables");
    }

    fn reload(&mut self, cluster: &Cluster) {
        let _ = cluster.machine.ok(&format!("{PODMAN} network reload --all"));
    }

    fn stop(&mut self, cluster: &Cluster) {
        let _ = cluster.machine.ok(&format!("{PODMAN} rm --force --time 0 web"));
    }

    #[track_caller]
    fn assert_works(&self, cluster: &Cluster, when: &str) {
        let answer = cluster.outside.connect_tcp((NODE, PORT));
        assert!(is_from(&answer, "container"), "{when}: {answer:?}");
        assert_eq!(answer.source(), cluster.outside.ip(), "{when}");
        let answer = cluster.node().connect_tcp((NODE, PORT));
        assert!(is_from(&answer, "container"), "{when}: {answer:?}");
        let pid = format!("{PODMAN} inspect --format '{{{{.State.Pid}}}}' web");
        assert_container_reaches_all(cluster, &pid, when);
    }
}

fn live(driver: &'static str, ownership: Ownership) {
    live_beside(ownership, &mut Podman { driver });
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_container_of_podman_keeps_its_host_port_beside_owned_tables() {
    live("nftables", Ownership::On);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_container_of_podman_keeps_its_host_port_beside_tables_without_an_owner() {
    live("nftables", Ownership::Off);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn netavarks_iptables_driver_works_beside_owned_tables() {
    live("iptables", Ownership::On);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn netavarks_iptables_driver_works_beside_tables_without_an_owner() {
    live("iptables", Ownership::Off);
}
