//! Lists and then watches one resource, in the format that the server answers.
//!
//! ```text
//!             list, page by page                      end of the watch: again from `version`
//!   Empty ---------------------> Listing --> Listed <--------------------------+
//!     |                                        |                              |
//!     |   watch with sendInitialEvents         +----------------------> Watching
//!     +--------------------------> Initial ----- bookmark of the end --------> +
//! ```
//!
//! After etcd was restored from a backup the server has older versions than the last one, and answers
//! a watch from that version with silence until it has a later one. So the newest version is read
//! before a watch that ended early is opened again. Only a read without a version returns it: one
//! with version 0 may be answered by a watch cache that is behind, and ignores the limit of one
//! object.
//!
//! A failure is returned once; the next call continues in the same state, or lists again after 410.

use std::mem;
use std::ops::Range;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use kube::api::{DynamicObject, ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::{Client, Resource as _};
use tokio::time::Instant;

use super::answer::{Answer, PageError, request_frames, request_page};
use super::backoff::random;
use super::format::{self, DecodeError, Format, Formats, ListPage, WatchItem};
use super::frames::{FrameError, Frames, LONGEST};
use super::parsed::Parsed;
use super::resources::api_resource;
use super::room::{NoRoom, Share};
use crate::source::objects::Followed;

/// Objects in one page of a list of the newest state.
const PAGE: u32 = 500;

/// Time in seconds after which the server ends a watch normally: random between these, as in
/// client-go, so that the watches of many nodes that began together do not end together.
const WATCH_SECONDS: Range<f64> = 300.0..600.0;

/// The objects that the server sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// Label selector.
    pub(super) labels: Option<String>,
    /// Field selector.
    pub(super) fields: Option<String>,
    /// The state that a list shows.
    pub(super) freshness: Freshness,
}

/// How new the state of a list is, as in client-go. The watch cache of the API server answers all but
/// the last, so that the lists of many nodes do not reach etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Any state of the watch cache.
    #[default]
    Any,
    /// That of this version or a later one: another server may be behind the one before.
    NotOlderThan(String),
    /// The newest state: the server does not have the last version.
    Newest,
}

impl Freshness {
    /// From now on no list is older than this version.
    pub(super) fn follow(&mut self, version: &str) {
        if let Self::NotOlderThan(reached) = self {
            version.clone_into(reached);
        } else {
            *self = Self::NotOlderThan(version.to_owned());
        }
    }

    /// Returns the parameter `resourceVersion`.
    fn version(&self) -> &str {
        match self {
            Self::Any => "0",
            Self::NotOlderThan(version) => version,
            Self::Newest => "",
        }
    }
}

/// How the resource is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Method {
    /// A list is the beginning of a watch.
    pub(super) streams_lists: bool,
    pub(super) formats: Formats,
}

/// What the server sent.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// A list begins.
    Init,
    /// An object of the list.
    InitApply(Parsed<T>),
    /// The list of this version is complete.
    InitDone(String),
    /// An object was added or changed.
    Apply(Parsed<T>),
    /// An object was deleted.
    Delete(Parsed<T>),
}

/// Why a request failed or ended early.
#[derive(Debug)]
pub(super) enum StreamError {
    /// A page of a list was refused or not answered.
    List(kube::Error),
    /// A watch was refused or not answered.
    Open(kube::Error),
    /// An open watch broke.
    Watch(kube::Error),
    /// The server sent an event of type ERROR.
    Event(Box<Status>),
    /// The answer has another form; contains what is wrong.
    Malformed { message: String, is_protobuf: bool },
    /// The lists need too much memory.
    NoRoom,
    /// The newest version is older than the last one. The status is that of an expired version.
    WentBack(Box<Status>),
    /// The server ended a streaming list before its last bookmark.
    Incomplete,
    /// The list is empty, and the one before was not.
    Emptied,
    /// The server began a streaming list and sends nothing for this time.
    Stalled(Duration),
}

impl From<NoRoom> for StreamError {
    fn from(NoRoom: NoRoom) -> Self {
        Self::NoRoom
    }
}

