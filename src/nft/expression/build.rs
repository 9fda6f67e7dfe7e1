//! Constructors for the expressions that programs write most: they fill in what kernels list.
//!
//! ```
//! use nft_netlink::expression::{Cmp, Immediate, Reg, ip};
//! use nft_netlink::{Family, Rule, Verdict};
//!
//! // ip daddr 192.0.2.1 drop
//! let address = Reg::of_word(0);
//! let expressions = vec![
//!     ip::daddr(address),
//!     Cmp::equal(address, [192, 0, 2, 1]),
//!     Immediate::verdict(Verdict::Drop),
//! ];
//! let rule = Rule { chain: "input".into(), expressions, comment: None };
//! assert_eq!(rule.text(Family::Ip).to_string(), "ip daddr 192.0.2.1 drop");
//! ```

use super::*;
use crate::key;
use crate::text::Name;
use crate::verdict::Verdict;

impl Payload {
    /// Returns a load of bytes from `offset` of the header `base`, `NFT_PAYLOAD_*`: of fields that
    /// [`ip`], [`tcp`] and the other modules named as headers lack.
    pub fn load(base: u32, offset: u32, length: u32, to: Reg) -> Expression {
        let (from, to, none) = (None, Some(to), None);
        let (checksum_type, checksum_offset, checksum_flags) = (none, none, none);
        Self { from, to, base, offset, length, checksum_type, checksum_offset, checksum_flags }
            .into()
    }
}

impl Cmp {
    /// Returns a comparison, `NFT_CMP_*`.
    pub fn compare(from: Reg, operation: u32, value: impl Into<Bytes>) -> Expression {
        Self { from, operation, value: Data::Value(value.into()) }.into()
    }

    /// Returns a match of this value.
    pub fn equal(from: Reg, value: impl Into<Bytes>) -> Expression {
        Self::compare(from, key::CMP_EQUAL, value)
    }

    /// Returns a match of all values but this one.
    pub fn not_equal(from: Reg, value: impl Into<Bytes>) -> Expression {
        Self::compare(from, key::CMP_NOT_EQUAL, value)
    }
}

impl Bitwise {
    /// Returns `(register & mask) ^ xor`, in place. Mask and xor have the same length.
    pub fn mask_xor(register: Reg, mask: impl Into<Bytes>, xor: impl Into<Bytes>) -> Expression {
        let (mask, xor) = (mask.into(), xor.into());
        Self {
            from: register,
            to: register,
            // The kernel refuses a mask longer than the registers.
            length: u32::try_from(mask.len()).unwrap_or(u32::MAX),
            operation: Some(key::BITWISE_MASK_XOR),
            mask: Some(Data::Value(mask)),
            xor: Some(Data::Value(xor)),
            data: None,
            second: None,
        }
        .into()
    }
}

impl Byteorder {
    /// Returns a change to network byte order of one number of `length` bytes, in place.
    pub fn to_network(register: Reg, length: u32) -> Expression {
        let (from, to, size) = (register, register, length);
        Self { from, to, operation: NFT_BYTEORDER_HTON, length, size }.into()
    }
}

impl Lookup {
    /// Returns a match of keys in a set.
    pub fn in_set(set: impl Into<Name>, from: Reg) -> Expression {
        Self { set: set.into().into_owned(), from, to: None, flags: 0 }.into()
    }

    /// Returns a match of keys that are not in a set.
    pub fn not_in_set(set: impl Into<Name>, from: Reg) -> Expression {
        Self { set: set.into().into_owned(), from, to: None, flags: key::LOOKUP_INVERTED }.into()
    }

    /// Returns a load of the data of a key in a map.
    pub fn in_map(map: impl Into<Name>, from: Reg, to: Reg) -> Expression {
        Self { set: map.into().into_owned(), from, to: Some(to), flags: 0 }.into()
    }
}

