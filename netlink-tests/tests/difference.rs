//! Differences of tables on the real kernel: each makes of a random table another one.
//!
//! `nft` loads both tables, each into its own namespace. Our difference is applied to the first, and
//! then `nft` must list both alike. nft(8) lists chains, sets, objects and some elements in the order
//! in which they were made, which is no property of a table; so they are sorted before the
//! comparison.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use netlink_tests::{Namespace, nft_available};
use nft::difference::DifferenceError;
use nft::expression::{CounterExpression, Immediate, Lookup, Reg, meta};
use nft::kernel::{CommitError, Extent, Kernel, Nftables, Notifications, UpdateError};
use nft::{
    AnyElement, AnySet, BaseChain, Chain, ChangedObject, Errno, HookPoint, Object, ObjectChange,
    SetContents, TableFamily, Verdict, WholeTable,
};

const TABLE: &str = "t";

#[track_caller]
fn nft(namespace: &Namespace, arguments: &[&str], input: &str) -> String {
    let output = namespace.run(|| {
        let mut nft = Command::new("nft");
        let pipes = nft.args(arguments).stdin(Stdio::piped());
        let mut child = pipes.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {arguments:?}: {errors}\n{input}");
    String::from_utf8(output.stdout).unwrap()
}

/// The table as listed, its blocks in alphabetical order.
#[track_caller]
fn listed(namespace: &Namespace, family: TableFamily) -> String {
    let text = nft(namespace, &["-s", "list", "table", family.keyword(), TABLE], "");
    let mut blocks: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('\t')) {
        if line.starts_with('\t') && !line.starts_with("\t\t") && line != "\t}" {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut() {
            // Remaining times.
            let words = line.split(' ').filter(|word| !word.ends_with("ms"));
            *block += &words.collect::<Vec<_>>().join(" ");
            block.push('\n');
        }
    }
    blocks.iter_mut().for_each(sort_elements);
    blocks.sort();
    blocks.concat()
}

/// Elements of concatenated ranges are listed in the order in which they were added.
fn sort_elements(block: &mut String) {
    const BEGIN: &str = "elements = {";
    let is_set = block.starts_with("\tset") || block.starts_with("\tmap");
    let Some(begin) = block.find(BEGIN).filter(|_| is_set).map(|begin| begin + BEGIN.len()) else {
        return;
    };
    let end = begin + block[begin..].find('}').expect("nft closes the list");
    let mut elements: Vec<_> = block[begin..end].split(',').map(str::trim).collect();
    elements.sort_unstable();
    let elements = elements.join(", ");
    block.replace_range(begin..end, &format!(" {elements} "));
}

fn read(namespace: &Namespace, family: TableFamily) -> Option<WholeTable> {
    namespace.run(|| Nftables::open().unwrap().whole_table(family, TABLE, Extent::Whole).unwrap())
}

/// Numbers from a seed: xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).unwrap()]
    }

    /// Some of the words, each with its number in a list of elements.
    fn some(&mut self, words: &[&str]) -> Vec<String> {
        words.iter().filter(|_| self.one_in(2)).map(|word| (*word).to_owned()).collect()
    }
}

