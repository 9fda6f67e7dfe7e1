//! Chains and rules that depend on settings only, never on services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::affinity::{self, Timeouts};
use super::draw;
use super::element::Unserved;
use super::number::{AFFINITY, LOCAL, MASQUERADE};
use super::sets::{NODE_PORT, SERVICE, SetId, TableSets};
use crate::nft::{
    Chain, ChainType, DecodedRule, Expr, Family, Hook, HookPoint, Name, Operand, Rule, Selector,
    Set, Statement, Verdict,
};

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
    /// The elements of node ports count the connections that match them.
    pub counts_connections: bool,
    /// Ranges of cluster IPs, of this family.
    pub service_cidrs: Vec<IpNet>,
    /// Timeouts of session affinity, in seconds.
    pub timeouts: Timeouts,
    /// The seed of the hash of a packet's source. Nodes with the same seed choose alike.
    pub hash_seed: u32,
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
}

impl Base {
    /// Returns the table with `sets` and the chains for `settings`.
    pub fn new(sets: &TableSets, settings: &Settings) -> Self {
        Self { chains: chains(sets.family, settings), sets: sets.iter().map(Arc::clone).collect() }
    }
}

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainSpec {
    /// The chain.
    pub chain: Chain,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

impl ChainSpec {
    /// Returns a chain without a hook.
    pub(super) fn new(
        name: impl Into<Name>,
        rules: impl IntoIterator<Item = Vec<Statement>>,
    ) -> Self {
        let name = name.into();
        let rule = |statements| Rule { chain: name.clone(), statements, comment: None };
        let rules = rules.into_iter().map(rule).collect();
        Self { chain: Chain { name, hook: None, comment: None }, rules }
    }

    /// Inserts a rule before all others.
    fn put_first(&mut self, statements: Vec<Statement>) {
        let rule = Rule { chain: self.chain.name.clone(), statements, comment: None };
        self.rules.insert(0, rule);
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
        ChainSpec::new("internal-traffic", internal_traffic())
            .with_comment("from pods and this node: the list of all endpoints"),
        ChainSpec::new("external-local", external_local(settings))
            .with_comment("external traffic policy Local is for sources outside the cluster"),
        ChainSpec::new("special-traffic", special_traffic(settings))
            .with_comment("flags: 20 masquerade, 40 external policy Local, 80 session affinity"),
        ChainSpec::new("service-traffic", service_traffic(settings)).with_comment(
            "the priority is NNNN:NNFS: endpoint list NNNN:NN00, and in FS size class and flags",
        ),
    ]);
    if settings.node_ports_everywhere && !settings.counts_connections {
        chains.push(ChainSpec::new("nodeport-traffic", local_node_ports(family, settings)));
    }
    chains.extend([
        ChainSpec::new("firewall-sources", firewall_sources()),
        ChainSpec::new("no-endpoint", no_endpoint()),
        ChainSpec::new("cluster-ips-check", cluster_ips_check(settings))
            .with_comment("cluster IPs here are for no port of a service"),
    ]);
    chains.extend(base_chains(family, settings));
    chains
}

/// Returns the base chains. Their names and priorities are kube-proxy's, which other programs
/// expect.
///
/// They contain the first comparison of every new connection themselves, because a jump would cost
/// as much as the comparison.
fn base_chains(family: Family, settings: &Settings) -> [ChainSpec; 8] {
    let base = |name: &'static str, hook, rules: Vec<Vec<Statement>>| {
        let mut spec = ChainSpec::new(name, rules);
        spec.chain.hook = Some(hook);
        spec
    };
    let filter = |name, point, priority, rules: &[Vec<Statement>]| {
        let established = vec![Statement::CtStateNotNew, Statement::Verdict(Verdict::Accept)];
        let hook = Hook { kind: ChainType::Filter, point, priority };
        base(name, hook, [&[established], rules].concat())
    };
    let nat = |name, point, priority, rules| {
        base(name, Hook { kind: ChainType::Nat, point, priority }, rules)
    };
    let check = vec![Statement::jump("cluster-ips-check")];
    let input = [unserved_node_port(family, settings), unserved_service()];
    let output = [clear_priority(), unserved_service(), check.clone()];
    // For a forwarded packet, IPv4 sets the priority anew (`ip_forward`); IPv6 does not.
    let forward = match family {
        Family::Ip => vec![unserved_service(), check],
        Family::Ip6 => output.to_vec(),
    };
    let services = services(family, settings);
    let mut prerouting = filter(PRE_DNAT, HookPoint::Prerouting, -110, &[firewall()]);
    if settings.localhost {
        prerouting.put_first(guard());
    }
    [
        prerouting,
        filter("filter-output-pre-dnat", HookPoint::Output, -110, &[firewall()]),
        filter("filter-input", HookPoint::Input, 0, &input),
        filter("filter-forward", HookPoint::Forward, 0, &forward),
        filter("filter-output", HookPoint::Output, 0, &output),
        nat("nat-prerouting", HookPoint::Prerouting, -100, services.clone()),
        nat("nat-output", HookPoint::Output, -100, services),
        nat("nat-postrouting", HookPoint::Postrouting, 100, masquerading(settings)),
    ]
}

