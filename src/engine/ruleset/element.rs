//! Elements of our sets and maps: their meaning, and conversion from and to bytes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use nft::{Element, ElementView, Family, Value};

use super::fields::Fields;
use super::number::{EndpointId, ListId, Route, SizeClass};
use super::sets::SetId;
use crate::model::{Protocol, Target};

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
            Self::Address { address, .. } => Family::of(*address),
            Self::NodePort { family, .. } => *family,
        }
    }

    /// Returns its transport protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Address { protocol, .. } | Self::NodePort { protocol, .. } => *protocol,
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
        }
    }

    /// Returns the set of its kind: service addresses or node ports.
    fn choose(&self, services: SetId, node_ports: SetId) -> SetId {
        match self {
            Self::Address { .. } => services,
            Self::NodePort { .. } => node_ports,
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
            Self::ClusterIp(address) | Self::NodePortIp(address) => Family::of(*address),
            Self::Hairpin(target, _) => Family::of(target.address),
        }
    }
}

impl Subject {
    /// Reads the subject from the key of an element; `None` for sets that services share.
    pub fn read(family: Family, set: SetId, key: &[u8]) -> Option<Self> {
        let mut key = Fields::new(key);
        match set {
            SetId::Endpoints => ListId::from_plain_key(key.number()?).map(Self::List),
            SetId::AffinitySlots | SetId::AffinityLists => {
                ListId::from_session_key(key.number()?).map(Self::List)
            }
            SetId::AffinityEndpoints => {
                key.protocol()?;
                ListId::from_endpoint(key.number()?).map(|(list, _)| Self::List(list))
            }
            SetId::ClusterIps
            | SetId::NodePortIps
            | SetId::HairpinConnections
            | SetId::AffinityClients
            | SetId::EndedEndpoints => None,
            SetId::Services
            | SetId::NodePorts
            | SetId::InternalServices
            | SetId::InternalNodePorts
            | SetId::UnservedServices
            | SetId::UnservedNodePorts
            | SetId::RestrictedServices
            | SetId::SourceRefusals => key.frontend(family, set).map(Self::Frontend),
            SetId::SourceRanges => key.source_range(family).map(|it| Self::Frontend(it.0)),
        }
    }
}

impl Unserved {
    const ALL: [Self; 2] = [Self::Refuse, Self::Drop];

    /// Returns the packet priority that represents it: `1:0` or `1:1`.
    pub const fn priority(self) -> u32 {
        match self {
            Self::Refuse => 0x1_0000,
            Self::Drop => 0x1_0001,
        }
    }
}

