//! The VXLAN device over which packets get to nodes behind a router. Its entries are written from Node
//! objects, so that a packet finds its way without any traffic before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use engine::direct::{Reach, Unreachable, node_number};
use engine::model::Cluster;
use engine::routing::DirectReturn;
use network::{HardwareAddress, TunnelDevice, TunnelEntry, Tunnels, Vxlan};
use nft::kernel::Release;
use nft::{Family, Name};
use tokio::sync::watch;

use super::requested::own_address;

/// The name of the device.
pub const DEVICE: &str = "direct-return";

/// The network identifier, `dir` in ASCII: other devices may share the port.
const NETWORK: u32 = 0x0064_6972;

/// One end of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TunnelEnd {
    /// The address that packets between ends have.
    address: IpAddr,
    /// The hardware address of the device there.
    hardware_address: HardwareAddress,
}

/// The ends of tunnels: this node, and others by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelEnds {
    own: Option<TunnelEnd>,
    others: BTreeMap<IpAddr, TunnelEnd>,
}

impl TunnelEnds {
    /// Returns the ends of a cluster. Packets between them have addresses of the family of this node's
    /// first one; nodes that have none of it have no tunnel.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let own = cluster.node().zip(own_address(cluster));
        let Some((own, address)) = own else { return Self::default() };
        let family = Family::of(address);
        let mut others = BTreeMap::new();
        for peer in cluster.peers().values() {
            let Some(address) = peer.address(family) else { continue };
            let end = TunnelEnd { address, hardware_address: hardware_address(peer.name.as_str()) };
            for inner in Family::ALL.into_iter().filter_map(|family| peer.address(family)) {
                others.insert(inner, end);
            }
        }
        let hardware_address = hardware_address(own.name.as_str());
        Self { own: Some(TunnelEnd { address, hardware_address }), others }
    }
}

/// Returns the hardware address of the device of a node, the same on all nodes: locally administered, of
/// one station (IEEE 802).
fn hardware_address(node: &str) -> HardwareAddress {
    let [a, b, c, d] = node_number(node).get().to_be_bytes();
    [0x06, 0x64, a, b, c, d]
}

/// The tunnels of this node as they are desired.
#[derive(Clone, Debug)]
pub struct TunnelSettings {
    /// The port of UDP.
    pub port: u16,
    /// The ends.
    pub ends: watch::Receiver<TunnelEnds>,
}

impl TunnelSettings {
    /// Returns those of direct return; `None` if it has no tunnel.
    pub fn of(settings: &DirectReturn, ends: watch::Receiver<TunnelEnds>) -> Option<Self> {
        settings.vxlan_port.map(|port| Self { port: port.get(), ends })
    }
}

/// The device and its entries.
pub(super) struct Tunnel {
    settings: TunnelSettings,
    kernel: Tunnels,
    state: State,
    /// The entries that the kernel has since the last update.
    entries: BTreeSet<TunnelEntry>,
}

/// The state of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is not known what it should be like.
    Unknown,
    /// It exists as it should, with this index.
    Made(u32),
    /// There is none.
    Missing,
}

impl Tunnel {
    /// Opens sockets in the network namespace of the calling thread.
    pub(super) fn open(settings: TunnelSettings) -> io::Result<Self> {
        Ok(Self {
            settings,
            kernel: Tunnels::open()?,
            state: State::Unknown,
            entries: BTreeSet::new(),
        })
    }

