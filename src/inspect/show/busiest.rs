//! The services with the most connections, and the draining endpoints with the most connections.
//!
//! Only connections are iterated, and only the requested number of rows is kept.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::connections::{Connections, Counts};
use super::services::{Entry, Services};

engine::named! {
    /// Sort key of services, descending; equal ones by name.
    #[derive(Default, clap::ValueEnum)]
    pub enum Order {
        /// Connections that began per second
        #[default]
        Began = "began/s",
        /// Answered connections
        Active = "active",
        /// Connections without an answer
        New = "new",
        /// Live connections to former endpoints
        Draining = "draining",
        /// Namespace and name
        Name = "name",
    }
}

/// The first rows of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Top<T> {
    /// The first rows.
    pub rows: Vec<T>,
    /// Number of all rows.
    pub count: usize,
}

/// A port of a service with connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyService {
    /// `namespace/name:port` from the tables; empty if absent.
    pub label: String,
    /// The first address with connections, as `10.96.0.1:443/tcp`; a node port as `show` lists it.
    pub address: String,
    /// Connections of all addresses.
    pub counts: Counts,
    /// Endpoints of the address that get new connections.
    pub endpoints: usize,
    /// Live connections to former endpoints.
    pub draining: u32,
}

/// An endpoint that gets no new connections, but still has connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainingEndpoint {
    /// `namespace/name:port` from the tables; empty if absent.
    pub label: String,
    /// Frontend of the connections, as `10.96.0.1:443/tcp`; a node port as `show` lists it.
    pub address: String,
    /// Address and port.
    pub endpoint: String,
    /// Connections to the endpoint.
    pub counts: Counts,
}

impl<T> Default for Top<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), count: 0 }
    }
}

impl Order {
    fn key(self, counts: &Counts, draining: u32) -> u32 {
        match self {
            Self::Began => counts.began,
            Self::Active => counts.active,
            Self::New => counts.new,
            Self::Draining => draining,
            Self::Name => 0,
        }
    }
}

impl Services {
    /// Returns the first `most` ports of services with connections.
    pub fn busiest(
        &self,
        connections: &Connections,
        order: Order,
        most: usize,
    ) -> Top<BusyService> {
        let places: Vec<_> = connections.places().collect();
        let ports = places.chunk_by(|one, other| self.is_same_port(*one, *other));
        let keyed = ports.map(|places| {
            let group = self.group(connections, places);
            // Equal ones are sorted by place, which follows the name.
            let key = (Reverse(order.key(&group.counts, group.draining)), group.place);
            (key, group)
        });
        let Top { rows, count } = first(keyed, most);
        let rows = rows.into_iter().map(|group| {
            let entry = &self.entries[group.place];
            BusyService {
                label: entry.label.to_string(),
                address: self.address(&entry.frontend),
                counts: group.counts,
                endpoints: self.longest_list(entry),
                draining: group.draining,
            }
        });
        Top { rows: rows.collect(), count }
    }

    /// Returns the `most` draining endpoints with the most connections.
    pub fn draining_most(&self, connections: &Connections, most: usize) -> Top<DrainingEndpoint> {
        let draining = connections.places().flat_map(|place| {
            let of_place = connections.draining(self, place);
            of_place.map(move |(target, counts)| {
                ((Reverse(counts.live()), place, target), (place, target, *counts))
            })
        });
        let Top { rows, count } = first(draining, most);
        let rows = rows.into_iter().map(|(place, target, counts)| {
            let entry = &self.entries[place];
            let (label, address) = (entry.label.to_string(), self.address(&entry.frontend));
            DrainingEndpoint { label, address, endpoint: entry.endpoint(target), counts }
        });
        Top { rows: rows.collect(), count }
    }

    /// Returns the connections to the frontends of one port, which are at `places`.
    fn group(&self, connections: &Connections, places: &[usize]) -> Group {
        let mut group = Group { place: places[0], counts: Counts::default(), draining: 0 };
        for place in places {
            connections.of(*place).for_each(|(_, counts)| group.counts.add(counts));
            let live = connections.draining(self, *place).map(|(_, counts)| counts.live());
            group.draining = live.fold(group.draining, u32::saturating_add);
        }
        group
    }

