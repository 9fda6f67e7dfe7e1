//! Operations that the kernel applies all together or not at all.

use std::sync::Arc;

use thiserror::Error;

use super::{Chain, Element, Name, Rule, Set, Table, TableRef};

/// One change of the ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a table, or leaves it as it is if it is there.
    AddTable(Table),
    /// Removes a table and everything in it.
    DeleteTable(TableRef),
    /// Makes a chain, or leaves it as it is if it is there.
    AddChain(TableRef, Chain),
    /// Removes a chain that has no rules and that nothing jumps to.
    DeleteChain(TableRef, Name),
    /// Removes all rules of a chain.
    FlushChain(TableRef, Name),
    /// Appends a rule to its chain.
    AddRule(TableRef, Rule),
    /// Makes a set or map, or leaves it as it is if it is there.
    AddSet(TableRef, Arc<Set>),
    /// Removes a set or map that no rule uses.
    DeleteSet(TableRef, Name),
    /// Removes all elements of a set or map.
    FlushSet(TableRef, Name),
    /// Adds elements; those that are there already must have the same data.
    AddElements(TableRef, Arc<Set>, Vec<Element>),
    /// Removes elements by their keys; all must be there.
    DeleteElements(TableRef, Arc<Set>, Vec<Element>),
}

/// Operations in the order in which the kernel sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All applied, or none.
    pub operations: Vec<Operation>,
}

/// Which message of a batch the kernel is asked to acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// The one that ends the batch; Linux 6.10 and later.
    BatchEnd,
    /// The last one before it.
    LastMessage,
}

/// An encoded transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// All messages from `NFNL_MSG_BATCH_BEGIN` to `NFNL_MSG_BATCH_END`.
    pub bytes: Vec<u8>,
    /// Where each message between begin and end comes from. The first has the sequence number
    /// `first_sequence + 1`; the end has the one after the last.
    pub messages: Vec<MessageOrigin>,
    /// Sequence number of the message that begins the batch.
    pub first_sequence: u32,
}

/// Where a message of a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageOrigin {
    /// Index into [`Transaction::operations`].
    pub operation: usize,
    /// Index of the message's first element in the operation's list; 0 for other operations.
    pub first_element: usize,
    /// Type of the message.
    pub kind: MessageKind,
    /// Where the message's header starts in [`Batch::bytes`].
    pub offset: usize,
}

/// Type of a message, named as in `<linux/netfilter/nf_tables.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageKind {
    /// `NFT_MSG_NEWTABLE`.
    NewTable,
    /// `NFT_MSG_DELTABLE`.
    DelTable,
    /// `NFT_MSG_NEWCHAIN`.
    NewChain,
    /// `NFT_MSG_DELCHAIN`.
    DelChain,
    /// `NFT_MSG_NEWRULE`.
    NewRule,
    /// `NFT_MSG_DELRULE`.
    DelRule,
    /// `NFT_MSG_NEWSET`.
    NewSet,
    /// `NFT_MSG_DELSET`.
    DelSet,
    /// `NFT_MSG_NEWSETELEM`.
    NewSetElem,
    /// `NFT_MSG_DELSETELEM`.
    DelSetElem,
}

/// Why a transaction cannot be encoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// An attribute of the operation does not fit its 16-bit length.
    #[error("operation {operation} has an attribute longer than 65535 bytes")]
    TooLong {
        /// Index into [`Transaction::operations`].
        operation: usize,
    },
    /// An address is not of the table's family.
    #[error("operation {operation} has an address of another family than its table")]
    WrongFamily {
        /// Index into [`Transaction::operations`].
        operation: usize,
    },
}
