//! Retries of blocked tables, and the log lines about them.

use std::time::{Duration, Instant};

use engine::Blocked;
use engine::ruleset;
use nft::family::Family;
use nft::kernel::{Kernel, ReadError};

use super::{Run, now};
use crate::writer::WriterGone;

/// The next retry of what the kernel refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    due: Instant,
    /// The pause after the next attempt.
    pause: Duration,
}

/// The first pause between attempts after a refusal; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause: an attempt reads both tables.
const LONGEST_PAUSE: Duration = Duration::from_secs(512);

impl<K: Kernel + Send + 'static> Run<K> {
    /// Returns whether a blocked table may be writable now: its owner is gone, or the next attempt
    /// is due.
    pub(super) async fn is_unblocked(&mut self) -> Result<bool, WriterGone> {
        for family in Family::ALL {
            if let Some(Blocked::Owned(_)) = self.engine.tables().blocked(family) {
                let table = ruleset::table(family);
                let other = self.writer.run(move |kernel| {
                    let owner = kernel.owner(&table)?;
                    Ok::<_, ReadError>(owner.filter(|owner| *owner != kernel.port()))
                });
                if matches!(other.await?, Ok(None)) {
                    return Ok(true);
                }
            }
        }
        let now = now();
        let Some(retry) = &mut self.retry else { return Ok(false) };
        let is_due = retry.due <= now;
        if is_due {
            retry.due = now + retry.pause;
            retry.pause = (retry.pause * 2).min(LONGEST_PAUSE);
        }
        Ok(is_due)
    }

    /// Logs when a family is no longer programmed, or is again; starts or ends attempts.
    pub(super) fn report_blocked(&mut self, now: Instant) {
        for family in Family::ALL {
            let (blocked, name) = (self.engine.tables().blocked(family), family.name());
            let known = &mut self.blocked[family.index()];
            if blocked == known.as_ref() {
                continue;
            }
            self.observe.table_blocked(family, blocked.map(Blocked::reason));
            match blocked {
                Some(blocked) => {
                    tracing::error!("{name} is not programmed: {}; trying again", blocked.reason());
                }
                None => tracing::info!("{name} is programmed again"),
            }
            *known = blocked.cloned();
        }
        let is_refused = |it: &Option<Blocked>| matches!(it, Some(Blocked::Refused(_)));
        if !self.blocked.iter().any(is_refused) && !self.engine.tables().have_refused() {
            self.retry = None;
        } else if self.retry.is_none() {
            self.retry = Some(Retry { due: now + FIRST_PAUSE, pause: FIRST_PAUSE * 2 });
        }
    }
}