/// Objects of a random table: name, and the words of nft(8).
fn objects(random: &mut Random) -> Vec<(&'static str, String)> {
    let elements = |words: Vec<String>| {
        if words.is_empty() {
            return String::new();
        }
        format!("elements = {{ {} }}; ", words.join(", "))
    };
    let mut all = Vec::new();
    let ports = ["22", "80", "443", "8080 comment \"web\"", "9000"];
    let networks = [
        "10.0.0.0/8",
        "10.0.0.0-10.0.0.99",
        "11.0.0.0/9",
        "11.128.0.0/9",
        "192.0.2.1",
        "255.0.0.0/8",
    ];
    let port_set = random.pick(&["type inet_service;", "type inet_service; flags interval;"]);
    all.push(("set ports", format!("{port_set} {}", elements(random.some(&ports)))));
    // Some overlap: one network of each pair.
    let chosen: Vec<String> = random.some(&networks);
    let chosen = chosen.into_iter().filter(|it| it != "10.0.0.0/8" || random.0.is_multiple_of(3));
    let mut chosen: Vec<_> = chosen.collect();
    if chosen.iter().any(|it| it == "10.0.0.0/8") {
        chosen.retain(|it| !it.starts_with("10.0.0.0-"));
    }
    all.push(("set networks", format!("type ipv4_addr; flags interval; {}", elements(chosen))));
    let pairs = ["10.0.0.0/24 . 80-90", "10.0.1.0/24 . 80", "10.0.2.7 . 1-65535"];
    let size = random.pick(&["", "size 100; "]);
    let pairs = elements(random.some(&pairs));
    all.push((
        "set pairs",
        format!("type ipv4_addr . inet_service; flags interval; {size}{pairs}"),
    ));
    let targets = ["1 : 10.0.0.1", "2 : 10.0.0.2", "3 : 10.0.0.3", "4 : 10.0.0.2"];
    let targets = elements(random.some(&targets));
    all.push(("map targets", format!("type inet_service : ipv4_addr; {targets}")));
    let verdicts = ["1 : jump last", "2 : accept", "3 : goto last", "4 : drop", "5 : jump late"];
    let verdicts = elements(random.some(&verdicts));
    all.push(("map verdicts", format!("type inet_service : verdict; {verdicts}")));
    let counted = ["1 : \"web\"", "2 : \"web\""];
    let counted = elements(random.some(&counted));
    all.push(("map counted", format!("type inet_service : counter; {counted}")));
    let timeout = random.pick(&["1h", "2h"]);
    all.push((
        "set clients",
        format!("type ipv4_addr; size 64; flags dynamic,timeout; timeout {timeout};"),
    ));
    all.push(("counter web", String::new()));
    let amount = random.pick(&["10", "20"]);
    all.push(("quota much", format!("over {amount} mbytes;")));
    let rate = random.pick(&["10/second", "5/minute"]);
    all.push(("limit few", format!("rate {rate};")));
    all.push(("ct helper ftp", "type \"ftp\" protocol tcp;".to_owned()));
    all
}

const RULES: [&str; 22] = [
    "ip saddr 10.0.0.1 accept",
    "ip saddr 10.0.0.2 drop comment \"no\"",
    "ip6 saddr fe80::/10 counter",
    "tcp dport @ports accept",
    "ip saddr @networks drop",
    "ip saddr . tcp dport @pairs accept",
    "tcp dport vmap @verdicts",
    "tcp dport { 1, 2, 80-90 } counter packets 0 bytes 0",
    "tcp dport { 1, 2, 80-91 } counter packets 0 bytes 0",
    "tcp dport vmap { 1 : jump last, 2 : accept }",
    "tcp dport vmap { 1 : jump late, 2 : accept }",
    "meta mark set tcp dport map { 1 : 0x1, 2 : 0x2 }",
    "counter name \"web\"",
    "counter name tcp dport map @counted",
    "quota name \"much\" drop",
    "limit name \"few\" accept",
    "ct state established,related accept",
    "ct helper set \"ftp\"",
    "update @clients { ip saddr limit rate 10/second }",
    "log prefix \"x\" level warn",
    "jump last",
    "meta l4proto tcp counter",
];

/// A random table of family inet.
fn random_table(random: &mut Random) -> String {
    let mut text = format!("table inet {TABLE} {{\n");
    for (name, body) in objects(random) {
        text += &format!("\t{name} {{ {body} }}\n");
    }
    let priority = random.pick(&["0", "0", "10"]);
    let policy = random.pick(&["accept", "drop"]);
    let hook = random.pick(&["input", "input", "forward"]);
    let mut chains = vec![
        ("late", String::new()),
        ("last", String::new()),
        ("middle", String::new()),
        ("in", format!("type filter hook {hook} priority {priority}; policy {policy};")),
    ];
    if random.one_in(2) {
        chains.push(("more", String::new()));
    }
    for (name, hook) in chains {
        text += &format!("\tchain {name} {{ {hook}\n");
        // The last two are targets, and must not jump to themselves.
        let is_target = matches!(name, "late" | "last");
        for _ in 0..random.below(9) {
            let rule = random.pick(&RULES);
            let jumps = rule.contains("jump") || rule.contains("@verdicts");
            if !(is_target && jumps) {
                text += &format!("\t\t{rule}\n");
            }
        }
        if name == "middle" && random.one_in(2) {
            text += "\t\tgoto last\n";
        }
        text += "\t}\n";
    }
    text + "}\n"
}

