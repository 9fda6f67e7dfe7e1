//! The way from deltaproxy to another kube-proxy, or to the next deltaproxy: no connection fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use daemon::handover::{
    HANDOVER_TABLE, HandoverError, Purpose, Replace, Replacing, Step, hand_over,
    remove_handover_tables,
};
use engine::KnownElements;
use engine::ruleset::{self, Layouts, SetId};
use netlink_tests::scenario::kube_proxy::{DELETION, MODE_IPTABLES, MODE_NFTABLES, of_ipv6};
use netlink_tests::scenario::{
    self, Lab, Manifests, NODE_PORT, Node, Object, Race, Sent, Service, ServiceCidr, Slice, WEB,
    Way, keeps_source, masquerades, slice, web_with_node_port,
};
use netlink_tests::{
    Answer, Host, Net, Process, Server, deltaproxy_binary, eventually, ip6_of, kernel_has_owners,
    nft_available,
};
use nft::family::Family;
use nft::kernel::{ElementRead, Extent, Kernel, Nftables};
use nft::{Chain, Element, Operation, Set, TableFlags, TableRef, Transaction, Value, WholeTable};
use nix::sys::signal::Signal;
use serde_json::json;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The elements that need not be listed.
type Known = [Option<KnownElements>; 2];

/// A node with two pods that serve, and clients. The manifests lead to pod `a` alone.
struct Cluster {
    net: Net,
    _pods: [(Host, Server); 2],
    clients: [Host; 2],
    manifests: Manifests,
}

impl Cluster {
    /// Applies the manifests once; returns the kernel of the node.
    fn kernel_after_apply(&self) -> Nftables {
        let _ = self.manifests.once(self.node(), "apply").ok();
        self.node().run(|| Nftables::open().unwrap())
    }

    fn new() -> Self {
        let net = Net::new();
        let pods = [("a", "10.244.1.5"), ("b", "10.244.1.6")].map(|(name, ip)| {
            let pod = net.pod(name, ip);
            let server = pod.serve_tcp(8080, name);
            (pod, server)
        });
        let clients = [net.outside("outside", "192.0.2.10"), net.pod("client", "10.244.1.9")];
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let manifests = Manifests::new(&[
            ("cidr", &cidr),
            ("node", &Node::new()),
            ("web", &web_with_node_port()),
            ("slice", &slice("a")),
        ]);
        Self { net, _pods: pods, clients, manifests }
    }

    fn node(&self) -> &Host {
        self.net.node()
    }

    fn has_table(&self, name: &str) -> bool {
        self.node().nft("list tables").lines().any(|line| line == format!("table ip {name}"))
    }

    fn is_owned(&self) -> bool {
        self.node().nft("list table ip kube-proxy").contains("flags owner")
    }

    /// Starts the daemon and waits until it serves.
    #[track_caller]
    fn start(&self, options: &[&str]) -> Process {
        let options = [&["--healthz-bind-address=", "--metrics-bind-address="], options].concat();
        let daemon = self.manifests.run_with(self.node(), &options);
        eventually("an answer of the daemon's endpoint", SOON, || {
            let answer = self.clients[0].connect_tcp(WEB);
            matches!(answer, Answer::From { server, .. } if server == "a").then_some(())
        });
        self.all_reach("a");
        daemon
    }

    fn run(&self, command: &[&str]) -> String {
        self.node().output(deltaproxy_binary(), command).ok()
    }

    /// Opens connections without a pause while `work` runs; all must be answered.
    #[track_caller]
    fn under_traffic<T>(&self, work: impl FnOnce() -> T) -> T {
        let (result, failed) = self.failed_beside(work);
        assert!(failed.is_empty(), "{failed:?}");
        result
    }

    /// Deletes the tables as kube-proxy does, between `before` and `after`.
    #[track_caller]
    fn under_traffic_and_deletion<T>(&self, before: impl FnOnce(), after: impl FnOnce() -> T) -> T {
        self.under_traffic(|| {
            before();
            self.node().nft_script(DELETION);
            after()
        })
    }

    /// Opens connections without a pause while `work` runs; returns those that failed.
    fn failed_beside<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<Probe>) {
        let is_over = AtomicBool::new(false);
        thread::scope(|threads| {
            let over = Over(&is_over);
            let probe = |client| {
                let is_over = &is_over;
                move || connect_until(client, is_over)
            };
            let probers = self.clients.each_ref().map(|client| threads.spawn(probe(client)));
            let result = work();
            drop(over);
            (result, probers.map(|prober| prober.join().unwrap()).concat())
        })
    }

    #[track_caller]
    fn all_reach(&self, server: &str) {
        for client in &self.clients {
            for to in [WEB, NODE_PORT].repeat(5) {
                assert_eq!(client.connect_tcp(to).server(), server, "{to}");
            }
        }
    }
}

/// Fewest connections of each client beside some work.
const FEWEST: usize = 20;

/// Connections of each client without a pause, of the 28,232 for which it has a port.
const FEW_OF_ALL_PORTS: usize = 10_000;

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection that failed.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "for the message of a failed test")]
struct Probe {
    to: &'static str,
    answer: Answer,
    began: Instant,
    ended: Instant,
}

