//! The product's stages from a frame of a watch to the kernel, called one by one and timed.
//!
//! These are the calls of the source, the run loop and the writer thread. Here they run on one
//! thread, so that the time between two calls belongs to a stage, and none to waking threads.

use std::time::Duration;

use daemon::read_back::read_back;
use daemon::source::kube::Line;
use daemon::source::objects::Converter;
use engine::Engine;
use engine::model::{Event, Resource};
use engine::routing::Routing;
use nft::Transaction;
use nft::kernel::{Committed, Kernel, Nftables};

use super::cluster::{Cluster, NODE_NAME};
use super::error::BenchError;
use super::watch_frame::WatchFrame;
use crate::figures::{now, thread_time, timed};

/// Converter, engine and kernel.
#[derive(Debug)]
pub(super) struct Pipeline {
    converter: Converter,
    engine: Engine,
    kernel: Nftables,
}

/// Duration of each stage of a change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stages {
    /// From bytes to API objects.
    pub(super) parsed: Duration,
    /// From API objects to the model.
    pub(super) modelled: Duration,
    /// From the model to transactions.
    pub(super) diffed: Duration,
    /// From transactions to messages.
    pub(super) encoded: Duration,
    /// System calls that commit.
    pub(super) committed: Duration,
    /// Reading acknowledgements, and updating the installed state.
    pub(super) noted: Duration,
    /// From the start of the first stage to the end of the last.
    pub(super) end_to_end: Duration,
    /// CPU time outside of the system calls that commit.
    pub(super) user: Duration,
    /// Number of transactions.
    pub(super) transactions: usize,
}

/// Costs of loading all objects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded {
    /// From bytes to API objects.
    pub(super) parsed: Duration,
    /// From API objects to the model.
    pub(super) applied: Duration,
    /// Reading the tables.
    pub(super) read_back: Duration,
    /// All transactions, from rendering to the acknowledgement.
    pub(super) converged: Duration,
    /// Part of `converged` in the system calls that commit.
    pub(super) in_kernel: Duration,
    /// The longest of these system calls.
    pub(super) longest: Duration,
    /// Number of transactions.
    pub(super) transactions: usize,
}

impl Pipeline {
    /// Opens the kernel, with an empty model.
    ///
    /// # Errors
    /// [`BenchError::Open`].
    pub(super) fn open() -> Result<Self, BenchError> {
        let kernel = Nftables::open()?;
        let mut engine = Engine::new(Routing::default(), kernel.table_flags());
        engine.suit_kernel(kernel.release());
        Ok(Self { converter: Converter::new(NODE_NAME), engine, kernel })
    }

    /// Loads the content of the lists; `each` returns the frames of all objects, group by group.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn load(
        &mut self,
        groups: impl Iterator<Item = Vec<WatchFrame>>,
    ) -> Result<Loaded, BenchError> {
        let mut loaded = Loaded::default();
        self.engine.apply(Resource::ALL.map(Event::Relist));
        self.engine.apply([Cluster::service_cidr()]);
        for frames in groups {
            let received = received(&frames);
            let (objects, took) = timed(|| decode(received));
            loaded.parsed += took;
            let (taken, took) = timed(|| {
                self.engine.apply(convert(objects?, &mut self.converter)?);
                Ok::<_, BenchError>(())
            });
            taken?;
            loaded.applied += took;
        }
        self.engine.apply(Resource::ALL.map(Event::Listed));
        let (found, took) = timed(|| read_back(&mut self.kernel, self.engine.tables().layouts()));
        loaded.read_back = took;
        let (done, took) = timed(|| {
            self.engine.replace_installed_state(found?);
            self.converge(&mut loaded)
        });
        done?;
        loaded.converged = took;
        Ok(loaded)
    }

    fn converge(&mut self, loaded: &mut Loaded) -> Result<(), BenchError> {
        while let Some(transaction) = self.engine.next_transaction(self.kernel.max_batch()) {
            let committed = self.commit(&transaction)?;
            loaded.in_kernel += committed.kernel_time;
            loaded.longest = loaded.longest.max(committed.kernel_time);
            loaded.transactions += 1;
        }
        Ok(())
    }

    /// Commits, and updates the installed state. Any refusal ends the bench: no other program changes its
    /// tables. Stale flows are dropped: there are no packets.
    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, BenchError> {
        let outcome = self.kernel.commit(transaction);
        self.engine.answer(transaction, &outcome);
        drop(self.engine.take_stale_flows());
        Ok(outcome?)
    }

    /// Makes one change and times its stages.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn change(&mut self, frames: &[WatchFrame]) -> Result<Stages, BenchError> {
        let mut stages = Stages::default();
        let received = received(frames);
        let (start, before) = (now(), thread_time());
        let (objects, took) = timed(|| decode(received));
        stages.parsed = took;
        let (events, took) = timed(|| convert(objects?, &mut self.converter));
        stages.modelled = took;
        let events = events?;
        let (_, took) = timed(|| self.engine.apply(events));
        stages.diffed = took;
        loop {
            let (next, took) = timed(|| self.engine.next_transaction(self.kernel.max_batch()));
            stages.diffed += took;
            let Some(transaction) = next else { break };
            let (committed, took) = timed(|| self.commit(&transaction));
            let committed = committed?;
            stages.encoded += committed.encode_time;
            stages.committed += committed.kernel_time;
            stages.noted += took - committed.encode_time - committed.kernel_time;
            stages.transactions += 1;
        }
        stages.end_to_end = start.elapsed();
        stages.user = (thread_time() - before).saturating_sub(stages.committed);
        Ok(stages)
    }
}

/// A frame, as the connection delivers it.
pub(super) type Received = (Resource, Vec<u8>);

/// Returns the bytes of frames.
pub(super) fn received(frames: &[WatchFrame]) -> Vec<Received> {
    frames.iter().map(|frame| (frame.resource, frame.received())).collect()
}

/// Decodes frames like the watches.
pub(super) fn decode(received: Vec<Received>) -> Result<Vec<Line>, BenchError> {
    let decode = |(resource, bytes)| Line::receive(resource, bytes);
    received.into_iter().map(decode).collect::<Result<_, _>>().map_err(BenchError::Frame)
}

/// Converts API objects like the watches.
pub(super) fn convert(
    objects: Vec<Line>,
    converter: &mut Converter,
) -> Result<Vec<Event>, BenchError> {
    let mut events = Vec::with_capacity(objects.len());
    for object in objects {
        let Some((event, problems)) = object.convert(converter) else { continue };
        if let Some(problem) = problems.first() {
            return Err(BenchError::Object(problem.to_string()));
        }
        events.push(event);
    }
    Ok(events)
}
