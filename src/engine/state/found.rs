//! The contents of a table that was read, as [`super::Engine::replace_installed_state`] takes them.

use nft::kernel::Contents;
use nft::{Family, Operation};

use crate::diff;
use crate::ruleset::SetId;

/// The contents of one table that was read.
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
