//! The steps from one table to the other, in the kernel's order.
//!
//! First come the deletions: rules, elements, sets, objects, flowtables, chains. Then come the
//! additions: chains, objects, flowtables, sets, then elements, which name chains and objects, then
//! rules, which name all others; those of base chains come last.

use std::collections::HashSet;

use super::elements::Elements;
use super::rules::ChainRules;
use super::{Difference, DifferenceError, Replaced, Script, index};
use crate::abi::*;
use crate::any::SetContents;
use crate::chain::Chain;
use crate::expression::Reference;
use crate::flowtable::{Device, Flowtable};

use crate::message_kind::MessageKind;
use crate::netlink::attr::TooLong;
use crate::object::Object;
use crate::whole::WholeTable;

/// A named set in both tables, and where its elements differ.
struct ChangedSet<'a> {
    name: &'a str,
    elements: Elements<'a>,
}

impl<'a> Script<'a> {
    pub(super) fn new(
        desired: &'a WholeTable,
        installed: Option<&'a WholeTable>,
        empty: &'a WholeTable,
    ) -> Self {
        let kept = installed.filter(|table| table.userdata == desired.userdata);
        let from = kept.unwrap_or(empty);
        let without_elements =
            |contents: &SetContents| SetContents { set: contents.set.clone(), elements: vec![] };
        Self {
            desired,
            installed: from,
            installed_sets: index(&from.sets, |it| &*it.set.name),
            desired_sets: index(&desired.sets, |it| &*it.set.name),
            is_kept: kept.is_some(),
            is_deleted: installed.is_some() && kept.is_none(),
            replaced: Replaced::between(from, desired),
            next_anonymous: 0,
            difference: Difference {
                family: desired.family,
                table: desired.name.clone(),
                generation: installed.and_then(|table| table.generation),
                messages: Vec::new(),
                effect: 0,
                handles: Vec::new(),
                sets: desired.named_sets().map(without_elements).collect(),
            },
        }
    }

    /// Adds the messages of all steps.
    pub(super) fn add_all(&mut self) -> Result<(), DifferenceError> {
        let chains = ChainRules::of(
            (self.installed, &self.installed_sets),
            (self.desired, &self.desired_sets),
            &self.replaced,
        )?;
        self.difference.handles = vec![0; self.desired.rules.len()];
        for (index, handle) in chains.iter().flat_map(ChainRules::handles) {
            self.difference.handles[index] = handle;
        }
        let sets = self.changed_sets();
        self.table()?;
        for chain in &chains {
            self.delete_rules(chain)?;
        }
        for set in &sets {
            self.delete_elements(set.name, &set.elements)?;
        }
        self.delete_objects()?;
        self.add_chains()?;
        self.add_objects()?;
        for set in &sets {
            self.add_elements(set.name, &set.elements.added)?;
        }
        let bases = self.desired.chains.iter().filter(|chain| chain.base.is_some());
        let bases: HashSet<&str> = bases.map(|chain| &*chain.name).collect();
        let (last, first): (Vec<_>, Vec<_>) =
            chains.iter().partition(|rules| bases.contains(rules.chain));
        self.add_rules(&first)?;
        self.difference.effect = self.difference.messages.len();
        self.add_rules(&last)
    }

    fn add_rules(&mut self, chains: &[&ChainRules<'_>]) -> Result<(), DifferenceError> {
        for chain in chains {
            for (rule, before) in chain.added() {
                self.add_rule(rule, before)?;
            }
        }
        Ok(())
    }

    fn table(&mut self) -> Result<(), TooLong> {
        let desired = self.desired;
        if self.is_deleted {
            self.message(MessageKind::DelTable, |_| {})?;
        }
        if self.is_kept && self.installed.flags == desired.flags {
            return Ok(());
        }
        self.message(MessageKind::NewTable, |w| {
            w.be32(NFTA_TABLE_FLAGS, desired.flags);
            if let Some(userdata) = &desired.userdata {
                w.bytes(NFTA_TABLE_USERDATA, userdata);
            }
        })
    }

    /// Returns the named sets that stay, with their differences.
    fn changed_sets(&self) -> Vec<ChangedSet<'a>> {
        let stays = |contents: &&SetContents| !self.replaced.0.contains(&set_key(contents));
        let mut changed = Vec::new();
        for to in self.desired.named_sets().filter(stays) {
            let from = self.installed_sets.get(&*to.set.name);
            let elements = match from.filter(|from| !from.set.is_anonymous()) {
                Some(from) => Elements::between(from, to, &self.replaced),
                None => continue,
            };
            changed.push(ChangedSet { name: &to.set.name, elements });
        }
        changed
    }

