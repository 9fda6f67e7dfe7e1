//! The tables as others see them: nft, an independent reader, and a proxy that starts on them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::model::EndedSettings;
use engine::routing::Routing;
use netlink_tests::reader::{Data, Family, Table};
use netlink_tests::scenario::{Proxy, Sent, Service, Slice, objects_for_every_chain, routing};
use netlink_tests::{Host, Net, deltaproxy_binary, in_user_namespace, nft_available, nft_can_load};
use nft::{MessageKind, Operation};

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/manifests");

fn apply_all(proxy: &mut Proxy) -> Sent {
    let objects = objects_for_every_chain();
    let objects: Vec<_> = objects.iter().map(AsRef::as_ref).collect();
    proxy.apply(&objects)
}

fn tables(host: &Host) -> [Option<Table>; 2] {
    [Family::Ip, Family::Ip6].map(|family| host.read_table(family))
}

/// A table without what the kernel numbers.
fn without_handles(mut table: Table) -> Table {
    for rule in table.chains.values_mut().flat_map(|chain| &mut chain.rules) {
        rule.handle = 0;
        // For an interval set nft converts the byte order of the protocol, a single byte.
        rule.expressions.retain(|name| name != "byteorder");
    }
    table
}

/// Loads what nft lists of `host` into an empty namespace; both must be the same, to nft and to
/// the reader.
fn check_round_trip(host: &Host) {
    // nft 1.0.6 has no word for the flag persist, lists the flags all the same, and then no empty
    // line.
    let listed = host.nft("list ruleset").replace("\tflags \n", "");
    let without_empty_lines = |text: &str| text.replace("\n\n", "\n");
    let copy = Net::new();
    copy.node().nft_script(&listed);
    let again = copy.node().nft("list ruleset");
    assert_eq!(without_empty_lines(&again), without_empty_lines(&listed));
    let [here, there] = [tables(host), tables(copy.node())];
    for (here, there) in here.into_iter().zip(there) {
        let [here, there] = [here, there].map(|it| without_handles(it.expect("a table")));
        assert_eq!(here.sets, there.sets);
        assert_eq!(here.chains, there.chains);
    }
}

#[test]
fn nft_loads_what_it_lists_of_the_example_manifests() {
    if !nft_can_load() {
        return;
    }
    let net = Net::new();
    let args = ["apply", "--hostname-override", "demo-node", "--manifests", MANIFESTS];
    let _ = net.node().output(deltaproxy_binary(), &args).ok();
    check_round_trip(net.node());
    let args = [&args[..], &["--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"]].concat();
    let _ = net.node().output(deltaproxy_binary(), &args).ok();
    check_round_trip(net.node());
}

#[test]
fn nft_loads_what_it_lists_with_every_chain_and_setting() {
    if !nft_can_load() {
        return;
    }
    let with = |entries: &str, masquerade_all| {
        let node_port_addresses = entries.parse().unwrap();
        Routing { node_port_addresses, masquerade_all, ..routing() }
    };
    for routing in [
        routing(),
        with("all", true),
        with("primary,localhost", false),
        with("all,localhost", false),
    ] {
        let net = Net::new();
        let mut proxy = Proxy::start(net.node(), routing);
        assert_eq!(apply_all(&mut proxy).problems, [""; 0]);
        check_round_trip(net.node());
    }
}

