//! One resource, followed for ever.
//!
//! ```text
//!            +------------------- a list broke off, 410, or something unreadable ---+
//!            v                                                                      |
//!   open --> listing --InitDone--> watching --connection lost: watch goes on where it was
//!            |
//!            +-- the server refuses a streaming list: open again, with list and watch
//!            +-- 404 of an optional resource: it is empty, open again later
//! ```

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::core::Status;
use kube::runtime::watcher::{self, Config, Event as WatcherEvent, InitialListStrategy, watcher};
use kube::{Api, Client};
use tokio::time::Instant;

use super::access::Access;
use super::backoff::Backoff;
use super::careful::{self, Careful};
use super::contact::Link;
use super::error::SourceError;
use super::outlet::{Closed, Outlet, Report};
use super::pace::paced;
use super::trouble::Trouble;
use crate::model::{Batch, Event, Resource};
use crate::source::objects::{Converter, Followed};

/// Most events in one batch: bounds memory while a list is passed on.
const BATCH: usize = 512;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// How long a streaming list may be silent. Servers that do not know it may open the watch and
/// never send the bookmark that ends the list.
const STALLED: Duration = Duration::from_secs(60);

/// How long a way of reading that failed is not tried again; servers are upgraded in place.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// How often to look whether an optional resource is served now.
const ABSENT: Duration = Duration::from_secs(300);

/// A watch that has stayed open for so long works, also if nothing changes.
const STEADY: Duration = Duration::from_secs(1);

type Stream<T> = BoxStream<'static, Result<WatcherEvent<Careful<T>>, watcher::Error>>;

/// Follows one resource.
pub(super) struct Watch<T> {
    access: Access,
    client: Client,
    link: Link,
    config: Config,
    converter: Converter,
    outlet: Outlet,
    backoff: Backoff,
    batch: Vec<Event>,
    /// When the bytes of the first event of the batch had arrived.
    received: Instant,
    stage: Stage,
    /// Since when the server is known to refuse streaming lists.
    lists_since: Option<Instant>,
    /// Since when the server is known to send objects of the wrong shape.
    careful_since: Option<Instant>,
    trouble: Trouble,
    /// The resource was said to be empty because the server does not have it.
    absent: bool,
    object: std::marker::PhantomData<T>,
}

/// How much of the present list is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was said yet.
    Opening,
    /// The server began a list. `Relist` has not been passed on: it may still refuse.
    Begun,
    /// `Relist` and perhaps objects have been passed on.
    Listing,
    /// `Listed` has been passed on, and the server tells of changes.
    Watching,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The stream goes on where it was, after this time.
    Resume(Duration),
    /// A new stream lists again, after this time.
    Reopen(Duration),
}

impl<T: Followed> Watch<T> {
    /// Servers exist that do not have the resource; to them it is empty. networking.k8s.io/v1
    /// ServiceCIDR exists from Kubernetes 1.33.
    const IS_OPTIONAL: bool = matches!(T::RESOURCE, Resource::ServiceCidrs);

    pub(super) fn new(access: &Access, config: Config, node_name: &str, outlet: &Outlet) -> Self {
        let link = Link::new(T::RESOURCE, outlet.contacts.clone());
        Self {
            access: access.clone(),
            client: paced(access, &link),
            link,
            config: config.page_size(PAGE),
            converter: Converter::new(node_name),
            outlet: outlet.clone(),
            backoff: Backoff::default(),
            batch: Vec::new(),
            received: Instant::now(),
            stage: Stage::Opening,
            lists_since: None,
            careful_since: None,
            trouble: Trouble::default(),
            absent: false,
            object: std::marker::PhantomData,
        }
    }

    /// Follows the resource until the outlet is closed.
    pub(super) async fn run(mut self) {
        while let Ok(wait) = self.follow_once().await {
            self.pause(wait).await;
        }
    }

