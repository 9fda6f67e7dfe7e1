//! The two formats of answers: one negotiated by `Accept`, both decoded to the same items.

use std::fmt::Display;

use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::core::Status;
use kube::core::watch::BookmarkMeta;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::parsed::Parsed;
use crate::source::objects::protobuf::{self, FormError, Frame, STATUS, StatusText};
use crate::source::objects::{Followed, OtherKind, check_kind};

/// Media type of Kubernetes' protobuf messages, without the parameter `stream`.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON; a watch has one line for each event.
    Json,
    /// Protobuf; a watch has a length before each event.
    Protobuf,
}

/// The formats in which objects may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Formats {
    /// Protobuf, or JSON where the server has no other.
    #[default]
    Any,
    /// JSON alone.
    Json,
}

impl Formats {
    /// Returns the value of `Accept`.
    ///
    /// The parameter `drop` (KEP-5958) leaves out what is never read. Servers without it pass over
    /// unknown parameters (`acceptMediaTypeOptions` of apiserver's negotiate.go).
    pub(super) fn accept(self) -> &'static str {
        match self {
            Self::Any => {
                "application/vnd.kubernetes.protobuf;drop=metadata.managedFields,\
                 application/json;drop=metadata.managedFields;q=0.9"
            }
            Self::Json => "application/json;drop=metadata.managedFields",
        }
    }
}

impl Format {
    /// Returns the format of an answer with these headers; JSON if none is named.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = text.unwrap_or_default().split(';').next().unwrap_or_default();
        if media_type.trim().eq_ignore_ascii_case(PROTOBUF) { Self::Protobuf } else { Self::Json }
    }
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub(super) enum WatchItem<T> {
    /// An object was added or changed.
    Changed(T),
    /// An object was deleted.
    Deleted(T),
    /// All events up to `version` were sent; if `ends_list`, all initial ones.
    Bookmark { version: String, ends_list: bool },
    /// The watch failed.
    Error(Box<Status>),
}

/// Objects of one page of a list.
#[derive(Debug)]
pub(super) struct ListPage<T> {
    pub(super) items: Vec<T>,
    /// Version of the list, empty if absent.
    pub(super) version: String,
    /// Token of the next page, empty if there is none.
    pub(super) next: String,
}

/// Why an answer cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Protobuf(#[from] FormError),
    /// A line of a watch is a Status alone.
    #[error("{}", .0.message)]
    Status(Box<Status>),
}

/// A list in JSON. One without items has an empty list or null.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Followed"))]
struct JsonList<T> {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(deserialize_with = "Deserialize::deserialize")]
    items: Option<Vec<JsonItem<T>>>,
}

/// An object of a list in JSON. Those of an API server name no kind.
struct JsonItem<T>(Result<Parsed<T>, OtherKind>);

impl<'de, T: Followed> Deserialize<'de> for JsonItem<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(input)?;
        if kind_in(&value) != ("", "")
            && let Err(error) = check_kind(kind_in(&value), kind_of::<T>())
        {
            return Ok(Self(Err(error)));
        }
        Parsed::of(&value).map(|object| Self(Ok(object))).map_err(D::Error::custom)
    }
}

/// Decodes an event of a watch. `None` if a line ends in its middle: the connection broke.
pub(super) fn event<T: Followed>(
    format: Format,
    frame: &[u8],
) -> Result<Option<WatchItem<Parsed<T>>>, DecodeError> {
    match format {
        Format::Protobuf => protobuf_event(frame).map(Some),
        Format::Json => json_event(frame),
    }
}

/// Returns version and kind of a resource.
fn kind_of<T: Followed>() -> (&'static str, &'static str) {
    (T::RESOURCE.api_versions()[0], T::RESOURCE.kind())
}

/// Returns version and kind of an object in JSON, which are empty if absent.
fn kind_in(object: &Value) -> (&str, &str) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

fn protobuf_event<T: Followed>(frame: &[u8]) -> Result<WatchItem<Parsed<T>>, DecodeError> {
    let object = |fields| T::from_protobuf(fields).map(Parsed::Read).map_err(FormError::from);
    Ok(match Frame::read(frame, kind_of::<T>())? {
        Frame::Changed(fields) => WatchItem::Changed(object(fields)?),
        Frame::Deleted(fields) => WatchItem::Deleted(object(fields)?),
        Frame::Bookmark(marker) => {
            WatchItem::Bookmark { version: marker.resource_version, ends_list: marker.ends_list }
        }
        Frame::Error(text) => WatchItem::Error(Box::new(status_of(text))),
    })
}

