//! Lookups in sets and maps; those without a name are printed with their elements.

use super::kind::Kind;
use super::load::{Load, Term};
use super::printer::{Printer, RuleContext, WORDS};
use super::side::{Side, joined};
use super::types::{FieldType, kinds};
use crate::abi::*;
use crate::any::{AnyElement, SetContents};
use crate::expression::{Data, Lookup, Reg};
use crate::key;

impl SetContents {
    /// The types of the fields of the data.
    fn kinds_of_data(&self) -> Vec<FieldType> {
        let mut kinds = kinds(self.set.data_type);
        if let ([(_, host, _)], true) = (&mut kinds[..], self.set.is_data_host()) {
            *host = true;
        }
        kinds
    }
}

impl<'a> RuleContext<'a> {
    /// Returns the set or map with this name.
    pub(super) fn set(&self, name: &str) -> Option<&'a SetContents> {
        self.sets.iter().find(|contents| contents.set.name == name)
    }

    /// Returns the elements of a set as printed by `nft list`, but on one line.
    pub fn elements(&self, contents: &SetContents) -> String {
        let types = kinds(contents.set.key_type);
        let length = if types.len() == 1 { Some(contents.set.key_length) } else { None };
        // The kernel stores single-field ranges in network byte order.
        let is_range = contents.set.is_interval();
        let side = |(kind, host, in_key): FieldType| {
            Side::of_set(kind, host && !is_range, length.unwrap_or(in_key))
        };
        let sides: Vec<_> = types.into_iter().map(side).collect();
        Printer::new(self).elements_text(contents, &sides)
    }
}

impl Printer<'_, '_> {
    pub(super) fn look_up(&mut self, lookup: &Lookup) {
        let contents = self.context.set(&lookup.set);
        let Some(load) = self.read_key(lookup.from, &lookup.set, None) else {
            return self.say(format!("[lookup] @{}", lookup.set));
        };
        let sides = self.sides(&load);
        let negated = if lookup.flags & key::LOOKUP_INVERTED != 0 { "!= " } else { "" };
        let set = self.set_text(&lookup.set, &sides);
        let left = joined(&sides);
        match lookup.to {
            None => {
                let is_operation = matches!(&sides[..], [side] if side.is_operation);
                let equal = if is_operation && negated.is_empty() { "== " } else { negated };
                self.say(format!("{left} {equal}{set}"));
            }
            Some(Reg(NFT_REG_VERDICT)) => self.say(format!("{left} vmap {set}")),
            Some(to) => {
                let (kinds, length) = match contents {
                    Some(contents) => (contents.kinds_of_data(), contents.set.data_length),
                    // Whatever else is in registers is no part of the unknown data.
                    None => (Vec::new(), WORDS * 4),
                };
                let text = format!("{left} map {set}");
                let host = kinds.first().is_some_and(|(_, host, _)| *host);
                self.write(to, Load { term: Term::Mapped { text, kinds }, host, length });
            }
        }
    }

    /// Returns the name of a set, or its elements if it has none.
    pub(super) fn set_text(&self, name: &str, sides: &[Side]) -> String {
        let Some(contents) = self.context.set(name).filter(|contents| contents.set.is_anonymous())
        else {
            return format!("@{name}");
        };
        self.elements_text(contents, sides)
    }

    fn elements_text(&self, contents: &SetContents, sides: &[Side]) -> String {
        let data = contents.kinds_of_data();
        let elements: Vec<_> = sorted(contents, sides)
            .into_iter()
            .map(|(key, element)| {
                let key = match key {
                    Some((first, last)) => self.key_text(sides, &first, &last),
                    None => "*".to_owned(),
                };
                format!("{key}{}", self.data_text(element, &data))
            })
            .collect();
        format!("{{ {} }}", elements.join(", "))
    }

    fn key_text(&self, sides: &[Side], first: &[u8], last: &[u8]) -> String {
        let mut at = 0;
        let mut fields = Vec::new();
        for side in sides {
            let (first, last) = (slice(first, at, side.length), slice(last, at, side.length));
            fields.push(if first == last {
                self.element_text(side, first)
            } else {
                self.prefix_or_range(side, first, last)
            });
            at += side.length.next_multiple_of(4);
        }
        fields.join(" . ")
    }

    fn element_text(&self, side: &Side, value: &[u8]) -> String {
        if side.kind.is_bits() {
            let text = self.operand(side, value);
            return text.trim_start_matches('(').trim_end_matches(')').to_owned();
        }
        self.value(side, value)
    }

