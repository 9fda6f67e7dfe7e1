//! One line of a watch, parsed as the watches parse it.
//!
//! The function `watcher` does this internally; here it is a separate step for measurements.

use engine::model::{Event, Problem, Resource};
use kube::core::WatchEvent;

use super::resources::Watched;
use crate::source::objects::{Converter, EndpointSlice, Node, Service, ServiceCidr};

/// A parsed line with an object.
#[derive(Debug)]
pub struct Line(Object);

#[derive(Debug)]
enum Object {
    Service(WatchEvent<Service>),
    EndpointSlice(WatchEvent<EndpointSlice>),
    Node(WatchEvent<Node>),
    ServiceCidr(WatchEvent<ServiceCidr>),
}

impl Line {
    /// Parses one line of the watch of `resource`, without its line end.
    ///
    /// # Errors
    /// The line is not JSON, or the object has the wrong shape.
    pub fn parse(resource: Resource, line: &[u8]) -> Result<Self, serde_json::Error> {
        // Checks the text once, like the client's line decoder, instead of string by string.
        let text = std::str::from_utf8(line).map_err(serde::de::Error::custom)?;
        Ok(Self(match resource {
            Resource::Services => Object::Service(serde_json::from_str(text)?),
            Resource::EndpointSlices => Object::EndpointSlice(serde_json::from_str(text)?),
            Resource::Nodes => Object::Node(serde_json::from_str(text)?),
            Resource::ServiceCidrs => Object::ServiceCidr(serde_json::from_str(text)?),
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

fn convert<T: Watched>(
    event: WatchEvent<T>,
    converter: &mut Converter,
) -> Option<(Event, Vec<Problem>)> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(object.convert(converter)),
        WatchEvent::Deleted(object) => {
            Some((Event::gone(T::object(object.object_name())), Vec::new()))
        }
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
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
