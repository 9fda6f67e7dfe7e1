//! Instructions of any rule: the expressions that this program sends, and those of other programs
//! whose effect on a packet is known here.
//!
//! Decoding never fails because of an unknown expression; it becomes [`Instruction::Unknown`].

use super::abi::*;
use super::expr::{decode_known, value};
use super::fields::{DecodeError, Fields};
use super::register::{Register, optional_register, register};
use super::{Expr, Name};
use crate::netlink::attr::Attrs;

/// One instruction of a rule of any program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// An expression that this program also sends.
    Expr(Expr),
    /// Matches if the register is in a range, by bytes (`memcmp`).
    Range {
        /// Source register.
        from: Register,
        /// Matches if the register is not in the range.
        negated: bool,
        /// The lowest value.
        first: Vec<u8>,
        /// The highest value.
        last: Vec<u8>,
    },
    /// Loads an unpredictable number from `offset` to `offset + modulus - 1`.
    Draw {
        /// Number of possible results.
        modulus: u32,
        /// The lowest result.
        offset: u32,
        /// Destination register.
        to: Register,
        /// The keyword of nft(8).
        word: &'static str,
    },
    /// Translates an address or port. `None` keeps the present one, or uses the choice of
    /// conntrack.
    Translate {
        /// Translates the source, not the destination.
        source: bool,
        /// Register of the address.
        address: Option<Register>,
        /// Register of the port.
        port: Option<Register>,
        /// The registers hold the first of a range, from which the kernel chooses.
        is_range: bool,
    },
    /// Redirects the packet to this host.
    Redirect {
        /// Register of the port.
        port: Option<Register>,
    },
    /// Sets metadata of the connection.
    CtSet {
        /// `NFT_CT_*`.
        key: u32,
        /// Source register.
        from: Register,
    },
    /// Disables tracking of the connection.
    Notrack,
    /// Loads whether a route leads to an interface, or which: uses of `fib` that this program
    /// lacks.
    Fib {
        /// `NFTA_FIB_F_*`.
        flags: u32,
        /// `NFT_FIB_RESULT_*`.
        result: u32,
        /// Destination register.
        to: Register,
    },
    /// No effect on the packet: `counter`, `log` and the like.
    Neutral(String),
    /// Matches by a rate or a count that is not read: `limit`, `quota`, `connlimit`.
    Limited(String),
    /// An unknown expression, or an unknown use of one; with the kernel's name.
    Unknown(String),
}

impl Instruction {
    /// Reads an item of `NFTA_RULE_EXPRESSIONS`.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let fields = Fields::read(attrs)?;
        let name = fields.str(NFTA_EXPR_NAME)?;
        let data = fields.find(NFTA_EXPR_DATA).map_or(Attrs::new(&[]), |data| data.nested());
        let fields = Fields::read(data)?;
        let decoded = match decode_known(name, &fields) {
            Ok(Some(expr)) => Ok(Some(Self::Expr(expr))),
            Ok(None) => decode_other(name, &fields),
            Err(error) => Err(error),
        };
        match decoded {
            Ok(known) => Ok(known.unwrap_or_else(|| Self::Unknown(name.to_owned()))),
            Err(DecodeError::Attribute(error)) => Err(error.into()),
            Err(DecodeError::Missing { .. } | DecodeError::Unknown(_)) => {
                Ok(Self::Unknown(name.to_owned()))
            }
        }
    }
}

