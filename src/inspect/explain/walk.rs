//! The path of a packet: hooks, base chains in their order, chains, routing.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use network::{NoRoute, Route, Way};
use nft::{BaseChain, Device, Family, Hook, HookPoint, RuleContext, TableFamily, Verdict, key};

use super::evaluate::{Branch, End, Evaluation};
use super::order::{Placed, changes_destination, either, is_alike, sort};
use super::packet::{Interface, Packet, Tracking};
use super::rules::{Facts, Rules};
use super::state::{State, merge, merge_by, total};
use super::step::{ChainId, Fate, PossibleFate, Prediction, RuleStep, Step};

engine::named! {
    /// Hook where a packet starts.
    #[derive(clap::ValueEnum)]
    pub enum Start {
        /// The packet arrives at an interface.
        Prerouting = "prerouting",
        /// This node sends the packet.
        Output = "output",
    }
}

/// Predicts the fate of the packet, whose input interface is set.
///
/// Where the order of chains is not known, the packet is followed in two orders.
pub fn predict(rules: &Rules, facts: &mut impl Facts, packet: Packet, start: Start) -> Prediction {
    let mut prediction = follow(rules, facts, (packet.clone(), start), false);
    if !prediction.unordered.is_empty() {
        let other = follow(rules, facts, (packet, start), true);
        if is_alike(&prediction.outcomes, &other.outcomes) {
            prediction.unordered.clear();
        } else {
            prediction.outcomes = either(prediction.outcomes, other.outcomes);
        }
        prediction.steps_in_other_order = other.steps;
    }
    prediction
}

fn follow(
    rules: &Rules,
    facts: &mut impl Facts,
    (packet, start): (Packet, Start),
    is_reversed: bool,
) -> Prediction {
    let of = Prediction::default();
    let mut walk = Walk { rules, facts, is_reversed, of };
    let states = vec![State::new(packet)];
    match start {
        Start::Prerouting => walk.receive(states),
        Start::Output => walk.send(states),
    }
    walk.of.outcomes = merged(walk.of.outcomes);
    walk.of
}

struct Walk<'a, F> {
    rules: &'a Rules,
    facts: &'a mut F,
    /// Chains whose order is not known come in the reverse order.
    is_reversed: bool,
    of: Prediction,
}

/// Packets that have left a chain.
#[derive(Default)]
struct Through {
    /// Returned to the calling chain, or to the policy.
    returned: Vec<State>,
    /// Accepted: finished with the base chain.
    accepted: Vec<State>,
}

/// The hook before conntrack, at a device.
pub(super) const INGRESS: &str = "ingress";

/// Maximum depth of jumps in the kernel: `NFT_JUMP_STACK_SIZE`.
const MOST_JUMPS: usize = 16;

/// `NF_IP_PRI_CONNTRACK` of `<linux/netfilter_ipv4.h>`.
const CONNTRACK_PRIORITY: i32 = -200;

impl<'a, F: Facts> Walk<'a, F> {
    /// Runs ingress, prerouting and the routing decision.
    fn receive(&mut self, states: Vec<State>) {
        let states = self.ingress(states);
        let states = self.hook(HookPoint::Prerouting, states);
        let (mut input, mut forward) = (Vec::new(), Vec::new());
        for (route, states) in self.routes(states) {
            match route {
                Ok(route) if is_for_node(route) => input.extend(states),
                Ok(route) => forward.extend(self.forward(route, states)),
                Err(error) => self.no_route(&reason(error), states),
            }
        }
        if !input.is_empty() {
            self.routed("to this node", &input);
            self.deliver(input);
        }
        if !forward.is_empty() {
            let states = self.hook(HookPoint::Forward, forward);
            let states = self.hook(HookPoint::Postrouting, states);
            states.iter().for_each(|state| self.sent(state));
        }
    }

