//! Operations that the kernel applies as a whole or not at all.
//!
//! Displayed, a transaction is an equivalent script for `nft -f`.
//!
//! Operations are sent in the order given: the caller orders them as the kernel accepts them.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::text::joined;
use crate::chain::Chain;
use crate::element::Element;
use crate::family::Family;
use crate::flowtable::{Device, Flowtable};
use crate::object::noun;
use crate::rule::Rule;
use crate::set::Set;
use crate::table::{Table, TableRef};
use crate::text::Name;

/// Elements of one operation. A single one, as in most changes of an endpoint, needs no allocation.
pub type ElementList = SmallVec<[Element; 1]>;

/// One change of the ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates a table; an existing one stays unchanged.
    AddTable(Table),
    /// Deletes a table with its contents.
    DeleteTable(TableRef),
    /// Creates a chain; an existing one stays unchanged.
    AddChain(TableRef, Chain),
    /// Deletes a chain that no rule jumps to, with its rules.
    DeleteChain(TableRef, Name),
    /// Deletes all rules of a chain.
    FlushChain(TableRef, Name),
    /// Appends a rule to its chain.
    AddRule(TableRef, Rule),
    /// Deletes the rule of a chain with this handle.
    DeleteRule(TableRef, Name, u64),
    /// Creates a flowtable; an existing one stays unchanged.
    AddFlowtable(TableRef, Flowtable),
    /// Deletes a flowtable that no rule uses.
    DeleteFlowtable(TableRef, Name),
    /// Adds devices to a flowtable, at most [`super::MAX_DEVICES`]; all must exist.
    AddDevices(TableRef, Flowtable, Vec<Device>),
    /// Removes devices from a flowtable, at most [`super::MAX_DEVICES`]; all must be in it.
    DeleteDevices(TableRef, Flowtable, Vec<Device>),
    /// Creates a set or map; an existing one stays unchanged.
    AddSet(TableRef, Arc<Set>),
    /// Deletes a set or map that no rule uses.
    DeleteSet(TableRef, Name),
    /// Deletes all elements of a set or map. Displayed as `flush set`, which nft(8) accepts for
    /// sets only.
    FlushSet(TableRef, Name),
    /// Adds elements; existing ones must have the same data.
    AddElements(TableRef, Arc<Set>, ElementList),
    /// Deletes elements by their keys; all must exist.
    DeleteElements(TableRef, Arc<Set>, ElementList),
    /// Deletes what may not exist; the table of an object and the set of elements must. Kernels
    /// before [`Release::DESTROY`](crate::kernel::Release::DESTROY) refuse the transaction with
    /// EINVAL (`nfnetlink_rcv_batch`).
    Destroy(TableRef, Destroyed),
}

/// What [`Operation::Destroy`] deletes in a table, if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destroyed {
    /// The table with its contents.
    Table,
    /// A chain that no rule jumps to, with its rules.
    Chain(Name),
    /// The rule of a chain with this handle.
    Rule(Name, u64),
    /// A set or map that no rule uses.
    Set(Name),
    /// Elements, by their keys.
    Elements(Arc<Set>, ElementList),
    /// A stateful object of a type, `NFT_OBJECT_*`, that nothing uses.
    Object(u32, Name),
    /// A flowtable that no rule uses.
    Flowtable(Name),
}

/// Operations in the order in which the kernel applies them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The operations, applied as a whole or not at all.
    pub operations: Vec<Operation>,
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(f, "{operation}"))
    }
}

impl Transaction {
    /// Returns the family of the addresses in the table of the first operation.
    pub fn family(&self) -> Option<Family> {
        self.operations.first().and_then(Operation::family)
    }
}

impl Operation {
    /// Returns the table of the operation.
    pub fn table(&self) -> TableRef {
        match self {
            Self::AddTable(table) => table.reference(),
            Self::DeleteTable(table)
            | Self::AddChain(table, _)
            | Self::DeleteChain(table, _)
            | Self::FlushChain(table, _)
            | Self::AddRule(table, _)
            | Self::DeleteRule(table, ..)
            | Self::AddFlowtable(table, _)
            | Self::DeleteFlowtable(table, _)
            | Self::AddDevices(table, ..)
            | Self::DeleteDevices(table, ..)
            | Self::AddSet(table, _)
            | Self::DeleteSet(table, _)
            | Self::FlushSet(table, _)
            | Self::AddElements(table, ..)
            | Self::DeleteElements(table, ..)
            | Self::Destroy(table, _) => table.clone(),
        }
    }

