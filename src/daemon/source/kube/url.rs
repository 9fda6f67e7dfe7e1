//! Addresses of API servers and of proxies, as Go reads them.

use std::net::Ipv6Addr;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::{Authority, Scheme};
use percent_encoding::percent_decode_str;

use super::headers::basic;

/// The parts of an address in use.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// In lower case; `http` if the address has none.
    pub(super) scheme: String,
    /// Name and password before `@`.
    pub(super) user: Option<(String, String)>,
    /// Host and port.
    pub(super) authority: Authority,
    path: String,
}

impl Address {
    /// Parses a URL, `host` or `host:port`. Query and fragment have no meaning.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let with_scheme = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme));
        let (scheme, rest) = with_scheme.unwrap_or(("http", text));
        let (place, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = clean(path.split(['?', '#']).next().unwrap_or_default());
        if with_scheme.is_none() && !path.is_empty() {
            return Err("an address with a path needs a scheme, such as https://");
        }
        let (user, place) = match place.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, place),
        };
        let place = place.strip_suffix(':').unwrap_or(place);
        if place.is_empty() {
            return Err("it has no host");
        }
        let authority: Authority =
            place.parse().map_err(|_| "it is neither a URL nor a host with a port")?;
        let has_port = authority.as_str().len() > authority.host().len();
        let ip = authority.host().strip_prefix('[').map(|host| host.trim_end_matches(']'));
        if ip.is_some_and(|ip| ip.parse::<Ipv6Addr>().is_err()) {
            return Err("its host is no IPv6 address; one with a zone is not supported");
        }
        if authority.host().is_empty() || has_port && authority.port_u16().is_none() {
            return Err("it has no host, or a port that is no number up to 65535");
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(name), decoded(password))
        });
        Ok(Self { scheme: scheme.to_ascii_lowercase(), user, authority, path })
    }

    /// Returns host and port, which may be the usual one of the scheme.
    pub(super) fn host_and_port(&self) -> (&str, u16) {
        let port = self.authority.port_u16();
        (self.authority.host(), port.unwrap_or_else(|| usual_port(&self.scheme)))
    }

    /// Returns the URL of an API server.
    ///
    /// # Errors
    /// The scheme is neither `http` nor `https`.
    pub(super) fn url(&self) -> Result<Uri, &'static str> {
        let scheme = match &*self.scheme {
            "http" => Scheme::HTTP,
            "https" => Scheme::HTTPS,
            _ => return Err("its scheme is neither http nor https"),
        };
        let path = if self.path.is_empty() { "/" } else { &self.path };
        let url = Uri::builder().scheme(scheme).authority(self.authority.clone());
        url.path_and_query(path).build().map_err(|_| "its path is not one of a URL")
    }

    /// Returns the value of `Authorization` or `Proxy-Authorization` for its user.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        self.user.as_ref().map(|(name, password)| basic(name, password))
    }
}

/// Returns the port of an address without one.
pub(super) fn usual_port(scheme: &str) -> u16 {
    match scheme {
        "http" => 80,
        "socks5" | "socks5h" => 1080,
        _ => 443,
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it))
}

/// Resolves `.`, `..` and repeated slashes, and removes the last slash.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.iter().map(|part| format!("/{part}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_meaning_that_go_gives_it() {
        let url = |text| Address::parse(text).and_then(|it| it.url()).map(|url| url.to_string());
        for (text, expected) in [
            ("10.0.0.1:6443", "http://10.0.0.1:6443/"),
            ("api.example.com", "http://api.example.com/"),
            ("localhost:8080", "http://localhost:8080/"),
            ("[fd00::1]:6443", "http://[fd00::1]:6443/"),
            ("a:6443/", "http://a:6443/"),
            ("a?b=c", "http://a/"),
            ("a:", "http://a/"),
            ("HTTPS://a:6443", "https://a:6443/"),
            ("https://a:6443/", "https://a:6443/"),
            ("https://a/k8s//clusters/./c-1/?x=y#z", "https://a/k8s/clusters/c-1"),
            ("https://user:pass@a:1", "https://a:1/"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "a/b",
            "//a:6443",
            "https://",
            "https://:6443",
            "https://a:65536",
            "https://a:port",
            "https://[fd00::1",
            "https://a b",
            "https://[fe80::1%25eth0]:6443",
            "ftp://a",
            "http:/a",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_user_in_an_address_is_decoded() {
        let value = |text| Address::parse(text).unwrap().authorization();
        assert_eq!(value("http://a:1"), None);
        assert_eq!(value("http://u%40x:p%3A%40w@a:1"), Some(basic("u@x", "p:@w")));
        assert_eq!(value("u@a:1").unwrap(), "Basic dTo=");
    }
}
