//! Two nodes as gateways: keepalived moves an address from one to the other, conntrackd copies the
//! connections.

use netlink_tests::scenario::{Endpoint, Manifests, NODE_NAME, Node, Service, ServiceCidr, Slice};
use netlink_tests::{Answer, Host, Process, Server, Switched, deltaproxy_binary, eventually};

use crate::machine::{Daemon, Machine, SOON, packages};

/// The address that keepalived moves, and external IP of the service `web`.
const VIP: &str = "192.168.60.100";

/// At the external IP the node masquerades.
const EXTERNAL: (&str, u16) = (VIP, 80);

/// The clients are in the cluster's range of pods, so at the cluster IP they keep their address.
const CLUSTER_IP: (&str, u16) = ("10.96.0.10", 80);

const CLUSTER_CIDR: &str = "--cluster-cidr=203.0.113.0/24";

/// A node with the daemon, keepalived and conntrackd.
struct Gateway {
    manifests: Manifests,
    machine: Machine,
    _daemon: Process,
    _others: [Daemon; 2],
}

/// The first two nodes are gateways, the first one with the address; the pods of the third one are the
/// endpoints.
struct Pair {
    gateways: [Gateway; 2],
    clients: Host,
    _servers: Vec<Server>,
    /// The third node and the router, which send by way of the address.
    _others: [Machine; 2],
    link: Switched,
}

impl Pair {
    #[track_caller]
    fn new() -> Self {
        let root = packages();
        let root = root.to_str().unwrap();
        let link = Switched::new();
        let names = ["x", "y"];
        let pods = link.pods(2).iter().zip(names);
        let servers =
            pods.flat_map(|(pod, name)| [pod.serve_tcp(8080, name), pod.serve_udp(8080, name)]);
        let servers = servers.collect();
        let others = [(link.node(2), "203.0.113.0/24"), (link.router(), "10.96.0.0/16")];
        let others = others.map(|(host, range)| {
            let machine = Machine::start(host, root);
            let _ = machine.ok(&format!("ip route add {range} via {VIP}"));
            machine
        });
        let gateways = [0, 1].map(|place| Gateway::start(&link, place, root));
        let pair = Self {
            gateways,
            clients: link.clients().clone(),
            _servers: servers,
            _others: others,
            link,
        };
        pair.wait_for_address(0);
        eventually("an answer", SOON, || {
            let answer = pair.clients.hasty().connect_tcp(EXTERNAL);
            matches!(answer, Answer::From { .. }).then_some(())
        });
        pair
    }

    #[track_caller]
    fn wait_for_address(&self, place: usize) {
        eventually("the address", SOON, || {
            let addresses = self.gateways[place].machine.ok("ip address show eth0");
            addresses.contains(VIP).then_some(())
        });
    }

    /// Waits until conntrackd of the second gateway knows the connection from this port.
    #[track_caller]
    fn wait_for_copy(&self, port: u16) {
        eventually("the copy of a connection", SOON, || self.has_copy(port).then_some(()));
    }

    fn has_copy(&self, port: u16) -> bool {
        self.gateways[1].machine.ok("conntrackd -e").contains(&format!("sport={port} "))
    }

    /// Takes the first gateway off the link; the second one gets the address, and the connections.
    #[track_caller]
    fn fail_over(&self) {
        self.link.cut_off(0);
        self.wait_for_address(1);
        let _ = self.gateways[1].machine.ok("conntrackd -c");
    }
}

