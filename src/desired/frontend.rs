//! One service -> what our tables say under each of its keys.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ahash::HashSet;

use super::affinity::{self, Affinity, Session};
use super::fragment::LABEL_LIMIT;
use super::key::Key;
use super::layout::{
    CLUSTER_IP, DROP, FIREWALL, HAIRPIN, LOCAL_POLICY, Layout, MASQUERADE, REJECT, WITH_ENDPOINTS,
    endpoint_limits,
};
use super::sessions::{List, Owner, SessionTables};
use super::{Fragment, Layouts, source_ranges};
use crate::diff::Tracker;
use crate::model::{
    ObjectRef, Problem, Protocol, Service, ServicePort, ServiceView, Target, TrafficPolicy,
    UsableEndpoints,
};
use crate::nft::Family;

/// What a service asks for under one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The key.
    pub(super) key: Key,
    /// Sets and label; the slots are still empty.
    pub(super) fragment: Fragment,
    /// Which endpoints belong into the slots.
    pub(super) endpoints: Endpoints,
}

/// The endpoints of a key, shared by all keys of one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoints {
    /// For the slots that all traffic uses.
    pub(super) all: Arc<[Target]>,
    /// For the slots of traffic from outside, with external traffic policy `Local`.
    pub(super) local: Arc<[Target]>,
    /// Those that flows which are there already may go to; only of UDP, whose flows do not end.
    pub(super) serving: Option<Arc<[Target]>>,
}

/// What a service asks for, and what of it cannot be had.
#[derive(Debug, Default)]
pub(super) struct Rendered {
    /// What others refer to comes first: sessions, frontends, addresses.
    pub(super) wanted: Vec<Wanted>,
    /// What was left out.
    pub(super) problems: Vec<Problem>,
}

/// Where sessions get their numbers from.
pub(super) struct SessionBook<'a> {
    /// Those that services have, by table.
    pub(super) sessions: &'a mut SessionTables,
    /// Seconds that the service remembers clients, if it has affinity.
    pub(super) timeout: Option<u32>,
    /// What the kernel holds, maybe with sessions of an earlier run.
    pub(super) tracker: &'a Tracker<Key, Fragment>,
    /// Whether the service gets a key that others may ask for too.
    pub(super) would_hold: &'a dyn Fn(&Key) -> bool,
}

/// Everything that the service asks for.
///
/// Labels are shared with what is installed where they are the same.
pub(super) fn render(
    view: &ServiceView<'_>,
    layouts: &Layouts,
    mut book: SessionBook<'_>,
) -> Rendered {
    let mut rendered = Rendered::default();
    for layout in layouts.iter() {
        // A service has nothing in a family in which it has no cluster IP, whatever other
        // addresses it names.
        if !view.service.cluster_ips.iter().any(|address| family_matches(*address, layout)) {
            continue;
        }
        for port in &view.service.ports {
            PortRenderer::new(view, port, layout, book.tracker, &mut rendered).render(&mut book);
        }
        let addresses = view.service.cluster_ips.iter().copied();
        for address in addresses.filter(|address| family_matches(*address, layout)) {
            rendered.add_member(Key::ClusterIp(address), CLUSTER_IP);
        }
    }
    rendered.keep_first_of_each_key();
    rendered
}

impl Rendered {
    fn add_member(&mut self, key: Key, sets: u64) {
        let fragment = Fragment::member(sets);
        self.wanted.push(Wanted { key, fragment, endpoints: Endpoints::default() });
    }

    /// A VIP may equal an external IP of the same service.
    fn keep_first_of_each_key(&mut self) {
        if self.wanted.len() > FEW {
            let mut keys = HashSet::default();
            return self.wanted.retain(|wanted| keys.insert(wanted.key));
        }
        for i in (1..self.wanted.len()).rev() {
            let (earlier, later) = self.wanted.split_at(i);
            if earlier.iter().any(|wanted| wanted.key == later[0].key) {
                self.wanted.remove(i);
            }
        }
    }
}

/// So many keys are told apart by comparing each with every other.
const FEW: usize = 16;

