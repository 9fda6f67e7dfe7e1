//! Port ranges of Services: each port leads to an endpoint, which gets it unchanged.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use Expect::{Refused, Silent};
use netlink_tests::scenario::{
    Expect, Family, Lab, Manifests, Object, Protocol, Proxy, Scope, Service, Slice, VIP,
    keeps_source, masquerades, routing,
};
use netlink_tests::{Answer, Net, eventually, nft_can_load};
use nft::kernel::{Kernel, Nftables};
use serde_json::json;

const ANNOTATION: &str = "deltaproxy.io/port-ranges";

/// All protocols, with the port that every server has.
const ALL: &str = "tcp/8000-8100, udp/8000-8100, sctp/8000-8100";

const WEB: &str = "10.96.0.10:8080";
const EXTERNAL: &str = "198.51.100.1:8080";
const VIP_IN_RANGE: &str = "198.51.100.2:8080";

fn web() -> Service {
    Service::new("web", "10.96.0.10").annotation(ANNOTATION, ALL)
}

fn web_everywhere() -> Service {
    web().external_ip("198.51.100.1").load_balancer_ip("198.51.100.2")
}

fn slice(endpoints: &str) -> Slice {
    Slice::new("web").endpoints(endpoints)
}

fn at(to: &str, family: Family) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap();
    SocketAddr::new(family.of(*to.ip()), to.port())
}

fn sticky(service: Service) -> Service {
    service.spec("sessionAffinity", json!("ClientIP"))
}

/// The names of the chains and sets of both tables.
fn contents(lab: &Lab) -> [(BTreeSet<String>, BTreeSet<String>); 2] {
    let mut kernel = lab.world.node().run(Nftables::open).unwrap();
    nft::Family::ALL.map(|family| {
        let table = engine::ruleset::table(family);
        let contents = kernel.read_table(&table).unwrap().unwrap();
        let chains = contents.chains.iter().map(|chain| chain.name.to_string());
        (chains.collect(), contents.sets.iter().map(|set| set.name.to_string()).collect())
    })
}

#[test]
fn every_port_of_a_range_leads_to_endpoints_and_others_are_refused() {
    let mut lab = Lab::new();
    let sip = Service::new("web", "10.96.0.10").annotation(ANNOTATION, "udp/10000-20000");
    lab.apply(&[&sip, &slice("a b c")]);
    let ports = [10_000, 10_001, 15_432, 20_000];
    let serve = |name| ports.map(|port| lab.world.host(name).serve_udp(port, name));
    let _servers = ["a", "b", "c"].map(serve);
    for family in Family::ALL {
        for client in ["pod", "a", "node", "outside"] {
            let ask = |port| {
                lab.world.ask(client, at(&format!("10.96.0.10:{port}"), family), Protocol::Udp)
            };
            for port in ports {
                let _ = ask(port).server();
            }
            for port in [9_999, 20_001] {
                assert_eq!(ask(port), Answer::Refused, "{client} {port}");
            }
        }
    }
}

#[test]
fn ranges_are_at_every_address_with_the_policies_of_the_service() {
    let mut lab = Lab::new();
    lab.apply(&[&web_everywhere(), &slice("a b c d")]);
    lab.check(&[
        ("pod", WEB, keeps_source("a b c d")),
        ("node", WEB, masquerades("a b c d")),
        ("outside", WEB, masquerades("a b c d")),
        ("outside", EXTERNAL, masquerades("a b c d")),
        ("outside", VIP_IN_RANGE, masquerades("a b c d")),
        ("outside", "198.51.100.2:7999", Silent),
        ("pod", "10.96.0.10:8101", Refused),
    ]);
    lab.apply(&[&web_everywhere().external_local(), &slice("a c")]);
    lab.check(&[
        ("outside", EXTERNAL, keeps_source("a")),
        ("outside", VIP_IN_RANGE, keeps_source("a")),
        ("pod", VIP_IN_RANGE, keeps_source("a c")),
        ("node", VIP_IN_RANGE, masquerades("a c")),
        ("pod", WEB, keeps_source("a c")),
    ]);
    lab.apply(&[&web_everywhere().external_local(), &slice("c")]);
    lab.check(&[
        ("outside", VIP_IN_RANGE, Silent),
        ("pod", VIP_IN_RANGE, keeps_source("c")),
        ("pod", WEB, keeps_source("c")),
    ]);
    lab.apply(&[&web_everywhere().internal_local(), &slice("b d")]);
    lab.check(&[("pod", WEB, keeps_source("b")), ("outside", EXTERNAL, masquerades("b d"))]);
    lab.remove(&[&slice("")]);
    lab.check(&[("pod", WEB, Refused), ("outside", EXTERNAL, Refused), ("node", WEB, Refused)]);
}

