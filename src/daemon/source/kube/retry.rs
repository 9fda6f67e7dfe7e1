//! When and how a watch is retried after a failure. No clock, no I/O.
//!
//! ```text
//!   +-- Reopen: a new stream lists again -------------------------------------------+
//!   v                                                                               |
//! Opening --begun--> Begun --the first object, or the end--> Listing --the end--> Watching
//!   |                  |                                      |   ^               |   ^
//!   +------------------+--> Reopen        Resume: a page      +---+   Resume: the +---+
//!                                         failed                      version is still good
//! ```
//!
//! [`FailureKind::step`] has the decision for each pair. A failure of a method is no failure of the server:
//! the stream is opened again at once with the next method, and the first one is tried again after
//! [`RETRY_METHOD_AFTER`].

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::{Backoff, Trouble};
use super::format::Formats;
use super::reflector::{Method, StreamError};
use super::source_error::SourceError;

/// Time after which a read method that failed is tried again; servers are upgraded in place.
const RETRY_METHOD_AFTER: Duration = Duration::from_secs(3600);

/// Longest wait that a server can ask for. With the random one that follows it no answer stops a
/// watch for longer than 60 s.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// Longest range of the random waits that follow the wait that the server asks for.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);

/// Range of the waits before the list that follows an expired version. A server that was restarted
/// may answer so to all nodes at once.
const SPREAD: Duration = Duration::from_secs(1);

/// Least time before the second look at a list that became empty: a cache or an API server that
/// starts may have nothing yet. Longer than [`Outages`](super::Outages) join failures, so that the
/// log has a warning.
const SECOND_LOOK: Duration = Duration::from_secs(3);

/// Progress of the present list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListStage {
    /// No event arrived yet.
    Opening,
    /// The server began a list. `Relist` is not sent on yet, because the server may still refuse.
    Begun,
    /// `Relist` and perhaps objects were sent on.
    Listing,
    /// `Listed` was sent on, and the server sends changes.
    Watching,
}

/// What went wrong, as far as the next request depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The server sends nothing in a streaming list, or its etcd is too old for
    /// RequestWatchProgress.
    NoStreaming,
    /// A watch was refused with 400 or 422: also a streaming list, if the feature gate WatchList is
    /// off or unknown.
    NotOpened,
    /// An open watch has an ERROR of code 500: also a streaming list, if etcd is too old for it.
    Internal,
    /// 404.
    NotFound,
    /// 406.
    NotAcceptable,
    /// An answer in protobuf does not have the expected form.
    Protobuf,
    /// An object or a line of a watch does not have the expected form.
    Unreadable,
    /// The newest version of the server is older than the last one.
    WentBack,
    /// 410: the server does not have the state of the requested version any more.
    Expired,
    /// The server is behind another one (`storage` of `k8s.io/apiserver`,
    /// `NewTooLargeResourceVersionError`), or etcd was restored.
    Behind,
    /// A list or its continuation was refused with 400 or 422.
    Refused,
    /// The lists need too much memory.
    NoRoom,
    /// The list is empty, and the one before was not.
    Emptied,
    /// Anything else.
    Other,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The stream continues where it was; otherwise a new one lists again.
    pub(super) resumes: bool,
    /// The next list has the newest state: the server does not have the last version.
    pub(super) is_newest: bool,
    /// A version that is too old or too new is no fault, and not reported.
    pub(super) is_normal: bool,
}

impl FailureKind {
    pub(super) fn of(error: &StreamError) -> Self {
        let status = error.status();
        let says = |words| status.is_some_and(|status| status.message.contains(words));
        match (error, status.map(|status| status.code)) {
            (StreamError::Stalled(_), _) => Self::NoStreaming,
            (StreamError::Event(_), Some(500)) if says("RequestWatchProgress") => Self::NoStreaming,
            (StreamError::Event(_), Some(500)) => Self::Internal,
            (StreamError::Open(_), Some(400 | 422)) => Self::NotOpened,
            (StreamError::Emptied, _) => Self::Emptied,
            (StreamError::NoRoom, _) => Self::NoRoom,
            (StreamError::WentBack(_), _) => Self::WentBack,
            (StreamError::Malformed { is_protobuf: true, .. }, _) => Self::Protobuf,
            (_, Some(400 | 422)) => Self::Refused,
            (_, Some(404)) => Self::NotFound,
            (_, Some(406)) => Self::NotAcceptable,
            (_, Some(410)) => Self::Expired,
            (_, Some(504)) if says("Too large resource version") => Self::Behind,
            _ if matches!(SourceError::from(error), SourceError::Malformed(_)) => Self::Unreadable,
            _ => Self::Other,
        }
    }

