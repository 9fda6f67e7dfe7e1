//! A host: one namespace with two addresses, from which a test serves, probes and runs programs.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nft::kernel::Release;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Protocol, Type};

use crate::answer::Answer;
use crate::conntrack::{self, Tracked};
use crate::deadline::{PATIENCE, SILENCE};
use crate::link::{self, Route, Setup};
use crate::namespace::Namespace;
use crate::process::{Finished, Process};
use crate::reader::{self, Family, Table};
use crate::serve::Server;
use crate::tcp::Connection;
use crate::udp::Flow;
use crate::{datagram, echo, sctp};

/// A machine in a test. A clone is the same machine.
///
/// Addresses to probe are given as `"10.96.0.1:80"`, `"[fd00::1]:80"`, `(ip, port)` or a
/// [`SocketAddr`].
#[derive(Debug, Clone)]
pub struct Host {
    namespace: Arc<Namespace>,
    ip: Ipv4Addr,
    ip6: Ipv6Addr,
    /// The way to the node; the node itself has none.
    uplink: Option<Uplink>,
    /// The limit of its probes for an answer.
    limit: Duration,
}

/// The node's interface that leads to a host.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    pub(crate) node: Arc<Namespace>,
    pub(crate) index: u32,
}

impl Host {
    pub(crate) fn new(
        namespace: Namespace,
        (ip, ip6): (Ipv4Addr, Ipv6Addr),
        uplink: Option<Uplink>,
    ) -> Self {
        Self { namespace: Arc::new(namespace), ip, ip6, uplink, limit: PATIENCE }
    }

    pub(crate) fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// The number of the node's interface that leads here; none leads to the node.
    pub fn link_index(&self) -> Option<u32> {
        self.uplink.as_ref().map(|uplink| uplink.index)
    }

    /// Its IPv4 address.
    #[must_use]
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Its IPv6 address.
    #[must_use]
    pub fn ip6(&self) -> Ipv6Addr {
        self.ip6
    }

