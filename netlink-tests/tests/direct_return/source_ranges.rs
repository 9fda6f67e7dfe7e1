//! `loadBalancerSourceRanges`: the serving node checks the client's own address.

use netlink_tests::cluster::{Cluster, SOON, service, web};
use netlink_tests::scenario::Family;
use netlink_tests::{Answer, eventually};
use serde_json::json;

use crate::cluster;

/// Asks by this number of new connections of TCP in each family. Returns the servers that
/// answered, and whether they saw the client.
fn answers(cluster: &Cluster, count: usize) -> Vec<(Option<String>, bool)> {
    let clients = cluster.link.clients().hasty();
    let ask = |family: Family| {
        let client = cluster.next_client(family);
        let answer = clients.connect_tcp_from(client, service(family));
        let Answer::From { server, seen } = answer else { return (None, false) };
        (Some(server), seen == client)
    };
    (0..count).flat_map(|_| Family::ALL).map(ask).collect()
}

#[test]
fn only_clients_in_the_source_ranges_are_served_by_any_node() {
    let cluster = cluster();
    let limited = |ranges: [&str; 2]| web().spec("loadBalancerSourceRanges", json!(ranges));
    let served = |(server, sees_client): &(Option<String>, bool)| server.is_some() && *sees_client;

    cluster.apply("web", &limited(["203.0.113.99/32", "fd00:203:0:113::99/128"]));
    eventually("no answer to clients that are not listed", SOON, || {
        let all_refused = answers(&cluster, 6).iter().all(|(server, _)| server.is_none());
        all_refused.then_some(())
    });

    cluster.apply("web", &limited(["203.0.113.10/32", "fd00:203:0:113::10/128"]));
    eventually("answers to clients that are listed", SOON, || {
        answers(&cluster, 20).iter().all(served).then_some(())
    });
}
