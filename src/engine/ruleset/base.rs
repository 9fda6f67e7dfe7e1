//! Chains and rules of a table: fixed for given [`Settings`], without elements of services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use nft::{BaseChain, Expression, Family, Flowtable, HookPoint, ListedRule, Set, Verdict};

use super::chain::{ChainSpec, compare, rule_of};
use super::element::Unserved;
use super::field::{Field, NODE_PORT, SERVICE};
use super::lookups::Lookups;
use super::number::{AFFINITY, CHOSEN_NODE, LOCAL, MASQUERADE};
use super::phrase::{self, Phrase, Phrases, goto, jump, priority_bits, verdict};
use super::sets::{SetId, TableSets};
use super::settings::{OptionalChains, Settings};
use super::{affinity, draw, established, range_rules, reset, source_rules};
use crate::model::Protocol;

/// Chains and sets of a table, without elements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base {
    /// All chains, each after those that it refers to. Base chains come last, so that a table
    /// created in several transactions has no effect until it is complete.
    pub chains: Vec<ChainSpec>,
    /// All sets, in the order of creation.
    pub sets: Vec<Arc<Set>>,
    /// The flowtable, which is created without devices.
    pub flowtable: Option<Flowtable>,
}

impl Base {
    /// Returns the table with `sets` and the chains for `settings`.
    pub fn new(sets: &TableSets, settings: &Settings) -> Self {
        Self {
            chains: chains(sets.family, settings),
            sets: sets.of_tables(settings.optional_sets()).map(Arc::clone).collect(),
            flowtable: settings.offload.map(|_| established::flowtable()),
        }
    }
}

fn chains(family: Family, settings: &Settings) -> Vec<ChainSpec> {
    let phrases = Phrases(family);
    let (classes, seed) = (settings.optional_chains.size_classes, settings.hash_seed);
    let mut chains = draw::chains(phrases, classes, seed);
    let has_ranges = settings.optional_sets().port_ranges;
    chains.extend(affinity::chains(phrases, &settings.timeouts, classes, (seed, has_ranges)));
    chains.extend([
        ChainSpec::new(CHOOSE, choose(settings)),
        ChainSpec::new("internal-traffic", internal_traffic(phrases, settings))
            .with_comment("from pods and this node: the list of all endpoints"),
        ChainSpec::new("external-local", external_local(settings))
            .with_comment("external traffic policy Local is for sources outside the cluster"),
        ChainSpec::new("special-traffic", special_traffic(settings))
            .with_comment("flags: 20 masquerade, 40 external policy Local, 80 session affinity"),
        ChainSpec::new("service-traffic", service_traffic(settings)).with_comment(
            "the priority is NNNN:NNFS: endpoint list NNNN:NN00, and in FS size class and flags",
        ),
    ]);
    if settings.node_ports.chosen_node {
        let comment = "direct return has chosen this node: local endpoints, without masquerade";
        chains.push(ChainSpec::new(OF_CHOSEN_NODE, of_chosen_node()).with_comment(comment));
    }
    chains.extend([
        ChainSpec::new(REFUSE, refuse(phrases)),
        ChainSpec::new(NO_ENDPOINT, no_endpoint()),
        ChainSpec::new(CLUSTER_IPS_CHECK, cluster_ips_check(phrases, settings))
            .with_comment("cluster IPs here are for no port of a service"),
    ]);
    if settings.node_ports.localhost && family == Family::Ip6 {
        chains.push(ChainSpec::new(LOCALHOST, not_served_at_localhost(phrases)));
    }
    if settings.node_ports.everywhere {
        chains.push(ChainSpec::new(LOCAL_NODE_PORTS, node_ports(phrases)));
    }
    if has_ranges {
        chains.extend(range_rules::chains(phrases, settings, goto(NO_ENDPOINT)));
    }
    let lengths = settings.optional_chains.source_ranges;
    if !lengths.is_empty() {
        chains.extend(source_rules::chains(phrases, lengths, source_rules::SourceSets::OF_PORTS));
        if has_ranges {
            chains.extend(source_rules::chains(
                phrases,
                lengths,
                source_rules::SourceSets::OF_RANGES,
            ));
            chains.push(range_rules::sources_of(phrases, settings));
        }
    }
    chains.extend(settings.offload.map(|_| established::chain(phrases, settings)));
    if settings.optional_chains.ended_endpoints {
        chains.extend(reset::chains(phrases, settings));
    }
    chains.extend(base_chains(family, settings));
    chains
}

