//! The tables of a handover: their names, flags and rules, and how they are removed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use engine::KnownElements;
use engine::ruleset::base::CLUSTER_IPS_CHECK;
use engine::ruleset::field::Field;
use engine::ruleset::phrase::{self, Phrase, Phrases};
use engine::ruleset::{Layouts, SetId, table_comment};
use nft::expression::{Bitwise, Cmp, Dynset, Expression, Lookup, Reg, ct, ip, ip6};
use nft::kernel::{CommitError, Extent, Kernel, Nftables};
use nft::key::{CT_STATUS_CONFIRMED, CT_STATUS_DNAT, DYNSET_DELETE};
use nft::{
    AnySet, BaseChain, Chain, Element, Family, HookPoint, Operation, TableFamily, TableFlags,
    TableRef, Transaction, Value, Verdict, WholeTable,
};
use nix::errno::Errno;

use super::error::HandoverError;

/// The name of the handover table in both families.
pub const HANDOVER_TABLE: &str = "deltaproxy-handover";

/// Time for which the handover table serves after the end of a daemon: kube-proxy starts. Nothing
/// updates its elements, so it must not serve for long.
pub const LIFETIME: Duration = Duration::from_secs(60);

/// Time that the elements of the handover table stay. A daemon that is killed while the table serves
/// leaves no other one with elements, and the next daemon may come late.
const LIFETIME_OF_ELEMENTS: Duration = Duration::from_secs(3_600);

/// Base chains of the handover table come after those of our table. The translating ones still come
/// before those of other programs, as ours do.
const PRIORITY_SHIFT: i32 = 1;

/// Priority of kube-proxy's translating chains (`NF_IP_PRI_NAT_DST`). It is refused if its table has
/// them with another one.
const KUBE_PROXY_PRIORITY: i32 = -100;

/// Priority of the chains that see what others translated, after all translations.
const WITNESS_PRIORITY: i32 = -90;

/// Elements that such a set has room for beside few known ones.
const ROOM: usize = 4_096;

/// Chains in which the next program has precedence.
const TRANSLATING: [&str; 2] = ["nat-prerouting", "nat-output"];

/// What a table is replaced for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It gets these flags, while a daemon serves changes: these wait for one piece.
    Flags(TableFlags),
    /// The daemon ends. The table gets no flags, and the handover table serves until another program
    /// does, for [`LIFETIME`] at most. Without `persist`, the table need not be replaced.
    Leave,
}

impl Purpose {
    /// Returns the flags of the new table.
    pub(super) fn flags(self) -> TableFlags {
        match self {
            Self::Flags(flags) => flags,
            Self::Leave => TableFlags::default(),
        }
    }

    /// Returns the bytes from which on a piece is sent. At the end of a daemon, other programs can
    /// commit, and the handover can be interrupted, between two pieces. With 8 MiB for our table, an
    /// end of 50,000 services needed 28 MiB more.
    pub(super) fn piece(self) -> usize {
        match self {
            Self::Flags(_) => 128 << 10,
            Self::Leave => 1 << 20,
        }
    }
}

/// Returns the flags of a table; `None` if another program created it.
pub(super) fn flags_of_ours(
    kernel: &mut Nftables,
    own: &TableRef,
) -> Result<Option<TableFlags>, HandoverError> {
    let found = kernel.read_table(own)?.map(|contents| contents.table);
    let ours = found.filter(|table| table.comment.as_deref() == Some(&*table_comment()));
    Ok(ours.map(|table| table.flags))
}

