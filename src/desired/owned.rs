//! The keys that a service asks for, in little room: there are very many services.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use super::Key;
use crate::model::Protocol;

/// Keys in the order in which they were asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnedKeys {
    /// One port of an IPv4 cluster IP, and then the address, as most services have it.
    Usual { address: Ipv4Addr, protocol: Protocol, port: NonZeroU16 },
    /// Whatever else.
    Others(Box<[Key]>),
}

impl OwnedKeys {
    pub(super) fn iter(&self) -> impl Iterator<Item = Key> {
        let (usual, others) = match self {
            Self::Usual { address, protocol, port } => {
                let (address, protocol, port) = (IpAddr::V4(*address), *protocol, *port);
                let frontend = Key::Frontend { address, protocol, port };
                (Some([frontend, Key::ClusterIp(address)]), &[][..])
            }
            Self::Others(keys) => (None, &keys[..]),
        };
        usual.into_iter().flatten().chain(others.iter().copied())
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.iter().any(|own| own == *key)
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Others(keys) if keys.is_empty())
    }
}

impl Default for OwnedKeys {
    fn default() -> Self {
        Self::Others(Box::default())
    }
}

impl FromIterator<Key> for OwnedKeys {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let keys: Box<[Key]> = keys.into_iter().collect();
        match *keys {
            [
                Key::Frontend { address: IpAddr::V4(address), protocol, port },
                Key::ClusterIp(IpAddr::V4(own)),
            ] if own == address => Self::Usual { address, protocol, port },
            _ => Self::Others(keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_given_as_they_came_and_take_16_bytes() {
        assert_eq!(size_of::<OwnedKeys>(), 16);
        let [one, other] = [[10, 96, 0, 1], [10, 96, 0, 2]].map(IpAddr::from);
        let frontend = |address| {
            let (protocol, port) = (Protocol::Tcp, NonZeroU16::MIN);
            Key::Frontend { address, protocol, port }
        };
        for keys in [
            &[][..],
            &[frontend(one), Key::ClusterIp(one)],
            &[frontend(one), Key::ClusterIp(other)],
            &[Key::ClusterIp(one), frontend(one)],
            &[frontend(one), frontend(other), Key::ClusterIp(one)],
        ] {
            let owned: OwnedKeys = keys.iter().copied().collect();
            assert!(owned.iter().eq(keys.iter().copied()), "{keys:?}");
            assert_eq!(owned.is_empty(), keys.is_empty());
            assert!(keys.iter().all(|key| owned.contains(key)));
        }
    }
}
