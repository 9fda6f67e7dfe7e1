//! Tables and chains: what rules and sets live in.

use std::borrow::Cow;
use std::fmt;

/// Name of a table, chain or set.
pub type Name = Cow<'static, str>;

/// Address family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4: `NFPROTO_IPV4`.
    Ip,
    /// IPv6: `NFPROTO_IPV6`.
    Ip6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        })
    }
}

/// What identifies a table: two families may have tables of the same name.
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
    /// Who may change it and when it goes away.
    pub flags: TableFlags,
    /// What `nft list` prints as the table's comment.
    pub comment: Option<String>,
}

impl Table {
    /// What identifies this table.
    pub fn reference(&self) -> TableRef {
        TableRef { family: self.family, name: self.name.clone() }
    }
}

/// Flags of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableFlags {
    /// Only the socket that made the table may change it: `NFT_TABLE_F_OWNER`.
    pub owner: bool,
    /// The table outlives the socket that owns it: `NFT_TABLE_F_PERSIST`, Linux 6.9 and later.
    pub persist: bool,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Name within the table.
    pub name: Name,
    /// Where packets enter; `None` for a chain that is only jumped to.
    pub hook: Option<Hook>,
    /// What `nft list` prints as the chain's comment.
    pub comment: Option<String>,
}

/// Where the kernel hands packets to a base chain, whose policy is always accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// What the chain may do.
    pub kind: ChainType,
    /// Point on the packet's way.
    pub point: HookPoint,
    /// Place among the chains of that point; lower comes first.
    pub priority: i32,
}

/// Type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainType {
    /// Sees every packet.
    Filter,
    /// Sees the first packet of a connection and may translate addresses.
    Nat,
}

/// Point on a packet's way through the kernel: `NF_INET_*` in `<linux/netfilter.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint {
    /// Received, before routing.
    Prerouting,
    /// For this host.
    Input,
    /// From one interface to another.
    Forward,
    /// Made on this host.
    Output,
    /// About to leave.
    Postrouting,
}