/// Returns the handover table of our table, without elements. It has no flowtable. Sets whose elements
/// are known have little room for others: the kernel need not grow their hash tables while it adds
/// them.
pub(super) fn of_handover(
    own: &WholeTable,
    known: Option<&KnownElements>,
    purpose: Purpose,
) -> WholeTable {
    let mut copy = WholeTable { name: HANDOVER_TABLE.into(), flags: 0, ..own.clone() };
    for base in copy.chains.iter_mut().filter_map(|chain| chain.base.as_mut()) {
        base.priority = base.priority.saturating_add(PRIORITY_SHIFT);
    }
    for set in copy.sets.iter_mut().map(|contents| &mut contents.set) {
        if set.flags & (AnySet::TIMEOUT | AnySet::ANONYMOUS) == 0 {
            set.flags |= AnySet::TIMEOUT;
            set.timeout = u64::try_from(LIFETIME_OF_ELEMENTS.as_millis()).ok();
        }
    }
    for id in known.iter().flat_map(|_| KnownElements::SETS) {
        let count = known.map_or(0, |known| known.count(id));
        let contents = copy.sets.iter_mut().find(|contents| contents.set.name == id.name());
        if let Some(AnySet { size, .. }) = contents.map(|contents| &mut contents.set) {
            *size = u32::try_from(count + count / 8 + ROOM).ok();
        }
    }
    copy.flowtables.clear();
    let uses_flowtable = |it: &Expression| matches!(it, Expression::FlowOffload(_));
    let rules = std::mem::take(&mut copy.rules);
    add_precedence(&mut copy);
    copy.rules
        .extend(rules.into_iter().filter(|rule| !rule.expressions.iter().any(uses_flowtable)));
    if purpose == Purpose::Leave {
        add_witness(&mut copy);
    }
    copy
}

/// Adds the rules that leave packets to the next program: all of them once the table does not serve
/// any more, and those to local cluster IPs to mode ipvs. It translates after routing, and makes the
/// cluster IPs addresses of the node.
fn add_precedence(copy: &mut WholeTable) {
    let Some(family) = family_of(copy) else { return };
    let cluster_ips = SetId::ClusterIps.name();
    let is_over = [serving(family), vec![Lookup::not_in_set(cluster_ips, FIRST)]].concat();
    let is_of_ipvs =
        [Phrases(family).in_set(&[Field::Daddr], cluster_ips), phrase::destination_is_local()];
    for chain in TRANSLATING {
        for phrase in [is_over.clone(), is_of_ipvs.concat()] {
            copy.append_rule(chain, [phrase, phrase::verdict(Verdict::Accept)].concat());
        }
    }
    let leave = [is_over, phrase::verdict(Verdict::Return)].concat();
    copy.append_rule(CLUSTER_IPS_CHECK, leave);
}

/// Lets the handover table note that the next program translates: a connection to one of our
/// frontends has another destination, and no priority, which our rules set. Its own rules are written
/// as a whole, so all of them are there then.
fn add_witness(copy: &mut WholeTable) {
    let Some(family) = family_of(copy) else { return };
    let frontends = [
        (SetId::Services, &[Field::OriginalDaddr, Field::L4Proto, Field::OriginalDport][..]),
        (SetId::NodePorts, &[Field::L4Proto, Field::OriginalDport]),
    ];
    let cluster_ips = SetId::ClusterIps.name();
    for hook in [HookPoint::Prerouting, HookPoint::Output] {
        let name = format!("witness-{}", copy.family.hook(hook as u32));
        for (map, key) in frontends {
            let expressions = [
                is_first_with_dnat(),
                phrase::priority(0).equal(),
                Phrases(family).set_priority(key, map.name()),
                phrase::clear_priority(),
                serving(family),
                vec![Dynset::new(DYNSET_DELETE, cluster_ips, FIRST).into()],
            ];
            copy.append_rule(&name, expressions.concat());
        }
        let base = BaseChain::new("filter", hook, WITNESS_PRIORITY);
        copy.chains.push(Chain::at_hook(name, base));
    }
}

/// Matches the packet that begins a connection, if its destination was translated. The connection is
/// not confirmed then: later packets may come before an answer, without a priority.
fn is_first_with_dnat() -> Phrase {
    let mask = CT_STATUS_CONFIRMED | CT_STATUS_DNAT;
    vec![
        ct::status(FIRST),
        Bitwise::mask_xor(FIRST, mask.to_ne_bytes(), [0; 4]),
        Cmp::equal(FIRST, CT_STATUS_DNAT.to_ne_bytes()),
    ]
}