/// Returns the connections that failed.
fn connect_until(client: &Host, is_over: &AtomicBool) -> Vec<Probe> {
    let (mut failed, mut count) = (Vec::new(), 0);
    // Some of them after work that is done at once.
    while !is_over.load(Ordering::Relaxed) || count < FEWEST {
        for to in [WEB, NODE_PORT] {
            let began = Instant::now();
            let answer = client.connect_tcp(to);
            if !matches!(answer, Answer::From { .. }) {
                failed.push(Probe { to, answer, began, ended: Instant::now() });
            }
            count += 1;
        }
        // A port that comes again meets the conntrack entry of its last connection.
        if count > FEW_OF_ALL_PORTS {
            thread::sleep(Duration::from_millis(2));
        }
    }
    failed
}

fn kill(daemon: Process) {
    daemon.signal(Signal::SIGKILL);
    let _ = daemon.finish(SOON);
}

/// What kube-proxy checks at its start in any mode, without a change.
fn check_as_kube_proxy_does(node: &Host) {
    let check = "add table ip kube-proxy { comment \"rules for kube-proxy\" ; }";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), check).unwrap();
    node.nft(&format!("--check -f {}", file.path().display()));
}

/// From mode nftables to deltaproxy, and back.
#[test]
fn mode_nftables_takes_over_after_a_regular_end() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    cluster.node().nft_script(MODE_NFTABLES);
    cluster.all_reach("b");
    let daemon = cluster.start(&[]);
    let mut open = cluster.clients[0].open_tcp(WEB).unwrap();
    cluster.under_traffic(|| {
        assert_eq!(daemon.terminate(SOON).warnings(), [""; 0]);
        check_as_kube_proxy_does(cluster.node());
        thread::sleep(Duration::from_millis(200));
        cluster.node().nft_script(MODE_NFTABLES);
        cluster.node().nft_script(&of_ipv6(MODE_NFTABLES));
        thread::sleep(Duration::from_millis(200));
    });
    cluster.all_reach("b");
    assert_eq!(open.ask().server(), "a");
    // Leftovers of ours go while the other one serves.
    assert!(cluster.node().nft("list table ip kube-proxy").contains("map endpoints {"));
    let removed = cluster.under_traffic(|| cluster.run(&["cleanup"]));
    assert!(removed.contains("chains and sets of deltaproxy in table ip kube-proxy"), "{removed}");
    assert!(removed.lines().count() <= 4, "a line for each table: {removed}");
    assert!(removed.contains("delete table ip deltaproxy-handover\n"), "{removed}");
    let left = cluster.node().nft("list table ip kube-proxy");
    for ours in ["endpoints {", "service-traffic", "choose", "map nodeports {"] {
        assert!(!left.contains(ours), "{ours} in {left}");
    }
    cluster.all_reach("b");
    assert_eq!(open.ask().server(), "a");
    assert!(!cluster.has_table(HANDOVER_TABLE));
    let stays = ["ip", "ip6"]
        .map(|family| format!("table {family} kube-proxy stays: it is of another kube-proxy\n"));
    assert_eq!(cluster.run(&["cleanup"]), stays.concat());
}

/// kube-proxy keeps the comment of the table, and our sets and chains in it.
#[test]
fn a_table_that_mode_nftables_took_over_is_taken_back() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&[]);
    let mut open = cluster.clients[0].open_tcp(WEB).unwrap();
    cluster.under_traffic(|| {
        let _ = daemon.terminate(SOON);
        cluster.node().nft_script(MODE_NFTABLES);
        cluster.node().nft_script(&of_ipv6(MODE_NFTABLES));
        cluster.all_reach("b");
    });
    let mut of_other = cluster.clients[0].open_tcp(WEB).unwrap();
    let daemon = cluster.under_traffic(|| cluster.start(&[]));
    assert!(!cluster.node().nft("list table ip kube-proxy").contains("service-ips"));
    cluster.under_traffic(|| assert_eq!(daemon.terminate(SOON).warnings(), [""; 0]));
    cluster.all_reach("a");
    assert_eq!((open.ask().server(), of_other.ask().server()), ("a", "b"));
}

/// The addresses of services that kube-proxy alone has known: the first of them are asked.
fn new_services(count: u16) -> impl Iterator<Item = Ipv4Addr> {
    let first = u32::from(Ipv4Addr::new(10, 96, 10, 0));
    (0..u32::from(count)).map(move |i| (first + i).into())
}

