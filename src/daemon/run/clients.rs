//! The number of clients in the affinity maps: a metric, and a warning before the maps are full.
//!
//! Packets write the clients, so their number is read from the kernel at intervals.

use std::time::{Duration, Instant};

use engine::ruleset::{self, CLIENTS, SetId};
use nft::Family;
use nft::kernel::Kernel;

use super::{Run, now};
use crate::writer::WriterGone;

/// Time between two counts.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);

/// Percentage of [`CLIENTS`] from which on a warning is logged.
const HIGH: u64 = 80;

/// The last counts.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// `None` before the first count.
    next_count: Option<Instant>,
    tables: [Occupancy; 2],
}

/// The occupancy of the map of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Occupancy {
    count: u32,
    is_high: bool,
}

impl Occupancy {
    /// Records a count; returns whether it reaches the warning limit and the previous count did
    /// not.
    fn note(&mut self, count: u32) -> bool {
        let is_high = u64::from(count) * 100 >= u64::from(CLIENTS) * HIGH;
        let passes = is_high && !self.is_high;
        *self = Self { count, is_high };
        passes
    }
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Counts the clients in both tables if a count is due and there may be clients.
    pub(super) async fn count_clients(&mut self) -> Result<(), WriterGone> {
        let may_have_clients = self.engine.tables().has_affinity()
            || self.clients.tables.iter().any(|table| table.count > 0);
        let now = now();
        if !may_have_clients || self.clients.next_count.is_some_and(|next| now < next) {
            return Ok(());
        }
        self.clients.next_count = Some(now + COUNT_INTERVAL);
        let set = SetId::AffinityClients.name();
        let count =
            |family| move |kernel: &mut K| kernel.count_elements(&ruleset::table(family), set);
        for family in Family::ALL {
            match self.writer.run(count(family)).await? {
                Ok(Some(count)) => self.note_clients(family, count),
                Ok(None) => {}
                Err(error) => tracing::warn!("cannot count clients with affinity: {error}"),
            }
        }
        Ok(())
    }

    fn note_clients(&mut self, family: Family, count: u32) {
        self.observe.affinity_clients(family, count);
        if self.clients.tables[family.index()].note(count) {
            tracing::warn!(
                "session affinity remembers {count} places of {} clients, of at most {CLIENTS}: \
                 clients of further places are served without affinity",
                family.name()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_comes_once_until_the_count_has_fallen() {
        let mut occupancy = Occupancy::default();
        let high = CLIENTS * 8 / 10 + 1;
        let counts = [0, high - 2, high, CLIENTS, high, high - 2, high];
        let passes = counts.map(|count| occupancy.note(count));
        assert_eq!(passes, [false, false, true, false, false, false, true]);
        assert_eq!(occupancy, Occupancy { count: high, is_high: true });
    }
}
