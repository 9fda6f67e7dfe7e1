//! User data: bytes that the kernel stores for nft(8) without reading them.
//!
//! A sequence of one byte type, one byte length and payload, without padding, as written by
//! libnftnl (`udata.h`): comments, and the expressions from which nft(8) prints `typeof`. Numbers
//! are in host byte order.

use super::element_type::{Type, needs_typeof};
use super::expression::Bytes;
use super::text::comment;
use crate::netlink::attr::AttrWriter;

/// `NFTNL_UDATA_TABLE_COMMENT`, `_CHAIN_COMMENT`, `_RULE_COMMENT`, `_SET_ELEM_COMMENT`.
const COMMENT: u8 = 0;
const NFTNL_UDATA_SET_KEYBYTEORDER: u8 = 0;
const NFTNL_UDATA_SET_DATABYTEORDER: u8 = 1;
const NFTNL_UDATA_SET_KEY_TYPEOF: u8 = 3;
const NFTNL_UDATA_SET_DATA_TYPEOF: u8 = 4;
const NFTNL_UDATA_SET_COMMENT: u8 = 7;
const NFTNL_UDATA_SET_TYPEOF_EXPR: u8 = 0;
const NFTNL_UDATA_SET_TYPEOF_DATA: u8 = 1;

/// `BYTEORDER_HOST_ENDIAN` of nft.
const HOST_ENDIAN: u32 = 1;

impl Bytes {
    /// Returns the user data of a table, chain, rule or element with a comment, which is cut to 128
    /// bytes.
    pub fn of_comment(text: &str) -> Self {
        let mut bytes = Vec::new();
        write_text(&mut bytes, COMMENT, text);
        bytes.into()
    }

    /// Returns the comment in such user data.
    pub(super) fn comment(&self) -> Option<&str> {
        read_comment(self)
    }
}

/// Appends a comment as user data, if there is one.
pub(super) fn write_userdata(w: &mut AttrWriter<'_>, kind: u16, comment: Option<&str>) {
    if let Some(comment) = comment {
        w.append(kind, |buffer| write_text(buffer, COMMENT, comment));
    }
}

/// Returns the comment in the user data of a table, chain, rule or element.
pub(super) fn read_comment(userdata: &[u8]) -> Option<&str> {
    read_text(userdata, COMMENT)
}

/// Returns the comment in the user data of a set.
pub(super) fn read_set_comment(userdata: &[u8]) -> Option<&str> {
    read_text(userdata, NFTNL_UDATA_SET_COMMENT)
}

/// Returns whether nft(8) noted that the data of a map is in host byte order.
pub(super) fn is_data_host(userdata: &[u8]) -> bool {
    let order = read_entry(userdata, NFTNL_UDATA_SET_DATABYTEORDER);
    order.is_some_and(|order| order == HOST_ENDIAN.to_ne_bytes())
}

/// Appends the user data of a set: byte orders, `typeof` where nft(8) needs it, comment.
pub(super) fn write_set(out: &mut Vec<u8>, (key, data): (&[Type], &[Type]), comment: Option<&str>) {
    number(out, NFTNL_UDATA_SET_KEYBYTEORDER, byte_order(key));
    if !data.is_empty() {
        number(out, NFTNL_UDATA_SET_DATABYTEORDER, byte_order(data));
    }
    if needs_typeof(key, data) {
        entry(out, NFTNL_UDATA_SET_KEY_TYPEOF, |out| write_typeof(out, key));
        if !data.is_empty() {
            entry(out, NFTNL_UDATA_SET_DATA_TYPEOF, |out| write_typeof(out, data));
        }
    }
    if let Some(text) = comment {
        write_text(out, NFTNL_UDATA_SET_COMMENT, text);
    }
}

fn write_text(out: &mut Vec<u8>, kind: u8, text: &str) {
    entry(out, kind, |out| {
        out.extend_from_slice(comment(text).as_bytes());
        out.push(0);
    });
}

fn read_text(userdata: &[u8], wanted: u8) -> Option<&str> {
    let text = read_entry(userdata, wanted)?.split(|&byte| byte == 0).next()?;
    std::str::from_utf8(text).ok()
}

