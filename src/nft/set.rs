//! Sets and maps: their keys, their data and the properties of their elements.

use std::borrow::Cow;
use std::fmt;

use super::abi::*;
use super::element_type::{Type, length, needs_typeof, packed, unpacked};
use super::fields::{DecodeError, Fields};
use super::text::{Comment, joined};
use crate::any::AnySet;
use crate::netlink::attr::{AttrWriter, Attrs};
use crate::print::key_type;
use crate::text::Name;
use crate::{counter, userdata};

/// A set, or a map if it has data.
///
/// User data of a set has the expressions from which nft(8) prints `typeof`, if one of its types is
/// printed so; all others are printed with `type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Name within the table.
    pub name: Name,
    /// Types of the key's fields, in order; at least one, at most five.
    pub key: Vec<Type>,
    /// Types of the data of a map, in order; empty for a set.
    pub data: Vec<Type>,
    /// Properties of the elements.
    pub flags: SetFlags,
    /// Maximum number of elements.
    pub size: Option<u32>,
    /// The comment, as printed by `nft list`.
    pub comment: Option<String>,
    /// Each element counts the lookups that find it.
    pub counter: bool,
}

impl Set {
    /// Returns the keyword of nft(8): `map` if there is data, else `set`.
    pub fn noun(&self) -> &'static str {
        if self.data.is_empty() { "set" } else { "map" }
    }

    /// Appends the attributes. `id` distinguishes the sets of one batch.
    pub(super) fn encode(&self, table: &str, id: u32, w: &mut AttrWriter<'_>) {
        w.str(NFTA_SET_TABLE, table);
        w.str(NFTA_SET_NAME, &self.name);
        w.be32(NFTA_SET_FLAGS, self.flag_bits());
        w.be32(NFTA_SET_KEY_TYPE, packed(&self.key));
        w.be32(NFTA_SET_KEY_LEN, length(&self.key));
        if !self.data.is_empty() {
            w.be32(NFTA_SET_DATA_TYPE, packed(&self.data));
            w.be32(NFTA_SET_DATA_LEN, length(&self.data));
        }
        w.be32(NFTA_SET_ID, id);
        self.encode_description(w);
        let mut bytes = Vec::new();
        userdata::write_set(&mut bytes, (&self.key, &self.data), self.comment.as_deref());
        w.bytes(NFTA_SET_USERDATA, &bytes);
        if self.counter {
            counter::write(w);
        }
    }

    fn encode_description(&self, w: &mut AttrWriter<'_>) {
        if self.size.is_none() && !self.is_interval_concatenation() {
            return;
        }
        w.nest(NFTA_SET_DESC, |w| {
            if let Some(size) = self.size {
                w.be32(NFTA_SET_DESC_SIZE, size);
            }
            if self.is_interval_concatenation() {
                w.nest(NFTA_SET_DESC_CONCAT, |w| {
                    for field in &self.key {
                        w.nest(NFTA_LIST_ELEM, |w| w.be32(NFTA_SET_FIELD_LEN, field.length()));
                    }
                });
            }
        });
    }

    pub(super) fn is_interval_concatenation(&self) -> bool {
        self.flags.interval && self.key.len() > 1
    }

    fn flag_bits(&self) -> u32 {
        let bits = [
            (self.flags.interval, AnySet::INTERVAL),
            (self.is_interval_concatenation(), AnySet::CONCATENATION),
            (!self.data.is_empty(), AnySet::MAP),
            (self.flags.dynamic, AnySet::DYNAMIC),
            (self.flags.timeout, AnySet::TIMEOUT),
        ];
        bits.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit)
    }
}

/// Writes the part of `add set` or `add map` after the name of the table.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs_typeof = needs_typeof(&self.key, &self.data);
        let word = if needs_typeof { "typeof" } else { "type" };
        let of = |field: &Type| match key_type(field.number()) {
            Some((_, name, ..)) if !needs_typeof => Cow::Borrowed(*name),
            Some(_) | None => field.sample(),
        };
        let list = |types| joined(<[Type]>::iter(types).map(of), " . ");
        write!(f, "{} {{ {word} {}", self.name, list(&self.key))?;
        if !self.data.is_empty() {
            write!(f, " : {}", list(&self.data))?;
        }
        f.write_str(";")?;
        if self.flags != SetFlags::default() {
            write!(f, " flags {};", self.flags)?;
        }
        if let Some(size) = self.size {
            write!(f, " size {size};")?;
        }
        if self.counter {
            f.write_str(" counter;")?;
        }
        if let Some(comment) = &self.comment {
            write!(f, "{};", Comment(Some(comment)))?;
        }
        f.write_str(" }")
    }
}

