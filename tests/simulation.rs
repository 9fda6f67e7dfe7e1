//! Random runs of the daemon with all kinds of faults, on the fake kernel.
//!
//! `SIMULATION_SEED` plays one sequence, `SIMULATION_SEQUENCES` so many, both so many from this one
//! on. A sequence that fails is made as short as possible and printed with the command that plays
//! it again.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod tables;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use world::fake::first_kernel;
use world::play;
use world::seeds::{Seeds, run_seed};

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
                run_seed("simulation", seed, |sequence| play(first_kernel(sequence), sequence));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