    /// Sets the output interface; drops the packets if the node does not forward.
    fn forward(&mut self, route: Route, mut states: Vec<State>) -> Vec<State> {
        let Some(family) = states.first().map(|state| state.packet().family()) else {
            return states;
        };
        if !self.facts.forwards(family) {
            self.no_route("the node does not forward packets", states);
            return Vec::new();
        }
        let output = self.interface(route.interface);
        self.routed(&format!("forwarded by {}", output.name), &states);
        for state in &mut states {
            let packet = state.packet_mut();
            packet.output = output.clone();
            // `ip_forward` derives it from the type of service.
            if family == Family::Ip {
                packet.priority = 0;
            }
        }
        states
    }

    /// Runs output; packets for the node return by the loopback interface.
    fn send(&mut self, states: Vec<State>) {
        let states = self.choose_output(states);
        let states = self.hook(HookPoint::Output, states);
        let states = self.choose_output(states);
        let states = self.hook(HookPoint::Postrouting, states);
        let mut local = Vec::new();
        for (route, mut states) in self.routes(states) {
            if !route.is_ok_and(is_for_node) {
                states.iter().for_each(|state| self.sent(state));
                continue;
            }
            for state in &mut states {
                let packet = state.packet_mut();
                packet.input = std::mem::replace(&mut packet.output, Interface::none());
            }
            local.extend(states);
        }
        if !local.is_empty() {
            self.routed("to this node, by the loopback interface", &local);
            let local = self.ingress(local);
            let states = self.hook(HookPoint::Prerouting, local);
            self.deliver(states);
        }
    }

    fn choose_output(&mut self, states: Vec<State>) -> Vec<State> {
        let mut chosen = Vec::new();
        for (route, mut states) in self.routes(states) {
            match route {
                Ok(route) => {
                    let output = self.interface(route.interface);
                    states.iter_mut().for_each(|it| it.packet_mut().output = output.clone());
                    chosen.extend(states);
                }
                Err(error) => self.no_route(&reason(error), states),
            }
        }
        chosen
    }

    fn deliver(&mut self, states: Vec<State>) {
        let states = self.hook(HookPoint::Input, states);
        states.iter().for_each(|state| self.sent(state));
    }

    /// Groups the states by their route.
    fn routes(&mut self, states: Vec<State>) -> Vec<(Result<Route, NoRoute>, Vec<State>)> {
        let mut routes = Vec::new();
        for state in states {
            let packet = state.packet();
            // Without an interface, the route is that of a packet of this node.
            let interface = if packet.input.is_known() { packet.input.index } else { 0 };
            let source = Some(packet.source).filter(|_| interface != 0);
            let way = Way { source, interface, mark: packet.mark };
            match self.facts.route(packet.destination, way) {
                Some(route) => routes.push((route, vec![state])),
                None => self.no_route("the route cannot be read", vec![state.perhaps()]),
            }
        }
        merge_by(routes, |(route, _)| *route, |(_, equal), (_, states)| equal.extend(states))
    }

    fn interface(&mut self, index: u32) -> Interface {
        Interface { index, name: Arc::from(self.facts.interface_name(index)) }
    }

    fn routed(&mut self, what: &str, states: &[State]) {
        self.of.steps.push(Step::Routed { what: what.to_owned(), share: total(states) });
    }

    fn no_route(&mut self, why: &str, states: Vec<State>) {
        self.routed(why, &states);
        for state in states {
            self.end(&state, Fate::NoRoute(why.to_owned()));
        }
    }

    fn sent(&mut self, state: &State) {
        let packet = state.packet();
        let fate = Fate::Sent {
            to: SocketAddr::new(packet.destination, packet.port),
            translated: packet.is_dnat(),
            masqueraded: packet.is_snat,
            interface: Some(packet.output.name.to_string()).filter(|name| !name.is_empty()),
        };
        self.end(state, fate);
    }

    fn end(&mut self, state: &State, fate: Fate) {
        self.of.outcomes.push(PossibleFate {
            fate,
            share: state.share,
            is_certain: state.key.is_certain,
        });
    }

