//! Our tables without elements: desired and installed chains, rules and sets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use nft::kernel::Contents;
use nft::{Family, Operation, Table, TableFlags};

use super::answer::Blocked;
use super::base_state::BaseState;
use super::bisect::{Bisect, StepServices};
use super::devices::{DeviceChange, FlowtableDevices};
use super::node_state::NodeState;
use super::steps::BaseChange;
use super::table_id::TableId;
use crate::counters::Counters;
use crate::desired::Timeouts;
use crate::diff::Diff;
use crate::direct::Direct;
use crate::model::{Cluster, ObjectName, Problem, Target};
use crate::routing::Routing;
use crate::ruleset::base::Base;
use crate::ruleset::{
    Layouts, Masquerade, NodePorts, OptionalChains, SetId, Settings, SizeClasses, classes_of,
};

/// Our tables, without elements.
///
/// A table that may differ from its desired state is marked as stale; `render` is called
/// after each change of what the desired state depends on.
#[derive(Debug)]
pub struct Tables {
    pub(super) states: [TableState; 3],
    /// The settings of kube-proxy's tables as desired; `None` before these are rendered.
    settings: [Option<Settings>; 2],
    pub(super) layouts: Arc<Layouts>,
    /// Flags that new tables get.
    pub(super) flags: TableFlags,
    /// Timeouts of session affinity; each has a number in rules and elements.
    pub(super) timeouts: Timeouts,
    optional_chains: [OptionalChains; 2],
    /// Direct return and the elements of its table; `None` while it is off.
    pub(super) direct: Option<Box<Direct>>,
    /// Devices of the flowtables; `None` without flowtables.
    pub(super) devices: Option<FlowtableDevices>,
}

/// One table without elements.
#[derive(Debug)]
pub(super) struct TableState {
    pub(super) id: TableId,
    pub(super) installed: BaseState,
    /// What was read while no table was desired; compared again once one is.
    found: Option<Contents>,
    /// `None` for no table.
    pub(super) desired: Option<Base>,
    /// `installed` may differ from `desired`.
    pub(super) is_stale: bool,
    /// Operations that remove elements that this program never writes.
    pub(super) cleanup: Vec<Operation>,
    /// Why no transaction is sent for the table until the tables are read back.
    pub(super) blocked: Option<Blocked>,
    /// The last transaction was refused for something that belongs to no service.
    pub(super) is_suspect: bool,
    pub(super) bisect: Bisect,
}

impl Tables {
    pub(super) fn new(layouts: Layouts, flags: TableFlags) -> Self {
        Self {
            states: TableId::ALL.map(TableState::absent),
            settings: [None, None],
            layouts: Arc::new(layouts),
            flags,
            timeouts: Timeouts::default(),
            optional_chains: Default::default(),
            direct: None,
            devices: None,
        }
    }

    pub(super) fn of(&self, id: impl Into<TableId>) -> &TableState {
        &self.states[id.into().index()]
    }

    pub(super) fn of_mut(&mut self, id: impl Into<TableId>) -> &mut TableState {
        &mut self.states[id.into().index()]
    }

    /// Returns kube-proxy's tables.
    pub(super) fn of_services(&self) -> impl Iterator<Item = &TableState> {
        Family::ALL.into_iter().map(|family| self.of(family))
    }

    /// Returns the sets and maps of both tables.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Returns whether a table has affinity rules, which record clients.
    pub fn has_affinity(&self) -> bool {
        !self.timeouts.numbered().is_empty()
    }

    /// Returns why a table is not written.
    pub fn blocked(&self, id: impl Into<TableId>) -> Option<&Blocked> {
        self.of(id).blocked.as_ref()
    }

    /// Returns whether a table is not written.
    pub fn have_blocked(&self) -> bool {
        self.states.iter().any(|table| table.blocked.is_some())
    }

    /// Returns whether the table of a family has its flowtable, as far as is known.
    pub fn has_flowtable(&self, family: Family) -> bool {
        self.of(family).installed.has_flowtable()
    }

