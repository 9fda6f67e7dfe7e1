//! Nodes, a router and clients, as one picture: a cluster on one layer-2 link.
//!
//! ```text
//!                             router                  link (a bridge)
//!   clients 203.0.113.10 ---- .1   192.168.60.1 ----+---- node-a 192.168.60.11 ---- pods 10.244.1.5, .6
//!                                                   +---- node-b 192.168.60.12 ---- pods 10.244.2.5, .6
//!                                                   +---- node-c 192.168.60.13 ---- pods 10.244.3.5, .6
//! ```
//!
//! The router sends packets to [`SERVICES`] to one of the nodes, the entry. Hardware addresses on
//! the link are looked up, as on Ethernet. Every address has the IPv6 twin of [`ip6_of`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::capture::Capture;
use crate::deadline::eventually;
use crate::device::{DeviceKind, End};
use crate::echo;
use crate::host::Host;
use crate::link::{self, ETH0, HardwareAddress, LOOPBACK, Route, Setup};
use crate::namespace::Namespace;
use crate::net::{Net, forwarding_namespace, ip6_of};
use crate::offload::{self, Segments};

/// The names of the nodes.
pub const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];

/// The first address of the /24 that the router sends to the entry, and of its IPv6 twin, a /64.
pub const SERVICES: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);

/// The address of the clients' host.
pub const CLIENT: &str = "203.0.113.10";

/// Three nodes with pods, a router and clients.
#[derive(Debug)]
pub struct Switched {
    switch: Switch,
    router: Net,
    clients: Host,
    nodes: Vec<SwitchedNode>,
}

/// The link.
#[derive(Debug)]
struct Switch {
    namespace: Namespace,
    /// The kind of the devices of router and nodes.
    kind: DeviceKind,
    /// The first node is in a subnet of its own.
    is_split: bool,
}

/// A node with the pods behind it.
#[derive(Debug)]
struct SwitchedNode {
    net: Net,
    /// In the order of their addresses.
    pods: Vec<Host>,
}

