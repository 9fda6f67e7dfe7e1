//! What was removed, and why something was not.

use std::fmt;
use std::io;

use nft::kernel::{CommitError, OpenError, ReadError};

use super::names;
use super::programs::ProgramError;

/// An object that was removed; prints as the object of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Chains of a table with their rules.
    Chains {
        /// The table.
        place: String,
        /// Number of chains.
        chains: usize,
        /// Number of rules in other chains that jumped to them.
        rules: usize,
    },
    /// The link `kube-ipvs0` and virtual servers.
    Link {
        /// Number of services.
        services: usize,
    },
    /// The link `kube-ipvs0`, without virtual servers because ipvsadm is not installed.
    LinkAlone {
        /// Number of services that are kept.
        services: usize,
    },
    /// Number of ipsets.
    Ipsets(usize),
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chains { place, chains, rules } => {
                write!(f, "{chains} chains and {rules} rules that jump to them from table {place}")
            }
            Self::Link { services: 0 } => write!(f, "the link {}", names::LINK),
            Self::Link { services } => {
                write!(f, "{services} virtual servers and the link {}", names::LINK)
            }
            Self::LinkAlone { services } => write!(
                f,
                "the link {}; {services} virtual servers stay because ipvsadm is not installed",
                names::LINK
            ),
            Self::Ipsets(count) => write!(f, "{count} ipsets"),
        }
    }
}

/// Why a removal failed.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// nftables cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A table could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel refused to remove chains.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A program failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel refused to remove the link.
    #[error("the link {link} cannot be removed: {0}", link = names::LINK)]
    Link(#[from] io::Error),
}

/// Outcome of a removal.
#[derive(Debug, Default)]
pub struct Removal {
    /// Removed objects; empty on a node without leftovers.
    pub removed: Vec<Removed>,
    /// Errors. The objects that they name may remain.
    pub errors: Vec<RemovalError>,
}

impl Removal {
    /// Logs the removed objects.
    pub fn log_removed(&self) {
        for removed in &self.removed {
            tracing::info!("removed leftovers of another proxy mode: {removed}");
        }
    }

    pub(super) fn add(&mut self, outcome: Result<Option<Removed>, RemovalError>) {
        match outcome {
            Ok(removed) => self.removed.extend(removed),
            Err(error) => self.errors.push(error),
        }
    }
}
