//! Expressions: the instructions that the kernel runs for a rule.
//!
//! Decoding reverses what the kernel adds (registers renumbered, defaults spelled out). So an
//! expression that was sent and read equals itself.

use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::register::{optional_register, register};
use super::{DynsetOperation, Name, Order, Register, Verdict};
use crate::netlink::attr::{AttrWriter, Attrs};

/// One instruction of a rule. Numbers named key, base or flags are the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Loads bytes of the packet.
    Payload {
        /// `NFT_PAYLOAD_*`.
        base: u32,
        /// Offset in bytes from the start of that header.
        offset: u32,
        /// Number of bytes to load.
        length: u32,
        /// Destination register.
        to: Register,
    },
    /// Loads metadata of the packet.
    Meta {
        /// `NFT_META_*`.
        key: u32,
        /// Destination register.
        to: Register,
    },
    /// Sets metadata of the packet.
    MetaSet {
        /// `NFT_META_*`.
        key: u32,
        /// Source register.
        from: Register,
    },
    /// Loads metadata of the connection.
    Ct {
        /// `NFT_CT_*`.
        key: u32,
        /// Destination register.
        to: Register,
    },
    /// Loads an address or port of the packet that began the connection.
    CtOriginal {
        /// `NFT_CT_*`.
        key: u32,
        /// Destination register.
        to: Register,
    },
    /// Loads the type of an address from the routing table.
    FibType {
        /// `NFTA_FIB_F_*`.
        flags: u32,
        /// Destination register.
        to: Register,
    },
    /// Loads a random number from 0 to `modulus` minus 1, in host byte order.
    Numgen {
        /// One more than the highest number.
        modulus: u32,
        /// Destination register.
        to: Register,
    },
    /// Computes a hash (`jhash` of Linux) from 0 to `modulus` minus 1, in host byte order.
    Jhash {
        /// Source register.
        from: Register,
        /// Length of the input in bytes.
        length: u32,
        /// One more than the highest result.
        modulus: u32,
        /// Seed of the hash.
        seed: u32,
        /// Destination register.
        to: Register,
    },
    /// Matches if the register has the value.
    Cmp {
        /// Source register.
        from: Register,
        /// Matches if the register does not have the value.
        negated: bool,
        /// The value.
        value: Vec<u8>,
    },
    /// Matches if the register is less or greater than the value, by bytes (`memcmp`).
    Order {
        /// Source register.
        from: Register,
        /// The operator.
        order: Order,
        /// The value.
        value: Vec<u8>,
    },
    /// Swaps the bytes of each number where network and host byte order differ.
    Byteorder {
        /// First source register.
        from: Register,
        /// First destination register.
        to: Register,
        /// Length of all numbers in bytes.
        length: u32,
        /// Length of one number in bytes.
        size: u32,
    },
    /// Computes `(from & mask) ^ xor`.
    Bitwise {
        /// Source register.
        from: Register,
        /// Destination register.
        to: Register,
        /// As long as `xor`.
        mask: Vec<u8>,
        /// As long as `mask`.
        xor: Vec<u8>,
    },
    /// Matches if the set has the key; loads a map's data.
    Lookup {
        /// Name of the set or map.
        set: Name,
        /// First register of the key.
        from: Register,
        /// Destination register of the data; `None` for a set.
        to: Option<Register>,
        /// Matches if the set does not have the key.
        negated: bool,
    },
    /// Loads a value.
    Immediate {
        /// The value.
        value: Vec<u8>,
        /// Destination register.
        to: Register,
    },
    /// Ends the rule with a verdict.
    Verdict(Verdict),
    /// Replaces the destination.
    Dnat {
        /// `NFPROTO_*`.
        family: u8,
        /// Register of the address.
        address: Register,
        /// Register of the port.
        port: Option<Register>,
    },
    /// Replaces the source by the address of the output interface.
    Masquerade {
        /// `NF_NAT_RANGE_*`.
        flags: u32,
    },
    /// Rejects the packet with an ICMP or ICMPv6 error.
    Reject {
        /// `NFT_REJECT_*`.
        kind: u32,
        /// Code of the ICMP or ICMPv6 message.
        code: u8,
    },
    /// Adds, renews or deletes an element of a set.
    Dynset {
        /// The change.
        operation: DynsetOperation,
        /// Name of the set or map.
        set: Name,
        /// First register of the key.
        key: Register,
        /// First register of the data of a map element.
        data: Option<Register>,
        /// Timeout of the element in milliseconds, if it differs from the set's.
        timeout: Option<u64>,
    },
    /// Adds the packet's connection to a flowtable, if the kernel can forward it by one.
    FlowOffload(Name),
    /// An expression, or a use of one, that this program never sends; with its name.
    Other(String),
}