    /// Returns the sets of kube-proxy's tables whose elements are written, as far as is known.
    pub fn written_sets(&self) -> impl Iterator<Item = (Family, SetId)> {
        let of_family =
            |family| self.of(family).installed.written_sets().map(move |set| (family, set));
        Family::ALL.into_iter().flat_map(of_family)
    }

    /// Returns whether this process owns each of our tables that it writes, so that the kernel
    /// refuses changes by other programs.
    pub fn are_owned(&self) -> bool {
        let written = |table: &&TableState| table.blocked.is_none() && table.desired.is_some();
        self.states.iter().filter(written).all(|table| table.installed.is_owned())
    }

    /// Returns the first family whose table persists and should not, or the other way round. The
    /// kernel changes this flag of no table (`nf_tables_updtable`).
    pub fn fixed_flags(&self) -> Option<Family> {
        Family::ALL.into_iter().find(|family| {
            let found = self.of(*family).installed.flags();
            found.is_some_and(|found| found.persist != self.flags.persist)
        })
    }

    /// Returns whether chains, rules and sets are as desired in kube-proxy's tables.
    pub(super) fn are_as_desired(&self) -> bool {
        self.of_services().all(|table| !table.is_stale)
    }

    /// Returns whether kube-proxy's tables are ours and may be written.
    pub(super) fn are_ours(&self) -> bool {
        self.of_services().all(|table| table.blocked.is_none() && table.installed.is_ours())
    }

    /// Renders kube-proxy's tables, after a change of one of these.
    pub(super) fn render(&mut self, cluster: &Cluster, routing: &Routing, node: &NodeState) {
        let service_cidrs = routing.own_ranges(cluster);
        let exempt = node.addresses.exempt(cluster);
        let offload = routing.flowtable.as_ref().filter(|_| !node.lacks_flowtables);
        for family in Family::ALL {
            let mut own = service_cidrs.clone();
            own.retain(|range| Family::of(range.addr()) == family);
            let in_range = |it: &&IpAddr| own.iter().any(|range| range.contains(*it));
            let exempt = exempt.iter().filter(in_range).copied().collect();
            let settings = Settings {
                masquerade: Masquerade {
                    mark: routing.masquerade_mark(),
                    all: routing.masquerade_all,
                },
                local_detector: routing.local_detector(cluster.node(), family),
                node_ports: NodePorts {
                    everywhere: routing.node_ports_everywhere(family),
                    localhost: match family {
                        Family::Ip => node.serves_localhost,
                        Family::Ip6 => routing.node_port_addresses.opens_localhost(Family::Ip6),
                    },
                    chosen_node: routing.direct_return.as_ref().is_some_and(|it| it.node_ports),
                },
                hash_seed: routing.hash_seed,
                lookups: node.lookups,
                counts_connections: routing.counters != Counters::Off,
                optional_chains: self.optional_chains[family.index()],
                ends_connections: routing.ended_connections.is_some(),
                offload: offload.map(|offload| offload.after),
                exempt,
                service_cidrs: own,
                timeouts: self.timeouts.numbered().clone(),
            };
            if self.settings[family.index()].as_ref() != Some(&settings) {
                let base = Base::new(self.layouts.of(family), &settings);
                self.of_mut(family).set_desired(Some(base));
                self.settings[family.index()] = Some(settings);
            }
        }
    }

    /// Removes from the desired tables the chains that neither services nor elements need; returns
    /// whether there were any.
    pub(super) fn forget_unused(&mut self, cluster: &Cluster, diff: &Diff) -> bool {
        let chains = &mut self.optional_chains;
        let drop = |family: Family| {
            let of_lists = (family, diff.size_classes(family));
            chains[family.index()].drop_unused(cluster, of_lists)
        };
        self.timeouts.forget_unused() | Family::ALL.map(drop).contains(&true)
    }

