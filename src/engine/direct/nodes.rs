//! The nodes that endpoints are on, as packets get there from this node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nft::{Family, Name};

use super::links::{Links, Reach, Unreachable};
use super::obstacle::Obstacle;
use super::ruleset::{DirectElement, DirectKey, NodeNumber};
use super::table::Table;
use crate::model::{Cluster, ObjectName, Peer};
use crate::stable_hash;

/// How the addresses of other nodes are reached.
#[derive(Debug)]
pub(super) struct Nodes {
    /// `None` until the links were looked at.
    links: Option<Links>,
    /// Until this time after the start, unknown hardware addresses are awaited: the table of an
    /// earlier run may hand packets to these nodes. `None` once they are not.
    awaited: Option<Instant>,
    /// The keys of the desired elements of nodes.
    keys: BTreeSet<DirectKey>,
    /// The desired elements may differ.
    pub(super) is_stale: bool,
}

/// Time in which nodes answer for their addresses after a start.
const FIRST_ANSWERS: Duration = Duration::from_secs(3);

impl Nodes {
    /// Returns nodes of which nothing is known.
    pub(super) fn new(now: Instant) -> Self {
        let awaited = Some(now + FIRST_ANSWERS);
        Self { links: None, awaited, keys: BTreeSet::new(), is_stale: true }
    }

    /// Returns the links, once they were looked at.
    pub(super) fn links(&self) -> Option<&Links> {
        self.links.as_ref()
    }

    /// Sets the time for what follows.
    pub(super) fn note_time(&mut self, now: Instant) {
        self.awaited = self.awaited.filter(|end| *end > now);
    }

    /// Returns when unknown addresses are no longer awaited.
    pub(super) fn due(&self) -> Option<Instant> {
        self.awaited.filter(|_| self.links.is_some())
    }

    /// Returns whether the links were looked at.
    pub(super) fn are_known(&self) -> bool {
        self.links.is_some() && self.awaited.is_none()
    }

    /// Ends the wait of the start if the address of every node is known, or why it cannot be.
    pub(super) fn end_wait(&mut self, cluster: &Cluster) {
        let unknown = Reach::Not(Unreachable::HardwareAddressUnknown);
        let known = |peer: &Peer| {
            let addresses = Family::ALL.into_iter().filter_map(|family| peer.address(family));
            addresses.into_iter().all(|address| self.reach(address) != unknown)
        };
        if self.awaited.is_some() && cluster.peers().values().all(known) {
            self.awaited = None;
        }
    }

    /// Replaces what is known of the links.
    pub(super) fn learn(&mut self, links: Links) {
        self.is_stale |= self.links.as_ref() != Some(&links);
        self.links = Some(links);
    }

    /// Puts the elements of all nodes that can be reached, and of no others, into the table.
    pub(super) fn put(&mut self, cluster: &Cluster, table: &mut Table) {
        let elements = self.elements(cluster);
        let keys: BTreeSet<_> = elements.iter().map(DirectElement::key).collect();
        self.keys.difference(&keys).for_each(|gone| table.remove(*gone));
        elements.into_iter().for_each(|element| table.put(element));
        self.keys = keys;
    }

    /// Returns the node of this name; `None` while it takes no packets, so that its endpoints are
    /// left out.
    ///
    /// # Errors
    /// Packets of the service cannot be handed on at all.
    pub(super) fn hop(
        &self,
        name: &str,
        family: Family,
        cluster: &Cluster,
    ) -> Result<Option<Hop>, Obstacle> {
        let own = cluster.node().ok_or(Obstacle::NoNode)?;
        let hop = hop_of(name);
        if name.is_empty() {
            return Err(Obstacle::NodeNameUnknown);
        }
        if let Some((device, reason)) =
            self.links.as_ref().and_then(|it| it.unsuitable.get(&family))
        {
            return Err(Obstacle::UnsuitableDevice(device.clone(), *reason));
        }
        if own.name.as_str() == name {
            return Ok(Some(hop));
        }
        let unknown = || Obstacle::NodeAddressUnknown(name.to_owned());
        let peer = cluster.peers().get(&ObjectName::cluster_scoped(name)).ok_or_else(unknown)?;
        let address = peer.address(family).ok_or_else(unknown)?;
        match self.reach(address) {
            Reach::OnLink { .. } => Ok(peer.ready.then_some(hop)),
            Reach::Not(Unreachable::HardwareAddressUnknown | Unreachable::Failed) => Ok(None),
            Reach::Not(reason @ (Unreachable::NotOnLink | Unreachable::OtherDevice)) => {
                Err(Obstacle::NotOnLink(name.to_owned(), reason))
            }
        }
    }

    /// Returns the elements of all nodes that can be reached.
    ///
    /// The hardware address of a node that is not ready stays: it may still hand packets to this
    /// node, which must not hand them on again.
    fn elements(&self, cluster: &Cluster) -> Vec<DirectElement> {
        let mut elements = Vec::new();
        let mut names = BTreeMap::new();
        for peer in cluster.peers().values() {
            let number = hop_of(peer.name.as_str()).number;
            // Of two nodes with the same number, the first one by name has it.
            let is_first = *names.entry(number).or_insert(&peer.name) == &peer.name;
            let mut device_of_node = None;
            for address in Family::ALL.into_iter().filter_map(|family| peer.address(family)) {
                let Reach::OnLink { device, hardware_address } = self.reach(address) else {
                    continue;
                };
                elements.push(DirectElement::HardwareAddress(hardware_address));
                let is_same_device = *device_of_node.get_or_insert(device) == device;
                if peer.ready && is_first && is_same_device {
                    elements.push(DirectElement::NodeAddress(number, address));
                    elements.push(DirectElement::NodeDevice(number, device));
                }
            }
        }
        elements
    }

    /// Returns the number of nodes in each state: those that can be reached, and the others by
    /// reason.
    pub(super) fn by_state(&self, cluster: &Cluster) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for peer in cluster.peers().values() {
            let state = match peer.addresses.first().map(|address| self.reach(*address)) {
                None => "node-address-unknown",
                Some(_) if !peer.ready => "node-not-ready",
                Some(Reach::OnLink { .. }) => "reachable",
                Some(Reach::Not(reason)) => reason.name(),
            };
            *counts.entry(state).or_default() += 1;
        }
        counts
    }

    /// Returns the device on whose link this node answers for an address that it has elsewhere.
    pub(super) fn answers_on(&self, address: IpAddr) -> Option<&Name> {
        self.links.as_ref().and_then(|links| links.answered.get(&address))
    }

    fn reach(&self, address: IpAddr) -> Reach {
        let known = self.links.as_ref().and_then(|links| links.reach.get(&address));
        known.copied().unwrap_or(Reach::Not(Unreachable::HardwareAddressUnknown))
    }
}

/// A node to which packets can be handed, or this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hop {
    pub(super) number: NodeNumber,
    /// The hash of its name, for the table of slots.
    pub(super) hash: u64,
}

/// Returns the number and hash of a node, which are equal on all nodes.
pub(super) fn hop_of(name: &str) -> Hop {
    let hash = stable_hash::of_name(name);
    Hop { number: NodeNumber::of_hash(hash), hash }
}

/// Returns the number of a node, the same on all nodes.
pub fn node_number(name: &str) -> NodeNumber {
    hop_of(name).number
}
