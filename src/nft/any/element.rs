//! Elements of sets and maps of any table.

use std::time::Duration;

use crate::abi::*;
use crate::expression::{Bytes, Data, Expression, Field};
use crate::fields::{DecodeError, Fields};
use crate::netlink::attr::{Attr, AttrWriter, Attrs};

use super::set::{AnySet, encode_expressions};
use crate::kept::{self, OtherAttribute};

/// An element of a set or map of any table.
///
/// ```
/// use nft_netlink::AnyElement;
///
/// let element = AnyElement::new([10, 0, 0, 1]);
/// assert!(!element.is_catch_all());
/// assert_eq!(element.details().timeout, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnyElement {
    /// The key or the start of a range; empty for the catch-all element.
    pub key: Bytes,
    /// The element is the end of the range before it: the first key after that range.
    pub is_end: bool,
    /// The data of a map element.
    pub data: Option<Data>,
    /// What few elements have.
    pub details: Option<Box<ElementDetails>>,
}

/// What few elements have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementDetails {
    /// The last key of a range in a concatenation.
    pub key_end: Option<Bytes>,
    /// Name of the object in a map of objects.
    pub object: Option<String>,
    /// Time after which the element expires, if it differs from the set's.
    pub timeout: Option<Duration>,
    /// Remaining time until the element expires.
    pub expires: Option<Duration>,
    /// Expressions with their state, such as a counter.
    pub expressions: Vec<Expression>,
    /// Bytes that the kernel stores for the program that made the element.
    pub userdata: Option<Bytes>,
    /// Attributes that are not known here.
    pub other: Vec<OtherAttribute>,
}

impl ElementDetails {
    const NONE: &Self = &Self {
        key_end: None,
        object: None,
        timeout: None,
        expires: None,
        expressions: Vec::new(),
        userdata: None,
        other: Vec::new(),
    };

    /// Returns whether they are equal but for the remaining time and the state of expressions.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let normal = crate::expression::normal_form;
        (&self.key_end, &self.object, self.timeout)
            == (&other.key_end, &other.object, other.timeout)
            && (&self.userdata, &self.other) == (&other.userdata, &other.other)
            && (self.expressions == other.expressions
                || normal(&self.expressions) == normal(&other.expressions))
    }
}

/// A set or map with its elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetContents {
    /// The set or map.
    pub set: AnySet,
    /// Its elements; they are printed only of sets without a name.
    pub elements: Vec<AnyElement>,
}

