//! The chains that send a client to its former endpoint.
//!
//! A service port with session affinity has a list of its own, a *session*. A frontend leads to
//! `SSSS:TTFS`, where `SSSS` is the session and `TT` the timeout. The rules first look up a known
//! client. For a new client they draw an endpoint and record it. If the endpoint of a client is
//! gone, they delete the client and draw another endpoint. So a connection takes as many steps with
//! three endpoints as with thousands, and changes are elements without verdicts.
//!
//! Clients are recorded by their client hash, one of 32,768 values. Clients of one session with the
//! same client hash share the endpoint and expire together. So spoofed sources fill at most the
//! records of their session, and its other clients still get the same endpoint again.
//!
//! A packet that reads one set before a commit and the next one after it may find no endpoint. Then
//! it draws once more, and at last continues as a packet to no service. The same holds for an
//! element that is missed while it is replaced, before Linux 6.17 ([`super::Lookups`]): a
//! missed slot leads to slot 0, and a missed endpoint or list to another draw.

use std::collections::BTreeMap;
use std::time::Duration;

use nft::expression::{Cmp, Data, Immediate};
use nft::{Expression, ListedRule, Name, Verdict};

use super::chain::{ChainSpec, compare};
use super::draw::hash;
use super::field::{Field, SOURCE_ADDRESS};
use super::number::{ENDPOINT_BIT, SESSION_BITS, SIZE_BITS, SizeClass, TIMEOUT_BITS, Timeout};
use super::phrase::{ElementChange, Phrase, Phrases, goto, jump, verdict};
use super::sets::{CLIENT_HASHES, SetId};
use super::size_classes::SizeClasses;

/// The chain for packets to frontends with session affinity.
pub(super) const AFFINITY: &str = "affinity";

/// The chain that draws once from a list of several size classes.
const OF_MANY: &str = "affinity-draw-of-many";

/// The chain that does so repeatedly.
const FOUR_TIMES: &str = "affinity-draw-4-times";

/// Timeouts in seconds, by number.
pub type NumberedTimeouts = BTreeMap<Timeout, u32>;

const SESSION: Field = Field::PriorityBits(SESSION_BITS);

/// The key of `affinity-clients`. The seed is fixed: with the kernel's default seed
/// (`nft_jhash_init`), rules would disagree on the place of a client.
const CLIENT: &[Field] =
    &[SESSION, Field::Hash { of: SOURCE_ADDRESS, modulus: CLIENT_HASHES, seed: 1 }];

/// Number of jumps to a chain of draws, which keeps the table short.
const JUMPS: usize = 4;

/// Returns the chains, each after those that it refers to; none without a timeout.
pub(super) fn chains(
    phrases: Phrases,
    timeouts: &NumberedTimeouts,
    classes: SizeClasses,
    (seed, has_ranges): (u32, bool),
) -> Vec<ChainSpec> {
    if timeouts.is_empty() {
        return Vec::new();
    }
    let powers = || classes.iter().filter(|size| *size <= SizeClass::LARGEST_SESSION);
    let draw_all = |size: SizeClass| draw_for(phrases, size, size.most());
    let half = powers().map(|size| draw_for(phrases, size, size.most() / 2));
    let table = |size| {
        Some(vec![is_size(size), find(phrases, hash(size, seed)?), verdict(Verdict::Return)])
    };
    let draw_any = SizeClass::exact().map(draw_all).chain(classes.iter().filter_map(table));
    let mut chains = Vec::new();
    let draw_any: Vec<_> = if powers().next().is_some() {
        chains.push(ChainSpec::new(OF_MANY, powers().map(draw_all)));
        chains.push(ChainSpec::new(FOUR_TIMES, jumps(OF_MANY)));
        draw_any.chain(jumps(FOUR_TIMES)).chain(half).collect()
    } else {
        draw_any.collect()
    };
    chains.extend([
        ChainSpec::new("affinity-draw", draw_any.into_iter().chain([vec![draw(phrases, 1)]]))
            .with_comment("draws an endpoint: SSSS:TTFS becomes SSSS:EEEE, EEEE from 8001"),
        ChainSpec::new("affinity-forget", forget(phrases))
            .with_comment("the endpoint is gone: back to SSSS:TTFS, to draw another"),
    ]);
    let translate = translations(phrases, has_ranges);
    chains.extend(timeouts.values().flat_map(|seconds| match seconds {
        0 => without_affinity(phrases, &translate).into(),
        _ => Vec::from(timeout_chains(phrases, *seconds, &translate)),
    }));
    let dispatch = timeouts.iter().map(|(timeout, seconds)| {
        vec![compare(TIMEOUT_BITS, timeout.bits()), goto(chain_of(*seconds))]
    });
    let chain = ChainSpec::new(AFFINITY, dispatch);
    chains.push(chain.with_comment("SSSS:TTFS is session SSSS with timeout TT"));
    chains
}

/// Returns the timeouts with chains in a table, from the rules of the chain `affinity`.
pub fn timeouts_of<'a>(rules: impl Iterator<Item = &'a ListedRule>) -> NumberedTimeouts {
    let timeout = |rule: &ListedRule| match rule.expressions.as_slice() {
        [
            ..,
            Expression::Cmp(Cmp { value: Data::Value(value), .. }),
            Expression::Immediate(Immediate { data: Data::Verdict(Verdict::Goto(chain)), .. }),
        ] => {
            let bits = u32::from_ne_bytes(value[..].try_into().ok()?);
            Some((Timeout::from_bits(bits)?, seconds_of(chain)?))
        }
        _ => None,
    };
    rules.filter(|rule| rule.chain == AFFINITY).filter_map(timeout).collect()
}

