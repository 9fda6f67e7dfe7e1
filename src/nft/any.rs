//! Chains, rules, sets, elements, objects and flowtables of tables of any program.
//!
//! Decoding keeps everything, also what this program never sends: attributes that are not known
//! stay as bytes. Encoding gives what the kernel needs to create the object again.
//! [`super::object`] and its neighbours read our own tables in the form in which they were sent.

mod chain;
mod element;
mod flowtable;
mod kept;
mod object;
mod set;

pub use chain::{AnyChain, BaseChain};
pub use element::{AnyElement, ElementData, decode_any_elements};
pub use flowtable::AnyFlowtable;
pub use kept::OtherAttribute;
pub use object::AnyObject;
pub use set::AnySet;

use super::Instruction;
use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::object::read_userdata;
use crate::netlink::attr::{AttrWriter, Attrs, TooLong};

/// Returns the attributes that `fill` writes.
fn written(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Result<Vec<u8>, TooLong> {
    let mut bytes = Vec::new();
    let mut w = AttrWriter::new(&mut bytes);
    fill(&mut w);
    w.finish()?;
    Ok(bytes)
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
