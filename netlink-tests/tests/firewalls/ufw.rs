//! ufw: packets of services are routed packets to the endpoint.

use crate::cluster::{Cluster, Tables, WAYS};

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn ufw_refuses_services_until_their_endpoints_are_allowed_as_routed_destinations() {
    for tables in Tables::ALL {
        let mut cluster = Cluster::new(tables);
        let machine = &cluster.machine;
        let _ = machine.run("ufw --force enable");
        // The node's own connections are not routed.
        let own = [WAYS[1]];
        assert_eq!(cluster.open_ways(), own, "ufw refuses what it routes");
        // Neither the service's addresses nor its node port are those of the packet by then.
        for rule in [
            "route allow to 10.96.0.0/16",
            "route allow to 192.168.50.2 port 30080 proto tcp",
            "allow 30080/tcp",
        ] {
            let _ = machine.run(&format!("ufw {rule}"));
            assert_eq!(cluster.open_ways(), own, "{tables:?}, {rule}");
        }
        let _ = machine.run("ufw route allow to 10.244.0.0/16");
        cluster.check("route allow");
        let _ = machine.run("ufw reload");
        cluster.check("a reload");
        cluster.start_again();
        let machine = &cluster.machine;
        let _ = machine.run("ufw route delete allow to 10.244.0.0/16");
        assert_eq!(cluster.open_ways(), own, "{tables:?}, the rule is gone");
        for endpoint in ["10.244.1.5", "10.244.2.7"] {
            let rule = format!("ufw route allow proto tcp to {endpoint} port 8080 from any");
            let _ = machine.run(&rule);
        }
        cluster.check("each endpoint is allowed");
        let _ = cluster.machine.run("ufw disable");
        cluster.check("the stop");
    }
}
