//! Matches of packets at the ingress of a device, and keys of their fields.
//!
//! A table of family netdev sees every protocol. So a rule that reads the network header matches
//! the protocol first, where nft(8) does: it leaves such a match out of a listing.

use nft::expression::{Bitwise, Cmp, Lookup, Payload, Reg, ether, icmp, ip, ip6, meta, tcp};
use nft::{Expression, Family, key};

use super::sets::DirectSet;
use crate::ruleset::field::Field;
use crate::ruleset::phrase::{self, Phrase, Phrases};

/// The register of all matches.
const FIRST: Reg = Reg::of_word(0);

/// Matches packets of a family: `meta protocol ip`, which nft(8) does not list before a field of the
/// header.
pub(super) fn is_of(family: Family) -> Phrase {
    let ether_type = match family {
        Family::Ip => key::ETH_P_IP,
        Family::Ip6 => key::ETH_P_IPV6,
    };
    vec![meta::protocol(FIRST), Cmp::equal(FIRST, ether_type.to_be_bytes())]
}

/// Matches packets to another hardware address than the device's, which bridges and switches flood:
/// `meta pkttype != host`.
pub(super) fn is_for_others() -> Phrase {
    vec![meta::pkttype(FIRST), Cmp::not_equal(FIRST, [key::PACKET_HOST])]
}

/// Matches packets that another node has sent or handed on: `ether saddr
/// @node-hardware-addresses`.
pub(super) fn is_from_node() -> Phrase {
    let is_ethernet = key::ARPHRD_ETHER.to_ne_bytes();
    vec![
        meta::iiftype(FIRST),
        Cmp::equal(FIRST, is_ethernet),
        ether::saddr(FIRST),
        Lookup::in_set(DirectSet::NodeHardwareAddresses.name(), FIRST),
    ]
}

/// Matches packets that may be forwarded once more: `ip ttl > 1`.
pub(super) fn has_hop_left(family: Family) -> Phrase {
    let ttl = match family {
        Family::Ip => ip::ttl(FIRST),
        Family::Ip6 => ip6::hoplimit(FIRST),
    };
    [is_of(family), vec![ttl, Cmp::compare(FIRST, key::CMP_GREATER, [1])]].concat()
}

/// Matches the packet that begins a TCP connection: `tcp flags syn / syn,ack`.
pub(super) fn begins_tcp() -> Phrase {
    /// Number of the protocol (`IPPROTO_TCP`).
    const TCP: u8 = 6;
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    [
        phrase::protocol(TCP),
        vec![
            tcp::flags(FIRST),
            Bitwise::mask_xor(FIRST, [SYN | ACK], [0]),
            Cmp::equal(FIRST, [SYN]),
        ],
    ]
    .concat()
}

/// Matches an ICMP or ICMPv6 message of a type: `icmp type time-exceeded`.
pub(super) fn is_icmp(family: Family, kind: u8) -> Phrase {
    // `IPPROTO_ICMP`, `IPPROTO_ICMPV6`
    let protocol = match family {
        Family::Ip => 1,
        Family::Ip6 => 58,
    };
    [
        is_of(family),
        phrase::protocol(protocol),
        vec![icmp::r#type(FIRST), Cmp::equal(FIRST, [kind])],
    ]
    .concat()
}

/// Matches the first fragment of a packet, and perhaps later ones, which come to no rule with it:
/// `ip frag-off & 8192 != 0`, `ip6 nexthdr ipv6-frag`.
pub(super) fn is_fragment(family: Family) -> Phrase {
    /// `IP_MF`.
    const MORE: [u8; 2] = [0x20, 0];
    match family {
        Family::Ip => [is_of(family), any_bit(ip::frag_off(FIRST), MORE)].concat(),
        Family::Ip6 => has_fragment_header(),
    }
}

/// Matches fragments but the first of a packet, which have no ports: `ip frag-off & 8191 != 0`,
/// `ip6 nexthdr ipv6-frag @nh,336,16 & 0xfff8 != 0x0`.
pub(super) fn is_later_fragment(family: Family) -> Phrase {
    /// `IP_OFFSET`.
    const OFFSET: [u8; 2] = [0x1f, 0xff];
    /// `IP6_OFFSET`.
    const OFFSET6: [u8; 2] = [0xff, 0xf8];
    let offset = Payload::load(key::PAYLOAD_NETWORK, FRAGMENT_HEADER + 2, 2, FIRST);
    match family {
        Family::Ip => [is_of(family), any_bit(ip::frag_off(FIRST), OFFSET)].concat(),
        Family::Ip6 => [has_fragment_header(), any_bit(offset, OFFSET6)].concat(),
    }
}

/// Offset of a fragment header that follows the IPv6 header (RFC 8200).
const FRAGMENT_HEADER: u32 = 40;

fn has_fragment_header() -> Phrase {
    /// `NEXTHDR_FRAGMENT`.
    const FRAGMENT: u8 = 44;
    [is_of(Family::Ip6), vec![ip6::nexthdr(FIRST), Cmp::equal(FIRST, [FRAGMENT])]].concat()
}

/// Matches if any of the bits is set in two bytes.
fn any_bit(load: Expression, bits: [u8; 2]) -> Phrase {
    vec![load, Bitwise::mask_xor(FIRST, bits, [0; 2]), Cmp::not_equal(FIRST, [0; 2])]
}

/// Returns the key of a packet that its fragments share: its addresses, number and protocol. nft
/// 1.0.6 aborts on `update` of a map with keys of more than 16 bytes, so that of IPv6 is a hash.
pub(super) fn packet(family: Family, seed: u32) -> Vec<Field> {
    const NUMBER: Field = Field::Network { offset: 4, length: 2 };
    const NUMBER6: Field = Field::Network { offset: FRAGMENT_HEADER + 4, length: 4 };
    match family {
        Family::Ip => vec![Field::Saddr, Field::Daddr, NUMBER, IP_PROTOCOL],
        Family::Ip6 => {
            vec![Field::Hash { of: &[Field::Saddr, NUMBER6], modulus: u32::MAX, seed }]
        }
    }
}

/// Returns the key of a service: `ip daddr . ip protocol . th dport`, `ip6 daddr . meta l4proto . th
/// dport`.
pub(super) fn service(family: Family) -> [Field; 3] {
    let protocol = match family {
        Family::Ip => IP_PROTOCOL,
        Family::Ip6 => Field::L4Proto,
    };
    [Field::Daddr, protocol, Field::Dport]
}

/// `ip protocol`
const IP_PROTOCOL: Field = Field::Network { offset: 9, length: 1 };

/// Matches packets whose destination is in the set.
pub(super) fn is_to(family: Family, set: DirectSet) -> Phrase {
    [is_of(family), Phrases(family).in_set(&[Field::Daddr], set.name())].concat()
}
