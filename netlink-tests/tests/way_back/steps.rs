//! The steps of a handover: what happens between them, and that the new table is the old one.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use daemon::handover::{
    HANDOVER_TABLE, HandoverError, Purpose, Replace, Replacing, Step, hand_over,
    remove_handover_tables,
};
use engine::KnownElements;
use engine::ruleset::{self, Layouts, SetId};
use netlink_tests::scenario::{
    self, Lab, NODE_PORT, Race, Sent, Service, Slice, WEB, Way, keeps_source, masquerades, slice,
    web_with_node_port,
};
use netlink_tests::{Answer, Host, kernel_has_owners, nft_available};
use nft::family::Family;
use nft::kernel::{ElementRead, Extent, Kernel, Nftables};
use nft::{Chain, Element, Operation, Set, TableFlags, TableRef, Transaction, Value, WholeTable};
use serde_json::json;

use super::Cluster;

/// The elements that need not be listed.
type Known = [Option<KnownElements>; 2];

/// Each handover replaces both tables, while new connections are opened without a pause.
#[test]
fn no_flow_is_lost_during_handovers() {
    let mut lab = Lab::new();
    let objects = web_with_node_port();
    let _ = lab.apply(&[&objects, &slice("a b c")]);
    let node = lab.world.node().clone();
    let servers = ["a b c"];
    let ways = [("pod", WEB), ("node", WEB), ("outside", NODE_PORT), ("pod", NODE_PORT)];
    let ways = ways.map(|(client, to)| Way::new(client, to, &servers));
    let is_replaceable = kernel_has_owners();
    Race { ways: &ways, commits: 8, burst: 1, replaces_tables: false }.run(lab, |_, state| {
        let persist = state % 2 == 0 && is_replaceable;
        node.run(|| {
            let mut kernel = Nftables::open().unwrap();
            let changed = if is_replaceable {
                change_flags(&mut kernel, TableFlags { owner: false, persist }, [None, None])
            } else {
                hand_over(&mut kernel, [None, None], &|| false).unwrap().len()
            };
            assert_eq!(changed, if is_replaceable { Family::ALL.len() } else { 0 });
            let _ = remove_handover_tables(&mut kernel).unwrap();
        });
        // Counts as a commit.
        Sent { transactions: vec![Transaction::default()], ..Sent::default() }
    });
}

/// Gives both tables these flags; returns how many had others.
fn change_flags(kernel: &mut Nftables, flags: TableFlags, known: Known) -> usize {
    let purpose = Purpose::Flags(flags);
    let mut changed = 0;
    for (family, known) in Family::ALL.into_iter().zip(known) {
        let listed = Replacing::list(kernel, (family, purpose), known, &|| false).unwrap();
        let Some(mut replacing) = listed else { continue };
        while replacing.step(kernel).unwrap() != Step::Done {}
        changed += 1;
    }
    changed
}

const PERSISTENT: TableFlags = TableFlags { owner: false, persist: true };

/// Lists the IPv4 table, which is to persist.
fn listed(kernel: &mut Nftables) -> Replacing {
    let purpose = Purpose::Flags(PERSISTENT);
    Replacing::list(kernel, (Family::Ip, purpose), None, &|| false).unwrap().unwrap()
}

#[test]
fn an_interrupted_handover_changes_nothing() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let _ = cluster.manifests.once(cluster.node(), "apply").ok();
    let before = cluster.node().nft("-a list ruleset");
    // The second time, the first set is listed already.
    for most in 0..2 {
        let calls = AtomicUsize::new(0);
        let interrupted = || calls.fetch_add(1, Ordering::Relaxed) >= most;
        let mut kernel = cluster.node().run(|| Nftables::open().unwrap());
        let purpose = Purpose::Flags(PERSISTENT);
        let listed = Replacing::list(&mut kernel, (Family::Ip, purpose), None, &interrupted);
        assert!(matches!(listed, Err(HandoverError::Interrupted)));
        assert_eq!(cluster.node().nft("-a list ruleset"), before);
    }
    let mut kernel = cluster.node().run(|| Nftables::open().unwrap());
    let mut replacing = listed(&mut kernel);
    for _ in 0..2 {
        assert_eq!(replacing.step(&mut kernel).unwrap(), Step::Copied);
    }
    assert!(cluster.has_table(HANDOVER_TABLE));
    assert_eq!(remove_handover_tables(&mut kernel).unwrap().len(), 1);
    assert_eq!(cluster.node().nft("-a list ruleset"), before);
}

