//! Random runs of the daemon with all kinds of faults, on the fake kernel.
//!
//! `SIMULATION_SEED` plays one sequence, `SIMULATION_SEQUENCES` so many, both so many from this one
//! on. A sequence that fails is made as short as possible and printed with the command that plays
//! it again.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod tables;
mod world;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, thread};

use tracing::Level;
use world::fake::first_kernel;
use world::play;
use world::seeds::{Seeds, run_seed};
use world::trace::{Lines, traced};

#[test]
fn after_any_faults_the_tables_are_as_desired_and_services_with_endpoints_always_work() {
    let seeds = Seeds::chosen(10_000);
    let next = AtomicU64::new(seeds.first);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    break;
                }
                play_seed(seed);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Names the file for the trace in a process that [`a_seed_sends_and_logs_the_same_in_every_process`]
/// starts.
const TRACE: &str = "SIMULATION_TRACE";

/// Sequences whose traces are compared, at most: a trace has some 100 kB.
const TRACED: u64 = 200;

/// Hash maps have another order in each process.
#[test]
fn a_seed_sends_and_logs_the_same_in_every_process() {
    if let Some(file) = env::var_os(TRACE) {
        fs::write(file, trace()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files = ["one", "other"].map(|name| folder.path().join(name));
    let processes = files.each_ref().map(|file| {
        let mut program = Command::new(env::current_exe().unwrap());
        let test = "a_seed_sends_and_logs_the_same_in_every_process";
        program.args([test, "--exact", "--nocapture"]).env(TRACE, file);
        program.stdout(Stdio::null()).spawn().unwrap()
    });
    for mut process in processes {
        assert!(process.wait().unwrap().success(), "a sequence failed");
    }
    check_same(&files[0], &files[1]);
}

/// Panics with the first line that differs.
#[track_caller]
fn check_same(one: &Path, other: &Path) {
    let [one, other] = [one, other].map(|file| fs::read_to_string(file).unwrap());
    let commits = one.lines().filter(|line| *line == "commit").count();
    assert!(commits > 0, "nothing was sent");
    let mut seed = "";
    for (number, (one, other)) in one.lines().zip(other.lines()).enumerate() {
        if one.starts_with("seed ") {
            seed = one;
        }
        assert_eq!(one, other, "{seed}, line {number} of the trace");
    }
    assert_eq!(one.len(), other.len(), "one trace is longer");
}

/// Returns what some sequences send and log.
fn trace() -> Vec<u8> {
    let log = tracing_subscriber::fmt().with_max_level(Level::TRACE).without_time();
    let log = log.with_ansi(false).with_writer(|| Lines).finish();
    let seeds = Seeds::chosen(TRACED);
    let end = seeds.end.min(seeds.first + TRACED);
    tracing::subscriber::with_default(log, || {
        let play = |seed| [format!("seed {seed}\n").into_bytes(), traced(|| play_seed(seed))];
        (seeds.first..end).flat_map(play).flatten().collect()
    })
}

fn play_seed(seed: u64) {
    run_seed("simulation", seed, |sequence| play(first_kernel(sequence), sequence));
}
