//! Unusual objects and situations: odd spellings, thousands of endpoints, tables of others.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::IpAddr;

use deltaproxy::config::{LocalDetection, Routing};
use netlink_tests::scenario::{
    Endpoint, Expect, Family, Lab, Node, Object, Protocol, Proxy, Raw, Scope, Service, Slice,
    keeps_source, masquerades, routing,
};
use netlink_tests::{Answer, NODE_IP, nft_available};
use serde_json::json;

use Expect::Refused;

const WEB: &str = "10.96.0.10:80";
const NODE_PORT: &str = "192.168.50.2:30080";

fn web() -> Service {
    Service::new("web", "10.96.0.10").node_port(80, 30080)
}

fn slice(endpoints: &str) -> Slice {
    Slice::new("web").endpoints(endpoints)
}

// Endpoints.

/// Case 14.
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

/// Case 21.
#[test]
fn a_slice_of_host_names_does_not_disturb_others() {
    let mut lab = Lab::new();
    let mut names = slice("a").suffix("2").documents().remove(0);
    names["addressType"] = json!("FQDN");
    names["endpoints"][0]["addresses"] = json!(["web.example.com"]);
    lab.apply(&[&web(), &Raw(names), &slice("b")]);
    lab.check(&[("pod", WEB, keeps_source("b"))]);
}

/// Case 24: whoever writes the slice says that such endpoints are ready.
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

/// Case 25. All addresses lead to one host, where 4,000 of them have one port and 1,000 another.
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

/// Case 45: nothing is translated twice.
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

/// Case 41: leading zeros are decimal, as they once were in the API.
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

/// Case 42.
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

/// Case 43.
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

/// Case 89.
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

/// Case 88, where a Node has two ranges of a family; `--cluster-cidr` refuses such a list.
#[test]
fn of_two_pod_ranges_of_one_family_the_first_counts() {
    let mut lab = Lab::with(Routing { local_detection: LocalDetection::NodeCidr, ..routing() });
    let [first, second] =
        [["10.244.1.0/24", "fd00:10:244:1::/64"], ["10.244.2.0/24", "fd00:10:244:2::/64"]];
    lab.apply(&[&Node::new().pod_cidrs(&[first, second].concat()), &web(), &slice("a c")]);
    lab.check(&[("pod", WEB, keeps_source("a c")), ("d", WEB, masquerades("a c"))]);
}

// Tables of others.

/// Case 113: priorities and chains of an earlier kube-proxy, and a map that has other data.
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
