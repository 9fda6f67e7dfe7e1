//! What the table direct-return of a node holds.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::ops::Range;

use daemon::read_back::read_direct_return as read;
use engine::direct::node_number;
use engine::direct::ruleset::{Destination, DirectElement, DirectSet, table};
use engine::model::Protocol;
use nft::kernel::{ElementRead, Kernel as _, Nftables};
use test_hosts::{NODES, eventually};

use super::nodes::{Cluster, SOON};
use super::objects::slice;
use super::probes::service;
use crate::scenario::Family;

impl Cluster {
    /// The elements of the table of a node. A table that goes meanwhile has none.
    ///
    /// # Panics
    /// Without nftables.
    #[must_use]
    #[track_caller]
    pub fn elements(&self, place: usize) -> Vec<DirectElement> {
        let found = self.node(place).run(|| read(&mut Nftables::open().expect("nftables")));
        found.map(|found| found.elements).unwrap_or_default()
    }

    /// The number of connections that a node remembers.
    ///
    /// # Panics
    /// When the set cannot be read.
    #[must_use]
    #[track_caller]
    pub fn remembered(&self, place: usize) -> usize {
        let mut count = 0;
        self.node(place).run(|| {
            let mut kernel = Nftables::open().expect("nftables");
            let set = DirectSet::Connections.name();
            let read = kernel.read_elements(&table(), set, &mut |read| match read {
                ElementRead::Start => count = 0,
                ElementRead::Element(_) => count += 1,
            });
            read.expect("a readable set");
        });
        count
    }

    /// The slots of TCP port 80 of `web` on a node, counted by the nodes' letters, such as `abc`.
    #[must_use]
    #[track_caller]
    pub fn slots(&self, place: usize, family: Family) -> BTreeMap<char, usize> {
        let elements = self.elements(place);
        let (address, port) = (service(family).ip(), service(family).port());
        let port = NonZeroU16::new(port).expect("a port");
        let web = Destination { address, protocol: Protocol::Tcp, port };
        let list_of = |element: &DirectElement| {
            let DirectElement::Frontend(to, route) = element else { return None };
            (*to == web).then_some(route.list)
        };
        let list = elements.iter().find_map(list_of);
        let node_of = |element: &DirectElement| {
            let DirectElement::Slot(of, _, node) = *element else { return None };
            (Some(of) == list).then_some(node)
        };
        let nodes = elements.iter().filter_map(node_of);
        nodes.fold(BTreeMap::new(), |mut counts, node| {
            let name = NODES.iter().find(|name| node_number(name) == node).unwrap_or(&"?");
            *counts.entry(name.chars().next_back().unwrap_or('?')).or_default() += 1;
            counts
        })
    }

    /// Waits until the slots of `web` on a node are of these nodes, such as `ab`, in both families;
    /// none for a node that hands nothing on.
    #[track_caller]
    pub fn wait_for_slots(&self, place: usize, nodes: &str) {
        eventually(&format!("slots of {nodes:?} on {}", NODES[place]), SOON, || {
            let found = Family::ALL.map(|family| self.slots(place, family));
            found.iter().all(|slots| slots.keys().copied().eq(nodes.chars())).then_some(())
        });
    }

    /// Waits until a node knows that frames from this hardware address come from a node.
    #[track_caller]
    pub fn wait_for_hardware_address(&self, place: usize, address: [u8; 6]) {
        eventually(&format!("{address:x?} on {}", NODES[place]), SOON, || {
            let wanted = DirectElement::HardwareAddress(address);
            self.elements(place).contains(&wanted).then_some(())
        });
    }

    /// Gives `web` other endpoints, such as `a1 b1`, and waits until all nodes with a daemon have
    /// the same slots, other than before.
    #[track_caller]
    pub fn replace_endpoints(&self, servers: &str) {
        let running = self.running();
        let slots = |place: &usize| Family::ALL.map(|family| self.slots(*place, family));
        let former: Vec<_> = running.iter().map(slots).collect();
        self.apply("slice", &slice(servers));
        eventually(&format!("slots of {servers}"), SOON, || {
            let now: Vec<_> = running.iter().map(slots).collect();
            let are_new = now.iter().zip(&former).all(|(now, former)| now != former);
            let are_equal = now.iter().all(|it| it == &now[0]);
            (are_new && are_equal).then_some(())
        });
    }

    /// Waits until this part of the slots on a node is of another node, by its letter.
    #[track_caller]
    pub fn wait_for_share(&self, place: usize, letter: char, range: Range<f64>) {
        eventually(&format!("a share of {letter} in {range:?}"), SOON, || {
            let slots = self.slots(place, Family::Ipv6);
            let float = |count: usize| f64::from(u32::try_from(count).expect("a few slots"));
            let all = float(slots.values().sum());
            let share = float(slots.get(&letter).copied().unwrap_or(0)) / all;
            range.contains(&share).then_some(())
        });
    }

    /// The same on all nodes with a daemon.
    #[track_caller]
    pub fn wait_for_slots_everywhere(&self, nodes: &str) {
        self.running().into_iter().for_each(|place| self.wait_for_slots(place, nodes));
    }
}
