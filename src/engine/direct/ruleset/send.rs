//! The chains that send a packet to the chosen node, or leave it to this one.

use nft::expression::{Fwd, Lookup, Reg, meta};
use nft::{Family, Verdict};

use super::chain::{chain, named};
use super::layout::DirectSettings;
use super::number::FROM_START;
use super::packet::{begins_tcp, has_hop_left};
use super::sets::DirectSet;
use crate::ruleset::ChainSpec;
use crate::ruleset::chain::compare;
use crate::ruleset::number::CHOSEN_NODE;
use crate::ruleset::phrase::{Phrase, clear_mark, clear_priority, goto, set_priority, verdict};

/// The chain for packets that this node serves.
pub(super) const HERE: &str = "here";

/// The chain for packets whose mark is the number of a node.
pub(super) const SEND: &str = "send";

/// Returns the chain for packets that this node serves. Priority and mark would reach the ordinary
/// tables, where they have another meaning.
pub(super) fn here(settings: &DirectSettings) -> ChainSpec {
    let begins = || vec![compare(FROM_START, FROM_START), begins_tcp()];
    let accept = || vec![set_priority(CHOSEN_NODE), verdict(Verdict::Accept)];
    let mut rules = vec![vec![clear_mark()]];
    rules.extend(settings.node_ports.then(|| [begins(), accept()].concat()));
    rules.push(vec![clear_priority(), verdict(Verdict::Accept)]);
    ChainSpec::new(HERE, rules)
        .with_comment("this node serves the packet, in chain nat-prerouting of table kube-proxy")
}

/// Returns the chain that sends a packet to the node of its mark. This node's own number has no
/// address.
pub(super) fn send(family: Family) -> ChainSpec {
    let comment = "kernels before commit 1dfd95bdf4d1 (April 2026) take one from any TTL: \
                   1 becomes 0, and then 255";
    let rules = [vec![has_hop_left(family), forward(family)], vec![goto(HERE)]];
    chain(SEND, family, Some(comment), rules)
}

/// `fwd ip to meta mark map @node-addresses4 device meta mark map @node-devices`
fn forward(family: Family) -> Phrase {
    let (device, address) = (Reg::of_word(0), Reg::of_word(4));
    vec![
        meta::mark(device),
        Lookup::in_map(DirectSet::NodeDevices.name(), device, device),
        meta::mark(address),
        Lookup::in_map(DirectSet::NodeAddresses(family).name(), address, address),
        Fwd::to_neighbour(device, address, family.number()),
    ]
}

/// Leads to the chain for packets whose mark is the number of a node.
pub(super) fn goto_send(family: Family) -> Phrase {
    goto(named(SEND, family))
}
