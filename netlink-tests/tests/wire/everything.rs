//! A table with everything that can be expressed, once.

use std::sync::Arc;
use std::time::Duration;

use nft::{
    Chain, ChainType, DynsetOperation, Element, Family, Hook, HookPoint, Operand, Operation, Rule,
    Selector, Set, SetFlags, Statement, Table, TableFlags, TableRef, Transaction, Type, Value,
    Verdict,
};

pub(crate) fn table(family: Family) -> TableRef {
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

pub(crate) fn set(name: &'static str, key: Vec<Type>) -> Set {
    Set { name: name.into(), key, ..Set::default() }
}

pub(crate) fn frontend(family: Family) -> Vec<Type> {
    vec![address_type(family), Type::InetProto, Type::InetService]
}

fn ip(family: Family, last: u8) -> Value {
    Value::new().ip(address(family, last))
}

/// Key of a frontend.
fn key(family: Family, last: u8) -> Value {
    ip(family, last).proto(6).port(443)
}

pub(crate) fn sets(family: Family) -> Vec<(Set, Vec<Element>)> {
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
    let counted = Set { counter: true, ..set("counted", vec![addr]) };
    let named_and_counted = Set { comment: Some("counts".into()), ..counted.clone() };
    let named_and_counted = Set { name: "named-and-counted".into(), ..named_and_counted };
    vec![
        (counted, one(ip(1))),
        (named_and_counted, one(ip(1))),
        (cluster_ips, vec![Element::new(ip(1)), Element::new(ip(2))]),
        (set("service-ips", frontend(family)), services),
        (set("protocols", vec![Type::InetProto]), one(Value::new().proto(132))),
        (set("ports", vec![Type::InetService]), one(Value::new().port(30080))),
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

/// The network of this length that holds the first address of [`network`].
fn network_of(family: Family, length: u8) -> ipnet::IpNet {
    ipnet::IpNet::new(network(family).0, length).unwrap()
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
        size: Some(1_000_000),
        ..set("clients", key.clone())
    };
    let flags = SetFlags { timeout: true, ..SetFlags::default() };
    let sessions = Set {
        data: vec![Type::ClassId],
        ..set_like(&clients, "sessions", vec![Type::ClassId, key[0]])
    };
    let places = set_like(&sessions, "places", vec![Type::ClassId, Type::Integer]);
    let session = Value::new().class_id(0x0001_8000).ip(address(family, 1));
    let place = Value::new().class_id(0x0001_8000).integer(7);
    let place = Element::with_value(place, Value::new().class_id(0x0001_8001));
    let client = Element::with_value(session, Value::new().class_id(0x0001_8001));
    vec![
        (clients, vec![]),
        (sessions, vec![client]),
        (places, vec![place]),
        (Set { flags, ..set("aging", key) }, vec![Element::new(ip(family, 1))]),
    ]
}

fn set_like(other: &Set, name: &'static str, key: Vec<Type>) -> Set {
    Set { name: name.into(), key, ..other.clone() }
}

fn maps(family: Family) -> Vec<(Set, Vec<Element>)> {
    let key = |last| key(family, last);
    let endpoint = |last| ip(family, last).port(8080);
    let values = |name, key, data: &[Type]| Set { data: data.to_vec(), ..set(name, key) };
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
    let class = [Type::ClassId];
    let id = |id| Value::new().class_id(id);
    let pick = |number: u32| Value::new().proto(6).class_id(0x0001_8000).integer(number);
    let picks = vec![Element::with_value(pick(0), id(0x0001_8001))];
    let ids = [0, 0x0001_0000, 0x0001_8000, u32::MAX].iter().zip(1..);
    let ids = ids.map(|(number, last)| Element::with_value(key(last), id(*number))).collect();
    vec![
        (values("endpoints", slots.clone(), &to), endpoints),
        (
            values("nodeport-endpoints", slots[1..].to_vec(), &to),
            vec![Element::with_value(node_port, endpoint(5))],
        ),
        (values("picks", vec![Type::InetProto, Type::ClassId, Type::Integer], &class), picks),
        (values("ids", frontend(family), &class), ids),
    ]
}

pub(crate) fn chains() -> Vec<Chain> {
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
    use Selector::{Daddr, Dport, Iif, Iifname, L4Proto, Priority, Random, Saddr};
    let hairpin = [Saddr, Daddr, L4Proto, Dport];
    let source_range = [Daddr, L4Proto, Dport, Saddr];
    let network = |length| Operand::Network(network_of(family, length));
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
        compare(Saddr, true, network(8)),
        compare(Saddr, false, network(16)),
        compare(Daddr, false, network(21)),
        compare(Daddr, true, network(full - 1)),
        compare(Daddr, true, network(full)),
        compare(Daddr, false, network(1)),
        compare(Daddr, false, network(0)),
        compare(Iif, false, Operand::InterfaceIndex(0)),
        compare(Iifname, false, Operand::Interface("cni0".into())),
        compare(Iifname, true, Operand::Interface("exactly-15-long".into())),
        compare(Iifname, false, Operand::InterfacePrefix("cali".into())),
        compare(Iifname, true, Operand::InterfacePrefix("exactly-14-bar".into())),
        Statement::CtStateNotNew,
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
        element(DynsetOperation::Update, "places", place(), Some(Priority), Some(10_800)),
        element(DynsetOperation::Delete, "places", place(), Some(Priority), None),
        Statement::PriorityMap { key: place(), map: "places".into() },
        Statement::PriorityClear,
        compare(Priority, false, Operand::Class(0x0001_0009)),
        compare(Priority, true, Operand::Class(0x0001_0000)),
        Statement::PriorityMap { key: session(), map: "sessions".into() },
        Statement::PriorityMap { key: vec![L4Proto, Priority, Random(7)], map: "picks".into() },
        Statement::InSet { key: vec![L4Proto, Priority], set: "timed".into(), negated: false },
    ]
}

fn session() -> Vec<Selector> {
    vec![Selector::PriorityBits(0xffff_8000), Selector::Saddr]
}

fn place() -> Vec<Selector> {
    let hash = Selector::SaddrHash { modulus: 1_000, seed: 0x1234_abcd };
    vec![Selector::PriorityBits(0xffff_8000), hash]
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

pub(crate) fn rules(family: Family) -> Vec<Rule> {
    let rule = |chain: &'static str, statements: Vec<Statement>| Rule {
        chain: chain.into(),
        statements,
        comment: None,
    };
    let mut rules: Vec<Rule> =
        matches(family).into_iter().chain(verdicts()).map(|one| rule("rules", vec![one])).collect();
    let to = |key: &[Selector], modulus, map: &'static str| Statement::DnatMap {
        key: [key, &[Selector::Random(modulus)]].concat(),
        map: map.into(),
    };
    rules.extend([
        rule("filter-forward", vec![Statement::Reject]),
        rule("to-map", vec![to(&FRONTEND, 1, "endpoints")]),
        rule("to-map", vec![to(&FRONTEND, 250, "endpoints")]),
        rule("to-map", vec![to(&FRONTEND[1..], 2, "nodeport-endpoints")]),
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
                compare(Selector::Saddr, true, Operand::Network(network_of(family, 16))),
                Statement::MarkSet(0x4000),
                Statement::Verdict(Verdict::Goto("target".into())),
            ],
        ),
    ]);
    rules
}

pub(crate) fn ruleset(family: Family) -> Transaction {
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
