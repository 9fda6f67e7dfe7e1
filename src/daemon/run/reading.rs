//! Reads the kernel where [`engine::doubt`] is not certain, and detects changes of other programs.

use std::sync::Arc;

use engine::doubt::{DoubtInput, EndedRound, Reading, Reply, Request};
use engine::ruleset::SetId;
use engine::{ElementId, TableId};
use futures::FutureExt;
use nft::Transaction;
use nft::kernel::{Kernel, OthersChanges, ReadError};

use super::own_node::report_lost_guard;
use super::reads::ReadAnswer;
use super::{Run, now};
use crate::observe::Cause;
use crate::read_back::answer;
use crate::writer::{Writer, WriterGone};

impl<K: Kernel + Send + 'static> Run<K> {
    /// Returns whether the kernel should hold the installed state and, for the background, also the
    /// desired one.
    pub(super) fn may_request(&self) -> bool {
        let is_usable = if self.reads.doubt.is_urgent() {
            self.engine.has_installed_state()
        } else {
            self.engine.is_settled()
        };
        is_usable && self.are_tables_in_place() && !self.is_replacing()
    }

    /// Makes the next request, and corrects what the answer shows.
    pub(super) async fn make_request(&mut self) -> Result<(), WriterGone> {
        if self.reads.doubt.has_only_unread_lists()
            && let Some(ahead) = self.reads.lists_ahead.pop_front()
        {
            return self.take_lists(ahead.await?).await;
        }
        let elements = usize::try_from(self.report.sizes.total()).unwrap_or_default();
        match self.reads.doubt.next(&mut self.engine, elements, now()) {
            None => Ok(()),
            Some(request @ Request::Dump(_)) => {
                let reader = self.reads.open_reader();
                let dump = self.request(request, reader.as_ref().unwrap_or(&self.writer));
                let dump = async move {
                    let dumped = dump.await;
                    // Its thread ends with this handle.
                    drop(reader);
                    dumped
                };
                self.reads.long_request = Some(dump.boxed());
                Ok(())
            }
            Some(request @ Request::Lists(..)) => {
                let reply = self.request(request, &self.writer).await?;
                self.take_lists(reply).await
            }
            Some(request) => {
                let reply = self.request(request, &self.writer).await?;
                self.take_reply(reply).await
            }
        }
    }

    /// Requests the next endpoint lists, and then adds those of a reply. Only one request is sent
    /// ahead here: a commit waits for all of them.
    async fn take_lists(&mut self, reply: Result<Reply, ReadError>) -> Result<(), WriterGone> {
        if self.reads.lists_ahead.is_empty() {
            let next = self.reads.doubt.next_lists(&mut self.engine);
            let next = next.map(|next| self.request(next, &self.writer).boxed());
            self.reads.lists_ahead.extend(next);
        }
        self.take_reply(reply).await
    }

    /// Makes the requests for which commits must wait.
    pub(super) async fn make_certain(&mut self) -> Result<(), WriterGone> {
        while self.reads.doubt.must_wait() {
            self.make_request().await?;
        }
        Ok(())
    }

    /// Sends a request to the kernel.
    pub(super) fn request(
        &self,
        request: Request,
        writer: &Writer<K>,
    ) -> impl Future<Output = ReadAnswer> + Send + use<K> {
        let layouts = Arc::clone(self.engine.tables().layouts());
        let observe = self.report.observe.clone();
        writer.run(move |kernel| {
            answer(kernel, &request, &layouts, &|| {
                let now = now();
                observe.progressed(now);
                now
            })
        })
    }

    /// Corrects the installed state by an answer.
    pub(super) async fn take_reply(
        &mut self,
        reply: Result<Reply, ReadError>,
    ) -> Result<(), WriterGone> {
        let mut reply = reply.unwrap_or_else(|error| {
            tracing::warn!("cannot check the tables: {error}");
            Reply::Failed
        });
        if let Reply::Sizes(sizes) = &mut reply {
            sizes
                .iter_mut()
                .for_each(|it| it.written = self.report.sizes.get(it.family, it.set.name()));
        }
        let before = self.reads.doubt.reason();
        let corrections = self.reads.doubt.answer(reply, &mut self.engine, now());
        if let (Some((cause, since)), None) = (before, self.reads.doubt.reason()) {
            let ms = (now() - since).as_millis();
            tracing::debug!(ms, ?cause, "the tables are certain again");
        }
        self.report_corrections(&corrections);
        if let Some((cause, _)) = before {
            self.report.causes.add_doubt(cause);
        }
        self.note_change();
        let Some(EndedRound::Urgent { differences }) = corrections.ended else { return Ok(()) };
        tracing::debug!(differences, "compared all elements");
        // Flows may have begun by the changed tables.
        self.flows.note_read();
        if self.engine.is_settled() {
            self.flows.note_synced();
        }
        self.stop_watching().await
    }

    /// Reads the tables into the installed state; returns false if they could not be read.
    pub(super) async fn read_back(&mut self) -> Result<bool, WriterGone> {
        self.finish_replacement().await?;
        self.flows.note_read();
        self.reads.lists_ahead.clear();
        let reading = match self.take_early_read().await? {
            Some(mut reading) => {
                self.request_ahead(&mut reading);
                Reply::Tables(reading)
            }
            None => match self.request(Request::Tables, &self.writer).await? {
                Ok(reply) => reply,
                Err(error) => {
                    tracing::error!("cannot read the tables back: {error}; trying again");
                    return Ok(false);
                }
            },
        };
        let Reply::Tables(read) = &reading else { return Ok(false) };
        let Reading { tables, port, .. } = &**read;
        let owner = |id: &TableId| Some((*id, tables.contents(*id)?.owned_by_another(*port)?));
        let owners: Vec<_> = TableId::ALL.iter().filter_map(owner).collect();
        for table in &tables.of_services {
            for (set, size) in SetId::ALL.into_iter().zip(table.sizes) {
                self.report.sizes.set(table.elements.family(), set.name(), size);
            }
        }
        if let Some((cause, _)) = self.reads.doubt.reason() {
            self.report.causes.add_doubt(cause);
        }
        self.reads.doubt.answer(reading, &mut self.engine, now());
        report_lost_guard(&self.engine);
        for (table, error) in &owners {
            self.engine.block(*table, error);
        }
        self.reads.is_watching = true;
        Ok(true)
    }

    /// Takes a part of the reading made while the source lists objects, and requests the next one.
    pub(super) fn take_early_part(&mut self, part: Result<Reply, ReadError>) {
        self.reads.add_early_part(part);
        let next = self.reads.early.as_mut().and_then(|read| read.next_lists());
        if let Some((family, lists)) = next {
            let request = self.request(Request::Lists(family, lists), &self.writer);
            self.reads.long_request = Some(request.boxed());
        }
    }

    /// Returns the reading made while the source listed objects, unless another program has changed
    /// a table since. Its lists may not all be read.
    async fn take_early_read(&mut self) -> Result<Option<Box<Reading>>, WriterGone> {
        let (part, early) = (self.reads.long_request.take(), self.reads.early.take());
        if !self.reads.doubt.is_start() {
            return Ok(None);
        }
        self.reads.early = early;
        if let Some(part) = part {
            self.reads.add_early_part(part.await?);
        }
        let Some(read) = self.reads.early.take() else { return Ok(None) };
        let has_changed = read.is_torn || self.writer.run(K::tampered).await?;
        Ok((!has_changed).then_some(read))
    }

    /// Requests endpoint lists that a reading lacks, so that they are read while all services are
    /// compared for the first time.
    fn request_ahead(&mut self, reading: &mut Reading) {
        for table in &mut reading.tables.of_services {
            let family = table.elements.family();
            for lists in table.elements.lists_ahead() {
                let request = self.request(Request::Lists(family, lists), &self.writer);
                self.reads.lists_ahead.push_back(request.boxed());
            }
        }
    }

    /// Stops watching tables that this process owns. If another program changed one before our
    /// first commit, the tables are compared.
    pub(super) async fn stop_watching(&mut self) -> Result<(), WriterGone> {
        if !self.reads.is_watching || !self.engine.tables().are_owned() {
            return Ok(());
        }
        let was_tampered = self.writer.run(|kernel| {
            let was_tampered = kernel.tampered();
            kernel.ignore_others();
            was_tampered
        });
        if was_tampered.await? {
            self.reads.doubt.handle(DoubtInput::Anything, now());
        }
        self.reads.is_watching = self.reads.doubt.is_changed();
        if self.reads.is_watching {
            self.reads.doubt.hurry(now());
        }
        Ok(())
    }

    /// Returns whether another program has changed a table, and lets it be compared.
    pub(super) async fn notes_tampering(&mut self) -> Result<bool, WriterGone> {
        if !self.reads.is_watching {
            return Ok(false);
        }
        if self.writer.run(K::tampered).await? {
            self.reads.doubt.handle(DoubtInput::Anything, now());
        }
        Ok(self.reads.doubt.is_changed())
    }

    /// Schedules a reading if a blocked table can be written again. Looks at what other programs
    /// changed.
    pub(super) async fn check_tables(&mut self) -> Result<(), WriterGone> {
        if self.blocked.is_unblocked(self.engine.tables(), &self.writer).await? {
            self.engine.retry_refused();
            self.report.causes.add(Cause::Refusal);
            let is_read = self.engine.has_installed_state() && self.commits.is_synced;
            if is_read && !self.engine.tables().have_blocked() {
                self.note_change();
            } else {
                self.reads.doubt.handle(DoubtInput::ReadNow, now());
            }
            return Ok(());
        }
        let changes = if self.reads.is_watching {
            self.writer.run(K::others_changes).await?
        } else {
            OthersChanges::Nothing
        };
        match changes {
            OthersChanges::Nothing => {}
            OthersChanges::Elements(mut keys) if self.engine.has_installed_state() => {
                let all = keys.len();
                keys.retain(|key| key.table != TableId::DirectReturn.reference());
                if keys.len() < all {
                    self.reads.doubt.handle(DoubtInput::DirectReturn, now());
                }
                if !keys.is_empty() {
                    let keys = ElementId::all_of(&keys);
                    let input = keys.map_or(DoubtInput::Anything, DoubtInput::Elements);
                    self.reads.doubt.handle(input, now());
                    // Flows may have begun by what has been replaced since.
                    self.flows.note_read();
                }
                self.make_certain().await?;
                if self.engine.is_settled() {
                    self.flows.note_synced();
                }
            }
            OthersChanges::Elements(_) | OthersChanges::Anything => {
                self.reads.doubt.handle(DoubtInput::Anything, now());
            }
        }
        self.reads.doubt.begin_round(self.engine.has_installed_state(), now());
        Ok(())
    }

    /// Looks up the elements of a refused transaction, and of the one made ahead, so that all tables
    /// need not be read. Returns false if they must be.
    pub(super) async fn undo(
        &mut self,
        cause: &engine::Cause,
        transaction: &Transaction,
        ahead: Option<&Transaction>,
    ) -> Result<bool, WriterGone> {
        let is_possible = cause.is_caused_by_services() && !self.reads.doubt.is_start();
        let refused = self.engine.refused(transaction, ahead).filter(|_| is_possible);
        let Some(refused) = refused else { return Ok(false) };
        self.finish_replacement().await?;
        self.reads.doubt.handle(DoubtInput::Refused(refused), now());
        self.make_certain().await?;
        Ok(self.reads.doubt.tables_due().is_none())
    }
}
