//! Expressions as the kernel has them, of any program's rule.
//!
//! Fields are in the order in which the kernel lists them, so that decoding and encoding give the
//! same bytes. An expression with a name, an attribute or a form that is unknown here is kept byte
//! for byte as [`Unknown`]. Numbers named key, base, flags or operation are the kernel's
//! (`<linux/netfilter/nf_tables.h>`).

mod declared;
mod field;

pub use declared::*;
pub use field::{Bytes, Data, Reg};

use crate::abi::*;
use crate::fields::{DecodeError, Fields};
use crate::netlink::attr::{AttrWriter, Attrs};

/// An expression that is not known here, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The kernel's name of the expression.
    pub name: String,
    /// The payload of `NFTA_EXPR_DATA`; `None` without that attribute.
    pub data: Option<Vec<u8>>,
}

impl Expression {
    /// Reads the payload of an item of `NFTA_RULE_EXPRESSIONS`.
    ///
    /// # Errors
    /// The attributes are broken.
    ///
    /// ```
    /// use nft_netlink::Expression;
    ///
    /// // Name "notrack", without data.
    /// let listed = [12, 0, 1, 0, b'n', b'o', b't', b'r', b'a', b'c', b'k', 0];
    /// let expression = Expression::decode(&listed)?;
    /// assert_eq!(expression.name(), "notrack");
    /// assert_eq!(expression.to_bytes()?, listed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode(listed: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(listed))?;
        let name = fields.str(NFTA_EXPR_NAME)?;
        let data = fields.find(NFTA_EXPR_DATA).map(|data| data.payload);
        match Self::decode_data(name, data) {
            Ok(known) => Ok(known),
            Err(DecodeError::Attribute(error)) if data.is_some_and(is_broken) => Err(error.into()),
            Err(_) => Ok(Self::unknown(name, data)),
        }
    }

    /// Appends `NFTA_EXPR_NAME` and `NFTA_EXPR_DATA`, with the bytes that the kernel lists.
    pub fn encode(&self, w: &mut AttrWriter<'_>) {
        w.str(NFTA_EXPR_NAME, self.name());
        self.encode_data(w);
    }

    /// Returns what [`Expression::encode`] appends.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn to_bytes(&self) -> Result<Vec<u8>, crate::netlink::attr::TooLong> {
        let mut bytes = Vec::new();
        let mut w = AttrWriter::new(&mut bytes);
        self.encode(&mut w);
        w.finish()?;
        Ok(bytes)
    }

    fn unknown(name: &str, data: Option<&[u8]>) -> Self {
        Self::Unknown(Unknown { name: name.to_owned(), data: data.map(<[u8]>::to_vec) })
    }
}

/// Returns whether the attributes cannot be split.
fn is_broken(attributes: &[u8]) -> bool {
    Attrs::new(attributes).any(|attr| attr.is_err())
}
