//! nft begins its dump again after each commit. What it fetches decides whether it ends.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use netlink_tests::{Host, Net, eventually};

use crate::machine::SOON;

/// As many as the services of a large cluster have.
const ELEMENTS: u32 = 60_000;

fn load(node: &Host) {
    let elements: Vec<_> = (0..ELEMENTS).map(|number| number.to_string()).collect();
    node.nft_script(&format!(
        "table ip large {{ set numbers {{ type mark; elements = {{ {} }}; }}; }}
         table ip other {{ set changing {{ type mark; }}; }}",
        elements.join(", ")
    ));
}

/// Commits until `stop`.
fn commit(node: &Host, commits: &AtomicU32, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for operation in ["add", "delete"] {
            node.nft_script(&format!("{operation} element ip other changing {{ 1 }}"));
            commits.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_listing_without_elements_ends_while_others_commit() {
    let net = Net::new();
    let node = net.node();
    load(node);
    let (commits, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| commit(node, &commits, &stop));
        let committed = || commits.load(Ordering::Relaxed);
        eventually("commits", SOON, || (committed() > 2).then_some(()));
        let mut whole = node.spawn("nft", &["list", "ruleset"]);
        for _ in 0..3 {
            let before = committed();
            let listed = node.nft("-t list ruleset");
            assert!(listed.contains("set numbers") && !listed.contains("elements"), "{listed}");
            eventually("commits go on", SOON, || (committed() > before + 10).then_some(()));
        }
        eprintln!("{} commits, whole listing ended: {}", committed(), !whole.is_running());
        stop.store(true, Ordering::Relaxed);
        assert!(whole.finish(SOON).ok().contains("0x0000ea5f"));
    });
}