/// One service port in one table.
struct PortRenderer<'a> {
    service: &'a Service,
    port: &'a ServicePort,
    layout: &'a Layout,
    /// All usable endpoints.
    cluster: Arc<[Target]>,
    /// Those on this node.
    local: Arc<[Target]>,
    node_address: Option<IpAddr>,
    serving: Option<Arc<[Target]>>,
    label: Arc<str>,
    /// Of all endpoints, and of those on this node.
    sessions: [Option<Session>; 2],
    rendered: &'a mut Rendered,
}

impl<'a> PortRenderer<'a> {
    fn new(
        view: &'a ServiceView<'a>,
        port: &'a ServicePort,
        layout: &'a Layout,
        installed: &Tracker<Key, Fragment>,
        rendered: &'a mut Rendered,
    ) -> Self {
        let UsableEndpoints { mut cluster, mut local } = view.usable_endpoints(port, layout.family);
        for (list, limit) in [&mut cluster, &mut local].into_iter().zip(endpoint_limits()) {
            if list.len() > limit {
                let message =
                    format!("of its {} endpoints only the first {limit} are used", list.len());
                rendered.problems.push(problem(&view.service, port, "spec.ports", &message));
                list.truncate(limit);
            }
        }
        let label = label(&view.service, port, |key| installed.kept(key)?.label());
        let node_address = view.node_address(layout.family);
        let serving = (port.protocol == Protocol::Udp)
            .then(|| view.serving_endpoints(port, layout.family).into());
        let service = &view.service;
        let (cluster, local) = (shared(&cluster), shared(&local));
        Self {
            service,
            port,
            layout,
            cluster,
            local,
            node_address,
            serving,
            label,
            sessions: [None; 2],
            rendered,
        }
    }

    fn render(mut self, book: &mut SessionBook<'_>) {
        let service = self.service;
        self.sessions = [List::Cluster, List::Local].map(|list| self.add_session(list, book));
        let internal = self.internal();
        for &address in &service.cluster_ips {
            self.add_address(address, &internal);
        }
        let external = self.external();
        // An address may be both; then its sources are checked.
        let guarded = self.guarded(&external);
        for &address in &service.load_balancer_ips {
            self.add_address(address, &guarded);
        }
        for &address in &service.external_ips {
            self.add_address(address, &external);
        }
        if let Some(key) = self.node_port() {
            // Everything that comes through a node port is from outside: its chain masquerades
            // without asking a set.
            let mut external = external;
            external.0.sets &= !MASQUERADE;
            if external.0.sets & LOCAL_POLICY != 0 {
                external.0.sets |= WITH_ENDPOINTS;
            }
            self.add(key, &external);
        }
        self.add_hairpins();
    }

    /// What a cluster IP gets.
    fn internal(&self) -> (Fragment, Endpoints) {
        let (endpoints, session) = match self.service.internal_traffic_policy {
            TrafficPolicy::Cluster => (&self.cluster, self.sessions[0]),
            TrafficPolicy::Local => (&self.local, self.sessions[1]),
        };
        let sets = match (endpoints.is_empty(), self.has_no_endpoint()) {
            (false, _) => WITH_ENDPOINTS,
            (true, true) => REJECT,
            (true, false) => DROP,
        };
        self.fragment(sets, endpoints.clone(), Arc::default(), [session, None])
    }

    /// What external IPs, load balancer IPs and node ports get.
    fn external(&self) -> (Fragment, Endpoints) {
        let (cluster, local) = (self.cluster.clone(), self.local.clone());
        let sessions = self.sessions;
        match self.service.external_traffic_policy {
            TrafficPolicy::Cluster => {
                let sets = if cluster.is_empty() { REJECT } else { WITH_ENDPOINTS | MASQUERADE };
                self.fragment(sets, cluster, Arc::default(), [sessions[0], None])
            }
            TrafficPolicy::Local if self.has_no_endpoint() => {
                self.fragment(REJECT, cluster, local, [None; 2])
            }
            TrafficPolicy::Local => {
                let drop = if local.is_empty() { DROP } else { 0 };
                self.fragment(LOCAL_POLICY | drop, cluster, local, sessions)
            }
        }
    }

    fn has_no_endpoint(&self) -> bool {
        self.cluster.is_empty() && self.local.is_empty()
    }

