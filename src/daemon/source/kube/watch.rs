//! Lists and watches one resource until the outlet is closed. [`RetryPolicy`] decides what follows from a
//! failure.

use std::num::NonZeroU64;
use std::time::Duration;

use engine::model::{Arrival, Event, ObjectName, Problem, ProblemKind, Resource};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::Client;
use tokio::time::Instant;

use super::access::Access;
use super::backoff::random;
use super::contact::Link;
use super::faulty_objects::FaultyObjects;
use super::format::Formats;
use super::limited::rate_limited;
use super::outlet::{Closed, Outlet, SourceReport, plural};
use super::parsed::Parsed;
use super::patience::Patience;
use super::reflector::{self, Event as Received, Freshness, Selection, reflect};
use super::retry::{FailureKind, KnownObjects, ListStage, RetryPolicy, is_excessive};
use super::source_error::SourceError;
use super::turns::Turn;
use crate::source::Wanted;
use crate::source::objects::{Converter, Followed};

/// Maximum number of events in one arrival: limits memory while a list is sent on.
const MAX_EVENTS: usize = 512;

/// Time limit without data in a streaming list. Servers that do not support it may open the watch
/// and never send the bookmark that ends the list.
const STALLED: Duration = Duration::from_secs(60);

/// Interval of checks whether an optional resource exists now.
const ABSENT: Duration = Duration::from_secs(300);

/// Status of an answer that asks for fewer requests (RFC 6585 section 4). The API server's priority
/// and fairness answers so.
const TOO_MANY_REQUESTS: u16 = 429;

/// Time after which an open watch counts as working, even without changes.
const STEADY: Duration = Duration::from_secs(1);

type Stream<T> = BoxStream<'static, Result<Received<T>, reflector::StreamError>>;

/// Watch of one resource.
pub(super) struct Watch<T> {
    access: Access,
    client: Client,
    link: Link,
    selection: Selection,
    sender: Sender,
    turn: Turn,
    patience: Patience,
    retry: RetryPolicy,
    /// The log has a line about a long wait since the last success.
    is_wait_reported: bool,
    /// The answers of the server cannot be used, which is a present problem.
    is_unusable: bool,
    /// The resource was reported as empty because the server does not have it.
    is_reported_absent: bool,
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
    faulty: FaultyObjects,
}

impl Sender {
    fn push<T: Followed>(&mut self, object: Parsed<T>) -> Result<(), Closed> {
        self.resource_version = object.version();
        self.note_created(&object);
        let name = (!self.faulty.is_empty()).then(|| object.name());
        let (event, problems) = object.convert(&mut self.converter);
        self.events.push(event);
        let Some(first) = problems.first() else {
            return name.map_or(Ok(()), |name| self.corrected::<T>(&name));
        };
        let object = first.object.clone();
        self.faulty.add(&object.name);
        for problem in &problems {
            self.outlet.report(SourceReport::Object(problem.clone()))?;
        }
        self.outlet.report(SourceReport::Present(object, problems))
    }

    /// Reports when this node's Node was created, if that is followed.
    fn note_created<T: Followed>(&self, object: &Parsed<T>) {
        let Some(created) = &self.outlet.node_created else { return };
        if T::RESOURCE == Resource::Nodes && self.converter.is_this_node(object.name().as_str()) {
            let time = object.created();
            created.send_if_modified(|known| std::mem::replace(known, time) != time);
        }
    }

    /// Reports that an object has no problems, if it had some.
    fn corrected<T: Followed>(&mut self, name: &ObjectName) -> Result<(), Closed> {
        if self.faulty.remove(name) {
            self.outlet.report(SourceReport::Present(T::object(name.clone()), Vec::new()))?;
        }
        Ok(())
    }

    /// Ends a list: objects that it did not contain have no problems.
    fn end_list<T: Followed>(&mut self) -> Result<(), Closed> {
        self.events.push(Event::Listed(T::RESOURCE));
        for name in self.faulty.end_list() {
            self.outlet.report(SourceReport::Present(T::object(name), Vec::new()))?;
        }
        Ok(())
    }