    /// Looks for the device; makes and changes nothing.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let found = self.kernel.find(DEVICE)?;
        self.state = State::Missing;
        if let Some(found) = found.filter(|it| it.vxlan.is_some() && it.vxlan == self.desired()) {
            self.entries = self.kernel.entries(found.index)?;
            self.state = State::Made(found.index);
        }
        Ok(())
    }

    /// Makes the device and writes its entries: those of the addresses that `is_far` selects.
    ///
    /// # Errors
    /// There is another device of this name, the kernel has no chains at egress, or refuses something. An
    /// entry that it refuses keeps out no other.
    pub(super) fn update(&mut self, is_far: impl Fn(IpAddr) -> bool) -> io::Result<()> {
        let ends = self.settings.ends.borrow_and_update().clone();
        let Some(vxlan) = self.desired() else {
            self.state = State::Unknown;
            return Ok(());
        };
        // A failed request leaves the state as it was.
        let found = self.kernel.find(DEVICE)?;
        let index = self.device(found, &vxlan).inspect_err(|_| self.state = State::Missing)?;
        let far = ends.others.into_iter().filter(|(address, _)| is_far(*address));
        let desired: BTreeSet<TunnelEntry> = far
            .flat_map(|(address, end)| {
                let hardware_address = end.hardware_address;
                [
                    TunnelEntry::Neighbour(address, hardware_address),
                    TunnelEntry::End(hardware_address, end.address),
                ]
            })
            .collect();
        let present = self.kernel.entries(index)?;
        let (mut written, mut refused) = (BTreeSet::new(), Ok(()));
        for entry in &desired {
            let is_present = present.contains(entry);
            let added = if is_present { Ok(()) } else { self.kernel.add(index, entry) };
            written.extend(added.is_ok().then_some(*entry));
            refused = refused.and(added);
        }
        let gone = present.difference(&desired);
        for entry in gone.filter(|it| !desired.iter().any(|other| it.has_place_of(other))) {
            refused = refused.and(self.kernel.delete(index, entry));
        }
        (self.state, self.entries) = (State::Made(index), written);
        refused
    }

    /// Returns the index of the device, which is made if it does not exist, and made again if it is of
    /// other settings.
    fn device(&mut self, found: Option<TunnelDevice>, vxlan: &Vxlan) -> io::Result<u32> {
        if Release::running().is_some_and(|release| release < Release::EGRESS) {
            return Err(io::Error::other(format!("it needs Linux {}", Release::EGRESS)));
        }
        if let Some(found) = found {
            match found.vxlan {
                Some(present) if present == *vxlan => return Ok(found.index),
                Some(present) if present.id == NETWORK => self.kernel.remove(found.index)?,
                Some(_) | None => {
                    let message = format!("device {DEVICE} is of another program");
                    return Err(io::Error::other(message));
                }
            }
        }
        self.kernel.create(DEVICE, vxlan)
    }

    fn desired(&self) -> Option<Vxlan> {
        let TunnelEnd { address, hardware_address } = self.settings.ends.borrow().own?;
        let port = self.settings.port;
        Some(Vxlan { id: NETWORK, port, local: address, hardware_address })
    }

    /// Returns how packets get to an address through the device.
    pub(super) fn reach(&self, address: IpAddr) -> Reach {
        let end = self.settings.ends.borrow().others.get(&address).copied();
        match (self.state, end) {
            (State::Unknown, _) => Reach::Not(Unreachable::HardwareAddressUnknown),
            (State::Missing, _) | (State::Made(_), None) => Reach::Not(Unreachable::NotOnLink),
            (State::Made(device), Some(TunnelEnd { hardware_address, .. })) => {
                let entry = TunnelEntry::Neighbour(address, hardware_address);
                if self.entries.contains(&entry) {
                    Reach::OnLink { device, hardware_address }
                } else {
                    Reach::Not(Unreachable::HardwareAddressUnknown)
                }
            }
        }
    }

    /// Returns the name of the device, if it exists as it should.
    pub(super) fn name(&self) -> Option<Name> {
        matches!(self.state, State::Made(_)).then(|| DEVICE.into())
    }
}

/// Removes the device, if this program made it, in the network namespace of the calling thread; returns
/// whether it did.
///
/// # Errors
/// It cannot be read, or the kernel refused its removal.
pub fn remove() -> io::Result<bool> {
    let mut kernel = Tunnels::open()?;
    let found = kernel.find(DEVICE)?;
    let ours = found.filter(|it| it.vxlan.is_some_and(|vxlan| vxlan.id == NETWORK));
    ours.map(|it| kernel.remove(it.index)).transpose().map(|removed| removed.is_some())
}