    /// Keeps what elements of a table that was read may need: the chains of size classes, and the sets
    /// of port ranges. Returns whether something of it is not desired yet. A table of another layout
    /// is replaced as a whole.
    pub(super) fn keep_found(&mut self, family: Family, contents: &Contents) -> bool {
        if contents.table.comment.as_deref() != Some(&*TableId::from(family).comment()) {
            return false;
        }
        let has_ranges = contents.sets.iter().any(|set| set.name == SetId::PortRanges.name());
        let chains = &mut self.optional_chains[family.index()];
        let former = *chains;
        chains.range_sets |= has_ranges;
        chains.size_classes = chains.size_classes.union(classes_of(contents.rules.iter()));
        *chains != former
    }

    /// Returns the size classes with chains in the desired table.
    pub(super) fn size_classes(&self, family: Family) -> SizeClasses {
        self.optional_chains[family.index()].size_classes
    }

    /// Adds the chains of the size classes that lists use; returns whether there are new ones.
    pub(super) fn add_size_classes(&mut self, diff: &Diff) -> bool {
        let former = self.optional_chains;
        for family in Family::ALL {
            let classes = &mut self.optional_chains[family.index()].size_classes;
            *classes = classes.union(diff.size_classes(family));
        }
        self.optional_chains != former
    }

    /// Adds to the optional chains those that services need; returns whether there are new ones. Until
    /// all resources are listed, the service address ranges may be unknown, and only port ranges are
    /// added: their elements need sets.
    pub(super) fn add_optional_chains(&mut self, cluster: &Cluster) -> bool {
        let (chains, is_listed) = (&mut self.optional_chains, cluster.is_listed());
        let mut add = |family: Family| {
            let chains = &mut chains[family.index()];
            if is_listed { chains.add(cluster, family) } else { chains.add_ranges(cluster, family) }
        };
        Family::ALL.map(&mut add).contains(&true)
    }

    /// Records the installed state of a table after a transaction that changed more than elements.
    pub(super) fn applied(&mut self, id: TableId, change: BaseChange) {
        let flags = self.flags;
        match (change, &mut self.devices) {
            (BaseChange::Devices(change), Some(devices)) => devices.applied(change),
            (change, _) => {
                self.of_mut(id).applied(change, flags);
                self.note_flowtables();
            }
        }
    }

    /// Returns the operations from the installed to the desired table, without elements.
    pub(super) fn operations(&mut self, id: TableId) -> Vec<Operation> {
        let flags = self.flags;
        let table = self.of_mut(id);
        if !table.is_stale {
            return Vec::new();
        }
        let mut operations = table.operations(flags);
        operations.extend(table.cleanup.iter().cloned());
        table.is_stale = !operations.is_empty();
        operations
    }
}

/// What depends on the time.
impl Tables {
    /// Sets the time for what follows.
    pub(super) fn note_time(&mut self, now: Instant) {
        if let Some(direct) = &mut self.direct {
            direct.note_time(now);
        }
        if let Some(devices) = &mut self.devices {
            devices.note_time(now);
        }
    }

    /// Returns when [`Self::note_time`] changes something by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        let direct = self.direct.as_deref().and_then(Direct::due);
        let devices = self.devices.as_ref().and_then(FlowtableDevices::due);
        direct.into_iter().chain(devices).min()
    }
}

/// The devices of the flowtables.
impl Tables {
    /// Lets connections leave the flowtables of the families of these endpoints, which ended.
    pub(super) fn note_ended<'a>(&mut self, ended: impl Iterator<Item = &'a Target>) {
        if let Some(devices) = &mut self.devices {
            ended.for_each(|target| devices.note_ended(Family::of(target.address)));
        }
    }

    /// Records the devices of the flowtable that was read. [`Self::note_flowtables`] must follow.
    pub(super) fn observe_devices(&mut self, family: Family, contents: Option<&Contents>) {
        if let Some(devices) = &mut self.devices
            && let Some(flowtable) = contents.and_then(|contents| contents.flowtables.first())
        {
            devices.observe(family, &flowtable.devices);
        }
    }

    /// Notes which flowtables are in place, after a change of the tables besides their elements.
    pub(super) fn note_flowtables(&mut self) {
        let in_place = |it: Family| self.has_flowtable(it) && self.blocked(it).is_none();
        let in_place = Family::ALL.map(in_place);
        if let Some(devices) = &mut self.devices {
            devices.note_in_place(in_place);
        }
    }

    /// Returns whether the flowtables have the devices that they can get.
    pub(super) fn are_devices_settled(&self) -> bool {
        self.next_devices().is_none()
    }

    /// Returns the next change of devices.
    pub(super) fn next_devices(&self) -> Option<&DeviceChange> {
        self.devices.as_ref()?.next.as_ref()
    }
}

