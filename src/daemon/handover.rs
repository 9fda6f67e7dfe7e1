//! Replaces our tables by tables with other flags, and leaves them to the next program, while every
//! packet finds rules.
//!
//! The kernel changes no `persist` flag of a table (`nf_tables_updtable`), and a packet inside the
//! rules of a table that is replaced finds its maps empty. So a copy under another name, the
//! handover table, serves meanwhile:
//!
//! ```text
//!                     our table             handover table
//!  at first           serves                -
//!  1. copy            serves                idle: its base chains come later by priority
//!  2. base chains     packets leave it      serves
//!  3. new table       created, then serves  serves, then idle
//!  4. removal         serves                -
//! ```
//!
//! The first chain of type nat that translates a connection decides. In steps 1 to 4 other programs
//! come after both tables. At the end of a daemon step 4 is left out, and the priorities change:
//! kube-proxy in mode nftables gets our chains with its priority. In mode iptables or ipvs it deletes
//! our table seconds before its own rules are complete, and its rules precede those of the handover
//! table. That table ends when the next program translates a connection to one of our frontends,
//! which `witness` sees: it would go on serving services that the other one has removed. Its elements
//! expire after [`LIFETIME`].
//! `stepwise` does the steps, also while a daemon commits changes.

mod stepwise;
mod tables;

pub use stepwise::{Step, Stepwise, list};
pub use tables::{HANDOVER_TABLE, LIFETIME, remove};

use engine::ruleset::base::CLUSTER_IPS_CHECK;
use engine::ruleset::{SetId, TABLE_COMMENT, table};
use nft::kernel::{Contents, CopyTableError, Kernel, Nftables};
use nft::{Family, Operation, TableFlags, TableRef, Transaction};

use self::tables::{PieceSizes, flags_of_ours, handover_table};

/// At the end of a daemon. Other programs can commit, and the handover can be interrupted, between
/// two parts of the handover table; tables of some 10,000 services are replaced in one transaction.
const AT_THE_END: PieceSizes = PieceSizes { copy: 1 << 20, replacement: 8 << 20 };

/// Leaves our tables to the next program: they get no flags, so that every program can change or
/// delete them, and the handover tables stay until they expire. Returns the families whose table had
/// flags.
///
/// `is_interrupted` is called between pieces of both tables; it interrupts only the first one.
///
/// # Errors
/// See [`CopyTableError`]. Our tables are unchanged, or the handover table serves.
pub fn hand_over(
    kernel: &mut Nftables,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<Family>, CopyTableError> {
    let mut changed = Vec::new();
    for family in Family::ALL {
        if hand_over_table(kernel, &table(family), is_interrupted)? {
            changed.push(family);
        }
    }
    Ok(changed)
}

/// Removes the handover tables, which an earlier daemon left. Returns those that existed.
///
/// # Errors
/// See [`CopyTableError`].
pub fn remove_handover_tables(kernel: &mut Nftables) -> Result<Vec<TableRef>, CopyTableError> {
    let mut removed = Vec::new();
    for family in Family::ALL {
        let table = handover_table(family);
        if remove(kernel, &table)? {
            removed.push(table);
        }
    }
    Ok(removed)
}

/// Returns whether the table was replaced.
fn hand_over_table(
    kernel: &mut Nftables,
    own: &TableRef,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<bool, CopyTableError> {
    let Some(flags) = flags_of_ours(kernel, own)? else { return Ok(false) };
    let Some(definition) = kernel.read_definition(own)? else { return Ok(false) };
    let mut steps =
        Stepwise::new(kernel, definition, TableFlags::default(), AT_THE_END, is_interrupted)?;
    let copied = steps.copy(kernel, is_interrupted);
    let retired = copied.and_then(|()| if flags.persist { steps.retire(kernel) } else { Ok(()) });
    if let Err(error) = retired {
        remove(kernel, &handover_table(own.family))?;
        return Err(error);
    }
    if flags.persist {
        steps.replace(kernel, is_interrupted)?;
    }
    steps.make_way(kernel)?;
    stop_refusing(kernel, own)?;
    Ok(flags.persist)
}

/// Leaves it to the handover table to refuse packets that no service port has. If another program
/// deletes our table, the kernel runs its rules with empty maps until it has removed their hooks
/// (seen for up to 1 ms), and these would refuse or drop what the handover table serves.
fn stop_refusing(kernel: &mut Nftables, own: &TableRef) -> Result<(), CopyTableError> {
    let flush = Operation::FlushChain(own.clone(), CLUSTER_IPS_CHECK.into());
    kernel.commit(&Transaction { operations: vec![flush] })?;
    Ok(())
}

/// Chains that kube-proxy's mode nftables creates without a hook, besides those of its services,
/// whose names have a slash.
const OF_KUBE_PROXY: [&str; 8] = [
    "services",
    "service-endpoints-check",
    "nodeport-endpoints-check",
    "firewall-check",
    "masquerading",
    "mark-for-masquerade",
    CLUSTER_IPS_CHECK,
    "reject-chain",
];

/// The set in which kube-proxy's mode nftables looks up services.
const SERVICES_OF_KUBE_PROXY: &str = "service-ips";

/// Sets of ours that kube-proxy has too, with the same types.
const SHARED: [SetId; 3] = [SetId::ClusterIps, SetId::NodePortIps, SetId::HairpinConnections];

/// Returns whether deltaproxy created the table. kube-proxy keeps the comment of a table that it
/// takes over.
pub fn is_of_deltaproxy(contents: &Contents) -> bool {
    let comment = contents.table.comment.as_deref().unwrap_or_default();
    comment.starts_with(TABLE_COMMENT)
}

/// Returns the operations that remove our chains and sets from a table that kube-proxy's mode
/// nftables uses; `None` if it does not use the table.
///
/// It replaces the base chains and its own chains, and keeps all others.
pub fn remains(contents: &Contents) -> Option<Vec<Operation>> {
    if !contents.sets.iter().any(|set| set.name == SERVICES_OF_KUBE_PROXY) {
        return None;
    }
    let table = contents.table.reference();
    let chains = contents.chains.iter().filter(|chain| chain.base.is_none());
    let ours = chains
        .map(|chain| &chain.name)
        .filter(|name| !name.contains('/') && !OF_KUBE_PROXY.contains(&&***name));
    let chains: Vec<_> = ours.collect();
    let sets = contents
        .sets
        .iter()
        .filter(|set| SetId::by_name(&set.name).is_some_and(|set| !SHARED.contains(&set)));
    let flush = chains.iter().map(|name| Operation::FlushChain(table.clone(), (*name).clone()));
    let delete = chains.iter().map(|name| Operation::DeleteChain(table.clone(), (*name).clone()));
    let sets = sets.map(|set| Operation::DeleteSet(table.clone(), set.name.clone().into()));
    Some(flush.chain(delete).chain(sets).collect())
}
