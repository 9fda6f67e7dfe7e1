//! Parser of one file: documents, lists and objects, converted to events of the model.
//!
//! An unusable object with a known kind and name becomes
//! [`Change::Invalid`](engine::model::Change::Invalid). One without them makes the contents
//! unidentified, because it may be any former object of the file.

use std::fmt::Display;
use std::path::Path;

use engine::model::{Event, ObjectName, ObjectRef, Problem, ProblemKind, Resource};
use serde_json::Value;

use super::ignored::{Ignored, is_other};
use super::problem::FileProblem;
use crate::source::objects::{
    self, Converter, EndpointSlice, Followed, Node, Service, ServiceCidr, full_name,
};
use crate::yaml::{self, Document, SyntaxError};

/// Contents of one file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Objects, in the order of the file.
    pub(super) statements: Vec<Statement>,
    /// Problems of the parts that were left out.
    pub(super) problems: Vec<FileProblem>,
    /// Objects of kinds that routing does not use.
    pub(super) ignored: Ignored,
    /// An object of the file has an unknown kind or name.
    pub(super) unidentified: bool,
}

/// One object of a file.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    /// Line of the object, from 1.
    pub(super) line: usize,
    /// Reference to the object.
    pub(super) object: ObjectRef,
    /// Event of the object.
    pub(super) event: Event,
}

impl Statement {
    /// Returns whether the object can be used and is not another node.
    pub(super) fn is_usable(&self) -> bool {
        !self.event.is_invalid() && !matches!(self.event, Event::Peer(_))
    }
}

/// Parses the text of a file.
///
/// # Errors
/// The text as a whole is not UTF-8, YAML or JSON.
pub(super) fn parse(
    file: &Path,
    text: &[u8],
    converter: &mut Converter,
) -> Result<Contents, Box<FileProblem>> {
    let whole = |line, message| Box::new(FileProblem::of_file(file, Some(line), message));
    let text = std::str::from_utf8(text).map_err(|error| {
        let (valid, _) = text.split_at(error.valid_up_to());
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        whole(line, "is not UTF-8 text".to_owned())
    })?;
    let documents = yaml::parse(text).map_err(|SyntaxError { line, column, message }| {
        whole(line, format!("does not parse at column {column}: {message}"))
    })?;
    let mut contents = Contents::default();
    for document in &documents {
        contents.problems.extend(
            document
                .warnings
                .iter()
                .map(|(line, message)| FileProblem::of_file(file, Some(*line), message.clone())),
        );
        let mut reader = DocumentReader { file, document, converter, contents: &mut contents };
        reader.part(&Part { value: &document.value, path: String::new(), default: None });
    }
    Ok(contents)
}

/// Parser of the objects of one document.
struct DocumentReader<'a> {
    file: &'a Path,
    document: &'a Document,
    converter: &'a mut Converter,
    contents: &'a mut Contents,
}

/// An object or a list of objects inside a document.
struct Part<'a> {
    value: &'a Value,
    /// Path in the document, empty or ending in a dot.
    path: String,
    /// Kind and API version of list items, which may omit their own.
    default: Option<Kind>,
}

/// Kinds that manifests may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    List,
    ListOf(Resource),
    Object(Resource),
}