fn json_event<T: Followed>(line: &[u8]) -> Result<Option<WatchItem<Parsed<T>>>, DecodeError> {
    let mut event: Value = match text(line).and_then(serde_json::from_str) {
        Err(error) if error.is_eof() => return Ok(None),
        event => event?,
    };
    let object = event.get_mut("object").map(Value::take);
    let (Some(change), Some(object)) = (event["type"].as_str(), object) else {
        let status = json_status(event).map(Box::new);
        return Err(status.map_or_else(|error| error, DecodeError::Status));
    };
    if change == "ERROR" {
        return json_status(object).map(|status| Some(WatchItem::Error(Box::new(status))));
    }
    check_kind(kind_in(&object), kind_of::<T>()).map_err(of_json)?;
    Ok(Some(match change {
        "ADDED" | "MODIFIED" => WatchItem::Changed(Parsed::of(&object).map_err(of_json)?),
        "DELETED" => WatchItem::Deleted(Parsed::of(&object).map_err(of_json)?),
        "BOOKMARK" => {
            let BookmarkMeta { resource_version, annotations } =
                BookmarkMeta::deserialize(&object["metadata"])?;
            let ends_list = annotations.contains_key("k8s.io/initial-events-end");
            WatchItem::Bookmark { version: resource_version, ends_list }
        }
        other => return Err(of_json(format!("a watch event has the unknown type {other:?}"))),
    }))
}

fn of_json(error: impl Display) -> DecodeError {
    DecodeError::Json(serde_json::Error::custom(error))
}

/// Decodes a page of a list.
pub(super) fn page<T: Followed>(
    format: Format,
    body: &[u8],
) -> Result<ListPage<Parsed<T>>, DecodeError> {
    match format {
        Format::Protobuf => protobuf_page(body),
        Format::Json => json_page(body),
    }
}

fn protobuf_page<T: Followed>(body: &[u8]) -> Result<ListPage<Parsed<T>>, DecodeError> {
    let mut page = protobuf::Page::read(body, kind_of::<T>())?;
    let mut items = Vec::new();
    while let Some(fields) = page.next_item()? {
        let object = T::from_protobuf(fields).map_err(FormError::from)?;
        items.push(Parsed::Read(object));
    }
    Ok(ListPage { items, version: page.marker.resource_version, next: page.marker.next })
}

fn json_page<T: Followed>(body: &[u8]) -> Result<ListPage<Parsed<T>>, DecodeError> {
    let list: JsonList<T> = serde_json::from_str(text(body)?)?;
    let found = [list.api_version, list.kind].map(Option::unwrap_or_default);
    let (version, kind) = kind_of::<T>();
    check_kind((&found[0], &found[1]), (version, &format!("{kind}List"))).map_err(of_json)?;
    let items = list.items.unwrap_or_default().into_iter().map(|JsonItem(item)| item);
    Ok(ListPage {
        items: items.collect::<Result<_, _>>().map_err(of_json)?,
        version: list.metadata.resource_version.unwrap_or_default(),
        next: list.metadata.continue_.unwrap_or_default(),
    })
}

/// Decodes the body of an answer with an error status. `None` if it is no Status.
pub(super) fn status(format: Format, body: &[u8]) -> Option<Status> {
    match format {
        Format::Json => json_status(serde_json::from_slice(body).ok()?).ok(),
        Format::Protobuf => protobuf::read_status(body).ok().map(status_of),
    }
}

fn json_status(object: Value) -> Result<Status, DecodeError> {
    check_kind(kind_in(&object), STATUS).map_err(of_json)?;
    Ok(serde_json::from_value(object)?)
}

fn status_of(text: StatusText) -> Status {
    let StatusText { code, message, reason } = text;
    let code = u16::try_from(code).unwrap_or_default();
    Status { code, message, reason, ..Status::default() }
}

/// Checks the text once, instead of string by string.
fn text(bytes: &[u8]) -> Result<&str, serde_json::Error> {
    std::str::from_utf8(bytes).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_format_is_that_of_the_content_type_and_json_without_one() {
        let format = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            Format::of(&headers)
        };
        assert_eq!(format("application/vnd.kubernetes.protobuf"), Format::Protobuf);
        assert_eq!(format("application/vnd.kubernetes.protobuf;stream=watch"), Format::Protobuf);
        assert_eq!(format("application/json;stream=watch"), Format::Json);
        assert_eq!(format("text/plain"), Format::Json);
        assert_eq!(Format::of(&HeaderMap::new()), Format::Json);
    }
}
