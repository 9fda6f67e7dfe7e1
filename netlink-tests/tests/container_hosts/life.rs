//! What happens to a program and to our daemon on a node, in an order that has every pair of states.

use netlink_tests::eventually;

use crate::cluster::{Cluster, Ownership};
use crate::machine::SOON;

/// A program beside our tables.
pub(crate) trait Neighbour {
    /// Starts it. A former start may have left rules.
    fn start(&mut self, cluster: &Cluster);

    /// Lets it read its configuration again, or write its rules again.
    fn reload(&mut self, cluster: &Cluster);

    /// Ends it.
    fn stop(&mut self, cluster: &Cluster);

    /// What it does for packets works.
    fn assert_works(&self, cluster: &Cluster, when: &str);

    /// Another program removed its rules, and a reload does not bring them back.
    fn assert_lost(&mut self, _: &Cluster) {}

    /// Does what an operator does after another program removed its rules.
    fn restore(&mut self, cluster: &Cluster) {
        self.reload(cluster);
    }
}

#[track_caller]
fn assert_both_work(cluster: &Cluster, neighbour: &dyn Neighbour, when: &str) {
    cluster.assert_serves(when);
    neighbour.assert_works(cluster, when);
}

/// The program at its start, reload and end, while our daemon runs, after it was killed and after it
/// ended; and our daemon at its start and end, while the program runs. Both work all the time, and
/// neither changes rules of the other.
#[track_caller]
pub(crate) fn live_beside(ownership: Ownership, neighbour: &mut dyn Neighbour) {
    let Some(mut cluster) = Cluster::new(ownership) else { return };
    let cluster = &mut cluster;
    cluster.start();
    cluster.assert_serves("alone");
    neighbour.start(cluster);
    assert_both_work(cluster, neighbour, "started beside the daemon");
    neighbour.reload(cluster);
    assert_both_work(cluster, neighbour, "reloaded beside the daemon");

    let rules = cluster.machine.rules();
    cluster.kill();
    assert_eq!(cluster.machine.rules(), rules, "a kill of the daemon");
    assert_tables_refuse_additions(cluster);
    assert_both_work(cluster, neighbour, "after a kill");
    neighbour.reload(cluster);
    assert_both_work(cluster, neighbour, "reloaded after a kill");
    neighbour.stop(cluster);
    cluster.assert_serves("the program ended after a kill");
    neighbour.start(cluster);
    assert_both_work(cluster, neighbour, "started after a kill");

    let rules = cluster.machine.rules();
    cluster.start();
    assert_eq!(cluster.machine.rules(), rules, "a start of the daemon");
    assert_both_work(cluster, neighbour, "the daemon started");
    cluster.terminate();
    assert_eq!(cluster.machine.rules(), rules, "an end of the daemon");
    assert_both_work(cluster, neighbour, "the daemon ended");
    neighbour.reload(cluster);
    assert_both_work(cluster, neighbour, "reloaded after the end of the daemon");
    cluster.start();
    flush(cluster, neighbour);

    neighbour.stop(cluster);
    cluster.assert_serves("the program ended");
    cluster.kill();
    let _ = cluster.machine.ok("nft flush ruleset");
    neighbour.start(cluster);
    cluster.start();
    assert_both_work(cluster, neighbour, "the program was first");
    neighbour.stop(cluster);
    cluster.assert_serves("at the end");
}

/// After a kill the tables have an owner that is gone. `add table` names no owner.
#[track_caller]
fn assert_tables_refuse_additions(cluster: &Cluster) {
    let added = cluster.machine.run("nft add table ip kube-proxy");
    let is_refused = added.stderr.contains("Operation not supported");
    assert_eq!(is_refused, cluster.ownership == Ownership::On, "{}", added.stderr);
}

/// `nft flush ruleset`, as a reload of nftables.service does it.
#[track_caller]
fn flush(cluster: &Cluster, neighbour: &mut dyn Neighbour) {
    if cluster.ownership == Ownership::On {
        // After the end of another daemon it takes the tables over first, and owns them later.
        eventually("owned tables", SOON, || cluster.owns_tables().then_some(()));
    }
    let _ = cluster.machine.ok("nft flush ruleset");
    match cluster.ownership {
        Ownership::On => cluster.assert_serves("nft flush ruleset spares owned tables"),
        Ownership::Off => cluster.wait_until_complete(),
    }
    neighbour.assert_lost(cluster);
    neighbour.restore(cluster);
    assert_both_work(cluster, neighbour, "nft flush ruleset");
}
