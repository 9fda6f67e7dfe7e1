//! Differences as scripts of nft(8).

use std::fmt;

use super::{Difference, RawMessage};
use crate::abi::*;
use crate::any::{AnySet, SetContents, decode_any_elements};
use crate::chain::Chain;
use crate::fields::{DecodeError, Fields};
use crate::flowtable::Flowtable;
use crate::listed_rule::ListedRule;
use crate::message_kind::MessageKind;
use crate::netlink::attr::Attrs;
use crate::object::Object;
use crate::print::RuleContext;

/// Writes a command for each message.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.messages.len()).try_for_each(|index| writeln!(f, "{}", self.command(index, None)))
    }
}

impl Difference {
    /// Returns a message as a command, with only one of its elements if there is one.
    pub(crate) fn command(&self, message: usize, element: Option<usize>) -> String {
        let Some(message) = self.messages.get(message) else { return String::new() };
        // These attributes were written here, so they can be read.
        self.text(message, element).unwrap_or_else(|_| message.kind.to_string())
    }

    fn text(&self, message: &RawMessage, element: Option<usize>) -> Result<String, DecodeError> {
        let attributes = &message.attributes[..];
        let fields = Fields::read(Attrs::new(attributes))?;
        let table = format!("{} {}", self.family, self.table);
        let name = |kind| fields.str(kind);
        Ok(match message.kind {
            MessageKind::NewTable => format!("add table {table}"),
            MessageKind::DelTable => format!("delete table {table}"),
            MessageKind::NewChain => self.chain(attributes)?,
            MessageKind::DelChain => format!("delete chain {table} {}", name(NFTA_CHAIN_NAME)?),
            MessageKind::NewRule => self.rule(attributes)?,
            MessageKind::DelRule => {
                let chain = name(NFTA_RULE_CHAIN)?;
                match fields.be64(NFTA_RULE_HANDLE)? {
                    Some(handle) => format!("delete rule {table} {chain} handle {handle}"),
                    None => format!("flush chain {table} {chain}"),
                }
            }
            MessageKind::NewSet => {
                let set = AnySet::decode(attributes)?;
                format!("add {} {table} {set}", set.noun())
            }
            MessageKind::DelSet => format!("delete set {table} {}", name(NFTA_SET_NAME)?),
            MessageKind::NewSetElem => {
                format!("add element {table} {}", self.elements(attributes, element)?)
            }
            MessageKind::DelSetElem => match fields.find(NFTA_SET_ELEM_LIST_ELEMENTS) {
                Some(_) => {
                    format!("delete element {table} {}", self.elements(attributes, element)?)
                }
                None => format!("flush set {table} {}", name(NFTA_SET_ELEM_LIST_SET)?),
            },
            MessageKind::NewObj => {
                let object = Object::decode(attributes)?;
                format!("add {} {table} {}", object.noun(), object.name)
            }
            MessageKind::DelObj => {
                let noun = Object::decode(attributes)?.noun();
                format!("delete {noun} {table} {}", name(NFTA_OBJ_NAME)?)
            }
            // No difference has them: it deletes what was read.
            MessageKind::DestroyTable
            | MessageKind::DestroyChain
            | MessageKind::DestroyRule
            | MessageKind::DestroySet
            | MessageKind::DestroySetElem
            | MessageKind::DestroyObj
            | MessageKind::DestroyFlowtable => message.kind.to_string(),
            MessageKind::NewFlowtable | MessageKind::DelFlowtable => {
                let verb = if message.kind == MessageKind::NewFlowtable { "add" } else { "delete" };
                match Flowtable::decode(attributes) {
                    Ok(flowtable) => format!("{verb} flowtable {table} {flowtable}"),
                    Err(_) => format!("{verb} flowtable {table} {}", name(NFTA_FLOWTABLE_NAME)?),
                }
            }
        })
    }

    fn chain(&self, attributes: &[u8]) -> Result<String, DecodeError> {
        let chain = Chain::decode(attributes)?;
        let mut text =
            format!("add chain {} {} {}", self.family, self.table, chain.text(self.family));
        if chain.base.is_none()
            && let Some(policy) =
                Fields::read(Attrs::new(attributes))?.optional_be32(NFTA_CHAIN_POLICY)?
        {
            let policy = if policy == NF_DROP { "drop" } else { "accept" };
            text += &format!(" {{ policy {policy}; }}");
        }
        Ok(text)
    }

    fn context(&self) -> RuleContext<'_> {
        RuleContext { family: self.family, sets: &self.sets, interfaces: &|_| None }
    }

    fn rule(&self, attributes: &[u8]) -> Result<String, DecodeError> {
        let rule = ListedRule::decode(attributes)?;
        let place = match rule.position {
            Some(handle) => format!(
                "insert rule {} {} {} position {handle}",
                self.family, self.table, rule.chain
            ),
            None => format!("add rule {} {} {}", self.family, self.table, rule.chain),
        };
        let comment = rule.comment().map(|comment| format!(" comment \"{comment}\""));
        let text = self.context().text(&rule.expressions);
        Ok(format!("{place} {text}{}", comment.unwrap_or_default()))
    }

    /// Returns the name of the set, and its elements in braces.
    fn elements(&self, attributes: &[u8], only: Option<usize>) -> Result<String, DecodeError> {
        let name = Fields::read(Attrs::new(attributes))?.str(NFTA_SET_ELEM_LIST_SET)?;
        let mut elements = Vec::new();
        decode_any_elements(attributes, |element| elements.push(element))?;
        if let Some(only) = only {
            elements = elements.into_iter().skip(only).take(1).collect();
        }
        let set = self.sets.iter().find(|contents| contents.set.name == name);
        let set = set.map(|contents| contents.set.clone()).unwrap_or_default();
        let text = self.context().elements(&SetContents { set, elements });
        Ok(format!("{name} {text}"))
    }
}

impl AnySet {
    /// Returns the keyword of nft(8): `map` if there is data, else `set`.
    pub fn noun(&self) -> &'static str {
        if self.is_map() { "map" } else { "set" }
    }
}

/// Writes the part of `add set` or `add map` after the name of the table.
impl fmt::Display for AnySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CONSTANT: u32 = 0x2;
        write!(f, "{} {{ type {};", self.name, self.types())?;
        let words = [
            (CONSTANT, "constant"),
            (Self::INTERVAL, "interval"),
            (Self::DYNAMIC, "dynamic"),
            (Self::TIMEOUT, "timeout"),
        ];
        let words: Vec<_> = words
            .iter()
            .filter(|(flag, _)| self.flags & flag != 0)
            .map(|(_, word)| *word)
            .collect();
        if !words.is_empty() {
            write!(f, " flags {};", words.join(","))?;
        }
        if let Some(size) = self.size {
            write!(f, " size {size};")?;
        }
        f.write_str(" }")
    }
}
