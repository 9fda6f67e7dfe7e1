//! Connections of our services, counted by frontend and endpoint during a dump of conntrack.

use std::num::NonZeroU64;

use ahash::HashMap;
use conntrack::{Connection, ConntrackError, ConntrackTable, Stage};
use engine::model::Target;

use super::services::Services;

/// Most pairs of frontend and endpoint: some 100 MB. Connections of further pairs are counted only
/// in total.
const MAX_PAIRS: usize = 1 << 20;

/// Most connection ids that are kept: 16 MB. With more, new connections cannot be identified.
const MAX_IDS: usize = 4 << 20;

/// Numbers of connections by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered, and not closed by both sides.
    pub active: u32,
    /// Not answered yet.
    pub new: u32,
    /// Closed by both sides.
    pub ended: u32,
    /// Forwarded by a flowtable.
    pub offloaded: u32,
    /// Absent from the last dump.
    pub began: u32,
    /// Start of the oldest connection that has not ended, in nanoseconds since 1970.
    pub oldest: Option<NonZeroU64>,
}

/// Connections of one dump.
#[derive(Debug, Default)]
pub struct Connections {
    /// Sorted by the place of the frontend and by endpoint.
    pairs: Vec<((u32, Target), Counts)>,
    /// Conntrack ids, sorted.
    ids: Vec<u32>,
    /// New connections since the last dump were identified.
    is_second: bool,
    /// Connections of pairs beyond the limit.
    left_out: u64,
}

impl Counts {
    /// Returns the number of all connections.
    pub fn all(&self) -> u32 {
        self.live().saturating_add(self.ended)
    }

    /// Returns the number of connections that have not ended.
    pub fn live(&self) -> u32 {
        self.active.saturating_add(self.new)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.active = self.active.saturating_add(other.active);
        self.new = self.new.saturating_add(other.new);
        self.ended = self.ended.saturating_add(other.ended);
        self.offloaded = self.offloaded.saturating_add(other.offloaded);
        self.began = self.began.saturating_add(other.began);
        self.oldest = older(self.oldest, other.oldest);
    }

    fn count(&mut self, connection: &Connection, has_begun: bool) {
        let one = Self {
            active: u32::from(connection.stage == Stage::Active),
            new: u32::from(connection.stage == Stage::New),
            ended: u32::from(connection.stage == Stage::Ended),
            offloaded: u32::from(connection.is_offloaded),
            began: u32::from(has_begun),
            oldest: connection.started.filter(|_| connection.stage != Stage::Ended),
        };
        self.add(&one);
    }
}

fn older(one: Option<NonZeroU64>, other: Option<NonZeroU64>) -> Option<NonZeroU64> {
    one.into_iter().chain(other).min()
}

impl Connections {
    /// Counts the connections in conntrack. `former` is the last dump, if any.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn read(
        table: &mut ConntrackTable,
        services: &Services,
        former: Option<&Self>,
    ) -> Result<Self, ConntrackError> {
        let mut counting = Counting::new(services, former);
        table.connections(|connection| counting.count(&connection))?;
        Ok(counting.finish())
    }

    /// Returns whether new connections since the last dump were identified.
    pub fn has_began(&self) -> bool {
        self.is_second
    }

    /// Returns the connections that a flowtable forwards.
    pub fn offloaded(&self) -> u64 {
        self.pairs.iter().map(|(_, counts)| u64::from(counts.offloaded)).sum()
    }

    /// Returns the connections that no row includes, because there are too many endpoints.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the endpoints to which the frontend at `place` has connections.
    pub(super) fn of(&self, place: usize) -> impl Iterator<Item = (Target, &Counts)> {
        let before = |((at, _), _): &((u32, Target), Counts)| (*at as usize) < place;
        let start = self.pairs.partition_point(before);
        let of_place =
            self.pairs[start..].iter().take_while(move |((at, _), _)| *at as usize == place);
        of_place.map(|((_, target), counts)| (*target, counts))
    }

    /// Returns the places of the frontends with connections, ascending and unique.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        let of_one = self.pairs.chunk_by(|((one, _), _), ((other, _), _)| one == other);
        of_one.filter_map(|pairs| Some(pairs.first()?.0.0 as usize))
    }

    /// Returns the draining endpoints of the frontend at `place`: former endpoints of its service
    /// with live connections.
    pub(super) fn draining<'a>(
        &'a self,
        services: &'a Services,
        place: usize,
    ) -> impl Iterator<Item = (Target, &'a Counts)> {
        let live = self.of(place).filter(|(_, counts)| counts.live() > 0);
        live.filter(move |(target, _)| {
            let is_own = services.targets(&services.entries[place]).any(|it| it == *target);
            !is_own && !services.has_endpoint(place, *target)
        })
    }
}

/// Counts in progress.
struct Counting<'a> {
    services: &'a Services,
    former: Option<&'a [u32]>,
    pairs: HashMap<(u32, Target), Counts>,
    connections: Connections,
}

impl<'a> Counting<'a> {
    fn new(services: &'a Services, former: Option<&'a Connections>) -> Self {
        // Connections beyond the limit would appear to be new.
        let former = former.map(|it| &*it.ids).filter(|ids| ids.len() < MAX_IDS);
        let connections = Connections { is_second: former.is_some(), ..Connections::default() };
        Self { services, former, pairs: HashMap::default(), connections }
    }

    fn count(&mut self, connection: &Connection) {
        let Some(place) = self.services.of_connection(connection) else { return };
        let ids = &mut self.connections.ids;
        if ids.len() < MAX_IDS {
            ids.push(connection.id);
        }
        let has_begun = self.former.is_some_and(|ids| ids.binary_search(&connection.id).is_err());
        let key = (place, self.services.endpoint_of(place, connection));
        if self.pairs.len() >= MAX_PAIRS && !self.pairs.contains_key(&key) {
            self.connections.left_out += 1;
            return;
        }
        self.pairs.entry(key).or_default().count(connection, has_begun);
    }

    fn finish(self) -> Connections {
        let mut connections = self.connections;
        connections.ids.sort_unstable();
        connections.pairs = self.pairs.into_iter().collect();
        connections.pairs.sort_unstable_by_key(|(key, _)| *key);
        connections
    }
}

#[cfg(test)]
impl Connections {
    /// Counts a list of connections.
    pub(super) fn of_list(services: &Services, list: &[Connection], former: Option<&Self>) -> Self {
        let mut counting = Counting::new(services, former);
        list.iter().for_each(|connection| counting.count(connection));
        counting.finish()
    }
}
