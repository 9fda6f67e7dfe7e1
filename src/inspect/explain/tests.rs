//! Tests of the evaluator without a kernel, on our own rules and on simple rules of others.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use engine::counters::Counters;
use engine::flowtable::Threshold;
use engine::model::PrefixLengths;
use engine::model::{Protocol, Target};
use engine::ruleset::base::Base;
use engine::ruleset::number::{Flags, ListId, Route as Number, SizeClass, Timeout};
use engine::ruleset::{
    Frontend, LocalDetector, Lookups, Masquerade, Member, NodePorts, OptionalChains, Settings,
    TableElement, TableSets, Unserved,
};
use network::{NoRoute, Route};
use nft::expression::{
    Bytes, Cmp, CounterExpression, Data, Immediate, Limit, Nat, Numgen, Reg, Synproxy, meta, th,
};
use nft::{
    AnyElement, AnySet, BaseChain, ElementDetails, Expression, Hook, HookPoint, ListedRule, Name,
    Rule, Set, TableFamily, TableRef, TraceEvent, TraceKind, Value, Verdict,
};

use super::trace::compare;
use super::*;

const POD: &str = "10.244.1.9";
const OUTSIDE: &str = "192.0.2.10";
const NODE: &str = "192.168.50.2";

/// A node with our tables, without a kernel.
struct Node {
    rules: Rules,
    elements: HashMap<(String, Vec<u8>), AnyElement>,
    /// What the kernel tells of the order of chains.
    called: Option<Vec<(TableRef, Name)>>,
}

fn settings() -> Settings {
    Settings {
        optional_chains: OptionalChains {
            source_ranges: [(Protocol::Tcp, 8), (Protocol::Tcp, 24)].into_iter().collect(),
            port_ranges: PrefixLengths::default(),
            range_sets: false,
            cluster_ip_endpoints: true,
            ended_endpoints: true,
            size_classes: SizeClass::all().collect(),
        },
        ends_connections: true,
        counts_connections: false,
        masquerade: Masquerade { mark: 0x4000, all: false },
        local_detector: Some(LocalDetector::Range("10.244.0.0/16".parse().unwrap())),
        node_ports: NodePorts::default(),
        hash_seed: 1,
        lookups: Lookups::Repeated,
        offload: Some(Threshold::default()),
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        exempt: Vec::new(),
        timeouts: [(Timeout::new(1).unwrap(), 10_800)].into(),
    }
}

fn any_set(set: &Set) -> AnySet {
    let length = |types: &[nft::Type]| -> u32 {
        types.iter().map(|kind| kind.length().next_multiple_of(4)).sum()
    };
    AnySet {
        name: set.name.to_string(),
        flags: AnySet::CONCATENATION | if set.flags.interval { AnySet::INTERVAL } else { 0 },
        key_length: length(&set.key) as usize,
        data_length: length(&set.data) as usize,
        ..AnySet::default()
    }
}

fn ours() -> TableRef {
    ruleset::table(Family::Ip)
}

