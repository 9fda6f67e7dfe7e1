//! Compares two builds of deltaproxy, or one build with other flags: first packets of UDP flows, and
//! kernel memory of the tables.
//!
//! `BEFORE` and `AFTER` name the binaries, `AFTER` is `target/release/deltaproxy` by default;
//! `BEFORE_FLAGS` and `AFTER_FLAGS` are more flags, such as `--counters=services`. Each applies the
//! same manifests in a network namespace of its own. `SERVICES` is the number of services,
//! `ENDPOINTS` that of each of them, `ROUNDS` the number of flows of each kind, `LOADS` how often
//! memory is measured.
//!
//! Packets are sent by a raw socket in a namespace of its own, over a veth pair, and come to the
//! node's hook `prerouting` as those of pods and other hosts do. Service addresses and endpoints are
//! on the node's loopback device, so `sendto` includes the packet's whole way to the endpoint's
//! socket, and only `sendto` is timed. Established flows are forwarded to endpoints on another host,
//! whose socket has answered once.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::object::service_cidr;
use netlink_tests::builds::{absolute, number};
use netlink_tests::kernel_memory::settled;
use netlink_tests::{Host, NODE_IP, Net};
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

const NODE: &str = "node1";

/// Endpoints of each service.
static ENDPOINTS: LazyLock<u32> = LazyLock::new(|| number("ENDPOINTS", 5));

const ENDPOINT_PORT: u16 = 8080;
const SERVICE_PORT: u16 = 80;
const FIRST_NODE_PORT: u16 = 20_000;

/// One in so many services is of each kind that is not a plain cluster IP.
const KIND_EACH: u32 = 10;

/// Flows of one turn. The receive queue of a socket holds some hundred datagrams.
const TURN: u32 = 16;

/// Ranges on the loopback: cluster IPs and endpoints.
const LOCAL_RANGES: [(Ipv4Addr, u8); 2] =
    [(Ipv4Addr::new(10, 96, 0, 1), 11), (Ipv4Addr::new(11, 0, 0, 1), 9)];

const FIRST_CLUSTER_IP: u32 = 0x0a60_0001;
const FIRST_ENDPOINT: u32 = 0x0b00_0001;
/// 14.0.0.1, on another host.
const FIRST_REMOTE: u32 = 0x0e00_0001;
/// All of its addresses are local there.
const REMOTE_RANGES: [(Ipv4Addr, u8); 1] = [(Ipv4Addr::new(14, 0, 0, 1), 8)];

/// Pods' addresses are 11.0.0.0/8; endpoints are in the lower half, clients in the upper one.
const FIRST_POD_CLIENT: u32 = 0x0b80_0001;
const FIRST_OUTSIDE_CLIENT: u32 = 0x0c00_0001;

/// Source port of the first flow of a client, and of its second.
const CLIENT_PORTS: [u16; 2] = [40_000, 40_001];

/// Time limit of one `apply` or `cleanup`.
const LIMIT: Duration = Duration::from_secs(300);

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let services = number("SERVICES", 1_000).max(KIND_EACH);
    let rounds = number("ROUNDS", 5_000);
    let before = std::env::var_os("BEFORE").unwrap_or_else(|| panic!("BEFORE=binary is missing"));
    let after = std::env::var_os("AFTER").unwrap_or_else(|| "target/release/deltaproxy".into());
    let flags = |name| std::env::var(name).unwrap_or_default();
    let builds = [(before, flags("BEFORE_FLAGS")), (after, flags("AFTER_FLAGS"))];
    let builds = builds.map(|(path, flags)| Build { path: absolute(Path::new(&path)), flags });
    let folder = tempfile::tempdir().unwrap();
    compare_packets(&builds, &folder.path().join("udp.json"), services, rounds);
    println!();
    compare_memory(&builds, folder.path(), services, number("LOADS", 3));
}

/// The value of a variable.
/// A binary, and the flags of `apply` beside those of every build, separated by spaces.
struct Build {
    path: PathBuf,
    flags: String,
}

// Packets.

#[derive(Clone, Copy, Debug)]
enum Kind {
    NoService,
    ClusterIp,
    NodePortCluster,
    NodePortLocal,
    NewClient,
    KnownClient,
    Rejected,
    Dropped,
    EstablishedNoService,
    Established,
}

