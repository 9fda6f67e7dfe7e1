//! The size of the pieces of a large change, from the kernel time of earlier ones.
//!
//! The kernel holds a lock for the whole of a transaction. A small change waits for the piece in
//! the kernel, and for at most one more. Two pieces should stay well below 50 ms, also on slow
//! machines.

use std::time::Duration;

/// The size of the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceSize {
    piece_bytes: usize,
}

/// Desired kernel time of a piece.
const TARGET: Duration = Duration::from_millis(10);

/// Initial size. It takes about half of [`TARGET`] on the machine of the measurements.
const FIRST: usize = 512 * 1024;

/// Minimum size: below it, the fixed cost of a transaction dominates.
const SMALLEST: usize = 64 * 1024;

/// Maximum size: rendering and encoding a piece take time as well.
const LARGEST: usize = 1024 * 1024;

impl Default for PieceSize {
    fn default() -> Self {
        Self { piece_bytes: FIRST }
    }
}

impl PieceSize {
    /// Returns the maximum size of the next piece, in bytes.
    pub(super) fn piece_bytes(self) -> usize {
        self.piece_bytes
    }

    /// Halves the size of later pieces; returns false if it is the minimum already.
    pub(super) fn halve(&mut self) -> bool {
        let is_possible = self.piece_bytes > SMALLEST;
        self.piece_bytes = (self.piece_bytes / 2).max(SMALLEST);
        is_possible
    }

    /// Adapts the size to the kernel time of a transaction of `bytes` bytes.
    ///
    /// The size at most halves or doubles, which limits the effect of an outlier. Transactions much
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

    /// Returns the sizes of pieces where the kernel takes `per_mebibyte` per MiB.
    fn pieces(per_mebibyte: Duration) -> Vec<usize> {
        let mut size = PieceSize::default();
        let mut next = || {
            let bytes = size.piece_bytes();
            size.learn(bytes, per_mebibyte * u32::try_from(bytes).unwrap() / (1 << 20));
            size.piece_bytes()
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
        let mut size = PieceSize::default();
        size.learn(10_000, Duration::from_secs(1));
        assert_eq!(size, PieceSize::default());
    }
}
