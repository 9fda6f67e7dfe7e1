//! What is desired against what is installed.
//!
//! A touched service is rendered when its turn comes, compared with what is installed, and the
//! difference is added to a piece of a transaction. From then on it counts as installed: the
//! caller must commit the piece, or read the kernel back and call [`Diff::observe`].
//!
//! Packets that pass during a commit may read one map before it and the next one after it. So
//! nothing that a route leads to is deleted in the commit that removes the route: it is deleted in
//! a later one, and list numbers rest until then.

mod claims;
mod found;
mod frontends;
mod held;
mod lists;
mod lookup;
mod members;
mod numbers;
mod patch;
mod serving;
mod slots;
#[cfg(test)]
mod tests;
mod update;

pub use claims::precedence;
pub use found::Found;
pub use frontends::FrontendState;
pub use lists::List;
pub use serving::{ServingChange, Targets};

use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroU16;

use ahash::{HashMap, HashSet};

use self::frontends::{Consequences, Frontends, Goal};
use self::held::Held;
use self::lists::Lists;
use self::members::{Members, NodePortIps};
use self::serving::Serving;
use crate::desired::Timeouts;
use crate::family::Family;
use crate::model::{Cluster, Extent, ObjectName, Problem};
use crate::plan::Piece;
use crate::ruleset::number::ListId;
use crate::ruleset::{Frontend, Member, Subject};

/// How many transactions were committed.
type Epoch = u64;

/// What both tables hold for services, and which service has what.
#[derive(Debug)]
pub struct Diff {
    frontends: Frontends,
    lists: [Lists; 2],
    members: Members,
    node_port_ips: NodePortIps,
    services: HashMap<ObjectName, Held>,
    serving: Serving,
    /// What packets in flight may still look up, with the epoch in which the last route to it went.
    leftovers: VecDeque<(Leftover, Epoch)>,
    /// What was found in the kernel and no service has.
    unclaimed: Vec<Unclaimed>,
    epoch: Epoch,
    /// Services that the kernel refused; they are left out until they change.
    excluded: HashSet<ObjectName>,
}

/// Whether all of something fitted into a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Nothing is left to do.
    Complete,
    /// The rest is to be done with the next piece.
    Partial,
}

/// What follows from the update of a service.
#[derive(Debug)]
pub struct Updated {
    /// Whether the rest of the service is to be updated with the next piece.
    pub progress: Progress,
    /// The service is to be updated after all others.
    pub is_postponed: bool,
    /// The rest of the service is to be updated after the next commit.
    pub must_wait: bool,
    /// Services that are to be updated next: they lost a frontend, or can have one.
    pub affected: Vec<ObjectName>,
    /// What was left out.
    pub problems: Vec<Problem>,
}

/// What remains to be done for a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// Some of it did not fit into the piece.
    NextPiece,
    /// Some of it must not be in the same commit.
    AfterCommit,
}

#[derive(Clone, Copy, Debug)]
enum Leftover {
    Frontend(Frontend),
    List(Family, ListId),
}

#[derive(Clone, Copy, Debug)]
enum Unclaimed {
    Frontend(Frontend),
    Member(Member),
}

/// What an update depends on besides the service itself.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// All services.
    pub cluster: &'a Cluster,
    /// How long services remember their clients.
    pub timeouts: &'a Timeouts,
    /// Other services are still to be updated since [`Diff::observe`]. A service waits for them if
    /// it wants a frontend that was found as another one's.
    pub may_postpone: bool,
}

impl Updated {
    fn new(progress: Progress) -> Self {
        Self {
            progress,
            is_postponed: false,
            must_wait: false,
            affected: Vec::new(),
            problems: Vec::new(),
        }
    }
}

/// Elements of a frontend at most, source ranges aside: a route, an internal one, a refusal, each
/// deleted and added, and the mark for source ranges.
const FRONTEND_ELEMENTS: usize = 7;

impl Default for Diff {
    fn default() -> Self {
        Self {
            frontends: Frontends::default(),
            lists: Family::ALL.map(Lists::new),
            members: Members::default(),
            node_port_ips: NodePortIps::default(),
            services: HashMap::default(),
            serving: Serving::default(),
            leftovers: VecDeque::new(),
            unclaimed: Vec::new(),
            epoch: 0,
            excluded: HashSet::default(),
        }
    }
}

impl Diff {
    /// Adds the difference of one service to a piece, as far as it fits.
    pub fn update(
        &mut self,
        name: &ObjectName,
        extent: &Extent,
        context: Context<'_>,
        piece: &mut Piece,
    ) -> Updated {
        if let Extent::Endpoints(changes) = extent
            && let Some(progress) = self.patch(name, changes, context.cluster, piece)
        {
            return Updated::new(progress);
        }
        self.update_whole(name, context, piece)
    }

    /// Leaves a service out from its next update to [`Diff::readmit`].
    pub fn exclude(&mut self, name: &ObjectName) {
        self.excluded.insert(name.clone());
    }

    /// Lets a service that was left out in again.
    pub fn readmit(&mut self, name: &ObjectName) {
        self.excluded.remove(name);
    }

    /// Sets the addresses that are to accept traffic to node ports.
    pub fn want_node_port_ips(&mut self, addresses: &[IpAddr]) {
        self.node_port_ips.want(addresses);
    }

