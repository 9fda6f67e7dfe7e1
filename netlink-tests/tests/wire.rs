//! Every nftables object once as netlink bytes and once as text for `nft`: both make the same
//! ruleset, `nft` can load what it lists, and reading back gives what was sent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use deltaproxy::netlink::message::{self, Header, Meaning, Messages};
use deltaproxy::netlink::socket::{Socket, Wait};
use deltaproxy::nft::{
    Acknowledge, Batch, Chain, ChainType, DecodedRule, DecodedSet, DynsetOperation, Element,
    Family, Hook, HookPoint, Location, MessageKind, Operand, Operation, Rule, Selector, Set,
    SetData, SetFlags, Statement, Table, TableFlags, TableRef, Transaction, Type, Value, Verdict,
    decode_elements, locate, table_name,
};
use netlink_tests::Namespace;

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

// --- the ruleset: everything that can be expressed, once

fn table(family: Family) -> TableRef {
    TableRef { family, name: "kube-proxy".into() }
}

fn address_type(family: Family) -> Type {
    match family {
        Family::Ip => Type::Ipv4Addr,
        Family::Ip6 => Type::Ipv6Addr,
    }
}

fn address(family: Family, last: u8) -> std::net::IpAddr {
    match family {
        Family::Ip => [10, 96, 0, last].into(),
        Family::Ip6 => [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)].into(),
    }
}

/// First and last address of a network that does not end at a byte.
fn network(family: Family) -> (std::net::IpAddr, std::net::IpAddr) {
    match family {
        Family::Ip => ([203, 0, 112, 0].into(), [203, 0, 119, 255].into()),
        Family::Ip6 => {
            let last = u16::MAX;
            (
                [0xfd01, 0, 0, 0, 0, 0, 0, 0].into(),
                [0xfd01, 7, last, last, last, last, last, last].into(),
            )
        }
    }
}

fn set(name: &'static str, key: Vec<Type>) -> Set {
    Set { name: name.into(), key, ..Set::default() }
}

fn frontend(family: Family) -> Vec<Type> {
    vec![address_type(family), Type::InetProto, Type::InetService]
}

fn ip(family: Family, last: u8) -> Value {
    Value::new().ip(address(family, last))
}

/// Key of a frontend.
fn key(family: Family, last: u8) -> Value {
    ip(family, last).proto(6).port(443)
}

fn sets(family: Family) -> Vec<(Set, Vec<Element>)> {
    let mut sets = plain_sets(family);
    sets.push(source_ranges(family));
    sets.extend(timed_sets(family));
    sets.extend(maps(family));
    sets
}

fn plain_sets(family: Family) -> Vec<(Set, Vec<Element>)> {
    let addr = address_type(family);
    let ip = |last| ip(family, last);
    let named = Element {
        comment: Some("default/kubernetes:https".into()),
        ..Element::new(key(family, 1))
    };
    let services = vec![
        named,
        Element::new(ip(2).proto(17).port(53)),
        Element::new(ip(3).proto(132).port(90)),
    ];
    let one = |value| vec![Element::new(value)];
    let hairpin = [&[addr, addr][..], &[Type::InetProto, Type::InetService]].concat();
    let cluster_ips = Set { comment: Some("addresses".into()), ..set("cluster-ips", vec![addr]) };
    vec![
        (cluster_ips, vec![Element::new(ip(1)), Element::new(ip(2))]),
        (set("service-ips", frontend(family)), services),
        (set("protocols", vec![Type::InetProto]), one(Value::new().proto(132))),
        (set("ports", vec![Type::InetService]), one(Value::new().port(30080))),
        (set("marks", vec![Type::Mark]), one(Value::new().mark(0x4000))),
        (
            set("nodeports", vec![Type::InetProto, Type::InetService]),
            one(Value::new().proto(6).port(30080)),
        ),
        (
            set("timed", vec![Type::InetProto, Type::ClassId]),
            one(Value::new().proto(6).class_id(0x0001_8000)),
        ),
        (set("hairpin", hairpin), one(ip(5).value(&ip(5)).proto(6).port(8080))),
    ]
}

