//! keepalived: an address that VRRP moves, as the external IP of a service.

use netlink_tests::{Answer, eventually};

use crate::cluster::{Cluster, Ownership, VIP, is_from};
use crate::life::{Neighbour, live_beside};
use crate::machine::{Daemon, SOON};

/// In mode strict it drops packets to the address itself, by rules of nftables.
const CONFIGURATION: &str = "global_defs {
    vrrp_strict
    nftables keepalived
}
vrrp_instance services {
    state MASTER
    interface outoutside
    virtual_router_id 51
    priority 150
    advert_int 1
    virtual_ipaddress { 198.51.100.2/32 }
}";

/// The node would refuse it, as nothing listens there.
const OTHER_PORT: u16 = 81;

#[derive(Default)]
struct Keepalived {
    daemon: Option<Daemon>,
}

impl Keepalived {
    #[track_caller]
    fn wait_for_address(cluster: &Cluster) {
        eventually("the address", SOON, || {
            let addresses = cluster.machine.ok("ip address show outoutside");
            addresses.contains(VIP).then_some(())
        });
    }
}

impl Neighbour for Keepalived {
    fn start(&mut self, cluster: &Cluster) {
        let _ = cluster.machine.ok(&format!("echo '{CONFIGURATION}' >/etc/keepalived.conf"));
        let start = "keepalived --dont-fork --log-console --use-file /etc/keepalived.conf";
        self.daemon = Some(cluster.machine.daemon("keepalived", start));
        Self::wait_for_address(cluster);
        let has_rules = || cluster.machine.rules().contains("table ip keepalived").then_some(());
        eventually("its rules", SOON, has_rules);
    }

    fn reload(&mut self, cluster: &Cluster) {
        let daemon = self.daemon.as_mut().expect("it runs");
        daemon.signal(&cluster.machine, "HUP");
        let _ = daemon.process().wait_for_line("Reload complete", SOON);
        Self::wait_for_address(cluster);
    }

    fn stop(&mut self, cluster: &Cluster) {
        self.daemon.take().expect("it runs").end(&cluster.machine, "TERM");
        assert!(!cluster.machine.ok("ip address show outoutside").contains(VIP));
    }

    fn assert_lost(&mut self, cluster: &Cluster) {
        self.reload(cluster);
        assert_eq!(cluster.outside.connect_tcp((VIP, OTHER_PORT)), Answer::Refused);
    }

    /// A reload does not write its rules again.
    fn restore(&mut self, cluster: &Cluster) {
        self.stop(cluster);
        self.start(cluster);
    }

    /// The address answers as the service and in no other way; [`Cluster::assert_serves`] probes it as
    /// an external IP.
    #[track_caller]
    fn assert_works(&self, cluster: &Cluster, when: &str) {
        let answer = cluster.outside.connect_tcp((VIP, 80));
        assert!(is_from(&answer, "c"), "{when}: {answer:?}");
        let other = cluster.outside.hasty().connect_tcp((VIP, OTHER_PORT));
        assert_eq!(other, Answer::Silent, "{when}");
    }
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn an_address_of_keepalived_serves_as_external_ip_beside_owned_tables() {
    live_beside(Ownership::On, &mut Keepalived::default());
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn an_address_of_keepalived_serves_as_external_ip_beside_tables_without_an_owner() {
    live_beside(Ownership::Off, &mut Keepalived::default());
}
