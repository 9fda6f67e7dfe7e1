//! Phrases of our rules: the expressions of one statement of nft(8).
//!
//! The first expression that does not match ends the rule, and with it all phrases after it. Each
//! phrase loads what it needs: registers do not survive from one rule to the next.

use std::time::Duration;

use ipnet::IpNet;
use nft::expression::{
    Bitwise, Byteorder, Cmp, CounterExpression, Dynset, FlowOffload, Immediate, Lookup, Masq, Nat,
    Payload, Reg, Reject, ct, fib, meta, tcp,
};
use nft::{Expression, Family, Name, Value, Verdict, key};

use super::field::{Address, Field, address_length, load_key};
use crate::flowtable::Threshold;

/// The expressions of one statement.
pub type Phrase = Vec<Expression>;

/// The phrases that depend on the table's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phrases(pub Family);

/// A change of an element by packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementChange {
    /// Adds it; an existing element keeps its data, and its timeout restarts. `None` is the set's
    /// timeout.
    Update(Option<Duration>),
    /// Deletes it.
    Delete,
}

impl Phrases {
    /// Matches if the set has the key: `ip daddr . meta l4proto . th dport @restricted-services`.
    pub fn in_set(self, key: &[Field], set: impl Into<Name>) -> Phrase {
        self.load(key, Lookup::in_set(set, FIRST))
    }

    /// Matches if the set does not have the key: `ip daddr != @cluster-ips`.
    pub fn not_in_set(self, key: &[Field], set: impl Into<Name>) -> Phrase {
        self.load(key, Lookup::not_in_set(set, FIRST))
    }

    /// Sets the priority to the value of the key in a map; the rule ends without one: `meta
    /// priority set meta l4proto . meta priority map @sessions`.
    pub fn set_priority(self, key: &[Field], map: impl Into<Name>) -> Phrase {
        let mut phrase = self.load(key, Lookup::in_map(map, FIRST, FIRST));
        phrase.push(meta::set_priority(FIRST));
        phrase
    }

    /// Sets the mark to the value of the key in a map; the rule ends without one: `meta mark set
    /// meta priority & ffff:ff00 . jhash ip saddr mod 251 seed 0x1 map @nodes`.
    pub fn set_mark(self, key: &[Field], map: impl Into<Name>) -> Phrase {
        let mut phrase = self.load(key, Lookup::in_map(map, FIRST, FIRST));
        phrase.push(meta::set_mark(FIRST));
        phrase
    }

    /// Translates the destination to the address and port of the key in a map; the rule ends
    /// without one: `dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map
    /// @endpoints`.
    pub fn translate(self, key: &[Field], map: impl Into<Name>) -> Phrase {
        let Self(family) = self;
        let mut phrase = self.load(key, Lookup::in_map(map, FIRST, FIRST));
        let port = Reg::of_word(Field::Daddr.words(family));
        phrase.push(Nat::destination(family.number(), FIRST, port));
        phrase
    }

    /// Translates the destination to the address of the key in a map, and keeps the port; the rule ends
    /// without one: `dnat to meta priority map @range-endpoints`.
    pub fn translate_address(self, key: &[Field], map: impl Into<Name>) -> Phrase {
        let Self(family) = self;
        let mut phrase = self.load(key, Lookup::in_map(map, FIRST, FIRST));
        phrase.push(Nat::destination_address(family.number(), FIRST));
        phrase
    }

    /// Adds an element, renews its timeout, or deletes it: `update @clients { ip saddr timeout 10m
    /// : meta priority }`.
    pub fn change_element(
        self,
        change: ElementChange,
        set: impl Into<Name>,
        key: &[Field],
        data: Option<Field>,
    ) -> Phrase {
        let (mut phrase, end) = load_key(key, self.0, FIRST_WORD);
        let (operation, timeout) = match change {
            ElementChange::Update(timeout) => (key::DYNSET_UPDATE, timeout),
            ElementChange::Delete => (key::DYNSET_DELETE, None),
        };
        // The data is in the first free 16-byte register after the key.
        let word = end.next_multiple_of(4);
        phrase.extend(data.into_iter().flat_map(|data| data.load(self.0, word)));
        let timeout = timeout.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let data = data.map(|_| Reg::of_word(word));
        phrase.push(Dynset { data, timeout, ..Dynset::new(operation, set, FIRST) }.into());
        phrase
    }