impl Node {
    fn new(elements: &[TableElement<'_>]) -> Self {
        let base = Base::new(&TableSets::new(Family::Ip, Counters::Off), &settings());
        let mut table = TableRules::default();
        for (handle, rule) in (1..).zip(base.chains.iter().flat_map(|spec| &*spec.rules)) {
            let listed = ListedRule::of(rule, TABLE, handle);
            table.chains.entry(listed.chain.clone()).or_default().push(listed);
        }
        for spec in &base.chains {
            let base = spec.chain.base.clone();
            table.base_chains.extend(base.map(|base| (spec.chain.name.clone(), base)));
        }
        table.sets = base.sets.iter().map(|set| (set.name.to_string(), any_set(set))).collect();
        let rules = Rules { tables: [(ours(), table)].into() };
        let elements = elements.iter().map(any_element).collect();
        Self { rules, elements, called: None }
    }

    /// Adds a table of another program with one chain at prerouting.
    fn with_others(mut self, rules: Vec<Vec<Expression>>, drops: bool) -> Self {
        let rule = |(handle, expressions)| {
            let rule = Rule { chain: "bar".into(), expressions, comment: None };
            ListedRule::of(&rule, "foo", handle)
        };
        let chains = [("bar".to_owned(), (100..).zip(rules).map(rule).collect())].into();
        let base = BaseChain { drops, ..BaseChain::new("filter", HookPoint::Prerouting, -150) };
        let base_chains = vec![("bar".into(), base)];
        let id = TableRef::new(TableFamily::Inet, "foo");
        self.rules.tables.insert(id, TableRules { base_chains, chains, ..TableRules::default() });
        self
    }

    /// Adds a table with a chain that translates destinations, at the priority of all programs but ours.
    fn with_translation(mut self, table: &str, to: [u8; 4]) -> Self {
        let expressions = vec![
            Immediate::value(to, FIRST),
            Immediate::value(8080_u16.to_be_bytes(), SECOND),
            Nat::destination(2, FIRST, SECOND),
        ];
        let rule = Rule { chain: "nat".into(), expressions, comment: None };
        let chains = [("nat".to_owned(), vec![ListedRule::of(&rule, table, 1)])].into();
        let base_chains = vec![("nat".into(), BaseChain::new("nat", HookPoint::Prerouting, -100))];
        let table_of = TableRules { base_chains, chains, ..TableRules::default() };
        self.rules.tables.insert(TableRef::new(Family::Ip, table.to_owned()), table_of);
        self
    }

    fn predict(&mut self, from: &str, to: &str) -> Prediction {
        let start = if from == NODE { Start::Output } else { Start::Prerouting };
        self.predict_at(start, from, to)
    }

    fn predict_at(&mut self, start: Start, from: &str, to: &str) -> Prediction {
        let to: SocketAddr = to.parse().unwrap();
        let source: IpAddr = from.parse().unwrap();
        let mut packet = Packet::new((source, None), (to.ip(), to.port()), 6);
        if start == Start::Prerouting {
            packet.input = Interface { index: 7, name: "eth7".into() };
        }
        let rules = self.rules.clone();
        predict(&rules, self, packet, start)
    }

    fn outcomes(&mut self, from: &str, to: &str) -> Vec<String> {
        let outcomes = self.predict(from, to).outcomes;
        let mut texts: Vec<_> = outcomes.iter().map(short).collect();
        texts.sort();
        texts
    }
}

fn any_element(element: &TableElement<'_>) -> ((String, Vec<u8>), AnyElement) {
    let set = element.set().name().to_owned();
    let element = element.to_element();
    let key = element.key.as_bytes().to_vec();
    let data = element.data.map(|data| Data::Value(data.as_bytes().into()));
    let userdata = element.comment.map(|comment| Bytes::of_comment(&comment));
    let details = Some(Box::new(ElementDetails { userdata, ..ElementDetails::default() }));
    let found = AnyElement { data, details, ..AnyElement::new(&key[..]) };
    ((set, key), found)
}

fn short(outcome: &PossibleFate) -> String {
    let what = match &outcome.fate {
        Fate::Sent { to, masqueraded, .. } => {
            format!("{to}{}", if *masqueraded { " masqueraded" } else { "" })
        }
        Fate::Handed(hop) => direct_words::hop_words(hop),
        Fate::Refused(place) => format!("refused in {}", place.chain),
        Fate::Dropped(place) => format!("dropped in {}", place.chain),
        Fate::NoRoute(_) => "no route".to_owned(),
        Fate::Unknown(place) => format!("unknown in {}", place.chain),
    };
    let perhaps = if outcome.is_certain { "" } else { "perhaps " };
    format!("{perhaps}{:.4} {what}", outcome.share)
}

impl Facts for Node {
    fn element(&mut self, _: &TableRef, set: &AnySet, key: &[u8]) -> LookupResult {
        let found = self.elements.get(&(set.name.clone(), key.to_vec()));
        found.map_or(LookupResult::Missing, |found| LookupResult::Element(found.clone()))
    }

    fn route(&mut self, destination: IpAddr, _: Way) -> Option<Result<Route, NoRoute>> {
        let is_local = destination == NODE.parse::<IpAddr>().unwrap();
        let kind = if is_local { key::ROUTE_LOCAL } else { key::ROUTE_UNICAST };
        Some(Ok(Route { kind, interface: 9, source: None, gateway: None }))
    }

