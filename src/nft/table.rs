//! Tables: their keys, headers and owners.

use std::fmt;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::text::{Comment, Name};
use super::userdata::write_userdata;
use crate::family::TableFamily;
use crate::netlink::attr::{AttrWriter, Attrs};

/// The key of a table: two families may have tables of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableRef {
    /// Family of the table.
    pub family: TableFamily,
    /// Name within the family.
    pub name: Name,
}

impl TableRef {
    /// Returns the key of the table with a name in a family.
    pub fn new(family: impl Into<TableFamily>, name: impl Into<Name>) -> Self {
        Self { family: family.into(), name: name.into() }
    }
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Family of the table.
    pub family: TableFamily,
    /// Name within the family.
    pub name: Name,
    /// Owner and lifetime of the table.
    pub flags: TableFlags,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
}

impl Table {
    /// Returns a table without flags and comment.
    pub fn new(family: impl Into<TableFamily>, name: impl Into<Name>) -> Self {
        let (family, name) = (family.into(), name.into());
        Self { family, name, flags: TableFlags::default(), comment: None }
    }

    /// Returns the key of the table.
    pub fn reference(&self) -> TableRef {
        TableRef { family: self.family, name: self.name.clone() }
    }

    pub(super) fn encode(&self, w: &mut AttrWriter<'_>) {
        w.str(NFTA_TABLE_NAME, &self.name);
        w.be32(NFTA_TABLE_FLAGS, self.flags.bits());
        write_userdata(w, NFTA_TABLE_USERDATA, self.comment.as_deref());
    }
}

/// Returns the name of the table in a message about a table, chain, rule, set or element.
///
/// # Errors
/// The attributes are broken or do not name a table.
pub fn table_name(attributes: &[u8]) -> Result<&str, DecodeError> {
    // NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE and NFTA_SET_ELEM_LIST_TABLE have the
    // number of NFTA_TABLE_NAME.
    Fields::read(Attrs::new(attributes))?.str(NFTA_TABLE_NAME)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)?;
        let flags = match (self.flags.owner, self.flags.persist) {
            (false, false) => "",
            (true, false) => " flags owner;",
            (false, true) => " flags persist;",
            (true, true) => " flags owner,persist;",
        };
        match (flags, &self.comment) {
            ("", None) => Ok(()),
            (flags, None) => write!(f, " {{{flags} }}"),
            (flags, Some(comment)) => write!(f, " {{{flags}{}; }}", Comment(Some(comment))),
        }
    }
}

/// Flags of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableFlags {
    /// Only the socket that created the table may change it: `NFT_TABLE_F_OWNER`.
    pub owner: bool,
    /// The table outlives the socket that owns it: `NFT_TABLE_F_PERSIST`, Linux 6.9 and later.
    pub persist: bool,
}

impl TableFlags {
    /// Returns them as `NFT_TABLE_F_*`.
    pub fn bits(self) -> u32 {
        let owner = if self.owner { NFT_TABLE_F_OWNER } else { 0 };
        let persist = if self.persist { NFT_TABLE_F_PERSIST } else { 0 };
        owner | persist
    }

    pub(super) fn from_bits(bits: u32) -> Option<Self> {
        let flags =
            Self { owner: bits & NFT_TABLE_F_OWNER != 0, persist: bits & NFT_TABLE_F_PERSIST != 0 };
        (flags.bits() == bits).then_some(flags)
    }
}
