//! core/v1 Node and networking.k8s.io/v1 ServiceCIDR as protobuf.

use super::super::node::{
    Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, ServiceCidr, Taint,
};
use super::metadata::read_metadata;
use super::wire::{Fields, Value, WireError};

impl Node {
    /// Reads a message Node.
    pub(in crate::source::objects) fn read_protobuf(
        message: Fields<'_>,
    ) -> Result<Self, WireError> {
        let (mut object, mut fields) = (Self::default(), message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => object.metadata = read_metadata(value.message()?)?,
                2 => object.spec = spec(value.message()?)?,
                3 => object.status = status(value.message()?)?,
                _ => {}
            }
        }
        Ok(object)
    }
}

fn spec(message: Fields<'_>) -> Result<NodeSpec, WireError> {
    let (mut spec, mut fields) = (NodeSpec::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => spec.pod_cidr = value.string()?,
            5 => spec.taints.push(taint(value.message()?)?),
            7 => spec.pod_cidrs.push(value.string()?),
            _ => {}
        }
    }
    Ok(spec)
}

fn taint(message: Fields<'_>) -> Result<Taint, WireError> {
    Ok(Taint { key: message.last(1)?.map_or(Ok(String::new()), Value::string)? })
}

fn status(message: Fields<'_>) -> Result<NodeStatus, WireError> {
    let (mut status, mut fields) = (NodeStatus::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            4 => status.conditions.push(condition(value.message()?)?),
            5 => status.addresses.push(address(value.message()?)?),
            _ => {}
        }
    }
    Ok(status)
}

fn condition(message: Fields<'_>) -> Result<NodeCondition, WireError> {
    let (mut condition, mut fields) = (NodeCondition::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => condition.kind = value.string()?,
            2 => condition.status = value.string()?,
            _ => {}
        }
    }
    Ok(condition)
}

fn address(message: Fields<'_>) -> Result<NodeAddress, WireError> {
    let (mut address, mut fields) = (NodeAddress::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => address.kind = value.string()?,
            2 => address.address = value.string()?,
            _ => {}
        }
    }
    Ok(address)
}

impl ServiceCidr {
    /// Reads a message ServiceCIDR.
    pub(in crate::source::objects) fn read_protobuf(
        message: Fields<'_>,
    ) -> Result<Self, WireError> {
        let (mut object, mut fields) = (Self::default(), message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => object.metadata = read_metadata(value.message()?)?,
                2 => {
                    let mut spec = value.message()?;
                    while let Some((number, value)) = spec.next()? {
                        if number == 1 {
                            object.spec.cidrs.push(value.string()?);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(object)
    }
}
