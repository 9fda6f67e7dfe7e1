//! Evaluates one rule for one packet, expression by expression.
//!
//! Where the packet is not known, both results are returned, never one: an expression takes a packet
//! [`Within`] the rule to its [`Next`] positions, and the rule ends in one or more [`Branch`]es.

use network::{Route, Way};
use nft::expression::{Bitwise, Byteorder, Ct, Data, Fib, Hash, Objref, Range, Reg};
use nft::{Expression, Family, ListedRule, Object, RuleContext, TableRef, Verdict, key};

use super::field::{compare, holds, masked, number, swapped};
use super::jhash::{jhash, scale};
use super::packet::{CtValue, Tracking, known, unknown};
use super::registers::{Draw, Registers};
use super::rules::{Facts, TableRules};
use super::state::State;
use super::step::{Event, Hop, RuleStep};

/// Result of a rule for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// The rule did not match; evaluation continues with the next rule.
    NoMatch,
    /// The rule matched to its end; evaluation continues with the next rule.
    Next,
    /// The rule ended with a verdict.
    Verdict(Verdict),
    /// The rule sent the packet by a device.
    Handed(Hop),
    /// The rule rejected the packet.
    Reject,
    /// An unknown expression may have ended the evaluation of the packet.
    Unknown,
}

/// A possible result of one rule.
pub(super) type Branch = (State, End);

/// A rule under evaluation, and its position.
pub(super) struct Evaluation<'a, F> {
    pub(super) facts: &'a mut F,
    pub(super) id: &'a TableRef,
    pub(super) table: &'a TableRules,
    pub(super) step: &'a mut RuleStep,
}

/// A packet within a rule.
#[derive(Clone)]
pub(super) struct Within {
    pub(super) state: State,
    pub(super) registers: Registers,
}

/// Effect of an expression on a packet.
pub(super) enum Next {
    /// Evaluation continues with the next expression.
    On(Within),
    /// The rule ends.
    End(State, End),
}

/// Most possible numbers that are evaluated one by one; with more the result is unknown.
pub(super) const MOST_DRAWN: u32 = 65_536;

