//! Sequences from seeds.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::steps::{Sequence, sequence};

/// Which sequences are played.
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl Seeds {
    /// Those from `SIMULATION_SEED` on, or from 0, and as many as `SIMULATION_SEQUENCES` says. By
    /// default one with the former and `count` without it.
    pub(crate) fn chosen(count: u64) -> Self {
        let number = |name| std::env::var(name).ok()?.parse().ok();
        let seed = number("SIMULATION_SEED");
        let default = seed.map_or(count, |_| 1);
        let first = seed.unwrap_or(0);
        Self { first, end: first + number("SIMULATION_SEQUENCES").unwrap_or(default) }
    }
}

/// Plays the sequence of a seed. Panics with the shortest one that fails too, and with the command
/// that plays it again by this test.
pub(crate) fn run_seed(test: &str, seed: u64, play: impl Fn(&Sequence) -> Result<(), String>) {
    let config = Config { failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, random);
    let tree = sequence().new_tree(&mut runner).expect("no value is rejected");
    let outcome = runner.run_one(tree, |sequence| play(&sequence).map_err(TestCaseError::fail));
    if let Err(TestError::Fail(reason, sequence)) = outcome {
        panic!(
            "sequence {seed} fails: {reason}\n{sequence:#?}\n\
             again: SIMULATION_SEED={seed} cargo test --workspace --no-default-features \
             --test {test}"
        );
    }
}
