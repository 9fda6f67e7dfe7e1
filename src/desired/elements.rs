//! Keys and slots as the bytes of set elements, both ways.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use super::affinity::{EndpointId, Session};
use super::key::{Key, KeyKind};
use super::layout::{NODE_PORT_IP, Placed, Role};
use super::source_ranges::Range;
use crate::model::{Protocol, Target};
use crate::nft::{Family, Value};

/// The element key of a member of a set.
pub fn value_of(key: &Key) -> Value {
    match *key {
        Key::Frontend { address, protocol, port } => {
            Value::new().ip(address).proto(protocol.number()).port(port.get())
        }
        Key::NodePort { protocol, port, .. } => {
            Value::new().proto(protocol.number()).port(port.get())
        }
        Key::ClusterIp(address) | Key::NodePortIp(address) => Value::new().ip(address),
        Key::Hairpin(target, protocol) => {
            let addresses = Value::new().ip(target.address).ip(target.address);
            addresses.proto(protocol.number()).port(target.port.get())
        }
        Key::Session { protocol, session, .. } => {
            Value::new().proto(protocol.number()).class_id(session.class_id())
        }
    }
}

/// The element key of an endpoint of a session.
pub fn value_of_session_endpoint(protocol: Protocol, session: Session, id: EndpointId) -> Value {
    Value::new().proto(protocol.number()).class_id(session.endpoint(id))
}

/// The element data of a slot.
pub fn value_of_target(target: &Target) -> Value {
    Value::new().ip(target.address).port(target.port.get())
}

/// Reads the key of an element of `placed`, with its slot or endpoint of a session if it has one.
///
/// `None` if we would never write such an element.
pub fn key_from_bytes(family: Family, placed: &Placed, bytes: &[u8]) -> Option<(Key, u32)> {
    let mut fields = Fields(bytes);
    let key = match placed.kind {
        KeyKind::Frontend => {
            let (address, protocol) = (fields.address(family)?, fields.protocol()?);
            Key::Frontend { address, protocol, port: fields.port()? }
        }
        KeyKind::NodePort => {
            let protocol = fields.protocol()?;
            Key::NodePort { family, protocol, port: fields.port()? }
        }
        KeyKind::Address if placed.role == Role::Member(NODE_PORT_IP.trailing_zeros()) => {
            Key::NodePortIp(fields.address(family)?)
        }
        KeyKind::Address => Key::ClusterIp(fields.address(family)?),
        KeyKind::Hairpin => {
            let (address, again) = (fields.address(family)?, fields.address(family)?);
            let protocol = fields.protocol().filter(|_| address == again)?;
            Key::Hairpin(Target { address, port: fields.port()? }, protocol)
        }
        KeyKind::Session => {
            let protocol = fields.protocol()?;
            let id = u32::from_ne_bytes(fields.take()?);
            let session = match placed.role {
                Role::SessionEndpoint => {
                    let session = Session::with_endpoint(id)?;
                    let endpoint = session.endpoint_of(id)?.into();
                    let key = Key::Session { family, protocol, session };
                    return fields.0.is_empty().then_some((key, endpoint));
                }
                Role::Clients => return None,
                Role::Member(_)
                | Role::OneOf(_)
                | Role::Slot(_)
                | Role::SourceRange
                | Role::Session(_)
                | Role::Timeout(_) => Session::from_class_id(id)?,
            };
            Key::Session { family, protocol, session }
        }
    };
    let slot = match placed.role {
        Role::Slot(_) => u32::from_ne_bytes(fields.take()?),
        Role::SourceRange => {
            fields.address(family)?;
            0
        }
        Role::Member(_)
        | Role::OneOf(_)
        | Role::Session(_)
        | Role::SessionEndpoint
        | Role::Timeout(_)
        | Role::Clients => 0,
    };
    fields.0.is_empty().then_some((key, slot))
}

/// The first and the last element key of a range of sources.
pub fn values_of_range(key: &Key, range: &Range) -> [Value; 2] {
    [range.first, range.last].map(|address| value_of(key).ip(address))
}

/// Reads the range from the first and last key of an element of `source-ranges`.
pub fn range_from_bytes(family: Family, first: &[u8], last: &[u8]) -> Option<Range> {
    let source = |key: &[u8]| {
        let mut fields = Fields(key);
        fields.address(family)?;
        fields.protocol()?;
        fields.port()?;
        fields.address(family)
    };
    let same_frontend = first.len() == last.len();
    Some(Range { first: source(first)?, last: source(last).filter(|_| same_frontend)? })
}

/// Reads the data of a slot.
pub fn target_from_bytes(family: Family, bytes: &[u8]) -> Option<Target> {
    let mut fields = Fields(bytes);
    let target = Target { address: fields.address(family)?, port: fields.port()? };
    fields.0.is_empty().then_some(target)
}

/// Reads the data of a map whose data are packet priorities.
pub fn class_id_from_bytes(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

/// Concatenated fields, each padded to four bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn address(&mut self, family: Family) -> Option<IpAddr> {
        Some(match family {
            Family::Ip => Ipv4Addr::from(self.take::<4>()?).into(),
            Family::Ip6 => Ipv6Addr::from(self.take::<16>()?).into(),
        })
    }

    fn protocol(&mut self) -> Option<Protocol> {
        let [number, ..] = self.take::<4>()?;
        [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|p| p.number() == number)
    }

    fn port(&mut self) -> Option<NonZeroU16> {
        let [high, low, ..] = self.take::<4>()?;
        NonZeroU16::new(u16::from_be_bytes([high, low]))
    }
}