impl Expr {
    /// Appends `NFTA_EXPR_NAME` and `NFTA_EXPR_DATA`.
    pub(super) fn encode(&self, w: &mut AttrWriter<'_>) {
        w.str(NFTA_EXPR_NAME, self.name());
        w.nest(NFTA_EXPR_DATA, |w| self.encode_data(w));
    }

    /// Returns the kernel's name of the expression.
    pub fn name(&self) -> &str {
        match self {
            Self::Payload { .. } => "payload",
            Self::Meta { .. } | Self::MetaSet { .. } => "meta",
            Self::Ct { .. } | Self::CtOriginal { .. } => "ct",
            Self::FibType { .. } => "fib",
            Self::Numgen { .. } => "numgen",
            Self::Jhash { .. } => "hash",
            Self::Cmp { .. } | Self::Order { .. } => "cmp",
            Self::Byteorder { .. } => "byteorder",
            Self::Bitwise { .. } => "bitwise",
            Self::Lookup { .. } => "lookup",
            Self::Immediate { .. } | Self::Verdict(_) => "immediate",
            Self::Dnat { .. } => "nat",
            Self::Masquerade { .. } => "masq",
            Self::Reject { .. } => "reject",
            Self::Dynset { .. } => "dynset",
            Self::FlowOffload(_) => "flow_offload",
            Self::Other(name) => name,
        }
    }

