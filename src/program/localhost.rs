//! NodePorts at loopback addresses; they need the sysctl `route_localnet`.

use std::net::IpAddr;

use daemon::node::{SysctlError, can_route_localnet, route_localnet};
use daemon::run::RouteLocalnet;
use engine::Engine;

/// Leaves localhost NodePorts out of `engine` if `route_localnet` is 0 and cannot be set. Then
/// returns the reason.
pub(super) fn check(engine: &mut Engine) -> Result<(), String> {
    if_served(engine, can_route_localnet)
}

/// Sets `route_localnet` for localhost NodePorts, or leaves them out and returns the reason. The
/// tables must exist.
pub(super) fn open(engine: &mut Engine) -> Result<(), String> {
    if_served(engine, route_localnet)
}

fn if_served(
    engine: &mut Engine,
    action: impl FnOnce() -> Result<(), SysctlError>,
) -> Result<(), String> {
    if !engine.node().serves_localhost() {
        return Ok(());
    }
    action().map_err(|error| {
        engine.leave_out_localhost();
        left_out(&error)
    })
}

/// Like [`check`], for the daemon, which continues with a warning and without localhost NodePorts.
/// Returns the function to call once the tables exist. `local` are the addresses of interfaces.
pub(super) fn prepare(engine: &mut Engine, local: &[IpAddr]) -> Option<RouteLocalnet> {
    if let Err(why) = check(engine) {
        tracing::warn!("{why}");
    }
    if !engine.node().serves_localhost() {
        return None;
    }
    let mut ipv6 = local.iter().filter_map(|address| match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    });
    if ipv6.any(|address| !address.is_loopback() && !address.is_unicast_link_local()) {
        tracing::info!(
            "localhost NodePorts are served for IPv4 alone: the kernel does not route ::1"
        );
    }
    Some(Box::new(set_or_warn))
}

/// Sets `route_localnet`. Returns whether it is set.
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
