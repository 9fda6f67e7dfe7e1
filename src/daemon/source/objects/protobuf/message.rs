//! Messages as tables: the numbers of the fields that are kept. All others are skipped.

use std::ops::Deref;

use jiff::Timestamp;

use super::super::metadata::{KeptTexts, Time};
use super::super::text::Text;
use super::wire::{Fields, Value, WireError};

/// A message, read as a whole.
pub(in crate::source::objects) trait ReadMessage<'a>: Sized {
    /// Reads the fields of a message.
    fn read(fields: Fields<'a>) -> Result<Self, WireError>;
}

/// What a field of a message becomes.
pub(super) trait MessageField<'a> {
    /// Takes a value of the field. The last one counts; a list takes all of them.
    fn read_field(&mut self, value: Value<'a>) -> Result<(), WireError>;
}

/// Declares the numbers of the fields of messages.
macro_rules! messages {
    ($life:lifetime $($message:ty { $($number:literal $field:ident,)* })*) => {$(
        impl<$life> ReadMessage<$life> for $message {
            fn read(mut fields: Fields<$life>) -> Result<Self, WireError> {
                let mut message = Self::default();
                while let Some((number, value)) = fields.next()? {
                    match number {
                        $($number => message.$field.read_field(value)?,)*
                        _ => {}
                    }
                }
                Ok(message)
            }
        }
    )*};
}
pub(super) use messages;

impl<'a, M: ReadMessage<'a>> MessageField<'a> for M {
    fn read_field(&mut self, value: Value<'a>) -> Result<(), WireError> {
        *self = M::read(value.message()?)?;
        Ok(())
    }
}

impl<'a, T: MessageField<'a> + Default> MessageField<'a> for Option<T> {
    fn read_field(&mut self, value: Value<'a>) -> Result<(), WireError> {
        self.insert(T::default()).read_field(value)
    }
}

impl<'a, T: MessageField<'a> + Default> MessageField<'a> for Vec<T> {
    fn read_field(&mut self, value: Value<'a>) -> Result<(), WireError> {
        let mut item = T::default();
        item.read_field(value)?;
        self.push(item);
        Ok(())
    }
}

impl MessageField<'_> for String {
    fn read_field(&mut self, value: Value<'_>) -> Result<(), WireError> {
        *self = value.string()?;
        Ok(())
    }
}

impl<'a> MessageField<'a> for Text<'a> {
    fn read_field(&mut self, value: Value<'a>) -> Result<(), WireError> {
        *self = value.text()?.into();
        Ok(())
    }
}

/// The API has these numbers as int32.
impl MessageField<'_> for i64 {
    fn read_field(&mut self, value: Value<'_>) -> Result<(), WireError> {
        *self = value.int32()?.into();
        Ok(())
    }
}

impl MessageField<'_> for bool {
    fn read_field(&mut self, value: Value<'_>) -> Result<(), WireError> {
        *self = value.flag()?;
        Ok(())
    }
}

/// An empty message is the null of JSON.
impl MessageField<'_> for Option<Time> {
    fn read_field(&mut self, value: Value<'_>) -> Result<(), WireError> {
        let (mut fields, mut seconds, mut nanos) = (value.message()?, None, 0);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => seconds = Some(value.int64()?),
                2 => nanos = value.int32()?,
                _ => {}
            }
        }
        // A time that no text of JSON can express counts as absent. Only the API server writes times.
        *self = seconds.and_then(|seconds| Timestamp::new(seconds, nanos).ok()).map(Time);
        Ok(())
    }
}

/// An entry of `map<string, string>`. A TypeMeta has the same form: apiVersion is 1, kind is 2.
#[derive(Default)]
pub(super) struct MapEntry<'a> {
    pub(super) key: Text<'a>,
    pub(super) value: Text<'a>,
}

messages! { 'a
    MapEntry<'a> { 1 key, 2 value, }
}

impl<'a, T: From<Text<'a>> + Deref<Target = str>> MessageField<'a> for KeptTexts<T> {
    fn read_field(&mut self, value: Value<'a>) -> Result<(), WireError> {
        let MapEntry { key, value } = MapEntry::read(value.message()?)?;
        self.keep(&key, value);
        Ok(())
    }
}
