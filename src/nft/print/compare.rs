//! Matches: comparisons of a register with values.

use std::time::Duration;

use super::kind::{Interfaces, Kind, beginning, number};
use super::load::{Bitrange, Load, Role, Term};
use super::printer::Printer;
use super::side::{HalfRange, Side, bits, extract, raw, raw_kind, run_of_ones};
use crate::expression::{Cmp, Data, Range};
use crate::key;
use crate::text::Time;

impl Printer<'_, '_> {
    pub(super) fn compare(&mut self, cmp: &Cmp) {
        let Data::Value(value) = &cmp.value else { return self.say("[cmp]".to_owned()) };
        let Some(load) = self.read(cmp.from, value.len()) else {
            return self.say("[cmp]".to_owned());
        };
        if cmp.operation == key::CMP_LESS_OR_EQUAL && self.end_range(&load, value) {
            return;
        }
        match (&load.term, cmp.operation) {
            (Term::Payload(range), _) => self.compare_payload(*range, &load, cmp.operation, value),
            (Term::Masked { of, mask, xor }, key::CMP_EQUAL | key::CMP_NOT_EQUAL)
                if xor.iter().all(|byte| *byte == 0) =>
            {
                self.compare_masked((of, mask), &load, cmp.operation, value);
            }
            _ => {
                let side = self.side(&load);
                if value.len() < side.length && side.kind.has_prefixes() {
                    let length = bits(side.length);
                    let side = Side { bits: bits(value.len()), ..side };
                    return self.push_beginning(&side, cmp.operation, value, length);
                }
                self.push_comparison(&side, cmp.operation, value);
            }
        }
        if cmp.operation == key::CMP_GREATER_OR_EQUAL
            && let Some(statement) = self.statements.len().checked_sub(1)
        {
            let (term, first) = (load.term, value.to_vec());
            let side = self.last_side.take();
            self.half = side.map(|side| HalfRange { statement, term, side, first });
        }
    }

    /// Turns `>=` of the statement before into a range.
    fn end_range(&mut self, load: &Load, last: &[u8]) -> bool {
        let Some(HalfRange { statement, term, side, first }) = self.half.take() else {
            return false;
        };
        if term != load.term || statement + 1 != self.statements.len() {
            return false;
        }
        let range = self.range_text(&side, &first, last);
        if let Some(text) = self.statements.get_mut(statement) {
            *text = Some(format!("{} {range}", side.text));
        }
        true
    }

    pub(super) fn range_text(&self, side: &Side, first: &[u8], last: &[u8]) -> String {
        let text = |value| side.kind.in_range().text(&side.big_endian(value), self.interfaces);
        format!("{}-{}", text(first), text(last))
    }

    /// Returns a range as a prefix where it is one.
    pub(super) fn prefix_or_range(&self, side: &Side, first: &[u8], last: &[u8]) -> String {
        let names = (side.kind == Kind::Name).then(|| beginning(first, last)).flatten();
        match prefix(side.kind, first, last) {
            _ if names.is_some() => names.unwrap_or_default(),
            Some(prefix) => format!("{}{prefix}", side.kind.text(first, self.interfaces)),
            None => self.range_text(side, first, last),
        }
    }

    pub(super) fn range(&mut self, range: &Range) {
        let (Data::Value(first), Data::Value(last)) = (&range.first, &range.last) else {
            return self.say("[range]".to_owned());
        };
        let Some(load) = self.read(range.from, first.len()) else {
            return self.say("[range]".to_owned());
        };
        let side = self.side(&load);
        let negated = if range.operation == key::RANGE_NOT_EQUAL { "!= " } else { "" };
        let text = self.range_text(&side, first, last);
        self.say(format!("{} {negated}{text}", side.text));
    }

    /// A load may hold several fields, or the first bytes of one.
    fn compare_payload(&mut self, range: Bitrange, load: &Load, operation: u32, value: &[u8]) {
        let end = range.offset.saturating_add(bits(value.len()));
        let mut at = range.offset;
        while at < end {
            let rest = Bitrange { offset: at, length: end - at, ..range };
            let first = || self.candidates(range.space, at).next();
            let Some((header, field)) = self.exact_field(rest).or_else(first) else {
                let side = Side { text: raw(rest), kind: raw_kind(range.space), ..self.side(load) };
                self.push_comparison(
                    &side,
                    operation,
                    &extract(value, at - range.offset, end - at),
                );
                return;
            };
            let length = field.2.min(end - at);
            let part = extract(value, at - range.offset, length);
            let side = self.field_side(range.space, header, field, load);
            let side = Side { host: false, shift: 0, bits: length, ..side };
            if length < field.2 {
                self.push_beginning(&side, operation, &part, field.2);
            } else {
                self.push_comparison(&side, operation, &part);
            }
            at += length;
        }
    }

    /// Compares the first bits of a field.
    fn push_beginning(&mut self, side: &Side, operation: u32, part: &[u8], length: u32) {
        let mut whole = part.to_vec();
        whole.resize(length.div_ceil(8) as usize, 0);
        let text = side.kind.text(&whole, self.interfaces);
        self.say(format!("{} {}{text}/{}", side.text, operator(operation, ""), side.bits));
    }

