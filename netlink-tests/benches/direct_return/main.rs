//! What a packet costs with direct return and with translation: at the node where it enters, at the
//! node that serves it, and when it is no packet of such a service.
//!
//! Either way has three nodes on one link, with daemons of the release build, and they take turns.
//! `sendto` of a small UDP datagram includes the packet's whole way to the socket of a pod, or to a
//! gate, a rule that drops it at the ingress of a host. The time of a node is the difference between
//! two such times: to the gate of the next host, and to its own.
//!
//! `SERVICES=1000,50000` chooses the numbers of services, `ROUNDS` how often the ways take turns.
//! Needs nft and root.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netlink_tests::builds::number;
use netlink_tests::cluster::{Cluster, Seen, endpoint, service, slice, web};
use netlink_tests::kernel_memory::settled;
use netlink_tests::scenario::{Family, Object, Protocol, Service, Slice};
use netlink_tests::{Host, eventually};
use serde_json::Value;

use self::rates::Load;

mod rates;

/// Where pods take datagrams, without an answer.
const PORT: u16 = 9000;

/// Flows of each kind, and packets of each flow in a turn. The receive queue of a socket holds some
/// hundred datagrams.
const FLOWS: usize = 8;
const PACKETS: usize = 16;

/// Services with direct return, of all services.
const DIRECT: u32 = 1_000;

/// Connections whose memory is measured, below the default limit.
const CONNECTIONS: u32 = 200_000;

/// Most time until the connections of a start are learned. Each look reads all slots.
const LEARNED: Duration = Duration::from_secs(300);

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let sizes = std::env::var("SERVICES").ok().filter(|sizes| !sizes.is_empty());
    let sizes = sizes.unwrap_or_else(|| "1000,50000".to_owned());
    for size in sizes.split(',') {
        compare(size.parse().unwrap(), number("ROUNDS", 60));
    }
}

fn compare(services: u32, rounds: u32) {
    let ways = ["mode: off", "mode: annotated, remember: 30s"];
    let ways = ways.map(|settings| Way::new(settings, services));
    println!("\n{services} services, {} with direct return\n", services.min(DIRECT));
    println!("| family | packet | translation, ns | direct return, ns | difference, ns |");
    println!("|---|---|---|---|---|");
    for family in Family::ALL {
        let flows = ways.each_ref().map(|way| Flows::open(way, family));
        let turns: Vec<_> = (0..rounds).map(|_| flows.each_ref().map(Flows::turn)).collect();
        for row in ROWS {
            let values =
                turns.iter().map(|turn| [(row.translation)(turn[0]), (row.direct)(turn[1])]);
            let values: Vec<_> = values.collect();
            let [translation, direct, difference] = [
                median(values.iter().map(|it| it[0]).collect()),
                median(values.iter().map(|it| it[1]).collect()),
                median(values.iter().map(|it| it[1] - it[0]).collect()),
            ];
            let (family, packet) = (family.name(), row.packet);
            println!("| {family} | {packet} | {translation:.0} | {direct:.0} | {difference:+.0} |");
        }
    }
    print_rates(&ways, rounds);
    let [translation, direct] = ways.each_ref().map(Way::tracked);
    println!("\nThe nodes that track a connection: {translation}; with direct return: {direct}.");
    ways[1].print_memory();
}

fn print_rates(ways: &[Way; 2], rounds: u32) {
    println!("\n| family | packets a second | translation | direct return | ratio |");
    println!("|---|---|---|---|---|");
    for family in Family::ALL {
        let flows = ways.each_ref().map(|way| Flows::open(way, family));
        for load in Load::ALL {
            let turns: Vec<_> =
                (0..rounds).map(|_| flows.each_ref().map(|flows| flows.rate(load))).collect();
            let [translation, direct, ratio] = [
                median(turns.iter().map(|it| it[0]).collect()),
                median(turns.iter().map(|it| it[1]).collect()),
                median(turns.iter().map(|it| it[1] / it[0]).collect()),
            ];
            let (family, load) = (family.name(), load.name());
            println!("| {family} | {load} | {translation:.0} | {direct:.0} | {ratio:.2} |");
        }
    }
}

/// The kinds of packets and how far they come.
const STEPS: [(Packet, Option<Gate>); 8] = [
    (Packet::Request, Some(Gate::Entry)),
    (Packet::Request, Some(Gate::Serving)),
    (Packet::Request, None),
    (Packet::Answer, Some(Gate::Entry)),
    (Packet::Answer, Some(Gate::Router)),
    (Packet::Answer, None),
    (Packet::Here, None),
    (Packet::Other, None),
];

