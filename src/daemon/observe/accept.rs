//! What a client accepts: the lists of `Accept` and `Accept-Encoding` (RFC 9110, 12.4 and 12.5).

use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, HeaderName};

/// An entry of such a list: a media range or a content coding.
#[derive(Debug)]
pub(super) struct Accepted<'a> {
    /// In small letters.
    pub(super) value: String,
    parameters: Vec<(String, &'a str)>,
    weight: f32,
}

impl Accepted<'_> {
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(it, _)| it == name).map(|(_, value)| *value)
    }

    /// Parses an entry; `None` if its weight is not from 0 to 1.
    fn parse(entry: &str) -> Option<Accepted<'_>> {
        let mut parts = entry.split(';').map(str::trim);
        let value = parts.next()?.to_ascii_lowercase();
        let (mut parameters, mut weight) = (Vec::new(), 1.0);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim().to_ascii_lowercase() {
                name if name == "q" => weight = value.trim().parse().ok()?,
                name => parameters.push((name, value.trim().trim_matches('"'))),
            }
        }
        (0.0..=1.0).contains(&weight).then_some(Accepted { value, parameters, weight })
    }
}

/// Returns the media ranges that `headers` accept under this name, the preferred ones first. Of
/// equal ones, those without a wildcard come first, as in Go's goautoneg.
pub(super) fn accepted(headers: &HeaderMap, name: HeaderName) -> Vec<Accepted<'_>> {
    let mut entries = listed(headers, name);
    entries.retain(|entry| entry.weight > 0.0);
    entries.sort_by(|a, b| {
        let wildcards = |it: &Accepted<'_>| it.value.matches('*').count();
        b.weight.total_cmp(&a.weight).then(wildcards(a).cmp(&wildcards(b)))
    });
    entries
}

/// Returns all entries, in their order.
fn listed(headers: &HeaderMap, name: HeaderName) -> Vec<Accepted<'_>> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).filter_map(Accepted::parse).collect()
}

/// How the body of an answer is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
}

impl Coding {
    /// Returns the coding with the higher weight; of equal ones the identity, as in promhttp. `None`
    /// if both are refused.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let entries = listed(headers, ACCEPT_ENCODING);
        let weight = |name| {
            let of = |name| entries.iter().find(|it| it.value == name).map(|it| it.weight);
            of(name).or_else(|| of("*"))
        };
        let (gzip, identity) = (weight("gzip").unwrap_or(0.0), weight("identity"));
        match identity {
            _ if gzip > identity.unwrap_or(0.0) => Some(Self::Gzip),
            Some(0.0) => None,
            Some(_) | None => Some(Self::Identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{ACCEPT, HeaderValue};

    use super::*;

    #[test]
    fn the_coding_of_metrics_is_the_one_that_weighs_most() {
        for (accept, expected) in [
            (None, Some(Coding::Identity)),
            (Some(""), Some(Coding::Identity)),
            (Some("gzip"), Some(Coding::Gzip)),
            (Some("GZip;q=0.5"), Some(Coding::Gzip)),
            (Some("gzip;q=0"), Some(Coding::Identity)),
            (Some("br, zstd"), Some(Coding::Identity)),
            (Some("*"), Some(Coding::Identity)),
            (Some("gzip, identity"), Some(Coding::Identity)),
            (Some("gzip;q=0.9, identity;q=0.8"), Some(Coding::Gzip)),
            (Some("gzip;q=0.2, identity;q=0.8"), Some(Coding::Identity)),
            (Some("identity;q=0, gzip;q=0.1"), Some(Coding::Gzip)),
            (Some("identity;q=0, *"), Some(Coding::Gzip)),
            (Some("identity;q=0"), None),
            (Some("*;q=0"), None),
            (Some("gzip;q=1.5"), Some(Coding::Identity)),
            (Some("gzip;q=nan"), Some(Coding::Identity)),
        ] {
            let header = accept.map(|it| (ACCEPT_ENCODING, HeaderValue::from_static(it)));
            let headers: HeaderMap = header.into_iter().collect();
            assert_eq!(Coding::accepted(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn ranges_are_in_order_of_their_weight_and_wildcards_last() {
        let text = "*/*, a/*, a/b;q=0.5, A/C ; X = \"1\", d/e;q=0, f/g;q=-1, ;;, =";
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(text))]);
        let found = accepted(&headers, ACCEPT);
        let values: Vec<_> = found.iter().map(|it| &*it.value).collect();
        assert_eq!(values, ["a/c", "", "=", "a/*", "*/*", "a/b"]);
        assert_eq!(found[0].parameter("x"), Some("1"));
    }
}
