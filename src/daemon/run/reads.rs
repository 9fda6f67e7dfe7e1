//! What the loop reads of the kernel, and whether it must.

use futures::future::BoxFuture;
use nft::kernel::Kernel;

use super::reading::{ReadOutcome, Watch};
use super::{BackgroundCheck, OpenReader};
use crate::writer::Writer;

/// The readings of the tables: the first one, those after changes of other programs, and the check.
pub(super) struct Reads<K> {
    pub(super) watch: Watch,
    pub(super) check: BackgroundCheck,
    /// Both tables, read while the source lists objects.
    pub(super) early: Option<BoxFuture<'static, ReadOutcome>>,
    open_reader: Option<OpenReader<K>>,
}

impl<K: Kernel + Send + 'static> Reads<K> {
    pub(super) fn new(check: BackgroundCheck, open_reader: Option<OpenReader<K>>) -> Self {
        // Before the first reading there is no installed state that other programs could change.
        Self { watch: Watch::Owned, check, early: None, open_reader }
    }

    /// Opens another socket for a long dump; `None` if the dump must use that of the commits.
    pub(super) fn open_reader(&self) -> Option<Writer<K>> {
        self.open_reader.as_ref().and_then(|open| open())
    }
}
