//! The real kernel as the one that sequences are played on.

use nft::kernel::{Kernel, Nftables};
use nft::{TableFlags, Transaction};

use super::kernel::Shared;

impl Shared for Nftables {
    fn commit_by_another(&mut self, transaction: &Transaction) {
        let _ = open().commit(transaction);
    }

    fn corrupt(&mut self, transaction: &Transaction) {
        let _ = self.commit(transaction);
    }

    fn reopen(&mut self) {
        *self = open();
    }

    fn flags_of_own_tables(&self) -> TableFlags {
        self.table_flags()
    }
}

/// A new socket.
pub(crate) fn open() -> Nftables {
    Nftables::open().expect("a namespace of our own")
}
