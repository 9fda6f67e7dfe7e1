//! Messages of `NFNL_SUBSYS_CTNETLINK`, as far as they are needed.
//!
//! Numbers are those of `<linux/netfilter/nfnetlink_conntrack.h>`; the bits of
//! `CTA_FILTER_ORIG_FLAGS` and `CTA_FILTER_REPLY_FLAGS` are in the kernel's
//! `net/netfilter/nf_internals.h` only.

use std::net::IpAddr;
use std::num::NonZeroU16;

use super::flow::{Flow, StaleFlow};
use crate::family::Family;
use crate::model::{Protocol, Target};
use crate::netlink::attr::{Attr, AttrWriter, Attrs, NLA_F_NESTED, TooLong};
use crate::netlink::message::{self, DUMP, Header, REQUEST};

const NFNL_SUBSYS_CTNETLINK: u16 = 1 << 8;
/// An entry, in the answer to a dump.
const IPCTNL_MSG_CT_NEW: u16 = NFNL_SUBSYS_CTNETLINK;
const IPCTNL_MSG_CT_GET: u16 = NFNL_SUBSYS_CTNETLINK | 1;
const IPCTNL_MSG_CT_DELETE: u16 = NFNL_SUBSYS_CTNETLINK | 2;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_FILTER: u16 = 25;

const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
const FILTER_IP_SRC: u32 = 1 << 0;
const FILTER_IP_DST: u32 = 1 << 1;
const FILTER_PROTO_NUM: u32 = 1 << 3;
const FILTER_PROTO_SRC_PORT: u32 = 1 << 4;
const FILTER_PROTO_DST_PORT: u32 = 1 << 5;

/// Length of `struct nfgenmsg` in bytes.
const NFGENMSG: usize = 4;

/// Which entries a request is about: only UDP, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Of this family.
    pub(super) family: Family,
    /// Sent to this address.
    pub(super) address: Option<IpAddr>,
    /// Sent to this port.
    pub(super) port: Option<NonZeroU16>,
    /// Answered by this endpoint.
    pub(super) endpoint: Option<Target>,
}

/// One entry of a dump, with what it takes to delete it and no later one of the same addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Where it was sent and who answers.
    pub(super) flow: Flow,
    /// The original tuple's attributes, as the kernel wrote them.
    original: Vec<u8>,
    id: Option<u32>,
    zone: Option<u16>,
}

/// Appends a request for all entries that pass `filter`. The kernel may tell others too: before 5.8
/// it knows no filter, and addresses of IPv6 are not part of what is asked for.
///
/// # Errors
/// See [`message::append`]; it does not happen with what is appended here.
pub(super) fn dump(out: &mut Vec<u8>, sequence: u32, filter: &Filter) -> Result<(), TooLong> {
    let header = Header { kind: IPCTNL_MSG_CT_GET, flags: REQUEST | DUMP, sequence };
    message::append(out, header, &nfgenmsg(filter.family), |w| filter.write(w))
}

/// Appends a request to delete one entry. Without `NLM_F_ACK` in `flags`, the kernel only answers
/// with an error.
///
/// # Errors
/// As [`dump`].
pub(super) fn delete(
    out: &mut Vec<u8>,
    sequence: u32,
    entry: &Entry,
    flags: u16,
) -> Result<(), TooLong> {
    let header = Header { kind: IPCTNL_MSG_CT_DELETE, flags, sequence };
    message::append(out, header, &nfgenmsg(Family::of(entry.flow.sent_to.address)), |w| {
        w.bytes(CTA_TUPLE_ORIG | NLA_F_NESTED, &entry.original);
        if let Some(id) = entry.id {
            w.be32(CTA_ID, id);
        }
        if let Some(zone) = entry.zone {
            w.be16(CTA_ZONE, zone);
        }
    })
}

impl Filter {
    /// Those of a stale flow.
    pub(super) fn of(flow: &StaleFlow) -> Self {
        let (address, endpoint) = (flow.address(), flow.endpoint());
        Self { family: flow.family(), address, port: Some(flow.port()), endpoint }
    }

    /// All of a family.
    pub(super) fn all(family: Family) -> Self {
        Self { family, address: None, port: None, endpoint: None }
    }