/// What kube-proxy in mode nftables holds for `web` and further services, which all lead to pod `b`.
fn mode_nftables_with(count: u16, family: Family) -> String {
    let chain = "service-TCOU7JCQ-default/web/tcp/http";
    let added = new_services(count).fold(String::new(), |text, ip| {
        text + "add element ip kube-proxy cluster-ips { "
            + &ip.to_string()
            + " }\nadd element ip kube-proxy service-ips { "
            + &ip.to_string()
            + " . tcp . 80 : goto "
            + chain
            + " }\n"
    });
    let script = MODE_NFTABLES.to_owned() + &added;
    if family == Family::Ip {
        return script;
    }
    let rest = of_ipv6(&script);
    let of_web = |line: &&str| line.contains("add element") || line.contains("default/web");
    let web = script.lines().filter(of_web).map(|line| {
        let words = line.split(' ').map(|word| match word.parse::<Ipv4Addr>() {
            Ok(ip) => ip6_of(ip).to_string(),
            Err(_) if word == "ip" => "ip6".to_owned(),
            Err(_) => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    });
    rest + "\n" + &web.collect::<Vec<_>>().join("\n")
}

/// Connects to addresses in turn until the flag is set; returns the answers that failed.
fn ask_until(client: &Host, to: &[SocketAddr], is_over: &AtomicBool) -> (usize, Vec<Answer>) {
    let (mut count, mut failed) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) || count < FEWEST {
        let answer = client.connect_tcp(to[count % to.len()]);
        count += 1;
        if !matches!(answer, Answer::From { .. }) {
            failed.push(answer);
        }
    }
    (count, failed)
}

#[test]
fn services_that_changed_while_mode_nftables_served_are_never_refused_afterwards() {
    if !nft_available() {
        return;
    }
    for count in [1, 5_000] {
        let cluster = Cluster::new();
        let daemon = cluster.start(&[]);
        let _ = daemon.terminate(SOON);
        for family in [Family::Ip, Family::Ip6] {
            let script = mode_nftables_with(count, family);
            // In a user namespace a transaction has at most the size of the socket's buffer.
            let lines: Vec<_> = script.lines().collect();
            let added = lines.len() - 2 * usize::from(count);
            cluster.node().nft_script(&lines[..added].join("\n"));
            for lines in lines[added..].chunks(1_000) {
                cluster.node().nft_script(&lines.join("\n"));
            }
        }
        let mut documents = Vec::new();
        for (i, ip) in new_services(count).enumerate() {
            let name = format!("new-{i}");
            documents.extend(Service::new(&name, &ip.to_string()).port(80).documents());
            documents.extend(Slice::new(&name).endpoints("a").documents());
        }
        let documents: Vec<_> = documents.iter().map(ToString::to_string).collect();
        cluster.manifests.write_text("new", &documents.join("\n---\n"));
        let first = new_services(count).next().unwrap();
        let last = new_services(count).last().unwrap();
        let to = [first, last].map(|ip| [IpAddr::from(ip), ip6_of(ip).into()]).concat();
        let to: Vec<_> = to.into_iter().map(|ip| SocketAddr::from((ip, 80))).collect();
        let is_over = AtomicBool::new(false);
        let answers = thread::scope(|threads| {
            let over = Over(&is_over);
            let (to, is_over) = (&to, &is_over);
            let ask = |client| threads.spawn(move || ask_until(client, to, is_over));
            let asking = cluster.clients.each_ref().map(ask);
            let _daemon = cluster.start(&[]);
            for to in to {
                let taken = || cluster.clients[1].connect_tcp(to).server() == "a";
                eventually("the pod of deltaproxy", SOON, || taken().then_some(()));
            }
            drop(over);
            asking.map(|it| it.join().unwrap())
        });
        assert!(answers.iter().all(|(_, failed)| failed.is_empty()), "{count}: {answers:?}");
    }
}

/// From mode iptables to deltaproxy, and back. kube-proxy deletes the tables at its start; its own
/// rules follow seconds later.
#[test]
fn mode_iptables_takes_over_after_a_regular_end() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    cluster.node().nft_script(MODE_IPTABLES);
    cluster.all_reach("b");
    let daemon = cluster.under_traffic(|| {
        let mut daemon = cluster.manifests.run(cluster.node());
        daemon.wait_for_line("removed leftovers of another proxy mode", SOON);
        daemon
    });
    cluster.all_reach("a");
    cluster.node().nft_script("delete table ip nat");
    let mut open = cluster.clients[0].open_tcp(WEB).unwrap();
    let end = || assert_eq!(daemon.terminate(SOON).warnings(), [""; 0]);
    cluster.under_traffic_and_deletion(end, || {
        assert!(!cluster.has_table("kube-proxy"));
        thread::sleep(Duration::from_millis(500));
        assert_eq!(open.ask().server(), "a");
        cluster.node().nft_script(MODE_IPTABLES);
        thread::sleep(Duration::from_millis(200));
    });
    // The rules of the other program win over the handover table.
    assert!(cluster.has_table(HANDOVER_TABLE));
    cluster.all_reach("b");
    assert_eq!(open.ask().server(), "a");
    cluster.under_traffic(|| cluster.run(&["cleanup"]));
    assert!(!cluster.has_table(HANDOVER_TABLE));
    assert!(cluster.node().nft("list table ip nat").contains("KUBE-SVC-WEB"));
    cluster.all_reach("b");
}

/// Services beside `web`: when the next program comes, the one does not exist any more, and its node
/// port is one of a program; the other one has no endpoint.
const DELETED: &str = "10.96.0.20:80";
const DELETED_NODE_PORT: &str = "192.168.50.2:30090";
const EMPTIED: &str = "10.96.0.30:80";

impl Cluster {
    fn add_services_of_before(&self) {
        let deleted = Service::new("deleted", "10.96.0.20").node_port(80, 30090);
        let emptied = Service::new("emptied", "10.96.0.30").port(80);
        self.manifests.write("deleted", &deleted);
        self.manifests.write("deleted-slice", &Slice::new("deleted").endpoints("a"));
        self.manifests.write("emptied", &emptied);
        self.manifests.write("emptied-slice", &Slice::new("emptied").endpoints("a"));
    }

