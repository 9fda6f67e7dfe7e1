//! Requests as they arrived.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::{Kind, On};

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it is about, `None` for a path that the server does not have.
    pub kind: Option<Kind>,
    /// Whether it lists or watches.
    pub on: On,
    /// The path, without the query.
    pub path: String,
    /// What was sent to be created; null if nothing was.
    pub posted: Value,
    /// The query's parameters, decoded.
    pub query: BTreeMap<String, String>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
}

impl Request {
    /// A parameter of the query, empty if absent.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Reads a request; `None` if the client hung up.
    pub(super) async fn read(socket: &mut BufReader<impl AsyncRead + Unpin>) -> Option<Self> {
        let first = read_line(socket).await?;
        let (mut authorization, mut length) = (None, 0);
        loop {
            let line = read_line(socket).await?;
            let Some((name, value)) = line.split_once(": ") else { break };
            if name.eq_ignore_ascii_case("authorization") {
                authorization = Some(value.to_owned());
            } else if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        let posted = serde_json::from_slice(&body).unwrap_or_default();
        let target = first.split(' ').nth(1)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = parse_query(query);
        let on = match (query.get("watch"), query.get("sendInitialEvents").map(String::as_str)) {
            (None, _) => On::List,
            (Some(_), Some("true")) => On::StreamingList,
            (Some(_), _) => On::Watch,
        };
        let (kind, path) = (Kind::of_path(path), path.to_owned());
        Some(Self { kind, on, path, posted, query, authorization })
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