    /// Runs `work` on a thread in this host's namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work)
    }

    /// Writes a sysctl of this host; `name` as under `/proc/sys/net`.
    #[track_caller]
    pub fn sysctl(&self, name: &str, value: &str) {
        self.namespace.sysctl(name, value);
    }

    /// Gives the host one more address, for example to be another client; the node gets a route.
    pub fn add_address(&self, address: impl Into<IpAddr>) {
        let address = address.into();
        let own = Setup { addresses: vec![address], ..Setup::default() };
        match &self.uplink {
            Some(Uplink { node, index }) => {
                link::configure(&self.namespace, link::ETH0, &own);
                let [_, far] = link::hardware_addresses(*index);
                let routes = vec![Route::OnLink(address, far)];
                link::configure(node, *index, &Setup { routes, ..Setup::default() });
            }
            None => link::configure(&self.namespace, link::LOOPBACK, &own),
        }
        echo::wait_for(&self.namespace, address);
    }

    /// Gives the node very many addresses at once.
    ///
    /// # Panics
    /// When this is not the node.
    #[track_caller]
    pub fn add_addresses(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        assert!(self.uplink.is_none(), "the hosts' addresses need routes");
        let addresses: Vec<_> = addresses.into_iter().collect();
        // The kernel is ready for the last after the others.
        let last = addresses.last().copied();
        link::configure(&self.namespace, link::LOOPBACK, &Setup { addresses, ..Setup::default() });
        if let Some(last) = last {
            echo::wait_for(&self.namespace, last);
        }
    }

    /// Makes all addresses of a range this host's own, at once.
    pub fn add_range(&self, first: impl Into<IpAddr>, prefix: u8) {
        link::add_range(&self.namespace, first.into(), prefix);
    }

    /// Takes an address away that was added to the node.
    ///
    /// # Panics
    /// When this is not the node.
    pub fn remove_address(&self, address: impl Into<IpAddr>) {
        assert!(self.uplink.is_none(), "only the node's addresses can be removed");
        let address = address.into();
        let prefix = link::host_prefix(address);
        link::remove_address(&self.namespace, link::LOOPBACK, (address, prefix));
    }

    /// Takes 127.0.0.0/8 away, so that packets to there leave like all others, and answers arrive.
    pub fn give_up_loopback(&self) {
        let address = (Ipv4Addr::LOCALHOST.into(), 8);
        link::remove_address(&self.namespace, link::LOOPBACK, address);
        self.sysctl("ipv4/conf/all/route_localnet", "1");
    }

    /// Sends a datagram to `to` from each of `sources`, which are no addresses of this host. Answers
    /// do not arrive.
    ///
    /// # Panics
    /// When one cannot be sent.
    #[track_caller]
    pub fn spoof_udp(&self, sources: impl Iterator<Item = IpAddr> + Send, to: SocketAddr) {
        self.namespace.sysctl("ipv6/ip_nonlocal_bind", "1");
        self.run(|| {
            let [v4, v6] = datagram::open_both(Type::DGRAM, Protocol::UDP, 0);
            setsockopt(&v4, sockopt::IpTransparent, &true).expect("CAP_NET_ADMIN");
            let socket = if to.is_ipv4() { &v4 } else { &v6 };
            for source in sources {
                datagram::send(socket.as_fd(), source, to, b"spoofed").expect("it can be sent");
            }
        });
    }

    // Servers.

    /// Serves TCP on `port` of every address.
    #[track_caller]
    pub fn serve_tcp(&self, port: u16, name: &str) -> Server {
        let listener = self.run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)));
        let listener = listener.unwrap_or_else(|error| panic!("cannot serve TCP {port}: {error}"));
        Server::tcp(listener, name)
    }

    /// Serves UDP on `port` of every address.
    pub fn serve_udp(&self, port: u16, name: &str) -> Server {
        let name = name.to_owned();
        let sockets = self.run(|| datagram::open_both(Type::DGRAM, Protocol::UDP, port));
        Server::datagrams(sockets, move |question| {
            Some(Answer::text(&name, question.from).into_bytes())
        })
    }

    /// Answers SCTP INITs to `port` of every address. The answer to a packet with a wrong checksum
    /// is silence.
    pub fn serve_sctp(&self, port: u16, name: &str) -> Server {
        self.run(|| sctp::serve(port, name))
    }

    // Probes.

    /// The same host, whose probes wait for [`SILENCE`] instead of [`PATIENCE`]: for tests that
    /// expect silence, or repeat the probe.
    #[must_use]
    pub fn hasty(&self) -> Self {
        Self { limit: SILENCE, ..self.clone() }
    }

    fn prober(&self) -> (&Namespace, Duration) {
        (&self.namespace, self.limit)
    }

    /// Connects, hears the answer and disconnects.
    #[track_caller]
    pub fn connect_tcp(&self, to: impl ToSocketAddrs) -> Answer {
        self.open_tcp(to).map_or_else(|answer| answer, |connection| connection.first().clone())
    }

    /// As [`Self::connect_tcp`], from a chosen address and port (0: any port).
    #[track_caller]
    pub fn connect_tcp_from(&self, source: impl ToSocketAddrs, to: impl ToSocketAddrs) -> Answer {
        Connection::open(self.prober(), Some(address(&source)), address(&to))
            .map_or_else(|answer| answer, |connection| connection.first().clone())
    }

    /// Connects and stays connected.
    ///
    /// # Errors
    /// The outcome without a connection.
    #[track_caller]
    pub fn open_tcp(&self, to: impl ToSocketAddrs) -> Result<Connection, Answer> {
        Connection::open(self.prober(), None, address(&to))
    }

    /// As [`Self::open_tcp`], from a chosen address and port (0: any port).
    ///
    /// # Errors
    /// The outcome without a connection.
    #[track_caller]
    pub fn open_tcp_from(
        &self,
        source: impl ToSocketAddrs,
        to: impl ToSocketAddrs,
    ) -> Result<Connection, Answer> {
        Connection::open(self.prober(), Some(address(&source)), address(&to))
    }

    /// Sends one datagram and hears the answer.
    #[track_caller]
    pub fn send_udp(&self, to: impl ToSocketAddrs) -> Answer {
        Flow::open(self.prober(), None, address(&to)).ask()
    }

    /// As [`Self::send_udp`], from a chosen address and port (0: any port).
    #[track_caller]
    pub fn send_udp_from(&self, source: impl ToSocketAddrs, to: impl ToSocketAddrs) -> Answer {
        Flow::open(self.prober(), Some(address(&source)), address(&to)).ask()
    }

    /// A UDP flow that keeps its source port.
    #[must_use]
    #[track_caller]
    pub fn open_udp(&self, to: impl ToSocketAddrs) -> Flow {
        Flow::open(self.prober(), None, address(&to))
    }

    /// As [`Self::open_udp`], from a chosen address and port (0: any port).
    #[must_use]
    #[track_caller]
    pub fn open_udp_from(&self, source: impl ToSocketAddrs, to: impl ToSocketAddrs) -> Flow {
        Flow::open(self.prober(), Some(address(&source)), address(&to))
    }

    /// Sends an SCTP INIT and hears the answer.
    #[must_use]
    #[track_caller]
    pub fn send_sctp(&self, to: impl ToSocketAddrs) -> Answer {
        sctp::probe(self.prober(), None, address(&to))
    }

    /// As [`Self::send_sctp`], from a chosen port.
    #[must_use]
    #[track_caller]
    pub fn send_sctp_from(&self, source_port: u16, to: impl ToSocketAddrs) -> Answer {
        sctp::probe(self.prober(), Some(source_port), address(&to))
    }

    /// Sends an ICMP echo request.
    #[must_use]
    #[track_caller]
    pub fn icmp_echo(&self, to: impl Into<IpAddr>) -> Answer {
        echo::echo(self.prober(), to.into())
    }

    // Programs and the kernel.

    /// Starts a program here.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn(&self, program: impl AsRef<Path>, args: &[impl AsRef<OsStr> + Sync]) -> Process {
        let program = program.as_ref();
        self.run(|| Process::start(program, args, ""))
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
    }

    /// Starts a program here; its output fills the pipes until [`Process::read_output`].
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn_unread(
        &self,
        program: impl AsRef<Path>,
        args: &[impl AsRef<OsStr> + Sync],
    ) -> Process {
        let program = program.as_ref();
        self.run(|| Process::start_unread(program, args, ""))
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
    }

    /// Runs a program here to its end.
    ///
    /// # Panics
    /// When it cannot be started or does not end within 30 seconds.
    #[track_caller]
    pub fn output(&self, program: impl AsRef<Path>, args: &[impl AsRef<OsStr> + Sync]) -> Finished {
        self.spawn(program, args).finish(PROGRAM_LIMIT)
    }

    /// Runs `nft` here, `command` split at spaces, and returns its output.
    ///
    /// # Panics
    /// When it fails, or is not installed.
    #[track_caller]
    pub fn nft(&self, command: &str) -> String {
        let args: Vec<&str> = command.split_whitespace().collect();
        self.run_nft(&args, "").ok()
    }

    /// Loads a script as `nft -f` does.
    ///
    /// # Panics
    /// When nft refuses it, or is not installed.
    #[track_caller]
    pub fn nft_script(&self, script: &str) {
        let _ = self.run_nft(&["-f", "-"], script).ok();
    }

    #[track_caller]
    fn run_nft(&self, args: &[&str], input: &str) -> Finished {
        let start = |program| self.run(|| Process::start(Path::new(program), args, input));
        let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        // Debian keeps it where an ordinary user's PATH does not go.
        let process = match start("nft") {
            Err(error) if absent(&error) => start("/usr/sbin/nft"),
            started => started,
        };
        let process = process.unwrap_or_else(|error| {
            panic!(
                "cannot run nft ({error}): install nftables (apt-get install nftables), \
                 or set {WITHOUT_NFT}=1"
            )
        });
        process.finish(PROGRAM_LIMIT)
    }

    /// The table `kube-proxy` of this family in the kernel, or `None` without one.
    #[must_use]
    #[track_caller]
    pub fn read_table(&self, family: Family) -> Option<Table> {
        self.run(|| reader::read(family, "kube-proxy"))
    }

    /// Resets the counters of the table `kube-proxy` of this family, as another program would.
    #[track_caller]
    pub fn reset_counters(&self, family: Family) {
        self.run(|| reader::reset_counters(family, "kube-proxy"));
    }

    /// Adds these entries to conntrack, without packets.
    #[track_caller]
    pub fn track(&self, entries: &[Tracked]) {
        self.run(|| conntrack::write(entries));
    }

    /// The conntrack entries of which a flowtable forwards the packets, sorted.
    #[must_use]
    #[track_caller]
    pub fn offloaded(&self) -> Vec<Tracked> {
        self.run(conntrack::read_offloaded)
    }

    /// Adds a veth pair with both ends here, as a pod's before it is moved to the pod.
    #[track_caller]
    pub fn add_pair(&self, name: &str, peer: &str) {
        link::add_pair(&self.namespace, name, peer);
    }

    /// Removes an interface, and its peer.
    ///
    /// # Panics
    /// Without such an interface.
    #[track_caller]
    pub fn remove_device(&self, name: &str) {
        link::remove(&self.namespace, name);
    }

    /// Sets the largest packet of the node's interface that leads here.
    ///
    /// # Panics
    /// When this is the node.
    #[track_caller]
    pub fn set_link_mtu(&self, bytes: u32) {
        let uplink = self.uplink.as_ref().expect("a host at the end of a link");
        link::set_mtu(&uplink.node, uplink.index, bytes);
    }

    /// The conntrack entries, sorted.
    #[must_use]
    #[track_caller]
    pub fn tracked(&self) -> Vec<Tracked> {
        self.run(conntrack::read)
    }
}

