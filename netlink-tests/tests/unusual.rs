//! Unusual objects and situations: odd spellings, thousands of endpoints, tables of others.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use Expect::Refused;
use engine::routing::{LocalDetection, Routing};
use netlink_tests::scenario::{
    Endpoint, Expect, Family, Lab, NODE_PORT, Node, Object, Protocol, Proxy, Raw, Scope, Service,
    Slice, WEB, keeps_source, masquerades, routing, slice, web_with_node_port as web,
};
use netlink_tests::{Answer, Host, NODE_IP, nft_available};
use serde_json::json;
use socket2::{Domain, Socket, Type};

// Endpoints.

#[test]
fn a_condition_that_is_left_out_or_null_counts_as_ready() {
    let mut lab = Lab::new();
    let two = Slice::new("web")
        .only(Family::Ipv4)
        .endpoint(Endpoint::new("b"))
        .endpoint(Endpoint::new("c").conditions(false, true, false));
    let mut null = slice("a").only(Family::Ipv4).suffix("2").documents().remove(0);
    null["endpoints"][0]["conditions"] = json!({"ready": null, "serving": null});
    lab.apply(&[&web(), &two, &Raw(null)]);
    lab.check_in(Scope::IPV4, &[("pod", WEB, keeps_source("a b"))]);
}

#[test]
fn a_slice_of_host_names_does_not_disturb_others() {
    let mut lab = Lab::new();
    let mut names = slice("a").suffix("2").documents().remove(0);
    names["addressType"] = json!("FQDN");
    names["endpoints"][0]["addresses"] = json!(["web.example.com"]);
    lab.apply(&[&web(), &Raw(names), &slice("b")]);
    lab.check(&[("pod", WEB, keeps_source("b"))]);
}

/// The author of the slice marks such endpoints as ready.
#[test]
fn a_pod_that_is_not_ready_serves_where_its_service_publishes_it() {
    let mut lab = Lab::new();
    let service = web().spec("publishNotReadyAddresses", json!(true));
    let published = |host| Endpoint::new(host).conditions(true, false, false);
    let ending = Endpoint::new("c").conditions(true, false, true);
    let slice = Slice::new("web").endpoint(published("a")).endpoint(ending);
    lab.apply(&[&service, &slice]);
    lab.check(&[("pod", WEB, keeps_source("a c")), ("outside", NODE_PORT, masquerades("a c"))]);
}

/// All addresses lead to one host, where 4,000 of them have one port and 1,000 another.
#[test]
fn each_of_five_thousand_endpoints_gets_its_share() {
    if !nft_available() {
        return;
    }
    let mut lab = Lab::new();
    lab.world.serve("outside", "many", 9001);
    lab.world.serve("outside", "few", 9002);
    lab.world.host("outside").nft_script(
        "table ip redirection { chain redirected { type nat hook prerouting priority -100; redirect; }; }",
    );
    let endpoints = |count: usize, suffix: &str, target| {
        let addresses = (0..count).map(|i| format!("203.0.{}.{}", i / 250, i % 250 + 1));
        let slice = Slice::new("web").only(Family::Ipv4).suffix(suffix).target(80, target);
        slice.endpoints(&addresses.collect::<Vec<_>>().join(" "))
    };
    lab.apply(&[&web(), &endpoints(4000, "1", 9001), &endpoints(1000, "2", 9002)]);
    let shares = lab.world.shares("pod", WEB, (Family::Ipv4, Protocol::Udp), 2000);
    // Six standard deviations of 17.9 around 400.
    assert!((293..=507).contains(&shares["few"]), "{shares:?}");
}

/// Nothing is translated twice.
#[test]
fn an_endpoint_that_is_another_services_cluster_ip_is_refused() {
    let mut lab = Lab::new();
    let other = Service::new("other", "10.96.0.11").port(80);
    let endpoint = Slice::new("web").target(80, 80).endpoints("10.96.0.11");
    lab.apply(&[&web(), &endpoint, &other, &Slice::new("other").endpoints("a")]);
    for client in ["pod", "node", "outside"] {
        lab.check(&[(client, WEB, Refused)]);
    }
    lab.check(&[("pod", "10.96.0.11:80", keeps_source("a"))]);
}

