//! Jumps between chains in rules of any program.

use crate::expression::{Expression, Reference};
use crate::fields::DecodeError;
use crate::listed_rule::ListedRule;

/// A rule with a jump or goto to another chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The chain of the rule.
    pub from: String,
    /// The handle of the rule.
    pub handle: u64,
    /// The target chain.
    pub to: String,
}

impl Jump {
    /// Reads the attributes of an `NFT_MSG_NEWRULE` message; `None` for a rule without a jump.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let rule = ListedRule::decode(attributes)?;
        let mut references = rule.expressions.iter().filter_map(Expression::reference);
        let to = references.find_map(|reference| match reference {
            Reference::Chain(chain) => Some(chain.to_owned()),
            Reference::Set(_) | Reference::Object(..) | Reference::Flowtable(_) => None,
        });
        Ok(to.map(|to| Self { from: rule.chain, handle: rule.handle, to }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::*;
    use crate::netlink::attr::AttrWriter;
    use crate::verdict::Verdict;

    // enum nft_immediate_attributes
    const NFTA_IMMEDIATE_DREG: u16 = 1;
    const NFTA_IMMEDIATE_DATA: u16 = 2;

    /// Returns `-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, as
    /// sent by iptables-nft, or with another verdict.
    fn rule(verdict: &Verdict) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut w = AttrWriter::new(&mut bytes);
        w.str(NFTA_RULE_TABLE, "nat");
        w.str(NFTA_RULE_CHAIN, "OUTPUT");
        w.be64(NFTA_RULE_HANDLE, 9);
        w.nest(NFTA_RULE_EXPRESSIONS, |w| {
            // `enum nft_match_attributes`: name, revision, and the data of the extension.
            w.nest(NFTA_LIST_ELEM, |w| {
                w.str(NFTA_EXPR_NAME, "match");
                w.nest(NFTA_EXPR_DATA, |w| {
                    w.str(1, "comment");
                    w.be32(2, 0);
                    w.bytes(3, b"kubernetes service portals");
                });
            });
            w.nest(NFTA_LIST_ELEM, |w| {
                w.str(NFTA_EXPR_NAME, "counter");
                w.nest(NFTA_EXPR_DATA, |w| w.be64(1, 0));
            });
            w.nest(NFTA_LIST_ELEM, |w| {
                w.str(NFTA_EXPR_NAME, "immediate");
                w.nest(NFTA_EXPR_DATA, |w| {
                    w.be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
                    w.nest(NFTA_IMMEDIATE_DATA, |w| verdict.encode(w));
                });
            });
        });
        w.finish().unwrap();
        bytes
    }

    #[test]
    fn the_jump_of_a_rule_of_iptables_nft_is_found_behind_expressions_that_are_unknown() {
        let jump = Jump { from: "OUTPUT".into(), handle: 9, to: "KUBE-SERVICES".into() };
        for verdict in
            [Verdict::Jump("KUBE-SERVICES".into()), Verdict::Goto("KUBE-SERVICES".into())]
        {
            assert_eq!(Jump::decode(&rule(&verdict)), Ok(Some(jump.clone())));
        }
    }

    #[test]
    fn a_rule_with_another_verdict_or_none_has_no_jump() {
        for verdict in [Verdict::Accept, Verdict::Drop, Verdict::Return] {
            assert_eq!(Jump::decode(&rule(&verdict)), Ok(None));
        }
        let mut bytes = Vec::new();
        let mut w = AttrWriter::new(&mut bytes);
        w.str(NFTA_RULE_TABLE, "nat");
        w.str(NFTA_RULE_CHAIN, "OUTPUT");
        assert_eq!(Jump::decode(&bytes), Ok(None));
    }

    #[test]
    fn a_rule_that_is_cut_off_is_an_error() {
        let bytes = rule(&Verdict::Jump("KUBE-SERVICES".into()));
        assert!(Jump::decode(&bytes[..bytes.len() - 8]).is_err());
    }
}
