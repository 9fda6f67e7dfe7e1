//! apimachinery meta/v1 ObjectMeta and Time as protobuf.

use std::borrow::Cow;

use jiff::Timestamp;

use super::super::metadata::{Kept, ObjectMeta, SliceMetadata, Time};
use super::wire::{Fields, Value, WireError};

/// Reads the fields of ObjectMeta that are kept, like the JSON parser.
pub(super) fn read_metadata(message: Fields<'_>) -> Result<ObjectMeta, WireError> {
    let (mut kept, mut fields) = (Kept::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => kept.name = Some(value.string()?),
            3 => kept.namespace = Some(value.string()?),
            6 => kept.resource_version = Some(value.string()?),
            8 => kept.creation_timestamp = time(value)?,
            9 => kept.deletion_timestamp = time(value)?,
            11 => {
                let (key, value) = entry(value)?;
                kept.labels.keep(&key, value.into());
            }
            12 => {
                let (key, value) = entry(value)?;
                kept.annotations.keep(&key, value.into());
            }
            _ => {}
        }
    }
    Ok(kept.into())
}

/// Reads the fields of an EndpointSlice's ObjectMeta that are kept, like the JSON parser.
pub(super) fn read_slice_metadata(message: Fields<'_>) -> Result<SliceMetadata<'_>, WireError> {
    let (mut kept, mut fields) = (SliceMetadata::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => kept.name = Some(value.text()?.into()),
            3 => kept.namespace = Some(value.text()?.into()),
            6 => kept.resource_version = Some(value.string()?),
            11 => {
                let (key, value) = entry(value)?;
                kept.labels.keep(&key, value.into());
            }
            12 => {
                let (key, value) = entry(value)?;
                kept.annotations.keep(&key, value.into());
            }
            _ => {}
        }
    }
    Ok(kept)
}

/// Reads key and value of an entry of `map<string, string>`.
pub(super) fn entry(value: Value<'_>) -> Result<(Cow<'_, str>, Cow<'_, str>), WireError> {
    let (mut fields, mut key, mut content) = (value.message()?, Cow::default(), Cow::default());
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => key = value.text()?,
            2 => content = value.text()?,
            _ => {}
        }
    }
    Ok((key, content))
}

/// Reads a Time; `None` for an empty message, which is the null of JSON.
fn time(value: Value<'_>) -> Result<Option<Time>, WireError> {
    let (mut fields, mut seconds, mut nanos) = (value.message()?, None, 0);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => seconds = Some(value.int64()?),
            2 => nanos = value.int32()?,
            _ => {}
        }
    }
    // A time that no text of JSON can express counts as absent. Only the API server writes times.
    Ok(seconds.and_then(|seconds| Timestamp::new(seconds, nanos).ok()).map(Time))
}
