//! The harness itself: hosts reach each other, and every probe distinguishes the outcomes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use netlink_tests::reader::{Data, Family};
use netlink_tests::{Answer, Deadline, Host, NODE_IP, NODE_IP6, Net, eventually, nft_available};

const TABLE: &str = "
    table ip kube-proxy {
        set cluster-ips { type ipv4_addr . inet_service; comment \"not an element\";
            elements = { 10.96.0.1 . 80 comment \"default/web:http\" } }
        map endpoints { type inet_proto . mark : ipv4_addr . inet_service;
            elements = { tcp . 0 : 10.244.1.5 . 8080 } }
        map verdicts { type inet_service : verdict; elements = { 1 : drop, 2 : goto other } }
        chain other { counter comment \"why\"; }
        chain prerouting { type nat hook prerouting priority -100; policy accept;
            meta l4proto tcp dnat ip to meta l4proto . meta mark map @endpoints; }
    }
    table ip other-table { set cluster-ips { type ipv4_addr; }; }";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Everything that answers from `server` to `client`, in both families.
fn all_answers(client: &Host, server: &Host) -> Vec<Answer> {
    let _tcp = server.serve_tcp(80, "web");
    let _udp = server.serve_udp(53, "dns");
    let _sctp = server.serve_sctp(90, "sctp");
    let mut answers = Vec::new();
    for ip in [IpAddr::from(server.ip()), server.ip6().into()] {
        answers.push(client.connect_tcp((ip, 80)));
        answers.push(client.send_udp((ip, 53)));
        answers.push(client.send_sctp((ip, 90)));
    }
    answers
}

#[track_caller]
fn check_reach(client: &Host, server: &Host, sources: [IpAddr; 2]) {
    let answers = all_answers(client, server);
    let servers: Vec<_> = answers.iter().map(Answer::server).collect();
    assert_eq!(servers, ["web", "dns", "sctp", "web", "dns", "sctp"]);
    let seen: Vec<_> = answers.iter().map(Answer::source).collect();
    let [v4, v6] = sources;
    assert_eq!(seen, [v4, v4, v4, v6, v6, v6]);
    assert_eq!(client.icmp_echo(server.ip()), Answer::Echoed);
    assert_eq!(client.icmp_echo(server.ip6()), Answer::Echoed);
}

#[test]
fn pods_reach_each_other_and_are_seen_with_their_own_address() {
    let net = Net::new();
    let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
    check_reach(&a, &b, [a.ip().into(), a.ip6().into()]);
    check_reach(&b, &a, [b.ip().into(), b.ip6().into()]);
}

#[test]
fn a_pod_reaches_itself() {
    let net = Net::new();
    let a = net.pod("a", "10.244.1.5");
    check_reach(&a, &a, [a.ip().into(), a.ip6().into()]);
}

#[test]
fn outside_hosts_and_remote_pods_reach_pods_and_the_node() {
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let outside = net.outside("client", "192.0.2.10");
    let remote = net.remote_pod("r", "10.244.2.7");
    for client in [&outside, &remote] {
        check_reach(client, &pod, [client.ip().into(), client.ip6().into()]);
        check_reach(client, net.node(), [client.ip().into(), client.ip6().into()]);
    }
}

#[test]
fn the_node_reaches_pods_from_the_gateway_address_and_others_from_its_own() {
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let outside = net.outside("client", "192.0.2.10");
    check_reach(net.node(), &pod, [ip("10.244.1.1"), ip("fd00:10:244:1::1")]);
    check_reach(net.node(), &outside, [NODE_IP.into(), NODE_IP6.into()]);
}

#[test]
fn a_server_on_the_node_answers_from_the_destination_address() {
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let _udp = net.node().serve_udp(53, "dns");
    assert_eq!(pod.send_udp((NODE_IP, 53)).server(), "dns");
    assert_eq!(pod.send_udp((NODE_IP6, 53)).server(), "dns");
    assert_eq!(pod.send_udp("10.244.1.1:53").server(), "dns");
}

#[test]
fn a_closed_port_refuses() {
    let net = Net::new();
    let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
    for ip in [IpAddr::from(b.ip()), b.ip6().into()] {
        assert_eq!(a.connect_tcp((ip, 80)), Answer::Refused);
        assert_eq!(a.send_udp((ip, 80)), Answer::Refused);
    }
}

#[test]
fn many_refusals_are_all_heard() {
    let net = Net::new();
    let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
    // Only newer kernels limit each namespace by itself.
    let _ = b.run(|| fs::write("/proc/sys/net/ipv4/icmp_msgs_burst", "1"));
    for _ in 0..100 {
        assert_eq!(a.send_udp((b.ip(), 80)), Answer::Refused);
        assert_eq!(a.send_udp((b.ip6(), 80)), Answer::Refused);
    }
}

#[test]
fn an_address_that_no_host_has_is_unreachable() {
    let net = Net::new();
    let a = net.pod("a", "10.244.1.5");
    for to in ["10.244.9.9:80", "[fd00:10:244:9::9]:80"] {
        for answer in [a.connect_tcp(to), a.send_udp(to), a.send_sctp(to)] {
            assert!(matches!(answer, Answer::Unreachable(_)), "{to} {answer:?}");
        }
    }
}

/// The client, hasty if silence is expected.
fn with_limit_for(expected: &Answer, client: &Host) -> Host {
    if *expected == Answer::Silent { client.hasty() } else { client.clone() }
}

#[test]
fn a_dropped_packet_is_silence_and_a_rejected_one_a_refusal() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
    for (verdict, expected) in [("drop", Answer::Silent), ("reject", Answer::Refused)] {
        net.node().nft_script(&format!(
            "flush ruleset; table inet t {{ chain c {{
                type filter hook forward priority 0; meta l4proto {{ tcp, udp, sctp }} {verdict}; }}; }}"
        ));
        let answers = all_answers(&with_limit_for(&expected, &a), &b);
        assert_eq!(answers, [const { Answer::Silent }; 6].map(|_| expected.clone()));
    }
}

