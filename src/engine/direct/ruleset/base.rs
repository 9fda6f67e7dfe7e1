//! The chains and sets of the table, without elements of services and nodes, and the rules of a
//! daemon that ended, which stop at a time.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nft::{BaseChain, Chain, Family, Operation, Rule, Verdict};

use super::chain::{chain, named};
use super::choose::{CHOOSE, choose, choose_of_error, chosen};
use super::errors;
use super::layout::{DirectSettings, table};
use super::packet::{
    begins_tcp, is_for_others, is_from_node, is_later_fragment, is_of, is_to, packet, service,
};
use super::send::{goto_send, here, send};
use super::sets::DirectSet;
use crate::ruleset::ChainSpec;
use crate::ruleset::base::Base;
use crate::ruleset::number::CHOSEN_NODE;
use crate::ruleset::phrase::{
    self, Phrase, Phrases, clear_mark, clear_priority, goto, jump, set_priority, verdict,
};

/// The base chain.
pub(super) const INGRESS: &str = "ingress";

/// `NF_IP_PRI_FILTER`, the priority of base chains.
const PRIORITY: i32 = 0;

/// The base chain of what arrives through the tunnel.
const INGRESS_OF_TUNNEL: &str = "ingress-of-tunnel";

/// The base chain of what leaves through the tunnel.
const EGRESS_OF_TUNNEL: &str = "egress-of-tunnel";

/// The chain for packets to addresses of services.
const DIRECT: &str = "direct";

/// The chain for packets of other nodes, if these hand packets to node ports on.
const FROM_NODE: &str = "from-node";

/// Returns the table's sets and chains, each chain after those that it refers to.
pub fn base(settings: &DirectSettings) -> Base {
    let sets = DirectSet::ALL.map(|set| Arc::new(set.set(settings.connections)));
    Base { chains: chains(settings), sets: sets.to_vec(), flowtable: None }
}

fn chains(settings: &DirectSettings) -> Vec<ChainSpec> {
    let mut chains = vec![here(settings)];
    chains.extend(Family::ALL.map(send));
    chains.extend(Family::ALL.into_iter().flat_map(|family| chosen(family, settings)));
    chains.extend(Family::ALL.map(|family| choose(family, settings)));
    for family in Family::ALL {
        chains.extend([choose_of_error(family, settings), errors::error(family)]);
    }
    if settings.node_ports {
        chains.extend(Family::ALL.map(from_node));
    }
    chains.extend(Family::ALL.map(|family| direct(family, settings)));
    chains.extend(ingress_of_tunnel(settings));
    chains.extend(egress_of_tunnel(settings));
    chains.extend(ingress(settings));
    chains
}

/// Packets that another node has handed on are served here, also if the tables of two nodes
/// contradict each other. So a packet is handed on at most once.
fn direct(family: Family, settings: &DirectSettings) -> ChainSpec {
    let packet = packet(family, settings.hash_seed);
    let of_first = Phrases(family).set_mark(&packet, DirectSet::Fragments(family).name());
    let from_node =
        if settings.node_ports { goto(named(FROM_NODE, family)) } else { verdict(Verdict::Accept) };
    let rules = [
        vec![is_for_others(), verdict(Verdict::Accept)],
        vec![is_from_node(), from_node],
        vec![is_later_fragment(family), of_first, goto_send(family)],
        vec![is_of(family), route(family), goto(named(CHOOSE, family))],
    ];
    chain(DIRECT, family, None, rules.into_iter().chain(errors::find(family)))
}

/// The first packet of a connection from another node. If that node or a pod of it sends it, the
/// destination is one of this node. One that was handed on to a node port has an address of the other
/// node.
fn from_node(family: Family) -> ChainSpec {
    let rules = [
        vec![
            begins_tcp(),
            is_of(family),
            route(family),
            clear_priority(),
            verdict(Verdict::Accept),
        ],
        vec![begins_tcp(), set_priority(CHOSEN_NODE)],
    ];
    let comment = "the first packet to a node port that another node has handed on";
    chain(FROM_NODE, family, Some(comment), rules)
}

