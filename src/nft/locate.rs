//! From the byte that the kernel complains about to the attribute, in words.

use std::fmt;

use super::MessageKind;
use super::abi::*;
use crate::netlink::attr::Attrs;
use crate::netlink::message::HEADER_LENGTH;

/// The attribute of a message that the kernel refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The attribute and those around it, outermost first; empty if it is none that is known.
    pub path: Vec<&'static str>,
    /// Index of the element in the message's list; add [`super::MessageOrigin::first_element`] for
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

/// The attribute at `offset`, in bytes from the start of `message`, as `NLMSGERR_ATTR_OFFS` gives
/// it. `message` starts with its netlink header.
pub fn locate(message: &[u8], offset: usize) -> Location {
    let mut location = Location::default();
    let kind = message.get(4..6).map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]));
    let Some(kind) = MessageKind::from_number(kind) else { return location };
    let mut level = attributes(kind);
    let (mut start, mut bytes) = (ATTRIBUTES, message.get(ATTRIBUTES..).unwrap_or_default());
    while let Some((index, found)) = find(bytes, offset.saturating_sub(start)) {
        match level {
            Level::List(_) if kind == MessageKind::NewRule => location.expression = Some(index),
            Level::List(_) => location.element = Some(index),
            Level::Names(names) => {
                match names.iter().find(|(number, _, _)| *number == found.kind) {
                    Some((_, name, _)) => location.path.push(name),
                    None => return location,
                }
            }
        }
        level = match level {
            Level::List(item) => *item,
            Level::Names(names) => {
                match names.iter().find(|(number, _, _)| *number == found.kind) {
                    Some((_, _, Some(inner))) => **inner,
                    Some((_, _, None)) | None => return location,
                }
            }
        };
        start += found.offset + ATTRIBUTE_HEADER;
        if start > offset {
            return location;
        }
        bytes = found.payload;
    }
    location
}

/// What the attributes inside an attribute mean.
#[derive(Clone, Copy)]
enum Level {
    /// Type, name and what is inside.
    Names(&'static [(u16, &'static str, Option<&'static Self>)]),
    /// Each is an item of a list.
    List(&'static Self),
}

struct Found<'a> {
    kind: u16,
    offset: usize,
    payload: &'a [u8],
}

/// The attribute that contains the byte at `offset`, and its index.
fn find(bytes: &[u8], offset: usize) -> Option<(usize, Found<'_>)> {
    let mut attrs = Attrs::new(bytes);
    let mut start = 0;
    for index in 0.. {
        let attr = attrs.next()?.ok()?;
        if offset < attrs.offset() {
            return Some((index, Found { kind: attr.kind, offset: start, payload: attr.payload }));
        }
        start = attrs.offset();
    }
    None
}

/// Attributes start behind `struct nlmsghdr` and `struct nfgenmsg`.
const ATTRIBUTES: usize = HEADER_LENGTH + 4;
const ATTRIBUTE_HEADER: usize = 4;

const fn attributes(kind: MessageKind) -> Level {
    match kind {
        MessageKind::NewTable | MessageKind::DelTable => TABLE,
        MessageKind::NewChain | MessageKind::DelChain => CHAIN,
        MessageKind::NewRule | MessageKind::DelRule => RULE,
        MessageKind::NewSet | MessageKind::DelSet => SET,
        MessageKind::NewSetElem | MessageKind::DelSetElem => ELEMENTS,
    }
}

const TABLE: Level = Level::Names(&[
    (NFTA_TABLE_NAME, "name", None),
    (NFTA_TABLE_FLAGS, "flags", None),
    (NFTA_TABLE_USERDATA, "comment", None),
]);

const CHAIN: Level = Level::Names(&[
    (NFTA_CHAIN_TABLE, "table", None),
    (NFTA_CHAIN_NAME, "name", None),
    (NFTA_CHAIN_HOOK, "hook", Some(&HOOK)),
    (NFTA_CHAIN_POLICY, "policy", None),
    (NFTA_CHAIN_TYPE, "type", None),
    (NFTA_CHAIN_USERDATA, "comment", None),
]);

const HOOK: Level =
    Level::Names(&[(NFTA_HOOK_HOOKNUM, "number", None), (NFTA_HOOK_PRIORITY, "priority", None)]);

const RULE: Level = Level::Names(&[
    (NFTA_RULE_TABLE, "table", None),
    (NFTA_RULE_CHAIN, "chain", None),
    (NFTA_RULE_EXPRESSIONS, "expressions", Some(&Level::List(&EXPRESSION))),
    (NFTA_RULE_USERDATA, "comment", None),
]);

const EXPRESSION: Level =
    Level::Names(&[(NFTA_EXPR_NAME, "name", None), (NFTA_EXPR_DATA, "data", None)]);

const SET: Level = Level::Names(&[
    (NFTA_SET_TABLE, "table", None),
    (NFTA_SET_NAME, "name", None),
    (NFTA_SET_FLAGS, "flags", None),
    (NFTA_SET_KEY_TYPE, "key type", None),
    (NFTA_SET_KEY_LEN, "key length", None),
    (NFTA_SET_DATA_TYPE, "data type", None),
    (NFTA_SET_DATA_LEN, "data length", None),
    (NFTA_SET_DESC, "description", None),
    (NFTA_SET_ID, "id", None),
    (NFTA_SET_TIMEOUT, "timeout", None),
    (NFTA_SET_USERDATA, "user data", None),
]);

const ELEMENTS: Level = Level::Names(&[
    (NFTA_SET_ELEM_LIST_TABLE, "table", None),
    (NFTA_SET_ELEM_LIST_SET, "set", None),
    (NFTA_SET_ELEM_LIST_ELEMENTS, "elements", Some(&Level::List(&ELEMENT))),
]);

const ELEMENT: Level = Level::Names(&[
    (NFTA_SET_ELEM_KEY, "key", None),
    (NFTA_SET_ELEM_DATA, "data", None),
    (NFTA_SET_ELEM_FLAGS, "flags", None),
    (NFTA_SET_ELEM_TIMEOUT, "timeout", None),
    (NFTA_SET_ELEM_USERDATA, "comment", None),
    (NFTA_SET_ELEM_KEY_END, "key end", None),
]);
