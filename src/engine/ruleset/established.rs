//! The flowtable, and the rules that add connections of services to it.
//!
//! A connection is added once it has packets in both directions and exceeds the threshold. Later
//! packets skip the rules of all programs, from the ingress of their device on.

use nft::Flowtable;

use super::chain::ChainSpec;
use super::field::{FIRST_NODE_PORT, FIRST_SERVICE, Field};
use super::phrase::{self, Phrase, Phrases};
use super::sets::SetId;
use super::settings::Settings;
use crate::flowtable::Threshold;

/// The name of the flowtable, and of the chain with its rules.
const ESTABLISHED: &str = "established";

/// Returns the flowtable of a table.
pub fn flowtable() -> Flowtable {
    Flowtable { flags: Flowtable::COUNTER, ..Flowtable::new(ESTABLISHED) }
}

/// Returns the rule of the forward chain for packets of established connections.
pub(super) fn established(after: Threshold) -> [Phrase; 4] {
    [
        phrase::ct_status_dnat(),
        phrase::ct_state_established(),
        phrase::ct_over(after),
        phrase::jump(ESTABLISHED),
    ]
}

/// Returns the chain that adds connections of services, and no other translated ones.
///
/// nftables has no map lookup that ignores the data, so the route goes into the priority and is
/// cleared at once. Packets of the flowtable have no priority either.
///
/// With counters, a lookup of `services` or `nodeports` would count the packet as a connection.
/// Then only connections to ClusterIPs are added.
pub(super) fn chain(phrases: Phrases, settings: &Settings) -> ChainSpec {
    let add = || phrase::add_to_flowtable(ESTABLISHED);
    if settings.counts_connections {
        let to_cluster_ip = phrases.in_set(&[Field::OriginalDaddr], SetId::ClusterIps.name());
        return ChainSpec::new(ESTABLISHED, [vec![to_cluster_ip, add()]])
            .with_comment("connections to ClusterIPs skip later rules");
    }
    let of_map = |key, map| vec![phrases.look_up(key, map), phrase::clear_priority(), add()];
    let node_port_ip = phrases.in_set(&[Field::OriginalDaddr], SetId::NodePortIps.name());
    let mut node_port = of_map(FIRST_NODE_PORT, SetId::NodePorts);
    if !settings.node_ports.everywhere {
        node_port.insert(0, node_port_ip);
    }
    ChainSpec::new(ESTABLISHED, [of_map(FIRST_SERVICE, SetId::Services), node_port])
        .with_comment("connections to services skip later rules")
}
