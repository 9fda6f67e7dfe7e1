//! How large a piece of a large change may be, by how long the kernel took for earlier ones.
//!
//! The kernel holds a lock for the whole of a transaction. A small change waits for the piece that is
//! in the kernel, and at most for one more: two of them are to stay well below 50 ms, on slow
//! machines too.

use std::time::Duration;

/// The size of the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    piece_bytes: usize,
}

/// How long the kernel should take for a piece.
const TARGET: Duration = Duration::from_millis(10);

/// The size to begin with. On the machine that was measured it takes about half of [`TARGET`].
const FIRST: usize = 512 * 1024;

/// Pieces are not cut smaller: below, what a transaction costs by itself would count.
const SMALLEST: usize = 64 * 1024;

/// Pieces are not made larger: what is rendered and encoded for one takes time as well.
const LARGEST: usize = 1024 * 1024;

impl Default for Pace {
    fn default() -> Self {
        Self { piece_bytes: FIRST }
    }
}

impl Pace {
    /// Bytes that the next piece may have.
    pub(super) fn piece_bytes(self) -> usize {
        self.piece_bytes
    }

    /// Makes later pieces half as large; returns whether that is possible.
    pub(super) fn halve(&mut self) -> bool {
        let is_possible = self.piece_bytes > SMALLEST;
        self.piece_bytes = (self.piece_bytes / 2).max(SMALLEST);
        is_possible
    }

    /// The kernel took `time` for a transaction of so many bytes.
    ///
    /// At most it halves or doubles, so that one odd measurement does little. Transactions much
    /// smaller than a piece do not count.
    pub(super) fn learn(&mut self, bytes: usize, time: Duration) {
        if bytes < self.piece_bytes / 4 || time.is_zero() {
            return;
        }
        let in_target = bytes as u128 * TARGET.as_nanos() / time.as_nanos().max(1);
        let fitting = usize::try_from(in_target).unwrap_or(usize::MAX);
        let near = fitting.clamp(self.piece_bytes / 2, self.piece_bytes * 2);
        self.piece_bytes = near.clamp(SMALLEST, LARGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces on a machine whose kernel takes so long for a mebibyte.
    fn pieces(per_mebibyte: Duration) -> Vec<usize> {
        let mut pace = Pace::default();
        let mut next = || {
            let bytes = pace.piece_bytes();
            pace.learn(bytes, per_mebibyte * u32::try_from(bytes).unwrap() / (1 << 20));
            pace.piece_bytes()
        };
        (0..5).map(|_| next()).collect()
    }

    #[test]
    fn a_slow_machine_gets_smaller_pieces_and_a_fast_one_larger_within_bounds() {
        let kib = |sizes: [usize; 5]| sizes.map(|size| size * 1024).to_vec();
        assert_eq!(pieces(Duration::from_millis(20)), kib([512; 5]));
        assert_eq!(pieces(Duration::from_millis(80)), kib([256, 128, 128, 128, 128]));
        assert_eq!(pieces(Duration::from_secs(10)), kib([256, 128, 64, 64, 64]));
        assert_eq!(pieces(Duration::from_millis(1)), kib([1024; 5]));
    }

    #[test]
    fn small_transactions_say_nothing() {
        let mut pace = Pace::default();
        pace.learn(10_000, Duration::from_secs(1));
        assert_eq!(pace, Pace::default());
    }
}
