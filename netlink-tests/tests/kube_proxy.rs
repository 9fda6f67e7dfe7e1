//! The program under kube-proxy's name, with the flags and the file of kube-proxy.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netlink_tests::apiserver::{ApiServer, Kind, Request, object};
use netlink_tests::reader::Family;
use netlink_tests::scenario::WEB;
use netlink_tests::{Finished, Host, Net, Process, Server, deltaproxy_binary, eventually};
use tempfile::TempDir;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// The file in the ConfigMap `kube-proxy` of kubeadm 1.36, for a cluster with 10.244.0.0/16.
const KUBEADM: &str = include_str!("fixtures/kubeadm-config.yaml");

/// A node with a pod that serves, an API server, and a program named `kube-proxy`.
struct Cluster {
    net: Net,
    api: ApiServer,
    folder: TempDir,
    _pod: (Host, Server),
    outside: Host,
}

impl Cluster {
    fn new() -> Self {
        let net = Net::new();
        let pod = net.pod("a", "10.244.1.5");
        let server = pod.serve_tcp(8080, "a");
        let outside = net.outside("outside", "192.0.2.10");
        let api = net.node().run(ApiServer::with_web);
        let folder = tempfile::tempdir().unwrap();
        symlink(deltaproxy_binary(), folder.path().join("kube-proxy")).unwrap();
        Self { net, api, folder, _pod: (pod, server), outside }
    }

    fn kubeconfig(&self) -> &str {
        self.api.kubeconfig().to_str().unwrap()
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("kube-proxy")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, arguments: &[&str]) -> Process {
        self.net.node().spawn(self.program(), arguments)
    }

    fn output(&self, arguments: &[&str]) -> Finished {
        self.net.node().output(self.program(), arguments)
    }

    #[track_caller]
    fn wait_for_answer(&self) {
        eventually("an answer of a", SOON, || {
            let answer = format!("{:?}", self.outside.connect_tcp(WEB));
            answer.contains("\"a\"").then_some(())
        });
    }

    fn sysctl(&self, name: &str) -> String {
        let path = format!("/proc/sys/net/netfilter/{name}");
        let text = self.net.node().run(|| std::fs::read_to_string(path));
        text.unwrap().trim().to_owned()
    }

    fn has_table(&self) -> bool {
        self.net.node().read_table(Family::Ip).is_some()
    }
}

#[test]
fn the_command_line_and_file_of_kubeadm_start_the_daemon() {
    let cluster = Cluster::new();
    let file = cluster.file("config.conf");
    std::fs::write(&file, KUBEADM.replace("KUBECONFIG", cluster.kubeconfig())).unwrap();
    let config = format!("--config={}", file.display());
    let mut daemon = cluster.start(&[&config, "--hostname-override=node1"]);
    daemon.wait_for_line("mode iptables is not supported: mode nftables is used", SOON);
    cluster.wait_for_answer();
    assert_eq!(cluster.sysctl("nf_conntrack_tcp_timeout_established"), "86400");
    assert_eq!(cluster.sysctl("nf_conntrack_tcp_timeout_close_wait"), "3600");
    let finished = daemon.terminate(SOON);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    // Only the initial network namespace can set nf_conntrack_max.
    let mut warnings = finished.warnings();
    warnings.retain(|line| !line.contains("nf_conntrack_max stays as it is"));
    assert_eq!(warnings.len(), 1, "{}", finished.stderr);
    assert!(cluster.has_table());

    let cleaned = cluster.output(&["--cleanup", &config]);
    assert_eq!(cleaned.code(), Some(0), "{}", cleaned.stderr);
    assert!(!cluster.has_table());
}

/// The flags of k3s, and some of other modes.
#[test]
fn the_command_line_of_k3s_starts_the_daemon() {
    let cluster = Cluster::new();
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig());
    let mut daemon = cluster.start(&[
        "--cluster-cidr=10.244.0.0/16",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--conntrack-tcp-timeout-established=0s",
        "--healthz-bind-address=127.0.0.1",
        "--hostname-override",
        "node1",
        &kubeconfig,
        "--proxy-mode=ipvs",
        "--ipvs-scheduler=lc",
        "-v=2",
    ]);
    daemon.wait_for_line("mode ipvs is not supported", SOON);
    daemon.wait_for_line("scheduler lc is off: random is used", SOON);
    cluster.wait_for_answer();
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
}

