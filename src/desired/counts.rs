//! The tree of chains and sets that finds the number of endpoints of a frontend.
//!
//! A rule's `numgen random mod N` is fixed, so each N needs a chain of its own. Up to
//! [`EXACT`] endpoints it has one. Above, counts share the chain of the next power of two C: it
//! draws below C up to [`TRIES`] times until it hits a slot, and then once below C/2, where every
//! slot is taken. Each draw that hits is exactly even; the last one happens to fewer than one
//! connection in 2^[`TRIES`], which is less than the unevenness of `numgen` itself (the kernel
//! scales 32 random bits). So thousands of endpoints need few chains, and a change of
//! their number is elements only.
//!
//! Sets `…-ge-N` say which frontends have N endpoints or more. They are asked in an order that
//! finds small counts first, since most services have few endpoints. A frontend is a member only
//! of the sets on its path.

use std::ops::Range;

use super::affinity;
use super::base::ChainSpec;
use crate::nft::{Selector, Statement, Verdict};

/// Counts up to this one have a chain of their own.
const EXACT: u32 = 8;

/// Draws below the power of two before the last one, which always hits.
const TRIES: u32 = 16;

/// The draws stand in a chain that is jumped to this often, which keeps the table short.
const JUMPS: u32 = 4;

/// One tree: its names, its key and the highest count it can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// The chain to `goto`.
    pub(super) root: &'static str,
    /// The map that holds the endpoints; also the prefix of the tree's chains and sets.
    pub(super) map: &'static str,
    /// What the frontends are known by.
    pub(super) key: &'static [Selector],
    /// The most endpoints that can be told apart; a power of two.
    pub(super) limit: u32,
    /// What a packet gets when a slot is drawn.
    pub(super) pick: Pick,
}

/// What a draw leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The endpoint's address and port, unless the client has one already: the map tells the
    /// frontend's session.
    Endpoint {
        /// The map of sessions.
        sessions: &'static str,
    },
    /// The number of an endpoint as the packet's priority, with which it returns from the tree.
    AffinityEndpoint,
}

impl Tree {
    /// The counts at which the sets `…-ge-N` split, ascending. Their position is the set's bit.
    pub(super) fn bounds(&self) -> Vec<u32> {
        self.leaves().skip(1).map(|leaf| leaf.start).collect()
    }

    /// The name of the set of frontends with `bound` or more endpoints.
    pub(super) fn set_name(&self, bound: u32) -> String {
        format!("{}-ge-{bound}", self.map)
    }

    /// The chains of the tree: leaves first, so that every `goto` finds its target.
    pub(super) fn chains(&self) -> Vec<ChainSpec> {
        let leaves: Vec<_> = self.leaves().collect();
        let mut chains: Vec<_> = leaves.iter().flat_map(|leaf| self.leaf_chains(leaf)).collect();
        let remembered = match self.pick {
            Pick::AffinityEndpoint => None,
            Pick::Endpoint { sessions } => {
                let (key, map) = (self.key.to_vec(), sessions.into());
                Some(vec![Statement::PriorityMap { key, map }, Statement::jump(affinity::ROOT)])
            }
        };
        let decisions = self.decisions(&leaves, &mut chains);
        chains.push(ChainSpec::new(self.root, remembered.into_iter().chain(decisions)));
        chains
    }

    /// For each leaf, the sets in [`Tree::bounds`] that its frontends are members of.
    pub(super) fn membership_table(&self) -> Vec<u64> {
        let leaves: Vec<_> = self.leaves().collect();
        (0..leaves.len()).map(|leaf| memberships(&leaves, leaf)).collect()
    }

    /// The chains that pick among so many endpoints, ascending.
    pub(super) fn leaf_names(&self) -> Vec<String> {
        self.leaves().map(|leaf| self.leaf_name(&leaf)).collect()
    }

    /// Ranges of counts with a chain of their own, ascending.
    fn leaves(&self) -> impl Iterator<Item = Range<u32>> {
        let exact = (1..=EXACT).map(|count| count..count + 1);
        let powers = (EXACT.ilog2()..self.limit.ilog2()).map(|n| (1 << n) + 1..(1 << (n + 1)) + 1);
        exact.chain(powers)
    }

