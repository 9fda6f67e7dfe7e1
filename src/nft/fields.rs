//! The attributes of one message or nest, by type.
//!
//! Input from the kernel is not trusted: a missing, malformed or unknown attribute is an error or
//! is skipped, never a panic.

use thiserror::Error;

use crate::netlink::attr::{Attr, AttrError, Attrs};

/// Number of attribute types: the highest one read here is `NFTA_SET_COUNT`, 20.
const TYPES: usize = 21;

/// The attributes of one message or nest. Of several with one type, the last counts.
pub(super) struct Fields<'a> {
    attrs: [Option<Attr<'a>>; TYPES],
}

impl<'a> Fields<'a> {
    pub(super) fn read(attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        let mut fields = Self { attrs: [None; TYPES] };
        for attr in attrs {
            let attr = attr?;
            if let Some(field) = fields.attrs.get_mut(usize::from(attr.kind)) {
                *field = Some(attr);
            }
        }
        Ok(fields)
    }

    pub(super) fn find(&self, kind: u16) -> Option<Attr<'a>> {
        self.attrs.get(usize::from(kind)).copied().flatten()
    }

    pub(super) fn need(&self, kind: u16) -> Result<Attr<'a>, DecodeError> {
        self.find(kind).ok_or(DecodeError::Missing { kind })
    }

    pub(super) fn be32(&self, kind: u16) -> Result<u32, DecodeError> {
        Ok(self.need(kind)?.be32()?)
    }

    pub(super) fn optional_be32(&self, kind: u16) -> Result<Option<u32>, DecodeError> {
        Ok(self.find(kind).map(|attr| attr.be32()).transpose()?)
    }

    /// Returns the number, or 0 if the attribute is absent, as in the kernel.
    pub(super) fn be32_or_zero(&self, kind: u16) -> Result<u32, DecodeError> {
        Ok(self.optional_be32(kind)?.unwrap_or_default())
    }

    pub(super) fn be64(&self, kind: u16) -> Result<Option<u64>, DecodeError> {
        Ok(self.find(kind).map(|attr| attr.be64()).transpose()?)
    }

    pub(super) fn str(&self, kind: u16) -> Result<&'a str, DecodeError> {
        Ok(self.need(kind)?.str()?)
    }

    pub(super) fn nest(&self, kind: u16) -> Result<Self, DecodeError> {
        Self::read(self.need(kind)?.nested())
    }
}

/// Returns `None` for what this crate does not write.
pub(super) fn known<T>(decoded: Result<T, DecodeError>) -> Result<Option<T>, DecodeError> {
    match decoded {
        Ok(known) => Ok(Some(known)),
        Err(DecodeError::Unknown(_)) => Ok(None),
        Err(error @ (DecodeError::Attribute(_) | DecodeError::Missing { .. })) => Err(error),
    }
}

/// The error in a received nftables object.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The attributes are malformed.
    #[error(transparent)]
    Attribute(#[from] AttrError),
    /// The object lacks a required attribute.
    #[error("attribute {kind} is missing")]
    Missing {
        /// Type of the attribute.
        kind: u16,
    },
    /// The object has a property that this crate does not write, so another program made it.
    #[error("unknown {0}")]
    Unknown(&'static str),
}
