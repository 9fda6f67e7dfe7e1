//! The examples of the crate `nft-netlink`: `nft` lists their tables, and packets do what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, missing_docs)]

extern crate nft as nft_netlink;

#[path = "../../src/nft/examples/blocklist.rs"]
mod blocklist;
#[path = "../../src/nft/examples/monitor.rs"]
mod monitor;
#[path = "../../src/nft/examples/port_forwarding.rs"]
mod port_forwarding;

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use ipnet::Ipv4Net;
use monitor::Monitor;
use netlink_tests::{Answer, Host, NODE_IP, Net, nft_available};
use nft::WholeTable;
use nft::asynchronous::{AsyncNftables, AsyncNotifications};
use nft::difference::Difference;
use nft::kernel::Nftables;
use nft::{Notification, TableFamily};
use port_forwarding::{Mapping, Network};

const TCP: u8 = 6;

fn update(host: &Host, table: &WholeTable) -> Option<Difference> {
    host.run(|| Nftables::open().unwrap().update(table).unwrap())
}

fn listed(host: &Host, table: &WholeTable) -> String {
    let family = table.family.keyword();
    let output = host
        .run(|| Command::new("nft").args(["list", "table", family, &table.name]).output().unwrap());
    String::from_utf8(output.stdout).unwrap()
}

fn mapping(host_port: u16, address: IpAddr, port: u16) -> Mapping {
    let IpAddr::V4(address) = address else { panic!("{address} is no IPv4 address") };
    Mapping { protocol: TCP, host_port, address, port }
}

#[test]
fn a_container_that_comes_and_goes_is_a_few_messages_and_its_port_leads_to_it() {
    let net = Net::new();
    let (pod, other) = (net.pod("a", "10.88.0.5"), net.pod("b", "10.88.0.6"));
    let client = net.outside("client", "198.51.100.7");
    let _servers = [pod.serve_tcp(80, "first"), other.serve_tcp(80, "second")];
    let node = net.node();
    let network = |mappings: &[Mapping]| Network {
        name: "default".to_owned(),
        subnet: "10.88.0.0/16".parse().unwrap(),
        mappings: mappings.to_vec(),
    };
    let (first, second) =
        (mapping(8080, pod.ip().into(), 80), mapping(8081, other.ip().into(), 80));
    let one = port_forwarding::table(&[network(&[first])]);
    let both = port_forwarding::table(&[network(&[first, second])]);

    assert!(update(node, &one).is_some());
    assert_eq!(client.connect_tcp((NODE_IP, 8080)).server(), "first");
    assert_eq!(client.connect_tcp((NODE_IP, 8081)), Answer::Refused);
    let added = update(node, &both).unwrap();
    assert_eq!(added.len(), 4, "{added}");
    assert_eq!(client.connect_tcp((NODE_IP, 8080)).server(), "first");
    assert_eq!(client.connect_tcp((NODE_IP, 8081)).server(), "second");
    assert_eq!(update(node, &both), None);
    if nft_available() {
        let text = listed(node, &both);
        assert!(text.contains("tcp dport 8081 dnat ip to 10.88.0.6:80"), "{text}");
        assert!(text.contains("ip saddr 10.88.0.0/16 jump net-default"), "{text}");
        assert!(text.contains("fib daddr type local jump hostport-dnat"), "{text}");
    }
    // The first of the rules goes; the others stay where they are.
    let removed = update(node, &port_forwarding::table(&[network(&[second])])).unwrap();
    assert_eq!(removed.len(), 4, "{removed}");
    assert_eq!(client.connect_tcp((NODE_IP, 8080)), Answer::Refused);
    assert_eq!(client.connect_tcp((NODE_IP, 8081)).server(), "second");
}

#[test]
fn a_pod_of_the_network_reaches_the_outside_with_the_address_of_the_node() {
    let net = Net::new();
    let pod = net.pod("a", "10.88.0.5");
    let outside = net.outside("server", "198.51.100.7");
    let _server = outside.serve_tcp(80, "web");
    let subnet = "10.88.0.0/16".parse().unwrap();
    let network = Network { name: "default".to_owned(), subnet, mappings: Vec::new() };
    update(net.node(), &port_forwarding::table(&[network]));
    assert_eq!(pod.connect_tcp((outside.ip(), 80)).source(), IpAddr::from(NODE_IP));
}

/// Every other network of 100,000 that do not touch.
fn networks(changed: usize) -> Vec<Ipv4Net> {
    let network = |i: u32| Ipv4Net::new(Ipv4Addr::from((20 << 24) + i * 512), 24).unwrap();
    let mut networks: Vec<_> = (0..100_000).map(network).collect();
    let other = |i: u32| Ipv4Net::new(Ipv4Addr::from((200 << 24) + i * 512), 24).unwrap();
    for (i, place) in (0..).zip(networks.iter_mut().step_by(1_000).take(changed)) {
        *place = other(i);
    }
    networks
}

