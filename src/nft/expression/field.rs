//! Attributes of expressions: one type for each form of payload, with encoding and decoding.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::abi::*;
use crate::fields::{DecodeError, Fields, known};
use crate::netlink::attr::{Attr, AttrWriter};
use crate::verdict::Verdict;

/// A field of an expression, the payload of an attribute. An optional one may be absent.
pub(crate) trait Field: Sized {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError>;

    /// Reads the attribute of type `kind`, `None` if it is absent.
    fn read_if_present(attr: Option<Attr<'_>>, kind: u16) -> Result<Self, DecodeError> {
        Self::read(&attr.ok_or(DecodeError::Missing { kind })?)
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>);

    /// Calls `change` if this is a register.
    fn for_each_register(&mut self, _change: &mut dyn FnMut(&mut Reg)) {}
}

impl<T: Field> Field for Option<T> {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        T::read(attr).map(Some)
    }

    fn read_if_present(attr: Option<Attr<'_>>, _: u16) -> Result<Self, DecodeError> {
        attr.map(|attr| T::read(&attr)).transpose()
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
        if let Some(field) = self {
            field.write(kind, w);
        }
    }

    fn for_each_register(&mut self, change: &mut dyn FnMut(&mut Reg)) {
        if let Some(field) = self {
            field.for_each_register(change);
        }
    }
}

/// Implements [`Field`] for a number, with the methods of that name of [`Attr`] and [`AttrWriter`].
macro_rules! number {
    ($number:ty, $method:ident) => {
        impl Field for $number {
            fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
                Ok(attr.$method()?)
            }

            fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
                w.$method(kind, *self);
            }
        }
    };
}

number!(u8, u8);
number!(u16, be16);
number!(u32, be32);
number!(u64, be64);

/// A register as numbered in messages: 0 holds the verdict, 1 to 4 are 16-byte registers, and 8 to
/// 23 are the same space in words of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reg(pub u32);

impl Reg {
    /// The verdict.
    pub const VERDICT: Self = Self(NFT_REG_VERDICT);

    /// Returns the register that begins at a four-byte word, 0 to 15, with the number that the
    /// kernel lists (`nft_dump_register`).
    pub const fn of_word(word: u8) -> Self {
        let word = word as u32;
        Self(if word.is_multiple_of(4) { NFT_REG_1 + word / 4 } else { NFT_REG32_00 + word })
    }

    /// Returns the same register with the number that the kernel lists.
    pub(super) fn canonical(self) -> Self {
        match self.word().map(u8::try_from) {
            Some(Ok(word)) => Self::of_word(word),
            Some(Err(_)) | None => self,
        }
    }

    /// Returns the first four-byte word, 0 to 15; `None` for the verdict and unknown numbers.
    pub fn word(self) -> Option<usize> {
        let word = match self.0 {
            NFT_REG_1..=NFT_REG_4 => (self.0 - NFT_REG_1) * 4,
            NFT_REG32_00..=NFT_REG32_15 => self.0 - NFT_REG32_00,
            _ => return None,
        };
        usize::try_from(word).ok()
    }
}

impl Field for Reg {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        Ok(Self(attr.be32()?))
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
        w.be32(kind, self.0);
    }

    fn for_each_register(&mut self, change: &mut dyn FnMut(&mut Reg)) {
        change(self);
    }
}

impl Field for String {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        Ok(attr.str()?.to_owned())
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
        w.str(kind, self);
    }
}

/// Bytes without a known structure, or those of a register. Up to 16, such as an address, are stored
/// inline, because tables have hundreds of thousands of elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(SmallVec<[u8; 16]>);

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(SmallVec::from_vec(bytes))
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Field for Bytes {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from(attr.payload))
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
        w.bytes(kind, &self.0);
    }
}

/// `NFTA_DATA_*`: a value or a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// The bytes of a register.
    Value(Bytes),
    /// A verdict.
    Verdict(Verdict),
    /// A verdict with a code that [`Verdict`] lacks, such as `NF_QUEUE`.
    Code(u32),
}

impl Field for Data {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        let inner = attr.nested().next().ok_or(DecodeError::Unknown("data"))??;
        if inner.kind == NFTA_DATA_VALUE {
            return Ok(Self::Value(inner.payload.into()));
        }
        let fields = Fields::read(attr.nested())?;
        Ok(match known(Verdict::decode(&fields))? {
            Some(verdict) => Self::Verdict(verdict),
            None => Self::Code(fields.nest(NFTA_DATA_VERDICT)?.be32(NFTA_VERDICT_CODE)?),
        })
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
        w.nest(kind, |w| match self {
            Self::Value(value) => w.bytes(NFTA_DATA_VALUE, value),
            Self::Verdict(verdict) => verdict.encode(w),
            Self::Code(code) => w.nest(NFTA_DATA_VERDICT, |w| w.be32(NFTA_VERDICT_CODE, *code)),
        });
    }
}
