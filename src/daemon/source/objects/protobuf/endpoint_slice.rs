//! discovery.k8s.io/v1 EndpointSlice as protobuf.

use super::super::endpoint_slice::{EndpointSlice, PortFields, SliceFields, kept_names};
use super::super::endpoints::{
    EndpointConditions, EndpointFields, Endpoints, Hint, HintFields, Hints, KeptNames, TargetFields,
};
use super::super::metadata::{Object, SliceMetadata};
use super::metadata::read_slice_metadata;
use super::wire::{Fields, Value, WireError};

impl EndpointSlice {
    /// Reads a message EndpointSlice.
    pub(in crate::source::objects) fn read_protobuf(
        message: Fields<'_>,
    ) -> Result<Self, WireError> {
        let metadata = metadata(message)?;
        let names = kept_names(&metadata);
        let mut slice = SliceFields { metadata, ..SliceFields::<Endpoints>::default() };
        slice.endpoints = Endpoints::with_room();
        let mut fields = message;
        while let Some((number, value)) = fields.next()? {
            match number {
                2 => slice.endpoints.push(endpoint(value.message()?, names)?, names),
                3 => slice.ports.push(Object(port(value.message()?)?)),
                4 => slice.address_type = value.text()?.into(),
                _ => {}
            }
        }
        Ok(slice.into())
    }
}

/// Reads the metadata alone: its labels decide which names of the endpoints are kept, and fields
/// may have any order.
fn metadata(message: Fields<'_>) -> Result<SliceMetadata<'_>, WireError> {
    let (mut metadata, mut fields) = (SliceMetadata::default(), message);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            metadata = read_slice_metadata(value.message()?)?;
        }
    }
    Ok(metadata)
}

fn endpoint(message: Fields<'_>, names: KeptNames) -> Result<EndpointFields<'_>, WireError> {
    let has_names = names == KeptNames::All;
    let (mut endpoint, mut fields) = (EndpointFields::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 if endpoint.addresses.0.is_none() => {
                endpoint.addresses.0 = Some(value.text()?.into());
            }
            2 => endpoint.conditions = conditions(value.message()?)?,
            4 if has_names => endpoint.target_ref = target(value.message()?)?,
            6 => endpoint.node_name = Some(value.text()?.into()),
            7 if has_names => endpoint.zone = Some(value.text()?.into()),
            8 => endpoint.hints = hints(value.message()?)?,
            _ => {}
        }
    }
    Ok(endpoint)
}

fn conditions(message: Fields<'_>) -> Result<EndpointConditions, WireError> {
    let (mut conditions, mut fields) = (EndpointConditions::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => conditions.ready = Some(value.flag()?),
            2 => conditions.serving = Some(value.flag()?),
            3 => conditions.terminating = Some(value.flag()?),
            _ => {}
        }
    }
    Ok(conditions)
}

/// Reads `name` of an ObjectReference.
fn target(message: Fields<'_>) -> Result<TargetFields<'_>, WireError> {
    let (mut target, mut fields) = (TargetFields::default(), message);
    while let Some((number, value)) = fields.next()? {
        if number == 3 {
            target.name = Some(value.text()?.into());
        }
    }
    Ok(target)
}

fn hints(message: Fields<'_>) -> Result<HintFields<'_>, WireError> {
    let (mut hints, mut fields) = (HintFields::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => hint(value, &mut hints.for_zones)?,
            2 => hint(value, &mut hints.for_nodes)?,
            _ => {}
        }
    }
    Ok(hints)
}

/// Reads `name` of a ForZone or ForNode.
fn hint<'a>(value: Value<'a>, hints: &mut Hints<'a>) -> Result<(), WireError> {
    let (mut hint, mut fields) = (Hint::default(), value.message()?);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            hint.name = value.text()?.into();
        }
    }
    hints.push(Object(hint));
    Ok(())
}

fn port(message: Fields<'_>) -> Result<PortFields<'_>, WireError> {
    let (mut port, mut fields) = (PortFields::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => port.name = value.text()?.into(),
            2 => port.protocol = Some(value.text()?.into()),
            3 => port.port = Some(value.int32()?.into()),
            _ => {}
        }
    }
    Ok(port)
}
