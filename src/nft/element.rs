//! Elements of sets and maps.
//!
//! Decoding copies nothing, because tables have hundreds of thousands of elements.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::abi::*;
use super::element_type::length;
use super::fields::{DecodeError, Fields};
use super::text::{Comment, Time};
use crate::counter;
use crate::counter::Counter;
use crate::element_type::Type;
use crate::netlink::attr::{AttrWriter, Attrs};
use crate::print::{Kind, key_type};
use crate::set::Set;
use crate::userdata::{self, write_userdata};
use crate::value::Value;

/// Length in bytes above which a list of elements is closed.
///
/// The list is one attribute, at most 65535 bytes long. An element takes less than 1 KiB: two keys
/// of 48 bytes, a verdict with a chain name of 255 bytes, a comment of 128 bytes and headers.
pub const LIST_LIMIT: usize = 65_535 - 1_024;

/// Appends the elements of a message, at least one, until the list is full. Returns their number.
pub(super) fn write_list<T>(
    w: &mut AttrWriter<'_>,
    elements: &[T],
    mut encode: impl FnMut(&T, &mut AttrWriter<'_>),
) -> usize {
    let mut written = 0;
    w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
        let start = w.position();
        for element in elements {
            w.nest(NFTA_LIST_ELEM, |w| encode(element, w));
            written += 1;
            if w.position() - start > LIST_LIMIT {
                return;
            }
        }
    });
    written
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key, or the first key of a range.
    pub key: Value,
    /// Last key of a range, with each field compared on its own; needs a concatenation of types.
    pub key_end: Option<Box<Value>>,
    /// The data of a map element; `None` in a set.
    pub data: Option<Value>,
    /// The comment, as printed by `nft list`; truncated to 128 bytes when sent.
    pub comment: Option<Arc<str>>,
    /// Time after which the kernel deletes the element, in a set of elements with timeouts; `None`
    /// for the timeout of the set, if it has one.
    pub timeout: Option<Duration>,
}

impl Element {
    /// Returns an element with a key only.
    pub const fn new(key: Value) -> Self {
        Self { key, key_end: None, data: None, comment: None, timeout: None }
    }

    /// Returns an element of a map.
    pub fn with_value(key: Value, data: Value) -> Self {
        Self { data: Some(data), ..Self::new(key) }
    }

    /// Returns whether key and data have the lengths of the set's types.
    pub(super) fn fits(&self, set: &Set) -> bool {
        let data_fits = match &self.data {
            Some(data) => !set.data.is_empty() && fits(data, &set.data),
            None => set.data.is_empty(),
        };
        data_fits && self.key_fits(set)
    }

    /// Returns whether the key has the length of the set's types.
    pub(super) fn key_fits(&self, set: &Set) -> bool {
        let end_fits = |end: &Value| fits(end, &set.key) && set.is_interval_concatenation();
        fits(&self.key, &set.key) && self.key_end.as_deref().is_none_or(end_fits)
    }

    pub(super) fn encode(&self, set: &Set, w: &mut AttrWriter<'_>) {
        self.encode_key(set, w);
        if let Some(data) = &self.data {
            write_value(w, NFTA_SET_ELEM_DATA, data, &set.data);
        }
        if let Some(timeout) = self.timeout {
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            w.be64(NFTA_SET_ELEM_TIMEOUT, milliseconds);
        }
        write_userdata(w, NFTA_SET_ELEM_USERDATA, self.comment.as_deref());
    }

    /// Appends the key of the element.
    pub(super) fn encode_key(&self, set: &Set, w: &mut AttrWriter<'_>) {
        write_value(w, NFTA_SET_ELEM_KEY, &self.key, &set.key);
        // nft_pipapo requires both ends, even where they are equal.
        if set.is_interval_concatenation() {
            let end = self.key_end.as_deref().unwrap_or(&self.key);
            write_value(w, NFTA_SET_ELEM_KEY_END, end, &set.key);
        }
    }

    /// Returns the element as printed by `nft list`: `10.96.0.1 . tcp . 443 comment
    /// "default/kubernetes"`.
    pub fn text(&self, set: &Set) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            write_key_text(f, &set.key, &self.key, self.key_end.as_deref())?;
            if let Some(timeout) = self.timeout {
                write!(f, " timeout {}", Time(timeout))?;
            }
            write!(f, "{}", Comment(self.comment.as_deref()))?;
            let Some(data) = &self.data else { return Ok(()) };
            f.write_str(" : ")?;
            write_key_text(f, &set.data, data, None)
        })
    }

    /// Returns the key as printed by `nft list`.
    pub fn key_text(&self, set: &Set) -> impl fmt::Display {
        fmt::from_fn(move |f| write_key_text(f, &set.key, &self.key, self.key_end.as_deref()))
    }
}

