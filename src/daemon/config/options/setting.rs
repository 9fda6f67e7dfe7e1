//! An option: its field, its flags, its default, and how it is set and written.

use std::time::Duration;

use serde_json::Value;

use super::kind::OptionKind;
use super::values::{Set, Values, count, put, time};
use crate::config::{Config, duration};

/// An option: a field of the file, and the flags that set it.
pub(in crate::config) struct Setting {
    /// Path from the root, such as `conntrack.min`. A `*` in it is the section of the mode.
    pub(in crate::config) field: &'static str,
    pub(in crate::config) kind: OptionKind,
    /// Empty if no text is the default, or if it depends on others.
    pub(in crate::config) default: &'static str,
    /// The flag of `run`, and the name of its value.
    pub(in crate::config) flag: Option<(&'static str, &'static str)>,
    /// Commands that have the flag.
    pub(in crate::config) scope: OptionScope,
    /// kube-proxy's flag, and the field that it sets.
    pub(in crate::config) kube_proxy: Option<(&'static str, &'static str)>,
    /// What it changes.
    pub(in crate::config) about: &'static str,
    access: OptionAccess,
}

/// How an option is set and written.
#[derive(Clone, Copy)]
enum OptionAccess {
    /// Without effect.
    Ignored,
    /// A [`Config`] does not have its value.
    Set(Setter),
    SetAndWritten(Setter, fn(&Config) -> Value),
    Count(fn(&mut Config) -> &mut u32),
    Boolean(fn(&mut Config) -> &mut bool),
    Time(fn(&mut Config) -> &mut Duration),
}

pub(super) type Setter = fn(&mut Values, &Value) -> Set;

/// Commands that have a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum OptionScope {
    /// All that compute tables.
    Tables,
    /// `run`.
    Daemon,
    /// Those that declare it themselves.
    Declared,
}

impl Setting {
    const fn of(field: &'static str, kind: OptionKind, access: OptionAccess) -> Self {
        let (default, about, scope) = ("", "", OptionScope::Tables);
        Self { field, kind, default, flag: None, scope, kube_proxy: None, about, access }
    }

    pub(super) const fn ignored(field: &'static str, kind: OptionKind) -> Self {
        Self::of(field, kind, OptionAccess::Ignored)
    }

    pub(super) const fn unwritten(field: &'static str, kind: OptionKind, set: Setter) -> Self {
        Self::of(field, kind, OptionAccess::Set(set))
    }

    pub(super) const fn new(
        field: &'static str,
        kind: OptionKind,
        set: Setter,
        write: fn(&Config) -> Value,
    ) -> Self {
        Self::of(field, kind, OptionAccess::SetAndWritten(set, write))
    }

    pub(super) const fn count(field: &'static str, place: fn(&mut Config) -> &mut u32) -> Self {
        Self::of(field, OptionKind::Whole, OptionAccess::Count(place))
    }

    pub(super) const fn boolean(field: &'static str, place: fn(&mut Config) -> &mut bool) -> Self {
        Self::of(field, OptionKind::Flag, OptionAccess::Boolean(place))
    }

    pub(super) const fn time(field: &'static str, place: fn(&mut Config) -> &mut Duration) -> Self {
        Self::of(field, OptionKind::Duration, OptionAccess::Time(place))
    }

    pub(super) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(super) const fn flag(self, name: &'static str, value: &'static str) -> Self {
        Self { flag: Some((name, value)), ..self }
    }

    pub(super) const fn scope(self, scope: OptionScope) -> Self {
        Self { scope, ..self }
    }

    pub(super) const fn kube_proxy(self, name: &'static str) -> Self {
        let field = self.field;
        self.kube_proxy_sets(name, field)
    }

    /// Adds a flag of kube-proxy that sets another field.
    pub(super) const fn kube_proxy_sets(self, name: &'static str, field: &'static str) -> Self {
        Self { kube_proxy: Some((name, field)), ..self }
    }

    pub(super) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Returns the path of the field in `section`.
    pub(in crate::config) fn path(&self, section: &str) -> String {
        self.field.replace('*', section)
    }

    /// Returns the field that the flag of `run` sets.
    pub(in crate::config) fn target(&self) -> &'static str {
        if self.kind == OptionKind::Gate { "featureGates" } else { self.field }
    }

    /// Returns the help of the flag of `run`.
    pub(in crate::config) fn help(&self) -> String {
        let shown = if self.kind == OptionKind::Gate { "" } else { self.default };
        match shown {
            "" => self.about.to_owned(),
            default => format!("{} [default: {default}]", self.about),
        }
    }

    /// Returns whether the field has an effect, in one mode at least.
    pub(in crate::config) fn has_effect(&self) -> bool {
        !matches!(self.access, OptionAccess::Ignored)
    }

    /// Sets the value in `values`.
    pub(in crate::config) fn set(&self, values: &mut Values, value: &Value) -> Set {
        let config = &mut values.config;
        match self.access {
            OptionAccess::Ignored => Ok(()),
            OptionAccess::Set(set) | OptionAccess::SetAndWritten(set, _) => set(values, value),
            OptionAccess::Count(place) => put(place(config), count(value)),
            OptionAccess::Boolean(place) => put(place(config), Ok(value == true)),
            OptionAccess::Time(place) => put(place(config), time(value)),
        }
    }

    /// Returns the value that `config` has; `None` if a [`Config`] has none.
    pub(in crate::config) fn written(&self, config: &Config) -> Option<Value> {
        // A place needs a configuration that can be changed.
        let changeable = &mut config.clone();
        match self.access {
            OptionAccess::Ignored | OptionAccess::Set(_) => None,
            OptionAccess::SetAndWritten(_, write) => Some(write(config)),
            OptionAccess::Count(place) => Some((*place(changeable)).into()),
            OptionAccess::Boolean(place) => Some((*place(changeable)).into()),
            OptionAccess::Time(place) => Some(duration::text(*place(changeable)).into()),
        }
    }

    /// Returns the default of an option of which a [`Config`] has no value.
    pub(in crate::config) fn written_default(&self) -> Option<Value> {
        matches!(self.access, OptionAccess::Set(_)).then(|| self.kind.read(self.default).ok())?
    }

    /// Parses the value of a flag; the error is its text and the expectation.
    pub(in crate::config) fn read(&self, text: &str) -> Result<Value, String> {
        let read = self.kind.read(text);
        let value = read.map_err(|expected| format!("is {text:?}; expected {expected}"))?;
        match self.set(&mut Values::default(), &value) {
            Ok(()) => Ok(value),
            Err(errors) => Err(errors.join("; ")),
        }
    }
}