    fn write(&self, w: &mut AttrWriter<'_>) {
        // `ctnetlink_filter_match_tuple` compares IPv6 addresses the wrong way round (seen on
        // 6.18): what has the address does not pass, and what has another does.
        let usable = |address: &IpAddr| address.is_ipv4();
        let address = self.address.filter(usable);
        let original = tuple(w, CTA_TUPLE_ORIG, &DESTINATION, address, self.port);
        let reply = self.endpoint.map(|Target { address, port }| {
            let address = Some(address).filter(usable);
            tuple(w, CTA_TUPLE_REPLY, &SOURCE, address, Some(port))
        });
        w.nest(CTA_FILTER, |w| {
            // Unlike the other numbers of this protocol these are in the machine's byte order.
            w.bytes(CTA_FILTER_ORIG_FLAGS, &original.to_ne_bytes());
            if let Some(reply) = reply {
                w.bytes(CTA_FILTER_REPLY_FLAGS, &reply.to_ne_bytes());
            }
        });
    }
}

/// One end of a tuple: types of its attributes and the flags that filter by them.
struct Side {
    v4: u16,
    v6: u16,
    port: u16,
    address_flag: u32,
    port_flag: u32,
}

const SOURCE: Side = Side {
    v4: CTA_IP_V4_SRC,
    v6: CTA_IP_V6_SRC,
    port: CTA_PROTO_SRC_PORT,
    address_flag: FILTER_IP_SRC,
    port_flag: FILTER_PROTO_SRC_PORT,
};

const DESTINATION: Side = Side {
    v4: CTA_IP_V4_DST,
    v6: CTA_IP_V6_DST,
    port: CTA_PROTO_DST_PORT,
    address_flag: FILTER_IP_DST,
    port_flag: FILTER_PROTO_DST_PORT,
};

/// Writes a UDP tuple with one of its ends; the flags of what it says.
fn tuple(
    w: &mut AttrWriter<'_>,
    kind: u16,
    side: &Side,
    address: Option<IpAddr>,
    port: Option<NonZeroU16>,
) -> u32 {
    let mut flags = FILTER_PROTO_NUM;
    w.nest(kind, |w| {
        if let Some(address) = address {
            flags |= side.address_flag;
            w.nest(CTA_TUPLE_IP, |w| match address {
                IpAddr::V4(address) => w.bytes(side.v4, &address.octets()),
                IpAddr::V6(address) => w.bytes(side.v6, &address.octets()),
            });
        }
        w.nest(CTA_TUPLE_PROTO, |w| {
            w.u8(CTA_PROTO_NUM, Protocol::Udp.number());
            if let Some(port) = port {
                flags |= side.port_flag;
                w.be16(side.port, port.get());
            }
        });
    });
    flags
}

/// With version 0 the kernel deletes from both families (`ctnetlink_del_conntrack`).
fn nfgenmsg(family: Family) -> [u8; NFGENMSG] {
    [family.number(), 1, 0, 0]
}

impl Entry {
    /// Reads the payload of a message of type `kind`; `None` if it is no UDP entry.
    pub(super) fn decode(kind: u16, payload: &[u8]) -> Option<Self> {
        if kind != IPCTNL_MSG_CT_NEW {
            return None;
        }
        let (mut sent_to, mut answered_by) = (None, None);
        let (mut original, mut id, mut zone) = (Vec::new(), None, None);
        for attr in Attrs::new(payload.get(NFGENMSG..)?) {
            let attr = attr.ok()?;
            match attr.kind {
                CTA_TUPLE_ORIG => {
                    original = attr.payload.to_vec();
                    sent_to = read_tuple(&attr, &DESTINATION);
                }
                CTA_TUPLE_REPLY => answered_by = read_tuple(&attr, &SOURCE),
                CTA_ID => id = attr.be32().ok(),
                CTA_ZONE => zone = attr.be16().ok(),
                _ => {}
            }
        }
        let flow = Flow { sent_to: sent_to?, answered_by: answered_by? };
        Some(Self { flow, original, id, zone })
    }
}