fn chain_of(seconds: u32) -> Name {
    format!("affinity-{seconds}s").into()
}

fn seconds_of(chain: &str) -> Option<u32> {
    let seconds = chain.strip_prefix("affinity-")?.strip_suffix('s')?.parse().ok()?;
    (chain_of(seconds) == chain).then_some(seconds)
}

/// Returns the rules that translate a packet with the number of an endpoint.
fn translations(phrases: Phrases, has_ranges: bool) -> Vec<Vec<Phrase>> {
    let key = [Field::L4Proto, Field::Priority];
    let mut rules = vec![vec![phrases.translate(&key, SetId::AffinityEndpoints.name())]];
    if has_ranges {
        rules.push(vec![
            phrases.translate_address(&[Field::Priority], SetId::RangeEndpoints.name()),
        ]);
    }
    rules
}

/// Returns the chains for port ranges without affinity: each connection draws an endpoint.
fn without_affinity(phrases: Phrases, translate: &[Vec<Phrase>]) -> [ChainSpec; 2] {
    let name = chain_of(0);
    let new = Name::from(format!("{name}-new"));
    let draw = vec![jump("affinity-draw")];
    let again = vec![phrases.look_up(&[SESSION], SetId::AffinityLists)];
    let rules = [draw].into_iter().chain(translate.iter().cloned()).chain([again]);
    [
        ChainSpec::new(new.clone(), rules),
        ChainSpec::new(name, [vec![jump(new.clone())], vec![jump(new)]]),
    ]
}

fn timeout_chains(phrases: Phrases, seconds: u32, translate: &[Vec<Phrase>]) -> [ChainSpec; 3] {
    let name = chain_of(seconds);
    let [known, new] = ["known", "new"].map(|part| Name::from(format!("{name}-{part}")));
    let timeout = Duration::from_secs(seconds.into());
    let remember = || client(phrases, ElementChange::Update(Some(timeout)));
    let look_up = || phrases.look_up(CLIENT, SetId::AffinityClients);
    let give_up = || vec![goto("affinity-forget")];
    [
        ChainSpec::new(known.clone(), [&[vec![remember()]], translate, &[give_up()]].concat()),
        // Another packet of the client may have drawn at the same time: the first element stays.
        ChainSpec::new(
            new.clone(),
            [
                &[vec![jump("affinity-draw")], vec![remember()], vec![look_up()]],
                translate,
                &[give_up()],
            ]
            .concat(),
        ),
        ChainSpec::new(
            name,
            [vec![look_up(), jump(known)], vec![jump(new.clone())], vec![jump(new)]],
        ),
    ]
}

fn forget(phrases: Phrases) -> [Vec<Phrase>; 2] {
    [
        vec![client(phrases, ElementChange::Delete)],
        vec![phrases.look_up(&[SESSION], SetId::AffinityLists)],
    ]
}

/// Adds, renews or deletes a client with its endpoint.
fn client(phrases: Phrases, change: ElementChange) -> Phrase {
    let data = Some(Field::Priority);
    phrases.change_element(change, SetId::AffinityClients.name(), CLIENT, data)
}

/// Draws again; returns from the chain once an endpoint is drawn.
fn jumps(chain: &'static str) -> impl Iterator<Item = Vec<Phrase>> {
    let is_drawn = vec![compare(ENDPOINT_BIT, ENDPOINT_BIT), verdict(Verdict::Return)];
    (0..JUMPS).flat_map(move |_| [vec![jump(chain)], is_drawn.clone()])
}

fn is_size(size: SizeClass) -> Phrase {
    compare(ENDPOINT_BIT | SIZE_BITS, size.bits())
}

fn draw_for(phrases: Phrases, size: SizeClass, modulus: u32) -> Vec<Phrase> {
    vec![is_size(size), draw(phrases, modulus), verdict(Verdict::Return)]
}

fn draw(phrases: Phrases, modulus: u32) -> Phrase {
    find(phrases, Field::Random(modulus))
}

/// Looks up the endpoint in a slot; the rule ends if there is none.
fn find(phrases: Phrases, slot: Field) -> Phrase {
    phrases.look_up(&[SESSION, slot], SetId::AffinitySlots)
}

#[cfg(test)]
mod tests {
    use nft::{Family, Rule};

    use super::*;

    #[test]
    fn timeouts_are_read_from_the_rules_that_were_written() {
        let timeouts: NumberedTimeouts =
            [(1, 10_800), (7, 60)].map(|(n, secs)| (Timeout::new(n).unwrap(), secs)).into();
        let decoded = |rule: &Rule| ListedRule::of(rule, "t", 0);
        let classes = SizeClass::all().collect();
        let chains = chains(Phrases(Family::Ip), &timeouts, classes, (1, false));
        let rules: Vec<_> = chains.iter().flat_map(|spec| &*spec.rules).map(decoded).collect();
        assert_eq!(timeouts_of(rules.iter()), timeouts);
    }

    #[test]
    fn only_names_of_timeouts_are_taken_for_such() {
        assert_eq!(seconds_of("affinity-10800s"), Some(10_800));
        for name in ["affinity-clients", "affinity-010s", "affinity-s", "affinity-+1s"] {
            assert_eq!(seconds_of(name), None, "{name}");
        }
    }
}
