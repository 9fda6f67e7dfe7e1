//! What is desired against what is installed.
//!
//! A touched service is rendered when its turn comes, compared with what is installed, and the
//! difference is added to a piece of a transaction. From then on it counts as installed: the
//! caller must commit the piece, or read the kernel back and call [`Diff::observe`].
//!
//! Packets that pass during a commit may read one map before it and the next one after it. So
//! nothing that a route leads to is deleted in the commit that removes the route: it is deleted in
//! a later one, and list numbers rest until then.

mod check;
mod claims;
mod fill;
mod found;
mod frontends;
mod goal;
mod held;
mod lists;
mod members;
mod no_local;
mod numbers;
mod patch;
mod places;
mod schedulers;
mod serving;
mod slots;
#[cfg(test)]
mod tests;
mod update;

pub use check::{Finding, Installed};
pub use claims::age;
pub use found::Found;
pub use frontends::FrontendState;
pub use members::NodePortIps;
pub use no_local::NoLocalPorts;
pub use serving::{Serving, ServingChange, Targets};

use ahash::{HashMap, HashSet};
use std::collections::VecDeque;

use self::frontends::{FrontendChange, Frontends, Goal};
use self::held::Held;
use self::lists::Lists;
use self::members::Members;
use self::no_local::NoLocalByService;
use self::schedulers::Schedulers;
use crate::desired::Timeouts;
use crate::family::Family;
use crate::model::{Cluster, Extent, ObjectName, Problem, Scheduler};
use crate::plan::{Full, Piece};
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
    /// Addresses that accept traffic to node ports.
    pub node_port_ips: NodePortIps,
    services: HashMap<ObjectName, Held>,
    /// Which endpoints serve UDP frontends.
    pub serving: Serving,
    /// What is to be deleted, with the epoch in which the last route to it went: packets under way
    /// may still look it up. `None` if nothing leads to it.
    leftovers: Leftovers,
    epochs: Epochs,
    /// Services that the kernel refused; they are left out until they change.
    pub excluded: HashSet<ObjectName>,
    /// Services that were postponed: they claim their frontends, but nothing of them was compared.
    only_claimed: HashSet<ObjectName>,
    no_local: NoLocalByService,
    schedulers: Schedulers,
}

/// How far the update of a service has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is left to do.
    #[default]
    Complete,
    /// The rest must not be in the same commit: it is to be done after the next one.
    AfterCommit,
    /// The rest is to be done with the next piece.
    Partial,
    /// All of it is to be done after all other services.
    Postponed,
}

/// What follows from the update of a service.
#[derive(Debug, Default)]
pub struct Updated {
    /// Whether there is a rest of the service.
    pub progress: Progress,
    /// Services that are to be updated next: they lost a frontend, or can have one.
    pub affected: Vec<ObjectName>,
    /// What was left out.
    pub problems: Vec<Problem>,
}

type Leftovers = VecDeque<(Leftover, Option<Epoch>)>;

/// When leftovers are deleted.
#[derive(Clone, Copy, Debug, Default)]
struct Epochs {
    present: Epoch,
    /// Leftovers of this epoch and of later ones are not deleted yet; `None`: those of the present
    /// epoch.
    kept_from: Option<Epoch>,
}

impl Epochs {
    /// Whether what lost its last route in an epoch may be deleted with this piece.
    fn is_due(self, since: Option<Epoch>, piece: &Piece) -> bool {
        match self.kept_from {
            Some(kept_from) => since < Some(kept_from),
            None => since < Some(self.present) || piece.is_empty(),
        }
    }

    /// Whether it stays until it is released.
    fn keeps(self, since: Option<Epoch>) -> bool {
        self.kept_from.is_some() && since >= self.kept_from
    }
}

/// Leftovers that were kept at some time: those of epochs before this one.
#[derive(Clone, Copy, Debug)]
pub struct Kept(Epoch);

