//! The table, desired and installed, and the transactions between the two.
//!
//! Packets look up elements while a transaction is applied, so it goes in stages, each in
//! transactions of its own: what frontends lead to is made, then frontends change, then what no
//! frontend leads to is deleted.

use std::collections::BTreeSet;
use std::time::SystemTime;

use nft::kernel::Contents;
use nft::{DecodedSet, Operation, Set, Table as Header, TableFlags, TableRef, Transaction};

use super::changes::{Change, Stage, operations};
use super::elements::{Elements, Place};
use super::ruleset::{self, DirectElement, List, NodeNumber, SetId, Settings};
use crate::base_state::BaseState;
use crate::piece;
use crate::ruleset::base::Base;

/// The table of direct return.
#[derive(Debug)]
pub(super) struct Table {
    /// The settings of `base`; `None` while no service needs the table.
    settings: Option<Settings>,
    base: Base,
    desired: Elements,
    /// `None` until the table is read.
    installed: Option<Installed>,
    /// Places and lists whose installed elements may differ.
    places: BTreeSet<Place>,
    lists: BTreeSet<List>,
    in_flight: Option<InFlight>,
    flags: TableFlags,
}

/// What the kernel holds.
#[derive(Debug)]
struct Installed {
    base: BaseState,
    /// This program created the table, perhaps with another layout.
    is_own: bool,
    /// What was read; compared with the desired rules once these are known.
    contents: Option<Contents>,
    elements: Elements,
    /// Operations that delete elements which this program never writes.
    cleanup: Vec<Operation>,
    /// `base` may differ from the desired one.
    is_stale: bool,
}

/// What a transaction changes.
#[derive(Debug)]
enum InFlight {
    /// The table gets its owner.
    Owner,
    /// Chains, rules and sets; `None` without the table.
    Base(Option<Base>),
    Elements(Vec<Change>),
}

/// The table as it was read.
#[derive(Debug, Default)]
pub struct Found {
    /// Chains, rules and sets; `None` without the table.
    pub contents: Option<Contents>,
    /// Elements, without those that packets write.
    pub elements: Vec<DirectElement>,
    /// Operations that delete elements which this program never writes.
    pub cleanup: Vec<Operation>,
}

impl Table {
    pub(super) fn new(flags: TableFlags) -> Self {
        Self {
            settings: None,
            base: Base::default(),
            desired: Elements::default(),
            installed: None,
            places: BTreeSet::new(),
            lists: BTreeSet::new(),
            in_flight: None,
            flags,
        }
    }

    /// Sets what the rules depend on; without it, there is to be no table.
    pub(super) fn want_rules(&mut self, settings: Option<Settings>) {
        if self.settings == settings {
            return;
        }
        self.base = settings.as_ref().map(ruleset::base).unwrap_or_default();
        self.settings = settings;
        if let Some(installed) = &mut self.installed {
            installed.is_stale = true;
        }
    }

    /// Wants an element, other than a slot, in place of the one with its key.
    pub(super) fn want(&mut self, element: DirectElement) {
        let place = Place::of(&element);
        if self.desired.at(&place) != Some(element) {
            self.desired.put(element);
            self.places.insert(place);
        }
    }

    /// Wants no element at a place other than a slot.
    pub(super) fn want_no(&mut self, place: Place) {
        self.desired.remove(&place);
        self.places.insert(place);
    }

    /// Wants these nodes in the slots of a list.
    pub(super) fn want_list(&mut self, list: List, slots: Vec<Option<NodeNumber>>) {
        if self.desired.slots(list) != slots {
            self.desired.put_list(list, slots);
            self.lists.insert(list);
        }
    }

    /// Wants a list no longer.
    pub(super) fn want_no_list(&mut self, list: List) {
        self.desired.remove_list(list);
        self.lists.insert(list);
    }

    /// Returns the installed elements; `None` until the table is read.
    pub(super) fn installed(&self) -> Option<&Elements> {
        self.installed.as_ref().map(|installed| &installed.elements)
    }

    /// Returns whether a number is that of a list, desired or installed.
    pub(super) fn has_list(&self, list: List) -> bool {
        let has = |elements: &Elements| !elements.slots(list).is_empty();
        has(&self.desired) || self.installed().is_some_and(has)
    }

