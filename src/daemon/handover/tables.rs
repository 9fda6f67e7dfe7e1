//! The tables of a handover: their names, flags and rules, and how they are removed.

use std::time::Duration;

use engine::ruleset::field::Field;
use engine::ruleset::phrase::{self, Phrase, Phrases};
use engine::ruleset::{SetId, table_comment};
use nft::copy::CopyTarget;
use nft::expression::{Bitwise, Cmp, Ct, Dynset, Lookup, Payload, Reg};
use nft::kernel::{CopyTableError, Definition, Kernel, Nftables};
use nft::key::{CT_STATUS, CT_STATUS_CONFIRMED, CT_STATUS_DNAT, DYNSET_UPDATE, PAYLOAD_NETWORK};
use nft::{
    BaseChain, Chain, Family, HookPoint, Name, Operation, Rule, TableFamily, TableFlags, TableRef,
    Transaction, Verdict,
};

/// The name of the handover table in both families.
pub const HANDOVER_TABLE: &str = "deltaproxy-handover";

/// Time that the elements of the handover table stay: kube-proxy starts. Nothing updates them, so
/// they must not stay for long.
pub const LIFETIME: Duration = Duration::from_secs(60);

/// Base chains of the handover table come after those of our table. The translating ones still come
/// before those of other programs, as ours do.
const PRIORITY_SHIFT: i32 = 1;

/// Priority of kube-proxy's translating chains (`NF_IP_PRI_NAT_DST`). It is refused if its table has
/// them with another one.
pub(super) const KUBE_PROXY_PRIORITY: i32 = -100;

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

/// Priority of the chains that see what others translated, after all translations.
const WITNESS_PRIORITY: i32 = -90;

/// Chains in which the next program has precedence.
pub(super) const TRANSLATING: [&str; 2] = ["nat-prerouting", "nat-output"];

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

/// Returns the rules that leave packets to the next program: all of them once it translates
/// ([`witness`]), and those to local cluster IPs to mode ipvs. It translates after routing, and makes
/// the cluster IPs addresses of the node.
pub(super) fn precedence(own: &Definition) -> Result<Vec<Rule>, CopyTableError> {
    let Some(family) = family_of(own) else { return Ok(Vec::new()) };
    let cluster_ips = SetId::ClusterIps.name();
    let is_over = [over(family), vec![Lookup::in_set(cluster_ips, FIRST)]].concat();
    let is_of_ipvs =
        [Phrases(family).in_set(&[Field::Daddr], cluster_ips), phrase::destination_is_local()];
    let rule = |chain: &Name, phrase: Phrase| {
        let expressions = [phrase, phrase::verdict(Verdict::Accept)].concat();
        Rule { chain: chain.clone(), expressions, comment: None }
    };
    let chains = own.base_chains()?.into_iter().filter(|chain| TRANSLATING.contains(&&**chain));
    Ok(chains
        .flat_map(|chain| [rule(&chain, is_over.clone()), rule(&chain, is_of_ipvs.concat())])
        .collect())
}

/// Returns the transaction that lets the handover table note that the next program translates: a
/// connection to one of our frontends has another destination, and no priority, which our rules set.
/// Its own rules are written as a whole, so all of them are there then.
pub(super) fn witness(own: &Definition) -> Transaction {
    let Some(family) = family_of(own) else { return Transaction::default() };
    let table = handover_table(family);
    let frontends = [
        (SetId::Services, &[Field::OriginalDaddr, Field::L4Proto, Field::OriginalDport][..]),
        (SetId::NodePorts, &[Field::L4Proto, Field::OriginalDport]),
    ];
    let cluster_ips = SetId::ClusterIps.name();
    let mut operations = Vec::new();
    for hook in [HookPoint::Prerouting, HookPoint::Output] {
        let name: Name = format!("witness-{hook}").into();
        let chain = Chain::at_hook(name.clone(), BaseChain::new("filter", hook, WITNESS_PRIORITY));
        operations.push(Operation::AddChain(table.clone(), chain));
        for (map, key) in frontends {
            let expressions = [
                is_first_with_dnat(),
                phrase::priority(0).equal(),
                Phrases(family).set_priority(key, map.name()),
                phrase::clear_priority(),
                over(family),
                vec![Dynset::new(DYNSET_UPDATE, cluster_ips, FIRST).into()],
            ];
            let rule =
                Rule { chain: name.clone(), expressions: expressions.concat(), comment: None };
            operations.push(Operation::AddRule(table.clone(), rule));
        }
    }
    Transaction { operations }
}

/// Matches the packet that begins a connection, if its destination was translated. The connection is
/// not confirmed then: later packets may come before an answer, without a priority.
fn is_first_with_dnat() -> Phrase {
    let mask = CT_STATUS_CONFIRMED | CT_STATUS_DNAT;
    vec![
        Ct::load(CT_STATUS, FIRST),
        Bitwise::mask_xor(FIRST, mask.to_ne_bytes(), [0; 4]),
        Cmp::equal(FIRST, CT_STATUS_DNAT.to_ne_bytes()),
    ]
}

/// Returns the family of a table with cluster IPs.
fn family_of(own: &Definition) -> Option<Family> {
    let has_cluster_ips = own.sets.iter().any(|set| *set.name == *SetId::ClusterIps.name());
    own.table.family.of_addresses().filter(|_| has_cluster_ips)
}

/// Loads the element of `cluster-ips` that tells that the handover is over: no cluster IP is the
/// unspecified address. nft(8) cannot list a lookup of a constant.
fn over(family: Family) -> Phrase {
    let (offset, bytes): (_, u8) = match family {
        Family::Ip => (16, 4),
        Family::Ip6 => (24, 16),
    };
    let none = vec![0; usize::from(bytes)];
    vec![
        Payload::load(PAYLOAD_NETWORK, offset, bytes.into(), FIRST),
        Bitwise::mask_xor(FIRST, none.clone(), none),
    ]
}

const FIRST: Reg = Reg::of_word(0);

pub(super) fn new_table(own: &Definition, flags: TableFlags) -> CopyTarget {
    CopyTarget { table: own.table.name.clone(), flags, priority_shift: 0, lifetime: None }
}

/// Removes a table; returns whether it existed. Its base chains go first: a packet inside them then
/// still finds the elements.
///
/// # Errors
/// See [`CopyTableError`].
pub fn remove(kernel: &mut Nftables, table: &TableRef) -> Result<bool, CopyTableError> {
    let Some(definition) = kernel.read_definition(table)? else { return Ok(false) };
    delete_base_chains(kernel, &definition)?;
    kernel.commit(&Transaction { operations: vec![Operation::DeleteTable(table.clone())] })?;
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
