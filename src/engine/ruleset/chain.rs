//! Chains with their rules, and the phrases that several chains share.

use std::sync::Arc;

use nft::{Chain, Name, Rule};

use super::field::Field;
use super::phrase::{Phrase, Phrases, priority_bits};
use super::sets::SetId;

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainSpec {
    /// The chain.
    pub chain: Chain,
    /// The rules, in order.
    pub rules: Arc<Vec<Rule>>,
}

impl ChainSpec {
    /// Returns a chain without a hook.
    pub(crate) fn new(name: impl Into<Name>, rules: impl IntoIterator<Item = Vec<Phrase>>) -> Self {
        let name = name.into();
        let rules = Arc::new(rules.into_iter().map(|rule| rule_of(&name, &rule)).collect());
        Self { chain: Chain::new(name), rules }
    }

    /// Inserts a rule before all others.
    pub(super) fn put_first(&mut self, phrases: &[Phrase]) {
        let rule = rule_of(&self.chain.name, phrases);
        Arc::make_mut(&mut self.rules).insert(0, rule);
    }

    /// Adds a rule after the others.
    pub(super) fn put_last(&mut self, phrases: &[Phrase]) {
        let rule = rule_of(&self.chain.name, phrases);
        Arc::make_mut(&mut self.rules).push(rule);
    }

    /// Sets the comment, at most 128 bytes.
    pub(crate) fn with_comment(mut self, comment: &str) -> Self {
        self.chain = self.chain.with_comment(comment);
        self
    }
}

/// Returns a rule of a chain.
pub(super) fn rule_of(chain: &Name, phrases: &[Phrase]) -> Rule {
    Rule { chain: chain.clone(), expressions: phrases.concat(), comment: None }
}

impl Phrases {
    /// Sets the priority to the value of the key in a map; the rule ends if there is none.
    pub(super) fn look_up(self, key: &[Field], map: SetId) -> Phrase {
        self.set_priority(key, map.name())
    }
}

/// Matches packets whose priority has `value` in `bits`.
pub(crate) fn compare(bits: u32, value: u32) -> Phrase {
    priority_bits(bits, value).equal()
}
