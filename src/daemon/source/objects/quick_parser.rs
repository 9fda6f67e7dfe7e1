//! Quick parser for endpoints of a slice that differ only in a few strings.
//!
//! serde parses one endpoint, and its text is stored as a [`Shape`]. Later endpoints that differ
//! only in strings are parsed by comparison, in a fraction of the time; serde parses any other. The
//! whole text was validated as JSON before.

use std::fmt;
use std::ptr;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use smallvec::SmallVec;

use super::endpoints::{
    Endpoint, EndpointConditions, EndpointFields, Endpoints, FirstAddress, Hints, KeptNames, Names,
};
use super::metadata::Object;
use super::text::{Text, Texts};

/// Parsed endpoints, or their JSON text for the quick parser.
pub(super) enum QuickEndpoints<'a> {
    Read(Endpoints),
    Text(Text<'a>),
}

impl Default for QuickEndpoints<'_> {
    fn default() -> Self {
        Self::Read(Endpoints::default())
    }
}

impl QuickEndpoints<'_> {
    /// Parses the endpoints.
    pub(super) fn read<E: serde::de::Error>(self, names: KeptNames) -> Result<Endpoints, E> {
        let text = match self {
            Self::Read(endpoints) => return Ok(endpoints),
            Self::Text(text) => text,
        };
        let mut endpoints = Endpoints::with_room();
        match read_list(&text, names, &mut endpoints) {
            Some(()) => Ok(endpoints),
            // Only serde produces an error message.
            None => serde_json::from_str(&text).map_err(E::custom),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for QuickEndpoints<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_newtype_struct(RAW_VALUE, QuickVisitor)
    }
}

/// The name by which serde_json recognizes [`RawValue`](serde_json::value::RawValue). For it,
/// serde_json validates a value and passes on its text. Other formats pass on the value itself, as
/// serde_json would for any other name.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

struct QuickVisitor;

impl<'de> Visitor<'de> for QuickVisitor {
    type Value = QuickEndpoints<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        Endpoints::deserialize(input).map(QuickEndpoints::Read)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        map.next_key::<IgnoredAny>()?;
        map.next_value().map(QuickEndpoints::Text)
    }
}

