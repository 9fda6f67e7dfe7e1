//! The registers of the kernel's virtual machine for rules.

use super::abi::*;
use super::fields::{DecodeError, Fields};

/// A register of the kernel's virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// The verdict.
    Verdict,
    /// Data from this four-byte word on, 0 to 15.
    Word(u8),
}

impl Register {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Verdict => NFT_REG_VERDICT,
            Self::Word(word) => NFT_REG32_00 + u32::from(word),
        }
    }

    // The kernel reports the old names of 16-byte registers where they start at the same word.
    fn decode(number: u32) -> Result<Self, DecodeError> {
        let word = match number {
            NFT_REG_VERDICT => return Ok(Self::Verdict),
            NFT_REG_1..=NFT_REG_4 => (number - NFT_REG_1) * 4,
            NFT_REG32_00..=NFT_REG32_15 => number - NFT_REG32_00,
            _ => return Err(DecodeError::Unknown("register")),
        };
        u8::try_from(word).map(Self::Word).map_err(|_| DecodeError::Unknown("register"))
    }
}

pub(super) fn register(fields: &Fields<'_>, kind: u16) -> Result<Register, DecodeError> {
    Register::decode(fields.be32(kind)?)
}

pub(super) fn optional_register(
    fields: &Fields<'_>,
    kind: u16,
) -> Result<Option<Register>, DecodeError> {
    fields.find(kind).map(|attr| Register::decode(attr.be32()?)).transpose()
}
