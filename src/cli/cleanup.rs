//! `cleanup`: removes both tables, and the remains of kube-proxy's other modes.

use super::Failure;
use crate::kernel::{Kernel, Nftables};
use crate::nft::{Family, Operation, TableRef, Transaction};
use crate::node::UNGUARDED;
use crate::other_modes;
use crate::ruleset::TABLE;
use crate::ruleset::base::has_guard;

/// Removes the existing tables in one transaction, and then the remains of other modes.
///
/// # Errors
/// nftables cannot be used, a running daemon owns a table, or a remain of other modes cannot be
/// removed.
pub fn cleanup() -> Result<(), Failure> {
    let Removed { transaction: removed, was_guarded } = remove()?;
    let other_modes::Outcome { removed: of_others, errors } = other_modes::remove();
    super::print(&removed);
    of_others.iter().for_each(|removed| super::print(&format_args!("removed {removed}\n")));
    if was_guarded {
        super::print(&format_args!("{UNGUARDED}\n"));
    }
    if removed.operations.is_empty() && of_others.is_empty() && errors.is_empty() {
        super::print(&"nothing to remove\n");
    }
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    super::left_out(&errors)
}

/// Removed objects.
#[derive(Debug, Default)]
pub(super) struct Removed {
    transaction: Transaction,
    /// A table dropped packets of other hosts to loopback addresses.
    was_guarded: bool,
}

/// Removes the tables.
pub(super) fn remove() -> Result<Removed, Failure> {
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let mut removed = Removed::default();
    for family in Family::ALL {
        let table = TableRef { family, name: TABLE.into() };
        if let Some(contents) = kernel.read_table(&table).map_err(Failure::new)? {
            removed.was_guarded |= has_guard(&contents.rules);
            removed.transaction.operations.push(Operation::DeleteTable(table));
        }
    }
    kernel.commit(&removed.transaction).map_err(Failure::new)?;
    Ok(removed)
}
