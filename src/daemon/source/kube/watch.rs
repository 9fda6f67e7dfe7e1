//! Lists and watches one resource until the outlet is closed.
//!
//! ```text
//!            +-- a list broke off, 410, versions that went back, or something unreadable --+
//!            v                                                                             |
//!   open --> listing --InitDone--> watching -----------------------------------------------+
//!            |  ^   |              ^      |
//!            |  +---+              +------+ connection lost: watch again from the last version
//!            |  a page refused: again from there
//!            |
//!            +-- the list is empty and was not before: open again once, for the newest state
//!            +-- the server refuses a streaming list: open again, with list and watch
//!            +-- 404 of an optional resource: it is empty, open again later
//! ```

use std::num::NonZeroU64;
use std::time::Duration;

use engine::model::{Arrival, Event, ObjectName, Problem, ProblemKind, Resource};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::Client;
use tokio::time::Instant;

use super::access::Access;
use super::contact::Link;
use super::error::SourceError;
use super::failure::Failure;
use super::format::Formats;
use super::left_out::LeftOut;
use super::methods::Methods;
use super::outlet::{Closed, Outlet, Report};
use super::pace::{Pace, excessive_wait};
use super::parsed::Parsed;
use super::patience::Patience;
use super::rate_limit::rate_limited;
use super::reflector::{self, Event as Received, Freshness, Selection, reflect};
use super::resources::Watched;
use super::seen::{Content, SECOND_LOOK, Seen};
use super::trouble::Trouble;
use crate::source::Wanted;
use crate::source::objects::Converter;

/// Maximum number of events in one arrival: limits memory while a list is sent on.
const MAX_EVENTS: usize = 512;

/// Time limit without data in a streaming list. Servers that do not support it may open the watch
/// and never send the bookmark that ends the list.
const STALLED: Duration = Duration::from_secs(60);

/// Interval of checks whether an optional resource exists now.
const ABSENT: Duration = Duration::from_secs(300);

/// Time after which an open watch counts as working, even without changes.
const STEADY: Duration = Duration::from_secs(1);

type Stream<T> = BoxStream<'static, Result<Received<T>, reflector::Error>>;

/// Watch of one resource.
pub(super) struct Watch<T> {
    access: Access,
    client: Client,
    link: Link,
    selection: Selection,
    sender: Sender,
    pace: Pace,
    patience: Patience,
    stage: Stage,
    methods: Methods,
    trouble: Trouble,
    seen: Seen,
    object: std::marker::PhantomData<T>,
}

/// Converts objects, and sends their events on in arrivals.
struct Sender {
    converter: Converter,
    outlet: Outlet,
    events: Vec<Event>,
    /// Arrival time of the first of `events`.
    received: Instant,
    /// Version of the last object.
    resource_version: Option<NonZeroU64>,
    left_out: LeftOut,
}

impl Sender {
    fn push<T: Watched>(&mut self, object: Parsed<T>) -> Result<(), Closed> {
        self.resource_version = object.version();
        let name = (!self.left_out.is_empty()).then(|| object.name());
        let (event, problems) = object.convert(&mut self.converter);
        self.events.push(event);
        let Some(first) = problems.first() else {
            return name.map_or(Ok(()), |name| self.corrected::<T>(&name));
        };
        let object = first.object.clone();
        self.left_out.add(&object.name);
        for problem in &problems {
            self.outlet.report(Report::Object(problem.clone()))?;
        }
        self.outlet.report(Report::Present(object, problems))
    }

    /// Reports that an object has no problems, if it had some.
    fn corrected<T: Watched>(&mut self, name: &ObjectName) -> Result<(), Closed> {
        if self.left_out.remove(name) {
            self.outlet.report(Report::Present(T::object(name.clone()), Vec::new()))?;
        }
        Ok(())
    }

    /// Ends a list: objects that it did not contain have no problems.
    fn end_list<T: Watched>(&mut self) -> Result<(), Closed> {
        self.events.push(Event::Listed(T::RESOURCE));
        for name in self.left_out.end_list() {
            self.outlet.report(Report::Present(T::object(name), Vec::new()))?;
        }
        Ok(())
    }

