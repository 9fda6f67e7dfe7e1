//! Tables of former and of later layouts are replaced without a failed connection.
//!
//! `fixtures/layout-N.nft` is how nft listed [`objects_for_every_chain`] in a former layout, and
//! `fixtures/layout-N-examples.nft` the example manifests.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use engine::ruleset::{LAYOUT, TABLE_COMMENT, table_comment};
use netlink_tests::reader::{Family, Table};
use netlink_tests::scenario::{
    Lab, NODE_PORT, Proxy, Race, Sent, WEB, Way, objects_for_every_chain, routing,
};
use netlink_tests::{Host, Net, deltaproxy_binary, nft_can_load};
use nft::MessageKind;

const FORMER: [&str; 5] = [
    include_str!("fixtures/layout-1.nft"),
    include_str!("fixtures/layout-2.nft"),
    include_str!("fixtures/layout-3.nft"),
    include_str!("fixtures/layout-4.nft"),
    include_str!("fixtures/layout-5.nft"),
];
const FORMER_EXAMPLES: [&str; 5] = [
    include_str!("fixtures/layout-1-examples.nft"),
    include_str!("fixtures/layout-2-examples.nft"),
    include_str!("fixtures/layout-3-examples.nft"),
    include_str!("fixtures/layout-4-examples.nft"),
    include_str!("fixtures/layout-5-examples.nft"),
];

/// Chains of the same layout that looked up the map of endpoints in more rules. Only the rules differ.
const FORMER_DRAWS: &str = include_str!("fixtures/layout-6-former-draws.nft");

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/manifests");

fn apply_all(proxy: &mut Proxy) -> Sent {
    let objects = objects_for_every_chain();
    let objects: Vec<_> = objects.iter().map(AsRef::as_ref).collect();
    proxy.apply(&objects)
}

fn apply_examples(host: &Host) {
    let cidrs = "10.244.0.0/16,fd00:10:244::/48";
    let args =
        ["apply", "--hostname-override", "demo-node", "--cluster-cidr", cidrs, "--manifests"];
    let args = [&args[..], &[MANIFESTS]].concat();
    let _ = host.output(deltaproxy_binary(), &args).ok();
}

/// Both tables, without what the kernel numbers.
fn tables(host: &Host) -> [Table; 2] {
    [Family::Ip, Family::Ip6].map(|family| {
        let mut table = host.read_table(family).expect("a table");
        for rule in table.chains.values_mut().flat_map(|chain| &mut chain.rules) {
            rule.handle = 0;
            // For an interval set nft converts the byte order of the protocol, a single byte.
            rule.expressions.retain(|name| name != "byteorder");
        }
        table
    })
}

#[test]
fn tables_of_a_former_layout_are_replaced_whole_in_one_transaction_each() {
    if nft_can_load() {
        assert_replaced_whole(&FORMER);
    }
}

#[test]
fn tables_of_a_later_layout_are_replaced_whole() {
    if nft_can_load() {
        assert_replaced_whole(&[&later_layout()]);
    }
}

#[track_caller]
fn assert_replaced_whole(others: &[&str]) {
    let fresh = Net::new();
    let _ = apply_all(&mut Proxy::start(fresh.node(), routing()));
    for other in others {
        let net = Net::new();
        net.node().nft_script(other);
        let mut proxy = Proxy::start(net.node(), routing());
        let sent = apply_all(&mut proxy);
        assert_eq!(sent.transactions.len(), 2, "one for each table: {}", sent.script());
        let deleted = sent.messages.get(&MessageKind::DelTable).copied();
        assert_eq!(deleted, Some(2), "{}", sent.script());
        assert_eq!(tables(net.node()), tables(fresh.node()));
        assert_eq!(proxy.resync().transactions.len(), 0);
    }
}

/// The listing of today's tables as those of a later layout may be: with another map of endpoints, and
/// with a set and a base chain that this layout lacks.
fn later_layout() -> String {
    let fresh = Net::new();
    let _ = apply_all(&mut Proxy::start(fresh.node(), routing()));
    let listing = fresh.node().nft("list ruleset");
    let more = "\tset of-later {\n\t\ttype inet_service\n\t\telements = { 9 }\n\t}\n\
                \tchain filter-prerouting-later {\n\
                \t\ttype filter hook prerouting priority -120; policy accept;\n\
                \t\ttcp dport @of-later drop\n\t}\n}";
    let later = format!("{TABLE_COMMENT}{}", LAYOUT + 1);
    assert_eq!(listing.matches(&table_comment()).count(), 2, "{listing}");
    listing
        .replace(&table_comment(), &later)
        .replace("map endpoints {", "map later-endpoints {")
        .replace("@endpoints", "@later-endpoints")
        .replace("\n}", &format!("\n{more}"))
}

#[test]
fn tables_of_the_examples_in_a_former_layout_are_replaced() {
    if !nft_can_load() {
        return;
    }
    let fresh = Net::new();
    apply_examples(fresh.node());
    for former in FORMER_EXAMPLES {
        let net = Net::new();
        net.node().nft_script(former);
        apply_examples(net.node());
        assert_eq!(tables(net.node()), tables(fresh.node()));
        assert_eq!(net.node().nft("list ruleset"), fresh.node().nft("list ruleset"));
    }
}

