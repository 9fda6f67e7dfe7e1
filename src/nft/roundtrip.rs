//! Properties of every object: encoding and decoding returns the same, and damage is an error.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{
    Acknowledge, Batch, Chain, ChainType, DecodedRule, DecodedSet, DynsetOperation, Element, Expr,
    Family, Hook, HookPoint, Operand, Operation, Order, Register, Rule, Selector, Set, SetFlags,
    Statement, Table, TableFlags, TableRef, Transaction, Type, Value, Verdict, decode_elements,
    table_name, table_owner,
};
use crate::netlink::attr::{AttrWriter, Attrs};

fn family() -> impl Strategy<Value = Family> {
    select(vec![Family::Ip, Family::Ip6])
}

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9/-]{0,30}"
}

fn comment() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9:/ .é-]{0,50}"
}

fn table() -> impl Strategy<Value = Table> {
    let flags = (any::<bool>(), any::<bool>());
    let flags = flags.prop_map(|(owner, persist)| TableFlags { owner, persist });
    (family(), name(), flags, option::of(comment())).prop_map(|(family, name, flags, comment)| {
        Table { family, name: name.into(), flags, comment }
    })
}

fn chain() -> impl Strategy<Value = Chain> {
    let kind = select(vec![ChainType::Filter, ChainType::Nat]);
    let point = select(vec![
        HookPoint::Prerouting,
        HookPoint::Input,
        HookPoint::Forward,
        HookPoint::Output,
        HookPoint::Postrouting,
    ]);
    let hook = (kind, point, any::<i32>());
    let hook = hook.prop_map(|(kind, point, priority)| Hook { kind, point, priority });
    (name(), option::of(hook), option::of(comment())).prop_map(|(name, hook, comment)| Chain {
        name: name.into(),
        hook,
        comment,
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Accept),
        Just(Verdict::Drop),
        Just(Verdict::Return),
        name().prop_map(|chain| Verdict::Jump(chain.into())),
        name().prop_map(|chain| Verdict::Goto(chain.into())),
    ]
}

fn types() -> impl Strategy<Value = Vec<Type>> {
    let all = [
        Type::Ipv4Addr,
        Type::Ipv6Addr,
        Type::InetProto,
        Type::InetService,
        Type::ClassId,
        Type::Integer,
    ];
    vec(select(all.to_vec()), 1..=5).prop_filter("fits a value", |types| {
        super::set::length(types).next_multiple_of(4) <= Value::CAPACITY
    })
}

fn set() -> impl Strategy<Value = Set> {
    let data = prop_oneof![Just(Vec::new()), types()];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let flags =
        flags.prop_map(|(interval, dynamic, timeout)| SetFlags { interval, dynamic, timeout });
    let rest = (option::of(any::<u32>()), option::of(comment()), any::<bool>());
    (name(), types(), data, flags, rest).prop_map(
        |(name, key, data, flags, (size, comment, counter))| Set {
            name: name.into(),
            key,
            data,
            flags,
            size,
            comment,
            counter,
        },
    )
}

fn value(types: &[Type]) -> impl Strategy<Value = Value> + use<> {
    let types = types.to_vec();
    any::<[u8; Value::CAPACITY]>().prop_map(move |bytes| {
        let add = |value: Value, kind: &Type| {
            let field = &bytes[value.as_bytes().len()..][..kind.length() as usize];
            value.value(&Value::from_bytes(field).unwrap())
        };
        types.iter().fold(Value::new(), add)
    })
}

fn element(set: &Set) -> impl Strategy<Value = Element> + use<> {
    let data = match set.data.as_slice() {
        [] => Just(None).boxed(),
        types => value(types).prop_map(Some).boxed(),
    };
    let end = if set.is_interval_concatenation() {
        option::of(value(&set.key)).boxed()
    } else {
        Just(None).boxed()
    };
    (value(&set.key), end, data, option::of(comment())).prop_map(|(key, key_end, data, comment)| {
        let key_end = key_end.filter(|end| *end != key);
        Element { key, key_end, data, comment: comment.map(Arc::from) }
    })
}

