//! The sets and maps of a table: names, types and comments.

use std::cmp::Reverse;
use std::sync::Arc;

use nft::kernel::Contents;
use nft::{DecodedSet, Family, Set, SetFlags, Type};

use crate::counters::Counters;

crate::named! {
    /// A set or map of our tables.
    ///
    /// The variants are in the order of creation. The kernel finds a set by walking a list
    /// (`nft_set_lookup`), so the sets of most updates come first.
    #[derive(Hash, PartialOrd, Ord)]
    pub enum SetId {
        /// `list . protocol . slot : endpoint`
        Endpoints = "endpoints",
        /// `address . protocol . port : route`
        Services = "services",
        /// `protocol . port : route`
        NodePorts = "nodeports",
        /// `address . protocol . port : route`; internal routes, for frontends with local endpoints
        /// only in `services`.
        InternalServices = "internal-services",
        /// `protocol . port : route`; the same for node ports.
        InternalNodePorts = "internal-nodeports",
        /// `address . protocol . port : refuse or drop`
        UnservedServices = "unserved-services",
        /// `protocol . port : refuse or drop`
        UnservedNodePorts = "unserved-nodeports",
        /// `address`
        ClusterIps = "cluster-ips",
        /// `address`
        NodePortIps = "nodeport-ips",
        /// `address . address . protocol . port`
        HairpinConnections = "hairpin-connections",
        /// `address . protocol . port`
        RestrictedServices = "restricted-services",
        /// `source network . protocol and prefix length . address . port`. nft 1.0.6 prints no `typeof` of
        /// more than four fields.
        SourceRanges = "source-ranges",
        /// `address . protocol . port`; counts the packets whose source is in no range.
        SourceRefusals = "source-refusals",
        /// `list . slot : list and endpoint`
        AffinitySlots = "affinity-slots",
        /// `protocol . list and endpoint : endpoint`
        AffinityEndpoints = "affinity-endpoints",
        /// `list : route`
        AffinityLists = "affinity-lists",
        /// `list . client hash : list and endpoint`; only packets write it.
        AffinityClients = "affinity-clients",
        /// `address . protocol . port` of endpoints whose connections end; only in tables of daemons
        /// that end some.
        EndedEndpoints = "ended-endpoints",
        /// `first bits of the port . protocol and their number . address`; this set and the following
        /// ones only in tables with port ranges.
        PortRanges = "port-ranges",
        /// `address . protocol : route`
        RangeServices = "range-services",
        /// `address . protocol : route`; as `internal-services`.
        InternalRangeServices = "internal-range-services",
        /// `address . protocol : refuse or drop`
        UnservedRangeServices = "unserved-range-services",
        /// `address . protocol`
        RestrictedRangeServices = "restricted-range-services",
        /// `source network . protocol and prefix length . address`
        RangeSources = "range-sources",
        /// `address . protocol`; as `source-refusals`.
        RangeSourceRefusals = "range-source-refusals",
        /// `list and endpoint : address`
        RangeEndpoints = "range-endpoints",
        /// `address . address`
        RangeHairpins = "range-hairpins",
    }
}

/// The sets that only some tables have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalSets {
    /// Connections may be ended.
    pub ended_endpoints: bool,
    /// Services have port ranges.
    pub port_ranges: bool,
}

impl OptionalSets {
    /// All of them.
    pub const ALL: Self = Self { ended_endpoints: true, port_ranges: true };
}

/// The sets and maps of one table.
#[derive(Debug)]
pub struct TableSets {
    /// The table's family.
    pub family: Family,
    sets: [Arc<Set>; SetId::ALL.len()],
}

/// The sets and maps of both tables.
#[derive(Debug)]
pub struct Layouts([TableSets; 2]);

/// Maximum number of recorded clients in a table, for all services together: the client hashes
/// of 32 lists. Clients with further client hashes are served without a record.
pub const CLIENTS: u32 = 32 * CLIENT_HASHES;

/// Client hashes of one list with affinity. Clients with the same client hash share a record and its
/// endpoint, so this is the maximum of records for each list.
pub(super) const CLIENT_HASHES: u32 = 32_768;

impl SetId {
    /// Returns the sets of a table with these options.
    fn of_tables(optional: OptionalSets) -> impl Iterator<Item = Self> {
        let lacks = move |set: &Self| {
            *set == Self::EndedEndpoints && !optional.ended_endpoints
                || *set >= Self::PortRanges && !optional.port_ranges
        };
        Self::ALL.into_iter().filter(move |set| !lacks(set))
    }

    /// Returns the sets of a table whose elements the daemon writes: packets write the clients of
    /// affinity.
    pub fn written(optional: OptionalSets) -> impl Iterator<Item = Self> {
        Self::of_tables(optional).filter(|set| set.is_written())
    }

    pub(crate) fn is_written(self) -> bool {
        self != Self::AffinityClients
    }

    /// Returns the set with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Returns whether its keys are node ports.
    pub const fn is_of_node_ports(self) -> bool {
        matches!(self, Self::NodePorts | Self::InternalNodePorts | Self::UnservedNodePorts)
    }