    /// Matches if this host does not receive the packet itself: `fib daddr type unicast`, which no
    /// broadcast address has; for IPv6 `fib daddr type != local`, because an address without a route
    /// has another type there (`nft_fib6_eval_type`).
    pub fn destination_is_elsewhere(self) -> Phrase {
        match self {
            Self(Family::Ip) => address_type(fib::daddr_type(FIRST), key::ROUTE_UNICAST).equal(),
            Self(Family::Ip6) => address_type(fib::daddr_type(FIRST), key::ROUTE_LOCAL).unequal(),
        }
    }

    /// Rejects the packet with "port unreachable".
    pub fn reject(self) -> Phrase {
        vec![Reject::unreachable(match self {
            Self(Family::Ip) => key::ICMP_PORT_UNREACHABLE,
            Self(Family::Ip6) => key::ICMPV6_PORT_UNREACHABLE,
        })]
    }

    fn load(self, key: &[Field], lookup: Expression) -> Phrase {
        let (mut phrase, _) = load_key(key, self.0, FIRST_WORD);
        phrase.push(lookup);
        phrase
    }
}

/// A value with which a part of the packet is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    load: Vec<Expression>,
    value: Vec<u8>,
}

impl Comparison {
    /// Matches packets with the value.
    pub fn equal(self) -> Phrase {
        let compare = Cmp::equal(FIRST, self.value);
        self.load.into_iter().chain([compare]).collect()
    }

    /// Matches packets with another value.
    pub fn unequal(self) -> Phrase {
        let compare = Cmp::not_equal(FIRST, self.value);
        self.load.into_iter().chain([compare]).collect()
    }
}

/// Compares the source address with a network of the table's family: `ip saddr 10.244.0.0/16`.
pub fn source(network: IpNet) -> Comparison {
    in_network(Address::Source, network)
}

/// Compares the destination address with a network of the table's family.
pub fn destination(network: IpNet) -> Comparison {
    in_network(Address::Destination, network)
}

/// As nft(8), compares whole bytes directly and other prefixes through a mask.
fn in_network(address: Address, network: IpNet) -> Comparison {
    let family = Family::of(network.addr());
    let octets = |address| Value::new().ip(address).as_bytes().to_vec();
    let mut value = octets(network.network());
    let bits = network.prefix_len();
    if bits > 0 && bits.is_multiple_of(8) {
        value.truncate(usize::from(bits / 8));
        return Comparison { load: vec![address.load(family, u32::from(bits / 8), FIRST)], value };
    }
    let mask = octets(network.netmask());
    let none = vec![0; mask.len()];
    let load = address.load(family, address_length(family), FIRST);
    Comparison { load: vec![load, Bitwise::mask_xor(FIRST, mask, none)], value }
}

/// Compares the index of the input interface, 0 for a packet of this node: `iif 0`.
pub fn input_index(index: u32) -> Comparison {
    let load = vec![meta::iif(FIRST)];
    Comparison { load, value: index.to_ne_bytes().to_vec() }
}

/// Compares the name of the input interface, at most 15 bytes: `iifname "lo"`.
pub fn input_name(name: &str) -> Comparison {
    let mut comparison = input_prefix(name);
    comparison.value.resize(key::INTERFACE_NAME, 0);
    comparison
}

/// Compares the first letters of the input interface's name: `iifname "cali*"`.
pub fn input_prefix(prefix: &str) -> Comparison {
    let load = vec![meta::iifname(FIRST)];
    Comparison { load, value: prefix.as_bytes().to_vec() }
}

/// Compares the priority: `meta priority 0:3`.
pub fn priority(value: u32) -> Comparison {
    let load = vec![meta::priority(FIRST)];
    Comparison { load, value: value.to_ne_bytes().to_vec() }
}

/// Compares some bits of the priority: `meta priority & 0:1f == 0:3`.
pub fn priority_bits(bits: u32, value: u32) -> Comparison {
    let (load, _) = load_key(&[Field::PriorityBits(bits)], Family::Ip, FIRST_WORD);
    Comparison { load, value: value.to_ne_bytes().to_vec() }
}

/// Compares the state of the connection with new: `ct state new`.
pub fn ct_state_new() -> Comparison {
    let load = vec![ct::state(FIRST)];
    Comparison { load, value: key::CT_STATE_NEW.to_ne_bytes().to_vec() }
}

