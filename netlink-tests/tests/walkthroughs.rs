//! docs/walkthroughs.md: commands and their output, produced again and compared with the page.
//!
//! `UPDATE_DOCS=1` writes the file instead. What differs from run to run (ports that nobody chose,
//! timers, the state of a connection that ends) is not compared.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::Duration;

use engine::ruleset::SetId;
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
    /// Address and port.
    to: (&'static str, u16),
    /// The command's output, up to a port that varies.
    outcome: &'static str,
}

fn web() -> Service {
    Service::new("web", "10.96.0.10").named_port("http", Protocol::Tcp, 80, 30080)
}

const CLUSTER_IP: (&str, u16) = ("10.96.0.10", 80);
const NODE_PORT: (&str, u16) = ("192.168.50.2", 30080);
const EXTERNAL_IP: (&str, u16) = ("198.51.100.1", 80);
const VIP: (&str, u16) = ("198.51.100.2", 80);

const REFUSED: &str = "Connection refused";
const SILENCE: &str = "(nothing within 2 seconds)";

fn cluster_ip_walks() -> Vec<Walk> {
    vec![
        Walk {
            title: "Pod to ClusterIP, endpoint on another node",
            text: "The destination is translated and the source is not: the endpoint sees the pod.",
            service: web(),
            endpoints: "c",
            client: "pod",
            to: CLUSTER_IP,
            outcome: "c 10.244.1.9:",
        },
        Walk {
            title: "Process on the node to ClusterIP",
            text: "A source that is not a pod is masqueraded: the endpoint sees the node.",
            service: web(),
            endpoints: "c",
            client: "node",
            to: CLUSTER_IP,
            outcome: "c 192.168.50.2:",
        },
        Walk {
            title: "Hairpin: a pod reaches itself",
            text: "The pod would answer itself directly if it saw its own address, so it sees \
                   the node's.",
            service: web(),
            endpoints: "a",
            client: "a",
            to: CLUSTER_IP,
            outcome: "a 10.244.1.1:",
        },
        Walk {
            title: "No endpoints",
            text: "The connection is refused at once, without a timeout.",
            service: web(),
            endpoints: "",
            client: "pod",
            to: CLUSTER_IP,
            outcome: REFUSED,
        },
        Walk {
            title: "A port that the service does not have",
            text: "The connection is refused, as on a host without a listener.",
            service: web(),
            endpoints: "c",
            client: "pod",
            to: ("10.96.0.10", 81),
            outcome: REFUSED,
        },
        Walk {
            title: "An address of the ServiceCIDR that no service has",
            text: "The packet is dropped. The default route could send it back here in a loop.",
            service: web(),
            endpoints: "c",
            client: "pod",
            to: ("10.96.0.77", 80),
            outcome: SILENCE,
        },
    ]
}

