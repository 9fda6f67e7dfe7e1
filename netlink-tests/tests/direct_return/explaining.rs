//! `explain` for packets of direct return, beside what the kernel does with them.

use std::net::{IpAddr, SocketAddr};

use netlink_tests::cluster::{ADDRESS, Cluster, place_of, service, web};
use netlink_tests::scenario::{Family, Protocol, Service};
use netlink_tests::{Answer, CLIENT, NODES};
use serde_json::{Value, json};

use crate::cluster;

/// Explains a packet to `web` on the first node.
#[track_caller]
fn explain(cluster: &Cluster, to: SocketAddr, protocol: Protocol, from: &str) -> Value {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let to = format!("{to}/{protocol}");
    let arguments = ["explain", &to, "--from", from, "--output", "json"];
    let text = cluster.command(0, &arguments).ok();
    serde_json::from_str(&text).unwrap()
}

/// The place of the node that serves the packet of an outcome.
#[track_caller]
fn place(cluster: &Cluster, outcome: &Value) -> usize {
    let to = outcome["to"].as_str().unwrap();
    match outcome["kind"].as_str().unwrap() {
        "handed" => {
            let node: IpAddr = to.parse().unwrap();
            let has_address = |place: &usize| {
                let host = cluster.node(*place);
                IpAddr::from(host.ip()) == node || IpAddr::from(host.ip6()) == node
            };
            let place = (0..NODES.len()).find(has_address).unwrap();
            let last = 11 + u8::try_from(place).unwrap();
            assert!(
                outcome["hardwareAddress"]
                    .as_str()
                    .unwrap()
                    .ends_with(&format!("{:02x}", last + 20))
            );
            place
        }
        "sent" => {
            assert_eq!(outcome["masqueraded"], false, "{outcome:#}");
            0
        }
        other => panic!("{other}: {outcome:#}"),
    }
}

/// Explains the first packet of a connection, and opens it; returns both places.
#[track_caller]
fn both(cluster: &Cluster, protocol: Protocol, family: Family) -> (usize, usize) {
    let client = cluster.next_client(family);
    // The entry must know the router's hardware address.
    let router = cluster.link.router();
    let address = match family {
        Family::Ipv4 => router.ip().into(),
        Family::Ipv6 => IpAddr::from(router.ip6()),
    };
    assert_eq!(cluster.node(0).icmp_echo(address), Answer::Echoed);
    let explained = explain(cluster, service(family), protocol, &client.to_string());
    let chosen = explained["outcomes"].as_array().unwrap();
    let places: Vec<_> = chosen.iter().map(|outcome| place(cluster, outcome)).collect();
    let certain = |outcome: &Value| outcome["certain"] == true;
    assert!(chosen.iter().all(certain), "{explained:#}");
    assert!(places.iter().all(|place| *place == places[0]), "{explained:#}");
    assert_eq!(explained["direct"]["kind"], "chosen", "{explained:#}");
    assert!(explained["direct"]["slot"].as_u64().unwrap() < 251);
    let Answer::From { server, .. } = cluster.ask_from(client, protocol) else {
        panic!("no answer to {client}")
    };
    (places[0], place_of(&server))
}

#[test]
fn the_explained_node_is_the_one_that_the_kernel_chooses_for_each_client() {
    let cluster = cluster();
    let mut seen = [0; 3];
    for (protocol, family) in [
        (Protocol::Tcp, Family::Ipv4),
        (Protocol::Udp, Family::Ipv4),
        (Protocol::Sctp, Family::Ipv6),
        (Protocol::Udp, Family::Ipv6),
    ] {
        for _ in 0..20 {
            let (explained, real) = both(&cluster, protocol, family);
            assert_eq!(explained, real, "{protocol:?} {family:?}");
            seen[real] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 8), "{seen:?}");
}

#[test]
fn with_session_affinity_the_address_alone_decides_in_explain_and_in_the_kernel() {
    let cluster = cluster();
    let sticky: Service = web().spec("sessionAffinity", json!("ClientIP"));
    cluster.apply("web", &sticky);
    netlink_tests::eventually("a hash of the address", netlink_tests::cluster::SOON, || {
        let from = format!("{CLIENT}:9999");
        let direct = explain(&cluster, service(Family::Ipv4), Protocol::Tcp, &from);
        let text = direct["direct"]["text"].as_str().unwrap().to_owned();
        text.contains("by the client's address:").then_some(())
    });
    for family in Family::ALL {
        let places: Vec<_> = (0..10).map(|_| both(&cluster, Protocol::Tcp, family)).collect();
        assert!(places.iter().all(|(explained, real)| explained == real), "{places:?}");
        assert!(places.iter().all(|both| *both == places[0]), "{places:?}");
    }
}

