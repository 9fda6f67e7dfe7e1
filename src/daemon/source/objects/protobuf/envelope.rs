//! The envelope of an object, the pages of a list, and the frames of a watch.
//!
//! The API server writes an object as `k8s`, a zero byte, and the message `runtime.Unknown`
//! (protobuf.go of apimachinery's serializers). A frame of a watch is a `meta/v1.WatchEvent`
//! without an envelope; the object in it has one.

use std::borrow::Cow;

use super::super::other_kind::{OtherKind, check_kind, shown};
use super::message::{MapEntry, MessageField, ReadMessage, messages};
use super::wire::{Fields, Value, WireError};

/// First bytes of every object.
const PREFIX: &[u8] = b"k8s\0";

/// Media type of the messages, which an envelope may repeat.
const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Version and kind of a meta/v1 Status.
pub(in crate::source) const STATUS: (&str, &str) = ("v1", "Status");

/// Why an answer in protobuf cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::source) enum FormError {
    #[error("protobuf: an object does not begin with k8s and a zero byte")]
    NoEnvelope,
    #[error("protobuf: an object is encoded as {0:?}: expected a plain message")]
    Encoded(String),
    #[error("protobuf: {0}")]
    OtherKind(#[from] OtherKind),
    #[error("protobuf: a watch event has the unknown type {0:?}")]
    UnknownEvent(String),
    #[error("protobuf: {0}")]
    Wire(#[from] WireError),
}

/// A frame of a watch.
#[derive(Clone, Debug)]
pub(in crate::source) enum Frame<'a> {
    /// An object was added or changed.
    Changed(Fields<'a>),
    /// An object was deleted.
    Deleted(Fields<'a>),
    /// All events up to a version were sent.
    Bookmark(Marker),
    /// The watch failed.
    Error(StatusText),
}

/// A bookmark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct Marker {
    pub(in crate::source) resource_version: String,
    /// All initial events of a streaming list were sent.
    pub(in crate::source) ends_list: bool,
}

/// Code and texts of a meta/v1 Status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct StatusText {
    pub(in crate::source) code: i64,
    pub(in crate::source) message: String,
    pub(in crate::source) reason: String,
}

/// A page of a list.
#[derive(Clone, Debug, Default)]
pub(in crate::source) struct Page<'a> {
    pub(in crate::source) marker: ListMarker,
    list: Fields<'a>,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default)]
pub(in crate::source) struct ListMarker {
    pub(in crate::source) resource_version: String,
    /// Token of the next page, empty if there is none.
    pub(in crate::source) next: String,
}

impl<'a> Frame<'a> {
    /// Reads a frame of the watch of objects of this version and kind.
    pub(in crate::source) fn read(frame: &'a [u8], kind: (&str, &str)) -> Result<Self, FormError> {
        let (mut fields, mut change, mut object) = (Fields::of(frame), Cow::default(), None);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => change = value.text()?,
                // `raw` of a RawExtension.
                2 => object = value.message()?.last(1)?.map(Value::bytes).transpose()?,
                _ => {}
            }
        }
        let object = object.unwrap_or_default();
        match &*change {
            "ADDED" | "MODIFIED" => Ok(Self::Changed(open(object, kind)?)),
            "DELETED" => Ok(Self::Deleted(open(object, kind)?)),
            "BOOKMARK" => Ok(Self::Bookmark(Marker::read(open(object, kind)?)?)),
            "ERROR" => read_status(object).map(Self::Error),
            other => Err(FormError::UnknownEvent(shown(other))),
        }
    }
}

impl Marker {
    /// Reads the metadata of an object.
    fn read(message: Fields<'_>) -> Result<Self, WireError> {
        let (mut marker, mut fields) = (Self::default(), message);
        while let Some((number, value)) = fields.next()? {
            if number != 1 {
                continue;
            }
            let mut metadata = value.message()?;
            while let Some((number, value)) = metadata.next()? {
                match number {
                    6 => marker.resource_version = value.string()?,
                    12 => {
                        let MapEntry { key, .. } = MapEntry::read(value.message()?)?;
                        marker.ends_list |= *key == *INITIAL_EVENTS_END;
                    }
                    _ => {}
                }
            }
        }
        Ok(marker)
    }
}

impl<'a> Page<'a> {
    /// Reads a list of objects of this version and kind, but not yet the objects.
    pub(in crate::source) fn read(
        body: &'a [u8],
        (version, kind): (&str, &str),
    ) -> Result<Self, FormError> {
        let list = open(body, (version, &format!("{kind}List")))?;
        let (mut marker, mut fields) = (ListMarker::default(), list);
        while let Some((number, value)) = fields.next()? {
            if number == 1 {
                marker.read_field(value)?;
            }
        }
        Ok(Self { marker, list })
    }

    /// Returns the next object.
    pub(in crate::source) fn next_item(&mut self) -> Result<Option<Fields<'a>>, FormError> {
        while let Some((number, value)) = self.list.next()? {
            if number == 2 {
                return Ok(Some(value.message()?));
            }
        }
        Ok(None)
    }
}

messages! { 'a
    StatusText { 3 message, 4 reason, 6 code, }
    ListMarker { 2 resource_version, 3 next, }
}

/// Reads a Status in its envelope.
pub(in crate::source) fn read_status(object: &[u8]) -> Result<StatusText, FormError> {
    Ok(StatusText::read(open(object, STATUS)?)?)
}

/// Opens the envelope of an object of this version and kind.
fn open<'a>(object: &'a [u8], kind: (&str, &str)) -> Result<Fields<'a>, FormError> {
    let unknown = object.strip_prefix(PREFIX).ok_or(FormError::NoEnvelope)?;
    let (mut fields, mut found, mut message) =
        (Fields::of(unknown), MapEntry::default(), Fields::default());
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => found = MapEntry::read(value.message()?)?,
            2 => message = value.message()?,
            3 | 4 => check_encoding(&value.text()?)?,
            _ => {}
        }
    }
    check_kind((&found.key, &found.value), kind)?;
    Ok(message)
}

/// Refuses a content encoding or content type with which `raw` is not a plain message.
fn check_encoding(text: &str) -> Result<(), FormError> {
    if text.is_empty() || text == MEDIA_TYPE {
        Ok(())
    } else {
        Err(FormError::Encoded(shown(text)))
    }
}
