//! Elements of the sets and maps: their meaning, and conversion from and to bytes.

use std::net::IpAddr;
use std::num::NonZeroU16;

use nft::{Element, ElementView, Family, Value};

use super::number::{DirectRoute, NodeListId, NodeNumber};
use super::sets::DirectSet;
use crate::model::Protocol;
use crate::ruleset::number::TableSize;
use crate::ruleset::{Fields, Frontend};

/// Address, protocol and port of packets, or of the answers inside ICMP errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    /// Address of the service.
    pub address: IpAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port of the service.
    pub port: NonZeroU16,
}

/// An element of one of our sets and maps, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DirectElement {
    /// The hardware address of another node.
    HardwareAddress([u8; 6]),
    /// An address with a service of direct return.
    Address(IpAddr),
    /// The route of packets to a service.
    Frontend(Destination, DirectRoute),
    /// The route of ICMP errors about answers of a service.
    ErrorFrontend(Destination, DirectRoute),
    /// The node in a slot of a list.
    Slot(NodeListId, u32, NodeNumber),
    /// The address of another node.
    NodeAddress(NodeNumber, IpAddr),
    /// The index of the device that leads to another node, which is not 0.
    NodeDevice(NodeNumber, u32),
}

/// The key of an element, with its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirectKey {
    /// That of [`DirectElement::HardwareAddress`].
    HardwareAddress([u8; 6]),
    /// That of [`DirectElement::Address`].
    Address(IpAddr),
    /// That of [`DirectElement::Frontend`].
    Frontend(Destination),
    /// That of [`DirectElement::ErrorFrontend`].
    ErrorFrontend(Destination),
    /// That of [`DirectElement::Slot`].
    Slot(NodeListId, u32),
    /// That of [`DirectElement::NodeAddress`].
    NodeAddress(NodeNumber, Family),
    /// That of [`DirectElement::NodeDevice`].
    NodeDevice(NodeNumber),
}

impl Destination {
    /// Returns the family of its address.
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// Returns the frontend of a service at its address.
    pub fn frontend(&self) -> Frontend {
        let Self { address, protocol, port } = *self;
        Frontend::Address { address, protocol, port }
    }

    /// Returns the node port that it is, if its address is that of a node.
    pub fn node_port(&self) -> Frontend {
        Frontend::NodePort { family: self.family(), protocol: self.protocol, port: self.port }
    }

    fn read(family: Family, key: &mut Fields<'_>) -> Option<Self> {
        let (address, protocol) = (key.address(family)?, key.protocol()?);
        Some(Self { address, protocol, port: key.port()? })
    }
}

impl DirectKey {
    /// Returns the set or map of the key.
    pub fn set(self) -> DirectSet {
        match self {
            Self::HardwareAddress(_) => DirectSet::NodeHardwareAddresses,
            Self::Address(address) => DirectSet::Addresses(Family::of(address)),
            Self::Frontend(destination) => DirectSet::Frontends(destination.family()),
            Self::ErrorFrontend(destination) => DirectSet::ErrorFrontends(destination.family()),
            Self::Slot(..) => DirectSet::Nodes,
            Self::NodeAddress(_, family) => DirectSet::NodeAddresses(family),
            Self::NodeDevice(_) => DirectSet::NodeDevices,
        }
    }

    fn value(self) -> Value {
        match self {
            Self::HardwareAddress(octets) => Value::new().ether(octets),
            Self::Address(address) => Value::new().ip(address),
            Self::Frontend(Destination { address, protocol, port })
            | Self::ErrorFrontend(Destination { address, protocol, port }) => {
                Value::new().ip(address).proto(protocol.number()).port(port.get())
            }
            Self::Slot(list, slot) => Value::new().class_id(list.key()).integer(slot),
            Self::NodeAddress(node, _) | Self::NodeDevice(node) => Value::new().mark(node.get()),
        }
    }

