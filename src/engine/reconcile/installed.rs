//! The installed state: replaced by what was read, compared with the kernel, corrected.

use std::sync::Arc;

use nft::kernel::Contents;
use nft::{Family, Operation, Transaction};

use super::balance::adopt_weights;
use super::changed_elements::{self, Corrected};
use super::found_tables::{FoundTable, FoundTables};
use super::not_applied::Refused;
use super::table_id::TableId;
use super::{Engine, context};
use crate::diff::{Changed, Diff, FoundElements, InstalledElement, KnownElements, ReadLists};
use crate::direct;
use crate::model::ObjectName;
use crate::ruleset::base::has_guard;
use crate::ruleset::{self, NamedList, SetId};

impl Engine {
    /// Returns the elements of services.
    pub fn diff(&self) -> &Diff {
        &self.diff
    }

    /// Replaces the installed state by a read-back and queues all services.
    pub fn replace_installed_state(&mut self, found: FoundTables) {
        let FoundTables { of_services: found, direct_return } = found;
        self.replace_direct_return(direct_return);
        self.steps.forget(false);
        let ip = found[Family::Ip.index()].contents.as_ref();
        self.node.loses_guard = !self.routing.node_port_addresses.opens_localhost(Family::Ip)
            && ip.is_some_and(|contents| has_guard(&contents.rules));
        let contents = found.iter().filter_map(|found| found.contents.as_ref());
        let timeouts = contents.map(|it| ruleset::affinity::timeouts_of(it.rules.iter()));
        let keeps_found = Family::ALL.map(|family| {
            let contents = found[family.index()].contents.as_ref();
            contents.is_some_and(|contents| self.tables.keep_found(family, contents))
        });
        if self.tables.timeouts.adopt(timeouts) || keeps_found.contains(&true) {
            self.render_tables();
        }
        let elements = found.map(|found| {
            let FoundTable { contents, elements, cleanup, .. } = found;
            let family = elements.family();
            self.tables.observe_devices(family, contents.as_ref());
            let is_ours = self.tables.of_mut(family).replace_installed(contents, cleanup);
            if is_ours { elements } else { FoundElements::new(family) }
        });
        self.tables.note_flowtables();
        self.adopt_ended(&elements);
        let installed = elements.iter().flat_map(FoundElements::node_port_ips);
        let routing = &self.routing;
        self.node.serving.adopt(installed, |ip| !routing.node_ports_everywhere(Family::of(*ip)));
        self.diff.replace_installed_elements(elements);
        adopt_weights(&mut self.cluster, &self.diff);
        self.updates.all_again(self.diff.services());
    }

    /// Adopts the ended endpoints that were read, of this process or an earlier one.
    fn adopt_ended(&mut self, found: &[FoundElements; 2]) {
        // Otherwise their set is deleted.
        if let Some(known) = self.cluster.ended_mut() {
            let found = found.iter().flat_map(FoundElements::ended);
            known.adopt(found.clone());
            self.diff.adopt_ended(found.map(|(target, _)| *target));
            self.note_ended();
            if self.tables.add_optional_chains(&self.cluster) {
                self.render_tables();
            }
        }
    }

    /// Replaces the installed state of the table of direct return by what was read, after which no
    /// transaction of that table is in flight. Returns whether it differed.
    pub fn replace_direct_return(&mut self, found: direct::Found) -> bool {
        let id = TableId::DirectReturn;
        self.steps.forget_table(id);
        let direct::Found { contents, elements, cleanup } = found;
        let is_ours = self.tables.of_mut(id).replace_installed(contents, cleanup);
        let elements = if is_ours { elements } else { Vec::new() };
        self.tables.direct.as_mut().is_some_and(|direct| direct.replace_installed(elements))
    }

    /// Returns the endpoint lists of one table to be requested next, those first that services wait
    /// for. `None` if all are requested.
    pub fn next_lists(&mut self) -> Option<(Family, Vec<NamedList>)> {
        self.diff.next_lists()
    }

