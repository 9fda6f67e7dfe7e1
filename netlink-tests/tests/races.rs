//! No flow is lost, refused or sent to another service while the tables change without a pause.
//!
//! The variable `RACE_FLOWS` sets the flows of each race (4,000; a long run has 720,000). The counts
//! are printed with `--nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr};

use netlink_tests::ip6_of;
use netlink_tests::scenario::{
    EXTERNAL, Lab, NODE_PORT, Object, Protocol, Race, Service, Slice, VIP, WEB, Way, cycle, slice,
    web_everywhere, web_with_node_port as web,
};
use serde_json::json;

/// The servers of `web`.
const ALL: &str = "a b c d";
/// Those of them on the node.
const LOCAL: &str = "a b";

const OTHER: &str = "10.96.0.20:80";
const THIRD: &str = "10.96.0.30:80";
const OTHER_NODE_PORT: &str = "192.168.50.2:30090";

/// A lab in which every host also serves for other services, by these names.
fn lab() -> Lab {
    let mut lab = Lab::new();
    for (name, port) in [("x", PORT_X), ("y", PORT_Y), ("z", PORT_Z)] {
        for host in ["a", "b", "c", "d"] {
            lab.world.serve(host, name, port);
        }
    }
    lab
}

const PORT_X: u16 = 9001;
const PORT_Y: u16 = 9002;
const PORT_Z: u16 = 9003;

/// A lab whose node serves `many` by 200 addresses.
fn lab_of_many() -> Lab {
    let mut lab = lab();
    let addresses = (1..=MANY).map(many_address);
    let addresses = addresses.flat_map(|ip| [IpAddr::from(ip), ip6_of(ip).into()]);
    lab.world.node().add_addresses(addresses);
    lab.world.serve("node", "many", 8080);
    lab
}

const MANY: u8 = 200;

fn many_address(nth: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 250, 0, nth)
}

/// So many endpoints of `web` on the node's own addresses, without those of SCTP.
fn many(count: u8) -> Slice {
    let addresses: Vec<_> = (1..=count).map(|nth| many_address(nth).to_string()).collect();
    Slice::new("web")
        .without_ports()
        .named_target("p80-tcp", Protocol::Tcp, 8080)
        .named_target("p80-udp", Protocol::Udp, 8080)
        .endpoints(&addresses.join(" "))
}

fn sticky(service: Service, seconds: u32) -> Service {
    let config = json!({"clientIP": {"timeoutSeconds": seconds}});
    service.spec("sessionAffinity", json!("ClientIP")).spec("sessionAffinityConfig", config)
}

/// A service whose endpoints are four servers on this port.
fn service_on(name: &str, cluster_ip: &str, port: u16) -> (Service, Slice) {
    let service = Service::new(name, cluster_ip).port(80);
    (service, Slice::new(name).target(80, port).endpoints(ALL))
}

/// Ways to `web` from a pod, the node and a host outside, which the same servers have to serve.
fn ways_to_web(servers: &[impl AsRef<str>]) -> Vec<Way> {
    [("pod", WEB), ("node", WEB), ("outside", NODE_PORT)]
        .map(|(client, to)| Way::new(client, to, servers))
        .into()
}

/// Changes the endpoints of `service`, whose addresses are those of `web`.
#[track_caller]
fn race_of_endpoints(service: &Service, states: &[&str]) {
    let lab = lab();
    Race::of(&ways_to_web(states))
        .run(lab, |proxy, state| proxy.apply(&[service, &slice(states[state % states.len()])]));
}

/// Changes the number of endpoints of `service` back and forth.
#[track_caller]
fn race_of_counts(service: &Service, counts: [u8; 2]) {
    let lab = lab_of_many();
    let slices = counts.map(many);
    // The parser takes its time for many.
    Race::of(&ways_to_web(&["many"]))
        .commits(100)
        .run(lab, |proxy, state| proxy.apply(&[service, &slices[state % 2]]));
}

/// Changes the service `web` itself, which keeps its endpoints.
#[track_caller]
fn race_of_services(ways: &[Way], states: &[Service]) {
    let lab = lab();
    Race::of(ways).run(lab, |proxy, state| {
        let service = cycle(states, state);
        proxy.apply(&[service, &slice(ALL)])
    });
}

// Endpoints.

