//! NodePorts at loopback addresses: those of IPv4 need the sysctl `route_localnet`, those of IPv6 a
//! proxy.

use std::io;

use daemon::config::Config;
use daemon::localhost_proxy::LocalhostProxy;
use daemon::node::{SysctlError, can_route_localnet, route_localnet};
use daemon::observe::{Observe, Shares};
use daemon::open_files::soft_limit;
use daemon::run::RouteLocalnet;
use daemon::source::notice::Notice;
use engine::Engine;
use nft::Family;
use tokio::sync::mpsc;

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
    if !engine.node().serves_localhost {
        return Ok(());
    }
    action().map_err(|error| {
        engine.leave_out_localhost();
        left_out(&error)
    })
}

/// Like [`check`], for the daemon, which continues with a warning and without localhost NodePorts.
/// Returns the function to call once the tables exist.
pub(super) fn prepare(engine: &mut Engine) -> Option<RouteLocalnet> {
    if let Err(why) = check(engine) {
        tracing::warn!("{why}");
    }
    engine.node().serves_localhost.then(|| Box::new(set_or_warn) as RouteLocalnet)
}

/// Starts the proxy for node ports at `[::1]`, if they are configured. Returns it with the shares of
/// open files of all servers.
///
/// # Errors
/// Errors of the system, such as too many threads.
pub(super) fn proxy(
    config: &Config,
    observe: &Observe,
    notices: &mpsc::Sender<Notice>,
) -> io::Result<(Option<LocalhostProxy>, Shares)> {
    if !config.routing.node_port_addresses.opens_localhost(Family::Ip6) {
        return Ok((None, Shares::of(soft_limit())));
    }
    let shares = Shares::with_localhost(soft_limit());
    let proxy = LocalhostProxy::spawn(shares, observe.clone(), notices.clone())?;
    tracing::info!("localhost NodePorts of IPv6 are served at [::1], for TCP alone");
    Ok((Some(proxy), shares))
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
