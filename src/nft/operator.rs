//! Operators of expressions.

use std::cmp::Ordering;

use super::abi::*;

/// The change of an element by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DynsetOperation {
    /// Adds it; an existing element keeps its data, and its timeout restarts.
    Update = NFT_DYNSET_OP_UPDATE,
    /// Deletes it.
    Delete = NFT_DYNSET_OP_DELETE,
}

impl DynsetOperation {
    /// Returns the keyword of nft(8).
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A comparison other than for equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// `<`
    Less = NFT_CMP_LT,
    /// `<=`
    LessOrEqual = NFT_CMP_LTE,
    /// `>`
    Greater = NFT_CMP_GT,
    /// `>=`
    GreaterOrEqual = NFT_CMP_GTE,
}

impl Order {
    pub(super) const fn decode(number: u32) -> Option<Self> {
        match number {
            NFT_CMP_LT => Some(Self::Less),
            NFT_CMP_LTE => Some(Self::LessOrEqual),
            NFT_CMP_GT => Some(Self::Greater),
            NFT_CMP_GTE => Some(Self::GreaterOrEqual),
            _ => None,
        }
    }

    /// Returns whether a value that compares as `ordering` with the operand matches.
    pub const fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }

    /// Returns the operator of nft(8).
    pub const fn word(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}
