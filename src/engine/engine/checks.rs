//! The installed elements, for checks of the kernel against them, and what a check found.

use std::sync::Arc;

use nft::kernel::Contents;
use nft::{Family, Operation};

use super::base_state::BaseState;
use super::{Engine, header};
use crate::diff::{Context, Finding, Installed};
use crate::model::{Extent, ObjectName};
use crate::ruleset;

impl Engine {
    /// Returns the next `most` services after `last` that hold or claim something, sorted; the
    /// first ones without `last`.
    pub fn services_after(&self, last: Option<&ObjectName>, most: usize) -> Vec<ObjectName> {
        self.diff.services_after(last, most)
    }

    /// Calls `each` for each installed element of a service; `None` stands for the addresses for
    /// node ports.
    pub fn each_installed(&self, service: Option<&ObjectName>, each: &mut dyn FnMut(Installed)) {
        self.diff.each_installed(service, each);
    }

    /// Returns whether the installed elements of a service are the desired ones.
    /// [`Engine::is_settled`] must hold.
    pub fn is_as_desired(&self, service: &ObjectName) -> bool {
        let context = Context {
            cluster: &self.cluster,
            timeouts: &self.timeouts,
            slots: &self.slot_budget,
            may_postpone: false,
        };
        self.diff.is_as_desired(service, context)
    }

    /// Queues a service to be compared as a whole.
    pub fn update_again(&mut self, service: ObjectName) {
        self.queue.add([(service, Extent::Whole)].into_iter());
    }

    /// Replaces an installed element by the one that was found. Returns whether
    /// [`Engine::update_again`] suffices to write the element again; if not, the tables must be
    /// read back.
    pub fn correct(&mut self, installed: Installed, finding: Finding) -> bool {
        self.diff.correct(installed, finding)
    }

    /// Returns whether the chains, rules and sets that were read are the desired ones.
    pub fn are_rules_as_desired(&self, family: Family, contents: Option<&Contents>) -> bool {
        let table = &self.tables[family.index()];
        let found = BaseState::found(contents, self.layouts.of(family), &table.desired);
        let header = header(family, &found, self.table_flags);
        found.operations(&table.desired, &header).is_empty()
    }

    /// Replaces the installed chains and rules by those that were read. Returns false if the elements
    /// must be read as well: a set, a flowtable or the owner is another one.
    pub fn replace_installed_rules(
        &mut self,
        family: Family,
        contents: Option<&Contents>,
        port: u32,
    ) -> bool {
        let table = &mut self.tables[family.index()];
        let found = BaseState::found(contents, self.layouts.of(family), &table.desired);
        let is_usable = found.has_sets_of(&table.installed)
            && contents.is_some_and(|it| it.owned_by_another(port).is_none());
        if is_usable {
            table.installed = found;
            table.is_stale = true;
        }
        is_usable
    }

    /// Returns an installed element as a command of nft(8).
    pub fn command(&self, installed: &Installed) -> String {
        let Installed { family, element, .. } = installed;
        let set = Arc::clone(self.layouts.of(*family).get(element.set()));
        let elements = vec![element.to_element()];
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
    use crate::engine::FoundTable;
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
            ports: vec![EndpointPort::tcp("http", NonZeroU16::MIN)],
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
            engine.replace_installed(Family::ALL.map(FoundTable::nothing));
            settle(&mut engine);
            assert!(engine.is_as_desired(&name()));
            // Bypasses the queue of services.
            engine.cluster.apply(event.clone(), &mut Touched::default());
            let affinity = engine.cluster.session_affinity(&name());
            engine.timeouts.request(&name(), affinity);
            engine.timeouts.number_all();
            assert!(!engine.is_as_desired(&name()), "{event:?}");
            engine.update_again(name());
            settle(&mut engine);
            assert!(engine.is_as_desired(&name()), "{event:?}");
        }
    }
}
