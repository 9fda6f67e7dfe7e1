//! Addresses to listen on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use engine::routing::ranges::without_leading_zeros;

/// Default port of `/healthz` and `/livez`.
pub const HEALTHZ_PORT: u16 = 10256;

/// Default port of `/metrics`.
pub const METRICS_PORT: u16 = 10249;

/// Default address of `/healthz`: all addresses.
pub const DEFAULT_HEALTHZ: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), HEALTHZ_PORT);

/// Default address of `/metrics`: loopback only.
pub const DEFAULT_METRICS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), METRICS_PORT);

/// Error: the text is not an address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address to listen on such as 0.0.0.0:10256 or [::]:10256")]
pub struct AddressError(String);

/// Parses an address with a port from 1 to 65535, or an address alone, which gets `default_port`.
///
/// # Errors
/// The text is neither.
pub fn parse(text: &str, default_port: u16) -> Result<SocketAddr, AddressError> {
    let text = text.trim();
    let of = |host: &str, port| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(SocketAddr::new(ip(bare)?, port))
    };
    let with_port = || text.rsplit_once(':').and_then(|(host, port)| of(host, port.parse().ok()?));
    let address = of(text, default_port).or_else(with_port);
    address.filter(|address| address.port() != 0).ok_or_else(|| AddressError(text.to_owned()))
}

/// Parses an IP address.
pub(super) fn ip(text: &str) -> Option<IpAddr> {
    without_leading_zeros(text).parse().ok()
}

/// Formats an address; none is empty.
pub(super) fn text(address: Option<SocketAddr>) -> String {
    address.map_or_else(String::new, |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_lack_its_port() {
        for (text, expected) in [
            ("0.0.0.0:1234", "0.0.0.0:1234"),
            ("127.0.0.1", "127.0.0.1:10256"),
            ("[::]:1234", "[::]:1234"),
            ("::1", "[::1]:10256"),
            ("[::1]", "[::1]:10256"),
            ("127.000.000.001:09001", "127.0.0.1:9001"),
            ("[127.0.0.1]:1", "127.0.0.1:1"),
        ] {
            assert_eq!(parse(text, HEALTHZ_PORT), Ok(expected.parse().unwrap()));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "localhost:80", "1.2.3.4:0", "1.2.3.4:65536", ":10256", "1.2.3"] {
            assert_eq!(parse(text, HEALTHZ_PORT), Err(AddressError(text.to_owned())));
        }
    }
}
