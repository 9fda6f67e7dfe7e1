//! One rule for one packet: what each instruction does.

use std::net::{IpAddr, SocketAddr};

use super::jhash::{jhash, scale};
use super::packet::{CtValue, Field, Tracking, known, octets, unknown};
use super::registers::{Draw, Registers};
use super::rules::{Facts, Found, Table, TableId};
use super::state::State;
use super::step::{Event, RuleStep};
use crate::kernel::{Route, Way};
use crate::nft::{
    AnyElement, AnyRule, DynsetOperation, ElementData, Expr, Family, Instruction, Order, Register,
    Verdict, key,
};

/// How a rule ends for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// It did not match; the next rule follows.
    NoMatch,
    /// It matched to its end; the next rule follows.
    Next,
    /// It ended with a verdict.
    Verdict(Verdict),
    /// It refused the packet.
    Reject,
    /// An unknown expression may have ended the way of the packet.
    Unknown,
}

/// A way through one rule.
pub(super) type Branch = (State, End);

/// The rule that is run, and where.
pub(super) struct Run<'a, F> {
    pub(super) facts: &'a mut F,
    pub(super) id: &'a TableId,
    pub(super) table: &'a Table,
    pub(super) step: &'a mut RuleStep,
}

/// A packet within a rule.
#[derive(Clone)]
struct Within {
    state: State,
    registers: Registers,
}

/// What an instruction does with a packet.
enum Next {
    /// The instruction after it follows.
    On(Within),
    /// The rule ends.
    End(State, End),
}

/// Numbers that are drawn and run one by one; of more, nothing is said.
const MOST_DRAWN: u32 = 65_536;

