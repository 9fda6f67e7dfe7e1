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
mod timeouts;

pub use fragment::Fragment;
pub use kept::KeptFragment;
pub use key::{Key, KeyKind};
pub use layout::Layout;
pub use patch::Patch;
pub use serving::{ServingChange, Targets};
pub use source_ranges::Range;

use std::collections::BTreeSet;
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
use self::timeouts::Timeouts;
use crate::diff::{Lane, Tracker};
use crate::model::{Cluster, EndpointChanges, ObjectName, Problem, Protocol};
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
    timeouts: Timeouts,
    owned: HashMap<ObjectName, OwnedKeys>,
    node_port_ips: Vec<IpAddr>,
    /// Services that the kernel refused; they are out until they change.
    excluded: HashSet<ObjectName>,
}

impl Default for Layouts {
    fn default() -> Self {
        Self([Family::Ip, Family::Ip6].map(Layout::new))
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
            let endpoints = endpoints.filter(|(it, _)| key::family_of(it.address) == family);
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

    /// The timeouts that services with session affinity ask for, in seconds.
    pub fn affinity_timeouts(&self) -> BTreeSet<u32> {
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
        for family in [Family::Ip, Family::Ip6] {
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
        let unclaimed = |key: &&Key| match key {
            Key::NodePortIp(address) => !self.node_port_ips.contains(address),
            Key::Frontend { .. }
            | Key::NodePort { .. }
            | Key::ClusterIp(_)
            | Key::Hairpin(..)
            | Key::Session { .. } => !self.claims.is_claimed(key),
        };
        let stale: Vec<Key> = self.tracker.installed_keys().filter(unclaimed).copied().collect();
        stale.into_iter().for_each(|key| self.tracker.want(key, None));
        self.serving.sweep(|key| self.claims.is_claimed(key));
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
            let is_new = || !former.contains(&wanted.key);
            let granted = match wanted.key.kind() {
                KeyKind::Address | KeyKind::Hairpin => {
                    if is_new() {
                        self.claims.share(wanted.key);
                    }
                    true
                }
                KeyKind::Frontend | KeyKind::NodePort | KeyKind::Session => {
                    let outcome = self.claims.claim(wanted.key, name, precedence);
                    problems.extend(conflict(&outcome, name, &wanted.key));
                    // A session goes with the last of its frontends, also when that is taken.
                    if let Outcome::YieldedTo(other) | Outcome::TakenFrom(other) = &outcome {
                        again.push(other.clone());
                    }
                    matches!(outcome, Outcome::Held | Outcome::TakenFrom(_))
                }
            };
            if granted {
                self.want(wanted);
            }
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
        let released = match key.kind() {
            KeyKind::Address | KeyKind::Hairpin => self.claims.unshare(key),
            KeyKind::Frontend | KeyKind::NodePort | KeyKind::Session => {
                self.claims.release(key, name, precedence)
            }
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
        object: format!("Service {loser}"),
        field: String::new(),
        message: format!("{key} belongs to Service {winner}, which is older or first by name"),
    })
}

fn precedence(cluster: &Cluster, name: &ObjectName) -> Precedence {
    let created = cluster.created(name).unwrap_or(i64::MAX);
    (created, name.clone())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::model::{
        Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Protocol, Service,
        ServicePort, Touched,
    };
    use crate::nft::Operation;
    use crate::plan;

    fn service(name: &str, cluster_ip: &str) -> Service {
        let name = ObjectName::namespaced("default", name);
        Service {
            ports: vec![ServicePort::tcp("http", NonZeroU16::new(80).unwrap())],
            ..Service::new(name, vec![cluster_ip.parse().unwrap()])
        }
    }

    fn with_external_ip(service: Service, created: i64) -> Service {
        Service { created, external_ips: vec![IpAddr::from([192, 0, 2, 1])], ..service }
    }

    fn slice(service: &str, endpoints: &[(u8, bool)]) -> EndpointSlice {
        let name = ObjectName::namespaced("default", service);
        let endpoint = |(last, local): &(u8, bool)| Endpoint {
            address: IpAddr::from([10, 244, 0, *last]),
            conditions: Conditions { local: *local, ..Conditions::READY },
            zones: None,
        };
        EndpointSlice {
            name: name.clone(),
            service: name,
            ports: vec![EndpointPort::tcp("http", NonZeroU16::new(8080).unwrap())],
            endpoints: endpoints.iter().map(endpoint).collect(),
        }
    }

    /// State with every change committed.
    #[derive(Default)]
    struct Settled {
        cluster: Cluster,
        desired: Desired,
    }

    impl Settled {
        /// Applies an event; the changes in nft's words, and the problems.
        fn apply(&mut self, event: Event) -> (Vec<String>, Vec<Problem>) {
            let mut touched = Touched::default();
            self.cluster.apply(event, &mut touched);
            let mut problems = Vec::new();
            for name in touched.services.keys() {
                problems.extend(self.desired.render_service(name, &self.cluster, Lane::Slow));
            }
            let piece =
                plan::take(&mut self.desired, plan::Room { budget: usize::MAX, limit: usize::MAX });
            for (key, fragment) in piece.fragments {
                self.desired.tracker_mut().commit(key, fragment);
            }
            assert!(self.desired.is_settled());
            (piece.operations.iter().map(text).collect(), problems)
        }

        #[track_caller]
        fn check(&mut self, event: Event, expected: &[&str]) {
            let (changes, problems) = self.apply(event);
            assert_eq!(changes, expected);
            assert_eq!(problems, []);
        }
    }

    /// `+service-ips { … }`, without the table.
    fn text(operation: &Operation) -> String {
        let text = operation.to_string();
        let text = text.replace("add element ip kube-proxy ", "+");
        text.replace("delete element ip kube-proxy ", "-")
    }

    fn is(service: Service) -> Event {
        Event::Service(Change::Is(service))
    }

    fn slice_is(slice: EndpointSlice) -> Event {
        Event::EndpointSlice(Change::Is(slice))
    }

    fn web() -> Settled {
        let mut settled = Settled::default();
        settled.apply(is(service("web", "10.96.0.1")));
        settled.apply(slice_is(slice("web", &[(1, false), (2, false), (3, false)])));
        settled
    }

    #[test]
    fn a_cluster_ip_without_endpoints_is_refused() {
        Settled::default().check(
            is(service("web", "10.96.0.1")),
            &[
                "+cluster-ips { 10.96.0.1 }",
                "+no-endpoint-services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" }",
            ],
        );
    }

    #[test]
    fn the_first_endpoint_moves_a_frontend_from_refused_to_served() {
        let mut settled = Settled::default();
        settled.apply(is(service("web", "10.96.0.1")));
        settled.check(
            slice_is(slice("web", &[(1, false)])),
            &[
                "-no-endpoint-services { 10.96.0.1 . tcp . 80 }",
                "+endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.244.0.1 . 8080 }",
                "+service-ips { 10.96.0.1 . tcp . 80 comment \"default/web:http\" }",
            ],
        );
    }

    #[test]
    fn removing_an_endpoint_moves_the_last_into_its_slot() {
        web().check(
            slice_is(slice("web", &[(2, false), (3, false)])),
            &[
                "-endpoints { 10.96.0.1 . tcp . 80 . 0, 10.96.0.1 . tcp . 80 . 2 }",
                "-endpoints-ge-3 { 10.96.0.1 . tcp . 80 }",
                "+endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.244.0.3 . 8080 }",
            ],
        );
    }

    #[test]
    fn a_replaced_endpoint_costs_two_elements() {
        web().check(
            slice_is(slice("web", &[(1, false), (9, false), (3, false)])),
            &[
                "-endpoints { 10.96.0.1 . tcp . 80 . 1 }",
                "+endpoints { 10.96.0.1 . tcp . 80 . 1 : 10.244.0.9 . 8080 }",
            ],
        );
    }

    #[test]
    fn an_endpoint_on_this_node_may_reach_itself() {
        let mut settled = Settled::default();
        settled.apply(is(service("web", "10.96.0.1")));
        let (changes, _) = settled.apply(slice_is(slice("web", &[(1, true)])));
        let hairpin = "+hairpin-connections { 10.244.0.1 . 10.244.0.1 . tcp . 8080 }";
        assert!(changes.contains(&hairpin.to_owned()), "{changes:?}");
    }

    #[test]
    fn a_service_that_goes_leaves_nothing() {
        let mut settled = web();
        settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "web"))));
        assert_eq!(settled.desired.tracker().installed_keys().count(), 0);
    }

    #[test]
    fn a_rename_with_the_same_address_replaces_only_the_comment() {
        let mut settled = Settled::default();
        settled.apply(is(with_external_ip(service("a", "10.96.0.1"), 0)));
        settled.apply(is(with_external_ip(service("b", "10.96.0.2"), 1)));
        let (changes, _) =
            settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "a"))));
        let moved = "+no-endpoint-services { 192.0.2.1 . tcp . 80 comment \"default/b:http\" }";
        assert!(changes.contains(&moved.to_owned()), "{changes:?}");
    }

    #[test]
    fn of_two_claims_the_older_wins_in_either_order_and_one_warning_is_given() {
        for order in [["old", "young"], ["young", "old"]] {
            let mut settled = Settled::default();
            let mut problems = Vec::new();
            for name in order {
                let (address, created) =
                    if name == "old" { ("10.96.0.1", 1) } else { ("10.96.0.2", 2) };
                let service = with_external_ip(service(name, address), created);
                problems.extend(settled.apply(is(service)).1);
            }
            let (_, again) = settled.apply(slice_is(slice("young", &[(1, false)])));
            problems.extend(again);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].object, "Service default/young");
            let key = Key::Frontend {
                address: IpAddr::from([192, 0, 2, 1]),
                protocol: Protocol::Tcp,
                port: NonZeroU16::new(80).unwrap(),
            };
            assert_eq!(settled.desired.service_of(&key).unwrap().as_str(), "default/old");
        }
    }

    #[test]
    fn whoever_takes_an_address_from_a_service_that_became_younger_yields_to_the_oldest() {
        let mut settled = Settled::default();
        for (name, ip, created) in
            [("a", "10.96.0.1", 0), ("b", "10.96.0.2", 1), ("c", "10.96.0.3", 2)]
        {
            settled.apply(is(with_external_ip(service(name, ip), created)));
        }
        // The holder is made anew, and another that waits is rendered before it.
        let anew = is(with_external_ip(service("a", "10.96.0.1"), 9));
        let mut touched = Touched::default();
        settled.cluster.apply(anew, &mut touched);
        settled.apply(slice_is(slice("c", &[(1, false)])));
        for name in touched.services.keys() {
            settled.desired.render_service(name, &settled.cluster, Lane::Slow);
        }
        let key = Key::Frontend {
            address: IpAddr::from([192, 0, 2, 1]),
            protocol: Protocol::Tcp,
            port: NonZeroU16::new(80).unwrap(),
        };
        assert_eq!(settled.desired.service_of(&key).unwrap().as_str(), "default/b");
    }

    #[test]
    fn an_address_that_holder_and_waiting_service_give_back_together_is_removed() {
        let mut settled = Settled::default();
        settled.apply(is(with_external_ip(service("a", "10.96.0.1"), 0)));
        settled.apply(is(with_external_ip(service("b", "10.96.0.2"), 1)));
        // The one that waits knows no address any more before the holder's is rendered.
        settled.cluster.apply(is(service("b", "10.96.0.2")), &mut Touched::default());
        let (changes, _) = settled.apply(is(service("a", "10.96.0.1")));
        assert_eq!(changes, ["-no-endpoint-services { 192.0.2.1 . tcp . 80 }"]);
    }

    #[test]
    fn a_service_has_nothing_in_a_family_without_cluster_ip() {
        let mut service = service("web", "10.96.0.1");
        service.ports[0].node_port = NonZeroU16::new(30_080);
        service.external_ips = vec!["fd00::1".parse().unwrap()];
        let mut settled = Settled::default();
        settled.apply(is(service));
        let families = settled.desired.tracker().installed_keys().map(Key::family);
        assert_eq!(families.filter(|family| *family == Family::Ip6).count(), 0);
    }
}
