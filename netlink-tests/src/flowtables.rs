//! Whether the kernel has flowtables.

use engine::ruleset;
use nft::kernel::{Kernel as _, Nftables};
use nft::{Operation, Table, Transaction};
use test_hosts::Namespace;

/// Whether the kernel takes the flowtable of our tables.
///
/// # Panics
/// Without nftables.
#[must_use]
pub fn kernel_has_flowtables() -> bool {
    Namespace::new().run(|| {
        let table = Table::new(nft::Family::Ip, "test");
        let flowtable = Operation::AddFlowtable(table.reference(), ruleset::flowtable());
        let operations = vec![Operation::AddTable(table), flowtable];
        let mut kernel = Nftables::open().expect("nftables");
        kernel.commit(&Transaction { operations }).is_ok()
    })
}
