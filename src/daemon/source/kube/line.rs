//! One event of a watch, decoded as the watches do it, as a separate step for measurements.

use engine::model::{Event, Problem, Resource};

use super::format::{DecodeError, Item, json_event, protobuf_event};
use super::resources::Watched;
use crate::source::objects::{Converter, EndpointSlice, Node, Service, ServiceCidr};

/// A decoded event with an object.
#[derive(Debug)]
pub struct Line(Object);

#[derive(Debug)]
enum Object {
    Service(Item<Service>),
    EndpointSlice(Item<EndpointSlice>),
    Node(Item<Node>),
    ServiceCidr(Item<ServiceCidr>),
}

/// Why bytes are no event of a watch.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

impl From<DecodeError> for LineError {
    fn from(error: DecodeError) -> Self {
        Self(match error {
            DecodeError::Json(error) => error.to_string(),
            DecodeError::Protobuf(error) => error.to_string(),
            DecodeError::Status(status) => status.message,
        })
    }
}

impl Line {
    /// Parses one line of the watch of `resource`, without its line end.
    ///
    /// # Errors
    /// The line is not JSON, or the object has the wrong shape.
    pub fn parse(resource: Resource, line: &[u8]) -> Result<Self, LineError> {
        let end = || LineError("the line ends early".into());
        Ok(Self(match resource {
            Resource::Services => Object::Service(json_event(line)?.ok_or_else(end)?),
            Resource::EndpointSlices => Object::EndpointSlice(json_event(line)?.ok_or_else(end)?),
            Resource::Nodes => Object::Node(json_event(line)?.ok_or_else(end)?),
            Resource::ServiceCidrs => Object::ServiceCidr(json_event(line)?.ok_or_else(end)?),
        }))
    }

    /// Decodes one frame of the watch of `resource` in protobuf, without its length.
    ///
    /// # Errors
    /// The frame is not such a message.
    pub fn decode(resource: Resource, frame: &[u8]) -> Result<Self, LineError> {
        Ok(Self(match resource {
            Resource::Services => Object::Service(protobuf_event(frame)?),
            Resource::EndpointSlices => Object::EndpointSlice(protobuf_event(frame)?),
            Resource::Nodes => Object::Node(protobuf_event(frame)?),
            Resource::ServiceCidrs => Object::ServiceCidr(protobuf_event(frame)?),
        }))
    }

    /// Returns the event of the object and its problems; `None` for a bookmark or an error.
    pub fn convert(self, converter: &mut Converter) -> Option<(Event, Vec<Problem>)> {
        match self.0 {
            Object::Service(event) => convert(event, converter),
            Object::EndpointSlice(event) => convert(event, converter),
            Object::Node(event) => convert(event, converter),
            Object::ServiceCidr(event) => convert(event, converter),
        }
    }
}

fn convert<T: Watched>(event: Item<T>, converter: &mut Converter) -> Option<(Event, Vec<Problem>)> {
    match event {
        Item::Changed(object) => Some(object.convert(converter)),
        Item::Deleted(object) => Some((Event::gone(T::object(object.object_name())), Vec::new())),
        Item::Bookmark { .. } | Item::Error(_) => None,
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
        let object = r#""object":{"metadata":{"name":"web-1","namespace":"default","labels":
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
    fn a_line_that_is_not_text_or_not_json_is_an_error() {
        assert!(Line::parse(Resource::Services, b"\xff").is_err());
        assert!(Line::parse(Resource::Services, b"{").is_err());
    }
}
