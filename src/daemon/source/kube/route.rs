//! The way to the API server: direct, or through a proxy of the kubeconfig or of the environment.
//!
//! The rules are those of Go's `net/http`: `proxy-url` is used for any server. The variables of the
//! environment are not used for loopback addresses and for what `NO_PROXY` lists.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::kubeconfig::Fault;
use super::url::Address;

/// Reads the value of `proxy-url`.
pub(super) fn of_kubeconfig(text: &str) -> Result<Address, &'static str> {
    let address = Address::parse(text)?;
    match &*address.scheme {
        "http" | "https" | "socks5" if text.contains("://") => Ok(address),
        _ => Err("its scheme is none of http, https and socks5"),
    }
}

/// Returns the proxy for a server from the variables of the environment.
///
/// # Errors
/// The variable is no address of a proxy.
pub(super) fn of_environment(
    server: &Address,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Address>, Fault> {
    let any = |names: [&'static str; 2]| {
        let values = names.into_iter().map(|name| (name, variable(name).unwrap_or_default()));
        values.into_iter().find(|(_, value)| !value.is_empty())
    };
    let names = match &*server.scheme {
        "https" => ["HTTPS_PROXY", "https_proxy"],
        _ => ["HTTP_PROXY", "http_proxy"],
    };
    let Some((name, value)) = any(names) else { return Ok(None) };
    let (host, port) = server.host_and_port();
    let excluded = any(["NO_PROXY", "no_proxy"]).map_or_else(String::new, |(_, value)| value);
    if is_direct(host, port, &excluded) {
        return Ok(None);
    }
    let fault = |problem| Fault::new(format!("environment variable {name}"), problem);
    let address = Address::parse(&value).map_err(fault)?;
    if !["http", "https", "socks5", "socks5h"].contains(&&*address.scheme) {
        return Err(fault("its scheme is none of http, https, socks5 and socks5h"));
    }
    Ok(Some(address))
}

/// Returns whether a host is on loopback, or in a list of the form of `NO_PROXY`.
fn is_direct(host: &str, port: u16, excluded: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    let entries = excluded.split(',').map(|entry| entry.trim().to_ascii_lowercase());
    entries.into_iter().any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Ok(range) = entry.parse::<IpNet>() {
            return ip.is_some_and(|ip| range.contains(&ip));
        }
        let (name, only) = with_port(&entry);
        let is_port = only.is_none_or(|only| only == port.to_string());
        match (name.parse::<IpAddr>(), ip) {
            (Ok(entry), Some(ip)) => is_port && entry.to_canonical() == ip,
            (Err(_), None) => is_port && is_in_domain(&host, name),
            (Ok(_), None) | (Err(_), Some(_)) => false,
        }
    })
}

/// Splits an entry into its host and its port.
fn with_port(entry: &str) -> (&str, Option<&str>) {
    let Some((host, port)) = entry.rsplit_once(':') else { return (entry, None) };
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => (host, Some(port)),
        None if host.contains(':') => (entry, None),
        None => (host, Some(port)),
    }
}

/// `a.b` is the domain and all in it, `.a.b` and `*.a.b` are all in it.
fn is_in_domain(host: &str, entry: &str) -> bool {
    let entry = entry.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(entry);
    match entry.strip_prefix('.') {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None if entry.is_empty() => false,
        None => {
            let before = host.strip_suffix(entry);
            before.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
    }
}

/// Connects to the server, or to the proxy in place of it.
#[derive(Clone)]
pub(super) enum Route {
    /// Without a proxy.
    Direct(HttpConnector),
    /// Requests are sent to the proxy, with the whole URL of the server.
    Forward(HttpsConnector<HttpConnector>, Uri),
    /// The proxy connects (method CONNECT).
    Tunnel(Tunnel<HttpsConnector<HttpConnector>>),
    /// The proxy connects (SOCKS 5).
    Socks(SocksV5<HttpConnector>),
}

impl Route {
    /// Returns the way through `proxy`, and the header of each request for it. `tls` is for a proxy
    /// with TLS.
    pub(super) fn new(
        proxy: Option<&Address>,
        is_tls: bool,
        tls: impl FnOnce(HttpConnector) -> HttpsConnector<HttpConnector>,
    ) -> (Self, Option<HeaderValue>) {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let Some(proxy) = proxy else { return (Self::Direct(tcp), None) };
        let (host, port) = proxy.host_and_port();
        let scheme = if proxy.scheme == "https" { "https" } else { "http" };
        let url = Uri::builder().scheme(scheme).authority(format!("{host}:{port}"));
        let url = url.path_and_query("/").build().unwrap_or_default();
        let authorization = proxy.authorization();
        if proxy.scheme.starts_with("socks5") {
            let socks = SocksV5::new(url, tcp);
            let user = proxy.user.clone();
            let route = user.map(|(name, password)| socks.clone().with_auth(name, password));
            (Self::Socks(route.unwrap_or(socks)), None)
        } else if is_tls {
            let tunnel = Tunnel::new(url, tls(tcp));
            let route = authorization.map(|value| tunnel.clone().with_auth(value));
            (Self::Tunnel(route.unwrap_or(tunnel)), None)
        } else {
            (Self::Forward(tls(tcp), url), authorization)
        }
    }
}

impl Service<Uri> for Route {
    type Response = Wire;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Wire, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(inner) => inner.poll_ready(context).map_err(Into::into),
            Self::Forward(inner, _) => inner.poll_ready(context),
            Self::Tunnel(inner) => inner.poll_ready(context).map_err(Into::into),
            Self::Socks(inner) => inner.poll_ready(context).map_err(|_| "not ready".into()),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let plain = |stream| Wire { stream: MaybeHttpsStream::Http(stream), is_forwarded: false };
        let through = |is_forwarded| move |stream| Wire { stream, is_forwarded };
        match self {
            Self::Direct(inner) => inner.call(server).map_ok(plain).err_into().boxed(),
            Self::Forward(inner, proxy) => {
                inner.call(proxy.clone()).map_ok(through(true)).err_into().boxed()
            }
            Self::Tunnel(inner) => inner.call(server).map_ok(through(false)).err_into().boxed(),
            Self::Socks(inner) => inner.call(server).map_ok(plain).err_into().boxed(),
        }
    }
}

