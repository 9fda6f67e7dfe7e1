//! Leftovers of kube-proxy's modes iptables and ipvs: the switch to our tables, and their removal.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netlink_tests::reader::Family;
use netlink_tests::scenario::{
    Manifests, NODE_PORT, Node, ServiceCidr, WEB, slice, web_with_node_port,
};
use netlink_tests::{Answer, Host, Net, Server, deltaproxy_binary, eventually, nft_available};
use nft::netlink::attr::AttrWriter;
use nft::netlink::message::{self, Header, Meaning, Messages};
use nft::netlink::socket::{Socket, Wait};

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// The start of the log line for each removed object.
const REMOVED: &str = "removed leftovers of another proxy mode: ";

/// A node with tables of iptables-nft, two pods that serve and a client. The manifests lead to pod
/// `a` alone.
struct OldNode {
    net: Net,
    _a: (Host, Server),
    _b: Host,
    b_server: Server,
    outside: Host,
    manifests: Manifests,
    /// The tables without leftovers.
    others: String,
}

impl OldNode {
    /// A node where kube-proxy ran in mode iptables, and led to pod `b`.
    fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// The same, but our tables are there already. Their DNAT wins by its priority.
    fn after_our_tables() -> Self {
        Self::with(|node, manifests| {
            let _ = manifests.once(node, "apply").ok();
        })
    }

    fn with(before: impl FnOnce(&Host, &Manifests)) -> Self {
        let old = Self::without_leftovers(before);
        old.net.node().nft_script(KUBE_PROXY);
        old
    }

    fn without_leftovers(before: impl FnOnce(&Host, &Manifests)) -> Self {
        let net = Net::new();
        let [a, b] = [("a", "10.244.1.5"), ("b", "10.244.1.6")].map(|(name, ip)| net.pod(name, ip));
        let [a_server, b_server] =
            [(&a, "a"), (&b, "b")].map(|(pod, name)| pod.serve_tcp(8080, name));
        let outside = net.outside("outside", "192.0.2.10");
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let web = web_with_node_port();
        let manifests = Manifests::new(&[
            ("cidr", &cidr),
            ("node", &Node::new()),
            ("web", &web),
            ("slice", &slice("a")),
        ]);
        before(net.node(), &manifests);
        net.node().nft_script(OTHERS);
        let others = tables(net.node());
        Self { net, _a: (a, a_server), _b: b, b_server, outside, manifests, others }
    }

    fn cleanup(&self) -> String {
        self.net.node().output(deltaproxy_binary(), &["cleanup", "--all"]).ok()
    }
}

/// All tables but ours.
fn tables(node: &Host) -> String {
    let names = ["ip nat", "ip filter", "ip mangle", "ip6 nat"];
    names.map(|name| node.nft(&format!("list table {name}"))).concat()
}

/// Rules and chains of other programs, with names like those of kube-proxy.
const OTHERS: &str = "
    table ip nat {
        chain PREROUTING { type nat hook prerouting priority dstnat; jump CNI-HOSTPORT; }
        chain OUTPUT { type nat hook output priority -100; }
        chain POSTROUTING {
            type nat hook postrouting priority srcnat
            ip saddr 172.17.0.0/16 masquerade
        }
        chain CNI-HOSTPORT { tcp dport 9999 dnat to 10.244.1.5:8080; }
        chain KUBE-MARK-DROP { meta mark set meta mark or 0x8000; }
    }
    table ip filter {
        chain INPUT { type filter hook input priority 0; jump KUBE-FIREWALL; }
        chain FORWARD { type filter hook forward priority 0; jump KUBE-ROUTER-FORWARD; }
        chain KUBE-FIREWALL { ip saddr 203.0.113.99 drop; }
        chain KUBE-ROUTER-FORWARD { ip saddr 203.0.113.98 drop; }
    }
    table ip mangle {
        chain KUBE-IPTABLES-HINT { }
        chain KUBE-KUBELET-CANARY { }
    }
    table ip6 nat {
        chain PREROUTING { type nat hook prerouting priority dstnat; }
    }";

