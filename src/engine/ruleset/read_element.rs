//! Elements of our sets and maps, read from bytes.

use ipnet::IpNet;
use nft::{Element, ElementView, Family, Value};

use super::element::{
    Frontend, Member, SOURCE_PROTOCOL, Subject, TableElement, Unserved, source_number,
};
use super::fields::Fields;
use super::number::{EndpointId, ListId, Route, SizeClass};
use super::sets::SetId;
use crate::model::{PortBlock, Protocol, Target};

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
            SetId::RangeEndpoints => {
                ListId::from_endpoint(key.number()?).map(|(list, _)| Self::List(list))
            }
            SetId::ClusterIps
            | SetId::NodePortIps
            | SetId::HairpinConnections
            | SetId::RangeHairpins
            | SetId::AffinityClients
            | SetId::EndedEndpoints => None,
            SetId::Services
            | SetId::NodePorts
            | SetId::InternalServices
            | SetId::InternalNodePorts
            | SetId::UnservedServices
            | SetId::UnservedNodePorts
            | SetId::RestrictedServices
            | SetId::SourceRefusals
            | SetId::RangeServices
            | SetId::InternalRangeServices
            | SetId::UnservedRangeServices
            | SetId::RestrictedRangeServices
            | SetId::RangeSourceRefusals => key.frontend(family, set).map(Self::Frontend),
            SetId::SourceRanges | SetId::RangeSources => {
                key.source_range(family, set).map(|it| Self::Frontend(it.0))
            }
            SetId::PortRanges => key.port_block(family).map(|it| Self::Frontend(it.0)),
        }
    }
}

impl<'a> TableElement<'a> {
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
            SetId::Services | SetId::NodePorts | SetId::RangeServices => {
                Self::Route(key.frontend(family, set)?, route(view)?, view.comment)
            }
            SetId::InternalServices | SetId::InternalNodePorts | SetId::InternalRangeServices => {
                Self::Internal(key.frontend(family, set)?, route(view)?)
            }
            SetId::UnservedServices | SetId::UnservedNodePorts | SetId::UnservedRangeServices => {
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
            SetId::RestrictedServices | SetId::RestrictedRangeServices => {
                Self::Restricted(key.frontend(family, set)?)
            }
            SetId::SourceRanges | SetId::RangeSources => {
                let (frontend, range) = key.source_range(family, set)?;
                Self::SourceRange(frontend, range)
            }
            SetId::SourceRefusals | SetId::RangeSourceRefusals => {
                Self::SourceRefusals(key.frontend(family, set)?)
            }
            SetId::PortRanges => {
                let (frontend, block) = key.port_block(family)?;
                Self::PortBlock(frontend, block)
            }
            SetId::RangeHairpins => {
                let (address, again) = (key.address(family)?, key.address(family)?);
                Self::Member(Member::RangeHairpin(Some(address).filter(|it| *it == again)?))
            }
            SetId::AffinitySlots
            | SetId::AffinityEndpoints
            | SetId::RangeEndpoints
            | SetId::AffinityLists => Self::read_session(family, set, &mut key, view)?,
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

    /// Reads an element of a list with affinity, and its key.
    fn read_session(
        family: Family,
        set: SetId,
        key: &mut Fields<'_>,
        view: &ElementView<'a>,
    ) -> Option<Self> {
        if set == SetId::AffinityEndpoints {
            let protocol = key.protocol()?;
            let (list, id) = ListId::from_endpoint(key.number()?)?;
            return Some(Self::AffinityEndpoint(list, protocol, id, target(family, view)?));
        }
        if set == SetId::RangeEndpoints {
            let (list, id) = ListId::from_endpoint(key.number()?)?;
            let mut data = Fields::new(view.data?);
            let address = data.address(family).filter(|_| data.is_empty())?;
            return Some(Self::RangeEndpoint(list, id, address));
        }
        let list = ListId::from_session_key(key.number()?)?;
        if set == SetId::AffinitySlots {
            let slot = key.number().filter(|it| *it < SizeClass::LARGEST.most())?;
            let (of, id) = ListId::from_endpoint(priority(view)?)?;
            return Some(Self::AffinitySlot(list, slot, Some(id).filter(|_| of == list)?));
        }
        // Rules restore this value after they have tested the flag, so the lookup key has it.
        let route = Route::from_bits(priority(view)?)?;
        Some(Self::AffinityList(list, Some(route).filter(|it| it.list() == Some(list))?))
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
    fn source_range(&mut self, family: Family, set: SetId) -> Option<(Frontend, IpNet)> {
        let (source, (protocol, length)) = (self.address(family)?, self.protocol_and_length()?);
        let address = self.address(family)?;
        let frontend = if set == SetId::RangeSources {
            Frontend::Ranges { address, protocol }
        } else {
            Frontend::Address { address, protocol, port: self.port()? }
        };
        let range = IpNet::new(source, length).ok().filter(|it| *it == it.trunc())?;
        Some((frontend, range))
    }

    /// Reads the number of [`source_number`], whose length is not 0.
    fn protocol_and_length(&mut self) -> Option<(Protocol, u8)> {
        let number = self.number()?;
        let length = u8::try_from(number % SOURCE_PROTOCOL).ok().filter(|length| *length > 0)?;
        let mut protocols = Protocol::ALL.into_iter();
        let protocol = protocols.find(|it| source_number(*it, length) == number)?;
        Some((protocol, length))
    }

    fn port_block(&mut self, family: Family) -> Option<(Frontend, PortBlock)> {
        let (first, (protocol, length)) = (self.port_or_0()?, self.protocol_and_length()?);
        let block = PortBlock::new(first, length)?;
        Some((Frontend::Ranges { address: self.address(family)?, protocol }, block))
    }

    fn frontend(&mut self, family: Family, set: SetId) -> Option<Frontend> {
        if set.is_of_node_ports() {
            let protocol = self.protocol()?;
            return Some(Frontend::NodePort { family, protocol, port: self.port()? });
        }
        let (address, protocol) = (self.address(family)?, self.protocol()?);
        if set.is_of_ranges() {
            return Some(Frontend::Ranges { address, protocol });
        }
        Some(Frontend::Address { address, protocol, port: self.port()? })
    }
}
