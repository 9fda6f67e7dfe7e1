//! Reader of the fields of one document: typed values, and the errors of all fields.

use std::cell::RefCell;
use std::path::Path;

use serde_json::Value;

use crate::config::{ConfigError, options};
use crate::yaml::Document;

/// Origin of fields.
#[derive(Clone, Copy)]
pub(in crate::config) enum Origin<'a> {
    File(&'a Path),
    /// Flags of kube-proxy or a running daemon, and how errors name a field.
    Flags(&'a dyn Fn(&str) -> String),
    /// Flags of `run`.
    Own,
}

/// Reader of the fields of one document. A field with an error counts as absent, so that the
/// errors of all fields are found.
pub(super) struct Reader<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) document: &'a Document,
    /// Errors so far, each with its line.
    errors: RefCell<Vec<(usize, ConfigError)>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(origin: Origin<'a>, document: &'a Document) -> Self {
        Self { origin, document, errors: RefCell::default() }
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    /// Returns all errors, in the order of their lines.
    pub(super) fn into_error(self) -> ConfigError {
        let mut errors = self.errors.into_inner();
        errors.sort_by_key(|(line, _)| *line);
        ConfigError::all(errors.into_iter().map(|(_, error)| error).collect())
    }

    /// Returns the value at `path`, unless it is null.
    pub(super) fn found(&self, path: &str) -> Option<&'a Value> {
        let pointer = format!("/{}", path.replace('.', "/"));
        let value = self.document.value.pointer(&pointer)?;
        // In a map, the null of JSON is the zero value of Go.
        if value.is_null() {
            path.starts_with("featureGates.").then_some(&OFF)
        } else {
            Some(value)
        }
    }

    /// Returns the value at `path`, unless it is null or has another type, which is
    /// reported elsewhere.
    pub(super) fn value(&self, path: &str) -> Option<&'a Value> {
        let has_type = |value: &&Value| {
            options::kind_of(path).is_none_or(|kind| kind.mismatch(value).is_none())
        };
        self.found(path).filter(has_type)
    }

    /// Returns the text at `path`, unless it is empty.
    pub(super) fn text(&self, path: &str) -> Option<&'a str> {
        self.value(path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the place of a field for a note: its line in a file, or the flag.
    pub(super) fn place(&self, field: &str) -> String {
        match self.origin {
            Origin::File(_) => format!("line {}: {field}", self.document.line_of(field)),
            Origin::Flags(flag_of) => flag_of(field),
            Origin::Own => field.to_owned(),
        }
    }

    pub(super) fn report(&self, field: &str, message: String) {
        let line = self.document.line_of(field);
        let error = match self.origin {
            Origin::File(path) => {
                let (path, field) = (path.to_owned(), field.to_owned());
                ConfigError::Field { path, line, field, message }
            }
            Origin::Flags(flag_of) => ConfigError::Flag { flag: flag_of(field), message },
            Origin::Own => ConfigError::Flag { flag: options::own_flag(field), message },
        };
        self.push(line, error);
    }

    pub(super) fn push(&self, line: usize, error: ConfigError) {
        let mut errors = self.errors.borrow_mut();
        if errors.len() < MOST_ERRORS {
            errors.push((line, error));
        }
    }
}

static OFF: Value = Value::Bool(false);

/// Most errors of one file: lists may have any number of invalid items.
pub(super) const MOST_ERRORS: usize = 100;
