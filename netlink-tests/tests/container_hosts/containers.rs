//! The server inside of containers, and what a container reaches.

use netlink_tests::{NODE_IP, eventually};

use crate::cluster::{Cluster, NODE, OUTSIDE, is_from};
use crate::machine::SOON;

/// Answers as the servers of hosts do, with its name and the address of the client.
pub(crate) const SERVER: &str = "/usr/bin/socat -U TCP-LISTEN:8080,fork,reuseaddr \
     'SYSTEM:echo \"container $SOCAT_PEERADDR:$SOCAT_PEERPORT\"'";

/// Waits until the server answers on this port of the node.
#[track_caller]
pub(crate) fn wait_for_container(cluster: &Cluster, port: u16) {
    eventually("the container", SOON, || {
        let answer = cluster.outside.hasty().connect_tcp((NODE, port));
        is_from(&answer, "container").then_some(())
    });
}

/// The container whose process this command prints reaches services and hosts, with the node's address.
#[track_caller]
pub(crate) fn assert_container_reaches_all(cluster: &Cluster, pid: &str, when: &str) {
    let rows =
        [("10.96.0.10:80", "a"), ("10.96.0.11:80", "c"), (&format!("{OUTSIDE}:8080"), "outside")];
    for (to, server) in rows {
        let connect =
            format!("nsenter --target $({pid}) --net socat -t 5 - TCP:{to},connect-timeout=5");
        let answer = cluster.machine.run(&connect);
        let is_right = answer.stdout.starts_with(&format!("{server} "));
        assert!(is_right, "{when}: {to}: {}{}", answer.stdout, answer.stderr);
        if server != "a" {
            let source = answer.stdout.contains(&format!(" {NODE_IP}:"));
            assert!(source, "{when}: {to}: not masqueraded: {}", answer.stdout);
        }
    }
}