    /// Nothing reaches what was removed.
    #[track_caller]
    fn serves_what_the_next_program_serves(&self) {
        let server = self.node().serve_tcp(30090, "program");
        for client in &self.clients {
            assert_eq!(client.connect_tcp(DELETED_NODE_PORT).server(), "program");
            for to in [EMPTIED, DELETED] {
                let answer = client.connect_tcp(to);
                assert!(!matches!(answer, Answer::From { .. }), "{to}: {answer:?}");
            }
        }
        drop(server);
    }
}

/// Packets that the handover table translated are none of the next program: not when they come in by
/// the loopback device, and not the second one without an answer.
#[test]
fn the_handover_goes_on_until_another_program_translates() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    let own = Service::new("own", "10.96.0.40").node_port(80, 30095);
    let silent = Service::new("silent", "10.96.0.50").port(80);
    for (name, service, endpoint) in [("own", own, "node"), ("silent", silent, "10.244.1.77")] {
        cluster.manifests.write(name, &service);
        let slice = Slice::new(name).endpoints(endpoint);
        cluster.manifests.write(&format!("{name}-slice"), &slice);
    }
    let _server = cluster.node().serve_tcp(8080, "own");
    let daemon = cluster.start(&[]);
    let check = || {
        assert_eq!(cluster.node().connect_tcp("192.168.50.2:30095").server(), "own");
        let mut flow = cluster.clients[1].open_udp("10.96.0.50:80");
        for _ in 0..2 {
            let _ = flow.ask();
        }
        cluster.all_reach("a");
    };
    drop(daemon.terminate(SOON));
    assert!(cluster.node().nft("list ruleset").contains("chain witness-output"));
    check();
    cluster.node().nft_script(DELETION);
    check();
    check();
}

#[test]
fn after_the_way_back_only_the_services_of_mode_nftables_are_served() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    cluster.add_services_of_before();
    let daemon = cluster.start(&[]);
    assert_eq!(cluster.clients[0].connect_tcp(DELETED).server(), "a");
    cluster.under_traffic(|| {
        drop(daemon.terminate(SOON));
        assert_eq!(cluster.clients[0].connect_tcp(DELETED).server(), "a");
        let emptied = "add element ip kube-proxy cluster-ips { 10.96.0.30 }
            add element ip kube-proxy no-endpoint-services { 10.96.0.30 . tcp . 80 : goto reject-chain }";
        cluster.node().nft_script(&format!("{MODE_NFTABLES}\n{emptied}"));
    });
    cluster.serves_what_the_next_program_serves();
}

#[test]
fn after_the_way_back_only_the_services_of_mode_iptables_are_served() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    cluster.add_services_of_before();
    let daemon = cluster.start(&[]);
    cluster.under_traffic_and_deletion(
        || drop(daemon.terminate(SOON)),
        || {
            // Until the rules of the next program are there.
            for to in [DELETED, DELETED_NODE_PORT, EMPTIED] {
                assert_eq!(cluster.clients[0].connect_tcp(to).server(), "a");
            }
            let emptied = "table ip filter {
                chain FORWARD { type filter hook forward priority 0; ip daddr 10.96.0.30 reject; }
            }";
            cluster.node().nft_script(&format!("{emptied}\n{MODE_IPTABLES}"));
            cluster.all_reach("b");
        },
    );
    cluster.serves_what_the_next_program_serves();
}

/// The cluster IPs are addresses of the node in mode ipvs, which translates after routing.
#[test]
fn the_handover_table_leaves_cluster_ips_to_mode_ipvs() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&[]);
    let mut open = cluster.clients[0].open_tcp(WEB).unwrap();
    let end = || drop(daemon.terminate(SOON));
    let _server = cluster.under_traffic_and_deletion(end, || {
        cluster.all_reach("a");
        // As IPVS does, it answers when the node gets the address.
        let server = cluster.node().serve_tcp(80, "ipvs");
        cluster.node().add_address(Ipv4Addr::new(10, 96, 0, 10));
        thread::sleep(Duration::from_millis(200));
        server
    });
    for client in &cluster.clients {
        assert_eq!(client.connect_tcp(WEB).server(), "ipvs");
        assert_eq!(client.connect_tcp(NODE_PORT).server(), "a");
    }
    assert_eq!(open.ask().server(), "a");
}

#[test]
fn the_next_daemon_adopts_the_tables_and_owns_them_later() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&[]);
    let next = cluster.under_traffic(|| {
        let ended = daemon.terminate(SOON);
        assert!(ended.stderr.contains("tables=left to the next program"), "{}", ended.stderr);
        check_as_kube_proxy_does(cluster.node());
        let left = cluster.node().nft("-a list table ip kube-proxy");
        assert!(!left.contains("flags owner"), "{left}");
        assert!(cluster.has_table(HANDOVER_TABLE));
        assert_eq!(cluster.clients[0].connect_tcp("10.96.0.10:81"), Answer::Refused);
        let mut next = cluster.manifests.run(cluster.node());
        next.wait_for_line("removed the handover tables", SOON);
        // Rules keep their handles, so nothing was loaded again but what the handover table did, and
        // the chains to which kube-proxy would have added its rules.
        let adopted = cluster.node().nft("-a list table ip kube-proxy");
        let again = ["cluster-ips-check", "nat-prerouting", "nat-output"].map(|chain| {
            let begin = adopted.find(&format!("\tchain {chain} {{")).unwrap();
            adopted[begin..].split_once("\n\t}").unwrap().0
        });
        let (again, kept): (Vec<_>, Vec<_>) =
            rules(&adopted).into_iter().partition(|rule| again.concat().contains(*rule));
        assert!(
            !kept.is_empty() && kept.iter().all(|rule| rules(&left).contains(rule)),
            "{kept:?}"
        );
        assert!(again.iter().any(|rule| !rules(&left).contains(rule)), "{again:?}");
        next.wait_for_line("the tables are owned now", SOON);
        next
    });
    assert!(cluster.is_owned() && !cluster.has_table(HANDOVER_TABLE));
    cluster.all_reach("a");
    cluster.manifests.set_endpoints("b");
    eventually("the other endpoint", SOON, || {
        (cluster.clients[0].connect_tcp(WEB).server() == "b").then_some(())
    });
    assert_eq!(next.terminate(SOON).warnings(), [""; 0]);
}

