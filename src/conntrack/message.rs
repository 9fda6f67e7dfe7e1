//! Messages of `NFNL_SUBSYS_CTNETLINK` that deletion needs, on netlink-packet-netfilter.
//!
//! The constants below are missing in that crate. They are those of
//! `<linux/netfilter/nfnetlink_conntrack.h>`; the bits of `CTA_FILTER_ORIG_FLAGS` and
//! `CTA_FILTER_REPLY_FLAGS` are defined only in the kernel's `net/netfilter/nf_internals.h`.

use std::net::IpAddr;
use std::num::NonZeroU16;

use engine::flow::{Flow, StaleFlow};
use engine::model::Target;
use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, Nla, NlaBuffer, NlasIterator, Parseable, parse_u16_be, parse_u32_be,
};
use netlink_packet_netfilter::conntrack::{
    ConntrackAttribute, ConntrackMessage, ConntrackMessageType, IPTuple, ProtoTuple, Protocol,
    Tuple,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily, NetfilterSubsystem,
};
use nft::family::Family;

use super::abi::{CTA_ID, CTA_TIMEOUT, CTA_TUPLE_ORIG, CTA_TUPLE_REPLY, CTA_ZONE};

/// A message of `enum cntl_msg_types`.
const IPCTNL_MSG_CT_GET_STATS: u8 = 5;

const CTA_FILTER: u16 = 25;

const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
const FILTER_IP_SRC: u32 = 1 << 0;
const FILTER_IP_DST: u32 = 1 << 1;
const FILTER_PROTO_NUM: u32 = 1 << 3;
const FILTER_PROTO_SRC_PORT: u32 = 1 << 4;
const FILTER_PROTO_DST_PORT: u32 = 1 << 5;

/// UDP entries of one family that a request covers. `None` matches any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Family of the entries.
    pub(super) family: Family,
    /// Original destination address.
    pub(super) address: Option<IpAddr>,
    /// Original destination port.
    pub(super) port: Option<NonZeroU16>,
    /// Source of the replies.
    pub(super) endpoint: Option<Target>,
}

/// One entry of a dump, with the attributes that identify it in a delete. Without the identifier, a
/// delete could match a later entry with the same addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Destination and reply source.
    pub(super) flow: Flow,
    /// The original tuple as received: in typed form it takes six times the memory.
    original: DefaultNla,
    id: Option<u32>,
    /// `None` for the default zone.
    pub(super) zone: Option<u16>,
}

/// Appends a dump request for the entries that match `filter`. The answer may contain other
/// entries: kernels before 5.8 ignore the filter, and the filter never contains IPv6 addresses.
pub(super) fn dump(out: &mut Vec<u8>, sequence: u32, filter: &Filter) {
    let message = ConntrackMessage::Other {
        message_type: ConntrackMessageType::Get.into(),
        attributes: filter.attributes(),
    };
    append(out, sequence, NLM_F_REQUEST | NLM_F_DUMP, filter.family, message);
}

/// Appends a request for the number of entries, which the kernel also acknowledges.
pub(super) fn statistics(out: &mut Vec<u8>, sequence: u32) {
    let message_type = IPCTNL_MSG_CT_GET_STATS;
    let message = ConntrackMessage::Other { message_type, attributes: Vec::new() };
    append(out, sequence, NLM_F_REQUEST | NLM_F_ACK, Family::Ip, message);
}

/// Appends a request to delete one entry. Without `NLM_F_ACK` in `flags`, the kernel answers only
/// errors.
pub(super) fn delete(out: &mut Vec<u8>, sequence: u32, entry: &Entry, flags: u16) {
    let id = entry.id.map(|id| DefaultNla::new(CTA_ID, id.to_be_bytes().into()));
    let zone = entry.zone.map(|zone| DefaultNla::new(CTA_ZONE, zone.to_be_bytes().into()));
    let attributes = [entry.original.clone()].into_iter().chain(id).chain(zone).collect();
    let message_type = ConntrackMessageType::Delete.into();
    let message = ConntrackMessage::Other { message_type, attributes };
    append(out, sequence, flags, Family::of(entry.flow.sent_to.address), message);
}

