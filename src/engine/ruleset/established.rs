//! The flowtable, and the rules that add connections of services to it.
//!
//! A connection is added once it has packets in both directions and exceeds the threshold. Later
//! packets skip the rules of all programs, from the ingress of their device on.

use nft::Flowtable;

use super::chain::ChainSpec;
use super::field::Field;
use super::phrase::{self, Phrase, Phrases};
use super::sets::SetId;
use super::settings::Settings;
use crate::flowtable::Threshold;

/// The name of the flowtable, and of the chain with its rules.
const ESTABLISHED: &str = "established";

/// The fields of [`super::field::SERVICE`] of the packet that began the connection.
const FIRST_SERVICE: &[Field] = &[Field::OriginalDaddr, Field::L4Proto, Field::OriginalDport];

/// Likewise those of [`super::field::NODE_PORT`].
const FIRST_NODE_PORT: &[Field] = &[Field::L4Proto, Field::OriginalDport];

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
/// Packets of the flowtable have no priority, as those of [`of_services`].
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
    let served = [SetId::Services, SetId::NodePorts, SetId::RangeServices];
    ChainSpec::new(ESTABLISHED, of_services(phrases, settings, served, &[add()]))
        .with_comment("connections to services skip later rules")
}

/// Returns the rules that do `then` with packets of connections to the service addresses, the node
/// ports and the addresses with port ranges in three maps.
///
/// nftables has no map lookup that ignores the data, so the route goes into the priority and is
/// cleared at once.
pub(super) fn of_services(
    phrases: Phrases,
    settings: &Settings,
    [services, node_ports, ranges]: [SetId; 3],
    then: &[Phrase],
) -> Vec<Vec<Phrase>> {
    let of_map = |key, map| [&[phrases.look_up(key, map), phrase::clear_priority()], then].concat();
    let mut node_port = of_map(FIRST_NODE_PORT, node_ports);
    if !settings.node_ports.everywhere {
        let address = phrases.in_set(&[Field::OriginalDaddr], SetId::NodePortIps.name());
        node_port.insert(0, address);
    }
    let mut rules = vec![of_map(FIRST_SERVICE, services), node_port];
    if settings.optional_sets().port_ranges {
        // The address is that of a service, whatever the port.
        rules.push(of_map(&[Field::OriginalDaddr, Field::L4Proto], ranges));
    }
    rules
}
