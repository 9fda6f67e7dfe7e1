//! docs/walkthroughs.md: commands and their output, produced again and compared with the page.
//!
//! `UPDATE_DOCS=1` writes the file instead. The comparison leaves out random ports, timers
//! and the state of a connection that ends.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::Duration;

use engine::model::HashedSource;
use engine::ruleset::SetId;
use engine::ruleset::number::{Route, SIZE_BITS};
use netlink_tests::scenario::{Lab, Object, Protocol, Service, Slice};
use netlink_tests::{Host, Process, eventually, nft_available};
use serde_json::json;

/// A section of the document: objects, one connection and its traces.
#[derive(Clone)]
struct Walk {
    title: &'static str,
    /// The explanation below the title.
    text: &'static str,
    service: Service,
    endpoints: &'static str,
    client: &'static str,
    to: Target,
    /// The command's output, up to a port that varies.
    outcome: &'static str,
}

fn web() -> Service {
    Service::new("web", "10.96.0.10").named_port("http", Protocol::Tcp, 80, 30080)
}

fn dns() -> Service {
    Service::new("dns", "10.96.0.53").named_port("dns", Protocol::Udp, 53, 30053)
}

/// The destination of a connection.
#[derive(Clone, Copy)]
struct Target {
    protocol: Protocol,
    address: &'static str,
    port: u16,
}

const CLUSTER_IP: Target = Target::tcp("10.96.0.10", 80);
const CLUSTER_IP6: Target = Target::tcp("fd00:10:96::10", 80);
const DNS: Target = Target { protocol: Protocol::Udp, address: "10.96.0.53", port: 53 };
const NODE_PORT: Target = Target::tcp("192.168.50.2", 30080);
const EXTERNAL_IP: Target = Target::tcp("198.51.100.1", 80);
const VIP: Target = Target::tcp("198.51.100.2", 80);

impl Target {
    const fn tcp(address: &'static str, port: u16) -> Self {
        Self { protocol: Protocol::Tcp, address, port }
    }

    /// The family, as nft(8) names it.
    fn family(self) -> &'static str {
        if self.address.contains(':') { "ip6" } else { "ip" }
    }

    /// The command that connects within `limit` seconds, and prints the first line of the answer.
    fn connection(self, limit: u32) -> String {
        let Self { protocol, address, port } = self;
        let script = match protocol {
            Protocol::Udp => format!("exec 3<>/dev/udp/{address}/{port}; echo >&3; head -1 <&3"),
            Protocol::Tcp | Protocol::Sctp => format!("head -1 </dev/tcp/{address}/{port}"),
        };
        format!("timeout {limit} bash -c '{script}'")
    }

    /// The command that lists the table of the family.
    fn list_table(self) -> String {
        format!("list table {} kube-proxy", self.family())
    }

    /// The arguments of conntrack(8) that list the connections to the address.
    fn list_connections(self) -> Vec<&'static str> {
        let family = if self.family() == "ip6" { ["-f", "ipv6"].as_slice() } else { &[] };
        [["-L"].as_slice(), family, &["-d", self.address]].concat()
    }

    /// The EndpointSlices of the service.
    fn slice(self, endpoints: &str) -> Slice {
        let slice = |name| Slice::new(name).without_ports().endpoints(endpoints);
        match self.protocol {
            Protocol::Udp => slice("dns").named_target("dns", Protocol::Udp, 8080),
            Protocol::Tcp | Protocol::Sctp => {
                slice("web").named_target("http", Protocol::Tcp, 8080)
            }
        }
    }
}

const REFUSED: &str = "Connection refused";
const SILENCE: &str = "(nothing within 2 seconds)";

fn cluster_ip_walks() -> Vec<Walk> {
    vec![
        Walk {
            title: "Pod to ClusterIP, endpoint on another node",
            text: "The destination is translated and the source is not. \
                   [Further packets](#the-reply-and-the-second-packet) of the connection pass no \
                   rule.",
            service: web(),
            endpoints: "c",
            client: "pod",
            to: CLUSTER_IP,
            outcome: "c 10.244.1.9:",
        },
        Walk {
            title: "The same over IPv6",
            text: "The table `ip6 kube-proxy` has the same chains and sets.",
            service: web(),
            endpoints: "c",
            client: "pod",
            to: CLUSTER_IP6,
            outcome: "c [fd00:10:244:1::9]:",
        },
        Walk {
            title: "The same over UDP",
            text: "The service is `default/dns`, port 53. Conntrack keeps a UDP flow until its \
                   timeout, so the daemon deletes the flow when its endpoint is removed.",
            service: dns(),
            endpoints: "c",
            client: "pod",
            to: DNS,
            outcome: "c 10.244.1.9:",
        },
    ]
}

