//! What our tables should contain. Pure; this is where the nftables design lives.
//!
//! Everything is kept under a [`Key`]; what is kept there is a [`Fragment`]. Fragments become
//! elements in `plan`.

pub mod affinity;
pub mod base;
mod claims;
mod counts;
pub mod elements;
mod fragment;
mod frontend;
mod kept;
mod key;
pub mod layout;
mod owned;
mod patch;
mod serving;
mod sessions;
mod slots;
mod source_ranges;
#[cfg(test)]
mod tests;
mod timeouts;

pub use fragment::Fragment;
pub use kept::KeptFragment;
pub use key::{Key, KeyKind};
pub use layout::Layout;
pub use patch::Patch;
pub use serving::{ServingChange, Targets};
pub use source_ranges::Range;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use ahash::{HashMap, HashSet};
use smallvec::SmallVec;

use self::affinity::Affinity;
use self::claims::{Claims, Outcome, Precedence, Released};
use self::frontend::{SessionBook, Wanted};
use self::owned::OwnedKeys;
use self::serving::Serving;
use self::sessions::SessionTables;
use self::timeouts::GrantedTimeouts;
use crate::diff::{Lane, Tracker};
use crate::model::{Cluster, EndpointChanges, ObjectName, ObjectRef, Problem, Protocol};
use crate::nft::Family;

/// The layouts of both tables.
#[derive(Debug)]
pub struct Layouts([Layout; 2]);

/// Desired and installed state of both tables' elements, and who asks for what.
#[derive(Debug, Default)]
pub struct Desired {
    layouts: Arc<Layouts>,
    tracker: Tracker<Key, Fragment>,
    claims: Claims,
    serving: Serving,
    sessions: SessionTables,
    timeouts: GrantedTimeouts,
    owned: HashMap<ObjectName, OwnedKeys>,
    node_port_ips: Vec<IpAddr>,
    /// Services that the kernel refused; they are out until they change.
    excluded: HashSet<ObjectName>,
}

impl Default for Layouts {
    fn default() -> Self {
        Self(Family::ALL.map(Layout::new))
    }
}

impl Layouts {
    /// Both layouts, `ip` first.
    pub fn iter(&self) -> impl Iterator<Item = &Layout> {
        self.0.iter()
    }

    /// The layout of one table.
    pub fn of(&self, family: Family) -> &Layout {
        match family {
            Family::Ip => &self.0[0],
            Family::Ip6 => &self.0[1],
        }
    }
}

impl Desired {
    /// The layouts of both tables.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Where desired and installed state differ.
    pub fn tracker(&self) -> &Tracker<Key, Fragment> {
        &self.tracker
    }

    /// The same, to take changes off and to commit them.
    pub fn tracker_mut(&mut self) -> &mut Tracker<Key, Fragment> {
        &mut self.tracker
    }

    /// Whether the kernel holds everything that is desired.
    pub fn is_settled(&self) -> bool {
        self.tracker.is_settled()
    }

    /// Whose UDP flows have become stale by what is in the kernel now, each once.
    ///
    /// No transaction may be on its way.
    pub fn take_serving_changes(&mut self) -> Vec<ServingChange> {
        self.serving.take(|key| !self.tracker.differs(key))
    }

    /// The node ports of UDP that the kernel has.
    pub fn udp_node_ports(&self) -> impl Iterator<Item = (Family, NonZeroU16)> {
        self.serving.node_ports()
    }

    /// The service that `key` belongs to.
    pub fn service_of(&self, key: &Key) -> Option<&ObjectName> {
        self.claims.holder(key)
    }

    /// Renders a service again, and those that waited for an address which it gives back. What
    /// changes goes to the kernel by `lane`.
    pub fn render_service(
        &mut self,
        name: &ObjectName,
        cluster: &Cluster,
        lane: Lane,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.tracker.begin_unit(lane);
        let mut names = self.render_one(name, cluster, &mut problems);
        while let Some(name) = names.pop() {
            self.tracker.begin_unit(lane);
            names.extend(self.render_one(&name, cluster, &mut problems));
        }
        problems
    }

    /// Changes which endpoints a service has, without rendering it; whether that could be done. If
    /// not, it is to be rendered.
    pub fn change_endpoints(
        &mut self,
        name: &ObjectName,
        changes: &EndpointChanges,
        cluster: &Cluster,
        lane: Lane,
    ) -> bool {
        let Some(patches) = self.patches(name, changes, cluster) else { return false };
        self.tracker.begin_unit(lane);
        patches.into_iter().for_each(|(key, patch)| self.tracker.want_patch(key, patch));
        true
    }