    /// Reads the key of an element of one of our sets; `None` for those that packets write, and if
    /// this program never writes such a key.
    pub fn read(set: DirectSet, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let key = match set {
            // A single field has no padding, unlike fields of a concatenation.
            DirectSet::NodeHardwareAddresses => {
                return bytes.try_into().ok().map(Self::HardwareAddress);
            }
            DirectSet::Addresses(family) => Self::Address(fields.address(family)?),
            DirectSet::Frontends(family) => Self::Frontend(Destination::read(family, &mut fields)?),
            DirectSet::ErrorFrontends(family) => {
                Self::ErrorFrontend(Destination::read(family, &mut fields)?)
            }
            DirectSet::Nodes => {
                let list = NodeListId::from_key(fields.number()?)?;
                let slot = fields.number().filter(|slot| *slot < TableSize::LARGEST.slots())?;
                Self::Slot(list, slot)
            }
            DirectSet::NodeAddresses(family) => {
                Self::NodeAddress(NodeNumber::of(fields.number()?)?, family)
            }
            DirectSet::NodeDevices => Self::NodeDevice(NodeNumber::of(fields.number()?)?),
            DirectSet::Connections | DirectSet::Fragments(_) => return None,
        };
        fields.is_empty().then_some(key)
    }
}

impl DirectElement {
    /// Returns its key.
    pub fn key(&self) -> DirectKey {
        match *self {
            Self::HardwareAddress(octets) => DirectKey::HardwareAddress(octets),
            Self::Address(address) => DirectKey::Address(address),
            Self::Frontend(destination, _) => DirectKey::Frontend(destination),
            Self::ErrorFrontend(destination, _) => DirectKey::ErrorFrontend(destination),
            Self::Slot(list, slot, _) => DirectKey::Slot(list, slot),
            Self::NodeAddress(node, address) => DirectKey::NodeAddress(node, Family::of(address)),
            Self::NodeDevice(node, _) => DirectKey::NodeDevice(node),
        }
    }

    /// Returns its set or map.
    pub fn set(&self) -> DirectSet {
        self.key().set()
    }

    /// Returns an element with the key only, which suffices to delete it.
    pub fn to_key(&self) -> Element {
        Element::new(self.key().value())
    }

    /// Returns the nftables element.
    pub fn to_element(&self) -> Element {
        let data = match self {
            Self::HardwareAddress(_) | Self::Address(_) => None,
            Self::Frontend(_, route) | Self::ErrorFrontend(_, route) => {
                Some(Value::new().class_id(route.bits()))
            }
            Self::Slot(_, _, node) => Some(Value::new().mark(node.get())),
            Self::NodeAddress(_, address) => Some(Value::new().ip(*address)),
            Self::NodeDevice(_, index) => Some(Value::new().interface(*index)),
        };
        Element { data, ..self.to_key() }
    }

