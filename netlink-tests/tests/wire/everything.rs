//! A table with everything that can be expressed, once.

use std::sync::Arc;
use std::time::Duration;

use engine::flowtable::Threshold;
use engine::ruleset::field::{Field, SERVICE, SOURCE_ADDRESS};
use engine::ruleset::phrase::{self, ElementChange, Phrase, Phrases};
use nft::{
    BaseChain, Chain, Element, Family, HookPoint, Operation, Rule, Set, SetFlags, Table, TableRef,
    Transaction, Type, Value, Verdict,
};

pub(crate) fn table(family: Family) -> TableRef {
    TableRef::new(family, "kube-proxy")
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
        key_end: Some(Box::new(key(1).ip(last))),
        comment: Some("a network".into()),
        ..Element::new(key(1).ip(first))
    };
    let range = Element {
        key_end: Some(Box::new(key(2).ip(address(family, 9)))),
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
    let base = |name: &'static str, kind: &'static str, point, priority| {
        Chain::at_hook(name, BaseChain::new(kind, point, priority))
    };
    vec![
        Chain::new("target").with_comment("jumped to"),
        Chain::new("rules"),
        Chain::new("source-nat"),
        Chain::new("to-map"),
        base("filter-prerouting", "filter", HookPoint::Prerouting, -110),
        base("filter-input", "filter", HookPoint::Input, -110),
        base("filter-forward", "filter", HookPoint::Forward, -110),
        base("filter-output", "filter", HookPoint::Output, -110),
        base("nat-prerouting", "nat", HookPoint::Prerouting, -100),
        base("nat-output", "nat", HookPoint::Output, -100).with_comment("base"),
        base("nat-postrouting", "nat", HookPoint::Postrouting, 100),
    ]
}

fn matches(family: Family) -> Vec<Phrase> {
    use Field::{Daddr, Dport, L4Proto, Priority, Random, Saddr};
    let hairpin = [Saddr, Daddr, L4Proto, Dport];
    // Not `L4Proto`: some kernels refuse what nft 1.0.6 sends for that beside ranges
    // (findings/nft-protocol-in-ranges.sh).
    let offset = match family {
        Family::Ip => 9,
        Family::Ip6 => 6,
    };
    let source_range = [Daddr, Field::Network { offset, length: 1 }, Dport, Saddr];
    let network = |length| network_of(family, length);
    let full = match family {
        Family::Ip => 32,
        Family::Ip6 => 128,
    };
    let phrases = Phrases(family);
    let update = |seconds: Option<u64>| ElementChange::Update(seconds.map(Duration::from_secs));
    let delete = ElementChange::Delete;
    let (session, place) = (session(), place());
    vec![
        phrases.in_set(&[Daddr], "cluster-ips"),
        phrases.not_in_set(&[Daddr], "cluster-ips"),
        phrases.in_set(SERVICE, "service-ips"),
        phrases.in_set(&[L4Proto], "protocols"),
        phrases.in_set(&[Dport], "ports"),
        phrases.not_in_set(&[L4Proto, Dport], "nodeports"),
        phrases.in_set(&hairpin, "hairpin"),
        phrases.not_in_set(&source_range, "source-ranges"),
        phrase::source(network(8)).unequal(),
        phrase::source(network(16)).equal(),
        phrase::destination(network(21)).equal(),
        phrase::destination(network(full - 1)).unequal(),
        phrase::destination(network(full)).unequal(),
        phrase::destination(network(1)).equal(),
        phrase::destination(network(0)).equal(),
        phrase::input_index(0).equal(),
        phrase::input_name("cni0").equal(),
        phrase::input_name("exactly-15-long").unequal(),
        phrase::input_prefix("cali").equal(),
        phrase::input_prefix("exactly-14-bar").unequal(),
        phrase::ct_state_new().unequal(),
        phrase::ct_state_established(),
        phrase::ct_over(Threshold::Packets(20)),
        phrase::ct_over(Threshold::Bytes(1 << 40)),
        phrase::ct_status_dnat(),
        phrase::source_is_local(),
        phrase::destination_is_local(),
        phrase::has_mark(0x4000),
        phrase::set_mark(0x4000),
        phrase::flip_mark(0x4000),
        phrase::set_mark(0x8000_0000),
        phrase::trace(),
        phrase::begins_tcp(),
        phrase::begins_sctp(),
        phrases.change_element(update(None), "clients", &[Saddr], None),
        phrases.change_element(update(Some(90)), "clients", &[Saddr], None),
        phrases.change_element(delete, "clients", &[Saddr], None),
        phrases.change_element(update(Some(10_800)), "sessions", &session, Some(Priority)),
        phrases.change_element(delete, "sessions", &session, Some(Priority)),
        phrases.change_element(update(Some(10_800)), "places", &place, Some(Priority)),
        phrases.change_element(delete, "places", &place, Some(Priority)),
        phrases.set_priority(&place, "places"),
        phrase::clear_priority(),
        phrase::priority(0x0001_0009).equal(),
        phrase::priority(0x0001_0000).unequal(),
        phrase::priority_bits(0x1f, 3).equal(),
        phrase::priority_bits(0xe0, 0).unequal(),
        phrases.set_priority(&session, "sessions"),
        phrases.set_priority(&[L4Proto, Priority, Random(7)], "picks"),
        phrases.in_set(&[L4Proto, Priority], "timed"),
    ]
}

