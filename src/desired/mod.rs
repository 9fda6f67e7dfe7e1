//! What our tables should contain. Pure; this is where the nftables design lives.
//!
//! Everything is kept under a [`Key`]; what is kept there is a [`Fragment`]. Fragments become
//! elements in `plan`.

pub mod base;
mod claims;
mod counts;
pub mod elements;
mod fragment;
mod frontend;
mod key;
pub mod layout;
mod slots;

pub use fragment::Fragment;
pub use key::{Key, KeyKind};
pub use layout::Layout;

use std::net::IpAddr;
use std::sync::Arc;

use ahash::{HashMap, HashSet};

use self::claims::{Claims, Outcome, Precedence, Released};
use self::frontend::Wanted;
use crate::diff::Tracker;
use crate::model::{Cluster, ObjectName, Problem};
use crate::nft::Family;

/// The layouts of both tables.
#[derive(Debug)]
pub struct Layouts([Layout; 2]);

/// Desired and installed state of both tables' elements, and who asks for what.
#[derive(Debug, Default)]
pub struct Desired {
    layouts: Arc<Layouts>,
    tracker: Tracker<Key, Fragment>,
    claims: Claims,
    owned: HashMap<ObjectName, Box<[Key]>>,
    node_port_ips: Vec<IpAddr>,
    /// Services that the kernel refused; they are out until they change.
    excluded: HashSet<ObjectName>,
}

impl Default for Layouts {
    fn default() -> Self {
        Self([Family::Ip, Family::Ip6].map(Layout::new))
    }
}

impl Layouts {
    /// Both layouts, `ip` first.
    pub fn iter(&self) -> impl Iterator<Item = &Layout> {
        self.0.iter()
    }

    /// The layout of one table.
    pub fn of(&self, family: Family) -> &Layout {
        match family {
            Family::Ip => &self.0[0],
            Family::Ip6 => &self.0[1],
        }
    }
}

impl Desired {
    /// The layouts of both tables.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Where desired and installed state differ.
    pub fn tracker(&self) -> &Tracker<Key, Fragment> {
        &self.tracker
    }

    /// The same, to take changes off and to commit them.
    pub fn tracker_mut(&mut self) -> &mut Tracker<Key, Fragment> {
        &mut self.tracker
    }

    /// Whether the kernel holds everything that is desired.
    pub fn is_settled(&self) -> bool {
        self.tracker.is_settled()
    }

    /// The service that `key` belongs to.
    pub fn service_of(&self, key: &Key) -> Option<&ObjectName> {
        self.claims.holder(key)
    }

