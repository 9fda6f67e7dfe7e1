//! Rules: statements that a chain carries out in order.

use std::fmt;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::object::{read_userdata, write_userdata};
use super::statement::LowerError;
use super::text::{Comment, joined};
use super::{Expr, Family, Name, Statement};
use crate::netlink::attr::{AttrWriter, Attrs};

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The chain it is appended to.
    pub chain: Name,
    /// What it does; the first statement that does not match ends it.
    pub statements: Vec<Statement>,
    /// What `nft list` prints as the rule's comment.
    pub comment: Option<String>,
}

impl Rule {
    /// The expressions that the kernel runs for this rule in a table of `family`, as they are read
    /// back with [`DecodedRule::decode`].
    ///
    /// # Errors
    /// A statement cannot be expressed in this family.
    pub fn lower(&self, family: Family) -> Result<Vec<Expr>, LowerError> {
        let mut exprs = Vec::new();
        for statement in &self.statements {
            statement.lower(family, &mut exprs)?;
        }
        Ok(exprs)
    }

    /// The rule as `nft list` prints it in a table of `family`, without its chain.
    pub fn text(&self, family: Family) -> impl fmt::Display {
        let statements = self.statements.iter().map(move |statement| statement.text(family));
        let statements = joined(statements, " ");
        fmt::from_fn(move |f| write!(f, "{statements}{}", Comment(self.comment.as_deref())))
    }

    pub(super) fn encode(
        &self,
        table: &str,
        family: Family,
        w: &mut AttrWriter<'_>,
    ) -> Result<(), LowerError> {
        let exprs = self.lower(family)?;
        w.str(NFTA_RULE_TABLE, table);
        w.str(NFTA_RULE_CHAIN, &self.chain);
        w.nest(NFTA_RULE_EXPRESSIONS, |w| {
            for expr in &exprs {
                w.nest(NFTA_LIST_ELEM, |w| expr.encode(w));
            }
        });
        write_userdata(w, NFTA_RULE_USERDATA, self.comment.as_deref());
        Ok(())
    }
}

/// A rule that was read from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedRule {
    /// The chain it is in.
    pub chain: String,
    /// The kernel's number for the rule.
    pub handle: u64,
    /// What it does, in a form that is equal to [`Rule::lower`] if the rule is ours.
    pub exprs: Vec<Expr>,
    /// What `nft list` prints as the rule's comment.
    pub comment: Option<String>,
}

impl DecodedRule {
    /// Reads the attributes of an `NFT_MSG_NEWRULE` message. Expressions that this program does not
    /// use become [`Expr::Other`].
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let mut exprs = match fields.find(NFTA_RULE_EXPRESSIONS) {
            Some(list) => {
                list.nested().map(|item| Expr::decode(item?.nested())).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        // Before it looks up an interval set, nft converts the byte order of fields in host order,
        // also of a protocol number, whose one byte `nft_byteorder_eval` leaves as it is.
        exprs.retain(|expr| !matches!(expr, Expr::Other(name) if name == "byteorder"));
        Ok(Self {
            chain: fields.str(NFTA_RULE_CHAIN)?.to_owned(),
            handle: fields.be64(NFTA_RULE_HANDLE)?.unwrap_or_default(),
            exprs,
            comment: read_userdata(&fields, NFTA_RULE_USERDATA),
        })
    }
}