/// The times of elements go on meanwhile. nft 1.0.6 has no length for the original port in a key.
#[test]
fn nft_loads_what_it_lists_with_ended_endpoints_but_the_lookup_of_their_services() {
    if !nft_can_load() {
        return;
    }
    let settings = EndedSettings { by_default: true, remember: Duration::from_mins(15) };
    let net = Net::new();
    let ended_connections = Some(settings);
    let mut proxy = Proxy::start(net.node(), Routing { ended_connections, ..routing() });
    let _ = apply_all(&mut proxy);
    // No other service has it.
    let _ = proxy.apply(&[&Slice::new("local").endpoints("a b c")]);
    let lookup = |line: &&str| !line.contains("ct original proto-dst");
    let loadable = |text: String| text.lines().filter(lookup).collect::<Vec<_>>().join("\n");
    let listed = loadable(net.node().nft("list ruleset").replace("\tflags \n", ""));
    let element = r#"tcp . 8080 counter packets 0 bytes 0 timeout 16m expires 15m"#;
    assert!(listed.contains(element), "{listed}");
    assert!(listed.contains("reject with tcp reset"), "{listed}");
    let copy = Net::new();
    copy.node().nft_script(&listed);
    let without_times = |text: &str| -> Vec<String> {
        let line = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let kept = (0..words.len()).filter(|i| *i == 0 || words[i - 1] != "expires");
            let kept = kept.map(|i| words[i]);
            kept.collect::<Vec<_>>().join(" ")
        };
        text.lines().filter(|it| !it.is_empty()).map(line).collect()
    };
    let again = copy.node().nft("list ruleset");
    assert_eq!(without_times(&again), without_times(&listed));
}

/// nft takes other registers for the hash of a client's address, which makes no difference.
#[test]
fn rules_that_nft_loads_with_other_registers_are_written_again() {
    if !nft_can_load() {
        return;
    }
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing()));
    let copy = Net::new();
    copy.node().nft_script(&net.node().nft("list ruleset"));
    let mut proxy = Proxy::start(copy.node(), routing());
    let sent = apply_all(&mut proxy);
    let script = sent.script();
    let of_hash =
        |line: &str| line.contains(" kube-proxy affinity-") || line.contains(" kube-proxy hash");
    assert!(script.lines().all(of_hash), "{script}");
    assert!(proxy.resync().transactions.is_empty());
}

/// A person can read it: few chains, rules and sets, however many services there are.
#[test]
fn a_table_is_small_and_the_listing_of_the_examples_is_short() {
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing()));
    for table in tables(net.node()).map(Option::unwrap) {
        let rules: usize = table.chains.values().map(|chain| chain.rules.len()).sum();
        let counts = (table.chains.len(), rules, table.sets.len());
        assert!(counts.0 <= 80 && rules <= 390 && counts.2 <= 26, "{counts:?}");
    }
    if nft_available() {
        let net = Net::new();
        let args = ["apply", "--hostname-override", "demo-node", "--manifests", MANIFESTS];
        let _ = net.node().output(deltaproxy_binary(), &args).ok();
        let lines = net.node().nft("list table ip kube-proxy").lines().count();
        assert!(lines < 650, "{lines} lines");
    }
}

/// nft's JSON output is what tools read.
#[test]
fn nft_lists_the_tables_as_json() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let _ = apply_all(&mut proxy);
    let listed: serde_json::Value =
        serde_json::from_str(&net.node().nft("-j list ruleset")).unwrap();
    assert!(listed["nftables"].as_array().unwrap().len() > 100);
}

/// A script of all transactions makes the same tables as the transactions themselves.
#[test]
fn nft_understands_the_transactions_as_scripts() {
    if !nft_can_load() {
        return;
    }
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let sent = apply_all(&mut proxy);
    let by_nft = Net::new();
    by_nft.node().nft_script(&sent.script());
    assert_eq!(by_nft.node().nft("list ruleset"), net.node().nft("list ruleset"));
}

/// Key, data and comment of an element.
type Entry = (Vec<u8>, Option<Vec<u8>>, Option<String>);

