//! Chains that exist once for each IP family.

use nft::{Family, Name};

use crate::ruleset::ChainSpec;
use crate::ruleset::phrase::Phrase;

/// Returns the name of the chain of a family: `choose4`, `choose6`.
pub(super) fn named(what: &str, family: Family) -> Name {
    let number = match family {
        Family::Ip => 4,
        Family::Ip6 => 6,
    };
    format!("{what}{number}").into()
}

/// Returns the chain of a family. Only that of IPv4 has the comment, which is for both.
pub(super) fn chain(
    what: &str,
    family: Family,
    comment: Option<&str>,
    rules: impl IntoIterator<Item = Vec<Phrase>>,
) -> ChainSpec {
    let spec = ChainSpec::new(named(what, family), rules);
    match (comment, family) {
        (Some(comment), Family::Ip) => spec.with_comment(comment),
        (Some(_), Family::Ip6) | (None, _) => spec,
    }
}