fn node_and_hairpin_walks() -> Vec<Walk> {
    vec![
        Walk {
            title: "Process on the node to ClusterIP",
            text: "A source that is not a pod is masqueraded: the source address becomes the node's.",
            service: web(),
            endpoints: "c",
            client: "node",
            to: CLUSTER_IP,
            outcome: "c 192.168.50.2:",
        },
        Walk {
            title: "Hairpin: a pod reaches itself",
            text: "The source is masqueraded. Otherwise the pod would answer to its own address, and \
                   the connection would fail.",
            service: web(),
            endpoints: "a",
            client: "a",
            to: CLUSTER_IP,
            outcome: "a 10.244.1.1:",
        },
        Walk {
            title: "No endpoints",
            text: "The packet is rejected at once, so the client has no timeout.",
            service: web(),
            endpoints: "",
            client: "pod",
            to: CLUSTER_IP,
            outcome: REFUSED,
        },
        Walk {
            title: "A port that the service does not have",
            text: "The packet is rejected, as on a host without a listener.",
            service: web(),
            endpoints: "c",
            client: "pod",
            to: Target::tcp("10.96.0.10", 81),
            outcome: REFUSED,
        },
        Walk {
            title: "An address of the ServiceCIDR that no service has",
            text: "The packet is dropped. The default route could send it back here in a loop. No element \
                   names 10.96.0.77, so the last command prints none.",
            service: web(),
            endpoints: "c",
            client: "pod",
            to: Target::tcp("10.96.0.77", 80),
            outcome: SILENCE,
        },
    ]
}

fn internal_policy_walks() -> Vec<Walk> {
    vec![
        Walk {
            title: "internalTrafficPolicy Local with an endpoint on the node",
            text: "Endpoints are `a` on this node and `c` on another. Only `a` is used.",
            service: web().internal_local(),
            endpoints: "a c",
            client: "pod",
            to: CLUSTER_IP,
            outcome: "a 10.244.1.9:",
        },
        Walk {
            title: "internalTrafficPolicy Local without endpoint on the node",
            text: "The only endpoint is on another node, so the packet is dropped.",
            service: web().internal_local(),
            endpoints: "c",
            client: "pod",
            to: CLUSTER_IP,
            outcome: SILENCE,
        },
    ]
}

fn external_walks() -> Vec<Walk> {
    let balanced = || web().load_balancer_ip("198.51.100.2");
    let ranges = json!(["192.0.2.0/24"]);
    vec![
        Walk {
            title: "NodePort from outside",
            text: "Destination and source are translated: the answer must come back through \
                   the node.",
            service: web(),
            endpoints: "c",
            client: "outside",
            to: NODE_PORT,
            outcome: "c 192.168.50.2:",
        },
        Walk {
            title: "externalTrafficPolicy Local with an endpoint on the node",
            text: "Endpoints are `a` on this node and `c` on another. Only `a` is used, and the source \
                   is not translated.",
            service: web().external_local(),
            endpoints: "a c",
            client: "outside",
            to: NODE_PORT,
            outcome: "a 192.0.2.10:",
        },
        Walk {
            title: "externalTrafficPolicy Local without endpoint on the node",
            text: "The packet is dropped, so that a load balancer tries another node.",
            service: web().external_local(),
            endpoints: "c",
            client: "outside",
            to: NODE_PORT,
            outcome: SILENCE,
        },
        Walk {
            title: "External IP",
            text: "No interface has the address; packets to it must only be routed to the node.",
            service: web().external_ip("198.51.100.1"),
            endpoints: "c",
            client: "outside",
            to: EXTERNAL_IP,
            outcome: "c 192.168.50.2:",
        },
        Walk {
            title: "Address of a load balancer, source in loadBalancerSourceRanges",
            text: "The ranges are 192.0.2.0/24.",
            service: balanced().spec("loadBalancerSourceRanges", ranges.clone()),
            endpoints: "c",
            client: "outside",
            to: VIP,
            outcome: "c 192.168.50.2:",
        },
        Walk {
            title: "Address of a load balancer, source not in loadBalancerSourceRanges",
            text: "The ranges are 192.0.2.0/24, also for pods. The packet is dropped before \
                   its destination is translated.",
            service: balanced().spec("loadBalancerSourceRanges", ranges),
            endpoints: "c",
            client: "pod",
            to: VIP,
            outcome: SILENCE,
        },
    ]
}

