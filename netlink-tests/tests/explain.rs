//! `explain` on the real kernel: what it says, other programs' rules, and the kernel's trace.
//!
//! Every probe of every other test is compared with what `explain` predicts, see
//! `scenario/oracle.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use Expect::{Refused, Silent};
use netlink_tests::scenario::{
    Expect, Lab, Manifests, Protocol, Scope, WEB, keeps_source, masquerades, slice, web_everywhere,
    web_with_node_port,
};
use netlink_tests::{
    Answer, Finished, Host, Process, deltaproxy_binary, eventually, nft_available,
};
use nft::kernel::{Kernel, Nftables};
use nft::{
    BaseChain, Chain, Family, Hook, HookPoint, Operation, Table, TableFamily, TableRef, Transaction,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a c")]);
    lab
}

fn explain(node: &Host, arguments: &[&str]) -> Finished {
    node.output(deltaproxy_binary(), &[&["explain"], arguments].concat())
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn the_service_its_endpoints_and_masquerade_are_named() {
    let lab = lab();
    let from_pod = explain(lab.world.node(), &["10.96.0.10:80/tcp", "--from", "10.244.1.9"]).ok();
    assert_has(
        &from_pod,
        &[
            "packet    10.244.1.9 -> 10.96.0.10:80/tcp, comes in by vethpod\n",
            "service   default/web:p80-tcp at 10.96.0.10:80/tcp\n",
            "2 endpoints\n",
            "50.0 %  endpoint 10.244.1.5:8080/tcp by vetha, keeps its source\n",
            "50.0 %  endpoint 10.244.2.7:8080/tcp by nodec, keeps its source\n",
            "one of 2 numbers is drawn, each has an element in @endpoints",
        ],
    );
    let outside = explain(lab.world.node(), &["10.96.0.10:80/tcp", "--from", "192.0.2.10"]).ok();
    assert_has(
        &outside,
        &[
            "masqueraded: the source becomes the node's address\n",
            "ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000\n",
            "marked for masquerade: it is not from a pod of this cluster\n",
        ],
    );
    let ipv6 = explain(lab.world.node(), &["[fd00:10:96::10]:80/udp"]).ok();
    assert_has(&ipv6, &["packet    fd00:192:168:50::2 -> [fd00:10:96::10]:80/udp, sent by this"]);
    let other = explain(lab.world.node(), &["192.0.2.10:80/tcp"]).ok();
    assert_has(&other, &["service   not ours: no service has this address and port\n"]);
    let no_port = explain(lab.world.node(), &["10.96.0.10:81/tcp"]).ok();
    assert_has(&no_port, &["none: the address is a ClusterIP", "refused in table ip kube-proxy"]);
}

#[test]
fn a_node_port_at_an_address_without_node_ports_is_named() {
    let lab = lab();
    let node = lab.world.node();
    for at in ["127.0.0.1", "[::1]"] {
        let text = explain(node, &[&format!("{at}:30080/udp")]).ok();
        assert_has(
            &text,
            &["service   default/web:p80-udp at ", "which is closed at this address"],
        );
        let other = explain(node, &[&format!("{at}:30081/udp")]).ok();
        assert_has(&other, &["service   not ours"]);
    }
    let text = explain(node, &["[::1]:30080", "--output", "json"]).ok();
    let json: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(json["closedNodePort"]["name"], "default/web:p80-tcp");
    assert_eq!(json["service"], Value::Null);
}

#[test]
fn json_has_outcomes_and_steps() {
    let lab = lab();
    let arguments = ["192.168.50.2:30080/udp", "--from", "192.0.2.10", "--output", "json"];
    let text = explain(lab.world.node(), &arguments).ok();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["service"]["name"], "default/web:p80-udp");
    assert_eq!(json["packet"]["inInterface"], "outoutside");
    assert_eq!(json["masqueraded"], true);
    let outcomes = json["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.iter().all(|it| it["share"] == 0.5 && it["kind"] == "sent"), "{text}");
    assert!(json["steps"].as_array().unwrap().iter().any(|step| step["chain"] == "pick"));
}

#[test]
fn without_a_protocol_each_one_that_has_a_service_is_explained() {
    let lab = lab();
    let node = lab.world.node();
    let text = explain(node, &["10.96.0.10:80", "--from", "10.244.1.9"]).ok();
    let packets: Vec<_> = text.lines().filter(|line| line.starts_with("packet ")).collect();
    let expected = ["tcp", "udp", "sctp"].map(|protocol| {
        format!("packet    10.244.1.9 -> 10.96.0.10:80/{protocol}, comes in by vethpod")
    });
    assert_eq!(packets, expected);
    assert_has(&text, &["service   default/web:p80-udp at 10.96.0.10:80/udp\n"]);
    let lines = explain(node, &["10.96.0.10:80", "--output", "json"]).ok();
    let documents: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let protocols: Vec<_> = documents.iter().map(|it| &it["packet"]["protocol"]).collect();
    assert_eq!(protocols, ["tcp", "udp", "sctp"]);
    let other = explain(node, &["192.0.2.10:80"]).ok();
    assert_has(&other, &["-> 192.0.2.10:80/tcp, sent by this node\n", "none has a service there"]);
    let traced = explain(node, &["10.96.0.10:80", "--trace"]);
    assert_eq!(traced.code(), Some(2));
    assert_has(&traced.stderr, &["tcp and udp and sctp have a service there"]);
}

#[test]
fn a_name_explains_each_address_of_the_service() {
    let lab = lab();
    let node = lab.world.node();
    let by_name = explain(node, &["default/web", "--from", "10.244.1.9"]).ok();
    let by_address = explain(node, &["10.96.0.10:80", "--from", "10.244.1.9"]).ok();
    let sorted = |text: &str| {
        let mut packets: Vec<_> =
            text.lines().filter(|line| line.starts_with("packet ")).map(str::to_owned).collect();
        packets.sort();
        packets
    };
    assert_eq!(sorted(&by_name), sorted(&by_address));
    assert_eq!(sorted(&by_name).len(), 3);
    let one = explain(node, &["default/web:p80-udp"]).ok();
    assert_has(&one, &["-> 10.96.0.10:80/udp"]);
    let unknown = explain(node, &["default/unheard"]);
    assert_eq!(unknown.code(), Some(2));
    assert_has(&unknown.stderr, &["the tables have no service default/unheard"]);
}

#[test]
fn a_load_balancer_address_has_its_service_and_ranges_wherever_the_packet_is_from() {
    let mut lab = Lab::new();
    let ranges = json!(["203.0.113.0/24", "192.0.2.0/28"]);
    let web = web_everywhere().spec("loadBalancerSourceRanges", ranges);
    lab.apply(&[&web, &slice("a c")]);
    let node = lab.world.node().clone();
    let arguments = |from| ["198.51.100.2:80/tcp", "--in-interface", "outoutside", "--from", from];
    let service = "service   default/web:p80-tcp at 198.51.100.2:80/tcp";
    let sources = "sources   only 192.0.2.0/28, 203.0.113.0/24 (loadBalancerSourceRanges)\n";
    let dropped = explain(&node, &arguments("192.0.2.99")).ok();
    let why = "%  dropped in table ip kube-proxy chain";
    assert_has(
        &dropped,
        &[service, sources, why, ": the source is not in loadBalancerSourceRanges\n"],
    );
    let allowed = explain(&node, &arguments("192.0.2.9")).ok();
    assert_has(&allowed, &[service, sources, "50.0 %  endpoint 10.244.1.5:8080/tcp"]);
    assert!(!allowed.contains("the source is not in"), "{allowed}");
    let json = [&arguments("192.0.2.99")[..], &["--output", "json"]].concat();
    let document: Value = serde_json::from_str(&explain(&node, &json).ok()).unwrap();
    assert_eq!(document["service"]["name"], "default/web:p80-tcp");
    assert_eq!(document["service"]["sourceRanges"], json!(["192.0.2.0/28", "203.0.113.0/24"]));
    lab.apply(&[&web, &slice("")]);
    let unserved = explain(&node, &arguments("192.0.2.99")).ok();
    assert_has(&unserved, &[service, "without an endpoint", sources, "is not in loadBalancer"]);
}

#[test]
fn a_source_without_a_route_comes_in_by_an_unknown_interface() {
    let net = netlink_tests::Net::new();
    let manifests = Manifests::new(&[("web", &web_with_node_port()), ("slice", &slice("a c"))]);
    let _ = manifests.once(net.node(), "apply").ok();
    let text = explain(net.node(), &["10.96.0.10:80/tcp", "--from", "203.0.113.9"]).ok();
    assert_has(
        &text,
        &[
            "packet    203.0.113.9 -> 10.96.0.10:80/tcp, comes in by an interface that is not known\n",
            "there is no route to 203.0.113.9, so the interface",
        ],
    );
}

#[test]
fn trouble_is_one_line_and_exit_code_2() {
    let lab = Lab::new();
    let node = lab.world.node();
    for (arguments, why) in [
        (&["10.96.0.10"][..], "the port is missing"),
        (&["10.96.0.10:80/tcp", "--from", "fd00::1"], "--from fd00::1: an IPv4 address is needed"),
        (
            &["10.96.0.10:80/tcp", "--in-interface", "eth9", "--from", "10.0.0.1"],
            "eth9: no interface",
        ),
        (&["10.96.0.10:80/tcp", "--hook", "prerouting"], "--from ADDRESS is needed"),
        (
            &["10.96.0.10:80/tcp", "--hook", "output", "--in-interface", "lo"],
            "--in-interface lo: only a packet at --hook prerouting",
        ),
    ] {
        let finished = explain(node, arguments);
        assert_eq!(finished.code(), Some(2), "{arguments:?}: {}", finished.stdout);
        assert_has(&finished.stderr, &[why]);
    }
    let bare = netlink_tests::Net::new();
    let finished = explain(bare.node(), &["10.96.0.10:80/tcp"]);
    assert_eq!(finished.code(), Some(2));
    assert_has(&finished.stderr, &["there is no table ip kube-proxy"]);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
}

#[test]
fn what_other_programs_named_neither_forges_lines_nor_reaches_the_terminal() {
    let lab = lab();
    lab.world.node().run(|| {
        let (family, name) = (Family::Ip, "other\u{1b}[31m\nforged");
        let table = TableRef::new(family, name);
        let made = Table::new(family, name);
        let base = BaseChain::new("filter", HookPoint::Output, -300);
        let chain = Chain::at_hook("c\rforged", base);
        let operations = vec![Operation::AddTable(made), Operation::AddChain(table, chain)];
        Nftables::open().unwrap().commit(&Transaction { operations }).unwrap();
    });
    let text = explain(lab.world.node(), &["10.96.0.10:80/tcp"]).ok();
    assert_has(&text, &["table ip other\\u{1b}[31m\\nforged chain c\\rforged (filter, -300)\n"]);
    assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{text:?}");
}

/// The oracle compares each probe with the prediction.
#[test]
fn rules_of_other_programs_are_evaluated() {
    if !nft_available() {
        return;
    }
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a c")]);
    lab.world.node().nft_script(
        "table inet fw {
           set bad { type ipv4_addr; flags interval; elements = { 192.0.2.0/28, 10.244.2.8 }; }
           map ports { type inet_proto . inet_service : verdict;
             elements = { udp . 80 : goto refuse, tcp . 8080 : accept }; }
           chain refuse { counter reject; }
           chain pre {
             type filter hook prerouting priority -150; policy accept;
             ct state established,related accept
             ip saddr @bad tcp dport 80 drop
             ip6 saddr fd00:192:0:2::/64 th dport 70-90 meta l4proto tcp counter drop
             meta l4proto . th dport vmap @ports
           }
           chain forward {
             type filter hook forward priority 10; policy drop;
             ct state established,related accept
             iifname \"vethpod\" oifname { \"vetha\", \"nodec\" } accept
             iifname \"out*\" tcp dport >= 8000 accept
           }
           chain out { type filter hook output priority 10; meta l4proto sctp drop; }
         }
         table ip after { chain nat {
           type nat hook prerouting priority -90;
           tcp dport 99 dnat to 10.244.1.5:8080;
         }
         }",
    );
    lab.check_in(
        Scope::TCP,
        &[
            ("pod", WEB, keeps_source("a c")),
            ("outside", WEB, Silent),
            ("node", WEB, masquerades("a c")),
        ],
    );
    lab.check_in(Scope::UDP, &[("pod", WEB, Refused), ("node", WEB, masquerades("a c"))]);
    lab.check_in(Scope::SCTP, &[("pod", WEB, keeps_source("a c")), ("node", WEB, Silent)]);
    lab.check_in(
        Scope { families: &[netlink_tests::scenario::Family::Ipv4], ..Scope::TCP },
        &[("pod", "10.244.1.6:99", keeps_source("a"))],
    );
}

