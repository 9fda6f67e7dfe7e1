//! `cleanup`: removes both tables.

use super::Failure;
use crate::kernel::{Kernel, Nftables};
use crate::nft::{Family, Operation, TableRef, Transaction};
use crate::ruleset::TABLE;

/// Removes the tables that are there, both in one transaction.
///
/// # Errors
/// If nftables cannot be used, or a running daemon owns a table.
pub fn cleanup() -> Result<(), Failure> {
    let removed = remove()?;
    match removed.operations.len() {
        0 => super::print(&"nothing to remove\n"),
        _ => super::print(&removed),
    }
    Ok(())
}

/// Removes the tables and gives what was sent.
pub(super) fn remove() -> Result<Transaction, Failure> {
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let mut transaction = Transaction::default();
    for family in Family::ALL {
        let table = TableRef { family, name: TABLE.into() };
        if kernel.read_table(&table).map_err(Failure::new)?.is_some() {
            transaction.operations.push(Operation::DeleteTable(table));
        }
    }
    kernel.commit(&transaction).map_err(Failure::new)?;
    Ok(transaction)
}