/// A connection to the server, or to the proxy that forwards requests.
pub(super) struct Wire {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    is_forwarded: bool,
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_forwarded)
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_has_the_meaning_that_go_gives_it() {
        let mut differ = Vec::new();
        for (server, list, expected) in [
            ("https://10.0.0.1:6443", "", false),
            ("https://localhost:6443", "", true),
            ("https://127.8.9.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://[::ffff:127.0.0.1]:6443", "", true),
            ("https://10.0.0.1:6443", "*", true),
            ("https://a.b:6443", "x, *", true),
            ("https://10.0.0.1:6443", "10.0.0.0/8", true),
            ("https://10.0.0.1:6443", " 192.168.0.0/16 , 10.0.0.0/24 ", true),
            ("https://10.0.0.1:6443", "192.168.0.0/16,10.0.1.0/24", false),
            ("https://10.0.0.1:6443", "10.0.0.1", true),
            ("https://10.0.0.1:6443", "10.0.0.1:6443", true),
            ("https://10.0.0.1:6443", "10.0.0.1:443", false),
            ("https://10.0.0.1", "10.0.0.1:443", true),
            ("http://10.0.0.1", "10.0.0.1:80", true),
            ("https://10.0.0.1:6443", "10.0.0.", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "[fd00::1]", false),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "[fd00::1]:443", false),
            ("https://[fd00::1]:6443", "fd00::2", false),
            ("https://api.example.com", "example.com", true),
            ("https://example.com", "example.com", true),
            ("https://API.Example.COM", "eXample.com", true),
            ("https://badexample.com", "example.com", false),
            ("https://api.example.com", ".example.com", true),
            ("https://example.com", ".example.com", false),
            ("https://api.example.com", "*.example.com", true),
            ("https://example.com", "*.example.com", false),
            ("https://api.example.com:6443", "example.com:6443", true),
            ("https://api.example.com:6443", "example.com:443", false),
            ("https://api.example.com", "com", true),
            ("https://api.example.com", "api", false),
            ("https://kubernetes.default.svc", ".svc,.cluster.local", true),
            ("https://a.b", ",,:6443, ,", false),
            ("https://a.b", ".", false),
        ] {
            let server = Address::parse(server).unwrap();
            let environment = |name: &str| match name {
                "HTTPS_PROXY" | "http_proxy" => Some("proxy:3128".to_owned()),
                "no_proxy" => Some(list.to_owned()),
                _ => None,
            };
            let proxy = of_environment(&server, environment).unwrap();
            if proxy.is_none() != expected {
                differ.push((server.authority.to_string(), list));
            }
            assert!(proxy.is_none_or(|it| it.host_and_port() == ("proxy", 3128)));
        }
        assert!(differ.is_empty(), "{differ:#?}");
    }

    #[test]
    fn a_proxy_is_chosen_by_the_scheme_of_the_server_and_upper_case_wins() {
        let proxy = |server, variables: &[(&str, &str)]| {
            let server = Address::parse(server).unwrap();
            let value = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.into());
            of_environment(&server, value).map(|it| it.map(|it| it.authority.to_string()))
        };
        let both = [("HTTPS_PROXY", "http://s:1"), ("HTTP_PROXY", "http://p:2")];
        assert_eq!(proxy("https://a", &both).unwrap().as_deref(), Some("s:1"));
        assert_eq!(proxy("http://a", &both).unwrap().as_deref(), Some("p:2"));
        assert_eq!(proxy("https://a", &both[1..]).unwrap(), None);
        let cases = [("HTTPS_PROXY", ""), ("https_proxy", "socks5h://l:3")];
        assert_eq!(proxy("https://a", &cases).unwrap().as_deref(), Some("l:3"));
        let cases = [("HTTPS_PROXY", "u:1"), ("https_proxy", "l:3"), ("NO_PROXY", "")];
        assert_eq!(proxy("https://a", &cases).unwrap().as_deref(), Some("u:1"));
        for value in ["ftp://a:1", "http://", "http://a:99999"] {
            let error = proxy("https://a", &[("https_proxy", value)]).unwrap_err().to_string();
            assert!(error.starts_with("environment variable https_proxy: "), "{error}");
        }
    }
}
