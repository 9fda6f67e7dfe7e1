//! Health check ports of Services, which report to load balancers whether the node has endpoints.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use netlink_tests::apiserver::object::{endpoint_slice, service};
use netlink_tests::apiserver::{ApiServer, Kind};
use netlink_tests::{Host, Net, Process, deltaproxy_binary, eventually};
use serde_json::{Value, json};

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

const PORT: u16 = 30900;
const OTHER_PORT: u16 = 30901;

/// Port of the first of many Services.
const FIRST: u16 = 31000;

const HEALTH: &str = "192.168.50.2:10256";

const METRICS: &str = "192.168.50.2:10249";

/// A node, and a load balancer outside that probes it.
struct Cluster {
    net: Net,
    api: ApiServer,
    balancer: Host,
}

impl Cluster {
    fn new() -> Self {
        let net = Net::new();
        let api = net.node().run(ApiServer::with_web);
        api.push(checked("default/checked", "10.96.0.20", PORT));
        api.push(endpoints("default/checked", 2));
        let balancer = net.outside("balancer", "192.0.2.10");
        Self { net, api, balancer }
    }

    fn daemon(&self, arguments: &[&str]) -> Process {
        let kubeconfig = self.api.kubeconfig().to_str().unwrap();
        let always = [
            "run",
            "--kubeconfig",
            kubeconfig,
            "--hostname-override=node1",
            "--healthz-bind-address=",
            "--metrics-bind-address=",
        ];
        self.net.node().spawn(deltaproxy_binary(), &[&always, arguments].concat())
    }

    /// Adds so many Services with the health check ports from [`FIRST`] on.
    fn add_services(&self, count: u8) {
        let add = |nth: u8| {
            let (name, port) = (format!("default/many-{nth:03}"), FIRST + u16::from(nth));
            let service = checked(&name, &format!("10.96.1.{nth}"), port);
            [service, endpoints(&name, 1)]
        };
        self.api.push_all((0..count).flat_map(add));
    }

    /// A daemon that a shell starts with this limit, and that serves [`HEALTH`] and [`METRICS`].
    fn daemon_within(&self, ulimit: &str) -> Process {
        let script = format!("ulimit {ulimit} && exec \"$@\"");
        let (binary, kubeconfig) = (deltaproxy_binary(), self.api.kubeconfig().to_str().unwrap());
        let (health, metrics) = (
            format!("--healthz-bind-address={HEALTH}"),
            format!("--metrics-bind-address={METRICS}"),
        );
        let daemon = [binary.to_str().unwrap(), "run", "--kubeconfig", kubeconfig];
        let more = ["--hostname-override=node1", &health, &metrics];
        let arguments = [&["-c", &script, "sh"], &daemon[..], &more].concat();
        self.net.node().spawn("/bin/sh", &arguments)
    }

    /// The answer that the balancer gets at this address of the node.
    fn ask(&self, address: &str) -> io::Result<String> {
        ask_from(&self.balancer, address, "/anything")
    }

    /// The answer of [`HEALTH`] or [`METRICS`] to the node itself.
    fn ask_here(&self, address: &str, path: &str) -> io::Result<String> {
        ask_from(self.net.node(), address, path)
    }

    /// The number of [`Self::add_services`]' Services whose port answers.
    fn answering(&self, count: u8) -> usize {
        let port = |nth: &u8| format!("192.168.50.2:{}", FIRST + u16::from(*nth));
        let answers =
            |nth: &u8| self.ask(&port(nth)).is_ok_and(|it| it.starts_with("HTTP/1.1 200"));
        (0..count).filter(answers).count()
    }

    /// Waits for an answer with this status and this count of endpoints.
    #[track_caller]
    fn wait_for(&self, address: &str, status: u16, count: usize) -> String {
        let status = format!("HTTP/1.1 {status} ");
        let count = format!("\n\t\"localEndpoints\": {count},\n");
        eventually(&format!("{status}with {count} at {address}"), SOON, || {
            let answer = self.ask(address).ok()?;
            (answer.starts_with(&status) && answer.contains(&count)).then_some(answer)
        })
    }

