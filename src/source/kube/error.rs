//! Why the API server cannot be used, each in one line that says what to do.

use std::io;
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
    /// `--master` is no address that can be used.
    #[error("--master={url} cannot be used: {message}")]
    AddressInvalid {
        /// The address.
        url: String,
        /// What is wrong with it.
        message: String,
    },
    /// Nothing names an API server, and this is not a pod.
    #[error(
        "no API server: give --kubeconfig (or clientConnection.kubeconfig in the file of --config), \
         or --manifests, or run in a pod with a service account"
    )]
    Nowhere,
    /// No kubeconfig was given and there is no service account; what is missing of it.
    #[error("no API server: give --kubeconfig, or run in a pod with a service account ({0})")]
    NotInCluster(String),
    /// No connection, or it broke (DNS, TCP, TLS); the causes, outermost first.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// Loading the credentials takes more than so many seconds.
    #[error("loading the credentials takes more than {0} s: check files and credential plugin")]
    SlowCredentials(u64),
    /// One side does not accept the other's certificate, or there is no common TLS; the causes.
    #[error("no TLS connection to the API server: check the certificates of both sides ({0})")]
    Tls(String),
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

impl SourceError {
    /// A name out of few, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::KubeconfigMissing(_)
            | Self::KubeconfigInvalid { .. }
            | Self::AddressInvalid { .. }
            | Self::Nowhere
            | Self::NotInCluster(_)
            | Self::SlowCredentials(_) => "credentials",
            Self::Unreachable(_) => "unreachable",
            Self::Tls(_) => "tls",
            Self::Unauthorized(_) => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::Refused { .. } => "refused",
            Self::Malformed(_) => "malformed",
            Self::Incomplete | Self::Stalled(_) => "incomplete",
        }
    }

    /// Whether other credentials may help.
    pub(super) fn is_rejection(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Unauthorized(_))
    }
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
        if is_tls(error) {
            return Self::Tls(message);
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

/// Whether TLS is at the end of the chain of causes.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    // The source of an `io::Error` is not the error that it was made of, but that one's source.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let cause = inner.map(|inner| inner as &(dyn std::error::Error + 'static));
    cause.or_else(|| error.source()).is_some_and(is_tls)
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
    fn a_failure_of_tls_is_found_behind_other_errors() {
        let tls = rustls::Error::HandshakeNotComplete;
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls));
        let error: SourceError = (&kube::Error::Service(wrapped.into())).into();
        assert!(matches!(error, SourceError::Tls(_)), "{error}");
        let other = io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error: SourceError = (&kube::Error::Service(other.into())).into();
        assert!(matches!(error, SourceError::Unreachable(_)), "{error}");
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
