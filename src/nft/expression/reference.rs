//! The objects that expressions refer to.

use super::declared::Expression;
use super::field::Data;

/// An object that an expression uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reference<'a> {
    /// A chain, by name.
    Chain(&'a str),
    /// A set or map, by name.
    Set(&'a str),
    /// A stateful object, by `NFT_OBJECT_*` and name.
    Object(u32, &'a str),
    /// A flowtable, by name.
    Flowtable(&'a str),
}

impl Expression {
    /// Returns what the expression uses.
    pub fn reference(&self) -> Option<Reference<'_>> {
        if let Self::Immediate(immediate) = self
            && let Data::Verdict(verdict) = &immediate.data
        {
            return verdict.target().map(Reference::Chain);
        }
        if let Self::Objref(object) = self
            && let (Some(kind), Some(name)) = (object.kind, &object.object)
        {
            return Some(Reference::Object(kind, name));
        }
        if let Self::FlowOffload(offload) = self {
            return Some(Reference::Flowtable(&offload.flowtable));
        }
        self.set().map(Reference::Set)
    }

    /// Returns the name of the set or map of the expression.
    pub fn set(&self) -> Option<&str> {
        if let Self::Lookup(lookup) = self {
            Some(&lookup.set)
        } else if let Self::Dynset(dynset) = self {
            Some(&dynset.set)
        } else if let Self::Objref(object) = self {
            object.map.as_deref()
        } else {
            None
        }
    }

    /// Changes the name of the set or map of the expression.
    pub(crate) fn rename_set(&mut self, name: String) {
        if let Self::Lookup(lookup) = self {
            lookup.set = name;
        } else if let Self::Dynset(dynset) = self {
            dynset.set = name;
        } else if let Self::Objref(object) = self {
            object.map = Some(name);
        }
    }
}