#[test]
fn drops_and_rejects_in_the_own_output_hook_are_distinguished() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let a = net.pod("a", "10.244.1.5");
    for (verdict, expected) in [("drop", Answer::Silent), ("reject", Answer::Refused)] {
        net.node().nft_script(&format!(
            "flush ruleset; table inet t {{ chain c {{
                type filter hook output priority 0; meta l4proto {{ tcp, udp, sctp }} {verdict}; }}; }}"
        ));
        let answers = all_answers(&with_limit_for(&expected, net.node()), &a);
        assert_eq!(answers, [const { Answer::Silent }; 6].map(|_| expected.clone()));
    }
}

#[test]
fn translated_and_masqueraded_packets_show_where_they_come_from() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let outside = net.outside("client", "192.0.2.10");
    net.node().nft_script(
        "table inet t {
            chain pre { type nat hook prerouting priority -100;
                ip daddr 10.96.0.1 dnat ip to 10.244.1.5;
                ip6 daddr fd00:10:96::1 dnat ip6 to fd00:10:244:1::5; }
            chain post { type nat hook postrouting priority 100; masquerade; }
        }",
    );
    let _tcp = pod.serve_tcp(80, "web");
    let _udp = pod.serve_udp(80, "dns");
    let _sctp = pod.serve_sctp(80, "sctp");
    for (to, source) in [("10.96.0.1:80", "10.244.1.1"), ("[fd00:10:96::1]:80", "fd00:10:244:1::1")]
    {
        for answer in [outside.connect_tcp(to), outside.send_udp(to), outside.send_sctp(to)] {
            assert_eq!(answer.source(), ip(source), "{answer:?}");
        }
    }
}

#[test]
fn source_addresses_and_ports_can_be_chosen() {
    let net = Net::new();
    let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
    let _tcp = b.serve_tcp(80, "web");
    let _udp = b.serve_udp(80, "dns");
    let _sctp = b.serve_sctp(80, "sctp");
    a.add_address(ip("10.244.1.50"));
    a.add_address(ip("fd00:10:244:1::50"));
    for (source, to) in [
        ("10.244.1.50:4000", (IpAddr::from(b.ip()), 80)),
        ("[fd00:10:244:1::50]:4000", (b.ip6().into(), 80)),
    ] {
        // Twice, because the port must be free again at once.
        for _ in 0..2 {
            for answer in [a.connect_tcp_from(source, to), a.send_udp_from(source, to)] {
                let Answer::From { seen, .. } = answer else { panic!("{answer:?}") };
                assert_eq!(seen, source.parse().unwrap());
            }
        }
        assert_eq!(a.send_sctp_from(4000, to).source_port(), 4000);
    }
}

#[test]
fn a_kept_connection_gets_answers_until_its_server_ends() {
    let net = Net::new();
    let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
    let tcp = b.serve_tcp(80, "web");
    let udp = b.serve_udp(80, "dns");
    let mut connection = a.open_tcp((b.ip(), 80)).unwrap();
    let mut flow = a.open_udp((b.ip(), 80));
    let port = connection.local_addr().port();
    for _ in 0..3 {
        assert_eq!(connection.ask().source_port(), port);
        assert_eq!(flow.ask().source_port(), flow.local_addr().port());
    }
    drop((tcp, udp));
    assert_eq!(connection.ask(), Answer::Refused);
    assert_eq!(flow.ask(), Answer::Refused);
}

#[test]
fn a_server_ends_with_its_value_and_the_port_is_free_again() {
    let net = Net::new();
    let node = net.node();
    for name in ["first", "second"] {
        let _tcp = node.serve_tcp(80, name);
        let _udp = node.serve_udp(80, name);
        assert_eq!(node.connect_tcp((NODE_IP, 80)).server(), name);
        assert_eq!(node.send_udp((NODE_IP6, 80)).server(), name);
    }
    assert_eq!(node.connect_tcp((NODE_IP, 80)), Answer::Refused);
}

