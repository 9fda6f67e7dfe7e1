//! A list of objects and then every change of it, as the server tells them.
//!
//! Says what `kube::runtime::watcher` says, in its words, but reads the lines of a watch itself:
//! most of what a change costs is reading its line, and `watcher` knows one way only.
//!
//! ```text
//!            +-- 410, or a first watch that ends early ------------------------+
//!            v                                                                 |
//!   empty --> pages of a list -----> listed --> watching --it ends--> listed   |
//!      +----> first watch --its last bookmark------^  +------------------------+
//! ```

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::Pin;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use hyper::header::{ACCEPT_ENCODING, HeaderValue};
use kube::api::{Api, ListParams, WatchParams};
use kube::core::{Request, Status, WatchEvent};
use kube::runtime::watcher::{self, Config, Event, InitialListStrategy};
use kube::{Client, Error};

use super::careful::Careful;
use super::line::with_object;
use super::resource::Followed;

type Next<T> = Result<Event<Careful<T>>, watcher::Error>;

/// The objects that `config` selects, for ever; after a failure it goes on when it is asked again.
pub(super) fn list_watch<T: Followed>(
    client: Client,
    config: Config,
    reading: Reading,
) -> BoxStream<'static, Next<T>> {
    let first = ListWatch { client, config, reading, rest: String::new(), state: State::Empty };
    stream::unfold(first, |mut it| async move { Some((it.next().await, it)) }).boxed()
}

/// How objects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Quickly: one of the wrong shape loses its neighbours, and has no name.
    Quick,
    /// With [`Careful`].
    Careful,
}

struct ListWatch<T> {
    client: Client,
    config: Config,
    reading: Reading,
    /// Room for reading a line.
    rest: String,
    state: State<T>,
}

enum State<T> {
    /// Nothing is known.
    Empty,
    /// Some pages of a list have been read, and this is left of the last.
    Paging { objects: VecDeque<Careful<T>>, next: Page },
    /// The server tells the list in a watch, and has not ended it.
    FirstWatch(Lines),
    /// The list is known at this version.
    Listed { version: String },
    /// The server tells of changes since this version.
    Watching { version: String, lines: Lines },
}

/// What follows the objects of a page.
enum Page {
    /// Another page, the first if there is no token.
    More { token: Option<String> },
    /// The end of a list of this version.
    Last { version: String },
}

impl<T: Followed> ListWatch<T> {
    async fn next(&mut self) -> Next<T> {
        loop {
            let said = match mem::replace(&mut self.state, State::Empty) {
                State::Empty => self.start().await.map(Some),
                State::Paging { objects, next } => self.page(objects, next).await,
                State::FirstWatch(lines) => self.first_watch(lines).await,
                State::Listed { version } => self.watch(version).await,
                State::Watching { version, lines } => self.watching(version, lines).await,
            };
            if let Some(said) = said.transpose() {
                return said;
            }
        }
    }

    async fn start(&mut self) -> Next<T> {
        self.state = match self.config.initial_list_strategy {
            InitialListStrategy::ListWatch => {
                State::Paging { objects: VecDeque::new(), next: Page::More { token: None } }
            }
            InitialListStrategy::StreamingList => {
                let lines = self.open("0", true).await;
                State::FirstWatch(lines.map_err(watcher::Error::WatchStartFailed)?)
            }
        };
        Ok(Event::Init)
    }

    async fn page(
        &mut self,
        mut objects: VecDeque<Careful<T>>,
        next: Page,
    ) -> Result<Option<Event<Careful<T>>>, watcher::Error> {
        if let Some(object) = objects.pop_front() {
            self.state = State::Paging { objects, next };
            return Ok(Some(Event::InitApply(object)));
        }
        match next {
            Page::Last { version } => {
                self.state = State::Listed { version };
                Ok(Some(Event::InitDone))
            }
            Page::More { token } => {
                let (objects, next) = self.list(token).await?;
                self.state = State::Paging { objects, next };
                Ok(None)
            }
        }
    }

