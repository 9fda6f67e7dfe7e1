//! Addresses, ports and protocols: the server that answers a packet, and the source it sees.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::IpAddr;

use Expect::{Closed, Refused, Silent};
use engine::model::ExternalAddresses;
use engine::routing::{Routing, ServedServices};
use netlink_tests::Answer;
use netlink_tests::reader;
use netlink_tests::scenario::{
    Expect, Family, Lab, NODE_PORT, Object, Protocol, Raw, Scope, Service, ServiceCidr, Slice, WEB,
    keeps_source, masquerades, routing, slice, web_with_node_port,
};
use serde_json::json;

fn web() -> Service {
    Service::new("web", "10.96.0.10").port(80)
}

/// At an endpoint elsewhere the source is the address of the interface to it.
#[test]
fn a_cluster_ip_leads_to_all_endpoints_and_pods_keep_their_address() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a b c")]);
    lab.check(&[
        ("pod", WEB, keeps_source("a b c")),
        ("d", WEB, keeps_source("a b c")),
        ("node", WEB, masquerades("a b c")),
        ("outside", WEB, masquerades("a b c")),
    ]);
}

#[test]
fn a_node_port_leads_to_all_endpoints_and_masquerades_everybody() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a b c")]);
    lab.check(&[
        ("pod", NODE_PORT, masquerades("a b c")),
        ("node", NODE_PORT, masquerades("a b c")),
        ("outside", NODE_PORT, masquerades("a b c")),
        ("pod", WEB, keeps_source("a b c")),
    ]);
}

#[test]
fn external_ips_that_no_interface_has_work_from_everywhere() {
    let mut lab = Lab::new();
    lab.apply(&[&web().external_ip("198.51.100.1"), &slice("a c")]);
    lab.check(&[
        ("pod", "198.51.100.1:80", masquerades("a c")),
        ("node", "198.51.100.1:80", masquerades("a c")),
        ("outside", "198.51.100.1:80", masquerades("a c")),
    ]);
}

/// A packet that is not translated takes the default route, where no host answers.
#[test]
fn external_ips_may_be_switched_off() {
    let external_addresses = ExternalAddresses { external_ips: false, ..Default::default() };
    let mut lab = Lab::with(Routing { external_addresses, ..routing() });
    let service = web().external_ip("198.51.100.1").load_balancer_ip("198.51.100.2");
    lab.apply(&[&service.external_local(), &slice("c")]);
    lab.check(&[
        ("pod", "198.51.100.1:80", Silent),
        ("node", "198.51.100.1:80", Silent),
        ("pod", "198.51.100.2:80", keeps_source("c")),
        ("outside", "198.51.100.2:80", Silent),
        ("pod", WEB, keeps_source("c")),
    ]);
}

/// Also without a node port.
#[test]
fn a_load_balancers_ip_leads_to_the_endpoints() {
    let mut lab = Lab::new();
    lab.apply(&[&web().load_balancer_ip("198.51.100.1"), &slice("a c")]);
    lab.check(&[
        ("pod", "198.51.100.1:80", masquerades("a c")),
        ("node", "198.51.100.1:80", masquerades("a c")),
        ("outside", "198.51.100.1:80", masquerades("a c")),
    ]);
}

/// A packet that is not translated takes the default route, where
/// nothing answers.
#[test]
fn ingress_with_mode_proxy_or_only_a_host_name_is_not_captured() {
    let mut lab = Lab::new();
    let mut service = web().load_balancer_ip("198.51.100.1").documents().remove(0);
    lab.apply(&[&Raw(service.clone()), &slice("a")]);
    lab.check(&[("pod", "198.51.100.1:80", masquerades("a"))]);

    service["status"]["loadBalancer"]["ingress"] = json!([
        {"ip": "198.51.100.1", "ipMode": "Proxy"},
        {"ip": "fd00:198:51:100::1", "ipMode": "Proxy"},
        {"hostname": "lb.example.com"},
    ]);
    lab.apply(&[&Raw(service)]);
    lab.check(&[("pod", "198.51.100.1:80", Silent), ("pod", WEB, keeps_source("a"))]);
}