impl StreamError {
    pub(super) fn went_back(versions: &str) -> Self {
        Self::WentBack(Status::failure(versions, "Expired").with_code(410).boxed())
    }

    /// Returns the status that the server sent, if there is one.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Event(status)
            | Self::WentBack(status)
            | Self::List(kube::Error::Api(status))
            | Self::Open(kube::Error::Api(status))
            | Self::Watch(kube::Error::Api(status)) => Some(status),
            Self::List(_)
            | Self::Open(_)
            | Self::Watch(_)
            | Self::Malformed { .. }
            | Self::NoRoom
            | Self::Incomplete
            | Self::Emptied
            | Self::Stalled(_) => None,
        }
    }

    fn without_version() -> Self {
        let message = "no metadata.resourceVersion".to_owned();
        Self::Malformed { message, is_protobuf: false }
    }
}

impl From<DecodeError> for StreamError {
    fn from(error: DecodeError) -> Self {
        let (message, is_protobuf) = (error.to_string(), matches!(error, DecodeError::Protobuf(_)));
        if let DecodeError::Status(status) = error {
            return Self::Watch(kube::Error::Api(status));
        }
        Self::Malformed { message, is_protobuf }
    }
}

impl From<PageError> for StreamError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Request(error) => Self::List(error),
            PageError::NoRoom(error) => error.into(),
        }
    }
}

/// Reader of one resource.
struct Reflector<T> {
    client: Client,
    request: Request,
    selection: Selection,
    method: Method,
    state: StreamState<T>,
    /// What the objects of the list take.
    share: Share,
}

enum StreamState<T> {
    Empty,
    /// Objects of a page that were not returned yet, the version of the list, and the token of the
    /// next page. `None` before the first page.
    Listing(Option<(std::vec::IntoIter<Parsed<T>>, String, String)>),
    /// The beginning of a streaming list.
    Initial(Opened),
    /// All up to `version` was returned. The server may have lost it, unless it `is_checked`.
    Listed {
        version: String,
        is_checked: bool,
    },
    Watching {
        version: String,
        opened: Opened,
    },
}

/// An open watch.
struct Opened {
    frames: Frames,
    /// Time at which the server ends it.
    ends: Instant,
}

/// A step: an event or an error, or nothing yet.
type StreamStep<T> = Option<Result<Event<T>, StreamError>>;

/// Returns the endless stream of events.
pub(super) fn reflect<T: Followed>(
    client: Client,
    selection: Selection,
    method: Method,
    share: Share,
) -> BoxStream<'static, Result<Event<T>, StreamError>> {
    let request = Request::new(DynamicObject::url_path(&api_resource(T::RESOURCE), None));
    let state = StreamState::Empty;
    let reflector = Reflector { client, request, selection, method, state, share };
    stream::unfold(reflector, |mut reflector| async move {
        loop {
            if let Some(result) = reflector.step().await {
                return Some((result, reflector));
            }
        }
    })
    .boxed()
}

impl<T: Followed> Reflector<T> {
    async fn step(&mut self) -> StreamStep<T> {
        match mem::replace(&mut self.state, StreamState::Empty) {
            StreamState::Empty if self.method.streams_lists => {
                let version = self.selection.freshness.version().to_owned();
                let opened = self.open(&version, true).await;
                Some(opened.map(|opened| {
                    self.state = StreamState::Initial(opened);
                    Event::Init
                }))
            }
            StreamState::Empty => {
                self.state = StreamState::Listing(None);
                Some(Ok(Event::Init))
            }
            StreamState::Listing(page) => self.list(page).await,
            StreamState::Initial(opened) => self.initial(opened).await,
            StreamState::Listed { version, is_checked: false } => {
                let checked = self.check(&version).await;
                self.state = StreamState::Listed { version, is_checked: checked.is_ok() };
                checked.err().map(Err)
            }
            StreamState::Listed { version, is_checked: true } => {
                match self.open(&version, false).await {
                    Ok(opened) => {
                        self.state = StreamState::Watching { version, opened };
                        None
                    }
                    Err(error) => {
                        self.state = StreamState::Listed { version, is_checked: false };
                        Some(Err(error))
                    }
                }
            }
            StreamState::Watching { version, opened } => self.watch(version, opened).await,
        }
    }