#[test]
fn no_flow_is_lost_while_endpoints_are_replaced() {
    race_of_endpoints(&web(), &["a b c", "b c d", "c d a", "d a b"]);
}

#[test]
fn no_flow_is_lost_while_the_only_endpoint_is_replaced() {
    race_of_endpoints(&web(), &["a", "b", "c", "d"]);
}

#[test]
fn no_flow_is_lost_while_endpoints_come_and_go() {
    race_of_endpoints(&web(), &["a", ALL, "d", "b c d", "b", "d c b a", "c a"]);
}

#[test]
fn no_flow_is_lost_between_3_and_4_endpoints() {
    race_of_counts(&web(), [3, 4]);
}

#[test]
fn no_flow_is_lost_between_8_and_9_endpoints() {
    race_of_counts(&web(), [8, 9]);
}

#[test]
fn no_flow_is_lost_between_16_and_17_endpoints() {
    race_of_counts(&web(), [16, 17]);
}

#[test]
fn no_flow_is_lost_between_9_and_200_endpoints() {
    race_of_counts(&web(), [9, MANY]);
}

// Session affinity.

#[test]
fn no_flow_is_lost_while_affinity_is_switched_on_and_off() {
    race_of_services(&ways_to_web(&[ALL]), &[web(), sticky(web(), 60)]);
}

#[test]
fn no_flow_is_lost_while_the_timeout_of_affinity_changes() {
    // The shortest forgets clients during the race.
    let states = [60, 1, 10_800, 90, 3_600].map(|seconds| sticky(web(), seconds));
    race_of_services(&ways_to_web(&[ALL]), &states);
}

#[test]
fn no_flow_is_lost_while_endpoints_with_affinity_are_replaced() {
    race_of_endpoints(&sticky(web(), 60), &["a b c", "b c d", "c d a", "d a b"]);
}

#[test]
fn no_flow_is_lost_while_endpoints_with_affinity_come_and_go() {
    race_of_endpoints(&sticky(web(), 60), &["a", ALL, "d", "b c d", "b", "d c b a", "c a"]);
}

#[test]
fn no_flow_is_lost_between_3_and_4_endpoints_with_affinity() {
    race_of_counts(&sticky(web(), 1), [3, 4]);
}

#[test]
fn no_flow_is_lost_between_8_and_9_endpoints_with_affinity() {
    race_of_counts(&sticky(web(), 1), [8, 9]);
}

#[test]
fn no_flow_is_lost_between_9_and_200_endpoints_with_affinity() {
    race_of_counts(&sticky(web(), 1), [9, MANY]);
}

// Policies and sources.

/// Alternates the external policy of a service; pods and the node reach all endpoints meanwhile.
fn race_of_external_policy(service: &dyn Fn() -> Service) {
    let by_policy = [ALL, LOCAL];
    let ways = [
        Way::new("outside", NODE_PORT, &by_policy),
        Way::new("outside", VIP, &by_policy),
        Way::new("pod", NODE_PORT, &[ALL]),
        Way::new("node", VIP, &[ALL]),
    ];
    race_of_services(&ways, &[service(), service().external_local()]);
}

#[test]
fn no_flow_is_lost_while_the_external_policy_changes() {
    race_of_external_policy(&web_everywhere);
}

#[test]
fn no_flow_is_lost_while_the_external_policy_changes_with_affinity() {
    race_of_external_policy(&|| sticky(web_everywhere(), 60));
}

#[test]
fn no_flow_is_lost_while_the_internal_policy_changes() {
    let by_policy = [ALL, LOCAL];
    let ways = [
        Way::new("pod", WEB, &by_policy),
        Way::new("node", WEB, &by_policy),
        Way::new("outside", NODE_PORT, &[ALL]),
    ];
    race_of_services(&ways, &[web(), web().internal_local()]);
}

#[test]
fn no_flow_is_lost_while_source_ranges_come_and_go() {
    let ways = ["pod", "node", "outside"].map(|client| Way::new(client, VIP, &[ALL]));
    race_of_services(
        &ways,
        &[
            web_everywhere(),
            with_ranges(&[]),
            with_ranges(&["203.0.113.0/24", "2001:db8::/32"]),
            web_everywhere(),
            with_ranges(&["0.0.0.0/0", "::/0"]),
        ],
    );
}

