//! Changes of the source ranges of a frontend.

use super::frontends::{FrontendChange, Rare};
use super::progress::Progress;
use crate::piece::Full;
use crate::ruleset::{Range, TableElement};

impl FrontendChange<'_> {
    /// Adds all ranges before packets look them up, and keeps them for a while after the last
    /// lookup. A change of an interval set becomes visible after all else of its commit
    /// (`nft_set_commit_update`), so `restricted-services` gets the frontend in the next commit.
    pub(super) fn install_ranges(
        &mut self,
        rare: &mut Rare,
        goal: Option<&[Range]>,
    ) -> Result<Progress, Full> {
        let restricted = TableElement::Restricted(self.frontend);
        let refusals = TableElement::SourceRefusals(self.frontend);
        let Some(goal) = goal else {
            if std::mem::take(&mut rare.is_restricted) {
                self.replace(Some(restricted), None);
            }
            if std::mem::take(&mut rare.counts_refusals) {
                self.replace(Some(refusals), None);
            }
            rare.ranges_added = None;
            if !rare.ranges.is_empty() && rare.ranges_unused.is_none() {
                rare.ranges_unused = Some(self.leave());
            }
            return Ok(Progress::Complete);
        };
        rare.ranges_unused = None;
        if *rare.ranges != *goal {
            // Deletes first, because new ranges could overlap old ones.
            self.delete_ranges(rare, |range| goal.binary_search(range).is_ok())?;
            self.add_ranges(rare, goal)?;
        }
        if !std::mem::replace(&mut rare.counts_refusals, true) {
            self.replace(None, Some(refusals));
        }
        if rare.is_restricted {
            return Ok(Progress::Complete);
        }
        // The first commit may create or replace the whole table, so both sets may get their
        // elements in it.
        if self.epochs.present > 0 && rare.ranges_added == Some(self.epochs.present) {
            return Ok(Progress::AfterCommit);
        }
        self.replace(None, Some(restricted));
        rare.is_restricted = true;
        rare.ranges_added = None;
        Ok(Progress::Complete)
    }

    fn add_ranges(&mut self, rare: &mut Rare, goal: &[Range]) -> Result<(), Full> {
        let known = rare.ranges.len();
        let result = goal.iter().try_for_each(|range| {
            if rare.ranges[..known].binary_search(range).is_err() {
                self.piece.fits_budget(1)?;
                self.replace(None, Some(TableElement::SourceRange(self.frontend, *range)));
                rare.ranges_added = Some(self.epochs.present);
                rare.ranges.push(*range);
            }
            Ok(())
        });
        rare.ranges.sort_unstable();
        result
    }

    pub(super) fn delete_ranges(
        &mut self,
        rare: &mut Rare,
        is_kept: impl Fn(&Range) -> bool,
    ) -> Result<(), Full> {
        let mut result = Ok(());
        rare.ranges.retain(|range| {
            if is_kept(range) || result.is_err() {
                return true;
            }
            result = self.piece.fits_budget(1);
            if result.is_ok() {
                self.replace(Some(TableElement::SourceRange(self.frontend, *range)), None);
            }
            result.is_err()
        });
        result
    }
}
