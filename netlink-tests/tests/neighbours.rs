//! Which addresses are on the links of a node, and their hardware addresses, without any traffic.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use daemon::direct::device_settings::DeviceSettings;
use daemon::direct::{AllowedDevices, Following, Neighbours};
use engine::direct::{Links, Reach, Unreachable, Unsuitable};
use netlink_tests::link::{self, HardwareAddress};
use netlink_tests::{Namespace, eventually};
use network::NeighbourListener;
use nft::Family;
use nix::errno::Errno;
use tokio::sync::{mpsc, watch};

/// Limit of a wait: the kernel takes 3 s until a neighbour has failed.
const LIMIT: Duration = Duration::from_secs(30);

/// Time between two confirmations of a neighbour.
const INTERVAL: Duration = Duration::from_millis(320);

/// A time in which no test ends: everything is noticed by notifications alone.
const RARELY: Duration = Duration::from_secs(3600);

/// The node's device on the link, and its indexes at first and when it is made again.
const LAN: &str = "lan0";
const LAN_INDEX: u32 = 201;
const NEW_LAN_INDEX: u32 = 202;

/// A node and hosts on one link: ports of a bridge in a namespace of its own.
struct Lan {
    bridge: Namespace,
    node: Namespace,
}

impl Lan {
    /// A node with the addresses of number 2.
    fn new() -> Self {
        let lan = Self { bridge: namespace(), node: namespace() };
        ip(&lan.bridge, "link add br0 index 300 up type bridge");
        lan.plug_node_in(LAN_INDEX);
        lan
    }

    /// Makes the node's device.
    fn plug_node_in(&self, index: u32) {
        link::connect(&self.node, &self.bridge, LAN, index);
        ip(&self.bridge, "link set eth0 up master br0");
        add_addresses(&self.node, LAN, 2);
    }

    /// A host with the addresses of a number, and its hardware address.
    fn host(&self, number: u32) -> (Namespace, HardwareAddress) {
        let host = namespace();
        link::connect(&self.bridge, &host, &port(number), number);
        ip(&self.bridge, &format!("link set {} master br0", port(number)));
        ip(&host, "link set eth0 up");
        add_addresses(&host, "eth0", number);
        (host, link::hardware_addresses(number)[1])
    }

    fn follow(&self, addresses: &[IpAddr]) -> Followed {
        self.follow_every(INTERVAL, addresses)
    }

    fn follow_every(&self, interval: Duration, addresses: &[IpAddr]) -> Followed {
        let devices = [LAN, "absent0"].map(str::to_owned).to_vec();
        self.follow_on(interval, addresses, AllowedDevices::Named(devices))
    }

    fn follow_on(
        &self,
        interval: Duration,
        addresses: &[IpAddr],
        devices: AllowedDevices,
    ) -> Followed {
        let (addresses, requested) = watch::channel(addresses.to_vec());
        let following = Following { addresses: requested, devices, tunnel: None };
        let news = self.node.run(|| Neighbours::follow_every(interval, following));
        Followed { addresses, news: news.unwrap(), latest: Links::default() }
    }
}

/// What a test follows.
struct Followed {
    addresses: watch::Sender<Vec<IpAddr>>,
    news: mpsc::Receiver<Links>,
    latest: Links,
}

impl Followed {
    #[track_caller]
    fn wait_for(&mut self, what: &str, is_there: impl Fn(&Links) -> bool) {
        eventually(what, LIMIT, || {
            while let Ok(news) = self.news.try_recv() {
                eprintln!("{news:?}");
                self.latest = news;
            }
            is_there(&self.latest).then_some(())
        });
    }

    #[track_caller]
    fn wait_for_reach(&mut self, of: &[(IpAddr, Reach)]) {
        let what = format!("{of:?}");
        self.wait_for(&what, |news| {
            of.iter().all(|(address, reach)| news.reach.get(address) == Some(reach))
        });
    }
}

