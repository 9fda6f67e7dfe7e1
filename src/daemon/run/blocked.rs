//! Retries of blocked tables, and the log lines about them.

use std::time::{Duration, Instant};

use engine::{Blocked, TableId, Tables};
use nft::kernel::{Kernel, ReadError};

use super::wait::now;
use crate::observe::Observe;
use crate::writer::{Writer, WriterGone};

/// The blocked tables, as logged last, and the next retry.
///
/// A retry is due exactly while the kernel refuses a table or a service.
#[derive(Debug, Default)]
pub(super) struct BlockedTables {
    logged: [Option<Blocked>; 3],
    retry: Option<Retry>,
}

/// The next retry of what the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retry {
    due: Instant,
    /// The pause after the next attempt.
    pause: Duration,
}

/// The first pause between attempts after a refusal; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause: an attempt reads all tables.
const LONGEST_PAUSE: Duration = Duration::from_secs(512);

impl BlockedTables {
    /// Returns whether a blocked table may be writable now: its owner is gone, or the next attempt
    /// is due.
    pub(super) async fn is_unblocked<K: Kernel + Send + 'static>(
        &mut self,
        tables: &Tables,
        writer: &Writer<K>,
    ) -> Result<bool, WriterGone> {
        for id in TableId::ALL {
            if let Some(Blocked::Owned(_)) = tables.blocked(id) {
                let table = id.reference();
                let other = writer.run(move |kernel| {
                    let owner = kernel.owner(&table)?;
                    Ok::<_, ReadError>(owner.filter(|owner| *owner != kernel.port()))
                });
                if matches!(other.await?, Ok(None)) {
                    return Ok(true);
                }
            }
        }
        Ok(self.retry(now()))
    }

    /// Returns whether an attempt is due, and sets the time of the next one.
    fn retry(&mut self, now: Instant) -> bool {
        let Some(retry) = self.retry.as_mut().filter(|retry| retry.due <= now) else {
            return false;
        };
        retry.due = now + retry.pause;
        retry.pause = (retry.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// Logs when a table is no longer programmed, or is again; starts or ends attempts.
    pub(super) fn report(&mut self, tables: &Tables, observe: &Observe, now: Instant) {
        for id in TableId::ALL {
            let (blocked, name) = (tables.blocked(id), id.name());
            let logged = &mut self.logged[id.index()];
            if blocked == logged.as_ref() {
                continue;
            }
            if let Some(family) = id.reference().family.of_addresses() {
                observe.table_blocked(family, blocked.map(Blocked::reason));
            }
            match blocked {
                Some(blocked) => {
                    tracing::error!("{name} is not programmed: {}; trying again", blocked.reason());
                }
                None => tracing::info!("{name} is programmed again"),
            }
            *logged = blocked.cloned();
        }
        let refuses_table =
            self.logged.iter().any(|blocked| matches!(blocked, Some(Blocked::Refused(_))));
        self.note_refused(refuses_table || tables.have_refused(), now);
    }

    /// Starts attempts while the kernel refuses something, and ends them afterwards.
    fn note_refused(&mut self, is_refused: bool, now: Instant) {
        if !is_refused {
            self.retry = None;
        } else if self.retry.is_none() {
            self.retry = Some(Retry { due: now + FIRST_PAUSE, pause: FIRST_PAUSE * 2 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::wait::now;

    #[test]
    fn each_pause_between_attempts_is_twice_as_long_until_the_longest() {
        let mut blocked = BlockedTables::default();
        let mut now = now();
        blocked.note_refused(true, now);
        assert!(!blocked.retry(now));
        let mut pause = FIRST_PAUSE;
        for _ in 0..15 {
            assert!(!blocked.retry(now + pause - Duration::from_millis(1)), "{pause:?}");
            now += pause;
            assert!(blocked.retry(now), "{pause:?}");
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        assert_eq!(pause, LONGEST_PAUSE);
    }

    #[test]
    fn a_further_refusal_does_not_restart_the_attempts_and_a_success_ends_them() {
        let mut blocked = BlockedTables::default();
        let now = now();
        blocked.note_refused(true, now);
        let first = blocked.retry;
        blocked.note_refused(true, now + FIRST_PAUSE);
        assert_eq!(blocked.retry, first);
        blocked.note_refused(false, now + FIRST_PAUSE);
        assert!(!blocked.retry(now + LONGEST_PAUSE));
    }
}