#[test]
fn the_kernel_holds_exactly_the_elements_that_were_sent() {
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let sent = apply_all(&mut proxy);
    let mut expected: BTreeMap<String, BTreeSet<Entry>> = BTreeMap::new();
    for operation in sent.transactions.iter().flat_map(|it| &it.operations) {
        let Operation::AddElements(table, set, elements) = operation else { continue };
        let entries = expected.entry(format!("{table} {}", set.name)).or_default();
        entries.extend(elements.iter().map(|element| {
            let data = element.data.as_ref().map(|data| data.as_bytes().to_vec());
            let comment = element.comment.as_ref().map(ToString::to_string);
            (element.key.as_bytes().to_vec(), data, comment)
        }));
    }
    let mut found: BTreeMap<String, BTreeSet<Entry>> = BTreeMap::new();
    for (family, table) in ["ip", "ip6"].into_iter().zip(tables(net.node())) {
        for (name, set) in table.unwrap().sets {
            let entries = set.elements.into_iter().map(|element| {
                let data = match element.data {
                    Some(Data::Value(bytes)) => Some(bytes),
                    Some(Data::Verdict(..)) | None => None,
                };
                (element.key, data, element.comment)
            });
            let entries: BTreeSet<_> = entries.collect();
            if !entries.is_empty() {
                found.insert(format!("{family} kube-proxy {name}"), entries);
            }
        }
    }
    assert_eq!(found, expected);
    assert!(expected.len() >= 28, "{:?}", expected.keys());
}

/// The same objects applied in two steps, with others in between, give the same elements except
/// that endpoints may be in other slots.
#[test]
fn the_way_to_a_state_does_not_show_in_it() {
    let sorted = |net: &Net| {
        tables(net.node()).map(|table| {
            let mut sets = table.unwrap().sets;
            for set in sets.values_mut().filter(|set| set.data_len > 0) {
                set.elements
                    .iter_mut()
                    .for_each(|element| element.key.truncate(element.key.len() - 4));
                set.elements.sort();
            }
            sets
        })
    };
    let straight = Net::new();
    let _ = apply_all(&mut Proxy::start(straight.node(), routing()));

    let winding = Net::new();
    let mut proxy = Proxy::start(winding.node(), routing());
    let web = Service::new("web", "10.96.0.99").node_port(81, 30099).external_local();
    let other = Service::new("other", "10.96.0.10").node_port(80, 30081);
    let _ = proxy.apply(&[&web, &other, &Slice::new("web").endpoints("d")]);
    let _ =
        proxy.apply(&[&Slice::new("local").endpoints("b d"), &Slice::new("many").endpoints("a")]);
    let _ = proxy.remove(&[&other]);
    let _ = apply_all(&mut proxy);
    assert_eq!(sorted(&winding), sorted(&straight));
}

// Starting on tables that are there.

#[test]
fn applying_twice_sends_nothing_the_second_time() {
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing()));
    let before = tables(net.node());
    let mut second = Proxy::start(net.node(), routing());
    let generation = second.generation();
    let sent = apply_all(&mut second);
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    assert_eq!(second.generation(), generation);
    assert_eq!(tables(net.node()), before);
}

#[test]
fn a_table_of_kube_proxy_is_replaced_whole_in_one_transaction() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    net.node().nft_script(KUBE_PROXY);
    net.node().nft_script(&kube_proxy_ipv6());
    net.node().nft_script("table ip other { set cluster-ips { type ipv4_addr; }; }");
    let mut proxy = Proxy::start(net.node(), routing());
    let generation = proxy.generation();
    let sent = apply_all(&mut proxy);
    // An ordinary user's send buffer may hold no more than the tables without elements.
    let most = if in_user_namespace() { 6 } else { 2 };
    assert!((2..=most).contains(&sent.transactions.len()), "{}", sent.transactions.len());
    let commits = u32::try_from(sent.transactions.len()).unwrap();
    assert_eq!(proxy.generation(), generation + commits);
    assert_eq!(sent.messages[&MessageKind::DelTable], 2);
    for transaction in &sent.transactions {
        let count = |of: fn(&Operation) -> bool| {
            transaction.operations.iter().filter(|operation| of(operation)).count()
        };
        let deleted = count(|it| matches!(it, Operation::DeleteTable(_)));
        assert_eq!(deleted, count(|it| matches!(it, Operation::AddTable(_))));
        assert!(deleted != 0 || in_user_namespace(), "elements come with their table");
    }

    let fresh = Net::new();
    let _ = apply_all(&mut Proxy::start(fresh.node(), routing()));
    let plain = |net: &Net| tables(net.node()).map(|table| without_handles(table.unwrap()));
    assert_eq!(plain(&net), plain(&fresh));
    assert!(net.node().nft("list tables").contains("table ip other"));
}