impl DocumentReader<'_> {
    fn part(&mut self, part: &Part<'_>) {
        if !part.value.is_object() {
            let message = "is not an object with apiVersion and kind";
            return self.unidentified(part, "", message);
        }
        match self.kind(part) {
            Some(Kind::Object(resource)) => self.object(part, resource),
            Some(Kind::ListOf(resource)) => self.items(part, Some(Kind::Object(resource))),
            Some(Kind::List) => self.items(part, None),
            None => {}
        }
    }

    /// Returns the kind of a part if routing uses that kind and version. Counts objects of other
    /// kinds and reports unknown kinds.
    fn kind(&mut self, part: &Part<'_>) -> Option<Kind> {
        let (kind, version) = (text_at(part.value, "kind"), text_at(part.value, "apiVersion"));
        if let (None, None, Some(default)) = (kind, version, part.default) {
            return Some(default);
        }
        let Some(kind) = kind.filter(|kind| !kind.is_empty()) else {
            self.unidentified(part, "kind", "is missing: expected a string such as Service");
            return None;
        };
        let known = known_kind(kind);
        if let Some(version) = version
            && is_other_or_list(kind, version, known.is_some())
        {
            self.ignore(part, kind, version);
            return None;
        }
        let Some((known, versions)) = known else {
            let message = format!("unknown kind \"{kind}\": expected {KINDS}");
            self.unidentified(part, "kind", message);
            return None;
        };
        let found = match version {
            Some(version) if versions.contains(&version) => return Some(known),
            Some(version) => format!("\"{version}\" is not supported"),
            None => "is missing".to_owned(),
        };
        let message = format!("{found}: expected {} for {kind}", versions.join(" or "));
        self.unidentified(part, "apiVersion", message);
        None
    }

    /// Counts an object of another kind, or the items of a list of them.
    fn ignore(&mut self, part: &Part<'_>, kind: &str, version: &str) {
        match (kind.strip_suffix("List"), part.value.get("items")) {
            (Some(_), Some(Value::Array(items))) if items.is_empty() => {}
            (Some(item), Some(Value::Array(items))) => {
                self.contents.ignored.add(item, version, items.len());
            }
            _ => self.contents.ignored.add(kind, version, 1),
        }
    }

    fn items(&mut self, part: &Part<'_>, default: Option<Kind>) {
        match part.value.get("items") {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                for (i, value) in items.iter().enumerate() {
                    let path = format!("{}items[{i}].", part.path);
                    self.part(&Part { value, path, default });
                }
            }
            Some(_) => self.unidentified(part, "items", "is not a list of objects"),
        }
    }

    fn object(&mut self, part: &Part<'_>, resource: Resource) {
        let metadata = part.value.get("metadata");
        let text = |field| metadata.and_then(|metadata| text_at(metadata, field));
        let Some(name) = text("name").filter(|name| !name.is_empty()) else {
            let message = "is missing: expected a name as a string";
            return self.unidentified(part, "metadata.name", message);
        };
        let namespace = text("namespace").filter(|namespace| !namespace.is_empty());
        let namespace = match resource {
            Resource::Services | Resource::EndpointSlices => namespace.unwrap_or("default"),
            Resource::Nodes | Resource::ServiceCidrs => "",
        };
        let name = full_name(namespace, name);
        match resource {
            Resource::Services => self.convert::<Service>(part, namespace, name),
            Resource::EndpointSlices => self.convert::<EndpointSlice>(part, namespace, name),
            Resource::Nodes => self.convert::<Node>(part, namespace, name),
            Resource::ServiceCidrs => self.convert::<ServiceCidr>(part, namespace, name),
        }
    }

    /// Parses the object as `T` and adds its event. Skips other nodes unless they are followed.
    fn convert<T: Followed>(&mut self, part: &Part<'_>, namespace: &str, name: ObjectName) {
        let object = T::object(name);
        let is_foreign = T::RESOURCE == Resource::Nodes
            && !self.converter.is_this_node(object.name.as_str())
            && !self.converter.is_peer(&object);
        let (event, problems) = match objects::read::<T>(part.value) {
            Ok(_) if is_foreign => return,
            Ok(_) if !self.is_served::<T>(part.value) => {
                (self.converter.gone(object.clone()), Vec::new())
            }
            Ok(mut read) => {
                read.set_namespace(namespace);
                read.convert(self.converter)
            }
            Err((field, message)) => {
                let object = object.clone();
                let kind = ProblemKind::Invalid;
                (
                    self.converter.invalid(object.clone()),
                    vec![Problem { kind, object, field, message }],
                )
            }
        };
        for Problem { object, field, message, .. } in problems {
            self.problem(part, (object.to_string(), &field), message);
        }
        let line = self.document.line_of(&part.path);
        self.contents.statements.push(Statement { line, object, event });
    }

    /// Returns whether the labels are those of a served Service. An API server's lists have no others.
    fn is_served<T: Followed>(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        let label = |key: &str| labels.and_then(|labels| text_at(labels, key));
        T::RESOURCE != Resource::Services || self.converter.services().admit_labels(label)
    }

    /// Reports a part whose kind or name is unknown.
    fn unidentified(&mut self, part: &Part<'_>, field: &str, message: impl Display) {
        self.contents.unidentified = true;
        let kind = text_at(part.value, "kind").unwrap_or("object");
        let metadata = part.value.get("metadata");
        let text = |field| metadata.and_then(|metadata| text_at(metadata, field));
        let object = match (text("namespace"), text("name")) {
            (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
            (None, Some(name)) => format!("{kind} {name}"),
            (_, None) => format!("{kind} without a name"),
        };
        self.problem(part, (object, field), message);
    }

    fn problem(&mut self, part: &Part<'_>, (object, field): (String, &str), message: impl Display) {
        let line = Some(self.document.line_of(&format!("{}{field}", part.path)));
        let (file, field, message) = (self.file.to_owned(), field.to_owned(), message.to_string());
        self.contents.problems.push(FileProblem { file, line, object, field, message });
    }
}

const KINDS: &str = "Service, EndpointSlice, Node, ServiceCIDR or List";

fn is_other_or_list(kind: &str, version: &str, is_ours: bool) -> bool {
    let item = kind.strip_suffix("List").filter(|item| !item.is_empty());
    is_other(item.unwrap_or(kind), version, is_ours)
}

/// Returns a kind by its name, with its supported API versions.
fn known_kind(kind: &str) -> Option<(Kind, &'static [&'static str])> {
    if kind == "List" {
        return Some((Kind::List, &["v1"]));
    }
    let item = kind.strip_suffix("List");
    let mut resources = Resource::ALL.into_iter();
    let resource = resources.find(|resource| resource.kind() == item.unwrap_or(kind))?;
    let kind = item.map_or(Kind::Object(resource), |_| Kind::ListOf(resource));
    Some((kind, resource.api_versions()))
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}
