//! The rules that packets pass, and what the evaluator looks up beside them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::kernel::{NoRoute, Route, Way};
use crate::nft::{AnyElement, AnyRule, AnySet, BaseChain, Family, key};

/// What identifies a table: its family, `NFPROTO_*`, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId {
    /// `NFPROTO_*`.
    pub family: u8,
    /// Name within the family.
    pub name: String,
}

/// Tables whose chains a packet may pass.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// By what identifies them, in the kernel's order within a family.
    pub tables: BTreeMap<TableId, Table>,
}

/// One table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Chains where packets enter, in the kernel's order.
    pub base_chains: Vec<(String, BaseChain)>,
    /// The rules of each chain.
    pub chains: HashMap<String, Vec<AnyRule>>,
    /// Sets and maps by name.
    pub sets: HashMap<String, AnySet>,
}

/// What the evaluator looks up, one question at a time.
pub trait Facts {
    /// The element of a set or map that a packet with this key finds.
    fn element(&mut self, table: &TableId, set: &AnySet, key: &[u8]) -> Found;

    /// Where a packet goes; `None` if that cannot be found out.
    fn route(&mut self, destination: IpAddr, way: Way) -> Option<Result<Route, NoRoute>>;

    /// Whether the node forwards packets of this family.
    fn forwards(&mut self, family: Family) -> bool;

    /// The name of an interface.
    fn interface_name(&mut self, index: u32) -> String;
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An element.
    Element(AnyElement),
    /// No element has the key.
    Missing,
    /// That cannot be found out; why not.
    Unknown(String),
}

impl TableId {
    /// The family as nft(8) writes it.
    pub fn family_name(&self) -> &'static str {
        match self.family {
            number if number == Family::Ip.number() => "ip",
            number if number == Family::Ip6.number() => "ip6",
            key::NFPROTO_INET => "inet",
            key::NFPROTO_ARP => "arp",
            key::NFPROTO_BRIDGE => "bridge",
            key::NFPROTO_NETDEV => "netdev",
            _ => "unknown",
        }
    }
}

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.family_name(), self.name)
    }
}

impl Table {
    /// The rules of a chain; none if there is no such chain.
    pub fn rules(&self, chain: &str) -> &[AnyRule] {
        self.chains.get(chain).map_or(&[], Vec::as_slice)
    }
}