    async fn list(
        &mut self,
        page: Option<(std::vec::IntoIter<Parsed<T>>, String, String)>,
    ) -> StreamStep<T> {
        let mut token = None;
        if let Some((mut items, version, next)) = page {
            if let Some(item) = items.next() {
                self.state = StreamState::Listing(Some((items, version, next)));
                return Some(Ok(Event::InitApply(item)));
            }
            if next.is_empty() {
                self.state = StreamState::Listed { version: version.clone(), is_checked: true };
                return Some(Ok(Event::InitDone(version)));
            }
            token = Some(next);
        }
        match self.page(token.clone()).await {
            Ok(ListPage { version, next, .. }) if version.is_empty() && next.is_empty() => {
                Some(Err(StreamError::without_version()))
            }
            Ok(ListPage { items, version, next }) => {
                self.state = StreamState::Listing(Some((items.into_iter(), version, next)));
                None
            }
            Err(error) => {
                // Only a page after the first can be requested alone: the state may have changed.
                let page = token.map(|token| (Vec::new().into_iter(), String::new(), token));
                self.state = StreamState::Listing(page);
                Some(Err(error))
            }
        }
    }

    /// Requests a page. The watch cache ignores a limit or, with the version that it has to reach,
    /// is not used at all: a list that it answers is one page.
    async fn page(&mut self, token: Option<String>) -> Result<ListPage<Parsed<T>>, StreamError> {
        let freshness = &self.selection.freshness;
        let is_newest = *freshness == Freshness::Newest;
        let params = ListParams {
            limit: is_newest.then_some(PAGE),
            continue_token: token,
            resource_version: (!is_newest).then(|| freshness.version().to_owned()),
            ..ListParams::default()
        };
        let (page, answer) = self.read(params).await?;
        self.share.keep(page.items.len(), answer.format, answer.body.len())?;
        Ok(page)
    }

    /// Requests the selected objects.
    async fn read(
        &mut self,
        params: ListParams,
    ) -> Result<(ListPage<Parsed<T>>, Answer), StreamError> {
        let (labels, fields) = (self.selection.labels.clone(), self.selection.fields.clone());
        let params = ListParams { label_selector: labels, field_selector: fields, ..params };
        let request = self.request.list(&params).map_err(kube::Error::BuildRequest);
        let request = request.map_err(StreamError::List)?;
        let (formats, share) = (self.method.formats, self.share.another());
        let answer = request_page(&self.client, request, formats, share).await?;
        Ok((format::page(answer.format, &answer.body)?, answer))
    }