/// Whether tests may use `nft`: false if the variable `DELTAPROXY_WITHOUT_NFT` is 1.
#[must_use]
pub fn nft_available() -> bool {
    env::var_os(WITHOUT_NFT).is_none_or(|value| value != "1")
}

/// Whether tests may use `chromium`: false if the variable `DELTAPROXY_WITHOUT_CHROMIUM` is 1.
#[must_use]
pub fn chromium_available() -> bool {
    env::var_os(WITHOUT_CHROMIUM).is_none_or(|value| value != "1")
}

/// Whether nft is there and can load a whole table. It sends a script as one message, which an
/// ordinary user's send buffer does not hold.
#[must_use]
pub fn nft_can_load() -> bool {
    nft_available() && !in_user_namespace()
}

/// Whether root here is an ordinary user of the machine.
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").expect("/proc is mounted");
    map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[track_caller]
fn address(of: &impl ToSocketAddrs) -> SocketAddr {
    let mut addresses = of.to_socket_addrs().expect("an address and a port");
    addresses.next().expect("an address and a port")
}

const WITHOUT_NFT: &str = "DELTAPROXY_WITHOUT_NFT";

const WITHOUT_CHROMIUM: &str = "DELTAPROXY_WITHOUT_CHROMIUM";

/// Far more than any program here takes, on a busy machine too.
const PROGRAM_LIMIT: Duration = Duration::from_secs(30);

/// Whether the kernel supports tables that have an owner and persist after it.
#[must_use]
pub fn kernel_has_owners() -> bool {
    Release::running().is_some_and(|release| release >= Release::PERSISTENT_OWNERSHIP)
}
