//! Failures of the stream of a resource, and what they mean for the next request.

use std::time::Duration;

use kube::core::Status;

use super::error::SourceError;
use super::reflector;

/// Why a stream ended or was interrupted.
#[derive(Debug)]
pub(super) enum Failure {
    /// A request failed, or its answer cannot be used.
    Received(reflector::Error),
    /// The server ended a streaming list before its last bookmark.
    Incomplete,
    /// The list is empty, and the one before was not.
    Emptied,
    /// The server began a streaming list and sends nothing for this time.
    Stalled(Duration),
}

impl Failure {
    /// Returns the HTTP status code, if the server sent one.
    pub(super) fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    pub(super) fn status(&self) -> Option<&Status> {
        use reflector::Error::{Event, List, Open, Watch, WentBack};
        match self {
            Self::Received(Event(status) | WentBack(status)) => Some(status),
            Self::Received(
                List(kube::Error::Api(status))
                | Open(kube::Error::Api(status))
                | Watch(kube::Error::Api(status)),
            ) => Some(status),
            Self::Received(_) | Self::Incomplete | Self::Emptied | Self::Stalled(_) => None,
        }
    }

    /// Returns whether the server does not support streaming lists. Real servers answer 422 or 400
    /// (the feature gate WatchList is off or unknown), or open the watch and send an ERROR of code
    /// 500 because etcd is too old for RequestWatchProgress.
    pub(super) fn refuses_streaming(&self, is_listing: bool) -> bool {
        match self {
            Self::Stalled(_) => true,
            Self::Received(reflector::Error::Open(_)) => {
                is_listing && matches!(self.code(), Some(400 | 422))
            }
            Self::Received(reflector::Error::Event(status)) if status.code == 500 => {
                is_listing || status.message.contains("RequestWatchProgress")
            }
            Self::Received(_) | Self::Incomplete | Self::Emptied => false,
        }
    }

    /// Returns whether an answer in protobuf does not have the expected form.
    pub(super) fn is_protobuf(&self) -> bool {
        matches!(self, Self::Received(reflector::Error::Malformed { is_protobuf: true, .. }))
    }

    /// Returns whether an object or a line of a watch does not have the expected form.
    pub(super) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Received(_)) && matches!(self.into(), SourceError::Malformed { .. })
    }

    /// Returns whether the server does not have the state of the requested version any more, or not
    /// yet: after etcd was restored, or because it is behind another server (`storage` of
    /// `k8s.io/apiserver`, `NewTooLargeResourceVersionError`).
    pub(super) fn lacks_version(&self) -> bool {
        self.status().is_some_and(|status| match status.code {
            410 => true,
            504 => status.message.contains("Too large resource version"),
            _ => false,
        })
    }

    /// Returns whether the newest version of the server is older than the last one.
    pub(super) fn went_back(&self) -> bool {
        matches!(self, Self::Received(reflector::Error::WentBack(_)))
    }

    /// Returns whether a list may succeed without a version: then it has pages, too.
    pub(super) fn refuses_version(&self) -> bool {
        matches!(self.code(), Some(400 | 422)) || self.lacks_version() || self.has_no_room()
    }

    /// Returns whether the lists need too much memory.
    pub(super) fn has_no_room(&self) -> bool {
        matches!(self, Self::Received(reflector::Error::NoRoom))
    }

    /// Returns whether a page of a list was refused or not answered.
    pub(super) fn is_of_page(&self) -> bool {
        matches!(self, Self::Received(reflector::Error::List(_)))
    }

    /// Returns whether a watch or a list cannot resume: its version is too old or refused, or data
    /// was lost.
    pub(super) fn needs_list(&self) -> bool {
        matches!(self.code(), Some(400 | 410 | 422)) || self.is_unreadable()
    }
}

impl From<&Failure> for SourceError {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Received(error) => error.into(),
            Failure::Incomplete => Self::Incomplete,
            Failure::Emptied => Self::Emptied,
            Failure::Stalled(limit) => Self::Stalled(limit.as_secs()),
        }
    }
}
