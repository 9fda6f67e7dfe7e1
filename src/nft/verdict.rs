//! What happens to a packet next.

use std::fmt;

use super::Name;

/// What happens to a packet next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The packet passes this base chain.
    Accept,
    /// The packet is gone.
    Drop,
    /// Back to the chain that jumped here, or to the policy.
    Return,
    /// To another chain, and back after it.
    Jump(Name),
    /// To another chain, not back to this one.
    Goto(Name),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}