    fn encode_data(&self, w: &mut AttrWriter<'_>) {
        match self {
            Self::Payload { base, offset, length, to } => {
                w.be32(NFTA_PAYLOAD_DREG, to.number());
                w.be32(NFTA_PAYLOAD_BASE, *base);
                w.be32(NFTA_PAYLOAD_OFFSET, *offset);
                w.be32(NFTA_PAYLOAD_LEN, *length);
            }
            Self::Meta { key, to } => pair(w, (NFTA_META_KEY, *key), (NFTA_META_DREG, to)),
            Self::MetaSet { key, from } => pair(w, (NFTA_META_KEY, *key), (NFTA_META_SREG, from)),
            Self::Ct { key, to } => pair(w, (NFTA_CT_KEY, *key), (NFTA_CT_DREG, to)),
            Self::CtOriginal { key, to } => {
                pair(w, (NFTA_CT_KEY, *key), (NFTA_CT_DREG, to));
                w.u8(NFTA_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
            }
            Self::FibType { flags, to } => {
                pair(w, (NFTA_FIB_FLAGS, *flags), (NFTA_FIB_DREG, to));
                w.be32(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
            }
            Self::Numgen { modulus, to } => {
                pair(w, (NFTA_NG_MODULUS, *modulus), (NFTA_NG_DREG, to));
                w.be32(NFTA_NG_TYPE, NFT_NG_RANDOM);
            }
            Self::Jhash { from, length, modulus, seed, to } => {
                pair(w, (NFTA_HASH_LEN, *length), (NFTA_HASH_SREG, from));
                pair(w, (NFTA_HASH_MODULUS, *modulus), (NFTA_HASH_DREG, to));
                w.be32(NFTA_HASH_SEED, *seed);
                w.be32(NFTA_HASH_TYPE, NFT_HASH_JENKINS);
            }
            Self::Cmp { from, negated: true, value } => {
                encode_comparison(w, NFT_CMP_NEQ, from, value);
            }
            Self::Cmp { from, value, .. } => encode_comparison(w, NFT_CMP_EQ, from, value),
            Self::Order { from, order, value } => encode_comparison(w, *order as u32, from, value),
            Self::Byteorder { from, to, length, size } => {
                encode_byteorder(w, (from, to), *length, *size);
            }
            Self::Bitwise { from, to, mask, xor } => encode_bitwise(w, (from, to), mask, xor),
            Self::Lookup { set, from, to, negated } => {
                w.str(NFTA_LOOKUP_SET, set);
                w.be32(NFTA_LOOKUP_SREG, from.number());
                optional(w, NFTA_LOOKUP_DREG, *to);
                if *negated {
                    w.be32(NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
                }
            }
            Self::Immediate { value, to } => {
                w.be32(NFTA_IMMEDIATE_DREG, to.number());
                w.nest(NFTA_IMMEDIATE_DATA, |w| w.bytes(NFTA_DATA_VALUE, value));
            }
            Self::Verdict(verdict) => {
                w.be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
                w.nest(NFTA_IMMEDIATE_DATA, |w| verdict.encode(w));
            }
            Self::Dnat { family, address, port } => {
                w.be32(NFTA_NAT_TYPE, NFT_NAT_DNAT);
                pair(w, (NFTA_NAT_FAMILY, u32::from(*family)), (NFTA_NAT_REG_ADDR_MIN, address));
                optional(w, NFTA_NAT_REG_PROTO_MIN, *port);
            }
            Self::Masquerade { flags } => w.be32(NFTA_MASQ_FLAGS, *flags),
            Self::Reject { kind, code } => encode_reject(w, *kind, *code),
            Self::Dynset { operation, set, key, data, timeout } => {
                w.str(NFTA_DYNSET_SET_NAME, set);
                pair(w, (NFTA_DYNSET_OP, *operation as u32), (NFTA_DYNSET_SREG_KEY, key));
                optional(w, NFTA_DYNSET_SREG_DATA, *data);
                optional_time(w, NFTA_DYNSET_TIMEOUT, *timeout);
            }
            Self::FlowOffload(flowtable) => w.str(NFTA_FLOW_TABLE_NAME, flowtable),
            Self::Other(_) => {}
        }
    }

    /// Reads what [`Expr::encode`] appends.
    pub(super) fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let fields = Fields::read(attrs)?;
        let name = fields.str(NFTA_EXPR_NAME)?;
        let data = fields.find(NFTA_EXPR_DATA).map_or(Attrs::new(&[]), |data| data.nested());
        let known = decode_known(name, &Fields::read(data)?)?;
        Ok(known.unwrap_or_else(|| Self::Other(name.to_owned())))
    }
}

fn encode_comparison(w: &mut AttrWriter<'_>, operation: u32, from: &Register, value: &[u8]) {
    pair(w, (NFTA_CMP_OP, operation), (NFTA_CMP_SREG, from));
    w.nest(NFTA_CMP_DATA, |w| w.bytes(NFTA_DATA_VALUE, value));
}

fn encode_reject(w: &mut AttrWriter<'_>, kind: u32, code: u8) {
    w.be32(NFTA_REJECT_TYPE, kind);
    w.u8(NFTA_REJECT_ICMP_CODE, code);
}

fn encode_byteorder(
    w: &mut AttrWriter<'_>,
    (from, to): (&Register, &Register),
    length: u32,
    size: u32,
) {
    pair(w, (NFTA_BYTEORDER_OP, NFT_BYTEORDER_HTON), (NFTA_BYTEORDER_SREG, from));
    pair(w, (NFTA_BYTEORDER_LEN, length), (NFTA_BYTEORDER_DREG, to));
    w.be32(NFTA_BYTEORDER_SIZE, size);
}

fn encode_bitwise(
    w: &mut AttrWriter<'_>,
    (from, to): (&Register, &Register),
    mask: &[u8],
    xor: &[u8],
) {
    // The kernel refuses a mask longer than the registers.
    let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
    pair(w, (NFTA_BITWISE_LEN, length), (NFTA_BITWISE_SREG, from));
    w.be32(NFTA_BITWISE_DREG, to.number());
    w.nest(NFTA_BITWISE_MASK, |w| w.bytes(NFTA_DATA_VALUE, mask));
    w.nest(NFTA_BITWISE_XOR, |w| w.bytes(NFTA_DATA_VALUE, xor));
}

fn pair(w: &mut AttrWriter<'_>, (kind, number): (u16, u32), (at, register): (u16, &Register)) {
    w.be32(kind, number);
    w.be32(at, register.number());
}

fn optional(w: &mut AttrWriter<'_>, kind: u16, register: Option<Register>) {
    if let Some(register) = register {
        w.be32(kind, register.number());
    }
}

fn optional_time(w: &mut AttrWriter<'_>, kind: u16, time: Option<u64>) {
    if let Some(time) = time {
        w.be64(kind, time);
    }
}

/// Decodes an expression; returns `None` for one, or a use of one, that this program never sends.
pub(super) fn decode_known(name: &str, fields: &Fields<'_>) -> Result<Option<Expr>, DecodeError> {
    const NFT_BITWISE_MASK_XOR: u32 = 0;
    Ok(Some(match name {
        "payload" if fields.find(NFTA_PAYLOAD_DREG).is_some() => Expr::Payload {
            base: fields.be32(NFTA_PAYLOAD_BASE)?,
            offset: fields.be32(NFTA_PAYLOAD_OFFSET)?,
            length: fields.be32(NFTA_PAYLOAD_LEN)?,
            to: register(fields, NFTA_PAYLOAD_DREG)?,
        },
        "meta" => {
            let key = fields.be32(NFTA_META_KEY)?;
            match optional_register(fields, NFTA_META_DREG)? {
                Some(to) => Expr::Meta { key, to },
                None => Expr::MetaSet { key, from: register(fields, NFTA_META_SREG)? },
            }
        }
        "ct" if fields.find(NFTA_CT_DREG).is_some() && fields.find(NFTA_CT_DIRECTION).is_none() => {
            Expr::Ct { key: fields.be32(NFTA_CT_KEY)?, to: register(fields, NFTA_CT_DREG)? }
        }
        "ct" if is_original(fields)? => {
            Expr::CtOriginal { key: fields.be32(NFTA_CT_KEY)?, to: register(fields, NFTA_CT_DREG)? }
        }
        "fib" if fields.be32(NFTA_FIB_RESULT)? == NFT_FIB_RESULT_ADDRTYPE => Expr::FibType {
            flags: fields.be32(NFTA_FIB_FLAGS)?,
            to: register(fields, NFTA_FIB_DREG)?,
        },
        "numgen"
            if fields.be32(NFTA_NG_TYPE)? == NFT_NG_RANDOM
                && fields.be32_or_zero(NFTA_NG_OFFSET)? == 0 =>
        {
            let modulus = fields.be32(NFTA_NG_MODULUS)?;
            Expr::Numgen { modulus, to: register(fields, NFTA_NG_DREG)? }
        }
        "hash" => return decode_hash(fields),
        "cmp" => return decode_comparison(fields),
        "byteorder" => Expr::Byteorder {
            from: register(fields, NFTA_BYTEORDER_SREG)?,
            to: register(fields, NFTA_BYTEORDER_DREG)?,
            length: fields.be32(NFTA_BYTEORDER_LEN)?,
            size: fields.be32(NFTA_BYTEORDER_SIZE)?,
        },
        "bitwise" if fields.be32_or_zero(NFTA_BITWISE_OP)? == NFT_BITWISE_MASK_XOR => {
            Expr::Bitwise {
                from: register(fields, NFTA_BITWISE_SREG)?,
                to: register(fields, NFTA_BITWISE_DREG)?,
                mask: value(fields, NFTA_BITWISE_MASK)?,
                xor: value(fields, NFTA_BITWISE_XOR)?,
            }
        }
        "lookup" => Expr::Lookup {
            set: fields.str(NFTA_LOOKUP_SET)?.to_owned().into(),
            from: register(fields, NFTA_LOOKUP_SREG)?,
            to: optional_register(fields, NFTA_LOOKUP_DREG)?,
            negated: fields.be32_or_zero(NFTA_LOOKUP_FLAGS)? & NFT_LOOKUP_F_INV != 0,
        },
        "immediate" => decode_immediate(fields)?,
        "nat" => return decode_nat(fields),
        "masq" if fields.find(NFTA_MASQ_REG_PROTO_MIN).is_none() => {
            Expr::Masquerade { flags: fields.be32_or_zero(NFTA_MASQ_FLAGS)? }
        }
        "reject" => Expr::Reject {
            kind: fields.be32(NFTA_REJECT_TYPE)?,
            code: fields.find(NFTA_REJECT_ICMP_CODE).map_or(Ok(0), |code| code.u8())?,
        },
        "dynset" => return decode_dynset(fields),
        "flow_offload" => Expr::FlowOffload(fields.str(NFTA_FLOW_TABLE_NAME)?.to_owned().into()),
        _ => return Ok(None),
    }))
}

pub(super) fn value(fields: &Fields<'_>, kind: u16) -> Result<Vec<u8>, DecodeError> {
    Ok(fields.nest(kind)?.need(NFTA_DATA_VALUE)?.payload.to_vec())
}

/// Returns whether `ct` loads a field of the original direction.
fn is_original(fields: &Fields<'_>) -> Result<bool, DecodeError> {
    let direction = fields.find(NFTA_CT_DIRECTION).map(|direction| direction.u8()).transpose()?;
    Ok(fields.find(NFTA_CT_DREG).is_some() && direction == Some(IP_CT_DIR_ORIGINAL))
}

fn decode_comparison(fields: &Fields<'_>) -> Result<Option<Expr>, DecodeError> {
    let (operation, from) = (fields.be32(NFTA_CMP_OP)?, register(fields, NFTA_CMP_SREG)?);
    let value = value(fields, NFTA_CMP_DATA)?;
    Ok(match operation {
        NFT_CMP_EQ => Some(Expr::Cmp { from, negated: false, value }),
        NFT_CMP_NEQ => Some(Expr::Cmp { from, negated: true, value }),
        other => Order::decode(other).map(|order| Expr::Order { from, order, value }),
    })
}

fn decode_immediate(fields: &Fields<'_>) -> Result<Expr, DecodeError> {
    match register(fields, NFTA_IMMEDIATE_DREG)? {
        Register::Verdict => {
            Ok(Expr::Verdict(Verdict::decode(&fields.nest(NFTA_IMMEDIATE_DATA)?)?))
        }
        to @ Register::Word(_) => {
            Ok(Expr::Immediate { value: value(fields, NFTA_IMMEDIATE_DATA)?, to })
        }
    }
}

fn decode_nat(fields: &Fields<'_>) -> Result<Option<Expr>, DecodeError> {
    // The kernel reports both ends of a range, and sets these flags for an address and a port.
    const IMPLIED: u32 = NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED;
    let address = optional_register(fields, NFTA_NAT_REG_ADDR_MIN)?;
    let port = optional_register(fields, NFTA_NAT_REG_PROTO_MIN)?;
    let is_range = |kind, min| -> Result<bool, DecodeError> {
        Ok(optional_register(fields, kind)?.is_some_and(|max| Some(max) != min))
    };
    let plain = fields.be32(NFTA_NAT_TYPE)? == NFT_NAT_DNAT
        && fields.be32_or_zero(NFTA_NAT_FLAGS)? & !IMPLIED == 0
        && !is_range(NFTA_NAT_REG_ADDR_MAX, address)?
        && !is_range(NFTA_NAT_REG_PROTO_MAX, port)?;
    let family = u8::try_from(fields.be32(NFTA_NAT_FAMILY)?).unwrap_or(NFPROTO_UNSPEC);
    match address {
        Some(address) if plain => Ok(Some(Expr::Dnat { family, address, port })),
        Some(_) | None => Ok(None),
    }
}

/// Decodes a hash with a seed. Without one, the kernel chose the seed and does not report it.
fn decode_hash(fields: &Fields<'_>) -> Result<Option<Expr>, DecodeError> {
    let is_ours = fields.be32(NFTA_HASH_TYPE)? == NFT_HASH_JENKINS
        && fields.be32_or_zero(NFTA_HASH_OFFSET)? == 0
        && fields.find(NFTA_HASH_SEED).is_some();
    if !is_ours {
        return Ok(None);
    }
    Ok(Some(Expr::Jhash {
        from: register(fields, NFTA_HASH_SREG)?,
        length: fields.be32(NFTA_HASH_LEN)?,
        modulus: fields.be32(NFTA_HASH_MODULUS)?,
        seed: fields.be32(NFTA_HASH_SEED)?,
        to: register(fields, NFTA_HASH_DREG)?,
    }))
}

fn decode_dynset(fields: &Fields<'_>) -> Result<Option<Expr>, DecodeError> {
    let operation = match (fields.be32(NFTA_DYNSET_OP)?, fields.be32_or_zero(NFTA_DYNSET_FLAGS)?) {
        (NFT_DYNSET_OP_UPDATE, 0) => DynsetOperation::Update,
        (NFT_DYNSET_OP_DELETE, 0) => DynsetOperation::Delete,
        _ => return Ok(None),
    };
    Ok(Some(Expr::Dynset {
        operation,
        set: fields.str(NFTA_DYNSET_SET_NAME)?.to_owned().into(),
        key: register(fields, NFTA_DYNSET_SREG_KEY)?,
        data: optional_register(fields, NFTA_DYNSET_SREG_DATA)?,
        // The kernel reports 0 where no timeout was given.
        timeout: fields.be64(NFTA_DYNSET_TIMEOUT)?.filter(|timeout| *timeout > 0),
    }))
}
