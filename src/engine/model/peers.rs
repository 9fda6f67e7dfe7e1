//! The other nodes, updated by events.
//!
//! A Node changes with each heartbeat, so only a change of the fields of [`Peer`] counts.

use std::collections::BTreeMap;

use ahash::HashSet;

use super::event::Change;
use super::name::ObjectName;
use super::node::Peer;

/// The other nodes.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: BTreeMap<ObjectName, Peer>,
    /// Names in the list that is being received; `None` between lists.
    listed: Option<HashSet<ObjectName>>,
}

impl Peers {
    /// Returns the nodes by their names.
    pub(super) fn all(&self) -> &BTreeMap<ObjectName, Peer> {
        &self.all
    }

    /// Applies a change; returns whether a node came, went or changed.
    pub(super) fn apply(&mut self, change: Change<Peer>) -> bool {
        match change {
            Change::Is(peer) => {
                self.list(&peer.name);
                let is_changed = self.all.get(&peer.name) != Some(&peer);
                if is_changed {
                    self.all.insert(peer.name.clone(), peer);
                }
                is_changed
            }
            Change::Invalid(name) => {
                self.list(&name);
                false
            }
            Change::Gone(name) => self.all.remove(&name).is_some(),
        }
    }

    fn list(&mut self, name: &ObjectName) {
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
    }

    /// Begins a list.
    pub(super) fn begin_list(&mut self) {
        self.listed = Some(HashSet::default());
    }

    /// Ends a list: removes the nodes that it did not contain, and returns whether there were some.
    pub(super) fn end_list(&mut self) -> bool {
        let Some(listed) = self.listed.take() else { return false };
        let before = self.all.len();
        self.all.retain(|name, _| listed.contains(name));
        self.all.len() != before
    }
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
        peers.all().keys().map(ObjectName::as_str).collect()
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
            assert_eq!(peers.apply(change.clone()), is_change, "{change:?}");
            assert_eq!(names(&peers), ["a"]);
        }
        assert!(peers.apply(Change::Gone(name("a"))));
        assert_eq!(names(&peers), [""; 0]);
    }

    #[test]
    fn a_list_removes_the_nodes_that_it_does_not_contain() {
        let mut peers = Peers::default();
        for node in ["a", "b", "c", "d"] {
            peers.apply(is(node, 1, true));
        }
        assert!(!peers.end_list());
        // A list that breaks off begins again.
        peers.begin_list();
        peers.apply(is("d", 1, true));
        peers.begin_list();
        assert!(!peers.apply(is("a", 1, true)));
        peers.apply(Change::Invalid(name("b")));
        assert!(peers.apply(is("e", 1, true)));
        assert!(peers.end_list());
        assert_eq!(names(&peers), ["a", "b", "e"]);
        peers.begin_list();
        for node in ["a", "b", "e"] {
            assert!(!peers.apply(is(node, 1, true)));
        }
        assert!(!peers.end_list());
    }
}
