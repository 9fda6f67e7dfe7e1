//! Packets that our rules reject or drop, by reason.
//!
//! Each rule that decides this has a counter. Its chain and its verdict show the reason.

use std::fmt;

use nft::expression::Data;
use nft::{Counter, Expression, ListedRule, Verdict};

use super::base::{CLUSTER_IPS_CHECK, LOCALHOST, NO_ENDPOINT, PRE_DNAT};
use super::range_rules::SOURCES;
use super::reset::ENDED;
use super::source_rules::FIREWALL_SOURCES;
use crate::model::Protocol;

crate::named! {
    /// Why a packet is rejected or dropped.
    #[derive(Hash, PartialOrd, Ord)]
    pub enum Refusal {
        /// The frontend has no usable endpoint; rejected.
        NoEndpoint = "no_endpoint",
        /// The frontend has traffic policy `Local`, and its usable endpoints are on other nodes;
        /// dropped.
        NoLocalEndpoint = "no_local_endpoint",
        /// The source is in none of the frontend's `loadBalancerSourceRanges`; dropped.
        SourceRange = "source_range",
        /// A cluster IP of a service that lacks the port or protocol; rejected.
        UnknownPort = "unknown_port",
        /// An address of a ServiceCIDR that no service has; dropped.
        UnallocatedAddress = "unallocated_address",
        /// A loopback address, from another host; dropped.
        Loopback = "loopback",
        /// A node port of UDP at `[::1]`, where TCP alone is served; rejected.
        LocalhostUdp = "localhost_udp",
        /// The same, of SCTP.
        LocalhostSctp = "localhost_sctp",
        /// The endpoint of the connection is in no EndpointSlice any more; answered with RST.
        EndedEndpoint = "ended_endpoint",
    }
}

impl Refusal {
    /// Returns the reason for which a listed rule of our table rejects or drops packets, and how
    /// many these were since the rule was added. `None` for other rules.
    pub fn counted(rule: &ListedRule) -> Option<(Self, Counter)> {
        let [.., Expression::CounterExpression(counter), Expression::Immediate(end)] =
            rule.expressions.as_slice()
        else {
            return None;
        };
        let Data::Verdict(verdict) = &end.data else { return None };
        let reason = match (&*rule.chain, verdict) {
            (NO_ENDPOINT, Verdict::Goto(_)) => Self::NoEndpoint,
            (NO_ENDPOINT, Verdict::Drop) => Self::NoLocalEndpoint,
            (FIREWALL_SOURCES | SOURCES, Verdict::Drop) => Self::SourceRange,
            (CLUSTER_IPS_CHECK, Verdict::Goto(_)) => Self::UnknownPort,
            (CLUSTER_IPS_CHECK, Verdict::Drop) => Self::UnallocatedAddress,
            (PRE_DNAT, Verdict::Drop) => Self::Loopback,
            (LOCALHOST, Verdict::Goto(_)) if compares(rule, Protocol::Udp) => Self::LocalhostUdp,
            (LOCALHOST, Verdict::Goto(_)) => Self::LocalhostSctp,
            (ENDED, Verdict::Goto(_)) => Self::EndedEndpoint,
            _ => return None,
        };
        Some((reason, Counter { packets: counter.packets, bytes: counter.bytes }))
    }
}

/// Returns whether the rule matches packets of a protocol.
fn compares(rule: &ListedRule, protocol: Protocol) -> bool {
    let number = Data::Value([protocol.number()].into());
    rule.expressions.iter().any(|it| matches!(it, Expression::Cmp(cmp) if cmp.value == number))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nft::Family;

    use super::super::base::Base;
    use super::super::lookups::Lookups;
    use super::super::number::SizeClass;
    use super::super::sets::TableSets;
    use super::super::settings::{Masquerade, NodePorts, OptionalChains, Settings};
    use super::*;
    use crate::counters::Counters;

    fn every_rule() -> Settings {
        Settings {
            optional_chains: OptionalChains {
                source_ranges: [(Protocol::Tcp, 8), (Protocol::Tcp, 24)].into_iter().collect(),
                port_ranges: [(Protocol::Udp, 8), (Protocol::Tcp, 16)].into_iter().collect(),
                range_sets: true,
                cluster_ip_endpoints: true,
                ended_endpoints: true,
                size_classes: SizeClass::all().collect(),
            },
            ends_connections: true,
            counts_connections: false,
            masquerade: Masquerade { mark: 0x4000, all: false },
            local_detector: None,
            node_ports: NodePorts { everywhere: true, localhost: true, chosen_node: true },
            hash_seed: 1,
            lookups: Lookups::Once,
            offload: None,
            service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
            exempt: vec!["10.96.0.1".parse().unwrap()],
            timeouts: [].into(),
        }
    }

    #[test]
    fn each_rule_with_a_counter_has_a_reason_and_each_reason_a_rule() {
        let table = |family| Base::new(&TableSets::new(family, Counters::Off), &every_rule());
        let chains = Family::ALL.map(|family| table(family).chains).concat();
        let mut reasons = BTreeSet::new();
        for rule in chains.iter().flat_map(|chain| &*chain.rules) {
            let mut listed = ListedRule::of(rule, "kube-proxy", 1);
            let mut has_counter = false;
            for expression in &mut listed.expressions {
                if let Expression::CounterExpression(counter) = expression {
                    (counter.packets, counter.bytes, has_counter) = (3, 180, true);
                }
            }
            let counted = Refusal::counted(&listed);
            let expected = has_counter.then_some(Counter { packets: 3, bytes: 180 });
            assert_eq!(counted.map(|(_, counter)| counter), expected, "{}", rule.text(Family::Ip));
            reasons.extend(counted.map(|(reason, _)| reason));
        }
        assert!(reasons.into_iter().eq(Refusal::ALL));
    }
}