    /// Renders a service again, and those that waited for an address which it gives back.
    pub fn render_service(&mut self, name: &ObjectName, cluster: &Cluster) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut names = vec![name.clone()];
        while let Some(name) = names.pop() {
            self.tracker.begin_unit();
            names.extend(self.render_one(&name, cluster, &mut problems));
        }
        problems
    }

    /// Takes a service out until [`Desired::readmit`], as if it did not exist.
    pub fn exclude(&mut self, name: &ObjectName, cluster: &Cluster) -> Vec<Problem> {
        self.excluded.insert(name.clone());
        self.render_service(name, cluster)
    }

    /// Lets a service that was taken out in again at its next rendering.
    pub fn readmit(&mut self, name: &ObjectName) {
        self.excluded.remove(name);
    }

    /// Sets the addresses that accept traffic to node ports.
    pub fn set_node_port_ips(&mut self, addresses: &[IpAddr]) {
        self.tracker.begin_unit();
        let former = std::mem::replace(&mut self.node_port_ips, addresses.to_vec());
        for address in former.into_iter().filter(|former| !addresses.contains(former)) {
            self.tracker.want(Key::NodePortIp(address), None);
        }
        for address in addresses {
            let fragment = Fragment::member(layout::NODE_PORT_IP);
            self.tracker.want(Key::NodePortIp(*address), Some(fragment));
        }
    }

    /// Starts over from what the kernel was found to hold.
    pub fn observe(
        &mut self,
        installed: HashMap<Key, Fragment>,
        cluster: &Cluster,
    ) -> Vec<Problem> {
        self.tracker.observe(installed);
        let mut problems = Vec::new();
        for name in self.owned.keys().cloned().collect::<Vec<_>>() {
            problems.extend(self.render_service(&name, cluster));
        }
        let addresses = std::mem::take(&mut self.node_port_ips);
        self.set_node_port_ips(&addresses);
        self.tracker.begin_unit();
        let unclaimed = |key: &&Key| match key {
            Key::NodePortIp(address) => !addresses.contains(address),
            Key::Frontend { .. } | Key::NodePort { .. } | Key::ClusterIp(_) | Key::Hairpin(..) => {
                !self.claims.is_claimed(key)
            }
        };
        let stale: Vec<Key> = self.tracker.installed_keys().filter(unclaimed).copied().collect();
        stale.into_iter().for_each(|key| self.tracker.want(key, None));
        problems
    }

    /// Renders one service; returns the services that should ask again.
    fn render_one(
        &mut self,
        name: &ObjectName,
        cluster: &Cluster,
        problems: &mut Vec<Problem>,
    ) -> Vec<ObjectName> {
        let mut rendered = cluster
            .service(name)
            .filter(|_| !self.excluded.contains(name))
            .map(|view| frontend::render(view, &self.layouts))
            .unwrap_or_default();
        problems.append(&mut rendered.problems);
        let keys: Box<[Key]> = rendered.wanted.iter().map(|wanted| wanted.key).collect();
        let former = match keys.is_empty() {
            true => self.owned.remove(name),
            false => self.owned.insert(name.clone(), keys.clone()),
        };
        let former = former.unwrap_or_default();
        let precedence = |name: &ObjectName| precedence(cluster, name);

        let mut again = Vec::new();
        for wanted in rendered.wanted {
            let is_new = || !former.contains(&wanted.key);
            let granted = match wanted.key.kind() {
                KeyKind::Address | KeyKind::Hairpin => {
                    if is_new() {
                        self.claims.share(wanted.key);
                    }
                    true
                }
                KeyKind::Frontend | KeyKind::NodePort => {
                    let outcome = self.claims.claim(wanted.key, name, precedence);
                    problems.extend(conflict(&outcome, name, &wanted.key));
                    if let Outcome::YieldedTo(next) = &outcome {
                        again.push(next.clone());
                    }
                    matches!(outcome, Outcome::Held | Outcome::TakenFrom(_))
                }
            };
            if granted {
                self.want(wanted);
            }
        }
        let given_back = former.iter().filter(|key| !keys.contains(key));
        again.extend(given_back.filter_map(|key| self.give_back(key, name, precedence)));
        again
    }

    fn want(&mut self, wanted: Wanted) {
        let Wanted { key, fragment, endpoints } = wanted;
        let installed = self.tracker.installed(&key);
        let fragment = fragment.with_slots(installed, &endpoints.all, &endpoints.local);
        self.tracker.want(key, Some(fragment));
    }

    /// `name` no longer asks for `key`; returns the service that should ask again.
    fn give_back(
        &mut self,
        key: &Key,
        name: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<ObjectName> {
        let released = match key.kind() {
            KeyKind::Address | KeyKind::Hairpin => self.claims.unshare(key),
            KeyKind::Frontend | KeyKind::NodePort => self.claims.release(key, name, precedence),
        };
        match released {
            Released::InUse => None,
            Released::Free => {
                self.tracker.want(*key, None);
                None
            }
            // Until that service has been rendered the key is nobody's; it follows at once.
            Released::Awaited(next) => Some(next),
        }
    }
}

/// A conflict is told once, when somebody begins to wait.
fn conflict(outcome: &Outcome, name: &ObjectName, key: &Key) -> Option<Problem> {
    let (loser, winner) = match outcome {
        Outcome::Held | Outcome::StillHeld => return None,
        Outcome::TakenFrom(former) => (former, name),
        Outcome::HeldBy(winner) | Outcome::YieldedTo(winner) => (name, winner),
    };
    Some(Problem {
        object: format!("Service {loser}"),
        field: String::new(),
        message: format!("{key} belongs to Service {winner}, which is older or first by name"),
    })
}

fn precedence(cluster: &Cluster, name: &ObjectName) -> Precedence {
    let created = cluster.service(name).map_or(i64::MAX, |view| view.service.created);
    (created, name.clone())
}
