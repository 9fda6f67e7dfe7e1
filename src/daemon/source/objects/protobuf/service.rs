//! core/v1 Service as protobuf.

use super::super::service::{
    LoadBalancerIngress, Service, ServicePort, ServiceSpec, ServiceStatus,
};
use super::metadata::read_metadata;
use super::wire::{Fields, Value, WireError};

impl Service {
    /// Reads a message Service.
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

fn spec(message: Fields<'_>) -> Result<ServiceSpec, WireError> {
    let (mut spec, mut fields) = (ServiceSpec::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => spec.ports.push(port(value.message()?)?),
            3 => spec.cluster_ip = value.string()?,
            4 => spec.kind = value.string()?,
            5 => spec.external_ips.push(value.string()?),
            7 => spec.session_affinity = value.string()?,
            9 => spec.load_balancer_source_ranges.push(value.string()?),
            11 => spec.external_traffic_policy = value.string()?,
            12 => spec.health_check_node_port = value.int32()?.into(),
            14 => {
                let timeout = affinity_timeout(value)?;
                spec.session_affinity_config.client_ip.timeout_seconds = timeout;
            }
            18 => spec.cluster_ips.push(value.string()?),
            19 => spec.ip_families.push(value.string()?),
            22 => spec.internal_traffic_policy = value.string()?,
            _ => {}
        }
    }
    Ok(spec)
}

fn port(message: Fields<'_>) -> Result<ServicePort, WireError> {
    let (mut port, mut fields) = (ServicePort::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => port.name = value.string()?,
            2 => port.protocol = Some(value.string()?),
            3 => port.port = value.int32()?.into(),
            5 => port.node_port = value.int32()?.into(),
            _ => {}
        }
    }
    Ok(port)
}

/// Reads `clientIP.timeoutSeconds` of a SessionAffinityConfig.
fn affinity_timeout(value: Value<'_>) -> Result<Option<i64>, WireError> {
    let Some(client_ip) = value.message()?.last(1)? else { return Ok(None) };
    let timeout = client_ip.message()?.last(1)?;
    timeout.map(|seconds| seconds.int32().map(i64::from)).transpose()
}

fn status(message: Fields<'_>) -> Result<ServiceStatus, WireError> {
    let (mut status, mut fields) = (ServiceStatus::default(), message);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            let mut load_balancer = value.message()?;
            while let Some((number, value)) = load_balancer.next()? {
                if number == 1 {
                    status.load_balancer.ingress.push(ingress(value.message()?)?);
                }
            }
        }
    }
    Ok(status)
}

fn ingress(message: Fields<'_>) -> Result<LoadBalancerIngress, WireError> {
    let (mut ingress, mut fields) = (LoadBalancerIngress::default(), message);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => ingress.ip = value.string()?,
            3 => ingress.ip_mode = Some(value.string()?),
            _ => {}
        }
    }
    Ok(ingress)
}