fn fits(value: &Value, types: &[Type]) -> bool {
    value.as_bytes().len() == length(types).next_multiple_of(4) as usize
}

fn write_value(w: &mut AttrWriter<'_>, kind: u16, value: &Value, types: &[Type]) {
    let bytes = value.as_bytes();
    // A single field is shorter in the kernel than in a register.
    let bytes = bytes.get(..length(types) as usize).unwrap_or(bytes);
    w.nest(kind, |w| w.bytes(NFTA_DATA_VALUE, bytes));
}

fn write_key_text(
    f: &mut fmt::Formatter<'_>,
    types: &[Type],
    first: &Value,
    last: Option<&Value>,
) -> fmt::Result {
    let mut start = 0;
    for (i, kind) in types.iter().enumerate() {
        let length = kind.length() as usize;
        let field = |value: &Value| -> Vec<u8> {
            value.as_bytes().get(start..start + length).unwrap_or_default().to_vec()
        };
        f.write_str(if i > 0 { " . " } else { "" })?;
        let (first, last) = (field(first), last.map(field));
        f.write_str(&field_text(*kind, first.clone(), last.unwrap_or(first)))?;
        start += length.next_multiple_of(4);
    }
    Ok(())
}

/// Returns a field, or a range of two different ones.
fn field_text(kind: Type, mut first: Vec<u8>, mut last: Vec<u8>) -> String {
    if kind.is_host() && cfg!(target_endian = "little") {
        first.reverse();
        last.reverse();
    }
    // nft(8) lists the name of an interface, and also loads its index.
    // The numbers of the first two are those of other types.
    let form = if matches!(kind, Type::Transport { .. }) {
        Kind::Hex(1)
    } else if kind == Type::Integer {
        Kind::Number
    } else {
        key_type(kind.number()).map_or(Kind::Number, |(_, _, form, ..)| *form)
    };
    form.range_text(&first, &last, &|_| None)
}

/// An element in a message from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElementView<'a> {
    /// The key or the first key of a range, in the length of the set's key. A single field has no
    /// padding.
    pub key: &'a [u8],
    /// Last key of a range.
    pub key_end: Option<&'a [u8]>,
    /// The data of a map element, without padding of a single field; `None` also for a verdict.
    pub data: Option<&'a [u8]>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<&'a str>,
    /// Timeout of the element, if it has its own.
    pub timeout: Option<Duration>,
    /// Remaining time until the element expires.
    pub expires: Option<Duration>,
    /// `NFT_SET_ELEM_*`.
    pub flags: u32,
    /// The count of the element, if its set has counters.
    pub counter: Option<Counter>,
}

impl ElementView<'_> {
    /// Returns the element as sent, padded to words; `None` if a
    /// transaction cannot contain such an element.
    pub fn to_element(&self) -> Option<Element> {
        let optional = |bytes: Option<&[u8]>| match bytes {
            Some(bytes) => Value::from_bytes(bytes).map(Some),
            None => Some(None),
        };
        let key = Value::from_bytes(self.key)?;
        let key_end = optional(self.key_end)?.filter(|end| *end != key).map(Box::new);
        let data = optional(self.data)?;
        let comment = self.comment.map(Arc::from);
        let timeout = self.timeout;
        (self.flags == 0).then_some(Element { key, key_end, data, comment, timeout })
    }
}

/// Reads the attributes of an `NFT_MSG_NEWSETELEM` message and calls `each` for every element.
///
/// # Errors
/// The attributes are broken; `each` was called for the elements before.
pub fn decode_elements<'a>(
    attributes: &'a [u8],
    mut each: impl FnMut(ElementView<'a>),
) -> Result<(), DecodeError> {
    let fields = Fields::read(Attrs::new(attributes))?;
    let Some(list) = fields.find(NFTA_SET_ELEM_LIST_ELEMENTS) else { return Ok(()) };
    for item in list.nested() {
        each(decode_element(item?.nested())?);
    }
    Ok(())
}

