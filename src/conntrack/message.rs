//! Requests to list and delete entries, and the entries of flows among the answers.

use engine::flow::Flow;
use engine::model::Protocol;
use nft::family::Family;
use nft::netlink::attr::AttrWriter;
use nft::netlink::message::{self, ACK, DUMP, Header, REQUEST};

use super::abi::*;
use super::attributes::Attributes;
use super::connection::State;
use super::filter::Filter;

/// One entry of a dump, of UDP or without an answer, with the attributes that identify it in a delete. Without the
/// identifier, a delete could match a later entry with the same addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Protocol, destination and reply source.
    pub(super) flow: Flow,
    /// The original tuple as received. A copy of its bytes takes less memory than its fields.
    original: Box<[u8]>,
    pub(super) id: Option<u32>,
    /// `None` for the default zone.
    pub(super) zone: Option<u16>,
}

/// Appends a dump request for the entries that match `filter`. The answer may contain others.
pub(super) fn dump(out: &mut Vec<u8>, sequence: u32, filter: &Filter) {
    let header = Header { kind: IPCTNL_MSG_CT_GET, flags: REQUEST | DUMP, sequence };
    append(out, header, Some(filter.family), |w| filter.write(w));
}

/// Appends a dump request for the entries of both families whose bits of `mask` are those of
/// `status`. Kernels without this filter (before 5.15) send the other entries too.
pub(super) fn dump_with_status(out: &mut Vec<u8>, sequence: u32, status: u32, mask: u32) {
    let header = Header { kind: IPCTNL_MSG_CT_GET, flags: REQUEST | DUMP, sequence };
    append(out, header, None, |w| {
        w.be32(CTA_STATUS, status);
        w.be32(CTA_STATUS_MASK, mask);
    });
}

/// Appends a request for the number of entries, which the kernel also acknowledges.
pub(super) fn statistics(out: &mut Vec<u8>, sequence: u32) {
    let header = Header { kind: IPCTNL_MSG_CT_GET_STATS, flags: REQUEST | ACK, sequence };
    append(out, header, Some(Family::Ip), |_| {});
}

/// Appends a request to delete one entry. Without `NLM_F_ACK` in `flags`, the kernel answers only
/// errors.
pub(super) fn delete(out: &mut Vec<u8>, sequence: u32, entry: &Entry, flags: u16) {
    about(out, Header { kind: IPCTNL_MSG_CT_DELETE, flags, sequence }, entry);
}

/// Appends a request that returns the present state of one entry and is acknowledged.
pub(super) fn get(out: &mut Vec<u8>, sequence: u32, entry: &Entry) {
    about(out, Header { kind: IPCTNL_MSG_CT_GET, flags: REQUEST | ACK, sequence }, entry);
}

fn about(out: &mut Vec<u8>, header: Header, entry: &Entry) {
    append(out, header, Some(entry.family()), |w| {
        w.nest(CTA_TUPLE_ORIG, |w| w.encoded(&entry.original));
        if let Some(id) = entry.id {
            w.be32(CTA_ID, id);
        }
        entry.write_zone(w);
    });
}

/// Appends a request that expires one entry. The kernel deletes an expired entry when it looks it
/// up, for example to delete it.
pub(super) fn expire(out: &mut Vec<u8>, sequence: u32, entry: &Entry, flags: u16) {
    let header = Header { kind: IPCTNL_MSG_CT_NEW, flags, sequence };
    append(out, header, Some(entry.family()), |w| {
        w.nest(CTA_TUPLE_ORIG, |w| w.encoded(&entry.original));
        w.be32(CTA_TIMEOUT, 0);
        entry.write_zone(w);
    });
}

