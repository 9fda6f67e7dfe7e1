//! An API server behind a proxy, of the kubeconfig or of the environment.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use daemon::source::kube::{ApiServer as Address, RestClient};
use netlink_tests::apiserver::object::{node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Authority};
use netlink_tests::http::body;
use netlink_tests::reader::Family;
use netlink_tests::{Net, deltaproxy_binary, eventually};
use test_hosts::link;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// A proxy of all kinds on loopback, and the heads of the requests that it got.
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start() -> Self {
        link::raise_loopback();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                // A client that is gone is no failure of the test.
                thread::spawn(move || drop(serve(client, &seen)));
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(client: TcpStream, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client);
    if reader.fill_buf()?.first() == Some(&5) {
        return serve_socks(reader, heads);
    }
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    heads.lock().unwrap().push(head.clone());
    let mut client = reader.into_inner();
    if let Some(target) = head.strip_prefix("CONNECT ") {
        let server = TcpStream::connect(target.split(' ').next().unwrap())?;
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        return relay(client, server);
    }
    let text = "{\"kind\": \"NodeList\"}";
    let length = text.len();
    write!(client, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}")
}

fn serve_socks(
    mut reader: BufReader<TcpStream>,
    heads: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut read = |length: usize| {
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).map(|()| bytes)
    };
    let methods = read(2)?[1];
    let user = read(methods.into())?.contains(&2);
    let mut client = reader.get_ref().try_clone()?;
    client.write_all(&[5, if user { 2 } else { 0 }])?;
    let mut read = |length: usize| {
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).map(|()| bytes)
    };
    let mut head = "SOCKS".to_owned();
    if user {
        for start in [2, 1] {
            let length = *read(start)?.last().unwrap();
            head = format!("{head} {}", String::from_utf8(read(length.into())?).unwrap());
        }
        client.write_all(&[1, 0])?;
    }
    let request = read(10)?;
    let [_, _, _, 1, a, b, c, d, high, low] = *request else { panic!("{request:?}") };
    let server = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
    heads.lock().unwrap().push(format!("{head} {server}"));
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    relay(client, TcpStream::connect(server)?)
}

/// Copies bytes in both directions, until both end.
fn relay(client: TcpStream, server: TcpStream) -> std::io::Result<()> {
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let (mut from, mut to) = (server, client);
    std::io::copy(&mut from, &mut to)?;
    to.shutdown(std::net::Shutdown::Write)
}

fn write_kubeconfig(path: &Path, cluster: &str) {
    let text = format!(
        "current-context: c\nclusters: [{{name: a, cluster: {{{cluster}}}}}]\n\
         users: [{{name: b, user: {{token: t}}}}]\n\
         contexts: [{{name: c, context: {{cluster: a, user: b}}}}]\n"
    );
    std::fs::write(path, text).unwrap();
}

/// Reads the nodes once, with a kubeconfig of this cluster.
fn read_nodes(cluster: &str) -> Result<serde_json::Value, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    write_kubeconfig(&path, cluster);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let rest =
            RestClient::load(&Address::of_kubeconfig(path)).await.map_err(|it| it.to_string())?;
        rest.read("/api/v1/nodes").await.map_err(|error| error.to_string())
    })
}

#[test]
fn the_proxy_of_a_kubeconfig_connects_to_a_server_with_tls() {
    let (authority, server, proxy) = (Authority::new(), ApiServer::start(), Proxy::start());
    server.use_tls(&authority, None);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let (address, at) = (server.address(), proxy.address);
    let cluster = |url: &str| {
        format!("server: 'https://{address}', certificate-authority: {ca:?}, proxy-url: '{url}'")
    };
    for (url, expected) in [
        (format!("http://{at}"), format!("CONNECT {address} HTTP/1.1\r\n")),
        (format!("http://u%40x:p%3Aw@{at}"), "Proxy-Authorization: Basic dUB4OnA6dw==\r\n".into()),
        (format!("socks5://{at}"), format!("SOCKS {address}")),
        (format!("socks5://u:p@{at}"), format!("SOCKS u p {address}")),
    ] {
        let nodes = read_nodes(&cluster(&url)).unwrap();
        assert_eq!(nodes["kind"], "NodeList", "{url}");
        let head = proxy.heads.lock().unwrap().pop().unwrap();
        assert!(head.contains(&expected), "{url}: {head}");
        assert!(!head.contains("Bearer"), "{head}");
        assert_eq!(proxy.heads(), [""; 0]);
    }
    let authorizations = server.requests().into_iter().map(|it| it.authorization);
    assert!(authorizations.into_iter().all(|it| it.as_deref() == Some("Bearer t")));
    let error = read_nodes(&cluster("https://127.0.0.1:1")).unwrap_err();
    assert!(error.contains("cannot be reached"), "{error}");
}

#[test]
fn the_proxy_of_a_kubeconfig_gets_the_requests_for_a_server_without_tls_and_no_token() {
    let proxy = Proxy::start();
    let cluster = format!("server: 'a.invalid:8001', proxy-url: 'http://u:p@{}'", proxy.address);
    assert_eq!(read_nodes(&cluster).unwrap()["kind"], "NodeList");
    let head = proxy.heads().pop().unwrap().to_ascii_lowercase();
    assert!(head.starts_with("get http://a.invalid:8001/api/v1/nodes http/1.1\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: basic dtpw\r\n"), "{head}");
    assert!(!head.contains("bearer"), "{head}");
}

/// `HTTPS_PROXY` and `NO_PROXY`, as kubeadm copies them from its own environment.
#[test]
fn the_proxy_of_the_environment_is_used_unless_no_proxy_has_the_server() {
    for (no_proxy, is_used) in [("10.96.0.0/12,.svc", true), ("192.168.50.0/24,.svc", false)] {
        let net = Net::new();
        let (api, proxy) =
            net.node().run(|| (ApiServer::start_at(net.node().ip()), Proxy::start()));
        let authority = Authority::new();
        api.use_tls(&authority, None);
        api.push(node("node1", "192.168.50.2"));
        api.push(service_cidr("kubernetes", "10.96.0.0/16"));
        api.push(service("default/web", "10.96.0.10", 80));
        let folder = tempfile::tempdir().unwrap();
        let (kubeconfig, ca) = (folder.path().join("kubeconfig"), folder.path().join("ca.crt"));
        std::fs::write(&ca, authority.pem()).unwrap();
        let server = format!("server: 'https://{}', certificate-authority: {ca:?}", api.address());
        // The certificate is for this name.
        write_kubeconfig(&kubeconfig, &format!("{server}, tls-server-name: 127.0.0.1"));
        let arguments = [
            format!("HTTPS_PROXY=http://{}", proxy.address),
            format!("NO_PROXY={no_proxy}"),
            deltaproxy_binary().display().to_string(),
            "run".into(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--hostname-override=node1".into(),
            "--healthz-bind-address=".into(),
        ];
        let _daemon = net.node().spawn("/usr/bin/env", &arguments);
        let tables = || format!("{:?}", net.node().read_table(Family::Ip));
        eventually("web", SOON, || tables().contains("default/web").then_some(()));
        let heads = proxy.heads();
        let connect = format!("CONNECT {} ", api.address());
        assert_eq!(!heads.is_empty(), is_used, "{no_proxy}: {heads:?}");
        assert!(heads.iter().all(|head| head.starts_with(&connect)), "{heads:?}");
        // The server is that of the kubeconfig, not the proxy.
        let metrics = body(net.node(), 10249, "/metrics");
        let host = format!("host=\"{}\"", api.address());
        assert!(metrics.contains(&host), "{metrics}");
    }
}