/// Parses `text` as a list of endpoints. Returns `None` if it is not such a list.
fn read_list(text: &str, names: KeptNames, endpoints: &mut Endpoints) -> Option<()> {
    let mut shapes = SmallVec::<[Shape<'_>; 1]>::new();
    let mut rest = text.trim_ascii_start().strip_prefix('[')?.trim_ascii_start();
    while !rest.starts_with(']') {
        let texts = &mut endpoints.texts;
        let after = match shapes.iter().find_map(|shape| shape.read(rest, texts)) {
            Some((endpoint, of_endpoint, after)) => {
                endpoints.list.push(endpoint);
                if names == KeptNames::All {
                    endpoints.names.push(of_endpoint);
                }
                after
            }
            None => {
                let (fields, after) = read_with_serde(rest, names, &mut shapes)?;
                endpoints.push(fields, names);
                after
            }
        };
        rest = after.trim_ascii_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_ascii_start();
    }
    Some(())
}

/// Parses the endpoint at the start of `text` and stores its shape. Also returns the remainder of the
/// text.
fn read_with_serde<'a>(
    text: &'a str,
    names: KeptNames,
    shapes: &mut SmallVec<[Shape<'a>; 1]>,
) -> Option<(EndpointFields<'a>, &'a str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let Object(fields) = values.next()?.ok()?;
    let (endpoint, rest) = text.split_at_checked(values.byte_offset())?;
    if shapes.len() < MAX_SHAPES {
        shapes.extend(Shape::of(endpoint, &fields, names));
    }
    Some((fields, rest))
}

/// Most shapes of a slice. Few are needed: endpoints differ in conditions and in absent fields.
const MAX_SHAPES: usize = 8;

/// Text of an endpoint without its strings, and the roles of the strings.
#[derive(Debug)]
struct Shape<'a> {
    /// Roles of the strings, each with the text since the string before.
    strings: SmallVec<[(&'a str, Role); 10]>,
    /// The text after the last string.
    end: &'a str,
    conditions: EndpointConditions,
}

/// Role of a string.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Address,
    NodeName,
    ForZone,
    ForNode,
    Zone,
    Pod,
    /// The string is not retained.
    Unused,
}

impl<'a> Shape<'a> {
    /// Returns the shape of the endpoint that was parsed from `text`. Returns `None` unless all its
    /// fields are strings without escapes.
    fn of(text: &'a str, fields: &EndpointFields<'a>, names: KeptNames) -> Option<Self> {
        if text.as_bytes().contains(&b'\\') {
            return None;
        }
        let mut strings = SmallVec::<[(&str, Role); 10]>::new();
        let mut done = 0;
        let mut quotes = Quotes { text: text.as_bytes(), at: 0 };
        while let (Some(start), Some(end)) = (quotes.next(), quotes.next()) {
            let is_key = text.get(end + 1..)?.trim_ascii_start().starts_with(':');
            if !is_key {
                let role = Role::of(text.get(start + 1..end)?, fields, names);
                strings.push((text.get(done..=start)?, role));
                done = end;
            }
        }
        // A hint without a name counts too, but is no string.
        let of = |wanted| strings.iter().filter(|(_, role)| *role == wanted).count();
        let hints = (fields.hints.for_zones.len(), fields.hints.for_nodes.len());
        let is_whole = hints == (of(Role::ForZone), of(Role::ForNode));
        let shape = Self { strings, end: text.get(done..)?, conditions: fields.conditions };
        is_whole.then_some(shape)
    }

    /// Parses the endpoint at the start of `text`, if it has this shape. Also returns the remainder of
    /// the text.
    fn read(&self, text: &'a str, texts: &mut Texts) -> Option<(Endpoint, Names, &'a str)> {
        let (mut endpoint, mut names) = (Endpoint::new(self.conditions), Names::default());
        let mut rest = text;
        for (before, role) in &self.strings {
            rest = rest.strip_prefix(before)?;
            // At a backslash the string has not ended, so the next comparison fails.
            let (string, after) = rest.split_at_checked(end_of_plain(rest.as_bytes()))?;
            rest = after;
            match role {
                Role::Address => endpoint.address = FirstAddress::new(string),
                Role::NodeName => endpoint.node_name = texts.add(string),
                Role::ForZone => texts.extend_list(&mut endpoint.for_zones, string)?,
                Role::ForNode => texts.extend_list(&mut endpoint.for_nodes, string)?,
                Role::Zone => names.zone = texts.add(string),
                Role::Pod => names.pod = texts.add(string),
                Role::Unused => {}
            }
        }
        Some((endpoint, names, rest.strip_prefix(self.end)?))
    }
}

impl Role {
    /// Returns the role of a string by the field that borrows it.
    fn of(string: &str, fields: &EndpointFields<'_>, names: KeptNames) -> Self {
        let is = |text: &str| ptr::eq(string, text);
        let keeps = |text: Option<&str>| names == KeptNames::All && text.is_some_and(is);
        let names_it = |hints: &Hints<'_>| hints.iter().any(|hint| is(&hint.0.name));
        if fields.addresses.0.as_deref().is_some_and(is) {
            Self::Address
        } else if fields.node_name.as_deref().is_some_and(is) {
            Self::NodeName
        } else if names_it(&fields.hints.for_zones) {
            Self::ForZone
        } else if names_it(&fields.hints.for_nodes) {
            Self::ForNode
        } else if keeps(fields.zone.as_deref()) {
            Self::Zone
        } else if keeps(fields.target_ref.name.as_deref()) {
            Self::Pod
        } else {
            Self::Unused
        }
    }
}

/// Positions of the quotes in a text without backslashes. Several times as fast as
/// `str::match_indices`, which starts a new search for each quote.
struct Quotes<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Quotes<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let rest = self.text.get(self.at..)?;
        let found = self.at + end_of_plain(rest);
        self.at = found + 1;
        (found < self.text.len()).then_some(found)
    }
}