    async fn list(
        &mut self,
        token: Option<String>,
    ) -> Result<(VecDeque<Careful<T>>, Page), watcher::Error> {
        let asked = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            limit: self.config.page_size,
            continue_token: token,
            ..ListParams::default()
        };
        let client = self.client.clone();
        let (metadata, objects) = match self.reading {
            Reading::Quick => {
                let list = Api::<T>::all(client).list(&asked).await;
                let list = list.map_err(watcher::Error::InitialListFailed)?;
                (list.metadata, list.items.into_iter().map(Careful::Read).collect())
            }
            Reading::Careful => {
                let list = Api::<Careful<T>>::all(client).list(&asked).await;
                let list = list.map_err(watcher::Error::InitialListFailed)?;
                (list.metadata, list.items.into())
            }
        };
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        match (said(metadata.continue_), said(metadata.resource_version)) {
            (Some(token), _) => Ok((objects, Page::More { token: Some(token) })),
            (None, Some(version)) => Ok((objects, Page::Last { version })),
            (None, None) => Err(watcher::Error::NoResourceVersion),
        }
    }

    async fn first_watch(
        &mut self,
        mut lines: Lines,
    ) -> Result<Option<Event<Careful<T>>>, watcher::Error> {
        match self.read(&mut lines).await {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                self.state = State::FirstWatch(lines);
                Ok(Some(Event::InitApply(object)))
            }
            Some(Ok(WatchEvent::Bookmark(mark)))
                if mark.metadata.annotations.contains_key(END_OF_LIST) =>
            {
                self.state = State::Watching { version: mark.metadata.resource_version, lines };
                Ok(Some(Event::InitDone))
            }
            // The API says that there are no deletes in a list.
            Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_))) => {
                self.state = State::FirstWatch(lines);
                Ok(None)
            }
            Some(Ok(WatchEvent::Error(status))) => {
                if status.code != EXPIRED {
                    self.state = State::FirstWatch(lines);
                }
                Err(watcher::Error::WatchError(status.boxed()))
            }
            Some(Err(error)) => {
                self.state = State::FirstWatch(lines);
                Err(watcher::Error::WatchFailed(error))
            }
            None => Ok(None),
        }
    }

    async fn watch(
        &mut self,
        version: String,
    ) -> Result<Option<Event<Careful<T>>>, watcher::Error> {
        match self.open(&version, false).await {
            Ok(lines) => {
                self.state = State::Watching { version, lines };
                Ok(None)
            }
            Err(error) => {
                self.state = State::Listed { version };
                Err(watcher::Error::WatchStartFailed(error))
            }
        }
    }

    async fn watching(
        &mut self,
        version: String,
        mut lines: Lines,
    ) -> Result<Option<Event<Careful<T>>>, watcher::Error> {
        let (version, said) = match self.read(&mut lines).await {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                (follow(version, &object)?, Ok(Some(Event::Apply(object))))
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                (follow(version, &object)?, Ok(Some(Event::Delete(object))))
            }
            Some(Ok(WatchEvent::Bookmark(mark))) => (mark.metadata.resource_version, Ok(None)),
            Some(Ok(WatchEvent::Error(status))) if status.code == EXPIRED => {
                return Err(watcher::Error::WatchError(status.boxed()));
            }
            Some(Ok(WatchEvent::Error(status))) => {
                (version, Err(watcher::Error::WatchError(status.boxed())))
            }
            Some(Err(error)) => (version, Err(watcher::Error::WatchFailed(error))),
            None => {
                self.state = State::Listed { version };
                return Ok(None);
            }
        };
        self.state = State::Watching { version, lines };
        said
    }

    async fn open(&mut self, version: &str, with_list: bool) -> Result<Lines, Error> {
        let asked = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: self.config.timeout,
            bookmarks: true,
            send_initial_events: with_list,
        };
        let request = Request::new(T::url_path(&(), None)).watch(&asked, version);
        let mut request = request.map_err(Error::BuildRequest)?;
        // A stream that is compressed as a whole is not read line by line.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let reader = Box::pin(self.client.request_stream(request).await?);
        let open = Duration::from_secs(self.config.timeout.unwrap_or(LONGEST_WATCH).into());
        Ok(Lines { reader, line: Vec::new(), patience: open + MARGIN })
    }

    /// The event of the next line; `None` at the end of the watch.
    async fn read(&mut self, lines: &mut Lines) -> Option<Result<WatchEvent<Careful<T>>, Error>> {
        loop {
            let line = match lines.next().await? {
                Ok(line) => line,
                Err(error) => return Some(Err(Error::ReadEvents(error))),
            };
            let read = match self.reading {
                Reading::Quick => T::read_line(line, &mut self.rest)
                    .map(|event| with_object(event, Careful::Read)),
                Reading::Careful => serde_json::from_str(line),
            };
            match read {
                Ok(event) => return Some(Ok(event)),
                // The connection broke in the middle of the line.
                Err(error) if error.is_eof() => {}
                Err(error) => return Some(Err(refusal(line, error))),
            }
        }
    }
}

