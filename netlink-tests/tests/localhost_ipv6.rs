//! TCP node ports at `[::1]`, which the daemon's proxy serves.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // It measures the daemon.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use netlink_tests::scenario::{Manifests, Node, Service, ServiceCidr, web_with_node_port as web};
use netlink_tests::{Answer, Host, Net, Process, deltaproxy_binary, eventually};
use nix::sys::signal::Signal;

/// The node port of `web` at the loopback address.
const LOCALHOST: &str = "[::1]:30080";
/// Another node port with the same endpoints.
const OTHER: &str = "[::1]:30081";
/// The node port of `web` at the node's address.
const NODE_PORT: &str = "[fd00:192:168:50::2]:30080";
/// How long a daemon may take to notice something, on a busy machine. A port in use is tried again
/// after five seconds.
const SOON: Duration = Duration::from_secs(15);
/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node with the pods `a` and, on another node, `c`, and a host outside that is its default route.
struct World {
    net: Net,
    _outside: Host,
    manifests: Manifests,
    pods: [Host; 2],
}

impl World {
    fn new() -> Self {
        let net = Net::new();
        let pods = [net.pod("a", "10.244.1.5"), net.remote_pod("c", "10.244.2.7")];
        let outside = net.outside("outside", "192.0.2.10");
        net.route_everything_to(&outside);
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16"]);
        let manifests = Manifests::new(&[("cidr", &cidr), ("web", &web()), ("node", &Node::new())]);
        manifests.set_endpoints("a");
        Self { net, _outside: outside, manifests, pods }
    }

    fn daemon(&self, addresses: &str) -> Process {
        let addresses = format!("--nodeport-addresses={addresses}");
        self.manifests.run_with(self.net.node(), &["--healthz-bind-address=", &addresses])
    }

    /// Waits until a client gets this answer.
    #[track_caller]
    fn wait_for(&self, to: &str, server: Option<&str>) {
        eventually(&format!("{to} is answered by {server:?}"), SOON, || {
            let answer = self.net.node().connect_tcp(to);
            let found = matches!(answer, Answer::From { .. }).then(|| answer.server().to_owned());
            (found.as_deref() == server).then_some(())
        });
    }

    /// Waits until the proxy listens, without a connection to an endpoint.
    #[track_caller]
    fn wait_for_listeners(&self, count: u64) {
        let name = "kubeproxy_nftables_localhost_nodeport_listeners{ip_family=\"IPv6\"}";
        self.wait_for_metric(name, count);
    }

    #[track_caller]
    fn wait_for_metric(&self, name: &str, value: u64) {
        eventually(&format!("{name} is {value}"), SOON, || {
            (self.metric(name)? == value).then_some(())
        });
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let page = self.net.node().run(|| {
            let mut stream = TcpStream::connect("127.0.0.1:10249")?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            io::read_to_string(stream)
        });
        let page = page.ok()?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    fn refused(&self, reason: &str) -> Option<u64> {
        self.metric(&format!(
            "deltaproxy_localhost_refused_connections_total{{reason=\"{reason}\"}}"
        ))
    }

    fn connect(&self, to: &str) -> TcpStream {
        let stream = self.net.node().run(|| TcpStream::connect(to)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Serves the first connection to pod `a` with `serve`, whose result arrives at the receiver.
    fn serve_once<T: Send + 'static>(
        &self,
        serve: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let listener = self.pods[0].run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 8080)));
        let listener = listener.unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = sender.send(serve(stream));
        });
        receiver
    }
}

