//! The packet under evaluation, and its known bytes.
//!
//! It is the first of its connection, so conntrack has no entry for it.

use std::net::IpAddr;
use std::sync::Arc;

use nft::{Family, Value, key};

/// Bytes of which some are unknown.
pub(super) type Field = Vec<Option<u8>>;

/// The packet with its metadata in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Source port, if known.
    pub source_port: Option<u16>,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port.
    pub port: u16,
    /// Transport protocol by its IANA number.
    pub protocol: u8,
    /// Input interface.
    pub input: Interface,
    /// Hardware address of the host on the link that sends it, if known.
    pub sender: Option<[u8; 6]>,
    /// Output interface.
    pub output: Interface,
    /// `meta mark`.
    pub mark: u32,
    /// `meta priority`.
    pub priority: u32,
    /// `ct mark`.
    pub ct_mark: u32,
    /// Connection tracking state.
    pub tracking: Tracking,
    /// The chains for destination NAT were evaluated.
    pub destination_done: bool,
    /// The chains for source NAT were evaluated.
    pub source_done: bool,
    /// Destination address and port before a translation.
    pub original: (IpAddr, u16),
    /// The source was translated.
    pub is_snat: bool,
}

/// An interface; index 0 and no name if there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: Arc<str>,
}

/// No index of an interface: these are positive numbers of type `int`.
const UNKNOWN: u32 = u32::MAX;

/// Connection tracking state of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tracking {
    /// Before the conntrack hook.
    Before,
    /// A new connection.
    New,
    /// A rule set `notrack`.
    Untracked,
}

impl Interface {
    /// Returns the absence of an interface.
    pub fn none() -> Self {
        Self { index: 0, name: "".into() }
    }

    /// Returns an interface of which nothing is known.
    pub fn unknown() -> Self {
        Self { index: UNKNOWN, name: "".into() }
    }

    /// Returns whether there is an interface, known or not.
    pub(super) fn is_some(&self) -> bool {
        self.index != 0
    }

    /// Returns whether index and name are known.
    pub fn is_known(&self) -> bool {
        self.index != UNKNOWN
    }
}

impl Packet {
    /// Returns a new packet, before any rule.
    pub fn new(
        (source, source_port): (IpAddr, Option<u16>),
        (destination, port): (IpAddr, u16),
        protocol: u8,
    ) -> Self {
        Self {
            source,
            source_port,
            destination,
            port,
            protocol,
            input: Interface::none(),
            sender: None,
            output: Interface::none(),
            mark: 0,
            priority: 0,
            ct_mark: 0,
            tracking: Tracking::Before,
            destination_done: false,
            source_done: false,
            original: (destination, port),
            is_snat: false,
        }
    }

    /// Returns whether the destination was translated.
    pub fn is_dnat(&self) -> bool {
        self.original != (self.destination, self.port)
    }

    /// Returns the address family.
    pub fn family(&self) -> Family {
        Family::of(self.destination)
    }

    /// Returns bytes of a header.
    pub(super) fn payload(&self, base: u32, offset: u32, length: u32) -> Field {
        let header = match base {
            key::PAYLOAD_LINK => self.link_header(),
            key::PAYLOAD_NETWORK => self.network_header(),
            key::PAYLOAD_TRANSPORT => self.transport_header(),
            _ => Vec::new(),
        };
        let place = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let bytes = header.into_iter().chain(std::iter::repeat(None));
        bytes.skip(place(offset.min(MAX_OFFSET))).take(place(length.min(MAX_LOAD))).collect()
    }

    /// Returns an Ethernet header: other links are not known as such.
    fn link_header(&self) -> Field {
        const SOURCE: usize = 6;
        const TYPE: usize = 12;
        let mut header = unknown(14);
        if let Some(sender) = self.sender {
            put(&mut header, SOURCE, &sender);
            put(&mut header, TYPE, &self.ether_type());
        }
        header
    }

    fn ether_type(&self) -> [u8; 2] {
        let number: u16 = if self.family() == Family::Ip { 0x0800 } else { 0x86dd };
        number.to_be_bytes()
    }

    fn network_header(&self) -> Field {
        let mut header = match self.family() {
            Family::Ip => unknown(20),
            Family::Ip6 => unknown(40),
        };
        let (hops_at, protocol_at, source_at) = match self.family() {
            Family::Ip => (8, 9, 12),
            Family::Ip6 => (7, 6, 8),
        };
        put(&mut header, 0, &[if self.family() == Family::Ip { 0x45 } else { 0x60 }]);
        if self.family() == Family::Ip {
            put(&mut header, FRAGMENT_AT, &DO_NOT_FRAGMENT);
        }
        put(&mut header, hops_at, &[HOPS]);
        put(&mut header, protocol_at, &[self.protocol]);
        let addresses = Value::new().ip(self.source).ip(self.destination);
        put(&mut header, source_at, addresses.as_bytes());
        header
    }

