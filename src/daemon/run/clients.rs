//! The number of clients in the affinity maps: a metric, and a warning before the maps are full.
//!
//! Packets write the clients, so their number is read from the kernel at intervals.

use std::time::{Duration, Instant};

use engine::ruleset::{self, CLIENTS, SetId};
use nft::Family;
use nft::kernel::Kernel;

use super::wait::now;
use crate::observe::Observe;
use crate::writer::{Writer, WriterGone};

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

impl Clients {
    /// Counts the clients in both tables if a count is due and there may be clients.
    pub(super) async fn count<K: Kernel + Send + 'static>(
        &mut self,
        has_affinity: bool,
        writer: &Writer<K>,
        observe: &Observe,
    ) -> Result<(), WriterGone> {
        if !self.begins_count(has_affinity, now()) {
            return Ok(());
        }
        let set = SetId::AffinityClients.name();
        for family in Family::ALL {
            let table = ruleset::table(family);
            match writer.run(move |kernel| kernel.count_elements(&table, set)).await? {
                Ok(Some(count)) => self.note(family, count, observe),
                Ok(None) => {}
                Err(error) => tracing::warn!("cannot count clients with affinity: {error}"),
            }
        }
        Ok(())
    }

    /// Returns whether to count now. The clients of the last service with affinity stay until they
    /// expire.
    fn begins_count(&mut self, has_affinity: bool, now: Instant) -> bool {
        let may_have_clients = has_affinity || self.tables.iter().any(|table| table.count > 0);
        let is_due = may_have_clients && self.next_count.is_none_or(|next| now >= next);
        if is_due {
            self.next_count = Some(now + COUNT_INTERVAL);
        }
        is_due
    }

    fn note(&mut self, family: Family, count: u32, observe: &Observe) {
        observe.metrics().figures.affinity_clients.with([family.name()]).set(count);
        if self.tables[family.index()].note(count) {
            tracing::warn!(
                "session affinity has recorded {count} client hashes for {}, of at most {CLIENTS}: \
                 clients with other hashes are served without affinity",
                family.name()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::wait::now;

    #[test]
    fn the_warning_comes_once_until_the_count_has_fallen() {
        let mut occupancy = Occupancy::default();
        let high = CLIENTS * 8 / 10 + 1;
        let counts = [0, high - 2, high, CLIENTS, high, high - 2, high];
        let passes = counts.map(|count| occupancy.note(count));
        assert_eq!(passes, [false, false, true, false, false, false, true]);
        assert_eq!(occupancy, Occupancy { count: high, is_high: true });
    }

    #[test]
    fn clients_are_counted_at_intervals_while_there_may_be_any() {
        let start = now();
        // Seconds after the start, whether a service has affinity, the clients of the last count,
        // and whether a count begins.
        let table = [
            (0, false, 0, false),
            (1, true, 0, true),
            (30, true, 0, false),
            (31, true, 0, true),
            (61, false, 1, true),
            (91, false, 0, false),
        ];
        let mut clients = Clients::default();
        for (at, has_affinity, count, begins) in table {
            clients.tables[0].note(count);
            let now = start + Duration::from_secs(at);
            assert_eq!(clients.begins_count(has_affinity, now), begins, "after {at} s");
        }
    }
}
