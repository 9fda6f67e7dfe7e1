//! Rules as they are sent: the expressions of a chain's rule, in order. Listed rules are decoded in
//! `listed_rule.rs`.

use std::fmt;

use super::abi::*;
use super::text::Comment;
use super::userdata::write_userdata;
use crate::expression::{Expression, write_list};
use crate::family::TableFamily;
use crate::netlink::attr::AttrWriter;
use crate::print::RuleContext;
use crate::text::Name;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The chain to which the rule is appended.
    pub chain: Name,
    /// The expressions; the first one that does not match ends the rule.
    pub expressions: Vec<Expression>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
}

impl Rule {
    /// Returns the rule as printed by `nft list` in a table of `family`, without its chain.
    pub fn text(&self, family: impl Into<TableFamily>) -> impl fmt::Display {
        let context = RuleContext { family: family.into(), sets: &[], interfaces: &|_| None };
        let statements = context.text(&self.expressions);
        fmt::from_fn(move |f| write!(f, "{statements}{}", Comment(self.comment.as_deref())))
    }

    pub(super) fn encode(&self, table: &str, w: &mut AttrWriter<'_>) {
        w.str(NFTA_RULE_TABLE, table);
        w.str(NFTA_RULE_CHAIN, &self.chain);
        write_list(&self.expressions, NFTA_RULE_EXPRESSIONS, w);
        write_userdata(w, NFTA_RULE_USERDATA, self.comment.as_deref());
    }
}