fn read_entry(userdata: &[u8], wanted: u8) -> Option<&[u8]> {
    entries(userdata).find(|(kind, _)| *kind == wanted).map(|(_, payload)| payload)
}

/// Returns the entries up to the first that is cut off.
fn entries(mut userdata: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [kind, length, rest @ ..] = userdata else { return None };
        let (payload, next) = rest.split_at_checked(usize::from(*length))?;
        userdata = next;
        Some((*kind, payload))
    })
}

fn entry(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[kind, 0]);
    let start = out.len();
    fill(out);
    // The longest entry is the `typeof` of a key with five fields. At 40 bytes per field it stays
    // under 255. Comments are truncated to 128.
    let length = u8::try_from(out.len() - start);
    debug_assert!(length.is_ok(), "bug: user data entry {kind} is over 255 bytes");
    out.truncate(start + usize::from(length.unwrap_or(u8::MAX)));
    out[start - 1] = length.unwrap_or(u8::MAX);
}

fn number(out: &mut Vec<u8>, kind: u8, value: u32) {
    entry(out, kind, |out| out.extend_from_slice(&value.to_ne_bytes()));
}

// `enum byteorder` of nft; a concatenation has none.
fn byte_order(types: &[Type]) -> u32 {
    const INVALID: u32 = 0;
    const BIG_ENDIAN: u32 = 2;
    match types {
        [only] if only.is_host() => HOST_ENDIAN,
        [_] => BIG_ENDIAN,
        _ => INVALID,
    }
}

/// `EXPR_CONCAT` of `enum expr_types` of nft.
const EXPR_CONCAT: u32 = 13;

/// Appends the expressions from which nft(8) prints `typeof`.
fn write_typeof(out: &mut Vec<u8>, types: &[Type]) {
    if let [only] = types {
        return write_typeof_field(out, *only);
    }
    number(out, NFTNL_UDATA_SET_TYPEOF_EXPR, EXPR_CONCAT);
    entry(out, NFTNL_UDATA_SET_TYPEOF_DATA, |out| {
        for (field, kind) in (0..).zip(types) {
            entry(out, field, |out| write_typeof_field(out, *kind));
        }
    });
}

fn write_typeof_field(out: &mut Vec<u8>, kind: Type) {
    let (expression, numbers) = typeof_numbers(kind);
    number(out, NFTNL_UDATA_SET_TYPEOF_EXPR, expression);
    entry(out, NFTNL_UDATA_SET_TYPEOF_DATA, |out| {
        for (field, value) in numbers {
            number(out, field, value);
        }
    });
}

/// Returns the types of key and data by their `typeof`; `None` for one without it, or with another
/// expression than those of [`Type`].
pub(super) fn read_typeof(userdata: &[u8]) -> [Option<Vec<Type>>; 2] {
    [NFTNL_UDATA_SET_KEY_TYPEOF, NFTNL_UDATA_SET_DATA_TYPEOF]
        .map(|kind| read_typeof_fields(read_entry(userdata, kind)?))
}

fn read_typeof_fields(of: &[u8]) -> Option<Vec<Type>> {
    let expression = read_entry(of, NFTNL_UDATA_SET_TYPEOF_EXPR)?;
    if expression != EXPR_CONCAT.to_ne_bytes() {
        return Some(vec![read_typeof_field(of)?]);
    }
    let fields = entries(read_entry(of, NFTNL_UDATA_SET_TYPEOF_DATA)?);
    fields.map(|(_, field)| read_typeof_field(field)).collect()
}

fn read_typeof_field(field: &[u8]) -> Option<Type> {
    let number = |payload: &[u8]| payload.try_into().ok().map(u32::from_ne_bytes);
    let expression = number(read_entry(field, NFTNL_UDATA_SET_TYPEOF_EXPR)?)?;
    let numbers = entries(read_entry(field, NFTNL_UDATA_SET_TYPEOF_DATA)?)
        .map(|(kind, payload)| Some((kind, number(payload)?)))
        .collect::<Option<Vec<_>>>()?;
    let bits = match numbers[..] {
        [_, _, _, (_, offset), (_, length)] => Some(Type::Transport { offset, length }),
        _ => None,
    };
    let mut known = Type::NAMED.into_iter().chain(bits);
    known.find(|kind| typeof_numbers(*kind) == (expression, numbers.clone()))
}

