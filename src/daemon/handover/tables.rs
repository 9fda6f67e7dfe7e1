//! The tables of a handover: their names, flags and rules, and how they are removed.

use std::time::Duration;

use engine::ruleset::field::Field;
use engine::ruleset::phrase::{self, Phrases};
use engine::ruleset::{SetId, table_comment};
use nft::copy::CopyTarget;
use nft::kernel::{CopyTableError, Definition, Kernel, Nftables};
use nft::{Name, Operation, Rule, TableFamily, TableFlags, TableRef, Transaction, Verdict};

/// The name of the handover table in both families.
pub const HANDOVER_TABLE: &str = "deltaproxy-handover";

/// Time that the elements of the handover table stay: an image is pulled, and kube-proxy starts.
/// Nothing updates them, so they must not stay for long.
pub const LIFETIME: Duration = Duration::from_secs(600);

/// Base chains of the handover table come after those of kube-proxy, in each hook.
const PRIORITY_SHIFT: i32 = 1;

/// Sizes in bytes from which on a part of a table is sent.
#[derive(Clone, Copy)]
pub(super) struct PieceSizes {
    /// Of the handover table.
    pub(super) copy: usize,
    /// Of our table.
    pub(super) replacement: usize,
}

/// While a daemon serves changes, which wait for one part.
pub(super) const BESIDE_CHANGES: PieceSizes =
    PieceSizes { copy: 128 << 10, replacement: 128 << 10 };

/// Chains in which kube-proxy's mode ipvs has precedence.
const TRANSLATING: [&str; 2] = ["nat-prerouting", "nat-output"];

/// Returns the flags of a table; `None` if another program created it.
pub(super) fn flags_of_ours(
    kernel: &mut Nftables,
    own: &TableRef,
) -> Result<Option<TableFlags>, CopyTableError> {
    let found = kernel.read_table(own)?.map(|contents| contents.table);
    let ours = found.filter(|table| table.comment.as_deref() == Some(&*table_comment()));
    Ok(ours.map(|table| table.flags))
}

pub(super) fn handover_target() -> CopyTarget {
    CopyTarget {
        table: HANDOVER_TABLE.into(),
        flags: TableFlags::default(),
        priority_shift: PRIORITY_SHIFT,
        lifetime: Some(LIFETIME),
    }
}

/// Returns the rules that leave packets to mode ipvs. It translates after routing, and makes the
/// cluster IPs addresses of the node.
pub(super) fn precedence_of_ipvs(own: &Definition) -> Result<Vec<Rule>, CopyTableError> {
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

pub(super) fn new_table(own: &Definition, flags: TableFlags) -> CopyTarget {
    CopyTarget { table: own.table.name.clone(), flags, priority_shift: 0, lifetime: None }
}

/// Removes the base chains first: a packet inside them then still finds the elements.
pub(super) fn remove(
    kernel: &mut Nftables,
    family: impl Into<TableFamily>,
) -> Result<bool, CopyTableError> {
    let table = handover_table(family);
    let Some(definition) = kernel.read_definition(&table)? else { return Ok(false) };
    delete_base_chains(kernel, &definition)?;
    kernel.commit(&Transaction { operations: vec![Operation::DeleteTable(table)] })?;
    Ok(true)
}

pub(super) fn delete_base_chains(
    kernel: &mut Nftables,
    definition: &Definition,
) -> Result<(), CopyTableError> {
    let chains = definition.base_chains()?.into_iter();
    let delete = |chain| Operation::DeleteChain(definition.table.clone(), chain);
    kernel.commit(&Transaction { operations: chains.map(delete).collect() })?;
    Ok(())
}

pub(super) fn handover_table(family: impl Into<TableFamily>) -> TableRef {
    TableRef::new(family, HANDOVER_TABLE)
}
