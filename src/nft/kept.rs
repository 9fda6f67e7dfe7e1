//! Attributes that are not known here, kept byte for byte.

use crate::expression::Bytes;
use crate::fields::DecodeError;
use crate::netlink::attr::{AttrWriter, Attrs, TooLong};

/// An attribute that is not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherAttribute {
    /// Its type.
    pub kind: u16,
    /// Its payload.
    pub payload: Bytes,
}

/// Returns the attributes that `fill` writes.
pub(super) fn written(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Result<Vec<u8>, TooLong> {
    let mut bytes = Vec::new();
    let mut w = AttrWriter::new(&mut bytes);
    fill(&mut w);
    w.finish()?;
    Ok(bytes)
}

/// Returns the attributes whose types are above `last`, the highest one that is known here.
pub(super) fn others(attributes: Attrs<'_>, last: u16) -> Result<Vec<OtherAttribute>, DecodeError> {
    let mut others = Vec::new();
    for attr in attributes {
        let attr = attr?;
        if attr.kind > last {
            others.push(OtherAttribute { kind: attr.kind, payload: attr.payload.into() });
        }
    }
    Ok(others)
}

/// Appends attributes that are not known here.
pub(super) fn write(others: &[OtherAttribute], w: &mut AttrWriter<'_>) {
    for OtherAttribute { kind, payload } in others {
        w.bytes(*kind, payload);
    }
}

/// Appends bytes that the kernel stores without reading them, if there are any.
pub(super) fn write_userdata(userdata: Option<&Bytes>, kind: u16, w: &mut AttrWriter<'_>) {
    if let Some(userdata) = userdata {
        w.bytes(kind, userdata);
    }
}