/// Returns the offset of the first quote or backslash, or the length.
fn end_of_plain(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero_bytes(word ^ QUOTES) | zero_bytes(word ^ BACKSLASHES);
        if found != 0 {
            return i * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    words.len() * 8 + end.unwrap_or(rest.len())
}

/// Returns a word with the highest bit of the lowest zero byte set, and no bit below it.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const QUOTES: u64 = ONES * b'"' as u64;
const BACKSLASHES: u64 = ONES * b'\\' as u64;

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use engine::model::{self, Change, Problem};
    use engine::routing::ServedServices;
    use proptest::prelude::*;

    use super::*;
    use crate::source::Wanted;
    use crate::source::objects::{Converter, EndpointSlice};

    type Said = (Change<model::EndpointSlice>, Vec<Problem>);

    /// Parses a slice with this list of endpoints in both ways; `None` if it cannot be parsed. All
    /// names of endpoints are kept, or those of nodes alone.
    fn both_ways(endpoints: &str) -> [Option<Said>; 2] {
        let [quick, slow] = with_label("other", endpoints);
        assert_eq!(quick, slow, "{endpoints}");
        with_label("deltaproxy.io/weighted", endpoints)
    }

    fn with_label(label: &str, endpoints: &str) -> [Option<Said>; 2] {
        let text = format!(
            r#"{{"metadata":{{"name":"s","labels":{{
                "kubernetes.io/service-name":"w","{label}":""}}}},
                "addressType":"IPv4","endpoints":{endpoints}}}"#
        );
        let services = ServedServices::default();
        let wanted = Wanted { node: "node-1", services: &services, other_nodes: true };
        let say = |slice| Converter::of(wanted).endpoint_slice(slice);
        let mut parser = serde_json::Deserializer::from_str(&text);
        let slow = EndpointSlice::deserialize_with_path(&mut parser);
        let slow = slow.and_then(|slice| parser.end().map(|()| slice));
        [serde_json::from_str(&text).ok().map(say), slow.ok().map(say)]
    }

    fn endpoint(i: u32) -> String {
        let reference = format!(r#"{{"kind":"Pod","name":"w-{i}","uid":"f3a1e0a5-{i}"}}"#);
        format!(
            r#"{{"addresses":["10.0.0.{i}"],"conditions":{{"ready":true,"terminating":false}},"targetRef":{reference},"nodeName":"node-{i}","hints":{{"forZones":[{{"name":"z{}"}}],"forNodes":[{{"name":"node-{i}"}}]}}}}"#,
            i % 2
        )
    }

    fn list(endpoints: &[String]) -> String {
        format!("[{}]", endpoints.join(","))
    }

    #[test]
    fn endpoints_of_one_shape_are_parsed_by_comparison() {
        let texts = [1, 2, 30].map(endpoint);
        let mut shapes = SmallVec::new();
        read_with_serde(&texts[0], KeptNames::All, &mut shapes).unwrap();
        let mut known = Texts::default();
        for (text, node) in [(&texts[1], "node-2"), (&texts[2], "node-30")] {
            let (endpoint, names, rest) = shapes[0].read(text, &mut known).unwrap();
            assert_eq!(known.at(names.pod), node.replace("node", "w"));
            assert_eq!((known.at(endpoint.node_name), rest), (node, ""));
            assert_eq!(known.list_at(endpoint.for_nodes).collect::<Vec<_>>(), [node]);
            assert_eq!(known.list_at(endpoint.for_zones).collect::<Vec<_>>(), ["z0"]);
        }
        let [quick, slow] = both_ways(&list(&texts));
        assert_eq!(quick, slow);
        let Some((Change::Is(slice), _)) = quick else { panic!("{quick:?}") };
        assert_eq!(slice.endpoints.len(), 3);
        assert_eq!(slice.endpoints.iter().filter(|it| it.conditions.local).count(), 1);
    }

    #[test]
    fn unusual_endpoints_parse_as_with_serde() {
        let usual = endpoint(1);
        for odd in [
            String::new(),
            endpoint(2).replace("true", "false"),
            endpoint(2).replace("true", "null"),
            endpoint(2).replace("node-2", r"node\u002d1"),
            endpoint(2).replace("node-2", ""),
            endpoint(2).replace("w-2", r#"\"},{\"nodeName\":\"node-1"#),
            endpoint(2).replace("w-2", "é\u{2028}"),
            endpoint(2).replace("w-2", "\u{1}"),
            endpoint(2).replace(r#""node-2""#, "null"),
            endpoint(2).replace(r#""node-2""#, "7"),
            endpoint(2).replace("10.0.0.2", "10.0.0.300"),
            endpoint(2).replace("10.0.0.2", "::1"),
            endpoint(2).replace(r#""10.0.0.2""#, ""),
            endpoint(2).replace(r#""10.0.0.2""#, "null"),
            endpoint(2).replace(r#""10.0.0.2""#, r#""10.0.0.2","10.0.0.3""#),
            endpoint(2).replace(r#""uid""#, r#""nodeName":"a","uid""#),
            endpoint(2).replace(r#","hints""#, r#","nodeName":"a","hints""#),
            endpoint(2).replace(r#""z0""#, "\"z\\n0\""),
            endpoint(2).replace(r#"[{"name":"z0"}]"#, r#"[{"name":"z0"},{"name":"z1"}]"#),
            endpoint(2).replace(r#"[{"name":"z0"}]"#, "[]"),
            endpoint(2).replace(':', " : "),
            "{}".to_owned(),
            "null".to_owned(),
            "[]".to_owned(),
        ] {
            for order in [[&usual, &odd, &usual], [&odd, &usual, &odd]] {
                let joined =
                    order.map(String::as_str).join(if odd.len() % 2 == 0 { "," } else { " ,\n" });
                let [quick, slow] = both_ways(&format!("[{joined}]"));
                assert_eq!(quick, slow, "{joined}");
            }
        }
        for whole in ["null", "[]", " [ ] ", "{}", "7", "\"x\"", "[", ""] {
            let [quick, slow] = both_ways(whole);
            assert_eq!(quick, slow, "{whole}");
        }
    }

    #[test]
    fn lists_of_many_shapes_are_parsed() {
        let mut text = String::from("[");
        for i in 0..100 {
            let fields = (0..i % 12).map(|k| format!(r#""x{k}":"{i}","#)).collect::<String>();
            let comma = if i > 0 { "," } else { "" };
            write!(text, r#"{comma}{{{fields}"addresses":["10.0.1.{i}"]}}"#).unwrap();
        }
        let [quick, slow] = both_ways(&(text + "]"));
        assert_eq!(quick, slow);
        assert!(matches!(quick, Some((Change::Is(slice), _)) if slice.endpoints.len() == 100));
    }

    proptest! {
        #[test]
        fn any_changed_byte_gives_the_result_of_serde(at in 0..900_usize, byte in 1..127_u8) {
            let mut bytes = list(&[1, 2, 3].map(endpoint)).into_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            let [quick, slow] = both_ways(std::str::from_utf8(&bytes).unwrap());
            prop_assert_eq!(quick, slow);
        }
    }
}