/// A namespace in which IPv6 addresses can be used at once.
fn namespace() -> Namespace {
    let namespace = Namespace::new();
    namespace.sysctl("ipv6/conf/all/accept_dad", "0");
    namespace.sysctl("ipv6/conf/default/accept_dad", "0");
    namespace
}

#[track_caller]
fn ip(namespace: &Namespace, command: &str) -> String {
    let output = namespace.run(|| Command::new("ip").args(command.split_whitespace()).output());
    let output = output.expect("ip of iproute2 is installed");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {command}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn port(number: u32) -> String {
    format!("port{number}")
}

fn add_addresses(namespace: &Namespace, device: &str, number: u32) {
    for (address, prefix) in addresses(number).into_iter().zip([24, 64]) {
        ip(namespace, &format!("address add {address}/{prefix} dev {device}"));
    }
}

/// The addresses of a host on the link.
fn addresses(number: u32) -> [IpAddr; 2] {
    [format!("192.168.50.{number}"), format!("fd00:50::{number}")].map(|it| it.parse().unwrap())
}

fn on_link(device: u32, hardware_address: HardwareAddress) -> Reach {
    Reach::OnLink { device, hardware_address }
}

fn both(addresses: [IpAddr; 2], reach: Reach) -> [(IpAddr, Reach); 2] {
    addresses.map(|address| (address, reach))
}

#[test]
fn hosts_on_the_link_get_known_without_traffic() {
    let lan = Lan::new();
    let (_three, mac3) = lan.host(3);
    let (_four, mac4) = lan.host(4);
    let mut followed = lan.follow(&addresses(3));
    followed.wait_for_reach(&both(addresses(3), on_link(LAN_INDEX, mac3)));
    assert_eq!(followed.latest.devices, [LAN]);
    followed.addresses.send_replace([addresses(3), addresses(4)].concat());
    followed.wait_for_reach(&both(addresses(4), on_link(LAN_INDEX, mac4)));
    followed.addresses.send_replace(addresses(4).to_vec());
    followed.wait_for("two addresses", |news| news.reach.len() == 2);
}

#[test]
fn another_hardware_address_is_noticed() {
    let lan = Lan::new();
    let (host, mac) = lan.host(3);
    let mut followed = lan.follow(&addresses(3));
    followed.wait_for_reach(&both(addresses(3), on_link(LAN_INDEX, mac)));
    ip(&host, "link set eth0 address 02:00:00:00:00:99");
    let new = [2, 0, 0, 0, 0, 0x99];
    followed.wait_for_reach(&both(addresses(3), on_link(LAN_INDEX, new)));
}

#[test]
fn an_announced_hardware_address_is_noticed_without_a_question() {
    let lan = Lan::new();
    let (host, mac) = lan.host(3);
    let [there, _] = addresses(3);
    let mut followed = lan.follow_every(RARELY, &[]);
    followed.addresses.send_replace(vec![there]);
    followed.wait_for_reach(&[(there, on_link(LAN_INDEX, mac))]);
    // It sends a gratuitous ARP request then (`inetdev_event`).
    host.sysctl("ipv4/conf/eth0/arp_notify", "1");
    ip(&host, "link set eth0 address 02:00:00:00:00:99");
    followed.wait_for_reach(&[(there, on_link(LAN_INDEX, [2, 0, 0, 0, 0, 0x99]))]);
}

#[test]
fn a_host_that_goes_away_has_failed_until_it_comes_back() {
    let lan = Lan::new();
    let (_host, mac) = lan.host(3);
    let mut followed = lan.follow(&addresses(3));
    followed.wait_for_reach(&both(addresses(3), on_link(LAN_INDEX, mac)));
    ip(&lan.bridge, &format!("link set {} down", port(3)));
    followed.wait_for_reach(&both(addresses(3), Reach::Not(Unreachable::Failed)));
    ip(&lan.bridge, &format!("link set {} up", port(3)));
    followed.wait_for_reach(&both(addresses(3), on_link(LAN_INDEX, mac)));
}

#[test]
fn an_address_that_nobody_has_fails() {
    let lan = Lan::new();
    let mut followed = lan.follow(&addresses(9));
    followed.wait_for_reach(&both(addresses(9), Reach::Not(Unreachable::HardwareAddressUnknown)));
    followed.wait_for_reach(&both(addresses(9), Reach::Not(Unreachable::Failed)));
}

#[test]
fn an_address_behind_a_router_is_not_on_the_link() {
    let lan = Lan::new();
    let (_router, _) = lan.host(3);
    ip(&lan.node, "route add 198.51.100.0/24 via 192.168.50.3");
    ip(&lan.node, "route add 203.0.113.0/24 via inet6 fe80::3 dev lan0");
    ip(&lan.node, "-6 route add fd00:51::/64 via fe80::3 dev lan0");
    ip(&lan.node, "route add blackhole 192.0.2.0/24");
    // The last ones: no route, on every link, and the node itself.
    let behind = [
        "198.51.100.7",
        "203.0.113.7",
        "fd00:51::7",
        "192.0.2.7",
        "fd00:52::7",
        "fe80::3",
        "192.168.50.2",
    ];
    let behind = behind.map(|address| address.parse().unwrap());
    let mut followed = lan.follow(&behind);
    let not_on_link = behind.map(|address| (address, Reach::Not(Unreachable::NotOnLink)));
    followed.wait_for_reach(&not_on_link);
}

#[test]
fn a_host_behind_a_device_that_is_not_allowed_is_not_asked() {
    let lan = Lan::new();
    let (_host, mac) = lan.host(3);
    ip(&lan.node, "link add lan1 up type veth peer name far1");
    ip(&lan.node, "link set far1 up");
    ip(&lan.node, "address add 192.168.60.2/24 dev lan1");
    let elsewhere = "192.168.60.3".parse().unwrap();
    let [near, _] = addresses(3);
    let mut followed = lan.follow(&[near, elsewhere]);
    let other_device = Reach::Not(Unreachable::OtherDevice);
    followed.wait_for_reach(&[(near, on_link(LAN_INDEX, mac)), (elsewhere, other_device)]);
    assert_eq!(ip(&lan.node, "neigh show dev lan1 to 192.168.60.3"), "");
}

#[test]
fn the_device_with_the_nodes_address_is_followed() {
    let lan = Lan::new();
    let (_host, mac) = lan.host(3);
    let ([own, _], [there, _]) = (addresses(2), addresses(3));
    let (node_address, of_node) = watch::channel(None);
    let mut followed = lan.follow_on(RARELY, &[there], AllowedDevices::OfAddress(of_node));
    followed.wait_for_reach(&[(there, Reach::Not(Unreachable::HardwareAddressUnknown))]);
    assert!(followed.latest.devices.is_empty());
    node_address.send_replace(Some(own));
    followed.wait_for_reach(&[(there, on_link(LAN_INDEX, mac))]);
    assert_eq!(followed.latest.devices, [LAN]);
    ip(&lan.node, &format!("address del {own}/24 dev {LAN}"));
    followed.wait_for("no device", |news| news.devices.is_empty());
}

#[test]
fn a_device_that_is_made_again_has_its_new_index() {
    let lan = Lan::new();
    let (_host, mac) = lan.host(3);
    let [there, _] = addresses(3);
    let mut followed = lan.follow_every(RARELY, &[there]);
    followed.wait_for_reach(&[(there, on_link(LAN_INDEX, mac))]);
    ip(&lan.node, &format!("link del {LAN}"));
    followed.wait_for_reach(&[(there, Reach::Not(Unreachable::NotOnLink))]);
    assert!(followed.latest.devices.is_empty());
    lan.plug_node_in(NEW_LAN_INDEX);
    followed.wait_for_reach(&[(there, on_link(NEW_LAN_INDEX, mac))]);
    assert_eq!(followed.latest.devices, [LAN]);
}

/// The kernel makes a permanent entry an ordinary one when it is asked to use it, and takes the flags
/// of other programs from their entries.
#[test]
fn entries_of_administrators_and_other_programs_stay_as_they_are() {
    let lan = Lan::new();
    let (_host, mac) = lan.host(3);
    ip(&lan.node, "neigh add 192.168.50.8 lladdr 02:00:00:00:00:88 nud permanent dev lan0");
    ip(
        &lan.node,
        "neigh add 192.168.50.9 lladdr 02:00:00:00:00:99 nud reachable extern_learn dev lan0",
    );
    let fixed = ["192.168.50.8", "192.168.50.9"].map(|address| address.parse().unwrap());
    let mut followed = lan.follow(&[]);
    followed.wait_for("the device", |news| news.devices == [LAN]);
    followed.addresses.send_replace(fixed.to_vec());
    let [eight, nine] = [[2, 0, 0, 0, 0, 0x88], [2, 0, 0, 0, 0, 0x99]];
    let there = [(fixed[0], on_link(LAN_INDEX, eight)), (fixed[1], on_link(LAN_INDEX, nine))];
    followed.wait_for_reach(&there);
    // Two rounds later a host that came, went and came again was asked several times.
    followed.addresses.send_replace([fixed, addresses(3)].concat());
    followed.wait_for_reach(&both(addresses(3), on_link(LAN_INDEX, mac)));
    ip(&lan.bridge, &format!("link set {} down", port(3)));
    followed.wait_for_reach(&both(addresses(3), Reach::Not(Unreachable::Failed)));
    followed.wait_for_reach(&there);
    let shown = ip(&lan.node, "neigh show dev lan0");
    assert!(shown.contains("192.168.50.8 lladdr 02:00:00:00:00:88 PERMANENT"), "{shown}");
    assert!(shown.contains("192.168.50.9 lladdr 02:00:00:00:00:99 extern_learn"), "{shown}");
}

#[test]
fn the_thread_ends_when_its_receiver_is_dropped() {
    let lan = Lan::new();
    let (_host, mac) = lan.host(3);
    let [there, _] = addresses(3);
    let mut followed = lan.follow_every(RARELY, &[there]);
    followed.wait_for_reach(&[(there, on_link(LAN_INDEX, mac))]);
    let Followed { addresses, news, .. } = followed;
    assert!(!addresses.is_closed());
    drop(news);
    eventually("the end of the thread", LIMIT, || addresses.is_closed().then_some(()));
}

#[test]
fn a_reader_that_is_too_slow_gets_the_latest_news() {
    let lan = Lan::new();
    let (_host, mac) = lan.host(3);
    let mut followed = lan.follow(&addresses(9));
    for _ in 0..3 {
        followed.addresses.send_replace(addresses(3).to_vec());
        followed.addresses.send_replace(Vec::new());
    }
    followed.addresses.send_replace(addresses(3).to_vec());
    followed.wait_for_reach(&both(addresses(3), on_link(LAN_INDEX, mac)));
    assert_eq!(followed.latest.reach.len(), 2);
}

#[test]
fn lost_notifications_are_reported() {
    let lan = Lan::new();
    let mut listener = lan.node.run(|| NeighbourListener::open().unwrap());
    let changes = listener.take_changes().unwrap();
    assert!(!changes.is_torn);
    // A notification takes some 800 bytes of the receive buffer, of which there are 8 MiB.
    let mut batch = String::new();
    for number in 0..40_000 {
        let (high, low) = (number / 250, number % 250 + 1);
        batch.push_str(&format!(
            "neigh add 10.9.{high}.{low} lladdr 02:00:00:00:00:01 nud permanent dev {LAN}\n"
        ));
    }
    let loaded = lan.node.run(|| {
        let mut program =
            Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        program.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
        program.wait().unwrap()
    });
    assert!(loaded.success());
    assert!(listener.take_changes().unwrap().is_torn);
}

#[test]
fn the_settings_of_devices_are_read() {
    let node = namespace();
    ip(&node, "link add br0 up type bridge");
    ip(&node, "link add port0 up type veth peer name far0");
    ip(&node, "link set port0 master br0");
    node.sysctl("ipv4/conf/br0/rp_filter", "1");
    node.sysctl("ipv4/conf/br0/arp_ignore", "1");
    node.sysctl("ipv4/conf/all/arp_announce", "2");
    let read = |device: &str| node.run(|| DeviceSettings::read(device)).unwrap();
    let bridge = read("br0");
    assert_eq!(bridge.kind.kind.as_deref(), Some("bridge"));
    assert_eq!((bridge.rp_filter, bridge.arp_ignore, bridge.arp_announce), (1, 1, 2));
    let port = read("port0");
    assert_eq!(
        (port.kind.kind.as_deref(), port.kind.port_of.as_deref()),
        (Some("veth"), Some("bridge"))
    );
    assert_eq!((port.bridge_netfilter, port.arp_ignore), (vec![], 0));
    let absent = node.run(|| DeviceSettings::read("absent")).unwrap_err();
    assert_eq!(absent.raw_os_error(), Some(Errno::ENODEV as i32));
}

#[test]
fn a_bridge_hands_packets_to_netfilter_if_the_kernel_has_loaded_that() {
    let node = namespace();
    ip(&node, "link add br0 type bridge nf_call_ip6tables 1");
    let families = || node.run(|| DeviceSettings::read("br0")).unwrap().bridge_netfilter;
    if !Path::new("/proc/sys/net/bridge").exists() {
        assert_eq!(families(), []);
        return;
    }
    node.sysctl("bridge/bridge-nf-call-iptables", "0");
    node.sysctl("bridge/bridge-nf-call-ip6tables", "0");
    assert_eq!(families(), [Family::Ip6]);
    ip(&node, "link set br0 type bridge nf_call_ip6tables 0");
    assert_eq!(families(), []);
    node.sysctl("bridge/bridge-nf-call-iptables", "1");
    assert_eq!(families(), [Family::Ip]);
}

#[test]
fn settings_of_a_device_that_prevent_direct_return_are_told_while_they_last() {
    let lan = Lan::new();
    let node = &lan.node;
    ip(node, "link add out0 up type veth peer name far0");
    ip(node, "link set far0 up");
    node.sysctl("ipv4/conf/all/rp_filter", "0");
    node.sysctl(&format!("ipv4/conf/{LAN}/rp_filter"), "1");
    let mut followed = lan.follow(&[]);
    followed.wait_for("the device", |links| links.devices == [LAN]);
    assert_eq!(followed.latest.unsuitable, BTreeMap::new(), "without a default route");

    ip(node, "route add default dev out0");
    let strict = (LAN.into(), Unsuitable::ReversePathStrict);
    let expected = BTreeMap::from([(Family::Ip, strict)]);
    followed.wait_for("a strict reverse path", |links| links.unsuitable == expected);
    node.sysctl(&format!("ipv4/conf/{LAN}/rp_filter"), "2");
    followed.wait_for("a loose reverse path", |links| links.unsuitable.is_empty());

    assert_eq!(followed.latest.answered, BTreeMap::new());
    ip(node, "address add 192.168.50.200/32 dev lo");
    ip(node, "address add 198.51.100.2/32 dev lo");
    let expected = BTreeMap::from([([192, 168, 50, 200].into(), LAN.into())]);
    followed.wait_for("an address on lo", |links| links.answered == expected);
    node.sysctl(&format!("ipv4/conf/{LAN}/arp_ignore"), "1");
    node.sysctl(&format!("ipv4/conf/{LAN}/arp_announce"), "2");
    followed.wait_for("no answer for it", |links| links.answered.is_empty());
}