fn rules(listing: &str) -> Vec<&str> {
    listing.lines().filter(|line| line.contains(" # handle ")).collect()
}

#[test]
fn after_a_crash_cleanup_frees_the_tables_while_they_serve() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&[]);
    kill(daemon);
    // What kube-proxy's log says then.
    let refused = cluster.node().output("/usr/sbin/nft", &["add", "table", "ip", "kube-proxy"]);
    assert!(refused.stderr.contains("Operation not supported"), "{}", refused.stderr);
    cluster.under_traffic(|| {
        let freed = cluster.run(&["cleanup", "--keep-serving"]);
        assert!(freed.contains("table ip kube-proxy has no flags now"), "{freed}");
        cluster.node().nft_script(MODE_NFTABLES);
        thread::sleep(Duration::from_millis(200));
    });
    cluster.all_reach("b");
}

/// Mode iptables starts beside tables that it cannot delete, which win then.
#[test]
fn cleanup_removes_the_tables_of_a_crash_beside_mode_iptables() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&[]);
    kill(daemon);
    cluster.node().nft_script(MODE_IPTABLES);
    cluster.under_traffic(|| cluster.run(&["cleanup"]));
    assert!(!cluster.has_table("kube-proxy"));
    cluster.all_reach("b");
}

#[test]
fn without_table_ownership_other_programs_may_change_the_tables_at_any_time() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&["--table-ownership=off"]);
    assert!(!cluster.is_owned());
    check_as_kube_proxy_does(cluster.node());
    cluster.node().nft("add table ip kube-proxy");
    assert_eq!(daemon.terminate(SOON).warnings(), [""; 0]);
    assert!(cluster.has_table(HANDOVER_TABLE));
}

/// A daemon that is to own nothing frees the tables of an earlier one that owned them.
#[test]
fn tables_that_persist_are_freed_when_ownership_is_turned_off() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&[]);
    kill(daemon);
    let _next = cluster.under_traffic(|| {
        let mut next = cluster.start(&["--table-ownership=off"]);
        next.wait_for_line("the tables are without an owner now", SOON);
        cluster.node().nft("add table ip kube-proxy");
        next
    });
}

/// Each handover replaces both tables, while new connections are opened without a pause.
#[test]
fn no_flow_is_lost_during_handovers() {
    let mut lab = Lab::new();
    let objects = web_with_node_port();
    let _ = lab.apply(&[&objects, &slice("a b c")]);
    let node = lab.world.node().clone();
    let servers = ["a b c"];
    let ways = [("pod", WEB), ("node", WEB), ("outside", NODE_PORT), ("pod", NODE_PORT)];
    let ways = ways.map(|(client, to)| Way::new(client, to, &servers));
    let is_replaceable = kernel_has_owners();
    Race { ways: &ways, commits: 8, burst: 1, replaces_tables: false }.run(lab, |_, state| {
        let persist = state % 2 == 0 && is_replaceable;
        node.run(|| {
            let mut kernel = Nftables::open().unwrap();
            let changed = if is_replaceable {
                change_flags(&mut kernel, TableFlags { owner: false, persist }, [None, None])
            } else {
                hand_over(&mut kernel, [None, None], &|| false).unwrap().len()
            };
            assert_eq!(changed, if is_replaceable { Family::ALL.len() } else { 0 });
            let _ = remove_handover_tables(&mut kernel).unwrap();
        });
        // Counts as a commit.
        Sent { transactions: vec![Transaction::default()], ..Sent::default() }
    });
}

/// Gives both tables these flags; returns how many had others.
fn change_flags(kernel: &mut Nftables, flags: TableFlags, known: Known) -> usize {
    let purpose = Purpose::Flags(flags);
    let mut changed = 0;
    for (family, known) in Family::ALL.into_iter().zip(known) {
        let listed = Replacing::list(kernel, (family, purpose), known, &|| false).unwrap();
        let Some(mut replacing) = listed else { continue };
        while replacing.step(kernel).unwrap() != Step::Done {}
        changed += 1;
    }
    changed
}

const PERSISTENT: TableFlags = TableFlags { owner: false, persist: true };

/// Lists the IPv4 table, which is to persist.
fn listed(kernel: &mut Nftables) -> Replacing {
    let purpose = Purpose::Flags(PERSISTENT);
    Replacing::list(kernel, (Family::Ip, purpose), None, &|| false).unwrap().unwrap()
}

