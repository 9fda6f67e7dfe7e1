//! What expressions and elements refer to.

use crate::expression::{Data, Expression};
use crate::{AnyElement, ElementData, Verdict};

use super::Replaced;

/// An object that an expression uses.
pub(super) enum Reference<'a> {
    Chain(&'a str),
    Set(&'a str),
    Object(u32, &'a str),
    Flowtable(&'a str),
}

/// Returns what an expression uses.
pub(super) fn of_expression(expression: &Expression) -> Option<Reference<'_>> {
    if let Expression::Immediate(immediate) = expression
        && let Data::Verdict(verdict) = &immediate.data
    {
        return target(verdict).map(Reference::Chain);
    }
    if let Expression::Objref(object) = expression
        && let (Some(kind), Some(name)) = (object.kind, &object.object)
    {
        return Some(Reference::Object(kind, name));
    }
    if let Expression::FlowOffload(offload) = expression {
        return Some(Reference::Flowtable(&offload.flowtable));
    }
    set(expression).map(Reference::Set)
}

/// Returns the name of the set or map of an expression.
pub(super) fn set(expression: &Expression) -> Option<&str> {
    if let Expression::Lookup(lookup) = expression {
        Some(&lookup.set)
    } else if let Expression::Dynset(dynset) = expression {
        Some(&dynset.set)
    } else if let Expression::Objref(object) = expression {
        object.map.as_deref()
    } else {
        None
    }
}

/// Changes the name of the set or map of an expression.
pub(super) fn rename_set(expression: &mut Expression, name: String) {
    if let Expression::Lookup(lookup) = expression {
        lookup.set = name;
    } else if let Expression::Dynset(dynset) = expression {
        dynset.set = name;
    } else if let Expression::Objref(object) = expression {
        object.map = Some(name);
    }
}

fn target(verdict: &Verdict) -> Option<&str> {
    let (Verdict::Jump(chain) | Verdict::Goto(chain)) = verdict else { return None };
    Some(chain)
}

impl Replaced<'_> {
    /// Returns whether an expression uses a replaced object.
    pub(super) fn is_used_by(&self, expression: &Expression) -> bool {
        match of_expression(expression) {
            Some(Reference::Chain(chain)) => self.chains.contains(chain),
            Some(Reference::Set(set)) => self.sets.contains(set),
            Some(Reference::Object(kind, object)) => self.objects.contains(&(kind, object)),
            Some(Reference::Flowtable(flowtable)) => self.flowtables.contains(flowtable),
            None => false,
        }
    }

    /// Returns whether an element of a set of objects of type `kind` uses a replaced object.
    pub(super) fn is_used_by_element(&self, element: &AnyElement, kind: u32) -> bool {
        let chain = match &element.data {
            Some(ElementData::Verdict(verdict)) => target(verdict),
            Some(ElementData::Value(_) | ElementData::Code(_)) | None => None,
        };
        let object = element.object.as_deref();
        chain.is_some_and(|chain| self.chains.contains(chain))
            || object.is_some_and(|object| self.objects.contains(&(kind, object)))
    }
}
