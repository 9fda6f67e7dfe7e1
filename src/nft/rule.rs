//! Rules: statements that a chain carries out in order.

use super::{Name, Statement};

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
