//! Messages that become Event objects of the API server.

use engine::model::{Problem, ProblemKind};

/// Content of an Event object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An object, or a part of it, was left out, or an annotation was ignored.
    LeftOut(Problem),
    /// The health check port of a Service cannot be opened.
    ClosedPort(Problem),
    /// The daemon starts on its node.
    Starting,
    /// The health port cannot be opened, so the daemon ends.
    NoHealthPort(String),
    /// The metrics port cannot be opened, so the daemon ends.
    NoMetricsPort(String),
}

impl Notice {
    /// Returns the problem of an object; `None` for a message of the daemon itself.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::LeftOut(problem) | Self::ClosedPort(problem) => Some(problem),
            Self::Starting | Self::NoHealthPort(_) | Self::NoMetricsPort(_) => None,
        }
    }

    /// Returns whether the notice reports that its object does not exist.
    pub fn is_of_missing_node(&self) -> bool {
        self.problem().is_some_and(|it| it.kind == ProblemKind::MissingNode)
    }
}