/// A server that refuses in the middle of a watch says so without an event around it.
fn refusal(line: &str, error: serde_json::Error) -> Error {
    match serde_json::from_str::<Status>(line) {
        Ok(status) => Error::Api(status.boxed()),
        Err(_) => Error::SerdeError(error),
    }
}

/// Puts the version of an object in the place of the one before.
fn follow<T: Followed>(mut version: String, object: &Careful<T>) -> Result<String, watcher::Error> {
    let next = object.version().filter(|next| !next.is_empty());
    version.clear();
    version.push_str(next.ok_or(watcher::Error::NoResourceVersion)?);
    Ok(version)
}

/// The annotation of the bookmark that ends a list in a watch (KEP-3157).
const END_OF_LIST: &str = "k8s.io/initial-events-end";

/// The code of a version that is too old to go on from.
const EXPIRED: u16 = 410;

/// Seconds that a watch is open unless it is said.
const LONGEST_WATCH: u32 = 290;

/// How much longer than the watch should last a line is waited for.
const MARGIN: Duration = Duration::from_secs(5);

/// Longer lines than usual leave their room.
const KEPT_ROOM: usize = 256 << 10;

/// The lines of a watch.
struct Lines {
    reader: Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
    patience: Duration,
}

impl Lines {
    /// The next line without its end; `None` when the server or the connection has ended.
    async fn next(&mut self) -> Option<io::Result<&str>> {
        self.line.clear();
        self.line.shrink_to(KEPT_ROOM);
        let read = self.reader.read_until(b'\n', &mut self.line);
        match tokio::time::timeout(self.patience, read).await {
            Ok(Ok(0)) | Err(_) => None,
            Ok(Ok(_)) => {
                let text = str::from_utf8(self.line.trim_ascii_end());
                Some(text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
            }
            Ok(Err(error)) if is_end(&error) => None,
            Ok(Err(error)) => Some(Err(error)),
        }
    }
}

/// Whether the connection just ended, as connections do after a while: without the last chunk, or
/// without TLS's goodbye.
fn is_end(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let error_of_io = error.downcast_ref::<io::Error>();
        let kind = error_of_io.map(io::Error::kind);
        let is_chunk = || error.to_string().contains("unexpected EOF during chunk");
        if kind == Some(io::ErrorKind::UnexpectedEof) || is_chunk() {
            return true;
        }
        // `source` of an `io::Error` is not what it was made of, but the source of that.
        cause = match error_of_io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(said: &'static [u8]) -> Lines {
        Lines { reader: Box::pin(said), line: Vec::new(), patience: MARGIN }
    }

    #[tokio::test]
    async fn lines_come_one_by_one_and_the_last_may_be_cut() {
        let mut lines = lines(b"{}\r\n\n{\xff}\n{\"a");
        assert_eq!(lines.next().await.unwrap().unwrap(), "{}");
        assert_eq!(lines.next().await.unwrap().unwrap(), "");
        let error = lines.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(lines.next().await.unwrap().unwrap(), "{\"a");
        assert!(lines.next().await.is_none());
    }

    #[test]
    fn a_connection_that_was_cut_has_ended_and_one_that_was_reset_has_failed() {
        let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(is_end(&cut) && is_end(&io::Error::other(io::Error::other(cut))));
        assert!(is_end(&io::Error::other("unexpected EOF during chunk size line")));
        assert!(!is_end(&io::Error::from(io::ErrorKind::ConnectionReset)));
        assert!(!is_end(&io::Error::other(io::Error::from(io::ErrorKind::TimedOut))));
    }
}
