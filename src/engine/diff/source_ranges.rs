//! Changes of the source ranges of a frontend.

use ipnet::IpNet;

use super::frontends::{FrontendChange, Rare};
use super::progress::Progress;
use crate::piece::Full;
use crate::ruleset::TableElement;

impl FrontendChange<'_> {
    /// Adds all ranges with the mark that packets are checked by, or before it, and a route to a new
    /// frontend one commit later: a packet is checked before its route is looked up. Deletes other
    /// ranges one commit after new ones are added: a packet may look up some before that commit and
    /// the others after it. Keeps all for a while after the last lookup.
    pub(super) fn install_ranges(
        &mut self,
        rare: &mut Rare,
        desired: Option<&[IpNet]>,
        is_new: bool,
    ) -> Result<Progress, Full> {
        let restricted = TableElement::Restricted(self.frontend);
        let refusals = TableElement::SourceRefusals(self.frontend);
        let Some(desired) = desired else {
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
        if !std::mem::replace(&mut rare.counts_refusals, true) {
            self.replace(None, Some(refusals));
        }
        if *rare.ranges != *desired {
            self.add_ranges(rare, desired)?;
        }
        if !std::mem::replace(&mut rare.is_restricted, true) {
            self.replace(None, Some(restricted));
            rare.ranges_added = Some(self.epochs.present);
        }
        let has_others = rare.ranges.len() > desired.len();
        // The first commit may create or replace the whole table: packets see all of it at once.
        let is_first = self.epochs.present == 0;
        let must_wait = has_others || is_new && !is_first;
        if must_wait && rare.ranges_added == Some(self.epochs.present) {
            return Ok(Progress::AfterCommit);
        }
        rare.ranges_added = None;
        if has_others {
            self.delete_ranges(rare, |range| desired.binary_search(range).is_ok())?;
        }
        Ok(Progress::Complete)
    }

    fn add_ranges(&mut self, rare: &mut Rare, desired: &[IpNet]) -> Result<(), Full> {
        let known = rare.ranges.len();
        let result = desired.iter().try_for_each(|range| {
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
        is_kept: impl Fn(&IpNet) -> bool,
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
