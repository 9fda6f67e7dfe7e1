//! nft begins its dump again after each commit. What it fetches decides whether it ends.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use netlink_tests::{Host, Net, eventually};

use crate::machine::{End, SOON};

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

/// Commits by other programs: their number so far, and whether they end.
#[derive(Default)]
struct Commits {
    number: AtomicU32,
    end: AtomicBool,
}

impl Commits {
    fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    fn go_on(&self, node: &Host) {
        while !self.end.load(Ordering::Relaxed) {
            for operation in ["add", "delete"] {
                node.nft_script(&format!("{operation} element ip other changing {{ 1 }}"));
                self.number.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_listing_without_elements_ends_while_others_commit() {
    let net = Net::new();
    let node = net.node();
    load(node);
    let commits = Commits::default();
    thread::scope(|scope| {
        scope.spawn(|| commits.go_on(node));
        let end = End(&commits.end);
        eventually("commits", SOON, || (commits.number() > 2).then_some(()));
        let mut whole = node.spawn("nft", &["list", "ruleset"]);
        for _ in 0..3 {
            let before = commits.number();
            let listed = node.nft("-t list ruleset");
            assert!(listed.contains("set numbers") && !listed.contains("elements"), "{listed}");
            eventually("more commits", SOON, || (commits.number() > before + 10).then_some(()));
        }
        eprintln!("{} commits; the whole listing runs: {}", commits.number(), whole.is_running());
        drop(end);
        assert!(whole.finish(SOON).ok().contains("0x0000ea5f"));
    });
}
