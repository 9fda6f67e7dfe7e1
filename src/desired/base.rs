//! What is there with no service at all: base chains, jumps, fixed rules.
//!
//! A new connection takes these steps (`→` is a jump or goto):
//!
//! ```text
//! filter prerouting, output → firewall-sources, if only some may use the address
//! nat prerouting, output   → service-traffic, if it is a service address:
//!                            so many endpoints → one of them, DNAT
//!                            → special-traffic: masquerade?
//!                          → nodeport-traffic, if it is a node port: masquerade?
//!                            → pick-…: affinity? how many endpoints? → one of them, DNAT
//! filter input, forward,   → no-endpoint: refuse or drop
//!   output                 → cluster-ips-check: refuse or drop what is no service port
//! nat postrouting          masquerade
//! ```
//!
//! Where one of several things holds, a map tells which as a packet priority, because no verdict is
//! to be in what changes often; rules compare it and clear it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::Layout;
use super::affinity;
use super::counts::Tree;
use super::layout::{
    DROP, FRONTEND, FRONTEND_TREES, LOCAL_POLICY, NODE_PORT, NODE_PORT_TREES, PLAIN, SERVED,
    UNSERVED, WITH_ENDPOINTS, choice,
};
use crate::nft::{
    Chain, ChainType, Family, Hook, HookPoint, Name, Operand, Rule, Selector, Set, Statement,
    Verdict,
};

/// The name of our table in both families.
pub const TABLE: &str = "kube-proxy";

/// What the fixed rules of one table depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bit of the packet mark that asks for masquerade; the only bit that is touched.
    pub masquerade_mark: u32,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// How packets from pods are told from others; `None` if that cannot be told.
    pub local_detector: Option<LocalDetector>,
    /// Node ports are open on every local address, not only on those in `nodeport-ips`.
    pub node_ports_everywhere: bool,
    /// Ranges that cluster IPs are allocated from, of this family.
    pub service_cidrs: Vec<IpNet>,
    /// How many seconds services with session affinity remember a client, ascending.
    pub affinity_timeouts: Vec<u32>,
}

/// What makes a packet one from a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalDetector {
    /// Its source is in this range of the table's family.
    Range(IpNet),
    /// It came in by this interface. What the node sends itself came in by none.
    Interface(Name),
    /// It came in by an interface whose name starts so, at most 15 bytes.
    InterfacePrefix(Name),
}

impl LocalDetector {
    /// Goes on for packets from pods.
    fn local(&self) -> Statement {
        self.compare(false)
    }

    /// Goes on for all other packets. Those that the node sends are among them: without an input
    /// device the kernel compares with an empty name (`nft_meta_get_eval`).
    fn not_local(&self) -> Statement {
        self.compare(true)
    }

    fn compare(&self, negated: bool) -> Statement {
        let (selector, value) = match self {
            Self::Range(range) => (Selector::Saddr, Operand::Network(*range)),
            Self::Interface(name) => (Selector::Iifname, Operand::Interface(name.clone())),
            Self::InterfacePrefix(prefix) => {
                (Selector::Iifname, Operand::InterfacePrefix(prefix.clone()))
            }
        };
        Statement::Compare { selector, negated, value }
    }
}

/// Chains and sets of a table, without elements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base {
    /// All chains, each after those that it refers to; the ones with a hook come last, so that a
    /// table that is made in several transactions is inert until it is complete.
    pub chains: Vec<ChainSpec>,
    /// All sets, in the order of creation.
    pub sets: Vec<Arc<Set>>,
}

impl Base {
    /// What the table of `layout` holds with these settings.
    pub fn new(layout: &Layout, settings: &Settings) -> Self {
        let fixed = layout.sets().iter().map(|placed| Arc::clone(&placed.set));
        let timeouts = settings.affinity_timeouts.iter();
        let timeouts = timeouts.map(|seconds| layout.timeout_set(*seconds).set);
        Self { chains: chains(layout.family, settings), sets: fixed.chain(timeouts).collect() }
    }
}

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainSpec {
    /// The chain.
    pub chain: Chain,
    /// Its rules in order.
    pub rules: Vec<Rule>,
}

impl ChainSpec {
    /// A chain that packets come to from others.
    pub(super) fn new(
        name: impl Into<Name>,
        rules: impl IntoIterator<Item = Vec<Statement>>,
    ) -> Self {
        let name = name.into();
        let rule = |statements| Rule { chain: name.clone(), statements, comment: None };
        let rules = rules.into_iter().map(rule).collect();
        Self { chain: Chain { name, hook: None, comment: None }, rules }
    }
}

