//! The address of an API server, in the syntax of `--master`.

use hyper::Uri;

/// The expectation of errors.
pub(super) const EXPECTED: &str = "the URL of an API server, such as https://192.0.2.1:6443";

/// Returns whether a text is the address of an API server. As in client-go, the scheme is optional.
pub(super) fn is_valid(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    let Some(authority) = url.authority() else { return false };
    // An invalid port is kept in the authority, and so is a user.
    let is_plain = match authority.port_u16() {
        Some(port) => authority.as_str() == format!("{}:{port}", authority.host()),
        None => authority.as_str() == authority.host(),
    };
    let is_http = url.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    is_plain && is_http && !authority.host().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_addresses_without_scheme_are_accepted() {
        for text in ["https://a:6443", "http://[fd00::1]:80/x", "192.0.2.1:8080", "server"] {
            assert!(is_valid(text), "{text}");
        }
        for text in ["", "/path", "ftp://a", "https://", "a b", "http://a:99999", "u@a", "https//a"]
        {
            assert!(!is_valid(text), "{text}");
        }
    }
}
