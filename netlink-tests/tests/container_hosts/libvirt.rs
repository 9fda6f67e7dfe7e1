//! libvirt: a guest behind a network of type nat.

use std::sync::atomic::{AtomicU32, Ordering};

use netlink_tests::{Answer, Host, NODE_IP, eventually};

use crate::cluster::{Cluster, OUTSIDE, Ownership, is_from};
use crate::life::{Neighbour, live_beside};
use crate::machine::{Daemon, Machine, SOON};

const GUEST: &str = "192.168.122.10";

const NETWORK: &str = "<network><name>guests</name><forward mode=\"nat\"/>\
     <bridge name=\"virbr0\" stp=\"off\" delay=\"0\"/><dns enable=\"no\"/>\
     <ip address=\"192.168.122.1\" netmask=\"255.255.255.0\"/></network>";

const VIRSH: &str = "virsh --connect network:///system";

struct Libvirt {
    /// Its way to write its rules.
    backend: &'static str,
    running: Option<(Daemon, Host)>,
    starts: AtomicU32,
}

impl Neighbour for Libvirt {
    fn start(&mut self, cluster: &Cluster) {
        let machine = &cluster.machine;
        let backend = self.backend;
        // It corrects checksums of DHCP by an action of tc that not every kernel has.
        let _ = machine.ok(&format!(
            "ln -sf /usr/bin/true /usr/sbin/tc
             mkdir -p /etc/libvirt; echo 'firewall_backend = \"{backend}\"' >/etc/libvirt/network.conf
             echo '{NETWORK}' >/tmp/guests.xml"
        ));
        let daemon = start_libvirtd(machine);
        let _ = machine.ok(&format!(
            "{VIRSH} net-info guests >/dev/null 2>&1 || {VIRSH} net-define /tmp/guests.xml
             {VIRSH} net-start guests"
        ));
        let name = format!("vnet{}", self.starts.fetch_add(1, Ordering::Relaxed));
        let guest = cluster.net.behind_bridge(("virbr0", "192.168.122.1"), &name, GUEST);
        self.running = Some((daemon, guest));
    }

    fn reload(&mut self, cluster: &Cluster) {
        let (daemon, _) = self.running.as_ref().expect("it runs");
        let rules = cluster.machine.rules();
        let _ = cluster.machine.ok("nft -a list ruleset >/tmp/before");
        daemon.signal(&cluster.machine, "HUP");
        // It writes all rules again, which have other handles then.
        eventually("other rules", SOON, || {
            let changed = cluster.machine.run("nft -a list ruleset | cmp -s - /tmp/before");
            (changed.code() == Some(1) && cluster.machine.rules().len() >= rules.len())
                .then_some(())
        });
    }

    fn stop(&mut self, cluster: &Cluster) {
        let (daemon, _) = self.running.take().expect("it runs");
        let _ = cluster.machine.ok(&format!("{VIRSH} net-destroy guests"));
        daemon.end(&cluster.machine, "TERM");
    }

    /// A reload writes rules alone, and fails without the chains.
    fn assert_lost(&mut self, cluster: &Cluster) {
        let (daemon, _) = self.running.as_mut().expect("it runs");
        daemon.signal(&cluster.machine, "HUP");
        let _ = daemon.process().wait_for_line("internal error: Failed to", SOON);
        assert!(!cluster.machine.rules().contains("masquerade"));
    }

    /// The network stays meanwhile.
    fn restore(&mut self, cluster: &Cluster) {
        let (daemon, guest) = self.running.take().expect("it runs");
        daemon.end(&cluster.machine, "TERM");
        self.running = Some((start_libvirtd(&cluster.machine), guest));
    }

    #[track_caller]
    fn assert_works(&self, cluster: &Cluster, when: &str) {
        let (_, guest) = self.running.as_ref().expect("it runs");
        for (to, server) in [("10.96.0.10:80", "a"), ("10.96.0.11:80", "c")] {
            for answer in [guest.connect_tcp(to), guest.send_udp(to)] {
                assert!(is_from(&answer, server), "{when}: {to}: {answer:?}");
            }
        }
        let answer = guest.connect_tcp((OUTSIDE, 8080));
        assert!(is_from(&answer, "outside"), "{when}: {answer:?}");
        assert_eq!(answer.source(), NODE_IP, "{when}");
        assert_eq!(cluster.outside.connect_tcp((GUEST, 8080)), Answer::Refused, "{when}");
    }
}

#[track_caller]
fn start_libvirtd(machine: &Machine) -> Daemon {
    let daemon = machine.daemon("libvirtd", "libvirtd");
    let list = format!("{VIRSH} net-list");
    eventually("libvirtd", SOON, || (machine.run(&list).code() == Some(0)).then_some(()));
    daemon
}

fn live(backend: &'static str, ownership: Ownership) {
    live_beside(ownership, &mut Libvirt { backend, running: None, starts: AtomicU32::new(0) });
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_guest_of_libvirt_reaches_services_and_the_world_beside_owned_tables() {
    live("nftables", Ownership::On);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_guest_of_libvirt_reaches_services_and_the_world_beside_tables_without_an_owner() {
    live("nftables", Ownership::Off);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn libvirts_iptables_backend_works_beside_owned_tables() {
    live("iptables", Ownership::On);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn libvirts_iptables_backend_works_beside_tables_without_an_owner() {
    live("iptables", Ownership::Off);
}
