//! The health check ports that should listen, and the contents of their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::{fmt, io};

use nft::family::Family;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The health check port of a Service, and the content of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The port.
    pub port: NonZeroU16,
    /// Numbers of ready endpoints on this node, indexed like [`Family::ALL`].
    pub local_endpoints: [usize; 2],
}

/// A health check port that cannot be opened.
#[derive(Debug)]
pub struct ClosedPort {
    /// Namespace and name of the Service, with a slash between them.
    pub service: Arc<str>,
    pub(super) port: u16,
    pub(super) error: io::Error,
}

impl fmt::Display for ClosedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, error, .. } = self;
        write!(f, "port {port} cannot be opened on this node, tried again: {error}")
    }
}

/// All health checks.
#[derive(Debug, Default)]
pub struct HealthChecks {
    state: Mutex<KnownChecks>,
    /// Signals a change of ports or addresses.
    changed: Notify,
}

#[derive(Debug, Default)]
struct KnownChecks {
    services: BTreeMap<Arc<str>, HealthCheck>,
    addresses: Vec<IpAddr>,
    /// Services with a port that cannot be opened.
    closed: BTreeSet<Arc<str>>,
}

impl KnownChecks {
    /// Returns the sockets that should listen, and the service of each. If several services have
    /// the same port, the first by name gets it; the ports of the others are contested.
    fn sockets(&self) -> (BTreeMap<SocketAddr, Arc<str>>, Vec<ClosedPort>) {
        let (mut sockets, mut contested) = (BTreeMap::new(), Vec::new());
        for (service, check) in &self.services {
            for address in &self.addresses {
                let port = check.port.get();
                let holder = sockets
                    .entry(SocketAddr::new(*address, port))
                    .or_insert_with(|| Arc::clone(service));
                if holder != service {
                    let error = io::Error::other(format!("Service {holder} has it"));
                    contested.push(ClosedPort { service: Arc::clone(service), port, error });
                }
            }
        }
        (sockets, contested)
    }
}

impl HealthChecks {
    /// Sets or removes the health check of a service (`NAMESPACE/NAME`). Returns whether its former
    /// port was closed and is no longer wanted.
    pub(super) fn set(&self, service: &str, check: Option<HealthCheck>) -> bool {
        let mut state = self.state.lock();
        let before = match check {
            Some(check) => state.services.insert(service.into(), check),
            None => state.services.remove(service),
        };
        if before.map(|check| check.port) != check.map(|check| check.port) {
            self.changed.notify_one();
            return state.closed.remove(service);
        }
        false
    }

    /// Sets the addresses on which health check ports listen; `0.0.0.0` and `::` mean all addresses
    /// of their family.
    pub fn set_addresses(&self, addresses: Vec<IpAddr>) {
        let mut state = self.state.lock();
        if state.addresses != addresses {
            state.addresses = addresses;
            self.changed.notify_one();
        }
    }

    /// Records that a port of a service cannot be opened; returns true if this is new.
    pub(super) fn closed(&self, service: &Arc<str>) -> bool {
        self.state.lock().closed.insert(Arc::clone(service))
    }

    /// Records that a port of a service is open; returns whether one was closed.
    pub(super) fn opened(&self, service: &Arc<str>) -> bool {
        self.state.lock().closed.remove(service)
    }

    /// Completes when ports or addresses have changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn sockets(&self) -> (BTreeMap<SocketAddr, Arc<str>>, Vec<ClosedPort>) {
        self.state.lock().sockets()
    }

    /// Returns the number of ready endpoints of a service on this node.
    pub(super) fn local_endpoints(&self, service: &str, family: Family) -> usize {
        let check = self.state.lock().services.get(service).copied();
        check.map_or(0, |check| check.local_endpoints[family.index()])
    }
}
