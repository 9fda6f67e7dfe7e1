//! Stateful objects of any table: counters, quotas, limits, helpers and others.

use crate::abi::*;
use crate::expression::{Bytes, Expression, Unknown};
use crate::fields::{DecodeError, Fields};
use crate::netlink::attr::{Attrs, TooLong};

use crate::kept::{self, OtherAttribute};

/// A stateful object of any table.
///
/// ```
/// use nft_netlink::expression::CounterExpression;
/// use nft_netlink::Object;
///
/// let state = CounterExpression { bytes: 0, packets: 0 }.into();
/// let counter = Object::new("web", Object::COUNTER, state);
/// assert_eq!(Object::decode(&counter.encode("t")?)?, counter);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name within the table.
    pub name: String,
    /// `NFT_OBJECT_*`.
    pub kind: u32,
    /// Properties and state. An object whose attributes are those of an expression has that form;
    /// all others are [`Expression::Unknown`], byte for byte.
    pub state: Expression,
    /// Bytes that the kernel stores for the program that made the object.
    pub userdata: Option<Bytes>,
    /// Attributes that are not known here.
    pub other: Vec<OtherAttribute>,
}

/// Names of `NFT_OBJECT_*` from 1 on, in the words of nft(8). Those of expressions have the
/// kernel's names.
const NAMES: [&str; 10] = [
    "counter",
    "quota",
    "ct helper",
    "limit",
    "connlimit",
    "tunnel object",
    "ct timeout",
    "secmark",
    "ct expectation",
    "synproxy",
];

impl Object {
    /// `NFT_OBJECT_COUNTER`.
    pub const COUNTER: u32 = 1;
    /// `NFT_OBJECT_QUOTA`.
    pub const QUOTA: u32 = 2;
    /// `NFT_OBJECT_LIMIT`.
    pub const LIMIT: u32 = 4;

    /// Returns an object without user data.
    pub fn new(name: &str, kind: u32, state: Expression) -> Self {
        Self { name: name.to_owned(), kind, state, userdata: None, other: Vec::new() }
    }

    /// Returns the keyword of nft(8) for the type.
    pub fn noun(&self) -> &'static str {
        noun(self.kind)
    }

    /// Reads the attributes of an `NFT_MSG_NEWOBJ` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let kind = fields.be32(NFTA_OBJ_TYPE)?;
        let data = fields.find(NFTA_OBJ_DATA).map(|data| data.payload);
        let name = noun(kind);
        let state = Expression::decode_data(name, data).unwrap_or_else(|_| {
            let data = data.map(<[u8]>::to_vec);
            Expression::Unknown(Unknown { name: name.to_owned(), data })
        });
        Ok(Self {
            name: fields.str(NFTA_OBJ_NAME)?.to_owned(),
            kind,
            state,
            userdata: fields.find(NFTA_OBJ_USERDATA).map(|attr| Bytes::from(attr.payload)),
            other: kept::others(Attrs::new(attributes), NFTA_OBJ_USERDATA)?,
        })
    }

    /// Returns the attributes of the message that creates the object in `table`.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn encode(&self, table: &str) -> Result<Vec<u8>, TooLong> {
        let state = self.state.to_bytes()?;
        let data = Fields::read(Attrs::new(&state)).ok().and_then(|it| it.find(NFTA_EXPR_DATA));
        kept::written(|w| {
            w.str(NFTA_OBJ_TABLE, table);
            w.str(NFTA_OBJ_NAME, &self.name);
            w.be32(NFTA_OBJ_TYPE, self.kind);
            w.nest(NFTA_OBJ_DATA, |w| w.encoded(data.map_or(&[], |data| data.payload)));
            kept::write_userdata(self.userdata.as_ref(), NFTA_OBJ_USERDATA, w);
            kept::write(&self.other, w);
        })
    }
}

/// Returns the type with a keyword of nft(8), `NFT_OBJECT_*`.
pub(super) fn kind_of(noun: &str) -> Option<u32> {
    (1..).zip(NAMES).find(|(_, name)| *name == noun).map(|(kind, _)| kind)
}

/// Returns the keyword of nft(8) for a type, `NFT_OBJECT_*`.
pub(super) fn noun(kind: u32) -> &'static str {
    let index = usize::try_from(kind).ok().and_then(|kind| kind.checked_sub(1));
    index.and_then(|index| NAMES.get(index)).copied().unwrap_or("object")
}
