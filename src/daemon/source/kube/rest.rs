//! Single requests about objects as JSON, for commands that write objects.
//!
//! Unlike the watches, a request is not retried: it ends with an answer, an error, or after
//! [`LIMIT`].

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use hyper::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;

use super::client::{ApiServer, load_client};
use super::request_counts::OnRequest;
use super::source_error::SourceError;

/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(10);

/// A client of the API server.
#[derive(Clone)]
pub struct RestClient {
    client: Client,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[error("{request}: {error}")]
pub struct RestError {
    /// Method and path.
    pub request: String,
    /// The reason.
    #[source]
    pub error: SourceError,
}

impl RestError {
    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.error, SourceError::Refused { code: 404, .. })
    }

    /// Returns whether the object has another version than the one to be changed.
    pub fn is_conflict(&self) -> bool {
        matches!(self.error, SourceError::Refused { code: 409, .. })
    }

    /// Returns whether the client lacks the permission.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.error, SourceError::Forbidden(_))
    }

    /// Returns whether the server answered and did nothing.
    pub fn is_refusal(&self) -> bool {
        self.is_forbidden()
            || matches!(
                self.error,
                SourceError::Unauthorized(_) | SourceError::Refused { code: 400..500, .. }
            )
    }
}

impl From<RestError> for SourceError {
    fn from(error: RestError) -> Self {
        error.error
    }
}

impl RestClient {
    /// Loads address and credentials. Sends nothing.
    ///
    /// # Errors
    /// Address or credentials cannot be used.
    pub async fn load(server: &ApiServer) -> Result<Self, SourceError> {
        Self::load_counted(server, Arc::new(|_, _| ())).await
    }

    /// Does the same, and reports each request to `requests`.
    ///
    /// # Errors
    /// Address or credentials cannot be used.
    pub async fn load_counted(
        server: &ApiServer,
        requests: OnRequest,
    ) -> Result<Self, SourceError> {
        server.check()?;
        Ok(Self { client: load_client(server, requests).await? })
    }

    /// Returns the object or list at `path`.
    ///
    /// # Errors
    /// The server refused the request or did not answer.
    pub async fn read(&self, path: &str) -> Result<Value, RestError> {
        self.send(Method::GET, path, None).await
    }

    /// Creates an object in the list at `path`. Returns it as the server completed it.
    ///
    /// # Errors
    /// The server refused the request or did not answer.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, RestError> {
        self.send(Method::POST, path, Some(("application/json", object))).await
    }

    /// Changes the object at `path` by a JSON merge patch (RFC 7396). Returns the result.
    ///
    /// # Errors
    /// The server refused the request or did not answer.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, RestError> {
        self.send(Method::PATCH, path, Some(("application/merge-patch+json", patch))).await
    }

    /// Changes the object at `path` by a strategic merge patch, which merges the lists of the API that
    /// have a merge key. Returns the result.
    ///
    /// # Errors
    /// The server refused the request or did not answer.
    pub async fn strategic_merge(&self, path: &str, patch: &Value) -> Result<Value, RestError> {
        let kind = "application/strategic-merge-patch+json";
        self.send(Method::PATCH, path, Some((kind, patch))).await
    }

    /// Deletes the object at `path`. Returns whether it existed.
    ///
    /// # Errors
    /// The server refused the request or did not answer.
    pub async fn delete(&self, path: &str) -> Result<bool, RestError> {
        match self.send(Method::DELETE, path, None).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Watches the list at `path` from a resource version. Yields added and changed objects until
    /// the server ends the watch.
    ///
    /// # Errors
    /// The server refused the request or did not answer.
    pub async fn watch(
        &self,
        path: &str,
        version: &str,
    ) -> Result<impl Stream<Item = Result<Value, RestError>> + Send + use<>, RestError> {
        let uri = format!("{path}?watch=true&resourceVersion={version}");
        let request = request(Method::GET, &uri, None).map_err(|error| failed(&uri, &error))?;
        let opening = self.client.request_events::<Value>(request);
        let Ok(opened) = tokio::time::timeout(LIMIT, opening).await else {
            return Err(silent(&uri));
        };
        let events = opened.map_err(|error| failed(&uri, &error))?;
        Ok(events.filter_map(move |event| {
            let item = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Some(Ok(object)),
                Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)) => None,
                Ok(WatchEvent::Error(status)) => Some(Err(failed(&uri, &kube::Error::Api(status)))),
                Err(error) => Some(Err(failed(&uri, &error))),
            };
            std::future::ready(item)
        }))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, RestError> {
        let name = format!("{method} {path}");
        let request = request(method, path, body).map_err(|error| failed(&name, &error))?;
        match tokio::time::timeout(LIMIT, self.client.request::<Value>(request)).await {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(error)) => Err(failed(&name, &error)),
            Err(_) => Err(silent(&name)),
        }
    }
}

fn request(
    method: Method,
    uri: &str,
    body: Option<(&str, &Value)>,
) -> Result<Request<Vec<u8>>, kube::Error> {
    let mut request = Request::builder().method(method).uri(uri);
    let mut bytes = Vec::new();
    if let Some((kind, body)) = body {
        request = request.header("content-type", kind);
        bytes = body.to_string().into_bytes();
    }
    request.body(bytes).map_err(kube::Error::HttpError)
}

fn failed(request: &str, error: &kube::Error) -> RestError {
    RestError { request: request.to_owned(), error: error.into() }
}

fn silent(request: &str) -> RestError {
    let why = format!("no answer within {} s", LIMIT.as_secs());
    RestError { request: request.to_owned(), error: SourceError::Unreachable(why) }
}
