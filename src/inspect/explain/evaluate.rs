//! Evaluates one rule for one packet, instruction by instruction.

use nft::kernel::{Route, Way};
use nft::{AnyRule, Expr, Family, Instruction, Register, Verdict, key};

use super::field::{compare, equal, masked, number, swapped};
use super::jhash::{jhash, scale};
use super::packet::{CtValue, Tracking, known, unknown};
use super::registers::{Draw, Registers};
use super::rules::{Facts, Table, TableId};
use super::state::State;
use super::step::{Event, RuleStep};

/// Result of a rule for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// The rule did not match; evaluation continues with the next rule.
    NoMatch,
    /// The rule matched to its end; evaluation continues with the next rule.
    Next,
    /// The rule ended with a verdict.
    Verdict(Verdict),
    /// The rule rejected the packet.
    Reject,
    /// An unknown expression may have ended the evaluation of the packet.
    Unknown,
}

/// A possible result of one rule.
pub(super) type Branch = (State, End);

/// A rule under evaluation, and its position.
pub(super) struct Run<'a, F> {
    pub(super) facts: &'a mut F,
    pub(super) id: &'a TableId,
    pub(super) table: &'a Table,
    pub(super) step: &'a mut RuleStep,
}

/// A packet within a rule.
#[derive(Clone)]
pub(super) struct Within {
    pub(super) state: State,
    pub(super) registers: Registers,
}

/// Effect of an instruction on a packet.
pub(super) enum Next {
    /// Evaluation continues with the next instruction.
    On(Within),
    /// The rule ends.
    End(State, End),
}

/// Most possible numbers that are evaluated one by one; with more the result is unknown.
pub(super) const MOST_DRAWN: u32 = 65_536;