impl Walk {
    /// The section.
    fn run(&self) -> String {
        let mut lab = Lab::new();
        lab.apply(&[&self.service, &self.to.slice(self.endpoints)]);
        let node = lab.world.node();
        let trace = Trace::start(node, FIRST_PACKETS);
        let limit = if self.outcome == SILENCE { PRINTED } else { USED };
        let printed = connect_by(lab.world.host(self.client), &self.to.connection(limit));
        assert!(printed.contains(self.outcome), "{}: {printed}", self.title);

        let mut section = Section::new(self.title, self.text);
        section.show(self.client, &self.to.connection(PRINTED), &printed);
        section.show("node", "nft monitor trace", &trace.finish(node, self.to));
        if !matches!(self.outcome, REFUSED | SILENCE) {
            section.show_connections(node, self.to);
        }
        section.show_elements(node, self.to, &[self.to.key()]);
        section.end()
    }
}

impl Target {
    /// How elements name the target.
    fn key(self) -> &'static str {
        if self.port == NODE_PORT.port { "30080" } else { self.address }
    }
}

/// A part of the page: a heading, its explanation, and commands with their output.
struct Section(String);

impl Section {
    fn new(title: &str, text: &str) -> Self {
        Self(format!("\n## {title}\n\n{text}\n\n```console\n"))
    }

    fn show(&mut self, host: &str, command: &str, output: &str) {
        write!(self.0, "{host}$ {command}\n{output}").unwrap();
    }

    fn show_connections(&mut self, node: &Host, to: Target) {
        if let Some(conntrack) = conntrack() {
            let arguments = to.list_connections();
            let flows = node.output(conntrack, &arguments).ok();
            self.show("node", &format!("conntrack {}", arguments.join(" ")), &flows);
        }
    }

    fn show_elements(&mut self, node: &Host, to: Target, keys: &[&str]) {
        let list = to.list_table();
        self.show("node", &format!("nft {list}"), &elements_with(&node.nft(&list), keys));
    }

    fn end(self) -> String {
        self.0 + "```\n"
    }
}

/// The first three packets of a connection.
fn further_packets() -> String {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &CLUSTER_IP.slice("c")]);
    let node = lab.world.node();
    let trace = Trace::start(node, ALL_PACKETS);
    let printed = connect_by(lab.world.host("pod"), &CLUSTER_IP.connection(USED));
    assert!(printed.starts_with("c 10.244.1.9:"), "{printed}");

    let mut section = Section::new(
        "The reply, and the second packet",
        "The first packet of the connection (`syn`) passes the rules. Conntrack stores the \
         translation of both directions and applies it to all further packets. The reply (SYN and \
         ACK, printed as `0x12`) leaves with the address of the service as its source. The \
         client's second packet (`ack`) goes to the same endpoint. Chains of type nat do not see \
         these packets, so no rule stands between their lines `prerouting` and `postrouting`.",
    );
    section.show("pod", &CLUSTER_IP.connection(PRINTED), &printed);
    section.show("node", "nft monitor trace", &trace.packets(node, 3));
    section.show_connections(node, CLUSTER_IP);
    section.end()
}

