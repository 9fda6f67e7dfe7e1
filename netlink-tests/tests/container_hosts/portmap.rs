//! The CNI plugin portmap: a host port of a pod.

use netlink_tests::{Host, Server};

use crate::cluster::{Cluster, NODE, Ownership, is_from};
use crate::life::{Neighbour, live_beside};

const PORT: u16 = 18082;

const POD: &str = "10.244.1.20";

/// A host port of a pod; the pod stays when the port is removed.
#[derive(Default)]
struct HostPort {
    pod: Option<(Host, Server)>,
}

impl HostPort {
    /// What a container runtime does for a pod with a host port.
    #[track_caller]
    fn call(cluster: &Cluster, command: &str) {
        let configuration = format!(
            r#"{{"cniVersion": "0.4.0", "name": "pods", "type": "portmap",
                "capabilities": {{"portMappings": true}},
                "runtimeConfig": {{"portMappings":
                    [{{"hostPort": {PORT}, "containerPort": 8080, "protocol": "tcp"}}]}},
                "prevResult": {{"cniVersion": "0.4.0",
                    "interfaces": [{{"name": "eth0", "sandbox": "/proc/1/ns/net"}}],
                    "ips": [{{"version": "4", "address": "{POD}/24", "interface": 0}}]}}}}"#
        );
        let _ = cluster.machine.ok(&format!(
            "export CNI_COMMAND={command} CNI_CONTAINERID=pod CNI_NETNS=/proc/1/ns/net
             export CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
             echo '{configuration}' | /usr/lib/cni/portmap"
        ));
    }
}

impl Neighbour for HostPort {
    fn start(&mut self, cluster: &Cluster) {
        self.pod.get_or_insert_with(|| {
            let pod = cluster.net.pod("hostport", POD);
            let server = pod.serve_tcp(8080, "pod");
            (pod, server)
        });
        Self::call(cluster, "ADD");
    }

    fn reload(&mut self, cluster: &Cluster) {
        Self::call(cluster, "DEL");
        Self::call(cluster, "ADD");
    }

    fn stop(&mut self, cluster: &Cluster) {
        Self::call(cluster, "DEL");
        let answer = cluster.outside.hasty().connect_tcp((NODE, PORT));
        assert!(!is_from(&answer, "pod"), "{answer:?}");
    }

    #[track_caller]
    fn assert_works(&self, cluster: &Cluster, when: &str) {
        for host in [&cluster.outside, &cluster.client, cluster.node()] {
            let answer = host.connect_tcp((NODE, PORT));
            assert!(is_from(&answer, "pod"), "{when}: {answer:?}");
        }
        let answer = cluster.outside.connect_tcp((NODE, PORT));
        assert_eq!(answer.source(), cluster.outside.ip(), "{when}");
    }
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn portmaps_host_port_works_beside_owned_tables() {
    live_beside(Ownership::On, &mut HostPort::default());
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn portmaps_host_port_works_beside_tables_without_an_owner() {
    live_beside(Ownership::Off, &mut HostPort::default());
}