#[test]
fn a_program_runs_in_the_namespace_and_its_lines_can_be_waited_for() {
    let net = Net::new();
    let script = "echo one; echo two >&2; cat /proc/net/dev; read never; exit 3";
    let limit = Duration::from_secs(5);
    let mut process = net.node().spawn("/bin/sh", &["-c", script]);
    assert_eq!(process.wait_for_line("one", limit), "one");
    process.wait_for_line("lo:", limit);
    let finished = process.finish(limit);
    assert_eq!((finished.code(), finished.stderr.as_str()), (Some(3), "two\n"));
    assert!(!finished.stdout.contains("eth0"), "{}", finished.stdout);
}

/// Runs `a_failing_test` below, whose program ends before it writes the expected line.
#[test]
fn a_failed_test_shows_how_its_program_ended_and_what_it_wrote() {
    let limit = Deadline::after(A_LONG_TIME);
    let test = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_failing_test"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&test.stdout);
    assert!(!test.status.success(), "{shown}");
    for part in
        ["sh wrote no line with \"started\"", "sh had ended: exit status: 7", "no such file"]
    {
        assert!(shown.contains(part), "no {part:?} in:\n{shown}");
    }
    assert!(limit.left().is_some(), "waited for a program that had ended");
}

#[test]
#[ignore = "fails on purpose"]
fn a_failing_test() {
    let net = Net::new();
    let mut process = net.node().spawn("/bin/sh", &["-c", "echo no such file >&2; exit 7"]);
    process.wait_for_line("started", A_LONG_TIME);
}

/// Longer than any program of these tests takes.
const A_LONG_TIME: Duration = Duration::from_secs(60);

#[test]
fn a_program_is_killed_with_its_value() {
    let net = Net::new();
    let process = net.node().spawn("/bin/sleep", &["600"]);
    let proc = format!("/proc/{}", process.pid());
    assert!(std::fs::exists(&proc).unwrap());
    drop(process);
    assert!(!std::fs::exists(&proc).unwrap());

    let finished = net.node().spawn("/bin/sleep", &["600"]).terminate(Duration::from_secs(5));
    assert_eq!(finished.code(), None);
}

#[test]
fn the_reader_sees_chains_rules_sets_and_elements_of_the_one_table() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    assert_eq!(net.node().read_table(Family::Ip), None);
    net.node().nft_script(TABLE);
    assert_eq!(net.node().read_table(Family::Ip6), None);
    let table = net.node().read_table(Family::Ip).unwrap();

    let chains: BTreeSet<_> = table.chains.keys().map(String::as_str).collect();
    assert_eq!(chains, ["other", "prerouting"].into());
    assert_eq!(table.chains["prerouting"].hook, Some((0, -100)));
    assert_eq!(table.chains["other"].rules[0].expressions, ["counter"]);
    assert_eq!(table.chains["other"].rules[0].comment.as_deref(), Some("why"));

    let set = &table.sets["cluster-ips"];
    assert_eq!((set.key_len, set.data_len, set.elements.len()), (8, 0, 1));
    assert_eq!(set.elements[0].key, [10, 96, 0, 1, 0, 80, 0, 0]);
    assert_eq!(set.elements[0].comment.as_deref(), Some("default/web:http"));
    let endpoint = Data::Value(vec![10, 244, 1, 5, 0x1f, 0x90, 0, 0]);
    assert_eq!(table.sets["endpoints"].elements[0].data, Some(endpoint));
    let verdicts: Vec<_> = table.sets["verdicts"].elements.iter().map(|e| &e.data).collect();
    let goto = Data::Verdict(-4, Some("other".to_owned()));
    assert_eq!(verdicts, [&Some(Data::Verdict(0, None)), &Some(goto)]);
}

#[test]
fn the_reader_reads_sets_larger_than_one_netlink_buffer() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let elements: Vec<_> =
        (0..5000).map(|i| format!("10.0.{}.{} comment \"e{i}\"", i / 250, i % 250)).collect();
    net.node().nft_script(&format!(
        "table ip kube-proxy {{ set s {{ type ipv4_addr; elements = {{ {} }}; }}; }}",
        elements.join(", ")
    ));
    let set = &net.node().read_table(Family::Ip).unwrap().sets["s"];
    let comments: BTreeSet<_> = set.elements.iter().filter_map(|e| e.comment.clone()).collect();
    assert_eq!((set.elements.len(), comments.len()), (5000, 5000));
}

#[test]
fn nft_lists_the_tables_of_the_node_and_none_of_the_machine() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    assert_eq!(net.node().nft("list ruleset"), "");
    net.node().nft_script("table ip t { }");
    assert_eq!(net.node().nft("-j list tables").matches("\"name\"").count(), 1);
}

#[test]
#[should_panic(expected = "a thing: not within")]
fn a_wait_that_times_out_names_the_missing_condition() {
    eventually("a thing", Duration::from_millis(5), || None::<()>);
}