/// A client that returns, and its timer.
fn affinity() -> String {
    let mut lab = Lab::new();
    let config = json!({"clientIP": {"timeoutSeconds": 10_800}});
    let service = web().spec("sessionAffinity", json!("ClientIP"));
    let service = service.spec("sessionAffinityConfig", config);
    let slice = |endpoints| CLUSTER_IP.slice(endpoints);
    let mut section = Section::new("Session affinity ClientIP", AFFINITY);
    let connect = |limit| CLUSTER_IP.connection(limit);
    let client = |lab: &Lab| {
        let elements = elements_with(&lab.world.node().nft(&CLUSTER_IP.list_table()), &["expires"]);
        elements
            .lines()
            .filter(|line| line.contains("expires"))
            .fold(String::new(), |all, line| all + line + "\n")
    };

    lab.apply(&[&service, &slice("a")]);
    section.show("pod", &connect(PRINTED), &connect_by(lab.world.host("pod"), &connect(USED)));
    lab.apply(&[&slice("a b c d")]);
    thread::sleep(Duration::from_secs(2));
    section.show("node", "nft list map ip kube-proxy affinity-clients", &client(&lab));
    let trace = Trace::start(lab.world.node(), FIRST_PACKETS);
    let again = |limit| format!("for i in 1 2 3; do {}; done", connect(limit));
    let answers = lab.world.host("pod").output("bash", &["-c", &again(USED)]).ok();
    assert!(answers.lines().all(|line| line.starts_with("a ")), "{answers}");
    section.show("pod", &again(PRINTED), &answers);
    section.show("node", "nft list map ip kube-proxy affinity-clients", &client(&lab));
    section.show("node", "nft monitor trace", &trace.finish(lab.world.node(), CLUSTER_IP));
    section.show_elements(lab.world.node(), CLUSTER_IP, &[CLUSTER_IP.address, "1:"]);
    section.end()
}

/// The explanation of the section.
const AFFINITY: &str = "\
The timeout is three hours. `pod` connects while `a` is the only endpoint, and again two seconds \
after `b`, `c` and `d` have joined. It reaches `a` every time, and its timer starts again at each new \
connection. The kernel stores the endpoint under the client hash, a hash of the address: that of \
`pod` is the number after `1:0`. Clients with the same client hash share the endpoint.";

/// Seconds for a connection that the page shows, and until silence.
const PRINTED: u32 = 2;

/// Seconds for a connection that gets an answer: on a busy machine bash may take long to start.
const USED: u32 = 25;

/// The command's output, or [`SILENCE`].
fn connect_by(client: &Host, command: &str) -> String {
    let finished = client.output("bash", &["-c", command]);
    if finished.code() == Some(124) {
        return format!("{SILENCE}\n");
    }
    // bash prints it twice.
    let last = |text: &str| text.lines().last().map(|line| format!("{line}\n"));
    finished.stdout + &last(&finished.stderr).unwrap_or_default()
}

/// `nft monitor trace` on the node.
struct Trace(Process);

impl Trace {
    /// Traces the packets that `rules` select.
    fn start(node: &Host, rules: &str) -> Self {
        node.nft_script(&TRACED.replace("RULES", rules));
        let nft = if fs::exists("/usr/sbin/nft").unwrap() { "/usr/sbin/nft" } else { "nft" };
        let trace = Self(node.spawn(nft, &["monitor", "trace"]));
        // It does not report when it has started to listen.
        eventually("nft monitor listens", Duration::from_secs(10), || {
            let _ = node.send_udp("192.0.2.10:9");
            trace.0.output().contains("dport 9 ").then_some(())
        });
        trace
    }

    /// The rules that the first packet to `to` passed, chain by chain.
    fn finish(self, node: &Host, to: Target) -> String {
        let output = self.end(node);
        let address = format!("{} daddr {} ", to.family(), to.address);
        let first = output.lines().find(|line| line.contains("packet:") && line.contains(&address));
        let id = first.unwrap().split(' ').nth(2).unwrap();
        let prefix = format!("trace id {id} {} kube-proxy ", to.family());
        let lines = output.lines().filter_map(|line| line.strip_prefix(&prefix));
        let mut rules = String::new();
        for line in lines {
            let first_chain = line.contains("-pre-dnat packet:");
            if first_chain && !rules.is_empty() {
                break; // It was sent again.
            }
            rules.extend(rule(line));
        }
        rules
    }

    /// The first `count` packets: their headers at prerouting and postrouting, and the rules that
    /// they passed in between.
    fn packets(self, node: &Host, count: usize) -> String {
        let output = self.end(node);
        let mut packets: Vec<(&str, String)> = Vec::new();
        for line in output.lines().filter_map(|line| line.strip_prefix("trace id ")) {
            let (id, line) = line.split_once(' ').unwrap();
            if let Some(header) = line.strip_prefix("inet tracing prerouting packet: ") {
                packets.push((id, format!("prerouting: {}\n", tcp_header(header))));
                continue;
            }
            let Some((_, packet)) = packets.iter_mut().rev().find(|(it, _)| *it == id) else {
                continue;
            };
            if let Some(line) = line.strip_prefix("ip kube-proxy ") {
                packet.extend(rule(line));
            } else if let Some(header) = line.strip_prefix("inet tracing postrouting packet: ") {
                writeln!(packet, "postrouting: {}", tcp_header(header)).unwrap();
            }
        }
        packets.into_iter().take(count).map(|(_, packet)| packet).collect()
    }

