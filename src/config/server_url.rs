//! The address of an API server, as `--master` has it.

use hyper::Uri;

/// The expectation of errors.
pub(super) const EXPECTED: &str = "the URL of an API server, such as https://192.0.2.1:6443";

/// Whether a text is the address of an API server. As in client-go, the scheme may be absent.
pub(super) fn is_valid(text: &str) -> bool {
    let url = text.parse::<Uri>().ok();
    let url = url.filter(|url| url.host().is_some_and(|host| !host.is_empty()));
    url.is_some_and(|url| url.scheme_str().is_none_or(|it| matches!(it, "http" | "https")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_addresses_without_scheme_are_accepted() {
        for text in ["https://a:6443", "http://[fd00::1]:80/x", "192.0.2.1:8080", "server"] {
            assert!(is_valid(text), "{text}");
        }
        for text in ["", "/path", "ftp://a", "https://", "a b", "http://a:99999", "https//a"] {
            assert!(!is_valid(text), "{text}");
        }
    }
}
