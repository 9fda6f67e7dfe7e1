//! The fields that a load has, by the bits that it reads and the protocols that are known.

use super::headers;
use super::kind::{Kind, number};
use super::load::{Bitrange, Load, Space, Term};
use super::printer::Printer;
use super::side::{Side, bits, joined, raw, raw_kind, run_of_ones};

impl Printer<'_, '_> {
    /// Returns the field with exactly these bits.
    pub(super) fn exact_field(
        &self,
        range: Bitrange,
    ) -> Option<(&'static headers::ProtocolHeader, &'static headers::HeaderField)> {
        self.candidates(range.space, range.offset).find(|(_, field)| field.2 == range.length)
    }

    /// Returns the fields that begin at this bit.
    pub(super) fn candidates(
        &self,
        space: Space,
        offset: u32,
    ) -> impl Iterator<Item = (&'static headers::ProtocolHeader, &'static headers::HeaderField)> + use<>
    {
        let icmp = self.protocols.icmp_type.map(|(kind, _)| kind);
        let known = self.protocols.header(space);
        // A VLAN header is read after the Ethernet header, and a segment routing header is a
        // routing header.
        let outer = (known == Some(&headers::VLAN)).then_some(&headers::ETHER);
        let inner: &[headers::ProtocolHeader] = if space == Space::Extension(43) {
            &headers::SEGMENTS
        } else if space == Space::TcpOption(5) {
            &headers::SACKS
        } else {
            &[]
        };
        let all = known.into_iter().chain(outer).chain(inner);
        all.flat_map(|header| header.fields.iter().map(move |field| (header, field))).filter(
            move |(header, field)| {
                let fits = match (header.name, field.0) {
                    ("icmp", "gateway") => icmp == Some(5),
                    ("icmp", "mtu") => icmp == Some(3),
                    ("icmp", "sequence") => icmp != Some(3),
                    ("icmpv6", "parameter-problem") => icmp == Some(4),
                    ("icmpv6", "max-delay") => icmp == Some(130),
                    ("icmpv6", "id") => icmp != Some(130),
                    _ => true,
                };
                field.1 == offset && fits
            },
        )
    }

    /// Returns the fields of a load, and removes matches that they make redundant.
    pub(super) fn sides(&mut self, load: &Load) -> Vec<Side> {
        match &load.term {
            Term::Concatenation(parts) => parts.iter().flat_map(|part| self.sides(part)).collect(),
            Term::Mapped { text, kinds } => {
                let kind = kinds.first().map_or(Kind::Number, |(kind, ..)| *kind);
                vec![Side::new(text.clone(), kind, load)]
            }
            Term::Payload(_)
            | Term::Key { .. }
            | Term::Value(_)
            | Term::Masked { .. }
            | Term::Shifted { .. } => vec![self.side(load)],
        }
    }

    /// Returns the only field of a load, or its text as one.
    pub(super) fn side(&mut self, load: &Load) -> Side {
        match &load.term {
            Term::Payload(range) => self.payload_side(*range, load),
            Term::Key { text, kind, role } => {
                Side { role: *role, ..Side::new(text.clone(), *kind, load) }
            }
            Term::Value(value) => Side::new(super::kind::hexadecimal(value), Kind::Number, load),
            Term::Masked { of, mask, xor } => self.masked_side(of, mask, xor, load),
            Term::Shifted { of, operator, by } => {
                let of = self.side(of);
                let operand =
                    if of.is_operation { format!("({})", of.text) } else { of.text.clone() };
                Side { text: format!("{operand} {operator} {by}"), is_operation: true, ..of }
            }
            Term::Concatenation(_) | Term::Mapped { .. } => {
                let sides = self.sides(load);
                let kind = sides.first().map_or(Kind::Number, |side| side.kind);
                Side::new(joined(&sides), kind, load)
            }
        }
    }

    fn payload_side(&mut self, range: Bitrange, load: &Load) -> Side {
        match self.exact_field(range) {
            Some((header, field)) => self.field_side(range.space, header, field, load),
            None => Side::new(raw(range), raw_kind(range.space), load),
        }
    }

    /// Returns a field, and removes matches that it makes redundant.
    pub(super) fn field_side(
        &mut self,
        space: Space,
        header: &'static headers::ProtocolHeader,
        field: &'static headers::HeaderField,
        load: &Load,
    ) -> Side {
        let (name, _, bits, kind) = *field;
        for statement in self.protocols.redundant(space, header, name) {
            self.remove(statement);
        }
        let prefix = match space {
            Space::TcpOption(_) => "tcp option ",
            Space::IpOption(_) => "ip option ",
            Space::SctpChunk(_) => "sctp chunk ",
            Space::Link
            | Space::Network
            | Space::Transport
            | Space::Inner
            | Space::Extension(_) => "",
        };
        let text = format!("{prefix}{} {name}", header.name);
        Side { bits, field: Some((header, name)), ..Side::new(text, kind, load) }
    }

    fn masked_side(&mut self, of: &Load, mask: &[u8], xor: &[u8], load: &Load) -> Side {
        let is_plain = xor.iter().all(|byte| *byte == 0);
        if let (Term::Payload(range), true, Some((start, length))) =
            (&of.term, is_plain, run_of_ones(mask))
        {
            let inner = Bitrange { offset: range.offset.saturating_add(start), length, ..*range };
            if let Some((header, field)) = self.exact_field(inner) {
                let side = self.field_side(range.space, header, field, load);
                return Side { shift: bits(mask.len()) - start - length, ..side };
            }
        }
        let of = self.side(of);
        let operand = |bytes: &[u8]| self.operand(&of, bytes);
        let text = operation(&of.text, mask, xor, &operand);
        Side { text, is_operation: true, ..of }
    }

    /// Returns a mask or the like as text.
    pub(super) fn operand(&self, side: &Side, bytes: &[u8]) -> String {
        let value = side.big_endian(bytes);
        let Kind::Bits(words) = side.kind else {
            return side.kind.text(&value, self.interfaces);
        };
        let text = super::kind::bits(words, number(&value), " | ");
        if text.contains('|') { format!("({text})") } else { text }
    }
}

/// Returns `(left & mask) ^ xor` in the operators of nft(8).
fn operation(left: &str, mask: &[u8], xor: &[u8], operand: &dyn Fn(&[u8]) -> String) -> String {
    let zip = |with: fn(u8, u8) -> u8| -> Vec<u8> {
        mask.iter().zip(xor).map(|(mask, xor)| with(*mask, *xor)).collect()
    };
    let or = zip(|mask, xor| !mask & xor);
    let and = zip(|mask, xor| mask | (!mask & xor));
    let flipped = zip(|mask, xor| mask & xor);
    let mut text = left.to_owned();
    if and.iter().any(|byte| *byte != u8::MAX) {
        text = format!("{text} & {}", operand(&and));
    }
    if flipped.iter().any(|byte| *byte != 0) {
        text = format!("{text} ^ {}", operand(&flipped));
    }
    if or.iter().any(|byte| *byte != 0) {
        text = format!("{text} | {}", operand(&or));
    }
    text
}