/// Medians of a turn, by step.
type Turn = [f64; STEPS.len()];

struct Row {
    packet: &'static str,
    translation: fn(Turn) -> f64,
    direct: fn(Turn) -> f64,
}

const ROWS: [Row; 6] = [
    Row { packet: "request, entry", translation: |it| it[1] - it[0], direct: |it| it[1] - it[0] },
    Row {
        packet: "request, serving node",
        translation: |it| it[2] - it[1],
        direct: |it| it[2] - it[1],
    },
    // With direct return it does not come to the entry.
    Row { packet: "answer, entry", translation: |it| it[4] - it[3], direct: |_| 0.0 },
    Row {
        packet: "request and answer, whole way",
        translation: |it| it[2] + it[5],
        direct: |it| it[2] + it[5],
    },
    Row {
        packet: "request that the entry serves, whole way",
        translation: |it| it[6],
        direct: |it| it[6],
    },
    Row { packet: "packet to a pod, whole way", translation: |it| it[7], direct: |it| it[7] },
];

#[derive(Clone, Copy, Debug)]
enum Packet {
    /// To a service, served by a node other than the entry.
    Request,
    /// From that node.
    Answer,
    /// To a service, served by the entry.
    Here,
    /// To a pod of the entry, without a service.
    Other,
}

/// Where a packet is dropped.
#[derive(Clone, Copy, Debug)]
enum Gate {
    Entry,
    Serving,
    Router,
}

/// Drops UDP at the ingress. The table direct-return has priority 0.
fn closed(priority: i32) -> String {
    format!(
        "table netdev gate {{
            chain gate {{
                type filter hook ingress device eth0 priority {priority};
                meta l4proto udp drop
            }}
        }}"
    )
}

/// The nodes with one setting.
struct Way {
    cluster: Cluster,
    /// Of the first pod of each node.
    servers: [UdpSocket; 3],
}

impl Way {
    fn new(settings: &str, services: u32) -> Self {
        let mut cluster = Cluster::without_daemons(settings);
        cluster.apply("others", &Others(services));
        cluster.apply("web", &web());
        cluster.apply("slice", &slice("a1 b1 c1").target(80, PORT));
        (0..3).for_each(|place| cluster.start(place));
        if settings != "mode: off" {
            eventually("slots of all nodes", LEARNED, || {
                let knows_all = |place| cluster.slots(place, Family::Ipv6).len() == 3;
                (0..3).all(knows_all).then_some(())
            });
        }
        let servers = [0, 1, 2].map(|place| {
            let pod = &cluster.link.pods(place)[0];
            let socket = pod.run(|| UdpSocket::bind(("::", PORT)).unwrap());
            socket.set_nonblocking(true).unwrap();
            socket
        });
        Self { cluster, servers }
    }

    fn client(&self, family: Family) -> UdpSocket {
        let address = self.cluster.next_client(family);
        let client = self.cluster.link.clients().run(|| UdpSocket::bind(address).unwrap());
        client.set_nonblocking(true).unwrap();
        client
    }

    /// Opens flows that the node at `place` serves; returns them with the client that it sees.
    fn flows(&self, family: Family, place: usize) -> Vec<(UdpSocket, SocketAddr)> {
        let mut flows = Vec::new();
        while flows.len() < FLOWS {
            let client = self.client(family);
            client.connect(service(family)).unwrap();
            client.send(b"bench").unwrap();
            if let Ok((_, seen)) = self.servers[place].recv_from(&mut [0; 8]) {
                self.servers[place].send_to(b"bench", seen).unwrap();
                flows.push((client, seen));
            }
            self.drain();
        }
        flows
    }

    /// Forgets the datagrams that wait at the servers.
    fn drain(&self) {
        let received = |socket: &UdpSocket| socket.recv(&mut [0; 8]).is_ok();
        self.servers.iter().for_each(|socket| while received(socket) {});
    }

    /// The letters of the nodes that track a connection which enters at one and ends at another.
    fn tracked(&self) -> String {
        let flows = self.flows(Family::Ipv4, 1);
        let client = flows[0].0.local_addr().unwrap();
        let to = service(Family::Ipv4);
        let seen =
            Seen { client, to, protocol: Protocol::Udp, server: "b1".into(), source: client };
        ["a", "b", "c"]
            .into_iter()
            .zip(0..)
            .filter(|(_, place)| self.cluster.tracks(*place, &seen))
            .map(|(name, _)| name)
            .collect()
    }

