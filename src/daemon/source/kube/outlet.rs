//! Outputs of a source: events for the model, reports for the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::model::{Arrival, HostAddresses, ObjectRef, Problem, Resource};
use engine::printable::Printable;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::contact::{Contact, OnContact};
use super::request_counts::OnRequest;
use super::source_error::SourceError;

/// Outputs of the source. Clones share them.
#[derive(Clone)]
pub struct Outlet {
    /// Arrivals, never empty, each in the order of the server. A full channel blocks the
    /// source, and in the end the server.
    events: mpsc::Sender<Arrival>,
    report: Arc<dyn Fn(SourceReport) + Send + Sync>,
    /// Called when data arrives from the server, and for each failure.
    pub(super) contacts: OnContact,
    /// Called for each request.
    pub(super) requests: OnRequest,
    /// Where the addresses of the server are kept up to date, if anywhere.
    pub addresses: Option<watch::Sender<HostAddresses>>,
    /// Where the time of the creation of this node's Node is kept up to date, if anywhere.
    pub node_created: Option<watch::Sender<i64>>,
    /// The receiver already has objects of an earlier source: then an empty first list is doubtful too.
    pub has_objects: bool,
}

/// The receiver of the events is dropped, so the source ends.
#[derive(Debug)]
pub(super) struct Closed;

impl Outlet {
    /// Returns an outlet that sends events to the channel and calls `report`, which must not block.
    pub fn new(
        events: mpsc::Sender<Arrival>,
        report: impl Fn(SourceReport) + Send + Sync + 'static,
        contacts: OnContact,
        requests: OnRequest,
    ) -> Self {
        let report = Arc::new(report);
        let (addresses, node_created, has_objects) = (None, None, false);
        Self { events, report, contacts, requests, addresses, node_created, has_objects }
    }

    pub(super) async fn send(&self, arrival: Arrival) -> Result<(), Closed> {
        self.events.send(arrival).await.map_err(|_| Closed)
    }

    /// Reports that no resource can be followed.
    pub(super) fn lost_all(&self, reason: &'static str) {
        Resource::ALL.into_iter().for_each(|it| (self.contacts)(it, Contact::Lost(reason)));
    }

    pub(super) fn report(&self, report: SourceReport) -> Result<(), Closed> {
        if self.events.is_closed() {
            return Err(Closed);
        }
        (self.report)(report);
        Ok(())
    }
}

/// A message for the log.
#[derive(Debug)]
pub enum SourceReport {
    /// An object, or a part of it, was left out.
    Object(Problem),
    /// The present problems of an object, which replace its former ones. Empty if they are over.
    Present(ObjectRef, Vec<Problem>),
    /// The server cannot be used now; the last known objects stay in force.
    Trouble {
        /// Resource that cannot be followed; `None` for all of them.
        resource: Option<Resource>,
        /// Host and port of the server; `None` before they are known.
        server: Option<Arc<str>>,
        /// What is wrong.
        error: SourceError,
        /// Time until the next attempt.
        retry_in: Duration,
    },
    /// A resource with `Trouble` is followed again.
    Recovered {
        /// The resource.
        resource: Resource,
        /// Time of the first data.
        at: Instant,
    },
    /// The credentials were loaded again, because their files changed or the server rejected them.
    Renewed,
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(problem) => problem.fmt(f),
            Self::Present(object, problems) => {
                write!(f, "{}: {} problems", Printable(object), problems.len())
            }
            Self::Trouble { resource, server, error, retry_in } => {
                if let Some(resource) = resource {
                    write!(f, "following {}: ", plural(*resource))?;
                }
                if let Some(server) = server {
                    write!(f, "{}: ", Printable(server))?;
                }
                let error = Printable(error);
                write!(f, "{error}; trying again in {} ms", retry_in.as_millis())
            }
            Self::Recovered { resource, .. } => write!(f, "following {} again", plural(*resource)),
            Self::Renewed => write!(f, "the credentials for the API server were loaded again"),
        }
    }
}

/// Returns the name of the resource in URLs and RBAC rules.
pub fn plural(resource: Resource) -> &'static str {
    match resource {
        Resource::Services => "services",
        Resource::EndpointSlices => "endpointslices.discovery.k8s.io",
        Resource::Nodes => "nodes",
        Resource::ServiceCidrs => "servicecidrs.networking.k8s.io",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_server_messages_are_escaped() {
        let words = "no\u{1b}[2J\u{7}".to_owned();
        let error = SourceError::Forbidden(words);
        let (resource, retry_in) = (Some(Resource::Nodes), Duration::from_millis(50));
        let server = Some("10.0.0.1\n".into());
        let text = SourceReport::Trouble { resource, server, error, retry_in }.to_string();
        assert!(text.contains(r"no\u{1b}[2J\u{7}"), "{text}");
        assert!(!text.contains(char::is_control), "{text}");
    }
}
