//! The contents of tables that were read, as [`super::Engine::replace_installed_state`] takes them.

use nft::kernel::Contents;
use nft::{Family, Operation};

use super::table_id::TableId;
use crate::diff;
use crate::direct;
use crate::ruleset::SetId;

/// The contents of our tables that were read.
#[derive(Debug)]
pub struct FoundTables {
    /// kube-proxy's tables; `ip` first.
    pub of_services: [FoundTable; 2],
    /// The table of direct return.
    pub direct_return: direct::Found,
}

/// The contents of one of kube-proxy's tables that was read.
#[derive(Debug)]
pub struct FoundTable {
    /// Table, chains, rules and sets; `None` if there is no such table.
    pub contents: Option<Contents>,
    /// Elements.
    pub elements: diff::FoundElements,
    /// Operations that remove the elements that this program never writes.
    pub cleanup: Vec<Operation>,
    /// Number of elements of each set that was read.
    pub sizes: [usize; SetId::ALL.len()],
}

impl FoundTables {
    /// Returns the contents of one table; `None` if there is no such table.
    pub fn contents(&self, id: TableId) -> Option<&Contents> {
        match id {
            TableId::Ip | TableId::Ip6 => self.of_services[id.index()].contents.as_ref(),
            TableId::DirectReturn => self.direct_return.contents.as_ref(),
        }
    }

    /// Returns the contents of tables of which none exists.
    pub fn nothing() -> Self {
        let of_services = Family::ALL.map(FoundTable::nothing);
        Self { of_services, direct_return: direct::Found::default() }
    }
}

impl FoundTable {
    /// Returns the contents of a table that does not exist.
    pub fn nothing(family: Family) -> Self {
        Self {
            contents: None,
            elements: diff::FoundElements::new(family),
            cleanup: Vec::new(),
            sizes: Default::default(),
        }
    }
}
