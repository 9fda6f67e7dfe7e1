//! The node of the day, with all that is around it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Authority, Credentials};
use netlink_tests::scenario::kube_proxy::MODE_IPTABLES;
use netlink_tests::{Finished, Host, Net, Process, Server, deltaproxy_binary};
use serde_json::Value;

use crate::deployed::Deployed;
use crate::signs::{Observer, Signs};
use crate::traffic::{Outcomes, Traffic};

/// How long a condition may take, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The name of the node's Node object.
pub(crate) const NODE_NAME: &str = "node1";

/// A node, its cluster, and its observer.
pub(crate) struct Day {
    pub(crate) net: Net,
    pub(crate) api: ApiServer,
    pub(crate) credentials: Credentials,
    pub(crate) deployed: Deployed,
    pub(crate) traffic: Traffic,
    pub(crate) observer: Observer,
    /// While there is one.
    pub(crate) daemon: Option<Process>,
    /// What kube-proxy left, before the switch.
    pub(crate) before: Before,
    /// The present step, and those before.
    steps: Vec<(&'static str, u64)>,
    _pods: [(Host, Server); 2],
}

/// The state of the node before the switch.
pub(crate) struct Before {
    pub(crate) ruleset: String,
    pub(crate) sysctls: Vec<String>,
}

impl Day {
    /// A node of kube-proxy in mode iptables, whose rules lead to pod `b`. The objects of the API
    /// server lead to pod `a`.
    pub(crate) fn before_the_switch() -> Self {
        let net = Net::new();
        let pods = [("a", "10.244.1.5"), ("b", "10.244.1.6")].map(|(name, ip)| {
            let pod = net.pod(name, ip);
            let server = pod.serve_tcp(8080, name);
            (pod, server)
        });
        let clients = [net.outside("outside", "192.0.2.10"), net.pod("client", "10.244.1.9")];
        let host = net.node();
        let api = host.run(ApiServer::start);
        let authority = Authority::new();
        api.use_tls(&authority, None);
        api.demand_token("first");
        api.push_all([
            node(NODE_NAME, "192.168.50.2"),
            service_cidr("kubernetes", "10.96.0.0/16"),
            web(),
            web_endpoints(&["10.244.1.5"]),
        ]);
        let files = [("ca.crt", &*authority.pem()), ("token", "first")];
        let credentials = Credentials::new(api.address(), "{tokenFile: data/token}", &files);
        host.nft_script(MODE_IPTABLES);
        let before = Before { ruleset: host.nft("list ruleset"), sysctls: sysctls(host) };
        let traffic = Traffic::start(&clients.each_ref());
        let observer = Observer::new(host);
        Self {
            api,
            deployed: Deployed::new(&credentials.kubeconfig()),
            credentials,
            traffic,
            observer,
            daemon: None,
            before,
            steps: Vec::new(),
            _pods: pods,
            net,
        }
    }

    pub(crate) fn node(&self) -> &Host {
        self.net.node()
    }

    /// Begins a step.
    pub(crate) fn begin(&mut self, step: &'static str) {
        let now = now_ms();
        if let Some((before, began)) = self.steps.last() {
            eprintln!("{before}: {} ms", now - began);
        }
        self.steps.push((step, now));
        self.observer.begin();
    }

    /// Waits until the signs are these.
    #[track_caller]
    pub(crate) fn expect(&mut self, signs: &Signs<'_>) {
        let step = self.steps.last().unwrap().0;
        self.observer.expect(step, signs);
    }

    /// Ends the step, in which every connection was answered.
    #[track_caller]
    pub(crate) fn expect_no_failure(&mut self) -> Outcomes {
        self.traffic.ask_open();
        let outcomes = self.traffic.take();
        let step = self.steps.last().unwrap().0;
        assert!(outcomes.failed.is_empty(), "{step}: {:?}", outcomes.failed);
        outcomes
    }

    /// Starts the daemon as the pod does, under a node name.
    pub(crate) fn start(&mut self, node_name: &str) -> &mut Process {
        let arguments = self.deployed.arguments(node_name);
        self.daemon.insert(self.net.node().spawn(deltaproxy_binary(), &arguments))
    }

    /// Ends the daemon as the kubelet does.
    #[track_caller]
    pub(crate) fn terminate(&mut self) -> Finished {
        let finished = self.daemon.take().unwrap().terminate(SOON);
        assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
        finished
    }

    pub(crate) fn daemon(&mut self) -> &mut Process {
        self.daemon.as_mut().unwrap()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        self.node().output(deltaproxy_binary(), arguments)
    }

    /// `verify`, with the credentials of the daemon.
    pub(crate) fn verify(&self) -> Finished {
        let kubeconfig = format!("--kubeconfig={}", self.credentials.kubeconfig().display());
        self.run(&["verify", &kubeconfig])
    }
}

/// The service `web`, with a node port.
fn web() -> Value {
    let mut web = service("default/web", "10.96.0.10", 80);
    web["spec"]["type"] = "NodePort".into();
    web["spec"]["ports"][0]["nodePort"] = 30080.into();
    web
}

/// The endpoints of `web`.
pub(crate) fn web_endpoints(addresses: &[&str]) -> Value {
    endpoint_slice("default/web-1", "web", addresses, 8080)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_millis().try_into().unwrap()
}

/// The sysctls that a kube-proxy may set.
pub(crate) fn sysctls(node: &Host) -> Vec<String> {
    let names = [
        "netfilter/nf_conntrack_tcp_timeout_established",
        "netfilter/nf_conntrack_tcp_timeout_close_wait",
        "netfilter/nf_conntrack_tcp_be_liberal",
        "netfilter/nf_conntrack_udp_timeout",
        "netfilter/nf_conntrack_udp_timeout_stream",
        "netfilter/nf_conntrack_acct",
        "ipv4/conf/all/route_localnet",
    ];
    let read = |name: &str| {
        let value = node.run(|| std::fs::read_to_string(format!("/proc/sys/net/{name}")));
        format!("{name} = {}", value.unwrap().trim())
    };
    names.into_iter().map(read).collect()
}