/// A daemon that is killed after any step leaves a table that serves for much longer than the minute
/// after its regular end.
#[test]
fn a_kill_between_two_steps_of_the_end_takes_no_service_away() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    add_many(&mut kernel, 5_000);
    let _ = change_flags(&mut kernel, PERSISTENT, [None, None]);
    let node = cluster.node();
    let steps = cluster.under_traffic(|| {
        let list = (Family::Ip, Purpose::Leave);
        let mut leaving = Replacing::list(&mut kernel, list, None, &|| false).unwrap().unwrap();
        let mut serving = 0;
        while leaving.step(&mut kernel).unwrap() != Step::Done {
            let own = node.nft("-t list table ip kube-proxy");
            if own.contains("type nat hook prerouting") && own.contains("map @services jump") {
                continue;
            }
            serving += 1;
            let endpoints = node.nft("-t list map ip deltaproxy-handover endpoints");
            assert!(endpoints.contains("timeout 1h"), "{endpoints}");
            let cluster_ips = node.nft("list set ip deltaproxy-handover cluster-ips");
            let is_unlimited = cluster_ips.contains("0.0.0.0 expires");
            assert!(is_unlimited && cluster_ips.contains("timeout 1h"), "{cluster_ips}");
            cluster.all_reach("a");
        }
        serving
    });
    assert!(steps > 1, "{steps}");
    // From the end on, the table itself serves. The handover table leaves all packets alone later.
    cluster.all_reach("a");
    let cluster_ips = node.nft("list set ip deltaproxy-handover cluster-ips");
    assert!(cluster_ips.contains("0.0.0.0 timeout 1m expires"), "{cluster_ips}");
    node.nft("delete table ip kube-proxy");
    let unknown_port = || cluster.clients[1].connect_tcp("10.96.0.10:81");
    assert_eq!(unknown_port(), Answer::Refused);
    node.nft("delete element ip deltaproxy-handover cluster-ips { 0.0.0.0 }");
    assert!(matches!(unknown_port(), Answer::Unreachable(_)), "the node has no route");
}

/// While the handover table serves, a change of elements takes effect at once, and the new table has
/// it too.
#[test]
fn changes_between_the_steps_of_a_handover_take_effect_at_once_and_stay() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    add_many(&mut kernel, 5_000);
    let before = counts(&mut kernel);
    let (mut changes, mut at_once) = (0, 0);
    cluster.under_traffic(|| {
        let mut replacing = listed(&mut kernel);
        while replacing.step(&mut kernel).unwrap() == Step::Copied {}
        loop {
            let found = change_between_steps((&mut replacing, &mut kernel), changes);
            changes += 1;
            at_once += u32::from(found);
            if replacing.step(&mut kernel).unwrap() == Step::Done {
                break;
            }
        }
    });
    assert!(changes > 5 && at_once >= changes - 2, "{at_once} of {changes}");
    assert_eq!(counts(&mut kernel), [before[0] + 5 * changes - 4, before[1] + changes]);
    let contents = kernel.read_table(&ruleset::table(Family::Ip)).unwrap().unwrap();
    assert_eq!(contents.table.flags, PERSISTENT);
    assert!(!cluster.has_table(HANDOVER_TABLE));
    cluster.all_reach("a");
}

/// Packets write the clients of session affinity, before and while the handover table serves.
#[test]
fn clients_keep_the_endpoints_that_they_got_before_and_during_a_handover() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let sticky = web_with_node_port().spec("sessionAffinity", json!("ClientIP"));
    cluster.manifests.write("web", &sticky);
    cluster.manifests.set_endpoints("a b");
    let mut kernel = cluster.kernel_after_apply();
    let ask = |client: &Host| client.connect_tcp(WEB).server().to_owned();
    let before = ask(&cluster.clients[0]);
    let mut replacing = listed(&mut kernel);
    while replacing.step(&mut kernel).unwrap() == Step::Copied {}
    let contents = kernel.read_table(&ruleset::table(Family::Ip)).unwrap().unwrap();
    assert!(contents.chains.iter().all(|chain| chain.base.is_none()), "packets enter our table");
    let during = ask(&cluster.clients[1]);
    while replacing.step(&mut kernel).unwrap() != Step::Done {}
    assert_eq!(count(&mut kernel, SetId::AffinityClients), 2);
    for _ in 0..10 {
        assert_eq!(cluster.clients.each_ref().map(ask), [before.clone(), during.clone()]);
    }
}

