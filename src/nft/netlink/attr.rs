//! Netlink attributes: a length, a type and a payload, padded to four bytes.
//!
//! The header is in host byte order. Numbers in nf_tables payloads are in network byte order, so
//! every method that reads or writes a number names its order. The layout is that of `struct
//! nlattr` in `<linux/netlink.h>`. The reader only moves forward and checks every length.

use std::str;

use thiserror::Error;

/// Appends attributes to a buffer.
///
/// [`AttrWriter::finish`] reports an attribute whose length does not fit its 16-bit field. The
/// caller must then discard the buffer.
#[derive(Debug)]
pub struct AttrWriter<'a> {
    buffer: &'a mut Vec<u8>,
    overflow: bool,
    /// The flags of nested attributes.
    nested: u16,
}

impl<'a> AttrWriter<'a> {
    /// Returns a writer that appends to `buffer`, whose length must be a multiple of four.
    pub fn new(buffer: &'a mut Vec<u8>) -> Self {
        Self { buffer, overflow: false, nested: NLA_F_NESTED }
    }

    /// Returns a writer like [`AttrWriter::new`] that leaves out the flag of nested attributes:
    /// nf_tables lists its objects without it and accepts both.
    pub fn listed(buffer: &'a mut Vec<u8>) -> Self {
        Self { nested: 0, ..Self::new(buffer) }
    }

    /// Appends a payload without change.
    pub fn bytes(&mut self, kind: u16, payload: &[u8]) {
        self.append(kind, |buffer| buffer.extend_from_slice(payload));
    }

    /// Appends the payload that `fill` appends to the buffer.
    pub(crate) fn append(&mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
        self.attribute(kind, |w| fill(w.buffer));
    }

    /// Appends a string and its terminating NUL.
    pub fn str(&mut self, kind: u16, text: &str) {
        self.append(kind, |buffer| {
            buffer.extend_from_slice(text.as_bytes());
            buffer.push(0);
        });
    }

    /// Appends one byte.
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    /// Appends a number in network byte order.
    pub fn be16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Appends a number in network byte order.
    pub fn be32(&mut self, kind: u16, value: u32) {
        // The most frequent attribute needs neither a length that is written later nor padding.
        let ([a, b], [c, d], [e, f, g, h]) =
            (BE32_LENGTH.to_ne_bytes(), kind.to_ne_bytes(), value.to_be_bytes());
        self.buffer.extend_from_slice(&[a, b, c, d, e, f, g, h]);
    }

    /// Appends a number in network byte order.
    pub fn be64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Appends an attribute whose payload is the attributes that `fill` writes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut AttrWriter<'_>)) {
        self.attribute(kind | self.nested, fill);
    }

    /// Appends attributes that are encoded already.
    pub fn encoded(&mut self, attributes: &[u8]) {
        self.buffer.extend_from_slice(attributes);
    }

    /// Bytes in the buffer, including those before this writer.
    pub fn position(&self) -> usize {
        self.buffer.len()
    }

    /// Checks that every attribute fits its length field.
    ///
    /// # Errors
    /// An attribute, nested ones included, is longer than 65535 bytes with its header.
    pub fn finish(self) -> Result<(), TooLong> {
        if self.overflow { Err(TooLong) } else { Ok(()) }
    }

    fn attribute(&mut self, kind: u16, fill: impl FnOnce(&mut AttrWriter<'_>)) {
        let start = self.buffer.len();
        let [first, second] = kind.to_ne_bytes();
        self.buffer.extend_from_slice(&[0, 0, first, second]);
        fill(self);
        match u16::try_from(self.buffer.len() - start) {
            Ok(length) => self.buffer[start..start + 2].copy_from_slice(&length.to_ne_bytes()),
            Err(_) => self.overflow = true,
        }
        self.buffer.resize(self.buffer.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// An attribute or a message is too long for its length field of 16 or 32 bits.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a netlink attribute or message is too long for its length field")]
pub struct TooLong;

/// Reads attributes in order.
///
/// The first error is the last item.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Attrs<'a> {
    /// Returns a reader of the attributes that fill `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 0 }
    }

    /// Offset of the next attribute from the start of `bytes`.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn step(&mut self) -> Result<Attr<'a>, AttrError> {
        let (header, _) = self.rest.split_first_chunk::<HEADER>().ok_or(AttrError::Truncated)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        let payload = self.rest.get(HEADER..length).ok_or(AttrError::BadLength { length })?;
        // The kernel omits the padding of the last attribute.
        let padded = length.next_multiple_of(ALIGNMENT).min(self.rest.len());
        self.rest = self.rest.get(padded..).unwrap_or_default();
        self.offset += padded;
        Ok(Attr { kind, payload })
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, AttrError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let attr = self.step();
        if attr.is_err() {
            self.rest = &[];
        }
        Some(attr)
    }
}

/// One attribute, without the flags of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// The type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    pub kind: u16,
    /// The bytes after the header, without padding.
    pub payload: &'a [u8],
}

impl<'a> Attr<'a> {
    /// Returns the payload as one byte.
    ///
    /// # Errors
    /// The payload is not one byte long.
    pub fn u8(&self) -> Result<u8, AttrError> {
        self.number().map(u8::from_be_bytes)
    }

