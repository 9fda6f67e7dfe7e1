//! Rules: which of a chain stay, and the messages for the others.

use ahash::HashMap;

use super::edits::{Kept, common_ends, kept};
use super::elements::Elements;
use super::{DifferenceError, Replaced, Script, Sets};
use crate::abi::*;
use crate::any::SetContents;
use crate::expression::{Expression, Reference, write_list};
use crate::kept;
use crate::listed_rule::ListedRule;
use crate::message_kind::MessageKind;
use crate::netlink::attr::{AttrWriter, TooLong};
use crate::whole::WholeTable;

/// The rules of one chain before and after.
pub(super) struct ChainRules<'a> {
    pub(super) chain: &'a str,
    installed: Vec<&'a ListedRule>,
    /// With their indices in the table.
    desired: Vec<(usize, &'a ListedRule)>,
    kept: Kept,
}

impl<'a> ChainRules<'a> {
    /// Compares the rules of all chains of both tables.
    pub(super) fn of(
        (installed, installed_sets): (&'a WholeTable, &Sets<'a>),
        (desired, desired_sets): (&'a WholeTable, &Sets<'a>),
        replaced: &Replaced<'_>,
    ) -> Result<Vec<Self>, TooLong> {
        let (mut from, mut to) = (by_chain(installed), by_chain(desired));
        let mut chains: Vec<&str> = from.keys().copied().collect();
        chains.extend(to.keys().filter(|chain| !from.contains_key(*chain)));
        chains.sort_unstable();
        let mut numbers = HashMap::default();
        let mut all = Vec::new();
        for chain in chains {
            let (from, to) =
                (from.remove(chain).unwrap_or_default(), to.remove(chain).unwrap_or_default());
            let stays = |sets: &Sets<'_>, rule: &ListedRule| {
                replaced.0.is_empty()
                    || !replaced.0.contains(&Reference::Chain(chain))
                        && !replaced.is_used_by_rule(sets, rule)
            };
            // Most rules are the same in both, which is faster to see than what they contain.
            let (start, end) = common_ends(&from, &to, |(_, a), (_, b)| {
                (&a.expressions, &a.userdata) == (&b.expressions, &b.userdata)
                    && anonymous(installed_sets, a).is_empty()
                    && anonymous(desired_sets, b).is_empty()
                    && stays(desired_sets, b)
            });
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for (sets, rules, numbered) in
                [(installed_sets, &from, &mut before), (desired_sets, &to, &mut after)]
            {
                for (index, (_, rule)) in rules.iter().enumerate() {
                    // Equal rules have equal numbers. A rule that must go has no number, so it
                    // equals no rule.
                    let next = numbers.len();
                    let back = rules.len() - index;
                    let number = match (index < start, back <= end) {
                        (true, _) => usize::MAX - index,
                        (false, true) => usize::MAX - start - back,
                        (false, false) => *numbers.entry(contents(sets, rule)?).or_insert(next),
                    };
                    numbered.push(stays(sets, rule).then_some(number));
                }
            }
            let kept = kept(&before, &after);
            let installed = from.into_iter().map(|(_, rule)| rule).collect();
            all.push(Self { chain, installed, desired: to, kept });
        }
        Ok(all)
    }

    /// Returns the rules that go.
    pub(super) fn deleted(&self) -> Vec<&'a ListedRule> {
        let mut kept = self.kept.iter().map(|(from, _)| *from).peekable();
        let mut deleted = Vec::new();
        for (index, rule) in self.installed.iter().enumerate() {
            if kept.next_if_eq(&index).is_none() {
                deleted.push(*rule);
            }
        }
        deleted
    }

    /// Returns whether no rule stays.
    pub(super) fn deletes_all(&self) -> bool {
        self.kept.is_empty() && self.installed.len() > 1
    }

    /// Returns the rules that come, each with the rule before which it goes; at the end of the chain
    /// without.
    pub(super) fn added(&self) -> Vec<(&'a ListedRule, Option<&'a ListedRule>)> {
        let mut kept = self.kept.iter().peekable();
        let mut added = Vec::new();
        for (index, (_, rule)) in self.desired.iter().enumerate() {
            if kept.next_if(|(_, to)| *to == index).is_none() {
                let next = kept.peek().and_then(|(from, _)| self.installed.get(*from).copied());
                added.push((*rule, next));
            }
        }
        added
    }

    /// Returns the rules that stay: the index in the desired table, and the handle.
    pub(super) fn handles(&self) -> impl Iterator<Item = (usize, u64)> {
        self.kept.iter().filter_map(|(from, to)| {
            Some((self.desired.get(*to)?.0, self.installed.get(*from)?.handle))
        })
    }
}