impl Gateway {
    #[track_caller]
    fn start(link: &Switched, place: usize, root: &str) -> Self {
        let host = link.node(place);
        let [own, other] = [place, 1 - place].map(|place| link.node(place).ip());
        let node = Node::new().addresses(&[host.ip().into(), host.ip6().into()]);
        let web = Service::new("web", "10.96.0.10").port(80).external_ip(VIP);
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let manifests = Manifests::new(&[("cidr", &cidr), ("node", &node), ("web", &web)]);
        write_endpoints(&manifests, &["10.244.3.5", "10.244.3.6"]);
        let folder = manifests.path().to_str().unwrap();
        let arguments = ["run", "--manifests", folder, "--hostname-override", NODE_NAME];
        let options = [CLUSTER_CIDR, "--healthz-bind-address=", "--metrics-bind-address="];
        let mut daemon = host.spawn(deltaproxy_binary(), &[&arguments[..], &options].concat());
        daemon.wait_for_line("tables are complete", SOON);
        let machine = Machine::start(host, root);
        let priority = 150 - 50 * place;
        let keepalived = format!(
            "global_defs {{\nvrrp_version 3\n}}
             vrrp_instance services {{
                 state BACKUP
                 interface eth0
                 virtual_router_id 51
                 priority {priority}
                 advert_int 0.5
                 virtual_ipaddress {{\n{VIP}/32\n}}
             }}"
        );
        let conntrackd = format!(
            "Sync {{
                 Mode FTFW {{\n}}
                 UDP {{
                     IPv4_address {own}
                     IPv4_Destination_Address {other}
                     Port 3780
                     Interface eth0
                     Checksum on
                 }}
             }}
             General {{
                 HashSize 8192
                 HashLimit 65535
                 LockFile /run/conntrackd.lock
                 UNIX {{\nPath /run/conntrackd.ctl\n}}
                 Filter From Userspace {{
                     Protocol Accept {{\nTCP\nUDP\n}}
                 }}
             }}"
        );
        let _ = machine.ok(&format!(
            "mkdir -p /etc/conntrackd; echo '{keepalived}' >/etc/keepalived.conf; echo '{conntrackd}' >/etc/conntrackd/conntrackd.conf"
        ));
        let others = [
            machine.daemon("conntrackd", "conntrackd"),
            machine.daemon(
                "keepalived",
                "keepalived --dont-fork --log-console --use-file /etc/keepalived.conf",
            ),
        ];
        eventually("conntrackd", SOON, || {
            (machine.run("conntrackd -s").code() == Some(0)).then_some(())
        });
        Self { manifests, machine, _daemon: daemon, _others: others }
    }
}

fn write_endpoints(manifests: &Manifests, addresses: &[&str]) {
    let slice = addresses
        .iter()
        .fold(Slice::new("web"), |slice, address| slice.endpoint(Endpoint::new(address)));
    manifests.write("slice", &slice);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn an_external_ip_follows_keepalived_to_the_other_gateway() {
    let pair = Pair::new();
    assert_eq!(pair.clients.connect_tcp(EXTERNAL).source(), pair.link.node(0).ip());
    pair.fail_over();
    eventually("an answer", SOON, || {
        let answer = pair.clients.hasty().connect_tcp(EXTERNAL);
        let Answer::From { seen, .. } = answer else { return None };
        assert_eq!(seen.ip(), pair.link.node(1).ip());
        Some(())
    });
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn conntrackd_continues_translated_connections_on_the_other_gateway() {
    let pair = Pair::new();
    let mut connections: Vec<_> =
        (0..4).map(|_| pair.clients.open_tcp(CLUSTER_IP).unwrap()).collect();
    let mut flow = pair.clients.open_udp(CLUSTER_IP);
    let answered = flow.ask();
    assert_eq!(answered.source(), pair.clients.ip());
    let ports = connections.iter().map(|it| it.local_addr().port());
    for port in ports.chain([flow.local_addr().port()]) {
        pair.wait_for_copy(port);
    }
    pair.fail_over();
    for connection in &mut connections {
        let server = connection.first().server().to_owned();
        assert_eq!(connection.ask().server(), server);
    }
    assert_eq!(flow.ask().server(), answered.server());
}

/// The answer goes to the address of the first gateway.
#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_masqueraded_connection_ends_with_its_gateway() {
    let pair = Pair::new();
    let mut connection = pair.clients.hasty().open_tcp(EXTERNAL).unwrap();
    pair.wait_for_copy(connection.local_addr().port());
    pair.fail_over();
    assert_eq!(connection.ask(), Answer::Silent);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_udp_flow_that_conntrackd_brings_back_leaves_its_removed_endpoint() {
    let pair = Pair::new();
    let mut flow = pair.clients.hasty().open_udp(CLUSTER_IP);
    let server = flow.ask().server().to_owned();
    pair.wait_for_copy(flow.local_addr().port());
    let left = if server == "x" { ["10.244.3.6"] } else { ["10.244.3.5"] };
    pair.link.cut_off(0);
    write_endpoints(&pair.gateways[1].manifests, &left);
    pair.wait_for_address(1);
    eventually("the other endpoint alone", SOON, || {
        let servers = (0..8).map(|_| pair.clients.hasty().connect_tcp(CLUSTER_IP));
        servers
            .into_iter()
            .all(|answer| matches!(answer, Answer::From { server: from, .. } if from != server))
            .then_some(())
    });
    let _ = pair.gateways[1].machine.ok("conntrackd -c");
    // The daemon lists all flows once a minute.
    eventually("the endpoint that is left", 6 * SOON, || {
        let answer = flow.ask_hastily();
        matches!(answer, Answer::From { server: from, .. } if from != server).then_some(())
    });
}
