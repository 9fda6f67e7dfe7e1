//! Endpoints go into the slots of a list: each once, as often as its weight, or as a table says.

use smallvec::SmallVec;

use super::lists::OpenList;
use super::slots::{assign, assign_weighted};
use crate::model::Target;
use crate::plan::{Full, Piece};

impl OpenList<'_> {
    /// Puts the endpoints into the first slots, moving as few as possible, and leaves those after
    /// them: rules may still draw them.
    pub(super) fn fill(&mut self, wanted: &[Target], piece: &mut Piece) -> Result<(), Full> {
        let installed: SmallVec<[_; 8]> = self.list.iter().collect();
        let slots = assign(&installed, wanted);
        self.put_all(slots.iter().copied(), piece)
    }

    /// Puts each endpoint into so many of the first slots, moving as few as possible.
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

    /// Puts endpoints into the first slots as a table says, by their positions.
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

    /// Adds holes for slots that follow. One by one they would take time with the square of their
    /// number.
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