    /// Ends the trace; returns the output.
    fn end(self, node: &Host) -> String {
        // Traces arrive in order, so none is missing once this has arrived.
        let _ = node.send_udp("192.0.2.10:10");
        eventually("the last trace of nft monitor", Duration::from_secs(10), || {
            self.0.output().contains("dport 10 ").then_some(())
        });
        self.0.terminate(Duration::from_secs(10)).stdout
    }
}

/// The chain and rule of a line, if it is the trace of a rule.
fn rule(line: &str) -> Option<String> {
    let (chain, rule) = line.split_once(" rule ")?;
    let rule = rule.rsplit_once(" (verdict").map_or(rule, |(rule, _)| rule);
    Some(without_counts(&format!("{chain}: {rule}\n")))
}

/// A rule or element without the numbers of its counter: a first packet may be sent again.
fn without_counts(text: &str) -> String {
    let Some((before, counter)) = text.split_once(" counter packets ") else {
        return text.to_owned();
    };
    let rest = counter.splitn(4, ' ').nth(3).map_or(String::new(), |rest| format!(" {rest}"));
    format!("{before} counter{rest}")
}

#[test]
fn the_numbers_of_a_counter_are_left_out() {
    for (text, expected) in [
        ("meta priority 1:1 counter packets 2 bytes 120 drop", "meta priority 1:1 counter drop"),
        ("refuse: counter packets 2 bytes 120 goto refuse", "refuse: counter goto refuse"),
        ("10.96.0.1 counter packets 2 bytes 120", "10.96.0.1 counter"),
        ("ip daddr @cluster-ips goto refuse", "ip daddr @cluster-ips goto refuse"),
    ] {
        assert_eq!(without_counts(text), expected);
    }
}

/// Addresses, ports and flags of a traced packet.
fn tcp_header(packet: &str) -> String {
    let part = |start, end| &packet[packet.find(start).unwrap()..packet.find(end).unwrap()];
    format!("{} {}", part("ip saddr", " ip dscp"), part("tcp sport", " tcp window"))
}

/// First packets of connections.
const FIRST_PACKETS: &str = "
            tcp flags & (syn | ack) == syn meta nftrace set 1
            udp dport 53 meta nftrace set 1";

/// All packets of connections to a service, and replies of endpoints.
const ALL_PACKETS: &str = "
            tcp dport 80 meta nftrace set 1
            tcp sport 8080 meta nftrace set 1";

/// Traces packets at their first hook, and those of [`Trace::start`] and [`Trace::end`].
const TRACED: &str = "
    table inet tracing {
        chain prerouting {
            type filter hook prerouting priority -300
            RULES
        }
        chain output {
            type filter hook output priority -300
            RULES
            udp dport 9-10 meta nftrace set 1
        }
        chain postrouting {
            type filter hook postrouting priority 300
        }
    }";

/// The listed elements that name one of `keys`, with their set or map, and the endpoints of
/// the lists that they lead to.
fn elements_with(listed: &str, keys: &[&str]) -> String {
    let elements = elements(listed);
    let named = |(set, element): &&(&str, &str)| {
        keys.iter().any(|key| element.contains(key))
            || (*set == "hairpin-connections" && element.contains("tcp"))
    };
    let named: Vec<_> = elements.iter().filter(named).collect();
    let lists: BTreeSet<_> = named.iter().filter_map(|(_, element)| list_of(element)).collect();
    let endpoints = elements.iter().filter(|(set, element)| {
        *set == "endpoints" && lists.iter().any(|list| element.starts_with(list))
    });
    let found: BTreeSet<_> = named.into_iter().chain(endpoints).collect();
    let line = |(set, element): &(&str, &str)| format!("{set}: {}\n", without_counts(element));
    found.into_iter().map(line).collect()
}

