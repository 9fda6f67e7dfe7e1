//! The tables that this program writes.

use nft::{Family, TableFamily, TableRef, Transaction};

use crate::direct::ruleset as direct_return;
use crate::ruleset;

/// A table of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableId {
    /// kube-proxy's table of IPv4.
    Ip,
    /// kube-proxy's table of IPv6.
    Ip6,
    /// The table of direct return, of both families.
    DirectReturn,
}

impl TableId {
    /// All of them, in the order of their transactions.
    pub const ALL: [Self; 3] = [Self::Ip, Self::Ip6, Self::DirectReturn];

    /// Returns the table that `reference` names.
    pub fn of(reference: &TableRef) -> Option<Self> {
        let id = match reference.family {
            TableFamily::Ip => Self::Ip,
            TableFamily::Ip6 => Self::Ip6,
            TableFamily::Netdev => Self::DirectReturn,
            TableFamily::Inet | TableFamily::Arp | TableFamily::Bridge => return None,
        };
        (id.reference().name == reference.name).then_some(id)
    }

    /// Returns the table that a transaction of one table writes.
    pub fn written_by(transaction: &Transaction) -> Option<Self> {
        transaction.operations.first().and_then(|operation| Self::of(&operation.table()))
    }

    /// Returns its place in [`TableId::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns its family and name.
    pub fn reference(self) -> TableRef {
        match self {
            Self::Ip => ruleset::table(Family::Ip),
            Self::Ip6 => ruleset::table(Family::Ip6),
            Self::DirectReturn => direct_return::table(),
        }
    }

    /// Returns its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ip => Family::Ip.name(),
            Self::Ip6 => Family::Ip6.name(),
            Self::DirectReturn => "direct return",
        }
    }

    /// Returns its comment, with the number of its layout.
    pub fn comment(self) -> String {
        match self {
            Self::Ip | Self::Ip6 => ruleset::table_comment(),
            Self::DirectReturn => direct_return::table_comment(),
        }
    }
}

impl From<Family> for TableId {
    fn from(family: Family) -> Self {
        match family {
            Family::Ip => Self::Ip,
            Family::Ip6 => Self::Ip6,
        }
    }
}