    /// What changes under the keys of a service, if they are as they were rendered last and nothing
    /// else depends on its endpoints.
    fn patches(
        &self,
        name: &ObjectName,
        changes: &EndpointChanges,
        cluster: &Cluster,
    ) -> Option<SmallVec<[(Key, Patch); 2]>> {
        let ports = cluster.plainly_served_ports(name)?;
        let mut patches = SmallVec::new();
        for key in self.owned.get(name)?.iter() {
            match key.kind() {
                KeyKind::Frontend | KeyKind::NodePort => {}
                KeyKind::Address | KeyKind::Hairpin => continue,
                KeyKind::Session => return None,
            }
            let port = ports.iter().find(|port| key.is_of(port))?;
            let is_own = self.claims.holder(&key) == Some(name);
            // Flows of UDP are followed by all endpoints that serve.
            if port.protocol == Protocol::Udp || !is_own || self.tracker.differs(&key) {
                return None;
            }
            let endpoints = changes.of_port(port)?;
            let family = key.family();
            let endpoints = endpoints.filter(|(it, _)| Family::of(it.address) == family);
            let installed = self.tracker.kept(&key)?;
            let patch = Patch::new(installed, self.layouts.of(family), endpoints)?;
            if !patch.is_nothing(installed) {
                patches.push((key, patch));
            }
        }
        Some(patches)
    }

    /// From its next rendering to [`Desired::readmit`] it is as if the service did not exist.
    pub fn exclude(&mut self, name: &ObjectName) {
        self.excluded.insert(name.clone());
    }

    /// Lets a service that was taken out in again at its next rendering.
    pub fn readmit(&mut self, name: &ObjectName) {
        self.excluded.remove(name);
    }

    /// The timeouts that services with session affinity have, in seconds, ascending.
    pub fn affinity_timeouts(&self) -> impl Iterator<Item = u32> {
        self.timeouts.all()
    }

    /// States how long the service is to remember clients, if it has affinity. To be told before it
    /// is rendered.
    pub fn ask_timeout(&mut self, name: &ObjectName, seconds: Option<u32>) {
        self.timeouts.ask(name, seconds);
    }

    /// Sets the addresses that accept traffic to node ports.
    pub fn set_node_port_ips(&mut self, addresses: &[IpAddr]) {
        self.tracker.begin_unit(Lane::Fast);
        let former = std::mem::replace(&mut self.node_port_ips, addresses.to_vec());
        for address in former.into_iter().filter(|former| !addresses.contains(former)) {
            self.tracker.want(Key::NodePortIp(address), None);
        }
        for address in addresses {
            let fragment = Fragment::member(layout::NODE_PORT_IP);
            self.tracker.want(Key::NodePortIp(*address), Some(fragment));
        }
    }

    /// Starts over from what the kernel was found to hold.
    ///
    /// Every service must be rendered again, and then [`Desired::sweep`] be called.
    pub fn observe(&mut self, installed: HashMap<Key, KeptFragment>) {
        self.serving.observe(&installed);
        for family in Family::ALL {
            let sessions = installed.keys().filter_map(|key| key.session(family));
            self.sessions.of(family).observe(sessions);
        }
        self.tracker.observe(installed);
        let addresses = std::mem::take(&mut self.node_port_ips);
        self.set_node_port_ips(&addresses);
    }

    /// The services that have keys.
    pub fn services(&self) -> impl Iterator<Item = &ObjectName> {
        self.owned.keys()
    }

    /// Removes every installed key that nobody asks for.
    pub fn sweep(&mut self) {
        self.tracker.begin_unit(Lane::Slow);
        let unclaimed = |key: &&Key| match key.node_port_ip() {
            Some(address) => !self.node_port_ips.contains(&address),
            None => !self.claims.is_claimed(key),
        };
        let stale: Vec<Key> = self.tracker.installed_keys().filter(unclaimed).copied().collect();
        stale.into_iter().for_each(|key| self.tracker.want(key, None));
        self.serving.sweep(|key| self.claims.is_claimed(key));
        self.sessions.sweep();
    }