// Addresses.

/// Leading zeros are decimal, as they once were in the API.
#[test]
fn addresses_may_have_leading_zeros_everywhere() {
    let mut lab = Lab::new();
    let mut service =
        web().only(Family::Ipv4).load_balancer_ip("198.51.100.2").documents().remove(0);
    service["spec"]["clusterIP"] = json!("010.096.000.010");
    service["spec"]["clusterIPs"] = json!(["010.096.000.010"]);
    service["spec"]["externalIPs"] = json!(["198.051.100.001"]);
    service["status"]["loadBalancer"]["ingress"][0]["ip"] = json!("198.051.100.002");
    service["spec"]["loadBalancerSourceRanges"] = json!(["192.000.002.000/24"]);
    let mut endpoints = slice("a").only(Family::Ipv4).documents().remove(0);
    endpoints["endpoints"][0]["addresses"] = json!(["010.244.001.005"]);
    lab.apply(&[&Raw(service), &Raw(endpoints)]);
    lab.check_in(
        Scope::IPV4,
        &[
            ("pod", WEB, keeps_source("a")),
            ("outside", "198.51.100.1:80", masquerades("a")),
            ("outside", "198.51.100.2:80", masquerades("a")),
            ("pod", "198.51.100.2:80", Expect::Silent),
        ],
    );
}

#[test]
fn an_ipv6_address_may_be_spelled_in_any_way() {
    let mut lab = Lab::new();
    let mut service = web().load_balancer_ip("198.51.100.2").documents().remove(0);
    service["status"]["loadBalancer"]["ingress"] = json!([
        {"ip": "fd00::10.0.0.34"},
        {"ip": "FD00:0198:0051:0100:0:0:0:0002"},
    ]);
    lab.apply(&[&Raw(service), &slice("a")]);
    lab.check_in(Scope::IPV6, &[("outside", "198.51.100.2:80", masquerades("a"))]);
    let outside = lab.world.host("outside");
    assert_eq!(outside.connect_tcp("[fd00::a00:22]:80").server(), "a");
}

#[test]
fn one_address_may_be_the_load_balancers_and_external_too() {
    let mut lab = Lab::new();
    let both = web().external_ip("198.51.100.1").load_balancer_ip("198.51.100.1");
    let to = "198.51.100.1:80";
    lab.apply(&[&slice("a c")]);
    for _ in 0..2 {
        let sent = lab.apply(&[&both]);
        assert_eq!(sent.problems, [""; 0]);
        lab.check(&[("outside", to, masquerades("a c")), ("pod", to, masquerades("a c"))]);
        // One of its roles remains.
        lab.apply(&[&web().external_ip("198.51.100.1")]);
        lab.check(&[("outside", to, masquerades("a c"))]);
    }
}

// Masquerade.

#[test]
fn clients_with_one_source_port_get_ports_of_their_own_when_masqueraded() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("c")]);
    let outside = lab.world.host("outside");
    let clients: Vec<IpAddr> = (11..=20).map(|i| IpAddr::from([192, 0, 2, i])).collect();
    let mut ports = Vec::new();
    for client in clients {
        outside.add_address(client);
        let udp = outside.send_udp_from((client, 5555), NODE_PORT);
        assert_eq!(udp.source(), IpAddr::from(NODE_IP));
        ports.push(udp.source_port());
        let tcp = outside.connect_tcp_from((client, 5555), NODE_PORT);
        assert!(matches!(tcp, Answer::From { .. }), "{tcp:?}");
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 10, "{ports:?}");
    assert!(ports.iter().filter(|port| **port == 5555).count() <= 1, "they are random");
}

