//! The daemon's loop on the fake kernel: whatever goes wrong with a commit, the tables end right.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // It waits for the daemon, with a limit.

#[path = "run/handovers.rs"]
mod handovers;
#[path = "run/kernel.rs"]
mod kernel;
#[path = "run/localhost.rs"]
mod localhost;
#[path = "run/objects.rs"]
mod objects;
#[path = "run/other_programs.rs"]
mod other_programs;
#[path = "run/refusals.rs"]
mod refusals;
#[path = "run/running.rs"]
mod running;
#[path = "run/starts.rs"]
mod starts;
mod tables;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use daemon::observe::Observe;
use daemon::run::{Parts, Run, RunError};
use daemon::writer::Writer;
use engine::GRACE;
use engine::model::Arrival;
use fake_kernel::{Fake, Mishap};
use kernel::Shared;
use nft::Errno;
use objects::{SMALL_BATCH, many_services, one_of_many, service, small_batches};
use running::{Daemon, LIMIT, metric, syncs, wait_for};
use tables::engine;
use tokio::sync::mpsc;

#[test]
fn events_reach_the_kernel() {
    let mut daemon = Daemon::start(Fake::new());
    for endpoints in [3, 4, 9, 0, 1] {
        daemon.send(service(1, endpoints));
        daemon.wait();
    }
    daemon.end();
}

#[test]
fn a_list_stays_a_while_after_the_last_route_to_it() {
    let mut daemon = Daemon::start(Fake::new());
    daemon.send(service(1, 3));
    daemon.wait();
    let before = daemon.kernel.with(|kernel| kernel.commits());
    let start = Instant::now();
    daemon.send(service(1, 0));
    // One deletes the route to the list, the next one the list.
    daemon.wait_for_commits(before + 2);
    assert!(start.elapsed() >= GRACE, "packets may still look the list up");
    daemon.wait();
    daemon.end();
}

#[test]
fn whatever_goes_wrong_with_a_commit_the_tables_end_right() {
    for mishap in [
        Mishap::Refused(Errno::ENOMEM),
        Mishap::Refused(Errno::EINVAL),
        Mishap::AnswerLost,
        Mishap::NotSent,
    ] {
        let mut daemon = Daemon::start(Fake::new());
        daemon.send(service(1, 3));
        daemon.wait();
        daemon.expect(mishap);
        daemon.expect(mishap);
        daemon.send(service(1, 4));
        daemon.send(service(2, 2));
        daemon.wait();
        daemon.end();
    }
}

#[test]
fn a_large_change_goes_to_a_kernel_that_takes_small_batches() {
    let mut daemon = Daemon::start(small_batches());
    daemon.send(many_services());
    daemon.wait();
    assert!(daemon.kernel.with(|kernel| kernel.commits()) > 2);
    daemon.end();
}

#[test]
fn a_transaction_made_ahead_is_dropped_if_the_one_before_is_not_applied() {
    for mishap in [Mishap::Refused(Errno::EINVAL), Mishap::AnswerLost, Mishap::NotSent] {
        for commits in 1..4 {
            let mut kernel = small_batches();
            kernel.expect_mishap_after(commits, mishap);
            let mut daemon = Daemon::start_unlisted(engine(), Shared::new(kernel));
            daemon.list(many_services());
            daemon.wait_for_commits(commits);
            // The transaction made ahead is out of date by the time of the next attempt.
            std::thread::sleep(Duration::from_millis(10));
            daemon.send((0..200).flat_map(|number| service(number, 2)).collect());
            daemon.wait();
            assert_eq!(daemon.kernel.with(|kernel| kernel.failures()), 1);
            daemon.end();
        }
    }
}

/// The elements of two transactions are in doubt then, few enough to be looked up one by one.
#[test]
fn a_transaction_made_ahead_in_a_large_change_is_dropped_too() {
    let mut are_ahead = false;
    for mishap in [Mishap::Refused(Errno::EINVAL), Mishap::AnswerLost, Mishap::NotSent] {
        for commits in 0..4 {
            let mut kernel = Fake::new();
            kernel.set_max_batch(SMALL_BATCH / 3);
            let mut daemon = Daemon::start(kernel);
            // The rules for lists of these sizes are no part of the change.
            daemon.send([service(1, 9), service(2, 2)].concat());
            daemon.wait();
            let syncs_before = syncs(&daemon, "full");
            daemon.kernel.with(|kernel| kernel.expect_mishap_after(commits, mishap));
            daemon.send((0..300).flat_map(|number| one_of_many(number, 9)).collect());
            daemon.send((0..300).flat_map(|number| one_of_many(number, 2)).collect());
            daemon.wait();
            assert_eq!(daemon.kernel.with(|kernel| kernel.failures()), 1);
            if let Mishap::Refused(_) = mishap {
                assert_eq!(syncs(&daemon, "full"), syncs_before, "all tables were read");
            }
            are_ahead |= made_ahead(&daemon);
            daemon.end();
        }
    }
    assert!(are_ahead, "no transaction was made ahead");
}