/// The first chain for packets of other hosts. These still have their original destination.
const PRE_DNAT: &str = "filter-prerouting-pre-dnat";

/// Drops packets to loopback addresses with another input interface than the loopback one. The
/// kernel itself does this without `route_localnet` (CVE-2020-8558).
///
/// The rule stands before DNAT, so it covers packets to node ports. It does not cover answers to
/// masqueraded packets, which still have another address of the node. It stands before the rule
/// that accepts all packets but new ones, because those include untracked and invalid ones.
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

/// Returns the rules that look up frontends. A lookup counts the packet where elements have
/// counters, so the other conditions of a node port precede it there.
fn services(family: Family, settings: &Settings) -> Vec<Vec<Statement>> {
    let to_service = || Statement::goto("service-traffic");
    let service = vec![look_up(SERVICE, SetId::Services), to_service()];
    let node_port = look_up(NODE_PORT, SetId::NodePorts);
    let node_port = match settings.node_ports_everywhere {
        true if settings.counts_connections => {
            let address = is_not_closed_loopback(family, settings);
            let local = [Statement::FibDaddrLocal, node_port, to_service()];
            address.into_iter().chain(local).collect()
        }
        true => vec![node_port, Statement::goto("nodeport-traffic")],
        false => vec![is_node_port_ip(), node_port, to_service()],
    };
    vec![service, node_port]
}

/// Compares the port before the address: a route lookup (`fib`) costs more than a set lookup.
fn local_node_ports(family: Family, settings: &Settings) -> [Vec<Statement>; 2] {
    let local = [Statement::FibDaddrLocal, Statement::goto("service-traffic")];
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

fn internal_traffic() -> [Vec<Statement>; 4] {
    let [affinity, pick] = choose();
    [
        vec![look_up(SERVICE, SetId::InternalServices), Statement::goto(CHOOSE)],
        vec![look_up(NODE_PORT, SetId::InternalNodePorts)],
        affinity,
        pick,
    ]
}

/// Runs before DNAT, while the destination is still the service's address.
fn firewall() -> Vec<Statement> {
    let is_guarded = Statement::in_set(SERVICE, SetId::FirewallIps.name());
    vec![is_guarded, Statement::goto("firewall-sources")]
}

fn firewall_sources() -> Vec<Vec<Statement>> {
    let key = SERVICE.iter().copied().chain([Selector::Saddr]).collect();
    let set = SetId::SourceRanges.name().into();
    let elsewhere = Statement::InSet { key, set, negated: true };
    vec![vec![elsewhere, Statement::Verdict(Verdict::Drop)]]
}

/// Clears the priority of packets of local programs, which could otherwise reach a queueing
/// discipline.
fn clear_priority() -> Vec<Statement> {
    vec![Statement::CtStatusDnat, Statement::PriorityClear]
}

fn unserved_service() -> Vec<Statement> {
    vec![look_up(SERVICE, SetId::NoEndpointServices), Statement::goto("no-endpoint")]
}

fn unserved_node_port(family: Family, settings: &Settings) -> Vec<Statement> {
    let address = match settings.node_ports_everywhere {
        true => is_not_closed_loopback(family, settings),
        false => Some(is_node_port_ip()),
    };
    let node_port = look_up(NODE_PORT, SetId::NoEndpointNodePorts);
    address.into_iter().chain([node_port, Statement::goto("no-endpoint")]).collect()
}

fn no_endpoint() -> Vec<Vec<Statement>> {
    let is_drop = is(Selector::Priority, Operand::Class(Unserved::Drop.priority()));
    vec![vec![is_drop, Statement::Verdict(Verdict::Drop)], vec![Statement::Reject]]
}

/// Refuses or drops packets whose destination is still a cluster IP: no service port matched.
fn cluster_ips_check(settings: &Settings) -> Vec<Vec<Statement>> {
    let cluster_ip = Statement::in_set(&[Selector::Daddr], SetId::ClusterIps.name());
    let mut rules = vec![vec![cluster_ip, Statement::Reject]];
    rules.extend(settings.service_cidrs.iter().map(|range| {
        let is_in_range = is(Selector::Daddr, Operand::Network(*range));
        vec![is_in_range, Statement::Verdict(Verdict::Drop)]
    }));
    rules
}

/// Clears the mark before the packet leaves. It would survive encapsulation, and the packet would
/// be masqueraded again.
fn masquerading(settings: &Settings) -> Vec<Vec<Statement>> {
    let hairpin = [Selector::Saddr, Selector::Daddr, Selector::L4Proto, Selector::Dport];
    vec![
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
