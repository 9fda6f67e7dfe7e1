//! Why the API server cannot be used, each in one line that says what to do.

use std::path::PathBuf;

use kube::core::Status;
use kube::runtime::watcher;

/// Why the API server cannot be used now. None of these is final: the source tries again.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The kubeconfig file of this path does not exist.
    #[error("kubeconfig {} does not exist: check --kubeconfig", .0.display())]
    KubeconfigMissing(PathBuf),
    /// The kubeconfig file, or a file that it names, cannot be read or used.
    #[error("kubeconfig {} cannot be used: {message}", path.display())]
    KubeconfigInvalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// No kubeconfig was given and there is no service account; what is missing of it.
    #[error("no API server: give --kubeconfig, or run in a pod with a service account ({0})")]
    NotInCluster(String),
    /// No connection, or it broke (DNS, TCP, TLS); the causes, outermost first.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// 401 in the server's words, or the credentials could not even be read.
    #[error(
        "the API server does not accept the credentials (401): check token and certificate ({0})"
    )]
    Unauthorized(String),
    /// 403 in the server's words, which name user, verb and resource.
    #[error("the API server forbids it (403): bind the cluster role system:node-proxier ({0})")]
    Forbidden(String),
    /// Another refusal.
    #[error("the API server refused with code {code}: {message}")]
    Refused {
        /// HTTP status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// An answer that is not what the API promises; what was expected.
    #[error("the API server's answer cannot be understood: {0}")]
    Malformed(String),
    /// The server ended streams before they said anything.
    #[error("the API server ended the list before it was complete")]
    Incomplete,
    /// The server accepted the request for a list and then was silent for so many seconds.
    #[error("the API server did not complete the list and said nothing for {0} s")]
    Stalled(u64),
}

impl From<&watcher::Error> for SourceError {
    fn from(error: &watcher::Error) -> Self {
        use watcher::Error::{
            InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
        };
        match error {
            InitialListFailed(cause) | WatchStartFailed(cause) | WatchFailed(cause) => cause.into(),
            WatchError(status) => status.as_ref().into(),
            NoResourceVersion => Self::Malformed("no metadata.resourceVersion".into()),
        }
    }
}

impl From<&kube::Error> for SourceError {
    fn from(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return status.as_ref().into();
        }
        let message = causes(error);
        if matches!(error, kube::Error::Auth(_)) {
            return Self::Unauthorized(message);
        }
        if matches!(error, kube::Error::SerdeError(_) | kube::Error::FromUtf8(_)) {
            return Self::Malformed(message);
        }
        Self::Unreachable(message)
    }
}

impl From<&Status> for SourceError {
    fn from(status: &Status) -> Self {
        let message = one_line(&status.message);
        match status.code {
            401 => Self::Unauthorized(message),
            403 => Self::Forbidden(message),
            // kube takes any JSON object that is not a watch event for a Status without fields.
            0 => Self::Malformed("not a watch event of this resource".into()),
            code => Self::Refused { code, message },
        }
    }
}

/// An error and its causes in one line; a cause that its effect already quotes is not repeated.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = one_line(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = one_line(&error.to_string());
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn one_line(text: &str) -> String {
    /// Longer texts are dumps of an answer and not messages.
    const LONGEST: usize = 400;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16) -> SourceError {
        (&Status { code, message: "because\nof that".into(), ..Status::default() }).into()
    }

    #[test]
    fn refusals_are_named_by_their_code_in_one_line() {
        assert!(matches!(status(401), SourceError::Unauthorized { .. }));
        assert!(matches!(status(403), SourceError::Forbidden { .. }));
        assert!(matches!(status(500), SourceError::Refused { code: 500, .. }));
        assert!(matches!(status(0), SourceError::Malformed { .. }));
        assert!(status(403).to_string().ends_with("system:node-proxier (because of that)"));
    }
}
