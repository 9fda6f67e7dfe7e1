//! The open relays: how many there are, and how they end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

use super::limits::ProxyLimits;
use super::relay;
use crate::observe::{Observe, RefusedConnection};

/// All relays. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Relays {
    shared: Arc<SharedRelays>,
    limits: ProxyLimits,
    observe: Observe,
    is_stopped: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct SharedRelays {
    open: Mutex<OpenRelays>,
    ended: Notify,
}

/// The numbers of relays; `by_port` has no zeros.
#[derive(Debug, Default)]
struct OpenRelays {
    all: usize,
    by_port: HashMap<u16, usize>,
}

/// Counts as a relay until it is dropped.
#[derive(Debug)]
struct Admitted {
    relays: Relays,
    port: u16,
}

impl Relays {
    pub(super) fn new(
        limits: ProxyLimits,
        observe: Observe,
        is_stopped: watch::Receiver<bool>,
    ) -> Self {
        Self { shared: Arc::default(), limits, observe, is_stopped }
    }

    /// Joins `client`, which connected to `port`, to `target`, in a task of its own. Resets it if
    /// there are too many.
    pub(super) fn join(&self, client: TcpStream, port: u16, target: SocketAddr) {
        let admitted = match self.admit(port) {
            Ok(admitted) => admitted,
            Err(why) => {
                self.observe.metrics().localhost.refused[why as usize].inc();
                return relay::reset(client);
            }
        };
        tokio::spawn(async move {
            let relays = &admitted.relays;
            if let Err(why) = relay::run(client, target, relays.is_stopped.clone()).await {
                tracing::debug!(port = admitted.port, %target, error = %why, "no connection for a client at [::1]");
                let refused = &relays.observe.metrics().localhost.refused;
                refused[RefusedConnection::Unreachable as usize].inc();
            }
        });
    }

    pub(super) fn observe(&self) -> &Observe {
        &self.observe
    }

    /// Completes when no relay is open.
    pub(super) async fn ended(&self) {
        loop {
            let next = self.shared.ended.notified();
            if self.shared.open.lock().all == 0 {
                return;
            }
            next.await;
        }
    }

    fn admit(&self, port: u16) -> Result<Admitted, RefusedConnection> {
        let mut open = self.shared.open.lock();
        let of_port = open.by_port.get(&port).copied().unwrap_or_default();
        if of_port >= self.limits.of_port {
            return Err(RefusedConnection::PortLimit);
        }
        if open.all >= self.limits.relays {
            return Err(RefusedConnection::Limit);
        }
        open.all += 1;
        open.by_port.insert(port, of_port + 1);
        let metrics = &self.observe.metrics().localhost;
        metrics.open.add(1);
        metrics.began.inc();
        Ok(Admitted { relays: self.clone(), port })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.relays.shared.open.lock();
        open.all -= 1;
        if let Some(of_port) = open.by_port.get_mut(&self.port) {
            *of_port -= 1;
            if *of_port == 0 {
                open.by_port.remove(&self.port);
            }
        }
        drop(open);
        self.relays.observe.metrics().localhost.open.add(-1);
        self.relays.shared.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_leaves_relays_to_the_others() {
        let limits = ProxyLimits { open_files: 0, listeners: 0, relays: 3, of_port: 2 };
        let (_stop, is_stopped) = watch::channel(false);
        let relays = Relays::new(limits, Observe::new(), is_stopped);
        let mut first = vec![relays.admit(1).unwrap(), relays.admit(1).unwrap()];
        assert_eq!(relays.admit(1).unwrap_err(), RefusedConnection::PortLimit);
        let _second = relays.admit(2).unwrap();
        assert_eq!(relays.admit(2).unwrap_err(), RefusedConnection::Limit);
        first.pop();
        let _third = relays.admit(3).unwrap();
        first.clear();
        assert_eq!(relays.shared.open.lock().by_port, HashMap::from([(2, 1), (3, 1)]));
        assert_eq!(relays.shared.open.lock().all, 2);
    }
}
