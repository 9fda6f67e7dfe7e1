//! Measures rule sync on this machine: `deltaproxy bench`.
//!
//! A synthetic cluster changes as a seed decides. Every change enters as the bytes of a watch and
//! goes through the product's own stages to the kernel; nothing here is a copy of them.

mod baseline;
mod change;
mod cluster;
mod compare;
mod daemon;
mod distribution;
mod kube_proxy;
mod live;
mod loopback;
mod measure;
mod memory;
mod namespace;
mod pipeline;
mod plot;
mod random;
mod report;
mod settings;
mod spreads;
mod table;
mod traffic;
mod watch_line;

pub use change::{Change, ChangeKind, Changes, Deed, Mix, MixError};
pub use cluster::Cluster;
pub use compare::compare;
pub use distribution::Distribution;
pub use measure::measure;
pub use namespace::{NamespaceError, enter_own};
pub use plot::plot;
pub use report::{Report, SizeReport};
pub use settings::{MAX_ENDPOINTS, MAX_SERVICES, Settings, SettingsError};
pub use table::table;
pub use watch_line::WatchLine;

use crate::kernel::{CommitError, Kernel, Nftables, OpenError, ReadError};
use crate::nft::{Family, TableRef};
use crate::ruleset::TABLE;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// There is no namespace to work in.
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
    /// The product refused a line that the bench wrote, which is a bug in one of them.
    #[error("a line of the synthetic watch could not be read: {0}; please report it")]
    Line(serde_json::Error),
    /// The product left out an object of the bench, which is a bug in one of them.
    #[error("an object of the synthetic cluster was left out: {0}; please report it")]
    Object(String),
    /// The system gives no thread or no event loop.
    #[error("cannot start the run loop: {0}")]
    System(std::io::Error),
    /// The run loop is gone, which is a bug.
    #[error("the run loop has ended; please report it")]
    Ended,
    /// The program `nft` is not there.
    #[error("--baseline nft runs the program nft, which is not there: install nftables")]
    NoNft,
    /// The program `nft` refused what the bench wrote.
    #[error("nft failed: {0}")]
    Nft(String),
    /// No packets can be sent.
    #[error("cannot send packets in the network namespace of the bench: {0}")]
    Traffic(std::io::Error),
    /// Somebody uses the tables.
    #[error(
        "table {0} kube-proxy exists here and --in-place would replace it: stop the kube-proxy of \
         this node and remove its tables (`deltaproxy cleanup`), or leave --in-place out"
    )]
    InUse(&'static str),
}

/// Makes sure that nobody uses the tables of the present network namespace.
///
/// # Errors
/// [`BenchError::InUse`], or that they cannot be read.
pub fn check_unused() -> Result<(), BenchError> {
    let mut kernel = Nftables::open()?;
    for (family, name) in [(Family::Ip, "ip"), (Family::Ip6, "ip6")] {
        if kernel.read_table(&TableRef { family, name: TABLE.into() })?.is_some() {
            return Err(BenchError::InUse(name));
        }
    }
    Ok(())
}
