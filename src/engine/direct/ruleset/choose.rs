//! The chains that choose a node for a packet.
//!
//! A hash of the client names a slot of the table of the service's list, and the slot holds the
//! number of a node. The modulus is fixed in a rule, so each size of a table has its own rules.
//! Remembered connections replace the result by the node that they had before.

use std::time::Duration;

use nft::{Family, Verdict};

use super::chain::{chain, named};
use super::inner::Inner;
use super::layout::DirectSettings;
use super::number::{FROM_START, REMEMBERED};
use super::packet::{begins_tcp, is_fragment, is_of, packet};
use super::send::{HERE, SEND};
use super::sets::DirectSet;
use crate::model::HashedSource;
use crate::ruleset::ChainSpec;
use crate::ruleset::chain::compare;
use crate::ruleset::field::{Field, SOURCE_ADDRESS, SOURCE_ADDRESS_AND_PORT};
use crate::ruleset::number::{LIST_BITS, SIZE_BITS, SizeClass, TableSize};
use crate::ruleset::phrase::{ElementChange, Phrase, Phrases, goto, jump, verdict};

/// The chain for packets to services, whose priority is a route.
pub(super) const CHOOSE: &str = "choose";
/// The chain for ICMP errors about answers of services, whose priority is a route.
pub(super) const CHOOSE_OF_ERROR: &str = "choose-of-error";

const REMEMBER: &str = "remember";
const CHOSEN: &str = "chosen";
const AT_NODE: &str = "at-node";
const BY_ADDRESS: &str = "by-address";

/// Time for which the node of a packet is known to its later fragments.
const FRAGMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The bits that routes by address alone share, and no other route has.
const BY_ADDRESS_BITS: u32 = 0x1c;

/// Returns the chains for a packet whose node is chosen, or known, or chosen by its address.
pub(super) fn chosen(family: Family, settings: &DirectSettings) -> [ChainSpec; 4] {
    [
        chain(
            REMEMBER,
            family,
            Some(
                "a connection that is known keeps its node; update adds, or only extends the time",
            ),
            remember(family, settings),
        ),
        chain(CHOSEN, family, None, note(family, settings)),
        chain(AT_NODE, family, None, at_node(family, settings)),
        chain(BY_ADDRESS, family, None, by_address(family, settings)),
    ]
}

/// Returns the chain that chooses a node for a packet to a service.
pub(super) fn choose(family: Family, settings: &DirectSettings) -> ChainSpec {
    let from_start = vec![compare(FROM_START, FROM_START), jump(named(AT_NODE, family))];
    let tables = of_tables(HashedSource::AddressAndPort).map(|class| {
        let slot = slot(SOURCE_ADDRESS_AND_PORT, class, settings);
        choice(family, class, slot)
    });
    let is_by_address = compare(BY_ADDRESS_BITS, BY_ADDRESS_BITS);
    let by_address = vec![is_by_address, goto(named(BY_ADDRESS, family))];
    let rules = std::iter::once(from_start).chain(tables).chain([by_address, vec![goto(HERE)]]);
    chain(CHOOSE, family, None, rules)
}

/// Returns the chain that chooses a node for an ICMP error. It is the node of the connection of the
/// packet inside.
pub(super) fn choose_of_error(family: Family, settings: &DirectSettings) -> ChainSpec {
    const ADDRESS4: &[Field] = &[Inner::client_address(Family::Ip).field()];
    const ADDRESS6: &[Field] = &[Inner::client_address(Family::Ip6).field()];
    const BOTH4: &[Field] =
        &[Inner::client_address(Family::Ip).field(), Inner::client_port(Family::Ip).field()];
    const BOTH6: &[Field] =
        &[Inner::client_address(Family::Ip6).field(), Inner::client_port(Family::Ip6).field()];
    let (address, both) = match family {
        Family::Ip => (ADDRESS4, BOTH4),
        Family::Ip6 => (ADDRESS6, BOTH6),
    };
    let tables = [(HashedSource::AddressAndPort, both), (HashedSource::Address, address)];
    let rules = tables.into_iter().flat_map(|(source, of)| {
        of_tables(source).map(move |class| {
            vec![is_class(class), set_node(family, slot(of, class, settings), DirectSet::Nodes)]
        })
    });
    let known = set_node(family, connection(both, settings), DirectSet::Connections);
    let known = vec![compare(REMEMBERED, REMEMBERED), known];
    let comment = "the packet inside is an answer: its destination is the client";
    chain(CHOOSE_OF_ERROR, family, Some(comment), rules.chain([known]))
}