fn is_of_slices(request: &Request) -> bool {
    request.kind == Some(Kind::EndpointSlice)
}

#[test]
fn the_content_type_decides_in_which_format_objects_are_requested() {
    let cluster = Cluster::new();
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig());
    for media_type in ["application/json", "application/vnd.kubernetes.protobuf"] {
        let before = cluster.api.requests().len();
        let content_type = format!("--kube-api-content-type={media_type}");
        let daemon = cluster.start(&[
            "--proxy-mode=nftables",
            "--cluster-cidr=10.244.0.0/16",
            "--hostname-override=node1",
            &kubeconfig,
            &content_type,
        ]);
        cluster.api.wait_for_requests(SOON, |all| all[before..].iter().any(is_of_slices));
        let finished = daemon.terminate(SOON);
        assert!(!finished.stderr.contains("without effect"), "{}", finished.stderr);
        let requests = cluster.api.requests().split_off(before);
        let mut lists = requests.iter().filter(|it| is_of_slices(it));
        let first = lists.next().expect("they were requested");
        assert!(first.accept.starts_with(&format!("{media_type};")), "{first:?}");
        assert!(lists.all(|it| it.accept == first.accept), "{requests:#?}");
    }
}

/// As in kube-proxy, also beside a file.
#[test]
fn the_address_of_master_replaces_that_of_the_kubeconfig_or_stands_alone() {
    let cluster = Cluster::new();
    let address = cluster.api.address().to_string();
    let kubeconfig = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    // Port 1 refuses connections.
    std::fs::write(cluster.file("kubeconfig"), kubeconfig.replace(&address, "127.0.0.1:1"))
        .unwrap();
    let path = cluster.file("kubeconfig");
    let config = cluster.file("config.conf");
    std::fs::write(&config, KUBEADM.replace("KUBECONFIG", path.to_str().unwrap())).unwrap();
    let config = format!("--config={}", config.display());
    let with_scheme = format!("--master=http://{address}");
    let without_scheme = format!("--master={address}");
    for arguments in [[&*config, &*with_scheme], ["--v=2", &*without_scheme]] {
        let daemon = cluster.start(&[arguments[0], arguments[1], "--hostname-override=node1"]);
        cluster.wait_for_answer();
        assert_eq!(daemon.terminate(SOON).code(), Some(0));
        cluster.output(&["--cleanup"]);
    }
}

#[test]
fn a_taken_port_ends_the_daemon_only_if_it_is_to_fail_hard() {
    let cluster = Cluster::new();
    let _holder = cluster.net.node().run(|| TcpListener::bind("127.0.0.1:10249")).unwrap();
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig());
    let arguments = [kubeconfig.as_str(), "--hostname-override=node1"];
    let mut daemon = cluster.start(&arguments);
    daemon.wait_for_line("cannot listen; trying again", SOON);
    cluster.wait_for_answer();
    daemon.terminate(SOON);

    let finished = cluster.output(&[&arguments[..], &["--bind-address-hard-fail"]].concat());
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    let expected = "metricsBindAddress: cannot listen at 127.0.0.1:10249: Address already in use";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    let of_node = |event: &serde_json::Value| {
        event["reason"] == "FailedToStartMetricServer" && event["regarding"]["name"] == "node1"
    };
    assert!(cluster.api.events().iter().any(of_node), "{:#?}", cluster.api.events());
}

/// The second address of the node, which its object does not have.
#[test]
fn a_bind_address_serves_node_ports_instead_of_the_address_of_the_node_object() {
    let cluster = Cluster::new();
    let other = [IpAddr::from([192, 168, 50, 3])];
    cluster.net.node().add_addresses(other);
    let mut web = object::service("default/web", "10.96.0.10", 80);
    web["spec"]["type"] = "NodePort".into();
    web["spec"]["ports"][0]["nodePort"] = 30080.into();
    cluster.api.push(web);
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig());
    // In the other modes all addresses serve node ports by default.
    let _daemon = cluster.start(&[
        &kubeconfig,
        "--hostname-override=node1",
        "--proxy-mode=nftables",
        "--bind-address=192.168.50.3",
    ]);
    let answers =
        |address: &str| format!("{:?}", cluster.outside.connect_tcp(address)).contains("\"a\"");
    eventually("an answer of a", SOON, || answers("192.168.50.3:30080").then_some(()));
    assert!(!answers("192.168.50.2:30080"));
}

