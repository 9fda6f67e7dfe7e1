//! Where a source puts what it learnt: events for the model, reports for people.

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;

use super::SourceError;
use crate::model::{Event, Problem, Resource};

/// The two channels out of the source. Both must be drained: a full one makes the source wait,
/// and in the end the server.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// Batches of events, never empty, each in the order in which the server said it.
    pub events: mpsc::Sender<Vec<Event>>,
    /// What people should be told. May be closed: then nobody is told.
    pub reports: mpsc::Sender<Report>,
}

/// The receiver of the events is gone, so there is no reason to go on.
#[derive(Debug)]
pub(super) struct Closed;

impl Outlet {
    pub(super) async fn send(&self, events: Vec<Event>) -> Result<(), Closed> {
        self.events.send(events).await.map_err(|_| Closed)
    }

    pub(super) async fn report(&self, report: Report) -> Result<(), Closed> {
        if self.events.is_closed() {
            return Err(Closed);
        }
        // A closed channel of reports is allowed.
        let _ = self.reports.send(report).await;
        Ok(())
    }
}

/// One line for the log.
#[derive(Debug)]
pub enum Report {
    /// An object, or a part of it, was left out.
    Object(Problem),
    /// The server cannot be used now; what it said before stays in force.
    Trouble {
        /// The resource that cannot be followed, `None` if it is all of them.
        resource: Option<Resource>,
        /// What is wrong.
        error: SourceError,
        /// When it is tried again.
        retry_in: Duration,
    },
    /// A resource with `Trouble` is followed again.
    Recovered(Resource),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(problem) => problem.fmt(f),
            Self::Trouble { resource, error, retry_in } => {
                if let Some(resource) = resource {
                    write!(f, "following {}: ", plural(*resource))?;
                }
                write!(f, "{error}; trying again in {} ms", retry_in.as_millis())
            }
            Self::Recovered(resource) => write!(f, "following {} again", plural(*resource)),
        }
    }
}

/// The resource as URLs and RBAC rules write it.
pub(super) fn plural(resource: Resource) -> &'static str {
    match resource {
        Resource::Services => "services",
        Resource::EndpointSlices => "endpointslices.discovery.k8s.io",
        Resource::Nodes => "nodes",
        Resource::ServiceCidrs => "servicecidrs.networking.k8s.io",
    }
}