#[test]
fn what_is_not_known_is_named() {
    if !nft_available() {
        return;
    }
    let lab = lab();
    lab.world.node().nft_script(
        "table inet foo { chain bar {
           type filter hook output priority 20;
           udp dport 8080 meta cpu 0 drop
           limit rate 1/second counter;
         }
         }",
    );
    let text = explain(lab.world.node(), &["10.96.0.10:80/udp"]).ok();
    assert_has(
        &text,
        &[
            "dropped in table inet foo chain bar",
            "perhaps",
            "what the rule compares is not known of this packet (table inet foo chain bar)",
            "limit: a rate or count decides (table inet foo chain bar)",
        ],
    );
    let text = explain(lab.world.node(), &["10.96.0.10:80/tcp"]).ok();
    assert_has(&text, &["50.0 %  endpoint 10.244.1.5:8080/tcp"]);
}

/// The kernel calls the chain that was registered last, or woke last, first.
#[test]
fn of_chains_with_one_priority_the_true_first_one_is_named_or_both() {
    if !nft_available() {
        return;
    }
    let lab = lab();
    let node = lab.world.node();
    let filter = |table, verdict| {
        format!(
            "table inet {table} {{ chain c {{
               type filter hook output priority 7; tcp dport 8080 counter {verdict};
             }}
             }}"
        )
    };
    node.nft_script(&filter("rejects", "reject"));
    node.nft_script(&filter("drops", "drop"));
    let hook = Hook { family: TableFamily::Ip, number: HookPoint::Output as u32, device: None };
    let is_told = node.run(|| Nftables::open().unwrap().called_chains(&hook).unwrap().is_some());
    let check = |first: &str, second: &str, answer: &Answer| {
        let text = explain(node, &["10.96.0.10:80/tcp"]).ok();
        if is_told {
            assert_has(&text, &[&format!("100 %  {first} in table inet")]);
            assert!(!text.contains(second) && !text.contains("does not tell"), "{text}");
        } else {
            let both = [first, second].map(|it| format!("perhaps  {it} in table inet"));
            let note = "the kernel does not tell which of these it calls first: table inet drops \
                        chain c, table inet rejects chain c\n";
            assert_has(&text, &[&both[0], &both[1], note]);
        }
        assert_eq!(node.hasty().connect_tcp(WEB), *answer);
    };
    check("dropped", "refused", &Answer::Silent);
    node.nft_script("table inet rejects { flags dormant; }");
    node.nft_script("table inet rejects { }");
    check("refused", "dropped", &Answer::Refused);
    let nat = |table, port| {
        format!(
            "table ip {table} {{ chain c {{
               type nat hook output priority -100; tcp dport 99 dnat to 10.244.1.6:{port};
             }}
             }}"
        )
    };
    node.nft_script(&nat("one", 1001));
    node.nft_script(&nat("two", 1002));
    let text = explain(node, &["10.244.1.6:99/tcp"]).ok();
    let both = [1001, 1002].map(|port| format!("perhaps  endpoint 10.244.1.6:{port}/tcp"));
    let named: Vec<_> = both.iter().filter(|it| text.contains(&**it)).collect();
    assert!(named.len() == 2 || named.is_empty() && text.contains("10.244.1.6:1002/tcp"), "{text}");
}