#[test]
fn another_configuration_in_the_file_is_used_and_a_broken_one_is_not() {
    let cluster = Cluster::new();
    let file = cluster.file("config.conf");
    let write = |change: &dyn Fn(String) -> String| {
        let text = KUBEADM.replace("KUBECONFIG", cluster.kubeconfig());
        std::fs::write(&file, change(text)).unwrap();
    };
    write(&|text| text);
    let config = format!("--config={}", file.display());
    let mut daemon = cluster.start(&[&config, "--hostname-override=node1"]);
    daemon.wait_for_line("started", SOON);
    cluster.wait_for_answer();
    write(&|text| text.replace("clusterCIDR:", "clusterCIDR: nonsense #"));
    daemon.wait_for_line("the previous configuration stays in use", SOON);

    // No connection fails while it starts again.
    let other = "metricsBindAddress: 127.0.0.1:10999\n";
    write(&|text| {
        let text = text.replace("metricsBindAddress: \"\"\n", other);
        text.replace("  verbosity: 0\n", "  verbosity: 0\n  format: json\n")
    });
    eventually("another port for metrics", SOON, || {
        let answer = format!("{:?}", cluster.outside.connect_tcp(WEB));
        assert!(answer.contains("\"a\""), "{answer}");
        cluster.net.node().run(|| TcpStream::connect("127.0.0.1:10999")).ok()
    });
    // It is the same process, and follows the API server.
    assert!(daemon.is_running());
    cluster.api.push(object::service("default/more", "10.96.0.11", 80));
    cluster.api.push(object::endpoint_slice("default/more-1", "more", &["10.244.1.5"], 8080));
    eventually("an answer of a for another service", SOON, || {
        let answer = format!("{:?}", cluster.outside.connect_tcp("10.96.0.11:80"));
        answer.contains("\"a\"").then_some(())
    });
    let log = daemon.terminate(SOON).stderr;
    assert_eq!(log.matches("the configuration has changed").count(), 1, "{log}");
    assert!(log.contains("restarting fields=\"metricsBindAddress, logging\""), "{log}");
    assert!(log.contains("\"message\":\"started again\""), "{log}");
    assert_eq!(log.matches("stopped").count(), 1, "{log}");
    let events = cluster.api.events();
    assert_eq!(
        events.iter().filter(|event| event["reason"] == "Starting").count(),
        1,
        "{events:?}"
    );
}

#[test]
fn flags_without_a_command_are_those_of_kube_proxy() {
    let cluster = Cluster::new();
    let run = |arguments: &[&str]| cluster.net.node().output(deltaproxy_binary(), arguments);
    let refused = run(&["--proxy-mode=ipvs", "--strict-proxy-mode", "--hostname-override=n"]);
    assert_eq!(refused.code(), Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("only nftables is accepted"), "{}", refused.stderr);
    let wrong = run(&["--hostname-overide=n", "--masquerade-all=perhaps"]);
    assert_eq!(wrong.code(), Some(1));
    assert_eq!(
        wrong.stderr,
        "--hostname-overide: is not a flag of kube-proxy; did you mean --hostname-override?\n\
         --masquerade-all: is \"perhaps\"; expected true or false\n"
    );
    // Without an argument it is kube-proxy in a pod only, here without a service account.
    let in_pod = ["KUBERNETES_SERVICE_HOST=192.0.2.1".into(), deltaproxy_binary().into_os_string()];
    let mut daemon = cluster.net.node().spawn("env", &in_pod);
    daemon.wait_for_line("no API server", SOON);
    drop(daemon);
    // The program's own help and version.
    assert!(run(&["--help"]).ok().contains("Commands:"));
    assert!(run(&["--version"]).ok().starts_with("deltaproxy "));
    assert_eq!(run(&["--init-only", "--hostname-override=n"]).code(), Some(0));
    assert_eq!(cluster.sysctl("nf_conntrack_tcp_timeout_established"), "86400");
    assert!(!cluster.has_table());
}

