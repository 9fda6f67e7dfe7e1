//! Copies of objects under another table, from the attributes that the kernel lists.
//!
//! A copy keeps the attributes byte for byte, without those that the kernel assigns (handles, use
//! counts). So a table can be copied without knowledge of its rules. The attributes are those of
//! `<linux/netfilter/nf_tables.h>`.

use std::time::Duration;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use crate::message_kind::MessageKind;
use crate::netlink::attr::{Attr, AttrWriter, Attrs, TooLong};
use crate::rule::Rule;
use crate::table::TableFlags;
use crate::text::Name;

/// An encoded message of a batch, without its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawMessage {
    /// Type of the message.
    pub kind: MessageKind,
    /// The attributes.
    pub attributes: Vec<u8>,
}

impl RawMessage {
    /// A rule with a position goes before the rule there, all others to the end of their chain.
    pub(super) fn flags(&self) -> u16 {
        let has_position = self.kind == MessageKind::NewRule
            && Attrs::new(&self.attributes)
                .any(|attr| attr.is_ok_and(|attr| attr.kind == NFTA_RULE_POSITION));
        if has_position { self.kind.flags() & !NLM_F_APPEND } else { self.kind.flags() }
    }
}

/// A table that receives copies, and what differs there from the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTarget {
    /// Name of the table.
    pub table: Name,
    /// Its flags.
    pub flags: TableFlags,
    /// Added to the priorities of base chains.
    pub priority_shift: i32,
    /// Time after which copied elements expire; `None` if they stay.
    pub lifetime: Option<Duration>,
}

/// A listed set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSet {
    /// Name of the set.
    pub name: Name,
    /// The set belongs to one rule (`NFT_SET_ANONYMOUS`).
    pub is_anonymous: bool,
    /// Elements have timeouts of their own.
    pub has_timeouts: bool,
    /// The set's attributes.
    pub attributes: Vec<u8>,
}

/// Attributes that copies keep, by object. The others name the table or are assigned by the kernel.
const KEPT_OF_TABLE: &[u16] = &[NFTA_TABLE_USERDATA];
const KEPT_OF_CHAIN: &[u16] =
    &[NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE, NFTA_CHAIN_FLAGS, NFTA_CHAIN_USERDATA];
const KEPT_OF_RULE: &[u16] = &[NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_USERDATA];
const KEPT_OF_SET: &[u16] = &[
    NFTA_SET_NAME,
    NFTA_SET_KEY_TYPE,
    NFTA_SET_KEY_LEN,
    NFTA_SET_DATA_TYPE,
    NFTA_SET_DATA_LEN,
    NFTA_SET_POLICY,
    NFTA_SET_DESC,
    NFTA_SET_GC_INTERVAL,
    NFTA_SET_USERDATA,
    NFTA_SET_EXPR,
    NFTA_SET_EXPRESSIONS,
];
const KEPT_OF_FLOWTABLE: &[u16] = &[NFTA_FLOWTABLE_NAME, NFTA_FLOWTABLE_HOOK, NFTA_FLOWTABLE_FLAGS];

impl ListedSet {
    /// Reads what a copy needs of a listed set.
    ///
    /// # Errors
    /// The attributes are damaged or lack the name.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let flags = fields.be32_or_zero(NFTA_SET_FLAGS)?;
        Ok(Self {
            name: fields.str(NFTA_SET_NAME)?.to_owned().into(),
            is_anonymous: flags & NFT_SET_ANONYMOUS != 0,
            has_timeouts: flags & NFT_SET_TIMEOUT != 0,
            attributes: attributes.to_vec(),
        })
    }
}

/// Returns whether listed attributes of a chain have a hook.
///
/// # Errors
/// The attributes are damaged.
pub fn is_base_chain(attributes: &[u8]) -> Result<bool, DecodeError> {
    Ok(Fields::read(Attrs::new(attributes))?.find(NFTA_CHAIN_HOOK).is_some())
}

