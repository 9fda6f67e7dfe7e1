//! Errors of the kernel interface, by the reaction that they require.
//!
//! Every message is one line that is complete in a log.

use std::io;

use nix::errno::Errno;

use super::release::Release;
use crate::netlink::message::MessageError;
use crate::netlink::socket::ReceiveError;
use crate::table::TableRef;

/// Why nftables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The process lacks `CAP_NET_ADMIN` in the user namespace that owns its network namespace.
    #[error(
        "no permission to change nftables: CAP_NET_ADMIN is missing; run as root, grant the \
         capability, or use a network namespace of your own"
    )]
    NoPermission,
    /// The kernel has no nf_tables, neither built in nor as a module that could be loaded.
    #[error(
        "this kernel has no nftables: load the module nf_tables (`modprobe nf_tables`) or use a \
         kernel built with CONFIG_NF_TABLES"
    )]
    NoNfTables,
    /// The kernel is older than [`Release::OLDEST`].
    #[error("Linux {release} is too old: 5.13 or later is needed; update the kernel of this node")]
    KernelTooOld {
        /// Release of the running kernel.
        release: Release,
    },
    /// The socket failed, or the kernel's answer cannot be decoded.
    #[error("cannot talk to nftables: {0}; try again, and report it if it stays")]
    Io(#[from] io::Error),
}

/// Why a commit failed, by the resulting state of the kernel.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The kernel refused the transaction; nothing was applied.
    #[error("the kernel refused {what}: {}", words(*errno, reason.as_deref()))]
    Refused {
        /// Index of the refused operation; `None` if the kernel refused the transaction as a whole.
        operation: Option<usize>,
        /// Index of the refused element in the operation, if the refusal names one.
        element: Option<usize>,
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's text, if any.
        reason: Option<String>,
        /// The object in nft's notation, and the field.
        what: String,
    },
    /// The table belongs to another socket; nothing was applied.
    #[error("table {table} is owned by another process (netlink port {port}); stop that process")]
    Owned {
        /// The table.
        table: TableRef,
        /// Netlink port of the owner, usually its process id.
        port: u32,
    },
    /// The transaction was sent and the answer was lost: the kernel may or may not have applied it.
    #[error("the kernel's answer was lost, so the transaction may or may not be applied: {0}")]
    Unknown(io::Error),
    /// Nothing was applied: the transaction was not sent, or it certainly had no effect.
    #[error("the transaction was not applied: {0}")]
    NotSent(io::Error),
}

/// Why a read from the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kernel refused the request.
    #[error("the kernel refused to show {what}: {}", words(*errno, reason.as_deref()))]
    Refused {
        /// The requested objects.
        what: String,
        /// The kernel's error number; ENOENT if the object does not exist.
        errno: Errno,
        /// The kernel's text, if any.
        reason: Option<String>,
    },
    /// The ruleset changed during every attempt to read it.
    #[error("{what} kept changing while it was read")]
    Changing {
        /// The requested objects.
        what: String,
    },
    /// The answer exceeds [`super::MAX_ANSWER_BYTES`] or [`super::MAX_ANSWER_TIME`].
    #[error("the answer about {what} does not end")]
    Endless {
        /// The requested objects.
        what: String,
    },
    /// Another thread stopped it by the flag of [`super::Kernel::stop_of_reads`].
    #[error("the read of {what} was stopped")]
    Stopped {
        /// The requested objects.
        what: String,
    },
    /// The answer cannot be decoded.
    #[error("an answer about {what} is damaged: {error}")]
    Malformed {
        /// The requested objects.
        what: String,
        /// What is wrong with the answer.
        error: Malformed,
    },
    /// No complete answer was received.
    #[error("no answer about {what}: {error}")]
    Receive {
        /// The requested objects.
        what: String,
        /// Error of the receive.
        error: ReceiveError,
    },
    /// The request could not be sent.
    #[error("cannot ask for {what}: {error}")]
    Send {
        /// The requested objects.
        what: String,
        /// Error of the send.
        error: io::Error,
    },
}

/// Why an answer cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The datagram does not consist of netlink messages.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The message does not have the expected attributes.
    #[error(transparent)]
    Object(#[from] crate::fields::DecodeError),
}

impl CommitError {
    /// Returns the error for a transaction of `length` bytes where at most `most` can be sent.
    pub(super) fn too_long(length: usize, most: usize) -> Self {
        let message = format!("{length} bytes are more than the {most} the socket takes");
        Self::NotSent(io::Error::new(io::ErrorKind::ArgumentListTooLong, message))
    }
}

impl ReadError {
    /// Returns whether the object does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { errno: Errno::ENOENT, .. })
    }
}

/// Joins an error number and the kernel's text.
fn words(errno: Errno, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{reason} ({errno})"),
        None => errno.to_string(),
    }
}

/// Returns `None` if the object does not exist.
pub(super) fn unless_missing<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(error) if error.is_missing() => Ok(None),
        read => read.map(Some),
    }
}
