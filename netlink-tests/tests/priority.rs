//! The packet priority: rules carry list numbers in it, and leave nothing of them behind.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{SocketAddr, UdpSocket};

use netlink_tests::nft_can_load;
use netlink_tests::scenario::{Family, Lab, Service, Slice};
use socket2::{Domain, Socket, Type};

/// The value that the node's program sets with `SO_PRIORITY`.
const OWN: u32 = 7;

/// Records the priority of every UDP packet that leaves the node.
const WATCH: &str = "table inet watch {
    set seen { type classid; flags dynamic; }
    chain leaving {
        type filter hook postrouting priority 300;
        meta l4proto udp add @seen { meta priority }
    }
}";

/// The priorities of packets that the node sends to `to`, one after the other in one flow.
fn seen(lab: &Lab, to: SocketAddr, packets: usize) -> Vec<String> {
    let node = lab.world.node();
    let socket = node.run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None).unwrap();
        socket.set_priority(OWN).unwrap();
        let any = SocketAddr::new(if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, 5555);
        socket.bind(&any.into()).unwrap();
        UdpSocket::from(socket)
    });
    let each = (0..packets).map(|_| {
        node.nft_script(WATCH);
        socket.send_to(b"hello\n", to).unwrap();
        let listed = node.nft("list set inet watch seen");
        node.nft("delete table inet watch");
        let elements = listed.split_once("elements = { ").expect("a packet left").1;
        elements.split_once(" }").unwrap().0.to_owned()
    });
    each.collect()
}

#[test]
fn a_programs_priority_is_lost_for_the_first_packet_to_a_service_and_kept_for_all_others() {
    if !nft_can_load() {
        return;
    }
    let mut lab = Lab::new();
    let service = Service::new("web", "10.96.0.10").node_port(80, 30080);
    lab.apply(&[&service, &Slice::new("web").endpoints("c")]);
    let own = format!("0:{OWN}");
    for family in Family::ALL {
        let to = |ip: [u8; 4], port| SocketAddr::new(family.of(ip.into()), port);
        let service = seen(&lab, to([10, 96, 0, 10], 80), 2);
        assert_eq!(service, ["none", &own], "to a service, {}", family.name());
        for other in
            [to([192, 0, 2, 10], 9), to([192, 0, 2, 10], 30_080), to([10, 244, 2, 7], 8080)]
        {
            assert_eq!(seen(&lab, other, 2), [&*own, &*own], "to {other}");
        }
    }
}