/// One end of a UDP tuple.
fn read_tuple(tuple: &Attr<'_>, side: &Side) -> Option<Target> {
    let (mut address, mut port, mut protocol) = (None, None, None);
    for attr in tuple.nested().flatten() {
        for inner in attr.nested().flatten() {
            match (attr.kind, inner.kind) {
                (CTA_TUPLE_IP, kind) if kind == side.v4 => {
                    address = Some(IpAddr::from(<[u8; 4]>::try_from(inner.payload).ok()?));
                }
                (CTA_TUPLE_IP, kind) if kind == side.v6 => {
                    address = Some(IpAddr::from(<[u8; 16]>::try_from(inner.payload).ok()?));
                }
                (CTA_TUPLE_PROTO, CTA_PROTO_NUM) => protocol = inner.u8().ok(),
                (CTA_TUPLE_PROTO, kind) if kind == side.port => {
                    port = NonZeroU16::new(inner.be16().ok()?);
                }
                _ => {}
            }
        }
    }
    let is_udp = protocol == Some(Protocol::Udp.number());
    is_udp.then_some(Target { address: address?, port: port? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str, port: u16) -> Target {
        Target { address: address.parse().unwrap(), port: NonZeroU16::new(port).unwrap() }
    }

    /// Flags for the original and the answering direction, and the bytes of all tuples.
    fn filter(frontend: Target, endpoint: Target) -> (u32, u32, usize) {
        let mut out = Vec::new();
        let flow = StaleFlow::Between { frontend, endpoint };
        dump(&mut out, 1, &Filter::of(&flow)).unwrap();
        let (mut flags, mut length) = (Vec::new(), 0);
        for attr in Attrs::new(&out[message::HEADER_LENGTH + NFGENMSG..]).map(Result::unwrap) {
            if attr.kind == CTA_FILTER {
                let word = |attr: Attr<'_>| u32::from_ne_bytes(attr.payload.try_into().unwrap());
                flags = attr.nested().map(|attr| word(attr.unwrap())).collect();
            } else {
                length += attr.payload.len();
            }
        }
        (flags[0], flags[1], length)
    }

    #[test]
    fn addresses_are_asked_for_only_where_the_kernel_compares_them_rightly() {
        let v4 = filter(target("10.96.0.10", 53), target("10.244.0.1", 5353));
        assert_eq!(v4, (0b10_1010, 0b1_1001, 64));
        let v6 = filter(target("fd00::10", 53), target("fd00::1", 5353));
        assert_eq!(v6, (0b10_1000, 0b1_1000, 40));
    }

    #[test]
    fn what_is_no_udp_entry_is_passed_over() {
        let entry = |protocol: u8| {
            let mut out = vec![Family::Ip.number(), 0, 0, 0];
            let mut w = AttrWriter::new(&mut out);
            for kind in [CTA_TUPLE_ORIG, CTA_TUPLE_REPLY] {
                w.nest(kind, |w| {
                    w.nest(CTA_TUPLE_IP, |w| {
                        w.bytes(CTA_IP_V4_SRC, &[10, 0, 0, 1]);
                        w.bytes(CTA_IP_V4_DST, &[10, 0, 0, 2]);
                    });
                    w.nest(CTA_TUPLE_PROTO, |w| {
                        w.u8(CTA_PROTO_NUM, protocol);
                        w.be16(CTA_PROTO_SRC_PORT, 1000);
                        w.be16(CTA_PROTO_DST_PORT, 53);
                    });
                });
            }
            w.be32(CTA_ID, 7);
            out
        };
        let udp = Entry::decode(IPCTNL_MSG_CT_NEW, &entry(17)).unwrap();
        let (sent_to, answered_by) = (target("10.0.0.2", 53), target("10.0.0.1", 1000));
        assert_eq!((udp.flow, udp.id), (Flow { sent_to, answered_by }, Some(7)));
        assert_eq!(Entry::decode(IPCTNL_MSG_CT_NEW, &entry(6)), None);
        assert_eq!(Entry::decode(IPCTNL_MSG_CT_DELETE, &entry(17)), None);
        assert_eq!(Entry::decode(IPCTNL_MSG_CT_NEW, &entry(17)[..20]), None);
    }
}
