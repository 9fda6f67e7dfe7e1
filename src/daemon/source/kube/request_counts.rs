//! Reports each request to the API server, for the metrics of Kubernetes' Go client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::{Method, Request, Response};
use kube::client::Body;
use tokio::time::Instant;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// HTTP method.
    pub method: Method,
    /// Host and port of the server.
    pub host: Arc<str>,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The head of the answer arrived, or the request failed.
    Answered {
        /// Length of the request's body in bytes.
        size: u64,
        /// HTTP status, `None` without an answer.
        code: Option<u16>,
    },
    /// The answer was read, or the request failed. Not reported for a watch.
    Done {
        /// Time since the request was sent.
        took: Duration,
        /// Length of the answer's body in bytes, `None` without an answer.
        size: Option<u64>,
    },
}

/// Callback for each [`Progress`]; it must be fast.
pub type OnRequest = Arc<dyn Fn(&Sent, Progress) + Send + Sync>;

/// Longest answer with one object, or with the few that commands list, in bytes. An API server stores
/// no object above 1.5 MiB.
const LONGEST: u64 = 16 << 20;

/// Returns true for a list of a source, which has a limit of its own.
fn is_list(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.contains("resourceVersion=") || query.contains("limit="))
}

/// Returns true for a watch, whose answer lasts minutes.
pub(super) fn is_watch(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

/// A request in progress. Reports its end when it is dropped.
pub(super) struct RequestCount {
    sent: Sent,
    listener: OnRequest,
    /// The request is a watch: its end is not reported.
    is_watch: bool,
    /// Its reader has a limit. Other answers end at [`LONGEST`], and then cannot be parsed.
    is_bounded: bool,
    since: Instant,
    /// Bytes of the answer so far; `None` without an answer.
    size: Option<u64>,
}

impl RequestCount {
    /// Begins to count a request to the server `host`.
    pub(super) fn of(request: &Request<Body>, host: &Arc<str>, listener: &OnRequest) -> Self {
        let sent = Sent { method: request.method().clone(), host: Arc::clone(host) };
        let query = request.uri().query();
        let (is_watch, listener) = (is_watch(query), Arc::clone(listener));
        let is_bounded = is_watch || is_list(query);
        Self { sent, listener, is_watch, is_bounded, since: Instant::now(), size: None }
    }

    /// Reports the outcome of a request of `size` bytes. Returns it, and reports its end.
    pub(super) fn answered<B, E>(
        mut self,
        size: u64,
        outcome: Result<Response<B>, E>,
    ) -> Result<Response<CountedBody<B>>, E> {
        let code = outcome.as_ref().ok().map(|answer| answer.status().as_u16());
        self.report(Progress::Answered { size, code });
        self.size = code.map(|_| 0);
        // The answer to a refused watch is short, so its end is reported.
        self.is_watch &= outcome.as_ref().is_ok_and(|answer| answer.status().is_success());
        Ok(outcome?.map(|body| CountedBody { body, count: Some(self) }))
    }

    fn report(&self, progress: Progress) {
        (self.listener)(&self.sent, progress);
    }
}

impl Drop for RequestCount {
    fn drop(&mut self) {
        if !self.is_watch {
            self.report(Progress::Done { took: self.since.elapsed(), size: self.size });
        }
    }
}

/// Body that counts its bytes.
pub(super) struct CountedBody<B> {
    body: B,
    /// `None` after the end of the body.
    count: Option<RequestCount>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match (&polled, &mut self.count) {
            (Poll::Ready(Some(Ok(frame))), Some(count)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                count.size = count.size.map(|size| size + bytes as u64);
                if !count.is_bounded && count.size > Some(LONGEST) {
                    return Poll::Ready(None);
                }
            }
            (Poll::Ready(None | Some(Err(_))), count) => drop(count.take()),
            (Poll::Ready(Some(Ok(_))), None) | (Poll::Pending, _) => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use futures::stream;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    /// Returns the reports of a request with this `answer`.
    async fn reports(
        request: Request<Body>,
        answer: Result<(u16, &'static str), &'static str>,
    ) -> Vec<(Sent, Progress)> {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&reports);
        let listener: OnRequest = Arc::new(move |sent, progress| {
            seen.lock().unwrap().push((sent.clone(), progress));
        });
        let count = RequestCount::of(&request, &"a:443".into(), &listener);
        let outcome = answer.map(|(code, text)| {
            let body = Full::new(Bytes::from(text));
            Response::builder().status(code).body(body).unwrap()
        });
        if let Ok(response) = count.answered(request.body().size_hint().lower(), outcome) {
            let body: Result<_, Infallible> = response.into_body().collect().await;
            assert_eq!(body.unwrap().to_bytes(), answer.unwrap().1);
        }
        drop(listener);
        Arc::into_inner(reports).unwrap().into_inner().unwrap()
    }

    fn request(method: Method, uri: &str, body: &'static str) -> Request<Body> {
        let body = Body::from(body.as_bytes().to_vec());
        Request::builder().method(method).uri(uri).body(body).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_reported_when_it_arrives_and_when_it_is_read() {
        let sent = Sent { method: Method::POST, host: "a:443".into() };
        let post = request(Method::POST, "/apis", "event");
        let (size, took) = (Some(3), Duration::ZERO);
        assert_eq!(
            reports(post, Ok((201, "yes"))).await,
            [
                (sent.clone(), Progress::Answered { size: 5, code: Some(201) }),
                (sent, Progress::Done { took, size })
            ]
        );
    }

    #[tokio::test]
    async fn an_answer_without_an_end_ends_unless_its_reader_has_a_limit() {
        let part = Bytes::from(vec![b'x'; 1 << 20]);
        let length = async |uri: &str| {
            let parts = std::iter::repeat_n(part.clone(), 100).map(Frame::data).map(Ok);
            let body = StreamBody::new(stream::iter(parts.collect::<Vec<Result<_, Infallible>>>()));
            let listener: OnRequest = Arc::new(|_, _| ());
            let count =
                RequestCount::of(&request(Method::GET, uri, ""), &"a:443".into(), &listener);
            let answer = count.answered(0, Ok::<_, Infallible>(Response::new(body))).unwrap();
            answer.into_body().collect().await.unwrap().to_bytes().len() >> 20
        };
        assert_eq!(length("/api/v1/nodes/a").await, 16);
        assert_eq!(length("/api/v1/nodes?resourceVersion=0").await, 100);
        assert_eq!(length("/api/v1/nodes?watch=true").await, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_never_done() {
        let watch = request(Method::GET, "/api/v1/nodes?limit=1&watch=true", "");
        let progress = reports(watch, Ok((200, "yes"))).await.into_iter().map(|(_, it)| it);
        let answered = Progress::Answered { size: 0, code: Some(200) };
        assert_eq!(progress.collect::<Vec<_>>(), [answered]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_watch_is_done() {
        let watch = request(Method::GET, "/api/v1/nodes?watch=true", "");
        let progress = reports(watch, Ok((503, "busy"))).await.into_iter().map(|(_, it)| it);
        let answered = Progress::Answered { size: 0, code: Some(503) };
        let done = Progress::Done { took: Duration::ZERO, size: Some(4) };
        assert_eq!(progress.collect::<Vec<_>>(), [answered, done]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_has_no_status() {
        for uri in ["/api/v1/nodes", "/api/v1/nodes?watch=true"] {
            let get = request(Method::GET, uri, "");
            let progress = reports(get, Err("refused")).await.into_iter().map(|(_, it)| it);
            let answered = Progress::Answered { size: 0, code: None };
            let done = Progress::Done { took: Duration::ZERO, size: None };
            assert_eq!(progress.collect::<Vec<_>>(), [answered, done], "{uri}");
        }
    }
}
