//! Selects the services of the next piece: small changes first, and as many of a large change as
//! fit.

use super::Engine;
use super::bisect::Services;
use super::queue::Lane;
use crate::diff::{self, Context, Progress};
use crate::model::{Extent, ObjectName};
use crate::piece::Piece;

/// Services of a large change that are updated before an interruption, so that the change
/// completes.
const UNINTERRUPTED: usize = 256;

impl Engine {
    /// Updates services until the piece is full, small changes first. The piece stays empty only if
    /// nothing differs, or if `interrupted` returned true.
    ///
    /// A piece of small changes holds no part of a large one, so small changes do not wait until
    /// that part is rendered and applied. The next piece belongs to the large change, so that it
    /// completes.
    ///
    /// While services are postponed, pieces are mixed. A service of one lane may take a frontend
    /// that a service of the other lane takes back; within one piece both cancel out.
    pub(super) fn fill(&mut self, piece: &mut Piece, interrupted: &impl Fn() -> bool) -> Services {
        self.share_slots();
        let may_go_first = !std::mem::take(&mut self.small_went_first) && self.postponed.is_none();
        let (mut taken, mut is_small) = (0, may_go_first);
        let mut updated = Services::default();
        while piece.has_room() && self.admits(&updated) {
            if is_small && self.queue.next_lane() == Some(Lane::Slow) {
                if !piece.is_empty() {
                    self.small_went_first = true;
                    return updated;
                }
                is_small = false;
            }
            let Some((name, extent)) = self.next_service() else { break };
            let bytes = piece.bytes();
            let progress = self.update(name.clone(), &extent, piece);
            if piece.bytes() != bytes {
                updated = Services { count: updated.count + 1, last: Some(name) };
            }
            if progress == Progress::Partial {
                break;
            }
            taken += 1;
            if taken >= UNINTERRUPTED && interrupted() {
                return updated;
            }
        }
        if self.is_bisecting() && !piece.is_empty() {
            return updated;
        }
        if self.queue.is_empty() && self.postponed.is_none() && self.sweep_due {
            self.diff.begin_sweep();
            self.sweep_due = false;
        }
        self.diff.update_others(piece);
        updated
    }

    fn next_service(&mut self) -> Option<(ObjectName, Extent)> {
        self.queue.take().or_else(|| {
            let mut postponed = self.postponed.take()?;
            // The winning claim first: a frontend that is taken and taken back would be written
            // twice.
            postponed.sort_by_cached_key(|name| diff::age(&self.cluster, name));
            self.queue.add(postponed.into_iter().map(|name| (name, Extent::Whole)));
            self.queue.take()
        })
    }

    fn update(&mut self, name: ObjectName, extent: &Extent, piece: &mut Piece) -> Progress {
        let context = Context {
            cluster: &self.cluster,
            timeouts: &self.timeouts,
            slots: &self.slot_budget,
            may_postpone: self.postponed.is_some(),
        };
        let updated = self.diff.update(&name, extent, context, piece);
        self.problems.extend(updated.problems);
        match updated.progress {
            Progress::Complete => {}
            Progress::AfterCommit => self.after_commit.push(name),
            // The remainder of a large service counts as a large change.
            Progress::Partial => self.queue.put_first(Lane::Slow, name),
            Progress::Postponed => self.postponed.get_or_insert_default().push(name),
        }
        updated.affected.into_iter().for_each(|name| self.queue.put_first(Lane::Fast, name));
        updated.progress
    }
}
