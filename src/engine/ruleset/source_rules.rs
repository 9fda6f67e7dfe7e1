//! The rules that look up the sources that may use a load balancer address.

use nft::Verdict;

use super::chain::ChainSpec;
use super::element::source_number;
use super::field::{Field, RANGE_SERVICE, SERVICE};
use super::phrase::{self, Phrase, Phrases, goto, jump, verdict};
use super::range_rules;
use super::sets::SetId;
use crate::model::{PrefixLengths, Protocol};

/// Runs before DNAT, while the destination is still the service's address.
pub(super) fn restricted(phrases: Phrases) -> Vec<Phrase> {
    let is_restricted = phrases.in_set(SERVICE, SetId::RestrictedServices.name());
    vec![is_restricted, goto(FIREWALL_SOURCES)]
}

/// The chain for packets to frontends with source ranges.
pub(super) const FIREWALL_SOURCES: &str = "firewall-sources";

/// The sets in which sources are looked up, and their keys after those of the source.
#[derive(Clone, Copy)]
pub(super) struct SourceSets {
    chain: &'static str,
    /// The end of the names of the chains of each protocol.
    of_protocol: &'static str,
    sources: SetId,
    refusals: SetId,
    service: &'static [Field],
    destination: &'static [Field],
}

impl SourceSets {
    pub(super) const OF_PORTS: Self = Self {
        chain: FIREWALL_SOURCES,
        of_protocol: "sources",
        sources: SetId::SourceRanges,
        refusals: SetId::SourceRefusals,
        service: SERVICE,
        destination: &[Field::Daddr, Field::Dport],
    };
    pub(super) const OF_RANGES: Self = Self {
        chain: range_rules::SOURCES,
        of_protocol: "range-sources",
        sources: SetId::RangeSources,
        refusals: SetId::RangeSourceRefusals,
        service: RANGE_SERVICE,
        destination: &[Field::Daddr],
    };
}

/// Returns the chains that look the source up, once for each prefix length in use, the largest
/// networks first: they admit most sources. Where one protocol alone has ranges, no rule compares it.
pub(super) fn chains(phrases: Phrases, lengths: PrefixLengths, sets: SourceSets) -> Vec<ChainSpec> {
    let admitted = |protocol| {
        lengths.of(protocol).map(move |length| {
            let number = Field::Number(source_number(protocol, length));
            let source = [Field::SourceNetwork(length), number];
            let key = [&source, sets.destination].concat();
            vec![phrases.in_set(&key, sets.sources.name()), verdict(Verdict::Accept)]
        })
    };
    let used = || Protocol::ALL.into_iter().filter(|it| lengths.of(*it).next().is_some());
    let name = |protocol| format!("{protocol}-{}", sets.of_protocol);
    let (mut chains, mut rules) = (Vec::new(), Vec::new());
    if used().count() == 1 {
        rules.extend(used().flat_map(admitted));
    } else {
        chains.extend(used().map(|it| ChainSpec::new(name(it), admitted(it))));
        rules.extend(used().map(|it| vec![phrase::protocol(it.number()), jump(name(it))]));
    }
    // It only counts, so the packet is dropped also if its lookup misses.
    rules.push(vec![phrases.in_set(sets.service, sets.refusals.name())]);
    rules.push(vec![phrase::counter(), verdict(Verdict::Drop)]);
    chains.push(ChainSpec::new(sets.chain, rules));
    chains
}
