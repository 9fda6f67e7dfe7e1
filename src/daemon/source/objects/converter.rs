//! Conversion of API objects to the model, with a list of problems.

use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use ahash::HashSet;
use engine::model::{
    Change, Event, Interner, NodeName, ObjectName, ObjectRef, Problem, ProblemKind, Protocol,
    Resource, Zones,
};
use engine::routing::ServedServices;
use ipnet::IpNet;

use super::address::{parse_cidr, parse_usable_ip};
use super::metadata::{ObjectMeta, object_name};
use crate::source::Wanted;

/// Converter of API objects to the model, for one node.
///
/// An impossible value in an essential field makes the object [`Change::Invalid`]; one in a list
/// entry leaves out that entry. Both add a [`Problem`].
#[derive(Debug, Default)]
pub struct Converter {
    node_name: String,
    services: ServedServices,
    /// Other nodes are followed.
    follows_nodes: bool,
    texts: Interner<str>,
    node_names: Interner<Arc<str>>,
    zone_lists: Vec<Arc<Zones>>,
}

impl Converter {
    /// Returns a converter for the node of that name, which serves all Services and needs no other
    /// node. With an empty name no endpoint is local.
    pub fn new(node_name: &str) -> Self {
        Self { node_name: node_name.to_owned(), ..Self::default() }
    }

    /// Returns a converter that gives one node what it needs.
    pub fn of(wanted: Wanted<'_>) -> Self {
        Self {
            services: wanted.services.clone(),
            follows_nodes: wanted.other_nodes,
            ..Self::new(wanted.node)
        }
    }

    /// Returns whether other nodes are followed: then slices keep the nodes of their endpoints.
    pub(super) fn follows_nodes(&self) -> bool {
        self.follows_nodes
    }

    /// Returns whether an object is the Node of another node, and is followed.
    pub(in crate::source) fn is_peer(&self, object: &ObjectRef) -> bool {
        self.follows_nodes
            && object.resource == Resource::Nodes
            && !self.is_this_node(object.name.as_str())
    }

    /// Returns the event for an object that no longer exists.
    pub(in crate::source) fn gone(&self, object: ObjectRef) -> Event {
        if self.is_peer(&object) {
            Event::Peer(Change::Gone(object.name))
        } else {
            Event::gone(object)
        }
    }

    /// Returns the event for an object that cannot be used.
    pub(in crate::source) fn invalid(&self, object: ObjectRef) -> Event {
        if self.is_peer(&object) {
            Event::Peer(Change::Invalid(object.name))
        } else {
            Event::invalid(object)
        }
    }

    /// Returns the Services that are served.
    pub(in crate::source) fn services(&self) -> &ServedServices {
        &self.services
    }

    /// Returns whether `name` is exactly the name of this node. An empty name never is.
    pub fn is_this_node(&self, name: &str) -> bool {
        !name.is_empty() && name == self.node_name
    }

    /// Returns the shared copy of a port name or zone.
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        self.texts.share(text)
    }

    /// Returns the shared copy of a node's name.
    pub(super) fn node_name(&mut self, name: &str) -> NodeName {
        let name = self.texts.share(name);
        self.node_names.share(name)
    }

    /// Returns the shared copy of a zone list. Clusters have few distinct lists, so the search is
    /// linear.
    pub(super) fn zones<'a>(&mut self, names: impl Iterator<Item = &'a str> + Clone) -> Arc<Zones> {
        let equal = |known: &&Arc<Zones>| known.iter().map(|zone| &**zone).eq(names.clone());
        if let Some(known) = self.zone_lists.iter().find(equal) {
            return Arc::clone(known);
        }
        if self.zone_lists.len() >= MAX_ZONE_LISTS {
            self.zone_lists.clear();
        }
        let zones = Arc::new(names.map(|zone| self.texts.share(zone)).collect::<Zones>());
        self.zone_lists.push(Arc::clone(&zones));
        zones
    }
}

/// Most shared zone lists, more than real clusters have; beyond it sharing restarts.
const MAX_ZONE_LISTS: usize = 64;

/// Keeps the first of equal items. A list may have as many as an object has room for.
pub(super) fn keep_distinct<T: Copy + Eq + Hash>(list: &mut Vec<T>) {
    if list.len() > 1 {
        let mut seen = HashSet::default();
        list.retain(|item| seen.insert(*item));
    }
}