    /// Returns whether the server refuses streaming lists, of which one is at this stage.
    fn refuses_streaming(self, stage: ListStage) -> bool {
        let is_begin = stage != ListStage::Watching;
        self == Self::NoStreaming || is_begin && matches!(self, Self::NotOpened | Self::Internal)
    }

    /// Returns what follows at a stage; `is_page` if a page of a list failed.
    fn step(self, stage: ListStage, is_page: bool) -> Decision {
        let goes_on = match stage {
            ListStage::Opening | ListStage::Begun => false,
            ListStage::Listing => is_page,
            ListStage::Watching => true,
        };
        let is_begin = stage != ListStage::Watching;
        let (resumes, is_newest) = match self {
            Self::NotOpened | Self::Refused | Self::Expired => (false, is_begin),
            Self::Protobuf | Self::Unreadable => (false, false),
            Self::WentBack => (false, true),
            Self::Emptied => (goes_on, true),
            Self::Behind | Self::NoRoom => (goes_on, is_begin),
            Self::NoStreaming
            | Self::Internal
            | Self::NotFound
            | Self::NotAcceptable
            | Self::Other => (goes_on, false),
        };
        Decision { resumes, is_newest, is_normal: matches!(self, Self::Expired | Self::Behind) }
    }
}

/// What is known of the objects of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownObjects {
    /// There are none, as far as known.
    Nothing,
    /// There was at least one since the last list that was empty.
    Objects,
    /// The same, but then a list was empty; the next one counts.
    Doubtful,
}

/// The state of one watch, beyond its objects.
#[derive(Debug)]
pub(super) struct RetryPolicy {
    pub(super) stage: ListStage,
    formats: Formats,
    /// Time at which the server first refused a streaming list.
    lists_since: Option<Instant>,
    /// Time at which the server first sent protobuf that cannot be read, or refused it.
    json_since: Option<Instant>,
    content: KnownObjects,
    /// The last list was too long: nothing of the next one is sent on before its end.
    is_held: bool,
    backoff: Backoff,
    /// Waits after [`FailureKind::Expired`]. The server that answers so is no longer away: earlier
    /// failures do not delay the list.
    expired: Backoff,
    pub(super) trouble: Trouble,
}

impl RetryPolicy {
    /// Returns the state before the first list, if there are objects of an earlier source or none.
    pub(super) fn new(formats: Formats, has_objects: bool) -> Self {
        let content = if has_objects { KnownObjects::Objects } else { KnownObjects::Nothing };
        Self {
            stage: ListStage::Opening,
            formats,
            lists_since: None,
            json_since: None,
            content,
            is_held: false,
            backoff: Backoff::default(),
            expired: Backoff::default(),
            trouble: Trouble::default(),
        }
    }

    /// Returns the best method not known to fail.
    fn method(&self) -> Method {
        let formats = if self.json_since.is_some() { Formats::Json } else { self.formats };
        Method { streams_lists: self.lists_since.is_none(), formats }
    }

    /// Begins a stream. Returns its method.
    pub(super) fn open(&mut self, now: Instant) -> Method {
        self.stage = ListStage::Opening;
        let old = |since: &mut Instant| now - *since >= RETRY_METHOD_AFTER;
        self.lists_since.take_if(old);
        self.json_since.take_if(old);
        self.method()
    }

    /// Returns whether a streaming list is at its begin or goes on.
    pub(super) fn is_streaming_list(&self) -> bool {
        matches!(self.stage, ListStage::Begun | ListStage::Listing) && self.method().streams_lists
    }

    /// Returns whether the events of a list are sent on only when it is complete.
    pub(super) fn holds(&self) -> bool {
        self.is_held && self.stage == ListStage::Listing
    }

    /// There is an object.
    pub(super) fn has_object(&mut self) {
        self.content = KnownObjects::Objects;
    }

    /// A list is empty. Returns what was known before.
    pub(super) fn is_empty(&mut self) -> KnownObjects {
        let before = self.content;
        self.content = match before {
            KnownObjects::Objects => KnownObjects::Doubtful,
            KnownObjects::Doubtful | KnownObjects::Nothing => KnownObjects::Nothing,
        };
        before
    }

