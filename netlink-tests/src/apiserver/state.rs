//! The state of the server: its objects, its plans, and what clients have sent.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::fault::Plan;
use super::request::Request;
use super::store::Store;

/// The state shared by the server's thread and the test.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Wakes tests that wait for requests.
    pub(super) recorded: Condvar,
    /// Wakes watches; the value is the store's version.
    pub(super) changed: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) plan: Plan,
    pub(super) requests: Vec<Request>,
    pub(super) events: Events,
    pub(super) writes: Writes,
    /// `None`: connections are plain.
    pub(super) tls: Option<TlsAcceptor>,
    /// Requests for protobuf are answered in JSON.
    pub(super) has_only_json: bool,
    /// When the last event of a watch was sent.
    pub(super) sent_at: Option<Instant>,
    /// If set, requests with other tokens are refused.
    pub(super) token: Option<String>,
}

/// The Event objects that clients have written.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) written: Vec<Value>,
    /// Events are refused with 403.
    pub(super) forbidden: bool,
}

impl State {
    /// Whether a request has the token that is demanded.
    pub(super) fn is_authorized(&self, request: &Request) -> bool {
        let header = request.authorization.as_deref();
        let token = header.and_then(|header| header.strip_prefix("Bearer "));
        self.token.is_none() || token == self.token.as_deref()
    }

    /// Stores an Event object, or returns the status code and message of the refusal.
    pub(super) fn add_event(
        &mut self,
        path: &str,
        event: &Value,
    ) -> Result<(), (u16, &'static str)> {
        let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
        if path != format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events") {
            return Err((404, "the server could not find the requested resource"));
        }
        if self.events.forbidden {
            return Err((403, "events.events.k8s.io is forbidden"));
        }
        // The fields that `ValidateEvent` requires, in pkg/apis/core/validation/events.go.
        let needed =
            ["eventTime", "reason", "action", "type", "reportingController", "reportingInstance"];
        if needed.iter().any(|field| event[field].as_str().is_none_or(str::is_empty)) {
            return Err((422, "the event lacks a field"));
        }
        let name = |event: &Value| event["metadata"]["name"].clone();
        if self.events.written.iter().any(|known| name(known) == name(event)) {
            return Err((409, "the event exists"));
        }
        self.events.written.push(event.clone());
        Ok(())
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held the lock has failed already.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn record(&self, request: &Request) {
        self.lock().requests.push(request.clone());
        self.recorded.notify_all();
    }
}

/// What clients may do and what they get.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Verb and resource of what is refused with 403.
    pub(super) forbidden: Vec<(&'static str, &'static str)>,
    /// Verb and resource of what gets no answer.
    pub(super) ignored: Vec<(&'static str, &'static str)>,
    /// What another client writes just before the next merge patch of an object of its kind.
    pub(super) before_patch: Option<Value>,
    /// Services get addresses of IPv6 only.
    pub(super) has_only_ipv6: bool,
    /// Objects created so far.
    pub(super) created: u8,
}