/// The rules of kube-proxy 1.31 in mode iptables for `web` with endpoint `b`.
const KUBE_PROXY: &str = r#"
    table ip nat {
        chain PREROUTING { counter jump KUBE-SERVICES comment "kubernetes service portals"; }
        chain OUTPUT { counter jump KUBE-SERVICES comment "kubernetes service portals"; }
        chain POSTROUTING { counter jump KUBE-POSTROUTING; }
        chain KUBE-PROXY-CANARY { }
        chain KUBE-SERVICES {
            ip daddr 10.96.0.10 tcp dport 80 counter jump KUBE-SVC-TCOU7JCQXEZGVUNU
            fib daddr type local counter jump KUBE-NODEPORTS
        }
        chain KUBE-NODEPORTS { tcp dport 30080 counter jump KUBE-EXT-TCOU7JCQXEZGVUNU; }
        chain KUBE-EXT-TCOU7JCQXEZGVUNU {
            counter jump KUBE-MARK-MASQ
            counter goto KUBE-SVC-TCOU7JCQXEZGVUNU
        }
        chain KUBE-SVC-TCOU7JCQXEZGVUNU {
            ip saddr != 10.244.0.0/16 tcp dport 80 counter jump KUBE-MARK-MASQ
            counter jump KUBE-SEP-2Y3FWLDSYR47XJ5L
        }
        chain KUBE-SEP-2Y3FWLDSYR47XJ5L {
            ip saddr 10.244.1.6 counter jump KUBE-MARK-MASQ
            meta l4proto tcp counter dnat to 10.244.1.6:8080
        }
        chain KUBE-MARK-MASQ { counter meta mark set meta mark or 0x4000; }
        chain KUBE-POSTROUTING {
            meta mark and 0x4000 != 0x4000 counter return
            counter meta mark set meta mark xor 0x4000
            counter masquerade fully-random
        }
    }
    table ip filter {
        chain INPUT { counter jump KUBE-NODEPORTS; }
        chain FORWARD { ct state new counter jump KUBE-PROXY-FIREWALL; counter jump KUBE-FORWARD; }
        chain KUBE-NODEPORTS { }
        chain KUBE-PROXY-FIREWALL { }
        chain KUBE-FORWARD { meta mark and 0x4000 == 0x4000 counter accept; }
    }
    table ip mangle { chain KUBE-PROXY-CANARY { }; }
    table ip6 nat {
        chain PREROUTING { counter jump KUBE-SERVICES; }
        chain KUBE-SERVICES { }
    }"#;

const REMOVALS: [&str; 4] = [
    "8 chains and 3 rules that jump to them from table ip nat",
    "3 chains and 3 rules that jump to them from table ip filter",
    "1 chains and 0 rules that jump to them from table ip mangle",
    "1 chains and 1 rules that jump to them from table ip6 nat",
];

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
fn check_all(outside: &Host, server: &str) {
    for to in [WEB, NODE_PORT] {
        for _ in 0..5 {
            assert_eq!(outside.connect_tcp(to).server(), server, "{to}");
        }
    }
}

#[test]
fn connections_are_served_before_during_and_after_the_switch_from_mode_iptables() {
    if !nft_available() {
        return;
    }
    check_switch(OldNode::new(), "b");
    check_switch(OldNode::after_our_tables(), "a");
}

#[track_caller]
fn check_switch(old: OldNode, before: &str) {
    let (node, outside) = (old.net.node(), &old.outside);
    check_all(outside, before);
    let mut connection = outside.open_tcp(WEB).unwrap();
    let is_over = AtomicBool::new(false);
    let (daemon, answers) = thread::scope(|threads| {
        // The prober ends also when the daemon fails to write a line.
        let over = Over(&is_over);
        let prober = threads.spawn(|| {
            let mut answers = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                answers.extend([WEB, NODE_PORT].map(|to| outside.connect_tcp(to)));
            }
            answers
        });
        let mut daemon = old.manifests.run(node);
        for removal in REMOVALS {
            daemon.wait_for_line(&format!("{REMOVED}{removal}"), SOON);
        }
        drop(over);
        (daemon, prober.join().unwrap())
    });
    assert!(answers.iter().all(|answer| matches!(answer, Answer::From { .. })), "{answers:?}");
    assert_eq!(tables(node), old.others);
    assert_eq!(connection.ask().server(), before);
    check_all(outside, "a");
    // The endpoint of the leftovers does not exist any more.
    drop((connection, old.b_server));
    check_all(outside, "a");
    assert_eq!(daemon.terminate(SOON).warnings(), [""; 0]);
}

