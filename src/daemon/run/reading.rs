//! Reading the tables, and detecting changes of other programs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::ElementId;
use engine::schedule::Input;
use nft::family::Family;
use nft::kernel::{ElementKey, Kernel, OthersChanges, ReadError};

use super::devices::devices_of;
use super::own_node::report_lost_guard;
use super::{Run, now};
use crate::read_back::{Reading, read_watching};
use crate::writer::WriterGone;

/// Whether other programs may change our tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// No: the kernel refuses changes by other programs.
    Owned,
    /// Yes. After a change the tables are compared or read, but not before `next_read`.
    Shared { is_tampered: bool, next_read: Instant },
}

/// Both tables, and the netlink port of our socket.
pub(super) type ReadOutcome = Result<Result<(Reading, u32), ReadError>, WriterGone>;

/// Pause after a reading, in multiples of its duration. It limits the share of time that the kernel
/// spends on readings, however often other programs change something.
const READ_SHARE: u32 = 5;

/// Minimum pause after a reading.
const AFTER_TORN: Duration = Duration::from_millis(500);

/// Maximum pause after a reading: until then, some differences are not repaired.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl<K: Kernel + Send + 'static> Run<K> {
    /// Reads the tables into the installed state; returns false if they could not be read.
    pub(super) async fn read_back(&mut self) -> Result<bool, WriterGone> {
        let started = now();
        self.spoil_handover();
        self.flows.note_read();
        self.reads.check.note_read();
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
        self.report.sizes.found(&tables);
        let devices = devices_of(&tables);
        self.engine.replace_installed(tables);
        if let Some(following) = &mut self.devices {
            following.note_read(self.engine.tables(), devices);
        }
        report_lost_guard(&self.engine);
        for (family, owner) in Family::ALL.into_iter().zip(owners) {
            if let Some(error) = &owner {
                self.engine.block(family, error);
            }
        }
        // A torn reading is used, and checked later: if changes never stop, every reading is torn.
        let next_read = now() + pause_after(now() - started);
        self.reads.watch = Watch::Shared { is_tampered: is_torn, next_read };
        Ok(true)
    }

    pub(super) fn read(&self) -> impl Future<Output = ReadOutcome> + Send + use<K> {
        let layouts = Arc::clone(self.engine.tables().layouts());
        let observe = self.report.observe.clone();
        self.writer.run(move |kernel| {
            let reading = read_watching(kernel, &layouts, &|| observe.progressed(now()))?;
            Ok((reading, kernel.port()))
        })
    }

    /// Returns the early reading, unless another program has changed a table since.
    async fn take_early_read(&mut self) -> Result<Option<(Reading, u32)>, WriterGone> {
        let Some(reading) = self.reads.early.take() else { return Ok(None) };
        let Ok((reading, port)) = reading.await? else { return Ok(None) };
        let has_changed = reading.is_torn || self.writer.run(K::tampered).await?;
        Ok((!has_changed).then_some((reading, port)))
    }

    /// Stops watching tables that this process owns. If another program changed one before our
    /// first commit, the tables are read again.
    pub(super) async fn stop_watching(&mut self) -> Result<(), WriterGone> {
        let Watch::Shared { is_tampered, next_read } = &mut self.reads.watch else { return Ok(()) };
        if !self.engine.tables().are_owned() {
            return Ok(());
        }
        let was_tampered = self.writer.run(|kernel| {
            let was_tampered = kernel.tampered();
            kernel.ignore_others();
            was_tampered
        });
        *is_tampered |= was_tampered.await?;
        if !*is_tampered {
            self.reads.watch = Watch::Owned;
        } else {
            *next_read = now();
        }
        Ok(())
    }

    /// Returns whether another program has changed a table, and lets it be read or compared.
    pub(super) async fn notes_tampering(&mut self) -> Result<bool, WriterGone> {
        let Watch::Shared { is_tampered, .. } = &mut self.reads.watch else { return Ok(false) };
        *is_tampered |= self.writer.run(K::tampered).await?;
        Ok(*is_tampered)
    }

    /// Schedules a read-back if a blocked table can be written again. Compares the tables if another
    /// program changed one.
    pub(super) async fn check_tables(&mut self) -> Result<(), WriterGone> {
        if self.blocked.is_unblocked(self.engine.tables(), &self.writer).await? {
            self.engine.retry_refused();
            if self.engine.knows_installed() && self.commits.is_synced {
                self.note_change();
                return Ok(());
            }
        } else if !self.is_tampered().await? || self.check_now() {
            return Ok(());
        }
        self.schedule.handle(Input::ReadNow, now());
        Ok(())
    }

    /// Returns whether another program has changed a table so that it must be read, and the reading
    /// is due. Repairs other changes.
    async fn is_tampered(&mut self) -> Result<bool, WriterGone> {
        if self.reads.watch == Watch::Owned {
            return Ok(false);
        }
        let must_read = match self.writer.run(K::others_changes).await? {
            OthersChanges::Nothing => false,
            OthersChanges::Elements(keys) => !self.repair_changed(keys).await?,
            OthersChanges::Anything => true,
        };
        if must_read {
            self.check_rules_again();
        }
        let is_checking = self.reads.check.urgent.is_some();
        let Watch::Shared { is_tampered, next_read } = &mut self.reads.watch else {
            return Ok(false);
        };
        *is_tampered |= must_read;
        let is_due = *is_tampered && now() >= *next_read && !is_checking;
        if is_due {
            *is_tampered = false;
        }
        Ok(is_due)
    }

    /// Looks up elements that another program changed, and writes again what differs. Returns false
    /// if more must be compared.
    async fn repair_changed(&mut self, keys: Vec<ElementKey>) -> Result<bool, WriterGone> {
        let is_known = !self.commits.is_initial_sync && self.engine.knows_installed();
        if !is_known || matches!(self.reads.watch, Watch::Shared { is_tampered: true, .. }) {
            return Ok(false);
        }
        match ElementId::all_of(&keys) {
            Some(places) => self.repair_places(places).await,
            None => Ok(false),
        }
    }

    /// Sets the time before which changes of other programs cause no reading.
    pub(super) fn postpone_next_read(&mut self, to: Instant) {
        if let Watch::Shared { next_read, .. } = &mut self.reads.watch {
            *next_read = to;
        }
    }
}

/// Returns the pause after a reading that took `time`.
pub(super) fn pause_after(time: Duration) -> Duration {
    (time * READ_SHARE).clamp(AFTER_TORN, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_reading_has_limits() {
        let seconds = [0, 1, 3_600].map(|time| pause_after(Duration::from_secs(time)));
        assert_eq!(seconds, [AFTER_TORN, Duration::from_secs(5), LONGEST_PAUSE]);
    }
}