/// Loads both scripts, makes of the first table the second, and compares what nft lists.
#[track_caller]
fn check(family: TableFamily, before: &str, after: &str) -> usize {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    for namespace in [&ours, &theirs] {
        namespace.run(|| Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap());
    }
    nft(&ours, &["-f", "-"], before);
    nft(&theirs, &["-f", "-"], after);
    let desired = read(&theirs, family).unwrap();
    let installed = read(&ours, family).unwrap();
    let planned = desired.difference_from(Some(&installed)).unwrap();
    let applied = ours.run(|| Nftables::open().unwrap().update(&desired));
    let applied = applied.unwrap_or_else(|error| panic!("{error}\n{before}{after}{planned}"));
    assert_eq!(applied.as_ref().map_or(0, |it| it.len()), planned.len());
    let (ours_listed, theirs_listed) = (listed(&ours, family), listed(&theirs, family));
    for (line, other) in ours_listed.lines().zip(theirs_listed.lines()) {
        assert_eq!(line, other, "of\n{ours_listed}{before}{after}{planned}");
    }
    assert_eq!(ours_listed, theirs_listed);
    let again = desired.difference_from(read(&ours, family).as_ref()).unwrap();
    assert!(again.is_empty(), "{before}{after}{planned}\nagain:\n{again}");
    planned.len()
}

#[test]
fn a_difference_makes_of_a_random_table_another_one() {
    if !nft_available() {
        return;
    }
    for seed in 1..=60 {
        let mut random = Random::new(seed);
        let (before, after) = (random_table(&mut random), random_table(&mut random));
        check(TableFamily::Inet, &before, &after);
    }
}

#[test]
fn a_whole_table_is_written_from_nothing_and_equal_tables_differ_in_nothing() {
    if !nft_available() {
        return;
    }
    for seed in 1..=10 {
        let table = random_table(&mut Random::new(seed));
        let empty = format!("table inet {TABLE} {{ }}\n");
        check(TableFamily::Inet, &empty, &table);
        check(TableFamily::Inet, &table, &empty);
        assert_eq!(check(TableFamily::Inet, &table, &table), 0, "{table}");
    }
}

#[test]
fn one_rule_of_many_is_two_messages() {
    if !nft_available() {
        return;
    }
    let table = |mark: u32| {
        let rule = |i: u32| {
            format!("\t\ttcp dport {i} meta mark set {}\n", if i == 100 { mark } else { 1 })
        };
        // More would not fit into the batch of `nft` in a user namespace.
        let rules: String = (1..=300).map(rule).collect();
        format!("table inet {TABLE} {{\n\tchain c {{\n{rules}\t}}\n}}\n")
    };
    assert_eq!(check(TableFamily::Inet, &table(7), &table(8)), 2);
}

#[test]
fn a_table_whose_rule_has_a_chain_of_its_own_is_not_compared() {
    if !nft_available() {
        return;
    }
    let namespace = Namespace::new();
    let rule = "tcp dport 22 jump { ip saddr 192.0.2.1 drop; }";
    let script = format!("table inet {TABLE} {{ chain c {{ {rule}; }}; }}\n");
    nft(&namespace, &["-f", "-"], &script);
    let installed = read(&namespace, TableFamily::Inet).unwrap();
    let own = installed.chains.iter().find(|chain| chain.is_anonymous()).unwrap();
    let refused = Err(DifferenceError::AnonymousChain(own.name.to_string()));
    assert_eq!(installed.difference_from(None), refused);
    let desired = WholeTable::new(TableFamily::Inet, TABLE);
    assert_eq!(desired.difference_from(Some(&installed)), refused);
}

#[test]
fn counts_are_no_difference() {
    if !nft_available() {
        return;
    }
    let table = |packets: u32| {
        format!(
            "table inet t {{ counter web {{ packets {packets} bytes 9 }}; \
             quota much {{ 10 mbytes used {packets} bytes }}; \
             set s {{ type inet_service; counter; elements = {{ 1 counter packets {packets} bytes 7 }}; }}; \
             chain c {{ counter packets {packets} bytes 8 accept; \
             quota 10 mbytes used {packets} bytes; }}; }}\n"
        )
    };
    let [one, two] = [Namespace::new(), Namespace::new()];
    nft(&one, &["-f", "-"], &table(1));
    nft(&two, &["-f", "-"], &table(2));
    let (one, two) = (read(&one, TableFamily::Inet), read(&two, TableFamily::Inet));
    assert_ne!(one.as_ref().unwrap().objects, two.as_ref().unwrap().objects);
    let difference = two.unwrap().difference_from(one.as_ref()).unwrap();
    assert!(difference.is_empty(), "{difference}");
}

