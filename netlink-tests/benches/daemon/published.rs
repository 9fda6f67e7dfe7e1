//! Clusters of which others published what kube-proxy or Cilium cost: `make bench-published`.
//!
//! - 44,125 services of 1 endpoint: kubernetes/kubernetes#139513.
//! - 5,006 services with 250,011 endpoints: kubernetes/kubernetes#135639.
//! - The churn of Cilium's test `servicechurn` with 1,000 nodes: cilium/cilium#40227. In each of 10
//!   namespaces, 200 services have 5 endpoints, 33 have 30, 4 have 250 and one has 1,000. All pods are
//!   replaced in 1,200 s. A pod that is replaced is two changes of a slice: its successor comes, then
//!   it goes.

use std::iter::repeat_n;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use netlink_tests::builds::number;
use netlink_tests::{Process, commit_times, kernel_memory};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Bench, Started, deltaproxy_binary, memory, objects, processor_time};

/// Endpoints of a full slice, as the controller writes them.
const FULL: usize = 100;

/// Pods that are replaced in the churn each second.
const REPLACED: f64 = 39_900.0 / 1_200.0;

/// Changes of single endpoints.
const CHANGES: u32 = 1_000;

/// Time between two of them: the one before is in the kernel.
const PAUSE: Duration = Duration::from_millis(5);

/// A change without a commit in this time has none.
const LOST: Duration = Duration::from_secs(1);

/// A cluster with these endpoints.
struct Cluster {
    /// The addresses of each service.
    services: Vec<Vec<u32>>,
    next: u32,
}

pub(super) fn measure() {
    println!("| cluster | what | result |");
    println!("|---|---|---|");
    let sizes = |count, size| repeat_n(size, count);
    let of_250_011 = sizes(4_705, 50).chain(sizes(300, 49)).chain([61]);
    let churn: Vec<usize> = [(2_000, 5), (330, 30), (40, 250), (10, 1_000)]
        .map(|(n, it)| sizes(n, it))
        .into_iter()
        .flatten()
        .collect();
    Cluster::of(sizes(44_125, 1)).measure("44,125 services, 1 endpoint each", |_, _, _| ());
    Cluster::of(of_250_011).measure("5,006 services, 250,011 endpoints", |_, _, _| ());
    Cluster::of(churn.into_iter()).measure("2,380 services, 39,900 endpoints", Cluster::churn);
}

impl Cluster {
    fn of(sizes: impl Iterator<Item = usize>) -> Self {
        let mut cluster = Self { services: Vec::new(), next: 0x0a80_0000 };
        cluster.services =
            sizes.map(|size| repeat_n((), size).map(|()| cluster.address()).collect()).collect();
        cluster
    }

    /// An address that no pod has had.
    fn address(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn objects(&self) -> impl Iterator<Item = Value> {
        let slices = |(number, addresses): (u32, &Vec<u32>)| {
            let parts = 0..addresses.len().div_ceil(FULL);
            parts.map(|part| self.slice(number, part)).collect::<Vec<_>>()
        };
        (0..)
            .zip(&self.services)
            .flat_map(move |it| [vec![objects::service(it.0)], slices(it)].concat())
    }

    fn slice(&self, number: u32, part: usize) -> Value {
        let addresses = self.services[number as usize].chunks(FULL).nth(part).unwrap();
        objects::slice(number, part, addresses.iter().copied())
    }

    fn measure(mut self, name: &str, more: impl Fn(&mut Self, &str, (&Bench, &Process))) {
        let mut bench = Bench::of(self.objects());
        let before = kernel_memory::settled();
        for tables in ["no table", "its tables"] {
            let Started { daemon, took, worked } = bench.start_build(&deltaproxy_binary());
            bench.settled();
            let used = memory(&daemon);
            println!("| {name} | start on {tables} | {took:.2} s, CPU {worked:.2} s, {used} |");
            if tables == "its tables" {
                let took: f64 = kernel_memory::settled()
                    .iter()
                    .zip(before)
                    .map(|(now, before)| now - before)
                    .sum();
                println!("| {name} | kernel memory | {took:.1} MiB |");
                self.change_one_by_one(name, &bench, &daemon);
                more(&mut self, name, (&bench, &daemon));
            }
            daemon.signal(Signal::SIGKILL);
        }
        _ = bench.net.node().output(deltaproxy_binary(), &["cleanup"]);
    }

    /// Replaces an endpoint of a service; returns the slice.
    fn replace(&mut self, number: u32, place: usize) -> Value {
        let address = self.address();
        let addresses = &mut self.services[number as usize];
        let place = place % addresses.len();
        addresses[place] = address;
        self.slice(number, place / FULL)
    }

    fn change_one_by_one(&mut self, name: &str, bench: &Bench, daemon: &Process) {
        let commits = commit_times::listen(bench.net.node());
        let services = u32::try_from(self.services.len()).unwrap();
        let (worked, mut took) = (processor_time(daemon), Vec::new());
        for n in 0..CHANGES {
            let slice = self.replace(n * 37 % services, n as usize);
            took.extend(time_of(bench, slice, &commits));
        }
        let each = (processor_time(daemon) - worked) / CHANGES;
        took.sort_unstable_by(f64::total_cmp);
        let at = |per_mille: usize| took[(took.len() - 1) * per_mille / 1_000];
        println!(
            "| {name} | one change, event to commit | {:.0} / {:.0} / {:.0} µs ({}), CPU {each:.0?} |",
            at(500),
            at(990),
            at(1_000),
            took.len()
        );
    }

    /// Replaces pods for some time, as Cilium's test.
    fn churn(&mut self, name: &str, (bench, daemon): (&Bench, &Process)) {
        let seconds = number("SECONDS", 60);
        let (begin, worked) = (Instant::now(), processor_time(daemon));
        let pods: Vec<(u32, usize)> = (0..)
            .zip(&self.services)
            .flat_map(|(number, addresses)| (0..addresses.len()).map(move |place| (number, place)))
            .collect();
        let mut replaced = 0;
        while begin.elapsed() < Duration::from_secs(seconds.into()) {
            // As far apart as a rolling update of all deployments at once.
            let (number, place) = pods[replaced * 7_919 % pods.len()];
            let former = self.services[number as usize][place];
            let mut with_both = self.replace(number, place);
            let gone = objects::endpoint(number, former);
            with_both["endpoints"].as_array_mut().unwrap().push(gone);
            for slice in [with_both, self.slice(number, place / FULL)] {
                bench.api.push(slice);
                replaced_pause(begin, replaced);
            }
            replaced += 1;
        }
        let share = (processor_time(daemon) - worked).as_secs_f64() / begin.elapsed().as_secs_f64();
        println!(
            "| {name} | churn: {replaced} pods replaced in {seconds} s | {share:.3} of a processor, {} |",
            memory(daemon)
        );
    }
}

/// Waits until the next change is due.
fn replaced_pause(begin: Instant, replaced: usize) {
    let due = Duration::from_secs_f64((replaced as f64 + 0.5) / REPLACED);
    thread::sleep(due.saturating_sub(begin.elapsed()));
}

/// Sends an event; returns the microseconds until its commit.
fn time_of(bench: &Bench, slice: Value, commits: &Receiver<Instant>) -> Option<f64> {
    while commits.try_recv().is_ok() {}
    bench.api.push(slice);
    let committed = commits.recv_timeout(LOST).ok()?;
    thread::sleep(PAUSE);
    // The server notes the time after it has sent.
    Some(commit_times::latency(committed, bench.api.sent_at()?))
}