/// Sets the priority to the route of the packet's service; the rule ends without one.
fn route(family: Family) -> Phrase {
    Phrases(family).set_priority(&service(family), DirectSet::Frontends(family).name())
}

/// Packets that another node has handed on through the tunnel are served here. Anybody who reaches its
/// port may send what seems to be one, so no other address can be reached by it.
fn ingress_of_tunnel(settings: &DirectSettings) -> Option<ChainSpec> {
    let device = settings.tunnel.clone()?;
    let mut rules = Vec::new();
    for family in Family::ALL {
        let to_service = || is_to(family, DirectSet::Addresses(family));
        if settings.node_ports {
            rules.push(vec![to_service(), jump(named(FROM_NODE, family))]);
        }
        rules.push(vec![to_service(), verdict(Verdict::Accept)]);
    }
    rules.push(vec![verdict(Verdict::Drop)]);
    let base = BaseChain::at_ingress([device], PRIORITY);
    let spec = ChainSpec::new(INGRESS_OF_TUNNEL, rules);
    Some(ChainSpec { chain: Chain::at_hook(INGRESS_OF_TUNNEL, base), ..spec })
}

/// The kernel sends what leaves by the tunnel as packets of this node, which other tables and routes
/// would select by the number of a node as their mark.
fn egress_of_tunnel(settings: &DirectSettings) -> Option<ChainSpec> {
    let device = settings.tunnel.clone()?;
    let base = BaseChain::at_egress([device], PRIORITY);
    let spec = ChainSpec::new(EGRESS_OF_TUNNEL, [vec![clear_mark()], vec![clear_priority()]]);
    Some(ChainSpec { chain: Chain::at_hook(EGRESS_OF_TUNNEL, base), ..spec })
}

/// Every packet of the devices passes these rules, so they only compare the destination. Without
/// devices there are no packets.
fn ingress(settings: &DirectSettings) -> Option<ChainSpec> {
    if settings.devices.is_empty() {
        return None;
    }
    let rule = |family| -> Vec<Phrase> {
        vec![is_to(family, DirectSet::Addresses(family)), goto(named(DIRECT, family))]
    };
    let base = BaseChain::at_ingress(settings.devices.iter().cloned(), PRIORITY);
    let spec = ChainSpec::new(INGRESS, Family::ALL.map(rule));
    Some(ChainSpec { chain: Chain::at_hook(INGRESS, base), ..spec })
}

