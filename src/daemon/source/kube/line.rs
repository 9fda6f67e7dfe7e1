//! One event of a watch, decoded as the watches do it, as a separate step for measurements.

use engine::model::{Event, Problem, Resource};
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;

use super::format::{self, DecodeError, Format, WatchItem};
use super::frames::Frames;
use super::parsed::Parsed;
use crate::source::objects::{Converter, EndpointSlice, Followed, Node, Service, ServiceCidr};

/// A decoded event with an object.
#[derive(Debug)]
pub struct Line(DecodedObject);

#[derive(Debug)]
enum DecodedObject {
    Service(WatchItem<Parsed<Service>>),
    EndpointSlice(WatchItem<Parsed<EndpointSlice>>),
    Node(WatchItem<Parsed<Node>>),
    ServiceCidr(WatchItem<Parsed<ServiceCidr>>),
}

/// Why bytes are no event of a watch.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

impl From<DecodeError> for LineError {
    fn from(error: DecodeError) -> Self {
        Self(error.to_string())
    }
}

impl Line {
    /// Parses one line of the watch of `resource`, without its line end.
    ///
    /// # Errors
    /// The line is no event.
    pub fn parse(resource: Resource, line: &[u8]) -> Result<Self, LineError> {
        Self::of(Format::Json, resource, line)
    }

    fn of(format: Format, resource: Resource, frame: &[u8]) -> Result<Self, LineError> {
        Ok(Self(match resource {
            Resource::Services => DecodedObject::Service(item(format, frame)?),
            Resource::EndpointSlices => DecodedObject::EndpointSlice(item(format, frame)?),
            Resource::Nodes => DecodedObject::Node(item(format, frame)?),
            Resource::ServiceCidrs => DecodedObject::ServiceCidr(item(format, frame)?),
        }))
    }

    /// Decodes the first frame in the body of a watch of `resource` in protobuf, of which one read
    /// returned `body`.
    ///
    /// # Errors
    /// The body does not begin with such a frame.
    pub fn receive(resource: Resource, body: Vec<u8>) -> Result<Self, LineError> {
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        let first = Frames::new(Format::Protobuf, body).next().now_or_never();
        let Some(Ok(Some(frame))) = first else {
            return Err(LineError("the frame ends early or is too long".into()));
        };
        Self::decode(resource, &frame)
    }

    /// Decodes one frame of the watch of `resource` in protobuf, without its length.
    ///
    /// # Errors
    /// The frame is not such a message.
    pub fn decode(resource: Resource, frame: &[u8]) -> Result<Self, LineError> {
        Self::of(Format::Protobuf, resource, frame)
    }

    /// Returns the event of the object and its problems; `None` for a bookmark or an error.
    pub fn convert(self, converter: &mut Converter) -> Option<(Event, Vec<Problem>)> {
        match self.0 {
            DecodedObject::Service(event) => convert(event, converter),
            DecodedObject::EndpointSlice(event) => convert(event, converter),
            DecodedObject::Node(event) => convert(event, converter),
            DecodedObject::ServiceCidr(event) => convert(event, converter),
        }
    }
}

fn item<T: Followed>(format: Format, frame: &[u8]) -> Result<WatchItem<Parsed<T>>, LineError> {
    format::event(format, frame)?.ok_or_else(|| LineError("the line ends early".into()))
}

fn convert<T: Followed>(
    event: WatchItem<Parsed<T>>,
    converter: &mut Converter,
) -> Option<(Event, Vec<Problem>)> {
    match event {
        WatchItem::Changed(object) => Some(object.convert(converter)),
        WatchItem::Deleted(object) => Some((converter.gone(T::object(object.name())), Vec::new())),
        WatchItem::Bookmark { .. } | WatchItem::Error(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use engine::model::Change;

    use super::*;

    fn event(line: &str) -> Option<Event> {
        let line = Line::parse(Resource::EndpointSlices, line.as_bytes()).unwrap();
        line.convert(&mut Converter::default()).map(|(event, _)| event)
    }

    #[test]
    fn additions_and_deletions_become_events_and_bookmarks_do_not() {
        let object = r#""object":{"kind":"EndpointSlice",
            "apiVersion":"discovery.k8s.io/v1","metadata":{"name":"web-1","namespace":"default","labels":
            {"kubernetes.io/service-name":"web"},"resourceVersion":"7"},"addressType":"IPv4"}}"#;
        let added = event(&format!(r#"{{"type":"ADDED",{object}"#));
        assert!(matches!(added, Some(Event::EndpointSlice(Change::Is(_)))));
        let deleted = event(&format!(r#"{{"type":"DELETED",{object}"#));
        let Some(Event::EndpointSlice(Change::Gone(name))) = deleted else { panic!("{deleted:?}") };
        assert_eq!(name.as_str(), "default/web-1");
        let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"EndpointSlice",
            "apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"7"}}}"#;
        assert_eq!(event(bookmark), None);
    }

    #[test]
    fn the_first_frame_of_a_body_is_decoded() {
        let event = serde_json::json!({"type": "ADDED", "object": {"kind": "Service",
            "apiVersion": "v1", "metadata": {"name": "web", "namespace": "default",
            "resourceVersion": "7"}, "spec": {"clusterIP": "10.96.0.7"}}});
        let frame = test_messages::frame(&test_messages::event(&event).unwrap());
        let receive = |bytes: &[u8]| Line::receive(Resource::Services, bytes.to_vec());
        let event = receive(&frame).unwrap().convert(&mut Converter::default());
        assert!(matches!(event, Some((Event::Service(Change::Is(_)), _))));
        assert!(receive(&frame[..frame.len() - 1]).is_err());
        assert!(receive(b"").is_err());
    }

    #[test]
    fn a_line_that_is_not_text_or_not_json_is_an_error() {
        assert!(Line::parse(Resource::Services, b"\xff").is_err());
        assert!(Line::parse(Resource::Services, b"{").is_err());
    }
}
