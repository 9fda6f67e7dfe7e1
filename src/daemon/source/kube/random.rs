//! Random numbers, so that many nodes do not do the same at the same time. They keep no secret.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Returns a random number from 0 to 1. Each [`RandomState`] has other keys.
pub(super) fn random() -> f64 {
    let hash = RandomState::new().hash_one(());
    f64::from((hash >> 32) as u32) / f64::from(u32::MAX)
}

/// Returns a random number of this range, which is not empty.
pub(super) fn between(range: Range<u32>) -> u32 {
    let hash = RandomState::new().hash_one(());
    range.start + ((hash >> 32) as u32) % (range.end - range.start)
}
