//! rustables as another program on the node: what it writes is refused, repaired, or read right.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::Ipv4Addr;
use std::time::Duration;

use netlink_tests::reader::{Family, Table as Tables};
use netlink_tests::scenario::{Manifests, Object, objects_for_every_chain};
use netlink_tests::{Host, Net, eventually};
use netlink_tests_interop::{TABLE, by_bindings, by_rustables, by_us};
use nft::expression::{self, Reg};
use nft::kernel::{ElementRead, Kernel, Nftables, Release};
use nft::{Rule as OurRule, Value, Verdict, key};
use rustables::error::QueryError;
use rustables::expr::{
    Cmp, CmpOp, HighLevelPayload, IPv4HeaderField, Immediate, NetworkHeaderField, VerdictKind,
};
use rustables::set::SetBuilder;
use rustables::{
    Batch, Chain, ChainPolicy, ChainType, Hook, HookClass, MsgType, ProtocolFamily, Rule, Table,
};

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

const EPERM: i32 = 1;

/// `NFT_TABLE_F_OWNER`.
const OWNER: u32 = 2;

fn manifests() -> Manifests {
    let objects = objects_for_every_chain();
    let named: Vec<(String, &dyn Object)> =
        objects.iter().enumerate().map(|(i, it)| (format!("object-{i}"), it.as_ref())).collect();
    let named: Vec<_> = named.iter().map(|(name, object)| (name.as_str(), *object)).collect();
    Manifests::new(&named)
}

/// Our IPv4 table without what the kernel numbers.
fn table(node: &Host) -> Tables {
    let mut table = node.read_table(Family::Ip).unwrap();
    for rule in table.chains.values_mut().flat_map(|chain| &mut chain.rules) {
        rule.handle = 0;
    }
    table
}

fn send(node: &Host, fill: impl FnOnce(&mut Batch) + Send) -> Result<(), QueryError> {
    node.run(|| {
        let mut batch = Batch::new();
        fill(&mut batch);
        batch.send()
    })
}

fn our_table() -> Table {
    Table::new(ProtocolFamily::Ipv4).with_name(TABLE)
}

fn chain(name: &str) -> Chain {
    Chain::new(&our_table()).with_name(name)
}

fn drop_all(chain: &str) -> Rule {
    Rule::new(&self::chain(chain)).unwrap().drop()
}

/// The key of some endpoint.
fn endpoint(table: &Tables) -> [u8; 12] {
    table.sets["endpoints"].elements[0].key.clone().try_into().unwrap()
}

fn delete_endpoint(batch: &mut Batch, key: &[u8; 12]) {
    let mut elements = SetBuilder::new("endpoints", &our_table()).unwrap();
    elements.add(key);
    batch.add(&elements.finish().1, MsgType::Del);
}

/// Everything that it can do to our table.
fn write_all(batch: &mut Batch, key: &[u8; 12]) {
    batch.add(&chain("intruder"), MsgType::Add);
    batch.add(&drop_all("choose"), MsgType::Add);
    delete_endpoint(batch, key);
}