fn chains(family: Family, settings: &Settings) -> Vec<ChainSpec> {
    let mut chains = affinity::TREE.chains();
    chains.extend(affinity::chains(&settings.affinity_timeouts));
    chains.extend(FRONTEND_TREES.iter().chain(&NODE_PORT_TREES).flat_map(Tree::chains));
    let fixed: [(&str, Vec<Vec<Statement>>); 8] = [
        ("firewall-sources", firewall_sources()),
        ("external-local", external_local(settings, FRONTEND_TREES.map(|tree| tree.root))),
        (
            "nodeport-external-local",
            external_local(settings, NODE_PORT_TREES.map(|tree| tree.root)),
        ),
        ("special-traffic", special_traffic(settings)),
        ("service-traffic", service_traffic(settings)),
        ("nodeport-traffic", nodeport_traffic(settings)),
        ("no-endpoint", no_endpoint()),
        ("cluster-ips-check", cluster_ips_check(settings)),
    ];
    chains.extend(fixed.map(|(name, rules)| ChainSpec::new(name, rules)));
    chains.extend(base_chains(family, settings));
    chains
}

/// Names and priorities are kube-proxy's: other software looks for them.
///
/// What every packet of a new connection is asked stands in them and not behind a jump, which would
/// cost as much as the question.
fn base_chains(family: Family, settings: &Settings) -> [ChainSpec; 8] {
    let base = |name: &'static str, hook, rules: Vec<Vec<Statement>>| {
        let mut spec = ChainSpec::new(name, rules);
        spec.chain.hook = Some(hook);
        spec
    };
    let filter = |name, point, priority, rules: Vec<Vec<Statement>>| {
        let established = vec![Statement::CtStateNotNew, Statement::Verdict(Verdict::Accept)];
        let rules = [vec![established], rules].concat();
        base(name, hook(ChainType::Filter, point, priority), rules)
    };
    let nat =
        |name, point, priority, rules| base(name, hook(ChainType::Nat, point, priority), rules);
    let input = vec![unserved_node_port(family, settings), unserved_service()];
    let onward = vec![unserved_service(), vec![Statement::jump("cluster-ips-check")]];
    let services = services(family, settings);
    [
        filter("filter-prerouting-pre-dnat", HookPoint::Prerouting, -110, vec![firewall()]),
        filter("filter-output-pre-dnat", HookPoint::Output, -110, vec![firewall()]),
        filter("filter-input", HookPoint::Input, 0, input),
        filter("filter-forward", HookPoint::Forward, 0, onward.clone()),
        filter("filter-output", HookPoint::Output, 0, onward),
        nat("nat-prerouting", HookPoint::Prerouting, -100, services.clone()),
        nat("nat-output", HookPoint::Output, -100, services),
        nat("nat-postrouting", HookPoint::Postrouting, 100, masquerading(settings)),
    ]
}

const fn hook(kind: ChainType, point: HookPoint, priority: i32) -> Hook {
    Hook { kind, point, priority }
}

fn services(family: Family, settings: &Settings) -> Vec<Vec<Statement>> {
    let mut node_port = vec![Statement::in_set(NODE_PORT, "service-nodeports")];
    node_port.extend(node_port_addresses(family, settings, true));
    node_port.push(Statement::goto("nodeport-traffic"));
    vec![vec![choose(FRONTEND, "service-ips"), Statement::goto("service-traffic")], node_port]
}

/// The conditions on the destination address of node port traffic.
///
/// A loopback address never accepts node port traffic.
fn node_port_addresses(family: Family, settings: &Settings, look_up: bool) -> Vec<Statement> {
    if !settings.node_ports_everywhere {
        return vec![Statement::in_set(&[Selector::Daddr], "nodeport-ips")];
    }
    let loopback = match family {
        Family::Ip => IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
        Family::Ip6 => IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    };
    let not_loopback = not_in_range(Selector::Daddr, loopback);
    match look_up {
        true => vec![not_loopback, Statement::FibDaddrLocal],
        false => vec![not_loopback],
    }
}

/// Most frontends are addresses of the cluster without affinity. What the map told of them is all that
/// has to be known.
fn service_traffic(settings: &Settings) -> Vec<Vec<Statement>> {
    let then = |one, chain: Name| {
        vec![is_chosen(SERVED, one), Statement::PriorityClear, Statement::goto(chain)]
    };
    let counts = FRONTEND_TREES[0].leaf_names().into_iter().zip(PLAIN.trailing_zeros()..);
    let plain = counts.map(|(leaf, bit)| then(1 << bit, leaf.into()));
    let special = [
        then(LOCAL_POLICY, "external-local".into()),
        then(WITH_ENDPOINTS, "special-traffic".into()),
    ];
    match mark_to_cluster_ip(settings) {
        // Only what is plain is a ClusterIP for sure.
        Some(mark) => special.into_iter().chain([mark]).chain(plain).collect(),
        None => plain.chain(special).collect(),
    }
}

/// Finds out which of several things holds for the packet; goes on if none does.
fn choose(key: &[Selector], map: &'static str) -> Statement {
    Statement::PriorityMap { key: key.to_vec(), map: map.into() }
}

/// Goes on if it is this one.
fn is_chosen(bits: u64, one: u64) -> Statement {
    let value = Operand::Class(choice(bits, one.trailing_zeros()));
    Statement::Compare { selector: Selector::Priority, negated: false, value }
}