#[test]
fn source_ranges_apply_to_the_whole_range_and_not_beside_it() {
    let mut lab = Lab::new();
    let outside = json!(["192.0.2.0/24", "fd00:192:0:2::/64"]);
    let other_sources = json!(["203.0.113.0/24", "fd00:203::/32"]);
    let with = |ranges| web_everywhere().spec("loadBalancerSourceRanges", ranges);
    // Another service has the next port of the same address.
    let other = Service::new("other", "10.96.0.11").port(80).load_balancer_ip("198.51.100.2");
    lab.apply(&[&with(outside), &slice("a c"), &other, &Slice::new("other").endpoints("b")]);
    lab.check(&[
        ("outside", VIP_IN_RANGE, masquerades("a c")),
        ("pod", VIP_IN_RANGE, Silent),
        ("node", VIP_IN_RANGE, Silent),
        ("pod", VIP, masquerades("b")),
        ("pod", WEB, keeps_source("a c")),
        ("pod", EXTERNAL, masquerades("a c")),
    ]);
    lab.apply(&[&with(other_sources)]);
    lab.check(&[("outside", VIP_IN_RANGE, Silent), ("outside", VIP, masquerades("b"))]);
    lab.apply(&[&web_everywhere()]);
    lab.check(&[("outside", VIP_IN_RANGE, masquerades("a c"))]);
}

#[test]
fn an_endpoint_reaches_itself_through_a_range() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    lab.check(&[("a", WEB, masquerades("a")), ("b", WEB, keeps_source("a"))]);
    lab.apply(&[&web(), &slice("b")]);
    lab.check(&[("a", WEB, keeps_source("b")), ("b", WEB, masquerades("b"))]);
}

/// The annotations and affinity of the examples in docs/port-ranges.md.
#[test]
fn sip_and_ftp_of_the_page_reach_one_endpoint_by_all_ports() {
    let page = include_str!("../../docs/port-ranges.md");
    let sip = "udp/5060, tcp/5060, udp/10000-20000";
    let ftp = "tcp/21, tcp/30000-30100";
    assert!([sip, ftp].iter().all(|it| page.contains(&format!("port-ranges: \"{it}\""))));
    let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
    let sip_ports = [(udp, 5060), (tcp, 5060), (udp, 10_000), (udp, 16_384), (udp, 20_000)];
    let ftp_ports = [(tcp, 21), (tcp, 30_000), (tcp, 30_064), (tcp, 30_100)];
    for (ranges, ports) in [(sip, &sip_ports[..]), (ftp, &ftp_ports[..])] {
        let mut lab = Lab::new();
        let names = ["a", "b", "c", "d"];
        let serve = |(name, (protocol, port)): (&&str, &(Protocol, u16))| {
            let host = lab.world.host(name);
            if *protocol == tcp { host.serve_tcp(*port, name) } else { host.serve_udp(*port, name) }
        };
        let pairs = names.iter().flat_map(|name| ports.iter().map(move |port| (name, port)));
        let _servers: Vec<_> = pairs.map(serve).collect();
        let service = Service::new("web", "10.96.0.10").annotation(ANNOTATION, ranges);
        lab.apply(&[&sticky(service), &slice("a b c d")]);
        for (client, family) in ["pod", "a", "outside"].map(|it| (it, Family::ALL)) {
            for family in family {
                let ask = |(protocol, port): &(Protocol, u16)| {
                    let to = at(&format!("10.96.0.10:{port}"), family);
                    lab.world.ask(client, to, *protocol).server().to_owned()
                };
                let servers: BTreeSet<_> = ports.iter().map(ask).collect();
                assert_eq!(servers.len(), 1, "{client}: {servers:?}");
            }
        }
    }
}

#[test]
fn clients_with_affinity_have_endpoints_of_their_own_and_leave_one_that_goes() {
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web()), &slice("a b c d")]);
    let many = || (1..=20).flat_map(|i| Family::ALL.map(|it| it.of([10, 252, 0, i].into())));
    lab.world.node().add_addresses(many());
    let ask = |lab: &Lab, source| {
        let to = at(WEB, Family::of_address(source));
        lab.world.node().send_udp_from((source, 0), to).server().to_owned()
    };
    let first: Vec<_> = many().map(|source| ask(&lab, source)).collect();
    assert_eq!(first, many().map(|source| ask(&lab, source)).collect::<Vec<_>>());
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 4);
    lab.apply(&[&slice("a c")]);
    for (source, first) in many().zip(first) {
        let server = ask(&lab, source);
        assert!(["a", "c"].contains(&&*server));
        assert!(!["a", "c"].contains(&&*first) || server == first, "{source}");
    }
}

