//! Objects of which the tables have something in every chain, set and map.

use serde_json::json;

use super::expect::Protocol;
use super::node::Node;
use super::object::{Object, Service, ServiceCidr, Slice};

/// Objects that use every chain and set.
#[must_use]
pub fn objects_for_every_chain() -> Vec<Box<dyn Object>> {
    let web = Service::new("web", "10.96.0.10").node_port(80, 30080).external_ip("198.51.100.1");
    let local = Service::new("local", "10.96.0.11")
        .node_port(80, 30081)
        .load_balancer_ip("198.51.100.2")
        .external_local();
    let remote = Service::new("remote", "10.96.0.12").node_port(80, 30082).external_local();
    let many: Vec<_> = (1..=40).map(|i| format!("10.244.3.{i}")).collect();
    let admin = Service::new("many", "10.96.0.14");
    vec![
        Box::new(Node::new().zone("z1")),
        Box::new(ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"])),
        Box::new(ServiceCidr::new("second", &["10.96.0.0/12"])),
        Box::new(web),
        Box::new(Slice::new("web").endpoints("a b c")),
        Box::new(local.internal_local()),
        Box::new(Slice::new("local").endpoints("a b c d")),
        Box::new(remote.internal_local()),
        Box::new(Slice::new("remote").endpoints("c")),
        Box::new(Service::new("empty", "10.96.0.13").node_port(80, 30083)),
        Box::new(admin.named_port("p80-tcp", Protocol::Tcp, 80, 0)),
        Box::new(Slice::new("many").endpoints(&many.join(" "))),
        Box::new(guarded()),
        Box::new(Slice::new("guarded").endpoints("a b c")),
        Box::new(hashed("hashed", "10.96.0.17", "mh")),
        Box::new(Slice::new("hashed").endpoints("a b c")),
        Box::new(hashed("by-port", "10.96.0.18", "sh-port")),
        Box::new(Slice::new("by-port").endpoints("a b c")),
        Box::new(sticky("sticky", 10_800)),
        Box::new(Slice::new("sticky").endpoints(&many.join(" "))),
        Box::new(with_ranges()),
        Box::new(Slice::new("ranges").endpoints("a b c")),
        Box::new(Service::new("empty-ranges", "10.96.0.20").annotation(PORT_RANGES, "tcp/*")),
    ]
}

const PORT_RANGES: &str = "deltaproxy.io/port-ranges";

fn with_ranges() -> Service {
    let ranges = ["10.244.0.0/16", "fd00:10:244::/48"];
    Service::new("ranges", "10.96.0.19")
        .load_balancer_ip("198.51.100.4")
        .external_local()
        .spec("loadBalancerSourceRanges", json!(ranges))
        .annotation(PORT_RANGES, "udp/10000-20000,sctp/9")
}

fn hashed(name: &str, cluster_ip: &str, scheduler: &str) -> Service {
    let service = Service::new(name, cluster_ip).named_port("p80-tcp", Protocol::Tcp, 80, 0);
    service.annotation("deltaproxy.io/scheduler", scheduler)
}

fn guarded() -> Service {
    let ranges = ["10.244.0.0/16", "192.0.2.0/24", "fd00:10:244::/48", "fd00:192:0:2::/64"];
    Service::new("guarded", "10.96.0.16")
        .node_port(80, 30086)
        .load_balancer_ip("198.51.100.3")
        .spec("loadBalancerSourceRanges", json!(ranges))
}

fn sticky(name: &str, seconds: u32) -> Service {
    let service = Service::new(name, "10.96.0.15").node_port(80, 30085).external_local();
    let service = service.spec("sessionAffinity", json!("ClientIP"));
    let config = json!({"clientIP": {"timeoutSeconds": seconds}});
    service.internal_local().spec("sessionAffinityConfig", config)
}