    /// Returns whether its keys are addresses with port ranges.
    pub const fn is_of_ranges(self) -> bool {
        matches!(
            self,
            Self::PortRanges
                | Self::RangeServices
                | Self::InternalRangeServices
                | Self::UnservedRangeServices
                | Self::RestrictedRangeServices
                | Self::RangeSources
                | Self::RangeSourceRefusals
        )
    }

    /// Returns whether it belongs to lists with affinity.
    pub const fn is_of_affinity(self) -> bool {
        matches!(
            self,
            Self::AffinitySlots
                | Self::AffinityEndpoints
                | Self::AffinityLists
                | Self::AffinityClients
                | Self::RangeEndpoints
        )
    }

    // kube-proxy's mode nftables has sets `unserved-services`, `unserved-nodeports` and
    // `restricted-services` of other types. It refuses a table that has ours under these names.
    const fn comment(self) -> &'static str {
        match self {
            Self::Endpoints => "list . protocol . slot : endpoint; each list once",
            Self::Services => {
                "service address : NNNN:NNFS, number NNNN:NN00 of its endpoint list, size and flags \
                 FS, see chain service-traffic"
            }
            Self::NodePorts => "node port : endpoint list, size and flags, as in services",
            Self::InternalServices => {
                "list of all endpoints, for pods and this node, where services has flag 40"
            }
            Self::InternalNodePorts => {
                "list of all endpoints, for pods and this node, where nodeports has flag 40"
            }
            Self::UnservedServices => "service addresses without endpoints: 1:0 refuse, 1:1 drop",
            Self::UnservedNodePorts => "node ports without endpoints: 1:0 refuse, 1:1 drop",
            Self::ClusterIps => "active ClusterIPs",
            Self::NodePortIps => "addresses that accept node port traffic",
            Self::HairpinConnections => "endpoints on this node, which may reach themselves",
            Self::RestrictedServices => "service addresses that are subject to source-ranges",
            Self::SourceRanges => {
                "network . 6024: TCP (6), length 24 . address and port that it may use"
            }
            Self::SourceRefusals => "as restricted-services; counts packets of other sources",
            Self::AffinitySlots => "SSSS:0 . slot : SSSS:EEEE, endpoint EEEE of session SSSS",
            Self::AffinityEndpoints => "protocol . SSSS:EEEE : endpoint",
            Self::AffinityLists => {
                "SSSS:0 : timeout and size of the session, for a client whose endpoint is gone"
            }
            Self::AffinityClients => {
                "SSSS:0 . place of clients : SSSS:EEEE, the endpoint they had last; only packets write it"
            }
            Self::EndedEndpoints => "endpoints that are gone; counts the packets that were reset",
            Self::PortRanges => {
                "port & mask . 17008: UDP (17), 8 bits in the mask . service address with this range"
            }
            Self::RangeServices => "service address with port ranges : session, as in services",
            Self::InternalRangeServices => "as internal-services, for port ranges",
            Self::UnservedRangeServices => "as unserved-services, for port ranges",
            Self::RestrictedRangeServices => "as restricted-services, for port ranges",
            Self::RangeSources => "as source-ranges, for port ranges",
            Self::RangeSourceRefusals => "as source-refusals, for port ranges",
            Self::RangeEndpoints => "SSSS:EEEE : endpoint, which gets the packet's port",
            Self::RangeHairpins => {
                "endpoints of port ranges on this node, which may reach themselves"
            }
        }
    }

    /// Returns whether its elements have counters. Those that count refused packets always do:
    /// they are few, and no packet that reaches an endpoint finds them.
    ///
    /// A first packet matches one element of `services` or `nodeports`, and one of `endpoints` or
    /// `affinity-endpoints`; a draw that misses counts nothing. It may match its frontend again in
    /// `internal-services` or `internal-nodeports`.
    const fn counts(self, counters: Counters) -> bool {
        match self {
            Self::Services | Self::NodePorts | Self::RangeServices => {
                !matches!(counters, Counters::Off)
            }
            Self::Endpoints | Self::AffinityEndpoints | Self::RangeEndpoints => {
                matches!(counters, Counters::Endpoints)
            }
            Self::UnservedServices
            | Self::UnservedNodePorts
            | Self::SourceRefusals
            | Self::UnservedRangeServices
            | Self::RangeSourceRefusals
            | Self::EndedEndpoints => true,
            Self::InternalServices
            | Self::InternalNodePorts
            | Self::ClusterIps
            | Self::NodePortIps
            | Self::HairpinConnections
            | Self::RestrictedServices
            | Self::SourceRanges
            | Self::AffinitySlots
            | Self::AffinityLists
            | Self::AffinityClients
            | Self::PortRanges
            | Self::InternalRangeServices
            | Self::RestrictedRangeServices
            | Self::RangeSources
            | Self::RangeHairpins => false,
        }
    }

    fn set(self, family: Family, counters: Counters) -> Set {
        let address = match family {
            Family::Ip => Type::Ipv4Addr,
            Family::Ip6 => Type::Ipv6Addr,
        };
        let (class, protocol, port) = (Type::ClassId, Type::InetProto, Type::InetService);
        let service = [address, protocol, port];
        let (key, data): (&[Type], &[Type]) = match self {
            Self::Endpoints => (&[class, protocol, Type::Integer], &[address, port]),
            Self::Services | Self::InternalServices | Self::UnservedServices => {
                (&service, &[class])
            }
            Self::NodePorts | Self::InternalNodePorts | Self::UnservedNodePorts => {
                (&[protocol, port], &[class])
            }
            Self::ClusterIps | Self::NodePortIps => (&[address], &[]),
            Self::HairpinConnections => (&[address, address, protocol, port], &[]),
            Self::RestrictedServices | Self::SourceRefusals | Self::EndedEndpoints => {
                (&service, &[])
            }
            Self::SourceRanges => (&[address, Type::Integer, address, port], &[]),
            Self::AffinitySlots => (&[class, Type::Integer], &[class]),
            Self::AffinityEndpoints => (&[protocol, class], &[address, port]),
            Self::AffinityLists => (&[class], &[class]),
            Self::AffinityClients => (&[class, Type::Integer], &[class]),
            Self::PortRanges => (&[port, Type::Integer, address], &[]),
            Self::RangeServices | Self::InternalRangeServices | Self::UnservedRangeServices => {
                (&[address, protocol], &[class])
            }
            Self::RestrictedRangeServices | Self::RangeSourceRefusals => {
                (&[address, protocol], &[])
            }
            Self::RangeSources => (&[address, Type::Integer, address], &[]),
            Self::RangeEndpoints => (&[class], &[address]),
            Self::RangeHairpins => (&[address, address], &[]),
        };
        Set {
            name: self.name().into(),
            key: key.to_vec(),
            data: data.to_vec(),
            flags: SetFlags {
                // The kernel copies an interval set at each commit that changes it
                // (`nft_pipapo_commit`), and removes an element in time that grows with the set.
                interval: false,
                dynamic: self == Self::AffinityClients,
                timeout: matches!(self, Self::AffinityClients | Self::EndedEndpoints),
            },
            size: (self == Self::AffinityClients).then_some(CLIENTS),
            comment: Some(self.comment().to_owned()),
            counter: self.counts(counters),
        }
    }
}