/// The services that the kernel refuses without naming them.
impl Tables {
    /// Returns whether a bisection runs.
    pub(super) fn are_bisecting(&self) -> bool {
        self.states.iter().any(|table| table.bisect.is_active())
    }

    /// Returns whether a step that updates these services may update one more.
    pub(super) fn admit(&self, updated: &StepServices) -> bool {
        self.states.iter().all(|table| table.bisect.admits(updated))
    }

    /// Returns the problems of excluded services that no other service confirmed.
    pub(super) fn take_unreported(&mut self) -> impl Iterator<Item = Problem> {
        self.states.iter_mut().flat_map(|table| table.bisect.take_unreported())
    }

    /// Returns whether a service is left out that the kernel may accept later although it is
    /// unchanged.
    pub fn have_refused(&self) -> bool {
        self.states.iter().any(|table| table.bisect.has_refused())
    }

    /// Takes the services that the kernel refused without naming them.
    pub(super) fn take_refused(&mut self) -> Vec<ObjectName> {
        self.states.iter_mut().flat_map(|table| table.bisect.take_refused()).collect()
    }
}

impl TableState {
    fn absent(id: TableId) -> Self {
        Self {
            id,
            installed: BaseState::Absent,
            found: None,
            desired: None,
            is_stale: id != TableId::DirectReturn,
            cleanup: Vec::new(),
            blocked: None,
            is_suspect: false,
            bisect: Bisect::default(),
        }
    }

    /// Replaces the desired chains, rules and sets.
    pub(super) fn set_desired(&mut self, desired: Option<Base>) {
        self.desired = desired;
        if let Some(found) = self.found.take() {
            self.installed = self.compared(Some(&found));
        }
        self.is_stale = true;
    }

    /// Returns what was read as the installed state.
    pub(super) fn compared(&self, contents: Option<&Contents>) -> BaseState {
        BaseState::found(self.id, contents, self.desired.as_ref())
    }

    /// Replaces the installed state by what was read. Returns whether its elements are ours.
    pub(super) fn replace_installed(
        &mut self,
        contents: Option<Contents>,
        cleanup: Vec<Operation>,
    ) -> bool {
        self.installed = self.compared(contents.as_ref());
        self.found = contents.filter(|_| self.desired.is_none());
        self.blocked = None;
        self.is_stale = self.desired.is_some() || self.installed.is_own();
        let is_ours = self.installed.is_ours();
        self.cleanup = if is_ours { cleanup } else { Vec::new() };
        is_ours
    }

