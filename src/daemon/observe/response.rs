//! Responses with a content type.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{HeaderMap, Response, StatusCode};

use super::accept::Coding;

pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

pub(super) const JSON: &str = "application/json";

/// Returns an answer; browsers take its content type as it is. Every answer is made here.
pub(super) fn text(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns an answer that is compressed if `headers` ask for it, as promhttp does. A thread
/// compresses one answer at a time, so that only one has the memory of a compressor.
pub(super) fn coded(
    headers: &HeaderMap,
    content_type: &'static str,
    body: impl FnOnce() -> Bytes,
) -> Response<Full<Bytes>> {
    match Coding::accepted(headers) {
        None => text(StatusCode::NOT_ACCEPTABLE, PLAIN, "expected gzip or identity\n"),
        Some(Coding::Identity) => text(StatusCode::OK, content_type, body()),
        Some(Coding::Gzip) => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            // Writing to memory cannot fail.
            let compressed = encoder.write_all(&body()).and_then(|()| encoder.finish());
            let mut response = text(StatusCode::OK, content_type, compressed.unwrap_or_default());
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::read_to_string;

    use flate2::read::GzDecoder;
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use hyper::header::ACCEPT_ENCODING;

    use super::*;

    #[test]
    fn a_compressed_answer_has_the_same_content() {
        let content = "deltaproxy_events_total 1\n".repeat(10_000);
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        let response = coded(&headers, PLAIN, || content.clone().into());
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        assert!(body.len() < content.len() / 50, "{} bytes", body.len());
        assert_eq!(read_to_string(GzDecoder::new(&*body)).unwrap(), content);
    }
}