impl TableElement<'_> {
    /// Returns the set or map of the element.
    pub fn set(&self) -> SetId {
        match self {
            Self::Endpoint(..) => SetId::Endpoints,
            Self::Route(it, ..) => it.choose(SetId::Services, SetId::NodePorts),
            Self::Internal(it, _) => it.choose(SetId::InternalServices, SetId::InternalNodePorts),
            Self::Unserved(it, ..) => it.choose(SetId::UnservedServices, SetId::UnservedNodePorts),
            Self::Member(Member::ClusterIp(_)) => SetId::ClusterIps,
            Self::Member(Member::NodePortIp(_)) => SetId::NodePortIps,
            Self::Member(Member::Hairpin(..)) => SetId::HairpinConnections,
            Self::Restricted(_) => SetId::RestrictedServices,
            Self::SourceRange(..) => SetId::SourceRanges,
            Self::SourceRefusals(_) => SetId::SourceRefusals,
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
                }
            }
            Self::AffinitySlot(list, slot, _) => Value::new().class_id(list.key()).integer(*slot),
            Self::AffinityEndpoint(list, protocol, id, _) => {
                Value::new().proto(protocol.number()).class_id(list.endpoint(*id))
            }
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
            Self::Route(_, route, label) => (class(route.bits()), label),
            Self::Unserved(_, unserved, label) => (class(unserved.priority()), label),
            Self::Ended(_, _, label) => (None, label),
            Self::Internal(_, route) | Self::AffinityList(_, route) => (class(route.bits()), None),
            Self::AffinitySlot(list, _, id) => (class(list.endpoint(id)), None),
            Self::Member(_)
            | Self::Restricted(_)
            | Self::SourceRange(..)
            | Self::SourceRefusals(_) => (None, None),
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
const SOURCE_PROTOCOL: u32 = 1_000;

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
            Self::Ended(target, ..) => TableElement::Ended(target, Duration::ZERO, None),
        };
        (element, None)
    }

    /// Reads an element of one of our sets; `None` if this program never writes such an element.
    pub fn read(family: Family, set: SetId, view: &ElementView<'a>) -> Option<Self> {
        let mut key = Fields::new(view.key);
        let element = match set {
            SetId::Endpoints => {
                let list = ListId::from_plain_key(key.number()?)?;
                let (protocol, slot) = (key.protocol()?, key.number()?);
                let is_slot = slot < SizeClass::LARGEST.most();
                Self::Endpoint(list, protocol, slot, target(family, view).filter(|_| is_slot)?)
            }
            SetId::Services | SetId::NodePorts => {
                Self::Route(key.frontend(family, set)?, route(view)?, view.comment)
            }
            SetId::InternalServices | SetId::InternalNodePorts => {
                Self::Internal(key.frontend(family, set)?, route(view)?)
            }
            SetId::UnservedServices | SetId::UnservedNodePorts => {
                let priority = priority(view)?;
                let unserved = Unserved::ALL.into_iter().find(|it| it.priority() == priority)?;
                Self::Unserved(key.frontend(family, set)?, unserved, view.comment)
            }
            SetId::ClusterIps => Self::Member(Member::ClusterIp(key.address(family)?)),
            SetId::NodePortIps => Self::Member(Member::NodePortIp(key.address(family)?)),
            SetId::HairpinConnections => {
                let (address, again) = (key.address(family)?, key.address(family)?);
                let protocol = key.protocol().filter(|_| address == again)?;
                Self::Member(Member::Hairpin(Target { address, port: key.port()? }, protocol))
            }
            SetId::RestrictedServices => Self::Restricted(key.frontend(family, set)?),
            SetId::SourceRanges => {
                let (frontend, range) = key.source_range(family)?;
                Self::SourceRange(frontend, range)
            }
            SetId::SourceRefusals => Self::SourceRefusals(key.frontend(family, set)?),
            SetId::AffinitySlots => {
                let list = ListId::from_session_key(key.number()?)?;
                let slot = key.number().filter(|it| *it < SizeClass::LARGEST.most())?;
                let (of, id) = ListId::from_endpoint(priority(view)?)?;
                Self::AffinitySlot(list, slot, Some(id).filter(|_| of == list)?)
            }
            SetId::AffinityEndpoints => {
                let protocol = key.protocol()?;
                let (list, id) = ListId::from_endpoint(key.number()?)?;
                Self::AffinityEndpoint(list, protocol, id, target(family, view)?)
            }
            SetId::AffinityLists => {
                let list = ListId::from_session_key(key.number()?)?;
                // Rules restore this value after they have tested the flag, so the lookup key has
                // it.
                let route = Route::from_bits(priority(view)?)?;
                Self::AffinityList(list, Some(route).filter(|it| it.list() == Some(list))?)
            }
            SetId::AffinityClients => return None,
            SetId::EndedEndpoints => {
                let address = key.address(family)?;
                key.protocol().filter(|it| *it == Protocol::Tcp)?;
                let left = view.expires.unwrap_or_default();
                Self::Ended(Target { address, port: key.port()? }, left, view.comment)
            }
        };
        key.is_empty().then_some(element)
    }
}

/// Returns an element that deletes one that this program never writes.
pub fn stray(view: &ElementView<'_>) -> Option<Element> {
    Value::from_bytes(view.key).map(Element::new)
}

/// Returns the endpoint in the data of an element.
pub fn target(family: Family, view: &ElementView<'_>) -> Option<Target> {
    let mut fields = Fields::new(view.data?);
    let target = Target { address: fields.address(family)?, port: fields.port()? };
    fields.is_empty().then_some(target)
}

/// Returns the list and the endpoint of an element of `affinity-clients`.
pub fn recorded_client(view: &ElementView<'_>) -> Option<(ListId, EndpointId)> {
    ListId::from_endpoint(priority(view)?)
}

fn route(view: &ElementView<'_>) -> Option<Route> {
    Route::from_bits(priority(view)?)
}

fn priority(view: &ElementView<'_>) -> Option<u32> {
    view.data?.try_into().ok().map(u32::from_ne_bytes)
}

impl Fields<'_> {
    /// Reads a source range as rules look it up: without host bits, and not of length 0.
    fn source_range(&mut self, family: Family) -> Option<(Frontend, IpNet)> {
        let (source, number) = (self.address(family)?, self.number()?);
        let (address, port) = (self.address(family)?, self.port()?);
        let length = u8::try_from(number % SOURCE_PROTOCOL).ok().filter(|length| *length > 0)?;
        let mut protocols = Protocol::ALL.into_iter();
        let protocol = protocols.find(|it| source_number(*it, length) == number)?;
        let range = IpNet::new(source, length).ok().filter(|it| *it == it.trunc())?;
        Some((Frontend::Address { address, protocol, port }, range))
    }

    fn frontend(&mut self, family: Family, set: SetId) -> Option<Frontend> {
        if set.is_of_node_ports() {
            let protocol = self.protocol()?;
            return Some(Frontend::NodePort { family, protocol, port: self.port()? });
        }
        let (address, protocol) = (self.address(family)?, self.protocol()?);
        Some(Frontend::Address { address, protocol, port: self.port()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::number::{Flags, Timeout};
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
        let choice = (0usize..11, any::<bool>(), any::<bool>());
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
                    6 => TableElement::SourceRange(
                        service,
                        IpNet::new_assert(address, u8::try_from(1 + slot % 32).unwrap()).trunc(),
                    ),
                    7 => TableElement::AffinitySlot(session, slot, id),
                    8 => TableElement::AffinityEndpoint(session, protocol, id, target),
                    9 => TableElement::SourceRefusals(service),
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