/// The number of the list that a frontend leads to, as nft prints it.
fn list_of(host: &Host, frontend: &str) -> String {
    let found = host.nft(&format!("get element ip kube-proxy services {{ {frontend} }}"));
    let route = found.rsplit(" : ").next().unwrap().split_whitespace().next().unwrap();
    let (upper, lower) = route.split_once(':').unwrap();
    let lower = u32::from_str_radix(lower, 16).unwrap() & 0xff00;
    format!("{upper}:{lower:x}")
}

/// Checks that after `damage` a new proxy sends exactly `repair` (parts of lines, one for each
/// operation; `MANY` stands for the list of the service `many`), keeps the handles of all rules in chains other than `rewritten`, and that the
/// tables are as before.
#[track_caller]
fn check_repair(damage: &str, repair: &[&str], rewritten: &[&str]) {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing()));
    let before = tables(net.node());
    let many = list_of(net.node(), "10.96.0.14 . tcp . 80");
    net.node().nft_script(&damage.replace("MANY", &many));
    assert_ne!(tables(net.node()), before, "no damage was done");
    let mut proxy = Proxy::start(net.node(), routing());
    let sent = apply_all(&mut proxy);
    let script = sent.script();
    assert_eq!(script.lines().count(), repair.len(), "{script}");
    for part in repair {
        let part = part.replace("MANY", &many);
        assert!(script.lines().any(|line| line.contains(&part)), "{part} is not in:\n{script}");
    }
    let kept = |tables: [Option<Table>; 2]| {
        tables.map(|table| {
            let mut table = table.unwrap();
            let plain = without_handles(table.clone());
            for chain in rewritten {
                table.chains.insert((*chain).to_owned(), plain.chains[*chain].clone());
            }
            table
        })
    };
    assert_eq!(kept(tables(net.node())), kept(before));
}

#[test]
fn an_element_that_somebody_deleted_comes_back() {
    check_repair(
        "delete element ip kube-proxy services { 10.96.0.10 . tcp . 80 }",
        &["add element ip kube-proxy services { 10.96.0.10 . tcp . 80 comment"],
        &[],
    );
}

#[test]
fn an_endpoint_that_somebody_deleted_comes_back() {
    check_repair(
        "delete element ip kube-proxy endpoints { MANY . tcp . 7 }",
        &["add element ip kube-proxy endpoints { MANY . tcp . 7 : "],
        &[],
    );
}

#[test]
fn stray_elements_go() {
    check_repair(
        "add element ip kube-proxy cluster-ips { 10.96.9.9 }
         add element ip kube-proxy endpoints { MANY . tcp . 40 : 10.244.9.9 . 80 }
         add element ip kube-proxy endpoints { ff:ff00 . tcp . 0 : 10.244.9.9 . 80 }
         add element ip6 kube-proxy nodeports { udp . 31000 : 0:40 }",
        &[
            "delete element ip kube-proxy cluster-ips { 10.96.9.9 }",
            "delete element ip kube-proxy endpoints { MANY . tcp . 40 }",
            "delete element ip kube-proxy endpoints { ff:ff00 . tcp . 0 }",
            "delete element ip6 kube-proxy nodeports { udp . 31000 }",
        ],
        &[],
    );
}

#[test]
fn elements_with_another_value_are_replaced() {
    check_repair(
        "delete element ip kube-proxy endpoints { MANY . tcp . 0 }
         add element ip kube-proxy endpoints { MANY . tcp . 0 : 10.244.9.9 . 80 }",
        &[
            "delete element ip kube-proxy endpoints { MANY . tcp . 0 }",
            "add element ip kube-proxy endpoints { MANY . tcp . 0 : ",
        ],
        &[],
    );
}

