//! The connections of some frontends one by one, with their clients.
//!
//! At most [`MOST`] are kept, the first in their order, so that memory does not grow with the number
//! of connections.

use std::collections::BTreeMap;

use ahash::HashMap;
use conntrack::{Connection, ConntrackError, ConntrackTable, Stage};
use engine::model::Target;

use super::services::Services;

/// Most connections that are listed.
pub const MOST: usize = 1_000;

/// The first connections, in the order of frontend, endpoint and client.
#[derive(Debug, Default)]
pub struct ClientConnections {
    listed: BTreeMap<ConnectionKey, Connection>,
    /// Connections that are not listed because there are too many.
    more: u64,
}

/// Place of the frontend, endpoint, client, and the kernel's identifier.
type ConnectionKey = (u32, Target, Option<Target>, u32);

/// Which connections are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfEndpoints {
    /// Those to all endpoints.
    All,
    /// Live ones to draining endpoints.
    Draining,
}

impl ClientConnections {
    /// Lists the connections of the frontends at `places` in conntrack.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn read(
        table: &mut ConntrackTable,
        services: &Services,
        places: &[usize],
        which: OfEndpoints,
    ) -> Result<Self, ConntrackError> {
        let mut listing = Listing::new(services, places, which);
        table.connections(|connection| listing.add(&connection))?;
        Ok(listing.list)
    }

    /// Returns the listed connections in order, each after the place of its frontend.
    pub fn listed(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.listed.iter().map(|((place, ..), connection)| (*place as usize, connection))
    }

    /// Returns the number of connections that are not listed.
    pub fn more(&self) -> u64 {
        self.more
    }
}

/// A list in progress.
struct Listing<'a> {
    services: &'a Services,
    is_selected: Vec<bool>,
    which: OfEndpoints,
    /// Whether an endpoint of a frontend is a former one.
    is_former: HashMap<(u32, Target), bool>,
    list: ClientConnections,
}

impl<'a> Listing<'a> {
    fn new(services: &'a Services, places: &[usize], which: OfEndpoints) -> Self {
        let mut is_selected = vec![false; services.len()];
        for place in places {
            if let Some(it) = is_selected.get_mut(*place) {
                *it = true;
            }
        }
        let list = ClientConnections::default();
        Self { services, is_selected, which, is_former: HashMap::default(), list }
    }

    fn add(&mut self, connection: &Connection) {
        let Some(place) = self.services.of_connection(connection) else { return };
        if !self.is_selected[place as usize] || !self.is_wanted(place, connection) {
            return;
        }
        let target = self.services.endpoint_of(place, connection);
        let key = (place, target, connection.client, connection.id);
        let is_new = self.list.listed.insert(key, *connection).is_none();
        if is_new && self.list.listed.len() > MOST {
            self.list.listed.pop_last();
            self.list.more += 1;
        }
    }

    fn is_wanted(&mut self, place: u32, connection: &Connection) -> bool {
        let (services, target) = (self.services, connection.answered_by);
        self.which == OfEndpoints::All
            || connection.stage != Stage::Ended
                && *self.is_former.entry((place, target)).or_insert_with(|| {
                    let place = place as usize;
                    let own = &services.entries[place];
                    !services.targets(own).any(|it| it == target)
                        && !services.has_endpoint(place, target)
                })
    }
}

#[cfg(test)]
impl ClientConnections {
    /// Lists connections of the frontends at `places`.
    pub(super) fn of_list(services: &Services, places: &[usize], list: &[Connection]) -> Self {
        let mut listing = Listing::new(services, places, OfEndpoints::All);
        list.iter().for_each(|connection| listing.add(connection));
        listing.list
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::sample::{SampleServices, connection};
    use super::*;

    fn listed(services: &Services, connections: &[Connection], which: OfEndpoints) -> Vec<u32> {
        let places: Vec<_> = (0..services.len())
            .filter(|place| &*services.entries[*place].label == "default/web:http")
            .collect();
        let mut listing = Listing::new(services, &places, which);
        connections.iter().for_each(|it| listing.add(it));
        listing.list.listed().map(|(_, it)| it.id).collect()
    }

    #[test]
    fn connections_are_those_of_the_service_or_of_its_draining_endpoints() {
        let sample = SampleServices::new();
        let services = sample.view().services;
        let (to, former) = ("10.96.0.10:80", "10.244.1.6:8080");
        let connections = [
            connection(1, to, former, Stage::Active, 9),
            connection(2, to, former, Stage::Ended, 9),
            connection(3, to, "10.244.1.5:8080", Stage::Active, 9),
            connection(4, "10.96.0.20:80", "10.244.2.8:8080", Stage::Active, 9),
        ];
        assert_eq!(listed(services, &connections, OfEndpoints::All), [3, 1, 2]);
        assert_eq!(listed(services, &connections, OfEndpoints::Draining), [1]);
    }

    #[test]
    fn a_connection_that_the_dump_repeats_is_listed_once() {
        let sample = SampleServices::new();
        let one = connection(1, "10.96.0.10:80", "10.244.1.5:8080", Stage::Active, 9);
        assert_eq!(listed(sample.view().services, &[one, one], OfEndpoints::All), [1]);
    }

    #[test]
    fn more_than_the_limit_are_counted() {
        let sample = SampleServices::new();
        let services = sample.view().services;
        let mut listing = Listing::new(services, &[2], OfEndpoints::All);
        for id in (0..1_005).rev() {
            let (to, by) = ("10.96.0.10:80", "10.244.1.5:8080");
            listing.add(&connection(id, to, by, Stage::Active, 9));
        }
        assert_eq!((listing.list.listed().count(), listing.list.more()), (MOST, 5));
        assert_eq!(listing.list.listed().last().unwrap().1.id, 999);
    }
}
