//! Limits the time without incoming data, and ends answers to an address that this node has lost.
//!
//! A silent watch is no fault: the API server promises no bookmarks, and sends none that has the
//! version of the last one (`cacheWatcher` of `cache_watcher.go`). So the watch ends without an
//! error, and the reflector requests it again from the last version. That request probes the
//! connection, the server and all between them. It loses no event, and a server that does not
//! answer it is a fault.
//!
//! The read timeout of `kube` fails instead, and resets its timer at every read, which wakes
//! tokio's driver once more.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper_util::client::legacy::connect::HttpInfo;
use tokio::time::Instant;

use super::backoff::random;
use super::contact::Link;
use super::patience::Patience;

/// Time without data after which an unfinished list, or a first answer, counts as lost.
const SILENCE: Duration = Duration::from_secs(90);

/// Least time without data after which a watch is requested again. Longer than a minute: servers
/// that send bookmarks send one about each minute (`bookmarkFrequency` of `cacher.go`).
const QUIET: Duration = Duration::from_secs(65);

/// Random part of that time, so that the watches of many nodes do not begin again together.
const SPREAD: Duration = Duration::from_secs(10);

/// Time limit of the answer to a watch that worked before. The server sends its head at once, if
/// it does not queue the request (API priority and fairness: at most a quarter of a minute). A
/// lost connection is thus noticed after at most `QUIET + SPREAD + ANSWER`, which is 90 s.
const ANSWER: Duration = Duration::from_secs(15);

type BoxError = Box<dyn StdError + Send + Sync>;

/// The effect of silence on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    /// A watch ends; it is requested again.
    Ends,
    /// A list fails.
    Fails,
}

impl Silent {
    /// Returns the time limit of the head of the answer.
    fn answer(self, link: &Link) -> Duration {
        match (self, link.is_up()) {
            (Self::Ends, true) => ANSWER,
            (Self::Ends, false) | (Self::Fails, _) => SILENCE,
        }
    }

    /// Returns the time limit of the next data.
    fn data(self) -> Duration {
        match self {
            Self::Ends => QUIET + SPREAD.mul_f64(random()),
            Self::Fails => SILENCE,
        }
    }
}

/// Returns the answer, whose body ends or fails in `silence`.
///
/// # Errors
/// The request failed, or no answer began in time.
pub(super) async fn heard<B, E: Into<BoxError>>(
    answer: impl Future<Output = Result<Response<B>, E>>,
    silence: Silent,
    link: &Link,
) -> Result<Response<Heard<B>>, BoxError> {
    let limit = silence.answer(link);
    let answer = tokio::time::timeout(limit, answer).await.map_err(|_| silent(limit))?;
    let answer = answer.map_err(Into::into)?;
    let link = answer.status().is_success().then(|| link.clone());
    if let Some(link) = &link {
        link.heard();
    }
    let local = answer.extensions().get::<HttpInfo>().map(|it| it.local_addr().ip());
    let removed = link.as_ref().zip(local).map(|(link, local)| link.removed(local.to_canonical()));
    let removed = removed.unwrap_or_else(|| pending().boxed());
    Ok(answer.map(|body| Heard { removed, ..Heard::new(body, silence, link) }))
}

/// Body that ends or fails when no data has arrived for a while.
pub(super) struct Heard<B> {
    body: B,
    silence: Silent,
    limit: Duration,
    /// `None` if the answer is an error status.
    link: Option<Link>,
    last: Instant,
    patience: Patience,
    /// Completes when this node has lost the address of the connection.
    removed: BoxFuture<'static, ()>,
}

impl<B> Heard<B> {
    fn new(body: B, silence: Silent, link: Option<Link>) -> Self {
        let (last, limit, patience) = (Instant::now(), silence.data(), Patience::new());
        Self { body, silence, limit, link, last, patience, removed: pending().boxed() }
    }

    /// Returns the last frame of a silent body.
    fn give_up(&self) -> Option<Result<Frame<Bytes>, BoxError>> {
        match self.silence {
            Silent::Ends => {
                tracing::debug!("nothing arrived for {} s: watching again", self.limit.as_secs());
                None
            }
            Silent::Fails => Some(Err(silent(self.limit).into())),
        }
    }
}

