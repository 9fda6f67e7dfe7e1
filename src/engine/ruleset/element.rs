//! Elements of our sets and maps: their meaning, and conversion from and to bytes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use nft::{Element, ElementView, Family, Value};

use super::number::{EndpointId, ListId, Route};
use super::sets::SetId;
use crate::model::{PortBlock, Protocol, Target};

/// The packets that a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListUse {
    /// Those to one port, of this protocol.
    Port(Protocol),
    /// Those to port ranges, of any protocol. They keep their port.
    Ranges,
}

/// The destination of packets to a service port: the key of most of our maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frontend {
    /// An address of a service.
    Address {
        /// Destination address before DNAT.
        address: IpAddr,
        /// Transport protocol.
        protocol: Protocol,
        /// Destination port before DNAT.
        port: NonZeroU16,
    },
    /// A node port, at any address.
    NodePort {
        /// The family of its table.
        family: Family,
        /// Transport protocol.
        protocol: Protocol,
        /// Destination port before DNAT.
        port: NonZeroU16,
    },
    /// The port ranges of an address of a service.
    Ranges {
        /// Destination address before DNAT.
        address: IpAddr,
        /// Transport protocol.
        protocol: Protocol,
    },
}

/// The fate of packets to a frontend without usable endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// They are refused.
    Refuse,
    /// They are dropped: other nodes have endpoints.
    Drop,
}

/// An element that several services can share, or that belongs to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member {
    /// The cluster IP of a service, for all ports.
    ClusterIp(IpAddr),
    /// An address of the node that accepts traffic to node ports.
    NodePortIp(IpAddr),
    /// A local endpoint, which may send packets to itself through a service.
    Hairpin(Target, Protocol),
    /// The address of a local endpoint of port ranges, which may do so with any port.
    RangeHairpin(IpAddr),
}

/// The owner of an element, as its key shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A frontend.
    Frontend(Frontend),
    /// An endpoint list.
    List(ListId),
}

/// An element of one of our sets and maps, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableElement<'a> {
    /// The endpoint in a slot of a plain list.
    Endpoint(ListId, Protocol, u32, Target),
    /// The route of a frontend, with `namespace/name:port` as comment.
    Route(Frontend, Route, Option<&'a str>),
    /// The internal route of a frontend, if it differs.
    Internal(Frontend, Route),
    /// The fate of packets to a frontend without usable endpoints, with the same comment.
    Unserved(Frontend, Unserved, Option<&'a str>),
    /// A member of `cluster-ips`, `nodeport-ips` or `hairpin-connections`.
    Member(Member),
    /// An element of `restricted-services`: only some sources may use the frontend.
    Restricted(Frontend),
    /// Sources that may use the frontend.
    SourceRange(Frontend, IpNet),
    /// An element of `source-refusals`: it counts the packets of other sources.
    SourceRefusals(Frontend),
    /// The endpoint in a slot of a list with affinity.
    AffinitySlot(ListId, u32, EndpointId),
    /// The address and port of an endpoint of a list with affinity.
    AffinityEndpoint(ListId, Protocol, EndpointId, Target),
    /// The address of an endpoint of a list whose packets keep their port.
    RangeEndpoint(ListId, EndpointId, IpAddr),
    /// Ports of the port ranges of a frontend.
    PortBlock(Frontend, PortBlock),
    /// Timeout and size of a list with affinity.
    AffinityList(ListId, Route),
    /// An endpoint of TCP whose connections end, the time after which the kernel forgets it, and the
    /// service that had it as comment.
    Ended(Target, Duration, Option<&'a str>),
}

impl Frontend {
    /// Returns the family of its table.
    pub fn family(&self) -> Family {
        match self {
            Self::Address { address, .. } | Self::Ranges { address, .. } => Family::of(*address),
            Self::NodePort { family, .. } => *family,
        }
    }

    /// Returns its transport protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Address { protocol, .. }
            | Self::NodePort { protocol, .. }
            | Self::Ranges { protocol, .. } => *protocol,
        }
    }

    fn key(&self) -> Value {
        match *self {
            Self::Address { address, protocol, port } => {
                Value::new().ip(address).proto(protocol.number()).port(port.get())
            }
            Self::NodePort { protocol, port, .. } => {
                Value::new().proto(protocol.number()).port(port.get())
            }
            Self::Ranges { address, protocol } => Value::new().ip(address).proto(protocol.number()),
        }
    }

    /// Returns the set of its kind: service addresses, node ports or port ranges.
    fn choose(&self, services: SetId, node_ports: SetId, ranges: SetId) -> SetId {
        match self {
            Self::Address { .. } => services,
            Self::NodePort { .. } => node_ports,
            Self::Ranges { .. } => ranges,
        }
    }
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, protocol, port } => {
                write!(f, "{}/{protocol}", SocketAddr::new(*address, port.get()))
            }
            Self::NodePort { protocol, port, .. } => write!(f, "node port {port}/{protocol}"),
            Self::Ranges { address: IpAddr::V4(address), protocol } => {
                write!(f, "{address}:*/{protocol}")
            }
            Self::Ranges { address, protocol } => write!(f, "[{address}]:*/{protocol}"),
        }
    }
}