fn internal_policy_walks() -> Vec<Walk> {
    vec![
        Walk {
            title: "internalTrafficPolicy Local with an endpoint on the node",
            text: "Endpoints are a on this node and c on another; only a is used.",
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
            text: "Endpoints are a on this node and c on another; only a is used, and it sees \
                   the client.",
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
        let slice = Slice::new("web").without_ports().endpoints(self.endpoints);
        lab.apply(&[&self.service, &slice.named_target("http", Protocol::Tcp, 8080)]);
        let node = lab.world.node();
        let trace = Trace::start(node);
        let (address, _) = self.to;
        let limit = if self.outcome == SILENCE { PRINTED } else { USED };
        let connect = connection(self.to, limit);
        let printed = connect_by(lab.world.host(self.client), &connect);
        assert!(printed.contains(self.outcome), "{}: {printed}", self.title);

        let mut section = format!("\n## {}\n\n{}\n\n```console\n", self.title, self.text);
        let mut show = |host: &str, command: &str, output: &str| {
            write!(section, "{host}$ {command}\n{output}").unwrap();
        };
        show(self.client, &connection(self.to, PRINTED), &printed);
        show("node", "nft monitor trace", &trace.finish(node, address));
        if let Some(conntrack) = conntrack()
            && !matches!(self.outcome, REFUSED | SILENCE)
        {
            let flows = node.output(conntrack, &["-L", "-d", address]).ok();
            show("node", &format!("conntrack -L -d {address}"), &flows);
        }
        let key = if self.to == NODE_PORT { "30080" } else { address };
        show("node", "nft list table ip kube-proxy", &elements_with(node, &[key]));
        section + "```\n"
    }
}

/// A client that returns, and its timer.
fn affinity() -> String {
    let mut lab = Lab::new();
    let config = json!({"clientIP": {"timeoutSeconds": 10_800}});
    let service = web().spec("sessionAffinity", json!("ClientIP"));
    let service = service.spec("sessionAffinityConfig", config);
    let slice = |endpoints| {
        let slice = Slice::new("web").without_ports().endpoints(endpoints);
        slice.named_target("http", Protocol::Tcp, 8080)
    };
    let mut section = AFFINITY.to_owned();
    let mut show = |host: &str, command: &str, output: &str| {
        write!(section, "{host}$ {command}\n{output}").unwrap();
    };
    let (address, _) = CLUSTER_IP;
    let connect = |limit| connection(CLUSTER_IP, limit);
    let client = |lab: &Lab| {
        let elements = elements_with(lab.world.node(), &["expires"]);
        elements
            .lines()
            .filter(|line| line.contains("expires"))
            .fold(String::new(), |all, line| all + line + "\n")
    };

    lab.apply(&[&service, &slice("a")]);
    show("pod", &connect(PRINTED), &connect_by(lab.world.host("pod"), &connect(USED)));
    lab.apply(&[&slice("a b c d")]);
    thread::sleep(Duration::from_secs(2));
    show("node", "nft list map ip kube-proxy affinity-clients", &client(&lab));
    let trace = Trace::start(lab.world.node());
    let again = |limit| format!("for i in 1 2 3; do {}; done", connect(limit));
    let answers = lab.world.host("pod").output("bash", &["-c", &again(USED)]).ok();
    assert!(answers.lines().all(|line| line.starts_with("a ")), "{answers}");
    show("pod", &again(PRINTED), &answers);
    show("node", "nft list map ip kube-proxy affinity-clients", &client(&lab));
    show("node", "nft monitor trace", &trace.finish(lab.world.node(), address));
    let elements = elements_with(lab.world.node(), &[address, "1:"]);
    show("node", "nft list table ip kube-proxy", &elements);
    section + "```\n"
}

/// The beginning of the section.
const AFFINITY: &str = "
## Session affinity ClientIP

The service remembers clients for three hours. `pod` connects while `a` is the only endpoint, and \
again two seconds after `b`, `c` and `d` have joined: it gets `a` every time, and its timer starts \
again at each new connection. The packet carries numbers as its priority between rules: `1:0` is \
the session of this service port, `1:8001` its first endpoint. Clients are remembered by place, a \
hash of the address: `pod` has the place after `1:0`, and clients of one place share the endpoint.

```console
";

/// Seconds for a connection that the page shows, and until silence.
const PRINTED: u32 = 2;

/// Seconds for a connection that gets an answer: on a busy machine bash may take long to start.
const USED: u32 = 25;

/// The command that connects to `to` within `limit` seconds.
fn connection((address, port): (&str, u16), limit: u32) -> String {
    format!("timeout {limit} bash -c 'head -1 </dev/tcp/{address}/{port}'")
}

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
    fn start(node: &Host) -> Self {
        node.nft_script(TRACED);
        let nft = if fs::exists("/usr/sbin/nft").unwrap() { "/usr/sbin/nft" } else { "nft" };
        let trace = Self(node.spawn(nft, &["monitor", "trace"]));
        // It does not report when it has started to listen.
        eventually("nft monitor listens", Duration::from_secs(10), || {
            let _ = node.send_udp("192.0.2.10:9");
            trace.0.output().contains("dport 9 ").then_some(())
        });
        trace
    }

    /// The rules that the first packet to `address` passed, chain by chain.
    fn finish(self, node: &Host, address: &str) -> String {
        // Traces arrive in order, so none is missing once this has arrived.
        let _ = node.send_udp("192.0.2.10:10");
        eventually("the last trace of nft monitor", Duration::from_secs(10), || {
            self.0.output().contains("dport 10 ").then_some(())
        });
        let output = self.0.terminate(Duration::from_secs(10)).stdout;
        let to = format!("ip daddr {address} ");
        let first = output.lines().find(|line| line.contains("packet:") && line.contains(&to));
        let id = first.unwrap().split(' ').nth(2).unwrap();
        let prefix = format!("trace id {id} ip kube-proxy ");
        let lines = output.lines().filter_map(|line| line.strip_prefix(&prefix));
        let mut rules = String::new();
        for line in lines {
            let first_chain = line.contains("-pre-dnat packet:");
            if first_chain && !rules.is_empty() {
                break; // It was sent again.
            }
            if let Some((chain, rule)) = line.split_once(" rule ") {
                let rule = rule.rsplit_once(" (verdict").map_or(rule, |(rule, _)| rule);
                writeln!(rules, "{chain}: {rule}").unwrap();
            }
        }
        rules
    }
}

/// First packets of connections, and the packets of [`Trace::start`].
const TRACED: &str = "
    table ip tracing {
        chain prerouting {
            type filter hook prerouting priority -300
            tcp flags & (syn | ack) == syn meta nftrace set 1
        }
        chain output {
            type filter hook output priority -300
            tcp flags & (syn | ack) == syn meta nftrace set 1
            udp dport 9-10 meta nftrace set 1
        }
    }";

/// The elements of the table that name one of `keys`, with their set or map, and the endpoints of
/// the lists that they lead to.
fn elements_with(node: &Host, keys: &[&str]) -> String {
    let listed = node.nft("list table ip kube-proxy");
    let elements = elements(&listed);
    let is_named = |(set, element): &&(&str, &str)| {
        keys.iter().any(|key| element.contains(key))
            || (*set == "hairpin-connections" && element.contains("tcp"))
    };
    let named: Vec<_> = elements.iter().filter(is_named).collect();
    let lists: BTreeSet<_> = named.iter().filter_map(|(_, element)| list_of(element)).collect();
    let endpoints = elements.iter().filter(|(set, element)| {
        *set == "endpoints" && lists.iter().any(|list| element.starts_with(list))
    });
    let found: BTreeSet<_> = named.into_iter().chain(endpoints).collect();
    found.into_iter().map(|(set, element)| format!("{set}: {element}\n")).collect()
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

This page follows connections through the tables, with commands that work on any node.
A test checks this page: it runs the commands in network namespaces and fails if their output \
differs (`UPDATE_DOCS=1 cargo test --package netlink-tests --test walkthroughs` writes the page).

- The node is 192.168.50.2, towards its pods 10.244.1.1. Pods have 10.244.0.0/16, services 10.96.0.0/16.
- On the node are the pods `pod` 10.244.1.9 and `a` 10.244.1.5; on another node is `c` 10.244.2.7; \
`outside` 192.0.2.10 is not part of the cluster.
- The service `default/web` has ClusterIP 10.96.0.10, port 80 and node port 30080. Its endpoint \
is `c` by default. An endpoint answers with its name, and the address and port that it sees.
- Of `nft monitor trace` the page shows chain and rule of each rule that matches the first packet. \
For that, a separate table sets `meta nftrace set 1`.
- Of `nft list table` it shows the elements that name the destination, with their set or map, and \
`hairpin-connections`.
";

#[test]
fn the_walk_throughs_are_as_documented() {
    if !nft_available() {
        return;
    }
    let walks = [cluster_ip_walks(), internal_policy_walks(), external_walks()].concat();
    let mut page = INTRODUCTION.to_owned();
    for walks in walks.chunks(WALKS_AT_ONCE) {
        thread::scope(|threads| {
            let running: Vec<_> = walks.iter().map(|walk| threads.spawn(|| walk.run())).collect();
            page.extend(running.into_iter().map(|walk| walk.join().expect("a walk")));
        });
    }
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
    let is_flow = |line: &str| line.starts_with("tcp  ") || line.starts_with("node$ conntrack");
    let lines = page.lines().filter(|line| conntrack().is_some() || !is_flow(line));
    lines.map(|line| without_ports(line, is_flow(line))).collect()
}

/// Removes the rest of a timer and numbers of five digits, which are random ports; keeps of a flow
/// only its addresses and ports.
fn without_ports(line: &str, is_flow: bool) -> String {
    let line = match line.find("src=") {
        Some(from) if is_flow => &line[from..line.find(" [").unwrap_or(line.len())],
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