/// Returns the rules of each chain, with their indices in the table.
fn by_chain(table: &WholeTable) -> HashMap<&str, Vec<(usize, &ListedRule)>> {
    let mut chains: HashMap<&str, Vec<_>> = HashMap::default();
    for (index, rule) in table.rules.iter().enumerate() {
        chains.entry(&rule.chain).or_default().push((index, rule));
    }
    chains
}

fn known_handle(rule: &ListedRule) -> Result<u64, DifferenceError> {
    let unknown = || DifferenceError::UnknownHandle(rule.chain.clone());
    Some(rule.handle).filter(|handle| *handle != 0).ok_or_else(unknown)
}

/// Returns the anonymous sets of a rule.
fn anonymous<'a>(sets: &Sets<'a>, rule: &ListedRule) -> Vec<&'a SetContents> {
    let sets = rule
        .expressions
        .iter()
        .filter_map(Expression::set)
        .filter_map(|name| sets.get(name).copied());
    sets.filter(|contents| contents.set.is_anonymous()).collect()
}

/// Returns bytes that are equal for rules that are equal: expressions in normal form, the contents
/// of anonymous sets instead of their names, and user data.
fn contents(sets: &Sets<'_>, rule: &ListedRule) -> Result<Vec<u8>, TooLong> {
    let mut bytes = Vec::new();
    let mut w = AttrWriter::listed(&mut bytes);
    let sets = anonymous(sets, rule);
    for mut expression in crate::expression::normal_form(&rule.expressions) {
        if expression.set().is_some_and(|name| sets.iter().any(|it| it.set.name == name)) {
            expression.rename_set(String::new());
        }
        w.nest(NFTA_LIST_ELEM, |w| expression.encode(w));
    }
    for contents in sets {
        let set = crate::any::AnySet { name: String::new(), ..contents.set.clone() };
        let mut set = set.encode("", 1)?;
        for element in Elements::all(contents).added {
            element.encode(&mut AttrWriter::new(&mut set));
        }
        w.encoded(&set);
    }
    kept::write_userdata(rule.userdata.as_ref(), NFTA_RULE_USERDATA, &mut w);
    w.finish()?;
    Ok(bytes)
}

impl Replaced<'_> {
    /// Returns whether a rule or one of its anonymous sets uses a replaced object.
    fn is_used_by_rule(&self, sets: &Sets<'_>, rule: &ListedRule) -> bool {
        let in_set = |contents: &SetContents| {
            let kind = contents.set.object_type;
            contents.elements.iter().any(|element| self.is_used_by_element(element, kind))
        };
        rule.expressions.iter().any(|expression| self.is_used_by(expression))
            || anonymous(sets, rule).into_iter().any(in_set)
    }
}

impl Script<'_> {
    /// Adds the message that deletes a rule.
    pub(super) fn delete_rule(&mut self, rule: &ListedRule) -> Result<(), DifferenceError> {
        let handle = known_handle(rule)?;
        Ok(self.message(MessageKind::DelRule, |w| {
            w.str(NFTA_RULE_CHAIN, &rule.chain);
            w.be64(NFTA_RULE_HANDLE, handle);
        })?)
    }

    /// Adds the messages for a rule and its anonymous sets. `before` is the next rule.
    pub(super) fn add_rule(
        &mut self,
        rule: &ListedRule,
        before: Option<&ListedRule>,
    ) -> Result<(), DifferenceError> {
        let before = before.map(known_handle).transpose()?;
        let mut expressions = rule.expressions.clone();
        for expression in &mut expressions {
            let contents = expression.set().and_then(|name| self.desired_sets.get(name).copied());
            if let Some(contents) = contents.filter(|it| it.set.is_anonymous()) {
                let name = self.add_anonymous(contents)?;
                expression.rename_set(name);
            }
        }
        Ok(self.message(MessageKind::NewRule, |w| {
            w.str(NFTA_RULE_CHAIN, &rule.chain);
            write_list(&expressions, NFTA_RULE_EXPRESSIONS, w);
            if let Some(handle) = before {
                w.be64(NFTA_RULE_POSITION, handle);
            }
            kept::write_userdata(rule.userdata.as_ref(), NFTA_RULE_USERDATA, w);
        })?)
    }

    /// Adds the messages for a set of one rule. Returns its name, which no other set has.
    fn add_anonymous(&mut self, contents: &SetContents) -> Result<String, TooLong> {
        let name = loop {
            let name = format!("__set{}", self.next_anonymous);
            self.next_anonymous += 1;
            if !self.installed_sets.contains_key(&*name) {
                break name;
            }
        };
        let set = crate::any::AnySet { name: name.clone(), ..contents.set.clone() };
        let attributes = set.encode(&self.desired.name, self.set_id())?;
        self.encoded(MessageKind::NewSet, attributes);
        self.add_elements(&name, &Elements::all(contents).added)?;
        self.difference.sets.push(SetContents { set, elements: contents.elements.clone() });
        Ok(name)
    }
}
