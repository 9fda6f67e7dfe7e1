//! Uses of replaced objects.

use crate::any::AnyElement;
use crate::expression::{Data, Expression, Reference};

use super::Replaced;

impl Replaced<'_> {
    /// Returns whether an expression uses a replaced object.
    pub(super) fn is_used_by(&self, expression: &Expression) -> bool {
        match expression.reference() {
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
            Some(Data::Verdict(verdict)) => verdict.target(),
            Some(Data::Value(_) | Data::Code(_)) | None => None,
        };
        let object = element.object.as_deref();
        chain.is_some_and(|chain| self.chains.contains(chain))
            || object.is_some_and(|object| self.objects.contains(&(kind, object)))
    }
}