    /// Adds lists that were not read yet, and queues the services that waited. Returns false if the
    /// tables must be read: there are other lists than routes name.
    pub fn read_lists(&mut self, read: ReadLists) -> bool {
        let is_known = self.diff.read_lists(read);
        self.updates.lists_read();
        is_known
    }

    /// Returns whether the installed state is that of the last commit or read-back in both tables.
    pub fn has_installed_state(&self) -> bool {
        self.steps.are_done() && self.tables.are_ours()
    }

    /// Counts the size classes of tables that were read as used. For commands that compare: a daemon
    /// keeps their chains until it reads the tables again.
    pub fn keep_size_classes(&mut self) {
        for family in Family::ALL {
            self.diff.use_size_classes(family, self.tables.size_classes(family));
        }
    }

    /// Returns elements of a table that need not be listed; `None` if something is not committed or not
    /// read yet, or if endpoints have counters.
    pub fn known_elements(&self, family: Family) -> Option<KnownElements> {
        let layouts = &self.tables.layouts;
        let have_counters = layouts.of(family).get(SetId::Endpoints).counter;
        let are_known = self.has_installed_state() && self.diff.has_read_lists() && !have_counters;
        are_known.then(|| self.diff.known_elements(family, Arc::clone(layouts)))
    }

    /// Replaces the installed state of these elements by the findings. The next updates write what
    /// differs, and an element that nothing may need is deleted first in the next transaction.
    /// `owners` are the services that have the elements; without any, they are searched.
    /// [`Engine::has_installed_state`] must hold.
    pub fn correct_elements(&mut self, found: &[Changed], owners: &[ObjectName]) -> Corrected {
        let (diff, tables) = (&mut self.diff, &mut self.tables);
        let corrected = changed_elements::correct(diff, tables, found, owners);
        for service in &corrected.services {
            self.update_again(service.clone());
        }
        corrected
    }

    /// Returns what is in doubt after a refused transaction: all its elements, and those of the other
    /// part of its step and of the transaction that was made ahead. `None` if the tables must be read:
    /// more than elements was to change, or a lookup by key does not suffice.
    pub fn refused(
        &self,
        transaction: &Transaction,
        ahead: Option<&Transaction>,
    ) -> Option<Refused> {
        self.steps.refused(transaction, ahead)
    }

    /// Records that the steps in flight are not applied. `changed` are the lookups of
    /// [`Engine::refused`]. Returns false if the tables must be read.
    pub fn undo_step(&mut self, changed: &[Changed]) -> bool {
        self.steps.forget(true);
        let unfinished = std::mem::take(&mut self.updates.after_commit);
        let corrected = self.correct_elements(changed, &[]);
        self.diff.drop_named_unused_lists();
        for service in corrected.services.into_iter().chain(unfinished) {
            self.diff.forget_serving(&service);
            self.update_again(service);
        }
        !corrected.is_insufficient
    }

    /// Returns whether the installed elements of a service equal its desired elements.
    /// [`Engine::is_settled`] must hold.
    pub fn is_as_desired(&self, service: &ObjectName) -> bool {
        let context = context(&self.cluster, &self.tables, &self.updates, false);
        self.diff.is_as_desired(service, context)
    }

    /// Queues those of the services whose installed elements should be the desired ones and are not;
    /// returns them.
    pub(crate) fn update_outdated(&mut self, services: &[ObjectName]) -> Vec<ObjectName> {
        if !self.is_settled() {
            return Vec::new();
        }
        let outdated = services.iter().filter(|it| !self.is_as_desired(it));
        let outdated: Vec<_> = outdated.cloned().collect();
        outdated.iter().for_each(|it| self.update_again(it.clone()));
        outdated
    }

    /// Queues a service to be compared as a whole.
    pub fn update_again(&mut self, service: ObjectName) {
        self.updates.again(service);
    }

    /// Records the devices of the flowtable that was read.
    pub(crate) fn observe_devices(&mut self, family: Family, contents: Option<&Contents>) {
        self.tables.observe_devices(family, contents);
        self.tables.note_flowtables();
    }

