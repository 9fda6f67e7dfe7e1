//! The other nodes, updated by events.
//!
//! A Node changes with each heartbeat, so only a change of the fields of [`Peer`] counts.
//! A kubelet writes the addresses of its own Node. So an address that two nodes claim is that of
//! neither, until one of them claims it no longer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::entry::{ListedObject, mark};
use super::event::{Change, ObjectRef, Problem, ProblemKind, Resource};
use super::name::ObjectName;
use super::node::{Node, Peer};

/// The other nodes.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The nodes as their objects have them.
    all: BTreeMap<ObjectName, ListedObject<Peer>>,
    /// The same without contested addresses.
    usable: BTreeMap<ObjectName, Peer>,
    /// A problem for each claim to a contested address.
    contested: Vec<Problem>,
}

impl Peers {
    /// Returns the nodes by their names, without contested addresses.
    pub(super) fn usable(&self) -> &BTreeMap<ObjectName, Peer> {
        &self.usable
    }

    /// Returns a problem for each claim to a contested address.
    pub(super) fn contested(&self) -> &[Problem] {
        &self.contested
    }

    /// Finds the contested addresses, after changes. `own` is this node, which keeps its own.
    pub(super) fn settle(&mut self, own: Option<&Node>) {
        let mut claims = BTreeMap::<IpAddr, Vec<&ObjectName>>::new();
        let of_own = own.iter().flat_map(|own| own.addresses.iter().map(|it| (*it, &own.name)));
        let of_peers = || self.all.values().map(|it| &it.object);
        let claimed = of_peers().flat_map(|it| it.addresses.iter().map(|at| (*at, &it.name)));
        of_own.chain(claimed).for_each(|(at, name)| claims.entry(at).or_default().push(name));
        claims.retain(|_, names| names.len() > 1);
        self.contested.clear();
        for (address, names) in &claims {
            let claim = |name: &&ObjectName| problem(*address, name, names);
            self.contested.extend(names.iter().map(claim));
        }
        self.usable = of_peers().map(|it| (it.name.clone(), it.clone())).collect();
        for peer in self.usable.values_mut() {
            peer.addresses.retain(|address| !claims.contains_key(address));
        }
    }

    /// Applies a change, of the listing with this number; returns whether a node came, went or
    /// changed.
    pub(super) fn apply(&mut self, change: Change<Peer>, listing: u32) -> bool {
        match change {
            Change::Is(object) => {
                let name = object.name.clone();
                let new = ListedObject { object, listing };
                match self.all.get_mut(&name) {
                    Some(known) => std::mem::replace(known, new).object != known.object,
                    None => self.all.insert(name, new).is_none(),
                }
            }
            Change::Invalid(name) => {
                mark(self.all.get_mut(&name), listing);
                false
            }
            Change::Gone(name) => self.all.remove(&name).is_some(),
        }
    }

    /// Removes the nodes that the listing with this number did not contain; returns whether there
    /// were some.
    pub(super) fn sweep(&mut self, listing: u32) -> bool {
        let before = self.all.len();
        self.all.retain(|_, peer| peer.listing == listing);
        self.all.len() != before
    }
}

fn problem(address: IpAddr, name: &ObjectName, names: &[&ObjectName]) -> Problem {
    let others = names.iter().filter(|it| **it != name).map(|it| it.as_str());
    let others = others.collect::<Vec<_>>().join(", ");
    let object = ObjectRef { resource: Resource::Nodes, name: name.clone() };
    let message = format!("{address} is also an address of {others}: no packets are handed to it");
    Problem::new(ProblemKind::Conflict, object, "status.addresses", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName::cluster_scoped(name)
    }

    fn is(node: &str, last: u8, ready: bool) -> Change<Peer> {
        let addresses = vec![[192, 168, 0, last].into()];
        Change::Is(Peer { name: name(node), addresses, ready })
    }

    fn names(peers: &Peers) -> Vec<&str> {
        peers.all.keys().map(ObjectName::as_str).collect()
    }

    #[test]
    fn only_a_node_that_comes_changes_or_goes_is_a_change() {
        let mut peers = Peers::default();
        for (change, is_change) in [
            (is("a", 1, true), true),
            (is("a", 1, true), false),
            (is("a", 2, true), true),
            (is("a", 2, false), true),
            (Change::Invalid(name("a")), false),
            (Change::Invalid(name("b")), false),
            (Change::Gone(name("b")), false),
        ] {
            assert_eq!(peers.apply(change.clone(), 0), is_change, "{change:?}");
            assert_eq!(names(&peers), ["a"]);
        }
        assert!(peers.apply(Change::Gone(name("a")), 0));
        assert_eq!(names(&peers), [""; 0]);
    }

    #[test]
    fn an_address_that_two_nodes_claim_is_that_of_neither() {
        let mut peers = Peers::default();
        for (node, last) in [("b", 2), ("c", 3), ("d", 1)] {
            peers.apply(is(node, last, true), 0);
        }
        let own = Node {
            name: name("own"),
            zone: None,
            addresses: vec![[192, 168, 0, 1].into()],
            pod_cidrs: Vec::new(),
            leaving: false,
        };
        for (change, usable, contested) in [
            (is("c", 3, true), vec!["b", "c"], "own d"),
            (is("a", 2, true), vec!["c"], "own d a b"),
            (Change::Gone(name("a")), vec!["b", "c"], "own d"),
            (is("d", 4, true), vec!["b", "c", "d"], ""),
        ] {
            peers.apply(change, 0);
            peers.settle(Some(&own));
            let with_address = peers.usable().values().filter(|it| !it.addresses.is_empty());
            assert_eq!(with_address.map(|it| it.name.as_str()).collect::<Vec<_>>(), usable);
            let names = peers.contested().iter().map(|it| it.object.name.as_str());
            assert_eq!(names.collect::<Vec<_>>().join(" "), contested);
        }
    }

    #[test]
    fn a_list_removes_the_nodes_that_it_does_not_contain() {
        let mut peers = Peers::default();
        for node in ["a", "b", "c", "d"] {
            peers.apply(is(node, 1, true), 0);
        }
        assert!(!peers.sweep(0));
        // A list that breaks off begins again.
        peers.apply(is("d", 1, true), 1);
        assert!(!peers.apply(is("a", 1, true), 2));
        peers.apply(Change::Invalid(name("b")), 2);
        assert!(peers.apply(is("e", 1, true), 2));
        assert!(peers.sweep(2));
        assert_eq!(names(&peers), ["a", "b", "e"]);
        for node in ["a", "b", "e"] {
            assert!(!peers.apply(is(node, 1, true), 3));
        }
        assert!(!peers.sweep(3));
    }
}