/// `--cluster-cidr` refuses such a list, but a Node may have one.
#[test]
fn of_two_pod_ranges_of_one_family_the_first_counts() {
    let mut lab = Lab::with(Routing { local_detection: LocalDetection::NodeCidr, ..routing() });
    let [first, second] =
        [["10.244.1.0/24", "fd00:10:244:1::/64"], ["10.244.2.0/24", "fd00:10:244:2::/64"]];
    lab.apply(&[&Node::new().pod_cidrs(&[first, second].concat()), &web(), &slice("a c")]);
    lab.check(&[("pod", WEB, keeps_source("a c")), ("d", WEB, masquerades("a c"))]);
}

// Tables of others.

/// Priorities and chains of an earlier kube-proxy, and a map that has other data.
#[test]
fn the_tables_of_an_earlier_kube_proxy_are_taken_over() {
    if !nft_available() {
        return;
    }
    let mut lab = Lab::new();
    let node = lab.world.node();
    node.nft("delete table ip kube-proxy");
    node.nft_script(EARLIER);
    lab.proxy = Proxy::start(lab.world.node(), routing());
    lab.apply(&[&Node::new(), &web(), &slice("a c")]);
    lab.check(&[("pod", WEB, keeps_source("a c")), ("outside", NODE_PORT, masquerades("a c"))]);
    let listed = lab.world.node().nft("list table ip kube-proxy");
    assert!(!listed.contains("mark-for-masquerade"), "{listed}");
    assert!(!listed.contains("10.244.9.9"), "{listed}");
}

/// As release 1.30 wrote it, in short.
const EARLIER: &str = "
    table ip kube-proxy {
        comment \"rules for kube-proxy\"
        set cluster-ips { type ipv4_addr; elements = { 10.96.0.99 } }
        map service-ips {
            type ipv4_addr . inet_proto . inet_service : verdict
            elements = { 10.96.0.10 . tcp . 80 : goto service-ULMVA6XW-default/web/tcp/p80-tcp }
        }
        chain nat-prerouting { type nat hook prerouting priority -90; jump services; }
        chain nat-output { type nat hook output priority -90; jump services; }
        chain nat-postrouting { type nat hook postrouting priority 90; jump masquerading; }
        chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
        chain masquerading {
            meta mark & 0x00004000 == 0 return
            meta mark set meta mark ^ 0x00004000
            masquerade fully-random
        }
        chain mark-for-masquerade { meta mark set meta mark | 0x00004000; }
        chain endpoint-5OJB2KTY-default/web/tcp/p80-tcp__10.244.9.9/8080 {
            ip saddr 10.244.9.9 jump mark-for-masquerade
            meta l4proto tcp dnat to 10.244.9.9:8080
        }
        chain service-ULMVA6XW-default/web/tcp/p80-tcp {
            goto endpoint-5OJB2KTY-default/web/tcp/p80-tcp__10.244.9.9/8080
        }
    }";

/// Packets to it pass the input hook instead of the forward hook.
#[test]
fn a_cluster_ip_that_the_node_has_itself_leads_to_the_endpoints() {
    let mut lab = Lab::with_node_addresses(routing(), &["10.96.0.10", "fd00:10:96::10"]);
    lab.apply(&[&web(), &slice("a c")]);
    lab.check(&[("pod", WEB, keeps_source("a c")), ("outside", WEB, masquerades("a c"))]);
    lab.apply(&[&slice("")]);
    lab.check(&[("pod", WEB, Refused), ("outside", WEB, Refused), ("node", WEB, Refused)]);
}

/// A TCP segment as a raw socket sees it.
#[derive(Debug, Clone, Copy)]
struct Segment {
    source: Ipv4Addr,
    ports: (u16, u16),
    sequence: u32,
    acknowledged: u32,
    flags: u8,
}

/// The IPv4 segments that a host receives, and a socket that sends crafted ones.
struct Segments(UdpSocket);