fn source_ranges(family: Family) -> (Set, Vec<Element>) {
    let (first, last) = network(family);
    let key = |last| key(family, last);
    let prefix = Element {
        key_end: Some(key(1).ip(last)),
        comment: Some("a network".into()),
        ..Element::new(key(1).ip(first))
    };
    let range = Element {
        key_end: Some(key(2).ip(address(family, 9))),
        ..Element::new(key(2).ip(address(family, 3)))
    };
    let single = Element::new(key(3).ip(address(family, 4)));
    let types = [frontend(family), vec![address_type(family)]].concat();
    let flags = SetFlags { interval: true, ..SetFlags::default() };
    (Set { flags, ..set("source-ranges", types) }, vec![prefix, range, single])
}

fn timed_sets(family: Family) -> Vec<(Set, Vec<Element>)> {
    let key = vec![address_type(family)];
    let clients = Set {
        flags: SetFlags { dynamic: true, timeout: true, ..SetFlags::default() },
        timeout: Some(Duration::from_secs(10_800)),
        size: Some(1_000_000),
        ..set("clients", key.clone())
    };
    let flags = SetFlags { timeout: true, ..SetFlags::default() };
    let aged = Element { timeout: Some(Duration::from_secs(3600)), ..Element::new(ip(family, 1)) };
    let sessions = Set {
        timeout: None,
        data: Some(SetData::Values(vec![Type::ClassId])),
        ..set_like(&clients, "sessions", vec![Type::ClassId, key[0]])
    };
    let session = Value::new().class_id(0x0001_8000).ip(address(family, 1));
    let client = Element {
        timeout: Some(Duration::from_secs(7200)),
        ..Element::with_value(session, Value::new().class_id(0x0001_8001))
    };
    vec![
        (clients, vec![]),
        (sessions, vec![client]),
        (Set { flags, ..set("aging", key) }, vec![aged]),
    ]
}

fn set_like(other: &Set, name: &'static str, key: Vec<Type>) -> Set {
    Set { name: name.into(), key, ..other.clone() }
}

fn maps(family: Family) -> Vec<(Set, Vec<Element>)> {
    let key = |last| key(family, last);
    let endpoint = |last| ip(family, last).port(8080);
    let values = |name, key: Vec<Type>, data: &[Type]| Set {
        data: Some(SetData::Values(data.to_vec())),
        ..set(name, key)
    };
    let to = [address_type(family), Type::InetService];
    let slots = [frontend(family), vec![Type::Integer]].concat();
    let named = Element {
        comment: Some("slot 1".into()),
        ..Element::with_value(key(1).integer(1), endpoint(7))
    };
    let endpoints = vec![
        Element::with_value(key(1).integer(0), endpoint(5)),
        named,
        Element::with_value(key(1).integer(70_000), endpoint(8)),
    ];
    let node_port = Value::new().proto(6).port(30080).integer(0);
    let count = Element::with_value(key(1), Value::new().mark(5));
    let class = [Type::ClassId];
    let id = |id| Value::new().class_id(id);
    let pick = |number: u32| Value::new().proto(6).class_id(0x0001_8000).integer(number);
    let picks = vec![Element::with_value(pick(0), id(0x0001_8001))];
    let ids = [0, 0x0001_0000, 0x0001_8000, u32::MAX].iter().zip(1..);
    let ids = ids.map(|(number, last)| Element::with_value(key(last), id(*number))).collect();
    let jump = Verdict::Jump("target".into());
    let verdicts = vec![
        Element::with_verdict(key(1), Verdict::Goto("target".into())),
        Element { comment: Some("b".into()), ..Element::with_verdict(key(2), jump) },
        Element::with_verdict(key(3), Verdict::Drop),
        Element::with_verdict(key(4), Verdict::Accept),
        Element::with_verdict(key(5), Verdict::Return),
    ];
    vec![
        (values("endpoints", slots.clone(), &to), endpoints),
        (
            values("nodeport-endpoints", slots[1..].to_vec(), &to),
            vec![Element::with_value(node_port, endpoint(5))],
        ),
        (values("counts", frontend(family), &[Type::Mark]), vec![count]),
        (values("picks", vec![Type::InetProto, Type::ClassId, Type::Integer], &class), picks),
        (values("ids", frontend(family), &class), ids),
        (Set { data: Some(SetData::Verdict), ..set("verdicts", frontend(family)) }, verdicts),
    ]
}

