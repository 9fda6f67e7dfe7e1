//! Ended endpoints in the kernel.

use std::collections::BTreeSet;
use std::time::Duration;

use nft::family::Family;

use crate::model::{Cluster, EndedEndpoints, ObjectName, Target};
use crate::piece::Piece;
use crate::ruleset::TableElement;

/// The elements of `ended-endpoints` in both tables.
#[derive(Debug, Default)]
pub(super) struct EndedElements {
    installed: BTreeSet<Target>,
    /// Endpoints that may be installed and not ended, or the other way round.
    changed: BTreeSet<Target>,
}

impl EndedElements {
    /// Records endpoints that ended or returned.
    pub(super) fn note(&mut self, changed: impl IntoIterator<Item = Target>) {
        self.changed.extend(changed);
    }

    /// Replaces the installed state by a read-back.
    pub(super) fn adopt(&mut self, found: impl Iterator<Item = Target>) {
        self.changed.append(&mut self.installed);
        self.installed = found.collect();
        self.changed.extend(&self.installed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.changed.is_empty()
    }

    pub(super) fn is_installed(&self, target: &Target) -> bool {
        self.installed.contains(target)
    }

    pub(super) fn installed(&self) -> impl Iterator<Item = Target> {
        self.installed.iter().copied()
    }

    /// Records what was found in the kernel for an endpoint.
    pub(super) fn find(&mut self, target: Target, is_there: bool) {
        if is_there {
            self.installed.insert(target);
        } else {
            self.installed.remove(&target);
        }
        self.changed.insert(target);
    }

    /// Deletes the endpoints that returned, and those that are forgotten. It precedes the slots that
    /// lead to them. Returns false if not all fit.
    pub(super) fn remove(&mut self, cluster: &Cluster, piece: &mut Piece) -> bool {
        let not_ended = |it: &&Target| !cluster.ended().is_some_and(|ended| ended.contains(it));
        let gone: Vec<_> = self.changed.iter().filter(not_ended).copied().collect();
        for target in gone {
            if piece.fits_budget(1).is_err() {
                return false;
            }
            self.changed.remove(&target);
            if self.installed.remove(&target) {
                piece.delete(Family::of(target.address), &without_label(target));
            }
        }
        true
    }

    /// Adds the endpoints that ended, after [`Self::remove`].
    pub(super) fn add(&mut self, ended: &EndedEndpoints, piece: &mut Piece) {
        while piece.fits_budget(1).is_ok()
            && let Some(target) = self.changed.pop_first()
        {
            if self.installed.insert(target) {
                let label = ended.service(&target).map(ObjectName::as_str);
                let element = TableElement::Ended(target, ended.settings().timeout(), label);
                piece.add(Family::of(target.address), &element);
            }
        }
    }
}

/// Returns the element of an endpoint, without the service that had it.
pub(super) fn without_label(target: Target) -> TableElement<'static> {
    TableElement::Ended(target, Duration::ZERO, None)
}
