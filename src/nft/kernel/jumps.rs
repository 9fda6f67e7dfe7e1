//! Reads the chains and jumps of a table of any program.
//!
//! The answers may mix several generations: every commit in the network namespace interrupts a
//! dump, including the daemon's own. A change of this table during the dump may hide or repeat an
//! object.

use super::error::ReadError;
use super::nftables::Nftables;
use super::read::Read;
use crate::chain::chain_name;
use crate::jump::Jump;
use crate::request::Request;
use crate::table::TableRef;

impl Nftables {
    /// Returns the names of all chains of a table; none if the table does not exist.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_chain_names(&mut self, table: &TableRef) -> Result<Vec<String>, ReadError> {
        let mut names = Vec::new();
        let read = self.ask(Request::Chains(table), &mut |attributes| {
            names.push(chain_name(attributes)?.to_owned());
            Ok(())
        });
        unless_missing(read)?;
        Ok(names)
    }

    /// Returns the jumps in all rules of a table; none if the table does not exist.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_jumps(&mut self, table: &TableRef) -> Result<Vec<Jump>, ReadError> {
        let mut jumps = Vec::new();
        let read = self.ask(Request::Rules(table), &mut |attributes| {
            jumps.extend(Jump::decode(attributes)?);
            Ok(())
        });
        unless_missing(read)?;
        Ok(jumps)
    }
}

fn unless_missing(read: Result<Read, ReadError>) -> Result<(), ReadError> {
    match read {
        Err(error) if !error.is_missing() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