#[test]
fn a_kube_proxy_in_mode_iptables_that_goes_on_beside_us_is_a_problem() {
    if !nft_available() {
        return;
    }
    let old = OldNode::new();
    let node = old.net.node();
    let mut daemon = old.manifests.run(node);
    daemon.wait_for_line(REMOVED, SOON);
    let problems = |code| {
        eventually("the code of problems", 2 * SOON, || {
            let finished = node.output(deltaproxy_binary(), &["problems"]);
            (finished.code() == Some(code)).then_some(finished.stdout)
        })
    };
    problems(0);
    node.nft_script(KUBE_PROXY);
    daemon.wait_for_line("table ip nat: has chains of a kube-proxy in mode iptables", 2 * SOON);
    assert!(problems(1).contains("table ip6 nat (conflict"));
    for family in ["ip", "ip6"] {
        node.nft(&format!("delete table {family} nat"));
    }
    daemon.wait_for_line("no other kube-proxy in mode iptables or ipvs", 2 * SOON);
    problems(0);
}

#[test]
fn cleanup_removes_our_tables_and_the_leftovers() {
    if !nft_available() {
        return;
    }
    let old = OldNode::after_our_tables();
    let node = old.net.node();
    let removals = REMOVALS.map(|removal| format!("removed {removal}\n")).concat();
    assert_eq!(
        old.cleanup(),
        format!("delete table ip kube-proxy\ndelete table ip6 kube-proxy\n{removals}")
    );
    assert_eq!(tables(node), old.others);
    assert!(node.read_table(Family::Ip).is_none());
    assert_eq!(old.cleanup(), "nothing to remove\n");
}

#[test]
fn init_only_removes_the_leftovers_and_not_our_tables() {
    if !nft_available() {
        return;
    }
    let old = OldNode::after_our_tables();
    let node = old.net.node();
    let finished = node.output(deltaproxy_binary(), &["--init-only", "--hostname-override=n"]);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    for removal in REMOVALS {
        assert!(finished.stderr.contains(&format!("{REMOVED}{removal}")), "{}", finished.stderr);
    }
    assert_eq!(tables(node), old.others);
    check_all(&old.outside, "a");
}

/// Programs for host ports jump to it from their chains.
#[test]
fn a_chain_that_another_program_uses_stays() {
    if !nft_available() {
        return;
    }
    let old = OldNode::new();
    let node = old.net.node();
    node.nft_script("table ip nat { chain CNI-HOSTPORT { jump KUBE-MARK-MASQ; }; }");
    let removed = old.cleanup();
    assert!(removed.contains("removed 7 chains and 3 rules that jump to them from"), "{removed}");
    let listed = node.nft("list table ip nat");
    assert!(listed.contains("chain KUBE-MARK-MASQ") && listed.contains("jump KUBE-MARK-MASQ"));
    assert!(!listed.contains("KUBE-S"), "{listed}");
    assert_eq!(old.cleanup(), "nothing to remove\n");
}

#[test]
fn a_removal_that_fails_is_tried_again() {
    if !nft_available() {
        return;
    }
    let old = OldNode::after_our_tables();
    let node = old.net.node();
    // A chain in use by a map cannot be deleted.
    node.nft_script(
        "table ip nat {
            map uses { type ipv4_addr : verdict; elements = { 192.0.2.99 : jump KUBE-SERVICES }; }
        }",
    );
    let mut daemon = old.manifests.run(node);
    daemon.wait_for_line("from table ip6 nat", SOON);
    assert!(node.nft("list table ip nat").contains("KUBE-SVC-"));
    check_all(&old.outside, "a");
    node.nft("delete map ip nat uses");
    daemon.wait_for_line(REMOVALS[0], SOON);
    assert_eq!(tables(node), old.others);
    check_all(&old.outside, "a");
}

