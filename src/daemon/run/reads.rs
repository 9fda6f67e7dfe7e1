//! What the loop reads of the kernel, and whether it must.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use engine::doubt::{Doubt, Reading, Reply};
use futures::future::BoxFuture;
use nft::kernel::{Kernel, ReadError};

use crate::observe::Observe;
use crate::writer::{Writer, WriterGone};

/// Opens another socket to the kernel, with a thread.
pub type OpenReader<K> = Box<dyn Fn() -> Option<Writer<K>> + Send>;

/// The answer to a request, or the error of the kernel.
pub(super) type ReadAnswer = Result<Result<Reply, ReadError>, WriterGone>;

/// What is not certain about the tables, and the requests that make it certain.
pub(super) struct Reads<K> {
    pub(super) doubt: Doubt,
    /// A request for which commits do not wait: parts of the tables while the source lists objects,
    /// later dumps.
    pub(super) long_request: Option<BoxFuture<'static, ReadAnswer>>,
    /// Requests for endpoint lists that were sent before the answer to the last one was processed.
    pub(super) lists_ahead: VecDeque<BoxFuture<'static, ReadAnswer>>,
    /// The parts of the tables that were read while the source lists objects.
    pub(super) early: Option<Box<Reading>>,
    /// The kernel reports changes of our tables by other programs: no process owns them.
    pub(super) is_watching: bool,
    /// Differences whose repair is not committed yet.
    pub(super) unrepaired: u64,
    pub(super) open_reader: Option<OpenReader<K>>,
    /// Stops the reads of the kernel's thread.
    pub(super) stop: Arc<AtomicBool>,
}

impl<K: Kernel + Send + 'static> Reads<K> {
    pub(super) fn new(
        check_period: Duration,
        open_reader: Option<OpenReader<K>>,
        now: Instant,
    ) -> Self {
        Self {
            doubt: Doubt::new(check_period, now),
            long_request: None,
            lists_ahead: VecDeque::new(),
            early: None,
            // Before the first reading there is no installed state that other programs could change.
            is_watching: false,
            unrepaired: 0,
            open_reader,
            stop: Arc::default(),
        }
    }

    /// Opens another socket for a long dump; `None` if the dump must use that of the commits.
    pub(super) fn open_reader(&self) -> Option<Writer<K>> {
        self.open_reader.as_ref().and_then(|open| open())
    }

    /// Counts the repaired differences. The kernel must hold the desired state.
    pub(super) fn note_synced(&mut self, observe: &Observe) {
        observe.metrics().check.repairs.add(std::mem::take(&mut self.unrepaired));
    }

    /// Adds a part of the reading made while the source lists objects.
    pub(super) fn add_early_part(&mut self, part: Result<Reply, ReadError>) {
        self.early = match (part, self.early.take()) {
            (Ok(Reply::Tables(read)), None) => Some(read),
            (Ok(Reply::Lists(lists)), Some(mut read)) => {
                read.tables.of_services[lists.family.index()].elements.read_lists(lists);
                Some(read)
            }
            // The tables are read once everything is listed.
            (Ok(_) | Err(_), _) => None,
        };
    }

    /// Waits for the answer to the long request; returns `None` without one.
    pub(super) async fn answered(&mut self) -> Option<ReadAnswer> {
        let answered = self.long_request.as_mut()?.await;
        self.long_request = None;
        Some(answered)
    }
}