fn chains() -> Vec<Chain> {
    let base = |name: &'static str, kind, point, priority| Chain {
        name: name.into(),
        hook: Some(Hook { kind, point, priority }),
        comment: None,
    };
    let plain = |name: &'static str| Chain { name: name.into(), hook: None, comment: None };
    vec![
        Chain { comment: Some("jumped to".into()), ..plain("target") },
        plain("rules"),
        plain("source-nat"),
        plain("to-map"),
        base("filter-prerouting", ChainType::Filter, HookPoint::Prerouting, -110),
        base("filter-input", ChainType::Filter, HookPoint::Input, -110),
        base("filter-forward", ChainType::Filter, HookPoint::Forward, -110),
        base("filter-output", ChainType::Filter, HookPoint::Output, -110),
        base("nat-prerouting", ChainType::Nat, HookPoint::Prerouting, -100),
        Chain {
            comment: Some("base".into()),
            ..base("nat-output", ChainType::Nat, HookPoint::Output, -100)
        },
        base("nat-postrouting", ChainType::Nat, HookPoint::Postrouting, 100),
    ]
}

const FRONTEND: [Selector; 3] = [Selector::Daddr, Selector::L4Proto, Selector::Dport];

fn compare(selector: Selector, negated: bool, value: Operand) -> Statement {
    Statement::Compare { selector, negated, value }
}

fn in_set(key: &[Selector], set: &'static str, negated: bool) -> Statement {
    Statement::InSet { key: key.to_vec(), set: set.into(), negated }
}

fn matches(family: Family) -> Vec<Statement> {
    use Selector::{
        Daddr, Dport, Iifname, L4Proto, Oifname, Priority, PriorityBits, Random, Saddr, Sport,
    };
    let hairpin = [Saddr, Daddr, L4Proto, Dport];
    let source_range = [Daddr, L4Proto, Dport, Saddr];
    let network = |length| Operand::Network(network(family).0, length);
    let full = match family {
        Family::Ip => 32,
        Family::Ip6 => 128,
    };
    vec![
        in_set(&[Daddr], "cluster-ips", false),
        in_set(&[Daddr], "cluster-ips", true),
        in_set(&FRONTEND, "service-ips", false),
        in_set(&[L4Proto], "protocols", false),
        in_set(&[Dport], "ports", false),
        in_set(&[L4Proto, Dport], "nodeports", true),
        in_set(&hairpin, "hairpin", false),
        in_set(&source_range, "source-ranges", true),
        compare(Saddr, false, Operand::Address(address(family, 1))),
        compare(Daddr, true, Operand::Address(address(family, 1))),
        compare(Saddr, true, network(8)),
        compare(Saddr, false, network(16)),
        compare(Daddr, false, network(21)),
        compare(Daddr, true, network(full - 1)),
        compare(Daddr, true, network(full)),
        compare(Daddr, false, network(1)),
        compare(Daddr, false, network(0)),
        compare(L4Proto, false, Operand::Protocol(6)),
        compare(L4Proto, true, Operand::Protocol(132)),
        compare(Sport, false, Operand::Port(53)),
        compare(Dport, true, Operand::Port(443)),
        compare(Iifname, false, Operand::Interface("cni0".into())),
        compare(Oifname, true, Operand::Interface("exactly-15-long".into())),
        compare(Iifname, false, Operand::InterfacePrefix("cali".into())),
        compare(Oifname, true, Operand::InterfacePrefix("exactly-14-bar".into())),
        Statement::CtStateNew,
        Statement::CtStatusDnat,
        Statement::FibSaddrLocal,
        Statement::FibDaddrLocal,
        Statement::MarkTest(0x4000),
        Statement::MarkSet(0x4000),
        Statement::MarkClear(0x4000),
        Statement::MarkSet(0x8000_0000),
        element(DynsetOperation::Update, "clients", vec![Saddr], None, None),
        element(DynsetOperation::Update, "clients", vec![Saddr], None, Some(90)),
        element(DynsetOperation::Delete, "clients", vec![Saddr], None, None),
        element(DynsetOperation::Update, "sessions", session(), Some(Priority), Some(10_800)),
        element(DynsetOperation::Delete, "sessions", session(), Some(Priority), None),
        Statement::PrioritySet(PriorityBits(0xffff_8000)),
        Statement::PriorityClear,
        Statement::PriorityMap { key: session(), map: "sessions".into() },
        Statement::PriorityMap { key: vec![L4Proto, Priority, Random(7)], map: "picks".into() },
        Statement::InSet { key: vec![L4Proto, Priority], set: "timed".into(), negated: false },
    ]
}

