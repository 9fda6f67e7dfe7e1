//! First packets of UDP flows, through services and without one, in one or more namespaces.
//!
//! Every datagram has a new source address, so each is the first packet of a flow: it passes the
//! tables and creates a conntrack entry. One socket, bound to every address, serves all endpoints.
//! On the loopback device, sending a packet includes receiving it, so the system call takes the
//! time of the packet's whole path. A socket stays in the network namespace where it was opened, so
//! one thread sends through the tables of several namespaces.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hdrhistogram::Histogram;
use nix::libc::{in_addr, in_pktinfo};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};

use super::cluster::Cluster;
use super::loopback::FIRST_CLIENT;
use super::measure::Pace;
use super::random::Random;
use crate::figures::{Row, Unit, histogram, record, timed};

/// Port of every endpoint.
const ENDPOINT_PORT: u16 = 8080;

/// Port of every service.
const SERVICE_PORT: u16 = 80;

/// Datagrams between two reads of the server's queue, which holds some hundred.
const ROUND: u32 = 64;

/// Flows of each kind that are measured without changes.
const FLOWS: u32 = 20_000;

/// Flows per second while the cluster changes.
const RATE: u32 = 2_000;

/// Longest time to wait for datagrams when they are counted.
const ON_ITS_WAY: Duration = Duration::from_millis(50);

/// Sends first packets and counts those that arrive.
#[derive(Debug)]
pub(super) struct Flows {
    client: UdpSocket,
    server: UdpSocket,
    next_client: u32,
}

/// Results of sending.
#[derive(Debug)]
pub(super) struct Sent {
    /// Nanoseconds of each packet that was sent.
    took: Histogram<u64>,
    /// Nanoseconds of all packets of a turn; empty without turns.
    turns: Histogram<u64>,
    /// Number of tried packets.
    tried: u32,
    /// Number of packets that arrived.
    arrived: u32,
}

/// Sends the same flows in each of `places`: without a service, and through services.
///
/// Kinds and places take turns of [`ROUND`] flows, and the first turn rotates too, so that other
/// load on the machine affects all alike.
pub(super) fn compare(
    places: &mut [Flows],
    cluster: &Cluster,
    random: &mut Random,
) -> Vec<[Sent; 2]> {
    let mut sent: Vec<_> = places.iter().map(|_| [Sent::none(), Sent::none()]).collect();
    let turns = places.len() * 2;
    for round in 0..(room(FLOWS) / ROUND) as usize {
        let without: Vec<_> = (0..ROUND).map(|_| direct(cluster, random)).collect();
        let through: Vec<_> = (0..ROUND).map(|_| service(cluster, random)).collect();
        for turn in (0..turns).map(|turn| (turn + round) % turns) {
            let (place, kind) = (turn / 2, turn % 2);
            let sent = &mut sent[place][kind];
            // If no packet of a whole turn arrived, none will, and each turn would wait for them.
            if round == 0 || sent.arrived > 0 {
                places[place].send_all([&without, &through][kind], sent);
            }
        }
    }
    sent
}

