//! Docker: a published port of a container, and the policy of chain FORWARD.

use netlink_tests::{Answer, eventually};

use crate::cluster::{Cluster, NODE, Ownership, is_from};
use crate::containers::{SERVER, assert_container_reaches_all, wait_for_container};
use crate::life::{Neighbour, live_beside};
use crate::machine::{Daemon, SOON};

const PORT: u16 = 18081;

/// Control groups belong to the whole machine, which may have a Docker of its own.
const DOCKERD: &str = "dockerd --cgroup-parent=deltaproxy-tests";

/// A pod of the node.
const POD: &str = "10.244.1.5";

/// The image has links alone; the programs are those of the machine.
const RUN: &str = "tar -C / -c bin lib lib64 sbin | docker import - programs >/dev/null
     docker run --detach --restart always --name web --volume /usr:/usr:ro";

#[derive(Default)]
struct Docker {
    daemon: Option<Daemon>,
}

impl Docker {
    #[track_caller]
    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }
}

impl Neighbour for Docker {
    fn start(&mut self, cluster: &Cluster) {
        let machine = &cluster.machine;
        self.daemon = Some(machine.daemon("dockerd", DOCKERD));
        let has_answered = || machine.run("docker version").code() == Some(0);
        eventually("dockerd", SOON, || has_answered().then_some(()));
        let _ = machine.ok(&format!(
            "docker inspect web >/dev/null 2>&1 || {{
                 {RUN} --publish {PORT}:8080 programs {SERVER}
             }}"
        ));
        wait_for_container(cluster, PORT);
    }

    fn reload(&mut self, cluster: &Cluster) {
        self.daemon().signal(&cluster.machine, "HUP");
    }

    fn stop(&mut self, cluster: &Cluster) {
        self.daemon.take().expect("it runs").end(&cluster.machine, "TERM");
        // That of another test has containers.
        let _ = cluster.machine.run("rmdir /sys/fs/cgroup/deltaproxy-tests");
    }

    #[track_caller]
    fn assert_works(&self, cluster: &Cluster, when: &str) {
        let answer = cluster.outside.connect_tcp((NODE, PORT));
        assert!(is_from(&answer, "container"), "{when}: {answer:?}");
        assert_eq!(answer.source(), cluster.outside.ip(), "{when}");
        let pid = "docker inspect --format '{{.State.Pid}}' web";
        assert_container_reaches_all(cluster, pid, when);
    }

    /// docker-proxy answers, from its own connection to the container.
    fn assert_lost(&mut self, cluster: &Cluster) {
        self.reload(cluster);
        let answer = cluster.outside.connect_tcp((NODE, PORT));
        assert!(is_from(&answer, "container"), "{answer:?}");
        assert_ne!(answer.source(), cluster.outside.ip());
    }

    /// SIGHUP writes no rules.
    fn restore(&mut self, cluster: &Cluster) {
        self.stop(cluster);
        self.start(cluster);
    }
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_container_of_docker_keeps_its_published_port_beside_owned_tables() {
    live_beside(Ownership::On, &mut Docker::default());
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn a_container_of_docker_keeps_its_published_port_beside_tables_without_an_owner() {
    live_beside(Ownership::Off, &mut Docker::default());
}

/// Docker sets the policy only if the node did not forward before.
#[test]
#[ignore = "needs packages: make test-neighbours"]
fn docker_that_turns_forwarding_on_drops_connections_to_pods_until_docker_user_accepts_them() {
    let Some(mut cluster) = Cluster::new(Ownership::On) else { return };
    cluster.node().sysctl("ipv4/ip_forward", "0");
    let mut docker = Docker::default();
    docker.start(&cluster);
    assert_eq!(policy(&cluster), "-P FORWARD DROP");
    cluster.start();
    let hasty = cluster.outside.hasty();
    assert_eq!(hasty.connect_tcp((NODE, 30080)), Answer::Silent);
    let _ = cluster.machine.ok(include_str!("../../../examples/docker-user.sh"));
    cluster.assert_serves("with the rule in DOCKER-USER");
    docker.assert_works(&cluster, "with the rule in DOCKER-USER");
    assert_eq!(hasty.connect_tcp((POD, 8080)), Answer::Silent, "of no service");
    docker.restore(&cluster);
    cluster.assert_serves("after a restart of Docker");
    docker.stop(&cluster);
    assert_eq!(policy(&cluster), "-P FORWARD DROP");
}

/// The policy of chain FORWARD, as iptables prints it.
fn policy(cluster: &Cluster) -> String {
    let rules = cluster.machine.ok("iptables --list-rules FORWARD");
    rules.lines().next().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "needs packages: make test-neighbours"]
fn docker_leaves_the_policy_of_a_node_that_forwards() {
    let Some(mut cluster) = Cluster::new(Ownership::On) else { return };
    let mut docker = Docker::default();
    docker.start(&cluster);
    assert_eq!(policy(&cluster), "-P FORWARD ACCEPT");
    cluster.start();
    cluster.assert_serves("beside Docker");
    docker.stop(&cluster);
}
