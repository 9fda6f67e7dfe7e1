//! The flowtables of both tables: whether the kernel has them, and whether they are in place.

use nft::Errno;
use nft::family::Family;
use nft::{Operation, Statement};

use super::{Engine, FoundTable};

impl Engine {
    /// Returns whether the table of a family has its flowtable, as far as is known.
    pub fn has_flowtable(&self, family: Family) -> bool {
        self.tables[family.index()].installed.has_flowtable()
    }

    /// Returns whether a flowtable is configured, but the kernel lacks flowtables.
    pub fn lacks_flowtables(&self) -> bool {
        self.lacks_flowtables
    }

    /// Accepts tables without flowtables, if neither of `found` has one: the kernel may lack them.
    /// For commands that commit nothing, before [`Engine::replace_installed`].
    pub fn accept_missing_flowtables(&mut self, found: &[FoundTable; 2]) {
        let mut contents = found.iter().filter_map(|found| found.contents.as_ref());
        let is_found = contents.any(|contents| !contents.flowtables.is_empty());
        if self.routing.flowtable.is_some() && !is_found {
            self.lacks_flowtables = true;
            self.render_tables();
        }
    }

    /// Handles the refusal of an operation. Returns whether its cause is that the kernel lacks
    /// flowtables; the next transactions then have none.
    pub(super) fn finds_no_flowtables(
        &mut self,
        refused: Option<&Operation>,
        errno: Errno,
    ) -> bool {
        let needs_flowtables = match refused {
            Some(Operation::AddFlowtable(..)) => true,
            Some(Operation::AddRule(_, rule)) => {
                rule.statements.iter().any(|it| matches!(it, Statement::FlowAdd(_)))
            }
            _ => false,
        };
        // `nft_flowtable_type_get` and `nft_expr_type_get` return the first.
        let is_lack = matches!(errno, Errno::ENOENT | Errno::EOPNOTSUPP);
        if needs_flowtables && is_lack && !self.lacks_flowtables {
            self.lacks_flowtables = true;
            self.render_tables();
            return true;
        }
        false
    }
}