/// Flags of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetFlags {
    /// Elements may be ranges.
    pub interval: bool,
    /// Rules may add elements.
    pub dynamic: bool,
    /// Elements may expire.
    pub timeout: bool,
}

impl SetFlags {
    fn from_bits(bits: u32) -> Self {
        Self {
            interval: bits & AnySet::INTERVAL != 0,
            dynamic: bits & AnySet::DYNAMIC != 0,
            timeout: bits & AnySet::TIMEOUT != 0,
        }
    }
}

impl fmt::Display for SetFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words =
            [(self.interval, "interval"), (self.dynamic, "dynamic"), (self.timeout, "timeout")];
        let words = words.iter().filter(|(on, _)| *on).map(|(_, word)| word);
        write!(f, "{}", joined(words, ","))
    }
}

/// A set or map that was read from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedSet {
    /// Name within the table.
    pub name: String,
    /// The set as a transaction creates it; `None` for types or flags that [`Set`] does not have.
    pub set: Option<Set>,
    /// The set belongs to a rule, and exists as long as it: `NFT_SET_ANONYMOUS`.
    pub anonymous: bool,
    /// Number of elements; `None` where the kernel does not report it (it does in Linux 6.18).
    pub elements: Option<u32>,
}

impl DecodedSet {
    /// Reads the attributes of an `NFT_MSG_NEWSET` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let listed = AnySet::decode(attributes)?;
        let userdata = listed.userdata.as_ref().map_or(&[][..], |userdata| userdata);
        let [key, data] = userdata::read_typeof(userdata);
        let (key, data) = (unpacked(listed.key_type, key), unpacked(listed.data_type, data));
        let has_known_data = data.is_some();
        let set = Set {
            name: listed.name.clone().into(),
            key: key.unwrap_or_default(),
            data: data.unwrap_or_default(),
            flags: SetFlags::from_bits(listed.flags),
            size: listed.size,
            comment: listed.comment().map(str::to_owned),
            counter: matches!(&listed.expressions[..], [only] if only.name() == counter::NAME),
        };
        // A set is foreign if its description differs from that of the decoded set.
        let ours = !set.key.is_empty()
            && set.flag_bits() == listed.flags
            && length(&set.key) as usize == listed.key_length
            && has_known_data
            && listed.timeout.is_none()
            && (set.counter || listed.expressions.is_empty())
            && fields.find(NFTA_SET_EXPRESSIONS).is_none();
        Ok(Self {
            anonymous: listed.is_anonymous(),
            name: listed.name,
            set: ours.then_some(set),
            elements: fields.optional_be32(NFTA_SET_COUNT)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(counter: bool) -> Set {
        let key = vec![Type::Ipv4Addr];
        Set { name: "s".into(), key, counter, ..Set::default() }
    }

    fn written(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        fill(&mut AttrWriter::new(&mut bytes));
        bytes
    }

    // nft --debug=mnl add set ip t s { type ipv4_addr\n counter\n }    (nft 1.0.6, its last attribute)
    #[rustfmt::skip]
    const COUNTER: &[u8] = &[
        20, 0, 17, 0x80,
            12, 0, 1, 0, b'c', b'o', b'u', b'n', b't', b'e', b'r', 0,
            4, 0, 2, 0x80,
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn a_counter_of_a_set_is_what_nft_writes() {
        let (with, without) = (set(true), set(false));
        let bytes = [&with, &without].map(|set| written(|w| set.encode("t", 1, w)));
        assert_eq!(bytes[0], [&*bytes[1], COUNTER].concat());
        assert_eq!(with.to_string(), "s { type ipv4_addr; counter; }");
        assert_eq!(DecodedSet::decode(&bytes[0]).unwrap().set, Some(with));
        assert_eq!(DecodedSet::decode(&bytes[1]).unwrap().set, Some(without));
    }

    #[test]
    fn a_set_with_another_expression_is_none_of_ours() {
        let quota = written(|w| {
            set(false).encode("t", 1, w);
            w.nest(NFTA_SET_EXPR, |w| w.str(NFTA_EXPR_NAME, "quota"));
        });
        let several = written(|w| {
            set(false).encode("t", 1, w);
            w.nest(NFTA_SET_EXPRESSIONS, |_| {});
        });
        for bytes in [quota, several] {
            assert_eq!(DecodedSet::decode(&bytes).unwrap().set, None);
        }
    }
}