#[test]
fn one_port_number_of_three_protocols_leads_to_three_target_ports() {
    let mut lab = Lab::new();
    for (name, port) in [("over-tcp", 9001), ("over-udp", 9002), ("over-sctp", 9003)] {
        lab.world.serve("c", name, port);
    }
    let slice = Slice::new("web").without_ports().endpoints("c");
    let slice = slice
        .named_target("p80-tcp", Protocol::Tcp, 9001)
        .named_target("p80-udp", Protocol::Udp, 9002)
        .named_target("p80-sctp", Protocol::Sctp, 9003);
    lab.apply(&[&web(), &slice]);
    lab.check_in(Scope::TCP, &[("pod", WEB, keeps_source("over-tcp"))]);
    lab.check_in(Scope::UDP, &[("pod", WEB, keeps_source("over-udp"))]);
    lab.check_in(Scope::SCTP, &[("pod", WEB, keeps_source("over-sctp"))]);
}

#[test]
fn target_ports_are_found_by_name_and_protocol() {
    let mut lab = Lab::new();
    lab.world.serve("a", "a-admin", 9090);
    let service = Service::new("web", "10.96.0.10")
        .named_port("http", Protocol::Tcp, 80, 0)
        .named_port("admin", Protocol::Tcp, 81, 0)
        .named_port("other", Protocol::Tcp, 82, 0)
        .named_port("dns", Protocol::Udp, 83, 0);
    let slice = slice("a")
        .without_ports()
        .named_target("http", Protocol::Tcp, 8080)
        .named_target("admin", Protocol::Tcp, 9090)
        .named_target("dns", Protocol::Tcp, 8080)
        .named_target("", Protocol::Tcp, 8080);
    lab.apply(&[&service, &slice]);
    lab.check_in(
        Scope::TCP,
        &[
            ("pod", WEB, keeps_source("a")),
            ("pod", "10.96.0.10:81", keeps_source("a-admin")),
            ("pod", "10.96.0.10:82", Refused),
        ],
    );
    lab.check_in(Scope::UDP, &[("pod", "10.96.0.10:83", Refused)]);
}

#[test]
fn a_service_of_one_family_has_nothing_in_the_other() {
    for (own, other, scope, elsewhere) in [
        (Family::Ipv4, reader::Family::Ip6, Scope::IPV4, Scope::IPV6),
        (Family::Ipv6, reader::Family::Ip, Scope::IPV6, Scope::IPV4),
    ] {
        let mut lab = Lab::new();
        let before = lab.world.node().read_table(other);
        lab.apply(&[&web_with_node_port().only(own), &slice("a").only(own)]);
        assert_eq!(lab.world.node().read_table(other), before);
        lab.check_in(
            scope,
            &[("pod", WEB, keeps_source("a")), ("pod", NODE_PORT, masquerades("a"))],
        );
        lab.check_in(elsewhere, &[("pod", WEB, Silent)]);
    }
}

#[test]
fn a_dual_stack_service_with_ipv4_endpoints_only_refuses_ipv6() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a").only(Family::Ipv4)]);
    lab.check_in(Scope::IPV4, &[("pod", WEB, keeps_source("a"))]);
    lab.check_in(Scope::IPV6, &[("pod", WEB, Refused), ("outside", NODE_PORT, Refused)]);
}

#[test]
fn everything_is_refused_without_endpoints() {
    let mut lab = Lab::new();
    let service = web_with_node_port().external_ip("198.51.100.1").load_balancer_ip("198.51.100.2");
    lab.apply(&[&service]);
    for to in [WEB, NODE_PORT, "198.51.100.1:80", "198.51.100.2:80"] {
        lab.check(&[("pod", to, Refused), ("node", to, Refused), ("outside", to, Refused)]);
    }
}

#[test]
fn an_undefined_port_or_protocol_of_a_cluster_ip_is_refused() {
    let mut lab = Lab::new();
    let service = Service::new("web", "10.96.0.10").named_port("p80-tcp", Protocol::Tcp, 80, 0);
    lab.apply(&[&service, &slice("a")]);
    for client in ["pod", "node", "outside"] {
        lab.check(&[(client, "10.96.0.10:81", Refused)]);
        lab.check_in(Scope::UDP, &[(client, WEB, Refused)]);
    }
    lab.check_in(Scope::TCP, &[("pod", WEB, keeps_source("a"))]);
}

#[test]
fn a_cluster_ip_does_not_answer_pings() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    for ip in ["10.96.0.10", "fd00:10:96::10"] {
        let ip: IpAddr = ip.parse().unwrap();
        assert_eq!(lab.world.host("pod").icmp_echo(ip), Answer::Refused);
        assert_eq!(lab.world.host("node").icmp_echo(ip), Answer::Refused);
    }
}