    /// What load balancer addresses get: only they are subject to source ranges.
    fn guarded(&self, external: &(Fragment, Endpoints)) -> (Fragment, Endpoints) {
        let (mut fragment, endpoints) = external.clone();
        let ranges = source_ranges::allowed(
            &self.service.source_ranges,
            &self.service.load_balancer_ips,
            self.node_address,
            self.layout.family,
        );
        if let Some(ranges) = ranges {
            fragment.sets |= FIREWALL;
            fragment.ranges = ranges;
        }
        (fragment, endpoints)
    }

    fn fragment(
        &self,
        sets: u64,
        all: Arc<[Target]>,
        local: Arc<[Target]>,
        sessions: [Option<Session>; 2],
    ) -> (Fragment, Endpoints) {
        let sets = match (sets, sessions) {
            (WITH_ENDPOINTS, [None, None]) => self.layout.plain(all.len()),
            _ => sets | self.layout.count_memberships(all.len(), local.len()),
        };
        let affinity = (sessions != [None; 2]).then(|| Box::new(Affinity::Frontend(sessions)));
        let label = Some(self.label.clone());
        let fragment = Fragment { label, affinity, ..Fragment::member(sets) };
        let serving = self.serving.clone();
        (fragment, Endpoints { all, local, serving })
    }

    /// The session of one list of endpoints, if clients are to be led back and the service gets a
    /// frontend that uses the list.
    fn add_session(&mut self, list: List, book: &mut SessionBook<'_>) -> Option<Session> {
        let timeout = book.timeout?;
        let mut users = self.users(list);
        users.retain(|(key, _)| (book.would_hold)(key));
        if users.is_empty() || self.endpoints(list).is_empty() {
            return None;
        }
        let (family, protocol) = (self.layout.family, self.port.protocol);
        let service = self.service.name.clone();
        let owner = Owner { service, protocol, port: self.port.port.get(), list };
        let found = self.installed_sessions(&users, book.tracker);
        let Some(session) = book.sessions.of(family).session(owner, found) else {
            let count = Session::LAST - Session::FIRST + 1;
            self.add_affinity_problem(&format!("there is none: all {count} sessions are taken"));
            return None;
        };
        self.report_limits(list, timeout);
        let key = Key::Session { family, protocol, session };
        let wanted = self.session(key, list, timeout);
        self.rendered.wanted.push(wanted);
        Some(session)
    }

    fn endpoints(&self, list: List) -> &Arc<[Target]> {
        match list {
            List::Cluster => &self.cluster,
            List::Local => &self.local,
        }
    }

    /// The sessions that the kernel has for frontends, each of which has the index of its tree.
    fn installed_sessions(
        &self,
        users: &[(Key, usize)],
        installed: &Tracker<Key, Fragment>,
    ) -> impl Iterator<Item = Session> {
        users.iter().filter_map(|(key, tree)| {
            let kept = installed.kept(key)?;
            // Another service may have had the address.
            let is_own = kept.label() == Some(&self.label);
            match kept.affinity().filter(|_| is_own)? {
                Affinity::Frontend(sessions) => sessions[*tree],
                Affinity::Session { .. } => None,
            }
        })
    }

    /// What is kept for the session of a list of endpoints.
    fn session(&self, key: Key, list: List, timeout: u32) -> Wanted {
        let endpoints = self.endpoints(list);
        let count = endpoints.len().min(affinity::LIMIT as usize);
        let all = match count == endpoints.len() {
            true => Arc::clone(endpoints),
            false => shared(&endpoints[..count]),
        };
        let fragment = Fragment {
            label: Some(self.label.clone()),
            affinity: Some(Box::new(Affinity::Session { timeout, ids: Box::default() })),
            ..Fragment::member(self.layout.session_memberships(count))
        };
        Wanted { key, fragment, endpoints: Endpoints { all, ..Endpoints::default() } }
    }

    /// Reports what of the affinity that the service asks for cannot be had.
    fn report_limits(&mut self, list: List, timeout: u32) {
        let (count, limit) = (self.endpoints(list).len(), affinity::LIMIT);
        if count > limit as usize {
            let message = format!("of its {count} endpoints only the first {limit} are used");
            self.add_affinity_problem(&message);
        }
        if self.service.session_affinity != Some(Duration::from_secs(timeout.into())) {
            let message = format!(
                "clients are remembered for {timeout} seconds: so many timeouts are in use that \
                 it gets one of another service"
            );
            self.add_affinity_problem(&message);
        }
    }

