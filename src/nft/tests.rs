//! Properties of every object: encoding and decoding returns the same, and damage is an error.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::expression::{
    Bitwise, Byteorder, Bytes, Cmp, Ct, Dynset, Fib, FlowOffload, Hash, Immediate, Lookup, Masq,
    Meta, Nat, Numgen, Payload, Reg, Reject, ct, fib, ip, meta,
};
use super::{
    Acknowledge, BaseChain, Batch, Chain, DecodedSet, Element, Expression, Family, HookPoint,
    ListedRule, Operation, Rule, Set, SetFlags, Table, TableFamily, TableFlags, TableRef,
    Transaction, Type, Value, Verdict, WholeTable, decode_elements, table_name,
};
use crate::netlink::attr::AttrWriter;

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
        Table { family: family.into(), name: name.into(), flags, comment }
    })
}

fn chain() -> impl Strategy<Value = Chain> {
    let point = select(vec![
        HookPoint::Prerouting,
        HookPoint::Input,
        HookPoint::Forward,
        HookPoint::Output,
        HookPoint::Postrouting,
    ]);
    let base = (select(vec!["filter", "nat", "route"]), point, any::<i32>(), any::<bool>());
    let base = base.prop_map(|(kind, point, priority, drops)| BaseChain {
        drops,
        ..BaseChain::new(kind, point, priority)
    });
    (name(), option::of(base), option::of(comment())).prop_map(|(name, base, comment)| Chain {
        base,
        userdata: comment.as_deref().map(Bytes::of_comment),
        ..Chain::new(name)
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
    let bits = [8, 16, 24, 32, 128].map(|length| Type::Transport { offset: length + 8, length });
    let all = [&Type::NAMED[..], &bits].concat();
    vec(select(all), 1..=5).prop_filter("fits a value", |types| {
        super::element_type::length(types).next_multiple_of(4) as usize <= Value::CAPACITY
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
        let key_end = key_end.filter(|end| *end != key).map(Box::new);
        Element { key_end, data, comment: comment.map(Arc::from), ..Element::new(key) }
    })
}

fn register() -> impl Strategy<Value = Reg> {
    (0u8..16).prop_map(Reg::of_word)
}

/// Expressions that programs write, as kernels list them.
fn expression() -> impl Strategy<Value = Expression> {
    let bytes = || vec(any::<u8>(), 1..=16);
    let number = any::<u32>;
    prop_oneof![
        (number(), number(), number(), register())
            .prop_map(|(base, offset, length, to)| Payload::load(base, offset, length, to)),
        (number(), register()).prop_map(|(key, to)| Meta { key, to: Some(to), from: None }.into()),
        (number(), register())
            .prop_map(|(key, from)| Meta { key, to: None, from: Some(from) }.into()),
        (number(), register(), prop::option::of(0u8..2)).prop_map(|(key, to, direction)| {
            Ct { to: Some(to), from: None, key, direction }.into()
        }),
        (register(), number(), bytes())
            .prop_map(|(from, operation, value)| Cmp::compare(from, operation, value)),
        (register(), number()).prop_map(|(at, length)| Byteorder::to_network(at, length)),
        name().prop_map(FlowOffload::to),
        (number(), number(), register())
            .prop_map(|(result, flags, to)| Fib { to, result, flags }.into()),
        (number(), register()).prop_map(|(modulus, to)| Numgen::random(modulus, to)),
        (register(), number(), number(), number())
            .prop_map(|(at, length, modulus, seed)| { Hash::jenkins(at, length, modulus, seed) }),
        (register(), bytes()).prop_map(|(at, mask)| {
            let xor: Vec<u8> = mask.iter().map(|byte| !byte).collect();
            Bitwise::mask_xor(at, mask, xor)
        }),
        (name(), register()).prop_map(|(set, from)| Lookup::in_set(set, from)),
        (name(), register()).prop_map(|(set, from)| Lookup::not_in_set(set, from)),
        (name(), register(), register()).prop_map(|(map, from, to)| Lookup::in_map(map, from, to)),
        (bytes(), register()).prop_map(|(value, to)| Immediate::value(value, to)),
        verdict().prop_map(Immediate::verdict),
        (any::<u8>(), register(), register())
            .prop_map(|(family, address, port)| Nat::destination(family, address, port)),
        number().prop_map(Masq::with_flags),
        any::<u8>().prop_map(Reject::unreachable),
        dynset(),
    ]
}

fn dynset() -> impl Strategy<Value = Expression> {
    let change = (any::<u32>(), name(), register());
    (change, option::of(register()), option::of(any::<u64>())).prop_map(
        |((operation, set, key), data, timeout)| {
            Dynset { data, timeout, ..Dynset::new(operation, set, key) }.into()
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
    let table = TableRef::new(Family::Ip, "t");
    let header = Table {
        family: TableFamily::Ip,
        name: "t".into(),
        flags: TableFlags::default(),
        comment: Some("c".into()),
    };
    let base = BaseChain::new("nat", HookPoint::Output, -100);
    let chain = Chain::at_hook("c", base).with_comment("d");
    let (first, second) = (Reg::of_word(0), Reg::of_word(1));
    let expressions = vec![
        ip::saddr(first),
        Bitwise::mask_xor(first, [255, 128, 0, 0], [0; 4]),
        Cmp::not_equal(first, [10, 0, 0, 0]),
        ct::state(first),
        fib::saddr_type(first),
        meta::set_mark(first),
        Dynset { timeout: Some(1), data: Some(second), ..Dynset::new(1, "s", first) }.into(),
        Numgen::random(2, second),
        Lookup::in_map("s", first, first),
        Nat::destination(2, first, second),
        Masq::with_flags(16),
        Reject::unreachable(3),
        Immediate::verdict(Verdict::Goto("d".into())),
    ];
    let rule = Rule { chain: "c".into(), expressions, comment: Some("e".into()) };
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
        Operation::AddElements(table, set, vec![element; 3].into()),
    ];
    Transaction { operations }.encode(1, Acknowledge::BatchEnd).unwrap()
}

/// Decodes attributes as every object.
fn decode_as_everything(bytes: &[u8]) {
    let _ = (Table::decode(TableFamily::Ip, bytes), table_name(bytes));
    let _ = WholeTable::decode_header(TableFamily::Ip, bytes);
    let _ = (Chain::decode(bytes), DecodedSet::decode(bytes), ListedRule::decode(bytes));
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
        let bytes = chain.encode("t").unwrap();
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
    fn a_rule_is_decoded_as_it_was_encoded(
        expressions in vec(expression(), 0..6),
        comment in option::of(comment()),
    ) {
        let rule = Rule { chain: "c".into(), expressions, comment };
        let bytes = written(|w| rule.encode("t", w));
        let listed = ListedRule::decode(&bytes).unwrap();
        prop_assert_eq!(&listed, &ListedRule::of(&rule, "t", 0));
        prop_assert_eq!(&listed.expressions, &rule.expressions);
        prop_assert_eq!(listed.comment(), rule.comment.as_deref());
        prop_assert!(rule.is_listed_as(&listed));
    }

    #[test]
    fn an_element_is_decoded_as_it_was_encoded(
        (set, elements) in set().prop_flat_map(|set| {
            let elements = vec(element(&set), 0..20);
            (Just(set), elements)
        }),
    ) {
        let table = TableRef::new(Family::Ip, "t");
        let add = Operation::AddElements(table, Arc::new(set), elements.clone().into());
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
