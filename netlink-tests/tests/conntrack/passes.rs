//! Passes over conntrack: each way to search deletes the stale flows and no others, and changes in
//! quick succession share passes.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use conntrack::ConntrackTable;
use daemon::conntrack::{Cleaned, Cleaner, Limits, Request};
use engine::flow::StaleFlow;
use engine::model::Target;
use netlink_tests::scenario::{EXTERNAL, Family, NODE_PORT, WEB};
use netlink_tests::{Host, Net, Tracked};

use super::{RIGHT, UDP, tracked, wait_until_tracked};

fn target(address: SocketAddr) -> Target {
    Target { address: address.ip(), port: address.port().try_into().unwrap() }
}

/// Returns the pattern that an endpoint's end causes.
fn between(entry: &Tracked) -> StaleFlow {
    StaleFlow::between(target(entry.sent_to), target(entry.answered_by))
}

/// Flows of both families to these frontends from so many endpoints that left.
fn left(frontends: &[&str], endpoints: u8) -> Vec<Tracked> {
    let endpoints: Vec<_> = (1..=endpoints).map(|n| format!("10.244.9.{n}:8080")).collect();
    let rows = frontends.iter().flat_map(|to| endpoints.iter().map(|by| (*to, by.as_str())));
    tracked(&rows.collect::<Vec<_>>())
}

/// Flows of so many frontends, each from an endpoint of its own.
fn left_of_each(frontends: u8) -> Vec<Tracked> {
    let row = |n: u8| (format!("10.96.9.{n}:{}", 1000 + u16::from(n)), format!("10.244.9.{n}:80"));
    let rows: Vec<_> = (1..=frontends).map(row).collect();
    tracked(&rows.iter().map(|(to, by)| (to.as_str(), by.as_str())).collect::<Vec<_>>())
}

/// How one table is searched follows from its stale flows: by endpoint, by frontend, by family.
#[test]
fn each_way_to_search_deletes_the_stale_flows_and_no_others() {
    let net = Net::new();
    let node = net.node();
    let right = tracked(&RIGHT);
    node.track(&right);
    let everything = |entries: Vec<Tracked>| {
        let patterns = entries.iter().map(between).collect();
        (entries, patterns)
    };
    let through_port = |entries: Vec<Tracked>| {
        let pattern = |entry: &Tracked| {
            StaleFlow::through_port(
                entry.sent_to.port().try_into().unwrap(),
                target(entry.answered_by),
            )
        };
        let patterns = entries.iter().map(pattern).collect();
        (entries, patterns)
    };
    let of_any_endpoint = |entries: Vec<Tracked>| {
        let patterns = entries.iter().map(|entry| StaleFlow::to(target(entry.sent_to))).collect();
        (entries, patterns)
    };
    let gone = ["10.96.0.97:80", "10.96.0.98:80", "198.51.100.9:8080"];
    let cases: [(Vec<Tracked>, Vec<StaleFlow>); 9] = [
        everything(left(&[WEB], 1)),
        everything(left(&[WEB, EXTERNAL], 1)),
        everything(left(&[WEB], 100)),
        everything(left(&[WEB, EXTERNAL], 100)),
        everything(left_of_each(12)),
        everything(left_of_each(100)),
        through_port(left(&[NODE_PORT], 100)),
        of_any_endpoint(left(&gone, 100)),
        everything(
            left(&[WEB, EXTERNAL, NODE_PORT], 50).into_iter().chain(left_of_each(50)).collect(),
        ),
    ];
    let mut measured = node.run(ConntrackTable::open).unwrap().timed_by(time);
    for (entries, patterns) in cases {
        let patterns = patterns.into_iter().collect();
        // Without durations, with those of the searches before, and in parts.
        for way in 0..3 {
            node.track(&entries);
            let deleted = node.run(|| match way {
                0 => ConntrackTable::open().unwrap().delete(&patterns),
                1 => measured.delete(&patterns),
                _ => measured.delete_in_parts(&patterns, 50),
            });
            let of = |family: Family| {
                let is_v4 = family == Family::Ipv4;
                entries.iter().filter(|entry| entry.sent_to.is_ipv4() == is_v4).count() as u64
            };
            assert_eq!(deleted.unwrap(), Family::ALL.map(of), "way {way}");
            assert_eq!(udp(node), right, "way {way}");
        }
    }
}

fn udp(node: &Host) -> Vec<Tracked> {
    node.tracked().into_iter().filter(|entry| entry.protocol == UDP).collect()
}

/// A cleaner that lists all flows knows how long each kind of dump takes.
#[test]
fn changes_in_quick_succession_share_passes() {
    const CHANGES: u8 = 200;
    let net = Net::new();
    let node = net.node();
    let right = tracked(&RIGHT);
    let stale = left(&[WEB], CHANGES);
    node.track(&[right.clone(), stale.clone()].concat());
    let passes: Arc<Mutex<Vec<Cleaned>>> = Arc::default();
    let reported = Arc::clone(&passes);
    let report = move |cleaned| reported.lock().unwrap().push(cleaned);
    let (cleaner, _lists) = node.run(|| Cleaner::spawn(Limits::default(), report).unwrap());
    cleaner.handle(Request::List);
    let started = time();
    for entries in stale.chunks(2) {
        cleaner.handle(Request::Delete(entries.iter().map(between).collect()));
        thread::sleep(Duration::from_millis(5));
    }
    wait_until_tracked(node, &right);
    let elapsed = time() - started;
    drop(cleaner);
    let passes = passes.lock().unwrap().clone();
    let deleted: u64 = passes.iter().map(|pass| pass.entries.iter().sum::<u64>()).sum();
    assert_eq!(deleted, stale.len() as u64);
    assert!(passes.iter().all(|pass| pass.complete));
    // The rest after each pass but the last one was over before the next.
    let rests = passes[..passes.len() - 1].iter().map(|pass| {
        let at_most_a_second = (pass.busy * 99).min(Duration::from_secs(1));
        at_most_a_second.max(pass.busy * 9)
    });
    let rests: Duration = rests.sum();
    assert!(rests <= elapsed, "{passes:?} in {elapsed:?}");
    assert!(passes.len() < stale.len() / 2, "each change had a pass: {passes:?}");
}

/// Time since the first call.
#[allow(clippy::disallowed_methods)]
pub(super) fn time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
