//! Chains and rules of a table: fixed for given [`Settings`], without elements of services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use nft::{
    Chain, ChainType, DecodedRule, Expr, Family, Flowtable, Hook, HookPoint, Name, Operand, Rule,
    Selector, Set, Statement, Verdict,
};

use super::affinity::{self, Timeouts};
use super::draw;
use super::element::Unserved;
use super::established;
use super::lookups::Lookups;
use super::number::{AFFINITY, LOCAL, MASQUERADE};
use super::sets::{NODE_PORT, SERVICE, SetId, TableSets};
use crate::flowtable::Threshold;

/// The settings of the fixed rules of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bit of the packet mark that requests masquerade. Rules change no other bit.
    pub masquerade_mark: u32,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// Distinguishes packets of pods from others; `None` if that is not possible.
    pub local_detector: Option<LocalDetector>,
    /// Node ports are open on every local address, not only on those in `nodeport-ips`.
    pub node_ports_everywhere: bool,
    /// Node ports are also open on loopback addresses (IPv4 only), and packets of other hosts to
    /// these are dropped.
    pub localhost: bool,
    /// Elements of frontends count the connections that match them.
    pub counts_connections: bool,
    /// The optional base chains.
    pub optional_chains: OptionalChains,
    /// Size from which on connections are added to the flowtable; `None` without a flowtable.
    pub offload: Option<Threshold>,
    /// Ranges of cluster IPs, of this family.
    pub service_cidrs: Vec<IpNet>,
    /// Timeouts of session affinity, in seconds.
    pub timeouts: Timeouts,
    /// The seed of the hash of a packet's source. Nodes with the same seed choose alike.
    pub hash_seed: u32,
    /// How the kernel looks up elements while it commits.
    pub lookups: Lookups,
}

/// Base chains that a table has only while something needs them: one of type filter costs every
/// packet, also of established connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalChains {
    /// The chains that check source ranges.
    pub source_ranges: bool,
    /// The chains that refuse packets whose endpoint is a cluster IP.
    pub cluster_ip_endpoints: bool,
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

impl LocalDetector {
    /// Returns a match for packets of pods.
    fn local(&self) -> Statement {
        let (selector, value) = self.operands();
        is(selector, value)
    }

    /// Returns a match for all other packets, including those of the node: without an input device
    /// the kernel compares with an empty name (`nft_meta_get_eval`).
    fn not_local(&self) -> Statement {
        let (selector, value) = self.operands();
        is_not(selector, value)
    }

    fn operands(&self) -> (Selector, Operand) {
        match self {
            Self::Range(range) => (Selector::Saddr, Operand::Network(*range)),
            Self::Interface(name) => (Selector::Iifname, Operand::Interface(name.clone())),
            Self::InterfacePrefix(prefix) => {
                (Selector::Iifname, Operand::InterfacePrefix(prefix.clone()))
            }
        }
    }
}

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
            sets: sets.iter().map(Arc::clone).collect(),
            flowtable: settings.offload.map(|_| established::flowtable()),
        }
    }
}

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainSpec {
    /// The chain.
    pub chain: Chain,
    /// The rules, in order.
    pub rules: Arc<Vec<Rule>>,
}

impl ChainSpec {
    /// Returns a chain without a hook.
    pub(super) fn new(
        name: impl Into<Name>,
        rules: impl IntoIterator<Item = Vec<Statement>>,
    ) -> Self {
        let name = name.into();
        let rule = |statements| Rule { chain: name.clone(), statements, comment: None };
        let rules = Arc::new(rules.into_iter().map(rule).collect());
        Self { chain: Chain { name, hook: None, comment: None }, rules }
    }

    /// Inserts a rule before all others.
    fn put_first(&mut self, statements: Vec<Statement>) {
        let rule = Rule { chain: self.chain.name.clone(), statements, comment: None };
        Arc::make_mut(&mut self.rules).insert(0, rule);
    }

    /// Sets the comment, at most 128 bytes.
    pub(super) fn with_comment(mut self, comment: &str) -> Self {
        self.chain.comment = Some(comment.to_owned());
        self
    }
}