    fn delete_rules(&mut self, rules: &ChainRules<'_>) -> Result<(), DifferenceError> {
        if rules.deletes_all() {
            self.message(MessageKind::DelRule, |w| w.str(NFTA_RULE_CHAIN, rules.chain))?;
            return Ok(());
        }
        rules.deleted().into_iter().try_for_each(|rule| self.delete_rule(rule))
    }

    /// Deletes what is not desired, and what is replaced.
    fn delete_objects(&mut self) -> Result<(), TooLong> {
        let desired: HashSet<_> = references(self.desired).collect();
        for reference in references(self.installed) {
            if desired.contains(&reference) && !self.replaced.0.contains(&reference) {
                continue;
            }
            match reference {
                Reference::Set(name) => {
                    self.message(MessageKind::DelSet, |w| w.str(NFTA_SET_NAME, name))?;
                }
                Reference::Object(kind, name) => self.message(MessageKind::DelObj, |w| {
                    w.str(NFTA_OBJ_NAME, name);
                    w.be32(NFTA_OBJ_TYPE, kind);
                })?,
                Reference::Flowtable(name) => {
                    self.message(MessageKind::DelFlowtable, |w| w.str(NFTA_FLOWTABLE_NAME, name))?;
                }
                Reference::Chain(name) => {
                    self.message(MessageKind::DelChain, |w| w.str(NFTA_CHAIN_NAME, name))?;
                }
            }
        }
        Ok(())
    }

    fn add_chains(&mut self) -> Result<(), TooLong> {
        let chains = index(&self.installed.chains, |it| &*it.name);
        for chain in &self.desired.chains {
            let installed = chains.get(&*chain.name).copied();
            match installed.filter(|_| !self.replaced.0.contains(&chain_key(chain))) {
                None => {
                    let attributes = chain.encode(&self.desired.name)?;
                    self.encoded(MessageKind::NewChain, attributes);
                }
                Some(installed) => self.change_policy(installed, chain)?,
            }
        }
        Ok(())
    }

    fn change_policy(&mut self, installed: &Chain, chain: &Chain) -> Result<(), TooLong> {
        let drops = |chain: &Chain| chain.base.as_ref().is_some_and(|base| base.drops);
        if drops(installed) == drops(chain) {
            return Ok(());
        }
        self.message(MessageKind::NewChain, |w| {
            w.str(NFTA_CHAIN_NAME, &chain.name);
            w.be32(NFTA_CHAIN_POLICY, if drops(chain) { NF_DROP } else { NF_ACCEPT });
        })
    }

    /// Adds objects, flowtables and sets, the latter with their elements.
    fn add_objects(&mut self) -> Result<(), TooLong> {
        let (from, to) = (self.installed, self.desired);
        let objects = index(&from.objects, object_key);
        for object in &to.objects {
            let key = object_key(object);
            if self.replaced.0.contains(&key) || !objects.contains_key(&key) {
                let attributes = object.encode(&to.name)?;
                self.encoded(MessageKind::NewObj, attributes);
            }
        }
        let flowtables = index(&from.flowtables, |it| &*it.name);
        for flowtable in &to.flowtables {
            let installed = flowtables.get(&*flowtable.name).copied();
            match installed.filter(|_| !self.replaced.0.contains(&flowtable_key(flowtable))) {
                None => {
                    let attributes = flowtable.encode(&to.name)?;
                    self.encoded(MessageKind::NewFlowtable, attributes);
                }
                Some(installed) => self.change_devices(installed, flowtable)?,
            }
        }
        for contents in to.named_sets() {
            let name = &*contents.set.name;
            if self.replaced.0.contains(&set_key(contents))
                || !self.installed_sets.contains_key(name)
            {
                let attributes = contents.set.encode(&to.name, self.set_id())?;
                self.encoded(MessageKind::NewSet, attributes);
                self.add_elements(name, &Elements::all(contents).added)?;
            }
        }
        Ok(())
    }