/// Returns the base chains. Their names are kube-proxy's, which other programs expect, and so are
/// the priorities but [`DESTINATION_NAT`].
///
/// Each base chain of type filter costs every packet, also of established connections. So most
/// rules are in chains of type nat, which only the first packet of a connection passes: they also
/// refuse and drop. The others exist only while they are needed. Those before DNAT check source
/// ranges. UDP flows without an answer are still `new`, so changed ranges apply to them at once.
/// Those after DNAT refuse packets whose endpoint is a cluster IP, because a packet is translated
/// once.
///
/// They contain the first comparison of every new connection themselves, because a jump would cost
/// as much as the comparison.
fn base_chains(family: Family, settings: &Settings) -> Vec<ChainSpec> {
    let base = |name: &'static str, kind, point, priority, rules: Vec<Vec<Phrase>>| {
        let mut spec = ChainSpec::new(name, rules);
        spec.chain.base = Some(BaseChain::new(kind, point, priority));
        spec
    };
    let filter = |name, point, priority, is_needed, rule| {
        let established = vec![phrase::ct_state_new().unequal(), verdict(Verdict::Accept)];
        let rules = if is_needed { vec![established, rule] } else { Vec::new() };
        base(name, "filter", point, priority, rules)
    };
    let OptionalChains { source_ranges, range_sets, cluster_ip_endpoints, ended_endpoints, .. } =
        settings.optional_chains;
    let phrases = Phrases(family);
    let pre_dnat = |name, point| {
        let is_needed = !source_ranges.is_empty();
        let mut chain = filter(name, point, -110, is_needed, source_rules::restricted(phrases));
        if is_needed && range_sets {
            chain.put_last(&range_rules::restricted(phrases));
        }
        chain
    };
    let after_dnat = |name, point| {
        let check = vec![goto(CLUSTER_IPS_CHECK)];
        filter(name, point, 0, cluster_ip_endpoints, check)
    };
    let nat = |name, point, priority, rules| base(name, "nat", point, priority, rules);
    let mut prerouting = pre_dnat(PRE_DNAT, HookPoint::Prerouting);
    if settings.node_ports.localhost && family == Family::Ip {
        prerouting.put_first(&guard());
    }
    let mut forwarding = after_dnat("filter-forward", HookPoint::Forward);
    if let Some(offload) = settings.offload {
        forwarding.put_first(&established::established(offload));
    }
    let mut output = after_dnat("filter-output", HookPoint::Output);
    let mut input = base("filter-input", "filter", HookPoint::Input, 0, Vec::new());
    if ended_endpoints {
        for chain in [&mut forwarding, &mut output, &mut input] {
            chain.put_first(&reset::check());
        }
    }
    let mut chains = vec![
        prerouting,
        pre_dnat("filter-output-pre-dnat", HookPoint::Output),
        forwarding,
        output,
        input,
    ];
    chains.retain(|chain| !chain.rules.is_empty());
    let services = |chosen_node| services(family, settings, chosen_node);
    chains.extend([
        nat(
            "nat-prerouting",
            HookPoint::Prerouting,
            DESTINATION_NAT,
            services(settings.node_ports.chosen_node),
        ),
        nat("nat-output", HookPoint::Output, DESTINATION_NAT, services(false)),
        nat("nat-postrouting", HookPoint::Postrouting, 100, masquerading(phrases, settings)),
    ]);
    chains
}

/// Priority of the chains that translate destinations. Those of other programs, such as the CNI
/// plugin portmap, have -100. The first one decides, which at one priority is the one registered
/// last. A host port must not take packets of a service (CVE-2019-9946). A handover has -101.
const DESTINATION_NAT: i32 = -102;

/// The first chain for packets of other hosts. These still have their original destination.
pub(super) const PRE_DNAT: &str = "filter-prerouting-pre-dnat";