    /// Returns whether the chains, rules and sets that were read equal those desired.
    pub fn are_rules_as_desired(&self, family: Family, contents: Option<&Contents>) -> bool {
        let table = self.tables.of(family);
        table.operations_from(&table.compared(contents), self.tables.flags).is_empty()
    }

    /// Replaces the installed chains and rules by those that were read. Returns false if the elements
    /// must be read as well: a set, a flowtable or the owner is another one.
    pub fn replace_installed_rules(
        &mut self,
        family: Family,
        contents: Option<&Contents>,
        port: u32,
    ) -> bool {
        let table = self.tables.of_mut(family);
        let found = table.compared(contents);
        let is_usable = found.has_sets_of(&table.installed)
            && contents.is_some_and(|it| it.owned_by_another(port).is_none());
        if is_usable {
            table.installed = found;
            table.is_stale = true;
        }
        is_usable
    }

    /// Returns an installed element as a command of nft(8).
    pub fn command(&self, installed: &InstalledElement) -> String {
        let InstalledElement { family, element, .. } = installed;
        let set = Arc::clone(self.tables.layouts.of(*family).get(element.set()));
        let elements = [element.to_element()].into();
        Operation::AddElements(ruleset::table(*family), set, elements).to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::num::NonZeroU16;
    use std::time::Duration;

    use nft::TableFlags;

    use super::*;
    use crate::model::{
        Change, Endpoint, EndpointPort, EndpointSlice, Event, Resource, Service, ServicePort,
        Touched,
    };
    use crate::routing::Routing;

    fn name() -> ObjectName {
        ObjectName::namespaced("default", "web")
    }

    fn service() -> Service {
        let port = ServicePort::tcp("http", NonZeroU16::MIN);
        Service { ports: vec![port], ..Service::new(name(), vec![[10, 96, 0, 1].into()]) }
    }

    fn slice(endpoints: &[u8]) -> Event {
        let endpoint = |last: &u8| Endpoint::ready(IpAddr::from([10, 244, 0, *last]));
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: name(),
            service: name(),
            ports: [EndpointPort::tcp("http", NonZeroU16::MIN)].into(),
            endpoints: endpoints.iter().map(endpoint).collect(),
            triggered: None,
            weighing: None,
        }))
    }

    fn is(service: Service) -> Event {
        Event::Service(Change::Is(service))
    }

    fn settle(engine: &mut Engine) {
        while engine.next_transaction(usize::MAX).is_some() {
            engine.committed(Duration::ZERO);
        }
    }

    #[test]
    fn a_service_is_not_as_desired_once_its_objects_ask_for_something_else() {
        let mut node_port = service();
        node_port.ports[0].node_port = NonZeroU16::new(30_080);
        let mut renamed = service();
        renamed.ports[0].name = "".into();
        let events = [
            slice(&[1, 2]),
            slice(&[1, 2, 4]),
            slice(&[]),
            is(node_port),
            is(renamed),
            is(Service { external_ips: vec![[192, 0, 2, 1].into()], ..service() }),
            is(Service { cluster_ips: vec![[10, 96, 0, 2].into()], ..service() }),
            is(Service { session_affinity: Some(Duration::from_secs(9)), ..service() }),
            Event::Service(Change::Gone(name())),
        ];
        for event in events {
            let mut engine = Engine::new(Routing::default(), TableFlags::default());
            engine.apply([is(service()), slice(&[1, 2, 3])]);
            engine.apply(Resource::ALL.map(Event::Listed));
            engine.replace_installed_state(FoundTables::nothing());
            settle(&mut engine);
            assert!(engine.is_as_desired(&name()));
            // Bypasses the queue of services.
            engine.cluster.apply(event.clone(), &mut Touched::default());
            let affinity = engine.cluster.session_affinity(&name());
            engine.tables.timeouts.request(&name(), affinity);
            engine.tables.timeouts.number_all();
            assert!(!engine.is_as_desired(&name()), "{event:?}");
            engine.update_again(name());
            settle(&mut engine);
            assert!(engine.is_as_desired(&name()), "{event:?}");
        }
    }
}