fn session() -> Vec<Selector> {
    vec![Selector::PriorityBits(0xffff_8000), Selector::Saddr]
}

fn element(
    operation: DynsetOperation,
    set: &'static str,
    key: Vec<Selector>,
    data: Option<Selector>,
    seconds: Option<u64>,
) -> Statement {
    let timeout = seconds.map(Duration::from_secs);
    Statement::Element { operation, set: set.into(), key, data, timeout }
}

fn verdicts() -> Vec<Statement> {
    [
        Verdict::Accept,
        Verdict::Drop,
        Verdict::Return,
        Verdict::Jump("target".into()),
        Verdict::Goto("target".into()),
    ]
    .into_iter()
    .map(Statement::Verdict)
    .collect()
}

fn rules(family: Family) -> Vec<Rule> {
    let rule = |chain: &'static str, statements: Vec<Statement>| Rule {
        chain: chain.into(),
        statements,
        comment: None,
    };
    let mut rules: Vec<Rule> =
        matches(family).into_iter().chain(verdicts()).map(|one| rule("rules", vec![one])).collect();
    let verdict_map = Statement::VerdictMap { key: FRONTEND.to_vec(), map: "verdicts".into() };
    let to = |key: &[Selector], modulus, map: &'static str| Statement::DnatMap {
        key: [key, &[Selector::Random(modulus)]].concat(),
        map: map.into(),
    };
    rules.extend([
        rule("rules", vec![verdict_map]),
        rule("filter-forward", vec![Statement::Reject]),
        rule("to-map", vec![to(&FRONTEND, 1, "endpoints")]),
        rule("to-map", vec![to(&FRONTEND, 250, "endpoints")]),
        rule("to-map", vec![to(&FRONTEND[1..], 2, "nodeport-endpoints")]),
        rule(
            "to-map",
            vec![
                compare(Selector::L4Proto, false, Operand::Protocol(17)),
                Statement::DnatTo { address: address(family, 9), port: 53 },
            ],
        ),
        rule("nat-prerouting", vec![Statement::Verdict(Verdict::Jump("to-map".into()))]),
        rule("nat-postrouting", vec![Statement::Verdict(Verdict::Jump("source-nat".into()))]),
        Rule {
            comment: Some("traffic from outside".into()),
            ..rule(
                "source-nat",
                vec![
                    Statement::MarkTest(0x4000),
                    Statement::MarkClear(0x4000),
                    Statement::Masquerade,
                ],
            )
        },
        rule(
            "source-nat",
            vec![
                in_set(&FRONTEND, "service-ips", false),
                compare(Selector::Saddr, true, Operand::Network(network(family).0, 16)),
                Statement::MarkSet(0x4000),
                Statement::Verdict(Verdict::Goto("target".into())),
            ],
        ),
    ]);
    rules
}

fn ruleset(family: Family) -> Transaction {
    let here = || table(family);
    let header = Table {
        family,
        name: "kube-proxy".into(),
        flags: TableFlags::default(),
        comment: Some("rules of a test".into()),
    };
    let mut operations = vec![Operation::AddTable(header)];
    operations.extend(chains().into_iter().map(|chain| Operation::AddChain(here(), chain)));
    let sets: Vec<_> = sets(family).into_iter().map(|(set, e)| (Arc::new(set), e)).collect();
    operations.extend(sets.iter().map(|(set, _)| Operation::AddSet(here(), Arc::clone(set))));
    for (set, elements) in sets {
        if !elements.is_empty() {
            operations.push(Operation::AddElements(here(), set, elements));
        }
    }
    operations.extend(rules(family).into_iter().map(|rule| Operation::AddRule(here(), rule)));
    Transaction { operations }
}

// --- the kernel and nft, each in a namespace of its own