impl Immediate {
    /// Returns a load of a value.
    pub fn value(value: impl Into<Bytes>, to: Reg) -> Expression {
        Self { to, data: Data::Value(value.into()) }.into()
    }

    /// Returns the end of a rule with a verdict.
    pub fn verdict(verdict: Verdict) -> Expression {
        Self { to: Reg::VERDICT, data: Data::Verdict(verdict) }.into()
    }
}

impl Reject {
    /// Returns an answer "unreachable" with this code of ICMP or ICMPv6.
    pub fn unreachable(code: u8) -> Expression {
        Self { kind: NFT_REJECT_ICMP_UNREACH, code: Some(code) }.into()
    }

    /// Returns an answer with RST to a packet of TCP.
    pub fn tcp_reset() -> Expression {
        Self { kind: NFT_REJECT_TCP_RST, code: None }.into()
    }
}

impl Nat {
    /// Returns a translation of the destination to an address and port of `family`, `NFPROTO_*`.
    pub fn destination(family: u8, address: Reg, port: Reg) -> Expression {
        Self {
            kind: NFT_NAT_DNAT,
            family: family.into(),
            address: Some(address),
            last_address: Some(address),
            port: Some(port),
            last_port: Some(port),
            flags: Some(NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED),
        }
        .into()
    }

    /// Returns a translation of the destination to an address of `family`, which keeps the port.
    pub fn destination_address(family: u8, address: Reg) -> Expression {
        Self {
            kind: NFT_NAT_DNAT,
            family: family.into(),
            address: Some(address),
            last_address: Some(address),
            port: None,
            last_port: None,
            flags: Some(NF_NAT_RANGE_MAP_IPS),
        }
        .into()
    }
}

impl Masq {
    /// Returns a masquerade with `NF_NAT_RANGE_*` flags.
    pub fn with_flags(flags: u32) -> Expression {
        Self { flags: Some(flags), port: None, last_port: None }.into()
    }
}

impl Dynset {
    /// Returns a change of an element, `NFT_DYNSET_OP_*`, without data and with the set's timeout.
    pub fn new(operation: u32, set: impl Into<Name>, key: Reg) -> Self {
        Self {
            key,
            data: None,
            operation,
            set: set.into().into_owned(),
            timeout: None,
            expression: None,
            expressions: None,
            flags: 0,
        }
    }
}

impl Numgen {
    /// Returns a load of a random number from 0 to `modulus` minus 1, in host byte order.
    pub fn random(modulus: u32, to: Reg) -> Expression {
        Self { to, modulus, kind: NFT_NG_RANDOM, offset: 0 }.into()
    }

    /// Returns a load of this number, in host byte order. Unlike [`Immediate::value`], it may stand
    /// in a key of nft(8): `numgen inc mod 1 offset 24`.
    pub fn constant(number: u32, to: Reg) -> Expression {
        Self { to, modulus: 1, kind: NFT_NG_INCREMENTAL, offset: number }.into()
    }
}

impl Hash {
    /// Returns the hash (`jhash` of Linux) of `length` bytes, from 0 to `modulus` minus 1, in host
    /// byte order and in place.
    pub fn jenkins(register: Reg, length: u32, modulus: u32, seed: u32) -> Expression {
        Self {
            from: Some(register),
            to: register,
            length: Some(length),
            modulus,
            seed: Some(seed),
            offset: None,
            kind: key::HASH_JENKINS,
        }
        .into()
    }
}

impl Fwd {
    /// Returns the end of a rule that sends the packet by a device to the neighbour with this
    /// address of `family`, `NFPROTO_*`. The register `device` holds the index of the device.
    pub fn to_neighbour(device: Reg, address: Reg, family: u8) -> Expression {
        Self { device, address: Some(address), family: Some(family.into()) }.into()
    }
}

impl FlowOffload {
    /// Returns the expression that adds the connection to a flowtable.
    pub fn to(flowtable: impl Into<Name>) -> Expression {
        Self { flowtable: flowtable.into().into_owned() }.into()
    }
}
