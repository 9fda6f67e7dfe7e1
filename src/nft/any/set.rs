//! Sets and maps of any table.

use crate::abi::*;
use crate::expression::{Bytes, Expression, Field, write_list};
use crate::fields::{DecodeError, Fields};
use crate::netlink::attr::{AttrWriter, Attrs, TooLong};
use crate::userdata;

use crate::kept::{self, OtherAttribute};

/// A set or map of any table.
///
/// ```
/// use nft_netlink::AnySet;
///
/// let set = AnySet::of_types("s", "ipv4_addr . inet_service")?;
/// assert_eq!(AnySet::decode(&set.encode("t", 1)?)?, set);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnySet {
    /// Name within the table.
    pub name: String,
    /// Length of the key in bytes.
    pub key_length: usize,
    /// Length of the data in bytes; 0 for sets. Maps of verdicts have that of the kernel's `struct
    /// nft_verdict`: 16, with a 32-bit kernel 8.
    pub data_length: usize,
    /// `NFT_SET_*` flags.
    pub flags: u32,
    /// Type of the key for the program that made the set; nft(8) numbers its types.
    pub key_type: u32,
    /// Type of the data, like `key_type`.
    pub data_type: u32,
    /// `NFT_OBJECT_*`, in a map of objects.
    pub object_type: u32,
    /// `NFT_SET_POL_*`.
    pub policy: u32,
    /// Maximum number of elements. With it the kernel makes the whole hash table at once. Without
    /// it the table grows behind the elements: a transaction of 100,000 takes about twice as long,
    /// and so does a read (`make bench-nft`, Linux 6.18). A larger size of a set that exists raises
    /// the limit alone (`findings/raised-set-size.sh`).
    pub size: Option<u32>,
    /// Lengths of the key's fields in bytes, of a concatenation of ranges.
    pub field_lengths: Vec<u32>,
    /// Milliseconds after which elements expire, unless they have a timeout of their own.
    pub timeout: Option<u64>,
    /// Milliseconds between two searches for expired elements.
    pub gc_interval: Option<u32>,
    /// The expressions of each new element.
    pub expressions: Vec<Expression>,
    /// Bytes that the kernel stores for the program that made the set.
    pub userdata: Option<Bytes>,
    /// Attributes that are not known here.
    pub other: Vec<OtherAttribute>,
}

impl AnySet {
    /// `NFT_SET_ANONYMOUS`: belongs to a rule.
    pub const ANONYMOUS: u32 = 0x1;
    /// `NFT_SET_INTERVAL`: elements may be ranges.
    pub const INTERVAL: u32 = 0x4;
    /// `NFT_SET_MAP`: elements have data.
    pub const MAP: u32 = 0x8;
    /// `NFT_SET_TIMEOUT`: elements may expire.
    pub const TIMEOUT: u32 = 0x10;
    /// `NFT_SET_EVAL`: rules may add elements.
    pub const DYNAMIC: u32 = 0x20;
    /// `NFT_SET_OBJECT`: elements name objects.
    pub const OBJECT: u32 = 0x40;
    /// `NFT_SET_CONCAT`: the key is a concatenation of ranges.
    pub const CONCATENATION: u32 = 0x80;
    /// [`AnySet::data_type`] of a map of verdicts.
    pub const VERDICT: u32 = 0xffff_ff00;

    /// Returns whether the elements have data.
    pub fn is_map(&self) -> bool {
        self.flags & (Self::MAP | Self::OBJECT) != 0
    }

    /// Returns whether the set belongs to a rule and has no name of its own.
    pub fn is_anonymous(&self) -> bool {
        self.flags & Self::ANONYMOUS != 0
    }

    /// Returns whether elements may be ranges.
    pub fn is_interval(&self) -> bool {
        self.flags & Self::INTERVAL != 0
    }

    /// Returns whether the kernel stores the length of each key field, as in concatenations of
    /// ranges: `NFT_SET_CONCAT`.
    pub fn is_concatenation(&self) -> bool {
        self.flags & Self::CONCATENATION != 0
    }

    /// Returns whether rules may add elements: `NFT_SET_EVAL`.
    pub fn is_dynamic(&self) -> bool {
        self.flags & Self::DYNAMIC != 0
    }

    /// Returns whether the kernel may store the elements in a hash table that grows in the
    /// background. Where it can, it chooses one of a constant size (`nft_hash_estimate`).
    pub(crate) fn grows_unseen(&self) -> bool {
        self.size.is_none() || self.flags & (Self::TIMEOUT | Self::DYNAMIC) != 0
    }

    /// Returns whether nft(8) notes that data is in host byte order.
    pub fn is_data_host(&self) -> bool {
        self.userdata.as_ref().is_some_and(|bytes| userdata::is_data_host(bytes))
    }

    /// Returns the comment, as printed by `nft list`.
    pub fn comment(&self) -> Option<&str> {
        self.userdata.as_ref().and_then(|bytes| userdata::read_set_comment(bytes))
    }