    /// Waits, but no longer than until there is another client.
    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.access.changed() => self.backoff = Backoff::default(),
        }
    }

    /// Follows one stream until it has to be opened again, after the returned time.
    async fn follow_once(&mut self) -> Result<Duration, Closed> {
        let mut stream = self.open();
        loop {
            let next = match self.next(&mut stream).await? {
                Ok(event) => self.accept(event)?,
                Err(failure) => Some(self.judge(&failure)?),
            };
            if let Some(next) = next {
                self.flush().await?;
                match next {
                    Next::Resume(wait) => self.pause(wait).await,
                    Next::Reopen(wait) => return Ok(wait),
                }
            }
        }
    }

    /// Opens a stream that lists and then watches, in the best way not known to fail.
    fn open(&mut self) -> Stream<T> {
        self.stage = Stage::Opening;
        let old = |since: &Instant| since.elapsed() >= REMEMBERED;
        self.lists_since.take_if(|since| old(since));
        self.careful_since.take_if(|since| old(since));

        let mut config = self.config.clone();
        if self.lists_since.is_none() {
            config.initial_list_strategy = InitialListStrategy::StreamingList;
        }
        if self.careful_since.is_some() {
            watcher(Api::<Careful<T>>::all(self.client.clone()), config).boxed()
        } else {
            let events = watcher(Api::<T>::all(self.client.clone()), config);
            events.map(|event| event.map(careful::read)).boxed()
        }
    }

    /// The next event. What is at hand is batched; before waiting for a change, the batch is passed
    /// on. A list is of no use before it is whole, so its batches are passed on when they are full.
    async fn next(
        &mut self,
        stream: &mut Stream<T>,
    ) -> Result<Result<WatcherEvent<Careful<T>>, Failure>, Closed> {
        if self.batch.len() < BATCH
            && let Some(Some(event)) = stream.next().now_or_never()
        {
            return Ok(event.map_err(Failure::Watcher));
        }
        if self.batch.len() >= BATCH || self.stage != Stage::Listing {
            self.flush().await?;
        }
        let event = loop {
            let event = match self.patience() {
                Some(limit) => tokio::time::timeout(limit, stream.next()).await,
                None => Ok(stream.next().await),
            };
            if event.is_ok() || self.stage != Stage::Watching {
                break event;
            }
            if self.link.is_up() {
                self.recovered()?;
            }
        };
        Ok(match event {
            Ok(Some(event)) => event.map_err(Failure::Watcher),
            // `watcher` never ends; if it did, opening it again is right.
            Ok(None) => Err(Failure::Incomplete),
            Err(_) => Err(Failure::Stalled),
        })
    }

    /// How long to wait for an event: streaming lists cannot be trusted to say something, and a
    /// watch that failed works again when it is steady.
    fn patience(&self) -> Option<Duration> {
        match self.stage {
            Stage::Opening => None,
            Stage::Begun | Stage::Listing => self.lists_since.is_none().then_some(STALLED),
            Stage::Watching => (!self.trouble.is_over()).then_some(STEADY),
        }
    }

    fn accept(&mut self, event: WatcherEvent<Careful<T>>) -> Result<Option<Next>, Closed> {
        if self.batch.is_empty() {
            self.received = self.link.heard_at();
        }
        match event {
            WatcherEvent::Init if matches!(self.stage, Stage::Begun | Stage::Listing) => {
                return self.judge(&Failure::Incomplete).map(Some);
            }
            WatcherEvent::Init => self.stage = Stage::Begun,
            WatcherEvent::InitApply(object) => {
                self.begin_list();
                self.push(object)?;
            }
            WatcherEvent::InitDone => {
                self.begin_list();
                self.batch.push(Event::Listed(T::RESOURCE));
                self.stage = Stage::Watching;
                self.absent = false;
                self.recovered()?;
            }
            WatcherEvent::Apply(object) => {
                self.push(object)?;
                self.recovered()?;
            }
            WatcherEvent::Delete(object) => {
                self.batch.push(Event::gone(T::object(object.name())));
                self.recovered()?;
            }
        }
        Ok(None)
    }

    /// Passes on `Relist` with the first thing that is really known of a list.
    fn begin_list(&mut self) {
        if self.stage != Stage::Listing {
            self.batch.push(Event::Relist(T::RESOURCE));
            self.stage = Stage::Listing;
        }
    }

    fn push(&mut self, object: Careful<T>) -> Result<(), Closed> {
        let (event, problems) = object.convert(&mut self.converter);
        self.batch.push(event);
        for problem in problems {
            self.outlet.report(Report::Object(problem))?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Closed> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.batch);
        let (received, parsed) = (self.received.into_std(), Instant::now().into_std());
        self.outlet.send(Batch { events, received, parsed }).await
    }

    /// Decides what follows a failure, and reports it if it is one to people.
    fn judge(&mut self, failure: &Failure) -> Result<Next, Closed> {
        if self.lists_since.is_none() && failure.refuses_streaming(self.stage) {
            self.lists_since = Some(Instant::now());
            return Ok(Next::Reopen(Duration::ZERO));
        }
        if Self::IS_OPTIONAL && failure.code() == Some(404) {
            return self.pass_absence();
        }
        if failure.is_unreadable() {
            self.careful_since.get_or_insert_with(Instant::now);
        }
        let wait = self.backoff.after_failure(Instant::now());
        // A list that has become too old is a matter of course, not a trouble.
        if failure.code() != Some(410) {
            let error = SourceError::from(failure);
            self.link.lost(error.reason());
            if error.is_rejection() {
                self.access.rejected();
            }
            self.trouble.report(&self.outlet, Some(T::RESOURCE), error, wait)?;
        }
        let resumable = self.stage == Stage::Watching && !failure.needs_list();
        Ok(if resumable { Next::Resume(wait) } else { Next::Reopen(wait) })
    }

    /// The server does not have this resource, so there are no objects of it.
    fn pass_absence(&mut self) -> Result<Next, Closed> {
        if !self.absent {
            self.absent = true;
            self.batch.extend([Event::Relist(T::RESOURCE), Event::Listed(T::RESOURCE)]);
        }
        self.link.heard();
        self.recovered()?;
        Ok(Next::Reopen(ABSENT))
    }

    fn recovered(&mut self) -> Result<(), Closed> {
        match self.trouble.end() {
            true => self.outlet.report(Report::Recovered(T::RESOURCE)),
            false => Ok(()),
        }
    }
}