const KINDS: [Kind; 10] = [
    Kind::NoService,
    Kind::ClusterIp,
    Kind::NodePortCluster,
    Kind::NodePortLocal,
    Kind::NewClient,
    Kind::KnownClient,
    Kind::Rejected,
    Kind::Dropped,
    Kind::EstablishedNoService,
    Kind::Established,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::NoService => "no service",
            Self::ClusterIp => "cluster IP",
            Self::NodePortCluster => "node port, policy Cluster",
            Self::NodePortLocal => "node port, policy Local",
            Self::NewClient => "cluster IP with affinity, new client",
            Self::KnownClient => "cluster IP with affinity, known client",
            Self::Rejected => "cluster IP without endpoints",
            Self::Dropped => "node port, policy Local, endpoints elsewhere",
            Self::EstablishedNoService => "established and forwarded, no service",
            Self::Established => "established and forwarded, cluster IP",
        }
    }

    /// Returns whether the rules let no packet through.
    fn is_refused(self) -> bool {
        matches!(self, Self::Rejected | Self::Dropped)
    }

    /// Returns whether every turn sends along the flows of the first one.
    fn is_established(self) -> bool {
        matches!(self, Self::EstablishedNoService | Self::Established)
    }

    /// The client of flow `flow` and its destination.
    fn flow(self, flow: u32, services: u32) -> (SocketAddrV4, SocketAddrV4) {
        let service = |number| service_of(number, flow, services);
        let to_cluster_ip = |kind| SocketAddrV4::new(cluster_ip(service(kind)), SERVICE_PORT);
        let to_node_port = |kind| SocketAddrV4::new(NODE_IP, node_port(service(kind)));
        // Each kind that needs clients of its own has a range of 2^20.
        let pod = |range| client(FIRST_POD_CLIENT, range, flow);
        let outside = |range| client(FIRST_OUTSIDE_CLIENT, range, flow);
        match self {
            Self::NoService => {
                (pod(0), SocketAddrV4::new(endpoint(service(PLAIN), 0), ENDPOINT_PORT))
            }
            Self::ClusterIp => (pod(1), to_cluster_ip(PLAIN)),
            Self::NodePortCluster => (outside(0), to_node_port(CLUSTER)),
            Self::NodePortLocal => (outside(1), to_node_port(LOCAL)),
            Self::NewClient => (pod(2), to_cluster_ip(STICKY)),
            Self::KnownClient => {
                let mut client = pod(2);
                client.set_port(CLIENT_PORTS[1]);
                (client, to_cluster_ip(STICKY))
            }
            Self::Rejected => (pod(5), to_cluster_ip(EMPTY)),
            Self::Dropped => (outside(2), to_node_port(ELSEWHERE)),
            Self::EstablishedNoService => {
                (pod(3), SocketAddrV4::new(endpoint(service(REMOTE), 0), ENDPOINT_PORT))
            }
            Self::Established => (pod(4), to_cluster_ip(REMOTE)),
        }
    }
}

/// Of each [`KIND_EACH`] services, those with these numbers; any other is as the plain one.
const PLAIN: u32 = 0;
const CLUSTER: u32 = 1;
const LOCAL: u32 = 2;
const STICKY: u32 = 3;
/// Its endpoints are on another host.
const REMOTE: u32 = 4;
/// It has no endpoints.
const EMPTY: u32 = 5;
/// Its policy is `Local`, and its endpoints are on another host.
const ELSEWHERE: u32 = 6;

fn client(first: u32, range: u32, flow: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(first + (range << 20) + flow), CLIENT_PORTS[0])
}

/// The service of a flow, of those with this number in each [`KIND_EACH`].
fn service_of(number: u32, flow: u32, services: u32) -> u32 {
    // A stride that visits services far from each other.
    let group = flow.wrapping_mul(7_919) % (services / KIND_EACH);
    group * KIND_EACH + number
}

fn endpoint(service: u32, i: u32) -> Ipv4Addr {
    let first = if is_remote(service) { FIRST_REMOTE } else { FIRST_ENDPOINT };
    Ipv4Addr::from(first + service * *ENDPOINTS + i)
}

fn is_remote(service: u32) -> bool {
    matches!(service % KIND_EACH, REMOTE | ELSEWHERE)
}

fn cluster_ip(service: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_CLUSTER_IP + service)
}

/// Each [`KIND_EACH`] services have three node ports.
fn node_port(service: u32) -> u16 {
    let kinds = [CLUSTER, LOCAL, ELSEWHERE];
    let kind = (0..).zip(kinds).find(|(_, kind)| service % KIND_EACH == *kind).unwrap().0;
    FIRST_NODE_PORT + u16::try_from(service / KIND_EACH * 3 + kind).unwrap()
}

