//! The attributes of an entry, as conntrack sends them.
//!
//! They are read in one walk without allocation, because a dump may have a million entries.

use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroU64};

use engine::model::{Protocol, Target};
use nft::netlink::attr::{Attr, Attrs};

use super::abi::*;

/// The attributes of an entry of any protocol; `None` for those that the message lacks.
#[derive(Default)]
pub(super) struct Attributes<'a> {
    /// The original direction.
    pub(super) original: Tuple,
    /// The original direction, as received.
    pub(super) original_bytes: &'a [u8],
    /// The direction of the replies.
    pub(super) reply: Tuple,
    /// Bits of `enum ip_conntrack_status`.
    pub(super) status: Option<u32>,
    /// The state of the protocol.
    pub(super) protocol_info: Option<Attr<'a>>,
    /// The kernel's identifier of the entry.
    pub(super) id: Option<u32>,
    /// `None` for the default zone.
    pub(super) zone: Option<u16>,
    /// Start in nanoseconds since 1970.
    pub(super) started: Option<NonZeroU64>,
    /// Bytes of both directions.
    pub(super) bytes: Option<u64>,
}

/// One direction of an entry.
#[derive(Default)]
pub(super) struct Tuple {
    /// Transport protocol; `None` for others than those of services.
    pub(super) protocol: Option<Protocol>,
    /// Sender.
    pub(super) source: End,
    /// Receiver.
    pub(super) destination: End,
    /// Another zone than the default one applies to this direction alone.
    pub(super) has_zone: bool,
}

/// Address and port of one side.
#[derive(Default)]
pub(super) struct End {
    address: Option<IpAddr>,
    port: Option<NonZeroU16>,
}

impl<'a> Attributes<'a> {
    /// Decodes the payload of a message of type `kind`. Returns `None` unless it is an entry.
    pub(super) fn decode(kind: u16, payload: &'a [u8]) -> Option<Self> {
        if kind != IPCTNL_MSG_CT_NEW {
            return None;
        }
        let mut found = Self::default();
        for attr in Attrs::new(payload.get(NFGENMSG_LENGTH..)?) {
            let attr = attr.ok()?;
            match attr.kind {
                CTA_TUPLE_ORIG => {
                    found.original = Tuple::read(&attr)?;
                    found.original_bytes = attr.payload;
                }
                CTA_TUPLE_REPLY => found.reply = Tuple::read(&attr)?,
                CTA_STATUS => found.status = Some(attr.be32().ok()?),
                CTA_PROTOINFO => found.protocol_info = Some(attr),
                CTA_ID => found.id = Some(attr.be32().ok()?),
                CTA_ZONE => found.zone = Some(attr.be16().ok()?),
                CTA_TIMESTAMP => found.started = started_at(&attr),
                CTA_COUNTERS_ORIG | CTA_COUNTERS_REPLY => {
                    let sum = found.bytes.unwrap_or_default().saturating_add(counted(&attr)?);
                    found.bytes = Some(sum);
                }
                _ => {}
            }
        }
        Some(found)
    }
}

fn counted(counters: &Attr<'_>) -> Option<u64> {
    let bytes = counters.nested().flatten().find(|attr| attr.kind == CTA_COUNTERS_BYTES)?;
    bytes.be64().ok()
}

fn started_at(timestamps: &Attr<'_>) -> Option<NonZeroU64> {
    let start = timestamps.nested().flatten().find(|attr| attr.kind == CTA_TIMESTAMP_START)?;
    NonZeroU64::new(start.be64().ok()?)
}

impl Tuple {
    fn read(attr: &Attr<'_>) -> Option<Self> {
        let mut tuple = Self::default();
        for part in attr.nested() {
            let part = part.ok()?;
            match part.kind {
                CTA_TUPLE_IP => tuple.read_addresses(part.nested())?,
                CTA_TUPLE_PROTO => tuple.read_protocol(part.nested())?,
                CTA_TUPLE_ZONE => tuple.has_zone = true,
                _ => {}
            }
        }
        Some(tuple)
    }

    fn read_addresses(&mut self, fields: Attrs<'_>) -> Option<()> {
        for field in fields {
            let field = field.ok()?;
            let v4 = || Some(IpAddr::from(<[u8; 4]>::try_from(field.payload).ok()?));
            let v6 = || Some(IpAddr::from(<[u8; 16]>::try_from(field.payload).ok()?));
            match field.kind {
                CTA_IP_V4_SRC => self.source.address = v4(),
                CTA_IP_V4_DST => self.destination.address = v4(),
                CTA_IP_V6_SRC => self.source.address = v6(),
                CTA_IP_V6_DST => self.destination.address = v6(),
                _ => {}
            }
        }
        Some(())
    }

    fn read_protocol(&mut self, fields: Attrs<'_>) -> Option<()> {
        for field in fields {
            let field = field.ok()?;
            let port = || field.be16().ok().and_then(NonZeroU16::new);
            match field.kind {
                CTA_PROTO_NUM => self.protocol = field.u8().ok().and_then(protocol),
                CTA_PROTO_SRC_PORT => self.source.port = port(),
                CTA_PROTO_DST_PORT => self.destination.port = port(),
                _ => {}
            }
        }
        Some(())
    }
}

fn protocol(number: u8) -> Option<Protocol> {
    Protocol::ALL.into_iter().find(|it| it.number() == number)
}

impl End {
    /// Returns the address and port if both are known.
    pub(super) fn target(&self) -> Option<Target> {
        Some(Target { address: self.address?, port: self.port? })
    }
}
