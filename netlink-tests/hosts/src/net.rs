//! A node, the pods behind it and the hosts outside, as one picture.
//!
//! The node routes between all of them. Every host has an IPv4 address and the IPv6 address that
//! [`ip6_of`] derives from it, and its default route goes to the node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::net::if_::if_nametoindex;

use crate::echo;
use crate::host::{Host, Uplink};
use crate::link::{self, LOOPBACK, Route, Setup};
use crate::namespace::Namespace;

/// The node's address on its outside links.
pub const NODE_IP: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 2);

/// The node's IPv6 address on its outside links: `fd00:192:168:50::2`.
pub const NODE_IP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x192, 0x168, 0x50, 0, 0, 0, 2);

/// A node and the hosts around it.
#[derive(Debug)]
pub struct Net {
    node: Host,
    links: AtomicU32,
}

impl Net {
    /// A node with [`NODE_IP`] and [`NODE_IP6`] that forwards both families, and no other host.
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        let namespace = forwarding_namespace();
        let addresses = vec![NODE_IP.into(), NODE_IP6.into()];
        link::configure(&namespace, LOOPBACK, &Setup { addresses, ..Setup::default() });
        echo::wait_for(&namespace, NODE_IP6.into());
        Self::around(Host::new(namespace, (NODE_IP, NODE_IP6), None))
    }

    /// A node that exists, and no other host.
    pub(crate) fn around(node: Host) -> Self {
        Self { node, links: AtomicU32::new(FIRST_LINK) }
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Host {
        &self.node
    }

    /// A pod on this node, through the interface `veth` + `name`. The node's address on that link,
    /// which masqueraded packets to the pod carry, ends in 1 (`10.244.1.5` has `10.244.1.1`).
    #[must_use]
    #[track_caller]
    pub fn pod(&self, name: &str, ip: &str) -> Host {
        self.pod_behind(&format!("veth{name}"), ip)
    }

    /// A pod on this node, through an interface of any name.
    #[must_use]
    #[track_caller]
    pub fn pod_behind(&self, interface: &str, ip: &str) -> Host {
        let ip = parse(ip);
        let [a, b, c, _] = ip.octets();
        let gateway = Ipv4Addr::new(a, b, c, 1);
        self.attach(interface, ip, gateway)
    }

    /// A pod on another node, reached through the interface `node` + `name`. Masqueraded packets to
    /// it carry the node's own address.
    #[must_use]
    #[track_caller]
    pub fn remote_pod(&self, name: &str, ip: &str) -> Host {
        self.attach(&format!("node{name}"), parse(ip), NODE_IP)
    }

    /// A host outside the cluster, reached through the interface `out` + `name`. It sends
    /// everything, service addresses too, to the node.
    #[must_use]
    #[track_caller]
    pub fn outside(&self, name: &str, ip: &str) -> Host {
        self.attach(&format!("out{name}"), parse(ip), NODE_IP)
    }

    /// A host behind a bridge that another program made on the node, such as a guest of libvirt: its
    /// interface on the node is a port of the bridge, which is its gateway. It has IPv4 alone.
    ///
    /// # Panics
    /// Without such a bridge.
    #[must_use]
    #[track_caller]
    pub fn behind_bridge(&self, (bridge, gateway): (&str, &str), name: &str, ip: &str) -> Host {
        let (ip, gateway) = (parse(ip), parse(gateway));
        let node = self.node.namespace();
        let bridge = node.run(|| if_nametoindex(bridge)).expect("a bridge of this name");
        let namespace = Namespace::new();
        namespace.sysctls_if_present(EVERYWHERE);
        link::configure(&namespace, LOOPBACK, &Setup::default());
        let index = self.links.fetch_add(1, Ordering::Relaxed);
        link::connect(node, &namespace, name, index);
        link::add_port(node, index, bridge);
        let everything = (Ipv4Addr::UNSPECIFIED.into(), 0);
        let far = Setup {
            shared: vec![(ip.into(), 24)],
            routes: vec![Route::Via(everything, gateway.into())],
            ..Setup::default()
        };
        link::configure(&namespace, link::ETH0, &far);
        echo::wait_for(&namespace, gateway.into());
        Host::new(namespace, (ip, ip6_of(ip)), None)
    }

    /// Makes `host` the node's default route in both families.
    ///
    /// # Panics
    /// When it is the node itself.
    #[track_caller]
    pub fn route_everything_to(&self, host: &Host) {
        let index = host.link_index().expect("a host at the end of a link");
        let [_, there] = link::hardware_addresses(index);
        let routes = vec![
            Route::DefaultVia(host.ip().into(), there),
            Route::DefaultVia(host.ip6().into(), there),
        ];
        link::configure(self.node.namespace(), index, &Setup { routes, ..Setup::default() });
    }

    /// A host at the other end of the node's new interface `name`, on which the node is `gateway`.
    #[track_caller]
    fn attach(&self, name: &str, ip: Ipv4Addr, gateway: Ipv4Addr) -> Host {
        assert!(name.len() < 16, "an interface name has at most 15 characters: {name}");
        let (ip6, gateway6) = (ip6_of(ip), ip6_of(gateway));
        let namespace = Namespace::new();
        namespace.sysctls_if_present(EVERYWHERE);
        link::configure(&namespace, LOOPBACK, &Setup::default());

        let index = self.links.fetch_add(1, Ordering::Relaxed);
        let node: &Arc<Namespace> = self.node.namespace();
        link::connect(node, &namespace, name, index);
        let [here, there] = link::hardware_addresses(index);
        let near = Setup {
            addresses: vec![gateway.into(), gateway6.into(), LINK_LOCAL],
            routes: vec![Route::OnLink(ip.into(), there), Route::OnLink(ip6.into(), there)],
            ..Setup::default()
        };
        link::configure(node, index, &near);
        let far = Setup {
            addresses: vec![ip.into(), ip6.into()],
            routes: vec![
                Route::DefaultVia(gateway.into(), here),
                Route::DefaultVia(LINK_LOCAL, here),
            ],
            ..Setup::default()
        };
        link::configure(&namespace, link::ETH0, &far);
        echo::wait_for(&namespace, gateway.into());
        echo::wait_for(&namespace, gateway6.into());
        let uplink = Uplink { node: Arc::clone(node), index };
        Host::new(namespace, (ip, ip6), Some(uplink))
    }
}

