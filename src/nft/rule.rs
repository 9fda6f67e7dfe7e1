//! Rules: the statements of a chain, in order.

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
    /// The chain to which the rule is appended.
    pub chain: Name,
    /// The statements; the first one that does not match ends the rule.
    pub statements: Vec<Statement>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
}

impl Rule {
    /// Returns the expressions that the kernel runs for this rule in a table of `family`.
    /// [`DecodedRule::decode`] reads the same ones back.
    ///
    /// # Errors
    /// A statement cannot be expressed in this family.
    pub fn lower(&self, family: Family) -> Result<Vec<Expr>, LowerError> {
        let mut exprs = Vec::new();
        self.lower_into(family, &mut exprs)?;
        Ok(exprs)
    }

    /// Returns whether [`Rule::lower`] returns these expressions.
    pub fn lowers_to(&self, family: Family, exprs: &[Expr]) -> bool {
        let mut own = Vec::with_capacity(exprs.len());
        self.lower_into(family, &mut own).is_ok() && own == exprs
    }

    fn lower_into(&self, family: Family, exprs: &mut Vec<Expr>) -> Result<(), LowerError> {
        self.statements.iter().try_for_each(|statement| statement.lower(family, exprs))
    }

    /// Returns the rule as printed by `nft list` in a table of `family`, without its chain.
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
    /// The chain of the rule.
    pub chain: String,
    /// The handle of the rule.
    pub handle: u64,
    /// The expressions, in a form that equals [`Rule::lower`] if the rule is ours.
    pub exprs: Vec<Expr>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
}

impl DecodedRule {
    /// Reads the attributes of an `NFT_MSG_NEWRULE` message. Expressions that this program never
    /// sends become [`Expr::Other`].
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
        // Before a lookup in an interval set, nft(8) converts the byte order of fields in host
        // order. It does so even for the one byte of a protocol number, which `nft_byteorder_eval`
        // leaves unchanged.
        exprs.retain(|expr| !matches!(expr, Expr::Byteorder { length: 1, .. }));
        Ok(Self {
            chain: fields.str(NFTA_RULE_CHAIN)?.to_owned(),
            handle: fields.be64(NFTA_RULE_HANDLE)?.unwrap_or_default(),
            exprs,
            comment: read_userdata(&fields, NFTA_RULE_USERDATA),
        })
    }
}