/// Returns the number of an expression of this type, and the numbers in its description.
///
/// They are those of `enum expr_types`, `enum proto_desc_id`, `enum proto_bases` and the header
/// field enums of nft, seen with `nft --debug=mnl`.
fn typeof_numbers(kind: Type) -> (u32, Vec<(u8, u32)>) {
    const EXPR_PAYLOAD: u32 = 7;
    const EXPR_META: u32 = 9;
    const EXPR_NUMGEN: u32 = 23;
    const TRANSPORT: u32 = 3;
    let meta = |key| (EXPR_META, vec![(0, key)]);
    let header = |protocol, field| (EXPR_PAYLOAD, vec![(0, protocol), (1, field)]);
    match kind {
        Type::Ipv4Addr => header(12, 12),
        Type::IpSaddr => header(12, 11),
        Type::IpProtocol => header(12, 9),
        // An integer has its length in bits.
        Type::IpId => (EXPR_PAYLOAD, vec![(0, 12), (1, 6), (4, 16)]),
        Type::Ipv6Addr => header(13, 9),
        Type::EtherAddr => header(17, 2),
        Type::InetService => header(11, 2),
        Type::InetProto => meta(16),
        Type::ClassId => meta(2),
        Type::Mark => meta(3),
        Type::IfaceIndex => meta(4),
        Type::Integer => (EXPR_NUMGEN, vec![(0, 1), (1, 2), (2, 0)]),
        Type::Transport { offset, length } => {
            (EXPR_PAYLOAD, vec![(0, 0), (1, 0), (2, TRANSPORT), (3, offset), (4, length)])
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // nft --debug=mnl add map ip t m { typeof ip daddr . meta l4proto . th dport .
    //   numgen random mod 2 : ip daddr . th dport; }    (nft 1.0.6, little-endian, without
    //   its last entry, NFTNL_UDATA_SET_DATA_INTERVAL 0, which is the default)
    #[rustfmt::skip]
    const ENDPOINTS: &[u8] = &[
        0, 4, 0, 0, 0, 0,
        1, 4, 0, 0, 0, 0,
        3, 0x60, 0, 4, 13, 0, 0, 0, 1, 0x58,
            0, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 12, 0, 0, 0,
            1, 0x0e, 0, 4, 9, 0, 0, 0, 1, 6, 0, 4, 16, 0, 0, 0,
            2, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 11, 0, 0, 0, 1, 4, 2, 0, 0, 0,
            3, 0x1a, 0, 4, 23, 0, 0, 0, 1, 0x12, 0, 4, 1, 0, 0, 0, 1, 4, 2, 0, 0, 0, 2, 4, 0, 0, 0, 0,
        4, 0x34, 0, 4, 13, 0, 0, 0, 1, 0x2c,
            0, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 12, 0, 0, 0,
            1, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 11, 0, 0, 0, 1, 4, 2, 0, 0, 0,
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn the_typeof_of_an_endpoint_map_is_what_nft_writes() {
        let key = [Type::Ipv4Addr, Type::InetProto, Type::InetService, Type::Integer];
        let data = [Type::Ipv4Addr, Type::InetService];
        let mut out = Vec::new();
        write_set(&mut out, (&key, &data), None);
        assert_eq!(out, ENDPOINTS);
    }

    // nft --debug=mnl add map netdev t m { typeof ip saddr . ip daddr . ip id . ip protocol :
    //   meta mark; }    (the same)
    #[rustfmt::skip]
    const FRAGMENTS: &[u8] = &[
        0, 4, 0, 0, 0, 0,
        1, 4, 1, 0, 0, 0,
        3, 0x66, 0, 4, 13, 0, 0, 0, 1, 0x5e,
            0, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 11, 0, 0, 0,
            1, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 12, 0, 0, 0,
            2, 0x1a, 0, 4, 7, 0, 0, 0, 1, 0x12, 0, 4, 12, 0, 0, 0, 1, 4, 6, 0, 0, 0, 4, 4, 16, 0, 0, 0,
            3, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 9, 0, 0, 0,
        4, 0x0e, 0, 4, 9, 0, 0, 0, 1, 6, 0, 4, 3, 0, 0, 0,
    ];

    // nft --debug=mnl add map netdev t m { typeof ip daddr . @th,136,8 . @th,224,16 :
    //   meta priority; }    (the same)
    #[rustfmt::skip]
    const ERRORS: &[u8] = &[
        0, 4, 0, 0, 0, 0,
        1, 4, 1, 0, 0, 0,
        3, 0x6e, 0, 4, 13, 0, 0, 0, 1, 0x66,
            0, 0x14, 0, 4, 7, 0, 0, 0, 1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 12, 0, 0, 0,
            1, 0x26, 0, 4, 7, 0, 0, 0, 1, 0x1e, 0, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0,
                2, 4, 3, 0, 0, 0, 3, 4, 0x88, 0, 0, 0, 4, 4, 8, 0, 0, 0,
            2, 0x26, 0, 4, 7, 0, 0, 0, 1, 0x1e, 0, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0,
                2, 4, 3, 0, 0, 0, 3, 4, 0xe0, 0, 0, 0, 4, 4, 16, 0, 0, 0,
        4, 0x0e, 0, 4, 9, 0, 0, 0, 1, 6, 0, 4, 2, 0, 0, 0,
    ];

    // nft --debug=mnl add map netdev t m { typeof meta mark : iif; }    (the same)
    #[rustfmt::skip]
    const DEVICES: &[u8] = &[
        0, 4, 1, 0, 0, 0,
        1, 4, 1, 0, 0, 0,
        3, 0x0e, 0, 4, 9, 0, 0, 0, 1, 6, 0, 4, 3, 0, 0, 0,
        4, 0x0e, 0, 4, 9, 0, 0, 0, 1, 6, 0, 4, 4, 0, 0, 0,
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn the_typeof_of_marks_interfaces_and_bits_is_what_nft_writes() {
        let bits = |offset, length| Type::Transport { offset, length };
        let rows = [
            (
                vec![Type::IpSaddr, Type::Ipv4Addr, Type::IpId, Type::IpProtocol],
                Type::Mark,
                FRAGMENTS,
            ),
            (vec![Type::Ipv4Addr, bits(136, 8), bits(224, 16)], Type::ClassId, ERRORS),
            (vec![Type::Mark], Type::IfaceIndex, DEVICES),
        ];
        for (key, data, bytes) in rows {
            let mut out = Vec::new();
            write_set(&mut out, (&key, &[data]), None);
            assert_eq!(out, bytes, "{key:?}");
            assert_eq!(read_typeof(bytes), [Some(key), Some(vec![data])]);
        }
    }

    #[test]
    fn a_typeof_without_its_expressions_names_no_types() {
        // As nft 1.0.6 writes it for `type ipv4_addr . inet_proto`.
        let mut out = Vec::new();
        entry(&mut out, NFTNL_UDATA_SET_KEY_TYPEOF, |out| {
            number(out, NFTNL_UDATA_SET_TYPEOF_EXPR, EXPR_CONCAT);
            entry(out, NFTNL_UDATA_SET_TYPEOF_DATA, |_| {});
        });
        assert_eq!(read_typeof(&out), [Some(vec![]), None]);
        assert_eq!(read_typeof(&[]), [None, None]);
    }

    #[test]
    fn a_comment_is_read_back() {
        let mut out = Bytes::of_comment("default/web:http").to_vec();
        assert_eq!(out[..2], [0, 17]);
        assert_eq!(read_comment(&out), Some("default/web:http"));
        out.clear();
        write_set(&mut out, (&[Type::ClassId], &[]), Some("slots"));
        assert_eq!(read_set_comment(&out), Some("slots"));
    }

    proptest! {
        #[test]
        fn random_user_data_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (read_comment(&bytes), read_set_comment(&bytes), read_typeof(&bytes));
        }
    }
}