/// Returns the chain of a listed rule.
///
/// # Errors
/// The attributes are damaged or lack the chain.
pub fn rule_chain(attributes: &[u8]) -> Result<Name, DecodeError> {
    Ok(Fields::read(Attrs::new(attributes))?.str(NFTA_RULE_CHAIN)?.to_owned().into())
}

/// Returns whether a listed rule adds connections to a flowtable.
///
/// # Errors
/// The attributes are damaged.
pub fn uses_flowtable(attributes: &[u8]) -> Result<bool, DecodeError> {
    let fields = Fields::read(Attrs::new(attributes))?;
    let Some(expressions) = fields.find(NFTA_RULE_EXPRESSIONS) else { return Ok(false) };
    for expression in expressions.nested() {
        if Fields::read(expression?.nested())?.str(NFTA_EXPR_NAME)? == "flow_offload" {
            return Ok(true);
        }
    }
    Ok(false)
}

impl CopyTarget {
    /// Returns the message that deletes the table with its contents.
    ///
    /// # Errors
    /// [`TooLong`] if the name does not fit an attribute.
    pub fn delete_table(&self) -> Result<RawMessage, TooLong> {
        message(MessageKind::DelTable, |w| w.str(NFTA_TABLE_NAME, &self.table))
    }

    /// Returns the message that creates the table.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn table(&self, listed: &[u8]) -> Result<RawMessage, CopyError> {
        self.copy(MessageKind::NewTable, listed, KEPT_OF_TABLE, |w| {
            w.be32(NFTA_TABLE_FLAGS, self.flags.bits());
        })
    }

    /// Returns the message that creates a chain; a base chain may get another priority.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn chain(&self, listed: &[u8], other: Option<i32>) -> Result<RawMessage, CopyError> {
        let fields = Fields::read(Attrs::new(listed))?;
        let hook = match fields.find(NFTA_CHAIN_HOOK) {
            Some(hook) => {
                let hook = Fields::read(hook.nested())?;
                let priority = hook.be32(NFTA_HOOK_PRIORITY)?;
                Some((hook.be32(NFTA_HOOK_HOOKNUM)?, priority.cast_signed()))
            }
            None => None,
        };
        self.copy(MessageKind::NewChain, listed, KEPT_OF_CHAIN, |w| {
            if let Some((number, priority)) = hook {
                let priority = other.unwrap_or(priority.saturating_add(self.priority_shift));
                w.nest(NFTA_CHAIN_HOOK, |w| {
                    w.be32(NFTA_HOOK_HOOKNUM, number);
                    w.be32(NFTA_HOOK_PRIORITY, priority.cast_unsigned());
                });
            }
        })
    }

    /// Returns the message that deletes the copy of a chain with its rules.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn delete_chain(&self, listed: &[u8]) -> Result<RawMessage, CopyError> {
        self.copy(MessageKind::DelChain, listed, &[NFTA_CHAIN_NAME], |_| {})
    }

    /// Returns the message that creates a set or map; `id` is unique in its batch and not 0.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn set(&self, set: &ListedSet, id: u32) -> Result<RawMessage, CopyError> {
        let fields = Fields::read(Attrs::new(&set.attributes))?;
        let flags = fields.be32_or_zero(NFTA_SET_FLAGS)?;
        let timeout = fields.be64(NFTA_SET_TIMEOUT)?;
        let lifetime = self.lifetime.filter(|_| !set.is_anonymous && !set.has_timeouts);
        let added = if lifetime.is_some() { NFT_SET_TIMEOUT } else { 0 };
        self.copy(MessageKind::NewSet, &set.attributes, KEPT_OF_SET, |w| {
            w.be32(NFTA_SET_FLAGS, flags | added);
            w.be32(NFTA_SET_ID, id);
            let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            if let Some(timeout) = lifetime.map(milliseconds).or(timeout) {
                w.be64(NFTA_SET_TIMEOUT, timeout);
            }
        })
    }

    /// Returns the message that adds the elements of one message of a list. `keeps_timeouts` if the
    /// elements of the original have timeouts; those of a copy with a lifetime are left out.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn elements(&self, listed: &[u8], keeps_timeouts: bool) -> Result<RawMessage, CopyError> {
        let fields = Fields::read(Attrs::new(listed))?;
        let set = fields.str(NFTA_SET_ELEM_LIST_SET)?;
        let list = fields.need(NFTA_SET_ELEM_LIST_ELEMENTS)?;
        let mut elements = Vec::new();
        for element in list.nested() {
            elements.push(all(element.map_err(DecodeError::from)?.nested())?);
        }
        let keeps = |kind| {
            keeps_timeouts || kind != NFTA_SET_ELEM_TIMEOUT && kind != NFTA_SET_ELEM_EXPIRATION
        };
        let written = message(MessageKind::NewSetElem, |w| {
            w.str(NFTA_SET_ELEM_LIST_TABLE, &self.table);
            w.str(NFTA_SET_ELEM_LIST_SET, set);
            w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                for element in &elements {
                    w.nest(NFTA_LIST_ELEM, |w| {
                        let kept = element.iter().filter(|attr| keeps(attr.kind));
                        kept.for_each(|attr| w.bytes(attr.kind, attr.payload));
                    });
                }
            });
        });
        Ok(written?)
    }

    /// Returns the message that appends a rule to its chain.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn rule(&self, listed: &[u8]) -> Result<RawMessage, CopyError> {
        self.copy(MessageKind::NewRule, listed, KEPT_OF_RULE, |_| {})
    }

    /// Returns the message that creates a flowtable with its devices.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn flowtable(&self, listed: &[u8]) -> Result<RawMessage, CopyError> {
        self.copy(MessageKind::NewFlowtable, listed, KEPT_OF_FLOWTABLE, |_| {})
    }

    /// Returns the message that appends a rule of ours to its chain.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn own_rule(&self, rule: &Rule) -> Result<RawMessage, CopyError> {
        Ok(message(MessageKind::NewRule, |w| rule.encode(&self.table, w))?)
    }

    /// The table is attribute 1 of every message.
    fn copy(
        &self,
        kind: MessageKind,
        listed: &[u8],
        kept: &[u16],
        add: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<RawMessage, CopyError> {
        let attributes = all(Attrs::new(listed))?;
        let written = message(kind, |w| {
            w.str(NFTA_TABLE_NAME, &self.table);
            let kept = attributes.iter().filter(|attr| kept.contains(&attr.kind));
            kept.for_each(|attr| w.bytes(attr.kind, attr.payload));
            add(w);
        });
        Ok(written?)
    }
}