    /// Reports why the server's answers cannot be used, as a problem of all objects, or its end.
    fn report_answers<T: Followed>(&self, error: Option<&SourceError>) -> Result<(), Closed> {
        let object = T::object(ObjectName::cluster_scoped("*"));
        let problem = error
            .map(|error| Problem::new(ProblemKind::Invalid, object.clone(), "", error.to_string()));
        self.outlet.report(SourceReport::Present(object, problem.into_iter().collect()))
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

/// Decision after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterFailure {
    /// The stream continues where it was, after this time.
    Resume(Duration),
    /// A new stream lists again, after this time.
    Reopen(Duration),
}

impl<T: Followed> Watch<T> {
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
                faulty: FaultyObjects::default(),
            },
            turn: Turn::of(access.turns()),
            patience: Patience::new(),
            retry: RetryPolicy::new(formats, outlet.has_objects),
            is_wait_reported: false,
            is_unusable: false,
            is_reported_absent: false,
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
            () = self.access.changed() => self.retry.forget_failures(),
        }
    }

    /// Follows one stream until a new one is needed, after the returned time.
    async fn follow_once(&mut self) -> Result<Duration, Closed> {
        self.turn.begin().await;
        let mut stream = self.open();
        loop {
            let next = match self.next(&mut stream).await? {
                Ok(event) => self.accept(event)?,
                Err(error) => Some(self.judge(&error)?),
            };
            if let Some(next) = next {
                self.turn.end();
                if !self.retry.holds() {
                    self.sender.flush().await?;
                }
                match next {
                    AfterFailure::Resume(wait) => {
                        self.pause(wait).await;
                        if self.retry.stage == ListStage::Listing {
                            self.turn.begin().await;
                        }
                    }
                    AfterFailure::Reopen(wait) => {
                        self.sender.events.clear();
                        return Ok(wait);
                    }
                }
            }
        }
    }

    /// Opens a stream that lists and then watches, with the best method not known to fail.
    fn open(&mut self) -> Stream<T> {
        let (method, share) = (self.retry.open(Instant::now()), self.access.share());
        reflect(self.client.clone(), self.selection.clone(), method, share)
    }

    /// Returns the next event. Collects the events that are ready, and sends them before waiting
    /// for a change. During a list only full arrivals are sent, because an incomplete list is not
    /// useful. So a list is polled once for each wait: a poll passes all layers of the client.
    async fn next(
        &mut self,
        stream: &mut Stream<T>,
    ) -> Result<Result<Received<T>, reflector::StreamError>, Closed> {
        let is_list = self.retry.stage == ListStage::Listing;
        let is_full = self.sender.events.len() >= MAX_EVENTS && !self.retry.holds();
        if !is_full
            && !is_list
            && let Some(Some(event)) = stream.next().now_or_never()
        {
            return Ok(event);
        }
        if is_full || !is_list {
            self.sender.flush().await?;
        }
        let event = loop {
            let limit = self.limit();
            let event = tokio::select! {
                biased;
                versions = self.access.restored() => {
                    Some(Some(Err(reflector::StreamError::went_back(&versions))))
                }
                event = self.patience.next(limit, stream) => event,
            };
            if event.is_some() || self.retry.stage != ListStage::Watching {
                break event;
            }
            if self.link.is_up() {
                self.recovered()?;
            }
        };
        Ok(match event {
            Some(Some(event)) => event,
            // A stream never ends; if it did, a new stream would be right.
            Some(None) => Err(reflector::StreamError::Incomplete),
            None => Err(reflector::StreamError::Stalled(STALLED)),
        })
    }

    /// Returns the time limit for the next event. A streaming list has one because the server may
    /// never send an event. A watch after a failure has one after which it counts as working.
    fn limit(&self) -> Option<Duration> {
        let is_steady = self.retry.stage == ListStage::Watching && !self.retry.trouble.is_over();
        self.retry.is_streaming_list().then_some(STALLED).or(is_steady.then_some(STEADY))
    }

    fn accept(&mut self, event: Received<T>) -> Result<Option<AfterFailure>, Closed> {
        if self.sender.events.is_empty() {
            self.sender.received = self.link.heard_at();
        }
        match event {
            Received::Init if matches!(self.retry.stage, ListStage::Begun | ListStage::Listing) => {
                return self.judge(&reflector::StreamError::Incomplete).map(Some);
            }
            Received::Init => self.retry.stage = ListStage::Begun,
            Received::InitApply(object) => {
                self.retry.has_object();
                self.begin_list();
                self.sender.push(object)?;
            }
            Received::InitDone(_)
                if Self::IS_NEVER_EMPTY
                    && self.retry.stage != ListStage::Listing
                    && self.doubts() =>
            {
                return self.judge(&reflector::StreamError::Emptied).map(Some);
            }
            Received::InitDone(version) => {
                self.selection.freshness.follow(&version);
                self.begin_list();
                self.turn.end();
                self.sender.end_list::<T>()?;
                self.retry.complete();
                self.is_reported_absent = false;
                self.recovered()?;
            }
            Received::Apply(object) => {
                self.retry.has_object();
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
        if self.retry.stage != ListStage::Listing {
            self.sender.faulty.begin_list();
            self.sender.events.push(Event::Relist(T::RESOURCE));
            self.retry.stage = ListStage::Listing;
        }
    }

    /// Records an empty list. Returns whether it is not believed yet.
    fn doubts(&mut self) -> bool {
        let before = self.retry.is_empty();
        if before == KnownObjects::Doubtful {
            let names = plural(T::RESOURCE);
            tracing::warn!("the API server lists no {names} again: all of them are removed");
        }
        before == KnownObjects::Objects
    }

    /// Returns the step after a failure, and reports the failure unless it is expected.
    fn judge(&mut self, error: &reflector::StreamError) -> Result<AfterFailure, Closed> {
        let (cause, now) = (FailureKind::of(error), Instant::now());
        if self.retry.changes_method(cause, now) {
            return Ok(AfterFailure::Reopen(Duration::ZERO));
        }
        if Self::IS_OPTIONAL && cause == FailureKind::NotFound {
            return self.pass_absence();
        }
        let status = error.status();
        if status.is_some_and(|status| status.code == TOO_MANY_REQUESTS) {
            self.access.turns().take(now);
        }
        let details = status.and_then(|status| status.details.as_ref());
        let asked = details.map_or(0, |details| details.retry_after_seconds);
        let asked = Duration::from_secs(asked.into());
        let is_page = matches!(error, reflector::StreamError::List(_));
        let (step, wait) = self.retry.failed((cause, is_page), asked, (now, random()));
        if step.is_newest {
            self.selection.freshness = Freshness::Newest;
        }
        if is_excessive(asked) && !std::mem::replace(&mut self.is_wait_reported, true) {
            let (names, asked, wait) = (plural(T::RESOURCE), asked.as_secs(), wait.as_secs());
            tracing::warn!(
                "the API server asks to wait {asked} s for {names}: {wait} s are waited"
            );
        }
        if let reflector::StreamError::WentBack(status) = error {
            // A watch whose own version is not in the future may have missed as much.
            self.access.report_restore(&status.message);
        }
        if !step.is_normal {
            self.report(error.into(), wait)?;
        }
        Ok(if step.resumes { AfterFailure::Resume(wait) } else { AfterFailure::Reopen(wait) })
    }

    fn report(&mut self, error: SourceError, retry_in: Duration) -> Result<(), Closed> {
        self.link.lost(error.reason());
        if error.is_rejection() {
            self.access.rejected();
        }
        if error.is_of_answer() {
            self.is_unusable = true;
            self.sender.report_answers::<T>(Some(&error))?;
        }
        if !self.retry.trouble.is_said(error.to_string(), Some(retry_in)) {
            return Ok(());
        }
        let (resource, server) = (Some(T::RESOURCE), Some(self.access.server()));
        self.sender.outlet.report(SourceReport::Trouble { resource, server, error, retry_in })
    }

    /// Reports the resource as empty, because the server does not have it.
    fn pass_absence(&mut self) -> Result<AfterFailure, Closed> {
        if !std::mem::replace(&mut self.is_reported_absent, true) {
            self.sender.events.extend([Event::Relist(T::RESOURCE), Event::Listed(T::RESOURCE)]);
        }
        self.link.heard();
        self.recovered()?;
        Ok(AfterFailure::Reopen(ABSENT))
    }

    fn recovered(&mut self) -> Result<(), Closed> {
        if self.retry.trouble.end() {
            self.is_wait_reported = false;
            if std::mem::take(&mut self.is_unusable) {
                self.sender.report_answers::<T>(None)?;
            }
            let (resource, at) = (T::RESOURCE, self.link.heard_at());
            self.sender.outlet.report(SourceReport::Recovered { resource, at })
        } else {
            Ok(())
        }
    }
}
