//! Chains, rules, sets and elements of tables of any program.
//!
//! Decoding keeps everything, also what this program never sends. [`super::object`] and its
//! neighbours read our own tables in the form in which they were sent.

use std::time::Duration;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::object::read_userdata;
use super::{Instruction, Verdict, userdata};
use crate::netlink::attr::{Attr, Attrs};

/// A chain of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyChain {
    /// Name of the table.
    pub table: String,
    /// Name within the table.
    pub name: String,
    /// The hook; `None` for a regular chain.
    pub base: Option<BaseChain>,
}

/// The hook of a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// `NF_INET_*`, or the numbers of the table's family.
    pub hook: u32,
    /// Priority; lower values run first.
    pub priority: i32,
    /// The policy is `drop`.
    pub drops: bool,
}

impl AnyChain {
    /// Reads the attributes of an `NFT_MSG_NEWCHAIN` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let base = match fields.find(NFTA_CHAIN_HOOK) {
            Some(hook) => {
                let hook = Fields::read(hook.nested())?;
                Some(BaseChain {
                    kind: fields.str(NFTA_CHAIN_TYPE)?.to_owned(),
                    hook: hook.be32(NFTA_HOOK_HOOKNUM)?,
                    priority: hook.be32(NFTA_HOOK_PRIORITY)?.cast_signed(),
                    drops: fields.optional_be32(NFTA_CHAIN_POLICY)? == Some(NF_DROP),
                })
            }
            None => None,
        };
        Ok(Self {
            table: fields.str(NFTA_CHAIN_TABLE)?.to_owned(),
            name: fields.str(NFTA_CHAIN_NAME)?.to_owned(),
            base,
        })
    }
}

/// A rule of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyRule {
    /// The chain of the rule.
    pub chain: String,
    /// The handle of the rule.
    pub handle: u64,
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
}

impl AnyRule {
    /// Reads the attributes of an `NFT_MSG_NEWRULE` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let instructions = match fields.find(NFTA_RULE_EXPRESSIONS) {
            Some(list) => list
                .nested()
                .map(|item| Instruction::decode(item?.nested()))
                .collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        Ok(Self {
            chain: fields.str(NFTA_RULE_CHAIN)?.to_owned(),
            handle: fields.be64(NFTA_RULE_HANDLE)?.unwrap_or_default(),
            instructions,
            comment: read_userdata(&fields, NFTA_RULE_USERDATA),
        })
    }
}

/// A set or map of any table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnySet {
    /// Name within the table.
    pub name: String,
    /// Elements may be ranges.
    pub interval: bool,
    /// `NFT_SET_CONCAT`: the kernel stores the length of each key field, as in concatenations of
    /// ranges.
    pub is_concatenation: bool,
    /// Length of the key in bytes.
    pub key_length: usize,
    /// Length of the data in bytes; 0 for sets and verdict maps.
    pub data_length: usize,
    /// `NFT_SET_*` flags.
    pub flags: u32,
    /// Type of the key for the program that made the set; nft(8) numbers its types.
    pub key_type: u32,
    /// Type of the data, like `key_type`.
    pub data_type: u32,
    /// nft(8) notes that data is in host byte order.
    pub is_data_host: bool,
    /// `NFT_OBJECT_*`, in a map of objects.
    pub object_type: u32,
}

impl AnySet {
    /// Returns whether the elements have data.
    pub fn is_map(&self) -> bool {
        self.flags & (NFT_SET_MAP | NFT_SET_OBJECT) != 0
    }

    /// Returns whether the set belongs to a rule and has no name of its own.
    pub fn is_anonymous(&self) -> bool {
        self.flags & NFT_SET_ANONYMOUS != 0
    }

