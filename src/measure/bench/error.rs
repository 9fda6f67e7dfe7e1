//! Errors of a benchmark, and the check that precedes it.

use daemon::source::kube::LineError;
use engine::ruleset::TABLE;
use nft::kernel::{CommitError, Kernel, Nftables, OpenError, ReadError};
use nft::{Family, TableRef};

use super::namespace::NamespaceError;

/// Error of a benchmark.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No network namespace is available.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// nftables cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The tables could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel refused a transaction.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The product rejected a frame of the bench, which is a bug in one of them.
    #[error("a frame of the synthetic watch could not be read: {0}; please report it")]
    Frame(LineError),
    /// The product left out an object of the bench, which is a bug in one of them.
    #[error("an object of the synthetic cluster was left out: {0}; please report it")]
    Object(String),
    /// The system failed to create a thread or an event loop.
    #[error("cannot start the run loop: {0}")]
    System(std::io::Error),
    /// The run loop ended, which is a bug.
    #[error("the run loop has ended; please report it")]
    Ended,
    /// The program `nft` does not exist.
    #[error("--baseline nft runs the program nft, which is not there: install nftables")]
    NoNft,
    /// The program `nft` rejected a script.
    #[error("nft failed: {0}")]
    Nft(String),
    /// Packets cannot be sent.
    #[error("cannot send packets in the network namespace of the bench: {0}")]
    Traffic(std::io::Error),
    /// The tables are in use.
    #[error(
        "table {0} kube-proxy exists here and --in-place would replace it: stop the kube-proxy of \
         this node and remove its tables (`deltaproxy cleanup`), or leave --in-place out"
    )]
    InUse(&'static str),
}

/// Checks that the tables of the present network namespace are not in use.
///
/// # Errors
/// [`BenchError::InUse`], or a failed read.
pub fn check_unused() -> Result<(), BenchError> {
    let mut kernel = Nftables::open()?;
    for (family, name) in [(Family::Ip, "ip"), (Family::Ip6, "ip6")] {
        if kernel.read_table(&TableRef::new(family, TABLE))?.is_some() {
            return Err(BenchError::InUse(name));
        }
    }
    Ok(())
}
