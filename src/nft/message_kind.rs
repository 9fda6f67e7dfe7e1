//! Types of the messages of a batch, and their flags.

use std::fmt;

use super::abi::*;

/// Type of a message, named as in `<linux/netfilter/nf_tables.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum MessageKind {
    /// `NFT_MSG_NEWTABLE`.
    NewTable = NFT_MSG_NEWTABLE,
    /// `NFT_MSG_DELTABLE`.
    DelTable = NFT_MSG_DELTABLE,
    /// `NFT_MSG_NEWCHAIN`.
    NewChain = NFT_MSG_NEWCHAIN,
    /// `NFT_MSG_DELCHAIN`.
    DelChain = NFT_MSG_DELCHAIN,
    /// `NFT_MSG_NEWRULE`.
    NewRule = NFT_MSG_NEWRULE,
    /// `NFT_MSG_DELRULE`.
    DelRule = NFT_MSG_DELRULE,
    /// `NFT_MSG_NEWSET`.
    NewSet = NFT_MSG_NEWSET,
    /// `NFT_MSG_DELSET`.
    DelSet = NFT_MSG_DELSET,
    /// `NFT_MSG_NEWFLOWTABLE`.
    NewFlowtable = NFT_MSG_NEWFLOWTABLE,
    /// `NFT_MSG_DELFLOWTABLE`.
    DelFlowtable = NFT_MSG_DELFLOWTABLE,
    /// `NFT_MSG_NEWOBJ`.
    NewObj = NFT_MSG_NEWOBJ,
    /// `NFT_MSG_DELOBJ`.
    DelObj = NFT_MSG_DELOBJ,
    /// `NFT_MSG_NEWSETELEM`.
    NewSetElem = NFT_MSG_NEWSETELEM,
    /// `NFT_MSG_DELSETELEM`.
    DelSetElem = NFT_MSG_DELSETELEM,
    /// `NFT_MSG_DESTROYTABLE`.
    DestroyTable = NFT_MSG_DESTROYTABLE,
    /// `NFT_MSG_DESTROYCHAIN`.
    DestroyChain = NFT_MSG_DESTROYCHAIN,
    /// `NFT_MSG_DESTROYRULE`.
    DestroyRule = NFT_MSG_DESTROYRULE,
    /// `NFT_MSG_DESTROYSET`.
    DestroySet = NFT_MSG_DESTROYSET,
    /// `NFT_MSG_DESTROYSETELEM`.
    DestroySetElem = NFT_MSG_DESTROYSETELEM,
    /// `NFT_MSG_DESTROYOBJ`.
    DestroyObj = NFT_MSG_DESTROYOBJ,
    /// `NFT_MSG_DESTROYFLOWTABLE`.
    DestroyFlowtable = NFT_MSG_DESTROYFLOWTABLE,
}

impl MessageKind {
    /// Returns the `nlmsg_type` of such a message.
    pub const fn number(self) -> u16 {
        NFNL_SUBSYS_NFTABLES << 8 | self as u16
    }

    // No NLM_F_EXCL: an equal object that exists already is not an error.
    pub(super) const fn flags(self) -> u16 {
        match self {
            Self::NewTable
            | Self::NewChain
            | Self::NewSet
            | Self::NewFlowtable
            | Self::NewObj
            | Self::NewSetElem => NLM_F_REQUEST | NLM_F_CREATE,
            Self::NewRule => NLM_F_REQUEST | NLM_F_CREATE | NLM_F_APPEND,
            Self::DelTable
            | Self::DelChain
            | Self::DelRule
            | Self::DelSet
            | Self::DelFlowtable
            | Self::DelObj
            | Self::DelSetElem
            | Self::DestroyTable
            | Self::DestroyChain
            | Self::DestroyRule
            | Self::DestroySet
            | Self::DestroySetElem
            | Self::DestroyObj
            | Self::DestroyFlowtable => NLM_F_REQUEST,
        }
    }

    /// Returns whether elements are named by their keys alone.
    pub(super) const fn is_of_keys(self) -> bool {
        matches!(self, Self::DelSetElem | Self::DestroySetElem)
    }

    /// Returns the kernel's name in lower case without `NFT_MSG_`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NewTable => "newtable",
            Self::DelTable => "deltable",
            Self::NewChain => "newchain",
            Self::DelChain => "delchain",
            Self::NewRule => "newrule",
            Self::DelRule => "delrule",
            Self::NewSet => "newset",
            Self::DelSet => "delset",
            Self::NewFlowtable => "newflowtable",
            Self::DelFlowtable => "delflowtable",
            Self::NewObj => "newobj",
            Self::DelObj => "delobj",
            Self::NewSetElem => "newsetelem",
            Self::DelSetElem => "delsetelem",
            Self::DestroyTable => "destroytable",
            Self::DestroyChain => "destroychain",
            Self::DestroyRule => "destroyrule",
            Self::DestroySet => "destroyset",
            Self::DestroySetElem => "destroysetelem",
            Self::DestroyObj => "destroyobj",
            Self::DestroyFlowtable => "destroyflowtable",
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
