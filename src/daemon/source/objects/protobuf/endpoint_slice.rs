//! discovery.k8s.io/v1 EndpointSlice as protobuf.

use std::borrow::Cow;

use super::super::endpoint_slice::{EndpointSlice, PortFields, SliceFields, keeps_names};
use super::super::endpoints::{Endpoint, EndpointConditions, Endpoints, FirstAddress};
use super::super::metadata::{Object, SliceMetadata};
use super::super::text::{Span, Texts};
use super::message::{MessageField, ReadMessage, messages};
use super::wire::{Fields, Value, WireError};

/// Number of `name` in an ObjectReference.
const TARGET_NAME: u32 = 3;

impl<'a> ReadMessage<'a> for EndpointSlice {
    fn read(message: Fields<'a>) -> Result<Self, WireError> {
        // The labels decide which names of the endpoints are kept, and fields may have any order.
        let metadata = message.last(1)?.map_or(Ok(Fields::default()), Value::message)?;
        let metadata = SliceMetadata::read(metadata)?;
        let has_names = keeps_names(&metadata);
        let mut slice = SliceFields { metadata, ..SliceFields::default() };
        slice.endpoints = Endpoints::with_room();
        let mut fields = message;
        while let Some((number, value)) = fields.next()? {
            match number {
                2 => push_endpoint(value.message()?, has_names, &mut slice.endpoints)?,
                3 => slice.ports.push(Object(PortFields::read(value.message()?)?)),
                4 => slice.address_type.read_field(value)?,
                _ => {}
            }
        }
        Ok(slice.into())
    }
}

/// Reads an Endpoint, and appends it.
fn push_endpoint(
    message: Fields<'_>,
    has_names: bool,
    endpoints: &mut Endpoints,
) -> Result<(), WireError> {
    let Endpoints { list, texts } = endpoints;
    let (mut endpoint, mut fields) = (Endpoint::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 if matches!(endpoint.address, FirstAddress::Missing) => {
                endpoint.address = FirstAddress::new(&value.text()?);
            }
            2 => endpoint.conditions.read_field(value)?,
            4 if has_names => endpoint.pod = texts.add(&text_of(value.message()?, TARGET_NAME)?),
            6 => endpoint.node_name = texts.add(&value.text()?),
            7 if has_names => endpoint.zone = texts.add(&value.text()?),
            8 => {
                endpoint.for_zones = hints(value.message()?, 1, texts)?;
                endpoint.for_nodes = hints(value.message()?, 2, texts)?;
            }
            _ => {}
        }
    }
    list.push(endpoint);
    Ok(())
}

/// Reads the names in one field of EndpointHints: 1 has those of zones, 2 those of nodes. Each is a
/// message with one field.
fn hints(message: Fields<'_>, hints: u32, texts: &mut Texts) -> Result<Span, WireError> {
    let (mut list, mut fields) = (Span::default(), message);
    while let Some((number, value)) = fields.next()? {
        if number == hints {
            list = texts.extend_list(list, &text_of(value.message()?, 1)?);
        }
    }
    Ok(list)
}

/// Reads the text in one field of a message; empty if the message lacks it.
fn text_of(message: Fields<'_>, field: u32) -> Result<Cow<'_, str>, WireError> {
    message.last(field)?.map_or(Ok(Cow::default()), Value::text)
}

messages! { 'a
    EndpointConditions { 1 ready, 2 serving, 3 terminating, }
    PortFields<'a> { 1 name, 2 protocol, 3 port, }
}