    /// Returns the family of the addresses in the table; `None` if there are several or none.
    pub fn family(&self) -> Option<Family> {
        self.table().family.of_addresses()
    }

    /// Returns the elements that the operation adds or deletes, if any.
    pub fn elements(&self) -> Option<&[Element]> {
        if let Self::AddElements(_, _, elements)
        | Self::DeleteElements(_, _, elements)
        | Self::Destroy(_, Destroyed::Elements(_, elements)) = self
        {
            return Some(elements);
        }
        None
    }

    /// Returns the devices that the operation adds or removes, if any.
    pub fn devices(&self) -> Option<&[Device]> {
        if let Self::AddDevices(_, _, devices) | Self::DeleteDevices(_, _, devices) = self {
            return Some(devices);
        }
        None
    }

    /// Returns the operation with only one of its elements.
    #[must_use]
    pub fn narrowed(&self, element: usize) -> Self {
        let only = |elements: &[Element]| elements.get(element).cloned().into_iter().collect();
        if let Self::AddElements(table, set, elements) = self {
            Self::AddElements(table.clone(), Arc::clone(set), only(elements))
        } else if let Self::DeleteElements(table, set, elements) = self {
            Self::DeleteElements(table.clone(), Arc::clone(set), only(elements))
        } else if let Self::Destroy(table, Destroyed::Elements(set, elements)) = self {
            let destroyed = Destroyed::Elements(Arc::clone(set), only(elements));
            Self::Destroy(table.clone(), destroyed)
        } else {
            self.clone()
        }
    }
}

/// Writes one command of nft(8), without a line break.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddTable(table) => write!(f, "add table {table}"),
            Self::DeleteTable(table) => write!(f, "delete table {table}"),
            Self::AddChain(table, chain) => {
                write!(f, "add chain {table} {}", chain.text(table.family))
            }
            Self::DeleteChain(table, name) => write!(f, "delete chain {table} {name}"),
            Self::FlushChain(table, name) => write!(f, "flush chain {table} {name}"),
            Self::AddRule(table, rule) => {
                write!(f, "add rule {table} {} {}", rule.chain, rule.text(table.family))
            }
            Self::DeleteRule(table, chain, handle) => {
                write!(f, "delete rule {table} {chain} handle {handle}")
            }
            Self::AddFlowtable(table, flowtable) => write!(f, "add flowtable {table} {flowtable}"),
            Self::DeleteFlowtable(table, name) => write!(f, "delete flowtable {table} {name}"),
            Self::AddDevices(table, flowtable, devices) => {
                write!(f, "add flowtable {table} {}", flowtable.with_devices(devices))
            }
            Self::DeleteDevices(table, flowtable, devices) => {
                write!(f, "delete flowtable {table} {}", flowtable.with_devices(devices))
            }
            Self::AddSet(table, set) => write!(f, "add {} {table} {set}", set.noun()),
            // nft(8) deletes maps by the keyword `set` too.
            Self::DeleteSet(table, name) => write!(f, "delete set {table} {name}"),
            Self::FlushSet(table, name) => write!(f, "flush set {table} {name}"),
            Self::AddElements(table, set, elements) => {
                let list = joined(elements.iter().map(|element| element.text(set)), ", ");
                write!(f, "add element {table} {} {{ {list} }}", set.name)
            }
            Self::DeleteElements(table, set, elements) => {
                write!(f, "delete element {table} {}", keys(set, elements))
            }
            Self::Destroy(table, destroyed) => match destroyed {
                Destroyed::Table => write!(f, "destroy table {table}"),
                Destroyed::Chain(name) => write!(f, "destroy chain {table} {name}"),
                Destroyed::Rule(chain, handle) => {
                    write!(f, "destroy rule {table} {chain} handle {handle}")
                }
                // As in `delete`, also of maps.
                Destroyed::Set(name) => write!(f, "destroy set {table} {name}"),
                Destroyed::Elements(set, elements) => {
                    write!(f, "destroy element {table} {}", keys(set, elements))
                }
                Destroyed::Object(kind, name) => {
                    write!(f, "destroy {} {table} {name}", noun(*kind))
                }
                Destroyed::Flowtable(name) => write!(f, "destroy flowtable {table} {name}"),
            },
        }
    }
}

/// Returns the name of a set, and the keys of elements in braces.
fn keys(set: &Set, elements: &[Element]) -> impl fmt::Display {
    let list = joined(elements.iter().map(|element| element.key_text(set)), ", ");
    format!("{} {{ {list} }}", set.name)
}
