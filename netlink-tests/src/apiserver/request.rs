//! Requests as they arrived.

#![allow(clippy::disallowed_methods)] // Tests compare the times of requests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::fault::On;
use super::kind::Kind;
use super::target::Target;

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it had arrived.
    pub at: Instant,
    /// The HTTP method.
    pub method: String,
    /// The requested list, `None` for a single object and for a path that the server does
    /// not have.
    pub kind: Option<Kind>,
    /// The namespace of the list, `None` for all.
    pub namespace: Option<String>,
    /// Whether it lists or watches.
    pub on: On,
    /// The path, without the query.
    pub path: String,
    /// The body; null without one.
    pub posted: Value,
    /// The query's parameters, decoded.
    pub query: BTreeMap<String, String>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// The header `Accept`.
    pub accept: String,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The header `User-Agent`.
    pub user_agent: String,
}

impl Request {
    /// A parameter of the query, empty if absent.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Whether the answer is one list.
    pub(super) fn lists(&self) -> bool {
        matches!(self.on, On::List | On::Check)
    }

    /// The name that the field selector asks for.
    pub(super) fn selected_name(&self) -> Option<&str> {
        self.parameter("fieldSelector").strip_prefix("metadata.name=")
    }

    /// Whether the selectors compare a name or the value of a label.
    pub(super) fn compares(&self) -> bool {
        self.selected_name().is_some() || self.parameter("labelSelector").contains('=')
    }

    /// Whether an object is in the namespace of the list and has the name and the labels of the
    /// selectors. Other fields are passed over.
    pub(super) fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let mut terms = self.parameter("labelSelector").split(',').filter(|term| !term.is_empty());
        self.is_about(object)
            && terms.all(|term| match (term.split_once("!="), term.split_once('=')) {
                (Some((label, value)), _) => labels[label] != value,
                (None, Some((label, value))) => labels[label] == value,
                (None, None) => match term.strip_prefix('!') {
                    Some(label) => labels[label].is_null(),
                    None => !labels[term].is_null(),
                },
            })
    }

    /// Whether an object is in the namespace of the list and has the name of the selector.
    fn is_about(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let is_here = self.namespace.as_ref().is_none_or(|here| metadata["namespace"] == **here);
        is_here && self.selected_name().is_none_or(|name| metadata["name"] == *name)
    }

    /// An event as this watch has it. An object whose labels are not selected is gone; a real server
    /// says so of those alone that were selected.
    pub(super) fn seen<'a>(&self, event: &'a Value) -> Option<Cow<'a, Value>> {
        let object = &event["object"];
        if self.selects(object) {
            return Some(Cow::Borrowed(event));
        }
        let gone = || Cow::Owned(json!({"type": "DELETED", "object": object}));
        self.is_about(object).then(gone)
    }

    /// Reads a request; `None` if the client hung up.
    pub(super) async fn read(socket: &mut BufReader<impl AsyncRead + Unpin>) -> Option<Self> {
        let first = read_line(socket).await?;
        let (mut authorization, mut length) = (None, 0);
        let (mut accept, mut content_type) = (String::new(), String::new());
        let mut user_agent = String::new();
        loop {
            let line = read_line(socket).await?;
            let Some((name, value)) = line.split_once(": ") else { break };
            if name.eq_ignore_ascii_case("authorization") {
                authorization = Some(value.to_owned());
            } else if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().ok()?;
            } else if name.eq_ignore_ascii_case("accept") {
                value.clone_into(&mut accept);
            } else if name.eq_ignore_ascii_case("content-type") {
                value.clone_into(&mut content_type);
            } else if name.eq_ignore_ascii_case("user-agent") {
                value.clone_into(&mut user_agent);
            }
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        let posted = serde_json::from_slice(&body).unwrap_or_default();
        let mut words = first.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = parse_query(query);
        let on = match (query.get("watch"), query.get("sendInitialEvents").map(String::as_str)) {
            (None, _) if query.get("limit").is_some_and(|limit| limit == "1") => On::Check,
            (None, _) => On::List,
            (Some(_), Some("true")) => On::StreamingList,
            (Some(_), _) => On::Watch,
        };
        let list = Target::of(path).filter(|target| target.name.is_none());
        Some(Self {
            at: Instant::now(),
            method,
            kind: list.as_ref().map(|list| list.kind),
            namespace: list.and_then(|list| list.namespace),
            on,
            path: path.to_owned(),
            posted,
            query,
            authorization,
            accept,
            content_type,
            user_agent,
        })
    }
}

async fn read_line(socket: &mut BufReader<impl AsyncRead + Unpin>) -> Option<String> {
    let mut line = String::new();
    let length = socket.read_line(&mut line).await.ok()?;
    (length > 0).then(|| line.trim_end().to_owned())
}

fn parse_query(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

/// Undoes `%21` and `+`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = match (first, after) {
            (b'%', [high, low, ..]) => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|hex| u8::from_str_radix(hex, 16).ok()),
            _ => None,
        };
        bytes.push(code.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_decoded() {
        let query = parse_query("&watch=true&labelSelector=%21a%2Cb%3D1&fieldSelector=x%21%3DNone");
        assert_eq!(query["labelSelector"], "!a,b=1");
        assert_eq!(query["fieldSelector"], "x!=None");
    }
}