impl<F: Facts> Run<'_, F> {
    /// All ways through the rule.
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
            Instruction::Order { from, order, value } => {
                let is_true = compare(&within.registers.read(*from, value.len()), value)
                    .map(|it| order.holds(it));
                return self.test(within, is_true);
            }
            Instruction::Range { from, negated, first, last } => {
                let field = within.registers.read(*from, first.len());
                let in_range = match (compare(&field, first), compare(&field, last)) {
                    (Some(low), Some(high)) => Some(low.is_ge() && high.is_le()),
                    (_, _) => None,
                };
                return self.test(within, in_range.map(|it| it != *negated));
            }
            Instruction::Byteorder { from, to, length, size } => {
                let field = within.registers.read(*from, place(*length));
                within.registers.write(*to, &swapped(&field, place(*size)));
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
            Expr::FibType { flags, to } => {
                let kind = self.address_type(*flags, &within.state);
                let field = kind.map_or_else(|| unknown(4), |kind| known(&kind.to_ne_bytes()));
                within.registers.write(*to, &field);
            }
            Expr::Numgen { modulus, to } => within.registers.draw(*to, *modulus, 0),
            Expr::Jhash { from, length, modulus, seed, to } => {
                let key: Option<Vec<u8>> =
                    within.registers.read(*from, place(*length)).into_iter().collect();
                match key {
                    Some(key) => {
                        let hash = scale(jhash(&key, *seed), *modulus);
                        within.registers.write(*to, &known(&hash.to_ne_bytes()));
                    }
                    None => within.registers.draw(*to, *modulus, 0),
                }
            }
            Expr::Cmp { from, negated, value } => {
                if let Some(draw) = within.registers.drawn(*from, value.len()) {
                    return self.each_drawn(within, draw, expr);
                }
                let is_equal = equal(&within.registers.read(*from, value.len()), value);
                return self.test(within, is_equal.map(|it| it != *negated));
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
            Expr::Other(name) => return self.unknown_expression(name, within),
        }
        vec![Next::On(within)]
    }

    fn unknown(&mut self, what: &str) {
        self.step.note(Event::Unknown(what.to_owned()));
        self.step.is_certain = false;
    }

    /// Goes on if a comparison is true.
    fn test(&mut self, within: Within, is_true: Option<bool>) -> Vec<Next> {
        if is_true.is_none() {
            self.unknown("what the rule compares is not known of this packet");
        }
        goes_on(within, is_true)
    }

    /// It may match or not; one that is no test may also end the way of the packet.
    fn unknown_expression(&mut self, name: &str, mut within: Within) -> Vec<Next> {
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

    fn verdict(&mut self, state: State, verdict: Verdict) -> Vec<Next> {
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

    /// The kind of an address, as routing sees it; `None` if that is not known.
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
            // `inet_addr_type` looks in the table `local` only.
            Family::Ip => key::ROUTE_UNICAST,
            Family::Ip6 => ROUTE_UNREACHABLE,
        };
        match self.facts.route(address, Way::default())? {
            Ok(Route { kind, .. }) => Some(kind),
            Err(_) => Some(no_route),
        }
    }

    /// Runs an expression for each number that may have been drawn.
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

    fn look_up(
        &mut self,
        set: &str,
        from: Register,
        (to, negated): (Option<Register>, bool),
        within: Within,
    ) -> Vec<Next> {
        let Some(length) = self.table.sets.get(set).map(|set| set.key_length) else {
            return self.unknown_expression(&format!("lookup in @{set}"), within);
        };
        if let Some(draw) = within.registers.drawn(from, length) {
            return self.look_up_drawn(set, from, to, (within, draw));
        }
        let key: Option<Vec<u8>> = within.registers.read(from, length).into_iter().collect();
        let found = match &key {
            Some(key) => self.find(set, key, &within.state),
            None => Found::Unknown("the key is not known".to_owned()),
        };
        match found {
            Found::Unknown(why) => {
                self.unknown(&format!("whether @{set} has the key: {why}"));
                let mut within = within;
                to.iter().for_each(|to| within.registers.write(*to, &unknown(16)));
                match to {
                    Some(Register::Verdict) => {
                        let state = within.state.perhaps();
                        vec![Next::End(state.clone(), End::NoMatch), Next::End(state, End::Unknown)]
                    }
                    Some(Register::Word(_)) | None => goes_on(within, None),
                }
            }
            Found::Missing => {
                self.note_missing(set, key);
                goes_on(within, Some(negated))
            }
            Found::Element(element) => {
                self.note_found(set, key, &element);
                match negated {
                    true => goes_on(within, Some(false)),
                    false => self.load_data(to, element, within),
                }
            }
        }
    }

    fn note_missing(&mut self, set: &str, key: Option<Vec<u8>>) {
        let (set, key) = (set.to_owned(), key.unwrap_or_default());
        self.step.note(Event::Missing { set, key });
    }

    fn note_found(&mut self, set: &str, key: Option<Vec<u8>>, element: &AnyElement) {
        let (data, comment) = (element.data.clone(), element.comment.clone());
        let (set, key) = (set.to_owned(), key.unwrap_or_default());
        self.step.note(Event::Found { set, key, data, comment });
    }

    /// Loads what a map has, or takes its verdict.
    fn load_data(
        &mut self,
        to: Option<Register>,
        element: AnyElement,
        mut within: Within,
    ) -> Vec<Next> {
        match (to, element.data) {
            (Some(Register::Verdict), Some(ElementData::Verdict(verdict))) => {
                self.verdict(within.state, verdict)
            }
            (Some(Register::Verdict), _) => self.unknown_expression("verdict", within),
            (Some(to), Some(ElementData::Value(value))) => {
                within.registers.write(to, &known(&value));
                vec![Next::On(within)]
            }
            (Some(Register::Word(_)), _) => self.unknown_expression("data of a map", within),
            (None, _) => vec![Next::On(within)],
        }
    }

    /// Looks up every number that may have been drawn. Equal results are one way.
    fn look_up_drawn(
        &mut self,
        set: &str,
        from: Register,
        to: Option<Register>,
        (within, draw): (Within, Draw),
    ) -> Vec<Next> {
        if !(1..=MOST_DRAWN).contains(&draw.modulus) {
            self.unknown("a number is drawn below so many that the outcomes are not followed");
            return goes_on(within, None);
        }
        let length = self.table.sets.get(set).map_or(0, |set| set.key_length);
        let mut results: Vec<(Found, u32)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for number in 0..draw.modulus {
            let registers = within.registers.with(draw, number);
            let key: Option<Vec<u8>> = registers.read(from, length).into_iter().collect();
            let found = match key {
                Some(key) => self.find(set, &key, &within.state),
                None => Found::Unknown("the key is not known".to_owned()),
            };
            let place = *places.entry(data_key(&found)).or_insert(results.len());
            match results.get_mut(place) {
                Some((_, count)) => *count += 1,
                None => results.push((found, 1)),
            }
        }
        let missing = results.iter().find(|(found, _)| *found == Found::Missing);
        let hits = draw.modulus - missing.map_or(0, |(_, count)| *count);
        self.step.note(Event::Drawn { set: set.to_owned(), of: draw.modulus, hits });
        let mut nexts = Vec::new();
        for (found, count) in results {
            let share = f64::from(count) / f64::from(draw.modulus);
            let part = Within { state: within.state.part(share), ..within.clone() };
            nexts.extend(match found {
                Found::Element(element) => self.load_data(to, element, part),
                Found::Missing => vec![Next::End(part.state, End::NoMatch)],
                Found::Unknown(why) => {
                    self.unknown(&why);
                    goes_on(part, None)
                }
            });
        }
        nexts
    }

    /// What a packet finds, also of what it wrote itself.
    fn find(&mut self, set: &str, key: &[u8], state: &State) -> Found {
        let written = (self.id.name.clone(), set.to_owned(), key.to_vec());
        match state.key.written.get(&written) {
            Some(Some(data)) => {
                let data = Some(ElementData::Value(data.clone()));
                return Found::Element(AnyElement {
                    key: key.to_vec(),
                    data,
                    ..Default::default()
                });
            }
            Some(None) => return Found::Missing,
            None => {}
        }
        match self.table.sets.get(set) {
            Some(set) => self.facts.element(self.id, set, key),
            None => Found::Unknown("there is no such set".to_owned()),
        }
    }

    /// Remembers what a rule writes for the rules after it. An element that is there keeps its data.
    fn write_element(
        &mut self,
        (operation, set): (DynsetOperation, &str),
        key: Register,
        data: Option<Register>,
        within: &mut Within,
    ) {
        let lengths = self.table.sets.get(set).map(|set| (set.key_length, set.data_length));
        let Some((key_length, data_length)) = lengths else { return };
        let bytes = |register, length| -> Option<Vec<u8>> {
            within.registers.read(register, length).into_iter().collect()
        };
        let Some(key) = bytes(key, key_length) else {
            return self.unknown(&format!("@{set} gets an element whose key is not known"));
        };
        let data = match data {
            Some(data) => bytes(data, data_length),
            None => Some(Vec::new()),
        };
        let is_there = matches!(self.find(set, &key, &within.state), Found::Element(_));
        let written = (self.id.name.clone(), set.to_owned(), key);
        match (operation, data) {
            (DynsetOperation::Delete, _) => {
                within.state.key.written.insert(written, None);
            }
            (DynsetOperation::Update, Some(data)) if !is_there => {
                within.state.key.written.insert(written, Some(data));
            }
            (DynsetOperation::Update, Some(_)) => {}
            (DynsetOperation::Update, None) => {
                self.unknown(&format!("@{set} gets an element whose data is not known"));
            }
        }
    }

    /// Translation ends the base chain for the packet.
    fn translate(
        &mut self,
        mut within: Within,
        source: bool,
        (address, port): (Option<Register>, Option<Register>),
        is_range: bool,
    ) -> Vec<Next> {
        if is_range && !source {
            self.unknown("the kernel chooses of a range; its first address and port are shown");
        }
        let family = within.state.packet().family();
        if source {
            self.step.note(Event::Source);
            let packet = within.state.packet_mut();
            (packet.is_snat, packet.source_done, packet.source_port) = (true, true, None);
            return self.accept(within.state);
        }
        let length = octets(within.state.packet().destination).len();
        let to = match address {
            Some(address) => ip(family, &within.registers.read(address, length)),
            None => Some(within.state.packet().destination),
        };
        let port = match port {
            Some(port) => port_of(&within.registers.read(port, 2)),
            None => Some(within.state.packet().port),
        };
        let (Some(to), Some(port)) = (to, port) else {
            return self.unknown_expression("dnat to an address that is not known", within);
        };
        self.send_to(within.state, SocketAddr::new(to, port))
    }

    fn send_to(&mut self, mut state: State, to: SocketAddr) -> Vec<Next> {
        self.step.note(Event::Destination(to));
        let packet = state.packet_mut();
        packet.is_dnat |= SocketAddr::new(packet.destination, packet.port) != to;
        (packet.destination, packet.port, packet.destination_done) = (to.ip(), to.port(), true);
        self.accept(state)
    }

    /// To the node itself: for its own packets to the loopback address, else to the address of the
    /// interface that the packet came in by, which is not read.
    fn redirect(&mut self, within: Within, port: Option<Register>) -> Vec<Next> {
        let packet = within.state.packet();
        let loopback = match packet.family() {
            Family::Ip => IpAddr::from([127, 0, 0, 1]),
            Family::Ip6 => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16]),
        };
        let to_port = match port {
            Some(port) => port_of(&within.registers.read(port, 2)),
            None => Some(packet.port),
        };
        match to_port {
            Some(port) if packet.input.index == 0 => {
                self.send_to(within.state, SocketAddr::new(loopback, port))
            }
            Some(_) | None => self.unknown_expression("redirect", within),
        }
    }

    fn accept(&mut self, state: State) -> Vec<Next> {
        vec![Next::End(state, End::Verdict(Verdict::Accept))]
    }
}