    /// A list is complete.
    pub(super) fn complete(&mut self) {
        self.stage = ListStage::Watching;
        self.is_held = false;
    }

    /// Returns whether a failure is only that of the method, so that the next stream has another.
    pub(super) fn changes_method(&mut self, cause: FailureKind, now: Instant) -> bool {
        let method = self.method();
        if method.streams_lists && cause.refuses_streaming(self.stage) {
            self.lists_since = Some(now);
        } else if method.formats == Formats::Any && cause == FailureKind::NotAcceptable {
            self.json_since = Some(now);
        } else {
            return false;
        }
        true
    }

    /// Returns what follows from a failure, and the wait before it, of which `random` is the part
    /// that differs between nodes. The server asked to wait for `asked`.
    pub(super) fn failed(
        &mut self,
        (cause, is_page): (FailureKind, bool),
        asked: Duration,
        (now, random): (Instant, f64),
    ) -> (Decision, Duration) {
        if cause == FailureKind::Protobuf {
            self.json_since.get_or_insert(now);
        }
        self.is_held |= cause == FailureKind::NoRoom;
        let asked = asked.min(LONGEST_ASKED);
        let wait = if matches!(cause, FailureKind::Expired | FailureKind::WentBack) {
            self.expired.after_failure(now, (asked, SPREAD), random)
        } else {
            // The server may send the same time to all nodes.
            self.backoff.after_failure(now, (asked, asked.min(LONGEST_SPREAD)), random)
        };
        let look = if cause == FailureKind::Emptied { SECOND_LOOK } else { Duration::ZERO };
        (cause.step(self.stage, is_page), wait + look)
    }

    /// Forgets failures, of a client that is no longer used.
    pub(super) fn forget_failures(&mut self) {
        (self.backoff, self.expired) = Default::default();
    }
}

/// Returns whether a server asks for too long a wait.
pub(super) fn is_excessive(asked: Duration) -> bool {
    asked > LONGEST_ASKED
}

#[cfg(test)]
mod tests {
    use ListStage::{Begun, Listing, Opening, Watching};

    use super::super::backoff::random;
    use super::*;

    fn retry() -> RetryPolicy {
        RetryPolicy::new(Formats::Any, false)
    }

    fn wait(retry: &mut RetryPolicy, now: Instant, cause: FailureKind, asked: u32) -> Duration {
        let asked = Duration::from_secs(asked.into());
        retry.failed((cause, false), asked, (now, random())).1
    }

