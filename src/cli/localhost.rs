//! NodePorts at loopback addresses, which need the kernel's leave.

use std::net::IpAddr;

use crate::engine::Engine;
use crate::node::{SysctlError, can_route_localnet, route_localnet};
use crate::run::RouteLocalnet;

/// Leaves localhost NodePorts out of `engine` if `route_localnet` is not set and cannot be; returns
/// why.
pub(super) fn check(engine: &mut Engine) -> Result<(), String> {
    if !engine.serves_localhost() {
        return Ok(());
    }
    can_route_localnet().map_err(|error| {
        engine.leave_out_localhost();
        left_out(&error)
    })
}

/// Sets `route_localnet` if localhost NodePorts are served. The tables must be in place.
pub(super) fn open(engine: &mut Engine) -> Result<(), String> {
    if !engine.serves_localhost() {
        return Ok(());
    }
    route_localnet().map_err(|error| {
        engine.leave_out_localhost();
        left_out(&error)
    })
}

/// As [`check`] for the daemon, which goes on without localhost NodePorts, with a warning. Returns
/// what it is to call when the tables are in place. `local` are the addresses of interfaces.
pub(super) fn prepare(engine: &mut Engine, local: &[IpAddr]) -> Option<RouteLocalnet> {
    if let Err(why) = check(engine) {
        tracing::warn!("{why}");
    }
    if !engine.serves_localhost() {
        return None;
    }
    let is_routed = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if !ip.is_loopback() && !ip.is_unicast_link_local());
    if local.iter().any(is_routed) {
        tracing::info!(
            "localhost NodePorts are served for IPv4 alone: the kernel does not route ::1"
        );
    }
    Some(Box::new(set_or_warn))
}

/// Sets `route_localnet`; returns whether it is set.
fn set_or_warn() -> bool {
    let outcome = route_localnet();
    match &outcome {
        Ok(()) => tracing::info!("localhost NodePorts are served"),
        Err(error) => tracing::warn!("{}", left_out(error)),
    }
    outcome.is_ok()
}

fn left_out(error: &SysctlError) -> String {
    format!("localhost NodePorts are left out: {error}")
}