    /// Reads the attributes of an `NFT_MSG_NEWSET` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let length = |kind| Ok::<_, DecodeError>(fields.be32_or_zero(kind)? as usize);
        let (size, field_lengths) = match fields.find(NFTA_SET_DESC) {
            Some(description) => decode_description(description.nested())?,
            None => (None, Vec::new()),
        };
        Ok(Self {
            name: fields.str(NFTA_SET_NAME)?.to_owned(),
            key_length: length(NFTA_SET_KEY_LEN)?,
            data_length: length(NFTA_SET_DATA_LEN)?,
            flags: fields.be32_or_zero(NFTA_SET_FLAGS)?,
            key_type: fields.be32_or_zero(NFTA_SET_KEY_TYPE)?,
            data_type: fields.be32_or_zero(NFTA_SET_DATA_TYPE)?,
            object_type: fields.be32_or_zero(NFTA_SET_OBJ_TYPE)?,
            policy: fields.be32_or_zero(NFTA_SET_POLICY)?,
            size,
            field_lengths,
            timeout: fields.be64(NFTA_SET_TIMEOUT)?,
            gc_interval: fields.optional_be32(NFTA_SET_GC_INTERVAL)?,
            expressions: decode_expressions(&fields)?,
            userdata: fields.find(NFTA_SET_USERDATA).map(|attr| Bytes::from(attr.payload)),
            other: kept::others(Attrs::new(attributes), NFTA_SET_COUNT)?,
        })
    }

    /// Returns the attributes of the message that creates the set in `table`; `id` is unique in its
    /// batch and not 0.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn encode(&self, table: &str, id: u32) -> Result<Vec<u8>, TooLong> {
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        kept::written(|w| {
            w.str(NFTA_SET_TABLE, table);
            w.str(NFTA_SET_NAME, &self.name);
            w.be32(NFTA_SET_FLAGS, self.flags);
            w.be32(NFTA_SET_KEY_TYPE, self.key_type);
            w.be32(NFTA_SET_KEY_LEN, length(self.key_length));
            if self.flags & Self::MAP != 0 {
                w.be32(NFTA_SET_DATA_TYPE, self.data_type);
                w.be32(NFTA_SET_DATA_LEN, length(self.data_length));
            }
            if self.flags & Self::OBJECT != 0 {
                w.be32(NFTA_SET_OBJ_TYPE, self.object_type);
            }
            w.be32(NFTA_SET_ID, id);
            self.encode_properties(w);
            encode_expressions(&self.expressions, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS, w);
            kept::write_userdata(self.userdata.as_ref(), NFTA_SET_USERDATA, w);
            kept::write(&self.other, w);
        })
    }

    fn encode_properties(&self, w: &mut AttrWriter<'_>) {
        if self.policy != 0 {
            w.be32(NFTA_SET_POLICY, self.policy);
        }
        if self.size.is_some() || !self.field_lengths.is_empty() {
            w.nest(NFTA_SET_DESC, |w| {
                if let Some(size) = self.size {
                    w.be32(NFTA_SET_DESC_SIZE, size);
                }
                if !self.field_lengths.is_empty() {
                    w.nest(NFTA_SET_DESC_CONCAT, |w| {
                        for length in &self.field_lengths {
                            w.nest(NFTA_LIST_ELEM, |w| w.be32(NFTA_SET_FIELD_LEN, *length));
                        }
                    });
                }
            });
        }
        if let Some(timeout) = self.timeout {
            w.be64(NFTA_SET_TIMEOUT, timeout);
        }
        if let Some(interval) = self.gc_interval {
            w.be32(NFTA_SET_GC_INTERVAL, interval);
        }
    }
}

/// Returns the maximum number of elements, and the lengths of the key's fields.
fn decode_description(description: Attrs<'_>) -> Result<(Option<u32>, Vec<u32>), DecodeError> {
    let fields = Fields::read(description)?;
    let mut lengths = Vec::new();
    if let Some(concatenation) = fields.find(NFTA_SET_DESC_CONCAT) {
        for field in concatenation.nested() {
            lengths.push(Fields::read(field?.nested())?.be32(NFTA_SET_FIELD_LEN)?);
        }
    }
    Ok((fields.optional_be32(NFTA_SET_DESC_SIZE)?, lengths))
}

/// Reads the expressions of a set: one, or a list.
fn decode_expressions(fields: &Fields<'_>) -> Result<Vec<Expression>, DecodeError> {
    if let Some(list) = fields.find(NFTA_SET_EXPRESSIONS) {
        return Vec::read(&list);
    }
    let one = fields.find(NFTA_SET_EXPR);
    one.map(|expression| Expression::decode(expression.payload)).into_iter().collect()
}

/// Appends the expressions of a set or element.
pub(super) fn encode_expressions(
    expressions: &[Expression],
    one: u16,
    several: u16,
    w: &mut AttrWriter<'_>,
) {
    match expressions {
        [] => {}
        [only] => w.nest(one, |w| only.encode(w)),
        list => write_list(list, several, w),
    }
}