/// `web` with the source ranges of all clients, and some more.
fn with_ranges(more: &[&str]) -> Service {
    let ranges = [
        &["10.244.0.0/16", "192.0.2.0/24", "192.168.50.0/24", "10.252.0.0/16"][..],
        &["fd00:10:244::/48", "fd00:192:0:2::/64", "fd00:192:168:50::/64", "fd00:10:252::/48"],
        more,
    ];
    web_everywhere().spec("loadBalancerSourceRanges", json!(ranges.concat()))
}

// Several services.

#[test]
fn a_contested_address_is_served_while_another_service_takes_it() {
    let lab = lab();
    // The first by name wins.
    let (one, one_slice) = service_on("one", "10.96.0.20", PORT_X);
    let (two, two_slice) = service_on("two", "10.96.0.30", PORT_Y);
    let contender = one.clone().external_ip("198.51.100.1");
    let holder = two.external_ip("198.51.100.1");
    let states = [contender, one];
    let mut ways: Vec<_> =
        ["pod", "node", "outside"].map(|client| Way::new(client, EXTERNAL, &["x", "y"])).into();
    ways.extend([Way::new("pod", OTHER, &["x"]), Way::new("pod", THIRD, &["y"])]);
    Race::of(&ways).run(lab, |proxy, state| {
        let one = cycle(&states, state);
        proxy.apply(&[one, &one_slice, &holder, &two_slice])
    });
}

#[test]
fn services_that_exchange_all_endpoints_keep_their_flows_apart() {
    let lab = lab();
    let names = [("one", "10.96.0.10"), ("two", "10.96.0.20"), ("three", "10.96.0.30")];
    let servers = [("x", PORT_X), ("y", PORT_Y), ("z", PORT_Z)];
    let states: Vec<Vec<_>> = (0..3)
        .map(|turn| {
            let port = |nth: usize| cycle(&servers, nth + turn).1;
            (0..3).map(|nth| service_on(names[nth].0, names[nth].1, port(nth))).collect()
        })
        .collect();
    let ways = [
        Way::new("pod", WEB, &["x", "y", "z"]),
        Way::new("node", OTHER, &["y", "z", "x"]),
        Way::new("pod", THIRD, &["z", "x", "y"]),
        Way::new("outside", WEB, &["x", "y", "z"]),
    ];
    Race::of(&ways).run(lab, |proxy, state| {
        let state = cycle(&states, state);
        let objects = state.iter().flat_map(|(service, slice)| [service as &dyn Object, slice]);
        proxy.apply(&objects.collect::<Vec<_>>())
    });
}

/// Services with addresses and node ports of which the names begin with `prefix`.
fn others(prefix: &str, port: u16) -> Vec<Box<dyn Object>> {
    let mut objects: Vec<Box<dyn Object>> = Vec::new();
    for nth in 0..OTHERS {
        let name = format!("{prefix}{nth}");
        let service = Service::new(&name, &format!("10.96.0.{}", 20 + nth));
        objects.push(Box::new(service.node_port(80, 30090 + u16::from(nth))));
        // Of different counts.
        let hosts: Vec<_> = ALL.split(' ').skip(usize::from(nth % 4)).collect();
        objects.push(Box::new(Slice::new(&name).target(80, port).endpoints(&hosts.join(" "))));
    }
    objects
}

const OTHERS: u8 = 3;

fn refs<'a>(objects: impl IntoIterator<Item = &'a Box<dyn Object>>) -> Vec<&'a dyn Object> {
    objects.into_iter().map(AsRef::as_ref).collect()
}

#[test]
fn services_that_are_deleted_and_created_again_take_no_flows_of_others() {
    let lab = lab();
    // The first service, the second, none.
    let states = [others("p", PORT_X), others("q", PORT_Y), Vec::new()];
    let mut ways = ways_to_web(&[ALL]);
    ways.push(Way::new("pod", OTHER_NODE_PORT, &["x", "y", "-"]));
    Race::of(&ways).run(lab, |proxy, state| {
        let new = refs(cycle(&states, state));
        if state == 0 {
            return proxy.apply(&[&new[..], &[&web(), &slice(ALL)]].concat());
        }
        proxy.change(&refs(cycle(&states, state - 1)), &new)
    });
}