fn session() -> Vec<Field> {
    vec![Field::PriorityBits(0xffff_8000), Field::Saddr]
}

fn place() -> Vec<Field> {
    let hash = Field::Hash { of: SOURCE_ADDRESS, modulus: 1_000, seed: 0x1234_abcd };
    vec![Field::PriorityBits(0xffff_8000), hash]
}

fn verdicts() -> Vec<Phrase> {
    [
        Verdict::Accept,
        Verdict::Drop,
        Verdict::Return,
        Verdict::Jump("target".into()),
        Verdict::Goto("target".into()),
    ]
    .map(phrase::verdict)
    .into()
}

pub(crate) fn rules(family: Family) -> Vec<Rule> {
    let rule = |chain: &'static str, phrases: &[Phrase]| Rule {
        chain: chain.into(),
        expressions: phrases.concat(),
        comment: None,
    };
    let phrases = Phrases(family);
    let mut rules: Vec<Rule> =
        matches(family).into_iter().chain(verdicts()).map(|one| rule("rules", &[one])).collect();
    let to = |key: &[Field], modulus, map: &'static str| {
        phrases.translate(&[key, &[Field::Random(modulus)]].concat(), map)
    };
    rules.extend([
        rule("filter-forward", &[phrases.reject()]),
        rule("to-map", &[to(SERVICE, 1, "endpoints")]),
        rule("to-map", &[to(SERVICE, 250, "endpoints")]),
        rule("to-map", &[to(&SERVICE[1..], 2, "nodeport-endpoints")]),
        rule("nat-prerouting", &[phrase::jump("to-map")]),
        rule("nat-postrouting", &[phrase::jump("source-nat")]),
        Rule {
            comment: Some("traffic from outside".into()),
            ..rule(
                "source-nat",
                &[phrase::has_mark(0x4000), phrase::flip_mark(0x4000), phrase::masquerade()],
            )
        },
        rule(
            "source-nat",
            &[
                phrases.in_set(SERVICE, "service-ips"),
                phrase::source(network_of(family, 16)).unequal(),
                phrase::set_mark(0x4000),
                phrase::goto("target"),
            ],
        ),
    ]);
    rules
}

pub(crate) fn ruleset(family: Family) -> Transaction {
    let here = || table(family);
    let comment = Some("rules of a test".into());
    let header = Table { comment, ..Table::new(family, "kube-proxy") };
    let mut operations = vec![Operation::AddTable(header)];
    operations.extend(chains().into_iter().map(|chain| Operation::AddChain(here(), chain)));
    let sets: Vec<_> = sets(family).into_iter().map(|(set, e)| (Arc::new(set), e)).collect();
    operations.extend(sets.iter().map(|(set, _)| Operation::AddSet(here(), Arc::clone(set))));
    for (set, elements) in sets {
        if !elements.is_empty() {
            operations.push(Operation::AddElements(here(), set, elements.into()));
        }
    }
    operations.extend(rules(family).into_iter().map(|rule| Operation::AddRule(here(), rule)));
    Transaction { operations }
}