fn compare_packets(builds: &[Build; 2], manifests: &Path, services: u32, rounds: u32) {
    let turns = rounds.div_ceil(TURN);
    let most: u32 = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max")
        .map_or(65_536, |text| text.trim().parse().unwrap());
    let flows = turns * TURN * u32::try_from(KINDS.len()).unwrap();
    assert!(flows <= most / 2, "{flows} flows, but nf_conntrack_max is {most}: set ROUNDS lower");
    write_manifests(manifests, services, udp_service);
    let nets = [Net::new(), Net::new()];
    for (net, build) in nets.iter().zip(builds) {
        net.node().run(|| give_addresses(&LOCAL_RANGES));
        apply(net, build, manifests);
    }
    let places = nets.each_ref().map(TestBed::open);
    // Turn 0 is not counted; its new clients are the known ones of turn 1.
    for place in &places {
        for kind in KINDS.into_iter().filter(|kind| kind.is_established()) {
            place.establish(kind, services);
        }
        for kind in KINDS.into_iter().filter(|kind| !matches!(kind, Kind::KnownClient)) {
            let _ = place.turn(kind, 0, services);
        }
    }
    let mut samples = KINDS.map(|_| Samples::default());
    for turn in 1..=turns {
        let pairs = (0..KINDS.len()).map(|i| (i + turn as usize) % KINDS.len());
        for kind in pairs {
            let first = turn as usize % 2;
            for build in [first, 1 - first] {
                let took = places[build].turn(KINDS[kind], turn, services);
                samples[kind].add(build, took);
            }
        }
    }
    println!(
        "| packet, {services} services, {} of each kind | before, ns | after, ns \
         | difference, ns | ratio in pairs of turns |",
        turns * TURN
    );
    println!("|---|---|---|---|---|");
    for (kind, samples) in KINDS.iter().zip(samples) {
        println!("| {} | {} |", kind.name(), samples.row());
    }
}

/// Nanoseconds of one kind of flow, by build.
#[derive(Debug, Default)]
struct Samples {
    flows: [Vec<f64>; 2],
    turns: [Vec<f64>; 2],
}

impl Samples {
    fn add(&mut self, build: usize, took: Vec<f64>) {
        self.flows[build].extend(&took);
        self.turns[build].push(median(took));
    }

