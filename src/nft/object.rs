//! Tables and chains.

use std::borrow::Cow;
use std::fmt;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::text::Comment;
use super::userdata;
use crate::family::Family;
use crate::netlink::attr::{AttrWriter, Attrs};

/// Name of a table, chain or set.
pub type Name = Cow<'static, str>;

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        })
    }
}

/// The key of a table: two families may have tables of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableRef {
    /// Address family.
    pub family: Family,
    /// Name within the family.
    pub name: Name,
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Address family.
    pub family: Family,
    /// Name within the family.
    pub name: Name,
    /// Owner and lifetime of the table.
    pub flags: TableFlags,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
}

impl Table {
    /// Returns the key of the table.
    pub fn reference(&self) -> TableRef {
        TableRef { family: self.family, name: self.name.clone() }
    }

    pub(super) fn encode(&self, w: &mut AttrWriter<'_>) {
        w.str(NFTA_TABLE_NAME, &self.name);
        w.be32(NFTA_TABLE_FLAGS, self.flags.bits());
        write_userdata(w, NFTA_TABLE_USERDATA, self.comment.as_deref());
    }

    /// Reads the attributes of an `NFT_MSG_NEWTABLE` message of this family.
    ///
    /// # Errors
    /// The attributes are broken, or a flag is one that this program never sets.
    pub fn decode(family: Family, attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        Ok(Self {
            family,
            name: Cow::Owned(fields.str(NFTA_TABLE_NAME)?.to_owned()),
            flags: TableFlags::from_bits(fields.be32_or_zero(NFTA_TABLE_FLAGS)?)?,
            comment: read_userdata(&fields, NFTA_TABLE_USERDATA),
        })
    }
}

/// Returns the port id of the socket that owns the table of an `NFT_MSG_NEWTABLE` message, if any.
///
/// # Errors
/// The attributes are broken.
pub fn table_owner(attributes: &[u8]) -> Result<Option<u32>, DecodeError> {
    let fields = Fields::read(Attrs::new(attributes))?;
    fields.optional_be32(NFTA_TABLE_OWNER)
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

/// Returns the name of the chain of an `NFT_MSG_NEWCHAIN` message, of any type and policy.
///
/// # Errors
/// The attributes are broken or have no name.
pub fn chain_name(attributes: &[u8]) -> Result<&str, DecodeError> {
    Fields::read(Attrs::new(attributes))?.str(NFTA_CHAIN_NAME)
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
    pub(super) fn bits(self) -> u32 {
        let owner = if self.owner { NFT_TABLE_F_OWNER } else { 0 };
        let persist = if self.persist { NFT_TABLE_F_PERSIST } else { 0 };
        owner | persist
    }

    fn from_bits(bits: u32) -> Result<Self, DecodeError> {
        match bits & !(NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST) {
            0 => Ok(Self {
                owner: bits & NFT_TABLE_F_OWNER != 0,
                persist: bits & NFT_TABLE_F_PERSIST != 0,
            }),
            _ => Err(DecodeError::Unknown("table flag")),
        }
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Name within the table.
    pub name: Name,
    /// The hook; `None` for a regular chain.
    pub hook: Option<Hook>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
}

impl Chain {
    pub(super) fn encode(&self, table: &str, w: &mut AttrWriter<'_>) {
        w.str(NFTA_CHAIN_TABLE, table);
        w.str(NFTA_CHAIN_NAME, &self.name);
        if let Some(hook) = &self.hook {
            w.nest(NFTA_CHAIN_HOOK, |w| {
                w.be32(NFTA_HOOK_HOOKNUM, hook.point as u32);
                w.bytes(NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
            });
            w.be32(NFTA_CHAIN_POLICY, NF_ACCEPT);
            w.str(NFTA_CHAIN_TYPE, hook.kind.name());
        }
        write_userdata(w, NFTA_CHAIN_USERDATA, self.comment.as_deref());
    }

    /// Reads the attributes of an `NFT_MSG_NEWCHAIN` message.
    ///
    /// # Errors
    /// The attributes are broken, or this program never creates such a chain: of another type, at
    /// another hook, or with another policy than `accept`.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let hook = match fields.find(NFTA_CHAIN_HOOK) {
            Some(_) => Some(Hook::decode(&fields)?),
            None => None,
        };
        Ok(Self {
            name: Cow::Owned(fields.str(NFTA_CHAIN_NAME)?.to_owned()),
            hook,
            comment: read_userdata(&fields, NFTA_CHAIN_USERDATA),
        })
    }
}

/// Writes the part of `add chain` after the name of the table.
impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (&self.hook, &self.comment) {
            (None, None) => Ok(()),
            (Some(hook), None) => write!(f, " {{ {hook} }}"),
            (None, Some(comment)) => write!(f, " {{{}; }}", Comment(Some(comment))),
            (Some(hook), Some(comment)) => write!(f, " {{ {hook}{}; }}", Comment(Some(comment))),
        }
    }
}

