//! The links of this node as the kernel has them: where the requested addresses are, and what is
//! known about the neighbours there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use engine::direct::{Links, Reach, Unreachable};
use network::{NeighbourListener, Rtnetlink, Way};
use nft::Family;
use nft::key::ROUTE_UNICAST;
use tokio::io::unix::AsyncFd;

use super::allowed_devices::{AllowedDevice, AllowedDevices};
use super::device_facts::DeviceFacts;
use super::known::{KnownNeighbours, Place};
use super::refusals::Refusals;
use super::rounds::Rounds;
use super::tunnel::{Tunnel, TunnelSettings};

/// What is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// What notifications are about.
    Notified,
    /// Devices and routes too.
    Routes,
    /// Everything, as a new round begins.
    Round,
}

/// Requested addresses and where they are.
pub(super) struct NodeLinks {
    listener: NeighbourListener,
    requests: Rtnetlink,
    requested: BTreeSet<IpAddr>,
    /// Index of the interface on whose link a requested address is. Others are on no link.
    interfaces: BTreeMap<IpAddr, u32>,
    allowed: Vec<AllowedDevice>,
    /// Until this node's Node object arrives, its device may be unknown.
    are_devices_known: bool,
    tunnel: Option<Tunnel>,
    facts: DeviceFacts,
    known: KnownNeighbours,
    rounds: Rounds,
    refusals: Refusals,
}

impl NodeLinks {
    /// Opens sockets in the network namespace of the calling thread. Nothing is known yet.
    pub(super) fn open(tunnel: Option<TunnelSettings>) -> io::Result<Self> {
        Ok(Self {
            listener: NeighbourListener::open()?,
            requests: Rtnetlink::open()?,
            requested: BTreeSet::new(),
            interfaces: BTreeMap::new(),
            allowed: Vec::new(),
            are_devices_known: false,
            tunnel: tunnel.map(Tunnel::open).transpose()?,
            facts: DeviceFacts::default(),
            known: KnownNeighbours::default(),
            rounds: Rounds::default(),
            refusals: Refusals::default(),
        })
    }

    /// Returns a descriptor that is readable when the kernel has sent notifications.
    #[expect(deprecated, reason = "its successor is unsafe; the descriptor is owned")]
    pub(super) fn notifications(&self) -> io::Result<AsyncFd<OwnedFd>> {
        AsyncFd::new(self.listener.as_fd().try_clone_to_owned()?)
    }

    /// Replaces the requested addresses.
    pub(super) fn request(&mut self, addresses: &[IpAddr]) {
        self.requested = addresses.iter().copied().collect();
    }

    /// Returns whether the next tick begins a round.
    pub(super) fn is_round_over(&self) -> bool {
        self.rounds.is_over()
    }

    /// Reads what changed. Returns whether devices and routes were read.
    pub(super) fn catch_up(
        &mut self,
        devices: &mut AllowedDevices,
        scope: Scope,
    ) -> io::Result<bool> {
        let changes = self.listener.take_changes()?;
        let mut is_unlisted = changes.is_torn || scope == Scope::Round;
        let reads_routes = is_unlisted || changes.is_device_changed || scope == Scope::Routes;
        if reads_routes {
            self.allowed = devices.existing();
            self.are_devices_known = devices.are_known();
            self.read_facts();
            is_unlisted |= self.look_up()?;
        }
        if is_unlisted {
            // The changes are older than this list.
            self.list()?;
        } else {
            let interfaces = &self.interfaces;
            let followed = changes.neighbours.into_iter().filter(|change| {
                let (address, interface) = change.place();
                interfaces.get(&address) == Some(&interface)
            });
            followed.for_each(|change| self.known.apply(change));
        }
        if scope == Scope::Round {
            self.refusals.begin_round();
            self.rounds.begin(&self.askable().collect());
        }
        Ok(reads_routes)
    }

    /// Reads what the allowed devices do with packets; what was known stays if that fails.
    fn read_facts(&mut self) {
        match DeviceFacts::read(&self.allowed, &mut self.requests) {
            Ok(facts) => self.facts = facts,
            Err(error) if self.refusals.record() => {
                tracing::warn!("cannot read the settings of devices for direct return: {error}");
            }
            Err(_) => {}
        }
    }

    /// Makes the tunnel to the requested addresses that are on no link.
    pub(super) fn dig(&mut self) {
        let Some(tunnel) = &mut self.tunnel else { return };
        let (requested, interfaces) = (&self.requested, &self.interfaces);
        let far = |it| requested.contains(&it) && !interfaces.contains_key(&it);
        if let Err(error) = tunnel.update(far)
            && self.refusals.record()
        {
            tracing::warn!("cannot make the tunnel of direct return: {error}; trying again");
        }
    }

