//! The fake kernel as the one that sequences are played on.

use fake_kernel::Fake;
use nft::Transaction;

use super::kernel::Shared;
use super::steps::Sequence;
use super::with_tables;

impl Shared for Fake {
    fn commit_by_another(&mut self, transaction: &Transaction) {
        let _ = self.tamper(transaction);
    }

    fn corrupt(&mut self, transaction: &Transaction) {
        let _ = Self::corrupt(self, transaction);
    }

    fn reopen(&mut self) {
        Self::reopen(self);
    }
}

/// One with tables without services, unless the sequence begins without.
pub(crate) fn first_kernel(sequence: &Sequence) -> Fake {
    if sequence.without_tables { Fake::new() } else { with_tables(u8::MAX, sequence.owned) }
}
