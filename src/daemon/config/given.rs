//! Fields that flags set.

use serde_json::{Value, json};

use super::effective::set;
use super::fields::{API_VERSION, KIND};
use super::options::SECTIONS;

/// Fields that flags set: the name of the flag, the path of the field, the value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Given(Vec<(&'static str, &'static str, Value)>);

impl Given {
    pub(super) fn set(&mut self, flag: &'static str, path: &'static str, value: Value) {
        let before = self.0.iter_mut().find(|(_, other, _)| *other == path);
        match (before, value) {
            // Repeated flags extend a list or an object; other values are replaced.
            (Some((_, _, Value::Array(list))), Value::Array(more)) => list.extend(more),
            (Some((_, _, Value::Object(fields))), Value::Object(more)) => fields.extend(more),
            (Some((_, _, before)), value) => *before = value,
            (None, value) => self.0.push((flag, path, value)),
        }
    }

    /// Returns these fields and those of `more`.
    pub(super) fn with(mut self, more: &Self) -> Self {
        self.0.extend(more.0.iter().cloned());
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of the field at `path`.
    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        self.0.iter().find(|(_, other, _)| *other == path).map(|(.., value)| value)
    }

    /// Returns the names of the flags.
    pub(super) fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(flag, ..)| *flag)
    }

    /// Returns the flag that set the field at `path`.
    pub(super) fn flag_of(&self, path: &str) -> Option<&'static str> {
        self.0.iter().find(|(_, other, _)| *other == path).map(|(flag, ..)| *flag)
    }

    /// Returns the fields as a KubeProxyConfiguration.
    pub(super) fn document(&self) -> Value {
        let mut document = json!({ "apiVersion": API_VERSION, "kind": KIND });
        let [others, nftables] = SECTIONS;
        let is_nftables = self.value("mode").is_some_and(|mode| mode == nftables);
        for (_, path, value) in &self.0 {
            // One flag for all modes, but one field for each.
            let section = if is_nftables { nftables } else { others };
            set(&mut document, &path.replace('*', section), value.clone());
        }
        document
    }
}
