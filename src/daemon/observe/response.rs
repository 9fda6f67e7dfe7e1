//! Responses with a content type.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};

pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

pub(super) const JSON: &str = "application/json";

pub(super) fn text(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns an answer with the JSON of kube-proxy's probes.
pub(super) fn json(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = text(status, JSON, body);
    let no_sniffing = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, no_sniffing);
    response
}
