//! The UDP flows that a change of endpoints makes stale.

use std::net::IpAddr;

use nft::family::Family;

use crate::diff::ServingChange;
use crate::flow::StaleFlow;
use crate::model::Target;
use crate::ruleset::Frontend;

/// Returns the flows that `change` makes stale: those to endpoints that left, and, once there is a
/// frontend or its first endpoint, those that began before. `node_addresses` are the addresses that
/// serve node ports.
pub(super) fn flows(change: &ServingChange, node_addresses: &[IpAddr]) -> Vec<StaleFlow> {
    let before = change.before.as_deref().unwrap_or_default();
    let after = change.after.as_deref().unwrap_or_default();
    let left = before.iter().filter(|target| after.binary_search(target).is_err());
    let begins =
        before.is_empty() && !after.is_empty() || change.before.is_none() && change.after.is_some();
    // Without an endpoint all flows are stale. The frontend may have had endpoints long before.
    let from_before = if after.is_empty() { StaleFlow::to } else { StaleFlow::untranslated };
    match change.frontend {
        Frontend::Address { address, port, .. } => {
            let frontend = Target { address, port };
            if begins || !before.is_empty() && after.is_empty() {
                return vec![from_before(frontend)];
            }
            left.map(|endpoint| StaleFlow::between(frontend, *endpoint)).collect()
        }
        Frontend::NodePort { family, port, .. } => {
            if begins {
                let own = node_addresses.iter().filter(|ip| Family::of(**ip) == family);
                let own = own.map(|&address| Target { address, port });
                return own.map(from_before).collect();
            }
            left.map(|endpoint| StaleFlow::through_port(port, *endpoint)).collect()
        }
        // All flows are compared instead.
        Frontend::Ranges { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::diff::Targets;
    use crate::model::Protocol;

    const PORT: NonZeroU16 = NonZeroU16::new(53).unwrap();

    fn targets(text: Option<&str>) -> Option<Targets> {
        let target = |last: &str| Target {
            address: format!("10.244.0.{last}").parse().unwrap(),
            port: NonZeroU16::new(5353).unwrap(),
        };
        text.map(|text| text.split_whitespace().map(target).collect())
    }

    fn found(frontend: Frontend, before: Option<&str>, after: Option<&str>) -> Vec<String> {
        let change = ServingChange { frontend, before: targets(before), after: targets(after) };
        let node = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        flows(&change, &node).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn stale_flows_follow_from_who_served_before_and_after() {
        let protocol = Protocol::Udp;
        let vip = Frontend::Address { address: [10, 96, 0, 10].into(), protocol, port: PORT };
        let node = Frontend::NodePort { family: Family::Ip, protocol, port: PORT };
        let to = ["to 10.96.0.10:53"].as_slice();
        let untranslated = ["to 10.96.0.10:53 answered by 10.96.0.10:53"].as_slice();
        let untranslated_on_node = [
            "to 192.0.2.1:53 answered by 192.0.2.1:53",
            "to 192.0.2.2:53 answered by 192.0.2.2:53",
        ]
        .as_slice();
        let to_node = ["to 192.0.2.1:53", "to 192.0.2.2:53"].as_slice();
        let one = ["to 10.96.0.10:53 answered by 10.244.0.1:5353"].as_slice();
        let through_one = ["to port 53 answered by 10.244.0.1:5353"].as_slice();
        let through_both =
            ["to port 53 answered by 10.244.0.1:5353", "to port 53 answered by 10.244.0.2:5353"]
                .as_slice();
        let rows = [
            (None, Some(""), to, to_node),
            (None, Some("1"), untranslated, untranslated_on_node),
            (Some(""), Some("1"), untranslated, untranslated_on_node),
            (Some("1"), Some("1 2"), &[], &[]),
            (Some("1 2"), Some("2"), one, through_one),
            (Some("1"), Some("2"), one, through_one),
            (Some("1 2"), Some(""), to, through_both),
            (Some("1"), None, to, through_one),
            (Some(""), None, &[], &[]),
        ];
        for (before, after, frontend, node_port) in rows {
            assert_eq!(found(vip, before, after), frontend, "{before:?} -> {after:?}");
            assert_eq!(found(node, before, after), node_port, "{before:?} -> {after:?}");
        }
    }
}
