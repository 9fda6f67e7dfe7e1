//! The tables of the fake kernel and the effect of each operation on them.
//!
//! An operation is accepted, or refused with the error number of nf_tables (`nf_tables_api.c`), as
//! far as our own transactions can cause it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nft::expression::Reference;
use nft::{
    Chain, Destroyed, Device, Element, Expression, Flowtable, ListedRule, Name, Operation, Rule,
    Set, Table, TableRef, Type, Value,
};
use nix::errno::Errno;

use crate::listed::{Listed, ListedElement};

/// Error number of a refused operation, and the index of the refused element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub errno: Errno,
    pub element: Option<usize>,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self { errno, element: None }
    }
}

/// Every table of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ruleset {
    pub tables: BTreeMap<TableRef, InstalledTable>,
    /// Flowtables are refused, as by a kernel without them.
    pub lacks_flowtables: bool,
}

/// A table and its contents. A copy shares the unchanged parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledTable {
    pub table: Table,
    /// The present transaction changed the flags (`__NFT_TABLE_F_UPDATE`).
    pub has_new_flags: bool,
    pub chains: Arc<Chains>,
    pub sets: BTreeMap<Name, InstalledSet>,
    /// Flowtables with their devices, all of which exist.
    pub flowtables: BTreeMap<Name, (Flowtable, BTreeSet<Device>)>,
}

/// A chain and its rules in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledChain {
    pub chain: Chain,
    pub rules: Vec<Arc<Rule>>,
}

/// A set and its elements by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledSet {
    pub set: Arc<Set>,
    pub elements: Arc<Elements>,
}

/// Identity of an element: its key and the end of its range.
type Key = (Value, Option<Box<Value>>);

/// The chains of a table by name.
type Chains = Listed<BTreeMap<Name, InstalledChain>, Arc<[ListedRule]>>;

/// The elements of a set by key.
type Elements = Listed<BTreeMap<Key, Element>, Vec<ListedElement>>;

impl Ruleset {
    /// Applies one operation. After an error the ruleset must be discarded.
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<(), Refused> {
        match operation {
            Operation::AddTable(table) => Ok(self.add_table(table)?),
            Operation::DeleteTable(table) => {
                self.tables.remove(table).map(drop).ok_or(Errno::ENOENT.into())
            }
            Operation::AddChain(table, chain) => Ok(self.table(table)?.add_chain(chain)?),
            Operation::DeleteChain(table, name) => Ok(self.table(table)?.delete_chain(name)?),
            Operation::FlushChain(table, name) => {
                self.table(table)?.chain(name)?.rules.clear();
                Ok(())
            }
            Operation::AddRule(table, rule) => Ok(self.table(table)?.add_rule(rule)?),
            // Only chains of other proxy modes lose single rules, and the fake has none.
            Operation::DeleteRule(..) => Err(Errno::EOPNOTSUPP.into()),
            Operation::AddFlowtable(table, flowtable) => {
                let lacks_flowtables = self.lacks_flowtables;
                let table = self.table(table)?;
                if lacks_flowtables {
                    return Err(Errno::ENOENT.into());
                }
                let new = || (flowtable.clone(), BTreeSet::new());
                table.flowtables.entry(flowtable.name.clone()).or_insert_with(new);
                Ok(())
            }
            Operation::DeleteFlowtable(table, name) => {
                Ok(self.table(table)?.delete_flowtable(name)?)
            }
            Operation::AddDevices(table, flowtable, devices) => {
                self.table(table)?.flowtable(&flowtable.name)?.extend(devices.iter().cloned());
                Ok(())
            }
            Operation::DeleteDevices(table, flowtable, devices) => {
                let installed = self.table(table)?.flowtable(&flowtable.name)?;
                let are_there = devices.iter().all(|device| installed.remove(device));
                if are_there { Ok(()) } else { Err(Errno::ENOENT.into()) }
            }
            Operation::AddSet(table, set) => Ok(self.table(table)?.add_set(set)?),
            Operation::DeleteSet(table, name) => Ok(self.table(table)?.delete_set(name)?),
            Operation::FlushSet(table, name) => {
                self.table(table)?.set(name)?.elements = Arc::default();
                Ok(())
            }
            Operation::AddElements(table, set, elements) => {
                let table = self.table_with(table, &set.name)?;
                each(elements, |element| table.add_element(&set.name, element))
            }
            Operation::DeleteElements(table, set, elements) => {
                let table = self.table_with(table, &set.name)?;
                each(elements, |element| table.delete_element(&set.name, element))
            }
            Operation::Destroy(table, destroyed) => self.destroy(table, destroyed),
        }
    }

