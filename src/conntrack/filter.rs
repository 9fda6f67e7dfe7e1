//! What the kernel compares to decide which entries a dump copies (`CTA_FILTER`).
//!
//! Kernels before 5.8 ignore it, and a filter never contains IPv6 addresses. So a dump may have
//! other entries than those that the filter matches.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use engine::flow::StaleFlow;
use engine::model::{Protocol, Target};
use nft::family::Family;
use nft::netlink::attr::AttrWriter;

use super::abi::*;

/// UDP entries of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Filter {
    /// Family of the entries.
    pub(super) family: Family,
    /// Original destination.
    pub(super) sent_to: Compared,
    /// Source of the replies.
    pub(super) answered_by: Compared,
}

/// Address and port of one side. `None` matches any.
///
/// There are no IPv6 addresses: `ctnetlink_filter_match_tuple` inverts their comparison (seen on
/// 6.18). Entries with the address do not match, entries with another do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Compared {
    pub(super) address: Option<Ipv4Addr>,
    pub(super) port: Option<NonZeroU16>,
}

/// The side of an entry that a filter compares: where it is in a message, and its bits in the flags.
struct Side {
    tuple: u16,
    address: u16,
    port: u16,
    address_flag: u32,
    port_flag: u32,
}

const DESTINATION: Side = Side {
    tuple: CTA_TUPLE_ORIG,
    address: CTA_IP_V4_DST,
    port: CTA_PROTO_DST_PORT,
    address_flag: CTA_FILTER_IP_DST,
    port_flag: CTA_FILTER_PROTO_DST_PORT,
};

const REPLY_SOURCE: Side = Side {
    tuple: CTA_TUPLE_REPLY,
    address: CTA_IP_V4_SRC,
    port: CTA_PROTO_SRC_PORT,
    address_flag: CTA_FILTER_IP_SRC,
    port_flag: CTA_FILTER_PROTO_SRC_PORT,
};

impl Filter {
    /// Returns the filter for the entries of a stale flow of UDP.
    pub(super) fn of(flow: &StaleFlow) -> Self {
        let sent_to = Compared { address: flow.address.and_then(v4), port: Some(flow.port) };
        let answered_by = flow.endpoint.map(Compared::of).unwrap_or_default();
        Self { family: flow.family, sent_to, answered_by }
    }

    /// Returns the filter for all UDP entries of a family.
    pub(super) fn all(family: Family) -> Self {
        Self { family, sent_to: Compared::default(), answered_by: Compared::default() }
    }

    /// Returns the filter for the entries that one of two filters of a family matches, and others.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            family: self.family,
            sent_to: self.sent_to.or(other.sent_to),
            answered_by: self.answered_by.or(other.answered_by),
        }
    }

    /// Writes the attributes of a dump request.
    pub(super) fn write(&self, w: &mut AttrWriter<'_>) {
        let sent_to = DESTINATION.write(w, self.sent_to);
        let answered_by =
            (!self.answered_by.is_any()).then(|| REPLY_SOURCE.write(w, self.answered_by));
        // Unlike the other numbers of this protocol, these are in host byte order.
        w.nest(CTA_FILTER, |w| {
            w.bytes(CTA_FILTER_ORIG_FLAGS, &sent_to.to_ne_bytes());
            if let Some(flags) = answered_by {
                w.bytes(CTA_FILTER_REPLY_FLAGS, &flags.to_ne_bytes());
            }
        });
    }
}

impl Compared {
    fn of(Target { address, port }: Target) -> Self {
        Self { address: v4(address), port: Some(port) }
    }

    /// Returns whether it matches every address and port.
    pub(super) fn is_any(&self) -> bool {
        *self == Self::default()
    }

    fn or(self, other: Self) -> Self {
        Self {
            address: self.address.filter(|_| self.address == other.address),
            port: self.port.filter(|_| self.port == other.port),
        }
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

impl Side {
    /// Writes a UDP tuple of one side. Returns the flags of the fields that the kernel compares.
    fn write(&self, w: &mut AttrWriter<'_>, compared: Compared) -> u32 {
        let mut flags = CTA_FILTER_PROTO_NUM;
        w.nest(self.tuple, |w| {
            if let Some(address) = compared.address {
                w.nest(CTA_TUPLE_IP, |w| w.bytes(self.address, &address.octets()));
                flags |= self.address_flag;
            }
            w.nest(CTA_TUPLE_PROTO, |w| {
                w.u8(CTA_PROTO_NUM, Protocol::Udp.number());
                if let Some(port) = compared.port {
                    w.be16(self.port, port.get());
                    flags |= self.port_flag;
                }
            });
        });
        flags
    }
}

#[cfg(test)]
mod tests {
    use nft::netlink::attr::{Attr, Attrs};

    use super::*;

    fn target(address: &str, port: u16) -> Target {
        Target { address: address.parse().unwrap(), port: NonZeroU16::new(port).unwrap() }
    }

    fn between(frontend: Target, endpoint: Target) -> Filter {
        Filter::of(&StaleFlow::between(frontend, endpoint))
    }

    /// Returns the flags for the original and the reply direction, and the bytes of all tuples.
    fn written(filter: Filter) -> (u32, Option<u32>, usize) {
        let mut out = Vec::new();
        filter.write(&mut AttrWriter::new(&mut out));
        let (mut flags, mut length) = (Vec::new(), 0);
        for attr in Attrs::new(&out).map(Result::unwrap) {
            if attr.kind == CTA_FILTER {
                let word = |attr: Attr<'_>| u32::from_ne_bytes(attr.payload.try_into().unwrap());
                flags = attr.nested().map(|attr| word(attr.unwrap())).collect();
            } else {
                length += attr.payload.len();
            }
        }
        (flags[0], flags.get(1).copied(), length)
    }

    #[test]
    fn a_filter_has_addresses_only_of_the_family_that_the_kernel_compares_rightly() {
        let v4 = between(target("10.96.0.10", 53), target("10.244.0.1", 5353));
        assert_eq!(written(v4), (0b10_1010, Some(0b1_1001), 64));
        let v6 = between(target("fd00::10", 53), target("fd00::1", 5353));
        assert_eq!(written(v6), (0b10_1000, Some(0b1_1000), 40));
        assert_eq!(written(Filter::all(Family::Ip)), (0b00_1000, None, 12));
    }

    #[test]
    fn a_filter_for_several_flows_compares_what_they_have_in_common() {
        let (vip, pod) = (target("10.96.0.10", 53), target("10.244.0.1", 5353));
        let first = between(vip, pod);
        let rows = [
            (first, (0b10_1010, Some(0b1_1001))),
            (between(target("10.96.0.11", 53), pod), (0b10_1000, Some(0b1_1001))),
            (between(target("10.96.0.11", 54), pod), (0b00_1000, Some(0b1_1001))),
            (between(vip, target("10.244.0.2", 5353)), (0b10_1010, Some(0b1_1000))),
            (between(vip, target("10.244.0.2", 5354)), (0b10_1010, None)),
            (Filter::of(&StaleFlow::to(vip)), (0b10_1010, None)),
            (Filter::of(&StaleFlow::through_port(vip.port, pod)), (0b10_1000, Some(0b1_1001))),
        ];
        for (second, flags) in rows {
            for joined in [first.or(second), second.or(first)] {
                let (sent_to, answered_by, _) = written(joined);
                assert_eq!((sent_to, answered_by), flags, "{second:?}");
            }
        }
    }
}
