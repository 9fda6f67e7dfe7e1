//! The listener of one node port at `[::1]`.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing::debug;

use super::closed::ClosedPorts;
use super::ports::ServedPorts;
use super::relay;
use super::relays::Relays;
use super::socket::listen;
use crate::observe::is_absent;

/// Time between attempts to listen.
const BIND_RETRY: Duration = Duration::from_secs(5);

/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What all listeners share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) ports: ServedPorts,
    pub(super) relays: Relays,
    pub(super) closed: ClosedPorts,
}

/// A listener. Counts in the metrics until it is dropped.
struct Open {
    listener: TcpListener,
    port: u16,
    shared: Shared,
}

impl Shared {
    /// Listens at a port and accepts its connections. Never returns.
    pub(super) async fn serve(self, port: u16, service: Arc<str>) {
        let open = self.open(port, &service).await;
        let Open { listener, shared: Self { ports, relays, .. }, .. } = &open;
        loop {
            match listener.accept().await {
                Ok((client, _)) => match ports.target(port) {
                    Some(target) => relays.join(client, port, target),
                    // The port is about to be closed.
                    None => relay::reset(client),
                },
                Err(error) => {
                    // Most likely too many open files; some may be closed soon.
                    debug!(port, %error, "cannot accept a connection at [::1]");
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    async fn open(self, port: u16, service: &Arc<str>) -> Open {
        loop {
            match listen(port) {
                Ok(listener) => {
                    self.closed.solved(service, port);
                    self.relays.observe().metrics().localhost.listener_opened(port);
                    return Open { listener, port, shared: self };
                }
                // This node has no IPv6.
                Err(error) if is_absent(&error) => debug!(port, %error, "cannot listen at [::1]"),
                Err(error) => {
                    self.relays.observe().metrics().localhost.listener_failed();
                    self.closed.closed(service, port, &error);
                }
            }
            sleep(BIND_RETRY).await;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.relays.observe().metrics().localhost.listener_closed(self.port);
    }
}