fn register() -> impl Strategy<Value = Register> {
    (0u8..16).prop_map(Register::Word)
}

fn expr() -> impl Strategy<Value = Expr> {
    let bytes = || vec(any::<u8>(), 1..=16);
    let number = any::<u32>;
    prop_oneof![
        (number(), number(), number(), register())
            .prop_map(|(base, offset, length, to)| Expr::Payload { base, offset, length, to }),
        (number(), register()).prop_map(|(key, to)| Expr::Meta { key, to }),
        (number(), register()).prop_map(|(key, from)| Expr::MetaSet { key, from }),
        (number(), register()).prop_map(|(key, to)| Expr::Ct { key, to }),
        (number(), register()).prop_map(|(key, to)| Expr::CtOriginal { key, to }),
        (register(), bytes()).prop_map(|(from, value)| Expr::Order {
            from,
            order: Order::Greater,
            value
        }),
        (register(), register(), number(), number())
            .prop_map(|(from, to, length, size)| Expr::Byteorder { from, to, length, size }),
        name().prop_map(|name| Expr::FlowOffload(name.into())),
        (number(), register()).prop_map(|(flags, to)| Expr::FibType { flags, to }),
        (number(), register()).prop_map(|(modulus, to)| Expr::Numgen { modulus, to }),
        (register(), number(), number(), number(), register()).prop_map(
            |(from, length, modulus, seed, to)| Expr::Jhash { from, length, modulus, seed, to }
        ),
        (register(), any::<bool>(), bytes()).prop_map(|(from, negated, value)| Expr::Cmp {
            from,
            negated,
            value
        }),
        (register(), register(), bytes()).prop_map(|(from, to, mask)| {
            let xor = mask.iter().map(|byte| !byte).collect();
            Expr::Bitwise { from, to, mask, xor }
        }),
        (name(), register(), option::of(register()), any::<bool>()).prop_map(
            |(set, from, to, negated)| Expr::Lookup { set: set.into(), from, to, negated }
        ),
        (bytes(), register()).prop_map(|(value, to)| Expr::Immediate { value, to }),
        verdict().prop_map(Expr::Verdict),
        (any::<u8>(), register(), option::of(register()))
            .prop_map(|(family, address, port)| Expr::Dnat { family, address, port }),
        number().prop_map(|flags| Expr::Masquerade { flags }),
        (number(), any::<u8>()).prop_map(|(kind, code)| Expr::Reject { kind, code }),
        dynset(),
    ]
}

fn dynset() -> impl Strategy<Value = Expr> {
    let operation = prop_oneof![Just(DynsetOperation::Update), Just(DynsetOperation::Delete)];
    (operation, name(), register(), option::of(register()), option::of(1..u64::MAX)).prop_map(
        |(operation, set, key, data, timeout)| {
            let set = set.into();
            Expr::Dynset { operation, set, key, data, timeout }
        },
    )
}

fn written(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = AttrWriter::new(&mut bytes);
    fill(&mut w);
    w.finish().unwrap();
    bytes
}

