//! Puts endpoints into the slots of a list: each once, by weight, or by a table.

use smallvec::SmallVec;

use super::lists::OpenList;
use super::slots::{assign, assign_weighted};
use crate::model::Target;
use crate::piece::{Full, Piece};

impl OpenList<'_> {
    /// Puts the endpoints into the first slots with the fewest moves. Keeps later slots, which
    /// rules may still draw.
    pub(super) fn fill(&mut self, wanted: &[Target], piece: &mut Piece) -> Result<(), Full> {
        let installed: SmallVec<[_; 8]> = self.list.iter().collect();
        let slots = assign(&installed, wanted);
        self.put_all(slots.iter().copied(), piece)
    }

    /// Puts each endpoint into `counts` of the first slots, with the fewest moves.
    pub(super) fn fill_weighted(
        &mut self,
        wanted: &[Target],
        counts: &[u32],
        piece: &mut Piece,
    ) -> Result<(), Full> {
        let slots = assign_weighted(self.list.iter(), wanted, counts);
        self.make_room(slots.len());
        self.put_all(slots.iter().copied(), piece)
    }

    /// Puts endpoints into the first slots by a table of their positions.
    pub(super) fn fill_table(
        &mut self,
        endpoints: &[Target],
        table: &[u16],
        piece: &mut Piece,
    ) -> Result<(), Full> {
        let slots = table.iter().map(|position| endpoints.get(usize::from(*position)).copied());
        self.make_room(table.len());
        self.put_all(slots, piece)
    }

    /// Adds holes for the slots that follow. Growing by single slots would take quadratic time.
    fn make_room(&mut self, length: usize) {
        self.list.resize(length.max(self.list.len()));
    }

    fn put_all(
        &mut self,
        slots: impl Iterator<Item = Option<Target>>,
        piece: &mut Piece,
    ) -> Result<(), Full> {
        for (slot, target) in slots.enumerate() {
            if let Some(target) = target.filter(|target| self.list.slot(slot) != Some(*target)) {
                piece.fits_budget(if self.affinity.is_some() { 4 } else { 2 })?;
                self.put(slot, target, piece);
            }
        }
        Ok(())
    }
}