fn chains(family: Family, settings: &Settings) -> Vec<ChainSpec> {
    let mut chains = draw::chains(settings.hash_seed);
    chains.extend(affinity::chains(&settings.timeouts, settings.hash_seed));
    chains.extend([
        ChainSpec::new(CHOOSE, choose()),
        ChainSpec::new("internal-traffic", internal_traffic(settings.lookups))
            .with_comment("from pods and this node: the list of all endpoints"),
        ChainSpec::new("external-local", external_local(settings))
            .with_comment("external traffic policy Local is for sources outside the cluster"),
        ChainSpec::new("special-traffic", special_traffic(settings))
            .with_comment("flags: 20 masquerade, 40 external policy Local, 80 session affinity"),
        ChainSpec::new("service-traffic", service_traffic(settings)).with_comment(
            "the priority is NNNN:NNFS: endpoint list NNNN:NN00, and in FS size class and flags",
        ),
    ]);
    chains.extend([
        ChainSpec::new("refuse", refuse()),
        ChainSpec::new("no-endpoint", no_endpoint()),
        ChainSpec::new(CLUSTER_IPS_CHECK, cluster_ips_check(settings))
            .with_comment("cluster IPs here are for no port of a service"),
    ]);
    let node_ports =
        |name, target| ChainSpec::new(name, local_node_ports(family, settings, target));
    if settings.node_ports_everywhere {
        chains.push(node_ports("no-endpoint-nodeport", "no-endpoint"));
        if !settings.counts_connections {
            chains.push(node_ports("nodeport-traffic", "service-traffic"));
        }
    }
    if settings.optional_chains.source_ranges {
        chains.push(ChainSpec::new("firewall-sources", firewall_sources()));
    }
    chains.extend(settings.offload.map(|_| established::chain(settings)));
    chains.extend(base_chains(family, settings));
    chains
}

/// Returns the base chains. Their names and priorities are kube-proxy's, which other programs
/// expect.
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
    let base = |name: &'static str, kind, point, priority, rules: Vec<Vec<Statement>>| {
        let mut spec = ChainSpec::new(name, rules);
        spec.chain.hook = Some(Hook { kind, point, priority });
        spec
    };
    let filter = |name, point, priority, is_needed, rule| {
        let established = vec![Statement::CtStateNotNew, Statement::Verdict(Verdict::Accept)];
        let rules = if is_needed { vec![established, rule] } else { Vec::new() };
        base(name, ChainType::Filter, point, priority, rules)
    };
    let OptionalChains { source_ranges, cluster_ip_endpoints } = settings.optional_chains;
    let pre_dnat = |name, point| filter(name, point, -110, source_ranges, firewall());
    let after_dnat = |name, point| {
        let check = vec![Statement::goto(CLUSTER_IPS_CHECK)];
        filter(name, point, 0, cluster_ip_endpoints, check)
    };
    let nat = |name, point, priority, rules| base(name, ChainType::Nat, point, priority, rules);
    let mut prerouting = pre_dnat(PRE_DNAT, HookPoint::Prerouting);
    if settings.localhost {
        prerouting.put_first(guard());
    }
    let mut forwarding = after_dnat("filter-forward", HookPoint::Forward);
    if let Some(offload) = settings.offload {
        forwarding.put_first(established::established(offload));
    }
    let mut chains = vec![
        prerouting,
        pre_dnat("filter-output-pre-dnat", HookPoint::Output),
        forwarding,
        after_dnat("filter-output", HookPoint::Output),
    ];
    chains.retain(|chain| !chain.rules.is_empty());
    let services = services(family, settings);
    chains.extend([
        nat("nat-prerouting", HookPoint::Prerouting, -100, services.clone()),
        nat("nat-output", HookPoint::Output, -100, services),
        nat("nat-postrouting", HookPoint::Postrouting, 100, masquerading(settings)),
    ]);
    chains
}

/// The first chain for packets of other hosts. These still have their original destination.
const PRE_DNAT: &str = "filter-prerouting-pre-dnat";

/// Drops packets to loopback addresses with another input interface than the loopback one. The
/// kernel itself does this without `route_localnet` (CVE-2020-8558).
///
/// The rule stands before DNAT, so it covers packets to node ports. Answers to masqueraded packets
/// pass: their destination is still another address of the node. It stands before the rule that
/// accepts all packets but new ones, because those include untracked and invalid ones.
fn guard() -> Vec<Statement> {
    let not_by_loopback = is_not(Selector::Iifname, Operand::Interface("lo".into()));
    let to_loopback = is(Selector::Daddr, Operand::Network(loopback(Family::Ip)));
    vec![to_loopback, not_by_loopback, Statement::Verdict(Verdict::Drop)]
}

/// Returns whether rules of the IPv4 table drop packets of other hosts to loopback addresses.
pub fn has_guard(rules: &[DecodedRule]) -> bool {
    let own = Rule { chain: PRE_DNAT.into(), statements: guard(), comment: None };
    let own = own.lower(Family::Ip);
    own.is_ok_and(|own| rules.iter().any(|rule| rule.chain == PRE_DNAT && rule.exprs == own))
}

/// Returns whether the rules of one of our tables serve NodePorts at every address of the node,
/// instead of only those in `nodeport-ips`.
pub fn serves_node_ports_everywhere(rules: &[DecodedRule]) -> bool {
    let is_address_lookup =
        |expr: &Expr| matches!(expr, Expr::Lookup { set, .. } if set == SetId::NodePortIps.name());
    !rules.iter().any(|rule| rule.exprs.iter().any(is_address_lookup))
}

