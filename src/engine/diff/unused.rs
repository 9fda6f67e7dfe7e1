//! Unused elements: installed elements that are to be deleted, and when.
//!
//! No route refers to them any more, but packets may still look them up. A packet looks up one set
//! after the other, and each lookup reads the newest commit. So an element is deleted later than
//! the last route to it: in the next transaction, or after [`GRACE`] where every lookup of a packet
//! must succeed.

use std::collections::VecDeque;
use std::time::Duration;

use nft::family::Family;

use crate::piece::Piece;
use crate::ruleset::number::ListId;
use crate::ruleset::{Frontend, Member};

/// Maximum time of a packet in the tables. The lookups take microseconds, but the host may pause a
/// virtual processor meanwhile.
pub const GRACE: Duration = Duration::from_millis(250);

/// A point in time for unused elements: each applied step and [`Diff::kept`] begin the next one.
pub(super) type Epoch = u64;

pub(super) type UnusedElements = VecDeque<(Unused, Option<Epoch>)>;

/// The state that decides when unused elements are deleted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Epochs {
    pub(super) present: Epoch,
    /// First epoch whose unused elements are kept; `None` keeps those of the present epoch.
    pub(super) kept_from: Option<Epoch>,
}

impl Epochs {
    /// Returns whether unused elements of an epoch may be deleted with this piece.
    pub(super) fn is_due(self, since: Option<Epoch>, piece: &Piece) -> bool {
        match self.kept_from {
            Some(kept_from) => since < Some(kept_from),
            None => since < Some(self.present) || piece.is_empty(),
        }
    }

    /// Returns whether unused elements of an epoch stay until they are released.
    pub(super) fn keeps(self, since: Option<Epoch>) -> bool {
        self.kept_from.is_some() && since >= self.kept_from
    }
}

/// The unused elements kept so far, those of epochs before this one, for [`Diff::release`](super::Diff::release).
#[derive(Clone, Copy, Debug)]
pub struct Kept(pub(super) Epoch);

#[derive(Clone, Copy, Debug)]
pub(super) enum Unused {
    /// Elements that a frontend no longer uses.
    Frontend(Frontend),
    List(Family, ListId),
    /// A frontend found in the kernel that no service has.
    Unclaimed(Frontend),
    /// A member found in the kernel that no service needs.
    Member(Member),
}