fn decode_element(attrs: Attrs<'_>) -> Result<ElementView<'_>, DecodeError> {
    let fields = Fields::read(attrs)?;
    let value = |kind| -> Result<Option<&[u8]>, DecodeError> {
        let Some(attr) = fields.find(kind) else { return Ok(None) };
        Ok(Some(Fields::read(attr.nested())?.need(NFTA_DATA_VALUE)?.payload))
    };
    let data = match fields.find(NFTA_SET_ELEM_DATA) {
        Some(data) => Fields::read(data.nested())?.find(NFTA_DATA_VALUE),
        None => None,
    };
    let milliseconds = |kind| Ok::<_, DecodeError>(fields.be64(kind)?.map(Duration::from_millis));
    Ok(ElementView {
        // The catch-all element has no key, but a flag.
        key: value(NFTA_SET_ELEM_KEY)?.unwrap_or_default(),
        key_end: value(NFTA_SET_ELEM_KEY_END)?,
        data: data.map(|data| data.payload),
        comment: fields
            .find(NFTA_SET_ELEM_USERDATA)
            .and_then(|attr| userdata::read_comment(attr.payload)),
        timeout: milliseconds(NFTA_SET_ELEM_TIMEOUT)?,
        expires: milliseconds(NFTA_SET_ELEM_EXPIRATION)?,
        flags: fields.be32_or_zero(NFTA_SET_ELEM_FLAGS)?,
        counter: counter::of_element(&fields)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // nft --debug=mnl list set ip t s, of an element that three packets of 60 bytes found (nft 1.0.6;
    // the kernel sends the bytes first).
    #[rustfmt::skip]
    const ELEMENT: &[u8] = &[
        68, 0, 3, 0x80,
            64, 0, 1, 0x80,
                12, 0, 1, 0x80,
                    8, 0, 1, 0, 10, 96, 0, 1,
                48, 0, 7, 0x80,
                    12, 0, 1, 0, b'c', b'o', b'u', b'n', b't', b'e', b'r', 0,
                    28, 0, 2, 0x80,
                        12, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 180,
                        12, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3,
                        4, 0, 3, 0,
    ];

    /// Returns the counter of the only element, and the element.
    fn decoded(bytes: &[u8]) -> Result<(Option<Counter>, Option<Element>), DecodeError> {
        let mut element = (None, None);
        decode_elements(bytes, |view| element = (view.counter, view.to_element()))?;
        Ok(element)
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_counter_is_read_and_is_no_part_of_the_element() {
        let counter = Counter { packets: 3, bytes: 180 };
        let element = Element::new(Value::new().ip([10, 96, 0, 1].into()));
        assert_eq!(decoded(ELEMENT), Ok((Some(counter), Some(element))));
    }

    #[test]
    fn an_element_is_printed_as_in_nft() {
        let timeout = Some(Duration::from_secs(90));
        let limited = Element { timeout, ..Element::new(Value::new().ip([192, 0, 2, 1].into())) };
        let set = Set { key: vec![Type::Ipv4Addr], ..Set::default() };
        assert_eq!(limited.text(&set).to_string(), "192.0.2.1 timeout 1m30s");
        let bits = Type::Transport { offset: 136, length: 8 };
        let rows = [
            (vec![Type::EtherAddr], Value::new().ether([2, 0, 0, 0, 1, 0xab]), "02:00:00:00:01:ab"),
            (vec![Type::Mark], Value::new().mark(3), "0x00000003"),
            (vec![Type::IfaceIndex], Value::new().interface(7), "7"),
            (
                vec![Type::IpSaddr, bits, Type::IpProtocol, Type::IpId],
                Value::new().ip([192, 0, 2, 1].into()).proto(17).proto(6).port(258),
                "192.0.2.1 . 0x11 . tcp . 258",
            ),
        ];
        for (key, value, text) in rows {
            let set = Set { key, ..Set::default() };
            let element = Element::new(value);
            assert!(element.fits(&set));
            assert_eq!(element.text(&set).to_string(), text);
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_counter_without_its_packets_is_an_error() {
        let mut bytes = ELEMENT.to_vec();
        // Changes the type of the packets to an unknown one.
        bytes[ELEMENT.len() - 4 - 12 + 2] = 9;
        assert_eq!(decoded(&bytes), Err(DecodeError::Missing { kind: NFTA_COUNTER_PACKETS }));
    }
}