impl<F: Facts> Run<'_, F> {
    /// Returns all possible results of a rule.
    pub(super) fn rule(&mut self, rule: &AnyRule, state: State) -> Vec<Branch> {
        let was_certain = state.key.is_certain;
        let mut ends = Vec::new();
        let mut left = vec![(Within { state, registers: Registers::new() }, 0)];
        while let Some((within, place)) = left.pop() {
            let Some(instruction) = rule.instructions.get(place) else {
                ends.push((within.state, End::Next));
                continue;
            };
            for next in self.instruction(instruction, within) {
                match next {
                    Next::On(within) => left.push((within, place + 1)),
                    Next::End(state, end) => ends.push((state, end)),
                }
            }
        }
        settled(ends, was_certain)
    }

    fn instruction(&mut self, instruction: &Instruction, mut within: Within) -> Vec<Next> {
        match instruction {
            Instruction::Expr(expr) => return self.expression(expr, within),
            Instruction::Range { from, negated, first, last } => {
                let field = within.registers.read(*from, first.len());
                let in_range = match (compare(&field, first), compare(&field, last)) {
                    (Some(low), Some(high)) => Some(low.is_ge() && high.is_le()),
                    (_, _) => None,
                };
                return self.test(within, in_range.map(|it| it != *negated));
            }
            Instruction::Draw { modulus, offset, to, .. } => {
                within.registers.draw(*to, *modulus, *offset);
            }
            Instruction::Translate { source, address, port, is_range } => {
                return self.translate(within, *source, (*address, *port), *is_range);
            }
            Instruction::Redirect { port } => return self.redirect(within, *port),
            Instruction::CtSet { key: key::CT_MARK, from } => {
                match number(&within.registers.read(*from, 4)) {
                    Some(mark) => within.state.packet_mut().ct_mark = mark,
                    None => self.unknown("ct mark gets a value that is not known"),
                }
            }
            Instruction::CtSet { .. } | Instruction::Neutral(_) => {}
            Instruction::Notrack => within.state.packet_mut().tracking = Tracking::Untracked,
            Instruction::Fib { to, .. } => {
                self.unknown("a route that a rule looks up is not looked up here");
                within.registers.write(*to, &unknown(16));
            }
            Instruction::Limited(what) => {
                self.unknown(&format!("{what}: a rate or count decides"));
                return goes_on(within, None);
            }
            Instruction::Unknown(name) => return self.unknown_expression(name, within),
        }
        vec![Next::On(within)]
    }

    fn expression(&mut self, expr: &Expr, mut within: Within) -> Vec<Next> {
        match expr {
            Expr::Payload { base, offset, length, to } => {
                let field = within.state.packet().payload(*base, *offset, *length);
                within.registers.write(*to, &field);
            }
            Expr::Meta { key, to } => {
                let field = within.state.packet().meta(*key);
                within.registers.write(*to, &field.unwrap_or_else(|| unknown(16)));
            }
            Expr::MetaSet { key, from } => self.set_meta(*key, *from, &mut within),
            Expr::Ct { key, to } => match within.state.packet().ct(*key) {
                Some(CtValue::Value(field)) => within.registers.write(*to, &field),
                Some(CtValue::Missing) => return vec![Next::End(within.state, End::NoMatch)],
                None => within.registers.write(*to, &unknown(16)),
            },
            Expr::CtOriginal { to, .. } => within.registers.write(*to, &unknown(16)),
            Expr::FibType { flags, to } => {
                let kind = self.address_type(*flags, &within.state);
                let field = kind.map_or_else(|| unknown(4), |kind| known(&kind.to_ne_bytes()));
                within.registers.write(*to, &field);
            }
            Expr::Numgen { modulus, to } => within.registers.draw(*to, *modulus, 0),
            Expr::Jhash { from, length, modulus, seed, to } => {
                hash(&mut within.registers, (*from, *to), *length, (*modulus, *seed));
            }
            Expr::Cmp { from, negated, value } => {
                if let Some(draw) = within.registers.drawn(*from, value.len()) {
                    return self.each_drawn(within, draw, expr);
                }
                let is_equal = equal(&within.registers.read(*from, value.len()), value);
                return self.test(within, is_equal.map(|it| it != *negated));
            }
            Expr::Order { from, order, value } => {
                let is_true = compare(&within.registers.read(*from, value.len()), value)
                    .map(|it| order.holds(it));
                return self.test(within, is_true);
            }
            Expr::Byteorder { from, to, length, size } => {
                let field = within.registers.read(*from, place(*length));
                within.registers.write(*to, &swapped(&field, place(*size)));
            }
            Expr::Bitwise { from, to, mask, xor } => {
                if let Some(draw) = within.registers.drawn(*from, mask.len()) {
                    return self.each_drawn(within, draw, expr);
                }
                let field = within.registers.read(*from, mask.len());
                within.registers.write(*to, &masked(&field, mask, xor));
            }
            Expr::Lookup { set, from, to, negated } => {
                return self.look_up(set, *from, (*to, *negated), within);
            }
            Expr::Immediate { value, to } => within.registers.write(*to, &known(value)),
            Expr::Verdict(verdict) => return self.verdict(within.state, verdict.clone()),
            Expr::Dnat { address, port, .. } => {
                return self.translate(within, false, (Some(*address), *port), false);
            }
            Expr::Masquerade { .. } => return self.translate(within, true, (None, None), false),
            Expr::Reject { .. } => {
                self.step.note(Event::Reject);
                return vec![Next::End(within.state, End::Reject)];
            }
            Expr::Dynset { operation, set, key, data, .. } => {
                self.write_element((*operation, set), *key, *data, &mut within);
            }
            // The first packet of a connection is never added to a flowtable.
            Expr::FlowOffload(_) => return vec![Next::End(within.state, End::NoMatch)],
            Expr::Other(name) => return self.unknown_expression(name, within),
        }
        vec![Next::On(within)]
    }

    pub(super) fn unknown(&mut self, what: &str) {
        self.step.note(Event::Unknown(what.to_owned()));
        self.step.is_certain = false;
    }

    /// Continues if a comparison is true.
    fn test(&mut self, within: Within, is_true: Option<bool>) -> Vec<Next> {
        if is_true.is_none() {
            self.unknown("what the rule compares is not known of this packet");
        }
        goes_on(within, is_true)
    }

    /// Both matches and does not match. An expression that is not a test may also end the
    /// evaluation.
    pub(super) fn unknown_expression(&mut self, name: &str, mut within: Within) -> Vec<Next> {
        self.unknown(&format!("unknown expression {name}; a packet may go on or stop here"));
        within.registers.forget();
        let state = within.state.perhaps();
        within.state = state.clone();
        let mut nexts = vec![Next::On(within), Next::End(state.clone(), End::NoMatch)];
        let kind = name.split(' ').next().unwrap_or_default();
        let is_test = TESTS.contains(&kind) || name.starts_with("xt match");
        if !is_test {
            nexts.push(Next::End(state, End::Unknown));
        }
        nexts
    }

    pub(super) fn verdict(&mut self, state: State, verdict: Verdict) -> Vec<Next> {
        self.step.note(Event::Verdict(verdict.clone()));
        vec![Next::End(state, End::Verdict(verdict))]
    }

    fn set_meta(&mut self, number_of: u32, from: Register, within: &mut Within) {
        let value = number(&within.registers.read(from, 4));
        let packet = within.state.packet_mut();
        match (number_of, value) {
            (key::META_MARK, Some(mark)) => {
                let before = std::mem::replace(&mut packet.mark, mark);
                self.step.note(Event::Mark { from: before, to: mark });
            }
            (key::META_PRIORITY, Some(priority)) => packet.priority = priority,
            (key::META_MARK | key::META_PRIORITY, None) => {
                self.unknown("mark or priority get a value that is not known; the old is assumed");
            }
            (_, _) => {}
        }
    }

    /// Returns the routing type of an address; `None` if unknown.
    fn address_type(&mut self, flags: u32, state: &State) -> Option<u32> {
        let packet = state.packet();
        let address = match flags {
            key::FIB_DADDR => packet.destination,
            key::FIB_SADDR => packet.source,
            _ => return None,
        };
        if address.is_multicast() {
            return Some(key::ROUTE_MULTICAST);
        }
        let no_route = match Family::of(address) {
            // `inet_addr_type` looks only in the table `local`.
            Family::Ip => key::ROUTE_UNICAST,
            Family::Ip6 => ROUTE_UNREACHABLE,
        };
        match self.facts.route(address, Way::default())? {
            Ok(Route { kind, .. }) => Some(kind),
            Err(_) => Some(no_route),
        }
    }

    /// Runs an expression for each possible random number.
    fn each_drawn(&mut self, within: Within, draw: Draw, expr: &Expr) -> Vec<Next> {
        if !(1..=MOST_DRAWN).contains(&draw.modulus) {
            self.unknown("a number is drawn below so many that the outcomes are not followed");
            return goes_on(within, None);
        }
        let share = 1.0 / f64::from(draw.modulus);
        let mut nexts = Vec::new();
        for number in 0..draw.modulus {
            let state = within.state.part(share);
            let registers = within.registers.with(draw, number);
            nexts.extend(self.expression(expr, Within { state, registers }));
        }
        nexts
    }
}

