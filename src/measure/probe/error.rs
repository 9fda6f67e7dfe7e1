//! Errors of a measurement.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use daemon::source::kube::{RestError, SourceError};

use super::address::AddressError;
use super::settings::Protocol;

/// Error of a measurement; there may be partial results.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The address or the credentials of the API server cannot be used.
    #[error(transparent)]
    Server(#[from] SourceError),
    /// Status 403; the server's message names user, verb and resource.
    #[error(
        "the API server forbids what the probe needs (403): apply deploy/probe-rbac.yaml and use \
         its service account, or ask for those rights ({0})"
    )]
    Forbidden(String),
    /// A request failed.
    #[error("{0}")]
    Request(RestError),
    /// The API server's answer lacks a field.
    #[error("the API server's answer to {request} has no usable {field}: {found}")]
    Answer {
        /// Created resource.
        request: &'static str,
        /// Path of the field.
        field: &'static str,
        /// Actual value.
        found: String,
    },
    /// No address is usable for endpoints.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An endpoint cannot listen.
    #[error("cannot listen on {address} for endpoints: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Cause.
        error: io::Error,
    },
    /// The system failed to create a socket or thread.
    #[error("the system failed: {0}")]
    System(#[from] io::Error),
    /// No try reached the endpoint.
    #[error(transparent)]
    Unreached(Box<Unreached>),
    /// Changes exceeded the limit.
    #[error("{late} of {changes} changes did not reach the new endpoint within {} s", limit.as_secs_f64())]
    Late {
        /// Number of such changes.
        late: usize,
        /// Number of all changes.
        changes: usize,
        /// The limit.
        limit: Duration,
    },
}

/// Tries that never reached the endpoint.
#[derive(Debug, thiserror::Error)]
#[error(
    "no {} connection to {service} reached the endpoint {endpoint} within {} s: {tries}; \
     check that a kube-proxy runs on this machine and follows this API server{hint}",
    protocol.name(),
    limit.as_secs_f64()
)]
pub struct Unreached {
    /// Protocol of the Service.
    pub protocol: Protocol,
    /// Address of the Service.
    pub service: SocketAddr,
    /// Its only endpoint.
    pub endpoint: SocketAddr,
    /// Duration of the tries.
    pub limit: Duration,
    /// Number of tries by outcome.
    pub tries: String,
    /// Details about this machine; may be empty.
    pub hint: String,
}

impl From<RestError> for ProbeError {
    fn from(error: RestError) -> Self {
        match error {
            RestError { error: SourceError::Forbidden(why), .. } => Self::Forbidden(why),
            error => Self::Request(error),
        }
    }
}
