//! The state of the printer: registers, protocols, statements.

use super::kind::{Interfaces, Kind};
use super::load::{self, Bitrange, Load, Space, Term};
use super::protocols::Protocols;
use super::side::{HalfRange, Side, joined};
use super::{headers, names};

use crate::any::SetContents;
use crate::expression::Expression;
use crate::expression::{Bitwise, Byteorder, Data, Exthdr, Hash, Immediate, Payload, Reg};
use crate::family::TableFamily;

/// What the text of a rule depends on besides its expressions.
///
/// ```
/// use nft_netlink::{Expression, RuleContext, TableFamily};
///
/// let context = RuleContext { family: TableFamily::Inet, sets: &[], interfaces: &|_| None };
/// assert_eq!(context.text(&[Expression::Notrack]), "notrack");
/// ```
pub struct RuleContext<'a> {
    /// Family of the table.
    pub family: TableFamily,
    /// The sets of the table; of sets without a name, also the elements.
    pub sets: &'a [SetContents],
    /// Returns the name of the interface with this index.
    pub interfaces: &'a dyn Fn(u32) -> Option<String>,
}

impl RuleContext<'_> {
    /// Returns the rule as printed by `nft list`, without its comment.
    pub fn text(&self, expressions: &[Expression]) -> String {
        let mut printer = Printer::new(self);
        expressions.iter().for_each(|expression| printer.add(expression));
        printer.statements.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// Number of four-byte registers.
pub(super) const WORDS: usize = 16;
/// Largest contents of a register. Expressions that copy registers to each other could double them
/// again and again.
const MAX_SIZE: usize = 512;

/// The state of the virtual machine, and the statements so far.
pub(super) struct Printer<'a, 'c> {
    pub(super) context: &'c RuleContext<'a>,
    pub(super) interfaces: Interfaces<'c>,
    /// What begins at each register.
    pub(super) registers: [Option<Load>; WORDS],
    /// Registers whose contents a statement has read.
    pub(super) are_read: [bool; WORDS],
    pub(super) protocols: Protocols,
    /// The statements; `None` for one that a later one made redundant.
    pub(super) statements: Vec<Option<String>>,
    pub(super) half: Option<HalfRange>,
    /// The left side of the last comparison.
    pub(super) last_side: Option<Side>,
}

impl<'a, 'c> Printer<'a, 'c> {
    pub(super) fn new(context: &'c RuleContext<'a>) -> Self {
        Self {
            context,
            interfaces: context.interfaces,
            registers: Default::default(),
            are_read: Default::default(),
            protocols: Protocols::new(context.family),
            statements: Vec::new(),
            half: None,
            last_side: None,
        }
    }

    pub(super) fn say(&mut self, text: String) {
        self.statements.push(Some(text));
    }

    pub(super) fn remove(&mut self, statement: usize) {
        if let Some(text) = self.statements.get_mut(statement) {
            *text = None;
        }
    }

    pub(super) fn write(&mut self, to: Reg, load: Load) {
        let Some(first) = to.word() else { return };
        let load = if load.size() > MAX_SIZE {
            Load::key("[too long]", Kind::Hex(1), load.host, load.length)
        } else {
            load
        };
        let covered = self.registers.iter_mut().skip(first).take(load.length.div_ceil(4).max(1));
        covered.for_each(|register| *register = None);
        if let (Some(register), Some(is_read)) =
            (self.registers.get_mut(first), self.are_read.get_mut(first))
        {
            (*register, *is_read) = (Some(load), false);
        }
    }

    pub(super) fn load(&mut self, to: Reg, load: Option<Load>, name: &str) {
        let unknown = || Load::key(format!("[{name}]"), Kind::Hex(1), false, 4);
        self.write(to, load.unwrap_or_else(unknown));
    }

    /// Returns the contents from a register on, of `length` bytes: one load or several. With length
    /// 0, returns one load.
    pub(super) fn read(&self, from: Reg, length: usize) -> Option<Load> {
        let mut word = from.word()?;
        let first = self.registers.get(word)?.clone()?;
        if length <= first.length.next_multiple_of(4) {
            return Some(first);
        }
        let mut parts = Vec::new();
        let mut left = length;
        while left > 0 {
            let part = self.registers.get(word)?.clone()?;
            let taken = part.length.next_multiple_of(4).max(4);
            word += taken / 4;
            left = left.saturating_sub(taken);
            parts.push(part);
        }
        Some(Load { term: Term::Concatenation(parts), host: false, length })
    }

    /// Returns the key of a set from a register on. If the set is not known, the key is all that
    /// was loaded in a row before `end` and not read since.
    pub(super) fn read_key(&mut self, from: Reg, set: &str, end: Option<Reg>) -> Option<Load> {
        let length = match self.context.set(set) {
            Some(contents) => contents.set.key_length,
            None => self.length_of_unread(from, end),
        };
        let key = self.read(from, length);
        self.note_read(from, length);
        key
    }

    fn length_of_unread(&self, from: Reg, end: Option<Reg>) -> usize {
        let (Some(first), end) = (from.word(), end.and_then(Reg::word).unwrap_or(WORDS)) else {
            return 0;
        };
        let mut word = first;
        while let Some(Some(part)) = self.registers.get(word)
            && word < end
            && (word == first || self.are_read.get(word) == Some(&false))
        {
            word += part.length.div_ceil(4).max(1);
        }
        word.min(WORDS).saturating_sub(first) * 4
    }

    pub(super) fn note_read(&mut self, from: Reg, length: usize) {
        let Some(first) = from.word() else { return };
        let read = self.are_read.iter_mut().skip(first).take(length.div_ceil(4));
        read.for_each(|is_read| *is_read = true);
    }

    pub(super) fn payload(&mut self, payload: &Payload) {
        let space = match payload.base {
            0 => Space::Link,
            1 => Space::Network,
            2 => Space::Transport,
            _ => Space::Inner,
        };
        let range = Bitrange {
            space,
            offset: payload.offset.saturating_mul(8),
            length: payload.length.saturating_mul(8),
        };
        let length = payload.length as usize;
        let load = Load { term: Term::Payload(range), host: false, length };
        match (payload.to, payload.from) {
            (Some(to), _) => self.write(to, load),
            (None, Some(from)) => self.set_payload(range, &load, from),
            (None, None) => self.say("[payload]".to_owned()),
        }
    }

    pub(super) fn exthdr(&mut self, exthdr: &Exthdr) {
        const PRESENT: u32 = 1;
        let Some(space) = load::space(exthdr) else { return self.say("[exthdr]".to_owned()) };
        let name = self.option_name(space);
        let range = Bitrange {
            space,
            offset: exthdr.offset.saturating_mul(8),
            length: exthdr.length.saturating_mul(8),
        };
        let term = Term::Payload(range);
        let load = Load { term, host: false, length: exthdr.length as usize };
        match (exthdr.to, exthdr.from) {
            (Some(to), _) if exthdr.flags.unwrap_or_default() & PRESENT != 0 => {
                let header = self.protocols.header(space).unwrap_or(&headers::ETHER);
                for statement in self.protocols.redundant(space, header, "") {
                    self.remove(statement);
                }
                let kind = Kind::Word(names::BOOLEANS);
                self.write(to, Load::key(name, kind, true, 1));
            }
            (Some(to), _) => self.write(to, load),
            (None, Some(from)) => self.set_payload(range, &load, from),
            (None, None) => {
                let header = self.protocols.header(space).unwrap_or(&headers::ETHER);
                for statement in self.protocols.redundant(space, header, "") {
                    self.remove(statement);
                }
                self.say(format!("reset {name}"));
            }
        }
    }

    /// Returns an extension header or option as a whole.
    fn option_name(&self, space: Space) -> String {
        let header = self.protocols.header(space);
        let name =
            |kind: u8| header.map_or_else(|| kind.to_string(), |header| header.name.to_owned());
        match space {
            Space::TcpOption(kind) => format!("tcp option {}", name(kind)),
            Space::IpOption(kind) => format!("ip option {}", name(kind)),
            Space::SctpChunk(kind) => format!("sctp chunk {}", name(kind)),
            Space::Extension(kind) => format!("exthdr {}", name(kind)),
            Space::Link | Space::Network | Space::Transport | Space::Inner => String::new(),
        }
    }

    pub(super) fn bitwise(&mut self, bitwise: &Bitwise) {
        let length = bitwise.length as usize;
        let Some(of) = self.read(bitwise.from, length) else {
            return self.load(bitwise.to, None, "bitwise");
        };
        let host = of.host;
        let term = match (bitwise.operation.unwrap_or_default(), &bitwise.mask, &bitwise.xor) {
            (0, Some(Data::Value(mask)), Some(Data::Value(xor))) => {
                Term::Masked { of: Box::new(of), mask: mask.to_vec(), xor: xor.to_vec() }
            }
            (operation @ (1 | 2), ..) => {
                let by = match &bitwise.data {
                    Some(Data::Value(by)) => {
                        by.iter().rev().fold(0, |n, b| n << 8 | u128::from(*b))
                    }
                    _ => 0,
                };
                let operator = if operation == 1 { "<<" } else { ">>" };
                Term::Shifted { of: Box::new(of), operator, by }
            }
            _ => return self.load(bitwise.to, None, "bitwise"),
        };
        self.write(bitwise.to, Load { term, host, length });
    }

    /// Numbers change their byte order, if the field has one.
    pub(super) fn byteorder(&mut self, byteorder: &Byteorder) {
        let Some(mut load) = self.read(byteorder.from, 0) else { return };
        if load.length > 1 {
            load.host = !load.host;
        }
        self.write(byteorder.to, load);
    }

    pub(super) fn immediate(&mut self, immediate: &Immediate) {
        match &immediate.data {
            Data::Verdict(verdict) => self.say(verdict.to_string()),
            Data::Code(CONTINUE) => self.say("continue".to_owned()),
            Data::Code(code) => self.say(format!("[verdict {code}]")),
            Data::Value(value) => {
                let term = Term::Value(value.to_vec());
                self.write(immediate.to, Load { term, host: false, length: value.len() });
            }
        }
    }

    pub(super) fn hash(&mut self, hash: &Hash) {
        let length = hash.length.unwrap_or_default() as usize;
        let of = hash.from.and_then(|from| self.read(from, length));
        hash.from.into_iter().for_each(|from| self.note_read(from, length));
        let of = of.map(|of| joined(&self.sides(&of))).unwrap_or_default();
        self.write(hash.to, load::hash(hash, &of));
    }
}

/// `NFT_CONTINUE`.
const CONTINUE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{Dynset, Lookup, Numgen, ip, meta, th};

    /// The rule without any set of the table.
    fn text(expressions: &[Expression]) -> String {
        RuleContext { family: TableFamily::Ip, sets: &[], interfaces: &|_| None }.text(expressions)
    }

    fn at(word: u8) -> Reg {
        Reg::of_word(word)
    }

    #[test]
    fn a_key_of_an_unknown_set_is_all_that_is_loaded_in_a_row() {
        let loads = [ip::daddr(at(0)), meta::l4proto(at(1)), th::dport(at(2))];
        let in_set = Lookup::not_in_set("services", at(0));
        let rule = [&loads[..], &[in_set]].concat();
        assert_eq!(text(&rule), "ip daddr . meta l4proto . th dport != @services");
    }

    #[test]
    fn what_a_hash_or_another_key_has_read_is_no_part_of_the_next_key() {
        let hashed = [
            meta::priority(at(0)),
            ip::saddr(at(1)),
            th::sport(at(2)),
            Hash::jenkins(at(1), 8, 251, 1),
            Lookup::in_map("places", at(0), at(0)),
            meta::set_priority(at(0)),
        ];
        let places = "meta priority set meta priority . jhash ip saddr . th sport mod 251 seed 0x1 \
                      map @places";
        assert_eq!(text(&hashed), places);
        let twice = [
            meta::l4proto(at(0)),
            Numgen::random(2, at(1)),
            Lookup::in_set("pairs", at(0)),
            meta::l4proto(at(0)),
            Lookup::in_set("protocols", at(0)),
        ];
        let expected = "meta l4proto . numgen random mod 2 @pairs meta l4proto @protocols";
        assert_eq!(text(&twice), expected);
    }

    #[test]
    fn the_data_of_an_element_is_no_part_of_its_key() {
        let update = Dynset { data: Some(at(1)), ..Dynset::new(1, "clients", at(0)) };
        let rule = [ip::saddr(at(0)), meta::priority(at(1)), update.into()];
        assert_eq!(text(&rule), "update @clients { ip saddr : meta priority }");
    }
}