/// The elements that `nft list table` prints, with their set or map.
fn elements(listed: &str) -> Vec<(&str, &str)> {
    let mut elements = Vec::new();
    let mut set = "";
    let mut is_list = false;
    for line in listed.lines() {
        if let Some(name) = line.strip_prefix("\tset ").or(line.strip_prefix("\tmap ")) {
            set = name.trim_end_matches(" {");
        }
        // A comment of the set itself is none.
        is_list |= line.starts_with("\t\telements = {");
        if is_list {
            let line = line.trim().trim_start_matches("elements = {").trim_end_matches('}');
            let each = line.split(',').map(str::trim).filter(|element| !element.is_empty());
            elements.extend(each.map(|element| (set, element)));
        }
        is_list &= !line.ends_with('}');
    }
    elements
}

#[test]
fn elements_are_those_between_the_braces_of_elements() {
    let listed = "table ip kube-proxy {
\tcomment \"layout 3, of deltaproxy\"
\tmap unserved-services {
\t\tcomment \"service addresses without endpoints: 1:0 refuse, 1:1 drop\"
\t\ttype ipv4_addr . inet_proto . inet_service : classid
\t\telements = { 10.96.0.10 . tcp . 80 : 1:0,
\t\t\t     10.96.0.11 . tcp . 80 : 1:1 }
\t}
\tset cluster-ips {
\t\ttype ipv4_addr
\t\telements = { 10.96.0.10 }
\t}
\tchain pick { }
}
";
    let expected = [
        ("unserved-services", "10.96.0.10 . tcp . 80 : 1:0"),
        ("unserved-services", "10.96.0.11 . tcp . 80 : 1:1"),
        ("cluster-ips", "10.96.0.10"),
    ];
    assert_eq!(elements(listed), expected);
}

/// Without nft too, each line below `nft list` is an element of one of our sets.
#[test]
fn the_page_shows_elements_of_our_sets() {
    let page = fs::read_to_string(PAGE).unwrap();
    let below = page.split("\nnode$ nft list ").skip(1);
    let lines = below.flat_map(|text| {
        let lines = text.lines().skip(1);
        lines.take_while(|line| !line.contains("$ ") && *line != "```")
    });
    let lines: Vec<_> = lines.collect();
    assert!(lines.len() > 60, "{lines:#?}");
    for line in lines {
        let (set, element) = line.split_once(": ").unwrap();
        assert!(SetId::ALL.iter().any(|it| it.name() == set), "{line}");
        assert!(!element.starts_with("comment "), "{line}");
        assert!(element.matches('"').count().is_multiple_of(2), "{line}");
    }
}

/// How elements of the list begin that the route of an element names.
fn list_of(element: &str) -> Option<String> {
    let (upper, lower) = element.rsplit_once(" : ")?.1.split_once(':')?;
    let lower = u32::from_str_radix(lower, 16).ok()? & 0xff00;
    Some(format!("{upper}:{lower:x} . "))
}

/// Services that are not routed: the table is as before.
fn unrouted() -> String {
    let mut lab = Lab::new();
    let before = lab.world.node().nft("list table ip kube-proxy");
    let external = Service::headless("elsewhere").spec("type", json!("ExternalName"));
    let external = external.spec("clusterIP", json!("")).spec("clusterIPs", json!([]));
    let objects: [&dyn Object; 3] = [
        &Service::headless("headless").port(80),
        &Slice::new("headless").endpoints("a").label("service.kubernetes.io/headless", ""),
        &external.spec("externalName", json!("example.com")),
    ];
    lab.apply(&objects);
    assert_eq!(lab.world.node().nft("list table ip kube-proxy"), before);
    "\n## Headless and ExternalName services\n\nThey are a matter of DNS: \
     `nft list table ip kube-proxy` prints the same with and without them.\n"
        .to_owned()
}

fn conntrack() -> Option<&'static str> {
    ["/usr/sbin/conntrack", "/sbin/conntrack"].into_iter().find(|path| fs::exists(path).unwrap())
}

const INTRODUCTION: &str = "\
# Walk-throughs

