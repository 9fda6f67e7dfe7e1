//! The external IPs and load balancer addresses that services may have: packets, and a reload.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::time::Duration;

use Expect::Silent;
use engine::model::ExternalAddresses;
use engine::routing::Routing;
use netlink_tests::scenario::{
    EXTERNAL, Expect, Lab, Manifests, NODE_PORT, Node, Service, ServiceCidr, Slice, VIP, WEB,
    keeps_source, masquerades, routing, slice, web_everywhere,
};
use netlink_tests::{Answer, Host, Net, deltaproxy_binary, eventually};
use serde_json::Value;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// A lab with these settings.
fn lab(external_addresses: ExternalAddresses) -> Lab {
    Lab::with(Routing { external_addresses, ..routing() })
}

/// Settings that allow these ranges.
fn allowed(ranges: &[&str]) -> ExternalAddresses {
    let allowed = ranges.iter().map(|range| range.parse().unwrap()).collect();
    ExternalAddresses { allowed, ..ExternalAddresses::default() }
}

#[test]
fn an_address_outside_of_the_allowed_ranges_is_not_served_and_the_others_are() {
    let mut lab = lab(allowed(&["198.51.100.1/32", "fd00:198:51:100::1/128"]));
    let sent = lab.apply(&[&web_everywhere(), &slice("a c")]);
    assert_eq!(sent.problems.len(), 2, "one for each family: {:?}", sent.problems);
    for problem in &sent.problems {
        assert!(problem.contains("status.loadBalancer.ingress: "), "{problem}");
    }
    lab.check(&[
        ("outside", EXTERNAL, masquerades("a c")),
        ("pod", EXTERNAL, masquerades("a c")),
        ("pod", VIP, Silent),
        ("outside", VIP, Silent),
        ("pod", WEB, keeps_source("a c")),
        ("outside", NODE_PORT, masquerades("a c")),
    ]);
}

/// Without the setting, anyone who can write a Service takes the packets to a pod.
#[test]
fn a_pod_keeps_its_packets_from_a_service_that_claims_its_address() {
    let claim = Service::new("claim", "10.96.0.11").port(8080).external_ip("10.244.1.6");
    let claimed = Slice::new("claim").target(8080, 8080).endpoints("a");
    let pod = "10.244.1.6:8080";
    let mut open = lab(ExternalAddresses::default());
    open.apply(&[&claim, &claimed]);
    open.check(&[("outside", pod, masquerades("a"))]);
    let refuse_internal =
        ExternalAddresses { refuse_internal: true, ..ExternalAddresses::default() };
    let mut guarded = lab(refuse_internal);
    let sent = guarded.apply(&[&claim, &claimed]);
    assert!(sent.problems[0].contains("in a range of pods"), "{:?}", sent.problems);
    guarded.check(&[
        ("outside", pod, keeps_source("b")),
        ("pod", "10.96.0.11:8080", keeps_source("a")),
    ]);
}

/// The objects of the problems of the running daemon.
fn problems(node: &Host) -> Vec<String> {
    let finished = node.output(deltaproxy_binary(), &["problems", "--output=json"]);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap_or_default();
    let problems = document["problems"].as_array().into_iter().flatten();
    problems.map(|it| format!("{}: {}", it["object"], it["field"])).collect()
}

#[test]
fn another_list_of_ranges_in_the_file_is_used_without_a_failed_connection() {
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let _server = pod.serve_tcp(8080, "a");
    let outside = net.outside("outside", "192.0.2.10");
    net.route_everything_to(&outside);
    let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
    let manifests = Manifests::new(&[
        ("cidr", &cidr),
        ("node", &Node::new()),
        ("web", &web_everywhere()),
        ("slice", &slice("a")),
    ]);
    let config = manifests.path().join("configuration");
    let write = |ranges: &str| {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        let text = format!(
            "{head}mode: nftables\nclusterCIDR: 10.244.0.0/16\n\
             deltaproxy: {{externalAddresses: {{allowed: [{ranges}]}}}}\n"
        );
        fs::write(&config, text).unwrap();
    };
    write("");
    let folder = manifests.path().to_str().unwrap();
    let arguments = [
        "run",
        "--manifests",
        folder,
        "--hostname-override=node-a",
        "--config",
        config.to_str().unwrap(),
    ];
    let mut daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    let serves = |to: &str| matches!(outside.hasty().connect_tcp(to), Answer::From { .. });
    let wait_for = |vip: bool| {
        eventually(&format!("{VIP} served: {vip}"), SOON, || {
            for to in [EXTERNAL, NODE_PORT] {
                assert_eq!(outside.connect_tcp(to).server(), "a");
            }
            (serves(VIP) == vip).then_some(())
        });
    };
    eventually("a first sync", SOON, || serves(EXTERNAL).then_some(()));
    wait_for(true);
    assert_eq!(problems(net.node()), [""; 0]);

    write("198.51.100.1/32, \"fd00:198:51:100::1/128\"");
    let restarting = daemon.wait_for_line("restarting", SOON);
    assert!(restarting.contains("deltaproxy.externalAddresses.allowed"), "{restarting}");
    wait_for(false);
    let of_web = "\"Service default/web\": \"status.loadBalancer.ingress\"";
    eventually("two problems", SOON, || (problems(net.node()) == [of_web, of_web]).then_some(()));

    write("");
    wait_for(true);
    eventually("no problem", SOON, || problems(net.node()).is_empty().then_some(()));
}
