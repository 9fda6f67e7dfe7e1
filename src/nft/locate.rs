//! Locates the attribute at the byte offset of a kernel error, by name.

use std::fmt;

use super::abi::*;
use crate::netlink::attr::{Attr, Attrs};
use crate::netlink::message::HEADER_LENGTH;

/// The attribute of a message that the kernel refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The attribute and those around it, outermost first; empty for an unknown one.
    pub path: Vec<&'static str>,
    /// Index of the element in the message's list. Add [`super::MessageOrigin::first_element`] for
    /// the index in the operation.
    pub element: Option<usize>,
    /// Index of the expression in the rule.
    pub expression: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.path.iter().enumerate() {
            f.write_str(if i > 0 { "." } else { "" })?;
            f.write_str(name)?;
            match (*name, self.element, self.expression) {
                ("elements", Some(index), _) => write!(f, "[{index}]")?,
                ("expressions", _, Some(index)) => write!(f, "[{index}]")?,
                (_, _, _) => {}
            }
        }
        Ok(())
    }
}

/// Returns the attribute at `offset`, in bytes from the start of `message` (`NLMSGERR_ATTR_OFFS`).
/// `message` starts with its netlink header.
pub fn locate(message: &[u8], offset: usize) -> Location {
    let mut location = Location::default();
    let kind = message.get(4..6).map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]));
    let Some(mut level) = attributes(kind) else { return location };
    let (mut start, mut bytes) = (ATTRIBUTES, message.get(ATTRIBUTES..).unwrap_or_default());
    while let Some((index, found, attr)) = find(bytes, offset.saturating_sub(start)) {
        let inner = match level {
            Level::Elements => {
                location.element = Some(index);
                Some(ELEMENT)
            }
            Level::Expressions => {
                location.expression = Some(index);
                Some(EXPRESSION)
            }
            Level::Names(names) => {
                let place = usize::from(attr.kind).checked_sub(1);
                let name = place.and_then(|place| names.get(place)).copied().unwrap_or_default();
                location.path.extend(Some(name).filter(|name| !name.is_empty()));
                inside(name)
            }
        };
        start += found + ATTRIBUTE_HEADER;
        match inner {
            Some(inner) if start <= offset => (level, bytes) = (inner, attr.payload),
            Some(_) | None => break,
        }
    }
    location
}

/// The meaning of the attributes inside an attribute.
#[derive(Clone, Copy)]
enum Level {
    /// Names of attributes in the order of the kernel's `enum`, from type 1 on; empty for those that
    /// no message has that is sent here.
    Names(&'static [&'static str]),
    /// Elements of a set.
    Elements,
    /// Expressions of a rule.
    Expressions,
}

/// Returns the meaning of what is inside the attribute with a name.
fn inside(name: &str) -> Option<Level> {
    match name {
        "hook" => Some(HOOK),
        "elements" => Some(Level::Elements),
        "expressions" => Some(Level::Expressions),
        _ => None,
    }
}

/// Returns the attribute that contains the byte at `offset`, with its index and start.
fn find(bytes: &[u8], offset: usize) -> Option<(usize, usize, Attr<'_>)> {
    let mut attrs = Attrs::new(bytes);
    let mut start = 0;
    for index in 0.. {
        let attr = attrs.next()?.ok()?;
        if offset < attrs.offset() {
            return Some((index, start, attr));
        }
        start = attrs.offset();
    }
    None
}

/// Offset of the attributes: after `struct nlmsghdr` and `struct nfgenmsg`.
const ATTRIBUTES: usize = HEADER_LENGTH + 4;
const ATTRIBUTE_HEADER: usize = 4;

fn attributes(kind: u16) -> Option<Level> {
    match kind ^ NFNL_SUBSYS_NFTABLES << 8 {
        NFT_MSG_NEWTABLE | NFT_MSG_DELTABLE | NFT_MSG_DESTROYTABLE => Some(TABLE),
        NFT_MSG_NEWCHAIN | NFT_MSG_DELCHAIN | NFT_MSG_DESTROYCHAIN => Some(CHAIN),
        NFT_MSG_NEWRULE | NFT_MSG_DELRULE | NFT_MSG_DESTROYRULE => Some(RULE),
        NFT_MSG_NEWSET | NFT_MSG_DELSET | NFT_MSG_DESTROYSET => Some(SET),
        NFT_MSG_NEWSETELEM | NFT_MSG_DELSETELEM | NFT_MSG_DESTROYSETELEM => Some(ELEMENTS),
        NFT_MSG_NEWOBJ | NFT_MSG_DELOBJ | NFT_MSG_DESTROYOBJ => Some(OBJECT),
        NFT_MSG_NEWFLOWTABLE | NFT_MSG_DELFLOWTABLE | NFT_MSG_DESTROYFLOWTABLE => Some(FLOWTABLE),
        _ => None,
    }
}

const TABLE: Level = Level::Names(&["name", "flags", "", "", "", "comment"]);

