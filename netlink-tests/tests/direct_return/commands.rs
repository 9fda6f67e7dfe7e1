//! `verify`, `plan`, `apply`, `cleanup` and `show` beside table direct-return.

use engine::direct::ruleset::{DirectElement, table};
use netlink_tests::Finished;
use netlink_tests::cluster::{Cluster, slice, web};
use netlink_tests::scenario::Service;
use nft::kernel::{Kernel as _, Nftables};
use nft::{Operation, Transaction};

use crate::cluster;

const EQUAL: &str = "the tables are as desired: 1 services\n";

#[track_caller]
fn assert_prints(finished: &Finished, code: i32, lines: &[&str]) {
    assert_eq!(finished.code(), Some(code), "{}{}", finished.stdout, finished.stderr);
    let missing = lines.iter().find(|line| !finished.stdout.contains(**line));
    assert_eq!(missing, None, "{}", finished.stdout);
}

/// Whether the table exists on the first node.
fn has_table(cluster: &Cluster) -> bool {
    cluster.node(0).run(|| Nftables::open().unwrap().read_table(&table()).unwrap().is_some())
}

/// Removes the elements that are chosen from the table of the first node.
fn remove(cluster: &Cluster, is_chosen: impl Fn(&DirectElement) -> bool) {
    let elements = cluster.elements(0);
    let operations = elements.iter().filter(|element| is_chosen(element)).map(|element| {
        let set = std::sync::Arc::new(element.set().set(0));
        Operation::DeleteElements(table(), set, [element.to_key()].into())
    });
    let transaction = Transaction { operations: operations.collect() };
    assert!(!transaction.operations.is_empty());
    cluster.node(0).run(|| Nftables::open().unwrap().commit(&transaction).unwrap());
}

#[test]
fn the_table_of_a_running_daemon_is_as_desired_wherever_the_endpoints_are() {
    let cluster = cluster();
    for servers in ["a1 b1 b2 c1", "b1", "a1 a2"] {
        cluster.apply("slice", &slice(servers));
        let mut nodes: Vec<_> = servers.split(' ').filter_map(|it| it.get(..1)).collect();
        nodes.dedup();
        cluster.wait_for_slots_everywhere(&nodes.concat());
        for place in 0..3 {
            assert_prints(&cluster.on_manifests(place, "verify", &[]), 0, &[EQUAL]);
        }
        assert_prints(&cluster.on_manifests(0, "plan", &[]), 0, &["nothing would change"]);
    }
}

#[test]
fn the_table_of_a_service_whose_connections_are_being_learned_is_as_desired() {
    let cluster = Cluster::new("mode: annotated");
    let translated: Service = web().annotation("deltaproxy.io/forwarding", "translate");
    cluster.apply("web", &translated);
    cluster.apply("slice", &slice("a1 b1"));
    cluster.wait_for_slots_everywhere("");
    assert_prints(&cluster.on_manifests(1, "verify", &[]), 0, &[EQUAL]);
    cluster.apply("web", &web());
    cluster.wait_for_slots(0, "a");
    assert_prints(&cluster.on_manifests(0, "verify", &[]), 0, &[EQUAL]);
}

#[test]
fn what_another_program_removed_from_the_table_is_a_difference_of_its_service() {
    let mut cluster = cluster();
    cluster.kill(0);
    assert_prints(&cluster.on_manifests(0, "verify", &[]), 0, &[EQUAL]);
    let of_slot_7 = |element: &DirectElement| matches!(element, DirectElement::Slot(_, 7, _));
    remove(&cluster, of_slot_7);
    let slots = ["default/web: 6 differences\n", "  + add element netdev direct-return nodes { "];
    assert_prints(&cluster.on_manifests(0, "verify", &[]), 1, &slots);
    let commands = cluster.on_manifests(0, "plan", &[]);
    assert_eq!(commands.stdout.lines().count(), 6, "{}", commands.stdout);
    let json = ["\"services\":{\"default/web\":{\"added\":6,\"removed\":0}}"];
    assert_prints(&cluster.on_manifests(0, "plan", &["--output", "json"]), 1, &json);

    cluster.start(0);
    cluster.kill(0);
    remove(&cluster, |element| matches!(element, DirectElement::NodeDevice(..)));
    let of_nodes = ["of no service: 2 differences\n", "direct-return node-devices { "];
    assert_prints(&cluster.on_manifests(0, "verify", &[]), 1, &of_nodes);
}

#[test]
fn show_marks_the_addresses_whose_packets_nodes_hand_to_each_other() {
    let mut cluster = cluster();
    let shown = cluster.command(0, &["show", "default/web"]);
    assert_prints(
        &shown,
        0,
        &["  198.51.100.2:80/tcp  external address, external policy Cluster, "],
    );
    let of = |address: &str| {
        let lines = shown.stdout.lines().filter(|line| line.trim_start().starts_with(address));
        lines.map(|line| line.contains(", direct return")).collect::<Vec<_>>()
    };
    assert_eq!(of("198.51.100.2:80/"), [true; 3], "{}", shown.stdout);
    assert_eq!(of("10.96."), [false; 3], "{}", shown.stdout);
    cluster.kill(0);
    let _ = cluster.on_manifests(0, "apply", &[]);
    let translated = cluster.command(0, &["show", "default/web"]);
    assert!(!translated.stdout.contains("direct return"), "{}", translated.stdout);
}

#[test]
fn a_node_that_went_is_a_difference_and_a_mode_that_is_turned_on_is_planned() {
    let mut cluster = cluster();
    cluster.kill(0);
    let gone = netlink_tests::scenario::Node::named("node-b").ready(false);
    let gone = gone.addresses(&[cluster.node(1).ip().into(), cluster.node(1).ip6().into()]);
    cluster.apply("node-b", &gone);
    let verified = cluster.on_manifests(0, "verify", &[]);
    assert_prints(&verified, 1, &["default/web: ", "- delete element netdev direct-return node-"]);

    assert_prints(&cluster.command(0, &["cleanup"]), 0, &["delete table netdev direct-return\n"]);
    let planned = cluster.on_manifests(0, "plan", &[]);
    let lines = [
        "+ add table netdev direct-return {",
        "+ add element netdev direct-return addresses4 { 198.51.100.2 }\n",
    ];
    assert_prints(&planned, 1, &lines);
    assert!(!has_table(&cluster));
}

#[test]
fn without_the_mode_the_table_is_a_difference_and_cleanup_removes_it() {
    let mut cluster = cluster();
    cluster.kill(0);
    let lines = ["of no service: ", "  - delete table netdev direct-return\n"];
    assert_prints(&cluster.without_config(0, "verify", &[]), 1, &lines);
    assert_prints(
        &cluster.without_config(0, "plan", &[]),
        1,
        &["- delete table netdev direct-return\n"],
    );
    assert!(has_table(&cluster));
    assert_prints(&cluster.command(0, &["cleanup"]), 0, &["delete table netdev direct-return\n"]);
    assert!(!has_table(&cluster));
}

#[test]
fn apply_translates_and_removes_the_table() {
    let mut cluster = cluster();
    cluster.kill(0);
    let applied = cluster.on_manifests(0, "apply", &[]);
    assert_prints(&applied, 0, &["deltable     1\n"]);
    let warning = "direct return needs a daemon: all packets are translated on this node";
    assert!(applied.stderr.contains(warning), "{}", applied.stderr);
    assert!(!has_table(&cluster));
    let again = cluster.on_manifests(0, "apply", &[]);
    assert_prints(&again, 0, &["nothing to do: the tables are as desired\n"]);
}