/// Appends a request that expires one entry. The kernel deletes an expired entry when it looks it
/// up, for example to delete it.
pub(super) fn expire(out: &mut Vec<u8>, sequence: u32, entry: &Entry, flags: u16) {
    let timeout = DefaultNla::new(CTA_TIMEOUT, 0u32.to_be_bytes().into());
    let zone = entry.zone.map(|zone| DefaultNla::new(CTA_ZONE, zone.to_be_bytes().into()));
    let attributes = [entry.original.clone(), timeout].into_iter().chain(zone).collect();
    let message_type = ConntrackMessageType::New.into();
    let message = ConntrackMessage::Other { message_type, attributes };
    append(out, sequence, flags, Family::of(entry.flow.sent_to.address), message);
}

fn append(out: &mut Vec<u8>, sequence: u32, flags: u16, family: Family, message: ConntrackMessage) {
    // With version 0 the kernel deletes from both families (`ctnetlink_del_conntrack`).
    let family = NetfilterProtoFamily::from(family.number());
    let message = NetfilterMessage::new(NetfilterHeader::new(family, 1, 0), message);
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, message.into());
    message.finalize();
    let start = out.len();
    out.resize(start + message.buffer_len(), 0);
    // `serialize` panics on attributes of 64 KiB. Ours are short, or were received as attributes.
    message.serialize(&mut out[start..]);
}