/// Returns the operations after which nodes hand packets on until `end` only, and each node then
/// serves what comes to it. The next start replaces these rules.
pub(crate) fn ending(base: &Base, end: SystemTime) -> Vec<Operation> {
    let since_1970 = end.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanoseconds = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
    let ingress = base.chains.iter().filter(|spec| spec.chain.name == INGRESS);
    let of_chain = ingress.flat_map(|spec| {
        let flush = Operation::FlushChain(table(), spec.chain.name.clone());
        let rules = spec.rules.iter().map(|rule| {
            let mut expressions = phrase::before(nanoseconds);
            expressions.extend(rule.expressions.iter().cloned());
            Operation::AddRule(table(), Rule { expressions, ..rule.clone() })
        });
        std::iter::once(flush).chain(rules).collect::<Vec<_>>()
    });
    of_chain.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nft::expression::Reference;
    use nft::{Expression, TableFamily};

    use super::*;

    fn settings() -> DirectSettings {
        let devices = vec!["eth0".into(), "eth1".into()];
        let remember = Duration::from_secs(60);
        DirectSettings {
            devices,
            tunnel: Some("tunnel".into()),
            remember,
            connections: 9,
            node_ports: true,
            hash_seed: 7,
        }
    }

    fn expressions(base: &Base) -> impl Iterator<Item = &Expression> {
        let rules = base.chains.iter().flat_map(|spec| &*spec.rules);
        rules.flat_map(|rule| &rule.expressions)
    }

    #[test]
    fn chains_refer_only_to_chains_before_them_and_to_sets() {
        let base = base(&settings());
        for (i, spec) in base.chains.iter().enumerate() {
            let expressions = spec.rules.iter().flat_map(|rule| &rule.expressions);
            for reference in expressions.filter_map(Expression::reference) {
                let is_known = match reference {
                    Reference::Chain(name) => {
                        base.chains[..i].iter().any(|before| before.chain.name == name)
                    }
                    Reference::Set(name) => base.sets.iter().any(|set| set.name == name),
                    Reference::Object(..) | Reference::Flowtable(_) => false,
                };
                assert!(is_known, "{}: {reference:?}", spec.chain.name);
            }
        }
    }

    #[test]
    fn only_the_last_chains_have_a_hook_and_they_have_all_devices() {
        let hooked = |settings: &DirectSettings| {
            let base = base(settings);
            let first = base.chains.iter().position(|spec| spec.chain.base.is_some());
            let (regular, hooked) = base.chains.split_at(first.unwrap_or(base.chains.len()));
            let texts = hooked.iter().map(|it| it.chain.text(TableFamily::Netdev).to_string());
            (regular.len(), texts.collect::<Vec<_>>())
        };
        let of_tunnel = [
            "ingress-of-tunnel { type filter hook ingress devices = { \"tunnel\" } priority 0; \
             policy accept; }",
            "egress-of-tunnel { type filter hook egress devices = { \"tunnel\" } priority 0; \
             policy accept; }",
        ];
        let ingress = "ingress { type filter hook ingress devices = { \"eth0\", \"eth1\" } \
                       priority 0; policy accept; }";
        let (regular, whole) = hooked(&settings());
        assert_eq!(whole, [&of_tunnel[..], &[ingress]].concat());
        let without_devices = DirectSettings { devices: Vec::new(), ..settings() };
        assert_eq!(hooked(&without_devices), (regular, of_tunnel.map(String::from).to_vec()));
        let without_tunnel = DirectSettings { tunnel: None, ..settings() };
        assert_eq!(hooked(&without_tunnel), (regular, vec![ingress.to_owned()]));
    }

    #[test]
    fn the_last_rule_of_what_arrives_through_the_tunnel_drops_it() {
        let base = base(&settings());
        let spec = base.chains.iter().find(|spec| spec.chain.name == INGRESS_OF_TUNNEL).unwrap();
        let rules: Vec<_> =
            spec.rules.iter().map(|it| it.text(TableFamily::Netdev).to_string()).collect();
        let expected = [
            "ip daddr @addresses4 jump from-node4",
            "ip daddr @addresses4 accept",
            "ip6 daddr @addresses6 jump from-node6",
            "ip6 daddr @addresses6 accept",
            "drop",
        ];
        assert_eq!(rules, expected);
    }

    #[test]
    fn every_hash_has_the_seed_of_the_settings() {
        let base = base(&settings());
        let mut seeds = Vec::new();
        for expression in expressions(&base) {
            if let Expression::Hash(hash) = expression {
                seeds.push(hash.seed);
            }
        }
        assert_eq!((seeds.len(), seeds.iter().all(|seed| *seed == Some(7))), (44, true));
    }

    #[test]
    fn rules_that_write_have_the_times_of_the_settings_and_of_fragments() {
        let base = base(&settings());
        let mut written = Vec::new();
        for expression in expressions(&base) {
            if let Expression::Dynset(dynset) = expression {
                written.push((dynset.set.as_str(), dynset.timeout));
            }
        }
        let expected = [
            ("connections", Some(60_000)),
            ("fragments4", Some(5_000)),
            ("connections", Some(60_000)),
            ("fragments6", Some(5_000)),
        ];
        assert_eq!(written, expected);
    }
}