/// Returns the rules that look up frontends, and refuse or drop packets that get no endpoint. A
/// lookup counts the packet where elements have counters, so the other conditions of a node port
/// precede it there.
///
/// A packet that found its element does not come to the repeated rules.
fn services(family: Family, settings: &Settings) -> Vec<Vec<Statement>> {
    let to_service = || Statement::jump("service-traffic");
    let service = vec![look_up(SERVICE, SetId::Services), to_service()];
    let node_port = look_up(NODE_PORT, SetId::NodePorts);
    let no_endpoint = look_up(NODE_PORT, SetId::NoEndpointNodePorts);
    let [node_port, no_endpoint] = if settings.node_ports_everywhere {
        let node_port = if settings.counts_connections {
            let address = is_not_closed_loopback(family, settings);
            let local = [Statement::FibDaddrLocal, node_port, to_service()];
            address.into_iter().chain(local).collect()
        } else {
            vec![node_port, Statement::jump("nodeport-traffic")]
        };
        [node_port, vec![no_endpoint, Statement::jump("no-endpoint-nodeport")]]
    } else {
        [
            vec![is_node_port_ip(), node_port, to_service()],
            vec![is_node_port_ip(), no_endpoint, Statement::goto("no-endpoint")],
        ]
    };
    let lookups = [service, node_port, unserved_service(), no_endpoint];
    let mut rules = settings.lookups.repeat(lookups);
    rules.push(vec![Statement::goto(CLUSTER_IPS_CHECK)]);
    rules
}

/// Checks that the address is local. The caller compares the port first: a route lookup (`fib`)
/// costs more than a set lookup.
fn local_node_ports(
    family: Family,
    settings: &Settings,
    target: &'static str,
) -> [Vec<Statement>; 2] {
    let local = [Statement::FibDaddrLocal, Statement::goto(target)];
    let address = is_not_closed_loopback(family, settings);
    [address.into_iter().chain(local).collect(), vec![Statement::PriorityClear]]
}

fn is_node_port_ip() -> Statement {
    Statement::in_set(&[Selector::Daddr], SetId::NodePortIps.name())
}

/// Excludes loopback addresses where they do not serve node ports.
fn is_not_closed_loopback(family: Family, settings: &Settings) -> Option<Statement> {
    let is_other = || is_not(Selector::Daddr, Operand::Network(loopback(family)));
    (!settings.localhost).then(is_other)
}

fn loopback(family: Family) -> IpNet {
    match family {
        Family::Ip => IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
        Family::Ip6 => IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    }
}

/// Sets the priority to the value of the key in a map; the rule ends if there is none.
pub(super) fn look_up(key: &[Selector], map: SetId) -> Statement {
    Statement::PriorityMap { key: key.to_vec(), map: map.name().into() }
}

/// Matches packets whose priority has `value` in `bits`.
pub(super) fn compare(bits: u32, value: u32) -> Statement {
    is(Selector::PriorityBits(bits), Operand::Class(value))
}

fn is(selector: Selector, value: Operand) -> Statement {
    Statement::Compare { selector, negated: false, value }
}

fn is_not(selector: Selector, value: Operand) -> Statement {
    Statement::Compare { selector, negated: true, value }
}

/// Branches to special cases first: most frontends are cluster IPs without affinity, which have no
/// flag.
fn service_traffic(settings: &Settings) -> Vec<Vec<Statement>> {
    let flags = Selector::PriorityBits(MASQUERADE | LOCAL.get() | AFFINITY);
    let has_flags = is_not(flags, Operand::Class(0));
    let mut rules = vec![vec![has_flags, Statement::goto("special-traffic")]];
    rules.extend(mark_to_cluster_ip(settings));
    rules.push(vec![Statement::goto(draw::PICK)]);
    rules
}

fn special_traffic(settings: &Settings) -> Vec<Vec<Statement>> {
    let has = |flag| compare(flag, flag);
    let mut rules = vec![
        vec![has(LOCAL.get()), Statement::goto("external-local")],
        vec![has(MASQUERADE), Statement::MarkSet(settings.masquerade_mark)],
    ];
    let to_cluster_ip = compare(MASQUERADE, 0);
    rules.extend(mark_to_cluster_ip(settings).map(|mark| [vec![to_cluster_ip], mark].concat()));
    rules.extend(choose());
    rules
}

/// The chain that chooses an endpoint of any list. Its rules are also repeated where that saves a
/// jump.
const CHOOSE: &str = "choose";

fn choose() -> [Vec<Statement>; 2] {
    [
        vec![compare(AFFINITY, AFFINITY), Statement::goto(affinity::AFFINITY)],
        vec![Statement::goto(draw::PICK)],
    ]
}

