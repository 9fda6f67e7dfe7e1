//! The fake kernel accepts and refuses random transactions as the real kernel does, so that tests
//! on the fake can be trusted.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;

use engine::ruleset::field::Field;
use engine::ruleset::phrase::{self, Phrases};
use fake_kernel::Fake;
use nft::kernel::{CommitError, ElementRead, Kernel, Nftables, Release};
use nft::{
    BaseChain, Chain, Destroyed, Element, Family, HookPoint, Operation, Rule, Set, SetFlags, Table,
    TableRef, Transaction, Type, Value, Verdict,
};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Chains only jump to later ones: separate checks of the kernel refuse loops.
const CHAINS: [&str; 3] = ["base", "middle", "last"];
const SETS: [&str; 3] = ["addresses", "few", "backends"];

fn reference() -> TableRef {
    TableRef::new(Family::Ip, "kube-proxy")
}

fn table() -> Operation {
    Operation::AddTable(Table::new(Family::Ip, "kube-proxy"))
}

fn chain(index: usize, hooked: bool) -> Chain {
    let base = BaseChain::new("filter", HookPoint::Input, 0);
    let base = (hooked && index == 0).then_some(base);
    Chain { base, ..Chain::new(CHAINS[index]) }
}

fn set(index: usize) -> Arc<Set> {
    let data = if index == 2 { vec![Type::Ipv4Addr, Type::InetService] } else { Vec::new() };
    Arc::new(Set {
        name: SETS[index].into(),
        key: vec![Type::Ipv4Addr, Type::InetProto],
        data,
        size: (index == 1).then_some(2),
        flags: SetFlags { timeout: index == 0, ..SetFlags::default() },
        ..Set::default()
    })
}

fn key() -> impl Strategy<Value = Value> {
    (1_u8..5, prop::bool::weighted(0.97)).prop_map(|(number, complete)| {
        let address = Value::new().ip(IpAddr::V4(Ipv4Addr::new(10, 96, 0, number)));
        if complete { address.proto(6) } else { address }
    })
}

fn verdict(lowest: usize) -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Accept),
        Just(Verdict::Return),
        (lowest..3).prop_map(|chain| Verdict::Goto(CHAINS[chain].into())),
        (lowest..3).prop_map(|chain| Verdict::Jump(CHAINS[chain].into())),
    ]
}

fn element(set: usize) -> BoxedStrategy<Element> {
    let odd = (key(), prop::bool::weighted(0.1));
    match set {
        2 => (odd, 1_u16..3)
            .prop_map(|((key, bare), port)| {
                let data = Value::new().ip(IpAddr::V4(Ipv4Addr::new(10, 244, 0, 1))).port(port);
                if bare { Element::new(key) } else { Element::with_value(key, data) }
            })
            .boxed(),
        _ => odd
            .prop_map(|(key, with_data)| {
                let data = Value::new().ip(IpAddr::V4(Ipv4Addr::LOCALHOST)).port(1);
                if with_data { Element::with_value(key, data) } else { Element::new(key) }
            })
            .boxed(),
    }
}

fn elements() -> impl Strategy<Value = (usize, Vec<Element>)> {
    (0_usize..3).prop_flat_map(|set| (Just(set), prop::collection::vec(element(set), 1..4)))
}

fn rule() -> impl Strategy<Value = Rule> {
    let key = [Field::Daddr, Field::L4Proto];
    (0_usize..3)
        .prop_flat_map(move |chain| {
            let jump = verdict((chain + 1).min(2)).prop_map(phrase::verdict);
            let in_set =
                (0_usize..2).prop_map(move |set| Phrases(Family::Ip).in_set(&key, SETS[set]));
            let phrase = match chain {
                // The last chain would go to itself.
                2 => in_set.boxed(),
                _ => prop_oneof![in_set, jump].boxed(),
            };
            (Just(chain), phrase)
        })
        .prop_map(|(chain, expressions)| Rule {
            chain: CHAINS[chain].into(),
            expressions,
            comment: None,
        })
}