#[test]
fn a_blocklist_of_100_000_networks_changes_by_what_changed() {
    let net = Net::new();
    let (good, bad) = (net.outside("good", "198.51.100.7"), net.outside("bad", "20.0.0.9"));
    let _server = net.node().serve_tcp(80, "web");
    assert_eq!(bad.connect_tcp((NODE_IP, 80)).server(), "web");
    let node = net.node();
    let table = blocklist::table(&networks(0)).unwrap();
    if let Err(error) = node.run(|| Nftables::open().unwrap().update(&table)) {
        // The send buffer of an ordinary user holds no such batch.
        assert!(netlink_tests::in_user_namespace(), "{error}");
        return;
    }
    assert_eq!(update(node, &table), None);
    assert_eq!(good.connect_tcp((NODE_IP, 80)).server(), "web");
    assert_eq!(bad.hasty().connect_tcp((NODE_IP, 80)), Answer::Silent);
    let changed = update(node, &blocklist::table(&networks(10)).unwrap()).unwrap();
    // One message deletes and one adds; each network is a start and an end.
    assert_eq!(changed.len(), 2, "{changed}");
    let bytes: usize = changed.messages().iter().map(|message| message.attributes.len()).sum();
    assert!(bytes < 2_000, "{bytes} bytes for ten networks");
    assert_eq!(bad.connect_tcp((NODE_IP, 80)).server(), "web");
    if nft_available() {
        let blocked = |address: &str| {
            let element = format!("get element inet blocklist blocked {{ {address} }}");
            node.run(|| Command::new("nft").arg(&element).output().unwrap().status.success())
        };
        assert!(!blocked("20.0.0.9") && blocked("200.0.0.9") && blocked("20.0.2.255"));
    }
}

#[test]
fn the_monitor_prints_each_change_as_a_command_and_goes_on_after_lost_ones() {
    let net = Net::new();
    net.node().run(|| {
        let mut kernel = Nftables::open().unwrap();
        let blocked = |networks: &[&str]| {
            let networks: Vec<_> = networks.iter().map(|it| it.parse().unwrap()).collect();
            blocklist::table(&networks).unwrap()
        };
        let mut early = Monitor::open().unwrap();
        kernel.update(&blocked(&["192.0.2.0/24"])).unwrap();
        let made = [
            "add table inet blocklist",
            "add chain inet blocklist prerouting { type filter hook prerouting priority -300; \
             policy accept; }",
            "add set inet blocklist blocked { type ipv4_addr; flags interval; }",
            "add element inet blocklist blocked { 192.0.2.0/24 }",
            "add rule inet blocklist prerouting ip saddr @blocked drop",
        ];
        assert_eq!(early.next().unwrap(), made);
        // This one finds the set in the kernel.
        let mut monitor = Monitor::open().unwrap();
        kernel.update(&blocked(&["198.51.100.0/25"])).unwrap();
        let changed = [
            "delete element inet blocklist blocked { 192.0.2.0/24 }",
            "add element inet blocklist blocked { 198.51.100.0/25 }",
        ];
        assert_eq!(monitor.next().unwrap(), changed);
        if nft_available() {
            let rule = "add rule inet blocklist prerouting tcp dport { 22, 80 } accept";
            assert!(Command::new("nft").arg(rule).status().unwrap().success());
            assert_eq!(monitor.next().unwrap(), [rule]);
        }
        assert!(monitor.next().unwrap().is_empty());
        if kernel.update(&blocklist::table(&networks(0)).unwrap()).is_err() {
            // The send buffer of an ordinary user holds no such batch.
            assert!(netlink_tests::in_user_namespace());
            return;
        }
        let lost = monitor.next().unwrap();
        assert_eq!(lost.len(), 1);
        assert!(
            lost[0].starts_with("# changes were lost: the receive buffer was full"),
            "{lost:?}"
        );
        while !monitor.next().unwrap().is_empty() {}
        kernel.delete_table(TableFamily::Inet, "blocklist").unwrap();
        let deleted = monitor.next().unwrap();
        assert_eq!(deleted.last().unwrap(), "delete table inet blocklist");
    });
}

#[test]
fn a_program_of_tokio_commits_and_waits_for_the_notification() {
    let net = Net::new();
    net.node().run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let kernel = AsyncNftables::new(Nftables::open().unwrap());
            let mut notifications = AsyncNotifications::open().unwrap();
            let waiting = tokio::spawn(async move {
                let mut generations = 0;
                while generations == 0 {
                    let count = |it: Notification<'_>| {
                        generations += usize::from(matches!(it, Notification::Generation { .. }));
                    };
                    notifications.next(count).await.unwrap();
                }
            });
            let table = WholeTable::new(TableFamily::Inet, "empty");
            assert!(kernel.update(table.clone()).await.unwrap().unwrap().is_some());
            tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
            assert!(kernel.update(table).await.unwrap().unwrap().is_none());
        });
    });
}