    fn called_chains(&mut self, hook: &Hook) -> Option<Vec<(TableRef, Name)>> {
        assert_eq!(hook.family, TableFamily::Ip);
        self.called.clone()
    }

    fn forwards(&mut self, _: Family) -> bool {
        true
    }

    fn hardware_address(&mut self, _: IpAddr, _: u32) -> Option<[u8; 6]> {
        None
    }

    fn interface_name(&mut self, index: u32) -> String {
        format!("eth{index}")
    }
}

fn frontend(address: &str) -> Frontend {
    let address: SocketAddr = address.parse().unwrap();
    let port = NonZeroU16::new(address.port()).unwrap();
    Frontend::Address { address: address.ip(), protocol: Protocol::Tcp, port }
}

fn target(number: u32) -> Target {
    let address = IpAddr::from([10, 244, 2, u8::try_from(number).unwrap()]);
    Target { address, port: NonZeroU16::new(8080).unwrap() }
}

/// Returns a frontend and its list of `count` endpoints.
fn service(to: &str, count: u32, flags: Flags) -> Vec<TableElement<'static>> {
    let list = ListId::plain(ListId::FIRST_PLAIN);
    let number = Number::new(list, None, SizeClass::of(count as usize), flags);
    let endpoint = |slot| TableElement::Endpoint(list, Protocol::Tcp, slot, target(slot + 1));
    let route = TableElement::Route(frontend(to), number, Some("default/web:http"));
    (0..count).map(endpoint).chain([route]).collect()
}

#[test]
fn each_endpoint_has_the_same_share_and_pods_keep_their_source() {
    let mut node = Node::new(&service("10.96.0.10:80", 3, Flags::default()));
    let third = |last: u32, rest: &str| format!("0.3333 10.244.2.{last}:8080{rest}");
    assert_eq!(node.outcomes(POD, "10.96.0.10:80"), [1, 2, 3].map(|it| third(it, "")));
    let masqueraded = [1, 2, 3].map(|it| third(it, " masqueraded"));
    assert_eq!(node.outcomes(OUTSIDE, "10.96.0.10:80"), masqueraded);
    assert_eq!(node.outcomes(NODE, "10.96.0.10:80"), masqueraded);
}

