//! The way from deltaproxy to another kube-proxy, or to the next deltaproxy: no connection fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

#[path = "way_back/steps.rs"]
mod steps;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use daemon::handover::HANDOVER_TABLE;
use netlink_tests::scenario::kube_proxy::{DELETION, MODE_IPTABLES, MODE_NFTABLES, of_ipv6};
use netlink_tests::scenario::{
    Manifests, NODE_PORT, Node, Object, Service, ServiceCidr, Slice, WEB, slice, web_with_node_port,
};
use netlink_tests::{
    Answer, Host, Net, Process, Server, deltaproxy_binary, eventually, ip6_of, kernel_has_owners,
    nft_available,
};
use nft::family::Family;
use nft::kernel::Nftables;
use nix::sys::signal::Signal;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

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