    /// Fails if the newest version is older than this one.
    async fn check(&mut self, version: &str) -> Result<(), StreamError> {
        match self.read(ListParams { limit: Some(1), ..ListParams::default() }).await {
            Ok((page, _)) if is_before(&page.version, version) => {
                Err(StreamError::went_back(&format!("from {version} to {}", page.version)))
            }
            Ok(_) => Ok(()),
            // A client may have the right to watch without that to list.
            Err(StreamError::List(kube::Error::Api(status))) if status.code == 403 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens a watch from this version.
    async fn open(
        &mut self,
        version: &str,
        send_initial_events: bool,
    ) -> Result<Opened, StreamError> {
        let Range { start, end } = WATCH_SECONDS;
        let limit = Duration::from_secs_f64(start + (end - start) * random());
        let seconds = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        let ends = Instant::now() + Duration::from_secs(seconds.into());
        let params = WatchParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            send_initial_events,
        };
        let request = self.request.watch(&params, version).map_err(kube::Error::BuildRequest);
        let request = request.map_err(StreamError::Open)?;
        let frames = request_frames(&self.client, request, self.method.formats).await;
        Ok(Opened { frames: frames.map_err(StreamError::Open)?, ends })
    }

    async fn initial(&mut self, mut opened: Opened) -> StreamStep<T> {
        let share = Some(&mut self.share);
        let (event, next) = match next_item(&mut opened.frames, share).await {
            Some(Ok(WatchItem::Changed(object))) => (Some(Ok(Event::InitApply(object))), None),
            // An object is not deleted before it was sent; what a server means is unclear.
            Some(Ok(WatchItem::Deleted(_) | WatchItem::Bookmark { ends_list: false, .. })) => {
                (None, None)
            }
            Some(Ok(WatchItem::Bookmark { version, ends_list: true })) => {
                (Some(Ok(Event::InitDone(version.clone()))), Some(version))
            }
            Some(Ok(WatchItem::Error(status))) if status.code == 410 => {
                return Some(Err(StreamError::Event(status)));
            }
            Some(Ok(WatchItem::Error(status))) => (Some(Err(StreamError::Event(status))), None),
            Some(Err(error)) => (Some(Err(error)), None),
            None => return None,
        };
        self.state = match next {
            None => StreamState::Initial(opened),
            Some(version) => StreamState::Watching { version, opened },
        };
        event
    }

    async fn watch(&mut self, mut version: String, mut opened: Opened) -> StreamStep<T> {
        let event = match next_item(&mut opened.frames, None).await {
            Some(Ok(WatchItem::Changed(object))) => {
                Some(follow(&mut version, &object).map(|()| Event::Apply(object)))
            }
            Some(Ok(WatchItem::Deleted(object))) => {
                Some(follow(&mut version, &object).map(|()| Event::Delete(object)))
            }
            Some(Ok(WatchItem::Bookmark { version: reached, .. })) => {
                version = reached;
                None
            }
            Some(Ok(WatchItem::Error(status))) if status.code == 410 => {
                return Some(Err(StreamError::Event(status)));
            }
            Some(Ok(WatchItem::Error(status))) => Some(Err(StreamError::Event(status))),
            Some(Err(error)) => Some(Err(error)),
            None => {
                // The server ends a watch at its time, which is no reason for a check.
                let is_checked = Instant::now() >= opened.ends;
                self.state = StreamState::Listed { version, is_checked };
                return None;
            }
        };
        self.state = StreamState::Watching { version, opened };
        event
    }
}

/// Returns the next item of a watch; `None` at its end. One of a list takes its `share`.
async fn next_item<T: Followed>(
    frames: &mut Frames,
    share: Option<&mut Share>,
) -> Option<Result<WatchItem<Parsed<T>>, StreamError>> {
    let frame = match frames.next().await {
        Ok(frame) => frame?,
        Err(FrameError::Broken(error)) => return Some(Err(StreamError::Watch(error))),
        Err(FrameError::TooLong(length)) => {
            let message = format!("an event has {length} bytes: expected {LONGEST} at most");
            let is_protobuf = frames.format() == Format::Protobuf;
            return Some(Err(StreamError::Malformed { message, is_protobuf }));
        }
    };
    let kept = share.map_or(Ok(()), |share| share.keep(1, frames.format(), frame.len()));
    if let Err(error) = kept {
        return Some(Err(error.into()));
    }
    match format::event(frames.format(), &frame) {
        Ok(item) => item.map(Ok),
        Err(error) => Some(Err(error.into())),
    }
}

/// Returns whether one version is older than another. They can be compared as numbers since
/// Kubernetes 1.35 (KEP-5504); others are opaque.
fn is_before(one: &str, other: &str) -> bool {
    let versions = one.parse::<u64>().ok().zip(other.parse().ok());
    versions.is_some_and(|(one, other)| one < other)
}

/// Stores the version of an object, which every object has.
fn follow<T: Followed>(version: &mut String, object: &Parsed<T>) -> Result<(), StreamError> {
    let reached = object.version_text().ok_or_else(StreamError::without_version)?;
    version.clear();
    version.push_str(reached);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_are_numbers_are_compared() {
        let rows = [
            ("9", "10", true),
            ("10", "9", false),
            ("10", "10", false),
            ("", "10", false),
            ("9", "", false),
            ("9-a", "10", false),
            ("9", "a", false),
            ("-1", "10", false),
            ("9", "99999999999999999999", false),
        ];
        for (one, other, expected) in rows {
            assert_eq!(is_before(one, other), expected, "{one} {other}");
        }
    }
}
