//! One line of a watch, read as the watches read it; also as a step of its own, to be measured.

use kube::core::WatchEvent;
use serde::de::DeserializeOwned;

use super::resource::Followed;
use crate::model::{Event, Problem, Resource};
use crate::source::objects::{
    Converter, EndpointSlice, Node, Service, ServiceCidr, SliceApart, read_apart,
};

/// A line that was parsed and says something about an object.
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
    /// Reads one line of the watch of `resource`, without its end. `room` is for that only, and
    /// best kept for the next line.
    ///
    /// # Errors
    /// What is wrong with the JSON, or with the shape of the object.
    pub fn parse(
        resource: Resource,
        line: &[u8],
        room: &mut String,
    ) -> Result<Self, serde_json::Error> {
        // Checks the text once, as the client's decoder of lines does, and not string by string.
        let text = std::str::from_utf8(line).map_err(serde::de::Error::custom)?;
        Ok(Self(match resource {
            Resource::Services => Object::Service(Followed::read_line(text, room)?),
            Resource::EndpointSlices => Object::EndpointSlice(Followed::read_line(text, room)?),
            Resource::Nodes => Object::Node(Followed::read_line(text, room)?),
            Resource::ServiceCidrs => Object::ServiceCidr(Followed::read_line(text, room)?),
        }))
    }

    /// What the object says; `None` for a bookmark or an error, which are about none.
    pub fn convert(self, converter: &mut Converter) -> Option<(Event, Vec<Problem>)> {
        match self.0 {
            Object::Service(event) => convert(event, converter),
            Object::EndpointSlice(event) => convert(event, converter),
            Object::Node(event) => convert(event, converter),
            Object::ServiceCidr(event) => convert(event, converter),
        }
    }
}

fn convert<T: Followed>(
    event: WatchEvent<T>,
    converter: &mut Converter,
) -> Option<(Event, Vec<Problem>)> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(object.convert(converter)),
        WatchEvent::Deleted(object) => Some((T::gone(object.object_name()), Vec::new())),
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
    }
}

/// Reads a line in one go.
pub(super) fn read<T: DeserializeOwned>(
    line: &str,
    _room: &mut String,
) -> serde_json::Result<WatchEvent<T>> {
    serde_json::from_str(line)
}

/// Reads a line of EndpointSlices: their endpoints first, and the rest without them.
pub(super) fn read_slice(
    line: &str,
    room: &mut String,
) -> serde_json::Result<WatchEvent<EndpointSlice>> {
    match read_slice_apart(line, room) {
        Some(event) => Ok(event),
        // There are none, or something is wrong, for which only serde has words.
        None => read(line, room),
    }
}

fn read_slice_apart(line: &str, room: &mut String) -> Option<WatchEvent<EndpointSlice>> {
    let endpoints = read_apart(line, room)?;
    let event = serde_json::from_str::<WatchEvent<SliceApart<'_>>>(room).ok()?;
    let mut is_whole = true;
    let event = with_object(event, |slice| {
        let slice = slice.with(endpoints);
        is_whole = slice.is_some();
        slice.unwrap_or_default()
    });
    is_whole.then_some(event)
}

/// The same event, about another object.
pub(super) fn with_object<A, B>(event: WatchEvent<A>, other: impl FnOnce(A) -> B) -> WatchEvent<B> {
    match event {
        WatchEvent::Added(object) => WatchEvent::Added(other(object)),
        WatchEvent::Modified(object) => WatchEvent::Modified(other(object)),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(other(object)),
        WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
        WatchEvent::Error(status) => WatchEvent::Error(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Change;

    fn event(line: &str) -> Option<Event> {
        let line =
            Line::parse(Resource::EndpointSlices, line.as_bytes(), &mut String::new()).unwrap();
        line.convert(&mut Converter::default()).map(|(event, _)| event)
    }

    #[test]
    fn objects_come_and_go_and_bookmarks_say_nothing() {
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
    fn a_line_that_is_no_text_or_no_json_is_an_error() {
        assert!(Line::parse(Resource::Services, b"\xff", &mut String::new()).is_err());
        assert!(Line::parse(Resource::Services, b"{", &mut String::new()).is_err());
    }

    fn slice(fields: &str) -> String {
        let metadata = r#""metadata":{"name":"web-1","resourceVersion":"7","labels":
            {"kubernetes.io/service-name":"web"}}"#;
        format!(r#"{{"type":"MODIFIED","object":{{{metadata},"addressType":"IPv4",{fields}}}}}"#)
    }

    #[test]
    fn endpoints_are_read_apart_where_they_are_those_of_the_slice() {
        let endpoints = r#""endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.2"]}]"#;
        for (fields, is_apart) in [
            (format!(r#"{endpoints},"ports":[{{"port":80}}]"#), true),
            (endpoints.replace(r#"":["#, r#"" : ["#), false),
            (format!(r#"{endpoints},"odd":{{{endpoints}}}"#), true),
            (format!(r#""odd":{{{endpoints}}},{endpoints}"#), false),
            (format!(r#""odd":{{{endpoints}}},"endpoints":null"#), false),
            (format!("{endpoints},{endpoints}"), false),
            (endpoints.replace("},", "}"), false),
            (endpoints.replace("10.0.0.2\"", "10.0.0.2"), false),
            (r#""endpoints":["#.to_owned(), false),
            (r#""endpoints":{}"#.to_owned(), false),
        ] {
            let (line, mut room) = (slice(&fields), String::new());
            let say = |event| convert(event, &mut Converter::default());
            assert_eq!(read_slice_apart(&line, &mut room).is_some(), is_apart, "{line}");
            let both = [read_slice(&line, &mut room), read(&line, &mut room)];
            let [apart, whole] = both.map(|read| read.map(say).map_err(|error| error.to_string()));
            assert_eq!(apart, whole, "{line}");
        }
    }

    #[test]
    fn a_slice_keeps_its_version() {
        let event = read_slice(&slice(r#""endpoints":[]"#), &mut String::new()).unwrap();
        let WatchEvent::Modified(slice) = event else { panic!("it was modified") };
        assert_eq!(slice.object_version(), Some("7"));
    }
}
