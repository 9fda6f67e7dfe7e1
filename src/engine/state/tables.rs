//! Both tables without the elements of services: desired and installed chains, rules and sets.

use std::net::IpAddr;
use std::sync::Arc;

use nft::{Family, Operation, Table, TableFlags};

use super::bisect::{Bisect, Services};
use super::blocked::Blocked;
use super::found::FoundTable;
use super::handing::Handing;
use super::node::NodeState;
use crate::base_state::BaseState;
use crate::counters::Counters;
use crate::desired::Timeouts;
use crate::diff;
use crate::model::{Cluster, ObjectName, Problem};
use crate::routing::Routing;
use crate::ruleset::base::Base;
use crate::ruleset::{self, Layouts, NodePorts, OptionalChains, Settings, TABLE, table_comment};

/// Both tables, without the elements of services.
///
/// A table that may differ from its desired state is marked as stale; `render` is called
/// after each change of what the desired state depends on.
#[derive(Debug)]
pub struct Tables {
    pub(super) states: [TableState; 2],
    pub(super) layouts: Arc<Layouts>,
    /// Flags that new tables get.
    pub(super) flags: TableFlags,
    /// Timeouts of session affinity; each has a number in rules and elements.
    pub(super) timeouts: Timeouts,
    optional_chains: [OptionalChains; 2],
    /// Direct return, with a table of its own.
    pub(super) handing: Handing,
}

/// One table without the elements of services.
#[derive(Debug)]
pub(super) struct TableState {
    pub(super) family: Family,
    pub(super) installed: BaseState,
    /// The settings of `desired`; `None` before it is rendered.
    settings: Option<Settings>,
    pub(super) desired: Base,
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
            states: Family::ALL.map(TableState::absent),
            layouts: Arc::new(layouts),
            flags,
            timeouts: Timeouts::default(),
            optional_chains: Default::default(),
            handing: Handing::default(),
        }
    }

    pub(super) fn of(&self, family: Family) -> &TableState {
        &self.states[family.index()]
    }

    pub(super) fn of_mut(&mut self, family: Family) -> &mut TableState {
        &mut self.states[family.index()]
    }

    /// Returns the sets and maps of both tables.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Returns whether a table has affinity rules, which record clients.
    pub fn has_affinity(&self) -> bool {
        !self.timeouts.numbered().is_empty()
    }

    /// Returns why the table of `family` is not written.
    pub fn blocked(&self, family: Family) -> Option<&Blocked> {
        self.of(family).blocked.as_ref()
    }

    /// Returns whether the table of a family has its flowtable, as far as is known.
    pub fn has_flowtable(&self, family: Family) -> bool {
        self.of(family).installed.has_flowtable()
    }

    /// Returns whether this process owns each of our tables that it writes, so that the kernel
    /// refuses changes by other programs.
    pub fn are_owned(&self) -> bool {
        let mut written = self.states.iter().filter(|table| table.blocked.is_none());
        written.all(|table| table.installed.is_owned())
    }

    /// Returns the first family whose table persists and should not, or the other way round. The
    /// kernel changes this flag of no table (`nf_tables_updtable`).
    pub fn fixed_flags(&self) -> Option<Family> {
        Family::ALL.into_iter().find(|family| {
            let found = self.of(*family).installed.flags();
            found.is_some_and(|found| found.persist != self.flags.persist)
        })
    }

    /// Returns whether chains, rules and sets are as desired in both tables.
    pub(super) fn are_as_desired(&self) -> bool {
        self.states.iter().all(|table| !table.is_stale)
    }

    /// Returns whether both tables are ours and may be written.
    pub(super) fn are_ours(&self) -> bool {
        self.states
            .iter()
            .all(|table| table.blocked.is_none() && matches!(table.installed, BaseState::Ours(_)))
    }

    /// Renders the desired tables, after a change of one of these.
    pub(super) fn render(&mut self, cluster: &Cluster, routing: &Routing, node: &NodeState) {
        let service_cidrs = routing.own_ranges(cluster);
        let exempt = node.addresses.exempt(cluster);
        let offload = routing.flowtable.as_ref().filter(|_| !node.lacks_flowtables);
        for table in &mut self.states {
            let mut own = service_cidrs.clone();
            own.retain(|range| Family::of(range.addr()) == table.family);
            let in_range = |it: &&IpAddr| own.iter().any(|range| range.contains(*it));
            let exempt = exempt.iter().filter(in_range).copied().collect();
            let settings = Settings {
                masquerade_mark: routing.masquerade_mark(),
                masquerade_all: routing.masquerade_all,
                local_detector: routing.local_detector(cluster.node(), table.family),
                node_ports: NodePorts {
                    everywhere: routing.node_ports_everywhere(table.family),
                    localhost: match table.family {
                        Family::Ip => node.serves_localhost,
                        Family::Ip6 => routing.node_port_addresses.opens_localhost(Family::Ip6),
                    },
                    chosen_node: routing.direct_return.as_ref().is_some_and(|it| it.node_ports),
                },
                hash_seed: routing.hash_seed,
                lookups: node.lookups,
                counts_connections: routing.counters != Counters::Off,
                optional_chains: self.optional_chains[table.family.index()],
                offload: offload.map(|offload| offload.after),
                exempt,
                service_cidrs: own,
                timeouts: self.timeouts.numbered().clone(),
            };
            if table.settings.as_ref() != Some(&settings) {
                table.desired = Base::new(self.layouts.of(table.family), &settings);
                table.settings = Some(settings);
                table.is_stale = true;
            }
        }
    }

    /// Removes from the desired tables the chains that neither services nor elements need; returns
    /// whether there were any.
    pub(super) fn forget_unused(&mut self, cluster: &Cluster) -> bool {
        let chains = &mut self.optional_chains;
        let drop = |family: Family| chains[family.index()].drop_unused(cluster, family);
        self.timeouts.forget_unused() | Family::ALL.map(drop).contains(&true)
    }

    /// Adds to the optional chains those that services need; returns whether there are new ones.
    pub(super) fn add_optional_chains(&mut self, cluster: &Cluster) -> bool {
        let chains = &mut self.optional_chains;
        Family::ALL.map(|family| chains[family.index()].add(cluster, family)).contains(&true)
    }

    /// Returns the operations from the installed to the desired table at `i`, without elements of
    /// services.
    pub(super) fn operations(&mut self, i: usize) -> Vec<Operation> {
        let table = &mut self.states[i];
        if !table.is_stale {
            return Vec::new();
        }
        let header = header(table.family, &table.installed, self.flags);
        let mut operations = table.installed.operations(&table.desired, &header);
        operations.extend(table.cleanup.iter().cloned());
        table.is_stale = !operations.is_empty();
        operations
    }

    /// Returns the operations that prepare the table at `i` for its elements, which come before its
    /// rules.
    pub(super) fn operations_before_elements(&self, i: usize) -> Vec<Operation> {
        let table = &self.states[i];
        let reference = ruleset::table(table.family);
        let mut operations = table.installed.missing_sets(&table.desired, &reference);
        operations.extend(table.cleanup.iter().cloned());
        operations
    }

    /// Replaces the installed state of one table; returns its elements, if the table is ours.
    pub(super) fn replace_installed_state(&mut self, found: FoundTable) -> diff::FoundElements {
        let family = found.elements.family();
        let sets = self.layouts.of(family);
        let table = &mut self.states[family.index()];
        table.installed = BaseState::found(found.contents.as_ref(), sets, &table.desired);
        table.is_stale = true;
        table.blocked = None;
        match table.installed {
            BaseState::Ours(_) => {
                table.cleanup = found.cleanup;
                found.elements
            }
            BaseState::Absent | BaseState::Foreign => {
                table.cleanup = Vec::new();
                diff::FoundElements::new(family)
            }
        }
    }
}