const NETLINK_NETFILTER: isize = 12;

/// What the kernel said about a batch.
#[derive(Debug)]
struct Refusal {
    errno: i32,
    operation: Option<usize>,
    first_element: usize,
    location: Location,
}

fn send(batch: &Batch, end: u32) -> Result<(), Refusal> {
    let mut socket = Socket::open(NETLINK_NETFILTER).unwrap();
    socket.send(&batch.bytes).unwrap();
    loop {
        let datagram = socket.receive(Wait::Limited).unwrap();
        for message in Messages::new(datagram) {
            let message = message.unwrap();
            let Meaning::Acknowledgement(answer) = message.meaning().unwrap() else { continue };
            if answer.errno == 0 {
                assert_eq!(message.sequence, end);
                return Ok(());
            }
            let origin = batch.origin(message.sequence);
            let location = origin.zip(answer.offset).map(|(origin, offset)| {
                locate(batch.message(origin), usize::try_from(offset).unwrap())
            });
            return Err(Refusal {
                errno: answer.errno,
                operation: origin.map(|origin| origin.operation),
                first_element: origin.map_or(0, |origin| origin.first_element),
                location: location.unwrap_or_default(),
            });
        }
    }
}

fn commit(namespace: &Namespace, transaction: &Transaction) -> Result<(), Refusal> {
    let batch = transaction.encode(7, Acknowledge::LastMessage).unwrap();
    namespace.run(|| send(&batch, batch.last_sequence() - 1))
}

fn nft(namespace: &Namespace, args: &[&str], input: &str) -> String {
    namespace.run(|| {
        let mut child = Command::new("nft")
            .args(args)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nft runs: apt-get install nftables");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nft {args:?}: {errors}\n{input}");
        String::from_utf8(output.stdout).unwrap()
    })
}

fn list(namespace: &Namespace) -> String {
    ordered(&nft(namespace, &["list", "ruleset"], ""))
}

/// The listing with the elements of each set in one line and in order: their order in the kernel
/// is random.
fn ordered(listing: &str) -> String {
    let mut out = String::new();
    let mut rest = listing;
    while let Some(start) = rest.find("elements = {") {
        let end = start + rest[start..].find('}').unwrap();
        let mut elements: Vec<String> = rest[start + 12..end]
            .split(',')
            .map(|element| {
                let words: Vec<_> = element.split_whitespace().collect();
                without_expiry(&words).join(" ")
            })
            .collect();
        elements.sort();
        out.push_str(&rest[..start]);
        out.push_str(&format!("elements = {{ {} ", elements.join(", ")));
        rest = &rest[end..];
    }
    out + rest
}

fn without_expiry<'a>(words: &[&'a str]) -> Vec<&'a str> {
    match words.iter().position(|word| *word == "expires") {
        Some(at) => [&words[..at], &words[at + 2..]].concat(),
        None => words.to_vec(),
    }
}

/// The payloads of all messages that a dump of this kind gives, behind `struct nfgenmsg`.
fn dump(namespace: &Namespace, kind: u16, family: Family, attributes: &[u8]) -> Vec<Vec<u8>> {
    let mut request = Vec::new();
    let header =
        Header { kind: 10 << 8 | kind, flags: message::REQUEST | message::DUMP, sequence: 1 };
    message::append(&mut request, header, |out| {
        out.extend_from_slice(&[family.number(), 0, 0, 0]);
        out.extend_from_slice(attributes);
    })
    .unwrap();
    namespace.run(|| {
        let mut socket = Socket::open(NETLINK_NETFILTER).unwrap();
        socket.send(&request).unwrap();
        let mut objects = Vec::new();
        loop {
            for message in Messages::new(socket.receive(Wait::Limited).unwrap()) {
                match message.unwrap().meaning().unwrap() {
                    Meaning::Object(object) => objects.push(object.payload[4..].to_vec()),
                    Meaning::Done(_) => return objects,
                    other @ (Meaning::Acknowledgement(_) | Meaning::Nothing | Meaning::Overrun) => {
                        panic!("{other:?}")
                    }
                }
            }
        }
    })
}

// --- tests