#[test]
fn an_interrupted_handover_changes_nothing() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let _ = cluster.manifests.once(cluster.node(), "apply").ok();
    let before = cluster.node().nft("-a list ruleset");
    // The second time, the first set is listed already.
    for most in 0..2 {
        let calls = AtomicUsize::new(0);
        let interrupted = || calls.fetch_add(1, Ordering::Relaxed) >= most;
        let mut kernel = cluster.node().run(|| Nftables::open().unwrap());
        let purpose = Purpose::Flags(PERSISTENT);
        let listed = Replacing::list(&mut kernel, (Family::Ip, purpose), None, &interrupted);
        assert!(matches!(listed, Err(HandoverError::Interrupted)));
        assert_eq!(cluster.node().nft("-a list ruleset"), before);
    }
    let mut kernel = cluster.node().run(|| Nftables::open().unwrap());
    let mut replacing = listed(&mut kernel);
    for _ in 0..2 {
        assert_eq!(replacing.step(&mut kernel).unwrap(), Step::Copied);
    }
    assert!(cluster.has_table(HANDOVER_TABLE));
    assert_eq!(remove_handover_tables(&mut kernel).unwrap().len(), 1);
    assert_eq!(cluster.node().nft("-a list ruleset"), before);
}

/// A daemon that is killed after any step leaves a table that serves for much longer than the minute
/// after its regular end.
#[test]
fn a_kill_between_two_steps_of_the_end_takes_no_service_away() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    add_many(&mut kernel, 5_000);
    let _ = change_flags(&mut kernel, PERSISTENT, [None, None]);
    let node = cluster.node();
    let steps = cluster.under_traffic(|| {
        let list = (Family::Ip, Purpose::Leave);
        let mut leaving = Replacing::list(&mut kernel, list, None, &|| false).unwrap().unwrap();
        let mut serving = 0;
        while leaving.step(&mut kernel).unwrap() != Step::Done {
            let own = node.nft("-t list table ip kube-proxy");
            if own.contains("type nat hook prerouting") && own.contains("map @services jump") {
                continue;
            }
            serving += 1;
            let endpoints = node.nft("-t list map ip deltaproxy-handover endpoints");
            assert!(endpoints.contains("timeout 1h"), "{endpoints}");
            let cluster_ips = node.nft("list set ip deltaproxy-handover cluster-ips");
            let is_unlimited = cluster_ips.contains("0.0.0.0 expires");
            assert!(is_unlimited && cluster_ips.contains("timeout 1h"), "{cluster_ips}");
            cluster.all_reach("a");
        }
        serving
    });
    assert!(steps > 1, "{steps}");
    // From the end on, the table itself serves. The handover table leaves all packets alone later.
    cluster.all_reach("a");
    let cluster_ips = node.nft("list set ip deltaproxy-handover cluster-ips");
    assert!(cluster_ips.contains("0.0.0.0 timeout 1m expires"), "{cluster_ips}");
    node.nft("delete table ip kube-proxy");
    let unknown_port = || cluster.clients[1].connect_tcp("10.96.0.10:81");
    assert_eq!(unknown_port(), Answer::Refused);
    node.nft("delete element ip deltaproxy-handover cluster-ips { 0.0.0.0 }");
    assert!(matches!(unknown_port(), Answer::Unreachable(_)), "the node has no route");
}

/// While the handover table serves, a change of elements takes effect at once, and the new table has
/// it too.
#[test]
fn changes_between_the_steps_of_a_handover_take_effect_at_once_and_stay() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    add_many(&mut kernel, 5_000);
    let before = counts(&mut kernel);
    let (mut changes, mut at_once) = (0, 0);
    cluster.under_traffic(|| {
        let mut replacing = listed(&mut kernel);
        while replacing.step(&mut kernel).unwrap() == Step::Copied {}
        loop {
            let found = change_between_steps((&mut replacing, &mut kernel), changes);
            changes += 1;
            at_once += u32::from(found);
            if replacing.step(&mut kernel).unwrap() == Step::Done {
                break;
            }
        }
    });
    assert!(changes > 5 && at_once >= changes - 2, "{at_once} of {changes}");
    assert_eq!(counts(&mut kernel), [before[0] + 5 * changes - 4, before[1] + changes]);
    let contents = kernel.read_table(&ruleset::table(Family::Ip)).unwrap().unwrap();
    assert_eq!(contents.table.flags, PERSISTENT);
    assert!(!cluster.has_table(HANDOVER_TABLE));
    cluster.all_reach("a");
}

/// Packets write the clients of session affinity, before and while the handover table serves.
#[test]
fn clients_keep_the_endpoints_that_they_got_before_and_during_a_handover() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let sticky = web_with_node_port().spec("sessionAffinity", json!("ClientIP"));
    cluster.manifests.write("web", &sticky);
    cluster.manifests.set_endpoints("a b");
    let mut kernel = cluster.kernel_after_apply();
    let ask = |client: &Host| client.connect_tcp(WEB).server().to_owned();
    let before = ask(&cluster.clients[0]);
    let mut replacing = listed(&mut kernel);
    while replacing.step(&mut kernel).unwrap() == Step::Copied {}
    let contents = kernel.read_table(&ruleset::table(Family::Ip)).unwrap().unwrap();
    assert!(contents.chains.iter().all(|chain| chain.base.is_none()), "packets enter our table");
    let during = ask(&cluster.clients[1]);
    while replacing.step(&mut kernel).unwrap() != Step::Done {}
    assert_eq!(count(&mut kernel, SetId::AffinityClients), 2);
    for _ in 0..10 {
        assert_eq!(cluster.clients.each_ref().map(ask), [before.clone(), during.clone()]);
    }
}

