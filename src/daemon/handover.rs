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
//! The first chain of type nat that translates a connection decides. At the end of a daemon step 4
//! is left out: kube-proxy in mode iptables or ipvs deletes our table seconds before its own rules
//! are complete, and its rules precede those of the handover table. The elements of that table
//! expire after [`LIFETIME`]. `stepwise` does the steps, also while a daemon commits changes.

mod stepwise;

pub use stepwise::{Step, Stepwise, list};

use std::time::Duration;

use engine::ruleset::base::CLUSTER_IPS_CHECK;
use engine::ruleset::field::Field;
use engine::ruleset::phrase::{self, Phrases};
use engine::ruleset::{SetId, TABLE_COMMENT, table, table_comment};
use nft::copy::CopyTarget;
use nft::kernel::{Contents, CopyTableError, Definition, Kernel, Nftables};
use nft::{Family, Name, Operation, Rule, TableFamily, TableFlags, TableRef, Transaction, Verdict};

/// The name of the handover table in both families.
pub const HANDOVER_TABLE: &str = "deltaproxy-handover";

/// Time that the elements of the handover table stay: an image is pulled, and kube-proxy starts.
/// Nothing updates them, so they must not stay for long.
pub const LIFETIME: Duration = Duration::from_secs(600);

/// Base chains of the handover table come after those of kube-proxy, in each hook.
const PRIORITY_SHIFT: i32 = 1;

/// Sizes in bytes from which on a part of a table is sent.
#[derive(Clone, Copy)]
struct PieceSizes {
    /// Of the handover table.
    copy: usize,
    /// Of our table.
    replacement: usize,
}

/// At the end of a daemon. Other programs can commit, and the handover can be interrupted, between
/// two parts of the handover table; tables of some 10,000 services are replaced in one transaction.
const AT_THE_END: PieceSizes = PieceSizes { copy: 1 << 20, replacement: 8 << 20 };

/// While a daemon serves changes, which wait for one part.
const BESIDE_CHANGES: PieceSizes = PieceSizes { copy: 128 << 10, replacement: 128 << 10 };

/// Chains in which kube-proxy's mode ipvs has precedence.
const TRANSLATING: [&str; 2] = ["nat-prerouting", "nat-output"];

/// Leaves our tables to the next program: they get no flags, so that every program can change or
/// delete them, and the handover tables stay until they expire. Returns the families whose table had
/// flags.
///
/// `is_interrupted` is called between pieces of the handover table.
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
        if remove(kernel, family)? {
            removed.push(handover_table(family));
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
        remove(kernel, own.family)?;
        return Err(error);
    }
    if flags.persist {
        steps.replace(kernel)?;
    }
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

/// Returns the flags of a table; `None` if another program created it.
fn flags_of_ours(
    kernel: &mut Nftables,
    own: &TableRef,
) -> Result<Option<TableFlags>, CopyTableError> {
    let found = kernel.read_table(own)?.map(|contents| contents.table);
    let ours = found.filter(|table| table.comment.as_deref() == Some(&*table_comment()));
    Ok(ours.map(|table| table.flags))
}

fn handover_target() -> CopyTarget {
    CopyTarget {
        table: HANDOVER_TABLE.into(),
        flags: TableFlags::default(),
        priority_shift: PRIORITY_SHIFT,
        lifetime: Some(LIFETIME),
    }
}

/// Returns the rules that leave packets to mode ipvs. It translates after routing, and makes the
/// cluster IPs addresses of the node.
fn precedence_of_ipvs(own: &Definition) -> Result<Vec<Rule>, CopyTableError> {
    let Some(family) = own.table.family.of_addresses() else { return Ok(Vec::new()) };
    let cluster_ips = SetId::ClusterIps.name();
    if !own.sets.iter().any(|set| *set.name == *cluster_ips) {
        return Ok(Vec::new());
    }
    let chains = own.base_chains()?.into_iter().filter(|chain| TRANSLATING.contains(&&**chain));
    let phrases = [
        Phrases(family).in_set(&[Field::Daddr], cluster_ips),
        phrase::destination_is_local(),
        phrase::verdict(Verdict::Accept),
    ];
    let rule = |chain: Name| Rule { chain, expressions: phrases.concat(), comment: None };
    Ok(chains.map(rule).collect())
}

fn new_table(own: &Definition, flags: TableFlags) -> CopyTarget {
    CopyTarget { table: own.table.name.clone(), flags, priority_shift: 0, lifetime: None }
}

/// Removes the base chains first: a packet inside them then still finds the elements.
fn remove(kernel: &mut Nftables, family: impl Into<TableFamily>) -> Result<bool, CopyTableError> {
    let table = handover_table(family);
    let Some(definition) = kernel.read_definition(&table)? else { return Ok(false) };
    delete_base_chains(kernel, &definition)?;
    kernel.commit(&Transaction { operations: vec![Operation::DeleteTable(table)] })?;
    Ok(true)
}

fn delete_base_chains(
    kernel: &mut Nftables,
    definition: &Definition,
) -> Result<(), CopyTableError> {
    let chains = definition.base_chains()?.into_iter();
    let delete = |chain| Operation::DeleteChain(definition.table.clone(), chain);
    kernel.commit(&Transaction { operations: chains.map(delete).collect() })?;
    Ok(())
}

fn handover_table(family: impl Into<TableFamily>) -> TableRef {
    TableRef::new(family, HANDOVER_TABLE)
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