    /// Returns the length of the longer list: if there are two, one contains the other.
    fn longest_list(&self, entry: &Entry) -> usize {
        let lists = [entry.route, entry.internal].map(|it| self.list(entry.frontend.family(), it));
        lists.into_iter().flatten().map(|list| list.targets.len()).max().unwrap_or_default()
    }
}

/// Connections of one port.
struct Group {
    /// Place of the first frontend with connections.
    place: usize,
    counts: Counts,
    draining: u32,
}

/// Returns the `most` values with the smallest keys, ascending. No two keys are equal.
fn first<K: Ord, T>(values: impl Iterator<Item = (K, T)>, most: usize) -> Top<T> {
    let (mut kept, mut count) = (BTreeMap::new(), 0);
    for (key, value) in values {
        count += 1;
        kept.insert(key, value);
        if kept.len() > most {
            kept.pop_last();
        }
    }
    Top { rows: kept.into_values().collect(), count }
}

#[cfg(test)]
mod tests {
    use super::super::format::sample::SampleServices;
    use super::*;

    fn labels(sample: &SampleServices, order: Order, most: usize) -> (Vec<String>, usize) {
        let view = sample.view();
        let top = view.services.busiest(view.connections.unwrap(), order, most);
        (top.rows.into_iter().map(|row| row.label).collect(), top.count)
    }

    #[test]
    fn addresses_of_a_port_are_one_row_with_the_sum_of_their_connections() {
        let sample = SampleServices::new();
        let view = sample.view();
        let top = view.services.busiest(view.connections.unwrap(), Order::Began, 9);
        assert_eq!((top.count, top.rows.len()), (2, 2), "services without connections are absent");
        let web = &top.rows[0];
        assert_eq!((&*web.label, &*web.address), ("default/web:http", "10.96.0.10:80/tcp"));
        let Counts { active, new, ended, began, .. } = web.counts;
        assert_eq!((active, new, ended, began), (4, 1, 1, 5), "the node port's are among them");
        assert_eq!((web.endpoints, web.draining), (2, 1));
        assert_eq!((&*top.rows[1].label, top.rows[1].counts.active), ("default/sticky", 1));
    }

    #[test]
    fn a_node_port_is_at_the_address_that_serves_it() {
        let sample = SampleServices::new().with_node_port_addresses(&["192.168.50.2"]);
        let sample = sample.with_node_port_connection();
        let view = sample.view();
        let connections = view.connections.unwrap();
        let busy = view.services.busiest(connections, Order::Began, 9);
        assert_eq!(busy.rows[0].address, "192.168.50.2:30080/tcp");
        let draining = view.services.draining_most(connections, 9);
        assert_eq!(draining.rows[0].address, "192.168.50.2:30080/tcp");
    }

    #[test]
    fn the_order_decides_which_rows_are_kept() {
        let sample = SampleServices::new();
        let (sticky, web) = ("default/sticky".to_owned(), "default/web:http".to_owned());
        assert_eq!(labels(&sample, Order::Name, 9), (vec![sticky.clone(), web.clone()], 2));
        assert_eq!(labels(&sample, Order::Name, 1), (vec![sticky], 2));
        for order in [Order::Began, Order::Active, Order::New, Order::Draining] {
            assert_eq!(labels(&sample, order, 1), (vec![web.clone()], 2), "{order:?}");
        }
        assert_eq!(labels(&sample, Order::Began, 0), (vec![], 2));
    }

    #[test]
    fn draining_endpoints_are_counted_beyond_those_that_are_kept() {
        let sample = SampleServices::new();
        let view = sample.view();
        let top = view.services.draining_most(view.connections.unwrap(), 9);
        assert_eq!((top.count, top.rows.len()), (1, 1));
        let row = &top.rows[0];
        assert_eq!((&*row.label, &*row.address), ("default/web:http", "10.96.0.10:80/tcp"));
        assert_eq!((&*row.endpoint, row.counts.live()), ("10.244.1.6:8080", 1));
        let none = view.services.draining_most(view.connections.unwrap(), 0);
        assert_eq!((none.count, none.rows.len()), (1, 0));
    }

    #[test]
    fn the_least_keys_are_kept_in_their_order() {
        let values = [5, 3, 9, 1, 7].map(|key| (key, key * 10));
        let found = |most| first(values.into_iter(), most);
        assert_eq!(found(3), Top { rows: vec![10, 30, 50], count: 5 });
        assert_eq!(found(9).rows, [10, 30, 50, 70, 90]);
    }
}