/// Other transactions than those of elements, and those that the kernel refuses, are for our table.
#[test]
fn another_commit_between_the_steps_of_a_handover_completes_the_new_table_first() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    let table = ruleset::table(Family::Ip);
    let [_, (set, elements)] = many(0..1);
    let other = Operation::AddChain(table.clone(), Chain::new("other"));
    let refused = Operation::DeleteElements(table.clone(), set, elements.into());
    for (operation, is_applied, persist) in [(other, true, true), (refused, false, false)] {
        let purpose = Purpose::Flags(TableFlags { owner: false, persist });
        let listed = Replacing::list(&mut kernel, (Family::Ip, purpose), None, &|| false);
        let mut replacing = listed.unwrap().unwrap();
        cluster.under_traffic(|| {
            while replacing.step(&mut kernel).unwrap() == Step::Copied {}
            let transaction = Transaction { operations: vec![operation] };
            assert_eq!(replacing.commit(&mut kernel, &transaction).is_ok(), is_applied);
            let contents = kernel.read_table(&table).unwrap().unwrap();
            assert_eq!(contents.table.flags.persist, persist);
            assert!(contents.chains.iter().any(|chain| &*chain.name == "other"));
            while replacing.step(&mut kernel).unwrap() != Step::Done {}
        });
        assert!(!cluster.has_table(HANDOVER_TABLE));
    }
}

#[test]
fn a_replaced_table_differs_in_its_flags_only() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let mut kernel = cluster.kernel_after_apply();
    let (flags, before) = whole_table(&mut kernel);
    assert_eq!(change_flags(&mut kernel, PERSISTENT, [None, None]), Family::ALL.len());
    let (persistent, after) = whole_table(&mut kernel);
    assert_eq!((flags, persistent), (0, PERSISTENT.bits()));
    let difference = after.difference_from(Some(&before)).unwrap();
    assert!(difference.is_empty(), "{difference}");
    assert_eq!(after.chains, before.chains);
}

/// The flags of the IPv4 table and all else of it. Handles of rules are no difference.
fn whole_table(kernel: &mut Nftables) -> (u32, WholeTable) {
    let table = ruleset::table(Family::Ip);
    let read = kernel.whole_table(table.family, &table.name, Extent::Whole).unwrap().unwrap();
    (read.flags, WholeTable { flags: 0, generation: None, ..read })
}

/// Elements that the engine knows need no list, also while there are as many as fill several pieces.
#[test]
fn a_table_is_replaced_with_the_elements_that_the_engine_knows() {
    if !kernel_has_owners() {
        return;
    }
    let mut lab = Lab::new();
    let many: Vec<_> = (0..5_000).map(|n| format!("10.1.{}.{}", n / 250, n % 250 + 1)).collect();
    let many = Slice::new("many").only(scenario::Family::Ipv4).endpoints(&many.join(" "));
    let service = Service::new("many", "10.96.0.11").port(80);
    let _ = lab.apply(&[&web_with_node_port(), &slice("a b c"), &service, &many]);
    let known = || Family::ALL.map(|family| lab.proxy.known_elements(family));
    let mut kernel = lab.world.node().run(|| Nftables::open().unwrap());
    let (_, before) = whole_table(&mut kernel);
    let of_ip = before.set(SetId::Endpoints.name()).unwrap().elements.len();
    assert!(of_ip > 5_000 && known()[0].as_ref().unwrap().count(SetId::Endpoints) == of_ip);
    assert_eq!(change_flags(&mut kernel, PERSISTENT, known()), Family::ALL.len());
    let (persistent, after) = whole_table(&mut kernel);
    assert_eq!(persistent, PERSISTENT.bits());
    let difference = after.difference_from(Some(&before)).unwrap();
    assert!(difference.is_empty(), "{difference}");
    // An element that only the kernel has is lost, because the endpoints are not listed.
    let [(set, last), _] = self::many(0..1);
    kernel
        .commit(&Transaction {
            operations: vec![Operation::AddElements(ruleset::table(Family::Ip), set, last.into())],
        })
        .unwrap();
    // An end that has no time for both tables frees the one with fewer endpoints.
    let open = || lab.world.node().run(|| Nftables::open().unwrap());
    let observer = RefCell::new(open());
    let flags = |family| {
        let table = ruleset::table(family);
        let read = observer.borrow_mut().whole_table(table.family, &table.name, Extent::Structure);
        read.unwrap().unwrap().flags
    };
    let interrupted = hand_over(&mut kernel, known(), &|| flags(Family::Ip6) == 0);
    assert!(matches!(interrupted, Err(HandoverError::Interrupted)), "{interrupted:?}");
    assert_eq!(Family::ALL.map(flags), [PERSISTENT.bits(), 0]);
    let mut kernel = open();
    assert_eq!(hand_over(&mut kernel, known(), &|| false).unwrap(), [Family::Ip]);
    let (_, freed) = whole_table(&mut kernel);
    let elements = |table: &WholeTable| table.set(SetId::Endpoints.name()).unwrap().elements.len();
    assert_eq!(elements(&freed), of_ip);
    let copy = kernel.whole_table(Family::Ip.into(), HANDOVER_TABLE, Extent::Whole).unwrap();
    assert_eq!(elements(&copy.unwrap()), of_ip);
    lab.check(&[("pod", WEB, keeps_source("a b c")), ("outside", NODE_PORT, masquerades("a b c"))]);
}

