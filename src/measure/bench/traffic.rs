//! Packets of UDP flows, through services and without one, in one or more namespaces.
//!
//! Most datagrams have a new source address, so each is the first packet of a flow: it passes the
//! tables and creates a conntrack entry. Some flows are established: they were answered once, and
//! the same packets are sent again in each turn. One socket, bound to every address, serves all endpoints.
//! On the loopback device, sending a packet includes receiving it, so the system call takes the
//! time of the packet's whole path. A socket stays in the network namespace where it was opened, so
//! one thread sends through the tables of several namespaces.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hdrhistogram::Histogram;
use nix::libc::{in_addr, in_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
    sockopt,
};

use super::cluster::Cluster;
use super::loopback::FIRST_CLIENT;
use super::pace::Pace;
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
    /// Flows of each kind that were answered: without a service, and through services.
    established: [Vec<Flow>; 2],
}

/// Source and destination of a flow; the source port is that of the client's socket.
#[derive(Clone, Copy, Debug)]
struct Flow {
    source: Ipv4Addr,
    to: SocketAddrV4,
}

/// Results of sending.
#[derive(Debug)]
pub(super) struct Sent {
    /// Nanoseconds of each packet that was sent.
    took: Histogram<u64>,
    /// Nanoseconds of each packet of an established flow.
    established: Histogram<u64>,
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
    for _ in 0..ROUND {
        let to = [direct(cluster, random), service(cluster, random)];
        places.iter_mut().for_each(|place| place.establish(to));
    }
    for round in 0..(room(FLOWS) / ROUND) as usize {
        let without: Vec<_> = (0..ROUND).map(|_| direct(cluster, random)).collect();
        let through: Vec<_> = (0..ROUND).map(|_| service(cluster, random)).collect();
        for turn in (0..turns).map(|turn| (turn + round) % turns) {
            let (place, kind) = (turn / 2, turn % 2);
            let sent = &mut sent[place][kind];
            // If no packet of a whole turn arrived, none will, and each turn would wait for them.
            if round == 0 || sent.arrived > 0 {
                places[place].send_all([&without, &through][kind], sent);
                places[place].send_established(kind, sent);
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
        setsockopt(&server, sockopt::Ipv4PacketInfo, &true)?;
        let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok(Self { client, server, next_client: FIRST_CLIENT, established: Default::default() })
    }

    /// Sends a first packet to each address and answers it. A flow without an answer is left out.
    fn establish(&mut self, to: [SocketAddrV4; 2]) {
        for (kind, to) in to.into_iter().enumerate() {
            let flow = Flow { source: self.new_client(), to };
            if send_from(&self.client, flow.source, to).0.is_ok() && self.answer().is_some() {
                self.established[kind].push(flow);
            }
        }
    }

    /// Answers the datagram that has arrived, from the address of its endpoint.
    fn answer(&self) -> Option<()> {
        let mut space = nix::cmsg_space!(in_pktinfo);
        let mut payload = [0; 16];
        let mut parts = [IoSliceMut::new(&mut payload)];
        let (server, flags) = (self.server.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let message = recvmsg::<SockaddrIn>(server, &mut parts, Some(&mut space), flags).ok()?;
        let client = message.address?;
        let endpoint = message.cmsgs().ok()?.find_map(|control| {
            let ControlMessageOwned::Ipv4PacketInfo(info) = control else { return None };
            Some(info.ipi_addr)
        })?;
        let endpoint = Ipv4Addr::from(endpoint.s_addr.to_ne_bytes());
        let client = SocketAddrV4::new(client.ip(), client.port());
        send_from(&self.server, endpoint, client).0.ok().map(drop)
    }

    /// Sends a packet along each established flow of a kind.
    fn send_established(&self, kind: usize, sent: &mut Sent) {
        for Flow { source, to } in &self.established[kind] {
            if let (Ok(_), took) = send_from(&self.client, *source, *to) {
                record(&mut sent.established, took);
            }
        }
        self.arrived();
    }

    fn new_client(&mut self) -> Ipv4Addr {
        let client = Ipv4Addr::from(self.next_client);
        self.next_client += 1;
        client
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
        let source = self.new_client();
        let (done, took) = send_from(&self.client, source, to);
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
        let [took, established, turns] = std::array::from_fn(|_| histogram());
        Self { took, established, turns, tried: 0, arrived: 0 }
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
        rows.extend(Row::spread(format!("{what}: established packet"), &self.established));
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

/// Sends a datagram with this source address. Also returns the duration.
fn send_from(
    socket: &UdpSocket,
    source: Ipv4Addr,
    to: SocketAddrV4,
) -> (nix::Result<usize>, Duration) {
    let source = in_addr { s_addr: u32::from_ne_bytes(source.octets()) };
    let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: source };
    let control = [ControlMessage::Ipv4PacketInfo(&info)];
    let (payload, address) = ([IoSlice::new(b"bench")], SockaddrIn::from(to));
    let (socket, none) = (socket.as_raw_fd(), MsgFlags::empty());
    timed(|| sendmsg(socket, &payload, &control, none, Some(&address)))
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
