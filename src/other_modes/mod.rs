//! What kube-proxy leaves behind in its modes iptables and ipvs, and its removal.
//!
//! Chains of iptables-nft go through nftables, and those of iptables-legacy through its programs,
//! with the rules that jump to them. IPVS services, the link `kube-ipvs0` and ipsets go after the
//! rules. Only names of kube-proxy count; chains, rules and sets of others stay. Each step is done
//! whatever became of the others, except that sets are in use as long as rules are.
//!
//! Of base chains with one hook and priority the kernel runs the newest first
//! (`nf_hook_entries_grow`), and ours have the priorities of iptables. So the DNAT of a leftover wins
//! over tables that are older than its own. Until leftovers go, they may serve connections; from then
//! on our tables must: the caller removes nothing before those are in place.

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
use self::programs::Programs;
use crate::family::Family;
use crate::kernel::{CommitError, Nftables, OpenError, ReadError};

/// Something that was removed, as an object of the verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Chains of a table with their rules.
    Chains {
        /// The table.
        place: String,
        /// How many chains.
        chains: usize,
        /// How many rules of other chains jumped to them.
        rules: usize,
    },
    /// The link `kube-ipvs0` and IPVS services.
    Link {
        /// How many services.
        services: usize,
    },
    /// The link `kube-ipvs0`, without IPVS services because ipvsadm is not installed.
    LinkAlone {
        /// How many services stay.
        services: usize,
    },
    /// This many ipsets.
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

/// Why something could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// nftables cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A table could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel did not remove chains.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A program failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel did not remove the link.
    #[error("the link {link} cannot be removed: {0}", link = names::LINK)]
    Link(#[from] io::Error),
}

/// What came of a removal.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was removed; empty on a node without leftovers.
    pub removed: Vec<Removed>,
    /// What may be left.
    pub errors: Vec<Error>,
}

impl Outcome {
    /// Writes to the log what was removed.
    pub fn log_removed(&self) {
        for removed in &self.removed {
            tracing::info!("removed what another proxy mode left: {removed}");
        }
    }

    fn add(&mut self, outcome: Result<Option<Removed>, Error>) {
        match outcome {
            Ok(removed) => self.removed.extend(removed),
            Err(error) => self.errors.push(error),
        }
    }
}

/// The files and programs of the node that lead to leftovers.
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

    /// A node whose files are all in one folder.
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
pub fn remove() -> Outcome {
    let node = Node::new();
    let mut outcome = Outcome::default();
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

/// Removes all leftovers on a thread of its own, writes to the log what was removed, and tries a few
/// times more what fails. Returns whether something was removed.
pub async fn remove_in_background() -> bool {
    let mut has_removed = false;
    let mut pauses = PAUSES.into_iter();
    loop {
        // The task only fails by a panic, which is in the log.
        let Ok(outcome) = tokio::task::spawn_blocking(remove).await else { return has_removed };
        has_removed |= !outcome.removed.is_empty();
        outcome.log_removed();
        match pauses.next() {
            Some(pause) if !outcome.errors.is_empty() => tokio::time::sleep(pause).await,
            Some(_) | None => {
                outcome.errors.iter().for_each(|error| {
                    tracing::warn!("what another proxy mode left may be there still: {error}");
                });
                return has_removed;
            }
        }
    }
}