impl AnyElement {
    /// Returns an element with a key only.
    pub fn new(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Returns what few elements have.
    pub fn details(&self) -> &ElementDetails {
        self.details.as_deref().unwrap_or(ElementDetails::NONE)
    }

    fn details_mut(&mut self) -> &mut ElementDetails {
        self.details.get_or_insert_default()
    }

    /// Returns the elements of a range in a set of single-field ranges: the first key, and the key
    /// after the last one unless that is the highest.
    ///
    /// ```
    /// use nft_netlink::AnyElement;
    ///
    /// let [first, end] = &AnyElement::range([10, 0, 0, 0], &[10, 0, 0, 255])[..] else {
    ///     unreachable!("the range has an end")
    /// };
    /// assert_eq!((first.is_end, end.is_end), (false, true));
    /// assert_eq!(end.key[..], [10, 0, 1, 0]);
    /// ```
    pub fn range(first: impl Into<Bytes>, last: &[u8]) -> Vec<Self> {
        let mut end = last.to_vec();
        let mut has_end = false;
        for byte in end.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                has_end = true;
                break;
            }
        }
        let end = Self { is_end: true, ..Self::new(end) };
        std::iter::once(Self::new(first)).chain(has_end.then_some(end)).collect()
    }

    /// Returns whether the element matches all keys that no other element matches.
    pub fn is_catch_all(&self) -> bool {
        self.key.is_empty()
    }

    /// Returns the comment, as printed by `nft list`.
    pub fn comment(&self) -> Option<&str> {
        self.details().userdata.as_ref().and_then(Bytes::comment)
    }

    fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let mut element = Self::default();
        for attr in attrs {
            let attr = attr?;
            let time = || Ok::<_, DecodeError>(Some(Duration::from_millis(attr.be64()?)));
            match attr.kind {
                NFTA_SET_ELEM_KEY => element.key = decode_value(attr)?,
                NFTA_SET_ELEM_KEY_END => element.details_mut().key_end = Some(decode_value(attr)?),
                NFTA_SET_ELEM_DATA => element.data = Some(Data::read(&attr)?),
                NFTA_SET_ELEM_FLAGS => {
                    element.is_end = attr.be32()? & NFT_SET_ELEM_INTERVAL_END != 0;
                }
                NFTA_SET_ELEM_OBJREF => element.details_mut().object = Some(String::read(&attr)?),
                NFTA_SET_ELEM_TIMEOUT => element.details_mut().timeout = time()?,
                NFTA_SET_ELEM_EXPIRATION => element.details_mut().expires = time()?,
                NFTA_SET_ELEM_EXPR => {
                    element.details_mut().expressions = vec![Expression::decode(attr.payload)?];
                }
                NFTA_SET_ELEM_EXPRESSIONS => element.details_mut().expressions = Vec::read(&attr)?,
                NFTA_SET_ELEM_USERDATA => {
                    element.details_mut().userdata = Some(Bytes::read(&attr)?);
                }
                kind if kind > NFTA_SET_ELEM_EXPRESSIONS => {
                    let payload = attr.payload.into();
                    element.details_mut().other.push(OtherAttribute { kind, payload });
                }
                // Padding.
                _ => {}
            }
        }
        Ok(element)
    }

    /// Appends the attributes that identify the element.
    pub(crate) fn encode_key(&self, w: &mut AttrWriter<'_>) {
        let end = if self.is_end { NFT_SET_ELEM_INTERVAL_END } else { 0 };
        let all = if self.is_catch_all() { NFT_SET_ELEM_CATCHALL } else { 0 };
        if end | all != 0 {
            w.be32(NFTA_SET_ELEM_FLAGS, end | all);
        }
        if !self.is_catch_all() {
            w.nest(NFTA_SET_ELEM_KEY, |w| w.bytes(NFTA_DATA_VALUE, &self.key));
        }
        if let Some(end) = &self.details().key_end {
            w.nest(NFTA_SET_ELEM_KEY_END, |w| w.bytes(NFTA_DATA_VALUE, end));
        }
    }

    /// Appends the attributes of the message that adds the element. The remaining time is left out,
    /// so that the element lives as long as a new one.
    pub(crate) fn encode(&self, w: &mut AttrWriter<'_>) {
        self.encode_key(w);
        if let Some(data) = &self.data {
            data.write(NFTA_SET_ELEM_DATA, w);
        }
        let Some(details) = &self.details else { return };
        if let Some(object) = &details.object {
            w.str(NFTA_SET_ELEM_OBJREF, object);
        }
        if let Some(timeout) = details.timeout {
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            w.be64(NFTA_SET_ELEM_TIMEOUT, milliseconds);
        }
        let (one, several) = (NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS);
        encode_expressions(&details.expressions, one, several, w);
        kept::write_userdata(details.userdata.as_ref(), NFTA_SET_ELEM_USERDATA, w);
        kept::write(&details.other, w);
    }
}

/// Reads the attributes of an `NFT_MSG_NEWSETELEM` message and calls `each` for every element.
///
/// # Errors
/// The attributes are broken; `each` was called for the elements before.
pub fn decode_any_elements(
    attributes: &[u8],
    mut each: impl FnMut(AnyElement),
) -> Result<(), DecodeError> {
    let fields = Fields::read(Attrs::new(attributes))?;
    let Some(list) = fields.find(NFTA_SET_ELEM_LIST_ELEMENTS) else { return Ok(()) };
    for item in list.nested() {
        each(AnyElement::decode(item?.nested())?);
    }
    Ok(())
}

fn decode_value(key: Attr<'_>) -> Result<Bytes, DecodeError> {
    let missing = DecodeError::Missing { kind: NFTA_DATA_VALUE };
    let value = key.nested().next().ok_or(missing)??;
    if value.kind == NFTA_DATA_VALUE { Ok(value.payload.into()) } else { Err(missing) }
}