    /// Reads an element of one of our sets; `None` if this program never writes such an element.
    pub fn read(set: DirectSet, view: &ElementView<'_>) -> Option<Self> {
        let mut data = Fields::new(view.data.unwrap_or_default());
        let element = match DirectKey::read(set, view.key)? {
            DirectKey::HardwareAddress(octets) => Self::HardwareAddress(octets),
            DirectKey::Address(address) => Self::Address(address),
            DirectKey::Frontend(to) => Self::Frontend(to, DirectRoute::from_bits(data.number()?)?),
            DirectKey::ErrorFrontend(to) => {
                Self::ErrorFrontend(to, DirectRoute::from_bits(data.number()?)?)
            }
            DirectKey::Slot(list, slot) => Self::Slot(list, slot, NodeNumber::of(data.number()?)?),
            DirectKey::NodeAddress(node, family) => Self::NodeAddress(node, data.address(family)?),
            DirectKey::NodeDevice(node) => {
                Self::NodeDevice(node, data.number().filter(|index| *index != 0)?)
            }
        };
        data.is_empty().then_some(element)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_route() -> impl Strategy<Value = DirectRoute> {
        let bits = (0u32..8, 0x18u32..0x20).prop_map(|(flags, class)| flags << 5 & 0x60 | class);
        (1..=NodeListId::LAST, bits)
            .prop_map(|(list, bits)| DirectRoute::from_bits(list << 8 | bits).unwrap())
    }

    fn any_element() -> impl Strategy<Value = DirectElement> {
        let address = (any::<[u8; 16]>(), any::<bool>()).prop_map(|(bytes, is_ip6)| {
            let [a, b, c, d, ..] = bytes;
            if is_ip6 { IpAddr::from(bytes) } else { IpAddr::from([a, b, c, d]) }
        });
        let numbers = (1..=NodeListId::LAST, 0u32..65_521, 1u32.., 1u32..);
        (0usize..7, address, 1u16.., any::<[u8; 6]>(), numbers, any_route()).prop_map(
            |(kind, address, port, octets, (list, slot, node, index), route)| {
                let (list, node) = (NodeListId::new(list).unwrap(), NodeNumber::of(node).unwrap());
                let (port, protocol) = (NonZeroU16::new(port).unwrap(), Protocol::Sctp);
                let destination = Destination { address, protocol, port };
                match kind {
                    0 => DirectElement::HardwareAddress(octets),
                    1 => DirectElement::Address(address),
                    2 => DirectElement::Frontend(destination, route),
                    3 => DirectElement::ErrorFrontend(destination, route),
                    4 => DirectElement::Slot(list, slot, node),
                    5 => DirectElement::NodeAddress(node, address),
                    _ => DirectElement::NodeDevice(node, index),
                }
            },
        )
    }

    /// Reads an element as the kernel lists it: a single field without padding.
    fn read(set: DirectSet, element: &Element) -> Option<DirectElement> {
        let types = set.set(1);
        let listed = |value: &Value, types: &[nft::Type]| match types {
            [only] => value.as_bytes()[..only.length() as usize].to_vec(),
            _ => value.as_bytes().to_vec(),
        };
        let key = listed(&element.key, &types.key);
        let data = element.data.as_ref().map(|data| listed(data, &types.data));
        let view = ElementView { key: &key, data: data.as_deref(), ..ElementView::default() };
        DirectElement::read(set, &view)
    }

    proptest! {
        #[test]
        fn an_element_is_read_as_it_was_written(element in any_element()) {
            let written = element.to_element();
            prop_assert_eq!(read(element.set(), &written), Some(element));
            prop_assert_eq!(element.to_key(), Element { data: None, ..written });
        }

        #[test]
        fn an_element_with_more_or_fewer_bytes_is_not_ours(element in any_element(), key in any::<bool>()) {
            let written = element.to_element();
            let [mut bytes, mut data] =
                [Some(&written.key), written.data.as_ref()].map(|value| value.map(|it| it.as_bytes().to_vec()));
            let longer = if key || data.is_none() { &mut bytes } else { &mut data };
            longer.as_mut().unwrap().extend([0; 4]);
            let view = ElementView { key: bytes.as_deref().unwrap(), data: data.as_deref(), ..ElementView::default() };
            prop_assert_eq!(DirectElement::read(element.set(), &view), None);
        }
    }

    #[test]
    fn elements_that_this_program_never_writes_are_not_read() {
        let number = |number| Value::new().mark(number);
        let slot = |list, slot| Value::new().class_id(list).integer(slot);
        let rows = [
            (DirectSet::NodeDevices, number(1), number(0)),
            (DirectSet::NodeDevices, number(0), number(1)),
            (DirectSet::Nodes, slot(0x100, 1), number(0)),
            (DirectSet::Nodes, slot(0x101, 1), number(1)),
            (DirectSet::Nodes, slot(0x100, 65_521), number(1)),
            (DirectSet::Connections, slot(0x100, 1), number(1)),
        ];
        for (set, key, data) in rows {
            assert_eq!(read(set, &Element::with_value(key, data)), None, "{}", set.name());
        }
        let last = Element::with_value(slot(0x100, 65_520), number(1));
        assert!(read(DirectSet::Nodes, &last).is_some());
    }
}
