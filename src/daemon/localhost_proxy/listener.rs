//! The listener of one node port at `[::1]`.

use std::io;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing::debug;

use super::ports::ServedPorts;
use super::relay;
use super::relays::Relays;
use super::socket::listen;
use crate::observe::{ACCEPT_RETRY, BIND_RETRY, ClosedPorts, is_absent, listen_until};

/// What all listeners share.
#[derive(Clone)]
pub(super) struct ListenerParts {
    pub(super) ports: ServedPorts,
    pub(super) relays: Relays,
    pub(super) closed: ClosedPorts,
}

/// A listener. Counts in the metrics until it is dropped.
struct OpenListener {
    listener: TcpListener,
    port: u16,
    shared: ListenerParts,
}

impl ListenerParts {
    /// Listens at a port and accepts its connections. Never returns.
    pub(super) async fn serve(self, port: u16, service: Arc<str>) {
        let open = self.open(port, &service).await;
        let OpenListener { listener, shared: Self { ports, relays, .. }, .. } = &open;
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

    async fn open(self, port: u16, service: &Arc<str>) -> OpenListener {
        let metrics = &self.relays.observe().metrics().localhost;
        let failed = |error: io::Error| {
            if is_absent(&error) {
                // This node has no IPv6.
                debug!(port, %error, "cannot listen at [::1]");
            } else {
                metrics.listener_failed();
                self.closed.closed(service, port, &error);
            }
        };
        let listener = listen_until(BIND_RETRY, || listen(port), failed).await;
        self.closed.solved(service, port);
        metrics.listener_opened(port);
        OpenListener { listener, port, shared: self }
    }
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        self.shared.relays.observe().metrics().localhost.listener_closed(self.port);
    }
}