    /// Deletes what may not exist. As in the kernel, the table of an object and the set of an
    /// element must exist.
    fn destroy(&mut self, table: &TableRef, destroyed: &Destroyed) -> Result<(), Refused> {
        let unless_missing = |deleted| match deleted {
            Err(Errno::ENOENT) => Ok(()),
            deleted => deleted,
        };
        let deleted = match destroyed {
            Destroyed::Table => self.tables.remove(table).map(drop).ok_or(Errno::ENOENT),
            Destroyed::Chain(name) => self.table(table)?.delete_chain(name),
            Destroyed::Set(name) => self.table(table)?.delete_set(name),
            Destroyed::Flowtable(name) => self.table(table)?.delete_flowtable(name),
            Destroyed::Elements(set, elements) => {
                let table = self.table_with(table, &set.name)?;
                let mut delete = |element: &_| table.delete_element(&set.name, element);
                return each(elements, |element| unless_missing(delete(element)));
            }
            // The fake has no stateful objects, and deletes no single rules.
            Destroyed::Rule(..) | Destroyed::Object(..) => Err(Errno::EOPNOTSUPP),
        };
        Ok(unless_missing(deleted)?)
    }

    fn add_table(&mut self, table: &Table) -> Result<(), Errno> {
        match self.tables.get_mut(&table.reference()) {
            Some(installed) if table.flags.owner && !installed.table.flags.owner => {
                // A table without an owner can get one only if it had one and persisted.
                installed.table.flags.owner = installed.table.flags.persist;
                installed.has_new_flags = true;
                if installed.table.flags.owner { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
            }
            Some(_) => Ok(()),
            None => {
                let (chains, sets, flowtables) = Default::default();
                let (table, has_new_flags) = (table.clone(), false);
                let installed = InstalledTable { table, has_new_flags, chains, sets, flowtables };
                self.tables.insert(installed.table.reference(), installed);
                Ok(())
            }
        }
    }

    /// Ends a transaction.
    pub(super) fn finish(&mut self) {
        self.tables.values_mut().for_each(|it| it.has_new_flags = false);
    }

    /// Closes the socket that owns tables: deletes those that do not persist.
    pub(super) fn lose_owner(&mut self) {
        self.tables.retain(|_, it| !it.table.flags.owner || it.table.flags.persist);
        self.tables.values_mut().for_each(|it| it.table.flags.owner = false);
    }

    /// Returns the table if it has the set: a missing set is not the fault of an element.
    fn table_with(&mut self, table: &TableRef, set: &Name) -> Result<&mut InstalledTable, Errno> {
        let table = self.table(table)?;
        table.set(set)?;
        Ok(table)
    }

    fn table(&mut self, table: &TableRef) -> Result<&mut InstalledTable, Errno> {
        self.tables.get_mut(table).ok_or(Errno::ENOENT)
    }
}

/// Calls `step` for every element. An error contains the index of the refused one.
fn each(
    elements: &[Element],
    mut step: impl FnMut(&Element) -> Result<(), Errno>,
) -> Result<(), Refused> {
    for (index, element) in elements.iter().enumerate() {
        step(element).map_err(|errno| Refused { errno, element: Some(index) })?;
    }
    Ok(())
}

impl InstalledTable {
    fn chain(&mut self, name: &str) -> Result<&mut InstalledChain, Errno> {
        Arc::make_mut(&mut self.chains).change().get_mut(name).ok_or(Errno::ENOENT)
    }

    fn flowtable(&mut self, name: &str) -> Result<&mut BTreeSet<Device>, Errno> {
        self.flowtables.get_mut(name).map(|(_, devices)| devices).ok_or(Errno::ENOENT)
    }

    /// Deletes a flowtable. Like the kernel, refuses while a rule uses it.
    fn delete_flowtable(&mut self, name: &Name) -> Result<(), Errno> {
        if self
            .expressions()
            .any(|expression| expression.reference() == Some(Reference::Flowtable(name)))
        {
            return Err(Errno::EBUSY);
        }
        self.flowtables.remove(name).map(drop).ok_or(Errno::ENOENT)
    }

    fn set(&mut self, name: &str) -> Result<&mut InstalledSet, Errno> {
        self.sets.get_mut(name).ok_or(Errno::ENOENT)
    }

    fn add_chain(&mut self, chain: &Chain) -> Result<(), Errno> {
        match self.chains.objects.get(&chain.name) {
            // A chain cannot become a base chain (`nf_tables_updchain` compares the flags first).
            Some(installed) if chain.base.is_some() && installed.chain.base.is_none() => {
                Err(Errno::EOPNOTSUPP)
            }
            Some(installed) if chain.base.is_some() && chain.base != installed.chain.base => {
                Err(Errno::EEXIST)
            }
            Some(_) => Ok(()),
            None if chain.base.is_some() && self.has_new_flags => Err(Errno::EINVAL),
            None => {
                let installed = InstalledChain { chain: chain.clone(), rules: Vec::new() };
                Arc::make_mut(&mut self.chains).change().insert(chain.name.clone(), installed);
                Ok(())
            }
        }
    }