    /// Reports why the server's answers cannot be used, as a problem of all objects, or its end.
    fn report_answers<T: Watched>(&self, error: Option<&SourceError>) -> Result<(), Closed> {
        let object = T::object(ObjectName::cluster_scoped("*"));
        let problem = error.map(|error| Problem {
            kind: ProblemKind::Invalid,
            object: object.clone(),
            field: String::new(),
            message: error.to_string(),
        });
        self.outlet.report(Report::Present(object, problem.into_iter().collect()))
    }

    async fn flush(&mut self) -> Result<(), Closed> {
        if self.events.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.events);
        let (received, parsed) = (self.received.into_std(), Instant::now().into_std());
        let resource_version = self.resource_version.take();
        let arrival = |events| Arrival { events, received, parsed, resource_version };
        if events.len() <= MAX_EVENTS + 1 {
            return self.outlet.send(arrival(events)).await;
        }
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            self.outlet.send(arrival(events.by_ref().take(MAX_EVENTS).collect())).await?;
        }
        Ok(())
    }
}

/// Progress of the present list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No event arrived yet.
    Opening,
    /// The server began a list. `Relist` is not sent on yet, because the server may still refuse.
    Begun,
    /// `Relist` and perhaps objects were sent on.
    Listing,
    /// `Listed` was sent on, and the server sends changes.
    Watching,
}

/// Step after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The stream continues where it was, after this time.
    Resume(Duration),
    /// A new stream lists again, after this time.
    Reopen(Duration),
}

impl<T: Watched> Watch<T> {
    /// True if a server may lack the resource, which then counts as empty. networking.k8s.io/v1
    /// ServiceCIDR exists since Kubernetes 1.33.
    const IS_OPTIONAL: bool = matches!(T::RESOURCE, Resource::ServiceCidrs);

    /// True if a cluster always has some: the API server itself has a Service `kubernetes`.
    const IS_NEVER_EMPTY: bool =
        matches!(T::RESOURCE, Resource::Services | Resource::EndpointSlices);

    pub(super) fn new(
        access: &Access,
        selection: Selection,
        wanted: Wanted<'_>,
        formats: Formats,
        outlet: &Outlet,
    ) -> Self {
        let link = Link::new(T::RESOURCE, outlet.contacts.clone());
        let link = link.with_addresses(outlet.addresses.as_ref().map(|it| it.subscribe()));
        Self {
            access: access.clone(),
            client: rate_limited(access, &link),
            link,
            selection,
            sender: Sender {
                converter: Converter::of(wanted),
                outlet: outlet.clone(),
                events: Vec::new(),
                received: Instant::now(),
                resource_version: None,
                left_out: LeftOut::default(),
            },
            pace: Pace::new(access.turns()),
            patience: Patience::new(),
            stage: Stage::Opening,
            methods: Methods { formats, ..Methods::default() },
            trouble: Trouble::default(),
            seen: Seen::new(outlet.has_objects),
            object: std::marker::PhantomData,
        }
    }

    /// Follows the resource until the outlet is closed.
    pub(super) async fn run(mut self) {
        while let Ok(wait) = self.follow_once().await {
            self.pause(wait).await;
        }
    }