    /// The chain that picks among the endpoints of a leaf, after one that it jumps to.
    fn leaf_chains(&self, leaf: &Range<u32>) -> Vec<ChainSpec> {
        let most = leaf.end - 1;
        let name = self.leaf_name(leaf);
        if leaf.start == 1 {
            return vec![ChainSpec::new(name, [self.draw(most)])];
        }
        // A packet may see one set before a commit and the next one after it, and then a slot
        // can be missing. Slot 0 is there as long as the frontend has any endpoint.
        let fall_back = vec![Statement::goto(self.leaf_name(&(1..2)))];
        if leaf.len() == 1 {
            return vec![ChainSpec::new(name, [self.draw(most), fall_back])];
        }
        let draws = |times| (0..times).map(|_| self.draw(most));
        let last = [self.draw(most / 2), fall_back];
        if self.pick == Pick::AffinityEndpoint {
            // To return from the tree it must not have been left by a jump.
            return vec![ChainSpec::new(name, draws(TRIES).chain(last))];
        }
        let tries = format!("{name}-tries");
        let jumps = vec![vec![Statement::jump(tries.clone())]; JUMPS as usize];
        let chain = ChainSpec::new(name, jumps.into_iter().chain(last));
        vec![ChainSpec::new(tries, draws(TRIES / JUMPS)), chain]
    }

    fn leaf_name(&self, leaf: &Range<u32>) -> String {
        format!("{}-{}", self.map, leaf.end - 1)
    }

    fn draw(&self, modulus: u32) -> Vec<Statement> {
        let map = self.map.into();
        let key = [self.key, &[Selector::Random(modulus)]].concat();
        match self.pick {
            Pick::Endpoint { .. } => vec![Statement::DnatMap { key, map }],
            Pick::AffinityEndpoint => {
                vec![Statement::PriorityMap { key, map }, Statement::Verdict(Verdict::Return)]
            }
        }
    }

    /// The rules that decide between `leaves`; writes the chains that they refer to.
    fn decisions(&self, leaves: &[Range<u32>], chains: &mut Vec<ChainSpec>) -> Vec<Vec<Statement>> {
        let mut rules = Vec::new();
        let mut rest = leaves;
        while rest.len() > 1 {
            let (fewer, more) = rest.split_at(split(rest));
            let bound = more[0].start;
            let target = match more {
                [leaf] => self.leaf_name(leaf),
                _ => {
                    let target = format!("{}-{bound}-or-more", self.root);
                    let decisions = self.decisions(more, chains);
                    chains.push(ChainSpec::new(target.clone(), decisions));
                    target
                }
            };
            let has_more = Statement::in_set(self.key, self.set_name(bound));
            rules.push(vec![has_more, Statement::goto(target)]);
            rest = fewer;
        }
        rules.push(vec![Statement::goto(self.leaf_name(&rest[0]))]);
        rules
    }
}

/// The position of the leaf for `count` endpoints; `None` if there is no endpoint.
pub(super) fn leaf_of(count: usize, limit: u32) -> Option<usize> {
    let count = u32::try_from(count).unwrap_or(u32::MAX).min(limit);
    match count {
        0 => None,
        1..=EXACT => Some(count as usize - 1),
        _ => Some((EXACT - 1 + count.next_power_of_two().ilog2() - EXACT.ilog2()) as usize),
    }
}

/// The sets that lead to `leaf`: at each split, the one that is answered with yes.
fn memberships(leaves: &[Range<u32>], leaf: usize) -> u64 {
    let (mut low, mut high, mut mask) = (0, leaves.len(), 0);
    while high - low > 1 {
        let split = low + split(&leaves[low..high]);
        if leaf >= split {
            mask |= 1 << (split - 1);
            low = split;
        } else {
            high = split;
        }
    }
    mask
}

