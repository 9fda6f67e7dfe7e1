//! The chains that choose an endpoint of a plain list.
//!
//! A slot is either drawn, or, in a hash table, named by a hash of the packet's source. Every hash
//! table is full, so the first lookup hits.
//!
//! The modulus of `numgen random mod N` is fixed in a rule, so each size class has its own rules.
//! They are as few as possible: the kernel compares each new endpoint with every rule that looks up
//! the map (`nft_add_set_elem`). So what several chains draw is a chain of its own.
//! For a list of up to [`SizeClass::EXACT`] endpoints, one draw below its size suffices. For a
//! larger list, the rules draw below the next power of two until a slot is hit, at most
//! 2 + 4 x 4 = 18 times. Then they draw once below half of it, where every slot is taken. If one of
//! the first 18 draws hits, each endpoint is equally likely. Each of them misses for less than half
//! of the packets, so fewer than one connection in 2^18 gets its endpoint from the last draw.
//!
//! A packet that reads a frontend before a commit and its list after it may miss a slot. So may one
//! that looks up a slot while it is replaced, before Linux 6.17 ([`super::Lookups`]). It falls
//! back to slot 0, which exists as long as the list has any endpoint. Every class ends with that
//! lookup, so no slot is looked up only once.

use nft::Name;

use super::chain::{ChainSpec, compare};
use super::field::{Field, SOURCE_ADDRESS, SOURCE_ADDRESS_AND_PORT};
use super::number::{LIST_BITS, SIZE_BITS, SizeClass, TABLE_BITS};
use super::phrase::{self, Phrase, Phrases, goto, jump};
use super::sets::SetId;
use crate::model::HashedSource;

/// The chain that chooses an endpoint of a plain list.
pub(super) const PICK: &str = "pick";

/// Number of draws for a large list before the jumps.
const DIRECT: usize = 2;

/// Number of jumps to a chain of further draws, at two levels: this keeps the table short.
const JUMPS: usize = 4;

/// The chain for a packet that no slot was found for.
const NO_SLOT: &str = "slot-0";

/// The chain that finds the slot of a hash table.
const HASH: &str = "hash";

/// Returns the chains, each after those that it refers to.
pub(super) fn chains(phrases: Phrases, seed: u32) -> Vec<ChainSpec> {
    let powers = || SizeClass::LARGEST.powers();
    let smallest_half = SizeClass::EXACT.into();
    let mut chains = vec![
        ChainSpec::new(NO_SLOT, [vec![draw(phrases, 1)], vec![phrase::clear_priority()]]),
        draw_chain(phrases, smallest_half),
    ];
    chains.extend(powers().flat_map(|size| large_chains(phrases, size.most())));
    let table = |size| Some(vec![is_class(size), translate(phrases, hash(size, seed)?)]);
    let tables = SizeClass::tables().filter_map(table);
    chains.push(ChainSpec::new(HASH, tables.chain([no_slot()])).with_comment(
        "the table's slot that a hash of the source names: as 0:1f, 18 for 251 slots by address \
        and port, 1c by address, ...",
    ));
    let exact = SizeClass::exact().map(|size| vec![is_class(size), draw(phrases, size.most())]);
    let is_table = vec![compare(TABLE_BITS, TABLE_BITS), goto(HASH)];
    let large = powers().map(|size| vec![is_class(size), goto(named("pick", size.most()))]);
    let pick = ChainSpec::new(PICK, exact.chain(large).chain([is_table, no_slot()]));
    chains.push(pick.with_comment(
        "endpoint list NNNN:NN00 and size class, the last two digits \
        but flags, as 0:1f: 9 for at most 16, a for 32, ...",
    ));
    chains
}

/// Returns the chains of a class of large lists, which draw below `most`.
fn large_chains(phrases: Phrases, most: u32) -> [ChainSpec; 3] {
    let (once, times) = (named("draw", most), named("draw-4-times", most));
    let direct = std::iter::repeat_n(once.clone(), DIRECT);
    let draws = direct.chain(std::iter::repeat_n(times.clone(), JUMPS));
    let all = draws.chain([named("draw", most / 2)]).map(|chain| vec![jump(chain)]);
    [
        draw_chain(phrases, most),
        ChainSpec::new(times, std::iter::repeat_n(vec![jump(once)], JUMPS)),
        ChainSpec::new(named("pick", most), all.chain([no_slot()])),
    ]
}

/// Returns the chain with the only rule that draws below `most`.
fn draw_chain(phrases: Phrases, most: u32) -> ChainSpec {
    ChainSpec::new(named("draw", most), [vec![draw(phrases, most)]])
}

fn named(what: &str, most: u32) -> Name {
    format!("{what}-{most}").into()
}

/// Leads to slot 0; without it the packet continues as a packet to no service.
fn no_slot() -> Vec<Phrase> {
    vec![goto(NO_SLOT)]
}

fn is_class(size: SizeClass) -> Phrase {
    compare(SIZE_BITS, size.bits())
}