/// Why a stream did not go on.
#[derive(Debug)]
enum Failure {
    /// `watcher` says so.
    Watcher(watcher::Error),
    /// The server ended a streaming list before its last bookmark.
    Incomplete,
    /// The server began a streaming list and says nothing.
    Stalled,
}

impl Failure {
    /// The HTTP status code, if the server gave one.
    fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    fn status(&self) -> Option<&Status> {
        use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
        match self {
            Self::Watcher(WatchError(status)) => Some(status),
            Self::Watcher(
                InitialListFailed(kube::Error::Api(status))
                | WatchStartFailed(kube::Error::Api(status))
                | WatchFailed(kube::Error::Api(status)),
            ) => Some(status),
            Self::Watcher(_) | Self::Incomplete | Self::Stalled => None,
        }
    }

    /// Whether the server cannot do streaming lists. Real servers say it as 422 or 400 (the
    /// feature gate WatchList is off, or unknown), or open the watch and send an ERROR of code 500
    /// because etcd is too old for RequestWatchProgress.
    fn refuses_streaming(&self, stage: Stage) -> bool {
        let listing = stage != Stage::Watching;
        match self {
            Self::Stalled => true,
            Self::Watcher(watcher::Error::WatchStartFailed(_)) => {
                listing && matches!(self.code(), Some(400 | 422))
            }
            Self::Watcher(watcher::Error::WatchError(status)) if status.code == 500 => {
                listing || status.message.contains("RequestWatchProgress")
            }
            Self::Watcher(_) | Self::Incomplete => false,
        }
    }

    /// Whether an object, or a line of a watch, was not what it should be.
    fn is_unreadable(&self) -> bool {
        matches!(self, Self::Watcher(_)) && matches!(self.into(), SourceError::Malformed { .. })
    }

    /// Whether a watch cannot go on where it was: its version is too old or refused, or something
    /// was lost on the way.
    fn needs_list(&self) -> bool {
        matches!(self.code(), Some(400 | 410 | 422)) || self.is_unreadable()
    }
}

impl From<&Failure> for SourceError {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Watcher(error) => error.into(),
            Failure::Incomplete => Self::Incomplete,
            Failure::Stalled => Self::Stalled(STALLED.as_secs()),
        }
    }
}
