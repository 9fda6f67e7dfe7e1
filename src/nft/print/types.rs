//! The types of a set's fields, from nft's words and back.

use super::kind::{KEY_TYPES, KeyType, Kind, key_type};
use crate::any::AnySet;
use crate::element_type::{TYPE_BITS, numbers};
use crate::object::{kind_of, noun};

/// A word that is no type of nft(8) with a fixed length, among the types of a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no type of a set")]
pub struct UnknownType(pub String);

impl AnySet {
    /// Returns a set or map with the types that nft(8) writes after `type`: `ipv4_addr .
    /// inet_service`, or `ipv4_addr : verdict`. A key has at most five fields. Ranges need
    /// [`AnySet::INTERVAL`] in the flags, and those of several fields also
    /// [`AnySet::CONCATENATION`] and the lengths of the fields.
    ///
    /// # Errors
    /// The first word that is no type.
    ///
    /// ```
    /// use nft_netlink::{AnySet, UnknownType};
    ///
    /// let set = AnySet::of_types("s", "ipv4_addr . inet_service")?;
    /// assert_eq!((set.types(), set.key_length), ("ipv4_addr . inet_service".to_owned(), 8));
    /// let error = AnySet::of_types("s", "ipv4_addr . port").unwrap_err();
    /// assert_eq!(error.to_string(), "`port` is no type of a set");
    /// # Ok::<(), UnknownType>(())
    /// ```
    pub fn of_types(name: &str, types: &str) -> Result<Self, UnknownType> {
        let (key, data) =
            types.split_once(':').map_or((types, None), |(key, data)| (key, Some(data)));
        let (key_type, key_length) = packed(key)?;
        let set = Self { name: name.to_owned(), key_type, key_length, ..Self::default() };
        Ok(match data.map(str::trim) {
            None => set,
            Some("verdict") => {
                /// Size of `struct nft_verdict`, which a 64-bit kernel lists.
                const LENGTH: usize = 16;
                Self { flags: Self::MAP, data_type: Self::VERDICT, data_length: LENGTH, ..set }
            }
            Some(data) => match kind_of(data) {
                Some(object_type) => Self { flags: Self::OBJECT, object_type, ..set },
                None => {
                    let (data_type, data_length) = packed(data)?;
                    Self { flags: Self::MAP, data_type, data_length, ..set }
                }
            },
        })
    }

    /// Returns the types of key and data as printed by `nft list`, `ipv4_addr . inet_service :
    /// verdict`.
    pub fn types(&self) -> String {
        let key = type_text(self.key_type);
        match (self.is_map(), self.object_type) {
            (false, _) => key,
            (true, 0) => format!("{key} : {}", type_text(self.data_type)),
            (true, object) => {
                format!("{key} : {}", noun(object))
            }
        }
    }
}

/// Returns the number of a concatenation, and its length in the kernel: a single field has no
/// padding.
fn packed(words: &str) -> Result<(u32, usize), UnknownType> {
    let fields = words.split('.').map(|word| {
        let word = word.trim();
        let known = |(_, name, _, _, length): &&KeyType| *name == word && *length > 0;
        KEY_TYPES.iter().find(known).ok_or_else(|| UnknownType(word.to_owned()))
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let length = match &fields[..] {
        [(.., only)] => *only,
        several => several.iter().map(|(.., length)| length.next_multiple_of(4)).sum(),
    };
    Ok((fields.iter().fold(0, |all, (number, ..)| all << TYPE_BITS | number), length))
}

fn type_text(number: u32) -> String {
    if number == AnySet::VERDICT {
        return "verdict".to_owned();
    }
    let name = |number| key_type(number).map_or("[type]", |(_, name, ..)| name);
    numbers(number).into_iter().map(name).collect::<Vec<_>>().join(" . ")
}

/// The form of a field's values, whether they are in host byte order, and their length in bytes.
pub(super) type FieldType = (Kind, bool, usize);

/// Returns the types of the fields of a number of nft(8).
pub(super) fn kinds(number: u32) -> Vec<FieldType> {
    /// Length of a field of which the type does not tell it.
    const USUAL: usize = 2;
    let kind = |number| {
        let (_, _, kind, host, length) = key_type(number).copied().unwrap_or(UNKNOWN);
        (kind, host, if length == 0 { USUAL } else { length })
    };
    numbers(number).into_iter().map(kind).collect()
}

const UNKNOWN: KeyType = (0, "", Kind::Number, false, 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_nft_has_six_bits_for_each_field() {
        let found = kinds(7 << 6 | 13);
        assert_eq!(found, [(Kind::Ipv4, false, 4), (Kind::Number, false, 2)]);
    }

    #[test]
    fn types_are_printed_as_they_were_written() {
        for types in [
            "inet_service",
            "ipv4_addr . inet_proto . inet_service",
            "ifname . ether_addr : verdict",
            "ipv6_addr : ipv4_addr . inet_service",
            "inet_proto . inet_service : counter",
            "ipv4_addr : ct helper",
        ] {
            assert_eq!(AnySet::of_types("s", types).unwrap().types(), types);
        }
    }

    #[test]
    fn an_unknown_type_is_an_error_with_its_word() {
        let word = |types| AnySet::of_types("s", types).unwrap_err().0;
        assert_eq!(word("ipv4_addr . ipv5_addr . mark"), "ipv5_addr");
        assert_eq!(word("ipv4_addr : chain"), "chain");
        // Its length depends on the field.
        assert_eq!(word("integer"), "integer");
        assert_eq!(word(""), "");
        assert_eq!(word("mark . "), "");
    }
}
