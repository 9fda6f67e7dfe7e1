//! What the rules of a table depend on besides its family.

use std::net::IpAddr;

use ipnet::IpNet;
use nft::Name;

use super::affinity::NumberedTimeouts;
use super::lookups::Lookups;
use super::phrase::{self, Comparison, Phrase};
use super::sets::OptionalSets;
use super::size_classes::SizeClasses;
use crate::flowtable::Threshold;
use crate::model::PrefixLengths;

/// The settings of the fixed rules of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which packets are masqueraded.
    pub masquerade: Masquerade,
    /// Distinguishes packets of pods from others; `None` if that is not possible.
    pub local_detector: Option<LocalDetector>,
    /// Where node ports are open.
    pub node_ports: NodePorts,
    /// Elements of frontends count the connections that match them.
    pub counts_connections: bool,
    /// The optional chains.
    pub optional_chains: OptionalChains,
    /// Connections to endpoints that are gone may be ended, so the table has the set of these.
    pub ends_connections: bool,
    /// Size from which on connections are added to the flowtable; `None` without a flowtable.
    pub offload: Option<Threshold>,
    /// Ranges of cluster IPs, of this family.
    pub service_cidrs: Vec<IpNet>,
    /// Addresses in these ranges to which packets are never dropped.
    pub exempt: Vec<IpAddr>,
    /// Timeouts of session affinity, in seconds.
    pub timeouts: NumberedTimeouts,
    /// The seed of the hash of a packet's source. Nodes with the same seed choose alike.
    pub hash_seed: u32,
    /// How the kernel looks up elements while it commits.
    pub lookups: Lookups,
}

/// Which packets are masqueraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masquerade {
    /// The bit of the packet mark that requests it. Rules change no other bit.
    pub mark: u32,
    /// All traffic to cluster IPs.
    pub all: bool,
}

/// Where node ports are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePorts {
    /// On every local address, not only on those in `nodeport-ips`.
    pub everywhere: bool,
    /// Also on loopback addresses. The rules serve those of IPv4, and drop packets of other hosts to
    /// them. At that of IPv6 the daemon serves TCP alone, and the rules reject the rest.
    pub localhost: bool,
    /// Also for packets to the address of another node, if direct return has chosen this one for them.
    pub chosen_node: bool,
}

/// Chains that a table has only while something needs them. A base chain of type filter costs every
/// packet, also of established connections, and a rule that looks up endpoints costs each new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalChains {
    /// The prefix lengths of source ranges; the chains that check them exist if there is any.
    pub source_ranges: PrefixLengths,
    /// The lengths of the blocks of port ranges, each of which a rule looks up.
    pub port_ranges: PrefixLengths,
    /// The sets of port ranges, and the rules that look them up.
    pub range_sets: bool,
    /// The chains that refuse packets whose endpoint is a cluster IP.
    pub cluster_ip_endpoints: bool,
    /// The chains that end connections to endpoints that are gone.
    pub ended_endpoints: bool,
    /// The size classes of lists that have chains.
    pub size_classes: SizeClasses,
}

/// The property of packets of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalDetector {
    /// The source is in this range of the table's family.
    Range(IpNet),
    /// The input interface. Packets of the node itself have none.
    Interface(Name),
    /// The input interface has a name with this prefix, at most 15 bytes.
    InterfacePrefix(Name),
}

impl Settings {
    /// Returns the sets that the table has beside the usual ones.
    pub fn optional_sets(&self) -> OptionalSets {
        OptionalSets {
            ended_endpoints: self.ends_connections,
            port_ranges: self.optional_chains.range_sets,
        }
    }
}

impl LocalDetector {
    /// Returns a match for packets of pods.
    pub(super) fn local(&self) -> Phrase {
        self.comparison().equal()
    }

    /// Returns a match for all other packets, including those of the node: without an input device
    /// the kernel compares with an empty name (`nft_meta_get_eval`).
    pub(super) fn not_local(&self) -> Phrase {
        self.comparison().unequal()
    }

    fn comparison(&self) -> Comparison {
        match self {
            Self::Range(range) => phrase::source(*range),
            Self::Interface(name) => phrase::input_name(name),
            Self::InterfacePrefix(prefix) => phrase::input_prefix(prefix),
        }
    }
}