    /// The step as words: whether it resumes, lists the newest state, and is not reported.
    fn step(cause: FailureKind, stage: ListStage, is_page: bool) -> String {
        let Decision { resumes, is_newest, is_normal } = cause.step(stage, is_page);
        let next = if resumes { "resume" } else { "reopen" };
        let words = [(true, next), (is_newest, "newest"), (is_normal, "normal")];
        let words = words.into_iter().filter_map(|(is, word)| is.then_some(word));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_cause_has_its_step_at_each_stage() {
        use FailureKind::*;
        let (reopen, resume, newest) = ("reopen", "resume", "reopen newest");
        for (cause, expected) in [
            // Opening, Begun, Listing, a page while Listing, Watching.
            (NoStreaming, [reopen, reopen, reopen, resume, resume]),
            (NotOpened, [newest, newest, newest, newest, reopen]),
            (Internal, [reopen, reopen, reopen, resume, resume]),
            (NotFound, [reopen, reopen, reopen, resume, resume]),
            (NotAcceptable, [reopen, reopen, reopen, resume, resume]),
            (Protobuf, [reopen, reopen, reopen, reopen, reopen]),
            (Unreadable, [reopen, reopen, reopen, reopen, reopen]),
            (WentBack, [newest, newest, newest, newest, newest]),
            (
                Expired,
                [
                    "reopen newest normal",
                    "reopen newest normal",
                    "reopen newest normal",
                    "reopen newest normal",
                    "reopen normal",
                ],
            ),
            (
                Behind,
                [
                    "reopen newest normal",
                    "reopen newest normal",
                    "reopen newest normal",
                    "resume newest normal",
                    "resume normal",
                ],
            ),
            (Refused, [newest, newest, newest, newest, reopen]),
            (NoRoom, [newest, newest, newest, "resume newest", resume]),
            (Emptied, [newest, newest, newest, "resume newest", "resume newest"]),
            (Other, [reopen, reopen, reopen, resume, resume]),
        ] {
            let stages = [Opening, Begun, Listing, Listing, Watching].into_iter().enumerate();
            let found = stages.map(|(place, stage)| step(cause, stage, place == 3));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{cause:?}");
        }
    }

    #[test]
    fn a_method_that_fails_is_tried_again_after_an_hour() {
        let (mut retry, now) = (retry(), Instant::now());
        let method = |streams_lists, formats| Method { streams_lists, formats };
        assert_eq!(retry.open(now), method(true, Formats::Any));
        assert!(!retry.changes_method(FailureKind::Other, now));
        assert!(retry.changes_method(FailureKind::Internal, now));
        assert!(!retry.changes_method(FailureKind::NoStreaming, now), "there is no other method");
        assert_eq!(retry.open(now), method(false, Formats::Any));
        assert!(retry.changes_method(FailureKind::NotAcceptable, now));
        assert!(!retry.changes_method(FailureKind::NotAcceptable, now));
        assert_eq!(retry.open(now), method(false, Formats::Json));
        assert_eq!(retry.open(now + RETRY_METHOD_AFTER), method(true, Formats::Any));
        wait(&mut retry, now, FailureKind::Protobuf, 0);
        assert_eq!(retry.open(now), method(true, Formats::Json));
        retry.stage = Watching;
        assert!(!retry.changes_method(FailureKind::NotOpened, now) && retry.method().streams_lists);
        assert!(
            !RetryPolicy::new(Formats::Json, false).changes_method(FailureKind::NotAcceptable, now)
        );
    }

    #[test]
    fn an_empty_list_counts_when_it_is_seen_twice() {
        let mut retry = RetryPolicy::new(Formats::Any, true);
        let seen = [retry.is_empty(), retry.is_empty(), retry.is_empty()];
        assert_eq!(seen, [KnownObjects::Objects, KnownObjects::Doubtful, KnownObjects::Nothing]);
        retry.has_object();
        assert_eq!(retry.is_empty(), KnownObjects::Objects);
        let asked = Duration::ZERO;
        let (_, wait) = retry.failed((FailureKind::Emptied, false), asked, (Instant::now(), 0.0));
        assert_eq!(wait, SECOND_LOOK);
    }

    #[test]
    fn a_list_after_one_without_room_is_held_until_it_is_complete() {
        let mut retry = retry();
        wait(&mut retry, Instant::now(), FailureKind::NoRoom, 0);
        assert!(!retry.holds());
        retry.stage = Listing;
        assert!(retry.holds());
        retry.complete();
        retry.stage = Listing;
        assert!(!retry.holds());
    }

    #[test]
    fn lists_of_many_nodes_whose_watches_expired_together_begin_within_a_second() {
        let wait = |_| wait(&mut retry(), Instant::now(), FailureKind::Expired, 0);
        let waits: Vec<_> = (0..1000).map(wait).collect();
        for quarter in 0..4 {
            let part = SPREAD * quarter / 4..SPREAD * (quarter + 1) / 4;
            let count = waits.iter().filter(|wait| part.contains(*wait)).count();
            assert!(count > 100, "{count} of 1000 in {part:?}");
        }
    }

    #[test]
    fn lists_after_an_outage_are_not_delayed_but_repeated_ones_are() {
        let mut now = Instant::now();
        let mut retry = retry();
        for _ in 0..20 {
            now += wait(&mut retry, now, FailureKind::Other, 0);
        }
        assert!(wait(&mut retry, now, FailureKind::Expired, 0) <= SPREAD);
        let mut again = || {
            let wait = wait(&mut retry, now, FailureKind::Expired, 0);
            now += wait;
            wait
        };
        let waits: Vec<_> = (0..100).map(|_| again()).collect();
        assert!(waits.iter().any(|wait| *wait > SPREAD * 10), "{waits:?}");
    }

    #[test]
    fn the_server_is_asked_again_after_the_time_that_it_gave_but_within_a_minute() {
        for (seconds, least, most) in [(0, 0, 1), (7, 7, 14), (300, 30, 60), (u32::MAX, 30, 60)] {
            let wait = wait(&mut retry(), Instant::now(), FailureKind::Other, seconds).as_secs();
            assert!((least..=most).contains(&wait), "{wait} s after {seconds} s");
        }
    }
}
