//! Reads the objects of tables of any program.

use super::nftables::Nftables;
use super::read::Read;
use super::{Generation, ReadError};
use crate::request::{AnyRequest, Request};
use crate::{
    AnyChain, AnyElement, AnySet, DecodeError, ListedRule, SetContents, decode_any_elements,
    table_name,
};

impl Nftables {
    /// Returns the names of the tables of a family, `NFPROTO_*`, in the kernel's order.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn any_tables(&mut self, family: u8) -> Result<Vec<String>, ReadError> {
        self.any(family, AnyRequest::Tables, |attributes| Ok(table_name(attributes)?.to_owned()))
    }

    /// Returns the chains of all tables of a family, `NFPROTO_*`, in the kernel's order.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn any_chains(&mut self, family: u8) -> Result<Vec<AnyChain>, ReadError> {
        self.any(family, AnyRequest::Chains, AnyChain::decode)
    }

    /// Returns the rules of a table with all that the kernel lists, those of one chain in their
    /// order.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn listed_rules(&mut self, family: u8, table: &str) -> Result<Vec<ListedRule>, ReadError> {
        self.any(family, AnyRequest::Rules(table), ListedRule::decode)
    }

    /// Returns the sets and maps of a table with the elements of those that `are_read`; empty where
    /// a set changed during the dump.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn set_contents(
        &mut self,
        family: u8,
        table: &str,
        are_read: impl Fn(&AnySet) -> bool,
    ) -> Result<Vec<SetContents>, ReadError> {
        let mut contents = Vec::new();
        for set in self.any_sets(family, table)? {
            let elements = if are_read(&set) {
                self.any_elements(family, (table, &set.name), usize::MAX)?
            } else {
                None
            };
            contents.push(SetContents { set, elements: elements.unwrap_or_default() });
        }
        Ok(contents)
    }

    /// Returns the sets and maps of a table.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn any_sets(&mut self, family: u8, table: &str) -> Result<Vec<AnySet>, ReadError> {
        self.any(family, AnyRequest::Sets(table), AnySet::decode)
    }

    pub(super) fn any<T>(
        &mut self,
        family: u8,
        request: AnyRequest<'_>,
        decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, ReadError> {
        let mut objects = Vec::new();
        self.ask(Request::Any(family, request), &mut |attributes| {
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
    pub fn any_element(
        &mut self,
        family: u8,
        (table, set): (&str, &str),
        key: Option<&[u8]>,
    ) -> Result<Option<AnyElement>, ReadError> {
        let mut found = None;
        let request = AnyRequest::Element(table, set, key);
        let read = self.ask(Request::Any(family, request), &mut |attributes| {
            decode_any_elements(attributes, |element| found = Some(element))
        });
        match read {
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(found),
        }
    }

    /// Returns the elements of a set or map; `None` if it has more than `most` or changed during
    /// the dump.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn any_elements(
        &mut self,
        family: u8,
        (table, set): (&str, &str),
        most: usize,
    ) -> Result<Option<Vec<AnyElement>>, ReadError> {
        let mut elements = Vec::new();
        let request = AnyRequest::Elements(table, set);
        let mut count = 0;
        let read = self.ask(Request::Any(family, request), &mut |attributes| {
            decode_any_elements(attributes, |element| {
                count += 1;
                if count <= most {
                    elements.push(element);
                }
            })
        })?;
        Ok((read == Read::Whole && count <= most).then_some(elements))
    }

    /// Returns whether the ruleset still has this generation.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn is_unchanged(&mut self, since: Generation) -> Result<bool, ReadError> {
        Ok(self.generation()? == since)
    }
}