    /// Runs the base chains at the ingress of the input interface. No hook without one.
    fn ingress(&mut self, mut states: Vec<State>) -> Vec<State> {
        let input = states.first().map(|state| state.packet().input.clone());
        let Some(input) = input.filter(|input| !input.name.is_empty()) else { return states };
        let belongs = |family: TableFamily, base: &BaseChain| {
            let mut devices = base.devices.iter();
            family.hook(base.hook) == INGRESS && devices.any(|it| has_name(it, &input.name))
        };
        let device = Some(input.name.to_string().into());
        let chains =
            self.base_chains(&Hook { family: TableFamily::Netdev, number: 0, device }, &belongs);
        if !chains.is_empty() {
            self.of.steps.push(Step::Hook { name: INGRESS, share: total(&states) });
        }
        for chain in chains {
            states = self.base_chain(chain, states);
        }
        states
    }

    /// Runs all base chains of a hook.
    fn hook(&mut self, point: HookPoint, mut states: Vec<State>) -> Vec<State> {
        let Some(family) = states.first().map(|state| state.packet().family()) else {
            return states;
        };
        self.of
            .steps
            .push(Step::Hook { name: TableFamily::Inet.hook(point as u32), share: total(&states) });
        let belongs = |of: TableFamily, base: &BaseChain| {
            [family.into(), TableFamily::Inet].contains(&of) && base.hook == point as u32
        };
        let hook = Hook { family: family.into(), number: point as u32, device: None };
        for (id, name, base) in self.base_chains(&hook, &belongs) {
            if base.priority > CONNTRACK_PRIORITY {
                track(&mut states);
            }
            states = self.base_chain((id, name, base), states);
        }
        track(&mut states);
        for state in &mut states {
            let packet = state.packet_mut();
            match point {
                HookPoint::Prerouting | HookPoint::Output => packet.destination_done = true,
                HookPoint::Input | HookPoint::Postrouting => packet.source_done = true,
                HookPoint::Forward => {}
            }
        }
        states
    }

