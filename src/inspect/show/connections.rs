//! Connections of our services, counted by frontend and endpoint while conntrack lists them.

use std::num::NonZeroU64;

use ahash::HashMap;

use super::services::Services;
use crate::conntrack::{Connection, ConntrackError, ConntrackTable, Stage};
use crate::model::Target;

/// Pairs of frontend and endpoint that are counted: some 100 MB at most. Connections of further pairs
/// are only counted together.
const MAX_PAIRS: usize = 1 << 20;

/// Connections whose numbers are kept, 16 MB at most. With more it is not known which began.
const MAX_IDS: usize = 4 << 20;

/// Connections by how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered, and not closed by both sides.
    pub active: u32,
    /// Not answered yet.
    pub new: u32,
    /// Closed by both sides.
    pub ended: u32,
    /// Those that were not there the last time.
    pub began: u32,
    /// When the oldest began that has not ended, in nanoseconds since 1970.
    pub oldest: Option<NonZeroU64>,
}

/// The connections of one dump.
#[derive(Debug, Default)]
pub struct Connections {
    /// Sorted by the place of the frontend and by endpoint.
    pairs: Vec<((u32, Target), Counts)>,
    /// The kernel's numbers, sorted.
    ids: Vec<u32>,
    /// Whether it is known which connections began since the last dump.
    is_second: bool,
    /// Connections of pairs that were too many.
    left_out: u64,
}

impl Counts {
    /// All of them.
    pub fn all(&self) -> u32 {
        self.live().saturating_add(self.ended)
    }

    /// Those that have not ended.
    pub fn live(&self) -> u32 {
        self.active.saturating_add(self.new)
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.active = self.active.saturating_add(other.active);
        self.new = self.new.saturating_add(other.new);
        self.ended = self.ended.saturating_add(other.ended);
        self.began = self.began.saturating_add(other.began);
        self.oldest = older(self.oldest, other.oldest);
    }

    fn count(&mut self, connection: &Connection, has_begun: bool) {
        let one = Self {
            active: u32::from(connection.stage == Stage::Active),
            new: u32::from(connection.stage == Stage::New),
            ended: u32::from(connection.stage == Stage::Ended),
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
    /// Counts what conntrack lists. `former` is the last dump, if there was one.
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

    /// Whether it is known which connections began since the last dump.
    pub fn knows_began(&self) -> bool {
        self.is_second
    }

    /// Connections that are in no row, because there are too many endpoints.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The endpoints that the frontend at `place` has connections to.
    pub(super) fn of(&self, place: usize) -> impl Iterator<Item = (Target, &Counts)> {
        let before = |((at, _), _): &((u32, Target), Counts)| (*at as usize) < place;
        let start = self.pairs.partition_point(before);
        let of_place =
            self.pairs[start..].iter().take_while(move |((at, _), _)| *at as usize == place);
        of_place.map(|((_, target), counts)| (*target, counts))
    }

    /// The places of the frontends with connections, ascending, each once.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        let of_one = self.pairs.chunk_by(|((one, _), _), ((other, _), _)| one == other);
        of_one.filter_map(|pairs| Some(pairs.first()?.0.0 as usize))
    }

    /// The endpoints to which the frontend at `place` has live connections, and which are endpoints
    /// of its service no more.
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

/// Connections that are being counted.
struct Counting<'a> {
    services: &'a Services,
    former: Option<&'a [u32]>,
    pairs: HashMap<(u32, Target), Counts>,
    connections: Connections,
}

impl<'a> Counting<'a> {
    fn new(services: &'a Services, former: Option<&'a Connections>) -> Self {
        // What was cut off would seem to begin.
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
        let key = (place, connection.answered_by);
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
    /// Counts these connections.
    pub(super) fn of_list(services: &Services, list: &[Connection], former: Option<&Self>) -> Self {
        let mut counting = Counting::new(services, former);
        list.iter().for_each(|connection| counting.count(connection));
        counting.finish()
    }
}