#[test]
fn bytes_and_text_make_the_same_ruleset_and_nft_loads_what_it_lists() {
    for family in FAMILIES {
        let transaction = ruleset(family);
        let (bytes, text, again) = (Namespace::new(), Namespace::new(), Namespace::new());
        commit(&bytes, &transaction).unwrap();
        nft(&text, &["-f", "-"], &transaction.to_string());
        let listing = nft(&bytes, &["list", "ruleset"], "");
        similar(&ordered(&listing), &list(&text));
        nft(&again, &["-f", "-"], &listing);
        similar(&list(&again), &ordered(&listing));
    }
}

#[track_caller]
fn similar(left: &str, right: &str) {
    for (l, r) in left.lines().zip(right.lines()) {
        assert_eq!(l, r, "in\n{left}\n{right}");
    }
    assert_eq!(left.lines().count(), right.lines().count());
}

#[test]
fn every_statement_is_listed_as_it_is_displayed() {
    for family in FAMILIES {
        let namespace = Namespace::new();
        commit(&namespace, &ruleset(family)).unwrap();
        let listing = nft(&namespace, &["list", "ruleset"], "");
        for rule in rules(family) {
            let text = rule.text(family).to_string();
            assert!(listing.lines().any(|line| line.trim() == text), "{text}\n{listing}");
        }
    }
}

#[test]
fn chains_rules_and_sets_are_read_back_as_they_were_sent() {
    for family in FAMILIES {
        let namespace = Namespace::new();
        commit(&namespace, &ruleset(family)).unwrap();

        let tables = dump(&namespace, 1, family, &[]);
        let Operation::AddTable(header) = &ruleset(family).operations[0] else { panic!() };
        assert_eq!(table_name(&tables[0]).unwrap(), "kube-proxy");
        assert_eq!(Table::decode(family, &tables[0]).as_ref(), Ok(header));

        let read: Vec<_> =
            dump(&namespace, 4, family, &[]).iter().map(|m| Chain::decode(m).unwrap()).collect();
        assert_eq!(read, chains());

        let read = dump(&namespace, 7, family, &[]);
        let read: Vec<_> = read.iter().map(|m| DecodedRule::decode(m).unwrap()).collect();
        for chain in chains() {
            let sent = rules(family).into_iter().filter(|rule| rule.chain == chain.name);
            let sent: Vec<_> =
                sent.map(|rule| (rule.lower(family).unwrap(), rule.comment)).collect();
            let read = read.iter().filter(|rule| rule.chain == chain.name);
            let read: Vec<_> =
                read.map(|rule| (rule.exprs.clone(), rule.comment.clone())).collect();
            assert_eq!(read, sent, "{}", chain.name);
        }

        let read = dump(&namespace, 10, family, &[]);
        let read: Vec<_> = read.iter().map(|m| DecodedSet::decode(m).unwrap().set).collect();
        let sent: Vec<_> = sets(family).into_iter().map(|(set, _)| Some(set)).collect();
        assert_eq!(read, sent);
    }
}

#[test]
fn elements_are_read_back_as_they_were_sent() {
    for family in FAMILIES {
        let namespace = Namespace::new();
        commit(&namespace, &ruleset(family)).unwrap();
        for (set, mut sent) in sets(family) {
            let mut attributes = Vec::new();
            let mut w = deltaproxy::netlink::attr::AttrWriter::new(&mut attributes);
            w.str(1, "kube-proxy");
            w.str(2, &set.name);
            w.finish().unwrap();
            let mut read = Vec::new();
            for message in dump(&namespace, 13, family, &attributes) {
                decode_elements(&message, |view| read.push(view.to_element().unwrap())).unwrap();
            }
            read.sort_by_key(|element| element.key);
            sent.sort_by_key(|element| element.key);
            assert_eq!(read, sent, "{}", set.name);
        }
    }
}