impl<F: Facts> Evaluation<'_, F> {
    /// Returns all possible results of a rule.
    pub(super) fn rule(&mut self, rule: &ListedRule, state: State) -> Vec<Branch> {
        let was_certain = state.key.is_certain;
        let mut ends = Vec::new();
        let mut left = vec![(Within { state, registers: Registers::new() }, 0)];
        while let Some((within, place)) = left.pop() {
            let Some(expression) = rule.expressions.get(place) else {
                ends.push((within.state, End::Next));
                continue;
            };
            for next in self.expression(expression, within) {
                match next {
                    Next::On(within) => left.push((within, place + 1)),
                    Next::End(state, end) => ends.push((state, end)),
                }
            }
        }
        settled(ends, was_certain)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are loads or acts")]
    fn expression(&mut self, expression: &Expression, within: Within) -> Vec<Next> {
        match expression {
            Expression::Cmp(cmp) => {
                let Data::Value(value) = &cmp.value else {
                    return self.unknown_expression("cmp", within);
                };
                let is_equality = matches!(cmp.operation, key::CMP_EQUAL | key::CMP_NOT_EQUAL);
                let draw = within.registers.drawn(cmp.from, value.len());
                if let Some(draw) = draw.filter(|_| is_equality) {
                    return self.each_drawn(within, draw, expression);
                }
                let is_true =
                    holds(cmp.operation, &within.registers.read(cmp.from, value.len()), value);
                self.test(within, is_true)
            }
            Expression::Range(Range {
                from,
                operation,
                first: Data::Value(first),
                last: Data::Value(last),
            }) => {
                let field = within.registers.read(*from, first.len());
                let in_range = match (compare(&field, first), compare(&field, last)) {
                    (Some(low), Some(high)) => Some(low.is_ge() && high.is_le()),
                    (_, _) => None,
                };
                let is_negated = *operation == key::RANGE_NOT_EQUAL;
                self.test(within, in_range.map(|it| it != is_negated))
            }
            Expression::Lookup(lookup) => self.look_up(lookup, within),
            other => self.loads(other, within),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others act")]
    fn loads(&mut self, expression: &Expression, mut within: Within) -> Vec<Next> {
        match expression {
            Expression::Payload(it) => match it.to {
                Some(to) => {
                    let field = within.state.packet().payload(it.base, it.offset, it.length);
                    within.registers.write(to, &field);
                }
                None => return self.unknown_expression("payload", within),
            },
            Expression::Meta(meta) => match (meta.to, meta.from) {
                (Some(to), _) => {
                    let field = within.state.packet().meta(meta.key);
                    within.registers.write(to, &field.unwrap_or_else(|| unknown(16)));
                }
                (None, Some(from)) => self.set_meta(meta.key, from, &mut within),
                (None, None) => return self.unknown_expression("meta", within),
            },
            Expression::Ct(ct) => return self.ct(ct, within),
            Expression::Byteorder(Byteorder { from, to, length, size, .. }) => {
                let field = within.registers.read(*from, place(*length));
                within.registers.write(*to, &swapped(&field, place(*size)));
            }
            Expression::Bitwise(Bitwise {
                from,
                to,
                mask: Some(Data::Value(mask)),
                xor: Some(Data::Value(xor)),
                ..
            }) => {
                if let Some(draw) = within.registers.drawn(*from, mask.len()) {
                    return self.each_drawn(within, draw, expression);
                }
                let field = within.registers.read(*from, mask.len());
                within.registers.write(*to, &masked(&field, mask, xor));
            }
            Expression::Fib(fib) => self.fib(fib, &mut within),
            Expression::Numgen(it) => within.registers.draw(it.to, it.modulus, it.offset),
            Expression::Hash(it) => hash(&mut within.registers, it),
            other => return self.act(other, within),
        }
        vec![Next::On(within)]
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are uncertain")]
    fn act(&mut self, expression: &Expression, mut within: Within) -> Vec<Next> {
        match expression {
            Expression::Immediate(immediate) => match &immediate.data {
                Data::Value(value) => within.registers.write(immediate.to, &known(value)),
                Data::Verdict(verdict) => return self.verdict(within.state, verdict.clone()),
                Data::Code(_) => return self.unknown_expression("immediate", within),
            },
            Expression::Nat(nat) => return self.nat(nat, within),
            Expression::Masq(_) => return self.translate_source(within),
            Expression::Redir(redir) => return self.redirect(within, redir.port),
            Expression::Reject(_) => {
                self.step.note(Event::Reject);
                return vec![Next::End(within.state, End::Reject)];
            }
            Expression::Dynset(dynset) => return self.dynset(dynset, within),
            Expression::Fwd(fwd) => return self.hand_on(fwd, within),
            // The first packet of a connection is never added to a flowtable.
            Expression::FlowOffload(_) => return vec![Next::End(within.state, End::NoMatch)],
            Expression::Notrack => within.state.packet_mut().tracking = Tracking::Untracked,
            Expression::CounterExpression(_)
            | Expression::Log(_)
            | Expression::Last(_)
            | Expression::Dup(_) => {}
            Expression::Limit(_) | Expression::Quota(_) | Expression::Connlimit(_) => {
                return self.limited(expression.name(), within);
            }
            Expression::Objref(Objref { kind: Some(kind), .. }) => match *kind {
                Object::COUNTER | CT_HELPER | CT_TIMEOUT | SECMARK => {}
                Object::QUOTA | Object::LIMIT | CONNLIMIT => {
                    let context =
                        RuleContext { family: self.id.family, sets: &[], interfaces: &|_| None };
                    let text = context.text(std::slice::from_ref(expression));
                    return self.limited(&text, within);
                }
                _ => return self.unknown_expression("objref", within),
            },
            Expression::Match(it) if it.match_name == "comment" => {}
            Expression::Match(it) => {
                return self.unknown_expression(&format!("xt match \"{}\"", it.match_name), within);
            }
            Expression::Target(it) if matches!(&*it.target_name, "LOG" | "NFLOG" | "TRACE") => {}
            Expression::Target(it) => {
                let name = format!("xt target \"{}\"", it.target_name);
                return self.unknown_expression(&name, within);
            }
            other => return self.unknown_expression(other.name(), within),
        }
        vec![Next::On(within)]
    }

    fn ct(&mut self, ct: &Ct, mut within: Within) -> Vec<Next> {
        let Some(to) = ct.to else {
            if let (key::CT_MARK, Some(from)) = (ct.key, ct.from) {
                match number(&within.registers.read(from, 4)) {
                    Some(mark) => within.state.packet_mut().ct_mark = mark,
                    None => self.unknown("ct mark gets a value that is not known"),
                }
            }
            return vec![Next::On(within)];
        };
        const ORIGINAL: u8 = 0;
        let value = match ct.direction {
            None => within.state.packet().ct(ct.key),
            Some(ORIGINAL) => within.state.packet().ct_original(ct.key),
            Some(_) => None,
        };
        match value {
            Some(CtValue::Value(field)) => within.registers.write(to, &field),
            Some(CtValue::Missing) => return vec![Next::End(within.state, End::NoMatch)],
            None => within.registers.write(to, &unknown(16)),
        }
        vec![Next::On(within)]
    }

    fn fib(&mut self, fib: &Fib, within: &mut Within) {
        if fib.result != key::FIB_RESULT_TYPE {
            self.unknown("a route that a rule looks up is not looked up here");
            within.registers.write(fib.to, &unknown(16));
            return;
        }
        let kind = self.address_type(fib.flags, &within.state);
        let field = kind.map_or_else(|| unknown(4), |kind| known(&kind.to_ne_bytes()));
        within.registers.write(fib.to, &field);
    }

    /// Both matches and does not match: a rate or a count decides.
    pub(super) fn limited(&mut self, what: &str, within: Within) -> Vec<Next> {
        self.unknown(&format!("{what}: a rate or count decides"));
        goes_on(within, None)
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

    fn set_meta(&mut self, number_of: u32, from: Reg, within: &mut Within) {
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
    fn each_drawn(&mut self, within: Within, draw: Draw, expression: &Expression) -> Vec<Next> {
        if !(1..=MOST_DRAWN).contains(&draw.modulus) {
            self.unknown("a number is drawn below so many that the outcomes are not followed");
            return goes_on(within, None);
        }
        let share = 1.0 / f64::from(draw.modulus);
        let mut nexts = Vec::new();
        for number in 0..draw.modulus {
            let state = within.state.part(share);
            let registers = within.registers.with(draw, number);
            nexts.extend(self.expression(expression, Within { state, registers }));
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

/// Writes a hash: that of `jhash` with a known seed and input, or else any.
fn hash(registers: &mut Registers, hash: &Hash) {
    let offset = hash.offset.unwrap_or_default();
    let input = hash.from.filter(|_| hash.kind == key::HASH_JENKINS && offset == 0);
    let input = input.zip(hash.length).zip(hash.seed);
    let known_input = input.and_then(|((from, length), seed)| {
        let bytes: Option<Vec<u8>> = registers.read(from, place(length)).into_iter().collect();
        bytes.map(|bytes| (bytes, seed))
    });
    match known_input {
        Some((bytes, seed)) => {
            let result = scale(jhash(&bytes, seed), hash.modulus);
            registers.write(hash.to, &known(&result.to_ne_bytes()));
        }
        None => registers.draw(hash.to, hash.modulus, offset),
    }
}

/// `NFT_OBJECT_*` of `<linux/netfilter/nf_tables.h>`.
const CT_HELPER: u32 = 3;
const CONNLIMIT: u32 = 5;
const CT_TIMEOUT: u32 = 7;
const SECMARK: u32 = 8;

fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
