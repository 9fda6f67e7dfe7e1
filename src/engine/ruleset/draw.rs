//! The chains that choose an endpoint of a plain list.
//!
//! A slot is either drawn, or, in a hash table, named by a hash of the packet's source. Every hash
//! table is full, so the first lookup hits.
//!
//! The modulus of `numgen random mod N` is fixed in a rule, so each size class has its own rules.
//! They are as few as possible: the kernel compares each new endpoint with every rule that looks up
//! the map (`nft_add_set_elem`). So what several chains draw is a chain of its own, and a class above
//! [`SizeClass::EXACT`] has chains only if a list uses it. Its rules and the first route of the class
//! come in one commit. A packet that runs the rules from before gets slot 0.
//!
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

use std::collections::BTreeSet;

use nft::expression::{Bitwise, Cmp, Data};
use nft::{Expression, ListedRule, Name};

use super::chain::{ChainSpec, compare};
use super::field::{Field, SOURCE_ADDRESS, SOURCE_ADDRESS_AND_PORT};
use super::number::{LIST_BITS, SIZE_BITS, SizeClass};
use super::phrase::{self, Phrase, Phrases, goto, jump};
use super::sets::SetId;
use super::size_classes::SizeClasses;
use crate::model::HashedSource;

/// The chain that chooses an endpoint of a plain list.
pub(super) const PICK: &str = "pick";

/// Number of draws for a large list before the jumps.
const DIRECT: usize = 2;

/// Number of jumps to a chain of further draws, at two levels: this keeps the table short.
const JUMPS: usize = 4;

/// The chain for a packet that no slot was found for.
const NO_SLOT: &str = "slot-0";

/// The chain for lists of other size classes, which changes with the classes in use.
const PICK_OTHER: &str = "pick-other";

/// Returns the chains, each after those that it refers to. `classes` are those in use beside the exact
/// ones.
pub(super) fn chains(phrases: Phrases, classes: SizeClasses, seed: u32) -> Vec<ChainSpec> {
    let drawn = || classes.iter().filter(|size| size.table().is_none()).map(SizeClass::most);
    let moduli: BTreeSet<u32> = drawn().flat_map(|most| [most / 2, most]).collect();
    let mut chains =
        vec![ChainSpec::new(NO_SLOT, [vec![draw(phrases, 1)], vec![phrase::clear_priority()]])];
    chains.extend(
        moduli
            .into_iter()
            .map(|modulus| ChainSpec::new(named("draw", modulus), [vec![draw(phrases, modulus)]])),
    );
    chains.extend(drawn().flat_map(large_chains));
    let table = |size| {
        let slot = translate(phrases, hash(size, seed)?);
        Some(ChainSpec::new(chain_of(size), [vec![slot], no_slot()]))
    };
    chains.extend(classes.iter().filter_map(table));
    let other = classes.iter().map(|size| vec![is_class(size), goto(chain_of(size))]);
    chains.push(ChainSpec::new(PICK_OTHER, other.chain([no_slot()])).with_comment(
        "size class, the last two digits but flags, as 0:1f: 9 for at most 16 endpoints, a for 32, \
        ..., 18 for a table of 251 slots by address and port, 1c by address, ...",
    ));
    let exact = SizeClass::exact().map(|size| vec![is_class(size), draw(phrases, size.most())]);
    let pick = ChainSpec::new(PICK, exact.chain([vec![goto(PICK_OTHER)]]));
    chains.push(pick.with_comment("endpoint list NNNN:NN00 and its size, as 0:1f"));
    chains
}

/// Returns the size classes that the rules of a table distinguish.
pub fn classes_of<'a>(rules: impl Iterator<Item = &'a ListedRule>) -> SizeClasses {
    let class = |rule: &ListedRule| match rule.expressions.as_slice() {
        [
            Expression::Meta(_),
            Expression::Bitwise(Bitwise { mask: Some(Data::Value(mask)), .. }),
            Expression::Cmp(Cmp { value: Data::Value(class), .. }),
            ..,
        ] => {
            let bits = u32::from_ne_bytes(class[..].try_into().ok()?);
            SizeClass::from_bits(bits).filter(|_| mask[..] == SIZE_BITS.to_ne_bytes())
        }
        _ => None,
    };
    rules.filter_map(class).collect()
}