/// Matches packets of connections with packets in both directions: `ct state established`.
pub fn ct_state_established() -> Phrase {
    any_bit(ct::state(FIRST), key::CT_STATE_ESTABLISHED)
}

/// Matches packets of the direction of the first one: `ct direction original`.
pub fn ct_direction_original() -> Phrase {
    vec![ct::direction(FIRST), Cmp::equal(FIRST, [0])]
}

/// Matches answers: `ct direction reply`.
pub fn ct_direction_reply() -> Phrase {
    vec![ct::direction(FIRST), Cmp::equal(FIRST, [1])]
}

/// Matches packets of a transport protocol: `meta l4proto tcp`.
pub fn protocol(number: u8) -> Phrase {
    vec![meta::l4proto(FIRST), Cmp::equal(FIRST, [number])]
}

/// Matches if the connection's destination was translated: `ct status dnat`.
pub fn ct_status_dnat() -> Phrase {
    any_bit(ct::status(FIRST), key::CT_STATUS_DNAT)
}

/// Matches if the connection has had more packets or bytes, of both directions: `ct packets > 20`.
/// The kernel then counts those of all connections.
pub fn ct_over(threshold: Threshold) -> Phrase {
    let (load, number) = match threshold {
        Threshold::Packets(number) => (ct::packets(FIRST), number),
        Threshold::Bytes(number) => (ct::bytes(FIRST), number),
    };
    // The kernel compares bytes, so the number is brought into network byte order first.
    let in_order = Byteorder::to_network(FIRST, 8);
    vec![load, in_order, Cmp::compare(FIRST, key::CMP_GREATER, number.to_be_bytes())]
}

/// Matches packets that arrive before a time, in nanoseconds since 1970: `meta time < ..`.
pub fn before(nanoseconds: u64) -> Phrase {
    vec![
        meta::time(FIRST),
        Byteorder::to_network(FIRST, 8),
        Cmp::compare(FIRST, key::CMP_LESS, nanoseconds.to_be_bytes()),
    ]
}

/// Matches if the source is an address of this host: `fib saddr type local`.
pub fn source_is_local() -> Phrase {
    address_type(fib::saddr_type(FIRST), key::ROUTE_LOCAL).equal()
}

/// Matches if the destination is an address of this host: `fib daddr type local`.
pub fn destination_is_local() -> Phrase {
    address_type(fib::daddr_type(FIRST), key::ROUTE_LOCAL).equal()
}

fn address_type(load: Expression, kind: u32) -> Comparison {
    Comparison { load: vec![load], value: kind.to_ne_bytes().to_vec() }
}

/// Sets bits of the mark: `meta mark set meta mark | 0x00004000`.
pub fn set_mark(bits: u32) -> Phrase {
    change_mark(!bits, bits)
}

/// Flips bits of the mark, which clears them if they are set: `meta mark set meta mark ^ ..`.
pub fn flip_mark(bits: u32) -> Phrase {
    change_mark(u32::MAX, bits)
}

fn change_mark(mask: u32, xor: u32) -> Phrase {
    vec![
        meta::mark(FIRST),
        Bitwise::mask_xor(FIRST, mask.to_ne_bytes(), xor.to_ne_bytes()),
        meta::set_mark(FIRST),
    ]
}

/// Matches if any of the bits is set: `meta mark & 0x00004000 != 0x00000000`.
pub fn has_mark(bits: u32) -> Phrase {
    any_bit(meta::mark(FIRST), bits)
}

fn any_bit(load: Expression, bits: u32) -> Phrase {
    let mask = Bitwise::mask_xor(FIRST, bits.to_ne_bytes(), [0; 4]);
    vec![load, mask, Cmp::not_equal(FIRST, [0; 4])]
}

/// Sets the priority to 0: `meta priority set none`.
pub fn clear_priority() -> Phrase {
    set_priority(0)
}

/// Sets the priority: `meta priority set ffff:fff0`.
pub fn set_priority(value: u32) -> Phrase {
    vec![Immediate::value(value.to_ne_bytes(), FIRST), meta::set_priority(FIRST)]
}

/// Sets the mark to 0: `meta mark set 0x00000000`.
pub fn clear_mark() -> Phrase {
    vec![Immediate::value([0; 4], FIRST), meta::set_mark(FIRST)]
}