#[test]
fn stray_chains_and_sets_go() {
    check_repair(
        "table ip kube-proxy {
            set affinity-old { type ipv4_addr; elements = { 10.0.0.1 } }
            chain service-ABCDEFGH-default/web/tcp/http { ip saddr @affinity-old drop; }
            chain stray-hook { type filter hook input priority 5; tcp dport 1 drop; }
         }",
        &[
            "flush chain ip kube-proxy service-ABCDEFGH-default/web/tcp/http",
            "flush chain ip kube-proxy stray-hook",
            "delete chain ip kube-proxy service-ABCDEFGH-default/web/tcp/http",
            "delete chain ip kube-proxy stray-hook",
            "delete set ip kube-proxy affinity-old",
        ],
        &[],
    );
}

#[test]
fn a_chain_with_another_rule_is_written_again() {
    check_repair(
        "insert rule ip kube-proxy nat-postrouting accept",
        &[
            "flush chain ip kube-proxy nat-postrouting",
            "add rule ip kube-proxy nat-postrouting ct status dnat meta priority set none",
            "add rule ip kube-proxy nat-postrouting meta mark",
            "add rule ip kube-proxy nat-postrouting ct status dnat",
            "add rule ip kube-proxy nat-postrouting ct status dnat",
        ],
        &["nat-postrouting"],
    );
}

#[test]
fn a_chain_without_its_rules_gets_them_back() {
    check_repair(
        "flush chain ip kube-proxy no-endpoint",
        &[
            "flush chain ip kube-proxy no-endpoint",
            "add rule ip kube-proxy no-endpoint meta priority 1:1 counter packets 0 bytes 0 drop",
            "add rule ip kube-proxy no-endpoint counter packets 0 bytes 0 goto refuse",
        ],
        &["no-endpoint"],
    );
}

#[test]
fn a_base_chain_that_is_gone_comes_back() {
    check_repair(
        "flush chain ip kube-proxy nat-output
         delete chain ip kube-proxy nat-output",
        &[
            "add chain ip kube-proxy nat-output",
            "add rule ip kube-proxy nat-output meta priority set",
            "add rule ip kube-proxy nat-output ip daddr @nodeport-ips meta priority set",
            "add rule ip kube-proxy nat-output meta priority set",
            "add rule ip kube-proxy nat-output ip daddr @nodeport-ips meta priority set",
            "add rule ip kube-proxy nat-output jump port-ranges",
            "add rule ip kube-proxy nat-output goto cluster-ips-check",
        ],
        &["nat-output"],
    );
}

#[test]
fn one_table_that_is_gone_comes_back_and_the_other_is_left_alone() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let _ = apply_all(&mut Proxy::start(net.node(), routing()));
    let before = tables(net.node());
    net.node().nft("delete table ip6 kube-proxy");
    let sent = apply_all(&mut Proxy::start(net.node(), routing()));
    assert!(!sent.script().contains(" ip kube-proxy"), "{}", sent.script());
    let after = tables(net.node());
    assert_eq!(after[0], before[0]);
    assert_eq!(after[1].clone().map(without_handles), before[1].clone().map(without_handles));
}

/// The same process reads the tables a second time.
#[test]
fn a_proxy_that_reads_the_tables_again_repairs_them() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let _ = apply_all(&mut proxy);
    let plain = || tables(net.node()).map(|table| table.map(without_handles));
    let before = plain();
    for damage in
        ["flush ruleset", "delete table ip kube-proxy", "flush map ip kube-proxy services"]
    {
        net.node().nft(damage);
        assert_ne!(proxy.resync().transactions.len(), 0);
        assert_eq!(plain(), before, "{damage}");
    }
    assert_eq!(proxy.resync().transactions.len(), 0);
}

