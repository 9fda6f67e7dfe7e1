//! Direct return beside the other tables: off by default.

use std::net::IpAddr;
use std::time::Instant;

use nft::kernel::CommitError;
use nft::{TableFlags, Transaction};

use super::answer::Answer;
use super::updates::Updates;
use crate::diff::Diff;
use crate::direct::ruleset::{DirectSubject, SetId};
use crate::direct::{Direct, World};
use crate::model::{Change, Cluster, Event, ObjectName, Touched};
use crate::routing::Routing;
use crate::ruleset::Subject;

/// Direct return, if it is on.
#[derive(Debug, Default)]
pub(super) struct Handing(Option<Box<Direct>>);

impl Handing {
    /// Turns direct return on, if the settings ask for it.
    pub(super) fn start(&mut self, routing: &Routing, flags: TableFlags, now: Instant) {
        let settings = routing.direct_return.clone();
        let start = |settings| Box::new(Direct::new(settings, routing.hash_seed, flags, now));
        self.0 = settings.map(start);
    }

    /// Records the addresses of this node at which node ports are open.
    pub(super) fn note_open_node_ports(&mut self, addresses: &[IpAddr]) {
        if let Some(direct) = &mut self.0 {
            direct.note_open_node_ports(addresses);
        }
    }

    pub(super) fn get(&self) -> Option<&Direct> {
        self.0.as_deref()
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut Direct> {
        self.0.as_deref_mut()
    }

    /// Notes before an event whether it creates a service, which has no connections yet.
    pub(super) fn note(&mut self, event: &Event, cluster: &Cluster) {
        let Some(direct) = &mut self.0 else { return };
        if let Event::Service(Change::Is(service)) = event
            && cluster.is_listed()
            && cluster.service(&service.name).is_none()
        {
            direct.note_created(&service.name);
        }
    }

    /// Notes that a service is rendered.
    pub(super) fn touch(&mut self, service: &ObjectName, cluster: &Cluster) {
        if let Some(direct) = &mut self.0 {
            direct.touch(service, cluster);
        }
    }

    /// Notes whether events touched this node or others.
    pub(super) fn touch_nodes(&mut self, touched: &mut Touched) {
        let touches_nodes = std::mem::take(&mut touched.peers) || touched.node;
        if let Some(direct) = self.0.as_mut().filter(|_| touches_nodes) {
            direct.touch_nodes();
        }
    }

    /// Renders the services that nodes handed to each other before the start as such.
    pub(super) fn adopt(&mut self, cluster: &mut Cluster) {
        let Some(direct) = &mut self.0 else { return };
        for (name, handed) in direct.take_adopted(cluster) {
            cluster.hand(name, Some(handed));
        }
    }

    /// Plans direct return. All services must be rendered: then each frontend has its holder.
    /// Returns whether services are to be rendered again.
    pub(super) fn plan(
        &mut self,
        cluster: &mut Cluster,
        diff: &Diff,
        updates: &mut Updates,
    ) -> bool {
        let Some(direct) = &mut self.0 else { return false };
        let changed = direct.plan(World { cluster, diff, slots: &updates.slot_budget });
        let must_render = !changed.is_empty();
        for (name, handed) in changed {
            cluster.hand(name.clone(), handed);
            updates.again(name);
        }
        must_render
    }

    /// Returns the next transaction of table direct-return.
    pub(super) fn next_transaction(&mut self, max_batch: usize) -> Option<Transaction> {
        self.0.as_mut()?.next_transaction(max_batch)
    }

    /// Returns whether a transaction of table direct-return waits for its outcome.
    pub(super) fn is_in_flight(&self) -> bool {
        self.0.as_ref().is_some_and(|direct| direct.is_in_flight())
    }

    /// Returns whether the kernel holds what is desired.
    pub(super) fn is_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|direct| direct.is_settled())
    }

    /// Records that the transaction of table direct-return was applied.
    pub(super) fn applied(&mut self) {
        if let Some(direct) = &mut self.0 {
            direct.applied();
        }
    }

    /// Returns the service that an element of table direct-return belongs to.
    pub(super) fn service_of<'a>(
        &'a self,
        set: &str,
        key: &[u8],
        diff: &'a Diff,
    ) -> Option<&'a ObjectName> {
        let direct = self.0.as_deref()?;
        let destination = match DirectSubject::read(SetId::by_name(set)?, key)? {
            DirectSubject::List(list) => return direct.holder(list),
            DirectSubject::Destination(destination) => destination,
            DirectSubject::Address(address) => direct.destination_at(address)?,
        };
        let family = destination.family();
        let frontends = [destination.frontend(), destination.node_port()];
        frontends.into_iter().find_map(|it| diff.service_of(family, Subject::Frontend(it)))
    }

    /// Processes the outcome of a transaction of table direct-return.
    pub(super) fn answer(
        &mut self,
        transaction: &Transaction,
        outcome: Result<(), &CommitError>,
    ) -> Answer {
        let answer = if outcome.is_ok() { Answer::Applied } else { Answer::NotHanded };
        if let Some(direct) = &mut self.0 {
            direct.answer(transaction, outcome);
        }
        answer
    }
}
