//! Verdicts of rules.

use std::fmt;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use crate::netlink::attr::AttrWriter;
use crate::text::Name;

/// The verdict of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Ends this base chain; the packet continues.
    Accept,
    /// Drops the packet.
    Drop,
    /// Returns to the chain that jumped here, or applies the policy.
    Return,
    /// Continues in another chain, then returns.
    Jump(Name),
    /// Continues in another chain without a return to this one.
    Goto(Name),
}

impl Verdict {
    /// Returns the chain in which the packet continues.
    pub fn target(&self) -> Option<&str> {
        let (Self::Jump(chain) | Self::Goto(chain)) = self else { return None };
        Some(chain)
    }

    /// Appends the attributes of `NFTA_DATA_VERDICT`.
    pub(super) fn encode(&self, w: &mut AttrWriter<'_>) {
        w.nest(NFTA_DATA_VERDICT, |w| self.encode_nest(w));
    }

    fn encode_nest(&self, w: &mut AttrWriter<'_>) {
        let (code, chain) = match self {
            Self::Accept => (NF_ACCEPT, None),
            Self::Drop => (NF_DROP, None),
            Self::Return => (NFT_RETURN.cast_unsigned(), None),
            Self::Jump(chain) => (NFT_JUMP.cast_unsigned(), Some(chain)),
            Self::Goto(chain) => (NFT_GOTO.cast_unsigned(), Some(chain)),
        };
        w.be32(NFTA_VERDICT_CODE, code);
        if let Some(chain) = chain {
            w.str(NFTA_VERDICT_CHAIN, chain);
        }
    }

    /// Reads the nest that contains `NFTA_DATA_VERDICT`.
    pub(super) fn decode(data: &Fields<'_>) -> Result<Self, DecodeError> {
        Self::decode_nest(&data.nest(NFTA_DATA_VERDICT)?)
    }

    /// Reads the attributes of `NFTA_DATA_VERDICT`.
    pub(super) fn decode_nest(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let chain = || Ok::<Name, DecodeError>(fields.str(NFTA_VERDICT_CHAIN)?.to_owned().into());
        let code = fields.be32(NFTA_VERDICT_CODE)?;
        match (code, code.cast_signed()) {
            (NF_ACCEPT, _) => Ok(Self::Accept),
            (NF_DROP, _) => Ok(Self::Drop),
            (_, NFT_RETURN) => Ok(Self::Return),
            (_, NFT_JUMP) => Ok(Self::Jump(chain()?)),
            (_, NFT_GOTO) => Ok(Self::Goto(chain()?)),
            _ => Err(DecodeError::Unknown("verdict")),
        }
    }
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