/// Before and after, of each family.
const FAMILIES: [(TableFamily, &str, &str); 6] = [
    (
        TableFamily::Ip,
        "table ip t { chain c { type nat hook prerouting priority -100; dnat to 10.0.0.1; }; }",
        "table ip t { comment \"new\"; chain c { type nat hook prerouting priority -99; \
         tcp dport 80 dnat to 10.0.0.1:8080; redirect; }; chain r { type route hook output \
         priority 0; meta mark set 1; }; }",
    ),
    (
        TableFamily::Ip6,
        "table ip6 t { set s { type ipv6_addr; elements = { ::1, ::2 }; }; }",
        "table ip6 t { set s { type ipv6_addr; timeout 1h; elements = { ::1, ::3 timeout 2h }; }; \
         chain c { type filter hook postrouting priority 0; policy drop; ip6 daddr @s accept; }; }",
    ),
    (
        TableFamily::Inet,
        "table inet t { chain c { }; }",
        "table inet t { chain c { type filter hook forward priority 0; ct state established accept; }; \
         chain i { type filter hook ingress device \"lo\" priority 0; accept; }; \
         synproxy sp { mss 1460; wscale 7; timestamp sack-perm; }; \
         ct timeout to { protocol tcp; l3proto ip; policy = { established : 100, close : 4 }; }; \
         ct expectation ex { protocol tcp; dport 9000; timeout 10m; size 12; l3proto ip; }; }",
    ),
    (
        TableFamily::Arp,
        "table arp t { chain c { type filter hook input priority 0; }; }",
        "table arp t { chain c { type filter hook input priority 0; policy drop; arp operation \
         request accept; arp saddr ip 10.0.0.1 counter; }; }",
    ),
    (
        TableFamily::Bridge,
        "table bridge t { chain c { type filter hook forward priority 0; ether type ip accept; }; }",
        "table bridge t { set s { type ether_addr; elements = { 02:00:00:00:00:01 }; }; chain c { type \
         filter hook forward priority 0; ether saddr @s drop; ether type ip accept; }; }",
    ),
    (
        TableFamily::Netdev,
        "table netdev t { chain c { type filter hook ingress device \"lo\" priority 0; }; }",
        "table netdev t { chain c { type filter hook ingress device \"lo\" priority 1; policy drop; \
         ip protocol icmp accept; }; chain e { type filter hook egress device \"lo\" priority 0; }; }",
    ),
];

#[test]
fn tables_of_all_families_become_others_and_back() {
    if !nft_available() {
        return;
    }
    for (family, before, after) in FAMILIES {
        assert!(check(family, before, after) > 0);
        assert!(check(family, after, before) > 0);
        assert_eq!(check(family, after, after), 0, "{after}");
    }
}

#[test]
fn devices_of_a_flowtable_come_and_go() {
    let table = |devices: &str| {
        let devices =
            if devices.is_empty() { String::new() } else { format!("devices = {{ {devices} }};") };
        format!("table inet t {{ flowtable f {{ hook ingress priority 0; {devices} }}; }}\n")
    };
    let namespace = Namespace::new();
    let list_table =
        |it: &Namespace| it.run(|| Command::new("nft").arg(table("")).output().unwrap());
    if !nft_available() || !list_table(&namespace).status.success() {
        eprintln!("left out: this kernel has no flowtables; run `make test-kernel TESTS=devices`");
        return;
    }
    assert_eq!(check(TableFamily::Inet, &table(""), &table("lo")), 1);
    assert_eq!(check(TableFamily::Inet, &table("lo"), &table("")), 1);
}

fn filter() -> WholeTable {
    let mut table = WholeTable::new(TableFamily::Inet, TABLE);
    let base = BaseChain::new("filter", HookPoint::Input, 0);
    table.chains.push(Chain::at_hook("in", base));
    table
}