/// Drops packets to loopback addresses with another input interface than the loopback one. The
/// kernel itself does this without `route_localnet` (CVE-2020-8558).
///
/// The rule stands before DNAT, so it covers packets to node ports. Answers to masqueraded packets
/// pass: their destination is still another address of the node. It stands before the rule that
/// accepts all packets but new ones, because those include untracked and invalid ones.
fn guard() -> [Phrase; 4] {
    let to_loopback = phrase::destination(loopback(Family::Ip)).equal();
    [to_loopback, phrase::input_name("lo").unequal(), phrase::counter(), verdict(Verdict::Drop)]
}

/// Returns whether rules of the IPv4 table drop packets of other hosts to loopback addresses.
pub fn has_guard(rules: &[ListedRule]) -> bool {
    let own = rule_of(&PRE_DNAT.into(), &guard());
    rules.iter().any(|rule| rule.chain == PRE_DNAT && own.is_listed_as(rule))
}

/// Returns whether the rules of one of our tables serve NodePorts at every address of the node,
/// instead of only those in `nodeport-ips`.
pub fn serves_node_ports_everywhere(rules: &[ListedRule]) -> bool {
    !rules.iter().any(|rule| looks_up(rule, SetId::NodePortIps))
}

/// Returns whether a rule looks up services. Of base chains, only ours have such rules.
pub(crate) fn looks_services_up(rule: &ListedRule) -> bool {
    looks_up(rule, SetId::Services)
}

fn looks_up(rule: &ListedRule, set: SetId) -> bool {
    let in_set = |it: &Expression| matches!(it, Expression::Lookup(it) if it.set == set.name());
    rule.expressions.iter().any(in_set)
}

/// Returns the rules that look up frontends, and reject or drop packets that get no endpoint. A
/// lookup counts the packet where elements have counters, so the other conditions of a node port
/// precede it.
///
/// A packet that found its element does not come to the repeated rules. `chosen_node`: packets to node
/// ports, also of other nodes, are served if direct return has chosen this node for them.
fn services(family: Family, settings: &Settings, chosen_node: bool) -> Vec<Vec<Phrase>> {
    let phrases = Phrases(family);
    let service = vec![phrases.look_up(SERVICE, SetId::Services), jump("service-traffic")];
    let unserved = vec![phrases.look_up(SERVICE, SetId::UnservedServices), goto(NO_ENDPOINT)];
    let [node_port, no_endpoint] = node_ports(phrases);
    let mut rules = if settings.node_ports.everywhere {
        let address = is_not_closed_loopback(family, settings);
        let local = [phrase::destination_is_local(), jump(LOCAL_NODE_PORTS)];
        let node_port = address.into_iter().chain(local).collect();
        vec![service, node_port, unserved]
    } else {
        let at_address = |rule| [vec![is_node_port_ip(phrases)], rule].concat();
        vec![service, at_address(node_port), unserved, at_address(no_endpoint)]
    };
    if chosen_node {
        let lookup = phrases.look_up(NODE_PORT, SetId::NodePorts);
        rules.insert(1, vec![phrase::priority(CHOSEN_NODE).equal(), lookup, jump(OF_CHOSEN_NODE)]);
    }
    let mut rules = settings.lookups.repeat(rules);
    if settings.optional_sets().port_ranges {
        rules.push(vec![jump(range_rules::CHAIN)]);
    }
    if settings.node_ports.localhost && family == Family::Ip6 {
        rules.push(vec![phrase::destination(loopback(family)).equal(), goto(LOCALHOST)]);
    }
    rules.push(vec![goto(CLUSTER_IPS_CHECK)]);
    rules
}

/// The chain for node ports where every local address has them. A route lookup (`fib`) costs more
/// than a set lookup, so one precedes both lookups.
const LOCAL_NODE_PORTS: &str = "local-nodeports";

/// Returns the rules that look up the node port of an address that has them.
fn node_ports(phrases: Phrases) -> [Vec<Phrase>; 2] {
    [
        vec![phrases.look_up(NODE_PORT, SetId::NodePorts), jump("service-traffic")],
        vec![phrases.look_up(NODE_PORT, SetId::UnservedNodePorts), goto(NO_ENDPOINT)],
    ]
}

/// The chain for packets to `[::1]`.
pub(super) const LOCALHOST: &str = "localhost-nodeports";