impl Default for Net {
    fn default() -> Self {
        Self::new()
    }
}

/// An empty namespace that forwards both families.
pub(crate) fn forwarding_namespace() -> Namespace {
    let namespace = Namespace::new();
    namespace.sysctls_if_present(EVERYWHERE);
    namespace.sysctl("ipv4/ip_forward", "1");
    namespace.sysctl("ipv6/conf/all/forwarding", "1");
    namespace
}

/// The IPv6 address of the host that has this IPv4 address: the same decimal digits, so that
/// `10.244.1.5` has `fd00:10:244:1::5`.
#[must_use]
pub fn ip6_of(ip: Ipv4Addr) -> Ipv6Addr {
    let same_digits = |octet: u8| {
        let octet = u16::from(octet);
        (octet / 100) * 0x100 + (octet / 10 % 10) * 0x10 + octet % 10
    };
    let [a, b, c, d] = ip.octets().map(same_digits);
    Ipv6Addr::new(0xfd00, a, b, c, 0, 0, 0, d)
}

#[track_caller]
fn parse(ip: &str) -> Ipv4Addr {
    ip.parse().unwrap_or_else(|_| panic!("not an IPv4 address: {ip}"))
}

/// The node's IPv6 address on every link.
const LINK_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

/// The number of the node's first link; past any number a host's own interfaces have.
const FIRST_LINK: u32 = 100;

/// Set in every namespace.
const EVERYWHERE: &[(&str, &str)] = &[
    // Else an address is unusable for a second.
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    // Service addresses have no route back to their source.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // No kind of ICMP message counts against the limits. Without a limit that could be reached,
    // a refusal would still be lost now and then: of the first two in a namespace, sent at once
    // on two CPUs, the kernel may send only one (`icmp_global_allow` moves the time of its last
    // refill before it adds the credit).
    ("ipv4/icmp_ratemask", "0"),
    ("ipv6/icmp/ratemask", "\n"),
    // Else conntrack drops the entries of closed associations within 10 s.
    ("netfilter/nf_conntrack_sctp_timeout_closed", "600"),
    ("netfilter/nf_conntrack_sctp_timeout_shutdown_sent", "600"),
    ("netfilter/nf_conntrack_sctp_timeout_shutdown_recd", "600"),
    ("netfilter/nf_conntrack_sctp_timeout_shutdown_ack_sent", "600"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ipv6_address_shows_the_digits_of_the_ipv4_address() {
        assert_eq!(
            ip6_of(parse("10.244.1.105")),
            "fd00:10:244:1::105".parse::<Ipv6Addr>().unwrap()
        );
        assert_eq!(ip6_of(NODE_IP), NODE_IP6);
    }
}
