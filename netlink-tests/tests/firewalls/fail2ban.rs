//! fail2ban bans, unbans, reloads and stops, by its actions of nftables and of iptables.

use netlink_tests::scenario::{NODE_PORT, WEB};
use netlink_tests::{Process, eventually};

use crate::cluster::{Cluster, Tables};
use crate::machine::{Machine, SOON};

/// A server of the node itself.
const SERVER: &str = "192.168.50.2:9000";

const CLIENT: &str = "192.0.2.10";

/// A jail that reads an empty log: the test bans.
fn jail(action: &str) -> String {
    format!(
        "[sshd]\nenabled = false\n[web]\nenabled = true\nfilter = sshd\nbackend = polling\n\
         logpath = /run/web.log\nbantime = 1h\naction = {action}\n"
    )
}

#[track_caller]
fn start(machine: &Machine, action: &str) -> Process {
    let jail = jail(action);
    let _ = machine.shell(&format!(": >/run/web.log; echo '{jail}' >/etc/fail2ban/jail.local"));
    let daemon = machine.spawn("fail2ban-server -f --loglevel WARNING --logtarget STDERR start");
    wait_until_it_runs(machine);
    daemon
}

#[track_caller]
fn wait_until_it_runs(machine: &Machine) {
    let status = || machine.output("fail2ban-client status web");
    eventually("the jail", SOON, || (status().code() == Some(0)).then_some(()));
}

/// Runs `action`, of which a ban closes `closed` and no other way.
#[track_caller]
fn check(tables: Tables, action: &str, closed: &[&str]) {
    let mut cluster = Cluster::new(tables);
    cluster.lab.world.serve("node", "server", 9000);
    let daemon = start(&cluster.machine, action);
    let ways = [("outside", SERVER), ("outside", NODE_PORT), ("pod", WEB), ("node", WEB)];
    let closed_now = |cluster: &Cluster| -> Vec<_> {
        let shut = ways.iter().filter(|(client, to)| !cluster.answers(client, to));
        shut.map(|(_, to)| *to).collect()
    };
    for step in ["start", "reload", "takeover"] {
        let of = format!("{tables:?}, {action}, {step}");
        match step {
            "reload" => {
                let _ = cluster.machine.run("fail2ban-client reload");
                wait_until_it_runs(&cluster.machine);
            }
            "takeover" => cluster.start_again(),
            _ => {}
        }
        assert_eq!(closed_now(&cluster), [""; 0], "{of}");
        let _ = cluster.machine.run(&format!("fail2ban-client set web banip {CLIENT}"));
        let banned = || (closed_now(&cluster) == closed).then_some(());
        eventually(&format!("{of}: the ban of {closed:?}"), SOON, banned);
        cluster.check_tables("a ban");
        let _ = cluster.machine.run(&format!("fail2ban-client set web unbanip {CLIENT}"));
        eventually("an end of the ban", SOON, || closed_now(&cluster).is_empty().then_some(()));
    }
    let _ = cluster.machine.run(&format!("fail2ban-client set web banip {CLIENT}"));
    eventually("a ban", SOON, || (!closed_now(&cluster).is_empty()).then_some(()));
    let _ = daemon.terminate(SOON);
    eventually("its end", SOON, || closed_now(&cluster).is_empty().then_some(()));
    cluster.check("its end");
}

/// A packet to an endpoint on another host or in a pod does not pass hook input.
#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_ban_of_fail2ban_closes_servers_of_the_node_and_leaves_node_ports_open() {
    for tables in Tables::ALL {
        for action in ["nftables-allports", "iptables-allports"] {
            check(tables, &format!("{action}[name=web, protocol=tcp]"), &[SERVER]);
        }
    }
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_ban_of_fail2ban_in_another_hook_closes_node_ports() {
    let prerouting = "nftables-allports[name=web, protocol=tcp, chain_hook=prerouting]";
    check(Tables::Owned, prerouting, &[SERVER, NODE_PORT]);
    let forward = "iptables-allports[name=web, protocol=tcp, chain=FORWARD]";
    check(Tables::Owned, forward, &[NODE_PORT]);
}
