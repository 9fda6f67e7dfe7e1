//! Hash maps by addresses. Most keys are IPv4 addresses, and these take a few bytes only.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use ahash::HashMap;

use crate::model::Protocol;
use crate::ruleset::{Frontend, Member};

/// A key whose most frequent values have a packed form.
pub(super) trait Pack: Copy + Debug + Eq + Hash {
    /// The packed form.
    type Packed: Copy + Debug + Eq + Hash;

    /// Returns the packed form; `None` for rare values.
    fn pack(self) -> Option<Self::Packed>;

    /// Returns the value of a packed form.
    fn unpack(packed: Self::Packed) -> Self;
}

/// A hash map that stores most keys packed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackedMap<K: Pack, V> {
    packed: HashMap<K::Packed, V>,
    others: HashMap<K, V>,
}

impl<K: Pack, V> Default for PackedMap<K, V> {
    fn default() -> Self {
        Self { packed: HashMap::default(), others: HashMap::default() }
    }
}

impl<K: Pack, V> PackedMap<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match key.pack() {
            Some(packed) => self.packed.get(&packed),
            None => self.others.get(key),
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match key.pack() {
            Some(packed) => self.packed.get_mut(&packed),
            None => self.others.get_mut(key),
        }
    }

    /// Returns the value of a key, and inserts the default if there is none.
    pub(super) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        match key.pack() {
            Some(packed) => self.packed.entry(packed).or_default(),
            None => self.others.entry(key).or_default(),
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        match key.pack() {
            Some(packed) => self.packed.remove(&packed),
            None => self.others.remove(key),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.packed.len() + self.others.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let packed = self.packed.iter().map(|(key, value)| (K::unpack(*key), value));
        packed.chain(self.others.iter().map(|(key, value)| (*key, value)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        let packed = self.packed.iter_mut().map(|(key, value)| (K::unpack(*key), value));
        packed.chain(self.others.iter_mut().map(|(key, value)| (*key, value)))
    }

    /// Keeps the values for which `is_kept` returns true.
    pub(super) fn retain_values(&mut self, mut is_kept: impl FnMut(&mut V) -> bool) {
        self.packed.retain(|_, value| is_kept(value));
        self.others.retain(|_, value| is_kept(value));
    }

    /// Moves all entries of `other` into this map.
    pub(super) fn append(&mut self, other: Self) {
        self.packed.extend(other.packed);
        self.others.extend(other.others);
    }

    /// Returns all entries.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        let packed = self.packed.into_iter().map(|(key, value)| (K::unpack(key), value));
        packed.chain(self.others)
    }
}

/// A frontend with an IPv4 address of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedFrontend {
    address: Ipv4Addr,
    port: NonZeroU16,
    protocol: Protocol,
}

impl Hash for PackedFrontend {
    // One write is faster than one for each field.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (port, protocol) = (u64::from(self.port.get()), u64::from(self.protocol.number()));
        state.write_u64(u64::from(self.address.to_bits()) << 32 | port << 16 | protocol);
    }
}

impl Pack for Frontend {
    type Packed = PackedFrontend;

    fn pack(self) -> Option<PackedFrontend> {
        match self {
            Self::Address { address: IpAddr::V4(address), protocol, port } => {
                Some(PackedFrontend { address, port, protocol })
            }
            Self::Address { .. } | Self::NodePort { .. } | Self::Ranges { .. } => None,
        }
    }

    fn unpack(PackedFrontend { address, port, protocol }: PackedFrontend) -> Self {
        Self::Address { address: address.into(), protocol, port }
    }
}

impl Pack for Member {
    /// The bits of an IPv4 cluster IP.
    type Packed = u32;

    fn pack(self) -> Option<u32> {
        match self {
            Self::ClusterIp(IpAddr::V4(address)) => Some(address.to_bits()),
            Self::ClusterIp(IpAddr::V6(_))
            | Self::NodePortIp(_)
            | Self::Hairpin(..)
            | Self::RangeHairpin(_) => None,
        }
    }

    fn unpack(packed: u32) -> Self {
        Self::ClusterIp(Ipv4Addr::from_bits(packed).into())
    }
}

/// Returns the keys of a hash map in an order that is the same in each process.
pub(super) fn sorted<T: Ord>(keys: impl Iterator<Item = T>) -> Vec<T> {
    let mut sorted: Vec<T> = keys.collect();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use nft::family::Family;

    use super::*;

    #[test]
    fn a_map_holds_packed_and_other_keys_alike() {
        let port = NonZeroU16::new(80).unwrap();
        let address = |address: &str, protocol| {
            let address = address.parse().unwrap();
            Frontend::Address { address, protocol, port }
        };
        let keys = [
            address("10.96.0.1", Protocol::Tcp),
            address("10.96.0.1", Protocol::Udp),
            address("10.96.0.2", Protocol::Tcp),
            address("::ffff:10.96.0.1", Protocol::Tcp),
            address("fd00::1", Protocol::Tcp),
            Frontend::NodePort { family: Family::Ip, protocol: Protocol::Tcp, port },
            Frontend::NodePort { family: Family::Ip6, protocol: Protocol::Tcp, port },
        ];
        let mut map = PackedMap::<Frontend, usize>::default();
        keys.iter().enumerate().for_each(|(i, key)| *map.get_or_default(*key) = i + 1);
        assert_eq!(map.packed.len(), 3);
        assert_eq!(map.len(), keys.len());
        assert!(keys.iter().enumerate().all(|(i, key)| map.get(key) == Some(&(i + 1))));
        let mut found: Vec<_> = map.iter().map(|(key, value)| (*value, key)).collect();
        found.sort_unstable();
        assert!(found.into_iter().map(|(_, key)| key).eq(keys));
        assert_eq!(keys.map(|key| map.remove(&key)), [1, 2, 3, 4, 5, 6, 7].map(Some));
        assert_eq!(map, PackedMap::default());
    }

    #[test]
    fn only_ipv4_cluster_ips_are_packed_members() {
        let address = IpAddr::from([10, 96, 0, 1]);
        assert_eq!(
            Member::ClusterIp(address).pack().map(Member::unpack),
            Some(Member::ClusterIp(address))
        );
        assert_eq!(Member::NodePortIp(address).pack(), None);
    }

    #[test]
    fn a_packed_frontend_takes_8_bytes() {
        assert_eq!(size_of::<PackedFrontend>(), 8);
    }
}