    fn row(self) -> String {
        let [before, after] = self.flows.map(median);
        let [firsts, seconds] = self.turns;
        let ratio = median(firsts.iter().zip(seconds).map(|(first, then)| then / first).collect());
        format!("{before:.0} | {after:.0} | {:+.0} | {ratio:.3}", after - before)
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The sockets of a node, of a host that sends to it, and of one behind it.
struct TestBed {
    client: Socket,
    server: UdpSocket,
    remote: UdpSocket,
    remote_host: Host,
    _client_host: Host,
}

impl TestBed {
    fn open(net: &Net) -> Self {
        let server = net.node().run(|| udp_socket(Ipv4Addr::UNSPECIFIED));
        let host = net.outside("bench", "192.168.50.9");
        let remote_host = net.outside("remote", "192.168.50.8");
        net.route_everything_to(&remote_host);
        let remote = remote_host.run(|| {
            give_addresses(&REMOTE_RANGES);
            udp_socket(Ipv4Addr::UNSPECIFIED)
        });
        // IPPROTO_RAW: packets come with their IP header.
        let client = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap();
        Self { client: host.run(client), server, remote, remote_host, _client_host: host }
    }

    /// Sends the flows of turn 0 and an answer to each, so that they are established. Every
    /// endpoint answers; the flow of a service is with one of them.
    fn establish(&self, kind: Kind, services: u32) {
        let _ = self.turn(kind, 0, services);
        for flow in 0..TURN {
            let (client, _) = kind.flow(flow, services);
            let service = service_of(REMOTE, flow, services);
            self.remote_host.run(|| {
                for i in 0..*ENDPOINTS {
                    let answer = udp_socket(endpoint(service, i)).send_to(b"bench", client);
                    assert_eq!(answer.unwrap(), 5);
                }
            });
        }
    }

    /// Sends one turn's flows and checks that all arrive; nanoseconds of each.
    fn turn(&self, kind: Kind, turn: u32, services: u32) -> Vec<f64> {
        // The known clients of a turn are the new ones of the turn before.
        let turn = if kind.is_established() {
            0
        } else {
            turn - u32::from(matches!(kind, Kind::KnownClient))
        };
        let flows = (0..TURN).map(|i| kind.flow(turn * TURN + i, services));
        let took = flows.map(|(from, to)| self.send(from, to)).collect();
        let server = if kind.is_established() { &self.remote } else { &self.server };
        let expected = if kind.is_refused() { 0 } else { TURN };
        assert_eq!(arrived(server), expected, "{kind:?}: datagrams were lost or not refused");
        took
    }

    fn send(&self, from: SocketAddrV4, to: SocketAddrV4) -> f64 {
        let packet = packet(from, to);
        // The address holds no port of its own: a raw socket takes only 0.
        let address = SocketAddrV4::new(*to.ip(), 0).into();
        let start = Instant::now();
        let sent = self.client.send_to(&packet, &address);
        let took = start.elapsed();
        assert_eq!(sent.unwrap(), packet.len());
        took.as_secs_f64() * 1e9
    }
}

fn arrived(server: &UdpSocket) -> u32 {
    let mut count = 0;
    loop {
        match server.recv(&mut [0; 16]) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A socket at the port of endpoints, which others may use too.
fn udp_socket(address: Ipv4Addr) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddrV4::new(address, ENDPOINT_PORT).into()).unwrap();
    socket.into()
}

/// A UDP datagram with its IP header. The kernel writes the length and checksum of that header.
fn packet(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    // Version 4 and 5 words of header; 64 hops; UDP.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    let payload = b"bench";
    let length = 8 + u16::try_from(payload.len()).unwrap();
    // Checksum 0: none.
    for field in [from.port(), to.port(), length, 0] {
        packet.extend(field.to_be_bytes());
    }
    packet.extend(payload);
    packet
}

/// Gives the loopback these ranges.
///
/// An address with a prefix makes its whole range local (`fib_add_ifaddr`).
fn give_addresses(ranges: &[(Ipv4Addr, u8)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        for (address, prefix) in ranges {
            let request = handle.address().add(1, IpAddr::from(*address), *prefix);
            request.execute().await.unwrap();
        }
    });
}

// Memory.

fn compare_memory(builds: &[Build; 2], folder: &Path, services: u32, loads: u32) {
    println!(
        "| kernel memory, {services} services | SUnreclaim, MiB | VmallocUsed, MiB | Percpu, MiB \
         | sum, MiB |"
    );
    println!("|---|---|---|---|---|");
    let kinds: [(&str, &str, Spec); 3] = [
        ("mixed", MIXED, mixed_service),
        ("plain", "cluster IPs alone", plain_service),
        ("empty", "cluster IPs without endpoints", empty_service),
    ];
    for (name, kind, service) in kinds {
        let manifests = folder.join(format!("{name}.json"));
        write_manifests(&manifests, services, service);
        // The first load also fills the kernel's caches, and is not counted.
        let _ = growth(&builds[0], &manifests);
        let mut growths = [Vec::new(), Vec::new()];
        for _ in 0..loads {
            for (growths, build) in growths.iter_mut().zip(builds) {
                growths.push(growth(build, &manifests));
            }
        }
        for (build, growths) in ["before", "after"].iter().zip(&growths) {
            let [slab, vmalloc, percpu] =
                std::array::from_fn(|i| median(growths.iter().map(|growth| growth[i]).collect()));
            let sum: f64 = median(growths.iter().map(|growth| growth.iter().sum()).collect());
            println!("| {kind}: {build} | {slab:.1} | {vmalloc:.1} | {percpu:.1} | {sum:.1} |");
        }
    }
}

const MIXED: &str = "every 3rd with a node port, every 10th with a load balancer's address";

/// MiB by which the lines grow when `build` loads `manifests` into a new namespace.
fn growth(build: &Build, manifests: &Path) -> [f64; 3] {
    let net = Net::new();
    let before = settled();
    apply(&net, build, manifests);
    let after = settled();
    let _ = net.node().spawn(&build.path, &["cleanup"]).finish(LIMIT).ok();
    std::array::from_fn(|i| after[i] - before[i])
}

// Manifests.

/// The spec, and status if any, of a service by its number.
type Spec = fn(u32) -> Value;

fn apply(net: &Net, build: &Build, manifests: &Path) {
    let manifests = format!("--manifests={}", manifests.display());
    let node = format!("--hostname-override={NODE}");
    let arguments = ["apply", &node, "--cluster-cidr=11.0.0.0/8", &manifests];
    let arguments: Vec<_> = arguments.into_iter().chain(build.flags.split_whitespace()).collect();
    let _ = net.node().spawn(&build.path, &arguments).finish(LIMIT).ok();
}

/// Writes a List of the node, the range of cluster IPs, and the services with their slices.
fn write_manifests(path: &Path, services: u32, spec: Spec) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
        "status": {"addresses": [{"type": "InternalIP", "address": NODE_IP}]},
    });
    let cidr = service_cidr("kubernetes", "10.96.0.0/11");
    let mut file = BufWriter::new(File::create(path).unwrap());
    write!(file, r#"{{"apiVersion": "v1", "kind": "List", "items": [{node}, {cidr}"#).unwrap();
    for number in 0..services {
        let (service, slice) = objects(number, spec(number));
        write!(file, ",\n{service},\n{slice}").unwrap();
    }
    write!(file, "]}}").unwrap();
    file.flush().unwrap();
}