/// Returns a batch with every kind of object.
fn everything() -> Batch {
    let table = TableRef { family: Family::Ip, name: "t".into() };
    let header = Table {
        family: Family::Ip,
        name: "t".into(),
        flags: TableFlags::default(),
        comment: Some("c".into()),
    };
    let hook = Hook { kind: ChainType::Nat, point: HookPoint::Output, priority: -100 };
    let chain = Chain { name: "c".into(), hook: Some(hook), comment: Some("d".into()) };
    let key = vec![Selector::Daddr, Selector::Dport];
    let compare = Statement::Compare {
        selector: Selector::Saddr,
        negated: true,
        value: Operand::Network("10.0.0.0/9".parse().unwrap()),
    };
    let statements = vec![
        compare,
        Statement::CtStateNotNew,
        Statement::TcpSyn,
        Statement::SctpInit,
        Statement::FibDaddrLocal,
        Statement::MarkSet(1),
        Statement::Element {
            operation: DynsetOperation::Update,
            set: "s".into(),
            key: key.clone(),
            data: None,
            timeout: None,
        },
        Statement::DnatMap { key: [key, vec![Selector::Random(2)]].concat(), map: "s".into() },
        Statement::Masquerade,
        Statement::Reject,
        Statement::Verdict(Verdict::Goto("d".into())),
    ];
    let rule = Rule { chain: "c".into(), statements, comment: Some("e".into()) };
    let set = Arc::new(Set {
        name: "s".into(),
        key: vec![Type::Ipv4Addr, Type::Integer],
        data: vec![Type::Ipv4Addr],
        size: Some(3),
        comment: Some("f".into()),
        ..Set::default()
    });
    let key = Value::new().ip([10, 0, 0, 1].into()).integer(1);
    let data = Value::new().ip([10, 0, 0, 2].into());
    let element = Element { comment: Some("g".into()), ..Element::with_value(key, data) };
    let operations = vec![
        Operation::AddTable(header),
        Operation::AddChain(table.clone(), chain),
        Operation::AddRule(table.clone(), rule),
        Operation::AddSet(table.clone(), Arc::clone(&set)),
        Operation::AddElements(table, set, vec![element; 3]),
    ];
    Transaction { operations }.encode(1, Acknowledge::BatchEnd).unwrap()
}

/// Decodes attributes as every object.
fn decode_as_everything(bytes: &[u8]) {
    let _ = (Table::decode(Family::Ip, bytes), table_owner(bytes), table_name(bytes));
    let _ = (Chain::decode(bytes), DecodedSet::decode(bytes), DecodedRule::decode(bytes));
    let mut elements = 0;
    let _ = decode_elements(bytes, |view| elements += usize::from(view.to_element().is_some()));
    assert!(elements <= bytes.len());
}

proptest! {
    #[test]
    fn a_table_is_decoded_as_it_was_encoded(table in table()) {
        let bytes = written(|w| table.encode(w));
        prop_assert_eq!(Table::decode(table.family, &bytes), Ok(table));
    }

    #[test]
    fn a_chain_is_decoded_as_it_was_encoded(chain in chain()) {
        let bytes = written(|w| chain.encode("t", w));
        prop_assert_eq!(Chain::decode(&bytes), Ok(chain));
    }

    #[test]
    fn a_set_is_decoded_as_it_was_encoded(set in set()) {
        let bytes = written(|w| set.encode("t", 1, w));
        let name = set.name.to_string();
        let expected = DecodedSet { name, set: Some(set), anonymous: false, elements: None };
        prop_assert_eq!(DecodedSet::decode(&bytes), Ok(expected));
    }

    #[test]
    fn an_expression_is_decoded_as_it_was_encoded(expr in expr()) {
        let bytes = written(|w| expr.encode(w));
        prop_assert_eq!(Expr::decode(Attrs::new(&bytes)), Ok(expr));
    }

    #[test]
    fn an_element_is_decoded_as_it_was_encoded(
        (set, elements) in set().prop_flat_map(|set| {
            let elements = vec(element(&set), 0..20);
            (Just(set), elements)
        }),
    ) {
        let table = TableRef { family: Family::Ip, name: "t".into() };
        let add = Operation::AddElements(table, Arc::new(set), elements.clone());
        let batch = Transaction { operations: vec![add] }.encode(1, Acknowledge::BatchEnd).unwrap();
        let mut read = Vec::new();
        for origin in &batch.messages {
            let attributes = &batch.message(*origin)[20..];
            decode_elements(attributes, |view| read.push(view.to_element().unwrap())).unwrap();
        }
        prop_assert_eq!(read, elements);
    }

    #[test]
    fn random_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..500)) {
        decode_as_everything(&bytes);
    }

    #[test]
    fn damaged_messages_are_decoded_or_refused(damage in vec((any::<usize>(), any::<u8>()), 1..6)) {
        let batch = everything();
        for origin in &batch.messages {
            let mut bytes = batch.message(*origin)[20..].to_vec();
            for (at, byte) in &damage {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            decode_as_everything(&bytes);
        }
    }
}