    #[track_caller]
    fn wait_until_closed(&self, address: &str) {
        eventually(&format!("{address} is closed"), SOON, || self.ask(address).err().map(|_| ()));
    }
}

/// The answer that a host gets at this address.
fn ask_from(host: &Host, address: &str, path: &str) -> io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    host.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, SOON)?;
        stream.set_read_timeout(Some(SOON))?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        io::read_to_string(stream)
    })
}

/// So many connections of a host to this address that send nothing.
fn idle_connections(host: &Host, address: &str, count: usize) -> Vec<TcpStream> {
    let address: SocketAddr = address.parse().unwrap();
    let open = |_| TcpStream::connect_timeout(&address, SOON).unwrap();
    host.run(|| (0..count).map(open).collect())
}

/// A Service that only endpoints on the node serve from outside.
fn checked(name: &str, cluster_ip: &str, health_check_node_port: u16) -> Value {
    let mut service = service(name, cluster_ip, 80);
    service["spec"]["type"] = json!("LoadBalancer");
    service["spec"]["externalTrafficPolicy"] = json!("Local");
    service["spec"]["healthCheckNodePort"] = json!(health_check_node_port);
    service
}

/// So many endpoints of a service on the node, and one elsewhere.
fn endpoints(service: &str, count: u8) -> Value {
    let addresses: Vec<_> = (0..=count).map(|nth| format!("10.244.1.{}", 10 + nth)).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let (_, name) = service.split_once('/').unwrap();
    let mut slice = endpoint_slice(&format!("{service}-1"), name, &addresses, 8080);
    for endpoint in &mut slice["endpoints"].as_array_mut().unwrap()[1..] {
        endpoint["nodeName"] = json!("node1");
    }
    slice
}

#[test]
fn a_health_check_port_reports_the_number_of_local_endpoints() {
    let cluster = Cluster::new();
    let _daemon = cluster.daemon(&[]);
    let node = format!("192.168.50.2:{PORT}");
    let answer = cluster.wait_for(&node, 200, 2);
    for part in [
        "content-type: application/json\r\n",
        "x-content-type-options: nosniff\r\n",
        "x-load-balancing-endpoint-weight: 2\r\n",
        "\r\n\r\n{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"checked\"\n\t},\n",
        "\t\"serviceProxyHealthy\": true\n}",
    ] {
        assert!(answer.contains(part), "{answer}");
    }
    cluster.api.push(endpoints("default/checked", 0));
    cluster.wait_for(&node, 503, 0);
    cluster.api.push(endpoints("default/checked", 1));
    cluster.wait_for(&node, 200, 1);
    // It is open at the addresses of NodePorts alone.
    assert!(cluster.net.node().run(|| TcpStream::connect(("127.0.0.1", PORT))).is_err());
    // Another port, then none.
    cluster.api.push(checked("default/checked", "10.96.0.20", OTHER_PORT));
    cluster.wait_for(&format!("192.168.50.2:{OTHER_PORT}"), 200, 1);
    cluster.wait_until_closed(&node);
    cluster.api.push(service("default/checked", "10.96.0.20", 80));
    cluster.wait_until_closed(&format!("192.168.50.2:{OTHER_PORT}"));
}

#[test]
fn health_check_ports_are_open_in_both_families() {
    let cluster = Cluster::new();
    let _daemon = cluster.daemon(&["--nodeport-addresses=0.0.0.0/0,::/0"]);
    cluster.wait_for(&format!("192.168.50.2:{PORT}"), 200, 2);
    // No endpoint has an IPv6 address.
    cluster.wait_for(&format!("[fd00:192:168:50::2]:{PORT}"), 503, 0);
}