/// Returns whether the loop did not wait for a transaction, because it made the next one.
fn made_ahead(daemon: &Daemon) -> bool {
    let [acknowledged, committed] = stages(daemon);
    acknowledged < committed
}

/// Returns for how many transactions the loop waited, and how many were committed.
fn stages(daemon: &Daemon) -> [f64; 2] {
    ["acknowledge", "commit"].map(|stage| {
        metric(daemon, &format!("deltaproxy_stage_duration_seconds_count{{stage={stage:?}}}"))
    })
}

/// Stale flows are deleted once no transaction is in the kernel.
#[test]
fn at_most_eight_transactions_in_a_row_are_made_ahead() {
    let mut kernel = Fake::new();
    kernel.set_max_batch(SMALL_BATCH / 3);
    let mut daemon = Daemon::start(kernel);
    daemon.wait();
    let before = stages(&daemon);
    daemon.send((0..1_200).flat_map(|number| one_of_many(number, 9)).collect());
    daemon.wait();
    let after = stages(&daemon);
    let [acknowledged, committed] = [0, 1].map(|stage| after[stage] - before[stage]);
    assert!(committed > 20.0 && acknowledged * 9.0 >= committed, "{acknowledged} of {committed}");
    daemon.end();
}

#[test]
fn a_batch_is_measured_from_its_last_bytes_to_its_last_commit() {
    let mut daemon = Daemon::start(Fake::new());
    let measured = "deltaproxy_event_to_commit_duration_seconds";
    let count = |daemon: &Daemon| metric(daemon, &format!("{measured}_count"));
    wait_for(|| syncs(&daemon, "full") == 1.0);
    assert_eq!(count(&daemon), 0.0, "the first lists do not count");

    let (events, now, second) = (service(1, 3), Instant::now(), Duration::from_secs(1));
    let (received, parsed) = (now - 3 * second, now - second);
    daemon.applied.extend(events.clone());
    daemon.events.blocking_send(Arrival { received, ..Arrival::new(events, parsed) }).unwrap();
    wait_for(|| syncs(&daemon, "partial") == 1.0);
    let more = now.elapsed().as_secs_f64();
    let sum = |name: &str| metric(&daemon, name);
    let stage =
        |name: &str| sum(&format!("deltaproxy_stage_duration_seconds_sum{{stage={name:?}}}"));
    let took = [sum(&format!("{measured}_sum")), stage("parse"), stage("queue")];
    for (took, least) in took.into_iter().zip([3.0, 2.0, 1.0]) {
        assert!((least..=least + more).contains(&took), "{took} s instead of {least} s");
    }
    assert_eq!(count(&daemon), 1.0);

    daemon.send(service(1, 3));
    daemon.wait_until_taken();
    // The loop looks for others' changes between two batches.
    let looks = || daemon.kernel.calls.looks_for_others.load(Ordering::Relaxed);
    let before = looks();
    wait_for(|| looks() > before);
    daemon.send(service(2, 3));
    wait_for(|| syncs(&daemon, "partial") == 2.0);
    assert_eq!(count(&daemon), 2.0, "a batch that changes nothing is not committed");
    daemon.end();
}

#[test]
fn a_refused_deletion_of_leftovers_is_a_failed_cleanup() {
    let mut daemon = Daemon::start(Fake::new());
    daemon.send(service(1, 3));
    daemon.wait();
    let failures = |daemon: &Daemon, what| {
        let name = format!("kubeproxy_sync_proxy_rules_nftables_{what}_failures_total");
        metric(daemon, &format!("{name}{{ip_family=\"IPv4\"}}"))
    };
    daemon.expect(Mishap::Refused(Errno::EINVAL));
    daemon.send(service(1, 4));
    daemon.wait();
    assert_eq!([failures(&daemon, "sync"), failures(&daemon, "cleanup")], [1.0, 0.0]);
    let before = daemon.kernel.with(|kernel| kernel.commits());
    daemon.kernel.with(|kernel| kernel.expect_mishap_after(1, Mishap::Refused(Errno::EINVAL)));
    daemon.send(service(1, 0));
    wait_for(|| [failures(&daemon, "sync"), failures(&daemon, "cleanup")] == [2.0, 1.0]);
    daemon.wait_for_commits(before + 2);
    daemon.wait();
    daemon.end();
}

#[test]
fn a_source_that_ends_is_an_error_and_a_stop_at_the_same_time_is_none() {
    let end = |is_stopped: bool| {
        let writer = Writer::spawn(Shared::new(Fake::new())).unwrap();
        let (events, queue) = mpsc::channel(16);
        let run = Run::new(engine(), writer, queue, Observe::new(), Parts::default());
        drop(events);
        let stop = async move {
            if !is_stopped {
                std::future::pending().await
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = async { tokio::time::timeout(LIMIT, run.until(stop)).await };
        runtime.unwrap().block_on(ended).unwrap()
    };
    let error = end(false).unwrap_err();
    assert!(matches!(error, RunError::SourceGone), "{error}");
    assert!(error.to_string().contains("the source of the objects ended"), "{error}");
    end(true).unwrap();
}