/// Appends a message about the entries of a family, or of both.
fn append(
    out: &mut Vec<u8>,
    header: Header,
    family: Option<Family>,
    fill: impl FnOnce(&mut AttrWriter<'_>),
) {
    // With version 0 the kernel deletes from both families (`ctnetlink_del_conntrack`).
    let nfgenmsg = family.map_or([0; 4], |family| [family.number(), 1, 0, 0]);
    // The attributes are short, or were received as attributes: they always fit.
    let _ = message::append(out, header, &nfgenmsg, fill);
}

impl Entry {
    /// Decodes the payload of a message of type `kind`. Returns `None` unless it is a UDP entry, or
    /// one of TCP or SCTP without an answer.
    pub(super) fn decode(kind: u16, payload: &[u8]) -> Option<Self> {
        let Attributes { original, original_bytes, reply, status, protocol_info, id, zone, .. } =
            Attributes::decode(kind, payload)?;
        let protocol = original.protocol.filter(|it| reply.protocol == Some(*it))?;
        if protocol != Protocol::Udp {
            let is_first = State::read(protocol_info.as_ref()?)?.is_first();
            if !is_first || status? & (IPS_SEEN_REPLY | IPS_ASSURED) != 0 {
                return None;
            }
        }
        let (sent_to, answered_by) = (original.destination.target()?, reply.source.target()?);
        let flow = Flow { protocol, sent_to, answered_by };
        Some(Self { flow, original: original_bytes.into(), id, zone })
    }

    pub(super) fn family(&self) -> Family {
        Family::of(self.flow.sent_to.address)
    }

    fn write_zone(&self, w: &mut AttrWriter<'_>) {
        if let Some(zone) = self.zone {
            w.be16(CTA_ZONE, zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use engine::model::Target;

    use super::*;

    fn target(address: &str, port: u16) -> Target {
        Target { address: address.parse().unwrap(), port: NonZeroU16::new(port).unwrap() }
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
        let flow = Flow { protocol: Protocol::Udp, sent_to, answered_by };
        assert_eq!((udp.flow, udp.id, udp.zone), (flow, Some(7), Some(9)));
        assert_eq!(Entry::decode(IPCTNL_MSG_CT_NEW, &entry(6)), None);
        assert_eq!(Entry::decode(IPCTNL_MSG_CT_DELETE, &entry(17)), None);
        // Of nftables.
        assert_eq!(Entry::decode(0xa00, &entry(17)), None);
    }

    #[test]
    fn an_entry_of_another_protocol_counts_only_while_it_has_no_answer() {
        let with = |protocol, status: Option<u32>, info, state| {
            let mut out = entry(protocol);
            let mut w = AttrWriter::new(&mut out);
            if let Some(status) = status {
                w.be32(CTA_STATUS, status);
            }
            w.nest(CTA_PROTOINFO, |w| w.nest(info, |w| w.u8(CTA_PROTOINFO_TCP_STATE, state)));
            Entry::decode(IPCTNL_MSG_CT_NEW, &out).map(|entry| entry.flow.protocol)
        };
        for state in 0..=9 {
            let tcp = with(6, Some(IPS_DST_NAT), CTA_PROTOINFO_TCP, state);
            assert_eq!(tcp, Some(Protocol::Tcp).filter(|_| state == 1), "{state}");
            let sctp = with(132, Some(0), CTA_PROTOINFO_SCTP, state);
            assert_eq!(sctp, Some(Protocol::Sctp).filter(|_| matches!(state, 1 | 2)), "{state}");
        }
        for status in [Some(IPS_SEEN_REPLY), Some(IPS_ASSURED), None] {
            assert_eq!(with(6, status, CTA_PROTOINFO_TCP, 1), None, "{status:?}");
        }
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

    /// `struct nlmsghdr`, `struct nfgenmsg` of no family, `CTA_STATUS` and `CTA_STATUS_MASK`.
    #[test]
    fn the_request_filters_by_the_status_of_translated_connections() {
        let length = 16 + 4 + 2 * 8;
        let mut expected = u32::to_ne_bytes(length).to_vec();
        expected.extend([0x101u16.to_ne_bytes(), 0x301u16.to_ne_bytes()].concat());
        expected.extend([5u32.to_ne_bytes(), [0; 4], [0; 4]].concat());
        for kind in [3u16, 26] {
            expected.extend([8u16.to_ne_bytes(), kind.to_ne_bytes()].concat());
            expected.extend([0, 0, 0, 32]);
        }
        let mut out = Vec::new();
        dump_with_status(&mut out, 5, IPS_DST_NAT, IPS_DST_NAT);
        assert_eq!(out, expected);
    }
}