/// Rejects packets to node ports of the protocols that the daemon does not serve at `[::1]`, as
/// kube-proxy does (KEP-6032).
fn not_served_at_localhost(phrases: Phrases) -> [Vec<Phrase>; 2] {
    [Protocol::Udp, Protocol::Sctp].map(|protocol| {
        let lookup = phrases.look_up(NODE_PORT, SetId::NodePorts);
        vec![phrase::protocol(protocol.number()), lookup, phrase::counter(), goto(REFUSE)]
    })
}

fn is_node_port_ip(phrases: Phrases) -> Phrase {
    phrases.in_set(&[Field::Daddr], SetId::NodePortIps.name())
}

/// Excludes loopback addresses where they do not serve node ports.
fn is_not_closed_loopback(family: Family, settings: &Settings) -> Option<Phrase> {
    let are_served = settings.node_ports.localhost && family == Family::Ip;
    (!are_served).then(|| phrase::destination(loopback(family)).unequal())
}

fn loopback(family: Family) -> IpNet {
    match family {
        Family::Ip => IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
        Family::Ip6 => IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    }
}

/// Branches to special cases first: most frontends are cluster IPs without affinity, which have no
/// flag.
fn service_traffic(settings: &Settings) -> Vec<Vec<Phrase>> {
    let has_flags = priority_bits(MASQUERADE | LOCAL.get() | AFFINITY, 0).unequal();
    let mut rules = vec![vec![has_flags, goto("special-traffic")]];
    rules.extend(mark_to_cluster_ip(settings));
    rules.push(vec![goto(draw::PICK)]);
    rules
}

fn special_traffic(settings: &Settings) -> Vec<Vec<Phrase>> {
    let has = |flag| compare(flag, flag);
    let masquerade = || phrase::set_mark(settings.masquerade.mark);
    // Direct return has not chosen this node for the packet.
    let of_all = || vec![has(CHOSEN_NODE_FLAGS), masquerade(), goto("internal-traffic")];
    let mut rules = Vec::from_iter(settings.node_ports.chosen_node.then(of_all));
    rules.push(vec![has(LOCAL.get()), goto("external-local")]);
    rules.push(vec![has(MASQUERADE), masquerade()]);
    let to_cluster_ip = compare(MASQUERADE, 0);
    rules.extend(mark_to_cluster_ip(settings).map(|mark| [vec![to_cluster_ip], mark].concat()));
    rules.extend(choose(settings));
    rules
}

/// The chain for packets to node ports for which direct return has chosen this node.
const OF_CHOSEN_NODE: &str = "chosen-node";

/// The flags of node ports with local endpoints for packets of that chain.
const CHOSEN_NODE_FLAGS: u32 = MASQUERADE | LOCAL.get();

fn of_chosen_node() -> [Vec<Phrase>; 2] {
    let has_local = compare(CHOSEN_NODE_FLAGS, CHOSEN_NODE_FLAGS);
    [vec![has_local, goto(CHOOSE)], vec![goto("service-traffic")]]
}

/// The chain that chooses an endpoint of any list. Its rules are also repeated where that saves a
/// jump.
const CHOOSE: &str = "choose";

fn choose(settings: &Settings) -> Vec<Vec<Phrase>> {
    let has_affinity = vec![compare(AFFINITY, AFFINITY), goto(affinity::AFFINITY)];
    let mut rules = vec![has_affinity, vec![goto(draw::PICK)]];
    if settings.timeouts.is_empty() {
        rules.remove(0);
    }
    rules
}

/// Marks packets to a ClusterIP that are to be masqueraded; `None` if there are none.
fn mark_to_cluster_ip(settings: &Settings) -> Option<Vec<Phrase>> {
    let mark = phrase::set_mark(settings.masquerade.mark);
    match &settings.local_detector {
        _ if settings.masquerade.all => Some(vec![mark]),
        Some(detector) => Some(vec![detector.not_local(), mark]),
        None => None,
    }
}

/// Returns the rules for external traffic policy `Local`. It keeps the client's address and applies
/// to external traffic; pods and the node itself reach all endpoints. The node did not send packets
/// with an input interface, so these skip `fib`, which costs more than a set lookup.
fn external_local(settings: &Settings) -> Vec<Vec<Phrase>> {
    let internal = || goto("internal-traffic");
    let from_pod = settings.local_detector.as_ref().map(|it| vec![it.local(), internal()]);
    let came_in_by_none = phrase::input_index(0).equal();
    let mark = phrase::set_mark(settings.masquerade.mark);
    let from_node = vec![came_in_by_none, phrase::source_is_local(), mark, internal()];
    from_pod.into_iter().chain([from_node]).chain(choose(settings)).collect()
}