#[test]
fn an_unallocated_address_of_a_service_cidr_is_silent_and_others_are_routed() {
    let mut lab = Lab::new();
    let outside = lab.world.host("outside").clone();
    for ip in ["10.97.0.1", "fd00:10:97::1", "10.96.0.77", "fd00:10:96::77"] {
        outside.add_address(ip.parse::<IpAddr>().unwrap());
    }
    lab.world.serve("outside", "outside", 80);
    lab.check(&[
        ("pod", "10.97.0.1:80", keeps_source("outside")),
        ("pod", "10.96.0.77:80", Silent),
        ("node", "10.96.0.77:80", Silent),
        ("c", "10.96.0.77:80", Silent),
    ]);
}

/// A control plane address in the default range of kubeadm, ranges over the networks of nodes and
/// outside hosts, and a cluster IP that a cache has bound on the node.
#[test]
fn no_service_cidr_keeps_packets_from_the_servers_of_the_node() {
    let mut lab = Lab::new();
    let node = lab.world.node();
    for ip in ["10.96.0.10", "fd00:10:96::10", "10.96.166.191", "fd00:10:96:166::191"] {
        node.add_address(ip.parse::<IpAddr>().unwrap());
    }
    lab.world.serve("node", "node", 9153);
    let cidrs = ["10.96.0.0/12", "192.168.0.0/16", "fd00:10:96::/44", "fd00:192:168::/48"];
    let own = Service::new("own", "10.96.0.11").port(80);
    let at_node = Slice::new("own").target(80, 9153).endpoints("node");
    lab.apply(&[&web(), &slice("a"), &own, &at_node, &ServiceCidr::new("kubernetes", &cidrs)]);
    for client in ["outside", "pod", "c"] {
        lab.check(&[
            (client, "10.96.166.191:9153", keeps_source("node")),
            (client, "10.96.0.10:9153", keeps_source("node")),
        ]);
    }
    for client in ["outside", "pod", "c", "node"] {
        lab.check(&[
            (client, "192.168.50.2:9153", keeps_source("node")),
            (client, "10.96.0.77:9153", Silent),
            (client, "10.96.0.11:9153", Refused),
        ]);
    }
    for own in ["10.96.166.191:9153", "[fd00:10:96::10]:9153"] {
        assert_eq!(lab.world.node().connect_tcp(own).server(), "node", "{own}");
    }
    lab.check(&[
        ("pod", WEB, keeps_source("a")),
        ("pod", "10.96.0.11:80", keeps_source("node")),
        ("node", "10.96.0.11:80", keeps_source("node")),
    ]);
}

/// The address of a service that is left to another program reaches that program.
#[test]
fn services_of_other_programs_are_neither_translated_nor_dropped() {
    let services =
        ServedServices { except: vec!["default/web".parse().unwrap()], ..Default::default() };
    let mut lab = Lab::with(Routing { services, ..routing() });
    let outside = lab.world.host("outside").clone();
    for ip in ["10.96.0.10", "fd00:10:96::10"] {
        outside.add_address(ip.parse::<IpAddr>().unwrap());
    }
    lab.world.serve("outside", "outside", 80);
    let shop = Service::new("shop", "10.96.0.11").port(80);
    lab.apply(&[&web(), &slice("a"), &shop, &Slice::new("shop").endpoints("b")]);
    lab.check(&[
        ("pod", WEB, keeps_source("outside")),
        ("pod", "10.96.0.11:80", keeps_source("b")),
        ("pod", "10.96.0.11:81", Refused),
    ]);
}

#[test]
fn a_second_service_cidr_counts_at_once_may_overlap_and_may_go_again() {
    let mut lab = Lab::new();
    let outside = lab.world.host("outside").clone();
    for ip in ["10.97.0.1", "fd00:10:97::1"] {
        outside.add_address(ip.parse::<IpAddr>().unwrap());
    }
    lab.world.serve("outside", "outside", 80);
    let second = ServiceCidr::new("second", &["10.96.0.0/12", "fd00:10:97::/48"]);
    for _ in 0..2 {
        lab.apply(&[&second]);
        lab.check(&[("pod", "10.97.0.1:80", Silent)]);
        lab.remove(&[&second]);
        lab.check(&[("pod", "10.97.0.1:80", keeps_source("outside"))]);
    }
}

