//! The health check ports that should listen, and the contents of their answers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use engine::model::HealthCheck;
use nft::family::Family;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A service, its port that is not opened, and why.
pub(super) type ClosedPort = (Arc<str>, u16, io::Error);

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
                    contested.push((Arc::clone(service), port, error));
                }
            }
        }
        (sockets, contested)
    }
}

impl HealthChecks {
    /// Sets or removes the health check of a service (`NAMESPACE/NAME`).
    pub fn set(&self, service: &str, check: Option<HealthCheck>) {
        let mut state = self.state.lock();
        let before = match check {
            Some(check) => state.services.insert(service.into(), check),
            None => state.services.remove(service),
        };
        if before.map(|check| check.port) != check.map(|check| check.port) {
            self.changed.notify_one();
        }
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

    /// Returns whether a service has this port.
    pub(super) fn has(&self, service: &str, port: u16) -> bool {
        let check = self.state.lock().services.get(service).copied();
        check.is_some_and(|check| check.port.get() == port)
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