impl Switched {
    /// Builds the picture; the entry is the first node.
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        Self::with_devices(DeviceKind::Veth)
    }

    /// The same with another kind of devices of router and nodes.
    #[must_use]
    #[track_caller]
    pub fn with_devices(kind: DeviceKind) -> Self {
        Self::built(kind, false)
    }

    /// The same with the first node in a subnet of its own: the router is between it and the others.
    #[must_use]
    #[track_caller]
    pub fn in_two_subnets() -> Self {
        Self::built(DeviceKind::Veth, true)
    }

    #[track_caller]
    fn built(kind: DeviceKind, is_split: bool) -> Self {
        let switch = Switch::new(kind, is_split);
        let router = Net::around(switch.attach(ROUTER_PORT, ROUTER));
        // Else it tells nodes that they share a link.
        for device in ["all", "eth0"] {
            let sysctl = format!("ipv4/conf/{device}/send_redirects");
            router.node().sysctl(&sysctl, "0");
        }
        let clients = router.pod_behind("clients", CLIENT);
        let node = |number: u8| {
            let port = NODE_PORTS + u32::from(number);
            let net = Net::around(switch.attach(port, node_address(number)));
            let pod = |last: u8| {
                net.pod(&format!("pod{last}"), &Ipv4Addr::new(10, 244, number, last).to_string())
            };
            let pods = [5, 6].map(pod).into();
            SwitchedNode { net, pods }
        };
        let nodes = (1..=3).map(node).collect();
        let switched = Self { switch, router, clients, nodes };
        switched.connect_all();
        switched.enter_at(0);
        switched
    }

    /// The host of the clients; [`Host::add_address`] makes further ones.
    #[must_use]
    pub fn clients(&self) -> &Host {
        &self.clients
    }

    /// The router.
    #[must_use]
    pub fn router(&self) -> &Host {
        self.router.node()
    }

    /// The node at this place of [`NODES`].
    #[must_use]
    pub fn node(&self, place: usize) -> &Host {
        self.nodes[place].net.node()
    }

    /// The pods of the node at this place of [`NODES`].
    #[must_use]
    pub fn pods(&self, place: usize) -> &[Host] {
        &self.nodes[place].pods
    }

    /// Lets the router send packets to service addresses to this node.
    pub fn enter_at(&self, place: usize) {
        let entry = self.node(place);
        let routes = vec![
            Route::Via((SERVICES.into(), 24), entry.ip().into()),
            Route::Via((ip6_of(SERVICES).into(), 64), entry.ip6().into()),
        ];
        let setup = Setup { routes, ..Setup::default() };
        link::configure(self.router().namespace(), ETH0, &setup);
    }

    /// Returns a capture of the frames that enter the link from now on.
    #[must_use]
    pub fn capture(&self) -> Capture {
        self.switch.namespace.run(Capture::open)
    }

    /// Gives the node's device on the link another hardware address. The router learns it, as the
    /// node asks for the router's.
    pub fn set_hardware_address(&self, place: usize, address: HardwareAddress) {
        let node = self.node(place);
        link::set_hardware_address(node.namespace(), ETH0, address);
        reach(node, self.router().ip().into());
        reach(node, self.router().ip6().into());
    }

    /// Deletes the node's device on the link.
    pub fn remove_device(&self, place: usize) {
        link::remove(self.node(place).namespace(), "eth0");
    }

    /// Makes the deleted device of a node again, with the addresses and routes that it had.
    pub fn restore_device(&self, place: usize) {
        let node = self.node(place);
        self.switch.plug(node.namespace(), self.port(place), node.ip());
        self.add_routes(node);
    }

    /// Sets how segments of TCP pass the devices of all hosts.
    pub fn set_segments(&self, segments: Segments) {
        let nodes = self.nodes.iter().flat_map(|node| node.pods.iter().chain([node.net.node()]));
        for host in nodes.chain([self.router(), self.clients()]) {
            offload::set_segments(host.namespace(), "eth0", segments);
        }
    }

    /// The number of the switch's port that leads to the node.
    #[must_use]
    pub fn port(&self, place: usize) -> u32 {
        let number = u32::try_from(place).expect("a few nodes");
        NODE_PORTS + 1 + number
    }

    /// The number of the switch's port that leads to the router.
    #[must_use]
    pub fn router_port(&self) -> u32 {
        ROUTER_PORT
    }

    /// Lets every frame leave by all ports from now on, so that nodes overhear the others' packets.
    pub fn flood(&self) {
        link::forget_at_once(&self.switch.namespace, BRIDGE);
    }

    /// Takes the node's device off the link: frames to it are lost.
    pub fn cut_off(&self, place: usize) {
        link::remove_port(&self.switch.namespace, self.port(place));
    }

    /// Gives router and nodes routes to what is behind the others, and waits until they reach each
    /// other.
    fn connect_all(&self) {
        let hosts: Vec<_> = self.nodes.iter().map(|node| node.net.node()).collect();
        hosts.iter().for_each(|host| self.add_routes(host));
        let routes = hosts.iter().flat_map(|node| routes_to_pods(node, node)).collect();
        let setup = Setup { routes, ..Setup::default() };
        link::configure(self.router().namespace(), ETH0, &setup);
        for host in &hosts {
            for other in hosts.iter().copied().chain([self.router()]) {
                reach(host, other.ip().into());
                reach(host, other.ip6().into());
            }
        }
    }

    /// Gives a node routes to the pods of the others, and by the router.
    fn add_routes(&self, host: &Host) {
        let router = self.router();
        let others = self.nodes.iter().map(|node| node.net.node());
        let others = others.filter(|other| other.ip() != host.ip());
        let mut routes: Vec<_> = Vec::new();
        for other in others {
            let is_near = self.switch.is_one_link(host, other);
            if !is_near {
                routes.push(Route::Via((other.ip().into(), 32), router.ip().into()));
                routes.push(Route::Via((other.ip6().into(), 128), router.ip6().into()));
            }
            routes.extend(routes_to_pods(other, if is_near { other } else { router }));
        }
        routes.push(Route::Via((Ipv4Addr::UNSPECIFIED.into(), 0), router.ip().into()));
        routes.push(Route::Via((Ipv6Addr::UNSPECIFIED.into(), 0), router.ip6().into()));
        link::configure(host.namespace(), ETH0, &Setup { routes, ..Setup::default() });
    }
}