fn internal_traffic(phrases: Phrases, settings: &Settings) -> Vec<Vec<Phrase>> {
    let lookups = settings.lookups;
    let chosen = || goto(CHOOSE);
    let service = vec![phrases.look_up(SERVICE, SetId::InternalServices), chosen()];
    let node_port = vec![phrases.look_up(NODE_PORT, SetId::InternalNodePorts)];
    let mut rules = match lookups {
        Lookups::Repeated => vec![service, node_port],
        Lookups::Once => lookups.repeat([service, [node_port, vec![chosen()]].concat()]),
    };
    if settings.optional_sets().port_ranges {
        rules.extend(lookups.repeat([[range_rules::internal(phrases), vec![chosen()]].concat()]));
    }
    rules.extend(choose(settings));
    rules
}

/// The chain for packets to frontends without usable endpoints.
pub(super) const NO_ENDPOINT: &str = "no-endpoint";

fn no_endpoint() -> [Vec<Phrase>; 2] {
    let is_drop = phrase::priority(Unserved::Drop.priority()).equal();
    [
        vec![is_drop, phrase::counter(), verdict(Verdict::Drop)],
        vec![phrase::counter(), goto(REFUSE)],
    ]
}

/// The chain that rejects packets.
const REFUSE: &str = "refuse";

/// Refuses a packet with an answer to its source. Before routing, the kernel has not yet dropped
/// packets of other hosts with a source address of this node (`fib_validate_source`).
fn refuse(phrases: Phrases) -> [Vec<Phrase>; 2] {
    let came_in = phrase::input_index(0).unequal();
    let is_forged = vec![came_in, phrase::source_is_local(), verdict(Verdict::Drop)];
    [is_forged, vec![phrases.reject()]]
}

/// The chain that refuses or drops packets to addresses of services that no service port has.
pub const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";

/// Refuses or drops packets whose destination is still a cluster IP: no service port matched. What
/// this node receives itself is left to its own servers. The route lookup for that costs more than
/// the other comparison, so only packets that match it pay for it.
fn cluster_ips_check(phrases: Phrases, settings: &Settings) -> Vec<Vec<Phrase>> {
    let elsewhere = || phrases.destination_is_elsewhere();
    let cluster_ip = phrases.in_set(&[Field::Daddr], SetId::ClusterIps.name());
    let exempt = settings.exempt.iter().map(|address| {
        vec![phrase::destination(IpNet::from(*address)).equal(), verdict(Verdict::Accept)]
    });
    let mut rules = Vec::from_iter(exempt);
    rules.push(vec![cluster_ip, elsewhere(), phrase::counter(), goto(REFUSE)]);
    rules.extend(settings.service_cidrs.iter().map(|range| {
        let is_in_range = phrase::destination(*range).equal();
        vec![is_in_range, elsewhere(), phrase::counter(), verdict(Verdict::Drop)]
    }));
    rules
}

/// Clears priority and mark before the packet leaves. The priority could reach a queueing
/// discipline: only the forwarding of IPv4 sets it anew (`ip_forward`). The mark would survive
/// encapsulation.
///
/// Marks of other programs may have the bit too, such as 51820 of wg-quick(8), so only packets with a
/// translated destination are masqueraded and lose it. A translation to the same address and port
/// sets no status; such a packet goes where it would go anyway.
fn masquerading(phrases: Phrases, settings: &Settings) -> Vec<Vec<Phrase>> {
    let hairpin = [Field::Saddr, Field::Daddr, Field::L4Proto, Field::Dport];
    let mut rules = vec![
        vec![phrase::ct_status_dnat(), phrase::clear_priority()],
        vec![
            phrase::has_mark(settings.masquerade.mark),
            phrase::ct_status_dnat(),
            phrase::flip_mark(settings.masquerade.mark),
            phrase::masquerade(),
        ],
        vec![
            phrase::ct_status_dnat(),
            phrases.in_set(&hairpin, SetId::HairpinConnections.name()),
            phrase::masquerade(),
        ],
    ];
    if settings.optional_sets().port_ranges {
        rules.push(range_rules::hairpin(phrases));
    }
    rules
}
