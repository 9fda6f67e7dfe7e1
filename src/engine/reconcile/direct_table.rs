//! Direct return beside kube-proxy's tables: off by default.

use std::time::{Instant, SystemTime};

use nft::{Operation, Transaction};

use super::table_id::TableId;
use super::tables::{TableState, Tables};
use super::updates::Updates;
use crate::diff::Diff;
use crate::direct::ruleset::ending;
use crate::direct::{Direct, Links, World};
use crate::model::{Change, Cluster, Event, Touched};
use crate::routing::Routing;
use crate::ruleset::base::Base;

impl Tables {
    /// Turns direct return on, if the settings ask for it.
    pub(super) fn start_direct_return(&mut self, routing: &Routing, now: Instant) {
        let settings = routing.direct_return.clone();
        let start = |settings| Box::new(Direct::new(settings, routing.hash_seed, now));
        self.direct = settings.map(start);
    }

    /// Records what is known of the links of this node. Returns whether the kernel may have changed the
    /// table.
    pub(super) fn learn_links(&mut self, links: Links, cluster: &Cluster) -> bool {
        let exists = self.have_direct_return();
        let Some(direct) = &mut self.direct else { return false };
        let differ = direct.learn(links, cluster);
        self.set_rules_of_direct_return();
        differ && exists
    }

    /// Returns whether the table of direct return exists, as far as is known.
    pub fn have_direct_return(&self) -> bool {
        self.of(TableId::DirectReturn).installed.is_ours()
    }

    /// Returns whether the kernel holds what direct return desires, as far as that can be known now.
    pub(super) fn is_direct_return_settled(&self) -> bool {
        let is_stale = self.of(TableId::DirectReturn).is_stale;
        let is_settled = self.direct.as_ref().is_none_or(|direct| direct.is_settled());
        !self.may_change_direct_return() || is_settled && !is_stale
    }

    /// Returns the transaction after which nodes hand packets on until `end` only.
    pub(super) fn ending(&self, end: SystemTime) -> Option<Transaction> {
        let table = self.of(TableId::DirectReturn);
        let base = table.desired.as_ref().filter(|_| table.installed.is_ours())?;
        Some(Transaction { operations: ending(base, end) })
    }

    /// Notes before an event whether it creates a service, which has no connections yet.
    pub(super) fn note_created(&mut self, event: &Event, cluster: &Cluster) {
        let Some(direct) = &mut self.direct else { return };
        if let Event::Service(Change::Is(service)) = event
            && cluster.is_listed()
            && cluster.service(&service.name).is_none()
        {
            direct.plans.note_created(&service.name);
        }
    }

    /// Notes whether events touched this node or others.
    pub(super) fn touch_nodes(&mut self, touched: &mut Touched) {
        let touches_nodes = std::mem::take(&mut touched.peers) || touched.node;
        if let Some(direct) = self.direct.as_mut().filter(|_| touches_nodes) {
            direct.touch_nodes();
        }
    }

    /// Renders the services that nodes handed to each other before the start as such.
    pub(super) fn adopt_handed(&mut self, cluster: &mut Cluster) {
        let Some(direct) = &mut self.direct else { return };
        for (name, handed) in direct.take_adopted(cluster) {
            cluster.hand(name, Some(handed));
        }
    }

    /// Plans direct return. All services must be rendered: then each frontend has its holder.
    /// Returns whether services are to be rendered again.
    pub(super) fn plan_direct_return(
        &mut self,
        cluster: &mut Cluster,
        diff: &Diff,
        updates: &mut Updates,
    ) -> bool {
        let Some(direct) = &mut self.direct else { return false };
        let changed = direct.plan(World { cluster, diff, slots: &updates.slot_budget });
        let must_render = !changed.is_empty();
        for (name, handed) in changed {
            cluster.hand(name.clone(), handed);
            updates.again(name);
        }
        self.set_rules_of_direct_return();
        must_render
    }

    /// Returns whether it is known how nodes are reached, or direct return is off.
    pub(super) fn may_change_direct_return(&self) -> bool {
        self.direct.as_ref().is_none_or(|direct| direct.may_plan())
    }

    /// Returns the desired rules, which the next transaction makes. A table that it makes or deletes has
    /// no elements then.
    pub(super) fn desired_direct_return(&mut self) -> Option<Base> {
        let TableState { desired, installed, .. } = self.of(TableId::DirectReturn);
        let (desired, is_kept) = (desired.clone(), desired.is_some() && installed.is_ours());
        if let Some(direct) = self.direct.as_mut().filter(|_| !is_kept) {
            direct.table.forget_installed();
        }
        desired
    }

    /// Returns the operations of the next changes of elements, at most `most` of them.
    pub(super) fn next_stage(&mut self, most: usize) -> Vec<Operation> {
        let base = self.states[TableId::DirectReturn.index()].desired.as_ref();
        let direct = self.direct.as_mut().zip(base);
        direct.map(|(direct, base)| direct.table.next_stage(base, most)).unwrap_or_default()
    }

    /// A table whose devices are gone stays: it remembers the connections until they are back.
    fn set_rules_of_direct_return(&mut self) {
        let exists = self.have_direct_return();
        if let Some(base) = self.direct.as_mut().and_then(|direct| direct.new_rules(exists)) {
            self.of_mut(TableId::DirectReturn).set_desired(base);
        }
    }
}
