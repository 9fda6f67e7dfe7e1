//! A conntrack table that is opened on first use, and again after an error.

use super::table::{Clock, ConntrackError, ConntrackTable};

/// A table for repeated use. After an error its socket may hold a part of an answer, so the next
/// use opens another.
#[derive(Debug, Default)]
pub struct ReopenedTable {
    table: Option<ConntrackTable>,
    clock: Option<Clock>,
}

impl ReopenedTable {
    /// Returns a table that measures its dumps: see [`ConntrackTable::timed_by`].
    pub fn timed_by(clock: Clock) -> Self {
        Self { table: None, clock: Some(clock) }
    }

    /// Calls `work` with the table of the calling thread's network namespace.
    ///
    /// # Errors
    /// The table cannot be opened, or the error of `work`.
    pub fn with<T>(
        &mut self,
        work: impl FnOnce(&mut ConntrackTable) -> Result<T, ConntrackError>,
    ) -> Result<T, ConntrackError> {
        let table = match &mut self.table {
            Some(table) => table,
            none @ None => {
                let opened = ConntrackTable::open()?;
                none.insert(match self.clock {
                    Some(clock) => opened.timed_by(clock),
                    None => opened,
                })
            }
        };
        let outcome = work(table);
        if outcome.is_err() {
            self.table = None;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_table_is_opened_on_first_use_and_closed_after_an_error() {
        let mut table = ReopenedTable::default();
        for fails in [false, true, false] {
            let refused = || ConntrackError::Refused(Errno::EBUSY);
            let outcome = table.with(|_| if fails { Err(refused()) } else { Ok(()) });
            assert_eq!((outcome.is_err(), table.table.is_none()), (fails, fails));
        }
    }
}
