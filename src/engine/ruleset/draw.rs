//! The chains that choose an endpoint of a plain list.
//!
//! A slot is either drawn, or, in a table, named by a hash of the packet's source. Every table is
//! full, so the first lookup hits.
//!
//! The modulus of `numgen random mod N` is fixed in a rule, so each size class has its own rules.
//! For a list of up to [`SizeClass::EXACT`] endpoints, one draw below its size suffices. For a
//! larger list, the rules draw below the next power of two until a slot is hit, at most 18 times.
//! Then they draw once below half of it, where every slot is taken. Each draw that hits is exactly
//! even. The last draw decides for fewer than one connection in 2^16, less than the unevenness of
//! `numgen` itself (`reciprocal_scale` of 32 random bits).
//!
//! A packet that reads a frontend before a commit and its list after it may miss a slot. So may one
//! that looks up a slot while it is replaced, before Linux 6.17 ([`super::Lookups`]). It falls
//! back to slot 0, which exists as long as the list has any endpoint. Every class ends with that
//! lookup, so no slot is looked up only once.

use nft::{Name, Selector, Statement};

use super::base::{ChainSpec, compare};
use super::number::{LIST_BITS, SIZE_BITS, SizeClass, TABLE_BITS};
use super::sets::SetId;
use crate::model::HashedSource;

/// The chain that chooses an endpoint of a plain list.
pub(super) const PICK: &str = "pick";

/// Number of draws for a large list in the chain of its class.
const DIRECT: usize = 2;

/// Number of jumps to a chain of further draws, at two levels: this keeps the table short.
const JUMPS: usize = 4;

/// The chain that finds the slot of a table.
const HASH: &str = "hash";

/// Returns the chains, each after those that it refers to.
pub(super) fn chains(seed: u32) -> Vec<ChainSpec> {
    let powers = || SizeClass::LARGEST.powers();
    let half = powers().map(|size| for_class(size, size.most() / 2));
    let again = jumps("draw-4-times").chain(half).chain(no_draw_hit());
    let mut chains = vec![
        ChainSpec::new("draw-of-many", powers().map(|size| for_class(size, size.most()))),
        ChainSpec::new("draw-4-times", jumps("draw-of-many")),
        ChainSpec::new("pick-again", again),
    ];
    chains.extend(powers().map(|size| {
        let draws = std::iter::repeat_n(vec![draw(size.most())], DIRECT);
        ChainSpec::new(pick_chain(size), draws.chain([vec![Statement::goto("pick-again")]]))
    }));
    let table = |size| Some(vec![is_class(size), translate(hash(size, seed)?)]);
    let tables = SizeClass::tables().filter_map(table);
    chains.push(ChainSpec::new(HASH, tables.chain(no_draw_hit())).with_comment(
        "the table's slot that a hash of the source names: as 0:1f, 18 for 251 slots by address \
        and port, 1c by address, ...",
    ));
    let exact = SizeClass::exact().map(|size| for_class(size, size.most()));
    let is_table = vec![compare(TABLE_BITS, TABLE_BITS), Statement::goto(HASH)];
    let large = powers().map(|size| vec![is_class(size), Statement::goto(pick_chain(size))]);
    let all = exact.chain(large).chain([is_table]).chain(no_draw_hit());
    let pick = ChainSpec::new(PICK, all);
    chains.push(pick.with_comment(
        "endpoint list NNNN:NN00 and size class, the last two digits \
        but flags, as 0:1f: 9 for at most 16, a for 32, ...",
    ));
    chains
}

fn pick_chain(size: SizeClass) -> Name {
    format!("pick-{}", size.most()).into()
}

fn jumps(chain: &'static str) -> impl Iterator<Item = Vec<Statement>> {
    std::iter::repeat_n(vec![Statement::jump(chain)], JUMPS)
}

fn is_class(size: SizeClass) -> Statement {
    compare(SIZE_BITS, size.bits())
}

fn for_class(size: SizeClass, modulus: u32) -> Vec<Statement> {
    vec![is_class(size), draw(modulus)]
}

/// Returns the hash that names a slot of a table of this class; `None` if slots are drawn.
pub(super) fn hash(size: SizeClass, seed: u32) -> Option<Selector> {
    let modulus = size.most();
    Some(match size.table()?.0 {
        HashedSource::Address => Selector::SaddrHash { modulus, seed },
        HashedSource::AddressAndPort => Selector::SourceHash { modulus, seed },
    })
}

fn draw(modulus: u32) -> Statement {
    translate(Selector::Random(modulus))
}

/// Translates to the endpoint in a slot; the rule ends if there is none.
fn translate(slot: Selector) -> Statement {
    let key = vec![Selector::PriorityBits(LIST_BITS), Selector::L4Proto, slot];
    Statement::DnatMap { key, map: SetId::Endpoints.name().into() }
}

/// Tries slot 0; without it the packet continues as a packet to no service.
fn no_draw_hit() -> [Vec<Statement>; 2] {
    [vec![draw(1)], vec![Statement::PriorityClear]]
}

#[cfg(test)]
mod tests {
    use nft::{Operand, Verdict};

    use super::*;

    const TRIES: usize = DIRECT + JUMPS * JUMPS;

    /// Returns the moduli of a packet's draws, as long as no slot is hit.
    #[allow(clippy::wildcard_enum_match_arm)]
    fn draws(chains: &[ChainSpec], chain: &str, size: SizeClass) -> Vec<u32> {
        let spec = chains.iter().find(|spec| spec.chain.name == chain).unwrap();
        let mut draws = Vec::new();
        for rule in &*spec.rules {
            let (condition, action) = match rule.statements.as_slice() {
                [
                    Statement::Compare {
                        selector: Selector::PriorityBits(bits),
                        value: Operand::Class(class),
                        ..
                    },
                    action,
                ] => (*class == size.bits() & bits, action),
                [action] => (true, action),
                other => panic!("unexpected rule {other:?}"),
            };
            match action {
                _ if !condition => {}
                Statement::DnatMap { key, .. } => match key.last() {
                    Some(
                        Selector::Random(modulus)
                        | Selector::SaddrHash { modulus, .. }
                        | Selector::SourceHash { modulus, .. },
                    ) => draws.push(*modulus),
                    other => panic!("no draw: {other:?}"),
                },
                Statement::Verdict(Verdict::Jump(target)) => {
                    draws.extend(self::draws(chains, target, size));
                }
                Statement::Verdict(Verdict::Goto(target)) => {
                    draws.extend(self::draws(chains, target, size));
                    return draws;
                }
                Statement::PriorityClear => {}
                other => panic!("unexpected statement {other:?}"),
            }
        }
        draws
    }

    #[test]
    fn every_size_is_drawn_below_itself_or_the_next_power_of_two_and_slot_0_comes_last() {
        let chains = chains(1);
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
            assert_eq!(draws(&chains(1), PICK, size), [size.most(), 1]);
        }
    }

    #[test]
    fn chains_refer_only_to_chains_before_them() {
        let chains = chains(1);
        for (i, spec) in chains.iter().enumerate() {
            for statement in spec.rules.iter().flat_map(|rule| &rule.statements) {
                if let Statement::Verdict(Verdict::Goto(target) | Verdict::Jump(target)) = statement
                {
                    let mut before = chains[..i].iter();
                    assert!(before.any(|spec| spec.chain.name == *target), "{target}");
                }
            }
        }
    }
}
