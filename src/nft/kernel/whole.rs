//! Reads whole tables, and makes them what they should be.

use std::io;

use nix::errno::Errno;

use super::answer::Outcome;
use super::error::{CommitError, ReadError};
use super::interface::{Committed, Kernel};
use super::nftables::Nftables;
use super::read::Seen;
use crate::any::AnySet;
use crate::batch::Batch;
use crate::chain::Chain;
use crate::difference::{Difference, DifferenceError};
use crate::family::TableFamily;
use crate::flowtable::Flowtable;
use crate::object::Object;
use crate::request::{Generation, Request};
use crate::table::TableRef;
use crate::whole::WholeTable;

/// Most attempts to read a table during other commits.
const MAX_READ_ATTEMPTS: usize = 50;
/// Most attempts to compare and commit during other commits.
const MAX_UPDATE_ATTEMPTS: usize = 10;

/// What [`Nftables::whole_table`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that is in the table.
    Whole,
    /// The same without the elements of sets with a name, of which the kernel then lists none. A
    /// difference from such a table may be applied after commits of other programs.
    Structure,
}

/// Why a table was not brought into the desired state.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The table could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The table cannot be compared.
    #[error(transparent)]
    Difference(#[from] DifferenceError),
    /// The table belongs to another socket, or the difference was not applied.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl Nftables {
    /// Returns the tables of a family without their contents, in the kernel's order.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn tables(&mut self, family: TableFamily) -> Result<Vec<WholeTable>, ReadError> {
        let decode = |attributes: &[u8]| WholeTable::decode_header(family, attributes);
        self.read_objects(Request::Tables(family), decode)
    }

    /// Returns a table with all that is in it, of one generation; `None` if it does not exist. Its
    /// structure alone has no generation.
    ///
    /// # Errors
    /// See [`ReadError`]; [`ReadError::Changing`] if other commits interrupted every attempt.
    ///
    /// ```no_run
    /// use nft_netlink::TableFamily;
    /// use nft_netlink::kernel::{Extent, Nftables};
    ///
    /// let table = Nftables::open()?.whole_table(TableFamily::Inet, "filter", Extent::Whole)?;
    /// println!("{} rules", table.map_or(0, |table| table.rules.len()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn whole_table(
        &mut self,
        family: TableFamily,
        name: &str,
        extent: Extent,
    ) -> Result<Option<WholeTable>, ReadError> {
        let place = TableRef::new(family, name.to_owned());
        match extent {
            Extent::Whole => Ok(self.read_whole(&place, &|_| true)?.1),
            Extent::Structure => {
                let (_, read) = self.read_whole(&place, &AnySet::is_anonymous)?;
                Ok(read.map(|read| WholeTable { generation: None, ..read }))
            }
        }
    }

    /// Reads a table, if it exists, and its generation.
    fn read_whole(
        &mut self,
        place: &TableRef,
        are_read: &dyn Fn(&AnySet) -> bool,
    ) -> Result<(Generation, Option<WholeTable>), ReadError> {
        for _ in 0..MAX_READ_ATTEMPTS {
            let generation = self.read_generation()?;
            let read = self.read_whole_once(place, are_read);
            // A change may also cause an error, as when the table is deleted during the read.
            if self.read_generation()? == generation {
                match read? {
                    Some(table) if has_repeated_elements(&table) => {}
                    table => {
                        let read = |table| WholeTable { generation: Some(generation), ..table };
                        return Ok((generation, table.map(read)));
                    }
                }
            }
        }
        Err(ReadError::Changing { what: format!("table {place}") })
    }

    /// Reads a table, which may change meanwhile; `None` if it does not exist.
    fn read_whole_once(
        &mut self,
        place: &TableRef,
        are_read: &dyn Fn(&AnySet) -> bool,
    ) -> Result<Option<WholeTable>, ReadError> {
        let Some(mut table) = self.read_header(place)? else { return Ok(None) };
        table.chains = self.read_objects(Request::Chains(place), Chain::decode)?;
        table.rules = self.rules(place)?;
        table.objects = self.read_objects(Request::Objects(place), Object::decode)?;
        table.flowtables = self.read_objects(Request::Flowtables(place), Flowtable::decode)?;
        table.sets = self.set_contents(place, are_read)?;
        Ok(Some(table))
    }

    /// Makes the table of the kernel what `desired` is, in one transaction of the messages in which
    /// they differ. Reads and compares again if another program commits meanwhile.
    ///
    /// Returns what was committed; nothing if the tables were equal.
    ///
    /// # Errors
    /// See [`UpdateError`]. Of a refused difference nothing is applied, and the error names the
    /// object, its field, the error number and the kernel's text.
    ///
    /// ```no_run
    /// use nft_netlink::kernel::Nftables;
    /// use nft_netlink::{TableFamily, WholeTable};
    ///
    /// let desired = WholeTable::new(TableFamily::Inet, "empty");
    /// let mut kernel = Nftables::open()?;
    /// assert!(kernel.update(&desired)?.is_some());
    /// assert!(kernel.update(&desired)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update(&mut self, desired: &WholeTable) -> Result<Option<Difference>, UpdateError> {
        let place = TableRef::new(desired.family, desired.name.clone());
        self.kept.remove(&place);
        let (difference, _) = self.update_from(desired, &place, None)?;
        Ok((!difference.is_empty()).then_some(difference))
    }

    /// Does the same, and keeps the table until [`Nftables::update`] or [`Nftables::delete_table`] is
    /// called for it. The next call of this method reads nothing if no other commit came in between
    /// to any table of the network namespace.
    ///
    /// A rule that was added since the last read has no handle yet: a call that deletes it, or adds
    /// another one before it, reads the table. Not kept are tables that change without a commit:
    /// those with timeouts, devices, or sets in which rules add or delete elements; nor those with
    /// anonymous sets.
    ///
    /// # Errors
    /// As for [`Nftables::update`].
    ///
    /// ```no_run
    /// use nft_netlink::kernel::Nftables;
    /// use nft_netlink::{Chain, TableFamily, WholeTable};
    ///
    /// let mut desired = WholeTable::new(TableFamily::Inet, "ports");
    /// let mut kernel = Nftables::open()?;
    /// for port in ["web", "mail"] {
    ///     desired.chains.push(Chain::new(port));
    ///     kernel.update_and_keep(desired.clone())?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update_and_keep(
        &mut self,
        mut desired: WholeTable,
    ) -> Result<Option<Difference>, UpdateError> {
        let place = TableRef::new(desired.family, desired.name.clone());
        let kept = self.kept.remove(&place);
        let (difference, before) = self.update_from(&desired, &place, kept)?;
        let after = if difference.is_empty() { before } else { before.next() };
        for table in self.kept.values_mut().filter(|it| it.generation == Some(before)) {
            table.generation = Some(after);
        }
        if desired.changes_by_commits_alone() {
            for (rule, handle) in desired.rules.iter_mut().zip(&difference.handles) {
                rule.handle = *handle;
            }
            // It belongs to this socket or to none.
            let (owner, generation) = (None, Some(after));
            self.kept.insert(place, WholeTable { owner, generation, ..desired });
        }
        Ok((!difference.is_empty()).then_some(difference))
    }

    /// Makes the table `desired`, from what it was in the generation that `kept` names, or else from
    /// what is read. Returns what was committed to which generation.
    fn update_from(
        &mut self,
        desired: &WholeTable,
        place: &TableRef,
        mut kept: Option<WholeTable>,
    ) -> Result<(Difference, Generation), UpdateError> {
        let mut attempt = 1;
        loop {
            let kept = kept.take().and_then(|kept| Some((kept.generation?, Some(kept))));
            let is_kept = kept.is_some();
            let (generation, installed) = match kept {
                Some(kept) => kept,
                None => self.read_whole(place, &|_| true)?,
            };
            let owner = installed.as_ref().and_then(|installed| installed.owner);
            if let Some(port) = owner.filter(|port| *port != self.port()) {
                return Err(CommitError::Owned { table: place.clone(), port }.into());
            }
            let mut difference = match desired.difference_from(installed.as_ref()) {
                Err(DifferenceError::UnknownHandle(_)) if is_kept => continue,
                difference => difference?,
            };
            difference.generation = Some(generation);
            if difference.is_empty() {
                if is_kept && self.read_generation()? != generation {
                    continue;
                }
                return Ok((difference, generation));
            }
            match self.apply(&difference) {
                Ok(_) => return Ok((difference, generation)),
                Err(error) if attempt < MAX_UPDATE_ATTEMPTS && error.is_overtaken() => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes a table with its contents. Returns whether there was one.
    ///
    /// # Errors
    /// See [`CommitError`].
    pub fn delete_table(&mut self, family: TableFamily, name: &str) -> Result<bool, CommitError> {
        self.kept.remove(&TableRef::new(family, name.to_owned()));
        let deletion = Difference::deletion(family, name).map_err(io::Error::other);
        match self.apply(&deletion.map_err(CommitError::NotSent)?) {
            Ok(_) => Ok(true),
            Err(CommitError::Refused { errno: Errno::ENOENT, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Applies a difference as a whole, or nothing of it if another program has committed since the
    /// table was read.
    ///
    /// # Errors
    /// See [`CommitError`]; [`CommitError::is_overtaken`] if the table must be read again.
    pub fn apply(&mut self, difference: &Difference) -> Result<Committed, CommitError> {
        let sequence = self.next_sequence();
        let batch = Batch::of_difference(difference, sequence, self.acknowledge);
        let batch = batch.map_err(|error| CommitError::NotSent(io::Error::other(error)))?;
        self.note_sequences(&batch);
        let (length, most) = (batch.bytes.len(), self.max_batch());
        if length > most {
            return Err(CommitError::too_long(length, most));
        }
        match self.deliver(&batch)? {
            (Outcome::Applied, time) => Ok(self.committed(&batch, [Default::default(), time])),
            (Outcome::Refused(refusal), _) => {
                Err(super::culprit::of_difference(difference, &batch, refusal))
            }
            (Outcome::Lost(error), _) => Err(CommitError::Unknown(error)),
        }
    }
}

/// Returns whether a dump has an element twice. Another one is then missing; see [`Seen`].
fn has_repeated_elements(table: &WholeTable) -> bool {
    table.sets.iter().filter(|contents| contents.set.grows_unseen()).any(|contents| {
        let mut seen = Seen::new();
        contents.elements.iter().for_each(|element| seen.insert_any(element));
        !seen.were_different()
    })
}

impl CommitError {
    /// Returns whether the outcome may be another one after the table is read again: another
    /// program has committed, an element has expired, or the answer was lost.
    pub fn is_overtaken(&self) -> bool {
        match self {
            Self::Refused { errno, .. } => matches!(errno, Errno::ERESTART | Errno::ENOENT),
            Self::Unknown(_) => true,
            Self::Owned { .. } | Self::NotSent(_) => false,
        }
    }
}