#[test]
fn a_port_that_is_taken_is_one_event_and_keeps_no_other_closed() {
    let cluster = Cluster::new();
    cluster.api.push(checked("default/next", "10.96.0.21", OTHER_PORT));
    cluster.api.push(endpoints("default/next", 1));
    // The same port as another Service.
    cluster.api.push(checked("default/zzz", "10.96.0.22", OTHER_PORT));
    let holder = cluster.net.node().run(|| TcpListener::bind(("192.168.50.2", PORT))).unwrap();
    let mut daemon = cluster.daemon(&[]);
    cluster.wait_for(&format!("192.168.50.2:{OTHER_PORT}"), 200, 1);
    let closed = "Service default/checked: spec.healthCheckNodePort: port 30900 cannot be opened";
    let contested = "Service default/zzz: spec.healthCheckNodePort: port 30901 cannot be opened on \
                     this node, tried again: Service default/next has it";
    daemon.wait_for_line(closed, SOON);
    let noted = |name: &str| {
        let of_it = |event: &Value| event["regarding"]["name"] == name;
        eventually(name, SOON, || cluster.api.events().into_iter().find(of_it))
    };
    assert_eq!(noted("checked")["reason"], "FailedToStartServiceHealthcheck");
    assert_eq!(noted("zzz")["action"], "Listen");
    drop(holder);
    cluster.wait_for(&format!("192.168.50.2:{PORT}"), 200, 2);
    let log = daemon.terminate(SOON).stderr;
    assert_eq!(log.matches(closed).count(), 1, "{log}");
    assert_eq!(log.matches(contested).count(), 1, "{log}");
    // The start is the third.
    assert_eq!(cluster.api.events().len(), 3, "{:#?}", cluster.api.events());
}

#[test]
fn a_low_soft_limit_of_open_files_keeps_no_port_closed() {
    let cluster = Cluster::new();
    cluster.add_services(80);
    let mut daemon = cluster.daemon_within("-Sn 64");
    daemon.wait_for_line("started", SOON);
    eventually("80 ports are open", SOON, || (cluster.answering(80) == 80).then_some(()));
    let log = daemon.terminate(SOON).stderr;
    assert!(!log.contains("spec.healthCheckNodePort"), "{log}");
}

/// The Node object has one address, so each port has one socket.
#[test]
fn a_low_hard_limit_of_open_files_closes_health_check_ports_and_stops_nothing_else() {
    let cluster = Cluster::new();
    cluster.add_services(40);
    let mut daemon = cluster.daemon_within("-n 64");
    let closed = "cannot be opened on this node, tried again: the limit of 64 open files allows 12 \
                  such sockets";
    let lines = |daemon: &Process| daemon.output().matches(closed).count();
    // `checked` and 11 of the others are the first.
    eventually("29 ports stay closed", SOON, || (lines(&daemon) == 29).then_some(()));
    let node = format!("192.168.50.2:{PORT}");
    cluster.wait_for(&node, 200, 2);
    assert_eq!(cluster.answering(40), 11);

    let idle = [HEALTH, METRICS, &node].map(|it| idle_connections(&cluster.balancer, it, 100));
    let health = cluster.ask_here(HEALTH, "/healthz").unwrap();
    assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
    let metrics = cluster.ask_here(METRICS, "/metrics").unwrap();
    let counted = "deltaproxy_problems_total{kind=\"closed_port\"} 29\n";
    assert!(metrics.contains(counted), "{metrics}");
    cluster.api.push(endpoints("default/checked", 3));
    cluster.wait_for(&node, 200, 3);
    drop(idle);

    // New connections to the API server; its watches find what changed meanwhile.
    cluster.api.stop();
    cluster.api.delete(Kind::Service, "default/many-000");
    cluster.api.reopen();
    let opened = || (cluster.answering(40) == 11).then_some(());
    cluster.wait_until_closed(&format!("192.168.50.2:{FIRST}"));
    eventually("another port takes the place", SOON, opened);
    assert!(daemon.is_running());
    assert_eq!(lines(&daemon), 29, "{}", daemon.output());
}
