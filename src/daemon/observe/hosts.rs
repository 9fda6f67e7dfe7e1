//! The names by which the metrics port may be requested.
//!
//! A web page can let its own name lead to an address of this node (DNS rebinding); a browser then
//! lets the page read what this port answers. So a request has to name an address, or a name that
//! cannot be registered: one of this node, one without a dot, or one of a private domain.
//!
//! Scrapers may use any name, and so may what passes a proxy such as the API server's: they send a
//! header of their own, and no `Accept-Language`, which each browser adds and no page can remove (Fetch
//! standard, HTTP-network-or-cache fetch).

use std::net::IpAddr;

use hyper::Request;
use hyper::header::{ACCEPT_LANGUAGE, HOST, HeaderMap};
use nix::sys::utsname::uname;

/// Domains in which names cannot be registered (RFC 6761, RFC 6762, RFC 8375, ICANN's `internal`,
/// Kubernetes' `svc`).
const PRIVATE: [&str; 6] = ["localhost", "local", "internal", "home.arpa", "svc", "localdomain"];

/// Headers of Prometheus and programs like it, and of proxies.
const NOT_OF_PAGES: [&str; 2] = ["x-prometheus-scrape-timeout-seconds", "x-forwarded-for"];

/// Returns the name of a request that is refused for it; `None` if it is answered. `node` is the name
/// of this node.
pub(super) fn refused<B>(request: &Request<B>, node: Option<&str>) -> Option<String> {
    let headers = request.headers();
    let header = headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
    let host = request.uri().authority().map(|it| it.as_str().into()).or(header)?;
    let name = without_port(&host).trim_end_matches('.').to_ascii_lowercase();
    let is_known = is_address(&name) || is_private(&name) || is_of_node(&name, node);
    (!is_known && !is_of_program(headers)).then_some(name)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
}

fn is_private(name: &str) -> bool {
    let mut rests = PRIVATE.iter().filter_map(|domain| name.strip_suffix(domain));
    !name.contains('.') || rests.any(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn is_of_node(name: &str, node: Option<&str>) -> bool {
    let machine = uname().ok();
    let machine = machine.as_ref().and_then(|it| it.nodename().to_str());
    node.into_iter().chain(machine).any(|it| it.eq_ignore_ascii_case(name))
}

fn is_of_program(headers: &HeaderMap) -> bool {
    !headers.contains_key(ACCEPT_LANGUAGE)
        && NOT_OF_PAGES.iter().any(|it| headers.contains_key(*it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(host: &str, headers: &[&str]) -> bool {
        let mut request = Request::builder().uri("/metrics").header(HOST, host);
        for header in headers {
            request = request.header(*header, "x");
        }
        refused(&request.body(()).unwrap(), Some("n7.example.com")).is_some()
    }

    #[test]
    fn addresses_and_names_that_nobody_can_register_are_answered() {
        for host in [
            "192.0.2.7:10249",
            "192.0.2.7",
            "[::1]:10249",
            "[fd00::7]",
            "localhost:10249",
            "n7.example.com:10249",
            "N7.Example.com.",
            "n7",
            "deltaproxy.kube-system.svc:10249",
            "deltaproxy.kube-system.svc.cluster.local",
            "ip-10-0-0-7.ec2.internal",
            "app.localhost",
        ] {
            assert!(!is_refused(host, &[]), "{host}");
        }
        for host in [
            "evil.example:10249",
            "n7.evil.example",
            "localhost.evil.example",
            "192.0.2.7.evil.example",
            "evillocal.example",
            "svc.evil.example",
            "n8.example.com",
        ] {
            assert!(is_refused(host, &[]), "{host}");
        }
        let without = Request::builder().uri("/").body(()).unwrap();
        assert_eq!(refused(&without, None), None, "HTTP/1.0");
        let absolute = Request::builder().uri("http://evil.example/").header(HOST, "localhost");
        assert!(refused(&absolute.body(()).unwrap(), None).is_some());
    }

    #[test]
    fn a_scraper_may_use_any_name_and_a_page_that_imitates_one_may_not() {
        let scraper = "x-prometheus-scrape-timeout-seconds";
        assert!(!is_refused("n8.example.com", &[scraper]));
        assert!(!is_refused("api.example.com", &["x-forwarded-for"]));
        assert!(is_refused("evil.example", &[scraper, "accept-language"]));
        assert!(is_refused("evil.example", &["accept-language", "x-forwarded-for"]));
    }
}
