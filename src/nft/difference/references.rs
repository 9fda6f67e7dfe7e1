//! Uses of replaced objects.

use crate::any::AnyElement;
use crate::expression::{Data, Expression, Reference};

use super::Replaced;

impl Replaced<'_> {
    /// Returns whether an expression uses a replaced object.
    pub(super) fn is_used_by(&self, expression: &Expression) -> bool {
        expression.reference().is_some_and(|reference| self.0.contains(&reference))
    }

    /// Returns whether an element of a set of objects of type `kind` uses a replaced object.
    pub(super) fn is_used_by_element(&self, element: &AnyElement, kind: u32) -> bool {
        let chain = match &element.data {
            Some(Data::Verdict(verdict)) => verdict.target().map(Reference::Chain),
            Some(Data::Value(_) | Data::Code(_)) | None => None,
        };
        let object = element.details().object.as_deref().map(|name| Reference::Object(kind, name));
        chain.into_iter().chain(object).any(|reference| self.0.contains(&reference))
    }
}
