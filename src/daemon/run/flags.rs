//! Changes of the tables' flags beside the loop's other work, by [`Handovers`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::doubt::DoubtInput;
use engine::printable::Printable;
use engine::ruleset;
use nft::family::Family;
use nft::kernel::Kernel;

use super::Run;
use super::direct;
use super::ending::Left;
use super::ownership::{End, Handovers, ListOutcome, record};
use super::wait::now;
use crate::handover::HandoverError;
use crate::writer::WriterGone;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Postpones the change of flags after a change of services.
    pub(super) fn note_activity(&mut self) {
        let is_wanted = self.engine.tables().fixed_flags().is_some();
        if let Some(handovers) = &mut self.handovers {
            handovers.note_activity(is_wanted, now());
        }
    }

    /// Removes handover tables that do not serve, once our tables serve.
    pub(super) async fn end_handover(&mut self) -> Result<(), WriterGone> {
        let is_wanted = self.engine.tables().fixed_flags().is_some();
        match &mut self.handovers {
            Some(handovers) => {
                handovers.remove_tables(is_wanted, &self.writer, &self.report.observe).await
            }
            None => Ok(()),
        }
    }

    /// Returns whether a step of a handover would delay nothing.
    pub(super) fn may_hand_over(&self) -> bool {
        let is_idle = !self.reads.doubt.is_urgent()
            && self.engine.is_settled()
            && self.are_tables_in_place()
            && self.arrivals.is_empty();
        is_idle || self.handovers.as_ref().is_some_and(Handovers::must_go_on)
    }

    /// Returns whether a table is being replaced: nothing should read it.
    pub(super) fn is_replacing(&self) -> bool {
        self.handovers.as_ref().is_some_and(Handovers::is_replacing)
    }

    /// Ends an attempt before a table is read or changes otherwise than by a commit: gives it up, or
    /// performs all of its steps if the handover table serves.
    pub(super) async fn finish_replacement(&mut self) -> Result<(), WriterGone> {
        loop {
            if let Some(handovers) = &mut self.handovers {
                handovers.spoil();
            }
            if !self.is_replacing() {
                return Ok(());
            }
            self.handover_step().await?;
        }
    }

    /// Performs the next step of giving the tables the desired flags.
    pub(super) async fn handover_step(&mut self) -> Result<(), WriterGone> {
        let is_first = self.handovers.as_ref().is_some_and(Handovers::is_first_step);
        let is_changed = is_first && self.notes_tampering().await?;
        let Some(handovers) = &mut self.handovers else { return Ok(()) };
        if handovers.has_attempt() {
            if is_changed {
                handovers.spoil();
            }
            let end = handovers.step(&self.writer).await?;
            return self.end_attempt(end).await;
        }
        match self.engine.tables().fixed_flags() {
            Some(family) if !is_changed => {
                let known = self.engine.known_elements(family);
                handovers.begin((family, known), self.reads.open_reader(), &self.writer);
            }
            Some(_) | None => self.note_activity(),
        }
        Ok(())
    }

    /// Goes on with the list of a table.
    pub(super) async fn take_listed(&mut self, listed: ListOutcome<K>) -> Result<(), WriterGone> {
        let end = self.handovers.as_mut().and_then(|handovers| handovers.take_listed(listed));
        self.end_attempt(end).await
    }

    async fn end_attempt(&mut self, end: Option<End>) -> Result<(), WriterGone> {
        let Some(handovers) = &mut self.handovers else { return Ok(()) };
        match end {
            None => Ok(()),
            Some(End::GivenUp(error)) => {
                handovers.note_given_up(now());
                self.give_up(error).await
            }
            Some(End::Changed { family, started, worked }) => {
                if !worked.is_zero() {
                    record(Some(family), worked, &self.report.observe);
                }
                let flags = handovers.flags;
                self.engine.note_flags(family, flags);
                let took = (now() - started).as_millis();
                if self.engine.tables().fixed_flags().is_some() {
                    // The other table is next, but not at once: while the kernel frees the elements
                    // of this one, commits wait for the end of that whenever a socket is closed
                    // (`nft_rcv_nl_event`).
                    self.note_activity();
                    return self.watch_again().await;
                }
                let owned = if flags.owner { "owned" } else { "without an owner" };
                tracing::info!("the tables are {owned} now; the change took {took} ms");
                if self.engine.tables().are_owned() {
                    self.stop_watching().await
                } else {
                    self.watch_again().await
                }
            }
        }
    }

    /// Ends an attempt, after a change of the table or an error.
    async fn give_up(&mut self, error: Option<HandoverError>) -> Result<(), WriterGone> {
        let is_unchanged = error.is_none();
        match error {
            None | Some(HandoverError::Interrupted) => {
                tracing::debug!("a change of services interrupted the change of the tables' flags");
            }
            Some(error) => {
                tracing::warn!("cannot change the flags of the tables: {error}; trying again");
                // A part may be missing.
                self.reads.doubt.handle(DoubtInput::ReadNow, now());
            }
        }
        self.note_activity();
        self.watch_again().await?;
        if is_unchanged && self.are_tables_in_place() { self.end_handover().await } else { Ok(()) }
    }

    async fn watch_again(&mut self) -> Result<(), WriterGone> {
        let tables = Family::ALL.map(ruleset::table);
        let watched = self.writer.run(move |kernel| kernel.watch_others(&tables));
        if let Err(error) = watched.await? {
            tracing::warn!("cannot watch the tables: {error}");
        }
        Ok(())
    }

    /// Completes an attempt whose handover table serves, and leaves the tables to the next program.
    pub(super) async fn leave(&mut self) -> Result<Left, WriterGone> {
        let started = now();
        self.log_uncommitted();
        self.stop_reads().await?;
        self.finish_replacement().await?;
        let Some(handovers) = &mut self.handovers else { return Ok(Left::Unchanged) };
        let is_blocked =
            Family::ALL.iter().any(|family| self.engine.tables().blocked(*family).is_some());
        let leaves = handovers.ending.leaves.load(Ordering::Relaxed);
        if !leaves || !self.commits.has_sent || is_blocked {
            return Ok(Left::Unchanged);
        }
        let known = Family::ALL.map(|family| self.engine.known_elements(family));
        let left = handovers.leave(&self.writer, known, started).await?;
        direct::end(&self.engine, &self.writer).await?;
        Ok(left)
    }

    /// Waits for what is queued for the kernel's thread: reads end at once.
    async fn stop_reads(&mut self) -> Result<(), WriterGone> {
        self.reads.stop.store(true, Ordering::Relaxed);
        let stop = Arc::clone(&self.reads.stop);
        self.writer.run(move |_| stop.store(false, Ordering::Relaxed)).await?;
        if let Some(handovers) = &self.handovers {
            handovers.ending.progress.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Logs what the next daemon has to commit.
    fn log_uncommitted(&mut self) {
        let waiting = self.arrivals.len();
        if !self.engine.is_listed() || (self.engine.is_settled() && waiting == 0) {
            return;
        }
        let services = self.engine.take_uncommitted();
        tracing::info!(
            services = services.count,
            such_as = services.first.first().map(|name| tracing::field::display(Printable(name))),
            events = waiting,
            "not all changes are committed: the next daemon commits them"
        );
    }
}