// --trace.

#[test]
fn a_trace_of_chains_with_one_priority_is_no_difference() {
    if !nft_available() {
        return;
    }
    let lab = lab();
    let node = lab.world.node();
    for table in ["one", "two"] {
        node.nft_script(&format!(
            "table inet {table} {{ chain c {{ type filter hook output priority 7; counter; }}\n }}"
        ));
    }
    let text = explain(node, &["10.96.0.10:80/tcp", "--trace"]).ok();
    assert_has(&text, &["no difference: the kernel did as predicted"]);
    assert!(!text.contains("does not tell"), "{text}");
}

#[test]
fn a_packet_of_the_node_takes_the_rules_that_were_predicted() {
    let lab = lab();
    let node = lab.world.node();
    for to in
        ["10.96.0.10:80/tcp", "10.96.0.10:80/udp", "10.96.0.10:81/tcp", "[fd00:10:96::10]:80/udp"]
    {
        let finished = explain(node, &[to, "--trace"]);
        let text = finished.ok();
        assert_has(
            &text,
            &["predicted  kernel  rule", "no difference: the kernel did as predicted"],
        );
    }
    assert!(!nft_available() || !node.nft("list tables").contains("deltaproxy-trace"));
}

#[test]
fn a_packet_that_cannot_be_sent_is_named() {
    let lab = lab();
    let node = lab.world.node();
    let _ = node.output("ip", &["route", "add", "unreachable", "203.0.113.0/24"]).ok();
    let traced = explain(node, &["203.0.113.9:80/tcp", "--trace"]);
    assert_eq!(traced.code(), Some(2));
    assert_has(&traced.stderr, &["--trace: cannot send a packet to 203.0.113.9:80: "]);
}

