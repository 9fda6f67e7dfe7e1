//! The table of kube-proxy 1.36, as scripts for `nft`.
//!
//! Every service port has a chain, whose rule has an anonymous map of all its endpoints; a verdict
//! map leads to the chains. The first packet of a flow passes the same chains, hooks, priorities
//! and lookups as with kube-proxy. The table is for the objects of [`Cluster`] and the default
//! configuration: no session affinity, no load balancer, `--nodeport-addresses primary`, no
//! detection of local traffic.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;

use super::cluster::{Cluster, State};
use super::watch_frame::external_ip;

/// Chains, sets and rules that do not depend on services.
pub(super) const FIXED: &str = "
table ip kube-proxy {
    comment \"rules for kube-proxy\"
    set cluster-ips { type ipv4_addr; comment \"Active ClusterIPs\"; }
    set nodeport-ips { type ipv4_addr; elements = { 192.0.2.1 }; }
    set hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service; }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    chain reject-chain { reject; }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
        ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }
    chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain nodeport-endpoints-check {
        ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
    chain masquerading {
        mark and 0x004000 != 0 mark set mark xor 0x004000 masquerade fully-random
        ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections \\
            masquerade fully-random
    }
    chain cluster-ips-check { ip daddr @cluster-ips reject; }
    chain filter-prerouting-pre-dnat {
        type filter hook prerouting priority -110; ct state new jump firewall-check;
    }
    chain filter-output-pre-dnat {
        type filter hook output priority -110; ct state new jump firewall-check;
    }
    chain filter-input {
        type filter hook input priority 0
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-forward {
        type filter hook forward priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-output {
        type filter hook output priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
";

/// Sets the mark for masquerade.
const MASQUERADE: &str = "mark set mark or 0x004000";

/// Returns the script for some services in their initial state.
pub(super) fn whole(cluster: &Cluster, services: Range<u32>) -> String {
    let script = |service| change(service, None, Some(&original(cluster, service)));
    services.map(script).collect()
}

/// Returns the initial state of a service.
pub(super) fn original(cluster: &Cluster, service: u32) -> State {
    State { endpoints: cluster.original(service).collect(), ..State::default() }
}

/// Returns the script of a sync for one service: its chains are replaced, but only elements that
/// differ are changed.
///
/// Unneeded chains are deleted at once. kube-proxy empties them, and deletes them with a later
/// change.
pub(super) fn change(service: u32, before: Option<&State>, after: Option<&State>) -> String {
    let mut script = String::new();
    let parts = |state: Option<&State>| state.map_or_else(Parts::default, |s| parts(service, s));
    let (before, after) = (parts(before), parts(after));
    // Writing to a String cannot fail, here and below.
    for element in before.elements.iter().filter(|element| !after.elements.contains(element)) {
        let Element { set, key, .. } = element;
        let _ = writeln!(script, "delete element ip kube-proxy {set} {{ {key} }}");
    }
    for (name, rules) in &after.chains {
        let _ =
            writeln!(script, "add chain ip kube-proxy {name}\nflush chain ip kube-proxy {name}");
        for rule in rules {
            let _ = writeln!(script, "add rule ip kube-proxy {name} {rule}");
        }
    }
    for element in after.elements.iter().filter(|element| !before.elements.contains(element)) {
        let Element { set, key, data } = element;
        let _ = writeln!(script, "add element ip kube-proxy {set} {{ {key}{data} }}");
    }
    // A chain is deleted after the chains that jump to it.
    for (name, _) in before.chains.iter().rev() {
        if after.chains.iter().all(|(kept, _)| kept != name) {
            let _ = writeln!(script, "delete chain ip kube-proxy {name}");
        }
    }
    script
}

/// Chains and elements of a service.
#[derive(Default)]
struct Parts {
    /// Names and rules; each after the chains that it jumps to.
    chains: Vec<(String, Vec<String>)>,
    elements: Vec<Element>,
}

/// An element of a set or map.
#[derive(PartialEq, Eq)]
struct Element {
    set: &'static str,
    key: String,
    /// Data with a leading colon; empty for a set.
    data: String,
}

impl Parts {
    fn element(&mut self, set: &'static str, key: &impl ToString, data: &str) {
        let data = if data.is_empty() { String::new() } else { format!(" : {data}") };
        self.elements.push(Element { set, key: key.to_string(), data });
    }
}

fn parts(service: u32, state: &State) -> Parts {
    let mut parts = Parts::default();
    let protocol = protocol(service);
    let name = |prefix| chain_name(prefix, service);
    let frontend = |address: Ipv4Addr| format!("{address} . {protocol} . 80");
    let all = &state.endpoints;
    let local: Vec<u32> = all.iter().copied().filter(|n| Cluster::is_on_this_node(*n)).collect();

    if !all.is_empty() && (!state.is_local || state.is_external) {
        parts.chains.push((name("service"), vec![pick(protocol, all)]));
    }
    if state.is_local && !local.is_empty() {
        parts.chains.push((name("local"), vec![pick(protocol, &local)]));
    }
    parts.element("cluster-ips", &Cluster::cluster_ip(service), "");
    let cluster_ip = frontend(Cluster::cluster_ip(service));
    match (all.is_empty(), state.is_local, local.is_empty()) {
        (true, _, _) => parts.element("no-endpoint-services", &cluster_ip, "goto reject-chain"),
        (false, true, true) => parts.element("no-endpoint-services", &cluster_ip, "drop"),
        (false, true, false) => parts.element("service-ips", &cluster_ip, &goto(&name("local"))),
        (false, false, _) => parts.element("service-ips", &cluster_ip, &goto(&name("service"))),
    }
    if state.is_external {
        let external_ip = frontend(external_ip(service));
        if all.is_empty() {
            parts.element("no-endpoint-services", &external_ip, "goto reject-chain");
        } else {
            let rules = vec![MASQUERADE.to_owned(), goto(&name("service"))];
            parts.chains.push((name("external"), rules));
            parts.element("service-ips", &external_ip, &goto(&name("external")));
        }
    }
    for endpoint in local {
        let address = Cluster::endpoint_address(endpoint);
        let hairpin = format!("{address} . {address} . {protocol} . 8080");
        parts.element("hairpin-connections", &hairpin, "");
    }
    parts
}

/// Returns the rule that picks one of the endpoints.
fn pick(protocol: &str, endpoints: &[u32]) -> String {
    let count = endpoints.len();
    let addresses = endpoints.iter().map(|endpoint| Cluster::endpoint_address(*endpoint));
    let slots = addresses.enumerate().map(|(slot, address)| format!("{slot} : {address} . 8080"));
    let slots = slots.collect::<Vec<_>>().join(", ");
    format!(
        "meta l4proto {protocol} dnat ip addr . port to numgen random mod {count} map {{ {slots} }}"
    )
}

fn goto(chain: &str) -> String {
    format!("goto {chain}")
}

/// Returns kube-proxy's name of a chain: a hash, and the service port.
fn chain_name(prefix: &str, service: u32) -> String {
    let (namespace, protocol) = (service % 100, protocol(service));
    format!("{prefix}-{service:08X}-bench-{namespace}/service-{service}/{protocol}/http")
}

fn protocol(service: u32) -> &'static str {
    if Cluster::takes_traffic(service) { "udp" } else { "tcp" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(endpoints: &[u32]) -> State {
        State { endpoints: endpoints.to_vec(), ..State::default() }
    }

    #[test]
    fn a_service_has_a_chain_with_all_endpoints_and_an_element_that_leads_to_it() {
        let script = change(9, None, Some(&state(&[1, 2])));
        let name = "service-00000009-bench-9/service-9/udp/http";
        let expected = format!(
            "\
add chain ip kube-proxy {name}
flush chain ip kube-proxy {name}
add rule ip kube-proxy {name} meta l4proto udp dnat ip addr . port to numgen random mod 2 map \
             {{ 0 : 11.0.0.2 . 8080, 1 : 11.0.0.3 . 8080 }}
add element ip kube-proxy cluster-ips {{ 10.96.0.10 }}
add element ip kube-proxy service-ips {{ 10.96.0.10 . udp . 80 : goto {name} }}
"
        );
        assert_eq!(script, expected);
    }

    #[test]
    fn a_change_of_an_endpoint_writes_the_rule_anew_and_no_element() {
        let script = change(9, Some(&state(&[1, 2])), Some(&state(&[1, 3])));
        let words: Vec<&str> = script.lines().map(|line| &line[..9]).collect();
        assert_eq!(words, ["add chain", "flush cha", "add rule "], "{script}");
    }

    #[test]
    fn what_a_service_had_goes_with_it() {
        let external = State { is_external: true, ..state(&[0, 1]) };
        let script = change(8, Some(&external), None);
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(lines.len(), 6, "{script}");
        assert!(lines.iter().all(|line| line.starts_with("delete ")), "{script}");
        assert!(lines[3].contains("hairpin-connections { 11.0.0.1 . 11.0.0.1 . tcp . 8080 }"));
        // The external chain jumps to the service chain.
        assert!(lines[4].contains(" external-") && lines[5].contains(" service-"), "{script}");
    }

    #[test]
    fn a_local_policy_without_local_endpoints_drops() {
        let local = State { is_local: true, ..state(&[1]) };
        let script = change(8, Some(&state(&[1])), Some(&local));
        assert!(
            script.contains("no-endpoint-services { 10.96.0.9 . tcp . 80 : drop }"),
            "{script}"
        );
        assert!(script.contains("delete chain ip kube-proxy service-"), "{script}");
    }
}