    /// Prints what the memory of connections takes, without what else a connection takes: packets
    /// that are not handed on end before the connection tracking.
    fn print_memory(&self) {
        self.cluster.link.node(0).nft_script(&closed(500));
        for place in [1, 2] {
            self.cluster.link.node(place).nft_script(&closed(-500));
        }
        let before = (settled(), self.cluster.remembered(0));
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
        let sources = (0..CONNECTIONS).map(|number| IpAddr::from(Ipv4Addr::from(first + number)));
        self.cluster.link.clients().spoof_udp(sources, service(Family::Ipv4));
        let after = (settled(), self.cluster.remembered(0));
        let bytes: f64 = after.0.iter().zip(before.0).map(|(after, before)| after - before).sum();
        let (bytes, count) = (bytes * f64::from(1 << 20), after.1 - before.1);
        println!("{count} connections more: {:.0} bytes each.", bytes / count as f64);
    }
}

/// The open flows of a way in one family.
struct Flows<'w> {
    way: &'w Way,
    /// To servers on another node than the entry, with the clients that they see.
    there: Vec<(UdpSocket, SocketAddr)>,
    /// To servers of the entry.
    here: Vec<(UdpSocket, SocketAddr)>,
    /// To a pod of the entry.
    other: UdpSocket,
}

impl<'w> Flows<'w> {
    fn open(way: &'w Way, family: Family) -> Self {
        let other = way.client(family);
        let pod = &way.cluster.link.pods(0)[0];
        let address: IpAddr = match family {
            Family::Ipv4 => pod.ip().into(),
            Family::Ipv6 => pod.ip6().into(),
        };
        other.connect((address, PORT)).unwrap();
        Self { way, there: way.flows(family, 1), here: way.flows(family, 0), other }
    }

    fn turn(&self) -> Turn {
        STEPS.map(|(packet, gate)| {
            let host = gate.map(|gate| self.host(gate));
            host.inspect(|host| host.nft_script(&closed(-500)));
            let time = self.send(packet);
            host.inspect(|host| drop(host.nft("delete table netdev gate")));
            self.way.drain();
            time
        })
    }

    fn host(&self, gate: Gate) -> &Host {
        let link = &self.way.cluster.link;
        match gate {
            Gate::Entry => link.node(0),
            Gate::Serving => link.node(1),
            Gate::Router => link.router(),
        }
    }

    /// Sends packets of a kind; returns the median of their times, in ns.
    fn send(&self, packet: Packet) -> f64 {
        let one = |flow: usize| -> io::Result<usize> {
            match packet {
                Packet::Request => self.there[flow].0.send(b"bench"),
                Packet::Answer => self.way.servers[1].send_to(b"bench", self.there[flow].1),
                Packet::Here => self.here[flow].0.send(b"bench"),
                Packet::Other => self.other.send(b"bench"),
            }
        };
        let times = (0..PACKETS * FLOWS).map(|number| {
            let start = Instant::now();
            one(number % FLOWS).unwrap();
            start.elapsed().as_nanos() as f64
        });
        median(times.collect())
    }
}

/// Services beside the measured one: cluster IPs, and [`DIRECT`] of them with an address of a load
/// balancer too.
struct Others(u32);

impl Object for Others {
    fn documents(&self) -> Vec<Value> {
        let objects = (1..self.0).flat_map(|number| {
            let name = format!("other-{number}");
            let [_, a, b, c] = number.to_be_bytes();
            let address = format!("10.{}.{b}.{c}", 100 + a);
            let service = Service::new(&name, &address).only(Family::Ipv4).port(80);
            let service = if number < DIRECT {
                let service = service.load_balancer_ip(&format!("198.51.{}.{c}", 101 + b));
                service.annotation("deltaproxy.io/forwarding", "direct")
            } else {
                service
            };
            let slice = Slice::new(&name).only(Family::Ipv4);
            let slice = ["a1", "a2", "b1", "b2", "c1"]
                .into_iter()
                .fold(slice, |slice, name| slice.endpoint(endpoint(name)));
            [service.documents(), slice.documents()].concat()
        });
        objects.collect()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