/// Longest name of an object (RFC 1123 subdomain), in bytes.
pub(in crate::source) const MAX_NAME: usize = 253;
/// Longest name of a namespace or port (RFC 1123 label), in bytes.
pub(super) const MAX_LABEL: usize = 63;

/// Problems of one object.
#[derive(Debug)]
pub(super) struct Findings {
    object: ObjectRef,
    problems: Vec<Problem>,
    refused: bool,
}

impl Findings {
    pub(super) fn new(resource: Resource, metadata: &ObjectMeta) -> Self {
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let parts = (namespace.unwrap_or_default(), name.unwrap_or_default());
        Self::named(ObjectRef { resource, name: object_name(metadata) }, parts)
    }

    /// Returns the findings for an object, whose namespace and name are also given separately.
    pub(super) fn named(object: ObjectRef, (namespace, name): (&str, &str)) -> Self {
        let mut findings = Self { object, problems: Vec::new(), refused: false };
        match name {
            "" => findings.refuse("metadata.name", "is missing"),
            name => findings.check_name("metadata.name", name, MAX_NAME),
        }
        findings.check_name("metadata.namespace", namespace, MAX_LABEL);
        findings
    }

    /// Refuses a name that no API server accepts, because names become keys and comments. Accepts
    /// empty names.
    pub(super) fn check_name(&mut self, field: impl Display, name: &str, longest: usize) {
        if name.len() > longest || !name.bytes().all(is_usual_in_names) {
            let shown: String = name.chars().take(MAX_LABEL).collect();
            let expected = format!("at most {longest} letters, digits, dots and dashes");
            self.refuse(field, format!("{shown:?} is not a name: expected {expected}"));
        }
    }

    /// Returns the name of the object.
    pub(super) fn name(&self) -> ObjectName {
        self.object.name.clone()
    }

    /// Leaves out the whole object because of this field.
    pub(super) fn refuse(&mut self, field: impl Display, message: impl Into<String>) {
        self.refused = true;
        self.leave_out(field, message);
    }

    /// Leaves out this entry only.
    pub(super) fn leave_out(&mut self, field: impl Display, message: impl Into<String>) {
        let (object, field) = (self.object.clone(), field.to_string());
        self.problems.push(Problem {
            kind: ProblemKind::Invalid,
            object,
            field,
            message: message.into(),
        });
    }

    /// Parses an address, or leaves out the entry.
    pub(super) fn ip(&mut self, field: impl Display, text: &str) -> Option<IpAddr> {
        parse_usable_ip(text).map_err(|message| self.leave_out(field, message)).ok()
    }

    /// Parses a range, or leaves out the entry.
    pub(super) fn range(
        &mut self,
        field: impl Display,
        text: &str,
        example: &str,
    ) -> Option<IpNet> {
        let range = parse_cidr(text);
        if range.is_none() {
            self.leave_out(field, format!("\"{text}\" is not a CIDR such as {example}"));
        }
        range
    }

    /// Parses a required port, 1 to 65535, or refuses the object.
    pub(super) fn port(&mut self, field: impl Display, number: i64) -> Option<NonZeroU16> {
        let port = u16::try_from(number).ok().and_then(NonZeroU16::new);
        if port.is_none() {
            self.refuse(field, format!("{number} is not a port: expected 1 to 65535"));
        }
        port
    }

    /// Parses a port for which 0 means none, or refuses the object.
    pub(super) fn optional_port(&mut self, field: impl Display, number: i64) -> Option<NonZeroU16> {
        if number == 0 { None } else { self.port(field, number) }
    }

    /// Parses a protocol, TCP if absent, or refuses the object.
    pub(super) fn protocol(&mut self, field: impl Display, name: Option<&str>) -> Option<Protocol> {
        match name {
            None | Some("" | "TCP") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some("SCTP") => Some(Protocol::Sctp),
            Some(other) => {
                self.refuse(field, format!("\"{other}\" is not TCP, UDP or SCTP"));
                None
            }
        }
    }

    /// Returns the change and its problems. `None` means that this node does not route the object.
    pub(super) fn conclude<T>(mut self, found: Option<T>) -> (Change<T>, Vec<Problem>) {
        let change = match (self.refused, found) {
            (true, _) => Change::Invalid(self.object.name),
            (false, Some(value)) => Change::Is(value),
            (false, None) => Change::Gone(self.object.name),
        };
        Problem::keep_few(&mut self.problems);
        (change, self.problems)
    }
}

/// Returns whether names of Kubernetes' objects may have this byte.
fn is_usual_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}