#[rustfmt::skip]
const CHAIN: Level = Level::Names(&[
    "table", "", "name", "hook", "policy", "", "type", "", "", "flags", "", "comment",
]);

// A flowtable has the devices at another number than a chain.
const HOOK: Level = Level::Names(&["number", "priority", "devices", "devices"]);

const RULE: Level =
    Level::Names(&["table", "chain", "handle", "expressions", "", "position", "comment"]);

const OBJECT: Level = Level::Names(&["table", "name", "type", "data", "", "", "", "comment"]);

const FLOWTABLE: Level = Level::Names(&["table", "name", "hook", "", "", "", "flags"]);

const EXPRESSION: Level = Level::Names(&["name", "data"]);

#[rustfmt::skip]
const SET: Level = Level::Names(&[
    "table", "name", "flags", "key type", "key length", "data type", "data length", "policy",
    "description", "id", "timeout", "gc interval", "user data", "", "object type", "",
    "expression", "expressions of elements",
]);

const ELEMENTS: Level = Level::Names(&["table", "set", "elements"]);

#[rustfmt::skip]
const ELEMENT: Level = Level::Names(&[
    "key", "data", "flags", "timeout", "", "comment", "expression", "", "object", "key end",
    "expressions of the element",
]);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::{
        Acknowledge, Batch, Element, Family, Operation, Rule, Set, TableRef, Transaction, Type,
        Value,
    };
    use super::*;
    use crate::expression::{Lookup, Reg, ip};

    fn batch(operation: impl FnOnce(TableRef) -> Operation) -> Batch {
        let table = TableRef::new(Family::Ip, "t");
        let operations = vec![operation(table)];
        Transaction { operations }.encode(1, Acknowledge::BatchEnd).unwrap()
    }

    fn elements() -> Batch {
        let key = vec![Type::InetService];
        let set = Set { name: "ports".into(), data: key.clone(), key, ..Set::default() };
        let elements = (0..5)
            .map(|port| Element::with_value(Value::new().port(port), Value::new().port(1)))
            .collect();
        batch(|table| Operation::AddElements(table, Arc::new(set), elements))
    }

    /// Returns the location of every fourth byte of the only message, without repetitions.
    fn all(batch: &Batch) -> Vec<String> {
        let message = batch.message(batch.messages[0]);
        let places = (20..message.len()).step_by(4).map(|at| locate(message, at).to_string());
        let mut places: Vec<_> = places.collect();
        places.dedup();
        places
    }

    #[test]
    fn every_part_of_an_element_leads_to_its_place_in_the_list() {
        let places = all(&elements());
        assert_eq!(places[..4], ["table", "set", "elements", "elements[0]"]);
        assert_eq!(places[4..7], ["elements[0].key", "elements[0].data", "elements[1]"]);
        assert_eq!(places.last().unwrap(), "elements[4].data");
    }

    #[test]
    fn an_expression_is_named_by_its_place_in_the_rule() {
        let address = Reg::of_word(0);
        let load = ip::daddr(address);
        let expressions = vec![load, Lookup::in_set("no-such-set", address)];
        let rule = Rule { chain: "c".into(), expressions, comment: Some("x".into()) };
        let places = all(&batch(|table| Operation::AddRule(table, rule)));
        assert_eq!(places[..3], ["table", "chain", "expressions"]);
        assert_eq!(places[3..6], ["expressions[0]", "expressions[0].name", "expressions[0].data"]);
        assert_eq!(places[6..9], ["expressions[1]", "expressions[1].name", "expressions[1].data"]);
        assert_eq!(places[9..], ["comment"]);
    }

    #[test]
    fn an_offset_outside_the_message_leads_nowhere() {
        let batch = elements();
        let message = batch.message(batch.messages[0]);
        assert_eq!(locate(message, message.len()), Location::default());
        assert_eq!(locate(message, usize::MAX), Location::default());
        assert_eq!(locate(&[], 20), Location::default());
    }

    proptest! {
        #[test]
        fn damaged_messages_never_panic(at in 0usize..300, byte: u8, offset in 0usize..400) {
            let batch = elements();
            let mut message = batch.message(batch.messages[0]).to_vec();
            let at = at % message.len();
            message[at] = byte;
            let _ = locate(&message, offset);
        }
    }

    #[test]
    fn a_range_is_located_too() {
        let key = vec![Type::Ipv4Addr, Type::InetService];
        let flags = super::super::SetFlags { interval: true, ..Default::default() };
        let data = vec![Type::ClassId];
        let set = Set { name: "s".into(), key, flags, data, ..Set::default() };
        let value = Value::new().ip([10, 0, 0, 0].into()).port(1);
        let element = Element {
            key_end: Some(Box::new(Value::new().ip([10, 0, 0, 255].into()).port(1))),
            data: Some(Value::new().class_id(1)),
            ..Element::new(value)
        };
        let places =
            all(&batch(|table| Operation::AddElements(table, Arc::new(set), [element].into())));
        let element = ["elements[0].key", "elements[0].key end", "elements[0].data"];
        assert_eq!(places[4..], element);
    }
}