/// Adds a service, and removes endpoints of another one. Returns whether the handover table has the
/// new frontend. A commit is one generation, so nothing else was done before it.
fn change_between_steps((replacing, kernel): (&mut Replacing, &mut Nftables), number: u32) -> bool {
    let before = kernel.generation().unwrap();
    let table = ruleset::table(Family::Ip);
    let new = many(MANY + number..MANY + number + 1);
    let key = new[1].1[0].key.clone();
    let mut operations: Vec<_> =
        new.map(|(set, new)| Operation::AddElements(table.clone(), set, new.into())).into();
    // The new table must get these in the same order.
    let [(set, mut slots), _] = many(0..1);
    let _ = slots.remove(0);
    if number > 0 {
        operations.push(Operation::AddElements(
            table.clone(),
            Arc::clone(&set),
            slots.clone().into(),
        ));
    }
    operations.push(Operation::DeleteElements(table, set, slots.into()));
    let commit = Transaction { operations };
    replacing.commit(kernel, &commit).unwrap();
    assert_eq!(kernel.generation().unwrap().0, before.0 + 1);
    let handover = TableRef::new(Family::Ip, HANDOVER_TABLE);
    let found = kernel.find_elements(&handover, SetId::Services.name(), &[key], &mut |_| {});
    found.unwrap() == 1
}

/// Services beside `web`, each with five endpoints.
const MANY: u32 = 50_000;

#[test]
fn fifty_thousand_services_are_handed_over_without_a_failed_connection() {
    let cluster = Cluster::new();
    let applied = cluster.manifests.once(cluster.node(), "apply");
    assert_eq!(applied.code(), Some(0), "{}", applied.stderr);
    cluster.all_reach("a");
    let mut kernel = cluster.node().run(|| Nftables::open().unwrap());
    add_many(&mut kernel, MANY);
    let before = counts(&mut kernel);
    assert!(before[0] > 5 * MANY, "{before:?}");
    let flags = TableFlags { owner: false, persist: kernel_has_owners() };
    let _ = cluster.under_traffic(|| change_flags(&mut kernel, flags, [None, None]));
    assert_eq!(counts(&mut kernel), before);
    let _ = cluster.under_traffic(|| hand_over(&mut kernel, [None, None], &|| false).unwrap());
    assert_eq!(counts(&mut kernel), before);
    cluster.under_traffic(|| remove_handover_tables(&mut kernel).unwrap());
    cluster.all_reach("a");
}

/// Adds so many services.
fn add_many(kernel: &mut Nftables, services: u32) {
    for first in (0..services).step_by(1_000) {
        let table = ruleset::table(Family::Ip);
        let elements = many(first..first + 1_000);
        let add = |(set, elements): (_, Vec<_>)| {
            Operation::AddElements(table.clone(), set, elements.into())
        };
        kernel.commit(&Transaction { operations: elements.map(add).into() }).unwrap();
    }
}

/// Elements as services have them, of lists that no frontend of `web` names: endpoints, and
/// frontends.
fn many(numbers: Range<u32>) -> [(Arc<Set>, Vec<Element>); 2] {
    let list = |number: u32| (number + 0x1_0000) << 8;
    let frontend = |number: u32| {
        let address = Ipv4Addr::from(0x0a61_0000 + number);
        Element::with_value(
            Value::new().ip(address.into()).proto(TCP).port(80),
            Value::new().class_id(list(number) | 5),
        )
    };
    let slot = |number: u32, slot: u32| {
        let pod = Ipv4Addr::from(0x0af8_0000 + number % 0xff00);
        Element::with_value(
            Value::new().class_id(list(number)).proto(TCP).integer(slot),
            Value::new().ip(pod.into()).port(8080),
        )
    };
    let sets = Layouts::default();
    let set = |id| Arc::clone(sets.of(Family::Ip).get(id));
    let slots = numbers.clone().flat_map(|number| (0..5).map(move |at| slot(number, at)));
    [
        (set(SetId::Endpoints), slots.collect()),
        (set(SetId::Services), numbers.map(frontend).collect()),
    ]
}

/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// The elements of the two largest sets of the IPv4 table.
fn counts(kernel: &mut Nftables) -> [u32; 2] {
    [SetId::Endpoints, SetId::Services].map(|set| count(kernel, set))
}

/// The elements of a set of the IPv4 table.
fn count(kernel: &mut Nftables, set: SetId) -> u32 {
    let mut count = 0;
    let mut each = |read: ElementRead<'_>| match read {
        ElementRead::Start => count = 0,
        ElementRead::Element(_) => count += 1,
    };
    kernel.read_elements(&ruleset::table(Family::Ip), set.name(), &mut each).unwrap();
    count
}