/// Decodes other expressions; returns `None` for an unknown one.
fn decode_other(name: &str, fields: &Fields<'_>) -> Result<Option<Instruction>, DecodeError> {
    Ok(Some(match name {
        "range" => Instruction::Range {
            from: register(fields, NFTA_RANGE_SREG)?,
            negated: fields.be32(NFTA_RANGE_OP)? == NFT_RANGE_NEQ,
            first: value(fields, NFTA_RANGE_FROM_DATA)?,
            last: value(fields, NFTA_RANGE_TO_DATA)?,
        },
        "numgen" => Instruction::Draw {
            modulus: fields.be32(NFTA_NG_MODULUS)?,
            offset: fields.be32_or_zero(NFTA_NG_OFFSET)?,
            to: register(fields, NFTA_NG_DREG)?,
            word: if fields.be32(NFTA_NG_TYPE)? == NFT_NG_RANDOM {
                "numgen random"
            } else {
                "numgen inc"
            },
        },
        "hash" => Instruction::Draw {
            modulus: fields.be32(NFTA_HASH_MODULUS)?,
            offset: fields.be32_or_zero(NFTA_HASH_OFFSET)?,
            to: register(fields, NFTA_HASH_DREG)?,
            word: if fields.be32(NFTA_HASH_TYPE)? == NFT_HASH_JENKINS {
                "jhash"
            } else {
                "symhash"
            },
        },
        "nat" => decode_translation(fields)?,
        "masq" => {
            Instruction::Expr(Expr::Masquerade { flags: fields.be32_or_zero(NFTA_MASQ_FLAGS)? })
        }
        "redir" => {
            Instruction::Redirect { port: optional_register(fields, NFTA_REDIR_REG_PROTO_MIN)? }
        }
        "ct" if fields.find(NFTA_CT_SREG).is_some() => Instruction::CtSet {
            key: fields.be32(NFTA_CT_KEY)?,
            from: register(fields, NFTA_CT_SREG)?,
        },
        "fib" => Instruction::Fib {
            flags: fields.be32(NFTA_FIB_FLAGS)?,
            result: fields.be32(NFTA_FIB_RESULT)?,
            to: register(fields, NFTA_FIB_DREG)?,
        },
        "notrack" => Instruction::Notrack,
        "counter" | "log" | "last" | "dup" => Instruction::Neutral(name.to_owned()),
        "limit" | "quota" | "connlimit" => Instruction::Limited(name.to_owned()),
        "objref" => return decode_object(fields),
        "dynset" => decode_dynset(fields)?,
        "match" | "target" => decode_xtables(name, fields)?,
        _ => return Ok(None),
    }))
}

fn decode_translation(fields: &Fields<'_>) -> Result<Instruction, DecodeError> {
    let address = optional_register(fields, NFTA_NAT_REG_ADDR_MIN)?;
    let port = optional_register(fields, NFTA_NAT_REG_PROTO_MIN)?;
    let last_address = optional_register(fields, NFTA_NAT_REG_ADDR_MAX)?;
    let last_port = optional_register(fields, NFTA_NAT_REG_PROTO_MAX)?;
    let differs = |last: Option<Register>, first| last.is_some() && last != first;
    Ok(Instruction::Translate {
        source: fields.be32(NFTA_NAT_TYPE)? != NFT_NAT_DNAT,
        address,
        port,
        is_range: differs(last_address, address) || differs(last_port, port),
    })
}

/// Decodes a reference to a named object: `counter name "web"`.
fn decode_object(fields: &Fields<'_>) -> Result<Option<Instruction>, DecodeError> {
    let Some(kind) = fields.optional_be32(NFTA_OBJREF_IMM_TYPE)? else { return Ok(None) };
    let text =
        |word| format!("{word} name \"{}\"", fields.str(NFTA_OBJREF_IMM_NAME).unwrap_or("?"));
    Ok(Some(match kind {
        1 => Instruction::Neutral(text("counter")),
        3 => Instruction::Neutral(text("ct helper set")),
        7 => Instruction::Neutral(text("ct timeout set")),
        8 => Instruction::Neutral(text("meta secmark set")),
        2 => Instruction::Limited(text("quota")),
        4 => Instruction::Limited(text("limit")),
        5 => Instruction::Limited(text("ct count")),
        _ => return Ok(None),
    }))
}

fn decode_dynset(fields: &Fields<'_>) -> Result<Instruction, DecodeError> {
    let set: Name = fields.str(NFTA_DYNSET_SET_NAME)?.to_owned().into();
    let has_condition =
        fields.find(NFTA_DYNSET_EXPR).is_some() || fields.find(NFTA_DYNSET_EXPRESSIONS).is_some();
    Ok(if has_condition {
        Instruction::Limited(format!("update @{set}"))
    } else {
        Instruction::Unknown(format!("dynset @{set}"))
    })
}

/// Decodes a match or target of iptables-nft, by its name.
fn decode_xtables(kind: &str, fields: &Fields<'_>) -> Result<Instruction, DecodeError> {
    // NFTA_TARGET_NAME has the same number.
    let name = fields.str(NFTA_MATCH_NAME)?;
    Ok(match (kind, name) {
        ("match", "comment") | ("target", "LOG" | "NFLOG" | "TRACE") => {
            Instruction::Neutral(format!("xt {kind} \"{name}\""))
        }
        _ => Instruction::Unknown(format!("xt {kind} \"{name}\"")),
    })
}