impl Default for Switched {
    fn default() -> Self {
        Self::new()
    }
}

impl Switch {
    /// A switch without ports.
    #[track_caller]
    fn new(kind: DeviceKind, is_split: bool) -> Self {
        let namespace = Namespace::new();
        // Else the switch takes part in IPv6 itself, and asks for group members.
        namespace.sysctl("ipv6/conf/default/disable_ipv6", "1");
        link::add_bridge(&namespace, "link", BRIDGE);
        Self { namespace, kind, is_split }
    }

    /// Returns whether the addresses of two hosts are on one link.
    fn is_one_link(&self, one: &Host, other: &Host) -> bool {
        !self.is_alone(one.ip()) && !self.is_alone(other.ip())
    }

    /// Returns whether the host with this address is in a subnet of its own.
    fn is_alone(&self, ip: Ipv4Addr) -> bool {
        self.is_split && ip == node_address(1)
    }

    /// A host with `eth0` at this port.
    #[track_caller]
    fn attach(&self, port: u32, ip: Ipv4Addr) -> Host {
        let namespace = forwarding_namespace();
        link::configure(&namespace, LOOPBACK, &Setup::default());
        self.plug(&namespace, port, ip);
        Host::new(namespace, (ip, ip6_of(ip)), None)
    }

    /// Makes `eth0` with these addresses at a port.
    fn plug(&self, host: &Namespace, port: u32, ip: Ipv4Addr) {
        let name = format!("port{port}");
        let near = End { namespace: &self.namespace, name: &name, index: port };
        link::connect_ends(near, self.kind.end(host));
        link::add_port(&self.namespace, port, BRIDGE);
        let [.., last] = port.to_be_bytes();
        self.kind.stack(host, [2, 0, 2, 0, 0, last]);
        let (length, length6) = if self.is_alone(ip) { (32, 128) } else { (24, 64) };
        let shared = vec![(ip.into(), length), (ip6_of(ip).into(), length6)];
        link::configure(host, ETH0, &Setup { shared, ..Setup::default() });
    }
}

/// The address of the node with this number, from 1.
fn node_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 60, 10 + number)
}

/// Routes to the pods of a node, 10.244.N.0/24 and fd00:10:244:N::/64, by a host on the link.
fn routes_to_pods(node: &Host, next: &Host) -> [Route; 2] {
    let number = node.ip().octets()[3] - 10;
    let pods = Ipv4Addr::new(10, 244, number, 0);
    [
        Route::Via((pods.into(), 24), next.ip().into()),
        Route::Via((ip6_of(pods).into(), 64), next.ip6().into()),
    ]
}

/// Waits for an answer. The first question after a new interface may be lost, and is asked again
/// a second later.
#[track_caller]
fn reach(from: &Host, to: IpAddr) {
    eventually(&format!("an echo from {to}"), REACH_LIMIT, || {
        matches!(echo::echo((from.namespace(), ASK_AGAIN), to), crate::Answer::Echoed).then_some(())
    });
}

const BRIDGE: u32 = 10;

const ROUTER_PORT: u32 = 20;

/// The ports of nodes have the numbers after it.
const NODE_PORTS: u32 = 30;

const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 60, 1);

const ASK_AGAIN: Duration = Duration::from_millis(50);

const REACH_LIMIT: Duration = Duration::from_secs(15);
