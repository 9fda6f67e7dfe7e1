//! Installed chains, rules and sets of one table, and the operations that make them as desired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ahash::HashMap;
use nft::kernel::Contents;
use nft::{
    BaseChain, DecodedSet, Flowtable, ListedRule, Name, Operation, Rule, Table, TableFlags,
    TableRef,
};

use super::table_id::TableId;
use crate::direct;
use crate::ruleset::base::{Base, looks_services_up};
use crate::ruleset::{ChainSpec, SetId, flowtable};

/// Installed state of one table, without elements.
#[derive(Debug)]
pub(crate) enum BaseState {
    /// No such table.
    Absent,
    /// A table of this name with another layout or other counters. It is replaced as a whole.
    Foreign {
        /// This program created it, with another layout.
        is_own: bool,
    },
    /// Our table.
    Ours(InstalledBase),
}

/// Contents of our table, without elements, in orders that repeat.
#[derive(Debug, Default)]
pub(crate) struct InstalledBase {
    flags: TableFlags,
    /// Only rules of another program serve in the table.
    is_idle: bool,
    chains: BTreeMap<Name, InstalledChain>,
    sets: BTreeSet<Name>,
    flowtables: BTreeSet<Name>,
}

/// A chain in the kernel.
#[derive(Debug)]
pub(crate) struct InstalledChain {
    base: Option<BaseChain>,
    /// The rules; `None` if they were not as desired when they were read.
    rules: Option<Arc<Vec<Rule>>>,
}

impl BaseState {
    /// Compares the contents that were read with the desired contents. A table of ours has our
    /// comment, and of our sets only the desired ones.
    pub(crate) fn found(id: TableId, contents: Option<&Contents>, desired: Option<&Base>) -> Self {
        let Some(contents) = contents else { return Self::Absent };
        let fits = |found: &DecodedSet| desired.is_none_or(|desired| is_desired(found, desired));
        let is_ours = contents.table.comment.as_deref() == Some(id.comment().as_str())
            && contents.foreign == 0
            && contents.flowtables.iter().all(is_usable)
            && contents.sets.iter().all(fits);
        if !is_ours {
            return Self::Foreign { is_own: direct::is_own(contents) };
        }
        // The kernel lists the rules chain by chain.
        let mut rules = HashMap::<&str, Vec<&ListedRule>>::default();
        for listed in contents.rules.chunk_by(|a, b| a.chain == b.chain) {
            let Some(first) = listed.first() else { continue };
            rules.entry(&first.chain).or_default().extend(listed);
        }
        let specs = desired.iter().flat_map(|desired| &desired.chains);
        let specs = specs.map(|spec| (&spec.chain.name, spec));
        let specs: HashMap<&Name, &ChainSpec> = specs.collect();
        let chains = contents.chains.iter().map(|chain| {
            let found = rules.remove(&*chain.name).unwrap_or_default();
            let same = specs.get(&chain.name);
            let same = same.filter(|spec| are_same(&spec.rules, &found));
            let rules = same.map(|spec| Arc::clone(&spec.rules));
            (chain.name.clone(), InstalledChain { base: chain.base.clone(), rules })
        });
        // The kernel deletes anonymous sets with their rules.
        let named_sets = contents.sets.iter().filter(|found| !found.anonymous);
        Self::Ours(InstalledBase {
            flags: contents.table.flags,
            is_idle: id != TableId::DirectReturn && serves_another(contents),
            chains: chains.collect(),
            sets: named_sets.map(|found| found.name.clone().into()).collect(),
            flowtables: contents.flowtables.iter().map(|it| it.name.clone()).collect(),
        })
    }

    /// Returns the installed state after the operations for `desired` are applied.
    pub(crate) fn after(desired: &Base, flags: TableFlags) -> Self {
        let chains = desired.chains.iter().map(|spec| {
            let rules = Some(Arc::clone(&spec.rules));
            (spec.chain.name.clone(), InstalledChain { base: spec.chain.base.clone(), rules })
        });
        let sets = desired.sets.iter().map(|set| set.name.clone());
        let flowtables = desired.flowtable.iter().map(|flowtable| flowtable.name.clone());
        Self::Ours(InstalledBase {
            flags,
            is_idle: false,
            chains: chains.collect(),
            sets: sets.collect(),
            flowtables: flowtables.collect(),
        })
    }

    /// Returns whether the table is ours, of the present layout.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }

    /// Returns whether a table is replaced as a whole.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign { .. })
    }

    /// Returns whether this program created the table, with any layout.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Ours(_) | Self::Foreign { is_own: true })
    }

    /// Returns whether only rules of another program serve in our table. Until ours replace them,
    /// no rule looks elements up, so they come first.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Ours(installed) if installed.is_idle)
    }

    /// Returns the operations that add the sets that our table lacks.
    pub(crate) fn missing_sets(&self, desired: &Base, table: &TableRef) -> Vec<Operation> {
        let Self::Ours(installed) = self else { return Vec::new() };
        installed.missing_sets(desired, table)
    }

    /// Records that our table has all desired sets.
    pub(crate) fn add_sets(&mut self, desired: &Base) {
        if let Self::Ours(installed) = self {
            installed.sets.extend(desired.sets.iter().map(|set| set.name.clone()));
        }
    }

    /// Returns the operations from the installed to the desired table, without elements. Without a
    /// desired one, a table of this program is deleted.
    pub(crate) fn operations(&self, desired: Option<&Base>, table: &Table) -> Vec<Operation> {
        let Some(desired) = desired else {
            let delete = || Operation::DeleteTable(table.reference());
            return self.is_own().then(delete).into_iter().collect();
        };
        let nothing = InstalledBase::default();
        let mut operations = Vec::new();
        let installed = match self {
            Self::Ours(installed) => installed,
            Self::Absent | Self::Foreign { .. } => &nothing,
        };
        if self.is_foreign() {
            operations.push(Operation::DeleteTable(table.reference()));
        }
        if !matches!(self, Self::Ours(InstalledBase { flags, .. }) if !can_own(*flags, table.flags))
        {
            operations.push(Operation::AddTable(table.clone()));
        }
        operations.extend(update(desired, &table.reference(), installed));
        operations
    }

    /// Returns whether the table needs its owner one transaction before the other changes. The
    /// kernel adds no base chain in the one that changes a table's flags (`nf_tables_addchain`).
    pub(crate) fn needs_owner_first(&self, desired: &Base, table: &Table) -> bool {
        let Self::Ours(InstalledBase { flags, chains, .. }) = self else { return false };
        let adds_base_chain = desired.chains.iter().any(|spec| {
            let installed = chains.get(&spec.chain.name);
            spec.chain.base.is_some() && installed.is_none_or(|it| it.base != spec.chain.base)
        });
        can_own(*flags, table.flags) && adds_base_chain
    }

    /// Returns the sets of our table whose elements are written.
    pub(crate) fn written_sets(&self) -> impl Iterator<Item = SetId> {
        let sets = if let Self::Ours(installed) = self { Some(&installed.sets) } else { None };
        let sets = sets.into_iter().flatten().filter_map(|name| SetId::by_name(name));
        sets.filter(|set| set.is_written())
    }

    /// Returns the flags of our table.
    pub(crate) fn flags(&self) -> Option<TableFlags> {
        match self {
            Self::Ours(installed) => Some(installed.flags),
            Self::Absent | Self::Foreign { .. } => None,
        }
    }

    /// Records new flags of our table.
    pub(crate) fn set_flags(&mut self, new: TableFlags) {
        if let Self::Ours(InstalledBase { flags, .. }) = self {
            *flags = new;
        }
    }

    /// Returns whether the table is ours and has all sets and flowtables of `other`.
    pub(crate) fn has_sets_of(&self, other: &Self) -> bool {
        let (Self::Ours(own), Self::Ours(other)) = (self, other) else { return false };
        own.sets.is_superset(&other.sets) && own.flowtables == other.flowtables
    }

    /// Returns whether the table has an owner.
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self, Self::Ours(installed) if installed.flags.owner)
    }

    /// Returns whether the table has the flowtable.
    pub(crate) fn has_flowtable(&self) -> bool {
        matches!(self, Self::Ours(installed) if installed.flowtables.contains(&flowtable().name))
    }

    /// Returns the flags of the table after [`BaseState::operations`].
    pub(crate) fn flags_after(&self, desired: TableFlags) -> TableFlags {
        match self {
            Self::Absent | Self::Foreign { .. } => desired,
            Self::Ours(InstalledBase { flags, .. }) if can_own(*flags, desired) => desired,
            Self::Ours(InstalledBase { flags, .. }) => *flags,
        }
    }
}

impl InstalledBase {
    fn missing_sets(&self, desired: &Base, table: &TableRef) -> Vec<Operation> {
        let missing = desired.sets.iter().filter(|set| !self.sets.contains(&set.name));
        missing.map(|set| Operation::AddSet(table.clone(), Arc::clone(set))).collect()
    }
}

/// Returns whether a set is as in the desired table, counters included, or has another name.
fn is_desired(found: &DecodedSet, desired: &Base) -> bool {
    let Some(ours) = desired.sets.iter().find(|set| set.name == found.name) else { return true };
    let Some(found) = &found.set else { return false };
    (&found.key, &found.data) == (&ours.key, &ours.data)
        && (found.flags, found.size, found.counter) == (ours.flags, ours.size, ours.counter)
}