    /// Returns whether the kernel holds what is desired, as far as is known.
    pub(super) fn is_settled(&self) -> bool {
        let is_stale = self.installed.as_ref().is_some_and(|it| it.is_stale);
        let has_changes = !self.places.is_empty() || !self.lists.is_empty();
        self.in_flight.is_none() && !is_stale && !(has_changes && self.settings.is_some())
    }

    /// Returns whether a transaction waits for its outcome.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns whether the table exists, as far as is known.
    pub(super) fn exists(&self) -> bool {
        let installed = self.installed.as_ref();
        installed.is_some_and(|installed| matches!(installed.base, BaseState::Ours(_)))
    }

    /// Returns the transaction after which the rules stop at `end`; `None` without them.
    pub(super) fn ending(&self, end: SystemTime) -> Option<Transaction> {
        let is_usable = self.exists() && self.settings.is_some() && self.in_flight.is_none();
        is_usable.then(|| Transaction { operations: ruleset::ending(&self.base, end) })
    }

    /// Returns the next transaction; `None` if nothing differs, if one is in flight, or if the
    /// table must be read before.
    pub(super) fn next_transaction(&mut self, max_batch: usize) -> Option<Transaction> {
        if self.in_flight.is_some() {
            return None;
        }
        let operations = match self.base_operations() {
            Some(operations) => operations,
            None => self.element_operations(max_batch)?,
        };
        Some(Transaction { operations })
    }

    /// Returns the operations for chains, rules and sets, if these differ.
    fn base_operations(&mut self) -> Option<Vec<Operation>> {
        self.compare_rules();
        let installed = self.installed.as_mut().filter(|installed| installed.is_stale)?;
        if self.settings.is_none() {
            installed.is_stale = false;
            if !installed.is_own {
                return None;
            }
            self.in_flight = Some(InFlight::Base(None));
            return Some(vec![Operation::DeleteTable(ruleset::table())]);
        }
        let flags = installed.base.flags_after(self.flags);
        let header = header(flags);
        if installed.base.needs_owner_first(&self.base, &header) {
            self.in_flight = Some(InFlight::Owner);
            return Some(vec![Operation::AddTable(header)]);
        }
        let mut operations = installed.base.operations(&self.base, &header);
        operations.append(&mut installed.cleanup);
        installed.is_stale = false;
        if operations.is_empty() {
            return None;
        }
        self.in_flight = Some(InFlight::Base(Some(self.base.clone())));
        Some(operations)
    }

    /// Returns the operations of the first stage with changes.
    fn element_operations(&mut self, max_batch: usize) -> Option<Vec<Operation>> {
        let (settings, installed) = (self.settings.as_ref()?, self.installed.as_ref()?);
        let most = (max_batch / 2 / piece::MEAN_ELEMENT_BYTES).max(1);
        for stage in Stage::ALL {
            let changes = self.changes(stage, &installed.elements, most);
            if !changes.is_empty() {
                let operations = operations(&changes, settings.connections);
                self.in_flight = Some(InFlight::Elements(changes));
                return Some(operations);
            }
        }
        self.places.clear();
        self.lists.clear();
        None
    }

    /// Returns at most `most` changes of a stage.
    fn changes(&self, stage: Stage, installed: &Elements, most: usize) -> Vec<Change> {
        let slots = self.lists.iter().flat_map(|list| {
            let (old, new) = (installed.slots(*list), self.desired.slots(*list));
            Change::of_slots(*list, old, new)
        });
        let others = self
            .places
            .iter()
            .filter_map(|place| Change::between(installed.at(place), self.desired.at(place)));
        others.chain(slots).filter(|change| change.stage() == stage).take(most).collect()
    }

