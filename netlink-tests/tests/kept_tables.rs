//! Updates of tables that a program keeps, on the real kernel: what is read, and what the table is
//! then.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use netlink_tests::Namespace;
use nft::difference::Difference;
use nft::expression::{Cmp, CounterExpression, Dynset, Immediate, Lookup, Objref, Reg, meta, th};
use nft::kernel::{Extent, MAX_ANSWER_BYTES, Nftables, ReadError, UpdateError};
use nft::{
    AnyElement, AnySet, BaseChain, Chain, Expression, HookPoint, Object, SetContents, TableFamily,
    Verdict, WholeTable,
};
use proptest::prelude::*;

const FIRST: Reg = Reg::of_word(0);

fn accept(port: u16) -> Vec<Expression> {
    let equal = Cmp::equal(FIRST, port.to_be_bytes());
    vec![th::dport(FIRST), equal, Immediate::verdict(Verdict::Accept)]
}

fn ports(set: AnySet, ports: &[u16]) -> SetContents {
    let elements = ports.iter().map(|port| AnyElement::new(port.to_be_bytes())).collect();
    SetContents { set, elements }
}

/// A table with a rule for each of the first ports, in order, and a set of the others.
fn table(name: &str, rules: &[u16], elements: &[u16]) -> WholeTable {
    let mut table = WholeTable::new(TableFamily::Inet, name);
    table.chains = vec![Chain::new("c")];
    rules.iter().for_each(|port| table.append_rule("c", accept(*port)));
    table.sets.push(ports(AnySet::of_types("s", "inet_service").unwrap(), elements));
    table
}

/// Lets every read fail that is longer than a generation.
fn reads_nothing(kernel: &mut Nftables) {
    kernel.set_max_answer(100);
}

fn has_read(result: &Result<Option<Difference>, UpdateError>) -> bool {
    matches!(result, Err(UpdateError::Read(ReadError::Endless { .. })))
}

#[track_caller]
fn assert_installed(desired: &WholeTable) {
    let mut reader = Nftables::open().unwrap();
    let read = reader.whole_table(desired.family, &desired.name, Extent::Whole).unwrap();
    let difference = desired.difference_from(read.as_ref()).unwrap();
    assert!(difference.is_empty(), "in the kernel is another table:\n{difference}");
}

#[test]
fn a_kept_table_is_not_read_again() {
    Namespace::new().run(|| {
        let mut kernel = Nftables::open().unwrap();
        kernel.update_and_keep(table("t", &[1, 2], &[1])).unwrap();
        kernel.update_and_keep(table("other", &[], &[])).unwrap();
        reads_nothing(&mut kernel);
        // A rule, an element of a set and a new set.
        let mut desired = table("t", &[1, 2, 3], &[2, 3]);
        desired.sets.push(ports(AnySet::of_types("new", "inet_service").unwrap(), &[]));
        let sent = kernel.update_and_keep(desired.clone()).unwrap().unwrap();
        assert_eq!(sent.len(), 4, "{sent}");
        assert_installed(&desired);
        assert!(kernel.update_and_keep(desired).unwrap().is_none());
        // The other table is as it was, in the generation after that commit.
        let other = table("other", &[4], &[]);
        assert_eq!(kernel.update_and_keep(other.clone()).unwrap().unwrap().len(), 1);
        assert_installed(&other);
        // All rules of a chain go without their handles.
        let empty = table("t", &[], &[]);
        kernel.update_and_keep(empty.clone()).unwrap().unwrap();
        assert_installed(&empty);
    });
}

#[test]
fn a_kept_table_is_read_after_another_commit_and_for_the_handle_of_a_new_rule() {
    Namespace::new().run(|| {
        let mut kernel = Nftables::open().unwrap();
        let first = table("t", &[1, 2], &[1]);
        kernel.update_and_keep(first.clone()).unwrap();
        let mut other = Nftables::open().unwrap();
        let deleted = table("t", &[9, 2], &[1, 7]);
        other.update(&deleted).unwrap();
        // Equal to what was kept, and another one than in the kernel.
        let mended = kernel.update_and_keep(first.clone()).unwrap().unwrap();
        assert_eq!(mended.len(), 3, "{mended}");
        assert_installed(&first);
        other.update(&deleted).unwrap();
        let next = table("t", &[1, 2, 3], &[1]);
        kernel.update_and_keep(next.clone()).unwrap().unwrap();
        assert_installed(&next);
        // A refused update leaves nothing that is kept.
        let mut refused = next.clone();
        refused.append_rule("c", vec![Immediate::verdict(Verdict::Jump("nowhere".into()))]);
        kernel.update_and_keep(refused).unwrap_err();
        kernel.update_and_keep(next).unwrap();

        // The rule of port 2 was read; that of port 5 was not.
        kernel.update_and_keep(table("t", &[1, 2, 3, 5], &[1])).unwrap().unwrap();
        reads_nothing(&mut kernel);
        kernel.update_and_keep(table("t", &[1, 3, 5], &[1])).unwrap().unwrap();
        let last = table("t", &[1, 3], &[1]);
        assert!(has_read(&kernel.update_and_keep(last.clone())));
        kernel.set_max_answer(MAX_ANSWER_BYTES);
        kernel.update_and_keep(last.clone()).unwrap().unwrap();
        assert_installed(&last);
        // A deleted table is not kept.
        assert!(kernel.delete_table(TableFamily::Inet, "t").unwrap());
        kernel.update_and_keep(last.clone()).unwrap().unwrap();
        assert_installed(&last);
        kernel.delete_table(TableFamily::Inet, "t").unwrap();
    });
}