#[test]
fn clients_at_the_loopback_address_reach_the_endpoints_of_the_service() {
    for (addresses, is_open_elsewhere) in [
        ("primary,localhost", true),
        ("localhost", false),
        ("::1/128", false),
        ("primary,::1/128", true),
        ("all,localhost", true),
    ] {
        let world = World::new();
        let [a, c] = &world.pods;
        let _servers = [a.serve_tcp(8080, "a"), c.serve_tcp(8080, "c")];
        let daemon = world.daemon(addresses);
        world.wait_for(LOCALHOST, Some("a"));
        let elsewhere = world.net.node().connect_tcp(NODE_PORT);
        assert_eq!(matches!(elsewhere, Answer::From { .. }), is_open_elsewhere, "{addresses}");
        assert_eq!(world.net.node().send_udp(LOCALHOST), Answer::Refused, "{addresses}");
        let rejected = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total\
                        {ip_family=\"IPv6\",protocol=\"UDP\"}";
        eventually("a rejected packet counts", SOON, || {
            (world.metric(rejected)? > 0).then_some(())
        });

        let show = || {
            let finished = world.net.node().output(deltaproxy_binary(), &["show", "default/web"]);
            finished.ok().contains("[::1]:30080/tcp  node port, served by the daemon")
        };
        assert!(show(), "{addresses}");

        let mut open = world.net.node().open_tcp(LOCALHOST).unwrap();
        world.manifests.set_endpoints("c");
        world.wait_for(LOCALHOST, Some("c"));
        assert_eq!(open.ask().server(), "a", "an open connection stays, as in the kernel");
        world.manifests.set_endpoints("");
        world.wait_for_listeners(0);
        assert_eq!(world.net.node().connect_tcp(LOCALHOST), Answer::Refused);
        assert!(!show(), "{addresses}");
        drop(open);
        let finished = daemon.terminate(SOON);
        assert_eq!(finished.warnings(), [""; 0], "{addresses}");
        assert!(!finished.stderr.contains("NodePorts are closed"), "{}", finished.stderr);
    }
}

#[test]
fn without_the_keyword_or_the_address_nothing_listens() {
    for addresses in ["primary", "all", "127.0.0.0/8", "::/64"] {
        let world = World::new();
        let _server = world.pods[0].serve_tcp(8080, "a");
        let _daemon = world.daemon(addresses);
        world.wait_for("[fd00:10:96::10]:80", Some("a"));
        assert_eq!(world.net.node().connect_tcp(LOCALHOST), Answer::Refused, "{addresses}");
    }
}

/// The node port obeys the external traffic policy, not the internal one.
#[test]
fn policies_are_those_of_node_ports() {
    let world = World::new();
    let _server = world.pods[1].serve_tcp(8080, "c");
    world.manifests.write("web", &web().internal_local().external_local());
    world.manifests.set_endpoints("c");
    let _daemon = world.daemon("primary,localhost");
    world.wait_for(LOCALHOST, Some("c"));
}

/// With every address open, no commit follows a change of addresses.
#[test]
fn an_address_that_the_node_loses_is_not_used() {
    let world = World::new();
    let _server = world.pods[0].serve_tcp(8080, "a");
    let first: Ipv6Addr = "fd00:1::1".parse().unwrap();
    world.net.node().add_address(first);
    let _daemon = world.daemon("all,localhost");
    world.wait_for(LOCALHOST, Some("a"));
    world.net.node().remove_address(first);
    world.wait_for(LOCALHOST, Some("a"));
    let second: Ipv6Addr = "fd00:1::2".parse().unwrap();
    world.net.node().add_address(second);
    world.wait_for(LOCALHOST, Some("a"));
    world.net.node().remove_address(second);
    world.wait_for(LOCALHOST, Some("a"));
}

#[test]
fn a_removed_node_port_is_closed_and_its_connections_go_on() {
    let world = World::new();
    let _server = world.pods[0].serve_tcp(8080, "a");
    let _daemon = world.daemon("primary,localhost");
    world.wait_for(LOCALHOST, Some("a"));
    let mut open = world.net.node().open_tcp(LOCALHOST).unwrap();
    world.manifests.write("web", &Service::new("web", "10.96.0.10").port(80));
    world.wait_for_listeners(0);
    assert_eq!(world.net.node().connect_tcp(LOCALHOST), Answer::Refused);
    assert_eq!(open.ask().server(), "a");
    world.wait_for_metric("deltaproxy_localhost_open_connections", 1);
    drop(open);
    world.wait_for_metric("deltaproxy_localhost_open_connections", 0);
}

#[test]
fn the_end_of_one_direction_is_passed_on_and_so_are_many_bytes() {
    const MANY: usize = 16 << 20;
    let world = World::new();
    let _daemon = world.daemon("primary,localhost");
    world.wait_for_listeners(1);
    let received = world.serve_once(|mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(format!("{} bytes", bytes.len()).as_bytes()).unwrap();
        bytes.iter().all(|byte| *byte == 7)
    });
    let mut client = world.connect(LOCALHOST);
    let started = Instant::now();
    client.write_all(&vec![7; MANY]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    eprintln!("{MANY} bytes in {:?}", started.elapsed());
    assert_eq!(answer, format!("{MANY} bytes"));
    assert!(received.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn a_reset_is_passed_on_and_so_is_a_missing_endpoint() {
    let world = World::new();
    let _daemon = world.daemon("primary,localhost");
    world.wait_for_listeners(1);
    let error = world.connect(LOCALHOST).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "nothing serves on the endpoint");
    world.wait_for_metric(
        "deltaproxy_localhost_refused_connections_total{reason=\"unreachable\"}",
        1,
    );

    let _ = world.serve_once(|mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        let socket = socket2::Socket::from(stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    });
    let mut client = world.connect(LOCALHOST);
    client.write_all(b"ping").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// Neither the process nor the kernel keeps what a client does not read.
#[test]
fn a_client_that_does_not_read_stops_its_server() {
    const MOST: usize = 2 << 20;
    let world = World::new();
    let _daemon = world.daemon("primary,localhost");
    world.wait_for_listeners(1);
    let written = world.serve_once(|mut stream| {
        let socket = socket2::SockRef::from(&stream);
        socket.set_send_buffer_size(64 << 10).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut written = 0;
        while let Ok(count) = stream.write(&[1; 16 << 10]) {
            written += count;
        }
        written
    });
    let client = world.connect(LOCALHOST);
    let socket = socket2::SockRef::from(&client);
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let written = written.recv_timeout(4 * PATIENCE).unwrap();
    assert!(written < MOST, "{written} bytes are under way");
}

#[test]
fn a_port_in_use_is_a_problem_until_it_is_free() {
    let world = World::new();
    let _server = world.pods[0].serve_tcp(8080, "a");
    let node = world.net.node();
    let holder = node.run(|| TcpListener::bind("[::1]:30080")).unwrap();
    let mut daemon = world.daemon("primary,localhost");
    let line = "spec.ports[].nodePort: port 30080 cannot be opened at [::1], tried again: \
                Address already in use";
    daemon.wait_for_line(line, SOON);
    let problems = |code: i32| {
        eventually("the problems", SOON, || {
            let finished = node.output(deltaproxy_binary(), &["problems"]);
            (finished.code() == Some(code)).then_some(finished.stdout)
        })
    };
    let shown = problems(1);
    assert!(shown.contains("Service default/web") && shown.contains("closed_port"), "{shown}");
    // Everything else is served.
    assert_eq!(node.connect_tcp(NODE_PORT).server(), "a");
    drop(holder);
    world.wait_for(LOCALHOST, Some("a"));
    problems(0);
    let failures = "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total\
                    {ip_family=\"IPv6\"}";
    assert!(world.metric(failures).unwrap() > 0);
    assert_eq!(daemon.output().matches("cannot be opened").count(), 1, "reported once");
}

impl World {
    fn add_other(&self) {
        self.manifests.write("other", &Service::new("other", "10.96.0.11").node_port(80, 30081));
        self.manifests
            .write("slice-other", &netlink_tests::scenario::Slice::new("other").endpoints("a"));
    }

    /// Starts the daemon with this limit of open files.
    fn limited(&self, files: &str) -> Process {
        let script = format!("ulimit -n {files}; exec \"$@\"");
        let binary = deltaproxy_binary();
        let start = ["-c", &script, "sh", binary.to_str().unwrap()];
        let more = ["--healthz-bind-address=", "--nodeport-addresses=primary,localhost"];
        let arguments = [&start[..], &self.manifests.arguments("run"), &more].concat();
        self.net.node().spawn("sh", &arguments)
    }
}

#[test]
fn connections_above_the_limits_are_reset_and_counted() {
    let world = World::new();
    let _server = world.pods[0].serve_tcp(8080, "a");
    world.add_other();
    // Ten connections, two of them for a port.
    let _daemon = world.limited("200");
    world.wait_for_listeners(2);
    let node = world.net.node();
    let mut open = vec![node.open_tcp(LOCALHOST).unwrap(), node.open_tcp(LOCALHOST).unwrap()];
    let error = world.connect(LOCALHOST).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(world.refused("port_limit"), Some(1));
    assert_eq!(node.connect_tcp(OTHER).server(), "a", "the other port has connections left");
    assert!(open.iter_mut().all(|connection| connection.ask().server() == "a"));
    open.pop();
    world.wait_for(LOCALHOST, Some("a"));
}

#[test]
fn listeners_above_the_limit_are_problems_until_one_is_free() {
    let world = World::new();
    let _server = world.pods[0].serve_tcp(8080, "a");
    // Three sockets: a connection, and one listener.
    let mut daemon = world.limited("52");
    // The first port that is served takes the socket.
    world.wait_for(LOCALHOST, Some("a"));
    world.add_other();
    let line = "port 30081 cannot be opened at [::1], tried again: the limit of 52 open files \
                allows 1 such sockets";
    daemon.wait_for_line(line, SOON);
    world.wait_for(LOCALHOST, Some("a"));
    world.manifests.remove("web");
    world.wait_for(OTHER, Some("a"));
}

#[test]
fn a_flood_of_idle_clients_has_bounds_and_delays_nothing() {
    let world = World::new();
    let [a, c] = &world.pods;
    let _servers = [a.serve_tcp(8080, "a"), c.serve_tcp(8080, "c")];
    assert!(daemon::open_files::raise().unwrap() >= 2_000, "ulimit -Hn is too low");
    world.add_other();
    let daemon = world.limited("$(ulimit -Hn)");
    world.wait_for_listeners(2);
    let before = memory(daemon.pid());
    let flood: Vec<_> = (0..600).map(|_| world.connect(LOCALHOST)).collect();
    world.wait_for_metric("deltaproxy_localhost_open_connections", 256);
    world.wait_for_metric(
        "deltaproxy_localhost_refused_connections_total{reason=\"port_limit\"}",
        344,
    );
    let more = memory(daemon.pid()) - before;
    assert!(more < 16 << 10, "{more} KiB for 256 connections");
    eprintln!("{more} KiB for 256 connections");
    world.wait_for(OTHER, Some("a"));
    world.manifests.set_endpoints("c");
    world.wait_for(NODE_PORT, Some("c"));
    drop(flood);
    world.wait_for_metric("deltaproxy_localhost_open_connections", 0);
    world.wait_for(LOCALHOST, Some("c"));
}

/// Resident memory in KiB.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A client sees the end of a connection, not a reset, even while it sends.
#[test]
fn connections_end_in_order_at_the_end_of_the_daemon() {
    let world = World::new();
    let _server = world.pods[0].serve_tcp(8080, "a");
    let daemon = world.daemon("primary,localhost");
    world.wait_for(LOCALHOST, Some("a"));
    let mut client = world.connect(LOCALHOST);
    let mut ask = |count: usize| -> io::Result<usize> {
        client.write_all(&vec![b'x'; count])?;
        client.read(&mut [0; 4096])
    };
    assert!(ask(1).unwrap() > 0);
    daemon.signal(Signal::SIGTERM);
    world.wait_for_no_listener();
    let started = Instant::now();
    let mut asked = 0;
    let end = loop {
        match ask(1) {
            Ok(0) => break Ok(()),
            Ok(_) => asked += 1,
            Err(error) => break Err(error.kind()),
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(end, Ok(()));
    assert!(asked > 10, "a connection has some time to end by itself: {asked} answers");
    assert!(started.elapsed() < PATIENCE);
    assert_eq!(daemon.finish(SOON).warnings(), [""; 0]);
}

impl World {
    #[track_caller]
    fn wait_for_no_listener(&self) {
        eventually("no listener", SOON, || {
            let connected = self.net.node().run(|| TcpStream::connect(LOCALHOST));
            connected.is_err().then_some(())
        });
    }
}

#[test]
fn an_idle_daemon_ends_at_once() {
    let world = World::new();
    let daemon = world.daemon("primary,localhost");
    world.wait_for_listeners(1);
    let started = Instant::now();
    let _ = daemon.terminate(SOON);
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
}

#[test]
fn the_option_is_followed_in_the_configuration_file() {
    let world = World::new();
    let _server = world.pods[0].serve_tcp(8080, "a");
    let file = world.manifests.path().join("config.conf");
    let write = |addresses: &str| {
        let text = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
             mode: nftables\nhostnameOverride: node-a\nhealthzBindAddress: ''\nnodePortAddresses: [{addresses}]\n"
        );
        fs::write(&file, text).unwrap();
    };
    write("primary");
    let folder = world.manifests.path().to_str().unwrap();
    let arguments = ["run", "--manifests", folder, "--config", file.to_str().unwrap()];
    let mut daemon = world.net.node().spawn(deltaproxy_binary(), &arguments);
    world.wait_for(NODE_PORT, Some("a"));
    assert_eq!(world.net.node().connect_tcp(LOCALHOST), Answer::Refused);
    write("primary, localhost");
    world.wait_for(LOCALHOST, Some("a"));
    let mut client = world.connect(LOCALHOST);
    assert!(client.read(&mut [0; 256]).unwrap() > 0);
    write("primary");
    // The daemon looks at the file every few seconds.
    client.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(client.read(&mut [0; 256]).unwrap(), 0, "the connection ends in order");
    world.wait_for(LOCALHOST, None);
    world.wait_for(NODE_PORT, Some("a"));
    assert!(daemon.is_running());
}
