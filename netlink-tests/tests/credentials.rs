//! The daemon with an API server whose certificates or tokens are replaced while it runs.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use netlink_tests::apiserver::object::{node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Authority, Credentials};
use netlink_tests::http::{body, get};
use netlink_tests::reader::Family;
use netlink_tests::{Host, Net, Process, deltaproxy_binary, eventually};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

const RESOURCES: [&str; 4] =
    ["services", "endpointslices.discovery.k8s.io", "nodes", "servicecidrs.networking.k8s.io"];

/// The user of a kubeconfig with a client certificate.
const CERTIFICATE: &str = "{client-certificate: data/client.crt, client-key: data/client.key}";

/// The user of a kubeconfig with a token.
const TOKEN: &str = "{tokenFile: data/token}";

/// A daemon on a node with an API server.
struct Cluster {
    net: Net,
    api: ApiServer,
    credentials: Credentials,
    daemon: Process,
}

impl Cluster {
    /// Starts a daemon with these files, beside a server whose certificate is of `authority`.
    fn start(
        authority: &Authority,
        clients: Option<&Authority>,
        user: &str,
        files: &[(&str, &str)],
    ) -> Self {
        let net = Net::new();
        let api = net.node().run(ApiServer::start);
        api.use_tls(authority, clients);
        api.push(node("node1", "192.168.50.2"));
        api.push(service_cidr("kubernetes", "10.96.0.0/16"));
        let mut credentials =
            Credentials::new(api.address(), user, &[("ca.crt", &authority.pem())]);
        credentials.replace(files);
        let daemon = daemon(net.node(), &credentials);
        let mut cluster = Self { net, api, credentials, daemon };
        cluster.expect_followed("first");
        cluster
    }

    /// Adds a service and waits until the kernel has it, and until all watches are connected.
    #[track_caller]
    fn expect_followed(&mut self, name: &str) {
        self.api.push(service(&format!("default/{name}"), "10.96.0.10", 80));
        let tables = || format!("{:?}", self.net.node().read_table(Family::Ip));
        eventually(name, SOON, || tables().contains(&format!("default/{name}")).then_some(()));
        self.api.delete(netlink_tests::apiserver::Kind::Service, &format!("default/{name}"));
        for resource in RESOURCES {
            self.wait_for_metric("watch_connected", &format!("{resource:?}}} 1"));
        }
    }

    /// Waits until no watch is connected, for this reason.
    #[track_caller]
    fn expect_lost(&mut self, reason: &str, words: &str) {
        for resource in RESOURCES {
            self.wait_for_metric("watch_connected", &format!("{resource:?}}} 0"));
            let failures = format!("{resource:?},reason={reason:?}}}");
            self.wait_for_metric("watch_failures_total", &failures);
        }
        self.daemon.wait_for_line(words, SOON);
    }

    #[track_caller]
    fn wait_for_metric(&self, name: &str, rest: &str) {
        let line = format!("deltaproxy_{name}{{resource={rest}");
        let metrics = || body(self.net.node(), 10249, "/metrics");
        eventually(&line, SOON, || metrics().contains(&line).then_some(()));
    }

    /// Replaces files, and waits until they are in use.
    #[track_caller]
    fn replace(&mut self, files: &[(&str, &str)]) {
        self.credentials.replace(files);
        self.daemon.wait_for_line("credentials for the API server were loaded again", SOON);
    }
}

fn daemon(host: &Host, credentials: &Credentials) -> Process {
    let kubeconfig = format!("--kubeconfig={}", credentials.kubeconfig().display());
    let arguments = ["run", &kubeconfig, "--hostname-override=node1", "--healthz-bind-address="];
    host.spawn(deltaproxy_binary(), &arguments)
}

#[test]
fn a_replaced_certificate_authority_is_used_and_the_metrics_say_why_nothing_is_followed() {
    let (old, new) = (Authority::new(), Authority::new());
    let mut cluster = Cluster::start(&old, None, TOKEN, &[("token", "t")]);
    cluster.api.use_tls(&new, None);
    cluster.expect_lost("tls", "no TLS connection");
    cluster.replace(&[("ca.crt", &new.pem())]);
    cluster.daemon.wait_for_line(" again after ", SOON);
    cluster.expect_followed("second");
    // The same authority signs another certificate.
    cluster.api.use_tls(&new, None);
    cluster.expect_followed("third");
}