    fn data_text(&self, element: &AnyElement, kinds: &[FieldType]) -> String {
        match (&element.data, &element.details().object) {
            (Some(Data::Verdict(verdict)), _) => format!(" : {verdict}"),
            (Some(Data::Value(value)), _) => format!(" : {}", self.fields(value, kinds)),
            (Some(Data::Code(_)), _) => " : continue".to_owned(),
            (None, Some(object)) => format!(" : \"{object}\""),
            (None, None) => String::new(),
        }
    }

    fn fields(&self, value: &[u8], kinds: &[FieldType]) -> String {
        // An interval of addresses, which is data of a map.
        if let ([(kind @ Kind::Ipv4, ..)], Some((first, last))) = (kinds, value.split_at_checked(4))
            && last.len() == 4
        {
            return kind.range_text(first, last, self.interfaces);
        }
        let mut at = 0;
        let mut fields = Vec::new();
        for (kind, host, in_key) in kinds {
            let length = if kinds.len() == 1 { value.len() } else { *in_key };
            let field = slice(value, at, length);
            let field: Vec<_> = if *host && cfg!(target_endian = "little") {
                field.iter().rev().copied().collect()
            } else {
                field.to_vec()
            };
            fields.push(kind.text(&field, self.interfaces));
            at += length.next_multiple_of(4);
        }
        fields.join(" . ")
    }
}

fn slice(bytes: &[u8], at: usize, length: usize) -> &[u8] {
    let end = (at + length).min(bytes.len());
    bytes.get(at.min(end)..end).unwrap_or_default()
}

/// First and last key; `None` for the catch-all element.
type Keys = Option<(Vec<u8>, Vec<u8>)>;

/// Returns the elements as ranges in the order of nft(8).
fn sorted<'a>(contents: &'a SetContents, sides: &[Side]) -> Vec<(Keys, &'a AnyElement)> {
    let is_single = contents.set.is_interval() && !contents.set.is_concatenation();
    let mut elements: Vec<_> = contents.elements.iter().collect();
    // nft(8) reverses elements that it does not tell apart.
    elements.reverse();
    let order = |key: &[u8]| -> Vec<u8> {
        // It compares concatenations from their last byte on, on little-endian machines.
        if sides.len() > 1 && cfg!(target_endian = "little") {
            return key.iter().rev().copied().collect();
        }
        let mut at = 0;
        let mut ordered = Vec::new();
        for side in sides {
            let field = slice(key, at, side.length);
            let reversed = !is_single
                && cfg!(target_endian = "little")
                && (side.host || matches!(side.kind, Kind::Name));
            match (side.kind, reversed) {
                // Bits are sorted by the lowest one.
                (Kind::Bits(_), _) => {
                    let number = super::kind::number(&side.big_endian(field));
                    let lowest = number & number.wrapping_neg();
                    ordered.extend_from_slice(&lowest.to_be_bytes());
                }
                (_, true) => ordered.extend(field.iter().rev()),
                (_, false) => ordered.extend_from_slice(field),
            }
            at += side.length.next_multiple_of(4);
        }
        ordered
    };
    if !is_single {
        elements.sort_by_key(|element| (element.key.is_empty(), order(&element.key)));
        let keys = |element: &AnyElement| {
            let last = element.details().key_end.as_ref().unwrap_or(&element.key);
            (!element.key.is_empty()).then(|| (element.key.to_vec(), last.to_vec()))
        };
        return elements.into_iter().map(|element| (keys(element), element)).collect();
    }
    elements.sort_by(|a, b| {
        (a.key.is_empty(), &a.key, !a.is_end).cmp(&(b.key.is_empty(), &b.key, !b.is_end))
    });
    let mut ranges: Vec<(Keys, &AnyElement)> = Vec::new();
    for (i, element) in elements.iter().enumerate().filter(|(_, element)| !element.is_end) {
        let next = elements.get(i + 1).filter(|next| !next.key.is_empty());
        let last = match next {
            Some(next) => before(&next.key),
            None => vec![u8::MAX; element.key.len()],
        };
        let keys = (!element.key.is_empty()).then(|| (element.key.to_vec(), last));
        ranges.push((keys, element));
    }
    ranges
}

/// Returns the key before this one.
fn before(key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    for byte in key.iter_mut().rev() {
        let (lower, borrows) = byte.overflowing_sub(1);
        *byte = lower;
        if !borrows {
            break;
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_before_a_key_borrows() {
        assert_eq!(before(&[10, 1, 0, 0]), [10, 0, 255, 255]);
        assert_eq!(before(&[0, 0]), [255, 255]);
    }
}
