//! The node ports to serve at `[::1]`, and where their connections go.
//!
//! A change of a service costs what its own ports cost, whatever the number of services.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use engine::model::LocalhostPorts;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The node ports to serve. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServedPorts {
    shared: Arc<SharedPorts>,
}

#[derive(Debug, Default)]
struct SharedPorts {
    state: Mutex<PortClaims>,
    changed: Notify,
}

/// `claims` has the ports of exactly the services in `of_service`.
#[derive(Debug, Default)]
struct PortClaims {
    /// The services that claim a port, the oldest first, then by name, each with cluster IP and
    /// port. As in the tables, the first one has it.
    claims: BTreeMap<u16, BTreeMap<Age, SocketAddr>>,
    of_service: HashMap<Arc<str>, (Age, Vec<u16>)>,
    changed: BTreeSet<u16>,
    /// An address of this node that serves node ports.
    address: Option<Ipv6Addr>,
}

/// Creation time and name (`NAMESPACE/NAME`).
type Age = (i64, Arc<str>);

/// A port, and the service that has it; `None` if it is no longer served.
pub(super) type ChangedPort = (u16, Option<Arc<str>>);

impl ServedPorts {
    /// Sets the ports of a service (`NAMESPACE/NAME`); `None` if it has none.
    pub fn set(&self, service: &str, ports: Option<&LocalhostPorts>) {
        self.shared.state.lock().set(service, ports);
        self.shared.changed.notify_one();
    }

    /// Sets an address of this node that serves node ports; `None` if there is none.
    pub fn set_address(&self, address: Option<Ipv6Addr>) {
        self.shared.state.lock().address = address;
    }

    /// Takes the ports that have changed since the last call.
    pub(super) fn take_changed(&self) -> Vec<ChangedPort> {
        let mut state = self.shared.state.lock();
        let changed = std::mem::take(&mut state.changed).into_iter();
        changed
            .map(|port| (port, state.first(port).map(|((_, service), _)| Arc::clone(service))))
            .collect()
    }

    /// Completes when ports have changed.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Returns where a connection to a port goes.
    ///
    /// The node port obeys the external traffic policy, as every node port, and the node always has
    /// a route to its own address. The cluster IP obeys the internal one.
    pub(super) fn target(&self, port: u16) -> Option<SocketAddr> {
        let state = self.shared.state.lock();
        let (_, cluster_ip) = state.first(port)?;
        Some(state.address.map_or(*cluster_ip, |address| SocketAddr::new(address.into(), port)))
    }
}

impl PortClaims {
    fn first(&self, port: u16) -> Option<(&Age, &SocketAddr)> {
        self.claims.get(&port)?.first_key_value()
    }

    fn set(&mut self, service: &str, ports: Option<&LocalhostPorts>) {
        if let Some((age, former)) = self.of_service.remove(service) {
            for port in former {
                self.changed.insert(port);
                let claims = self.claims.get_mut(&port);
                if claims.is_some_and(|claims| claims.remove(&age).is_some() && claims.is_empty()) {
                    self.claims.remove(&port);
                }
            }
        }
        let Some(LocalhostPorts { created, cluster_ip, ports }) = ports else { return };
        let service: Arc<str> = service.into();
        let age = (*created, Arc::clone(&service));
        for port in ports {
            let target = SocketAddr::new((*cluster_ip).into(), port.port.get());
            let node_port = port.node_port.get();
            self.claims.entry(node_port).or_default().insert(age.clone(), target);
            self.changed.insert(node_port);
        }
        let numbers = ports.iter().map(|port| port.node_port.get()).collect();
        self.of_service.insert(service, (age, numbers));
    }
}

#[cfg(test)]
mod tests {
    use engine::model::LocalhostPort;

    use super::*;

    fn ports(created: i64, numbers: &[u16]) -> LocalhostPorts {
        let ports = numbers.iter().map(|node_port| LocalhostPort {
            node_port: (*node_port).try_into().unwrap(),
            port: 80.try_into().unwrap(),
        });
        let cluster_ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::try_from(created).unwrap());
        LocalhostPorts { created, cluster_ip, ports: ports.collect() }
    }

    fn changed(served: &ServedPorts) -> Vec<(u16, Option<String>)> {
        let changed = served.take_changed().into_iter();
        changed.map(|(port, service)| (port, service.map(|it| it.to_string()))).collect()
    }

    #[test]
    fn the_oldest_service_has_a_port_and_the_next_one_gets_it() {
        let served = ServedPorts::default();
        served.set("a/young", Some(&ports(9, &[1, 2])));
        served.set("a/old", Some(&ports(5, &[1])));
        let some = |service: &str| Some(service.to_owned());
        assert_eq!(changed(&served), [(1, some("a/old")), (2, some("a/young"))]);
        assert_eq!(served.target(1), Some("[fd00::5]:80".parse().unwrap()));
        served.set("a/old", None);
        assert_eq!(changed(&served), [(1, some("a/young"))]);
        assert_eq!(served.target(1), Some("[fd00::9]:80".parse().unwrap()));
        served.set("a/young", Some(&ports(9, &[2])));
        assert_eq!(changed(&served), [(1, None), (2, some("a/young"))]);
        assert_eq!(served.target(1), None);
    }

    #[test]
    fn connections_go_to_the_node_port_where_an_address_of_the_node_serves_it() {
        let served = ServedPorts::default();
        served.set("a/web", Some(&ports(1, &[30080])));
        served.set_address(Some("fd00::2".parse().unwrap()));
        assert_eq!(served.target(30080), Some("[fd00::2]:30080".parse().unwrap()));
        served.set_address(None);
        assert_eq!(served.target(30080), Some("[fd00::1]:80".parse().unwrap()));
        assert_eq!(served.target(30081), None);
    }
}