/// Returns the hash that names a slot of a hash table of this class; `None` if slots are drawn.
pub(super) fn hash(size: SizeClass, seed: u32) -> Option<Field> {
    let of = match size.table()?.0 {
        HashedSource::Address | HashedSource::AddressForAllPorts => SOURCE_ADDRESS,
        HashedSource::AddressAndPort => SOURCE_ADDRESS_AND_PORT,
    };
    Some(Field::Hash { of, modulus: size.most(), seed })
}

fn draw(phrases: Phrases, modulus: u32) -> Phrase {
    translate(phrases, Field::Random(modulus))
}

/// Translates to the endpoint in a slot; the rule ends if there is none.
fn translate(phrases: Phrases, slot: Field) -> Phrase {
    let key = [Field::PriorityBits(LIST_BITS), Field::L4Proto, slot];
    phrases.translate(&key, SetId::Endpoints.name())
}

#[cfg(test)]
mod tests {
    use nft::expression::{Bitwise, Cmp, Data, Immediate};
    use nft::{Expression, Family, Verdict};

    use super::*;

    const TRIES: usize = DIRECT + JUMPS * JUMPS;

    fn modulus(expression: &Expression) -> Option<u32> {
        if let Expression::Numgen(numgen) = expression {
            Some(numgen.modulus)
        } else if let Expression::Hash(hash) = expression {
            Some(hash.modulus)
        } else {
            None
        }
    }

    /// Returns the moduli of a packet's draws, as long as no slot is hit.
    fn draws(chains: &[ChainSpec], chain: &str, size: SizeClass) -> Vec<u32> {
        let spec = chains.iter().find(|spec| spec.chain.name == chain).unwrap();
        let mut draws = Vec::new();
        for rule in &*spec.rules {
            let action = match rule.expressions.as_slice() {
                [
                    Expression::Meta(_),
                    Expression::Bitwise(Bitwise { mask: Some(Data::Value(bits)), .. }),
                    Expression::Cmp(Cmp { value: Data::Value(class), .. }),
                    action @ ..,
                ] => {
                    let [bits, class] = [bits, class]
                        .map(|value| u32::from_ne_bytes(value.as_slice().try_into().unwrap()));
                    if class != size.bits() & bits {
                        continue;
                    }
                    action
                }
                action => action,
            };
            if let Some(target) = target(action) {
                draws.extend(self::draws(chains, target, size));
                if action == goto(target.to_owned()) {
                    return draws;
                }
                continue;
            }
            match action.iter().find_map(modulus) {
                Some(modulus) => draws.push(modulus),
                None => assert_eq!(action, phrase::clear_priority()),
            }
        }
        draws
    }

    /// Returns the chain that a rule jumps or goes to.
    fn target(expressions: &[Expression]) -> Option<&str> {
        match expressions.last() {
            Some(Expression::Immediate(Immediate {
                data: Data::Verdict(Verdict::Goto(target) | Verdict::Jump(target)),
                ..
            })) => Some(target),
            _ => None,
        }
    }

    #[test]
    fn every_size_is_drawn_below_itself_or_the_next_power_of_two_and_slot_0_comes_last() {
        let chains = chains(Phrases(Family::Ip), 1);
        for count in (1..70).chain([100, 128, 129, 5_000, 65_535, 65_536, 100_000]) {
            let size = SizeClass::of(count);
            let drawn = draws(&chains, PICK, size);
            let (last, drawn) = drawn.split_last().unwrap();
            assert_eq!(*last, 1);
            let capped = u32::try_from(count).unwrap().min(65_536);
            if capped <= u32::from(SizeClass::EXACT) {
                assert_eq!(drawn, [capped], "{count} endpoints");
                continue;
            }
            let most = capped.next_power_of_two();
            assert_eq!(drawn.len(), TRIES + 1, "{count} endpoints");
            assert!(drawn[..TRIES].iter().all(|draw| *draw == most));
            assert_eq!(drawn.last(), Some(&(most / 2)), "{count} endpoints");
            assert!(most / 2 <= capped, "the last draw of {count} always hits");
        }
    }

    #[test]
    fn a_table_is_looked_up_once_in_all_of_its_slots_and_then_in_slot_0() {
        for size in SizeClass::tables() {
            assert_eq!(draws(&chains(Phrases(Family::Ip), 1), PICK, size), [size.most(), 1]);
        }
    }

    #[test]
    fn each_modulus_has_one_rule_besides_those_of_small_lists() {
        let chains = chains(Phrases(Family::Ip), 1);
        let rules = chains.iter().flat_map(|spec| &*spec.rules);
        let draws = rules.filter(|rule| rule.expressions.iter().any(|it| modulus(it).is_some()));
        let classes = SizeClass::LARGEST.powers().chain(SizeClass::tables()).count();
        // Slot 0, and the half of the smallest large class.
        assert_eq!(draws.count(), usize::from(SizeClass::EXACT) + classes + 2);
    }

    #[test]
    fn chains_refer_only_to_chains_before_them() {
        let chains = chains(Phrases(Family::Ip), 1);
        for (i, spec) in chains.iter().enumerate() {
            for target in spec.rules.iter().filter_map(|rule| target(&rule.expressions)) {
                let mut before = chains[..i].iter();
                assert!(before.any(|spec| spec.chain.name == target), "{target}");
            }
        }
    }
}