#[test]
fn the_link_of_mode_ipvs_is_removed() {
    let net = Net::new();
    let _far_end = net.pod_behind("kube-ipvs0", "10.244.1.20");
    let links = || net.node().run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    assert!(links().contains("kube-ipvs0:"));
    let cleanup = || net.node().output(deltaproxy_binary(), &["cleanup", "--all"]).ok();
    assert_eq!(cleanup(), "removed the link kube-ipvs0\n");
    assert!(!links().contains("kube-ipvs0:"));
    assert_eq!(cleanup(), "nothing to remove\n");
}

/// A comment of iptables-nft is an expression of nft_compat, which nft cannot make.
#[test]
fn rules_with_extensions_of_iptables_are_removed() {
    if !nft_available() {
        return;
    }
    let old = OldNode::without_leftovers(|_, _| {});
    let node = old.net.node();
    node.nft("add chain ip nat KUBE-SERVICES");
    node.nft("add chain ip nat KUBE-SVC-TCOU7JCQXEZGVUNU");
    let jumps = [("PREROUTING", "KUBE-SERVICES"), ("KUBE-SERVICES", "KUBE-SVC-TCOU7JCQXEZGVUNU")];
    for (chain, target) in jumps {
        let added = node.run(|| add_rule_with_comment(chain, target));
        if added == NOT_SUPPORTED {
            return;
        }
        assert_eq!(added, 0);
    }
    assert!(node.nft("list table ip nat").contains("KUBE-SVC-"));
    assert_eq!(old.cleanup(), "removed 2 chains and 1 rules that jump to them from table ip nat\n");
    assert_eq!(tables(node), old.others);
}

/// ENOENT: the kernel lacks nft_compat.
const NOT_SUPPORTED: i32 = 2;

/// Does `iptables-nft -t nat -A CHAIN -m comment --comment "kubernetes service portals" -j TARGET`
/// and returns the kernel's error number.
fn add_rule_with_comment(chain: &str, target: &str) -> i32 {
    const NETLINK_NETFILTER: isize = 12;
    const BATCH_BEGIN: u16 = 0x10;
    const BATCH_END: u16 = 0x11;
    const NEWRULE: u16 = 10 << 8 | 6;
    const CREATE_APPEND: u16 = 0xc00;
    let rule = Header {
        kind: NEWRULE,
        flags: message::REQUEST | message::ACK | CREATE_APPEND,
        sequence: 2,
    };
    let boundary = |kind, sequence| Header { kind, flags: message::REQUEST, sequence };
    let mut batch = Vec::new();
    message::append(&mut batch, boundary(BATCH_BEGIN, 1), &[0, 0, 0, 10], |_| {}).unwrap();
    message::append(&mut batch, rule, &[2, 0, 0, 0], |w| write_rule(chain, target, w)).unwrap();
    message::append(&mut batch, boundary(BATCH_END, 3), &[0, 0, 0, 10], |_| {}).unwrap();
    let mut socket = Socket::open(NETLINK_NETFILTER).unwrap();
    socket.send(&batch).unwrap();
    let answer = socket.receive(Wait::Limited).unwrap();
    let message = Messages::new(answer).next().unwrap().unwrap();
    let Ok(Meaning::Acknowledgement(end)) = message.meaning() else { panic!("{message:?}") };
    end.errno
}

/// The attributes of `NFT_MSG_NEWRULE`, by the numbers of `<linux/netfilter/nf_tables.h>` and
/// `<linux/netfilter/nf_tables_compat.h>`.
fn write_rule(chain: &str, target: &str, w: &mut AttrWriter<'_>) {
    const LIST_ELEM: u16 = 1;
    const JUMP: i32 = -3;
    let mut comment = [0; 256];
    comment[..26].copy_from_slice(b"kubernetes service portals");
    w.str(1, "nat");
    w.str(2, chain);
    w.nest(4, |w| {
        w.nest(LIST_ELEM, |w| {
            w.str(1, "match");
            w.nest(2, |w| {
                w.str(1, "comment");
                w.be32(2, 0);
                w.bytes(3, &comment);
            });
        });
        w.nest(LIST_ELEM, |w| {
            w.str(1, "immediate");
            w.nest(2, |w| {
                w.be32(1, 0);
                w.nest(2, |w| {
                    w.nest(2, |w| {
                        w.be32(1, JUMP.cast_unsigned());
                        w.str(2, target);
                    });
                });
            });
        });
    });
}