    /// Waits for `wait`, or until the client is replaced.
    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.access.changed() => self.pace.forget_failures(),
        }
    }

    /// Follows one stream until a new one is needed, after the returned time.
    async fn follow_once(&mut self) -> Result<Duration, Closed> {
        self.pace.begin_list().await;
        let mut stream = self.open();
        loop {
            let next = match self.next(&mut stream).await? {
                Ok(event) => self.accept(event)?,
                Err(failure) => Some(self.judge(&failure)?),
            };
            if let Some(next) = next {
                self.pace.end_list();
                if !self.holds() {
                    self.sender.flush().await?;
                }
                match next {
                    Next::Resume(wait) => {
                        self.pause(wait).await;
                        if self.stage == Stage::Listing {
                            self.pace.begin_list().await;
                        }
                    }
                    Next::Reopen(wait) => {
                        self.sender.events.clear();
                        return Ok(wait);
                    }
                }
            }
        }
    }

    /// Returns whether the events of a list are sent on only when it is complete.
    fn holds(&self) -> bool {
        self.seen.is_held && self.stage == Stage::Listing
    }

    /// Opens a stream that lists and then watches, with the best method not known to fail.
    fn open(&mut self) -> Stream<T> {
        self.stage = Stage::Opening;
        self.methods.forget();
        let share = self.access.share();
        reflect(self.client.clone(), self.selection.clone(), self.methods.best(), share)
    }

    /// Returns the next event. Collects the events that are ready, and sends them before waiting
    /// for a change. During a list only full arrivals are sent, because an incomplete list is not
    /// useful. So a list is polled once for each wait: a poll passes all layers of the client.
    async fn next(
        &mut self,
        stream: &mut Stream<T>,
    ) -> Result<Result<Received<T>, Failure>, Closed> {
        let is_list = self.stage == Stage::Listing;
        let is_full = self.sender.events.len() >= MAX_EVENTS && !self.holds();
        if !is_full
            && !is_list
            && let Some(Some(event)) = stream.next().now_or_never()
        {
            return Ok(event.map_err(Failure::Received));
        }
        if is_full || !is_list {
            self.sender.flush().await?;
        }
        let event = loop {
            let limit = self.limit();
            let event = tokio::select! {
                biased;
                versions = self.access.restored() => {
                    Some(Some(Err(reflector::Error::went_back(&versions))))
                }
                event = self.patience.next(limit, stream) => event,
            };
            if event.is_some() || self.stage != Stage::Watching {
                break event;
            }
            if self.link.is_up() {
                self.recovered()?;
            }
        };
        Ok(match event {
            Some(Some(event)) => event.map_err(Failure::Received),
            // A stream never ends; if it did, a new stream would be right.
            Some(None) => Err(Failure::Incomplete),
            None => Err(Failure::Stalled(STALLED)),
        })
    }

    /// Returns the time limit for the next event. A streaming list has one because the server may
    /// never send an event. A watch after a failure has one after which it counts as working.
    fn limit(&self) -> Option<Duration> {
        match self.stage {
            Stage::Opening => None,
            Stage::Begun | Stage::Listing => self.methods.lists_since.is_none().then_some(STALLED),
            Stage::Watching => (!self.trouble.is_over()).then_some(STEADY),
        }
    }

    fn accept(&mut self, event: Received<T>) -> Result<Option<Next>, Closed> {
        if self.sender.events.is_empty() {
            self.sender.received = self.link.heard_at();
        }
        match event {
            Received::Init if matches!(self.stage, Stage::Begun | Stage::Listing) => {
                return self.judge(&Failure::Incomplete).map(Some);
            }
            Received::Init => self.stage = Stage::Begun,
            Received::InitApply(object) => {
                self.seen.content = Content::Objects;
                self.begin_list();
                self.sender.push(object)?;
            }
            Received::InitDone(_)
                if Self::IS_NEVER_EMPTY
                    && self.stage != Stage::Listing
                    && self.seen.doubts(T::RESOURCE) =>
            {
                return self.judge(&Failure::Emptied).map(Some);
            }
            Received::InitDone(version) => {
                self.selection.freshness.follow(&version);
                self.begin_list();
                self.pace.end_list();
                self.sender.end_list::<T>()?;
                self.stage = Stage::Watching;
                self.seen.is_held = false;
                self.seen.is_reported_absent = false;
                self.recovered()?;
            }
            Received::Apply(object) => {
                self.seen.content = Content::Objects;
                self.follow(&object);
                self.sender.push(object)?;
                self.recovered()?;
            }
            Received::Delete(object) => {
                self.follow(&object);
                self.sender.resource_version = object.version();
                let name = object.name();
                self.sender.corrected::<T>(&name)?;
                let gone = self.sender.converter.gone(T::object(name));
                self.sender.events.push(gone);
                self.recovered()?;
            }
        }
        Ok(None)
    }

    fn follow(&mut self, object: &Parsed<T>) {
        if let Some(version) = object.version_text() {
            self.selection.freshness.follow(version);
        }
    }

    /// Adds `Relist` with the first confirmed item of a list.
    fn begin_list(&mut self) {
        if self.stage != Stage::Listing {
            self.sender.left_out.begin_list();
            self.sender.events.push(Event::Relist(T::RESOURCE));
            self.stage = Stage::Listing;
        }
    }

    /// Returns the step after a failure, and reports the failure unless it is expected.
    fn judge(&mut self, failure: &Failure) -> Result<Next, Closed> {
        if self.methods.lists_since.is_none()
            && failure.refuses_streaming(self.stage != Stage::Watching)
        {
            self.methods.lists_since = Some(Instant::now());
            return Ok(Next::Reopen(Duration::ZERO));
        }
        if Self::IS_OPTIONAL && failure.code() == Some(404) {
            return self.pass_absence();
        }
        if self.methods.best().formats == Formats::Any && failure.code() == Some(406) {
            self.methods.json_since = Some(Instant::now());
            return Ok(Next::Reopen(Duration::ZERO));
        }
        if failure.is_protobuf() {
            self.methods.json_since.get_or_insert_with(Instant::now);
        }
        let mut wait = self.pace.after_failure(Instant::now(), failure.status());
        let is_emptied = matches!(failure, Failure::Emptied);
        if let Some(status) = failure.status().filter(|_| failure.went_back()) {
            // A watch whose own version is not in the future may have missed as much.
            self.access.report_restore(&status.message);
        }
        if is_emptied
            || failure.went_back()
            || (self.stage != Stage::Watching && failure.refuses_version())
        {
            self.selection.freshness = Freshness::Newest;
        }
        if let Some(asked) = excessive_wait(failure.status()) {
            self.seen.long_wait(T::RESOURCE, asked, wait);
        }
        self.seen.is_held |= failure.has_no_room();
        if is_emptied {
            wait += SECOND_LOOK;
        }
        // A version that is too old or too new is normal. Versions that went back are reported.
        if !failure.lacks_version() || failure.went_back() {
            let error = SourceError::from(failure);
            self.link.lost(error.reason());
            if error.is_rejection() {
                self.access.rejected();
            }
            if error.is_of_answer() {
                self.seen.is_unusable = true;
                self.sender.report_answers::<T>(Some(&error))?;
            }
            let watch = Some((T::RESOURCE, self.access.server()));
            self.trouble.report(&self.sender.outlet, watch, error, wait)?;
        }
        let continues = match self.stage {
            Stage::Opening | Stage::Begun => false,
            Stage::Listing => failure.is_of_page(),
            Stage::Watching => true,
        };
        let resumable = continues && !failure.needs_list();
        Ok(if resumable { Next::Resume(wait) } else { Next::Reopen(wait) })
    }

    /// Reports the resource as empty, because the server does not have it.
    fn pass_absence(&mut self) -> Result<Next, Closed> {
        if !self.seen.is_reported_absent {
            self.seen.is_reported_absent = true;
            self.sender.events.extend([Event::Relist(T::RESOURCE), Event::Listed(T::RESOURCE)]);
        }
        self.link.heard();
        self.recovered()?;
        Ok(Next::Reopen(ABSENT))
    }

    fn recovered(&mut self) -> Result<(), Closed> {
        if self.trouble.end() {
            self.seen.is_wait_reported = false;
            if std::mem::take(&mut self.seen.is_unusable) {
                self.sender.report_answers::<T>(None)?;
            }
            let (resource, at) = (T::RESOURCE, self.link.heard_at());
            self.sender.outlet.report(Report::Recovered { resource, at })
        } else {
            Ok(())
        }
    }
}
