//! Numbers of recorded client hashes, by list and endpoint.

use ahash::HashMap;
use engine::ruleset::number::{EndpointId, ListId, Route};
use engine::ruleset::{SetId, recorded_client};
use nft::family::Family;

use crate::tables::{OurTable, TableReader, TablesError};

/// Most clients of a table that are counted. A dump of more takes longer than half a second, as its
/// time grows with the square of their number.
const MAX_CLIENTS: u32 = 100_000;

/// Numbers of recorded client hashes.
#[derive(Debug, Default)]
pub struct Clients {
    counts: HashMap<(Family, ListId, EndpointId), u32>,
    lists: HashMap<(Family, ListId), u32>,
    /// Tables with too many clients.
    uncounted: Vec<Family>,
}

impl Clients {
    /// Counts the clients of both tables.
    ///
    /// # Errors
    /// See [`TablesError`].
    pub fn read(reader: &mut TableReader, tables: &[OurTable]) -> Result<Self, TablesError> {
        let mut clients = Self::default();
        for table in tables {
            let family = table.family;
            let sets = reader.sets(table).into_iter();
            match sets.filter(|(set, _)| *set == SetId::AffinityClients).map(|it| it.1).next() {
                None | Some(Some(0)) => {}
                Some(Some(count)) if count > MAX_CLIENTS => clients.uncounted.push(family),
                Some(_) => clients.read_table(reader, family)?,
            }
        }
        Ok(clients)
    }

    fn read_table(&mut self, reader: &mut TableReader, family: Family) -> Result<(), TablesError> {
        // Packets change the set continuously, so the read is always torn.
        reader.views(family, SetId::AffinityClients, &mut |view| {
            if let Some((list, endpoint)) = recorded_client(&view) {
                self.add(family, list, endpoint);
            }
        })?;
        Ok(())
    }

    pub(super) fn add(&mut self, family: Family, list: ListId, endpoint: EndpointId) {
        *self.counts.entry((family, list, endpoint)).or_default() += 1;
        *self.lists.entry((family, list)).or_default() += 1;
    }

    /// Returns the families with too many clients to count.
    pub fn uncounted(&self) -> &[Family] {
        &self.uncounted
    }

    /// Returns the clients of a list; `None` without clients, or if they were not counted.
    pub(super) fn of_route(&self, family: Family, route: Route) -> Option<u32> {
        let list = route.list().filter(|list| list.has_affinity())?;
        let is_counted = !self.uncounted.contains(&family);
        is_counted.then(|| self.lists.get(&(family, list)).copied().unwrap_or_default())
    }

    /// Returns the clients of an endpoint of a list with affinity.
    pub(super) fn of_endpoint(&self, family: Family, list: ListId, id: EndpointId) -> Option<u32> {
        let is_counted = !self.uncounted.contains(&family);
        is_counted.then(|| self.counts.get(&(family, list, id)).copied().unwrap_or_default())
    }
}