impl TableSets {
    /// Returns the sets and maps of the table of one family.
    pub fn new(family: Family, counters: Counters) -> Self {
        Self { family, sets: SetId::ALL.map(|set| Arc::new(set.set(family, counters))) }
    }

    /// Returns all sets and maps in the order of creation.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Set>> {
        self.sets.iter()
    }

    /// Returns those that a table has, in the order of creation.
    pub(super) fn of_tables(&self, optional: OptionalSets) -> impl Iterator<Item = &Arc<Set>> {
        SetId::of_tables(optional).map(|set| self.get(set))
    }

    /// Returns the nftables set or map.
    pub fn get(&self, set: SetId) -> &Arc<Set> {
        &self.sets[set as usize]
    }

    /// Returns which of our sets matches a set found in the kernel, with counters or without.
    /// `None` if its name, types or flags differ.
    pub fn identify(&self, found: &DecodedSet) -> Option<SetId> {
        let id = SetId::by_name(&found.name)?;
        let (ours, found) = (self.get(id), found.set.as_ref()?);
        let is_same = (&found.key, &found.data, found.flags) == (&ours.key, &ours.data, ours.flags);
        is_same.then_some(id)
    }

    /// Returns those of our sets that a table has, with their numbers of elements, in the order of
    /// reading. Endpoints come last, because the routes of frontends name their lists; those of lists
    /// with affinity come before the slots that name them, and routes after unserved frontends,
    /// because the label of a route counts.
    pub fn found_in(&self, contents: &Contents) -> Vec<(SetId, Option<u32>)> {
        let ours = |found: &DecodedSet| Some((self.identify(found)?, found.elements));
        let mut found: Vec<_> = contents.sets.iter().filter_map(ours).collect();
        found.sort_unstable_by_key(|(set, _)| Reverse(*set));
        found
    }
}

impl Default for Layouts {
    fn default() -> Self {
        Self::new(Counters::Off)
    }
}

impl Layouts {
    /// Returns the sets and maps of tables with these counters.
    pub fn new(counters: Counters) -> Self {
        Self(Family::ALL.map(|family| TableSets::new(family, counters)))
    }

    /// Returns the sets and maps of one table.
    pub fn of(&self, family: Family) -> &TableSets {
        &self.0[family.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_is_found_by_its_name_and_has_a_comment_that_nft_can_load() {
        for (i, set) in SetId::ALL.into_iter().enumerate() {
            assert_eq!(SetId::by_name(set.name()), Some(set));
            assert_eq!(set as usize, i);
            assert!(set.comment().len() <= 128, "{}", set.name());
        }
    }
}
