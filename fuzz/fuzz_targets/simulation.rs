//! Random runs of the daemon in which anything goes wrong that may go wrong: `tests/simulation.rs`
//! with seeds from the fuzzer, optimized.

#![no_main]

#[path = "../../tests/tables/mod.rs"]
mod tables;
#[path = "../../tests/world/mod.rs"]
mod world;

use libfuzzer_sys::fuzz_target;
use world::fake::first_kernel;
use world::play;
use world::seeds::run_seed;

fuzz_target!(|seed: u64| run_seed(seed, |sequence| play(first_kernel(sequence), sequence)));