/// Replaces tables of the former layout again and again, because once is over before a packet comes.
#[track_caller]
fn race_of_layouts(former: &[&str], ways: &[(&'static str, &'static str)]) {
    if !nft_can_load() {
        return;
    }
    let lab = Lab::without_objects(routing());
    let node = lab.world.node().clone();
    // Flows may be lost while nft makes the former tables, and none in the next two states.
    let servers = ["a b c -", "a b c", "a b c"];
    let ways: Vec<_> = ways.iter().map(|(client, to)| Way::new(client, to, &servers)).collect();
    let race = Race { ways: &ways, commits: 8, burst: 1, replaces_tables: true };
    race.run(lab, |proxy, state| match state % 3 {
        0 => {
            node.nft_script(&in_place_of_others(former[state / 3 % former.len()]));
            Sent::default()
        }
        1 => Sent::default(),
        _ => {
            *proxy = Proxy::start(&node, routing());
            proxy.leave_flows();
            apply_all(proxy)
        }
    });
}

#[test]
fn no_flow_is_lost_while_tables_of_a_former_layout_are_replaced() {
    let ways = [("pod", WEB), ("node", WEB), ("outside", NODE_PORT), ("pod", NODE_PORT)];
    race_of_layouts(&FORMER, &ways);
}

#[test]
fn no_flow_is_lost_while_tables_of_a_later_layout_are_replaced() {
    let ways = [("pod", WEB), ("node", WEB), ("outside", NODE_PORT)];
    if nft_can_load() {
        race_of_layouts(&[&later_layout()], &ways);
    }
}

/// A script that replaces both tables by those of `listing`, in one transaction.
fn in_place_of_others(listing: &str) -> String {
    let tables = ["ip kube-proxy", "ip6 kube-proxy"];
    let gone = tables.map(|table| format!("table {table}\ndelete table {table}\n"));
    gone.concat() + listing
}

/// A listing of both tables with [`FORMER_DRAWS`] instead of today's chains.
fn with_former_draws(listing: &str) -> String {
    let mut script = String::new();
    let mut is_draw = false;
    let mut family = "ip";
    for line in listing.lines() {
        if let Some(table) = line.strip_prefix("table ") {
            family = table.split(' ').next().unwrap();
        }
        if let Some(chain) = line.strip_prefix("\tchain ") {
            is_draw = ["draw-", "pick", "slot-0", "hash"].iter().any(|it| chain.starts_with(it));
        }
        if line == "}" {
            let draws = FORMER_DRAWS.replace("dnat ip ", &format!("dnat {family} "));
            script += &draws.replace("hash ip ", &format!("hash {family} "));
        }
        if !is_draw {
            script.extend([line, "\n"]);
        }
        is_draw &= line != "\t}";
    }
    script
}

/// The listing of both tables with every chain, and with [`FORMER_DRAWS`].
fn former_draws() -> String {
    let fresh = Net::new();
    let _ = apply_all(&mut Proxy::start(fresh.node(), routing()));
    with_former_draws(&fresh.node().nft("list ruleset"))
}

/// The listing of both tables with the priorities of kube-proxy's base chains, and with packets of others
/// masqueraded by their mark.
fn former_base_chains() -> String {
    let fresh = Net::new();
    let _ = apply_all(&mut Proxy::start(fresh.node(), routing()));
    let mut listing = fresh.node().nft("list ruleset");
    let mark = "meta mark & 0x00004000 != 0x00000000";
    for (today, former) in [
        ("priority dstnat - 2;", "priority dstnat;"),
        ("priority -102;", "priority -100;"),
        (&*format!("{mark} ct status dnat"), mark),
    ] {
        assert_eq!(listing.matches(today).count(), 2, "{today} in {listing}");
        listing = listing.replace(today, former);
    }
    listing
}

#[test]
fn other_rules_of_the_same_layout_are_replaced_without_elements() {
    if !nft_can_load() {
        return;
    }
    for former in [former_draws(), former_base_chains()] {
        let net = Net::new();
        let _ = apply_all(&mut Proxy::start(net.node(), routing()));
        let today = tables(net.node());
        net.node().nft_script(&in_place_of_others(&former));
        assert_ne!(tables(net.node()), today);
        let mut proxy = Proxy::start(net.node(), routing());
        let sent = apply_all(&mut proxy);
        for kind in [MessageKind::DelTable, MessageKind::NewSetElem, MessageKind::DelSetElem] {
            assert_eq!(sent.messages.get(&kind), None, "{}", sent.script());
        }
        assert_eq!(tables(net.node()), today);
        assert_eq!(proxy.resync().transactions.len(), 0);
    }
}

#[test]
fn no_flow_is_lost_while_other_rules_of_the_same_layout_are_replaced() {
    if nft_can_load() {
        let ways = [("pod", WEB), ("node", WEB), ("outside", NODE_PORT)];
        race_of_layouts(&[&former_draws(), &former_base_chains()], &ways);
    }
}
