//! Waiting for what may never come, and the clock.

use std::net::IpAddr;
use std::time::Instant;

use engine::flow::Flow;
use tokio::sync::watch;

use super::Cleaning;

/// Sleeps until `due`; forever without one.
pub(super) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits for a change of the addresses and returns them.
pub(super) async fn changed(addresses: &mut Option<watch::Receiver<Vec<IpAddr>>>) -> Vec<IpAddr> {
    if let Some(receiver) = addresses
        && receiver.changed().await.is_ok()
    {
        return receiver.borrow_and_update().clone();
    }
    std::future::pending().await
}

/// Waits for the next piece of a list of flows.
pub(super) async fn listed(cleaning: &mut Option<Cleaning>) -> Vec<Flow> {
    match cleaning {
        Some(cleaning) => cleaning.piece().await,
        None => std::future::pending().await,
    }
}

pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