/// The kernel often gives later packets of a connection the trace id of the first.
#[test]
fn later_packets_of_a_traced_connection_are_no_difference() {
    assert!(nft_available(), "nft is needed: apt-get install nftables");
    let lab = lab();
    let node = lab.world.node();
    node.nft_script(
        "table inet firewall {
           chain in {
             type filter hook prerouting priority -150;
             ct state established,related accept
           }
           chain out { type filter hook output priority 10; ct state established accept; }
         }
         table ip foreign { chain forward {
           type filter hook forward priority 10;
           ct state established accept
         }
         }",
    );
    for turn in 0..5 {
        let text = explain(node, &["10.96.0.10:80/tcp", "--trace"]).stdout;
        assert!(text.contains("no difference: the kernel did as predicted"), "{turn}: {text}");
        for protocol in [Protocol::Tcp, Protocol::Sctp] {
            let process = trace_from_pod(node, protocol);
            let _ = lab.world.ask_fast("pod", WEB.parse().unwrap(), protocol).server();
            let text = process.finish(Duration::from_secs(30)).stdout;
            assert!(text.contains("no difference: the kernel did as predicted"), "{turn}: {text}");
        }
    }
}

/// Starts to wait for a packet of the pod.
fn trace_from_pod(node: &Host, protocol: Protocol) -> Process {
    let to = match protocol {
        Protocol::Tcp => "10.96.0.10:80/tcp",
        Protocol::Udp => "10.96.0.10:80/udp",
        Protocol::Sctp => "10.96.0.10:80/sctp",
    };
    let to = ["explain", to, "--from", "10.244.1.9"];
    let arguments = [&to[..], &["--trace", "--trace-time", "20"]].concat();
    let process = node.spawn(deltaproxy_binary(), &arguments);
    let chains = || node.run(|| Nftables::open().unwrap().chains(TableFamily::Ip).unwrap());
    eventually("the table that traces", Duration::from_secs(10), || {
        chains().iter().any(|(table, _)| table.name.starts_with("deltaproxy-trace")).then_some(())
    });
    process
}

