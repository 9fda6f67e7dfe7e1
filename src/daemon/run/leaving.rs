//! The removal of the rules of other proxy modes, once our tables are in place.

use futures::future::BoxFuture;
use nft::family::Family;
use nft::kernel::Kernel;

use super::Run;

impl<K: Kernel + Send + 'static> Run<K> {
    pub(super) fn are_tables_in_place(&self) -> bool {
        self.is_synced
            && Family::ALL.iter().all(|family| self.engine.tables().blocked(*family).is_none())
    }

    /// Requests another list of flows if rules of other modes were removed: these may have
    /// translated flows after the first list.
    pub(super) fn note_left(&mut self, has_removed: bool) {
        self.leaving = None;
        if let Some(cleaning) = self.cleaning.as_mut().filter(|_| has_removed) {
            cleaning.note_read();
            cleaning.note_synced();
        }
    }
}

/// Waits until the rules of other modes are removed; returns whether there were any.
pub(super) async fn left(leaving: &mut Option<BoxFuture<'static, bool>>) -> bool {
    match leaving {
        Some(leaving) => leaving.await,
        None => std::future::pending().await,
    }
}