    /// Returns the base chains at a hook in the order in which the kernel calls them.
    fn base_chains(
        &mut self,
        hook: &Hook,
        belongs: &dyn Fn(TableFamily, &BaseChain) -> bool,
    ) -> Vec<Placed<'a>> {
        let mut chains: Vec<Placed<'a>> = Vec::new();
        for (id, table) in &self.rules.tables {
            let here = table.base_chains.iter().filter(|(_, base)| belongs(id.family, base));
            chains.extend(here.map(|(name, base)| (id, name, base)));
        }
        let called = || self.facts.called_chains(hook);
        for unordered in sort(&mut chains, called, self.is_reversed) {
            if !self.of.unordered.contains(&unordered) {
                self.of.unordered.push(unordered);
            }
        }
        chains
    }

    fn base_chain(&mut self, (id, name, base): Placed<'_>, states: Vec<State>) -> Vec<State> {
        let is_nat = base.kind == "nat";
        let (states, mut past): (Vec<_>, Vec<_>) =
            states.into_iter().partition(|state| !is_nat || enters_nat(state.packet(), base));
        if states.is_empty() {
            return past;
        }
        let place = ChainId::new(id, name);
        self.of.steps.push(Step::Chain {
            place: place.clone(),
            kind: base.kind.to_string(),
            priority: base.priority,
            drops: base.drops,
        });
        let (before, ended) = (merge(states), self.of.outcomes.len());
        let Through { returned, accepted } = self.chain(&place, before.clone(), 0);
        let mut through = accepted;
        if base.drops {
            returned.iter().for_each(|it| self.end(it, Fate::Dropped(place.clone())))
        } else {
            through.extend(returned)
        }
        let mut through = merge(through);
        if self.of.outcomes.len() == ended && is_same(&before, &through) {
            through = before;
        }
        past.extend(through);
        merge(past)
    }

    fn chain(&mut self, place: &ChainId, mut states: Vec<State>, depth: usize) -> Through {
        let mut through = Through::default();
        let rules = self.rules;
        let Some(table) = rules.tables.get(&place.table) else {
            through.returned = states;
            return through;
        };
        if depth > MOST_JUMPS {
            states.iter().for_each(|it| self.end(it, Fate::Unknown(place.clone())));
            return through;
        }
        let context = RuleContext { family: place.table.family, sets: &[], interfaces: &|_| None };
        for rule in table.chains.get(&place.chain).into_iter().flatten() {
            if states.is_empty() {
                break;
            }
            let mut step = RuleStep {
                place: place.clone(),
                handle: rule.handle,
                text: context.text(&rule.expressions),
                reached: total(&states),
                matched: 0.0,
                is_certain: true,
                events: Vec::new(),
                more_events: 0,
            };
            let mut branches = Vec::new();
            for state in states {
                let (facts, id) = (&mut *self.facts, &place.table);
                branches.extend(Evaluation { facts, id, table, step: &mut step }.rule(rule, state));
            }
            let matched = branches.iter().filter(|(_, end)| *end != End::NoMatch);
            step.matched = matched.map(|(state, _)| state.share).sum::<f64>().min(step.reached);
            self.of.steps.push(Step::Rule(step));
            states = self.follow(place, branches, &mut through, depth);
        }
        through.returned.extend(states);
        through.returned = merge(through.returned);
        through
    }

    /// Follows the verdicts of a rule, and returns the states that continue with the next rule.
    fn follow(
        &mut self,
        place: &ChainId,
        branches: Vec<Branch>,
        through: &mut Through,
        depth: usize,
    ) -> Vec<State> {
        let mut next = Vec::new();
        let mut calls: BTreeMap<(String, bool), Vec<State>> = BTreeMap::new();
        for (state, end) in branches {
            match end {
                End::NoMatch | End::Next => next.push(state),
                End::Verdict(Verdict::Accept) => through.accepted.push(state),
                End::Verdict(Verdict::Drop) => self.end(&state, Fate::Dropped(place.clone())),
                End::Verdict(Verdict::Return) => through.returned.push(state),
                End::Verdict(Verdict::Jump(chain)) => {
                    calls.entry((chain.into_owned(), true)).or_default().push(state);
                }
                End::Verdict(Verdict::Goto(chain)) => {
                    calls.entry((chain.into_owned(), false)).or_default().push(state);
                }
                End::Handed(hop) => self.end(&state, Fate::Handed(hop)),
                End::Reject => self.end(&state, Fate::Refused(place.clone())),
                End::Unknown => self.end(&state, Fate::Unknown(place.clone())),
            }
        }
        for ((chain, comes_back), states) in calls {
            let there = ChainId { table: place.table.clone(), chain };
            let Through { returned, accepted } = self.chain(&there, merge(states), depth + 1);
            through.accepted.extend(accepted);
            if comes_back { next.extend(returned) } else { through.returned.extend(returned) }
        }
        merge(next)
    }
}

fn has_name(device: &Device, name: &str) -> bool {
    match device {
        Device::Named(named) => *name == **named,
        Device::Prefix(prefix) => name.starts_with(&**prefix),
    }
}

/// Returns true for a new connection that was not yet translated in this direction.
fn enters_nat(packet: &Packet, base: &BaseChain) -> bool {
    let is_done =
        if changes_destination(base) { packet.destination_done } else { packet.source_done };
    packet.tracking == Tracking::New && !is_done
}

fn track(states: &mut [State]) {
    for state in states {
        let packet = state.packet_mut();
        if packet.tracking == Tracking::Before {
            packet.tracking = Tracking::New;
        }
    }
}

/// Returns whether the packets are unchanged: unknown values in the chain had no influence.
fn is_same(before: &[State], after: &[State]) -> bool {
    let packets = |states: &[State]| -> HashSet<_> {
        states.iter().map(|it| (it.packet().clone(), it.key.written.clone())).collect()
    };
    packets(before) == packets(after)
}

fn is_for_node(route: Route) -> bool {
    route.kind != key::ROUTE_UNICAST
}

fn reason(error: NoRoute) -> String {
    format!("the node has no route for it ({error})")
}

/// Merges equal outcomes; most likely first.
fn merged(outcomes: Vec<PossibleFate>) -> Vec<PossibleFate> {
    let key = |outcome: &PossibleFate| (outcome.fate.clone(), outcome.is_certain);
    let mut merged =
        merge_by(outcomes, key, |equal, it| equal.share = (equal.share + it.share).min(1.0));
    merged.sort_by(|a, b| b.share.total_cmp(&a.share));
    merged
}