#[test]
fn a_port_of_a_service_wins_over_a_range_and_the_first_service_over_another() {
    let mut lab = Lab::new();
    let both = Service::new("both", "10.96.0.12").annotation(ANNOTATION, ALL);
    let both = both.named_port("one", Protocol::Udp, 8080, 0);
    let targets = Slice::new("both").without_ports().endpoints("b");
    let own = targets.named_target("one", Protocol::Udp, 9);
    lab.apply(&[&both, &own]);
    lab.check_in(Scope::UDP, &[("pod", "10.96.0.12:8080", Refused)]);
    lab.check_in(Scope::TCP, &[("pod", "10.96.0.12:8080", keeps_source("b"))]);

    let first = web().external_ip("198.51.100.9");
    let other = Service::new("z", "10.96.0.13").annotation(ANNOTATION, "tcp/8050-9000");
    let other = other.external_ip("198.51.100.9");
    let shared = "198.51.100.9:8080";
    let slices: [&dyn Object; 2] = [&slice("a"), &Slice::new("z").endpoints("c")];
    let sent = lab.apply(&[&other, slices[1]]);
    assert_eq!(sent.problems, [""; 0]);
    lab.check_in(Scope::TCP, &[("outside", shared, masquerades("c"))]);
    let sent = lab.apply(&[&first, slices[0]]);
    let problem = "Service default/z: 198.51.100.9:*/tcp belongs to Service default/web";
    assert!(sent.problems.iter().any(|it| it.starts_with(problem)), "{:?}", sent.problems);
    lab.check_in(Scope::TCP, &[("outside", shared, masquerades("a"))]);
    lab.remove(&[&first]);
    lab.check_in(Scope::TCP, &[("outside", shared, masquerades("c"))]);
}

#[test]
fn a_restart_and_a_full_comparison_change_nothing_and_without_ranges_nothing_is_left() {
    let mut lab = Lab::new();
    let plain = Service::new("web", "10.96.0.10");
    lab.apply(&[&plain, &slice("a b c")]);
    let before = contents(&lab);
    let ranges = json!(["192.0.2.0/24", "fd00:192:0:2::/64"]);
    let service =
        sticky(web_everywhere().external_local()).spec("loadBalancerSourceRanges", ranges);
    let other = Service::new("other", "10.96.0.11").annotation(ANNOTATION, "tcp/*,udp/5000-6000");
    let with_ranges: [&dyn Object; 3] = [&service, &other, &Slice::new("other").endpoints("a d")];
    lab.apply(&with_ranges);
    assert!(contents(&lab)[0].1.contains("range-services"));
    let sent = lab.proxy.resync();
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    let objects = lab.proxy.objects();
    lab.proxy = Proxy::start(lab.world.node(), routing());
    let again: Vec<&dyn Object> = objects.iter().map(|object| object as &dyn Object).collect();
    let sent = lab.apply(&again);
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    lab.check_in(Scope::TCP, &[("pod", "10.96.0.11:8080", keeps_source("a d"))]);
    lab.remove(&[&other]);
    lab.apply(&[&plain]);
    assert_eq!(contents(&lab), before);
}

/// Their ports are many, so the daemon compares all flows.
#[test]
fn udp_flows_leave_an_endpoint_that_goes_and_a_range_that_shrinks() {
    let net = Net::new();
    let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
    let _servers = [a.serve_udp(8080, "a"), b.serve_udp(8080, "b")];
    let client = net.pod("client", "10.244.1.9");
    let manifests = Manifests::new(&[("web", &web()), ("slice", &slice("a"))]);
    let flags = ["--healthz-bind-address=", "--metrics-bind-address="];
    let _daemon = manifests.run_with(net.node(), &flags);
    let soon = Duration::from_secs(30);
    let serves = || matches!(client.hasty().send_udp(WEB), Answer::From { .. }).then_some(());
    eventually("a service", soon, serves);
    let mut flow = client.open_udp(WEB);
    assert_eq!(flow.ask().server(), "a");
    manifests.write("slice", &slice("b"));
    let moved = |answer: Answer| matches!(answer, Answer::From { .. }) && answer.server() == "b";
    eventually("an answer of b", soon, || moved(flow.ask()).then_some(()));
    let less = Service::new("web", "10.96.0.10").annotation(ANNOTATION, "udp/8000-8079");
    manifests.write("web", &less);
    eventually("a refusal", soon, || (flow.ask() == Answer::Refused).then_some(()));
}

#[test]
fn nft_loads_what_it_lists_of_port_ranges() {
    if !nft_can_load() {
        return;
    }
    let mut lab = Lab::new();
    let ranges = json!(["192.0.2.0/24", "fd00:192:0:2::/64"]);
    let service =
        sticky(web_everywhere().external_local()).spec("loadBalancerSourceRanges", ranges);
    let other = Service::new("other", "10.96.0.11").annotation(ANNOTATION, "tcp/*,udp/5000-6000");
    lab.apply(&[&service, &slice("a c"), &other]);
    let listed = lab.world.node().nft("list ruleset").replace("\tflags \n", "");
    let copy = Net::new();
    copy.node().nft_script(&listed);
    let without_empty = |text: &str| text.replace("\n\n", "\n");
    assert_eq!(without_empty(&copy.node().nft("list ruleset")), without_empty(&listed));
    assert!(listed.contains("udp dport & 65024"), "{listed}");
}
