//! What elements are about: the keys under which desired and installed state are compared.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use super::affinity::Session;
use crate::model::{Protocol, ServicePort, Target};
use crate::nft::Family;

/// Something that has elements of its own in our sets and maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A service's address, protocol and port, as packets carry them.
    Frontend {
        /// Destination address before DNAT.
        address: IpAddr,
        /// Transport protocol.
        protocol: Protocol,
        /// Destination port before DNAT.
        port: NonZeroU16,
    },
    /// A node port, whatever the address.
    NodePort {
        /// The table it belongs to.
        family: Family,
        /// Transport protocol.
        protocol: Protocol,
        /// Destination port before DNAT.
        port: NonZeroU16,
    },
    /// The cluster IP of a service, whatever the port.
    ClusterIp(IpAddr),
    /// An address of the node that accepts traffic to node ports.
    NodePortIp(IpAddr),
    /// An endpoint on this node, which may send to itself through a service.
    Hairpin(Target, Protocol),
    /// The endpoints that clients of a service port remember one of.
    Session {
        /// The table it belongs to.
        family: Family,
        /// Transport protocol.
        protocol: Protocol,
        /// Its number.
        session: Session,
    },
}

/// Keys with the same shape share their sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyKind {
    /// `address . protocol . port`
    Frontend,
    /// `protocol . port`
    NodePort,
    /// `address`
    Address,
    /// `address . address . protocol . port`
    Hairpin,
    /// `protocol . session`
    Session,
}

impl Key {
    /// The address, if this is one that accepts traffic to node ports.
    pub fn node_port_ip(&self) -> Option<IpAddr> {
        let Self::NodePortIp(address) = self else { return None };
        Some(*address)
    }

    /// The table this key belongs to.
    pub fn family(&self) -> Family {
        match self {
            Self::Frontend { address, .. }
            | Self::ClusterIp(address)
            | Self::NodePortIp(address) => Family::of(*address),
            Self::NodePort { family, .. } | Self::Session { family, .. } => *family,
            Self::Hairpin(target, _) => Family::of(target.address),
        }
    }

    /// The session, if it is one of this table.
    pub(super) fn session(&self, of: Family) -> Option<Session> {
        let Self::Session { family, session, .. } = self else { return None };
        (*family == of).then_some(*session)
    }

    /// Whether it is a frontend or node port of this port of its service.
    pub(super) fn is_of(&self, of: &ServicePort) -> bool {
        match self {
            Self::Frontend { protocol, port, .. } => (*protocol, *port) == (of.protocol, of.port),
            Self::NodePort { protocol, port, .. } => {
                (*protocol, Some(*port)) == (of.protocol, of.node_port)
            }
            Self::ClusterIp(_) | Self::NodePortIp(_) | Self::Hairpin(..) | Self::Session { .. } => {
                false
            }
        }
    }

    /// Whether it says the same whoever asks for it, so that several services may have it.
    pub(super) fn is_shared(&self) -> bool {
        match self.kind() {
            KeyKind::Address | KeyKind::Hairpin => true,
            KeyKind::Frontend | KeyKind::NodePort | KeyKind::Session => false,
        }
    }

    /// The shape of its elements.
    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Frontend { .. } => KeyKind::Frontend,
            Self::NodePort { .. } => KeyKind::NodePort,
            Self::ClusterIp(_) | Self::NodePortIp(_) => KeyKind::Address,
            Self::Hairpin(..) => KeyKind::Hairpin,
            Self::Session { .. } => KeyKind::Session,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frontend { address, protocol, port } => {
                write!(f, "{}/{protocol}", SocketAddr::new(*address, port.get()))
            }
            Self::NodePort { protocol, port, .. } => write!(f, "node port {port}/{protocol}"),
            Self::ClusterIp(address) => write!(f, "cluster IP {address}"),
            Self::NodePortIp(address) => write!(f, "node port address {address}"),
            Self::Hairpin(target, protocol) => {
                let endpoint = SocketAddr::new(target.address, target.port.get());
                write!(f, "hairpin of {endpoint}/{protocol}")
            }
            Self::Session { protocol, session, .. } => {
                write!(f, "affinity session {}/{protocol}", session.number())
            }
        }
    }
}