/// None of these leaves anything in the tables.
#[test]
fn headless_and_other_services_that_are_not_routed_leave_no_trace() {
    let mut lab = Lab::new();
    let tables = |lab: &Lab| {
        [reader::Family::Ip, reader::Family::Ip6].map(|it| lab.world.node().read_table(it))
    };
    let before = tables(&lab);
    let external = Service::headless("external").spec("type", json!("ExternalName"));
    let external = external.spec("clusterIP", json!("")).spec("clusterIPs", json!([]));
    let others = web().label("service.kubernetes.io/service-proxy-name", "other");
    let sent = lab.apply(&[
        &Service::headless("headless").port(80),
        &Slice::new("headless").endpoints("a").label("service.kubernetes.io/headless", ""),
        &external.spec("externalName", json!("example.com")),
        &others,
        &slice("a"),
        &Slice::new("nobody").endpoints("a"),
    ]);
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    assert_eq!(tables(&lab), before);
}

#[test]
fn one_node_port_number_serves_two_services_by_protocol() {
    let mut lab = Lab::new();
    let tcp = Service::new("web", "10.96.0.10").named_port("p80-tcp", Protocol::Tcp, 80, 30080);
    let udp = Service::new("dns", "10.96.0.11").named_port("p80-udp", Protocol::Udp, 80, 30080);
    lab.apply(&[&tcp, &udp, &slice("a"), &Slice::new("dns").endpoints("b")]);
    lab.check_in(Scope::TCP, &[("outside", NODE_PORT, masquerades("a"))]);
    lab.check_in(Scope::UDP, &[("outside", NODE_PORT, masquerades("b"))]);
}

/// A lab whose node has the addresses 192.168.51.2 and 192.168.52.2 too.
fn lab_with_node_ports(addresses: &str) -> Lab {
    let node_port_addresses = addresses.parse().unwrap();
    let mut lab = Lab::with_node_addresses(
        Routing { node_port_addresses, ..routing() },
        &["192.168.51.2", "fd00:192:168:51::2", "192.168.52.2", "fd00:192:168:52::2"],
    );
    lab.apply(&[&web_with_node_port(), &slice("a c")]);
    lab
}

#[test]
fn node_ports_are_open_on_the_primary_addresses() {
    let lab = lab_with_node_ports("primary");
    for client in ["pod", "node", "outside"] {
        lab.check(&[
            (client, NODE_PORT, masquerades("a c")),
            (client, "192.168.51.2:30080", Closed),
        ]);
    }
}

#[test]
fn node_ports_are_open_on_the_addresses_in_the_ranges() {
    let lab = lab_with_node_ports("192.168.51.0/24,fd00:192:168:51::/64");
    for client in ["pod", "node", "outside"] {
        lab.check(&[
            (client, "192.168.51.2:30080", masquerades("a c")),
            (client, NODE_PORT, Closed),
            (client, "192.168.52.2:30080", Closed),
        ]);
    }
}

#[test]
fn node_ports_can_be_open_on_every_local_address() {
    let lab = lab_with_node_ports("0.0.0.0/0,::/0");
    for client in ["pod", "outside"] {
        lab.check(&[
            (client, NODE_PORT, masquerades("a c")),
            (client, "192.168.51.2:30080", masquerades("a c")),
            (client, "10.244.1.1:30080", masquerades("a c")),
        ]);
    }
    lab.check(&[("node", "192.168.51.2:30080", masquerades("a c"))]);
}

#[test]
fn node_ports_never_answer_on_loopback_addresses() {
    for addresses in ["primary", "0.0.0.0/0,::/0"] {
        let lab = lab_with_node_ports(addresses);
        for to in ["127.0.0.1:30080", "[::1]:30080"] {
            assert_eq!(lab.world.node().connect_tcp(to), Answer::Refused);
        }
    }
}

/// Rejected on the node's addresses only.
#[test]
fn a_node_port_without_endpoints_is_refused_from_the_node_too() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port()]);
    lab.world.serve("node", "a server on the node", 30080);
    lab.check(&[
        ("pod", NODE_PORT, Refused),
        ("node", NODE_PORT, Refused),
        ("outside", NODE_PORT, Refused),
    ]);
}

#[test]
fn a_node_port_wins_over_a_local_listener() {
    let mut lab = Lab::new();
    lab.world.serve("node", "node", 30080);
    lab.check(&[("outside", NODE_PORT, keeps_source("node"))]);
    lab.apply(&[&web_with_node_port(), &slice("a")]);
    lab.check(&[("outside", NODE_PORT, masquerades("a"))]);
}