impl Member {
    /// Reads a member from its key; `None` for sets of other elements.
    pub fn read(family: Family, set: SetId, key: &[u8]) -> Option<Self> {
        let view = ElementView { key, ..ElementView::default() };
        match TableElement::read(family, set, &view) {
            Some(TableElement::Member(member)) => Some(member),
            Some(_) | None => None,
        }
    }

    /// Returns the family of its table.
    pub fn family(&self) -> Family {
        match self {
            Self::ClusterIp(address) | Self::NodePortIp(address) | Self::RangeHairpin(address) => {
                Family::of(*address)
            }
            Self::Hairpin(target, _) => Family::of(target.address),
        }
    }
}

impl Unserved {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Refuse, Self::Drop];

    /// Returns the packet priority that represents it: `1:0` or `1:1`.
    pub const fn priority(self) -> u32 {
        match self {
            Self::Refuse => 0x1_0000,
            Self::Drop => 0x1_0001,
        }
    }
}

impl TableElement<'_> {
    /// Returns the element of an endpoint of a list with affinity.
    pub fn of_session(list: ListId, of: ListUse, id: EndpointId, target: Target) -> Self {
        match of {
            ListUse::Port(protocol) => Self::AffinityEndpoint(list, protocol, id, target),
            ListUse::Ranges => Self::RangeEndpoint(list, id, target.address),
        }
    }

    /// Returns the endpoint of a list with affinity, and the packets that the list is for.
    pub fn session(&self) -> Option<(ListId, ListUse, EndpointId, Target)> {
        if let Self::AffinityEndpoint(list, protocol, id, target) = *self {
            return Some((list, ListUse::Port(protocol), id, target));
        }
        let Self::RangeEndpoint(list, id, address) = *self else { return None };
        Some((list, ListUse::Ranges, id, Target::of_ranges(address)))
    }

    /// Returns the set or map of the element.
    pub fn set(&self) -> SetId {
        match self {
            Self::Endpoint(..) => SetId::Endpoints,
            Self::Route(it, ..) => {
                it.choose(SetId::Services, SetId::NodePorts, SetId::RangeServices)
            }
            Self::Internal(it, _) => it.choose(
                SetId::InternalServices,
                SetId::InternalNodePorts,
                SetId::InternalRangeServices,
            ),
            Self::Unserved(it, ..) => it.choose(
                SetId::UnservedServices,
                SetId::UnservedNodePorts,
                SetId::UnservedRangeServices,
            ),
            Self::Member(Member::ClusterIp(_)) => SetId::ClusterIps,
            Self::Member(Member::NodePortIp(_)) => SetId::NodePortIps,
            Self::Member(Member::Hairpin(..)) => SetId::HairpinConnections,
            // Source ranges are for addresses alone.
            Self::Restricted(it) => it.choose(
                SetId::RestrictedServices,
                SetId::RestrictedServices,
                SetId::RestrictedRangeServices,
            ),
            Self::SourceRange(it, _) => {
                it.choose(SetId::SourceRanges, SetId::SourceRanges, SetId::RangeSources)
            }
            Self::SourceRefusals(it) => {
                it.choose(SetId::SourceRefusals, SetId::SourceRefusals, SetId::RangeSourceRefusals)
            }
            Self::PortBlock(..) => SetId::PortRanges,
            Self::RangeEndpoint(..) => SetId::RangeEndpoints,
            Self::Member(Member::RangeHairpin(_)) => SetId::RangeHairpins,
            Self::AffinitySlot(..) => SetId::AffinitySlots,
            Self::AffinityEndpoint(..) => SetId::AffinityEndpoints,
            Self::AffinityList(..) => SetId::AffinityLists,
            Self::Ended(..) => SetId::EndedEndpoints,
        }
    }

    /// Returns an element with the key only, which suffices to delete it.
    pub fn to_key(&self) -> Element {
        let key = match self {
            Self::Endpoint(list, protocol, slot, _) => slot_key(*list, *protocol, *slot),
            Self::Route(frontend, ..) | Self::Unserved(frontend, ..) => frontend.key(),
            Self::Internal(frontend, _)
            | Self::Restricted(frontend)
            | Self::SourceRefusals(frontend) => frontend.key(),
            Self::Member(Member::ClusterIp(address) | Member::NodePortIp(address)) => {
                Value::new().ip(*address)
            }
            Self::Member(Member::Hairpin(target, protocol)) => {
                let addresses = Value::new().ip(target.address).ip(target.address);
                addresses.proto(protocol.number()).port(target.port.get())
            }
            Self::SourceRange(frontend, range) => {
                let number = source_number(frontend.protocol(), range.prefix_len());
                let source = Value::new().ip(range.network()).integer(number);
                match *frontend {
                    Frontend::Address { address, port, .. } => source.ip(address).port(port.get()),
                    // Source ranges are for addresses alone.
                    Frontend::NodePort { port, .. } => source.port(port.get()),
                    Frontend::Ranges { address, .. } => source.ip(address),
                }
            }
            Self::AffinitySlot(list, slot, _) => Value::new().class_id(list.key()).integer(*slot),
            Self::AffinityEndpoint(list, protocol, id, _) => {
                Value::new().proto(protocol.number()).class_id(list.endpoint(*id))
            }
            Self::RangeEndpoint(list, id, _) => Value::new().class_id(list.endpoint(*id)),
            Self::PortBlock(frontend, block) => {
                let number = source_number(frontend.protocol(), block.length());
                let key = Value::new().port(block.first()).integer(number);
                match *frontend {
                    Frontend::Ranges { address, .. } | Frontend::Address { address, .. } => {
                        key.ip(address)
                    }
                    // Node ports have no ranges.
                    Frontend::NodePort { .. } => key,
                }
            }
            Self::Member(Member::RangeHairpin(address)) => Value::new().ip(*address).ip(*address),
            Self::AffinityList(list, _) => Value::new().class_id(list.key()),
            Self::Ended(Target { address, port }, ..) => {
                Value::new().ip(*address).proto(Protocol::Tcp.number()).port(port.get())
            }
        };
        Element::new(key)
    }

    /// Returns the nftables element.
    pub fn to_element(&self) -> Element {
        let class = |bits| Some(Value::new().class_id(bits));
        let (data, label) = match *self {
            Self::Endpoint(_, _, _, target) | Self::AffinityEndpoint(_, _, _, target) => {
                (Some(Value::new().ip(target.address).port(target.port.get())), None)
            }
            Self::RangeEndpoint(_, _, address) => (Some(Value::new().ip(address)), None),
            Self::Route(_, route, label) => (class(route.bits()), label),
            Self::Unserved(_, unserved, label) => (class(unserved.priority()), label),
            Self::Ended(_, _, label) => (None, label),
            Self::Internal(_, route) | Self::AffinityList(_, route) => (class(route.bits()), None),
            Self::AffinitySlot(list, _, id) => (class(list.endpoint(id)), None),
            Self::Member(_)
            | Self::Restricted(_)
            | Self::SourceRange(..)
            | Self::SourceRefusals(_)
            | Self::PortBlock(..) => (None, None),
        };
        let timeout = if let Self::Ended(_, timeout, _) = self { Some(*timeout) } else { None };
        Element { data, comment: label.map(Arc::from), timeout, ..self.to_key() }
    }
}

