//! The rules of kube-proxy on a node whose service `web` has pod `b` as its only endpoint.

/// The first transaction of kube-proxy in mode nftables, which leads to pod `b`.
pub const MODE_NFTABLES: &str = include_str!("../../tests/fixtures/kube-proxy-first-sync.nft");

/// What kube-proxy in modes iptables and ipvs sends for each family at its start, and with
/// `--cleanup` in any mode.
pub const DELETION: &str = "add table ip kube-proxy\ndelete table ip kube-proxy\n\
                        add table ip6 kube-proxy\ndelete table ip6 kube-proxy\n";

/// Rules of mode iptables, which lead to pod `b`.
pub const MODE_IPTABLES: &str = r#"
    table ip nat {
        chain PREROUTING { type nat hook prerouting priority dstnat; jump KUBE-SERVICES; }
        chain OUTPUT { type nat hook output priority -100; jump KUBE-SERVICES; }
        chain POSTROUTING {
            type nat hook postrouting priority srcnat
            meta mark and 0x4000 == 0x4000 masquerade fully-random
        }
        chain KUBE-SERVICES {
            ip daddr 10.96.0.10 tcp dport 80 goto KUBE-SVC-WEB
            fib daddr type local tcp dport 30080 meta mark set meta mark or 0x4000 goto KUBE-SVC-WEB
        }
        chain KUBE-SVC-WEB { meta l4proto tcp dnat to 10.244.1.6:8080; }
    }"#;

/// The same transaction for the other family, without services.
#[must_use]
pub fn of_ipv6(script: &str) -> String {
    let lines = script.lines().filter(|line| {
        !line.contains("add element") && !line.contains("default/web") && !line.starts_with('#')
    });
    let script = lines.collect::<Vec<_>>().join("\n");
    let changes = [
        (" ip kube-proxy", " ip6 kube-proxy"),
        ("ipv4_addr", "ipv6_addr"),
        ("ip daddr != 127.0.0.0/8", "ip6 daddr != ::1"),
        ("10.244.0.0/16", "fd00:10:244::/48"),
        ("ip saddr", "ip6 saddr"),
        ("ip daddr", "ip6 daddr"),
    ];
    changes.into_iter().fold(script, |script, (ours, theirs)| script.replace(ours, theirs))
}