    fn transport_header(&self) -> Field {
        const TCP: u8 = 6;
        const TCP_FLAGS: usize = 13;
        const SYN: u8 = 2;
        let mut header = unknown(20);
        if let Some(port) = self.source_port {
            put(&mut header, 0, &port.to_be_bytes());
        }
        put(&mut header, 2, &self.port.to_be_bytes());
        if self.protocol == TCP {
            put(&mut header, TCP_FLAGS, &[SYN]);
        }
        header
    }

    /// Returns the value of a `meta` key; `None` if unknown.
    pub(super) fn meta(&self, number: u32) -> Option<Field> {
        Some(match number {
            key::META_PROTOCOL => known(&self.ether_type()),
            key::META_NFPROTO => known(&[self.family().number()]),
            key::META_L4PROTO => known(&[self.protocol]),
            key::META_MARK => known(&self.mark.to_ne_bytes()),
            key::META_PRIORITY => known(&self.priority.to_ne_bytes()),
            key::META_IIF if !self.input.is_known() => return None,
            key::META_IIFNAME if !self.input.is_known() => return None,
            key::META_IIF => known(&self.input.index.to_ne_bytes()),
            key::META_PKTTYPE if self.input.is_some() => known(&[key::PACKET_HOST]),
            // Only an Ethernet address is known as that of the sender.
            key::META_IIFTYPE if self.sender.is_some() => known(&key::ARPHRD_ETHER.to_ne_bytes()),
            key::META_OIF => known(&self.output.index.to_ne_bytes()),
            key::META_IIFNAME => interface_name(&self.input),
            key::META_OIFNAME => interface_name(&self.output),
            _ => return None,
        })
    }

    /// Returns the value of a `ct` key; `None` if unknown.
    pub(super) fn ct(&self, number: u32) -> Option<CtValue> {
        use CtValue::{Missing, Value};
        let status = (if self.is_dnat() { key::CT_STATUS_DNAT } else { 0 })
            | (if self.is_snat { key::CT_STATUS_SNAT } else { 0 });
        let state = match self.tracking {
            Tracking::Before => key::CT_STATE_INVALID,
            Tracking::New => key::CT_STATE_NEW,
            Tracking::Untracked => key::CT_STATE_UNTRACKED,
        };
        Some(match number {
            key::CT_STATE => Value(known(&state.to_ne_bytes())),
            _ if self.tracking != Tracking::New => Missing,
            key::CT_STATUS => Value(known(&status.to_ne_bytes())),
            key::CT_MARK => Value(known(&self.ct_mark.to_ne_bytes())),
            key::CT_DIRECTION => Value(known(&[0])),
            _ => return None,
        })
    }

    /// Returns the value of a `ct original` key; `None` if unknown.
    pub(super) fn ct_original(&self, number: u32) -> Option<CtValue> {
        if self.tracking != Tracking::New {
            return Some(CtValue::Missing);
        }
        let (address, port) = self.original;
        Some(CtValue::Value(match (number, address) {
            (key::CT_DST_IP, IpAddr::V4(address)) => known(&address.octets()),
            (key::CT_DST_IP6, IpAddr::V6(address)) => known(&address.octets()),
            (key::CT_PROTO_DST, _) => known(&port.to_be_bytes()),
            _ => return None,
        }))
    }
}

/// Result of a `ct` expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CtValue {
    /// A value.
    Value(Field),
    /// The packet has no connection, so the rule does not match.
    Missing,
}

/// The default of Linux for packets that it sends.
const HOPS: u8 = 64;
/// Offset of the fragment's flags and offset in the IPv4 header.
const FRAGMENT_AT: usize = 6;
/// A whole packet (`IP_DF`), as Linux sends those of connections.
const DO_NOT_FRAGMENT: [u8; 2] = [0x40, 0];
/// Size of the registers in bytes.
const MAX_LOAD: u32 = 64;
/// Offset beyond all known bytes.
const MAX_OFFSET: u32 = 256;

/// Returns known bytes.
pub(super) fn known(bytes: &[u8]) -> Field {
    bytes.iter().copied().map(Some).collect()
}

/// Returns unknown bytes.
pub(super) fn unknown(length: usize) -> Field {
    vec![None; length]
}

fn put(header: &mut Field, at: usize, bytes: &[u8]) {
    let target = header.iter_mut().skip(at);
    target.zip(bytes).for_each(|(target, byte)| *target = Some(*byte));
}

fn interface_name(interface: &Interface) -> Field {
    let mut name = known(interface.name.as_bytes());
    name.resize(key::INTERFACE_NAME, Some(0));
    name
}
