//! Ends a connection without incoming data.
//!
//! The read timeout of `kube` also does this, but resets its timer at every read, which wakes
//! tokio's driver once more. Here the timer is reset only when it expires.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::contact::Link;

/// Time without data after which a connection counts as dead. The server sends a bookmark on each
/// watch about once a minute (at most every 75 s, its watch cache's `bookmarkFrequency` with
/// jitter), so working connections are not closed.
const SILENCE: Duration = Duration::from_secs(90);

type BoxError = Box<dyn StdError + Send + Sync>;

/// Returns the answer, whose body fails after [`SILENCE`].
///
/// # Errors
/// The request failed, or no answer began in time.
pub(super) async fn heard<B, E: Into<BoxError>>(
    answer: impl Future<Output = Result<Response<B>, E>>,
    link: &Link,
) -> Result<Response<Heard<B>>, BoxError> {
    let answer = tokio::time::timeout(SILENCE, answer).await.map_err(|_| silent())?;
    let answer = answer.map_err(Into::into)?;
    let link = answer.status().is_success().then(|| link.clone());
    link.iter().for_each(Link::heard);
    Ok(answer.map(|body| Heard::new(body, link)))
}

/// Body that fails when no data has arrived for [`SILENCE`].
pub(super) struct Heard<B> {
    body: B,
    /// `None` if the answer is an error status.
    link: Option<Link>,
    last: Instant,
    check: Pin<Box<Sleep>>,
}

impl<B> Heard<B> {
    fn new(body: B, link: Option<Link>) -> Self {
        let last = Instant::now();
        Self { body, link, last, check: Box::pin(tokio::time::sleep_until(last + SILENCE)) }
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
                link.heard();
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        while self.check.as_mut().poll(context).is_ready() {
            match next_check(self.last, Instant::now()) {
                Some(next) => self.check.as_mut().reset(next),
                None => return Poll::Ready(Some(Err(silent().into()))),
            }
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the time of the next check after data at `last`; `None` if that is too long before
/// `now`.
fn next_check(last: Instant, now: Instant) -> Option<Instant> {
    Some(last + SILENCE).filter(|next| *next > now)
}

fn silent() -> io::Error {
    let message = format!("nothing arrived for {} s", SILENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_dead_after_a_long_time_without_data() {
        let (last, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(next_check(last, last + SILENCE - second), Some(last + SILENCE));
        assert_eq!(next_check(last, last + SILENCE), None);
        let later = last + SILENCE - second;
        assert_eq!(next_check(later, last + SILENCE), Some(later + SILENCE));
    }
}