/// The table of kube-proxy 1.36 for one service with two endpoints and one without.
const KUBE_PROXY: &str = r#"
table ip kube-proxy {
    comment "rules for kube-proxy"
    set cluster-ips { type ipv4_addr; comment "Active ClusterIPs"; elements = { 10.96.0.10, 10.96.0.11 } }
    set nodeport-ips { type ipv4_addr; comment "IPs that accept NodePort traffic"; elements = { 192.168.50.2 } }
    set hairpin-connections {
        type ipv4_addr . ipv4_addr . inet_proto . inet_service
        comment "service hairpin connections"
        elements = { 10.244.1.5 . 10.244.1.5 . tcp . 8080 }
    }
    map unserved-services {
        type ipv4_addr . inet_proto . inet_service : verdict
        comment "vmap to drop or reject packets to services with no endpoints"
        elements = { 10.96.0.11 . tcp . 80 comment "default/empty" : goto reject-chain }
    }
    map unserved-nodeports {
        type inet_proto . inet_service : verdict
        comment "vmap to drop or reject packets to service nodeports with no endpoints"
    }
    map restricted-services {
        type ipv4_addr . inet_proto . inet_service : verdict
        comment "destinations that are subject to LoadBalancerSourceRanges"
    }
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"
        elements = { 10.96.0.10 . tcp . 80 : goto service-P4ZYZVCF-testing/service/tcp/http }
    }
    map service-nodeports {
        type inet_proto . inet_service : verdict
        comment "NodePort traffic"
        elements = { tcp . 30080 : goto external-P4ZYZVCF-testing/service/tcp/http }
    }
    chain reject-chain { reject; }
    chain service-P4ZYZVCF-testing/service/tcp/http {
        meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 8080, 1 : 10.244.2.7 . 8080 };
    }
    chain external-P4ZYZVCF-testing/service/tcp/http {
        meta mark set meta mark | 0x00004000 comment "masquerade";
        goto service-P4ZYZVCF-testing/service/tcp/http;
    }
    chain cluster-ips-check {
        ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs";
        ip daddr { 10.96.0.0/16 } drop comment "Drop traffic to unallocated ClusterIPs";
    }
    chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @unserved-services; }
    chain nodeport-endpoints-check {
        ip daddr @nodeport-ips meta l4proto . th dport vmap @unserved-nodeports;
    }
    chain firewall-check { ip daddr . meta l4proto . th dport vmap @restricted-services; }
    chain services {
        ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000;
        ip daddr . meta l4proto . th dport vmap @service-ips;
        ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports;
    }
    chain masquerading {
        meta mark & 0x00004000 != 0 meta mark set meta mark ^ 0x00004000 masquerade fully-random;
        ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random;
    }
    chain filter-prerouting-pre-dnat { type filter hook prerouting priority -110; ct state new jump firewall-check; }
    chain filter-output-pre-dnat { type filter hook output priority -110; ct state new jump firewall-check; }
    chain filter-input {
        type filter hook input priority 0;
        ct state new jump nodeport-endpoints-check;
        ct state new jump service-endpoints-check;
    }
    chain filter-forward {
        type filter hook forward priority 0;
        ct state new jump service-endpoints-check;
        ct state new jump cluster-ips-check;
    }
    chain filter-output {
        type filter hook output priority 0;
        ct state new jump service-endpoints-check;
        ct state new jump cluster-ips-check;
    }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}"#;

/// The same for IPv6, with addresses that only have to be of that family.
fn kube_proxy_ipv6() -> String {
    let mut script =
        KUBE_PROXY.replace("table ip ", "table ip6 ").replace("ipv4_addr", "ipv6_addr");
    for (v4, v6) in [
        ("ip daddr", "ip6 daddr"),
        ("ip saddr", "ip6 saddr"),
        ("dnat ip to", "dnat ip6 to"),
        ("10.244.0.0/16", "fd00:10:244::/48"),
        ("10.96.0.0/16", "fd00:10:96::/48"),
        ("10.96.0.", "fd00:10:96::"),
        ("192.168.50.", "fd00:192:168:50::"),
        ("10.244.1.", "fd00:10:244:1::"),
        ("10.244.2.", "fd00:10:244:2::"),
    ] {
        script = script.replace(v4, v6);
    }
    script
}