    /// Deletes a chain with its rules. Like the kernel, refuses while a rule jumps to it.
    fn delete_chain(&mut self, name: &Name) -> Result<(), Errno> {
        if !self.chains.objects.contains_key(name) {
            return Err(Errno::ENOENT);
        }
        if self
            .expressions()
            .any(|expression| expression.reference() == Some(Reference::Chain(name)))
        {
            return Err(Errno::EBUSY);
        }
        Arc::make_mut(&mut self.chains).change().remove(name);
        Ok(())
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<(), Errno> {
        if !self.chains.objects.contains_key(&rule.chain) {
            return Err(Errno::ENOENT);
        }
        for expression in &rule.expressions {
            match expression.reference() {
                Some(Reference::Chain(chain)) => self.check_target(chain)?,
                Some(Reference::Set(set)) => self.set(set).map(drop)?,
                Some(Reference::Flowtable(flowtable)) => self.flowtable(flowtable).map(drop)?,
                Some(Reference::Object(..)) | None => {}
            }
        }
        self.chain(&rule.chain)?.rules.push(Arc::new(rule.clone()));
        Ok(())
    }

    /// Refuses a base chain: it cannot be a jump target.
    fn check_target(&self, chain: &str) -> Result<(), Errno> {
        let installed = self.chains.objects.get(chain).ok_or(Errno::ENOENT)?;
        if installed.chain.base.is_some() { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    fn add_set(&mut self, set: &Arc<Set>) -> Result<(), Errno> {
        let same = |installed: &Set| {
            installed.key == set.key && installed.data == set.data && installed.flags == set.flags
        };
        match self.sets.get(&set.name) {
            Some(installed) if same(&installed.set) => Ok(()),
            Some(_) => Err(Errno::EEXIST),
            None => {
                let installed = InstalledSet { set: set.clone(), elements: Arc::default() };
                self.sets.insert(set.name.clone(), installed);
                Ok(())
            }
        }
    }

    fn delete_set(&mut self, name: &Name) -> Result<(), Errno> {
        self.set(name)?;
        if self.expressions().any(|expression| expression.set() == Some(&**name)) {
            return Err(Errno::EBUSY);
        }
        self.sets.remove(name);
        Ok(())
    }

    fn add_element(&mut self, set: &Name, element: &Element) -> Result<(), Errno> {
        let set = self.set(set)?;
        set.check(element)?;
        set.add(element)
    }

    fn delete_element(&mut self, set: &Name, element: &Element) -> Result<(), Errno> {
        let installed = self.set(set)?;
        installed.check_key(&element.key)?;
        let key = (element.key.clone(), element.key_end.clone());
        installed.change().remove(&key).map(drop).ok_or(Errno::ENOENT)
    }

    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let rules = self.chains.objects.values().flat_map(|chain| &chain.rules);
        rules.flat_map(|rule| &rule.expressions)
    }
}

impl InstalledSet {
    fn check(&self, element: &Element) -> Result<(), Errno> {
        self.check_key(&element.key)?;
        element.key_end.as_deref().map_or(Ok(()), |end| self.check_key(end))?;
        let found = element.data.as_ref().map_or(0, |data| data.as_bytes().len());
        if found == length(&self.set.data) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn check_key(&self, key: &Value) -> Result<(), Errno> {
        if key.as_bytes().len() == length(&self.set.key) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Returns the number of elements.
    pub(super) fn count(&self) -> Option<u32> {
        u32::try_from(self.elements.objects.len()).ok()
    }

    fn change(&mut self) -> &mut BTreeMap<Key, Element> {
        Arc::make_mut(&mut self.elements).change()
    }

    /// Adds an element. An existing one is unchanged, comment included.
    fn add(&mut self, element: &Element) -> Result<(), Errno> {
        let key = (element.key.clone(), element.key_end.clone());
        match self.elements.objects.get(&key) {
            Some(installed) if installed.data == element.data => return Ok(()),
            Some(_) => return Err(Errno::EEXIST),
            None => {}
        }
        let most = self.set.size.and_then(|size| usize::try_from(size).ok());
        if most.is_some_and(|most| self.elements.objects.len() >= most) {
            return Err(Errno::ENFILE);
        }
        self.change().insert(key, element.clone());
        Ok(())
    }
}

/// Returns the bytes of a concatenation, in which every field is padded to four bytes.
fn length(types: &[Type]) -> usize {
    types.iter().map(|field| field.length().next_multiple_of(4) as usize).sum()
}