    /// Reads the attributes of an `NFT_MSG_NEWSET` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let flags = fields.be32_or_zero(NFTA_SET_FLAGS)?;
        let length = |kind| Ok::<_, DecodeError>(fields.be32_or_zero(kind)? as usize);
        Ok(Self {
            name: fields.str(NFTA_SET_NAME)?.to_owned(),
            interval: flags & NFT_SET_INTERVAL != 0,
            is_concatenation: flags & NFT_SET_CONCAT != 0,
            key_length: length(NFTA_SET_KEY_LEN)?,
            data_length: length(NFTA_SET_DATA_LEN)?,
            flags,
            key_type: fields.be32_or_zero(NFTA_SET_KEY_TYPE)?,
            data_type: fields.be32_or_zero(NFTA_SET_DATA_TYPE)?,
            is_data_host: fields
                .find(NFTA_SET_USERDATA)
                .is_some_and(|attr| userdata::is_data_host(attr.payload)),
            object_type: fields.be32_or_zero(NFTA_SET_OBJ_TYPE)?,
        })
    }
}

/// An element of a set or map of any table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnyElement {
    /// The key or the start of a range; empty for the catch-all element.
    pub key: Vec<u8>,
    /// The last key of a range in a concatenation.
    pub key_end: Option<Vec<u8>>,
    /// The element is the end of the range before it.
    pub is_end: bool,
    /// The data of a map element.
    pub data: Option<ElementData>,
    /// Name of the object in a map of objects.
    pub object: Option<String>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
    /// Remaining time until the element expires.
    pub expires: Option<Duration>,
}

/// The data of a map element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementData {
    /// A value.
    Value(Vec<u8>),
    /// A verdict.
    Verdict(Verdict),
    /// An unknown verdict.
    Unknown,
}

/// Reads the attributes of an `NFT_MSG_NEWSETELEM` message and calls `each` for every element.
///
/// # Errors
/// The attributes are broken; `each` was called for the elements before.
pub fn decode_any_elements(
    attributes: &[u8],
    mut each: impl FnMut(AnyElement),
) -> Result<(), DecodeError> {
    let fields = Fields::read(Attrs::new(attributes))?;
    let Some(list) = fields.find(NFTA_SET_ELEM_LIST_ELEMENTS) else { return Ok(()) };
    for item in list.nested() {
        each(decode_element(&Fields::read(item?.nested())?)?);
    }
    Ok(())
}

fn decode_element(fields: &Fields<'_>) -> Result<AnyElement, DecodeError> {
    let value = |kind| fields.find(kind).map(decode_value).transpose();
    let data = match fields.find(NFTA_SET_ELEM_DATA) {
        Some(data) => Some(decode_data(&Fields::read(data.nested())?)?),
        None => None,
    };
    let comment = fields.find(NFTA_SET_ELEM_USERDATA);
    Ok(AnyElement {
        key: value(NFTA_SET_ELEM_KEY)?.unwrap_or_default(),
        key_end: value(NFTA_SET_ELEM_KEY_END)?,
        object: fields
            .find(NFTA_SET_ELEM_OBJREF)
            .map(|name| name.str())
            .transpose()?
            .map(str::to_owned),
        is_end: fields.be32_or_zero(NFTA_SET_ELEM_FLAGS)? & NFT_SET_ELEM_INTERVAL_END != 0,
        data,
        comment: comment.and_then(|attr| userdata::read_comment(attr.payload)).map(str::to_owned),
        expires: fields.be64(NFTA_SET_ELEM_EXPIRATION)?.map(Duration::from_millis),
    })
}

fn decode_value(key: Attr<'_>) -> Result<Vec<u8>, DecodeError> {
    Ok(Fields::read(key.nested())?.need(NFTA_DATA_VALUE)?.payload.to_vec())
}

fn decode_data(data: &Fields<'_>) -> Result<ElementData, DecodeError> {
    if let Some(value) = data.find(NFTA_DATA_VALUE) {
        return Ok(ElementData::Value(value.payload.to_vec()));
    }
    match Verdict::decode(data) {
        Ok(verdict) => Ok(ElementData::Verdict(verdict)),
        Err(DecodeError::Unknown(_)) => Ok(ElementData::Unknown),
        Err(error @ (DecodeError::Attribute(_) | DecodeError::Missing { .. })) => Err(error),
    }
}
