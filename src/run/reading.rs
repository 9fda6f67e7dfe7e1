//! Reading the tables, and noticing when others change them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Cleaning, Run, now};
use crate::engine::{Reading, read_watching};
use crate::family::Family;
use crate::kernel::{Kernel, ReadError, WriterGone};

/// Whether others may change our tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// The kernel keeps others out.
    Owned,
    /// Others may. Once one has, the tables are read again, but not before `next_read`.
    Shared { is_tampered: bool, next_read: Instant },
}

/// Both tables, and the netlink port of our socket.
pub(super) type ReadOutcome = Result<Result<(Reading, u32), ReadError>, WriterGone>;

/// Reading the tables takes time in the kernel; of all time at most one part in this many is
/// spent on it, however often others change something.
const READ_SHARE: u32 = 5;

/// Time after the end of a reading that was torn.
const AFTER_TORN: Duration = Duration::from_millis(500);

impl<K: Kernel + Send + 'static> Run<K> {
    /// Compares what the kernel holds with what is desired; returns whether it could be read.
    pub(super) async fn read_back(&mut self) -> Result<bool, WriterGone> {
        let started = now();
        self.cleaning.iter_mut().for_each(Cleaning::note_read);
        self.check.note_read();
        let outcome = match self.take_early_read().await? {
            Some(reading) => Ok(reading),
            None => self.read().await?,
        };
        let (Reading { tables, is_torn }, port) = match outcome {
            Ok(reading) => reading,
            Err(error) => {
                tracing::error!("cannot read the tables back: {error}; trying again");
                return Ok(false);
            }
        };
        let owners = tables.each_ref().map(|found| found.contents.as_ref()?.owned_by_another(port));
        self.measures.found(&tables);
        self.engine.observe(tables);
        self.report_lost_guard();
        for (family, owner) in Family::ALL.into_iter().zip(owners) {
            owner.iter().for_each(|error| self.engine.block(family, error));
        }
        // A torn reading is used all the same, and checked later: under changes that never stop
        // there is no other.
        let next_read = now() + ((now() - started) * READ_SHARE).max(AFTER_TORN);
        self.watch = Watch::Shared { is_tampered: is_torn, next_read };
        Ok(true)
    }

    /// Reads both tables.
    pub(super) fn read(&self) -> impl Future<Output = ReadOutcome> + Send + use<K> {
        let layouts = Arc::clone(self.engine.layouts());
        let observe = self.observe.clone();
        self.writer.run(move |kernel| {
            let reading = read_watching(kernel, &layouts, &|| observe.progressed(now()))?;
            Ok((reading, kernel.port()))
        })
    }

    /// Returns the early reading, unless others have changed a table since.
    async fn take_early_read(&mut self) -> Result<Option<(Reading, u32)>, WriterGone> {
        let Some(reading) = self.early_read.take() else { return Ok(None) };
        let Ok((reading, port)) = reading.await? else { return Ok(None) };
        let has_changed = reading.is_torn || self.writer.run(K::tampered).await?;
        Ok((!has_changed).then_some((reading, port)))
    }

    /// Stops to watch tables that the kernel keeps others out of. If another program was faster
    /// than our first commit, the tables are read again.
    pub(super) async fn stop_watching(&mut self) -> Result<(), WriterGone> {
        let Watch::Shared { is_tampered, next_read } = &mut self.watch else { return Ok(()) };
        if !self.engine.owns_its_tables() {
            return Ok(());
        }
        let was_tampered = self.writer.run(|kernel| {
            let was_tampered = kernel.tampered();
            kernel.ignore_others();
            was_tampered
        });
        *is_tampered |= was_tampered.await?;
        if !*is_tampered {
            self.watch = Watch::Owned;
        } else {
            *next_read = now();
        }
        Ok(())
    }

    /// Whether others have changed a table, and it is time to read it again.
    pub(super) async fn is_tampered(&mut self) -> Result<bool, WriterGone> {
        let Watch::Shared { is_tampered, next_read } = &mut self.watch else { return Ok(false) };
        *is_tampered |= self.writer.run(K::tampered).await?;
        let is_due = *is_tampered && now() >= *next_read;
        if is_due {
            tracing::debug!("another program changed our tables: reading them");
        }
        Ok(is_due)
    }
}