    /// Records that the transaction in flight was applied.
    pub(super) fn applied(&mut self) {
        let (in_flight, flags) = (self.in_flight.take(), self.flags);
        let Some(installed) = &mut self.installed else { return };
        // They are older than the transaction.
        installed.contents = None;
        match in_flight {
            None => {}
            Some(InFlight::Owner) => {
                let flags = installed.base.flags_after(flags);
                installed.base.set_flags(flags);
            }
            Some(InFlight::Base(Some(base))) => {
                let was_ours = matches!(installed.base, BaseState::Ours(_));
                installed.base = BaseState::after(&base, installed.base.flags_after(flags));
                installed.is_own = true;
                if !was_ours {
                    self.forget_elements();
                }
            }
            Some(InFlight::Base(None)) => {
                installed.base = BaseState::Absent;
                installed.is_own = false;
                self.forget_elements();
            }
            Some(InFlight::Elements(changes)) => {
                changes.iter().for_each(|change| change.apply(&mut installed.elements));
                self.forget_equal(&changes);
            }
        }
    }

    /// Forgets the places and lists of changes that are as desired now.
    fn forget_equal(&mut self, changes: &[Change]) {
        let Some(Installed { elements, .. }) = &self.installed else { return };
        let desired = &self.desired;
        for element in changes.iter().map(Change::element) {
            if let DirectElement::Slot(list, ..) = element {
                if elements.slots(*list) == desired.slots(*list) {
                    self.lists.remove(list);
                }
                continue;
            }
            let place = Place::of(element);
            if elements.at(&place) == desired.at(&place) {
                self.places.remove(&place);
            }
        }
    }

    /// Records that the table has no elements.
    fn forget_elements(&mut self) {
        if let Some(installed) = &mut self.installed {
            installed.elements = Elements::default();
        }
        self.compare_all();
    }

    fn compare_all(&mut self) {
        let installed = self.installed.iter().map(|installed| &installed.elements);
        for elements in installed.chain([&self.desired]) {
            self.places.extend(elements.places().copied());
            self.lists.extend(elements.lists());
        }
    }

    /// Records that the transaction in flight failed: what the kernel holds is not known.
    pub(super) fn failed(&mut self) {
        self.in_flight = None;
        self.installed = None;
    }

    /// Compares the rules that were read with the desired ones.
    fn compare_rules(&mut self) {
        let (Some(settings), Some(installed)) = (&self.settings, &mut self.installed) else {
            return;
        };
        if let Some(contents) = installed.contents.take() {
            installed.base = compared(&contents, Some(settings.connections), &self.base);
        }
    }

    /// Replaces what is installed by what was read.
    pub(super) fn replace_installed(&mut self, found: Found) {
        let contents = found.contents;
        let base = contents.as_ref().map_or(BaseState::Absent, |it| compared(it, None, &self.base));
        let mut elements = Elements::default();
        if matches!(base, BaseState::Ours(_)) {
            found.elements.into_iter().for_each(|element| elements.put(element));
        }
        self.in_flight = None;
        let (cleanup, is_own) = (found.cleanup, contents.as_ref().is_some_and(is_own));
        self.installed =
            Some(Installed { base, is_own, contents, elements, cleanup, is_stale: true });
        self.compare_all();
    }
}

/// Returns whether a set may stay: it is one of ours, with this number of connections, or has
/// another name.
fn is_known(found: &DecodedSet, connections: Option<u32>) -> bool {
    let Some(id) = SetId::by_name(&found.name) else { return true };
    found.set.as_ref().is_some_and(|set| {
        let ours = id.set(connections.or(set.size).unwrap_or_default());
        let of = |set: &Set| (set.key.clone(), set.data.clone(), set.flags, set.size);
        of(&ours) == of(set)
    })
}

/// Returns whether this program created a table, of any layout.
pub fn is_own(contents: &Contents) -> bool {
    let comment = contents.table.comment.as_deref();
    comment.is_some_and(|comment| comment.starts_with(ruleset::TABLE_COMMENT))
}

fn compared(contents: &Contents, connections: Option<u32>, desired: &Base) -> BaseState {
    let fits = |found: &DecodedSet| is_known(found, connections);
    BaseState::of(Some(contents), (&ruleset::table_comment(), &fits), desired)
}

fn header(flags: TableFlags) -> Header {
    let TableRef { family, name } = ruleset::table();
    Header { flags, comment: Some(ruleset::table_comment()), ..Header::new(family, name) }
}