/// Deletes what may not exist; nothing where the kernel cannot.
fn destroy() -> impl Strategy<Value = Operation> {
    let chain = (0_usize..3).prop_map(|index| Destroyed::Chain(CHAINS[index].into()));
    let one_set = (0_usize..3).prop_map(|index| Destroyed::Set(SETS[index].into()));
    let elements =
        elements().prop_map(|(index, list)| Destroyed::Elements(set(index), list.into()));
    let is_possible = Release::running().is_some_and(|release| release >= Release::DESTROY);
    prop_oneof![1 => Just(Destroyed::Table), 3 => chain, 3 => one_set, 6 => elements].prop_map(
        move |what| if is_possible { Operation::Destroy(reference(), what) } else { table() },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    let chain_name = (0_usize..3).prop_map(|index| CHAINS[index].into());
    let set_name = (0_usize..3).prop_map(|index| SETS[index].into());
    prop_oneof![
        1 => Just(table()),
        4 => (0_usize..3, prop::bool::weighted(0.8))
            .prop_map(|(index, hooked)| Operation::AddChain(reference(), chain(index, hooked))),
        1 => chain_name.clone().prop_map(|name| Operation::DeleteChain(reference(), name)),
        1 => chain_name.prop_map(|name| Operation::FlushChain(reference(), name)),
        5 => rule().prop_map(|rule| Operation::AddRule(reference(), rule)),
        4 => (0_usize..3).prop_map(|index| Operation::AddSet(reference(), set(index))),
        1 => set_name.clone().prop_map(|name| Operation::DeleteSet(reference(), name)),
        1 => set_name.prop_map(|name| Operation::FlushSet(reference(), name)),
        8 => elements().prop_map(|(index, elements)| {
            Operation::AddElements(reference(), set(index), elements.into())
        }),
        4 => elements().prop_map(|(index, elements)| {
            Operation::DeleteElements(reference(), set(index), elements.into())
        }),
        3 => destroy(),
    ]
}

/// Transactions that print as the scripts they are.
#[derive(Clone)]
struct Script(Vec<Transaction>);

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|transaction| write!(f, "\n{transaction}"))
    }
}

/// A base for most cases to start from, and then a few short transactions.
fn transactions() -> impl Strategy<Value = Script> {
    let transaction =
        prop::collection::vec(operation(), 1..5).prop_map(|operations| Transaction { operations });
    (prop::bool::weighted(0.9), prop::collection::vec(transaction, 1..8)).prop_map(
        |(prepared, mut transactions)| {
            if prepared {
                transactions.insert(0, everything());
            }
            Script(transactions)
        },
    )
}

fn everything() -> Transaction {
    let table = Operation::AddTable(Table::new(Family::Ip, "kube-proxy"));
    let chains = (0..3).map(|index| Operation::AddChain(reference(), chain(index, true)));
    let sets = (0..3).map(|index| Operation::AddSet(reference(), set(index)));
    Transaction { operations: [table].into_iter().chain(chains).chain(sets).collect() }
}

/// The outcome of a commit, in the terms of both kernels.
#[derive(Debug, PartialEq)]
enum CommitOutcome {
    Applied,
    Refused { operation: Option<usize>, element: Option<usize>, errno: Errno },
}

fn commit(kernel: &mut impl Kernel, transaction: &Transaction) -> CommitOutcome {
    match kernel.commit(transaction) {
        Ok(_) => CommitOutcome::Applied,
        Err(CommitError::Refused { operation, element, errno, .. }) => {
            CommitOutcome::Refused { operation, element, errno }
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Everything readable about the table: names of chains and sets, rules and elements.
fn contents(kernel: &mut impl Kernel) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let Some(contents) = kernel.read_table(&reference()).unwrap() else { return found };
    for chain in contents.chains {
        found.insert(format!("{chain:?}"));
    }
    let mut rules = BTreeMap::<String, Vec<_>>::new();
    for rule in contents.rules.iter() {
        rules.entry(rule.chain.clone()).or_default().push(rule.expressions.clone());
    }
    found.insert(format!("{rules:?}"));
    for set in contents.sets {
        let name = set.name.clone();
        kernel
            .read_elements(&reference(), &name, &mut |read| {
                if let ElementRead::Element(element) = read {
                    found.insert(format!("{name} {:?}", element.to_element()));
                }
            })
            .unwrap();
    }
    found
}

fn agree(real: &mut Nftables, transactions: &[Transaction]) -> Result<(), TestCaseError> {
    let mut fake = Fake::new();
    let delete = Transaction { operations: vec![Operation::DeleteTable(reference())] };
    let _ = real.commit(&delete);
    for transaction in transactions {
        let (on_real, on_fake) = (commit(real, transaction), commit(&mut fake, transaction));
        prop_assert_eq!(on_real, on_fake, "real and fake kernel, on:\n{}", transaction);
    }
    prop_assert_eq!(contents(real), contents(&mut fake), "real and fake contents");
    Ok(())
}

#[test]
fn random_transactions_are_accepted_and_refused_alike() {
    let test = || {
        unshare(CloneFlags::CLONE_NEWNET).expect(
            "run as root, or: sh netlink-tests/in-namespaces cargo test --offline --workspace \
             --no-default-features --test fake",
        );
        let real = RefCell::new(Nftables::open().unwrap());
        let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&transactions(), |transactions| agree(&mut real.borrow_mut(), &transactions.0))
            .unwrap_or_else(|error| panic!("{error}"));
    };
    thread::spawn(test).join().unwrap();
}