/// Replaces the source by the address of the output interface: `masquerade fully-random`.
pub fn masquerade() -> Phrase {
    vec![Masq::with_flags(key::NAT_FULLY_RANDOM)]
}

/// Adds the connection to a flowtable: `flow add @established`. The rule ends if the kernel cannot
/// forward the connection by one.
pub fn add_to_flowtable(flowtable: impl Into<Name>) -> Phrase {
    vec![FlowOffload::to(flowtable)]
}

/// Traces every step of the packet: `meta nftrace set 1`.
pub fn trace() -> Phrase {
    vec![Immediate::value([1], FIRST), meta::set_nftrace(FIRST)]
}

/// Matches the packet that begins a TCP connection, with SYN of FIN, SYN, RST and ACK: `@th,104,8
/// & 0x17 == 0x2`. A phrase before it must match TCP.
pub fn begins_tcp() -> Phrase {
    vec![tcp::flags(FIRST), Bitwise::mask_xor(FIRST, [0x17], [0]), Cmp::equal(FIRST, [0x02])]
}

/// Matches a packet with RST: `tcp flags rst`. A phrase before it must match TCP.
pub fn resets_tcp() -> Phrase {
    vec![tcp::flags(FIRST), Bitwise::mask_xor(FIRST, [0x04], [0]), Cmp::not_equal(FIRST, [0])]
}

/// Answers a packet of TCP with RST: `reject with tcp reset`.
pub fn reset_tcp() -> Phrase {
    vec![Reject::tcp_reset()]
}

/// Matches a packet whose first SCTP chunk is INIT: `@th,96,8 0x1`. A phrase before it must match
/// SCTP.
pub fn begins_sctp() -> Phrase {
    /// Offset of the first chunk's type in the packet (RFC 9260).
    const CHUNK_TYPE: u32 = 12;
    vec![Payload::load(key::PAYLOAD_TRANSPORT, CHUNK_TYPE, 1, FIRST), Cmp::equal(FIRST, [1])]
}

/// Counts the packets that come to it: `counter`.
pub fn counter() -> Phrase {
    vec![CounterExpression { bytes: 0, packets: 0 }.into()]
}

/// Ends the rule with a verdict.
pub fn verdict(verdict: Verdict) -> Phrase {
    vec![Immediate::verdict(verdict)]
}

/// Continues in another chain, then returns to this one.
pub fn jump(chain: impl Into<Name>) -> Phrase {
    verdict(Verdict::Jump(chain.into()))
}

/// Continues in another chain; then the chain that jumped to this one continues.
pub fn goto(chain: impl Into<Name>) -> Phrase {
    verdict(Verdict::Goto(chain.into()))
}

/// First register of keys and values.
const FIRST: Reg = Reg::of_word(FIRST_WORD);
const FIRST_WORD: u8 = 0;

#[cfg(test)]
mod tests {
    use nft::expression::ip;

    use super::*;

    fn network(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn whole_bytes_of_a_network_are_compared_without_a_mask() {
        let load = ip::saddr_prefix(2, FIRST);
        let expected = [load, Cmp::equal(FIRST, [10, 244])];
        assert_eq!(source(network("10.244.9.9/16")).equal(), expected);
    }

    #[test]
    fn other_networks_are_masked_and_host_bits_have_no_meaning() {
        let expected = [
            ip::daddr(FIRST),
            Bitwise::mask_xor(FIRST, [255, 255, 128, 0], [0; 4]),
            Cmp::not_equal(FIRST, [10, 244, 128, 0]),
        ];
        assert_eq!(destination(network("10.244.255.9/17")).unequal(), expected);
    }

    #[test]
    fn data_of_an_element_is_after_its_key_at_a_16_byte_register() {
        let update = ElementChange::Update(Some(Duration::from_secs(1)));
        let at = |family| {
            let phrases = Phrases(family);
            let phrase =
                phrases.change_element(update, "m", &[Field::Saddr], Some(Field::Priority));
            let Some(Expression::Dynset(dynset)) = phrase.last() else { panic!("{phrase:?}") };
            assert_eq!(dynset.timeout, Some(1000));
            dynset.data
        };
        assert_eq!(at(Family::Ip), Some(Reg::of_word(4)));
        assert_eq!(at(Family::Ip6), Some(Reg::of_word(4)));
    }
}
