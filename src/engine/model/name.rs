//! The name of an object: `namespace/name`, or `name` alone for cluster-scoped objects.

use std::borrow::Borrow;
use std::fmt;

use arcstr::ArcStr;

/// `namespace/name` of a namespaced object, `name` of a cluster-scoped one; cheap to clone.
///
/// It takes one word, half of an `Arc<str>`, because every map of services contains it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName(ArcStr);

impl ObjectName {
    /// Returns the name of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self([namespace, "/", name].concat().into())
    }

    /// Returns the name of a cluster-scoped object such as a Node.
    pub fn cluster_scoped(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name with this text, in the form of [`as_str`](Self::as_str).
    pub fn written(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the namespace, if there is one, and the name in it.
    pub fn parts(&self) -> (Option<&str>, &str) {
        let parts = self.0.split_once('/');
        parts.map_or((None, &*self.0), |(namespace, name)| (Some(namespace), name))
    }

    /// Returns the namespace; empty without one.
    pub fn namespace(&self) -> &str {
        self.parts().0.unwrap_or_default()
    }

    /// Returns `namespace/name`, or `name` without a namespace.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Maps with names as keys are searched by their text.
impl Borrow<str> for ObjectName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