/// Other transactions than those of elements, and those that the kernel refuses, are for our table.
#[test]
fn another_commit_between_the_steps_of_a_handover_completes_the_new_table_first() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    let table = ruleset::table(Family::Ip);
    let [_, (set, elements)] = many(0..1);
    let other = Operation::AddChain(table.clone(), Chain::new("other"));
    let refused = Operation::DeleteElements(table.clone(), set, elements.into());
    for (operation, is_applied, persist) in [(other, true, true), (refused, false, false)] {
        let purpose = Purpose::Flags(TableFlags { owner: false, persist });
        let listed = Replacing::list(&mut kernel, (Family::Ip, purpose), None, &|| false);
        let mut replacing = listed.unwrap().unwrap();
        cluster.under_traffic(|| {
            while replacing.step(&mut kernel).unwrap() == Step::Copied {}
            let transaction = Transaction { operations: vec![operation] };
            assert_eq!(replacing.commit(&mut kernel, &transaction).is_ok(), is_applied);
            let contents = kernel.read_table(&table).unwrap().unwrap();
            assert_eq!(contents.table.flags.persist, persist);
            assert!(contents.chains.iter().any(|chain| &*chain.name == "other"));
            while replacing.step(&mut kernel).unwrap() != Step::Done {}
        });
        assert!(!cluster.has_table(HANDOVER_TABLE));
    }
}

#[test]
fn a_replaced_table_differs_in_its_flags_only() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    let (flags, before) = whole_table(&mut kernel);
    assert_eq!(change_flags(&mut kernel, PERSISTENT, [None, None]), Family::ALL.len());
    let (persistent, after) = whole_table(&mut kernel);
    assert_eq!((flags, persistent), (0, PERSISTENT.bits()));
    let difference = after.difference_from(Some(&before)).unwrap();
    assert!(difference.is_empty(), "{difference}");
    assert_eq!(after.chains, before.chains);
}

/// The flags of the IPv4 table and all else of it. Handles of rules are no difference.
fn whole_table(kernel: &mut Nftables) -> (u32, WholeTable) {
    let table = ruleset::table(Family::Ip);
    let read = kernel.whole_table(table.family, &table.name, Extent::Whole).unwrap().unwrap();
    (read.flags, WholeTable { flags: 0, generation: None, ..read })
}

/// Elements that the engine knows need no list, also while there are as many as fill several pieces.
#[test]
fn a_table_is_replaced_with_the_elements_that_the_engine_knows() {
    if !kernel_has_owners() {
        return;
    }
    let mut lab = Lab::new();
    let many: Vec<_> = (0..5_000).map(|n| format!("10.1.{}.{}", n / 250, n % 250 + 1)).collect();
    let many = Slice::new("many").only(scenario::Family::Ipv4).endpoints(&many.join(" "));
    let service = Service::new("many", "10.96.0.11").port(80);
    let _ = lab.apply(&[&web_with_node_port(), &slice("a b c"), &service, &many]);
    let known = || Family::ALL.map(|family| lab.proxy.known_elements(family));
    let mut kernel = lab.world.node().run(|| Nftables::open().unwrap());
    let (_, before) = whole_table(&mut kernel);
    let of_ip = before.set(SetId::Endpoints.name()).unwrap().elements.len();
    assert!(of_ip > 5_000 && known()[0].as_ref().unwrap().count(SetId::Endpoints) == of_ip);
    assert_eq!(change_flags(&mut kernel, PERSISTENT, known()), Family::ALL.len());
    let (persistent, after) = whole_table(&mut kernel);
    assert_eq!(persistent, PERSISTENT.bits());
    let difference = after.difference_from(Some(&before)).unwrap();
    assert!(difference.is_empty(), "{difference}");
    // An element that only the kernel has is lost, because the endpoints are not listed.
    let [(set, last), _] = self::many(0..1);
    kernel
        .commit(&Transaction {
            operations: vec![Operation::AddElements(ruleset::table(Family::Ip), set, last.into())],
        })
        .unwrap();
    // An end that has no time for both tables frees the one with fewer endpoints.
    let open = || lab.world.node().run(|| Nftables::open().unwrap());
    let observer = RefCell::new(open());
    let flags = |family| {
        let table = ruleset::table(family);
        let read = observer.borrow_mut().whole_table(table.family, &table.name, Extent::Structure);
        read.unwrap().unwrap().flags
    };
    let interrupted = hand_over(&mut kernel, known(), &|| flags(Family::Ip6) == 0);
    assert!(matches!(interrupted, Err(HandoverError::Interrupted)), "{interrupted:?}");
    assert_eq!(Family::ALL.map(flags), [PERSISTENT.bits(), 0]);
    let mut kernel = open();
    assert_eq!(hand_over(&mut kernel, known(), &|| false).unwrap(), [Family::Ip]);
    let (_, freed) = whole_table(&mut kernel);
    let elements = |table: &WholeTable| table.set(SetId::Endpoints.name()).unwrap().elements.len();
    assert_eq!(elements(&freed), of_ip);
    let copy = kernel.whole_table(Family::Ip.into(), HANDOVER_TABLE, Extent::Whole).unwrap();
    assert_eq!(elements(&copy.unwrap()), of_ip);
    lab.check(&[("pod", WEB, keeps_source("a b c")), ("outside", NODE_PORT, masquerades("a b c"))]);
}