/// Returns the chain of a class of large lists, or of tables.
fn chain_of(size: SizeClass) -> Name {
    match size.table() {
        None => named("pick", size.most()),
        Some((HashedSource::AddressAndPort, _)) => named("hash-address-port", size.most()),
        Some((HashedSource::Address | HashedSource::AddressForAllPorts, _)) => {
            named("hash-address", size.most())
        }
    }
}

/// Returns the chains of a class of large lists, which draw below `most`.
fn large_chains(most: u32) -> [ChainSpec; 2] {
    let (once, times) = (named("draw", most), named("draw-4-times", most));
    let direct = std::iter::repeat_n(once.clone(), DIRECT);
    let draws = direct.chain(std::iter::repeat_n(times.clone(), JUMPS));
    let all = draws.chain([named("draw", most / 2)]).map(|chain| vec![jump(chain)]);
    [
        ChainSpec::new(times, std::iter::repeat_n(vec![jump(once)], JUMPS)),
        ChainSpec::new(named("pick", most), all.chain([no_slot()])),
    ]
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
    use nft::expression::Immediate;
    use nft::{Family, Rule, Verdict};

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
                        .map(|value| u32::from_ne_bytes(value[..].try_into().unwrap()));
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

    /// The chains for all classes.
    fn all_chains() -> Vec<ChainSpec> {
        chains(Phrases(Family::Ip), SizeClass::all().collect(), 1)
    }

    #[test]
    fn every_size_is_drawn_below_itself_or_the_next_power_of_two_and_slot_0_comes_last() {
        for count in (1..70).chain([100, 128, 129, 5_000, 65_535, 65_536, 100_000]) {
            let size = SizeClass::of(count);
            let only = chains(Phrases(Family::Ip), [size].into_iter().collect(), 1);
            let drawn = draws(&all_chains(), PICK, size);
            assert_eq!(draws(&only, PICK, size), drawn, "{count} endpoints");
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
            assert_eq!(draws(&all_chains(), PICK, size), [size.most(), 1]);
        }
    }

    #[test]
    fn a_class_without_chains_gets_slot_0() {
        let chains = chains(Phrases(Family::Ip), SizeClasses::default(), 1);
        for size in SizeClass::all().filter(|size| !size.is_exact()) {
            assert_eq!(draws(&chains, PICK, size), [1], "{size:?}");
        }
    }

    #[test]
    fn each_modulus_has_one_rule_besides_those_of_small_lists() {
        let draws = |chains: &[ChainSpec]| {
            let rules = chains.iter().flat_map(|spec| &*spec.rules);
            rules.filter(|rule| rule.expressions.iter().any(|it| modulus(it).is_some())).count()
        };
        // Slot 0, and the half of the smallest large class.
        let others = SizeClass::all().filter(|size| !size.is_exact()).count() + 2;
        assert_eq!(draws(&all_chains()), usize::from(SizeClass::EXACT) + others);
        let few = chains(Phrases(Family::Ip), SizeClasses::default(), 1);
        assert_eq!(draws(&few), 9);
    }

    #[test]
    fn classes_are_read_from_the_rules_that_were_written() {
        let classes = [9, 18, 24, 31].map(|bits| SizeClass::from_bits(bits).unwrap());
        let classes: SizeClasses = classes.into_iter().collect();
        let chains = chains(Phrases(Family::Ip), classes, 1);
        let listed = |rule: &Rule| ListedRule::of(rule, "t", 0);
        let rules: Vec<_> = chains.iter().flat_map(|spec| &*spec.rules).map(listed).collect();
        assert_eq!(classes_of(rules.iter()), classes);
    }

    #[test]
    fn chains_refer_only_to_chains_before_them() {
        let chains = all_chains();
        for (i, spec) in chains.iter().enumerate() {
            for target in spec.rules.iter().filter_map(|rule| target(&rule.expressions)) {
                let mut before = chains[..i].iter();
                assert!(before.any(|spec| spec.chain.name == target), "{target}");
            }
        }
    }
}