/// Returns whether a table of ours has base chains of another program, such as kube-proxy in mode
/// nftables. That keeps our comment and sets, and our chains that are no base chains.
fn serves_another(contents: &Contents) -> bool {
    let other = |set: &DecodedSet| !set.anonymous && SetId::by_name(&set.name).is_none();
    let in_base_chain = |rule: &ListedRule| {
        let chain = contents.chains.iter().find(|chain| *chain.name == *rule.chain);
        chain.is_some_and(|chain| chain.base.is_some())
    };
    contents.sets.iter().any(other)
        && !contents.rules.iter().any(|rule| looks_services_up(rule) && in_base_chain(rule))
}

/// Returns whether the table can get an owner. The kernel accepts one only for a table that was
/// created with an owner and has lost it (`nf_tables_updtable`).
fn can_own(found: TableFlags, desired: TableFlags) -> bool {
    desired.owner && found.persist && !found.owner
}

fn are_same(desired: &[Rule], found: &[&ListedRule]) -> bool {
    desired.len() == found.len()
        && desired.iter().zip(found).all(|(desired, found)| desired.is_listed_as(found))
}

/// Returns whether our table may keep a flowtable: it is as desired, or has another name.
fn is_usable(found: &Flowtable) -> bool {
    let of = |it: &Flowtable| (it.hook, it.priority, it.flags);
    of(found) == of(&flowtable()) || found.name != flowtable().name
}

/// Creates sets and chains before the rules that name them, and deletes them after those rules.
fn update(desired: &Base, table: &TableRef, installed: &InstalledBase) -> Vec<Operation> {
    let missing_sets = installed.missing_sets(desired, table);
    let InstalledBase { chains, sets, .. } = installed;
    let mut operations = Vec::new();
    let flowtable = desired.flowtable.iter().filter(|it| !installed.flowtables.contains(&it.name));
    operations.extend(flowtable.map(|it| Operation::AddFlowtable(table.clone(), it.clone())));
    operations.extend(missing_sets);
    let desired_sets: BTreeSet<&Name> = desired.sets.iter().map(|set| &set.name).collect();
    let desired_flowtable = desired.flowtable.as_ref().map(|flowtable| &flowtable.name);
    let desired = &desired.chains;

    let unwanted = chains.iter().filter(|(name, installed)| {
        !desired.iter().any(|spec| spec.chain.name == **name && spec.chain.base == installed.base)
    });
    let unwanted: Vec<&Name> = unwanted.map(|(name, _)| name).collect();
    let kept = |spec: &ChainSpec| {
        chains.get(&spec.chain.name).filter(|installed| installed.base == spec.chain.base)
    };
    let changed: Vec<&ChainSpec> = desired
        .iter()
        .filter(|spec| kept(spec).is_none_or(|old| old.rules.as_ref() != Some(&spec.rules)))
        .collect();

    let flushed = changed.iter().filter(|spec| kept(spec).is_some()).map(|spec| &spec.chain.name);
    let flushed = flushed.chain(unwanted.iter().copied());
    operations.extend(flushed.map(|name| Operation::FlushChain(table.clone(), name.clone())));
    let added = changed.iter().filter(|spec| kept(spec).is_none());
    // Rules of other chains may jump to an unwanted chain until they are replaced. But a base chain
    // of another hook must be deleted before its namesake is created.
    let has_namesake = |name: &&Name| desired.iter().any(|spec| spec.chain.name == **name);
    let (base, regular): (Vec<_>, Vec<_>) = unwanted.into_iter().partition(has_namesake);
    let delete = |name: &Name| Operation::DeleteChain(table.clone(), name.clone());
    operations.extend(base.into_iter().map(delete));
    operations.extend(added.map(|it| Operation::AddChain(table.clone(), it.chain.clone())));
    let rules = changed.iter().flat_map(|spec| &*spec.rules);
    operations.extend(rules.map(|rule| Operation::AddRule(table.clone(), rule.clone())));
    // Elements of an unknown map may jump to an unwanted chain.
    let unknown = sets.iter().filter(|name| !desired_sets.contains(name));
    operations.extend(unknown.map(|name| Operation::DeleteSet(table.clone(), name.clone())));
    operations.extend(regular.into_iter().map(delete));
    let unknown = installed.flowtables.iter().filter(|name| Some(*name) != desired_flowtable);
    operations.extend(unknown.map(|name| Operation::DeleteFlowtable(table.clone(), name.clone())));
    operations
}
