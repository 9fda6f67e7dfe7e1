//! Replaces our tables by tables with other flags, and leaves them to the next program, while every
//! packet finds rules.
//!
//! The kernel changes no `persist` flag of a table (`nf_tables_updtable`), and a packet inside the
//! rules of a table that is replaced finds its maps empty. So a copy under another name, the
//! handover table, serves meanwhile. `replacing` is the machine that does this.
//!
//! The first chain of type nat that translates a connection decides. While the handover table exists,
//! other programs come after both tables. At the end of a daemon it stays, and the priorities change:
//! kube-proxy in mode nftables gets our chains with its priority. In mode iptables or ipvs it deletes
//! our table seconds before its own rules are complete, and its rules precede those of the handover
//! table. That table ends when the next program translates a connection to one of our frontends,
//! which its witness chains see: it would go on serving services that the other one has removed. At
//! the latest it ends after [`LIFETIME`].

mod error;
mod replacing;
mod tables;

pub use error::HandoverError;
pub use replacing::{Replace, Replacing, Step};
pub use tables::{HANDOVER_TABLE, LIFETIME, Purpose, remove};

use engine::KnownElements;
use engine::ruleset::base::CLUSTER_IPS_CHECK;
use engine::ruleset::{SetId, TABLE_COMMENT};
use nft::kernel::{Contents, Kernel, Nftables};
use nft::{Family, Operation, TableRef};

use self::tables::handover_table;

/// Leaves our tables to the next program: they get no flags, so that every program can change or
/// delete them, and the handover tables stay until they expire. Returns the families whose table had
/// flags. `known` has elements of each family that need not be listed.
///
/// `is_interrupted` is called before each step; it interrupts only those of the handover table.
///
/// # Errors
/// See [`HandoverError`]. Our tables are unchanged, or the handover table serves.
pub fn hand_over(
    kernel: &mut Nftables,
    known: [Option<KnownElements>; 2],
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<Family>, HandoverError> {
    let mut changed = Vec::new();
    let mut families: Vec<_> = Family::ALL.into_iter().zip(known).collect();
    // An interruption of the larger one, whose elements take longest, leaves the other one free.
    let endpoints = |known: &KnownElements| known.count(SetId::Endpoints);
    families.sort_by_key(|(_, known)| known.as_ref().map(endpoints));
    for (family, known) in families {
        let listed = Replacing::list(kernel, (family, Purpose::Leave), known, is_interrupted)?;
        let Some(mut replacing) = listed else { continue };
        let (mut last, mut is_replaced) = (Step::Copied, false);
        while last != Step::Done {
            let is_unchanged = last == Step::Copied;
            let step = if is_interrupted() && is_unchanged {
                Err(HandoverError::Interrupted)
            } else {
                replacing.step(kernel)
            };
            if step.is_err() && is_unchanged {
                remove(kernel, &handover_table(family))?;
            }
            last = step?;
            is_replaced |= last == Step::Serving;
        }
        changed.extend(is_replaced.then_some(family));
    }
    Ok(changed)
}

/// Removes the handover tables, which an earlier daemon left. Returns those that existed.
///
/// # Errors
/// See [`HandoverError`].
pub fn remove_handover_tables<K: Kernel>(kernel: &mut K) -> Result<Vec<TableRef>, HandoverError> {
    let mut removed = Vec::new();
    for family in Family::ALL {
        let table = handover_table(family);
        if remove(kernel, &table)? {
            removed.push(table);
        }
    }
    Ok(removed)
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