#[test]
fn its_writes_are_refused_while_the_daemon_lives() {
    if Release::running().is_none_or(|release| release < Release::PERSISTENT_OWNERSHIP) {
        return;
    }
    let (net, manifests) = (Net::new(), manifests());
    let _daemon = manifests.run(net.node());
    let owned = || {
        let table = net.node().read_table(Family::Ip)?;
        (table.flags & OWNER != 0 && !table.sets["endpoints"].elements.is_empty()).then_some(())
    };
    eventually("an owned table", SOON, owned);
    let before = net.node().read_table(Family::Ip);
    let key = endpoint(before.as_ref().unwrap());
    let refused = |what: &str, fill: &(dyn Fn(&mut Batch) + Sync)| {
        match send(net.node(), fill) {
            Err(QueryError::NetlinkError(error)) => assert_eq!(error.error, EPERM, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(net.node().read_table(Family::Ip), before, "{what}");
    };
    refused("a chain", &|batch| batch.add(&chain("intruder"), MsgType::Add));
    refused("a rule", &|batch| batch.add(&drop_all("choose"), MsgType::Add));
    refused("no chain", &|batch| batch.add(&chain("choose"), MsgType::Del));
    refused("no element", &|batch| delete_endpoint(batch, &key));
    refused("no table", &|batch| batch.add(&our_table(), MsgType::Del));
}

#[test]
fn its_changes_to_a_table_that_nobody_owns_are_undone() {
    let (net, manifests) = (Net::new(), manifests());
    let _ = manifests.once(net.node(), "apply").ok();
    let before = table(net.node());
    let key = endpoint(&before);
    let change = || {
        send(net.node(), |batch| write_all(batch, &key)).unwrap();
        let after = table(net.node());
        assert!(after.chains.contains_key("intruder"));
        assert_eq!(after.chains["choose"].rules.len(), before.chains["choose"].rules.len() + 1);
        assert_eq!(
            after.sets["endpoints"].elements.len(),
            before.sets["endpoints"].elements.len() - 1
        );
    };
    let await_repair =
        || eventually("repair", SOON, || (table(net.node()) == before).then_some(()));
    change();
    let _ = manifests.once(net.node(), "apply").ok();
    assert_eq!(table(net.node()), before);

    // At a start, and while the daemon runs if it could not become the owner.
    change();
    let _daemon = manifests.run(net.node());
    let without_flags = || {
        let mut now = table(net.node());
        now.flags = before.flags;
        now
    };
    eventually("repair at the start", SOON, || (without_flags() == before).then_some(()));
    if net.node().read_table(Family::Ip).unwrap().flags & OWNER == 0 {
        change();
        await_repair();
    }
}

#[test]
fn our_decoder_reads_what_it_writes() {
    let net = Net::new();
    let table = Table::new(ProtocolFamily::Ipv4).with_name("interop");
    let base = |name: &str, kind, class, priority| {
        let chain = Chain::new(&table).with_name(name).with_hook(Hook::new(class, priority));
        chain.with_type(kind).with_policy(ChainPolicy::Accept)
    };
    let inner = Chain::new(&table).with_name("inner");
    let mut addresses = SetBuilder::new("addresses", &table).unwrap();
    let members = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    members.iter().for_each(|address| addresses.add(address));
    let (mut set, elements) = addresses.finish();
    // rustables leaves both out, and the kernel wants them.
    (set.family, set.id) = (ProtocolFamily::Ipv4, Some(1));
    let daddr = HighLevelPayload::Network(NetworkHeaderField::IPv4(IPv4HeaderField::Daddr));
    let jump = VerdictKind::Jump { chain: "inner".to_owned() };
    let filter = base("filter", ChainType::Filter, HookClass::In, -150);
    let rules = [
        Rule::new(&filter).unwrap().with_expr(Immediate::new_verdict(jump)),
        Rule::new(&inner)
            .unwrap()
            .with_expr(daddr.build())
            .with_expr(Cmp::new(CmpOp::Eq, [10, 96, 0, 10]))
            .with_expr(Immediate::new_verdict(VerdictKind::Drop)),
    ];
    let sent = send(net.node(), |batch| {
        batch.add(&table, MsgType::Add);
        batch.add(&filter, MsgType::Add);
        batch.add(&base("nat", ChainType::Nat, HookClass::PostRouting, 100), MsgType::Add);
        batch.add(&inner, MsgType::Add);
        batch.add(&set, MsgType::Add);
        batch.add(&elements, MsgType::Add);
        rules.iter().for_each(|rule| batch.add(rule, MsgType::Add));
    });
    sent.unwrap();

    let ours = net.node().run(|| by_us::read(Family::Ip, "interop"));
    assert_eq!(ours.chains["filter"].hook, Some((1, -150)));
    assert_eq!(ours.chains["nat"].hook, Some((4, 100)));
    assert_eq!(ours, net.node().run(|| by_bindings::read(Family::Ip, "interop")));
    ours.check(&net.node().run(|| by_rustables::read(Family::Ip, "interop")));

    let rule = |chain: &'static str, expressions| OurRule {
        chain: chain.into(),
        expressions,
        comment: None,
    };
    let address = Reg::of_word(0);
    let load = expression::ip::daddr(address);
    let compare = expression::Cmp::equal(address, [10, 96, 0, 10]);
    let verdict = expression::Immediate::verdict;
    let expected = [
        rule("filter", vec![verdict(Verdict::Jump("inner".into()))]),
        rule("inner", vec![load, compare, verdict(Verdict::Drop)]),
    ];
    let (found, keys) = net.node().run(|| {
        let mut kernel = Nftables::open().unwrap();
        let reference = by_us::reference(Family::Ip, "interop");
        let contents = kernel.read_table(&reference).unwrap().unwrap();
        let mut keys = Vec::new();
        let mut keep = |read: ElementRead<'_>| {
            if let ElementRead::Element(element) = read {
                keys.push(element.to_element().unwrap().key);
            }
        };
        kernel.read_elements(&reference, "addresses", &mut keep).unwrap();
        (contents.rules, keys)
    });
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.chain, expected.chain);
        assert!(expected.is_listed_as(found), "{found:?}");
    }
    let mut expected = members.map(|address| Value::from_bytes(&address.octets()).unwrap());
    let mut keys = keys;
    keys.sort_by_key(|key| key.as_bytes().to_vec());
    expected.sort_by_key(|key| key.as_bytes().to_vec());
    assert_eq!(keys, expected);
}