/// Returns the number in the key of a source range: 6024 for TCP, protocol 6, and length 24.
pub(super) fn source_number(protocol: Protocol, length: u8) -> u32 {
    u32::from(protocol.number()) * SOURCE_PROTOCOL + u32::from(length)
}

/// The factor of the protocol in the key of a source range.
pub(super) const SOURCE_PROTOCOL: u32 = 1_000;

/// Returns the key of a slot of a plain list.
pub fn slot_key(list: ListId, protocol: Protocol, slot: u32) -> Value {
    Value::new().class_id(list.key()).proto(protocol.number()).integer(slot)
}

impl<'a> TableElement<'a> {
    /// Returns the element without the comment, and the comment. That of an ended endpoint and its
    /// time are dropped: packets do not depend on them.
    pub fn without_label(self) -> (TableElement<'static>, Option<&'a str>) {
        let element = match self {
            Self::Route(frontend, route, label) => {
                return (TableElement::Route(frontend, route, None), label);
            }
            Self::Unserved(frontend, unserved, label) => {
                return (TableElement::Unserved(frontend, unserved, None), label);
            }
            Self::Endpoint(list, protocol, slot, target) => {
                TableElement::Endpoint(list, protocol, slot, target)
            }
            Self::Internal(frontend, route) => TableElement::Internal(frontend, route),
            Self::Member(member) => TableElement::Member(member),
            Self::Restricted(frontend) => TableElement::Restricted(frontend),
            Self::SourceRange(frontend, range) => TableElement::SourceRange(frontend, range),
            Self::SourceRefusals(frontend) => TableElement::SourceRefusals(frontend),
            Self::AffinitySlot(list, slot, id) => TableElement::AffinitySlot(list, slot, id),
            Self::AffinityEndpoint(list, protocol, id, target) => {
                TableElement::AffinityEndpoint(list, protocol, id, target)
            }
            Self::AffinityList(list, route) => TableElement::AffinityList(list, route),
            Self::RangeEndpoint(list, id, address) => {
                TableElement::RangeEndpoint(list, id, address)
            }
            Self::PortBlock(frontend, block) => TableElement::PortBlock(frontend, block),
            Self::Ended(target, ..) => TableElement::Ended(target, Duration::ZERO, None),
        };
        (element, None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::number::{Flags, SizeClass, Timeout};
    use super::*;

    fn any_target(family: Family) -> impl Strategy<Value = Target> {
        (any::<[u8; 16]>(), 1u16..).prop_map(move |(bytes, port)| {
            let v4 = IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let address = if family == Family::Ip { v4 } else { IpAddr::from(bytes) };
            Target { address, port: NonZeroU16::new(port).unwrap() }
        })
    }

    fn any_element(family: Family) -> impl Strategy<Value = TableElement<'static>> {
        let numbers = (0x100u32..=0xff_ffff, 1u32..=0xffff, 0u32..8_192, 1u16..=0x7fff);
        let choice = (0usize..15, any::<bool>(), any::<bool>());
        (any_target(family), numbers, choice).prop_map(
            move |(target, (list, session, slot, id), (kind, node_port, flag))| {
                let (list, session) = (ListId::plain(list), ListId::session(session));
                let (address, port, protocol) = (target.address, target.port, Protocol::Udp);
                let frontend = if node_port {
                    Frontend::NodePort { family, protocol, port }
                } else {
                    Frontend::Address { address, protocol, port }
                };
                let service = Frontend::Address { address, protocol, port };
                let ranges = Frontend::Ranges { address, protocol };
                let length = u8::try_from(1 + slot % 32).unwrap();
                let network = IpNet::new_assert(address, length).trunc();
                let flags = Flags { masquerade: flag, local: !flag };
                let size = SizeClass::of(slot as usize);
                let route = Route::new(list, None, size, flags);
                let sticky = Route::new(session, Timeout::new(3), size, Flags::default());
                match kind {
                    0 => TableElement::Endpoint(list, protocol, slot, target),
                    1 => TableElement::Route(frontend, route, Some("default/web:http")),
                    2 => TableElement::Internal(frontend, sticky),
                    3 => TableElement::Unserved(frontend, Unserved::Drop, None),
                    4 => TableElement::Member(if flag {
                        Member::Hairpin(target, protocol)
                    } else {
                        Member::ClusterIp(address)
                    }),
                    5 => TableElement::Restricted(service),
                    6 => TableElement::SourceRange(service, network),
                    7 => TableElement::AffinitySlot(session, slot, id),
                    8 => TableElement::AffinityEndpoint(session, protocol, id, target),
                    9 => TableElement::SourceRefusals(service),
                    10 => TableElement::RangeEndpoint(session, id, address),
                    11 => TableElement::PortBlock(
                        ranges,
                        PortBlock::new(port.get() & 0xfff0, 12).unwrap(),
                    ),
                    12 => TableElement::Route(ranges, sticky, Some("default/web:*")),
                    13 => TableElement::SourceRange(ranges, network),
                    _ => TableElement::AffinityList(session, sticky),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn an_element_is_read_as_it_was_written(
            (family, element) in prop_oneof![Just(Family::Ip), Just(Family::Ip6)]
                .prop_flat_map(|family| (Just(family), any_element(family))),
        ) {
            let written = element.to_element();
            let bytes = |value: &Value| value.as_bytes().to_vec();
            let key = bytes(&written.key);
            let data = written.data.as_ref().map(bytes);
            let view = ElementView {
                key: &key,
                key_end: None,
                data: data.as_deref(),
                comment: written.comment.as_deref(),
                timeout: None,
                expires: None,
                flags: 0,
                counter: None,
            };
            prop_assert_eq!(TableElement::read(family, element.set(), &view), Some(element));
        }
    }
}
