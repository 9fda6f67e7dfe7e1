//! Fields of a protobuf message, read in place.
//!
//! No input makes a read fail otherwise than by [`WireError`], and none allocates: a length is
//! compared with the bytes at hand before its use.

use std::borrow::Cow;

/// Why bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::source) enum WireError {
    /// A field is longer than its message.
    #[error("a field is longer than its message")]
    Truncated,
    /// A number has more than ten bytes.
    #[error("a number has more than ten bytes")]
    LongNumber,
    /// A field has a wire type that proto3 does not have.
    #[error("wire type {0} is unknown")]
    UnknownType(u8),
    /// The field of this number does not have the type of the API.
    #[error("field {0} has the wrong type")]
    WrongType(u32),
}

/// The remaining fields of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::source) struct Fields<'a>(&'a [u8]);

/// The value of a field, with its number.
#[derive(Clone, Copy, Debug)]
pub(in crate::source) struct Value<'a> {
    number: u32,
    content: Content<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Number(u64),
    /// Four or eight bytes, a type of no field that is read.
    Fixed,
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    pub(in crate::source) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Returns the next field and its number; `None` at the end of the message.
    #[inline]
    pub(in crate::source) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        match self.0 {
            [] => Ok(None),
            // Most fields: bytes of a short length, in a field with a small number.
            [tag, length, rest @ ..] if (tag | length) & 0x80 == 0 && tag & 7 == 2 => {
                let (bytes, rest) =
                    rest.split_at_checked((*length).into()).ok_or(WireError::Truncated)?;
                self.0 = rest;
                let number = u32::from(tag >> 3);
                Ok(Some((number, Value { number, content: Content::Bytes(bytes) })))
            }
            [..] => self.any_field().map(Some),
        }
    }

    /// Returns the last value of a field, which counts as in proto3.
    pub(in crate::source) fn last(mut self, field: u32) -> Result<Option<Value<'a>>, WireError> {
        let mut last = None;
        while let Some((number, value)) = self.next()? {
            if number == field {
                last = Some(value);
            }
        }
        Ok(last)
    }

    #[inline(never)]
    fn any_field(&mut self) -> Result<(u32, Value<'a>), WireError> {
        let tag = self.varint()?;
        // Larger numbers are no fields of the API, so their value does not matter.
        let number = u32::try_from(tag >> 3).unwrap_or(u32::MAX);
        let content = match tag & 7 {
            0 => Content::Number(self.varint()?),
            1 => self.take(8).map(|_| Content::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
                Content::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Content::Fixed)?,
            other => return Err(WireError::UnknownType(other.to_le_bytes()[0])),
        };
        Ok((number, Value { number, content }))
    }

    /// Reads a number, which mostly has one byte: tags, flags and most lengths.
    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        match self.0.split_first() {
            Some((byte, rest)) if byte & 0x80 == 0 => {
                self.0 = rest;
                Ok((*byte).into())
            }
            Some(_) => self.long_varint(),
            None => Err(WireError::Truncated),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(WireError::Truncated)?;
            self.0 = rest;
            // The tenth byte has room for one bit; the others are dropped, as Go does.
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::LongNumber)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Value<'a> {
    /// Returns the bytes of a field of type bytes, string or message.
    pub(in crate::source) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self.content {
            Content::Bytes(bytes) => Ok(bytes),
            Content::Number(_) | Content::Fixed => Err(WireError::WrongType(self.number)),
        }
    }

    /// Returns the fields of a message.
    pub(in crate::source) fn message(self) -> Result<Fields<'a>, WireError> {
        self.bytes().map(Fields::of)
    }

    /// Returns a string, borrowed unless it is not UTF-8.
    pub(in crate::source) fn text(self) -> Result<Cow<'a, str>, WireError> {
        self.bytes().map(replace_wrong)
    }

    /// Returns a string.
    pub(in crate::source) fn string(self) -> Result<String, WireError> {
        self.text().map(Cow::into_owned)
    }

    /// Returns the value of a field of type int64.
    pub(in crate::source) fn int64(self) -> Result<i64, WireError> {
        match self.content {
            Content::Number(number) => Ok(number.cast_signed()),
            Content::Bytes(_) | Content::Fixed => Err(WireError::WrongType(self.number)),
        }
    }

    /// Returns the value of a field of type int32, which is the low half of the number.
    pub(in crate::source) fn int32(self) -> Result<i32, WireError> {
        let [a, b, c, d, ..] = self.int64()?.to_le_bytes();
        Ok(i32::from_le_bytes([a, b, c, d]))
    }

    /// Returns the value of a field of type bool.
    pub(in crate::source) fn flag(self) -> Result<bool, WireError> {
        self.int64().map(|number| number != 0)
    }
}

/// Puts U+FFFD in the place of each byte that is not UTF-8, like Go's encoder of JSON;
/// `from_utf8_lossy` writes one for the beginning of a character.
fn replace_wrong(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, WireError> {
        let (mut fields, mut found) = (Fields::of(message), Vec::new());
        while let Some(field) = fields.next()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn fields_of_every_wire_type_are_read_or_skipped() {
        let message =
            b"\x08\xac\x02\x11\x00\x00\x00\x00\x00\x00\x00\x00\x1a\x02hi\x25\x00\x00\x00\x00";
        let found = all(message).unwrap();
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(found[0].1.int64(), Ok(300));
        assert_eq!(found[1].1.int64(), Err(WireError::WrongType(2)));
        assert_eq!(found[2].1.text().unwrap(), "hi");
        assert_eq!(found[3].1.bytes(), Err(WireError::WrongType(4)));
    }

    #[test]
    fn negative_numbers_are_read_as_they_were_written() {
        let minus_one = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        let value = all(minus_one).unwrap()[0].1;
        assert_eq!((value.int64(), value.int32(), value.flag()), (Ok(-1), Ok(-1), Ok(true)));
    }

    #[test]
    fn wrong_bytes_of_a_text_are_replaced() {
        assert_eq!(all(b"\x0a\x03a\xffb").unwrap()[0].1.text().unwrap(), "a\u{fffd}b");
        let begun = all(b"\x0a\x03\xe2\x82b").unwrap()[0].1;
        assert_eq!(begun.text().unwrap(), "\u{fffd}\u{fffd}b");
    }

    #[test]
    fn messages_that_end_early_or_have_unknown_types_are_errors() {
        let error = |message| all(message).unwrap_err();
        assert_eq!(error(b"\x08"), WireError::Truncated);
        assert_eq!(error(b"\x0a\x05abcd"), WireError::Truncated);
        assert_eq!(error(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), WireError::Truncated);
        assert_eq!(error(b"\x15\x00\x00\x00"), WireError::Truncated);
        assert_eq!(error(b"\x0b"), WireError::UnknownType(3));
        assert_eq!(error(&[0xff; 11]), WireError::LongNumber);
    }
}