/// Adds a service, and removes endpoints of another one. Returns whether the handover table has the
/// new frontend. A commit is one generation, so nothing else was done before it.
fn change_between_steps((replacing, kernel): (&mut Replacing, &mut Nftables), number: u32) -> bool {
    let before = kernel.generation().unwrap();
    let table = ruleset::table(Family::Ip);
    let new = many(MANY + number..MANY + number + 1);
    let key = new[1].1[0].key.clone();
    let mut operations: Vec<_> =
        new.map(|(set, new)| Operation::AddElements(table.clone(), set, new.into())).into();
    // The new table must get these in the same order.
    let [(set, mut slots), _] = many(0..1);
    let _ = slots.remove(0);
    if number > 0 {
        operations.push(Operation::AddElements(
            table.clone(),
            Arc::clone(&set),
            slots.clone().into(),
        ));
    }
    operations.push(Operation::DeleteElements(table, set, slots.into()));
    let commit = Transaction { operations };
    replacing.commit(kernel, &commit).unwrap();
    assert_eq!(kernel.generation().unwrap().0, before.0 + 1);
    let handover = TableRef::new(Family::Ip, HANDOVER_TABLE);
    let found = kernel.find_elements(&handover, SetId::Services.name(), &[key], &mut |_| {});
    found.unwrap() == 1
}

/// Services beside `web`, each with five endpoints.
const MANY: u32 = 50_000;

#[test]
fn fifty_thousand_services_are_handed_over_without_a_failed_connection() {
    let cluster = Cluster::new();
    let applied = cluster.manifests.once(cluster.node(), "apply");
    assert_eq!(applied.code(), Some(0), "{}", applied.stderr);
    cluster.all_reach("a");
    let mut kernel = cluster.node().run(|| Nftables::open().unwrap());
    add_many(&mut kernel, MANY);
    let before = counts(&mut kernel);
    assert!(before[0] > 5 * MANY, "{before:?}");
    let flags = TableFlags { owner: false, persist: kernel_has_owners() };
    let _ = cluster.under_traffic(|| change_flags(&mut kernel, flags, [None, None]));
    assert_eq!(counts(&mut kernel), before);
    let _ = cluster.under_traffic(|| hand_over(&mut kernel, [None, None], &|| false).unwrap());
    assert_eq!(counts(&mut kernel), before);
    cluster.under_traffic(|| remove_handover_tables(&mut kernel).unwrap());
    cluster.all_reach("a");
}

/// Adds so many services.
fn add_many(kernel: &mut Nftables, services: u32) {
    for first in (0..services).step_by(1_000) {
        let table = ruleset::table(Family::Ip);
        let elements = many(first..first + 1_000);
        let add = |(set, elements): (_, Vec<_>)| {
            Operation::AddElements(table.clone(), set, elements.into())
        };
        kernel.commit(&Transaction { operations: elements.map(add).into() }).unwrap();
    }
}

/// Elements as services have them, of lists that no frontend of `web` names: endpoints, and
/// frontends.
fn many(numbers: Range<u32>) -> [(Arc<Set>, Vec<Element>); 2] {
    let list = |number: u32| (number + 0x1_0000) << 8;
    let frontend = |number: u32| {
        let address = Ipv4Addr::from(0x0a61_0000 + number);
        Element::with_value(
            Value::new().ip(address.into()).proto(TCP).port(80),
            Value::new().class_id(list(number) | 5),
        )
    };
    let slot = |number: u32, slot: u32| {
        let pod = Ipv4Addr::from(0x0af8_0000 + number % 0xff00);
        Element::with_value(
            Value::new().class_id(list(number)).proto(TCP).integer(slot),
            Value::new().ip(pod.into()).port(8080),
        )
    };
    let sets = Layouts::default();
    let set = |id| Arc::clone(sets.of(Family::Ip).get(id));
    let slots = numbers.clone().flat_map(|number| (0..5).map(move |at| slot(number, at)));
    [
        (set(SetId::Endpoints), slots.collect()),
        (set(SetId::Services), numbers.map(frontend).collect()),
    ]
}

/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// The elements of the two largest sets of the IPv4 table.
fn counts(kernel: &mut Nftables) -> [u32; 2] {
    [SetId::Endpoints, SetId::Services].map(|set| count(kernel, set))
}

/// The elements of a set of the IPv4 table.
fn count(kernel: &mut Nftables, set: SetId) -> u32 {
    let mut count = 0;
    let mut each = |read: ElementRead<'_>| match read {
        ElementRead::Start => count = 0,
        ElementRead::Element(_) => count += 1,
    };
    kernel.read_elements(&ruleset::table(Family::Ip), set.name(), &mut each).unwrap();
    count
}