impl Segments {
    fn of(host: &Host) -> Self {
        let tcp = Some(socket2::Protocol::TCP);
        let socket = host.run(|| Socket::new(Domain::IPV4, Type::RAW, tcp)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The standard library has no raw socket; its calls are the same.
        Self(UdpSocket::from(OwnedFd::from(socket)))
    }

    /// The next one of this kind.
    fn find(&self, mut is_wanted: impl FnMut(&Segment) -> bool) -> Segment {
        let mut packet = [0; 1500];
        loop {
            let len = self.0.recv(&mut packet).expect("the segment arrives within the limit");
            let source = Ipv4Addr::from(<[u8; 4]>::try_from(&packet[12..16]).unwrap());
            let tcp = &packet[usize::from(packet[0] & 15) * 4..len];
            let be16 = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
            let be32 = |at| u32::from(be16(at)) << 16 | u32::from(be16(at + 2));
            let (sequence, acknowledged) = (be32(4), be32(8));
            let ports = (be16(0), be16(2));
            let segment = Segment { source, ports, sequence, acknowledged, flags: tcp[13] };
            if is_wanted(&segment) {
                return segment;
            }
        }
    }

    fn send(&self, segment: &Segment, to: Ipv4Addr) {
        let mut tcp = Vec::new();
        tcp.extend([segment.ports.0, segment.ports.1].map(u16::to_be_bytes).concat());
        tcp.extend([segment.sequence, segment.acknowledged].map(u32::to_be_bytes).concat());
        // The header has five words; window, checksum, no urgent data.
        tcp.extend([5 << 4, segment.flags, 1, 0, 0, 0, 0, 0]);
        // RFC 9293: the checksum covers the addresses, the protocol and the length too.
        let pseudo = [segment.source.octets(), to.octets(), [0, 6, 0, 20]].concat();
        let words = [pseudo.as_slice(), &tcp].concat();
        let words = words.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum = words.sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        self.0.send_to(&tcp, (to, 0)).unwrap();
    }
}

/// A packet that is invalid to conntrack is not translated back: the client gets it from an
/// address that it does not know and resets the connection. Administrators set
/// `nf_conntrack_tcp_be_liberal` against it.
#[test]
fn a_segment_outside_the_window_ends_a_connection_unless_conntrack_is_liberal() {
    let (vip, endpoint) = (Ipv4Addr::new(10, 96, 0, 10), Ipv4Addr::new(10, 244, 1, 5));
    for (liberal, source) in [("0", endpoint), ("1", vip)] {
        let mut lab = Lab::new();
        lab.world.node().sysctl("netfilter/nf_conntrack_tcp_be_liberal", liberal);
        lab.apply(&[&web(), &slice("a")]);
        let (client, server) = (lab.world.host("pod"), lab.world.host("a"));
        let (at_client, at_server) = (Segments::of(client), Segments::of(server));
        let mut connection = client.open_tcp(WEB).unwrap();
        assert_eq!(connection.ask().server(), "a");
        let port = connection.local_addr().port();
        // The second one with data is the answer to `ask`, which acknowledges everything.
        let mut with_data = 0;
        let last = at_client.find(|segment| {
            with_data += u32::from(segment.flags & PUSH != 0);
            with_data == 2
        });
        assert_eq!((last.source, last.ports), (vip, (80, port)));

        let sequence = last.sequence.wrapping_add(1 << 30);
        let stray = Segment { source: endpoint, ports: (8080, port), sequence, flags: ACK, ..last };
        at_server.send(&stray, client.ip());
        let seen = at_client.find(|segment| segment.sequence == sequence);
        assert_eq!(seen.source, source, "liberal: {liberal}");
        if source == vip {
            assert_eq!(connection.ask().server(), "a");
        } else {
            at_server.find(|segment| segment.flags & RESET != 0);
            assert_eq!(connection.ask(), Answer::Refused);
        }
    }
}

/// Bits of a TCP header.
const RESET: u8 = 4;
const PUSH: u8 = 8;
const ACK: u8 = 16;