#[test]
fn the_text_names_slot_node_and_hop_and_later_the_remembered_connection() {
    let cluster = cluster();
    let to = format!("{ADDRESS}:80/tcp");
    let text = |client: SocketAddr| {
        cluster.command(0, &["explain", &to, "--from", &client.to_string()]).ok()
    };
    let clients = std::iter::repeat_with(|| cluster.next_client(Family::Ipv4));
    let mut texts = clients.map(|client| (client, text(client)));
    let (client, handed) = texts.find(|(_, text)| text.contains("one hop to")).unwrap();
    for line in [
        "service   default/web:p80-tcp at 198.51.100.2:80/tcp\n",
        "direct    list 1, slot ",
        " of 251 slots by the client's address and port: node 0x",
        "outcome       100 %  one hop to 192.168.60.1",
        " (02:00:01:00:00:",
        ", with the addresses of the client and the service\n",
        "\ningress\n  table netdev direct-return chain ingress (filter, 0)\n",
        "the connection is not remembered\n",
        "          at ingress, it is sent to the hardware address of this node, whole,",
    ] {
        assert!(handed.contains(line), "{line}: {handed}");
    }
    assert!(!handed.contains("prerouting\n"), "{handed}");
    let traced = cluster.command(0, &["explain", &to, "--from", &client.to_string(), "--trace"]);
    assert_eq!(traced.code(), Some(2), "{}", traced.stdout);
    assert!(traced.stderr.contains("hands the packet on before the hook"), "{}", traced.stderr);

    let (_, own) = texts.find(|(_, text)| !text.contains("one hop to")).unwrap();
    for line in [
        "no other node has this number: it is that of this node\n",
        "this node serves the packet\n",
        "outcome       100 %  endpoint 10.244.1.5:8080/tcp by ",
        ", keeps its source\n",
        "\nprerouting\n",
    ] {
        assert!(own.contains(line), "{line}: {own}");
    }

    let _ = cluster.ask_from(client, Protocol::Tcp);
    let known = text(client);
    assert!(
        known.contains("direct    list 1: the connection is remembered, with node 0x"),
        "{known}"
    );
    assert!(known.contains("one hop to 192.168.60.1"), "{known}");
}

#[test]
fn without_a_port_each_node_has_the_share_of_its_slots() {
    let cluster = cluster();
    let slots = cluster.slots(0, Family::Ipv4);
    let explained = explain(&cluster, service(Family::Ipv4), Protocol::Tcp, CLIENT);
    assert_eq!(explained["direct"]["slot"], Value::Null);
    let mut shares = [0.0; 3];
    for outcome in explained["outcomes"].as_array().unwrap() {
        assert_eq!(outcome["certain"], true, "{explained:#}");
        shares[place(&cluster, outcome)] += outcome["share"].as_f64().unwrap();
    }
    for (letter, share) in "abc".chars().zip(shares) {
        let wanted = f64::from(u32::try_from(slots[&letter]).unwrap()) / 251.0;
        assert!((share - wanted).abs() < 1e-6, "{letter}: {share} {wanted}");
    }
}

#[test]
fn a_packet_that_is_translated_has_the_reason() {
    let cluster = cluster();
    let of = |to: SocketAddr, from: &str| {
        explain(&cluster, to, Protocol::Tcp, from)["direct"]["kind"].clone()
    };
    let web = service(Family::Ipv4);
    assert_eq!(of(web, "10.244.1.5"), json!("otherDevice"));
    assert_eq!(of(web, &cluster.node(0).ip().to_string()), json!("otherDevice"));
    assert_eq!(of(web, &cluster.node(1).ip().to_string()), json!("fromNode"));
    assert_eq!(of("10.96.0.10:80".parse().unwrap(), CLIENT), json!("noDestination"));
    let from_pod = ["explain", "198.51.100.2:80/tcp", "--from", "10.244.1.5"];
    let text = cluster.command(0, &from_pod).ok();
    assert!(text.contains("direct    no: it does not come in by \""), "{text}");
    assert!(text.contains("outcome      25.0 %  endpoint"), "{text}");
}
