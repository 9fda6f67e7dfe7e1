//! Selection of services: all, one by its name, or one by an address.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use engine::model::{Protocol, Target};
use engine::ruleset::Frontend;
use nft::family::Family;

use super::services::{Entry, Services};

/// A selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selector {
    /// Everything.
    #[default]
    All,
    /// A service by `namespace/name`, or one port of it.
    Service {
        /// `namespace/name`.
        name: String,
        /// Name of the port.
        port: Option<String>,
    },
    /// The frontend of packets to this address.
    Address {
        /// Address and port.
        target: Target,
        /// Transport protocol; `None` for all.
        protocol: Option<Protocol>,
    },
    /// The frontends at this address, of all ports.
    EveryPort(IpAddr),
}

/// Error: a text selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is neither NAMESPACE/NAME, NAMESPACE/NAME:PORT-NAME, ADDRESS nor ADDRESS:PORT[/tcp|udp|sctp]"
)]
pub struct SelectorError;

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::EveryPort(address.to_canonical()));
        }
        let (socket, protocol) = match text.rsplit_once('/') {
            Some((socket, protocol)) => (socket, Some(protocol)),
            None => (text, None),
        };
        if let Ok(socket) = socket.parse::<SocketAddr>() {
            let protocol = protocol.map(read_protocol).transpose()?;
            let port = NonZeroU16::new(socket.port()).ok_or(SelectorError)?;
            // The kernel stores IPv4-mapped addresses as IPv4.
            let target = Target { address: socket.ip().to_canonical(), port };
            return Ok(Self::Address { target, protocol });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (text, None),
        };
        match name.split_once('/') {
            Some((namespace, service))
                if is_name(namespace)
                    && is_name(service)
                    && namespace.parse::<IpAddr>().is_err() =>
            {
                Ok(Self::Service { name: name.to_owned(), port })
            }
            Some(_) | None => Err(SelectorError),
        }
    }
}

fn read_protocol(text: &str) -> Result<Protocol, SelectorError> {
    let all = Protocol::ALL;
    let named = all.into_iter().find(|it| it.to_string() == text.to_ascii_lowercase());
    named.ok_or(SelectorError)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("of any name"),
            Self::Service { name, port: None } => f.write_str(name),
            Self::Service { name, port: Some(port) } => write!(f, "{name}:{port}"),
            Self::Address { target: Target { address, port }, protocol } => {
                write!(f, "at {}", SocketAddr::new(*address, port.get()))?;
                protocol.map_or(Ok(()), |protocol| write!(f, "/{protocol}"))
            }
            Self::EveryPort(address) => write!(f, "at {address}"),
        }
    }
}

impl Selector {
    /// Returns true unless everything is selected.
    pub fn is_specific(&self) -> bool {
        *self != Self::All
    }

    /// Returns the places of the selected frontends, ascending.
    pub fn select(&self, services: &Services) -> Vec<usize> {
        let places = |is_meant: &dyn Fn(&Entry) -> bool| -> Vec<usize> {
            let entries = services.entries().iter().enumerate();
            entries.filter(|(_, entry)| is_meant(entry)).map(|(place, _)| place).collect()
        };
        match self {
            Self::All => (0..services.len()).collect(),
            Self::Service { name, port } => places(&|entry| {
                let own = entry.name();
                own.0 == name && port.as_deref().is_none_or(|port| port == own.1)
            }),
            Self::EveryPort(address) => places(&|entry| services.is_at(entry, *address)),
            Self::Address { target, protocol } if target.address.is_unspecified() => {
                places(&|entry| is_node_port(entry.frontend, *target, *protocol))
            }
            Self::Address { target, protocol } => {
                let all = Protocol::ALL;
                let protocols = all.into_iter().filter(|it| protocol.is_none_or(|own| own == *it));
                let mut places: Vec<_> = protocols
                    .filter_map(|protocol| services.frontend_of(*target, protocol))
                    .map(|place| place as usize)
                    .collect();
                places.sort_unstable();
                places
            }
        }
    }
}

/// Returns whether a frontend is the node port of a target at `0.0.0.0` or `::`, which stand for every
/// address with node ports.
fn is_node_port(frontend: Frontend, target: Target, wanted: Option<Protocol>) -> bool {
    let Frontend::NodePort { family, protocol, port } = frontend else { return false };
    (family, port) == (Family::of(target.address), target.port)
        && wanted.is_none_or(|wanted| wanted == protocol)
}

/// Returns whether a text may be the name of a namespace or a service.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_name_or_an_address() {
        let service = |name: &str, port: Option<&str>| {
            Ok(Selector::Service { name: name.to_owned(), port: port.map(str::to_owned) })
        };
        let address = |address: &str, port: u16, protocol| {
            let target =
                Target { address: address.parse().unwrap(), port: NonZeroU16::new(port).unwrap() };
            Ok(Selector::Address { target, protocol })
        };
        for (text, expected) in [
            ("default/web", service("default/web", None)),
            ("kube-system/kube-dns:dns-tcp", service("kube-system/kube-dns", Some("dns-tcp"))),
            ("10.96.0.1:443", address("10.96.0.1", 443, None)),
            ("10.96.0.1:443/TCP", address("10.96.0.1", 443, Some(Protocol::Tcp))),
            ("[fd00::1]:53/udp", address("fd00::1", 53, Some(Protocol::Udp))),
            ("[::ffff:10.96.0.1]:53", address("10.96.0.1", 53, None)),
            ("10.96.0.1", Ok(Selector::EveryPort("10.96.0.1".parse().unwrap()))),
            ("[fd00::1]", Ok(Selector::EveryPort("fd00::1".parse().unwrap()))),
            ("web", Err(SelectorError)),
            ("a/b/c", Err(SelectorError)),
            ("10.96.0.1:0", Err(SelectorError)),
            ("10.96.0.1:443/icmp", Err(SelectorError)),
            ("10.96.0.1/tcp", Err(SelectorError)),
            ("default/", Err(SelectorError)),
            ("", Err(SelectorError)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
    }
}
