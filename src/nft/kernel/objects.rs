//! Reads the objects of tables of any program.

use super::error::{ReadError, unless_missing};
use super::nftables::Nftables;
use super::read::{Read, Seen};
use crate::any::{AnyElement, AnySet, SetContents, decode_any_elements};
use crate::chain::{Chain, chain_name};
use crate::element::decode_elements;
use crate::family::TableFamily;
use crate::fields::DecodeError;
use crate::hook::{Hook, called_chain};
use crate::jump::Jump;
use crate::listed_rule::ListedRule;
use crate::request::{Generation, Request};
use crate::table::{TableRef, table_name};
use crate::text::Name;

/// Most attempts to dump a set during changes of other programs.
const DUMP_ATTEMPTS: usize = 10;

impl Nftables {
    /// Returns the chains of all tables of a family with their tables, in the kernel's order.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn chains(&mut self, family: TableFamily) -> Result<Vec<(TableRef, Chain)>, ReadError> {
        self.read_objects(Request::AllChains(family), |attributes| {
            let table = TableRef::new(family, table_name(attributes)?.to_owned());
            Ok((table, Chain::decode(attributes)?))
        })
    }

    /// Returns the base chains at a hook, in the order in which the kernel calls them; `None` if it does
    /// not tell (`CONFIG_NETFILTER_NETLINK_HOOK`). Many kernels leave out chains of type nat.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn called_chains(
        &mut self,
        hook: &Hook,
    ) -> Result<Option<Vec<(TableRef, Name)>>, ReadError> {
        match self.read_objects(Request::Hook(hook), called_chain) {
            Ok(chains) => Ok(Some(chains.into_iter().flatten().collect())),
            Err(ReadError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the rules of a table with all that the kernel lists, those of one chain in their
    /// order.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn rules(&mut self, table: &TableRef) -> Result<Vec<ListedRule>, ReadError> {
        self.read_objects(Request::Rules(table), ListedRule::decode)
    }

    /// Returns the sets and maps of a table with the elements of those that `are_read`; empty where
    /// a set changed during the dump.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn set_contents(
        &mut self,
        table: &TableRef,
        are_read: impl Fn(&AnySet) -> bool,
    ) -> Result<Vec<SetContents>, ReadError> {
        let mut contents = Vec::new();
        for set in self.sets(table)? {
            let elements =
                if are_read(&set) { self.elements(table, &set.name, usize::MAX)? } else { None };
            contents.push(SetContents { set, elements: elements.unwrap_or_default() });
        }
        Ok(contents)
    }

    /// Returns the sets and maps of a table.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn sets(&mut self, table: &TableRef) -> Result<Vec<AnySet>, ReadError> {
        self.read_objects(Request::Sets(table), AnySet::decode)
    }

    /// Returns the names of all chains of a table; none if the table does not exist. The answer may
    /// mix several generations, as that of [`Nftables::read_jumps`]: every commit in the network
    /// namespace interrupts a dump, including the daemon's own. A change of this table during the
    /// dump may hide or repeat an object.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_chain_names(&mut self, table: &TableRef) -> Result<Vec<String>, ReadError> {
        let name = |attributes: &[u8]| chain_name(attributes).map(str::to_owned);
        Ok(unless_missing(self.read_objects(Request::Chains(table), name))?.unwrap_or_default())
    }

    /// Returns the jumps in all rules of a table; none if the table does not exist.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_jumps(&mut self, table: &TableRef) -> Result<Vec<Jump>, ReadError> {
        let jumps = unless_missing(self.read_objects(Request::Rules(table), Jump::decode))?;
        Ok(jumps.into_iter().flatten().flatten().collect())
    }

    pub(super) fn read_objects<T>(
        &mut self,
        request: Request<'_>,
        decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, ReadError> {
        let mut objects = Vec::new();
        self.ask(request, &mut |attributes| {
            objects.push(decode(attributes)?);
            Ok(())
        })?;
        Ok(objects)
    }

    /// Returns the element that a packet with this key matches, in any set but one of single-field
    /// ranges. Without a key, returns the catch-all element.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn element(
        &mut self,
        table: &TableRef,
        set: &str,
        key: Option<&[u8]>,
    ) -> Result<Option<AnyElement>, ReadError> {
        let mut found = None;
        let read = self.ask(Request::Element(table, set, key), &mut |attributes| {
            decode_any_elements(attributes, |element| found = Some(element))
        });
        unless_missing(read)?;
        Ok(found)
    }

    /// Returns the elements of a set or map; `None` if it has more than `most` or changed during
    /// the dump.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn elements(
        &mut self,
        table: &TableRef,
        set: &str,
        most: usize,
    ) -> Result<Option<Vec<AnyElement>>, ReadError> {
        let mut elements = Vec::new();
        let mut count = 0;
        let read = self.ask(Request::Elements(table, set), &mut |attributes| {
            decode_any_elements(attributes, |element| {
                count += 1;
                if count <= most {
                    elements.push(element);
                }
            })
        })?;
        Ok((read == Read::Whole && count <= most).then_some(elements))
    }

    /// Returns the messages that list the elements of a set or map, for
    /// [`Difference::add_listed`](crate::difference::Difference::add_listed). Commits of other
    /// programs to other tables do not matter, so an interrupted dump counts if no element is
    /// repeated or missing.
    ///
    /// # Errors
    /// See [`ReadError`]; [`ReadError::Stopped`] soon after `is_stopped` returns true, which is
    /// called for each buffer of elements.
    pub fn list_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>, ReadError> {
        let request = Request::Elements(table, set);
        for _ in 0..DUMP_ATTEMPTS {
            let (mut lists, mut seen) = (Vec::new(), Seen::new());
            let mut each = |attributes: &[u8]| {
                lists.push(attributes.to_vec());
                decode_elements(attributes, |element| seen.insert(&element))
            };
            let read = self.ask_until(request, &mut each, is_stopped)?;
            if read == Read::Stopped || is_stopped() {
                return Err(ReadError::Stopped { what: request.to_string() });
            }
            if seen.were_different() {
                return Ok(lists);
            }
        }
        Err(ReadError::Changing { what: request.to_string() })
    }

    /// Returns whether the ruleset still has this generation.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn is_unchanged(&mut self, since: Generation) -> Result<bool, ReadError> {
        Ok(self.generation()? == since)
    }
}