#[test]
fn no_flow_is_lost_while_a_service_is_renamed() {
    let lab = lab();
    let states = [others("p", PORT_X), others("q", PORT_Y)];
    let servers = ["x", "y"];
    let ways = [
        Way::new("pod", OTHER, &servers),
        Way::new("node", OTHER, &servers),
        Way::new("outside", OTHER_NODE_PORT, &servers),
    ];
    Race::of(&ways).run(lab, |proxy, state| {
        let new = refs(cycle(&states, state));
        if state == 0 {
            proxy.apply(&new)
        } else {
            proxy.change(&refs(cycle(&states, state - 1)), &new)
        }
    });
}

// Everything at once.

/// The endpoints of `web` in turns: some on the node and, by default, some on other nodes.
const HOSTS: [&str; 5] = [ALL, "b c", "a d", "b c d", "a b d"];

/// The objects of `web` in one state.
#[derive(Debug, Clone, Copy)]
struct Mix {
    hosts: &'static str,
    external_local: bool,
    internal_local: bool,
    timeout: Option<u32>,
    ranges: bool,
    contended: bool,
}

impl Mix {
    fn of(state: usize) -> Self {
        Self {
            hosts: HOSTS[state % HOSTS.len()],
            external_local: state % 2 == 1,
            internal_local: state % 3 == 1,
            timeout: *cycle(&[None, Some(60), Some(1), None], state),
            ranges: state % 3 == 2,
            contended: state % 4 > 1,
        }
    }

    fn service(self) -> Service {
        let mut service = if self.ranges { with_ranges(&[]) } else { web_everywhere() };
        if self.external_local {
            service = service.external_local();
        }
        if self.internal_local {
            service = service.internal_local();
        }
        self.timeout.into_iter().fold(service, sticky)
    }

    fn served(self, only_local: bool) -> String {
        self.hosts
            .split(' ')
            .filter(|host| !only_local || LOCAL.contains(host))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Of the first three weights each changes some slots; the last give lists of other sizes.
#[test]
fn no_flow_is_lost_while_weights_change() {
    let weights = ["*=1", "node/node-a=5", "node/node-a=4", "node/node-a=0", "node/node-b=0,*=99"];
    let lab = lab();
    let ways = ways_to_web(&[ALL, ALL, ALL, "c d", LOCAL]);
    let slice = slice(ALL).label("deltaproxy.io/weighted", "");
    Race::of(&ways).run(lab, |proxy, state| {
        let service = web().annotation("deltaproxy.io/weights", weights[state % weights.len()]);
        proxy.apply(&[&service, &slice])
    });
}

#[test]
fn no_flow_is_lost_while_everything_changes_in_one_burst() {
    let lab = lab();
    // After so many states all of them begin again.
    let mixes: Vec<_> = (0..60).map(Mix::of).collect();
    let list = |served: fn(&Mix) -> String| mixes.iter().map(served).collect::<Vec<_>>();
    // Policy and endpoints change together.
    let endpoints = list(|mix| mix.served(false));
    let by_internal_policy = list(|mix| mix.served(mix.internal_local));
    let by_external_policy = list(|mix| mix.served(mix.external_local));
    let by_holder = list(|mix| if mix.contended { "x".to_owned() } else { mix.served(false) });
    let ways = [
        Way::new("pod", WEB, &by_internal_policy),
        Way::new("node", VIP, &endpoints),
        Way::new("outside", NODE_PORT, &by_external_policy),
        Way::new("outside", VIP, &by_external_policy),
        Way::new("pod", EXTERNAL, &by_holder),
    ]
    .map(|way| way.or_between(&endpoints));
    let other_services = [others("p", PORT_Y), Vec::new(), others("q", PORT_Z)];
    // It wins because its name sorts first.
    let (first, first_slice) = service_on("first", "10.96.0.9", PORT_X);
    Race::of(&ways).commits(100).run(lab, |proxy, state| {
        let mix = Mix::of(state);
        let first =
            if mix.contended { first.clone().external_ip("198.51.100.1") } else { first.clone() };
        let (service, slice) = (mix.service(), slice(mix.hosts));
        let mut objects = refs(cycle(&other_services, state));
        objects.extend([&service as &dyn Object, &slice, &first, &first_slice]);
        let gone = if state == 0 { Vec::new() } else { refs(cycle(&other_services, state - 1)) };
        proxy.change(&gone, &objects)
    });
}