#[test]
fn everything_can_be_removed_piece_by_piece_as_bytes_and_as_text() {
    for family in FAMILIES {
        let here = || table(family);
        let mut operations = Vec::new();
        for chain in chains() {
            operations.push(Operation::FlushChain(here(), chain.name));
        }
        for (i, (set, elements)) in sets(family).into_iter().enumerate() {
            let set = Arc::new(set);
            // nft's word for a map is `flush map`; the operation is displayed as `flush set`.
            if set.data.is_some() || (i % 2 == 0 && !elements.is_empty()) {
                operations.push(Operation::DeleteElements(here(), Arc::clone(&set), elements));
            } else {
                operations.push(Operation::FlushSet(here(), set.name.clone()));
            }
            operations.push(Operation::DeleteSet(here(), set.name.clone()));
        }
        for chain in chains() {
            operations.push(Operation::DeleteChain(here(), chain.name));
        }
        let (bytes, text) = (Namespace::new(), Namespace::new());
        let removal = Transaction { operations };
        for namespace in [&bytes, &text] {
            commit(namespace, &ruleset(family)).unwrap();
        }
        commit(&bytes, &removal).unwrap();
        nft(&text, &["-f", "-"], &removal.to_string());
        let empty = format!("table {family} kube-proxy {{\n\tcomment \"rules of a test\"\n}}\n");
        assert_eq!((list(&bytes), list(&text)), (empty.clone(), empty));

        let delete = Transaction { operations: vec![Operation::DeleteTable(here())] };
        commit(&bytes, &delete).unwrap();
        nft(&text, &["-f", "-"], &delete.to_string());
        assert_eq!((list(&bytes), list(&text)), (String::new(), String::new()));
    }
}

#[test]
fn a_refused_element_is_named_by_its_place_in_the_list() {
    let namespace = Namespace::new();
    let family = Family::Ip;
    commit(&namespace, &ruleset(family)).unwrap();
    let (set, _) = sets(family).remove(0);
    let absent =
        |count: u32| (0..count).map(|n| Element::new(Value::new().ip(n.to_be_bytes().into())));
    let absent: Vec<Element> = absent(10_000).collect();
    let add = Operation::AddElements(table(family), Arc::new(set.clone()), absent.clone());
    let mut removed = absent;
    removed.push(Element::new(Value::new().ip([192, 0, 2, 1].into())));
    let remove = Operation::DeleteElements(table(family), Arc::new(set), removed);
    let refusal = commit(&namespace, &Transaction { operations: vec![add, remove] }).unwrap_err();
    assert_eq!((refusal.errno, refusal.operation), (2, Some(1)));
    let element = refusal.location.element.unwrap();
    assert_eq!(refusal.first_element + element, 10_000, "{refusal:?}");
}

#[test]
fn a_refused_name_is_named_by_its_attribute() {
    let namespace = Namespace::new();
    let family = Family::Ip6;
    commit(&namespace, &ruleset(family)).unwrap();
    let delete = Operation::DeleteSet(table(family), "no-such-set".into());
    let refusal = commit(&namespace, &Transaction { operations: vec![delete] }).unwrap_err();
    assert_eq!((refusal.errno, refusal.operation), (2, Some(0)));
    assert_eq!(refusal.location.to_string(), "name");
}

#[test]
fn long_lists_of_elements_arrive_whole() {
    let namespace = Namespace::new();
    let family = Family::Ip;
    let set = Arc::new(set("many", frontend(family)));
    let elements: Vec<_> = (0..3_000u32)
        .map(|n| Element {
            comment: Some("x".repeat(n as usize % 140).into()),
            ..Element::new(Value::new().ip(n.to_be_bytes().into()).proto(6).port(80))
        })
        .collect();
    let header = Table { family, name: "t".into(), flags: TableFlags::default(), comment: None };
    let here = header.reference();
    let transaction = Transaction {
        operations: vec![
            Operation::AddTable(header),
            Operation::AddSet(here.clone(), Arc::clone(&set)),
            Operation::AddElements(here.clone(), Arc::clone(&set), elements.clone()),
        ],
    };
    commit(&namespace, &transaction).unwrap();
    assert_eq!(nft(&namespace, &["list", "ruleset"], "").matches("tcp").count(), 3_000);

    let removal = Transaction { operations: vec![Operation::DeleteElements(here, set, elements)] };
    let batch = removal.encode(1, Acknowledge::LastMessage).unwrap();
    assert!(batch.counts()[&MessageKind::DelSetElem] > 1);
    commit(&namespace, &removal).unwrap();
    assert_eq!(nft(&namespace, &["list", "ruleset"], "").matches("tcp").count(), 0);
}