/// Why an object cannot be copied.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CopyError {
    /// The listed attributes are damaged.
    #[error("a listed object is damaged: {0}")]
    Listed(#[from] DecodeError),
    /// The copy is too long for a message.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

fn all(attributes: Attrs<'_>) -> Result<Vec<Attr<'_>>, DecodeError> {
    Ok(attributes.collect::<Result<_, _>>()?)
}

fn message(
    kind: MessageKind,
    fill: impl FnOnce(&mut AttrWriter<'_>),
) -> Result<RawMessage, TooLong> {
    let mut attributes = Vec::new();
    let mut w = AttrWriter::new(&mut attributes);
    fill(&mut w);
    w.finish()?;
    Ok(RawMessage { kind, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(shift: i32, lifetime: Option<Duration>) -> CopyTarget {
        let flags = TableFlags::default();
        CopyTarget { table: "copy".into(), flags, priority_shift: shift, lifetime }
    }

    fn written(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
        message(MessageKind::NewTable, fill).unwrap().attributes
    }

    #[test]
    fn a_base_chain_is_copied_without_handle_and_with_a_later_priority() {
        let chain = |table: &str, handle: Option<u64>, priority: i32| {
            written(|w| {
                w.str(NFTA_CHAIN_TABLE, table);
                if let Some(handle) = handle {
                    w.be64(2, handle);
                }
                w.str(NFTA_CHAIN_NAME, "nat-prerouting");
                w.nest(NFTA_CHAIN_HOOK, |w| {
                    w.be32(NFTA_HOOK_HOOKNUM, 0);
                    w.be32(NFTA_HOOK_PRIORITY, priority.cast_unsigned());
                });
            })
        };
        let copy = target(1, None).chain(&chain("kube-proxy", Some(7), -100), None).unwrap();
        assert_eq!(copy.kind, MessageKind::NewChain);
        assert_eq!(copy.attributes, chain("copy", None, -99));
        let moved = target(1, None).chain(&chain("kube-proxy", Some(7), -100), Some(-5)).unwrap();
        assert_eq!(moved.attributes, chain("copy", None, -5));
    }

    #[test]
    fn a_copy_with_a_lifetime_has_a_timeout_unless_the_set_is_anonymous_or_has_timeouts() {
        let listed = |flags: u32| {
            written(|w| {
                w.str(NFTA_SET_TABLE, "kube-proxy");
                w.str(NFTA_SET_NAME, "services");
                w.be32(NFTA_SET_FLAGS, flags);
            })
        };
        let timeout = |flags: u32, lifetime| {
            let set = ListedSet::decode(&listed(flags)).unwrap();
            let copy = target(0, lifetime).set(&set, 3).unwrap();
            let fields = Fields::read(Attrs::new(&copy.attributes)).unwrap();
            assert_eq!(fields.be32(NFTA_SET_ID), Ok(3));
            (fields.be32(NFTA_SET_FLAGS).unwrap(), fields.be64(NFTA_SET_TIMEOUT).unwrap())
        };
        let minute = Some(Duration::from_secs(60));
        assert_eq!(timeout(NFT_SET_MAP, minute), (NFT_SET_MAP | NFT_SET_TIMEOUT, Some(60_000)));
        assert_eq!(timeout(NFT_SET_MAP, None), (NFT_SET_MAP, None));
        assert_eq!(timeout(NFT_SET_ANONYMOUS, minute), (NFT_SET_ANONYMOUS, None));
        assert_eq!(timeout(NFT_SET_TIMEOUT, minute), (NFT_SET_TIMEOUT, None));
    }

    #[test]
    fn timeouts_of_elements_are_kept_only_where_the_original_has_them() {
        let list = |table: &str, timeout: Option<u64>| {
            written(|w| {
                w.str(NFTA_SET_ELEM_LIST_TABLE, table);
                w.str(NFTA_SET_ELEM_LIST_SET, "services");
                w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                    w.nest(NFTA_LIST_ELEM, |w| {
                        w.bytes(NFTA_SET_ELEM_KEY, &[1, 2, 3, 4]);
                        if let Some(timeout) = timeout {
                            w.be64(NFTA_SET_ELEM_TIMEOUT, timeout);
                        }
                    });
                });
            })
        };
        let listed = list("kube-proxy", Some(5));
        let copied = |keeps| target(0, None).elements(&listed, keeps).unwrap().attributes;
        assert_eq!(copied(false), list("copy", None));
        assert_eq!(copied(true), list("copy", Some(5)));
    }

    #[test]
    fn damaged_lists_are_errors() {
        let target = target(0, None);
        let damaged = [9, 0, 1, 0, 5];
        assert!(target.chain(&damaged, None).is_err());
        assert!(target.rule(&damaged).is_err());
        assert!(target.elements(&damaged, true).is_err());
        assert!(target.elements(&[], true).is_err());
        assert!(ListedSet::decode(&[]).is_err());
        assert!(uses_flowtable(&damaged).is_err());
    }
}