    fn change_devices(
        &mut self,
        installed: &Flowtable,
        desired: &Flowtable,
    ) -> Result<(), TooLong> {
        let without = |devices: &[Device], others: &[Device]| -> Vec<Device> {
            devices.iter().filter(|device| !others.contains(device)).cloned().collect()
        };
        let changes = [
            (MessageKind::DelFlowtable, without(&installed.devices, &desired.devices)),
            (MessageKind::NewFlowtable, without(&desired.devices, &installed.devices)),
        ];
        for (kind, devices) in changes.into_iter().filter(|(_, devices)| !devices.is_empty()) {
            let message = desired.with_devices(&devices).encode(&self.desired.name)?;
            self.encoded(kind, message);
        }
        Ok(())
    }
}

impl<'a> Replaced<'a> {
    /// Returns the objects of both tables that the kernel cannot change into the desired ones.
    fn between(installed: &'a WholeTable, desired: &'a WholeTable) -> Self {
        let has_like_set = |a: &SetContents, b: &SetContents| a.set.is_like(&b.set);
        let has_same_frame_of = |a: &Flowtable, b: &Flowtable| {
            *b == Flowtable { devices: b.devices.clone(), ..a.clone() }
        };
        let (from, to) = (installed, desired);
        let chains = unlike(&from.chains, &to.chains, chain_key, has_same_frame);
        let sets = unlike(from.named_sets(), to.named_sets(), set_key, has_like_set);
        let objects = unlike(&from.objects, &to.objects, object_key, is_like);
        let flowtables = unlike(&from.flowtables, &to.flowtables, flowtable_key, has_same_frame_of);
        Self([chains, sets, objects, flowtables].concat().into_iter().collect())
    }
}

/// Returns the keys of objects in both tables that are not alike.
fn unlike<'a, T: 'a>(
    from: impl IntoIterator<Item = &'a T>,
    to: impl IntoIterator<Item = &'a T>,
    key: fn(&'a T) -> Reference<'a>,
    is_like: impl Fn(&T, &T) -> bool,
) -> Vec<Reference<'a>> {
    let from = index(from, key);
    let differs = |it: &&'a T| from.get(&key(it)).is_some_and(|before| !is_like(before, it));
    to.into_iter().filter(differs).map(key).collect()
}

/// Returns the objects of a table in the order in which they are deleted.
fn references(table: &WholeTable) -> impl Iterator<Item = Reference<'_>> {
    let sets = table.named_sets().map(set_key).chain(table.objects.iter().map(object_key));
    let flowtables = table.flowtables.iter().map(flowtable_key);
    sets.chain(flowtables).chain(table.chains.iter().map(chain_key))
}

fn set_key(contents: &SetContents) -> Reference<'_> {
    Reference::Set(&contents.set.name)
}

fn object_key(object: &Object) -> Reference<'_> {
    Reference::Object(object.kind, &object.name)
}

fn flowtable_key(flowtable: &Flowtable) -> Reference<'_> {
    Reference::Flowtable(&flowtable.name)
}

fn chain_key(chain: &Chain) -> Reference<'_> {
    Reference::Chain(&chain.name)
}

/// Returns whether two chains differ in their policy at most.
fn has_same_frame(a: &Chain, b: &Chain) -> bool {
    let has_same_hook = match (&a.base, &b.base) {
        (Some(a), Some(b)) => a.has_same_hook(b),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    has_same_hook && a.flags == b.flags && a.userdata == b.userdata && a.other == b.other
}

/// Returns whether two objects differ in their counts at most.
fn is_like(a: &Object, b: &Object) -> bool {
    let state =
        |object: &Object| crate::expression::normal_form(std::slice::from_ref(&object.state));
    state(a) == state(b) && a.userdata == b.userdata && a.other == b.other
}