    /// Renders one service; returns the services that should ask again.
    fn render_one(
        &mut self,
        name: &ObjectName,
        cluster: &Cluster,
        problems: &mut Vec<Problem>,
    ) -> Vec<ObjectName> {
        let precedence = |name: &ObjectName| precedence(cluster, name);
        let mut rendered = cluster
            .service(name)
            .filter(|_| !self.excluded.contains(name))
            .map(|view| {
                let (sessions, tracker) = (&mut self.sessions, &self.tracker);
                let timeout = self.timeouts.of(name);
                let would_hold = |key: &Key| self.claims.would_hold(key, name, precedence);
                let would_hold = &would_hold;
                let book = SessionBook { sessions, timeout, tracker, would_hold };
                frontend::render(&view, &self.layouts, book)
            })
            .unwrap_or_default();
        problems.append(&mut rendered.problems);
        let former = self.owned.get_mut(name).map(std::mem::take).unwrap_or_default();
        let wanted_keys = || rendered.wanted.iter().map(|wanted| wanted.key);
        let is_same = former.iter().eq(wanted_keys());
        let keys: Option<OwnedKeys> = (!is_same).then(|| wanted_keys().collect());

        let mut again = Vec::new();
        for wanted in rendered.wanted {
            if !wanted.key.is_shared() {
                let outcome = self.claims.claim(wanted.key, name, precedence);
                problems.extend(conflict(&outcome, name, &wanted.key));
                // A session goes with the last of its frontends, also when that is taken.
                if let Outcome::YieldedTo(other) | Outcome::TakenFrom(other) = &outcome {
                    again.push(other.clone());
                }
                if !matches!(outcome, Outcome::Held | Outcome::TakenFrom(_)) {
                    continue;
                }
            } else if !former.contains(&wanted.key) {
                self.claims.share(wanted.key);
            }
            self.want(wanted);
        }
        let keys = match keys {
            None => former,
            Some(keys) => {
                let given_back = former.iter().filter(|key| !keys.contains(key));
                again.extend(given_back.filter_map(|key| self.give_back(&key, name, precedence)));
                keys
            }
        };
        match keys.is_empty() {
            true => self.owned.remove(name),
            false => self.owned.insert(name.clone(), keys),
        };
        again
    }

    fn want(&mut self, wanted: Wanted) {
        let Wanted { key, fragment, endpoints } = wanted;
        if let Some(serving) = endpoints.serving {
            self.serving.want(key, Some(serving));
        }
        let installed = self.tracker.installed(&key);
        let mut fragment =
            fragment.with_slots(installed.as_ref(), &endpoints.all, &endpoints.local);
        if let (Key::Session { session, .. }, Some(Affinity::Session { ids, .. })) =
            (key, fragment.affinity.as_deref_mut())
        {
            let sessions = self.sessions.of(key.family());
            *ids = sessions.endpoint_ids(session, installed.as_ref(), &fragment.slots);
        }
        self.tracker.want(key, Some(fragment));
    }

    /// `name` no longer asks for `key`; returns the service that should ask again.
    fn give_back(
        &mut self,
        key: &Key,
        name: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<ObjectName> {
        let released = match key.is_shared() {
            true => self.claims.unshare(key),
            false => self.claims.release(key, name, precedence),
        };
        match released {
            Released::InUse => None,
            Released::Free => {
                if let Key::Session { session, .. } = key {
                    self.sessions.of(key.family()).release(*session);
                }
                self.serving.want(*key, None);
                self.tracker.want(*key, None);
                None
            }
            // Until that service has been rendered the key is nobody's; it follows at once.
            Released::Awaited(next) => Some(next),
        }
    }
}

/// A conflict is told once, when somebody begins to wait.
fn conflict(outcome: &Outcome, name: &ObjectName, key: &Key) -> Option<Problem> {
    let (loser, winner) = match outcome {
        Outcome::Held | Outcome::StillHeld => return None,
        Outcome::TakenFrom(former) => (former, name),
        Outcome::HeldBy(winner) | Outcome::YieldedTo(winner) => (name, winner),
    };
    Some(Problem {
        object: ObjectRef::service(loser),
        field: String::new(),
        message: format!("{key} belongs to Service {winner}, which is older or first by name"),
    })
}

fn precedence(cluster: &Cluster, name: &ObjectName) -> Precedence {
    let created = cluster.created(name).unwrap_or(i64::MAX);
    (created, name.clone())
}