    /// Returns whether the next transaction replaces the table as a whole.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_stale && self.installed.is_foreign()
    }

    /// Records the installed state after a transaction.
    fn applied(&mut self, change: BaseChange, flags: TableFlags) {
        self.found = None;
        let flags = self.installed.flags_after(flags);
        match change {
            BaseChange::Owner => return self.installed.set_flags(flags),
            BaseChange::Devices(_) => return,
            BaseChange::Sets => {
                self.desired.iter().for_each(|desired| self.installed.add_sets(desired));
            }
            BaseChange::Contents(base) => {
                // The desired table may have changed meanwhile.
                self.is_stale = self.desired != base;
                self.installed =
                    base.map_or(BaseState::Absent, |base| BaseState::after(&base, flags));
            }
        }
        self.cleanup = Vec::new();
    }

    /// Returns the operations from an installed to the desired table, without elements.
    pub(super) fn operations_from(
        &self,
        installed: &BaseState,
        flags: TableFlags,
    ) -> Vec<Operation> {
        installed.operations(self.desired.as_ref(), &self.header(installed, flags))
    }

    fn operations(&self, flags: TableFlags) -> Vec<Operation> {
        self.operations_from(&self.installed, flags)
    }

    /// Returns the operation that only gives the table its owner, if that must come before other
    /// changes.
    pub(super) fn owner_first(&self, flags: TableFlags) -> Option<Operation> {
        let desired = self.desired.as_ref().filter(|_| self.is_stale)?;
        let header = self.header(&self.installed, flags);
        let comes_first = self.installed.needs_owner_first(desired, &header);
        comes_first.then_some(Operation::AddTable(header))
    }

    /// Returns the operations that prepare the table for its elements, which come before its rules.
    pub(super) fn operations_before_elements(&self) -> Vec<Operation> {
        let desired = self.desired.iter();
        let sets = |base| self.installed.missing_sets(base, &self.id.reference());
        desired.flat_map(sets).chain(self.cleanup.iter().cloned()).collect()
    }

    /// Applies an operation first in the next transaction.
    pub(super) fn clean_up(&mut self, operation: Operation) {
        self.cleanup.push(operation);
        self.is_stale = true;
    }

    /// Returns the table with its flags after the next transaction.
    fn header(&self, installed: &BaseState, flags: TableFlags) -> Table {
        let (reference, flags) = (self.id.reference(), installed.flags_after(flags));
        let comment = Some(self.id.comment());
        Table { flags, comment, ..Table::new(reference.family, reference.name) }
    }
}

#[cfg(test)]
mod tests {
    use nft::kernel::Release;

    use super::*;
    use crate::reconcile::Engine;

    /// The texts of all rules of both tables for a kernel.
    fn rules(everywhere: bool, release: Option<Release>) -> Vec<String> {
        let mut routing = Routing::default();
        if everywhere {
            routing.node_port_addresses = "all".parse().unwrap();
        }
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.suit_kernel(release);
        let bases = Family::ALL.map(|family| (family, engine.tables.of(family).desired.iter()));
        let rules = bases.into_iter().flat_map(|(family, base)| {
            let rules = base.flat_map(|base| &base.chains).flat_map(|spec| &*spec.rules);
            rules.map(move |rule| format!("{}: {}", rule.chain, rule.text(family)))
        });
        rules.collect()
    }

    fn lookups_in(rules: &[String], set: &str) -> usize {
        rules_with(rules, &format!("map @{set}"))
    }

    fn rules_with(rules: &[String], part: &str) -> usize {
        rules.iter().filter(|rule| rule.contains(part)).count()
    }

    #[test]
    fn kernels_before_6_17_look_up_each_frontend_twice() {
        let release = |minor| Some(Release { major: 6, minor });
        for everywhere in [false, true] {
            let [old, new] = [release(16), release(17)].map(|it| rules(everywhere, it));
            assert_eq!(rules(everywhere, None), old, "an unknown kernel may be old");
            let node_ports: &[_] = if everywhere {
                &["jump local-nodeports"]
            } else {
                &["map @nodeports ", "map @unserved-nodeports "]
            };
            let repeated = ["map @services ", "map @unserved-services "];
            for part in repeated.iter().chain(node_ports) {
                let counts = [&old, &new].map(|rules| rules_with(rules, part));
                assert_eq!(counts, [8, 4], "{part} in two chains of two tables: {everywhere}");
            }
            for set in ["internal-services", "internal-nodeports"] {
                assert_eq!([&old, &new].map(|rules| lookups_in(rules, set)), [4, 2], "{set}");
            }
        }
    }

    #[test]
    fn a_lookup_that_hits_is_followed_by_the_same_rules_on_every_kernel() {
        let [old, new] = [16, 17].map(|minor| rules(false, Some(Release { major: 6, minor })));
        let misses = ["nat-prerouting", "nat-output", "internal-traffic"];
        let of_hits = |rules: &[String]| -> Vec<String> {
            let hits =
                rules.iter().filter(|rule| !misses.iter().any(|chain| rule.starts_with(chain)));
            hits.cloned().collect()
        };
        assert_eq!(of_hits(&old), of_hits(&new));
    }
}