/// A Service and its slice, which is empty if the field `endpoints` is 0. Endpoints of UDP are on this node, as policy `Local` needs; those of
/// TCP are elsewhere, as most are in a large cluster.
fn objects(number: u32, mut service: Value) -> (Value, Value) {
    let name = format!("service-{number}");
    let protocol = service["spec"]["ports"][0]["protocol"].clone();
    service["apiVersion"] = json!("v1");
    service["kind"] = json!("Service");
    service["metadata"] = json!({"name": name, "namespace": "bench"});
    service["spec"]["clusterIP"] = json!(cluster_ip(number));
    service["spec"]["clusterIPs"] = json!([cluster_ip(number)]);
    service["spec"]["ipFamilies"] = json!(["IPv4"]);
    let is_here = protocol == "UDP" && !is_remote(number);
    let is_empty = service["endpoints"] == 0 || (protocol == "UDP" && number % KIND_EACH == EMPTY);
    if let Some(fields) = service.as_object_mut() {
        fields.remove("endpoints");
    }
    let endpoints = if is_empty { 0 } else { *ENDPOINTS };
    let node = if is_here { NODE } else { "node2" };
    let endpoint = |i| {
        let address = endpoint(number, i);
        json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}})
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-1"), "namespace": "bench",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "port", "protocol": protocol, "port": ENDPOINT_PORT}],
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
    });
    (service, slice)
}

fn port(protocol: &str, node_port: Option<u16>) -> Value {
    let mut port = json!({
        "name": "port", "protocol": protocol, "port": SERVICE_PORT, "targetPort": ENDPOINT_PORT,
    });
    if let Some(node_port) = node_port {
        port["nodePort"] = json!(node_port);
    }
    port
}

fn udp_service(number: u32) -> Value {
    let on_node = |policy| {
        let ports = [port("UDP", Some(node_port(number)))];
        json!({"spec": {"type": "NodePort", "externalTrafficPolicy": policy, "ports": ports}})
    };
    let ports = [port("UDP", None)];
    match number % KIND_EACH {
        CLUSTER => on_node("Cluster"),
        LOCAL | ELSEWHERE => on_node("Local"),
        STICKY => json!({"spec": {
            "type": "ClusterIP", "ports": ports, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10_800}},
        }}),
        _ => json!({"spec": {"type": "ClusterIP", "ports": ports}}),
    }
}

fn plain_service(_: u32) -> Value {
    json!({"spec": {"type": "ClusterIP", "ports": [port("TCP", None)]}})
}

fn empty_service(number: u32) -> Value {
    let mut service = plain_service(number);
    service["endpoints"] = json!(0);
    service
}

fn mixed_service(number: u32) -> Value {
    let node_port =
        number.is_multiple_of(3).then(|| FIRST_NODE_PORT + u16::try_from(number / 3).unwrap());
    let ports = [port("TCP", node_port)];
    if number.is_multiple_of(10) {
        let address = Ipv4Addr::from(FIRST_BALANCER + number);
        return json!({
            "spec": {
                "type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false,
            },
            "status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}},
        });
    }
    let kind = if node_port.is_some() { "NodePort" } else { "ClusterIP" };
    json!({"spec": {"type": kind, "ports": ports}})
}

/// 198.18.0.1, of a range for benchmarks (RFC 2544).
const FIRST_BALANCER: u32 = 0xc612_0001;