/// `RTN_UNREACHABLE` of `<linux/rtnetlink.h>`.
const ROUTE_UNREACHABLE: u32 = 7;

/// Expressions that can end only the rule, not the evaluation of the packet.
const TESTS: &[&str] = &[
    "bitwise", "cmp", "ct", "dynset", "exthdr", "fib", "inner", "lookup", "meta", "osf", "payload",
    "rt", "socket", "tunnel", "xfrm",
];

/// Merges branches with the same result: the unknown value had no influence.
fn settled(mut branches: Vec<Branch>, was_certain: bool) -> Vec<Branch> {
    let Some((first, first_end)) = branches.first().cloned() else { return branches };
    let is_uncertain = branches.iter().any(|(state, _)| state.key.is_certain != was_certain);
    let follows_next = |end: &End| matches!(end, End::NoMatch | End::Next);
    let alike = branches.iter().all(|(state, end)| {
        let same_end = *end == first_end || (follows_next(end) && follows_next(&first_end));
        same_end && state.key == first.key && (state.share - first.share).abs() < f64::EPSILON
    });
    if !was_certain || !is_uncertain || !alike {
        return branches;
    }
    branches.truncate(1);
    branches.iter_mut().for_each(|(state, _)| state.key.is_certain = true);
    branches
}

/// Continues, ends the rule, or both if the match is unknown.
pub(super) fn goes_on(mut within: Within, matches: Option<bool>) -> Vec<Next> {
    match matches {
        Some(true) => vec![Next::On(within)],
        Some(false) => vec![Next::End(within.state, End::NoMatch)],
        None => {
            let state = within.state.perhaps();
            within.state = state.clone();
            vec![Next::On(within), Next::End(state, End::NoMatch)]
        }
    }
}

/// Writes the hash of a register; an unknown register has any hash.
fn hash(
    registers: &mut Registers,
    (from, to): (Register, Register),
    length: u32,
    (modulus, seed): (u32, u32),
) {
    let key: Option<Vec<u8>> = registers.read(from, place(length)).into_iter().collect();
    match key {
        Some(key) => {
            let hash = scale(jhash(&key, seed), modulus);
            registers.write(to, &known(&hash.to_ne_bytes()));
        }
        None => registers.draw(to, modulus, 0),
    }
}

fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