/// Returns the text of the refusal of a table. Nothing of it may be applied.
#[track_caller]
fn refusal(desired: &WholeTable) -> (Errno, String) {
    let namespace = Namespace::new();
    let result = namespace.run(|| Nftables::open().unwrap().update(desired));
    assert_eq!(read(&namespace, desired.family), None, "a refused difference was applied");
    match result {
        Err(UpdateError::Commit(CommitError::Refused { errno, what, .. })) => (errno, what),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_difference_applies_nothing_and_names_the_object() {
    let mut table = filter();
    table.append_rule("in", vec![Immediate::verdict(Verdict::Accept)]);
    table.append_rule("in", vec![Immediate::verdict(Verdict::Jump("nowhere".into()))]);
    let (errno, what) = refusal(&table);
    assert_eq!(errno, Errno::ENOENT);
    assert_eq!(what, "`add rule inet t in jump nowhere`, field expressions[0]");

    let mut table = filter();
    table.chains[0].base.as_mut().unwrap().hook = 9;
    let (errno, what) = refusal(&table);
    assert_eq!(errno, Errno::EOPNOTSUPP);
    assert!(
        what.starts_with("`add chain inet t in { type filter hook [hook] priority 0;"),
        "{what}"
    );

    let mut table = filter();
    let set = AnySet::of_types("ports", "inet_service").unwrap();
    let elements = vec![AnyElement::new(vec![0, 80]), AnyElement::new(vec![0, 1, 2, 3])];
    table.sets.push(SetContents { set, elements });
    let (errno, what) = refusal(&table);
    assert_eq!(errno, Errno::EINVAL);
    assert!(what.starts_with("`add element inet t ports {"), "{what}");

    let mut table = filter();
    let state = CounterExpression { bytes: 0, packets: 0 }.into();
    table.objects.push(Object::new("odd", 77, state));
    let (errno, what) = refusal(&table);
    assert_eq!(errno, Errno::ENOENT);
    assert!(what.starts_with("`add object inet t odd`"), "{what}");
}

#[test]
fn a_difference_from_an_older_generation_is_not_applied() {
    let namespace = Namespace::new();
    namespace.run(|| {
        let mut kernel = Nftables::open().unwrap();
        kernel.update(&filter()).unwrap();
        let installed = kernel.whole_table(TableFamily::Inet, TABLE, Extent::Whole).unwrap();
        let mut desired = filter();
        let mark = meta::mark(Reg::of_word(0));
        let lookup = Lookup::in_set("marks", Reg::of_word(0));
        desired.append_rule("in", vec![mark, lookup, Immediate::verdict(Verdict::Drop)]);
        let set = AnySet::of_types("marks", "mark").unwrap();
        desired.sets.push(SetContents { set, elements: vec![AnyElement::new(vec![1, 0, 0, 0])] });
        let difference = desired.difference_from(installed.as_ref()).unwrap();
        let mut other = Nftables::open().unwrap();
        other.update(&WholeTable::new(TableFamily::Ip, "other")).unwrap();
        let error = kernel.apply(&difference).unwrap_err();
        assert!(error.is_overtaken(), "{error}");
        // The same difference, compared with the ruleset as it is now.
        let applied = kernel.update(&desired).unwrap().unwrap();
        assert_eq!(applied.to_string(), difference.to_string());
    });
}

/// What a program that listens sees of a change: the object, and whether it was deleted.
fn described(change: &ObjectChange) -> String {
    let object = match &change.object {
        ChangedObject::Table(_) => "table".to_owned(),
        ChangedObject::Chain(chain) => format!("chain {}", chain.name),
        ChangedObject::Rule(rule) => format!("rule in {}", rule.chain),
        ChangedObject::Set(set) => format!("set {}", set.name),
        ChangedObject::Elements { set, elements } => format!("{} of {set}", elements.len()),
        ChangedObject::Object(object) => format!("{} {}", object.noun(), object.name),
        ChangedObject::Flowtable(flowtable) => format!("flowtable {}", flowtable.name),
    };
    format!("{}{object}", if change.is_deleted { "- " } else { "+ " })
}

#[test]
fn every_change_of_a_table_is_notified() {
    Namespace::new().run(|| {
        let mut kernel = Nftables::open().unwrap();
        let mut notifications = Notifications::open().unwrap();
        let mut seen = || -> Vec<String> {
            let changes = notifications.take_changes().unwrap();
            assert!(changes.iter().all(|it| it.family == TableFamily::Inet && it.table == TABLE));
            changes.iter().map(described).collect()
        };
        let mut table = filter();
        table.append_rule("in", vec![Immediate::verdict(Verdict::Accept)]);
        let state = CounterExpression { bytes: 0, packets: 0 }.into();
        table.objects.push(Object::new("web", Object::COUNTER, state));
        let set = AnySet::of_types("ports", "inet_service").unwrap();
        let elements = vec![AnyElement::new(vec![0, 80])];
        table.sets.push(SetContents { set, elements });
        kernel.update(&table).unwrap();
        let mut added = seen();
        added.sort();
        assert_eq!(
            added,
            [
                "+ 1 of ports",
                "+ chain in",
                "+ counter web",
                "+ rule in in",
                "+ set ports",
                "+ table"
            ]
        );
        kernel.update(&filter()).unwrap();
        assert_eq!(seen(), ["- rule in in", "- set ports", "- counter web"]);
    });
}

#[test]
fn a_table_of_another_process_is_left_alone_and_one_without_owner_can_be_deleted() {
    Namespace::new().run(|| {
        let mut owner = Nftables::open().unwrap();
        let mut other = Nftables::open().unwrap();
        const OWNER: u32 = 2;
        let owned = WholeTable { flags: OWNER, ..filter() };
        owner.update(&owned).unwrap();
        assert!(owner.update(&owned).unwrap().is_none());
        match other.update(&WholeTable { flags: OWNER, ..owned.clone() }) {
            Err(UpdateError::Commit(CommitError::Owned { port, .. })) => {
                assert_eq!(port, owner.port())
            }
            result => panic!("{result:?}"),
        }
        let refused = other.delete_table(TableFamily::Inet, TABLE).unwrap_err();
        assert!(matches!(refused, CommitError::Refused { errno: Errno::EPERM, .. }), "{refused}");
        assert!(owner.delete_table(TableFamily::Inet, TABLE).unwrap());
        assert!(!other.delete_table(TableFamily::Inet, TABLE).unwrap());
    });
}

/// Types of nft(8) with a fixed length.
const TYPES: &[&str] = &[
    "nf_proto",
    "ipv4_addr",
    "ipv6_addr",
    "ether_addr",
    "ether_type",
    "arp_op",
    "inet_proto",
    "inet_service",
    "icmp_type",
    "tcp_flag",
    "dccp_pkttype",
    "mh_type",
    "time",
    "mark",
    "iface_index",
    "iface_type",
    "realm",
    "classid",
    "uid",
    "gid",
    "ct_state",
    "ct_dir",
    "ct_status",
    "icmpv6_type",
    "pkt_type",
    "icmp_code",
    "icmpv6_code",
    "icmpx_code",
    "devgroup",
    "dscp",
    "ecn",
    "fib_addrtype",
    "boolean",
    "ifname",
    "igmp_type",
    "cgroupsv2",
    "ipv4_addr . inet_proto . inet_service",
    "ether_addr . ether_type . ifname",
    "ipv4_addr . mark : verdict",
    "inet_service : ipv4_addr . inet_service",
    "ct_state . uid : counter",
];

#[test]
fn the_types_of_a_set_have_the_numbers_and_lengths_that_nft_gives_them() {
    if !nft_available() {
        return;
    }
    let sets = TYPES.iter().enumerate().map(|(i, types)| {
        let noun = if types.contains(':') { "map" } else { "set" };
        format!("add {noun} ip {TABLE} s{i} {{ type {types}; }}\n")
    });
    let namespace = Namespace::new();
    let script = format!("add table ip {TABLE}\n{}", sets.collect::<String>());
    nft(&namespace, &["-f", "-"], &script);
    let read = read(&namespace, TableFamily::Ip).unwrap();
    for (i, types) in TYPES.iter().enumerate() {
        let name = format!("s{i}");
        let AnySet { key_type, key_length, data_type, data_length, object_type, flags, .. } =
            AnySet::of_types(&name, types).unwrap();
        let mut listed = read.set(&name).unwrap().set.clone();
        // The size of a structure with a pointer, of a 32-bit kernel.
        if cfg!(target_pointer_width = "32") && listed.data_type == AnySet::VERDICT {
            listed.data_length = 16;
        }
        let ours = AnySet {
            key_type,
            key_length,
            data_type,
            data_length,
            object_type,
            flags,
            ..listed.clone()
        };
        assert_eq!(ours, listed, "{types}");
        assert_eq!(listed.types(), *types);
    }
}