/// Returns the family of a table with cluster IPs.
fn family_of(table: &WholeTable) -> Option<Family> {
    let cluster_ips = table.set(SetId::ClusterIps.name());
    table.family.of_addresses().filter(|_| cluster_ips.is_some())
}

/// Loads the element of `cluster-ips` that tells that the handover table serves: no cluster IP is the
/// unspecified address. nft(8) cannot list a lookup of a constant.
fn serving(family: Family) -> Phrase {
    let (load, none) = match family {
        Family::Ip => (ip::daddr(FIRST), vec![0; 4]),
        Family::Ip6 => (ip6::daddr(FIRST), vec![0; 16]),
    };
    vec![load, Bitwise::mask_xor(FIRST, none.clone(), none)]
}

/// Lets the handover table of our table serve, with this limit of time if the daemon ends. Then
/// another program may serve already: its first connection has ended it.
pub(super) fn serve(
    kernel: &mut Nftables,
    own: &WholeTable,
    limit: Option<Duration>,
) -> Result<(), HandoverError> {
    let Some(family) = family_of(own) else { return Ok(()) };
    let set = Arc::clone(Layouts::default().of(family).get(SetId::ClusterIps));
    let unspecified = match family {
        Family::Ip => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Family::Ip6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let element = Element::new(Value::new().ip(unspecified));
    let limited = Element { timeout: limit, ..element.clone() };
    let table = handover_table(family);
    let mut operations =
        vec![Operation::AddElements(table.clone(), Arc::clone(&set), [limited].into())];
    if limit.is_some() {
        operations.insert(0, Operation::DeleteElements(table, set, [element].into()));
    }
    match kernel.commit(&Transaction { operations }) {
        Err(CommitError::Refused { errno: Errno::ENOENT, .. }) if limit.is_some() => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

const FIRST: Reg = Reg::of_word(0);

/// Gives the next program precedence over a table. The chains of the handover table come after its
/// own; ours get the priority of kube-proxy, and come before its until another program adds chains.
///
/// Leaves it to the handover table to refuse packets that no service port has. If another program
/// deletes our table, the kernel runs its rules with empty maps until it has removed their hooks
/// (seen for up to 1 ms), and these would refuse or drop what the handover table serves.
pub(super) fn make_way(kernel: &mut Nftables, table: &TableRef) -> Result<(), HandoverError> {
    let installed = kernel.whole_table(table.family, &table.name, Extent::Structure)?;
    let Some(installed) = installed else { return Ok(()) };
    let mut desired = installed.clone();
    let is_ours = *table.name != *HANDOVER_TABLE;
    for chain in &mut desired.chains {
        if let Some(base) = chain.base.as_mut().filter(|_| TRANSLATING.contains(&&*chain.name)) {
            base.priority = KUBE_PROXY_PRIORITY + i32::from(!is_ours);
        }
    }
    desired.rules.retain(|rule| !is_ours || rule.chain != CLUSTER_IPS_CHECK);
    kernel.apply(&desired.difference_from(Some(&installed))?)?;
    Ok(())
}

/// Removes a table; returns whether it existed. Its base chains go first: a packet inside them then
/// still finds the elements.
///
/// # Errors
/// See [`HandoverError`].
pub fn remove<K: Kernel>(kernel: &mut K, table: &TableRef) -> Result<bool, HandoverError> {
    let Some(contents) = kernel.read_table(table)? else { return Ok(false) };
    delete_base_chains(kernel, table, &contents.chains)?;
    kernel.commit(&Transaction { operations: vec![Operation::DeleteTable(table.clone())] })?;
    Ok(true)
}

pub(super) fn delete_base_chains<K: Kernel>(
    kernel: &mut K,
    table: &TableRef,
    chains: &[Chain],
) -> Result<(), HandoverError> {
    let bases = chains.iter().filter(|chain| chain.base.is_some());
    let delete = |chain: &Chain| Operation::DeleteChain(table.clone(), chain.name.clone());
    kernel.commit(&Transaction { operations: bases.map(delete).collect() })?;
    Ok(())
}

pub(super) fn handover_table(family: impl Into<TableFamily>) -> TableRef {
    TableRef::new(family, HANDOVER_TABLE)
}

#[cfg(test)]
mod tests {
    use nft::expression::FlowOffload;
    use nft::{Flowtable, SetContents};

    use super::*;

    /// A table with one rule in a base chain, one that uses its flowtable, and these sets.
    fn own(sets: &[(&str, u32)]) -> WholeTable {
        let mut own = WholeTable::new(TableFamily::Ip, "kube-proxy");
        own.flags = TableFlags { owner: true, persist: true }.bits();
        let base = BaseChain::new("nat", HookPoint::Prerouting, -102);
        own.chains = vec![Chain::new("services"), Chain::at_hook("nat-prerouting", base)];
        own.flowtables = vec![Flowtable::new("fast")];
        own.append_rule("nat-prerouting", phrase::verdict(Verdict::Drop));
        own.append_rule("services", vec![FlowOffload::to("fast")]);
        let set = |(name, flags): &(&str, u32)| SetContents {
            set: AnySet { flags: *flags, ..AnySet::of_types(name, "ipv4_addr").unwrap() },
            elements: Vec::new(),
        };
        own.sets = sets.iter().map(set).collect();
        own
    }

    #[test]
    fn the_handover_table_comes_later_without_flags_and_flowtable_and_its_elements_expire() {
        let sets = [("services", 0), ("clients", AnySet::TIMEOUT | AnySet::DYNAMIC)];
        let copy = of_handover(&own(&sets), None, Purpose::Leave);
        assert_eq!(
            copy.difference_from(None).unwrap().to_string(),
            "add table ip deltaproxy-handover\n\
             add chain ip deltaproxy-handover services\n\
             add chain ip deltaproxy-handover nat-prerouting { type nat hook prerouting priority \
             -101; policy accept; }\n\
             add set ip deltaproxy-handover services { type ipv4_addr; flags timeout; }\n\
             add set ip deltaproxy-handover clients { type ipv4_addr; flags dynamic,timeout; }\n\
             add rule ip deltaproxy-handover nat-prerouting drop\n"
        );
        assert_eq!(copy.flags, 0);
        let timeouts = ["services", "clients"].map(|name| copy.set(name).unwrap().set.timeout);
        assert_eq!(timeouts, [Some(3_600_000), None]);
    }

    #[test]
    fn elements_of_sets_of_rules_do_not_expire() {
        let anonymous = [("__set0", AnySet::ANONYMOUS)];
        let copy = of_handover(&own(&anonymous), None, Purpose::Leave);
        assert_eq!(copy.sets, own(&anonymous).sets);
    }

    #[test]
    fn the_next_program_has_precedence_and_is_witnessed_at_the_end_only() {
        let sets = [(SetId::ClusterIps.name(), 0)];
        let copy = of_handover(&own(&sets), None, Purpose::Flags(TableFlags::default()));
        assert!(copy.chains.len() == 2 && copy.rules_of("nat-output").count() == 2);
        let rules: Vec<_> = copy.rules_of("nat-prerouting").collect();
        let last = own(&sets).rules[0].expressions.clone();
        assert!(rules.len() == 3 && rules[2].expressions == last, "{rules:?}");
        let copy = of_handover(&own(&sets), None, Purpose::Leave);
        let witnesses = ["witness-prerouting", "witness-output"];
        for name in witnesses {
            assert!(copy.chains.iter().any(|chain| *chain.name == *name && chain.base.is_some()));
            assert_eq!(copy.rules_of(name).count(), 2);
        }
    }
}
