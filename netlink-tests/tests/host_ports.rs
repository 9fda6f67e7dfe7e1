//! Host ports of the CNI plugin portmap beside node ports and external IPs of the same number.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use Expect::Refused;
use daemon::handover::{Purpose, Replace, Replacing, Step, hand_over};
use netlink_tests::scenario::kube_proxy::MODE_NFTABLES;
use netlink_tests::scenario::{
    EXTERNAL, Expect, Lab, Manifests, NODE_PORT, Node, keeps_source, masquerades, routing, slice,
    web_everywhere, web_with_node_port,
};
use netlink_tests::{
    Answer, Host, Net, Process, Server, eventually, kernel_has_owners, nft_available,
};
use nft::TableFlags;
use nft::family::Family;
use nft::kernel::Nftables;
use nix::sys::signal::Signal;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A host port that no service has.
const OTHER: &str = "192.168.50.2:30099";

/// Registers the table of portmap anew, for host ports that lead to pod `b`.
fn register_host_ports(node: &Host) {
    for (family, nat, pod) in [("ip", "ip", "10.244.1.6"), ("ip6", "ip6", "[fd00:10:244:1::6]")] {
        node.nft_script(&format!(
            "table {family} cni_hostport {{ }}
             delete table {family} cni_hostport
             table {family} cni_hostport {{
               comment \"CNI portmap plugin\"
               chain hostports_all {{ jump hostports; }}
               chain hostports {{
                 meta l4proto {{ tcp, udp, sctp }} th dport {{ 80, 30080, 30099 }} dnat {nat} to {pod}:8080
               }}
               chain prerouting {{
                 type nat hook prerouting priority dstnat;
                 fib daddr type local jump hostports_all
               }}
               chain output {{
                 type nat hook output priority -100;
                 fib daddr type local jump hostports_all
               }}
               chain masquerading {{
                 type nat hook postrouting priority srcnat;
                 {nat} saddr {pod_address} {nat} daddr {pod_address} masquerade
               }}
             }}",
            pod_address = pod.trim_matches(['[', ']']),
        ));
    }
}

/// Makes the tables of portmap dormant and wakes them: their chains are registered anew.
fn wake_host_ports(node: &Host) {
    for family in ["ip", "ip6"] {
        node.nft_script(&format!("table {family} cni_hostport {{ flags dormant; }}"));
        node.nft_script(&format!("table {family} cni_hostport {{ }}"));
    }
}

/// `explain` predicts each probe too.
#[test]
fn a_host_port_takes_no_packets_of_a_node_port_or_external_ip_with_its_number() {
    if !nft_available() {
        return;
    }
    let addresses = ["198.51.100.1", "fd00:198:51:100::1"];
    let mut lab = Lab::with_node_addresses(routing(), &addresses);
    let node = lab.world.node().clone();
    let services_win = |lab: &Lab| {
        for to in [NODE_PORT, EXTERNAL] {
            lab.check(&[
                ("outside", to, masquerades("a")),
                ("pod", to, masquerades("a")),
                ("node", to, masquerades("a")),
            ]);
        }
        lab.check(&[("outside", OTHER, keeps_source("b")), ("node", OTHER, keeps_source("b"))]);
    };
    register_host_ports(&node);
    lab.apply(&[&web_everywhere(), &slice("a")]);
    services_win(&lab);
    wake_host_ports(&node);
    services_win(&lab);
    lab.apply(&[&slice("")]);
    lab.check(&[("outside", NODE_PORT, Refused), ("node", EXTERNAL, Refused)]);
    lab.remove(&[&web_everywhere()]);
    lab.check(&[("outside", NODE_PORT, keeps_source("b"))]);
}

/// A node whose service `web` leads to pod `a`, and its host port to pod `b`.
struct Cluster {
    net: Net,
    _pods: [(Host, Server); 2],
    outside: Host,
    manifests: Manifests,
}

impl Cluster {
    fn new() -> Self {
        let net = Net::new();
        let pods = [("a", "10.244.1.5"), ("b", "10.244.1.6")].map(|(name, ip)| {
            let pod = net.pod(name, ip);
            let server = pod.serve_tcp(8080, name);
            (pod, server)
        });
        let outside = net.outside("outside", "192.0.2.10");
        let manifests = Manifests::new(&[
            ("node", &Node::new()),
            ("web", &web_with_node_port()),
            ("slice", &slice("a")),
        ]);
        Self { net, _pods: pods, outside, manifests }
    }

    fn node(&self) -> &Host {
        self.net.node()
    }

    #[track_caller]
    fn reaches(&self, server: &str) {
        for client in [&self.outside, self.node()] {
            assert_eq!(client.connect_tcp(NODE_PORT).server(), server);
        }
    }

    fn start(&self) -> Process {
        let daemon = self.manifests.run(self.node());
        eventually("an answer of the endpoint", SOON, || {
            let answer = self.outside.connect_tcp(NODE_PORT);
            matches!(answer, Answer::From { server, .. } if server == "a").then_some(())
        });
        daemon
    }

    /// Connects to the node port while `work` runs; pod `a` must answer each time.
    #[track_caller]
    fn under_traffic<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        thread::scope(|threads| {
            let prober = threads.spawn(|| {
                let mut wrong = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let answer = self.outside.connect_tcp(NODE_PORT);
                    if !matches!(&answer, Answer::From { server, .. } if server == "a") {
                        wrong.push(answer);
                    }
                }
                wrong
            });
            let over = Over(&is_over);
            let result = work();
            drop(over);
            assert_eq!(prober.join().unwrap(), []);
            result
        })
    }
}

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_node_port_wins_at_a_start_a_switch_an_end_a_restart_and_after_a_kill() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    cluster.node().nft_script(MODE_NFTABLES);
    register_host_ports(cluster.node());
    cluster.reaches("b");
    let daemon = cluster.start();
    cluster.under_traffic(|| {
        register_host_ports(cluster.node());
        cluster.reaches("a");
        assert_eq!(daemon.terminate(SOON).warnings(), [""; 0]);
        cluster.reaches("a");
        let mut next = cluster.start();
        if kernel_has_owners() {
            next.wait_for_line("the tables are owned now", SOON);
        }
        register_host_ports(cluster.node());
        cluster.reaches("a");
        next.signal(Signal::SIGKILL);
        let _ = next.finish(SOON);
        register_host_ports(cluster.node());
        cluster.reaches("a");
        let _last = cluster.start();
        cluster.reaches("a");
    });
}

/// The handover table serves in between.
#[test]
fn a_node_port_wins_after_each_step_of_a_handover() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let _ = cluster.manifests.once(cluster.node(), "apply").ok();
    register_host_ports(cluster.node());
    cluster.reaches("a");
    let mut kernel = cluster.node().run(|| Nftables::open().unwrap());
    let purpose = Purpose::Flags(TableFlags { owner: false, persist: true });
    for family in Family::ALL {
        let listed = Replacing::list(&mut kernel, (family, purpose), None, &|| false);
        let mut replacing = listed.unwrap().unwrap();
        while replacing.step(&mut kernel).unwrap() != Step::Done {
            cluster.reaches("a");
        }
    }
    cluster.reaches("a");
    let between = || {
        cluster.reaches("a");
        false
    };
    assert_eq!(hand_over(&mut kernel, [None, None], &between).unwrap(), Family::ALL);
    cluster.reaches("a");
}