#[test]
fn draws_that_miss_leave_the_shares_of_a_large_list_equal() {
    let flags = Flags { masquerade: true, local: false };
    let mut node = Node::new(&service("198.51.100.1:80", 40, flags));
    let prediction = node.predict(POD, "198.51.100.1:80");
    assert_eq!(prediction.outcomes.len(), 40);
    let sum: f64 = prediction.outcomes.iter().map(|outcome| outcome.share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    for outcome in &prediction.outcomes {
        assert!((outcome.share - 1.0 / 40.0).abs() < 1e-4, "{}", short(outcome));
        assert!(matches!(outcome.fate, Fate::Sent { masqueraded: true, .. }));
    }
}

/// A service with no other endpoint, before its list is without it.
#[test]
fn a_packet_to_an_endpoint_that_is_gone_is_answered_with_rst() {
    let ended = TableElement::Ended(target(1), Duration::ZERO, Some("default/web"));
    let mut node =
        Node::new(&[service("10.96.0.10:80", 1, Flags::default()), vec![ended]].concat());
    assert_eq!(node.outcomes(POD, "10.96.0.10:80"), ["1.0000 refused in reset-connection"]);
    // Not through a service.
    assert_eq!(node.outcomes(POD, "10.244.2.1:8080"), ["1.0000 10.244.2.1:8080"]);
}

#[test]
fn an_address_of_no_service_goes_on_or_is_dropped_in_the_service_range() {
    let mut node =
        Node::new(&[TableElement::Member(Member::ClusterIp("10.96.0.10".parse().unwrap()))]);
    assert_eq!(node.outcomes(POD, "192.0.2.1:80"), ["1.0000 192.0.2.1:80"]);
    assert_eq!(node.outcomes(POD, "10.96.0.99:80"), ["1.0000 dropped in cluster-ips-check"]);
    assert_eq!(node.outcomes(POD, "10.96.0.10:81"), ["1.0000 refused in refuse"]);
}

#[test]
fn a_packet_from_outside_with_an_address_of_the_node_is_not_answered() {
    let mut node =
        Node::new(&[TableElement::Member(Member::ClusterIp("10.96.0.10".parse().unwrap()))]);
    let prediction = node.predict_at(Start::Prerouting, NODE, "10.96.0.10:81");
    assert_eq!(short(&prediction.outcomes[0]), "1.0000 dropped in refuse");
    assert_eq!(node.outcomes(NODE, "10.96.0.10:81"), ["1.0000 refused in refuse"]);
}

#[test]
fn a_service_without_endpoints_is_refused_or_dropped() {
    for (unserved, expected) in [
        (Unserved::Refuse, "1.0000 refused in refuse"),
        (Unserved::Drop, "1.0000 dropped in no-endpoint"),
    ] {
        let element = TableElement::Unserved(frontend("10.96.0.10:80"), unserved, None);
        let mut node = Node::new(&[element]);
        for from in [POD, NODE] {
            assert_eq!(node.outcomes(from, "10.96.0.10:80"), [expected]);
        }
    }
}

/// Returns a service with affinity and two endpoints.
fn sticky() -> Vec<TableElement<'static>> {
    let (list, timeout) = (ListId::session(1), Timeout::new(1));
    let number = Number::new(list, timeout, SizeClass::of(2), Flags::default());
    let of = |slot: u32| {
        let id = u16::try_from(slot + 1).unwrap();
        let endpoint = TableElement::AffinityEndpoint(list, Protocol::Tcp, id, target(slot + 1));
        [TableElement::AffinitySlot(list, slot, id), endpoint]
    };
    let route = TableElement::Route(frontend("10.96.0.10:80"), number, None);
    (0..2).flat_map(of).chain([route, TableElement::AffinityList(list, number)]).collect()
}

#[test]
fn a_client_that_is_remembered_has_one_endpoint_and_a_new_one_any() {
    let mut node = Node::new(&sticky());
    let half = ["0.5000 10.244.2.1:8080", "0.5000 10.244.2.2:8080"];
    assert_eq!(node.outcomes(POD, "10.96.0.10:80"), half);

    let address: IpAddr = POD.parse().unwrap();
    let place =
        super::jhash::scale(super::jhash::jhash(Value::new().ip(address).as_bytes(), 1), 32_768);
    let list = ListId::session(1);
    let key = [list.key().to_ne_bytes(), place.to_ne_bytes()].concat();
    let data = Some(Data::Value(list.endpoint(2).to_ne_bytes().into()));
    let remembered = AnyElement { data, ..AnyElement::new(&key[..]) };
    node.elements.insert(("affinity-clients".to_owned(), key), remembered);
    assert_eq!(node.outcomes(POD, "10.96.0.10:80"), ["1.0000 10.244.2.2:8080"]);

    // The endpoint no longer exists: the client's element is removed and another endpoint drawn.
    let gone = Value::new().proto(6).class_id(list.endpoint(2));
    node.elements.remove(&("affinity-endpoints".to_owned(), gone.as_bytes().to_vec()));
    let slot = Value::new().class_id(list.key()).integer(1);
    node.elements.remove(&("affinity-slots".to_owned(), slot.as_bytes().to_vec()));
    let outcomes = node.outcomes(POD, "10.96.0.10:80");
    assert!(outcomes.contains(&"1.0000 10.244.2.1:8080".to_owned()), "{outcomes:?}");
}

fn unknown() -> Expression {
    Synproxy { mss: 1460, window_scale: 7, flags: 0 }.into()
}

fn drop_it() -> Expression {
    Immediate::verdict(Verdict::Drop)
}

/// First registers.
const FIRST: Reg = Reg::of_word(0);
const SECOND: Reg = Reg::of_word(4);