#[test]
fn a_copy_of_a_table_with_an_owner_is_kept_without_it() {
    Namespace::new().run(|| {
        let mut kernel = Nftables::open().unwrap();
        let copied = |rules: &[u16]| WholeTable { owner: Some(1), ..table("t", rules, &[]) };
        kernel.update_and_keep(copied(&[1])).unwrap().unwrap();
        reads_nothing(&mut kernel);
        let next = copied(&[1, 2]);
        kernel.update_and_keep(next.clone()).unwrap().unwrap();
        assert_installed(&next);
    });
}

#[test]
fn an_update_without_keeping_ends_it() {
    Namespace::new().run(|| {
        let mut kernel = Nftables::open().unwrap();
        let desired = table("t", &[1], &[1]);
        kernel.update_and_keep(desired.clone()).unwrap().unwrap();
        assert!(kernel.update(&desired).unwrap().is_none());
        reads_nothing(&mut kernel);
        assert!(has_read(&kernel.update_and_keep(desired)));
    });
}

/// Tables that packets, times or devices change, and those with sets without a name of their own.
fn others() -> Vec<WholeTable> {
    let set = |flags: u32| {
        // Keys of two bytes would be in a bitmap, which rules cannot change.
        let mut set = AnySet::of_types("s2", "mark").unwrap();
        set.flags |= flags;
        let mut other = table("t", &[1], &[1]);
        other.sets.push(SetContents { set, elements: vec![AnyElement::new(vec![0, 0, 0, 1])] });
        other
    };
    let mut anonymous = set(AnySet::ANONYMOUS);
    anonymous.append_rule("c", vec![meta::mark(FIRST), Lookup::in_set("s2", FIRST)]);
    let mut by_rule = set(0);
    const UPDATE: u32 = 1;
    by_rule.append_rule("c", vec![meta::mark(FIRST), Dynset::new(UPDATE, "s2", FIRST).into()]);
    let mut with_device = WholeTable::new(TableFamily::Netdev, "t");
    with_device.chains.push(Chain::at_hook("c", BaseChain::at_ingress(["lo".into()], 0)));
    vec![set(AnySet::TIMEOUT), set(AnySet::DYNAMIC), anonymous, by_rule, with_device]
}

#[test]
fn tables_that_change_without_a_commit_are_read_each_time() {
    for other in others() {
        Namespace::new().run(|| {
            let mut kernel = Nftables::open().unwrap();
            kernel.update_and_keep(other.clone()).unwrap().unwrap();
            kernel.update_and_keep(other.clone()).unwrap();
            reads_nothing(&mut kernel);
            assert!(has_read(&kernel.update_and_keep(other.clone())), "{other:?} is kept");
        });
    }
}

/// What a program wants next: its rules and elements, whether it has a map of verdicts and a
/// counter, and whether another program changes the table before.
type Step = (Vec<u16>, Vec<u16>, bool, bool);

fn step() -> impl Strategy<Value = Step> {
    let ports = || prop::collection::vec(1_u16..8, 0..6);
    (ports(), ports(), any::<bool>(), prop::bool::weighted(0.2))
}

fn wanted((rules, elements, has_object, _): &Step) -> WholeTable {
    let mut wanted = table("t", rules, elements);
    if *has_object {
        let state = CounterExpression { bytes: 0, packets: 0 }.into();
        wanted.objects.push(Object::new("web", Object::COUNTER, state));
        let (object, kind) = (Some("web".to_owned()), Some(Object::COUNTER));
        let objref = Objref { object, kind, key: None, map: None };
        wanted.chains.push(Chain::at_hook("in", BaseChain::new("filter", HookPoint::Input, 0)));
        wanted.append_rule("in", vec![meta::l4proto(FIRST), objref.into()]);
    }
    wanted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_kept_table_becomes_what_is_wanted(steps in prop::collection::vec(step(), 1..12)) {
        Namespace::new().run(|| {
            let (mut kernel, mut other) = (Nftables::open().unwrap(), Nftables::open().unwrap());
            for step in &steps {
                if step.3 {
                    other.update(&table("t", &[1, 5, 2], &[3, 4])).unwrap();
                }
                let wanted = wanted(step);
                kernel.update_and_keep(wanted.clone()).unwrap();
                assert_installed(&wanted);
            }
        });
    }
}
