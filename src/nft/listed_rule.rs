//! Rules of tables of any program, with all that the kernel lists.

use super::abi::*;
use super::expression::{Bytes, Expression, Field, are_same, write_list};
use super::fields::{DecodeError, Fields};
use crate::kept;
use crate::netlink::attr::{AttrWriter, Attrs, TooLong};
use crate::rule::Rule;

/// A rule of any table. Encoding gives the bytes that were decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    /// Name of the table, of a rule that was read.
    pub table: String,
    /// The chain of the rule.
    pub chain: String,
    /// The handle of the rule.
    pub handle: u64,
    /// The handle of the rule before it; `None` for the first rule of a chain.
    pub position: Option<u64>,
    /// The expressions, in order.
    pub expressions: Vec<Expression>,
    /// Bytes that the kernel stores for the program that made the rule.
    pub userdata: Option<Bytes>,
}

impl ListedRule {
    /// Reads the attributes of an `NFT_MSG_NEWRULE` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let expressions = fields.find(NFTA_RULE_EXPRESSIONS).map(|list| Vec::read(&list));
        Ok(Self {
            table: fields.str(NFTA_RULE_TABLE)?.to_owned(),
            chain: fields.str(NFTA_RULE_CHAIN)?.to_owned(),
            handle: fields.be64(NFTA_RULE_HANDLE)?.unwrap_or_default(),
            position: fields.be64(NFTA_RULE_POSITION)?,
            expressions: expressions.transpose()?.unwrap_or_default(),
            userdata: fields.find(NFTA_RULE_USERDATA).map(|attr| Bytes::from(attr.payload)),
        })
    }

    /// Returns a rule as the kernel lists it once it is in a table, with a handle.
    pub fn of(rule: &Rule, table: &str, handle: u64) -> Self {
        Self {
            table: table.to_owned(),
            chain: rule.chain.to_string(),
            handle,
            position: None,
            expressions: rule.expressions.clone(),
            userdata: rule.comment.as_deref().map(Bytes::of_comment),
        }
    }

    /// Returns the attributes that the kernel lists.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut bytes = Vec::new();
        let mut w = AttrWriter::listed(&mut bytes);
        w.str(NFTA_RULE_TABLE, &self.table);
        w.str(NFTA_RULE_CHAIN, &self.chain);
        w.be64(NFTA_RULE_HANDLE, self.handle);
        if let Some(position) = self.position {
            w.be64(NFTA_RULE_POSITION, position);
        }
        write_list(&self.expressions, NFTA_RULE_EXPRESSIONS, &mut w);
        kept::write_userdata(self.userdata.as_ref(), NFTA_RULE_USERDATA, &mut w);
        w.finish()?;
        Ok(bytes)
    }

    /// Returns the comment, as printed by `nft list`.
    pub fn comment(&self) -> Option<&str> {
        self.userdata.as_ref().and_then(Bytes::comment)
    }
}

impl Rule {
    /// Returns whether a rule of the kernel does the same and has the same comment, in whatever
    /// form a kernel lists it.
    pub fn is_listed_as(&self, listed: &ListedRule) -> bool {
        self.comment.as_deref() == listed.comment()
            && are_same(&self.expressions, &listed.expressions)
    }
}
