//! Expressions: the instructions that the kernel runs for a rule.

/// One instruction of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// An expression that this program never sends, by its name.
    Other(String),
}
