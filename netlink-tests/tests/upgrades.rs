//! The program of another version and the present build take each other's tables over.
//!
//! `make test-upgrade FORMER=PATH` names that program in the variable `DELTAPROXY_FORMER`. Without it
//! this test is left out.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netlink_tests::scenario::{
    Lab, Manifests, Node, ServiceCidr, WEB, routing, slice, web_everywhere,
};
use netlink_tests::{Answer, Host, Process, deltaproxy_binary, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

const FORMER: &str = "DELTAPROXY_FORMER";

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The replacement of a whole table costs each processor one new connection at most, in each of the
/// two tables and in their handover tables.
fn most_failures() -> usize {
    4 * thread::available_parallelism().unwrap().get()
}

struct Cluster {
    lab: Lab,
    manifests: Manifests,
}

impl Cluster {
    fn new() -> Self {
        let lab = Lab::without_objects(routing());
        let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let manifests = Manifests::new(&[
            ("cidr", &cidrs),
            ("node", &Node::new()),
            ("web", &web_everywhere()),
            ("slice", &slice("a b")),
        ]);
        Self { lab, manifests }
    }

    fn node(&self) -> &Host {
        self.lab.world.node()
    }

    fn daemon(&self, program: &Path) -> Process {
        let more = ["--healthz-bind-address=", "--metrics-bind-address="];
        let arguments = [&self.manifests.arguments("run")[..], &more].concat();
        self.node().spawn(program, &arguments)
    }

    /// Waits until this program lists these endpoints in its tables.
    #[track_caller]
    fn wait_for(&self, program: &Path, endpoints: &[&str]) {
        let wanted: BTreeSet<_> = endpoints.iter().map(ToString::to_string).collect();
        eventually(&format!("{endpoints:?} in the tables"), SOON, || {
            let finished = self.node().output(program, &["show", WEB, "--output", "json"]);
            let document: Value = serde_json::from_str(&finished.stdout).ok()?;
            let listed = document["services"][0]["endpoints"].as_array()?.iter();
            let serving =
                listed.filter(|it| it["state"] == "serving" || it["state"] == "elsewhere");
            let found: BTreeSet<_> =
                serving.map(|it| it["address"].as_str().unwrap().to_owned()).collect();
            (found == wanted).then_some(())
        });
    }
}

/// Connects again and again until `stop`; returns the number of answers and the failures.
fn connect(pod: &Host, stop: &AtomicBool) -> (usize, Vec<Answer>) {
    let (mut answers, mut failures) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        match pod.connect_tcp(WEB) {
            Answer::From { .. } => answers += 1,
            failure @ (Answer::Echoed
            | Answer::Refused
            | Answer::Silent
            | Answer::Unreachable(_)) => failures.push(failure),
        }
    }
    (answers, failures)
}

/// One program follows the other on a node: under connections, with a change while none runs.
#[track_caller]
fn follow(first: &Path, second: &Path, end: Signal) {
    let cluster = Cluster::new();
    let daemon = cluster.daemon(first);
    cluster.wait_for(first, &["10.244.1.5", "10.244.1.6"]);
    let pod = cluster.lab.world.host("pod").clone();
    let mut kept = pod.open_tcp(WEB).unwrap();
    let stop = AtomicBool::new(false);
    let (answers, failures) = thread::scope(|scope| {
        let clients = scope.spawn(|| connect(&pod, &stop));
        daemon.signal(end);
        let _ = daemon.finish(SOON);
        cluster.manifests.write("slice", &slice("a b c"));
        let second_daemon = cluster.daemon(second);
        cluster.wait_for(second, &["10.244.1.5", "10.244.1.6", "10.244.2.7"]);
        cluster.manifests.write("slice", &slice("b c"));
        cluster.wait_for(second, &["10.244.1.6", "10.244.2.7"]);
        stop.store(true, Ordering::Relaxed);
        let seen = clients.join().unwrap();
        let verified = cluster.node().output(second, &cluster.manifests.arguments("verify"));
        assert_eq!(verified.code(), Some(0), "{}{}", verified.stdout, verified.stderr);
        assert_eq!(second_daemon.terminate(SOON).code(), Some(0));
        seen
    });
    assert!(answers > 10, "{answers} connections");
    assert!(failures.len() <= most_failures(), "{answers} answers, {failures:?}");
    assert!(!kept.ask().server().is_empty());
    eprintln!("{} then {}: {answers} answers, {failures:?}", first.display(), second.display());
}

#[test]
fn each_version_takes_over_the_tables_of_the_other_after_an_end_and_after_a_kill() {
    let Some(former) = env::var_os(FORMER).filter(|path| !path.is_empty()).map(PathBuf::from)
    else {
        return;
    };
    let present = deltaproxy_binary();
    for end in [Signal::SIGTERM, Signal::SIGKILL] {
        follow(&former, &present, end);
        follow(&present, &former, end);
    }
}
