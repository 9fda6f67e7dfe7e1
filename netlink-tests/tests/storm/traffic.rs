//! The connections of a storm: new ones without a pause, and some that stay open.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use netlink_tests::{Answer, Connection, Flow, Host, NODE_IP, PATIENCE};
use socket2::{Domain, Protocol, Socket, Type};

use super::clock::Clock;
use super::cluster::{Endpoints, Random, SERVICES, frontend};

/// A first segment without answer is sent again after a second (RFC 6298), which would hide that
/// one was lost.
const NOT_SENT_AGAIN: Duration = Duration::from_millis(900);

/// Failures of one client after which it ends.
const MOST_FAILURES: usize = 50;

/// Time between two questions of a connection that stays open.
const PAUSE: Duration = Duration::from_millis(100);

/// The results of the clients.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// New connections that ended well.
    pub(crate) connections: AtomicUsize,
    /// Nanoseconds of the longest.
    pub(crate) longest: AtomicU64,
    /// Answers on connections that stay open.
    pub(crate) kept: AtomicUsize,
    pub(crate) failures: Mutex<Vec<Failure>>,
}

/// A connection that failed or reached a wrong endpoint.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Nanoseconds on the storm's clock.
    pub(crate) start: u64,
    pub(crate) what: String,
}

impl Seen {
    pub(crate) fn fail(&self, start: u64, what: String) {
        self.failures.lock().unwrap().push(Failure { start, what });
    }
}

/// Answers each connection with the address that it came to.
pub(crate) fn serve(listener: &TcpListener, ended: &AtomicBool) {
    while !ended.load(SeqCst) {
        let Ok((mut stream, _)) = listener.accept() else { continue };
        // A client that closed the connection has its answer.
        if let Ok(SocketAddr::V4(here)) = stream.local_addr() {
            let _ = stream.write_all(&here.ip().octets());
        }
    }
}

/// Ends a thread that accepts connections.
pub(crate) fn wake(server: &Host, port: u16) {
    let _ = server.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
}

/// A client that opens connections.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    pub(crate) name: &'static str,
    pub(crate) seed: u64,
    pub(crate) clock: &'a Clock,
    pub(crate) endpoints: &'a Endpoints,
    pub(crate) seen: &'a Seen,
}

impl Client<'_> {
    /// Opens connections to all services, one after the other, until `ended`.
    pub(crate) fn run(&self, ended: &AtomicBool) {
        let mut random = Random(self.seed);
        let mut failures = 0;
        while !ended.load(SeqCst) && failures < MOST_FAILURES {
            let service = random.below(SERVICES);
            let start = self.clock.nanoseconds();
            let to = frontend(service);
            let answer = connect(to).map_err(|error| format!("s{service} at {to}: {error}"));
            let took = self.clock.nanoseconds() - start;
            match answer.and_then(|from| self.endpoints.check(service, from, start)) {
                Ok(()) => {
                    self.seen.connections.fetch_add(1, SeqCst);
                    self.seen.longest.fetch_max(took, SeqCst);
                }
                Err(what) => {
                    failures += 1;
                    let at = self.clock.elapsed();
                    let what = format!("{} until {at:?}: {what} ({took} ns)", self.name);
                    self.seen.fail(start, what);
                }
            }
        }
    }
}

/// Connects and reads the name of the server.
fn connect(to: SocketAddrV4) -> io::Result<Ipv4Addr> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // A reset at the end leaves no TIME_WAIT.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.connect_timeout(&SocketAddr::from(to).into(), NOT_SENT_AGAIN)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut octets = [0; 4];
    stream.read_exact(&mut octets)?;
    Ok(octets.into())
}

/// The addresses of the services whose connections stay open.
pub(crate) const KEPT_IP: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
pub(crate) const KEPT_AFFINITY_IP: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);
pub(crate) const KEPT_VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub(crate) const KEPT_NODE_PORT: u16 = 31_000;

/// Connections that stay open through the whole storm.
#[derive(Debug)]
pub(crate) struct Kept {
    tcp: Vec<(SocketAddrV4, Connection)>,
    udp: Vec<(SocketAddrV4, Flow)>,
}

impl Kept {
    /// Opens them from both hosts to all kinds of addresses.
    pub(crate) fn open(hosts: [&Host; 2]) -> Self {
        let to = [(KEPT_IP, 80), (KEPT_AFFINITY_IP, 80), (KEPT_VIP, 80), (NODE_IP, KEPT_NODE_PORT)];
        let to = to.map(|(ip, port)| SocketAddrV4::new(ip, port));
        let ways = || hosts.into_iter().flat_map(|host| to.map(|to| (host, to)));
        let tcp = ways().map(|(host, to)| (to, host.open_tcp(to).unwrap())).collect();
        let udp = ways().map(|(host, to)| (to, host.open_udp(to))).collect();
        Self { tcp, udp }
    }

    pub(crate) fn count(&self) -> usize {
        self.tcp.len() + self.udp.len()
    }

    /// Asks each again and again until `ended`. All were opened to the server `name`.
    pub(crate) fn ask(mut self, name: &str, seen: &Seen, clock: &Clock, ended: &AtomicBool) {
        let answers =
            |answer: &Answer| matches!(answer, Answer::From { server, .. } if server == name);
        let mut is_whole = true;
        while is_whole && !ended.load(SeqCst) {
            let start = clock.nanoseconds();
            let tcp = self.tcp.iter_mut().map(|(to, it)| ("TCP", *to, it.ask()));
            let udp = self.udp.iter_mut().map(|(to, it)| ("UDP", *to, it.ask()));
            for (protocol, to, answer) in tcp.chain(udp) {
                if answers(&answer) {
                    _ = seen.kept.fetch_add(1, SeqCst)
                } else {
                    is_whole = false;
                    seen.fail(start, format!("open {protocol} to {to}: {answer:?}"));
                }
            }
            thread::sleep(PAUSE);
        }
    }
}
