//! The two formats of answers: one negotiated by `Accept`, both decoded to the same items.

use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::core::Status;
use kube::core::watch::BookmarkMeta;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};

use super::careful::Careful;
use super::resources::Watched;
use crate::source::objects::protobuf::{self, FormError, Frame, STATUS, StatusText};
use crate::source::objects::{OtherKind, Typed};

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

/// The formats to ask for, and how JSON is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Protobuf, else JSON in one step.
    Any,
    /// JSON in one step.
    Json,
    /// JSON in two steps: see [`Careful`].
    CarefulJson,
}

impl Asked {
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
            Self::Json | Self::CarefulJson => "application/json;drop=metadata.managedFields",
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
pub(super) enum Item<T> {
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
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// Version of the list, empty if absent.
    pub(super) version: String,
    /// Token of the next page, empty if there is none.
    pub(super) next: String,
}

/// Why an answer cannot be decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    Json(serde_json::Error),
    Protobuf(FormError),
    /// A line of a watch is a Status alone.
    Status(Box<Status>),
}

impl From<FormError> for DecodeError {
    fn from(error: FormError) -> Self {
        Self::Protobuf(error)
    }
}

/// An event in JSON.
#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum JsonEvent<'a, T> {
    #[serde(borrow)]
    Added(Typed<'a, T>),
    #[serde(borrow)]
    Modified(Typed<'a, T>),
    #[serde(borrow)]
    Deleted(Typed<'a, T>),
    #[serde(borrow)]
    Bookmark(Typed<'a, Bookmark>),
    #[serde(borrow)]
    Error(Box<Typed<'a, Status>>),
}

/// An object of the watched kind, of which little more than the version was sent.
#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

/// A list in JSON.
#[derive(Deserialize)]
struct JsonList<'a, T> {
    #[serde(default)]
    metadata: ListMeta,
    // A list without items has an empty list or null.
    #[serde(
        borrow,
        deserialize_with = "Deserialize::deserialize",
        bound(deserialize = "T: Deserialize<'de>, 'de: 'a")
    )]
    items: Option<Vec<Typed<'a, T>>>,
}

impl<T> Item<T> {
    fn map<U>(self, wrap: impl Fn(T) -> U) -> Item<U> {
        match self {
            Self::Changed(object) => Item::Changed(wrap(object)),
            Self::Deleted(object) => Item::Deleted(wrap(object)),
            Self::Bookmark { version, ends_list } => Item::Bookmark { version, ends_list },
            Self::Error(status) => Item::Error(status),
        }
    }
}

/// Decodes an event of a watch. `None` if a line ends in its middle: the connection broke.
pub(super) fn event<T: Watched>(
    format: Format,
    asked: Asked,
    frame: &[u8],
) -> Result<Option<Item<Careful<T>>>, DecodeError> {
    match (format, asked) {
        (Format::Protobuf, _) => {
            protobuf_event::<T>(frame).map(|item| Some(item.map(Careful::read)))
        }
        (Format::Json, Asked::CarefulJson) => json_event(frame),
        (Format::Json, Asked::Any | Asked::Json) => {
            json_event::<T>(frame).map(|item| item.map(|item| item.map(Careful::read)))
        }
    }
}

/// Returns version and kind of a resource.
fn kind_of<T: k8s_openapi::Resource>() -> (&'static str, &'static str) {
    (T::API_VERSION, T::KIND)
}

/// Decodes a frame of a watch in protobuf.
pub(super) fn protobuf_event<T: Watched>(frame: &[u8]) -> Result<Item<T>, DecodeError> {
    let object = |fields| T::from_protobuf(fields).map_err(FormError::from);
    Ok(match Frame::read(frame, kind_of::<T>())? {
        Frame::Changed(fields) => Item::Changed(object(fields)?),
        Frame::Deleted(fields) => Item::Deleted(object(fields)?),
        Frame::Bookmark(marker) => {
            Item::Bookmark { version: marker.resource_version, ends_list: marker.ends_list }
        }
        Frame::Error(text) => Item::Error(Box::new(status_of(text))),
    })
}

/// Decodes a line of a watch in JSON.
pub(super) fn json_event<T>(line: &[u8]) -> Result<Option<Item<T>>, DecodeError>
where
    T: DeserializeOwned + k8s_openapi::Resource,
{
    let error = match text(line).and_then(serde_json::from_str::<JsonEvent<'_, T>>) {
        Ok(event) => return item(event).map(Some).map_err(of_json),
        Err(error) => error,
    };
    if error.is_eof() {
        return Ok(None);
    }
    match status(Format::Json, line) {
        Some(status) => Err(DecodeError::Status(Box::new(status))),
        None => Err(DecodeError::Json(error)),
    }
}

fn item<T: k8s_openapi::Resource>(event: JsonEvent<'_, T>) -> Result<Item<T>, OtherKind> {
    let kind = kind_of::<T>();
    Ok(match event {
        JsonEvent::Added(object) | JsonEvent::Modified(object) => Item::Changed(object.of(kind)?),
        JsonEvent::Deleted(object) => Item::Deleted(object.of(kind)?),
        JsonEvent::Bookmark(bookmark) => {
            let BookmarkMeta { resource_version, annotations } = bookmark.of(kind)?.metadata;
            let ends_list = annotations.contains_key("k8s.io/initial-events-end");
            Item::Bookmark { version: resource_version, ends_list }
        }
        JsonEvent::Error(status) => Item::Error(Box::new(status.of(STATUS)?)),
    })
}

fn of_json(error: OtherKind) -> DecodeError {
    DecodeError::Json(serde_json::Error::custom(error))
}

/// Decodes a page of a list.
pub(super) fn page<T: Watched>(
    format: Format,
    asked: Asked,
    body: &[u8],
) -> Result<Page<Careful<T>>, DecodeError> {
    match (format, asked) {
        (Format::Protobuf, _) => protobuf_page(body),
        (Format::Json, Asked::CarefulJson) => json_page(body),
        (Format::Json, Asked::Any | Asked::Json) => {
            let Page { items, version, next } = json_page::<T>(body)?;
            let items = items.into_iter().map(Careful::read).collect();
            Ok(Page { items, version, next })
        }
    }
}

fn protobuf_page<T: Watched>(body: &[u8]) -> Result<Page<Careful<T>>, DecodeError> {
    let mut page = protobuf::Page::read(body, kind_of::<T>())?;
    let mut items = Vec::new();
    while let Some(fields) = page.next_item()? {
        let object = T::from_protobuf(fields).map_err(FormError::from)?;
        items.push(Careful::read(object));
    }
    Ok(Page { items, version: page.resource_version, next: page.next })
}

fn json_page<T>(body: &[u8]) -> Result<Page<T>, DecodeError>
where
    T: DeserializeOwned + k8s_openapi::Resource,
{
    let list = text(body).and_then(serde_json::from_str::<Typed<'_, JsonList<'_, T>>>);
    let (version, kind) = kind_of::<T>();
    let list = list.map_err(DecodeError::Json)?.of((version, &format!("{kind}List")));
    let JsonList { metadata, items } = list.map_err(of_json)?;
    let items = items.unwrap_or_default().into_iter().map(|it| it.item_of((version, kind)));
    Ok(Page {
        items: items.collect::<Result<_, _>>().map_err(of_json)?,
        version: metadata.resource_version.unwrap_or_default(),
        next: metadata.continue_.unwrap_or_default(),
    })
}

/// Decodes the body of an answer with an error status. `None` if it is no Status.
pub(super) fn status(format: Format, body: &[u8]) -> Option<Status> {
    match format {
        Format::Json => serde_json::from_slice::<Typed<'_, Status>>(body).ok()?.of(STATUS).ok(),
        Format::Protobuf => protobuf::read_status(body).ok().map(status_of),
    }
}

fn status_of(text: StatusText) -> Status {
    let StatusText { code, message, reason } = text;
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