#[test]
fn help_version_and_the_written_configuration_need_no_rights() {
    let cluster = Cluster::new();
    assert!(cluster.output(&["--help"]).ok().contains("--hostname-override"));
    assert!(cluster.output(&["--version=raw"]).ok().contains("arch="));
    let file = cluster.file("written.yaml");
    let write = format!("--write-config-to={}", file.display());
    let written = ["--cluster-cidr=10.0.0.0/8", "--proxy-mode=nftables", &write];
    let _ = cluster.output(&written).ok();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("clusterCIDR: 10.0.0.0/8"), "{text}");
    assert!(text.contains("healthzBindAddress: 0.0.0.0:10256"), "{text}");

    let nowhere = Path::new("/nowhere/written.yaml");
    let failed = cluster.output(&[&format!("--write-config-to={}", nowhere.display())]);
    assert_eq!(failed.code(), Some(1));
    assert!(failed.stderr.contains("/nowhere/written.yaml"), "{}", failed.stderr);
}

#[test]
fn a_configuration_is_checked_and_printed_as_it_would_be_used() {
    let cluster = Cluster::new();
    let file = cluster.file("config.conf");
    let check = || {
        let arguments = ["config", "check", file.to_str().unwrap()];
        cluster.net.node().output(deltaproxy_binary(), &arguments)
    };
    std::fs::write(&file, KUBEADM).unwrap();
    let text = check().ok();
    assert!(text.starts_with("# mode iptables is not supported: mode nftables is used"), "{text}");
    assert!(text.contains("maxPerCore: 32768"), "{text}");
    assert!(text.contains("clusterCIDR: 10.244.0.0/16"), "{text}");

    std::fs::write(&file, KUBEADM.replace("clusterCIDR: 10", "clusterCIDR: 1000")).unwrap();
    let refused = check();
    assert_eq!(refused.code(), Some(1));
    assert!(refused.stderr.contains("config.conf:10: clusterCIDR"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
}

/// More Services than an answer of the server has.
#[test]
fn the_services_of_a_cluster_with_external_ips_are_listed() {
    let cluster = Cluster::new();
    let check = |more: &[&str]| {
        let arguments = [&["config", "check", "--cluster"], more].concat();
        cluster.net.node().output(deltaproxy_binary(), &arguments)
    };
    let kubeconfig = ["--kubeconfig", cluster.kubeconfig()];
    assert_eq!(check(&kubeconfig).ok(), "no Service has externalIPs\n");
    cluster.api.push_all((0..1_200_u16).map(|i| {
        let [high, low] = i.to_be_bytes();
        let mut service =
            object::service(&format!("default/s{i:04}"), &format!("10.97.{high}.{low}"), 80);
        if i % 599 == 1 {
            service["spec"]["externalIPs"] = ["198.51.100.7"].into();
        }
        service
    }));
    let listed = check(&kubeconfig).ok();
    let names: Vec<_> = listed.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(names, ["s0001", "s0600", "s1199"].map(|it| format!("Service default/{it}")));

    // With the kubeconfig of the file, and beside what the file says.
    let file = cluster.file("config.conf");
    std::fs::write(&file, KUBEADM.replace("KUBECONFIG", cluster.kubeconfig())).unwrap();
    let both = check(&[file.to_str().unwrap()]).ok();
    assert!(both.starts_with("# mode iptables is not supported"), "{both}");
    assert_eq!(both.matches("\n# Service default/s").count(), 3, "{both}");
    assert!(both.contains("\nclusterCIDR: 10.244.0.0/16"), "{both}");

    cluster.api.forbid("list", "services");
    let refused = check(&kubeconfig);
    assert_eq!((refused.code(), &*refused.stdout), (Some(1), ""));
    assert!(refused.stderr.contains("GET /api/v1/services"), "{}", refused.stderr);
    let no_server = check(&[]);
    assert_eq!(no_server.code(), Some(1), "{}", no_server.stderr);
}