/// `RTN_UNREACHABLE` of `<linux/rtnetlink.h>`.
const ROUTE_UNREACHABLE: u32 = 7;

/// Expressions that end a rule at most, whatever their use.
const TESTS: &[&str] = &[
    "bitwise", "cmp", "ct", "dynset", "exthdr", "fib", "inner", "lookup", "meta", "osf", "payload",
    "rt", "socket", "tunnel", "xfrm",
];

/// One way where all ways end alike: what is not known did not matter.
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

/// Goes on, ends the rule, or both if that is not known.
fn goes_on(mut within: Within, matches: Option<bool>) -> Vec<Next> {
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

/// By what results of a lookup are one: not by comment or key.
fn data_key(found: &Found) -> String {
    match found {
        Found::Element(element) => format!("{:?}", element.data),
        Found::Missing => "missing".to_owned(),
        Found::Unknown(why) => format!("unknown {why}"),
    }
}

impl Order {
    fn holds(self, ordering: std::cmp::Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// `None` if an unknown byte decides.
fn equal(field: &Field, value: &[u8]) -> Option<bool> {
    let pairs = || field.iter().zip(value);
    if pairs().any(|(byte, value)| byte.is_some_and(|byte| byte != *value)) {
        return Some(false);
    }
    pairs().all(|(byte, _)| byte.is_some()).then_some(true)
}

fn compare(field: &Field, value: &[u8]) -> Option<std::cmp::Ordering> {
    let bytes: Option<Vec<u8>> = field.iter().copied().collect();
    bytes.map(|bytes| bytes.as_slice().cmp(value))
}

/// A bit of an unknown byte that the mask clears is known.
fn masked(field: &Field, mask: &[u8], xor: &[u8]) -> Field {
    let step = |((byte, mask), xor): ((&Option<u8>, &u8), &u8)| match byte {
        Some(byte) => Some((byte & mask) ^ xor),
        None if *mask == 0 => Some(*xor),
        None => None,
    };
    field.iter().zip(mask).zip(xor).map(step).collect()
}

/// Each number with its bytes in the other order, where host and network byte order differ.
fn swapped(field: &Field, size: usize) -> Field {
    if cfg!(target_endian = "big") || size == 0 {
        return field.clone();
    }
    field.chunks(size).flat_map(|number| number.iter().rev().copied()).collect()
}

fn number(field: &Field) -> Option<u32> {
    let bytes: Option<Vec<u8>> = field.iter().copied().collect();
    Some(u32::from_ne_bytes(bytes?.try_into().ok()?))
}

fn port_of(field: &Field) -> Option<u16> {
    let bytes: Option<Vec<u8>> = field.iter().copied().collect();
    Some(u16::from_be_bytes(bytes?.try_into().ok()?))
}

fn ip(family: Family, field: &Field) -> Option<IpAddr> {
    let bytes: Vec<u8> = field.iter().copied().collect::<Option<_>>()?;
    match family {
        Family::Ip => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        Family::Ip6 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    }
}

fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