impl<B> Body for Heard<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.last = Instant::now();
            if let (Some(link), Some(Ok(_))) = (&self.link, &frame) {
                link.heard_now(self.last);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if self.removed.as_mut().poll(context).is_ready() {
            self.removed = pending().boxed();
            return Poll::Ready(self.give_up());
        }
        let due = self.last + self.limit;
        self.patience.poll(due, context).map(|()| self.give_up())
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn silent(limit: Duration) -> io::Error {
    let message = format!("nothing arrived for {} s", limit.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use engine::model::Resource;
    use futures::channel::mpsc;
    use futures::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;
    use crate::source::kube::contact::Contact;

    const SECOND: Duration = Duration::from_secs(1);

    type Contacts = Arc<Mutex<Vec<Contact>>>;

    fn link() -> (Link, Contacts) {
        let contacts = Contacts::default();
        let sink = Arc::clone(&contacts);
        let listener = move |_, contact| sink.lock().unwrap().push(contact);
        (Link::new(Resource::Nodes, Arc::new(listener)), contacts)
    }

    /// Sends a piece of data after each of these times and then nothing. Returns the time after
    /// which the body ends, and whether it fails.
    async fn end(silence: Silent, pauses: &[u32]) -> (Duration, bool) {
        let (link, contacts) = link();
        let (sender, body) = mpsc::unbounded::<Result<_, Infallible>>();
        let answer = Response::new(StreamBody::new(body.chain(stream::pending())));
        let answer = heard(async { Ok::<_, BoxError>(answer) }, silence, &link).await.unwrap();
        let pauses = pauses.to_vec();
        tokio::spawn(async move {
            for pause in pauses {
                tokio::time::sleep(SECOND * pause).await;
                sender.unbounded_send(Ok(Frame::data(Bytes::from("x")))).unwrap();
            }
        });
        let start = Instant::now();
        let fails = answer.into_body().collect().await.is_err();
        assert!(contacts.lock().unwrap().iter().all(|it| *it == Contact::Heard));
        (start.elapsed(), fails)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_ends_without_an_error_and_a_silent_list_fails() {
        let (after, fails) = end(Silent::Ends, &[]).await;
        assert!(!fails && after >= QUIET && after <= QUIET + SPREAD + SECOND, "{after:?}");
        let (after, fails) = end(Silent::Fails, &[]).await;
        assert!(fails && after >= SILENCE && after <= SILENCE + SECOND, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn data_within_the_limit_keeps_a_watch_open() {
        let (after, fails) = end(Silent::Ends, &[64; 5]).await;
        assert!(!fails && after >= SECOND * 320 + QUIET, "{after:?}");
        assert!(after <= SECOND * 320 + QUIET + SPREAD + SECOND, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_worked_is_answered_sooner_than_the_first_request() {
        let (link, _) = link();
        let wait = async |silence| {
            let (start, never) = (Instant::now(), stream::pending::<()>().into_future());
            let answer = async { Ok::<_, BoxError>(Response::new(drop_body(never.await))) };
            let error = heard(answer, silence, &link).await.err().unwrap();
            (start.elapsed().as_secs(), error.to_string())
        };
        let of = |limit: u64| (limit, format!("nothing arrived for {limit} s"));
        assert_eq!(wait(Silent::Ends).await, of(90));
        link.heard();
        assert_eq!(wait(Silent::Ends).await, of(15));
        assert_eq!(wait(Silent::Fails).await, of(90));
        link.lost("unreachable");
        assert_eq!(wait(Silent::Ends).await, of(90));
    }

    fn drop_body<T>(_: T) -> http_body_util::Empty<Bytes> {
        http_body_util::Empty::new()
    }

    #[test]
    fn watches_of_many_nodes_begin_again_over_some_seconds() {
        let mut seconds = [0_u32; 10];
        for _ in 0..10_000 {
            let limit = Silent::Ends.data();
            assert!(limit >= QUIET && limit <= QUIET + SPREAD, "{limit:?}");
            let second = usize::try_from((limit - QUIET).as_secs()).unwrap();
            seconds[second.min(9)] += 1;
        }
        assert!(seconds.iter().all(|count| (800..1_200).contains(count)), "{seconds:?}");
        assert_eq!((QUIET + SPREAD + ANSWER).as_secs(), 90);
    }
}
