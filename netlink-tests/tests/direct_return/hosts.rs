//! The hosts alone: who reaches whom, and by which frames.

use netlink_tests::{CLIENT, NODES, SERVICES, Switched};

#[test]
fn clients_reach_pods_and_the_entry_by_the_link() {
    let link = Switched::new();
    let pods: Vec<_> = (0..NODES.len()).flat_map(|place| link.pods(place)).collect();
    let servers: Vec<_> = pods.iter().map(|pod| pod.serve_tcp(8080, "pod")).collect();
    for pod in &pods {
        for to in [(pod.ip().into(), 8080), (std::net::IpAddr::from(pod.ip6()), 8080)] {
            let answer = link.clients().connect_tcp(to);
            assert_eq!((answer.server(), answer.source().is_ipv4()), ("pod", to.0.is_ipv4()));
        }
    }
    drop(servers);

    let service = [SERVICES.octets()[0], SERVICES.octets()[1], SERVICES.octets()[2], 2];
    for entry in [0, 2] {
        link.enter_at(entry);
        let mut capture = link.capture();
        let _ = link.clients().hasty().connect_tcp((std::net::Ipv4Addr::from(service), 80));
        let frames = capture.frames();
        let first = frames.iter().find(|frame| frame.from.to_string() == CLIENT).unwrap();
        assert_eq!(first.ports().unwrap().1, 80);
        // The frame enters at the router's port and goes to the entry's address; without a service
        // the entry sends it back, and it travels until its TTL ends.
        assert_eq!(first.to_hardware, [2, 0, 1, 0, 0, 31 + u8::try_from(entry).unwrap()]);
        assert_ne!(first.device, link.port(entry));
    }
}
