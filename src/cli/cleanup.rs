//! `cleanup`: removes both tables, and what kube-proxy left in other modes.

use super::Failure;
use crate::kernel::{Kernel, Nftables};
use crate::nft::{Family, Operation, TableRef, Transaction};
use crate::other_modes;
use crate::ruleset::TABLE;

/// Removes the tables that are there, both in one transaction, and then what other modes left.
///
/// # Errors
/// If nftables cannot be used, a running daemon owns a table, or something of other modes cannot be
/// removed.
pub fn cleanup() -> Result<(), Failure> {
    let removed = remove()?;
    let other_modes::Outcome { removed: of_others, errors } = other_modes::remove();
    super::print(&removed);
    of_others.iter().for_each(|removed| super::print(&format_args!("removed {removed}\n")));
    if removed.operations.is_empty() && of_others.is_empty() && errors.is_empty() {
        super::print(&"nothing to remove\n");
    }
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    super::left_out(&errors)
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