#[derive(Clone, Copy, Debug)]
enum Leftover {
    /// What a frontend does not use any more.
    Frontend(Frontend),
    List(Family, ListId),
    /// A frontend that was found in the kernel and no service has.
    Unclaimed(Frontend),
    /// A member that was found in the kernel and no service needs.
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
            leftovers: Leftovers::new(),
            epochs: Epochs::default(),
            excluded: HashSet::default(),
            only_claimed: HashSet::default(),
            no_local: NoLocalByService::default(),
            schedulers: Schedulers::default(),
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
            return Updated { progress, ..Updated::default() };
        }
        self.update_whole(name, context, piece)
    }

    /// Adds to a piece what does not belong to a service's update: addresses for node ports, the
    /// removal of what no service has, and leftovers that no packet can need any more.
    pub fn update_others(&mut self, piece: &mut Piece) {
        self.node_port_ips.install(piece);
        while let Some((leftover, since)) = self.leftovers.front().copied() {
            if !self.epochs.is_due(since, piece) || self.delete_leftover(leftover, piece).is_err() {
                break;
            }
            self.leftovers.pop_front();
        }
    }

    /// Collects what no service has, to be removed. All services must have been updated since
    /// [`Diff::observe`].
    pub fn begin_sweep(&mut self) {
        let frontends = self.frontends.unclaimed().map(Leftover::Unclaimed);
        let members = self.members.unneeded().map(Leftover::Member);
        frontends.chain(members).for_each(|it| self.leftovers.push_front((it, None)));
        let frontends = &self.frontends;
        self.serving.sweep(|frontend| frontends.holder(frontend).is_some());
        for family in Family::ALL {
            let unused = self.lists[family.index()].unused();
            let since = Some(self.epochs.present);
            self.leftovers.extend(unused.map(|list| (Leftover::List(family, list), since)));
        }
    }

    /// Whether nothing is left to add to a piece, services that wait for an update and leftovers
    /// that are kept aside.
    pub fn is_settled(&self) -> bool {
        self.leftovers.front().is_none_or(|(_, since)| self.epochs.keeps(*since))
            && self.node_port_ips.are_settled()
    }

    /// Whether something is to be deleted, now or later.
    pub fn has_leftovers(&self) -> bool {
        !self.leftovers.is_empty()
    }

    /// From now on leftovers stay until [`Diff::release`].
    pub fn keep_leftovers(&mut self) {
        self.epochs.kept_from = Some(self.epochs.present);
    }

    /// The leftovers that are kept. The kernel must have applied all pieces.
    pub fn kept(&mut self) -> Option<Kept> {
        let (_, since) = self.leftovers.back()?;
        if !self.epochs.keeps(*since) {
            return None;
        }
        // Those that come later are of a later epoch, also without a commit in between.
        self.epochs.present += 1;
        Some(Kept(self.epochs.present))
    }

    /// Has leftovers deleted with the next pieces.
    pub fn release(&mut self, Kept(before): Kept) {
        self.epochs.kept_from = Some(before);
    }

    /// The kernel has applied the piece.
    pub fn committed(&mut self) {
        self.epochs.present += 1;
        self.lists.iter_mut().for_each(Lists::wake_numbers);
        if self.leftovers.is_empty() {
            self.leftovers.shrink_to(SMALL);
        }
    }

    /// Service ports of a family without an endpoint on this node where a policy wants one.
    pub fn no_local_endpoints(&self, family: Family) -> NoLocalPorts {
        self.no_local.all(family)
    }

    /// How many services hold or claim something, by the places of their schedulers in
    /// [`Scheduler::ALL`].
    pub fn services_by_scheduler(&self) -> [usize; Scheduler::ALL.len()] {
        self.schedulers.counts(self.services.len())
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

    /// Installs `goal` for a frontend, as far as that fits into the piece.
    fn install(
        &mut self,
        frontend: Frontend,
        goal: Goal<'_>,
        piece: &mut Piece,
    ) -> Result<Progress, Full> {
        self.change(frontend, piece, |change, state| change.install(state, goal))
    }

    /// Changes what is installed for a frontend.
    fn change<T>(
        &mut self,
        frontend: Frontend,
        piece: &mut Piece,
        make: impl FnOnce(&mut FrontendChange<'_>, &mut FrontendState) -> T,
    ) -> T {
        let (epochs, leftovers) = (self.epochs, &mut self.leftovers);
        let lists = &mut self.lists[frontend.family().index()];
        let mut change = FrontendChange { frontend, epochs, piece, lists, leftovers };
        self.frontends.change(frontend, |state| make(&mut change, state))
    }

    fn disown(&mut self, family: Family, list: ListId) {
        if self.lists[family.index()].disown(list) {
            self.leftovers.push_back((Leftover::List(family, list), Some(self.epochs.present)));
        }
    }

    fn delete_leftover(&mut self, leftover: Leftover, piece: &mut Piece) -> Result<(), Full> {
        match leftover {
            Leftover::Frontend(frontend) => {
                piece.fits_limit(FRONTEND_ELEMENTS)?;
                self.change(frontend, piece, |change, state| change.delete_leftovers(state))
            }
            Leftover::List(family, list) => self.lists[family.index()].delete(list, piece),
            Leftover::Unclaimed(frontend) => {
                piece.fits_budget(FRONTEND_ELEMENTS)?;
                // A service may have claimed it meanwhile.
                if self.frontends.holder(&frontend).is_none() {
                    self.install(frontend, Goal::default(), piece)?;
                }
                Ok(())
            }
            Leftover::Member(member) => {
                piece.fits_budget(1)?;
                self.members.sweep(member, piece);
                Ok(())
            }
        }
    }
}

/// Capacity kept after a large change.
const SMALL: usize = 1_024;
