//! Removal of the leftovers of kube-proxy's modes iptables and ipvs.
//!
//! Chains of iptables-nft are removed through nftables, those of iptables-legacy through its
//! programs, each with the rules that jump to them. IPVS services, the link `kube-ipvs0` and ipsets
//! follow. Only objects with names of kube-proxy are removed. Each step runs even if others fail,
//! although the kernel refuses to remove an ipset that a rule uses.
//!
//! For one hook and priority, the kernel runs the newest base chain first (`nf_hook_entries_grow`).
//! Our chains have the priorities of iptables, so the DNAT of leftovers wins over tables that are
//! older than theirs. The leftovers may serve connections until they are removed, our tables
//! afterwards. The caller therefore removes nothing before our tables are in place.

mod ipvs;
mod legacy;
mod link;
mod names;
mod nftables;
mod programs;
mod removable;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use self::names::Table;
pub use self::programs::ProgramError;
use nft::family::Family;
use nft::kernel::{CommitError, Nftables, OpenError, ReadError};

use self::programs::Programs;

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
    /// The link `kube-ipvs0` and IPVS services.
    Link {
        /// Number of services.
        services: usize,
    },
    /// The link `kube-ipvs0`, without IPVS services because ipvsadm is not installed.
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
                write!(f, "{services} IPVS services and the link {}", names::LINK)
            }
            Self::LinkAlone { services } => write!(
                f,
                "the link {}; {services} IPVS services stay because ipvsadm is not installed",
                names::LINK
            ),
            Self::Ipsets(count) => write!(f, "{count} ipsets"),
        }
    }
}

/// Why a removal failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    pub errors: Vec<Error>,
}

impl Removal {
    /// Logs the removed objects.
    pub fn log_removed(&self) {
        for removed in &self.removed {
            tracing::info!("removed leftovers of another proxy mode: {removed}");
        }
    }

    fn add(&mut self, outcome: Result<Option<Removed>, Error>) {
        match outcome {
            Ok(removed) => self.removed.extend(removed),
            Err(error) => self.errors.push(error),
        }
    }
}

/// Files and programs of the node by which leftovers are found.
struct Node {
    /// `/proc/net` of this thread's network namespace.
    net: PathBuf,
    /// `/sys/module`.
    modules: PathBuf,
    programs: Programs,
}

impl Node {
    fn new() -> Self {
        let [net, modules] = ["/proc/thread-self/net", "/sys/module"].map(PathBuf::from);
        Self { net, modules, programs: Programs::of_node() }
    }

    /// Returns a node whose files are all in one directory.
    #[cfg(test)]
    fn at(folder: &std::path::Path, programs: Programs) -> Self {
        Self { net: folder.to_owned(), modules: folder.to_owned(), programs }
    }
}

/// Pauses between attempts.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_secs(60),
];

/// Removes all leftovers in the network namespace of this thread. Blocks.
pub fn remove() -> Removal {
    let node = Node::new();
    let mut outcome = Removal::default();
    let tables = || Family::ALL.into_iter().flat_map(|family| Table::ALL.map(|it| (family, it)));
    match Nftables::open() {
        Ok(mut kernel) => tables().for_each(|(family, table)| {
            outcome.add(nftables::remove(&mut kernel, family, table));
        }),
        Err(error) => outcome.errors.push(error.into()),
    }
    tables().for_each(|(family, table)| outcome.add(legacy::remove(&node, family, table)));
    outcome.add(ipvs::remove(&node));
    outcome.add(ipvs::remove_ipsets(&node));
    outcome
}

/// Removes all leftovers on a thread of its own and logs them. Retries a few times after errors.
/// Returns whether anything was removed.
pub async fn remove_in_background() -> bool {
    let mut has_removed = false;
    let mut pauses = PAUSES.into_iter();
    loop {
        // The task fails only by a panic, which is logged.
        let Ok(outcome) = tokio::task::spawn_blocking(remove).await else { return has_removed };
        has_removed |= !outcome.removed.is_empty();
        outcome.log_removed();
        match pauses.next() {
            Some(pause) if !outcome.errors.is_empty() => tokio::time::sleep(pause).await,
            Some(_) | None => {
                outcome.errors.iter().for_each(|error| {
                    tracing::warn!("leftovers of another proxy mode may remain: {error}");
                });
                return has_removed;
            }
        }
    }
}