#[test]
fn a_replaced_client_certificate_is_used() {
    let (server, old, new) = (Authority::new(), Authority::new(), Authority::new());
    let identity = old.client();
    let files = [("client.crt", &*identity.certificate), ("client.key", &*identity.key)];
    let mut cluster = Cluster::start(&server, Some(&old), CERTIFICATE, &files);
    cluster.api.use_tls(&server, Some(&new));
    cluster.expect_lost("tls", "no TLS connection");
    let identity = new.client();
    cluster.replace(&[("client.crt", &identity.certificate), ("client.key", &identity.key)]);
    cluster.expect_followed("second");
}

#[test]
fn a_replaced_token_is_used() {
    let server = Authority::new();
    let mut cluster = Cluster::start(&server, None, TOKEN, &[("token", "old")]);
    cluster.api.demand_token("new");
    cluster.expect_lost("unauthorized", "(401)");
    cluster.replace(&[("token", "new")]);
    cluster.expect_followed("second");
}

#[test]
fn a_credential_plugin_is_run_again_after_repeated_rejections() {
    let server = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let write = |token: &str| {
        let status = format!("{{\"token\": {token:?}}}");
        let text = format!(
            "{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \
              \"kind\": \"ExecCredential\", \"status\": {status}}}"
        );
        std::fs::write(&output, text).unwrap();
    };
    write("old");
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: cat, args: [{output:?}], \
          interactiveMode: Never}}}}"
    );
    let mut cluster = Cluster::start(&server, None, &user, &[]);
    cluster.api.demand_token("new");
    cluster.expect_lost("unauthorized", "(401)");
    write("new");
    cluster.daemon.wait_for_line("credentials for the API server were loaded again", SOON * 2);
    cluster.expect_followed("second");
}

/// The daemon has several clients, and watches four resources.
#[test]
fn a_credential_plugin_runs_once_at_a_start() {
    let server = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let output = "{apiVersion: client.authentication.k8s.io/v1, kind: ExecCredential, \
                  status: {token: good}}";
    let script = format!("echo run >> {}; echo '{output}'", runs.display());
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, \
          args: [-c, {script:?}], interactiveMode: Never}}}}"
    );
    let mut cluster = Cluster::start(&server, None, &user, &[]);
    cluster.api.demand_token("good");
    cluster.expect_followed("second");
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\n");
}

#[test]
fn invalid_credential_files_are_reported_and_open_watches_stay() {
    let (server, clients) = (Authority::new(), Authority::new());
    let identity = clients.client();
    let files = [("client.crt", &*identity.certificate), ("client.key", &*identity.key)];
    let mut cluster = Cluster::start(&server, Some(&clients), CERTIFICATE, &files);
    let other = clients.client();
    // A key of another certificate, and a certificate file that is still empty.
    for (name, text) in [("client.key", other.key.as_str()), ("client.crt", "")] {
        cluster.credentials.replace(&[(name, text)]);
        cluster.daemon.wait_for_line("cannot be used", SOON);
        cluster.expect_followed("meanwhile");
    }
    cluster.replace(&[("client.crt", &other.certificate)]);
    cluster.api.use_tls(&server, Some(&clients));
    cluster.expect_followed("second");
}

/// Nobody writes into the pipe.
#[test]
fn a_kubeconfig_that_is_a_pipe_delays_neither_liveness_nor_the_end() {
    let net = Net::new();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("kubeconfig");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let kubeconfig = format!("--kubeconfig={}", pipe.display());
    let arguments = ["run", &kubeconfig, "--hostname-override=node1"];
    let daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    let alive = || get(net.node(), 10256, "/livez").map(|answer| answer.status);
    eventually("liveness", SOON, || (alive() == Some(200)).then_some(()));
    for _ in 0..20 {
        assert_eq!(alive(), Some(200));
    }
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
}
