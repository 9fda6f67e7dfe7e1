//! The rules that packets pass, and the trait for lookups beside them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use network::{NoRoute, Route, Way};
use nft::{AnyElement, AnySet, BaseChain, Family, Hook, ListedRule, Name, TableRef};

/// Tables whose chains a packet may pass.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// By family and name.
    pub tables: BTreeMap<TableRef, TableRules>,
}

/// One table.
#[derive(Clone, Debug, Default)]
pub struct TableRules {
    /// Base chains with their names.
    pub base_chains: Vec<(Name, BaseChain)>,
    /// Rules of each chain.
    pub chains: HashMap<String, Vec<ListedRule>>,
    /// Sets and maps by name.
    pub sets: HashMap<String, AnySet>,
}

/// Lookups of the evaluator.
pub trait Facts {
    /// Returns the element of a set or map that matches a key.
    fn element(&mut self, table: &TableRef, set: &AnySet, key: &[u8]) -> LookupResult;

    /// Returns the route to a destination; `None` if unknown.
    fn route(&mut self, destination: IpAddr, way: Way) -> Option<Result<Route, NoRoute>>;

    /// Returns the base chains at a hook in the order in which the kernel calls them, as far as it
    /// tells.
    fn called_chains(&mut self, hook: &Hook) -> Option<Vec<(TableRef, Name)>>;

    /// Returns whether the node forwards packets of the family.
    fn forwards(&mut self, family: Family) -> bool;

    /// Returns the Ethernet address of a neighbour, if the kernel knows it.
    fn hardware_address(&mut self, neighbour: IpAddr, interface: u32) -> Option<[u8; 6]>;

    /// Returns the name of an interface.
    fn interface_name(&mut self, index: u32) -> String;
}

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// An element.
    Element(AnyElement),
    /// No element matches the key.
    Missing,
    /// The result is unknown; the text is the reason.
    Unknown(String),
}
