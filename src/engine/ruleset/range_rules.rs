//! The rules for port ranges, which only tables with port ranges have.
//!
//! A packet that no other rule serves is looked up by the first bits of its port, once for each number
//! of bits in use. Then address and protocol lead to a session, as if the service had one port, and the
//! packet keeps its port.

use super::chain::ChainSpec;
use super::element::source_number;
use super::field::{Field, RANGE_SERVICE};
use super::phrase::{self, Phrase, Phrases, goto, jump};
use super::sets::SetId;
use super::settings::Settings;
use crate::model::Protocol;

/// The chain for packets that no port of a service serves.
pub(super) const CHAIN: &str = "port-ranges";

/// The chain for packets to a port of a range.
const TRAFFIC: &str = "range-traffic";

/// The chain for packets to addresses whose port ranges have source ranges.
const RESTRICTED: &str = "restricted-ranges";

/// The chain that looks the sources of such packets up.
pub(super) const SOURCES: &str = "firewall-range-sources";

/// Returns the chains, each after those that it refers to. `no_endpoint` is for packets without one.
pub(super) fn chains(phrases: Phrases, settings: &Settings, no_endpoint: Phrase) -> Vec<ChainSpec> {
    let route = vec![phrases.look_up(RANGE_SERVICE, SetId::RangeServices), jump("service-traffic")];
    let unserved = vec![phrases.look_up(RANGE_SERVICE, SetId::UnservedRangeServices), no_endpoint];
    let rules = settings.lookups.repeat([route, unserved]);
    let blocks = blocks(phrases, settings, &jump(TRAFFIC));
    vec![
        ChainSpec::new(TRAFFIC, rules),
        ChainSpec::new(CHAIN, blocks).with_comment("the first bits of the port, then the address"),
    ]
}

/// Returns the chain that lets the sources of packets to ranges be looked up.
pub(super) fn sources_of(phrases: Phrases, settings: &Settings) -> ChainSpec {
    ChainSpec::new(RESTRICTED, blocks(phrases, settings, &goto(SOURCES)))
}

/// Returns the rule of the base chains before the translation.
pub(super) fn restricted(phrases: Phrases) -> [Phrase; 2] {
    [phrases.in_set(RANGE_SERVICE, SetId::RestrictedRangeServices.name()), jump(RESTRICTED)]
}

/// Returns the lookup of the list of all endpoints, for pods and this node.
pub(super) fn internal(phrases: Phrases) -> Vec<Phrase> {
    vec![phrases.look_up(RANGE_SERVICE, SetId::InternalRangeServices)]
}

/// Returns the rule that masquerades packets of endpoints to themselves. Whatever the port, an answer
/// would reach the endpoint without a translation.
pub(super) fn hairpin(phrases: Phrases) -> Vec<Phrase> {
    let pair = [Field::Saddr, Field::Daddr];
    vec![
        phrase::ct_status_dnat(),
        phrases.in_set(&pair, SetId::RangeHairpins.name()),
        phrase::masquerade(),
    ]
}

fn blocks(phrases: Phrases, settings: &Settings, then: &Phrase) -> Vec<Vec<Phrase>> {
    let lengths = settings.optional_chains.port_ranges;
    let of_protocol = |protocol: Protocol| {
        lengths.of(protocol).map(move |length| {
            let number = Field::Number(source_number(protocol, length));
            let key = [Field::PortBlock(length), number, Field::Daddr];
            let is_protocol = phrase::protocol(protocol.number());
            vec![is_protocol, phrases.in_set(&key, SetId::PortRanges.name()), then.clone()]
        })
    };
    Protocol::ALL.into_iter().flat_map(of_protocol).collect()
}