    /// Returns the payload as a number in network byte order.
    ///
    /// # Errors
    /// The payload is not two bytes long.
    pub fn be16(&self) -> Result<u16, AttrError> {
        self.number().map(u16::from_be_bytes)
    }

    /// Returns the payload as a number in network byte order.
    ///
    /// # Errors
    /// The payload is not four bytes long.
    pub fn be32(&self) -> Result<u32, AttrError> {
        self.number().map(u32::from_be_bytes)
    }

    /// Returns the payload as a number in network byte order.
    ///
    /// # Errors
    /// The payload is not eight bytes long.
    pub fn be64(&self) -> Result<u64, AttrError> {
        self.number().map(u64::from_be_bytes)
    }

    /// Returns the payload as text, up to the first NUL or the end.
    ///
    /// # Errors
    /// The payload is not UTF-8.
    pub fn str(&self) -> Result<&'a str, AttrError> {
        let text = self.payload.split(|&byte| byte == 0).next().unwrap_or_default();
        str::from_utf8(text).map_err(|_| AttrError::NotText { kind: self.kind })
    }

    /// Returns a reader of the attributes inside the payload.
    pub fn nested(&self) -> Attrs<'a> {
        Attrs::new(self.payload)
    }

    fn number<const N: usize>(&self) -> Result<[u8; N], AttrError> {
        self.payload.try_into().map_err(|_| AttrError::WrongSize {
            kind: self.kind,
            expected: N,
            found: self.payload.len(),
        })
    }
}

/// Why received attributes cannot be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AttrError {
    /// Fewer bytes are left than an attribute header has.
    #[error("truncated attribute header")]
    Truncated,
    /// The length is shorter than the header or exceeds the bytes left.
    #[error("attribute length {length} does not fit the received bytes")]
    BadLength {
        /// Length as received, in bytes.
        length: usize,
    },
    /// The payload of a number has the wrong size.
    #[error("attribute {kind} has {found} bytes instead of {expected}")]
    WrongSize {
        /// Type of the attribute.
        kind: u16,
        /// Size of the number in bytes.
        expected: usize,
        /// Received bytes.
        found: usize,
    },
    /// A string is not UTF-8.
    #[error("attribute {kind} is not text")]
    NotText {
        /// Type of the attribute.
        kind: u16,
    },
}

const HEADER: usize = 4;
const ALIGNMENT: usize = 4;
/// Length of an attribute with a 32-bit number.
const BE32_LENGTH: u16 = 8;
/// Flag of an attribute type: the payload consists of attributes.
pub const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_attribute_is_length_type_payload_and_padding() {
        let mut buffer = Vec::new();
        let mut w = AttrWriter::new(&mut buffer);
        w.str(1, "ip");
        w.nest(2, |w| w.be16(3, 443));
        w.finish().unwrap();
        let expected = [
            [7, 0, 1, 0, b'i', b'p', 0, 0].as_slice(),
            &[12, 0, 2, 0x80, 6, 0, 3, 0, 1, 0xbb, 0, 0],
        ];
        // The header is in host byte order; the bytes above are those of a little-endian host.
        if cfg!(target_endian = "little") {
            assert_eq!(buffer, expected.concat());
        }
    }

    #[test]
    fn written_attributes_are_read_back() {
        let mut buffer = Vec::new();
        let mut w = AttrWriter::new(&mut buffer);
        w.u8(1, 7);
        w.be32(2, 0x0a00_0001);
        w.be64(3, 600_000);
        w.nest(4, |w| w.str(5, "endpoints"));
        w.finish().unwrap();
        let attrs: Vec<_> = Attrs::new(&buffer).map(Result::unwrap).collect();
        assert_eq!(attrs.iter().map(|attr| attr.kind).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(attrs[0].u8(), Ok(7));
        assert_eq!(attrs[1].be32(), Ok(0x0a00_0001));
        assert_eq!(attrs[2].be64(), Ok(600_000));
        assert_eq!(attrs[3].nested().next().unwrap().unwrap().str(), Ok("endpoints"));
    }

    #[test]
    fn an_attribute_over_65535_bytes_is_an_error_even_when_nested() {
        for payload in [65_531, 65_532] {
            let mut buffer = Vec::new();
            let mut w = AttrWriter::new(&mut buffer);
            w.bytes(1, &vec![0; payload]);
            assert_eq!(w.finish().is_err(), payload == 65_532);
        }
        let mut buffer = Vec::new();
        let mut w = AttrWriter::new(&mut buffer);
        w.nest(1, |w| w.bytes(2, &[0; 65_531]));
        assert_eq!(w.finish(), Err(TooLong));
    }

    #[test]
    fn an_impossible_length_ends_the_iteration() {
        for bytes in [&[0, 0, 1, 0][..], &[3, 0, 1, 0], &[9, 0, 1, 0, 0, 0, 0, 0], &[4, 0, 1]] {
            let mut attrs = Attrs::new(bytes);
            assert!(attrs.next().unwrap().is_err());
            assert!(attrs.next().is_none());
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_read_in_bounded_steps(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for attr in Attrs::new(&bytes).take(bytes.len() + 1).flatten() {
                let _ = (attr.u8(), attr.be16(), attr.be32(), attr.be64(), attr.str());
                prop_assert!(attr.nested().count() <= bytes.len());
            }
            prop_assert!(Attrs::new(&bytes).count() <= bytes.len() / HEADER + 1);
        }
    }
}