    fn add_affinity_problem(&mut self, message: &str) {
        let problem = problem(self.service, self.port, "spec.sessionAffinity", message);
        self.rendered.problems.push(problem);
    }

    /// The frontends that choose from a list of endpoints, with the index of the tree they use.
    fn users(&self, list: List) -> Vec<(Key, usize)> {
        let service = self.service;
        let uses = |policy| match list {
            List::Cluster => policy == TrafficPolicy::Cluster,
            List::Local => policy == TrafficPolicy::Local,
        };
        let internal = service.cluster_ips.iter().filter(|_| uses(service.internal_traffic_policy));
        // With the policy Local, pods and the node itself still use all endpoints.
        let (tree, used) = match list {
            List::Cluster => (0, true),
            List::Local => (1, uses(service.external_traffic_policy)),
        };
        // An external address may be a cluster IP too, and is like that then.
        let is_external = |address: &&IpAddr| used && !service.cluster_ips.contains(address);
        let external = service.load_balancer_ips.iter().chain(&service.external_ips);
        let external = external.filter(is_external).filter_map(|address| self.frontend(*address));
        let internal = internal.filter_map(|address| self.frontend(*address));
        let node_port = self.node_port().filter(|_| used);
        let internal = internal.map(|key| (key, 0));
        internal.chain(external.chain(node_port).map(|key| (key, tree))).collect()
    }

    fn frontend(&self, address: IpAddr) -> Option<Key> {
        family_matches(address, self.layout).then(|| frontend(address, self.port))
    }

    fn node_port(&self) -> Option<Key> {
        let (family, protocol) = (self.layout.family, self.port.protocol);
        self.port.node_port.map(|port| Key::NodePort { family, protocol, port })
    }

    fn add_address(&mut self, address: IpAddr, what: &(Fragment, Endpoints)) {
        if let Some(key) = self.frontend(address) {
            self.add(key, what);
        }
    }

    fn add(&mut self, key: Key, (fragment, endpoints): &(Fragment, Endpoints)) {
        let (fragment, endpoints) = (fragment.clone(), endpoints.clone());
        self.rendered.wanted.push(Wanted { key, fragment, endpoints });
    }

    fn add_hairpins(&mut self) {
        for target in &*self.local {
            self.rendered.add_member(Key::Hairpin(*target, self.port.protocol), HAIRPIN);
        }
    }
}

fn family_matches(address: IpAddr, layout: &Layout) -> bool {
    Family::of(address) == layout.family
}

fn frontend(address: IpAddr, port: &ServicePort) -> Key {
    Key::Frontend { address, protocol: port.protocol, port: port.port }
}

/// What of a service port cannot be had.
fn problem(service: &Service, port: &ServicePort, field: &str, message: &str) -> Problem {
    Problem {
        object: ObjectRef::service(&service.name),
        field: field.to_owned(),
        message: format!("port {}: {message}", port.port),
    }
}

fn shared(targets: &[Target]) -> Arc<[Target]> {
    // An empty list as the default takes no memory.
    if targets.is_empty() { Arc::default() } else { targets.into() }
}

/// `namespace/name:port`, without `:port` for unnamed ports; `installed` tells what it is by now.
fn label<'a>(
    service: &Service,
    port: &ServicePort,
    installed: impl Fn(&Key) -> Option<&'a Arc<str>>,
) -> Arc<str> {
    let separator = if port.name.is_empty() { "" } else { ":" };
    let parts = [service.name.as_str(), separator, &port.name];
    let is_same = |label: &&Arc<str>| parts.iter().flat_map(|part| part.bytes()).eq(label.bytes());
    let keys = service.cluster_ips.iter().map(|address| frontend(*address, port));
    let mut known = keys.filter_map(|key| installed(&key));
    if let Some(label) = known.find(is_same) {
        return Arc::clone(label);
    }
    let mut label = parts.concat();
    while label.len() > LABEL_LIMIT {
        label.pop();
    }
    label.into()
}
