//! Removal of the leftovers of kube-proxy's modes iptables and ipvs.
//!
//! Chains of iptables-nft are removed through nftables, those of iptables-legacy through its
//! programs, each with the rules that jump to them. Virtual servers, the link `kube-ipvs0` and ipsets
//! follow. Only objects with names of kube-proxy are removed. Each step runs even if others fail,
//! although the kernel refuses to remove an ipset that a rule uses.
//!
//! For one hook and priority, the kernel runs the newest base chain first (`nf_hook_entries_grow`).
//! Our chains have the priorities of iptables, so the DNAT of leftovers wins over tables that are
//! older than theirs. The leftovers may serve connections until they are removed, our tables
//! afterwards. The caller therefore removes nothing before our tables are in place.

mod ipvs;
mod legacy;
mod names;
mod nftables;
mod programs;
mod removable;
mod removal;

use std::time::Duration;

use nft::TableRef;
use nft::family::Family;
use nft::kernel::Nftables;

use self::names::{SERVICES, Table};
use self::programs::NodeFiles;

pub use self::programs::ProgramError;
pub use self::removal::{Removal, RemovalError, Removed};

/// Pauses between attempts.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_secs(60),
];

/// Removes all leftovers in the network namespace of this thread. Blocks.
pub fn remove() -> Removal {
    let node = NodeFiles::new();
    let mut outcome = Removal::default();
    let tables = || Family::ALL.into_iter().flat_map(|family| Table::ALL.map(|it| (family, it)));
    match Nftables::open() {
        Ok(mut kernel) => tables().for_each(|(family, table)| {
            outcome.add(nftables::remove(&mut kernel, family, table));
        }),
        Err(error) => outcome.errors.push(error.into()),
    }
    tables().for_each(|(family, table)| outcome.add(legacy::remove(&node, family, table)));
    outcome.add(ipvs::remove(&node));
    outcome.add(ipvs::remove_ipsets(&node));
    outcome
}

/// Returns the tables of iptables in which a kube-proxy has services, in the network namespace of this
/// thread. Blocks.
pub fn serving() -> Vec<String> {
    let (node, mut kernel, mut found) = (NodeFiles::new(), Nftables::open().ok(), Vec::new());
    for family in Family::ALL {
        let table = TableRef::new(family, Table::Nat.name());
        let chains = kernel.as_mut().and_then(|kernel| kernel.read_chain_names(&table).ok());
        if chains.is_some_and(|chains| chains.iter().any(|chain| chain == SERVICES)) {
            found.push(format!("table {table}"));
        }
        if legacy::has_services(&node, family) {
            found.push(format!("table {table} of iptables-legacy"));
        }
    }
    found
}

/// Removes all leftovers on a thread of its own and logs them. Retries a few times after errors.
/// Returns whether anything was removed.
pub async fn remove_in_background() -> bool {
    let mut has_removed = false;
    let mut pauses = PAUSES.into_iter();
    loop {
        // The task fails only by a panic, which is logged.
        let Ok(outcome) = tokio::task::spawn_blocking(remove).await else { return has_removed };
        has_removed |= !outcome.removed.is_empty();
        outcome.log_removed();
        match pauses.next() {
            Some(pause) if !outcome.errors.is_empty() => tokio::time::sleep(pause).await,
            Some(_) | None => {
                outcome.errors.iter().for_each(|error| {
                    tracing::warn!("leftovers of another proxy mode may remain: {error}");
                });
                return has_removed;
            }
        }
    }
}
