//! What can go wrong between us and the kernel, by what is to be done about it.
//!
//! Every message is one line that stands alone in a log.

use std::io;

use nix::errno::Errno;

use super::Release;
use crate::netlink::message::MessageError;
use crate::netlink::socket::ReceiveError;
use crate::nft::TableRef;

/// Why nftables cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The process lacks `CAP_NET_ADMIN` in the user namespace that owns its network namespace.
    #[error(
        "no permission to change nftables: CAP_NET_ADMIN is missing; run as root, grant the \
         capability, or use a network namespace of your own"
    )]
    NoPermission,
    /// The kernel has no nf_tables, built in or as a module that could be loaded.
    #[error(
        "this kernel has no nftables: load the module nf_tables (`modprobe nf_tables`) or use a \
         kernel built with CONFIG_NF_TABLES"
    )]
    NoNfTables,
    /// The kernel is older than [`Release::OLDEST`].
    #[error("Linux {release} is too old: 5.13 or later is needed; update the kernel of this node")]
    KernelTooOld {
        /// The running kernel.
        release: Release,
    },
    /// The socket failed, or the kernel's answers made no sense.
    #[error("cannot talk to nftables: {0}; try again, and report it if it stays")]
    Io(#[from] io::Error),
}

/// Why a commit did not succeed, by what is known of the kernel's state.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The kernel refused the transaction; nothing was applied.
    #[error("the kernel refused {what}: {}", words(*errno, reason.as_deref()))]
    Refused {
        /// Index of the operation it refused; `None` if it refused the transaction as a whole.
        operation: Option<usize>,
        /// Index into that operation's elements, if the refusal is about one of them.
        element: Option<usize>,
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's own words, if it has any.
        reason: Option<String>,
        /// The object and the field, in words and in nft's notation.
        what: String,
    },
    /// The table belongs to another socket; nothing was applied.
    #[error("table {table} is owned by another process (netlink port {port}); stop that process")]
    Owned {
        /// The table.
        table: TableRef,
        /// Netlink port of the owner: mostly the process id.
        port: u32,
    },
    /// The transaction was sent and the answer lost: it may or may not have been applied.
    #[error("the kernel's answer was lost, so the transaction may or may not be applied: {0}")]
    Unknown(io::Error),
    /// Nothing was applied: it was not sent, or certainly did not take effect.
    #[error("the transaction was not applied: {0}")]
    NotSent(io::Error),
}

/// Why something could not be read from the kernel.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kernel refused the request.
    #[error("the kernel refused to show {what}: {}", words(*errno, reason.as_deref()))]
    Refused {
        /// What was asked for.
        what: String,
        /// The kernel's error number; ENOENT if there is no such object.
        errno: Errno,
        /// The kernel's own words, if it has any.
        reason: Option<String>,
    },
    /// The rules changed during every attempt to read them.
    #[error("{what} kept changing while it was read")]
    Changing {
        /// What was asked for.
        what: String,
    },
    /// The answer goes on past [`super::MAX_ANSWER_BYTES`] or [`super::MAX_ANSWER_TIME`].
    #[error("the answer about {what} does not end")]
    Endless {
        /// What was asked for.
        what: String,
    },
    /// The answer does not consist of messages.
    #[error("an answer about {what} is damaged: {error}")]
    Malformed {
        /// What was asked for.
        what: String,
        /// What is wrong with it.
        error: Malformed,
    },
    /// Nothing, or nothing whole, was received.
    #[error("no answer about {what}: {error}")]
    Receive {
        /// What was asked for.
        what: String,
        /// Why.
        error: ReceiveError,
    },
    /// The request could not be sent.
    #[error("cannot ask for {what}: {error}")]
    Send {
        /// What was asked for.
        what: String,
        /// Why.
        error: io::Error,
    },
}

/// What is wrong with an answer.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The datagram is not made of messages.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A message is not made of the attributes it should have.
    #[error(transparent)]
    Object(#[from] crate::nft::DecodeError),
}

impl ReadError {
    /// Whether the kernel said that there is no such object.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { errno: Errno::ENOENT, .. })
    }
}

/// An error number and the kernel's reason in one phrase.
fn words(errno: Errno, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{reason} ({errno})"),
        None => errno.to_string(),
    }
}