/// The packets of a connection that began before the trace are none of a new one.
#[test]
fn a_packet_of_an_open_connection_is_not_traced() {
    let lab = lab();
    let (node, pod) = (lab.world.node(), lab.world.host("pod"));
    let open = pod.open_tcp(WEB).unwrap();
    let process = trace_from_pod(node, Protocol::Tcp);
    drop(open);
    let _ = lab.world.ask_fast("pod", WEB.parse().unwrap(), Protocol::Tcp).server();
    let text = process.finish(Duration::from_secs(30)).stdout;
    assert_has(&text, &["no difference: the kernel did as predicted"]);
}

#[test]
fn a_packet_that_comes_in_is_waited_for() {
    let lab = lab();
    let node = lab.world.node();
    let arguments = ["explain", "10.96.0.10:80/udp", "--from", "10.244.1.9", "--trace"];
    let mut process =
        node.spawn(deltaproxy_binary(), &[&arguments[..], &["--trace-time", "20"]].concat());
    let wait = "waiting 20 s for a packet from 10.244.1.9 to 10.96.0.10:80/udp: send one";
    process.wait_for_line(wait, Duration::from_secs(10));
    let table = || node.run(|| Nftables::open().unwrap().chains(TableFamily::Ip).unwrap());
    let has_table = |name: &str| table().iter().any(|(table, _)| table.name.starts_with(name));
    eventually("the table that traces", Duration::from_secs(10), || {
        has_table("deltaproxy-trace").then_some(())
    });
    let _ = lab.world.ask_fast("pod", WEB.parse().unwrap(), Protocol::Udp).server();
    let text = process.finish(Duration::from_secs(20)).ok();
    assert_has(&text, &["no difference: the kernel did as predicted"]);
    assert!(!has_table("deltaproxy-trace"));
}

#[test]
fn a_trace_that_is_killed_leaves_nothing_and_one_without_a_packet_ends() {
    let lab = lab();
    let node = lab.world.node();
    let arguments = ["explain", "10.96.0.10:80/udp", "--from", "10.244.1.9", "--trace"];
    let chains = || node.run(|| Nftables::open().unwrap().chains(TableFamily::Ip).unwrap());
    let has_table = || chains().iter().any(|(table, _)| table.name.starts_with("deltaproxy-trace"));
    // Not SIGINT, which the processes of background jobs ignore.
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let process =
            node.spawn(deltaproxy_binary(), &[&arguments[..], &["--trace-time", "60"]].concat());
        let soon = Duration::from_secs(10);
        eventually("the table that traces", soon, || has_table().then_some(()));
        process.signal(signal);
        eventually("no table that traces", soon, || (!has_table()).then_some(()));
    }
    let finished = explain(node, &[&arguments[1..], &["--trace-time", "1"]].concat());
    assert_eq!(finished.code(), Some(2));
    assert_has(&finished.stderr, &["--trace: no such packet within 1 s"]);
    assert!(!has_table());
}