    fn compare_masked(
        &mut self,
        (of, mask): (&Load, &[u8]),
        load: &Load,
        operation: u32,
        value: &[u8],
    ) {
        let masked = self.side(load);
        if !masked.is_operation {
            return self.push_comparison(&masked, operation, value);
        }
        let side = self.side(of);
        let is_zero = value.iter().all(|byte| *byte == 0);
        let prefix = match run_of_ones(mask) {
            None if mask.iter().all(|byte| *byte == 0) => Some((0, 0)),
            found => found.filter(|(start, _)| *start == 0),
        };
        let text = match (side.kind, operation, prefix) {
            (Kind::Bits(_) | Kind::Label, key::CMP_NOT_EQUAL, _) if is_zero => {
                format!("{} {}", side.text, self.value(&side, mask))
            }
            (Kind::Bits(_), key::CMP_EQUAL, _) if is_zero => {
                format!("{} ! {}", side.text, self.value(&side, mask))
            }
            (Kind::Bits(_), _, _) => {
                let [value, mask] = [value, mask].map(|bits| self.value(&side, bits));
                format!("{} {}{value} / {mask}", side.text, operator(operation, ""))
            }
            (Kind::Ipv4 | Kind::Ipv6 | Kind::Ether, _, Some((_, length))) => {
                let value = self.value(&side, value);
                format!("{} {}{value}/{length}", side.text, operator(operation, ""))
            }
            _ => return self.push_comparison(&masked, operation, value),
        };
        self.say(text);
    }

    /// Appends a comparison, and notes what it says about the protocols.
    fn push_comparison(&mut self, side: &Side, operation: u32, value: &[u8]) {
        let equal = if side.is_operation || side.kind.is_bits() { "== " } else { "" };
        let text = if side.kind.is_bits() && !side.is_operation {
            self.operand_of_bits(side, value)
        } else {
            self.value(side, value)
        };
        self.say(format!("{} {}{text}", side.text, operator(operation, equal)));
        self.last_side = Some(side.clone());
        if operation != key::CMP_EQUAL || side.is_operation {
            return;
        }
        let statement = self.statements.len() - 1;
        let value = number(&side.big_endian(value));
        if side.role != Role::None {
            let redundant = self.protocols.learn(side.role, value, statement);
            redundant.into_iter().for_each(|statement| self.remove(statement));
        }
        if let Some(field) = side.field {
            self.protocols.learn_field(field, value, statement);
        }
    }

    fn operand_of_bits(&self, side: &Side, value: &[u8]) -> String {
        let text = self.operand(side, value);
        if text.contains('|') {
            Kind::Hex(1).text(&side.big_endian(value), self.interfaces)
        } else {
            text
        }
    }

    /// Returns a value of a field.
    pub(super) fn value(&self, side: &Side, value: &[u8]) -> String {
        let value = side.big_endian(value);
        // A single expiration has larger units than the ends of a range.
        if side.kind == Kind::Seconds {
            let milliseconds = u64::try_from(number(&value)).unwrap_or(u64::MAX);
            return Time(Duration::from_millis(milliseconds)).to_string();
        }
        side.kind.text(&value, self.interfaces)
    }
}

impl Kind {
    /// Returns one value, or a range, as a prefix where it is one.
    pub(crate) fn range_text(self, first: &[u8], last: &[u8], names: Interfaces<'_>) -> String {
        let text = self.text(first, names);
        match prefix(self, first, last) {
            _ if first == last => text,
            Some(prefix) => text + &prefix,
            None => format!("{text}-{}", self.text(last, names)),
        }
    }
}

/// Returns the length of the prefix that is this range, as `/24`; nothing for one value.
pub(super) fn prefix(kind: Kind, first: &[u8], last: &[u8]) -> Option<String> {
    if !kind.has_prefixes() {
        return None;
    }
    let differing: Vec<_> = first.iter().zip(last).map(|(first, last)| first ^ last).collect();
    let is_aligned = first.iter().zip(&differing).all(|(first, differing)| first & differing == 0);
    let inverted: Vec<_> = differing.iter().map(|byte| !byte).collect();
    let length = match run_of_ones(&inverted) {
        Some((0, length)) => length,
        None if inverted.iter().all(|byte| *byte == 0) => 0,
        Some(_) | None => return None,
    };
    (is_aligned && length < bits(first.len())).then(|| format!("/{length}"))
}

fn operator(operation: u32, equal: &'static str) -> &'static str {
    match operation {
        key::CMP_EQUAL => equal,
        key::CMP_NOT_EQUAL => "!= ",
        key::CMP_LESS => "< ",
        key::CMP_LESS_OR_EQUAL => "<= ",
        key::CMP_GREATER => "> ",
        key::CMP_GREATER_OR_EQUAL => ">= ",
        _ => "? ",
    }
}
