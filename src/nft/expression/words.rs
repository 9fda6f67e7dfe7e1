//! Loads of fields of the packet and of its connection, named as in nft(8), and the changes of some.
//!
//! The argument is the register that is loaded, or whose value is set. Some fields are loaded
//! equally by several names: nft(8) prints `tcp dport` where a match of the protocol comes before
//! it, and else `th dport`.
#![expect(missing_docs, reason = "nft's words say it")]

/// Defines a module of fields of a header, each with its offset and length in bytes. A field with
/// `prefix` also has a function that loads its first bytes.
macro_rules! header {
    (
        $(#[$of_module:meta])* $module:ident: $base:ident;
        $($name:ident at $offset:literal, $length:literal $(, $prefix:ident)?;)*
    ) => {
        $(#[$of_module])*
        pub mod $module {
            use crate::expression::declared::{Expression, Payload};
            use crate::expression::field::Reg;
            use crate::key::$base;

            $(
                pub fn $name(to: Reg) -> Expression {
                    Payload::load($base, $offset, $length, to)
                }

                $(
                    /// The first bytes of the address, as nft(8) loads them for a prefix of whole
                    /// bytes such as `ip saddr 10.0.0.0/8`.
                    pub fn $prefix(bytes: u32, to: Reg) -> Expression {
                        Payload::load($base, $offset, bytes, to)
                    }
                )?
            )*
        }
    };
}

header! {
    /// `ether`: the Ethernet header.
    ether: PAYLOAD_LINK;
    daddr at 0, 6;
    saddr at 6, 6;
}

header! {
    /// `ip`: the IPv4 header. A table of another family than `ip` must match the protocol before.
    ip: PAYLOAD_NETWORK;
    id at 4, 2;
    frag_off at 6, 2;
    ttl at 8, 1;
    protocol at 9, 1;
    saddr at 12, 4, saddr_prefix;
    daddr at 16, 4, daddr_prefix;
}

header! {
    /// `ip6`: the IPv6 header. A table of another family than `ip6` must match the protocol before.
    ip6: PAYLOAD_NETWORK;
    nexthdr at 6, 1;
    hoplimit at 7, 1;
    saddr at 8, 16, saddr_prefix;
    daddr at 24, 16, daddr_prefix;
}

header! {
    /// `th`: the transport header of a protocol with ports.
    th: PAYLOAD_TRANSPORT;
    sport at 0, 2;
    dport at 2, 2;
}

header! {
    /// `tcp`: the header of TCP. A rule must match the protocol before.
    tcp: PAYLOAD_TRANSPORT;
    sport at 0, 2;
    dport at 2, 2;
    flags at 13, 1;
}

/// `udp`: the header of UDP. A rule must match the protocol before.
pub mod udp {
    pub use crate::expression::words::th::{dport, sport};
}

/// `sctp`: the header of SCTP. A rule must match the protocol before.
pub mod sctp {
    pub use crate::expression::words::th::{dport, sport};
}

header! {
    /// `icmp`: the header of ICMP. A rule must match the protocol before.
    icmp: PAYLOAD_TRANSPORT;
    r#type at 0, 1;
    code at 1, 1;
}

/// `icmpv6`: the header of ICMPv6. A rule must match the protocol before.
pub mod icmpv6 {
    pub use crate::expression::words::icmp::{code, r#type};
}

/// Defines functions, each by an expression of the register and a key.
macro_rules! keyed {
    ($($make:ident: { $($(#[$doc:meta])* $name:ident($key:ident);)* })*) => {
        $($(
            $(#[$doc])*
            pub fn $name(register: Reg) -> Expression {
                $make($key, register)
            }
        )*)*
    };
}

/// `meta`: metadata of the packet. Numbers are in host byte order, but for `protocol`.
pub mod meta {
    use crate::expression::declared::{Expression, Meta};
    use crate::expression::field::Reg;
    use crate::key::*;

    keyed! {
        load: {
            protocol(META_PROTOCOL);
            priority(META_PRIORITY);
            mark(META_MARK);
            iif(META_IIF);
            oif(META_OIF);
            iifname(META_IIFNAME);
            oifname(META_OIFNAME);
            iiftype(META_IIFTYPE);
            nfproto(META_NFPROTO);
            l4proto(META_L4PROTO);
            pkttype(META_PKTTYPE);
            /// Nanoseconds since 1970.
            time(META_TIME_NS);
        }
        set: {
            set_priority(META_PRIORITY);
            set_mark(META_MARK);
            set_nftrace(META_NFTRACE);
        }
    }

    fn load(key: u32, to: Reg) -> Expression {
        Meta { key, to: Some(to), from: None }.into()
    }

    fn set(key: u32, from: Reg) -> Expression {
        Meta { key, to: None, from: Some(from) }.into()
    }
}

/// `ct`: metadata of the connection. Numbers are in host byte order, but for addresses and ports.
pub mod ct {
    use crate::abi::IP_CT_DIR_ORIGINAL;
    use crate::expression::declared::{Ct, Expression};
    use crate::expression::field::Reg;
    use crate::key::*;

    keyed! {
        load: {
            state(CT_STATE);
            direction(CT_DIRECTION);
            status(CT_STATUS);
            mark(CT_MARK);
            /// Of both directions, 8 bytes.
            packets(CT_PACKETS);
            /// Of both directions, 8 bytes.
            bytes(CT_BYTES);
        }
        set: {
            set_mark(CT_MARK);
        }
        load_original: {
            /// Of the packet that began the connection: `ct original ip daddr`.
            original_ip_daddr(CT_DST_IP);
            /// Of the packet that began the connection: `ct original ip6 daddr`.
            original_ip6_daddr(CT_DST_IP6);
            /// Of the packet that began the connection: `ct original proto-dst`.
            original_proto_dst(CT_PROTO_DST);
        }
    }

    fn load(key: u32, to: Reg) -> Expression {
        Ct { to: Some(to), from: None, key, direction: None }.into()
    }

    fn set(key: u32, from: Reg) -> Expression {
        Ct { to: None, from: Some(from), key, direction: None }.into()
    }

    fn load_original(key: u32, to: Reg) -> Expression {
        Ct { to: Some(to), from: None, key, direction: Some(IP_CT_DIR_ORIGINAL) }.into()
    }
}

/// `fib`: the routing table. Types are `RTN_*` in host byte order.
pub mod fib {
    use crate::expression::declared::{Expression, Fib};
    use crate::expression::field::Reg;
    use crate::key::{FIB_DADDR, FIB_RESULT_TYPE, FIB_SADDR};

    keyed! {
        load_type: {
            /// `fib saddr type`: that of the source address.
            saddr_type(FIB_SADDR);
            /// `fib daddr type`: that of the destination address.
            daddr_type(FIB_DADDR);
        }
    }

    fn load_type(flags: u32, to: Reg) -> Expression {
        Fib { to, result: FIB_RESULT_TYPE, flags }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{Cmp, Expression, Immediate, Reg};
    use crate::{RuleContext, TableFamily};

    const FIRST: Reg = Reg::of_word(0);

    /// Returns a comparison of the loaded field with zeros, as printed, without these.
    fn words(
        family: TableFamily,
        before: &[Expression],
        load: Expression,
        length: usize,
    ) -> String {
        let mut rule = before.to_vec();
        rule.extend([load, Cmp::equal(FIRST, vec![0; length])]);
        let text = RuleContext { family, sets: &[], interfaces: &|_| None }.text(&rule);
        text.rsplit_once(' ').unwrap().0.trim_end_matches(" ==").to_owned()
    }

    #[test]
    fn loads_are_printed_by_their_names() {
        let of = |family| move |load, length| words(family, &[], load, length);
        let ip = of(TableFamily::Ip);
        assert_eq!(ip(ip::id(FIRST), 2), "ip id");
        assert_eq!(ip(ip::frag_off(FIRST), 2), "ip frag-off");
        assert_eq!(ip(ip::ttl(FIRST), 1), "ip ttl");
        assert_eq!(ip(ip::protocol(FIRST), 1), "ip protocol");
        assert_eq!(ip(ip::saddr(FIRST), 4), "ip saddr");
        assert_eq!(ip(ip::daddr(FIRST), 4), "ip daddr");
        assert_eq!(ip(th::sport(FIRST), 2), "th sport");
        assert_eq!(ip(th::dport(FIRST), 2), "th dport");
        let ip6 = of(TableFamily::Ip6);
        assert_eq!(ip6(ip6::nexthdr(FIRST), 1), "ip6 nexthdr");
        assert_eq!(ip6(ip6::hoplimit(FIRST), 1), "ip6 hoplimit");
        assert_eq!(ip6(ip6::saddr(FIRST), 16), "ip6 saddr");
        assert_eq!(ip6(ip6::daddr(FIRST), 16), "ip6 daddr");
        let bridge = of(TableFamily::Bridge);
        assert_eq!(bridge(ether::saddr(FIRST), 6), "ether saddr");
        assert_eq!(bridge(ether::daddr(FIRST), 6), "ether daddr");
    }

    #[test]
    fn fields_of_a_protocol_are_printed_by_their_names_after_a_match_of_it() {
        let of = |protocol: u8| {
            let before = [meta::l4proto(FIRST), Cmp::equal(FIRST, [protocol])];
            move |load, length| words(TableFamily::Ip, &before, load, length)
        };
        let (icmp, tcp, udp, sctp) = (of(1), of(6), of(17), of(132));
        assert_eq!(tcp(tcp::sport(FIRST), 2), "tcp sport");
        assert_eq!(tcp(tcp::dport(FIRST), 2), "tcp dport");
        assert_eq!(tcp(tcp::flags(FIRST), 1), "tcp flags");
        assert_eq!(udp(udp::dport(FIRST), 2), "udp dport");
        assert_eq!(sctp(sctp::dport(FIRST), 2), "sctp dport");
        assert_eq!(icmp(icmp::r#type(FIRST), 1), "icmp type");
        assert_eq!(icmp(icmp::code(FIRST), 1), "icmp code");
        let before = [meta::l4proto(FIRST), Cmp::equal(FIRST, [58])];
        let icmpv6 = words(TableFamily::Ip6, &before, icmpv6::r#type(FIRST), 1);
        assert_eq!(icmpv6, "icmpv6 type");
    }

    #[test]
    fn metadata_is_printed_by_its_names() {
        let of = |load, length| words(TableFamily::Inet, &[], load, length);
        assert_eq!(of(meta::protocol(FIRST), 2), "meta protocol");
        assert_eq!(of(meta::priority(FIRST), 4), "meta priority");
        assert_eq!(of(meta::mark(FIRST), 4), "meta mark");
        assert_eq!(of(meta::iif(FIRST), 4), "iif");
        assert_eq!(of(meta::oif(FIRST), 4), "oif");
        assert_eq!(of(meta::iifname(FIRST), 16), "iifname");
        assert_eq!(of(meta::oifname(FIRST), 16), "oifname");
        assert_eq!(of(meta::iiftype(FIRST), 2), "meta iiftype");
        assert_eq!(of(meta::nfproto(FIRST), 1), "meta nfproto");
        assert_eq!(of(meta::l4proto(FIRST), 1), "meta l4proto");
        assert_eq!(of(meta::pkttype(FIRST), 1), "meta pkttype");
        assert_eq!(of(ct::state(FIRST), 4), "ct state");
        assert_eq!(of(ct::direction(FIRST), 1), "ct direction");
        assert_eq!(of(ct::status(FIRST), 4), "ct status");
        assert_eq!(of(ct::mark(FIRST), 4), "ct mark");
        assert_eq!(of(ct::packets(FIRST), 8), "ct packets");
        assert_eq!(of(ct::bytes(FIRST), 8), "ct bytes");
        assert_eq!(of(ct::original_ip_daddr(FIRST), 4), "ct original ip daddr");
        assert_eq!(of(ct::original_ip6_daddr(FIRST), 16), "ct original ip6 daddr");
        assert_eq!(of(ct::original_proto_dst(FIRST), 2), "ct original proto-dst");
        assert_eq!(of(fib::saddr_type(FIRST), 4), "fib saddr type");
        assert_eq!(of(fib::daddr_type(FIRST), 4), "fib daddr type");
        assert!(of(meta::time(FIRST), 8).starts_with("meta time"));
    }

    #[test]
    fn changes_of_metadata_are_printed_by_their_names() {
        let context = RuleContext { family: TableFamily::Ip, sets: &[], interfaces: &|_| None };
        let text = |set| context.text(&[Immediate::value([1, 0, 0, 0], FIRST), set]);
        assert_eq!(text(meta::set_mark(FIRST)), "meta mark set 0x00000001");
        assert_eq!(text(meta::set_priority(FIRST)), "meta priority set 0:1");
        assert_eq!(text(ct::set_mark(FIRST)), "ct mark set 0x00000001");
        let trace = [Immediate::value([1], FIRST), meta::set_nftrace(FIRST)];
        assert_eq!(context.text(&trace), "meta nftrace set 1");
    }
}