/// Where to split `leaves`, of which there are at least two: the first of the upper part.
///
/// The n-th leaf is taken to be as frequent as 1/n, and both parts weigh about the same.
fn split(leaves: &[Range<u32>]) -> usize {
    let weight = |leaf: &Range<u32>| {
        leaf_of(leaf.start as usize, u32::MAX).map_or(0.0, |position| 1.0 / (position + 1) as f64)
    };
    let total: f64 = leaves.iter().map(weight).sum();
    let mut below = 0.0;
    for (i, leaf) in leaves.iter().enumerate().skip(1) {
        below += weight(&leaves[i - 1]);
        if below + weight(leaf) / 2.0 >= total / 2.0 {
            return i;
        }
    }
    leaves.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree {
        root: "pick-endpoint",
        map: "endpoints",
        key: &[Selector::Daddr, Selector::L4Proto, Selector::Dport],
        limit: 65_536,
        pick: Pick::Endpoint { sessions: "sessions" },
    };

    fn modulus(key: &[Selector]) -> u32 {
        match key.last() {
            Some(Selector::Random(modulus)) => *modulus,
            other => panic!("no draw: {other:?}"),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm)]
    /// Follows a packet to a frontend with `count` endpoints; the draws it makes and its steps.
    fn walk(chains: &[ChainSpec], count: usize) -> (Vec<u32>, usize) {
        let leaf = leaf_of(count, TREE.limit).unwrap();
        let mask = TREE.membership_table()[leaf];
        let bounds = TREE.bounds();
        let is_member = |set: &str| {
            let bit = bounds.iter().position(|bound| TREE.set_name(*bound) == set).unwrap();
            mask >> bit & 1 == 1
        };
        let rules_of = |chain: &str| {
            let spec = chains.iter().find(|spec| spec.chain.name == chain).unwrap();
            spec.rules.iter()
        };
        let (mut chain, mut steps, mut draws) = (TREE.root.to_owned(), 0, Vec::new());
        'chain: while chain != "endpoints-1" {
            for rule in rules_of(&chain) {
                let (condition, action) = match rule.statements.as_slice() {
                    [Statement::InSet { set, .. }, action] => (is_member(set), action),
                    [Statement::PriorityMap { .. }, Statement::Verdict(Verdict::Jump(_))] => {
                        continue;
                    }
                    [action] => (true, action),
                    other => panic!("unexpected rule {other:?}"),
                };
                match action {
                    Statement::DnatMap { key, .. } => draws.push(modulus(key)),
                    Statement::Verdict(Verdict::Jump(target)) => {
                        draws.extend(rules_of(target).map(|rule| match &rule.statements[..] {
                            [Statement::DnatMap { key, .. }] => modulus(key),
                            other => panic!("unexpected rule {other:?}"),
                        }));
                    }
                    Statement::Verdict(Verdict::Goto(target)) => {
                        steps += 1;
                        if condition {
                            chain = target.to_string();
                            continue 'chain;
                        }
                    }
                    other => panic!("unexpected statement {other:?}"),
                }
            }
        }
        (draws, steps)
    }

    #[test]
    fn every_count_is_drawn_below_itself_or_the_next_power_of_two() {
        let chains = TREE.chains();
        for count in (2..70).chain([100, 128, 129, 5_000, 65_535, 65_536, 100_000]) {
            let (draws, _) = walk(&chains, count);
            let capped = u32::try_from(count).unwrap().min(TREE.limit);
            if capped <= EXACT {
                assert_eq!(draws, [capped], "{count} endpoints");
            } else {
                let most = capped.next_power_of_two();
                assert_eq!(draws.len(), TRIES as usize + 1, "{count} endpoints");
                assert!(draws[..TRIES as usize].iter().all(|draw| *draw == most));
                assert_eq!(draws.last(), Some(&(most / 2)), "{count} endpoints");
                assert!(most / 2 <= capped, "the last draw of {count} always hits");
            }
        }
    }

    #[test]
    fn small_counts_are_found_in_few_steps_and_no_count_takes_many() {
        let chains = TREE.chains();
        let steps = |count| walk(&chains, count).1;
        assert!(
            (1..=5).all(|count| steps(count) <= 6),
            "{:?}",
            (1..=5).map(steps).collect::<Vec<_>>()
        );
        let most = (1..=65_536).step_by(97).map(steps).max();
        assert!(most <= Some(10), "{most:?}");
    }

    #[test]
    fn a_goto_leads_only_to_chains_that_come_before() {
        let chains = TREE.chains();
        for (i, spec) in chains.iter().enumerate() {
            for statement in spec.rules.iter().flat_map(|rule| &rule.statements) {
                if let Statement::Verdict(Verdict::Goto(target)) = statement {
                    let mut before = chains[..i].iter();
                    assert!(before.any(|spec| spec.chain.name == *target), "{target}");
                }
            }
        }
    }

    #[test]
    fn no_endpoint_has_no_leaf() {
        assert_eq!(leaf_of(0, TREE.limit), None);
    }
}