fn special_traffic(settings: &Settings) -> Vec<Vec<Statement>> {
    let cluster_ip = Statement::in_set(&[Selector::Daddr], "cluster-ips");
    let to_cluster_ip = mark_to_cluster_ip(settings).map(|mark| [vec![cluster_ip], mark].concat());
    let mark = Statement::MarkSet(settings.masquerade_mark);
    let others = [
        vec![Statement::in_set(FRONTEND, "masquerade-ips"), mark],
        vec![Statement::goto(FRONTEND_TREES[0].root)],
    ];
    to_cluster_ip.into_iter().chain(others).collect()
}

/// Marks what is to be masqueraded of the packets to a ClusterIP; `None` if that is nothing.
fn mark_to_cluster_ip(settings: &Settings) -> Option<Vec<Statement>> {
    let mark = Statement::MarkSet(settings.masquerade_mark);
    match &settings.local_detector {
        _ if settings.masquerade_all => Some(vec![mark]),
        Some(detector) => Some(vec![detector.not_local(), mark]),
        None => None,
    }
}

fn nodeport_traffic(settings: &Settings) -> Vec<Vec<Statement>> {
    vec![
        vec![
            Statement::in_set(NODE_PORT, "local-policy-nodeports"),
            Statement::goto("nodeport-external-local"),
        ],
        vec![Statement::MarkSet(settings.masquerade_mark)],
        vec![Statement::goto(NODE_PORT_TREES[0].root)],
    ]
}

/// External traffic policy `Local` keeps the client's address and is for traffic from outside;
/// pods and the node itself reach all endpoints.
fn external_local(settings: &Settings, [all, local]: [&'static str; 2]) -> Vec<Vec<Statement>> {
    let mut rules = Vec::new();
    if let Some(detector) = &settings.local_detector {
        rules.push(vec![detector.local(), Statement::goto(all)]);
    }
    let mark = Statement::MarkSet(settings.masquerade_mark);
    rules.push(vec![Statement::FibSaddrLocal, mark, Statement::goto(all)]);
    rules.push(vec![Statement::goto(local)]);
    rules
}

/// Before DNAT, while the destination is still the service's address.
fn firewall() -> Vec<Statement> {
    vec![Statement::in_set(FRONTEND, "firewall-ips"), Statement::goto("firewall-sources")]
}

fn firewall_sources() -> Vec<Vec<Statement>> {
    let key = FRONTEND.iter().copied().chain([Selector::Saddr]).collect();
    let elsewhere = Statement::InSet { key, set: "source-ranges".into(), negated: true };
    vec![vec![elsewhere, Statement::Verdict(Verdict::Drop)]]
}

fn unserved_service() -> Vec<Statement> {
    vec![choose(FRONTEND, "no-endpoint-services"), Statement::goto("no-endpoint")]
}

fn unserved_node_port(family: Family, settings: &Settings) -> Vec<Statement> {
    let mut rule = node_port_addresses(family, settings, false);
    rule.extend([choose(NODE_PORT, "no-endpoint-nodeports"), Statement::goto("no-endpoint")]);
    rule
}

fn no_endpoint() -> Vec<Vec<Statement>> {
    vec![
        vec![is_chosen(UNSERVED, DROP), Statement::Verdict(Verdict::Drop)],
        vec![Statement::Reject],
    ]
}

/// What still has a cluster IP as its destination here was not meant for any service port.
fn cluster_ips_check(settings: &Settings) -> Vec<Vec<Statement>> {
    let mut rules =
        vec![vec![Statement::in_set(&[Selector::Daddr], "cluster-ips"), Statement::Reject]];
    rules.extend(
        settings.service_cidrs.iter().map(|range| {
            vec![in_range(Selector::Daddr, *range), Statement::Verdict(Verdict::Drop)]
        }),
    );
    rules
}

/// The mark is taken off before the packet leaves: it would survive encapsulation and be
/// masqueraded again.
fn masquerading(settings: &Settings) -> Vec<Vec<Statement>> {
    let hairpin = [Selector::Saddr, Selector::Daddr, Selector::L4Proto, Selector::Dport];
    let mut rules = Vec::new();
    if !settings.affinity_timeouts.is_empty() {
        rules.push(vec![Statement::CtStatusDnat, Statement::PriorityClear]);
    }
    rules.extend([
        vec![
            Statement::MarkTest(settings.masquerade_mark),
            Statement::MarkClear(settings.masquerade_mark),
            Statement::Masquerade,
        ],
        vec![
            Statement::CtStatusDnat,
            Statement::in_set(&hairpin, "hairpin-connections"),
            Statement::Masquerade,
        ],
    ]);
    rules
}

fn in_range(selector: Selector, range: IpNet) -> Statement {
    Statement::Compare { selector, negated: false, value: Operand::Network(range) }
}

fn not_in_range(selector: Selector, range: IpNet) -> Statement {
    Statement::Compare { selector, negated: true, value: Operand::Network(range) }
}