/// The services that the kernel refuses without naming them.
impl Tables {
    /// Returns whether a bisection runs.
    pub(super) fn are_bisecting(&self) -> bool {
        self.states.iter().any(|table| table.bisect.is_active())
    }

    /// Returns whether a step that updates these services may update one more.
    pub(super) fn admit(&self, updated: &Services) -> bool {
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
    fn absent(family: Family) -> Self {
        Self {
            family,
            installed: BaseState::Absent,
            settings: None,
            desired: Base::default(),
            is_stale: true,
            cleanup: Vec::new(),
            blocked: None,
            is_suspect: false,
            bisect: Bisect::default(),
        }
    }

    /// Applies an operation first in the next transaction.
    pub(super) fn clean_up(&mut self, operation: Operation) {
        self.cleanup.push(operation);
        self.is_stale = true;
    }
}

/// Returns the table with its flags after the next transaction.
pub(super) fn header(family: Family, installed: &BaseState, wanted: TableFlags) -> Table {
    let flags = installed.flags_after(wanted);
    Table { flags, comment: Some(table_comment()), ..Table::new(family, TABLE) }
}

#[cfg(test)]
mod tests {
    use nft::kernel::Release;

    use super::*;
    use crate::Engine;

    /// The texts of all rules of both tables for a kernel.
    fn rules(everywhere: bool, release: Option<Release>) -> Vec<String> {
        let mut routing = Routing::default();
        if everywhere {
            routing.node_port_addresses = "all".parse().unwrap();
        }
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.suit_kernel(release);
        let bases = engine.tables.states.iter().map(|table| (table.family, &table.desired));
        let rules = bases.flat_map(|(family, base)| {
            let rules = base.chains.iter().flat_map(|spec| &*spec.rules);
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