/// A connection that is known keeps its node. One that needs to be remembered, and cannot be because
/// the memory is full, stays on this node: its later packets would.
fn remember(family: Family, settings: &DirectSettings) -> [Vec<Phrase>; 4] {
    let key = connection(SOURCE_ADDRESS_AND_PORT, settings);
    let update = ElementChange::Update(Some(settings.remember));
    let from_start = || compare(FROM_START, FROM_START);
    let known = set_node(family, key, DirectSet::Connections);
    [
        vec![is_of(family), set_node(family, key, DirectSet::Connections)],
        vec![is_of(family), write(family, update, DirectSet::Connections, &key)],
        vec![from_start(), is_of(family), known, verdict(Verdict::Return)],
        vec![from_start(), goto(HERE)],
    ]
}

/// Notes the node for later packets of the connection, and for later fragments of the packet.
fn note(family: Family, settings: &DirectSettings) -> [Vec<Phrase>; 3] {
    let update = ElementChange::Update(Some(FRAGMENT_TIMEOUT));
    let key = packet(family, settings.hash_seed);
    [
        vec![compare(REMEMBERED, REMEMBERED), jump(named(REMEMBER, family))],
        vec![is_fragment(family), write(family, update, DirectSet::Fragments(family), &key)],
        vec![goto(named(SEND, family))],
    ]
}

/// A packet of TCP at an address of a node is handed on only if the connection's start was. Answers
/// to connections that this node masquerades come to the same ports.
fn at_node(family: Family, settings: &DirectSettings) -> [Vec<Phrase>; 3] {
    let key = connection(SOURCE_ADDRESS_AND_PORT, settings);
    let known = set_node(family, key, DirectSet::Connections);
    [
        vec![begins_tcp(), verdict(Verdict::Return)],
        vec![is_of(family), known, goto(named(CHOSEN, family))],
        vec![goto(HERE)],
    ]
}

fn by_address(family: Family, settings: &DirectSettings) -> impl Iterator<Item = Vec<Phrase>> {
    let tables = of_tables(HashedSource::Address);
    let rules =
        tables.map(move |class| choice(family, class, slot(SOURCE_ADDRESS, class, settings)));
    rules.chain([vec![goto(HERE)]])
}

/// Leads to the chain for a chosen node; the rule ends if the route has another class, or the slot
/// no node.
fn choice(family: Family, class: SizeClass, slot: [Field; 2]) -> Vec<Phrase> {
    let node = set_node(family, slot, DirectSet::Nodes);
    vec![is_class(class), is_of(family), node, goto(named(CHOSEN, family))]
}

/// Returns the classes of tables by what is hashed.
fn of_tables(source: HashedSource) -> impl Iterator<Item = SizeClass> {
    TableSize::ALL.into_iter().map(move |size| SizeClass::of_table(source, size))
}

fn is_class(class: SizeClass) -> Phrase {
    compare(SIZE_BITS, class.bits())
}

/// Returns the key of the slot of a client in `nodes`.
fn slot(client: &'static [Field], class: SizeClass, settings: &DirectSettings) -> [Field; 2] {
    hashed(client, class.most(), settings)
}

/// Returns the key of a client in `connections`. Clients with the same hash share a node.
fn connection(client: &'static [Field], settings: &DirectSettings) -> [Field; 2] {
    hashed(client, u32::MAX, settings)
}

fn hashed(of: &'static [Field], modulus: u32, settings: &DirectSettings) -> [Field; 2] {
    let seed = settings.hash_seed;
    [Field::PriorityBits(LIST_BITS), Field::Hash { of, modulus, seed }]
}

fn set_node(family: Family, key: [Field; 2], map: DirectSet) -> Phrase {
    Phrases(family).set_mark(&key, map.name())
}

/// Writes the chosen node to a map of packets.
fn write(family: Family, change: ElementChange, map: DirectSet, key: &[Field]) -> Phrase {
    Phrases(family).change_element(change, map.name(), key, Some(Field::Mark))
}