/// Returns an attribute whose payload is `attributes`.
fn nest<T: Nla>(kind: u16, attributes: &[T]) -> DefaultNla {
    let mut value = vec![0; attributes.buffer_len()];
    attributes.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

impl Filter {
    /// Returns the filter for the entries of a stale flow.
    pub(super) fn of(flow: &StaleFlow) -> Self {
        let (address, endpoint) = (flow.address(), flow.endpoint());
        Self { family: flow.family(), address, port: Some(flow.port()), endpoint }
    }

    /// Returns the filter for all entries of a family.
    pub(super) fn all(family: Family) -> Self {
        Self { family, address: None, port: None, endpoint: None }
    }

    /// Returns generic attributes: the typed `CTA_FILTER` loses its flag `NLA_F_NESTED`, and the
    /// kernel refuses it.
    fn attributes(&self) -> Vec<DefaultNla> {
        // `ctnetlink_filter_match_tuple` inverts the comparison of IPv6 addresses (seen on 6.18):
        // entries with the address do not match, entries with another do.
        let usable = |address: &IpAddr| address.is_ipv4();
        let address = self.address.filter(usable).map(IPTuple::DestinationAddress);
        let port = self.port.map(|port| ProtoTuple::DestinationPort(port.get()));
        // Unlike the other numbers of this protocol, these are in host byte order.
        let flags = |kind, flags: u32| DefaultNla::new(kind, flags.to_ne_bytes().into());
        let mut compared = vec![flags(CTA_FILTER_ORIG_FLAGS, flags_of(&address, &port))];
        let mut attributes = vec![tuple(CTA_TUPLE_ORIG, address, port)];
        if let Some(Target { address, port }) = self.endpoint {
            let address = Some(address).filter(usable).map(IPTuple::SourceAddress);
            let port = Some(ProtoTuple::SourcePort(port.get()));
            compared.push(flags(CTA_FILTER_REPLY_FLAGS, flags_of(&address, &port)));
            attributes.push(tuple(CTA_TUPLE_REPLY, address, port));
        }
        attributes.push(nest(CTA_FILTER, &compared));
        attributes
    }
}

/// Returns a UDP tuple with the fields that the kernel compares.
fn tuple(kind: u16, address: Option<IPTuple>, port: Option<ProtoTuple>) -> DefaultNla {
    let protocol = [ProtoTuple::Protocol(Protocol::Udp)].into_iter().chain(port).collect();
    let address = address.map(|address| Tuple::Ip(vec![address]));
    let parts: Vec<_> = address.into_iter().chain([Tuple::Proto(protocol)]).collect();
    nest(kind, &parts)
}

fn flags_of(address: &Option<IPTuple>, port: &Option<ProtoTuple>) -> u32 {
    let address = match address {
        Some(IPTuple::SourceAddress(_)) => FILTER_IP_SRC,
        Some(IPTuple::DestinationAddress(_)) => FILTER_IP_DST,
        _ => 0,
    };
    let port = match port {
        Some(ProtoTuple::SourcePort(_)) => FILTER_PROTO_SRC_PORT,
        Some(ProtoTuple::DestinationPort(_)) => FILTER_PROTO_DST_PORT,
        _ => 0,
    };
    FILTER_PROTO_NUM | address | port
}

/// One side of a UDP tuple.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

impl Entry {
    /// Decodes the payload of a message of type `kind`. Returns `None` unless it is a UDP entry.
    ///
    /// Attributes are parsed one by one: parsing the message as a whole makes a dump a third slower.
    pub(super) fn decode(kind: u16, payload: &[u8]) -> Option<Self> {
        let of_entry = (NetfilterSubsystem::Conntrack, ConntrackMessageType::New);
        let [subsystem, kind] = kind.to_be_bytes();
        if (NetfilterSubsystem::from(subsystem), ConntrackMessageType::from(kind)) != of_entry {
            return None;
        }
        let header = NetfilterHeader::parse(payload).ok()?;
        let (mut sent_to, mut answered_by) = (None, None);
        let (mut original, mut id, mut zone) = (None, None, None);
        for attribute in NlasIterator::new(&payload[header.buffer_len()..]) {
            let attribute = attribute.ok()?;
            match attribute.kind() {
                CTA_TUPLE_ORIG => {
                    sent_to = read_tuple(&attribute, End::Destination);
                    let kind = CTA_TUPLE_ORIG | NLA_F_NESTED;
                    original = Some(DefaultNla::new(kind, attribute.value().into()));
                }
                CTA_TUPLE_REPLY => answered_by = read_tuple(&attribute, End::Source),
                CTA_ID => id = parse_u32_be(attribute.value()).ok(),
                CTA_ZONE => zone = parse_u16_be(attribute.value()).ok(),
                _ => {}
            }
        }
        let flow = Flow { sent_to: sent_to?, answered_by: answered_by? };
        Some(Self { flow, original: original?, id, zone })
    }
}

/// Reads one side of a UDP tuple.
fn read_tuple(attribute: &NlaBuffer<&[u8]>, end: End) -> Option<Target> {
    let (ConntrackAttribute::CtaTupleOrig(parts) | ConntrackAttribute::CtaTupleReply(parts)) =
        ConntrackAttribute::parse(attribute).ok()?
    else {
        return None;
    };
    let (mut address, mut port, mut is_udp) = (None, None, false);
    for part in parts {
        if let Tuple::Ip(fields) = part {
            address = fields.iter().find_map(|it| end.address(it));
        } else if let Tuple::Proto(fields) = part {
            is_udp = fields.contains(&ProtoTuple::Protocol(Protocol::Udp));
            port = fields.iter().find_map(|it| end.port(it));
        }
    }
    is_udp.then_some(Target { address: address?, port: port? })
}

impl End {
    fn address(self, field: &IPTuple) -> Option<IpAddr> {
        match (self, field) {
            (Self::Source, IPTuple::SourceAddress(address))
            | (Self::Destination, IPTuple::DestinationAddress(address)) => Some(*address),
            _ => None,
        }
    }

    fn port(self, field: &ProtoTuple) -> Option<NonZeroU16> {
        match (self, field) {
            (Self::Source, ProtoTuple::SourcePort(port))
            | (Self::Destination, ProtoTuple::DestinationPort(port)) => NonZeroU16::new(*port),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use nft::netlink::attr::{Attr, AttrWriter, Attrs};
    use nft::netlink::message::HEADER_LENGTH;

    use super::super::abi::{
        CTA_IP_V4_DST, CTA_IP_V4_SRC, CTA_PROTO_DST_PORT, CTA_PROTO_NUM, CTA_PROTO_SRC_PORT,
        CTA_TUPLE_IP, CTA_TUPLE_PROTO,
    };
    use super::*;

    const IPCTNL_MSG_CT_NEW: u16 = 0x100;
    const IPCTNL_MSG_CT_DELETE: u16 = 0x102;
    const NFGENMSG: usize = 4;

    fn target(address: &str, port: u16) -> Target {
        Target { address: address.parse().unwrap(), port: NonZeroU16::new(port).unwrap() }
    }

    /// Returns the flags for the original and the reply direction, and the bytes of all tuples.
    fn filter(frontend: Target, endpoint: Target) -> (u32, u32, usize) {
        let mut out = Vec::new();
        let flow = StaleFlow::Between { frontend, endpoint };
        dump(&mut out, 1, &Filter::of(&flow));
        let (mut flags, mut length) = (Vec::new(), 0);
        for attr in Attrs::new(&out[HEADER_LENGTH + NFGENMSG..]).map(Result::unwrap) {
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
    fn a_filter_has_addresses_only_of_the_family_that_the_kernel_compares_rightly() {
        let v4 = filter(target("10.96.0.10", 53), target("10.244.0.1", 5353));
        assert_eq!(v4, (0b10_1010, 0b1_1001, 64));
        let v6 = filter(target("fd00::10", 53), target("fd00::1", 5353));
        assert_eq!(v6, (0b10_1000, 0b1_1000, 40));
    }

    /// The attributes of an entry with an identifier and a zone.
    fn entry(protocol: u8) -> Vec<u8> {
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
        w.be16(CTA_ZONE, 9);
        out
    }

    #[test]
    fn messages_that_are_not_udp_entries_are_ignored() {
        let udp = Entry::decode(IPCTNL_MSG_CT_NEW, &entry(17)).unwrap();
        let (sent_to, answered_by) = (target("10.0.0.2", 53), target("10.0.0.1", 1000));
        let flow = Flow { sent_to, answered_by };
        assert_eq!((udp.flow, udp.id, udp.zone), (flow, Some(7), Some(9)));
        assert_eq!(Entry::decode(IPCTNL_MSG_CT_NEW, &entry(6)), None);
        assert_eq!(Entry::decode(IPCTNL_MSG_CT_DELETE, &entry(17)), None);
        // Of nftables.
        assert_eq!(Entry::decode(0xa00, &entry(17)), None);
    }

    #[test]
    fn a_damaged_entry_is_ignored_or_decoded_and_encoded_again() {
        let whole = entry(17);
        for length in 0..whole.len() - 1 {
            let cut = Entry::decode(IPCTNL_MSG_CT_NEW, &whole[..length]);
            assert!(cut.is_none() || length >= 100, "{length} bytes: {cut:?}");
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                if let Some(entry) = Entry::decode(IPCTNL_MSG_CT_NEW, &damaged) {
                    delete(&mut Vec::new(), 1, &entry, 0);
                }
            }
        }
    }

    /// `struct nlmsghdr` and `struct nfgenmsg`.
    #[test]
    fn a_request_for_statistics_has_no_attributes_and_is_acknowledged() {
        let mut out = Vec::new();
        statistics(&mut out, 5);
        assert_eq!(out[..4], 20u32.to_ne_bytes());
        assert_eq!(out[4..8], [0x0105u16.to_ne_bytes(), 5u16.to_ne_bytes()].concat());
        assert_eq!(out[8..], [5u32.to_ne_bytes(), [0; 4], [2, 1, 0, 0]].concat());
    }

    /// `struct nlmsghdr`, `struct nfgenmsg`, the tuple as received, identifier and zone.
    #[test]
    fn a_delete_repeats_the_tuple_and_contains_identifier_and_zone() {
        let entry_bytes = entry(17);
        let entry = Entry::decode(IPCTNL_MSG_CT_NEW, &entry_bytes).unwrap();
        let mut out = Vec::new();
        delete(&mut out, 5, &entry, 0x5);
        let length = u32::try_from(out.len()).unwrap().to_ne_bytes();
        assert_eq!(out[..4], length);
        assert_eq!(out[4..8], [0x0102u16.to_ne_bytes(), 5u16.to_ne_bytes()].concat());
        assert_eq!(out[8..16], [5u32.to_ne_bytes(), [0; 4]].concat());
        assert_eq!(out[16..20], [2, 1, 0, 0]);
        let tuple = 4..4 + 52;
        assert_eq!(out[20..72], entry_bytes[tuple]);
        assert_eq!(out[72..], entry_bytes[4 + 2 * 52..]);
    }
}