    /// Looks for the tunnel, and makes none.
    pub(super) fn look_for_tunnel(&mut self) -> io::Result<()> {
        self.tunnel.as_mut().map_or(Ok(()), Tunnel::look)
    }

    /// Looks up the interfaces of all requested addresses. Returns whether one has changed.
    fn look_up(&mut self) -> io::Result<bool> {
        let mut interfaces = BTreeMap::new();
        for address in &self.requested {
            if let Some(interface) = interface_on_link(&mut self.requests, *address)? {
                interfaces.insert(*address, interface);
            }
        }
        let is_changed = self.interfaces != interfaces;
        self.interfaces = interfaces;
        Ok(is_changed)
    }

    /// Lists the neighbours of the families that have requested addresses.
    fn list(&mut self) -> io::Result<()> {
        let mut listed = Vec::new();
        for family in Family::ALL {
            if self.requested.iter().any(|address| Family::of(*address) == family) {
                listed.extend(self.requests.neighbours(family)?);
            }
        }
        let interfaces = &self.interfaces;
        self.known
            .list(&listed, |(address, interface)| interfaces.get(&address) == Some(&interface));
        Ok(())
    }

    /// Makes the kernel ask the neighbours of the next part of the round.
    pub(super) fn ask_next(&mut self) {
        for place in self.rounds.next_share() {
            // What was true when the round began may not be now.
            if self.known.can_be_probed(place) && self.is_allowed(place.1) {
                self.ask(place);
            }
        }
    }

    /// Makes the kernel ask neighbours that are not usable and were not asked since, at most
    /// [`MAX_URGENT`]. Returns whether there are any.
    pub(super) fn ask_urgent(&mut self) -> bool {
        let urgent = self.askable().filter(|place| self.known.is_urgent(*place));
        let urgent: Vec<_> = urgent.take(MAX_URGENT).collect();
        urgent.iter().for_each(|place| self.ask(*place));
        !urgent.is_empty()
    }

    /// Followed neighbours that the kernel may be made to ask.
    fn askable(&self) -> impl Iterator<Item = Place> + '_ {
        let places = self.interfaces.iter().map(|(address, interface)| (*address, *interface));
        places.filter(|place| self.is_allowed(place.1) && self.known.can_be_probed(*place))
    }

    fn is_allowed(&self, interface: u32) -> bool {
        self.allowed.iter().any(|device| device.index == interface)
    }

    fn ask(&mut self, (address, interface): Place) {
        self.known.asked((address, interface));
        if let Err(error) = self.requests.probe(address, interface)
            && self.refusals.record()
        {
            tracing::warn!("the kernel does not ask {address} for its hardware address: {error}");
        }
    }

    /// Returns what is known of the links now.
    pub(super) fn news(&self) -> Links {
        let reach = |address| match self.interfaces.get(address) {
            None => match &self.tunnel {
                Some(tunnel) => tunnel.reach(*address),
                None => Reach::Not(Unreachable::NotOnLink),
            },
            Some(_) if !self.are_devices_known => Reach::Not(Unreachable::HardwareAddressUnknown),
            Some(interface) if !self.is_allowed(*interface) => Reach::Not(Unreachable::OtherDevice),
            Some(interface) => self.known.reach((*address, *interface)),
        };
        Links {
            reach: self.requested.iter().map(|address| (*address, reach(address))).collect(),
            devices: self.allowed.iter().map(|device| device.name.clone()).collect(),
            tunnel: self.tunnel.as_ref().and_then(Tunnel::name),
            unsuitable: self.facts.unsuitable.clone(),
            answered: self.facts.answered.clone(),
        }
    }
}

/// Returns the interface on whose link an address is, `None` if it is on none.
fn interface_on_link(requests: &mut Rtnetlink, address: IpAddr) -> io::Result<Option<u32>> {
    // Each link has link-local addresses: such an address leads to no certain one.
    if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
        return Ok(None);
    }
    let route = requests.route(address, Way::default())?.ok();
    let route = route.filter(|it| it.kind == ROUTE_UNICAST && it.gateway.is_none());
    Ok(route.map(|route| route.interface).filter(|interface| *interface != 0))
}

/// Most neighbours that are asked at once, so that a large cluster is not asked in one burst.
const MAX_URGENT: usize = 64;
