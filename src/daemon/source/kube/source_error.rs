//! Why the API server cannot be used, each in one line with advice.

use std::io;
use std::path::PathBuf;

use kube::core::Status;

use super::kubeconfig::Fault;
use super::reflector;
use super::room::ROOM;

/// Why the API server cannot be used now. None of these is final: the source retries.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The kubeconfig file of this path does not exist.
    #[error("kubeconfig {} does not exist: check --kubeconfig", .0.display())]
    KubeconfigMissing(PathBuf),
    /// The kubeconfig file, or a file to which it refers, cannot be read or used.
    #[error("kubeconfig {} cannot be used: {message}", path.display())]
    KubeconfigInvalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// `--master` is not a usable address.
    #[error("--master={url} cannot be used: {message}")]
    AddressInvalid {
        /// The address.
        url: String,
        /// What is wrong with it.
        message: String,
    },
    /// No API server is given, and the process does not run in a pod.
    #[error(
        "no API server: give --kubeconfig (or clientConnection.kubeconfig in the file of --config), \
         or --manifests, or run in a pod with a service account"
    )]
    Nowhere,
    /// No kubeconfig is given, and there is no service account; contains the missing part.
    #[error("no API server: give --kubeconfig, or run in a pod with a service account ({0})")]
    NotInCluster(String),
    /// The connection failed or broke (DNS, TCP, TLS); contains the causes, outermost first.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// Loading the credentials takes more than this number of seconds.
    #[error("loading the credentials takes more than {0} s: check files and credential plugin")]
    SlowCredentials(u64),
    /// A credential plugin failed; contains the reason.
    #[error("no credentials for the API server: {0}")]
    NoCredentials(String),
    /// One side rejects the other's certificate, or no TLS version is shared; contains the causes.
    #[error("no TLS connection to the API server: check the certificates of both sides ({0})")]
    Tls(String),
    /// Status 401 with the server's message, or the credentials could not be read.
    #[error(
        "the API server does not accept the credentials (401): check token and certificate ({0})"
    )]
    Unauthorized(String),
    /// Status 403 with the server's message, which names user, verb and resource.
    #[error("the API server forbids it (403): bind the cluster role system:node-proxier ({0})")]
    Forbidden(String),
    /// Another error status.
    #[error("the API server refused with code {code}: {message}")]
    Refused {
        /// HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// The answer does not conform to the API; contains what is wrong.
    #[error("the API server's answer is malformed: {0}")]
    Malformed(String),
    /// The server ended a streaming list before its end marker.
    #[error("the API server ended the list before it was complete")]
    Incomplete,
    /// The lists need more memory than they may have.
    #[error(
        "the API server's lists are longer than those of 100,000 services, and {} MiB in memory",
        ROOM >> 20
    )]
    NoRoom,
    /// The server lists nothing, and it listed something before.
    #[error("the API server lists none, but it had some: it is asked once more before all go")]
    Emptied,
    /// The newest version is older than the last one; contains both.
    #[error(
        "the API server's versions went back {0}, as after a restore of etcd: all is listed anew"
    )]
    WentBack(String),
    /// The server accepted a list request and then sent nothing for this number of seconds.
    #[error("the API server did not complete the list: nothing arrived for {0} s")]
    Stalled(u64),
}

impl SourceError {
    /// Returns one of a few names, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::KubeconfigMissing(_)
            | Self::KubeconfigInvalid { .. }
            | Self::AddressInvalid { .. }
            | Self::Nowhere
            | Self::NotInCluster(_)
            | Self::SlowCredentials(_)
            | Self::NoCredentials(_) => "credentials",
            Self::Unreachable(_) => "unreachable",
            Self::Tls(_) => "tls",
            Self::Unauthorized(_) => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::Refused { .. } => "refused",
            Self::Malformed(_) | Self::NoRoom => "malformed",
            Self::Incomplete | Self::Emptied | Self::Stalled(_) => "incomplete",
            Self::WentBack(_) => "restored",
        }
    }

    /// Returns whether the server answers, but not with what was requested.
    pub(super) fn is_of_answer(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::NoRoom | Self::Emptied | Self::WentBack(_))
    }

    /// Returns whether other credentials may help.
    pub(super) fn is_rejection(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Unauthorized(_))
    }
}

impl From<&reflector::StreamError> for SourceError {
    fn from(error: &reflector::StreamError) -> Self {
        match error {
            reflector::StreamError::List(cause)
            | reflector::StreamError::Open(cause)
            | reflector::StreamError::Watch(cause) => cause.into(),
            reflector::StreamError::Event(status) => status.as_ref().into(),
            reflector::StreamError::Malformed { message, .. } => Self::Malformed(one_line(message)),
            reflector::StreamError::NoRoom => Self::NoRoom,
            reflector::StreamError::WentBack(status) => Self::WentBack(status.message.clone()),
            reflector::StreamError::Incomplete => Self::Incomplete,
            reflector::StreamError::Emptied => Self::Emptied,
            reflector::StreamError::Stalled(limit) => Self::Stalled(limit.as_secs()),
        }
    }
}

impl From<&kube::Error> for SourceError {
    fn from(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return status.as_ref().into();
        }
        let message = causes(error);
        if let kube::Error::Service(cause) = error
            && cause.is::<Fault>()
        {
            return Self::NoCredentials(causes(&**cause));
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
            // kube decodes any JSON object that is not a watch event as a Status without fields.
            0 => Self::Malformed("not a watch event of this resource".into()),
            code => Self::Refused { code, message },
        }
    }
}

/// Joins an error and its causes in one line, without causes that the text already contains.
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

/// Returns whether the chain of causes ends in a TLS error.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    // The source of an `io::Error` is not the wrapped error, but the source of that.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let cause = inner.map(|inner| inner as &(dyn std::error::Error + 'static));
    cause.or_else(|| error.source()).is_some_and(is_tls)
}

fn one_line(text: &str) -> String {
    /// Longer texts are dumps of an answer, not messages.
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
    fn a_tls_error_is_found_behind_other_errors() {
        let tls = rustls::Error::HandshakeNotComplete;
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls));
        let error: SourceError = (&kube::Error::Service(wrapped.into())).into();
        assert!(matches!(error, SourceError::Tls(_)), "{error}");
        let other = io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error: SourceError = (&kube::Error::Service(other.into())).into();
        assert!(matches!(error, SourceError::Unreachable(_)), "{error}");
    }

    #[test]
    fn an_error_status_becomes_one_line_with_its_code() {
        assert!(matches!(status(401), SourceError::Unauthorized { .. }));
        assert!(matches!(status(403), SourceError::Forbidden { .. }));
        assert!(matches!(status(500), SourceError::Refused { code: 500, .. }));
        assert!(matches!(status(0), SourceError::Malformed { .. }));
        assert!(status(403).to_string().ends_with("system:node-proxier (because of that)"));
    }
}