/// Marks packets to a ClusterIP that are to be masqueraded; `None` if there are none.
fn mark_to_cluster_ip(settings: &Settings) -> Option<Vec<Statement>> {
    let mark = Statement::MarkSet(settings.masquerade_mark);
    match &settings.local_detector {
        _ if settings.masquerade_all => Some(vec![mark]),
        Some(detector) => Some(vec![detector.not_local(), mark]),
        None => None,
    }
}

/// Returns the rules for external traffic policy `Local`. It keeps the client's address and applies
/// to external traffic; pods and the node itself reach all endpoints. The node did not send packets
/// with an input interface, so these skip `fib`, which costs more than a set lookup.
fn external_local(settings: &Settings) -> Vec<Vec<Statement>> {
    let internal = || Statement::goto("internal-traffic");
    let from_pod = settings.local_detector.as_ref().map(|it| vec![it.local(), internal()]);
    let came_in_by_none = is(Selector::Iif, Operand::InterfaceIndex(0));
    let mark = Statement::MarkSet(settings.masquerade_mark);
    let from_node = vec![came_in_by_none, Statement::FibSaddrLocal, mark, internal()];
    from_pod.into_iter().chain([from_node]).chain(choose()).collect()
}

fn internal_traffic(lookups: Lookups) -> Vec<Vec<Statement>> {
    let chosen = || Statement::goto(CHOOSE);
    let service = vec![look_up(SERVICE, SetId::InternalServices), chosen()];
    let node_port = vec![look_up(NODE_PORT, SetId::InternalNodePorts)];
    let mut rules = match lookups {
        Lookups::Repeated => vec![service, node_port],
        Lookups::Once => lookups.repeat([service, [node_port, vec![chosen()]].concat()]),
    };
    rules.extend(choose());
    rules
}

/// Runs before DNAT, while the destination is still the service's address.
fn firewall() -> Vec<Statement> {
    let has_source_ranges = Statement::in_set(SERVICE, SetId::FirewallIps.name());
    vec![has_source_ranges, Statement::goto("firewall-sources")]
}

fn firewall_sources() -> Vec<Vec<Statement>> {
    let key = SERVICE.iter().copied().chain([Selector::Saddr]).collect();
    let set = SetId::SourceRanges.name().into();
    let elsewhere = Statement::InSet { key, set, negated: true };
    vec![vec![elsewhere, Statement::Verdict(Verdict::Drop)]]
}

fn unserved_service() -> Vec<Statement> {
    vec![look_up(SERVICE, SetId::NoEndpointServices), Statement::goto("no-endpoint")]
}

fn no_endpoint() -> [Vec<Statement>; 2] {
    let is_drop = is(Selector::Priority, Operand::Class(Unserved::Drop.priority()));
    [vec![is_drop, Statement::Verdict(Verdict::Drop)], vec![Statement::goto("refuse")]]
}

/// Refuses a packet with an answer to its source. Before routing, the kernel has not yet dropped
/// packets of other hosts with a source address of this node (`fib_validate_source`).
fn refuse() -> [Vec<Statement>; 2] {
    let came_in = is_not(Selector::Iif, Operand::InterfaceIndex(0));
    let is_forged = vec![came_in, Statement::FibSaddrLocal, Statement::Verdict(Verdict::Drop)];
    [is_forged, vec![Statement::Reject]]
}

/// The chain that refuses or drops packets to addresses of services that no service port has.
pub const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";

/// Refuses or drops packets whose destination is still a cluster IP: no service port matched.
fn cluster_ips_check(settings: &Settings) -> Vec<Vec<Statement>> {
    let cluster_ip = Statement::in_set(&[Selector::Daddr], SetId::ClusterIps.name());
    let mut rules = vec![vec![cluster_ip, Statement::goto("refuse")]];
    rules.extend(settings.service_cidrs.iter().map(|range| {
        let is_in_range = is(Selector::Daddr, Operand::Network(*range));
        vec![is_in_range, Statement::Verdict(Verdict::Drop)]
    }));
    rules
}

/// Clears priority and mark before the packet leaves. The priority could reach a queueing
/// discipline: only the forwarding of IPv4 sets it anew (`ip_forward`). The mark would survive
/// encapsulation, and the packet would be masqueraded again.
fn masquerading(settings: &Settings) -> Vec<Vec<Statement>> {
    let hairpin = [Selector::Saddr, Selector::Daddr, Selector::L4Proto, Selector::Dport];
    vec![
        vec![Statement::CtStatusDnat, Statement::PriorityClear],
        vec![
            Statement::MarkTest(settings.masquerade_mark),
            Statement::MarkClear(settings.masquerade_mark),
            Statement::Masquerade,
        ],
        vec![
            Statement::CtStatusDnat,
            Statement::in_set(&hairpin, SetId::HairpinConnections.name()),
            Statement::Masquerade,
        ],
    ]
}