#[test]
fn an_unknown_expression_is_named_and_makes_outcomes_uncertain() {
    let elements = service("10.96.0.10:80", 1, Flags::default());
    let mut node = Node::new(&elements).with_others(vec![vec![unknown()]], false);
    let prediction = node.predict(POD, "10.96.0.10:80");
    let mut texts: Vec<_> = prediction.outcomes.iter().map(short).collect();
    texts.sort();
    assert_eq!(texts, ["perhaps 1.0000 10.244.2.1:8080", "perhaps 1.0000 unknown in bar"]);
    let explanation = Explanation {
        packet: Packet::new((POD.parse().unwrap(), None), ("10.96.0.10".parse().unwrap(), 80), 6),
        start: Start::Prerouting,
        prediction,
        source_ranges: None,
        closed_node_port: None,
        direct: None,
        notes: Vec::new(),
        generation: nft::kernel::Generation(1),
    };
    let text = explanation.to_string();
    let expected = "unknown expression synproxy; a packet may go on or stop here (table inet foo \
                    chain bar)";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn what_is_not_known_does_not_matter_where_all_ways_end_alike() {
    let elements = service("10.96.0.10:80", 1, Flags::default());
    let limit = || Limit { rate: 1, unit: 1, burst: 5, kind: 0, flags: 0 }.into();
    let counter = CounterExpression { bytes: 0, packets: 0 }.into();
    let mut node = Node::new(&elements).with_others(vec![vec![limit(), counter]], false);
    assert_eq!(node.outcomes(POD, "10.96.0.10:80"), ["1.0000 10.244.2.1:8080"]);
    let accept = Immediate::verdict(Verdict::Accept);
    let mut node = Node::new(&elements).with_others(vec![vec![limit(), accept]], false);
    assert_eq!(node.outcomes(POD, "10.96.0.10:80"), ["1.0000 10.244.2.1:8080"]);
    let mut node = Node::new(&elements).with_others(vec![vec![limit(), drop_it()]], false);
    assert_eq!(
        node.outcomes(POD, "10.96.0.10:80"),
        ["perhaps 1.0000 10.244.2.1:8080", "perhaps 1.0000 dropped in bar"]
    );
}

#[test]
fn a_number_that_is_compared_gives_each_way_its_share() {
    let is_one = Cmp::equal(FIRST, 1u32.to_ne_bytes());
    let rule = vec![Numgen::random(4, FIRST), is_one, drop_it()];
    let mut node = Node::new(&[]).with_others(vec![rule], false);
    let expected = ["0.2500 dropped in bar", "0.7500 192.0.2.1:80"];
    assert_eq!(node.outcomes(POD, "192.0.2.1:80"), expected);
}

#[test]
fn a_policy_drops_what_no_rule_accepts() {
    let below = Cmp::compare(FIRST, key::CMP_LESS, 100u16.to_be_bytes());
    let accept = Immediate::verdict(Verdict::Accept);
    let rule = vec![th::dport(FIRST), below, accept];
    let mut node = Node::new(&[]).with_others(vec![rule], true);
    assert_eq!(node.outcomes(POD, "192.0.2.1:80"), ["1.0000 192.0.2.1:80"]);
    assert_eq!(node.outcomes(POD, "192.0.2.1:8080"), ["1.0000 dropped in bar"]);
}

#[test]
fn a_source_port_that_is_not_given_is_not_guessed() {
    let is_port = Cmp::equal(FIRST, 68u16.to_be_bytes());
    let rule = vec![th::sport(FIRST), is_port, drop_it()];
    let mut node = Node::new(&[]).with_others(vec![rule], false);
    let expected = ["perhaps 1.0000 192.0.2.1:80", "perhaps 1.0000 dropped in bar"];
    assert_eq!(node.outcomes(POD, "192.0.2.1:80"), expected);
    let steps = node.predict(POD, "192.0.2.1:80").steps;
    let mut rules = steps.iter().filter_map(|step| match step {
        Step::Rule(rule) => Some(rule),
        Step::Hook { .. } | Step::Chain { .. } | Step::Routed { .. } => None,
    });
    let says_so = rules.any(|it| it.events.iter().any(|it| matches!(it, Event::Unknown(_))));
    assert!(says_so, "{steps:?}");
}

#[test]
fn the_endpoint_is_that_of_the_chain_that_the_kernel_calls_first() {
    let both = || {
        let node = Node::new(&[]).with_translation("alpha", [10, 88, 0, 1]);
        node.with_translation("beta", [10, 88, 0, 2])
    };
    let mut node = both();
    let perhaps = ["perhaps 1.0000 10.88.0.1:8080", "perhaps 1.0000 10.88.0.2:8080"];
    assert_eq!(node.outcomes(OUTSIDE, "192.0.2.1:80"), perhaps);
    assert_eq!(node.predict(OUTSIDE, "192.0.2.1:80").unordered.len(), 1);
    let chain = |table: &'static str| (TableRef::new(Family::Ip, table), Name::from("nat"));
    // Some kernels do not list chains of type nat.
    node.called = Some(vec![chain("other")]);
    assert_eq!(node.outcomes(OUTSIDE, "192.0.2.1:80"), perhaps);
    for (first, last, endpoint) in [("alpha", "beta", 1), ("beta", "alpha", 2)] {
        let own = (ours(), Name::from("nat-prerouting"));
        node.called = Some(vec![own, chain(first), chain("other"), chain(last)]);
        let certain = [format!("1.0000 10.88.0.{endpoint}:8080")];
        assert_eq!(node.outcomes(OUTSIDE, "192.0.2.1:80"), certain);
        assert_eq!(node.predict(OUTSIDE, "192.0.2.1:80").unordered.len(), 0);
    }
}

/// Our chains come first, so the order of the others does not matter for a service.
#[test]
fn an_unknown_order_that_changes_nothing_leaves_the_outcome_certain() {
    let elements = service("10.96.0.10:80", 1, Flags::default());
    let node = Node::new(&elements).with_translation("alpha", [10, 88, 0, 1]);
    let mut node = node.with_translation("beta", [10, 88, 0, 2]);
    assert_eq!(node.outcomes(POD, "10.96.0.10:80"), ["1.0000 10.244.2.1:8080"]);
    assert_eq!(node.predict(POD, "10.96.0.10:80").unordered.len(), 0);
}

#[test]
fn a_mark_of_another_program_is_no_reason_for_masquerade() {
    let mark = vec![Immediate::value(51_820_u32.to_ne_bytes(), FIRST), meta::set_mark(FIRST)];
    let elements = service("10.96.0.10:80", 1, Flags::default());
    let mut node = Node::new(&elements).with_others(vec![mark], false);
    assert_eq!(node.outcomes(OUTSIDE, "192.0.2.1:80"), ["1.0000 192.0.2.1:80"]);
    let outcomes = node.outcomes(OUTSIDE, "10.96.0.10:80");
    assert_eq!(outcomes, ["1.0000 10.244.2.1:8080 masqueraded"]);
}

#[test]
fn the_first_difference_between_prediction_and_kernel_is_named() {
    let mut node = Node::new(&service("10.96.0.10:80", 2, Flags::default()));
    let prediction = node.predict(POD, "10.96.0.10:80");
    let always = |step: &Step| match step {
        Step::Rule(rule) if rule.matched > 0.99 => Some((rule.place.chain.clone(), rule.handle)),
        Step::Rule(_) | Step::Hook { .. } | Step::Chain { .. } | Step::Routed { .. } => None,
    };
    let event = |(chain, handle): (String, u64)| TraceEvent {
        id: 1,
        table: ours(),
        chain,
        kind: TraceKind::Rule { handle, verdict: None },
    };
    let mut events: Vec<_> = prediction.steps.iter().filter_map(always).map(event).collect();
    let other = TableRef::new(Family::Ip, "trace");
    let same = compare(&prediction, &events, &other);
    assert_eq!(same.difference(), None, "{same}");

    let lost = events.remove(0);
    let difference = compare(&prediction, &events, &other).difference();
    let of_lost = format!("in table ip kube-proxy chain {} was predicted but", lost.chain);
    assert!(difference.as_ref().is_some_and(|it| it.contains(&of_lost)), "{difference:?}");

    let drop = event(("no-endpoint".to_owned(), 999));
    let difference = compare(&prediction, &[lost, drop], &other).difference();
    let of_drop = "the rule with handle 999 in table ip kube-proxy chain no-endpoint matched but was \
                   not predicted";
    assert_eq!(difference.as_deref(), Some(of_drop));
}
