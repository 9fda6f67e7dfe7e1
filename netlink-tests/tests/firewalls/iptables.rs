//! iptables of Debian, which uses nftables: it knows five tables, and ours is none of them.

use crate::cluster::{Cluster, Tables, WAYS};

/// What iptables reads and writes.
const BUILTIN: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn iptables_neither_shows_nor_changes_our_tables() {
    for tables in Tables::ALL {
        let mut cluster = Cluster::new(tables);
        let machine = &cluster.machine;
        for program in ["iptables", "ip6tables"] {
            assert_eq!(machine.run(&format!("{program}-nft-save")), "", "{program}");
            for table in BUILTIN {
                let shown = machine.run(&format!("{program}-nft -t {table} -S"));
                assert!(shown.lines().all(|line| line.starts_with("-P ")), "{program} {shown}");
            }
            for arguments in ["-S", "-F", "-X", "-N other"] {
                let refused = machine.output(&format!("{program}-nft -t kube-proxy {arguments}"));
                assert!(
                    refused.stderr.contains("table 'kube-proxy' does not exist"),
                    "{refused:?}"
                );
            }
            let _ = machine.shell("printf '*kube-proxy\\nCOMMIT\\n' >/run/ours");
            let restored = machine.output(&format!("{program}-nft-restore /run/ours"));
            assert!(restored.stderr.contains("table name 'kube-proxy' invalid"), "{restored:?}");
        }
        cluster.check("what names our table");
        cluster.start_again();
    }
}

/// Saves, restores and flushes what `iptables` knows, as at the start and the stop of
/// iptables-persistent.
#[track_caller]
fn check(tables: Tables, iptables: &str) {
    let mut cluster = Cluster::new(tables);
    let closed = |cluster: &Cluster| {
        // The node's own connections are not forwarded.
        assert_eq!(cluster.open_ways(), [WAYS[1]], "{tables:?}, {iptables}: the policy drops");
    };
    let machine = &cluster.machine;
    let _ = machine.run(&format!("{iptables} -P FORWARD DROP"));
    closed(&cluster);
    let accept = "-A FORWARD -m conntrack --ctstate DNAT,ESTABLISHED -j ACCEPT";
    let _ = machine.run(&format!("{iptables} {accept}"));
    cluster.check("translated connections are accepted");
    let _ = machine.shell(&format!("{iptables}-save >/run/saved; grep -q DNAT /run/saved"));
    let _ = machine.shell(&format!("{iptables} -P FORWARD ACCEPT; {iptables} -F; {iptables} -X"));
    cluster.check("a flush");
    let _ = machine.shell(&format!("{iptables}-restore </run/saved"));
    cluster.check("a restore");
    cluster.start_again();
    let _ = cluster.machine.run(&format!("{iptables} -F FORWARD"));
    closed(&cluster);
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn services_are_served_while_iptables_restores_and_flushes_its_rules() {
    for tables in Tables::ALL {
        check(tables, "iptables-nft");
    }
    check(Tables::Owned, "iptables-legacy");
}