Read this page to debug a node or to learn the rules: it follows packets through the tables.
The commands work on any node, those with `nft monitor trace` after the table [below](#trace-a-packet-by-hand) is added.
A test runs the commands in network namespaces and compares their output with this page.

- The node is 192.168.50.2, towards its pods 10.244.1.1. Pods have 10.244.0.0/16, services 10.96.0.0/16.
- On the node are the pods `pod` 10.244.1.9 and `a` 10.244.1.5; on another node is `c` 10.244.2.7; \
`outside` 192.0.2.10 is not part of the cluster.
- The service `default/web` has ClusterIP 10.96.0.10, port 80 and node port 30080. Its endpoint \
is `c` by default. An endpoint answers with its name, and the source address and port of the connection.
- `nft monitor trace` prints much more. The page shows chain and rule of each rule that the first \
packet matches.
- `nft list table` prints the whole table. The page shows the elements that name the destination, with their set or map, and \
`hairpin-connections`.
- `counter` stands for `counter packets N bytes M`: rules and elements that reject or drop packets [count them](show.md#refused-packets).

## Trace a packet by hand

[`deltaproxy explain`](explain.md) follows a packet without sending one, and `explain --trace` adds the trace of a real one.
With `nft` alone, as root on the node, a table marks packets and `nft monitor trace` prints the rules that they match, of those that it read at its start ([finding](../findings/nft-trace-of-new-rules.sh)):

```sh
nft -f - <<'END'
table inet tracing {
        chain prerouting {
                type filter hook prerouting priority -300
                tcp flags & (syn | ack) == syn ip saddr 10.244.1.9 meta nftrace set 1
        }
        chain output {
                type filter hook output priority -300
                tcp flags & (syn | ack) == syn ip daddr 10.96.0.10 meta nftrace set 1
        }
}
END
nft monitor trace                # ends with Ctrl-C
nft delete table inet tracing    # afterwards: a trace costs time for each packet
```
";

/// Routes that the page shows, or that a node has.
const ROUTES: [u32; 8] =
    [0x1_0001, 0x1_0103, 0x1_0009, 0x1_0021, 0x1_0141, 0x0_0040, 0x1_001c, 0x1_0184];

/// The section that decodes numbers.
fn legend() -> String {
    let rows = ROUTES.map(|bits| {
        let route = Route::from_bits(bits).expect("a route");
        format!("| `{:x}:{:x}` | {} |\n", bits >> 16, bits & 0xffff, meaning(route))
    });
    LEGEND.replace("ROWS\n", &rows.concat()).replace("CLASSES\n", &classes())
}

/// The rows of all size classes: codes that stand for one number of slots are a row.
fn classes() -> String {
    let route = |class: u32| Route::from_bits(0x1_0000 | class);
    let classes = (1..=SIZE_BITS).filter_map(|class| Some((class, route(class)?.size())));
    let (exact, others): (Vec<_>, Vec<_>) =
        classes.partition(|(_, size)| size.table().is_none() && size.fewest() == size.most());
    let last = exact.last().expect("exact classes").1.most();
    let first = format!("| `1` to `{last:x}` | 1 to {last}, as many as the code |\n");
    let rows = others.iter().map(|(class, size)| {
        let (fewest, most) = (size.fewest(), size.most());
        let slots = match size.table() {
            Some((HashedSource::Address, _)) => format!("hash table of {most}, by address"),
            Some(_) => format!("hash table of {most}, by address and port"),
            None => format!("{fewest} to {most}"),
        };
        format!("| `{class:x}` | {slots} |\n")
    });
    first + &rows.collect::<String>()
}

/// A route in words.
fn meaning(route: Route) -> String {
    let size = route.size();
    let (fewest, most) = (size.fewest(), size.most());
    let slots = match size.table() {
        Some(_) => format!("hash table of {most} slots"),
        None if fewest == most => format!("{most} slot{}", if most == 1 { "" } else { "s" }),
        None => format!("{fewest} to {most} slots"),
    };
    let Some(list) = route.list() else {
        return "no local endpoint; pods and the node use the internal route".to_owned();
    };
    let kind = if list.has_affinity() { "session" } else { "endpoint list" };
    let mut words = vec![format!("{kind} `{list}`"), slots];
    words.extend(route.timeout().map(|_| "with the first timeout of session affinity".to_owned()));
    let flags = route.flags();
    words.extend(flags.masquerade.then(|| "masquerade".to_owned()));
    words.extend(flags.local.then(|| "local endpoints only".to_owned()));
    words.join(", ")
}

const LEGEND: &str = "
## How to read the numbers

A frontend in `services` or `nodeports` leads to a *route*, 32 bits. The rules store it as the \
packet's priority, and nft(8) prints it as two hexadecimal halves, `NNNN:NNFS`:

| digits | meaning |
|---|---|
| `NNNN:NN` | the number of the endpoint list |
| `FS`, lowest five bits (`& 0:1f`) | the [size class](#size-classes): how many slots the list has |
| `FS`, bit `20` | masquerade, whatever the source |
| `FS`, bit `40` | local endpoints only (`externalTrafficPolicy: Local`); pods and the node use the internal route |
| `FS`, bit `80` | session affinity, or [port ranges](port-ranges.md): then the digits are `SSSS:TTFS`, with session `SSSS` and timeout `TT`, which is `7f` without affinity |

| route | meaning |
|---|---|
ROWS

Elements and rules contain these numbers in other places too:

```text
services: 10.96.0.10 . tcp . 80 : 1:1           frontend : route
endpoints: 1:0 . tcp . 0 : 10.244.2.7 . 8080    endpoint list (FS is 00) . protocol . slot : endpoint
unserved-services: ... : 1:0                    without endpoint: 1:0 rejects, 1:1 drops
affinity-slots: 1:0 . 0 : 1:8001                session . slot : first endpoint of session 1
meta priority & 0:1f == 0:1                     matches routes to a list of one slot
meta priority & ffff:ff00                       the endpoint list of the route, a key of endpoints
```

### Size classes

| size class | slots |
|---|---|
CLASSES

Where a class stands for a range, the rules draw again if the number that they drew is no slot. \
In a hash table, a hash of the source chooses the slot ([schedulers](schedulers.md#consistent-hashing)).
";

#[test]
fn the_walk_throughs_are_as_documented() {
    if !nft_available() {
        return;
    }
    let walks =
        [cluster_ip_walks(), node_and_hairpin_walks(), internal_policy_walks(), external_walks()];
    let walks = walks.concat();
    let mut page = INTRODUCTION.to_owned() + &legend();
    for walks in walks.chunks(WALKS_AT_ONCE) {
        thread::scope(|threads| {
            let running: Vec<_> = walks.iter().map(|walk| threads.spawn(|| walk.run())).collect();
            page.extend(running.into_iter().map(|walk| walk.join().expect("a walk")));
        });
    }
    page.push_str(&further_packets());
    page.push_str(&affinity());
    page.push_str(&unrouted());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        assert!(conntrack().is_some(), "install conntrack (apt-get install conntrack)");
        fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).unwrap();
        return fs::write(PAGE, page).unwrap();
    }
    let committed = fs::read_to_string(PAGE).unwrap();
    let (made, committed) = (comparable(&page), comparable(&committed));
    for (made, committed) in made.iter().zip(&committed) {
        assert_eq!(made, committed, "if this is right, set UPDATE_DOCS=1 and run the test again");
    }
    assert_eq!(made.len(), committed.len());
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/walkthroughs.md");

/// Each has its own namespaces and threads.
const WALKS_AT_ONCE: usize = 4;

/// The lines without the parts that vary.
fn comparable(page: &str) -> Vec<String> {
    let has_flow = |line: &str| {
        ["tcp  ", "udp  ", "node$ conntrack"].iter().any(|start| line.starts_with(start))
    };
    let lines = page.lines().filter(|line| conntrack().is_some() || !has_flow(line));
    lines.map(|line| without_ports(line, has_flow(line))).collect()
}

/// Removes the remaining time of a timer and numbers of five digits, which are random ports; keeps of a flow
/// only its addresses and ports.
fn without_ports(line: &str, is_flow: bool) -> String {
    let line = match line.find("src=") {
        Some(from) if is_flow => {
            &line[from..line.find(" [").or(line.find(" mark=")).unwrap_or(line.len())]
        }
        _ => line,
    };
    let timer = line.split_once(" expires ").and_then(|(start, rest)| {
        let (_, end) = rest.split_once(" : ")?;
        Some(format!("{start} : {end}"))
    });
    let line = timer.as_deref().unwrap_or(line);
    let mut kept = String::new();
    for part in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        let chosen = digits.len() < 4 || ["30080", "8080"].contains(&digits);
        let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        kept.push_str(if number && !chosen { "PORT " } else { part });
    }
    kept
}
