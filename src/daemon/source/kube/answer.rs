//! Requests for lists and watches, and their answers in either format.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;

use super::format::{self, Format, Formats};
use super::frames::Frames;
use super::room::{NoRoom, Share};

/// Most bytes of an answer with an error status.
const LONGEST_ERROR: usize = 1 << 20;

/// The body of a page, its format, and its share of the room for lists.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) format: Format,
    pub(super) body: Vec<u8>,
    _share: Share,
}

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum PageError {
    /// The request failed, or the server refused it.
    Request(#[from] kube::Error),
    /// The lists have no room for it.
    NoRoom(#[from] NoRoom),
}

/// Requests a page of a list.
///
/// # Errors
/// The request failed, the server refused it, or the lists have no room for the page.
pub(super) async fn request_page(
    client: &Client,
    request: Request<Vec<u8>>,
    formats: Formats,
    mut share: Share,
) -> Result<Answer, PageError> {
    let answer = request_answer(client, request, formats).await?;
    let (format, mut rest) = (Format::of(answer.headers()), answer.into_body());
    let mut body = Vec::new();
    while let Some(frame) = rest.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        share.grow(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(Answer { format, body, _share: share })
}

/// Opens a watch.
///
/// # Errors
/// The request failed, or the server refused it.
pub(super) async fn request_frames(
    client: &Client,
    mut request: Request<Vec<u8>>,
    formats: Formats,
) -> Result<Frames, kube::Error> {
    // Events are too small for compression to be worth its time.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let answer = request_answer(client, request, formats).await?;
    Ok(Frames::new(Format::of(answer.headers()), answer.into_body()))
}

async fn request_answer(
    client: &Client,
    mut request: Request<Vec<u8>>,
    formats: Formats,
) -> Result<Response<Body>, kube::Error> {
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(formats.accept()));
    let answer = client.send(request.map(Body::from)).await?;
    let code = answer.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(answer);
    }
    let format = Format::of(answer.headers());
    let retry_after = retry_after(answer.headers());
    let body = collect(answer.into_body(), LONGEST_ERROR).await?;
    // Proxies, and servers without the path, answer with other text.
    let mut status = format::status(format, &body).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&body);
        Status::failure(text.trim(), "").with_code(code.as_u16())
    });
    if let Some(seconds) = retry_after {
        ask_to_wait(&mut status, seconds);
    }
    Err(kube::Error::Api(status.boxed()))
}

async fn collect(body: Body, limit: usize) -> Result<hyper::body::Bytes, kube::Error> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("the answer has more than {limit} bytes");
            Err(kube::Error::SerdeError(serde::de::Error::custom(message)))
        }
        Err(error) => Err(match error.downcast::<kube::Error>() {
            Ok(error) => *error,
            Err(error) => kube::Error::Service(error),
        }),
    }
}

/// Sets the time after which the request may be repeated, where the body may have it too.
fn ask_to_wait(status: &mut Status, seconds: u32) {
    let details = status.details.get_or_insert_with(|| StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    details.retry_after_seconds = seconds;
}

/// Returns the seconds of the header `Retry-After` (RFC 9110 section 10.2.3), which may be any number.
/// API servers send no date there.
fn retry_after(headers: &HeaderMap) -> Option<u32> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_time_is_any_number_and_no_date() {
        let seconds = |text| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text)]));
        let text = HeaderValue::from_static;
        assert_eq!(seconds(text("7")), Some(7));
        assert_eq!(seconds(text("99999999999999999999")), Some(u32::MAX));
        assert_eq!(seconds(text("Fri, 31 Dec 2027 23:59:59 GMT")), None);
    }
}
