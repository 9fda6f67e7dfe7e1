//! NodeLocal DNSCache: its rules, written by iptables, and a server in place of the cache.
//!
//! The rules are those of `initIptables` in cmd/node-cache/app/cache_app.go of kubernetes/dns. The
//! program itself is in no Debian package.

use std::net::Ipv4Addr;

use netlink_tests::scenario::{Service, Slice};
use netlink_tests::{Host, Server};

use crate::cluster::{Cluster, Ownership, is_from};
use crate::life::{Neighbour, live_beside};

/// The cluster IP of the DNS service, and the address of the cache alone.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 96, 0, 53), Ipv4Addr::new(169, 254, 20, 10)];

/// Adds the rules that are missing, or deletes them, by the function `rule`.
const RULES: &str = "for address in 10.96.0.53 169.254.20.10; do for protocol in tcp udp; do
    rule raw PREROUTING --protocol $protocol --destination $address --dport 53 -j NOTRACK
    rule filter INPUT --protocol $protocol --destination $address --dport 53 -j ACCEPT
    rule raw OUTPUT --protocol $protocol --source $address --sport 53 -j NOTRACK
    rule filter OUTPUT --protocol $protocol --source $address --sport 53 -j ACCEPT
    rule raw OUTPUT --protocol $protocol --destination $address --dport 53 -j NOTRACK
done; done";

#[derive(Default)]
struct DnsCache {
    has_service: bool,
    servers: Vec<Server>,
}

#[track_caller]
fn assert_answered(cluster: &Cluster, by: &str, when: &str) {
    let clients: [&Host; 2] = [&cluster.client, cluster.node()];
    for client in clients {
        let to = (ADDRESSES[0], 53);
        for answer in [client.send_udp(to), client.connect_tcp(to)] {
            assert!(is_from(&answer, by), "{when}: {answer:?}");
        }
    }
}

impl Neighbour for DnsCache {
    fn start(&mut self, cluster: &Cluster) {
        if !self.has_service {
            self.has_service = true;
            cluster.add("dns", &Service::new("dns", "10.96.0.53").port(53));
            let slice = Slice::new("dns").without_ports().target(53, 8080).endpoints("a");
            cluster.add("dns-slice", &slice);
            cluster.wait_until_complete();
            assert_answered(cluster, "a", "without the cache");
        }
        let node = cluster.node();
        self.servers = vec![node.serve_udp(53, "cache"), node.serve_tcp(53, "cache")];
        for address in ADDRESSES {
            node.add_range(address, 32);
        }
        self.reload(cluster);
    }

    /// The cache adds missing rules again and again.
    fn reload(&mut self, cluster: &Cluster) {
        let _ = cluster.machine.ok(&format!(
            "rule() {{
                 table=$1 chain=$2; shift 2
                 iptables -t $table -C $chain \"$@\" 2>/dev/null || iptables -t $table -A $chain \"$@\"
             }}
             {RULES}"
        ));
    }

    fn stop(&mut self, cluster: &Cluster) {
        let _ = cluster.machine.ok(&format!(
            "rule() {{ table=$1 chain=$2; shift 2; iptables -t $table -D $chain \"$@\"; }}
             {RULES}"
        ));
        for address in ADDRESSES {
            cluster.node().remove_address(address);
        }
        self.servers.clear();
        assert_answered(cluster, "a", "after the end of the cache");
    }

    #[track_caller]
    fn assert_works(&self, cluster: &Cluster, when: &str) {
        assert_answered(cluster, "cache", when);
        let answer = cluster.client.send_udp((ADDRESSES[0], 53));
        assert_eq!(answer.source(), cluster.client.ip(), "{when}");
    }
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn iptables_rules_of_nodelocal_dnscache_work_beside_owned_tables() {
    live_beside(Ownership::On, &mut DnsCache::default());
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn iptables_rules_of_nodelocal_dnscache_work_beside_tables_without_an_owner() {
    live_beside(Ownership::Off, &mut DnsCache::default());
}
