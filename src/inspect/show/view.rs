//! Rows from tables, connections and clients.

use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

use ahash::HashMap;
use engine::model::Target;
use engine::ruleset::number::{ListId, Route};
use engine::ruleset::{Frontend, Unserved};

use super::clients::Clients;
use super::connections::{Connections, Counts};
use super::row::{Choice, EndpointRow, EndpointState, Kind, Policy, Row, Scheduler};
use super::services::{Entry, Services};

/// Services for output.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Contents of the tables.
    pub services: &'a Services,
    /// Connections, if known.
    pub connections: Option<&'a Connections>,
    /// Clients of session affinity.
    pub clients: &'a Clients,
    /// Places of the selected frontends, ascending.
    pub places: &'a [usize],
    /// Time since 1970.
    pub now: Duration,
}

impl<'a> View<'a> {
    /// Returns the selected frontends.
    pub fn entries(self) -> impl Iterator<Item = &'a Entry> {
        let entries = self.services.entries();
        self.places.iter().filter_map(|place| entries.get(*place))
    }

    /// Builds their rows one by one.
    pub fn rows(self) -> impl Iterator<Item = Row<'a>> {
        self.places.iter().filter_map(move |place| self.row(*place))
    }

    /// Returns whether new connections since the last read were identified.
    pub fn has_began(&self) -> bool {
        self.connections.is_some_and(Connections::has_began)
    }

    /// Returns the time since `started`; `None` without it.
    pub fn age(&self, started: Option<NonZeroU64>) -> Option<Duration> {
        Some(self.now.saturating_sub(Duration::from_nanos(started?.get())))
    }

    /// Returns the draining endpoints: the frontend, the endpoint, and its connections.
    pub fn draining(self) -> impl Iterator<Item = (&'a Entry, Target, Counts)> {
        let (services, places) = (self.services, self.places);
        let connections = self.connections.into_iter();
        connections.flat_map(move |connections| {
            places.iter().flat_map(move |place| {
                let entry = services.entries().get(*place).into_iter();
                entry.flat_map(move |entry| {
                    let draining = connections.draining(services, *place);
                    draining.map(move |(target, counts)| (entry, target, *counts))
                })
            })
        })
    }

    fn row(&self, place: usize) -> Option<Row<'a>> {
        let entry = self.services.entries().get(place)?;
        let endpoints = self.endpoints(entry, place);
        let connections = self.connections.map(|connections| {
            let mut sum = Counts::default();
            connections.of(place).for_each(|(_, counts)| sum.add(counts));
            sum
        });
        let scheduler = self.scheduler(entry);
        let has_clients = matches!(scheduler, Scheduler::Affinity(..));
        let clients = entry.route.or(entry.internal).filter(|_| has_clients);
        Some(Row {
            entry,
            kind: kind(self.services, entry),
            policy: self.policy(entry, place),
            scheduler,
            endpoints,
            connections,
            clients: clients.and_then(|it| self.clients.of_route(entry.frontend.family(), it)),
        })
    }

    fn scheduler(&self, entry: &Entry) -> Scheduler {
        let with_list = entry.route.filter(|route| route.list().is_some());
        match (entry.unserved, with_list) {
            (Some(unserved), None) => Scheduler::Unserved(unserved),
            (None, None) => Scheduler::Unserved(Unserved::Refuse),
            (_, Some(route)) if route.list().is_some_and(ListId::has_affinity) => {
                let timeouts = &self.services.timeouts[entry.frontend.family().index()];
                let seconds = route.timeout().and_then(|timeout| timeouts.get(&timeout));
                match seconds.copied() {
                    // Port ranges without affinity.
                    Some(0) => Scheduler::Chosen(self.choice(entry, route)),
                    seconds => Scheduler::Affinity(self.choice(entry, route), seconds),
                }
            }
            (_, Some(route)) => Scheduler::Chosen(self.choice(entry, route)),
        }
    }

    fn choice(&self, entry: &Entry, route: Route) -> Choice {
        let list = self.services.list(entry.frontend.family(), Some(route));
        match route.size().table() {
            Some((source, _)) => Choice::Maglev(source),
            None if entry.is_balanced => Choice::LeastConnections,
            None if list.is_some_and(|list| !list.is_even()) => Choice::Weighted,
            None => Choice::Random,
        }
    }

    fn endpoints(&self, entry: &Entry, place: usize) -> Vec<EndpointRow> {
        let mut rows = Vec::new();
        self.add_list(entry, entry.route, &mut rows, |row, share, slots| {
            (row.share, row.slots) = (share, slots);
        });
        // Without an internal route, pods and the node use the common one.
        let internal = entry.internal.or(entry.route);
        if internal == entry.route {
            rows.iter_mut().for_each(|row| row.internal_share = row.share);
        } else {
            self.add_list(entry, internal, &mut rows, |row, share, slots| {
                row.internal_share = share;
                row.slots = if row.slots == 0 { slots } else { row.slots };
            });
        }
        self.add_connections(place, entry, &mut rows);
        rows.sort_unstable_by_key(|row| (row.state, row.target));
        rows
    }

    /// Adds the endpoints of a list; sets the share of those that are present.
    fn add_list(
        &self,
        entry: &Entry,
        route: Option<Route>,
        rows: &mut Vec<EndpointRow>,
        set_share: impl Fn(&mut EndpointRow, f64, u32),
    ) {
        let family = entry.frontend.family();
        let Some(list) = self.services.list(family, route) else { return };
        let Some(id) = route.and_then(Route::list) else { return };
        let all = f64::from(list.slots.iter().sum::<u32>().max(1));
        // Only the second list can repeat an endpoint.
        let known: HashMap<Target, usize> = rows.iter().map(|row| row.target).zip(0..).collect();
        for (n, (target, slots)) in list.targets.iter().copied().zip(&list.slots).enumerate() {
            let place = known.get(&target).copied().unwrap_or_else(|| {
                let is_local = self.services.is_local(target, entry.frontend.protocol());
                rows.push(EndpointRow::new(target, EndpointState::Serving, Some(is_local)));
                rows.len() - 1
            });
            let row = &mut rows[place];
            set_share(row, f64::from(*slots) / all, *slots);
            if let Some(counted) = list.counted.get(n) {
                *row.counted.get_or_insert_default() += *counted;
            }
            if let Some(endpoint) = list.ids.get(n) {
                let clients = self.clients.of_endpoint(family, id, *endpoint);
                row.clients = row.clients.or(clients);
            }
        }
    }

    /// Adds connections to their endpoints, and endpoints that only conntrack has.
    fn add_connections(&self, place: usize, entry: &Entry, rows: &mut Vec<EndpointRow>) {
        let Some(connections) = self.connections else { return };
        let mut known: Option<HashMap<Target, usize>> = None;
        for (target, counts) in connections.of(place) {
            let known =
                known.get_or_insert_with(|| rows.iter().map(|row| row.target).zip(0..).collect());
            if let Some(place) = known.get(&target) {
                rows[*place].connections = *counts;
                continue;
            }
            let is_elsewhere = self.services.has_endpoint(place, target);
            let state = match (is_elsewhere, counts.live()) {
                (true, _) => EndpointState::Elsewhere,
                (false, 0) => EndpointState::Gone,
                (false, _) => EndpointState::Draining,
            };
            let is_local = self.services.is_local(target, entry.frontend.protocol());
            let row = EndpointRow::new(target, state, is_elsewhere.then_some(is_local));
            rows.push(EndpointRow { connections: *counts, ..row });
        }
    }

    /// Returns the policy, as far as the tables determine it.
    fn policy(&self, entry: &Entry, place: usize) -> Option<Policy> {
        match (entry.route, entry.unserved) {
            // A node serves what it is handed by its own endpoints, and that is no policy Local.
            _ if entry.is_direct => Some(Policy::Cluster),
            (Some(route), _) if route.flags().local => Some(Policy::Local),
            (Some(route), _) if route.flags().masquerade => Some(Policy::Cluster),
            (Some(route), _) => self.internal_policy(entry, route.list()?, place),
            // Other nodes have endpoints.
            (None, Some(Unserved::Drop)) => Some(Policy::Local),
            (None, Some(Unserved::Refuse) | None) => None,
        }
    }

    /// Returns the policy of a cluster IP: its list has all endpoints, or those of this node.
    fn internal_policy(&self, entry: &Entry, list: ListId, place: usize) -> Option<Policy> {
        let siblings = &self.services.entries()[self.of_same_port(place)];
        let key = |it: &Entry| (it.frontend.family(), it.frontend.protocol());
        for sibling in siblings.iter().filter(|it| key(it) == key(entry)) {
            let Some(route) = sibling.route else { continue };
            let of_all = match (route.flags().local, route.flags().masquerade) {
                (true, _) => sibling.internal.and_then(Route::list),
                (false, true) => route.list(),
                (false, false) => None,
            };
            if let Some(of_all) = of_all {
                return Some(if of_all == list { Policy::Cluster } else { Policy::Local });
            }
        }
        let protocol = entry.frontend.protocol();
        let mut targets = self.services.targets(entry);
        let has_remote = targets.any(|target| !self.services.is_local(target, protocol));
        has_remote.then_some(Policy::Cluster)
    }

    /// Returns the places of the frontends with the same label.
    fn of_same_port(&self, place: usize) -> Range<usize> {
        let entries = self.services.entries();
        let label = &entries[place].label;
        if label.is_empty() {
            return place..place + 1;
        }
        let before = entries[..place].iter().rev().take_while(|it| it.label == *label).count();
        let after = entries[place..].iter().take_while(|it| it.label == *label).count();
        place - before..place + after
    }
}

fn kind(services: &Services, entry: &Entry) -> Kind {
    match entry.frontend {
        Frontend::NodePort { family, .. } if services.node_ports_are_closed(family) => {
            Kind::ClosedNodePort
        }
        Frontend::NodePort { .. } => Kind::NodePort,
        Frontend::Address { .. } | Frontend::Ranges { .. } => match entry {
            Entry { source_ranges: Some(_), .. } => Kind::LoadBalancer,
            Entry { is_cluster_ip: true, .. } => Kind::ClusterIp,
            _ => Kind::External,
        },
    }
}