impl Flows {
    /// Opens the sockets in the namespace of this thread.
    ///
    /// # Errors
    /// Errors of the sockets.
    pub(super) fn open() -> io::Result<Self> {
        let server = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ENDPOINT_PORT))?;
        server.set_nonblocking(true)?;
        let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok(Self { client, server, next_client: FIRST_CLIENT })
    }

    /// Sends a flow to each address and waits for the arrivals of this turn.
    fn send_all(&mut self, to: &[SocketAddrV4], sent: &mut Sent) {
        let tried = sent.tried;
        let took = to.iter().map(|address| self.send(*address, sent)).sum();
        record(&mut sent.turns, took);
        sent.arrived += self.wait_for(sent.tried - tried);
    }

    /// Sends the first packet of a new flow. Returns the duration.
    fn send(&mut self, to: SocketAddrV4, sent: &mut Sent) -> Duration {
        let from = Ipv4Addr::from(self.next_client);
        self.next_client += 1;
        let source = in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
        let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: source };
        let control = [ControlMessage::Ipv4PacketInfo(&info)];
        let (payload, address) = ([IoSlice::new(b"bench")], SockaddrIn::from(to));
        let client = self.client.as_raw_fd();
        let none = MsgFlags::empty();
        let (done, took) = timed(|| sendmsg(client, &payload, &control, none, Some(&address)));
        sent.tried += 1;
        if done.is_ok() {
            record(&mut sent.took, took);
        }
        took
    }

    /// Returns the number of datagrams that have arrived.
    fn arrived(&self) -> u32 {
        let mut buffer = [0; 16];
        let mut count = 0;
        loop {
            match self.server.recv(&mut buffer) {
                Ok(_) => count += 1,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // WouldBlock: the queue is empty. An ICMP error belongs to no datagram that
                // arrived.
                Err(_) => return count,
            }
        }
    }

    /// Waits for `expected` datagrams. Returns the number that arrived.
    fn wait_for(&self, expected: u32) -> u32 {
        let count = self.arrived();
        if count >= expected {
            return count;
        }
        thread::sleep(ON_ITS_WAY);
        count + self.arrived()
    }
}

impl Sent {
    fn none() -> Self {
        Self { took: histogram(), turns: histogram(), tried: 0, arrived: 0 }
    }

    /// Returns the flows per second of the median turn. A mean over all packets would be dominated
    /// by the few that lost the processor for milliseconds.
    fn rate(&self) -> f64 {
        let turn = Duration::from_nanos(self.turns.value_at_quantile(0.5)).as_secs_f64();
        match (self.turns.is_empty(), self.took.is_empty()) {
            (false, _) => f64::from(ROUND) / turn,
            (true, false) => 1e9 / self.took.mean(),
            (true, true) => 0.0,
        }
    }

    /// Returns rows about these flows.
    pub(super) fn rows(&self, what: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        let rate = self.rate();
        if rate > 0.0 {
            rows.push(Row::single(format!("{what}: flows"), Unit::PerSecond, rate.round()));
        }
        rows.extend(Row::spread(format!("{what}: first packet"), &self.took));
        let failed = self.tried.saturating_sub(self.arrived);
        rows.push(Row::count(format!("{what}: tried"), self.tried as usize));
        rows.push(Row::count(format!("{what}: failed"), failed as usize));
        rows
    }
}

/// Sender of flows through services, on a thread of its own.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Sent>,
}

impl Background {
    /// Starts sending.
    pub(super) fn start(mut flows: Flows, cluster: Cluster, mut random: Random) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut sent = Sent::none();
            // Each conntrack entry lives for half a minute.
            let mut pace = Pace::new(RATE.min(room(u32::MAX) / 30));
            while !stopped.load(Ordering::Relaxed) {
                pace.wait();
                let _ = flows.send(service(&cluster, &mut random), &mut sent);
                sent.arrived += flows.arrived();
            }
            let missing = sent.tried.saturating_sub(sent.arrived);
            sent.arrived += flows.wait_for(missing);
            sent
        });
        Self { stop, thread }
    }

    /// Stops sending, and returns the results.
    pub(super) fn end(self) -> Sent {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Returns any service with traffic.
fn service(cluster: &Cluster, random: &mut Random) -> SocketAddrV4 {
    let service = Cluster::traffic_service(random.below(cluster.traffic_services()));
    SocketAddrV4::new(Cluster::cluster_ip(service), SERVICE_PORT)
}

/// Returns any endpoint.
fn direct(cluster: &Cluster, random: &mut Random) -> SocketAddrV4 {
    let endpoint = random.below(cluster.endpoints());
    SocketAddrV4::new(Cluster::endpoint_address(endpoint), ENDPOINT_PORT)
}

/// Limits the number of flows to a quarter of conntrack's maximum.
fn room(flows: u32) -> u32 {
    let most = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max");
    let most = most.ok().and_then(|text| text.trim().parse().ok());
    flows.min(most.unwrap_or(65_536) / 4).max(ROUND)
}