/// The hook of a base chain, whose policy is always `accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Type of the chain.
    pub kind: ChainType,
    /// The hook point.
    pub point: HookPoint,
    /// Order among the chains of that point; lower values run first.
    pub priority: i32,
}

impl Hook {
    fn decode(chain: &Fields<'_>) -> Result<Self, DecodeError> {
        let hook = chain.nest(NFTA_CHAIN_HOOK)?;
        match chain.optional_be32(NFTA_CHAIN_POLICY)? {
            None | Some(NF_ACCEPT) => {}
            Some(_) => return Err(DecodeError::Unknown("chain policy")),
        }
        Ok(Self {
            kind: ChainType::decode(chain.str(NFTA_CHAIN_TYPE)?)?,
            point: HookPoint::decode(hook.be32(NFTA_HOOK_HOOKNUM)?)?,
            priority: hook.be32(NFTA_HOOK_PRIORITY)?.cast_signed(),
        })
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, point) = (self.kind.name(), self.point);
        write!(f, "type {kind} hook {point} priority {}; policy accept;", self.priority)
    }
}

/// Type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainType {
    /// Runs for every packet.
    Filter,
    /// Runs for the first packet of a connection and may translate addresses.
    Nat,
}

impl ChainType {
    const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }

    fn decode(name: &str) -> Result<Self, DecodeError> {
        match name {
            "filter" => Ok(Self::Filter),
            "nat" => Ok(Self::Nat),
            _ => Err(DecodeError::Unknown("chain type")),
        }
    }
}

/// A netfilter hook point: `NF_INET_*` in `<linux/netfilter.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HookPoint {
    /// Received packets, before routing.
    Prerouting = NF_INET_PRE_ROUTING,
    /// Packets to this host.
    Input = NF_INET_LOCAL_IN,
    /// Packets from one interface to another.
    Forward = NF_INET_FORWARD,
    /// Packets of this host.
    Output = NF_INET_LOCAL_OUT,
    /// Packets about to leave.
    Postrouting = NF_INET_POST_ROUTING,
}

impl HookPoint {
    fn decode(number: u32) -> Result<Self, DecodeError> {
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting]
            .into_iter()
            .find(|point| *point as u32 == number)
            .ok_or(DecodeError::Unknown("hook"))
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        })
    }
}

/// Appends a comment as user data, if there is one.
pub(super) fn write_userdata(w: &mut AttrWriter<'_>, kind: u16, comment: Option<&str>) {
    let Some(comment) = comment else { return };
    let mut bytes = Vec::new();
    userdata::write_comment(&mut bytes, comment);
    w.bytes(kind, &bytes);
}

/// Returns the comment in a user data attribute.
pub(super) fn read_userdata(fields: &Fields<'_>, kind: u16) -> Option<String> {
    fields.find(kind).and_then(|attr| userdata::read_comment(attr.payload)).map(str::to_owned)
}