    /// Adds to a piece what does not belong to a service's update: addresses for node ports, the
    /// removal of what no service has, and leftovers that no packet can need any more.
    pub fn update_others(&mut self, piece: &mut Piece) {
        self.node_port_ips.install(piece);
        if self.sweep(piece) == Progress::Partial {
            return;
        }
        while let Some((leftover, epoch)) = self.leftovers.front().copied() {
            let is_due = epoch < self.epoch || piece.is_empty();
            if !is_due || self.delete_leftover(leftover, piece) == Progress::Partial {
                break;
            }
            self.leftovers.pop_front();
        }
    }

    fn sweep(&mut self, piece: &mut Piece) -> Progress {
        while let Some(unclaimed) = self.unclaimed.last().copied() {
            if !piece.admits(FRONTEND_ELEMENTS) {
                return Progress::Partial;
            }
            match unclaimed {
                Unclaimed::Frontend(frontend) => {
                    if self.install(frontend, Goal::default(), piece) != Rest::Nothing {
                        return Progress::Partial;
                    }
                }
                Unclaimed::Member(member) => self.members.sweep(member, piece),
            }
            self.unclaimed.pop();
        }
        Progress::Complete
    }

    /// Collects what no service has, to be removed. All services must have been updated since
    /// [`Diff::observe`].
    pub fn begin_sweep(&mut self) {
        let frontends = self.frontends.unclaimed().map(Unclaimed::Frontend);
        let members = self.members.unneeded().map(Unclaimed::Member);
        self.unclaimed = frontends.chain(members).collect();
        let frontends = &self.frontends;
        self.serving.sweep(|frontend| frontends.holder(frontend).is_some());
        for family in Family::ALL {
            let unused = self.lists[family.index()].unused();
            self.leftovers.extend(unused.map(|list| (Leftover::List(family, list), self.epoch)));
        }
    }

    /// Whether nothing is left to add to a piece, services that wait for an update aside.
    pub fn is_settled(&self) -> bool {
        self.leftovers.is_empty() && self.unclaimed.is_empty() && self.node_port_ips.are_settled()
    }

    /// The kernel has applied the piece.
    pub fn committed(&mut self) {
        self.epoch += 1;
        self.lists.iter_mut().for_each(|lists| lists.begin(self.epoch));
        if self.leftovers.is_empty() {
            self.leftovers.shrink_to(SMALL);
        }
    }

    /// The changes of serving UDP endpoints that the kernel has applied, each once.
    pub fn take_serving_changes(&mut self) -> Vec<ServingChange> {
        self.serving.take()
    }

    /// The node ports of UDP that the kernel has.
    pub fn udp_node_ports(&self) -> impl Iterator<Item = (Family, NonZeroU16)> {
        self.serving.node_ports()
    }

    /// Whether this address accepts traffic to node ports exactly if it is to.
    pub fn is_node_port_ip_settled(&self, address: IpAddr) -> bool {
        self.node_port_ips.is_settled(address)
    }

    /// Services that hold or claim something.
    pub fn services(&self) -> impl Iterator<Item = &ObjectName> {
        self.services.keys()
    }

    /// The service that an element belongs to.
    pub fn service_of(&self, family: Family, subject: Subject) -> Option<&ObjectName> {
        match subject {
            Subject::Frontend(frontend) => self.frontends.holder(&frontend),
            Subject::List(list) => self.service_with(family, list),
        }
    }

    /// Walks over all services, which is for rare cases only.
    fn service_with(&self, family: Family, id: ListId) -> Option<&ObjectName> {
        let has_it = |held: &Held| {
            held.unpack().lists.iter().any(|list| (list.family, list.id) == (family, id))
        };
        self.services.iter().find(|(_, held)| has_it(held)).map(|(name, _)| name)
    }

    /// Installs `goal` for a frontend, and notes which lists that makes used or unused. Returns what
    /// remains to be done for the frontend itself.
    fn install(&mut self, frontend: Frontend, goal: Goal<'_>, piece: &mut Piece) -> Rest {
        let consequences = self.frontends.install(frontend, goal, self.epoch, piece);
        self.note(frontend, &consequences);
        match (consequences.is_partial, consequences.must_wait) {
            (true, _) => Rest::NextPiece,
            (false, true) => Rest::AfterCommit,
            (false, false) => Rest::Nothing,
        }
    }

    fn note(&mut self, frontend: Frontend, consequences: &Consequences) {
        let family = frontend.family();
        let lists = &mut self.lists[family.index()];
        consequences.referenced.iter().for_each(|list| lists.add_reference(*list));
        for list in &consequences.unreferenced {
            if lists.remove_reference(*list) {
                self.leftovers.push_back((Leftover::List(family, *list), self.epoch));
            }
        }
        if consequences.has_leftovers {
            self.leftovers.push_back((Leftover::Frontend(frontend), self.epoch));
        }
    }

    fn disown(&mut self, family: Family, list: ListId) {
        if self.lists[family.index()].disown(list) {
            self.leftovers.push_back((Leftover::List(family, list), self.epoch));
        }
    }

    fn delete_leftover(&mut self, leftover: Leftover, piece: &mut Piece) -> Progress {
        match leftover {
            Leftover::Frontend(frontend) => {
                if !piece.fits(FRONTEND_ELEMENTS) {
                    return Progress::Partial;
                }
                let consequences = self.frontends.delete_leftovers(frontend, self.epoch, piece);
                self.note(frontend, &consequences);
                match consequences.is_partial {
                    true => Progress::Partial,
                    false => Progress::Complete,
                }
            }
            Leftover::List(family, list) => {
                self.lists[family.index()].delete(list, self.epoch, piece)
            }
        }
    }
}

/// Capacity kept after a large change.
const SMALL: usize = 1_024;
