//! The slots that all services of a node may use beyond one for each endpoint; and the source ranges
//! and port ranges that they may have, out of another budget of the same kind.
//!
//! They are shared between namespaces, and then between the services of each, by max-min fairness:
//! small demands are met in full, and the others get equal parts of the remainder. The result depends
//! on the set of demands only, not on their order. As long as the budget suffices, a change costs the
//! same however many services there are.

use std::collections::{BTreeMap, BTreeSet};

use nft::family::Family;

use super::slot_demand::{Kind, SlotDemand, SlotGrant};
use crate::model::ObjectName;

/// The demands of all services, and the slots that each is given.
#[derive(Debug)]
pub struct SlotBudget {
    namespaces: BTreeMap<Box<str>, Namespace>,
    /// Namespaces with another demand since the last call of `share`.
    changed: BTreeSet<Box<str>>,
    sums: SlotUse,
}

/// The sums of all demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUse {
    /// Slots that may be used.
    pub budget: u64,
    /// Slots that services request.
    pub requested: u64,
    /// Slots that they are given.
    pub given: u64,
    /// Services that are given less than they request.
    pub reduced: usize,
}

/// The demands of the services of a namespace.
#[derive(Debug, Default)]
struct Namespace {
    services: BTreeMap<ObjectName, SlotDemand>,
    requested: u64,
    /// Slots that the services may use together; at most `requested`.
    share: u64,
    given: u64,
    reduced: usize,
}

/// Elements of source ranges and port ranges that all services may have: 60 MB of kernel memory.
pub const RANGE_BUDGET: u32 = 524_288;

/// The slots and ranges that a service is given.
#[derive(Clone, Copy, Debug)]
pub struct SlotGrants<'a> {
    slots: Option<&'a SlotDemand>,
    ranges: Option<&'a SlotDemand>,
}

/// A budget that always suffices.
impl Default for SlotBudget {
    fn default() -> Self {
        Self::new(u32::MAX)
    }
}

impl<'a> SlotGrants<'a> {
    /// Adds the source ranges that `budget` gives the service.
    #[must_use]
    pub fn with_ranges(self, budget: &'a SlotBudget, service: &ObjectName) -> Self {
        Self { ranges: budget.demand(service), ..self }
    }

    /// Returns the slots of each list of the port at a position in its service.
    pub(super) fn of(self, family: Family, port: usize) -> SlotGrant {
        self.slots.and_then(|it| it.grant(Kind::Endpoints, family, port)).unwrap_or_default()
    }

    /// Returns the source ranges that the service may have.
    pub(super) fn of_ranges(self, family: Family) -> SlotGrant {
        self.ranges.and_then(|it| it.grant(Kind::Ranges, family, 0)).unwrap_or_default()
    }

    /// Returns whether the service may have its port ranges.
    pub(super) fn has_port_ranges(self, family: Family) -> bool {
        let grant = self.ranges.and_then(|it| it.grant(Kind::PortRanges, family, 0));
        grant.is_none_or(|grant| grant.given == grant.requested)
    }

    /// Returns the slots of the table of nodes of the port at a position in its service, for direct
    /// return.
    pub(crate) fn of_nodes(self, family: Family, port: usize) -> SlotGrant {
        self.slots.and_then(|it| it.grant(Kind::Nodes, family, port)).unwrap_or_default()
    }
}

impl SlotBudget {
    /// Returns a budget of `budget` slots.
    pub fn new(budget: u32) -> Self {
        Self {
            namespaces: BTreeMap::new(),
            changed: BTreeSet::new(),
            sums: SlotUse { budget: budget.into(), ..SlotUse::default() },
        }
    }

    /// Returns whether a service requests slots.
    pub fn has(&self, service: &ObjectName) -> bool {
        self.demand(service).is_some()
    }

    /// Sets the demand of a service. [`SlotBudget::share`] must follow.
    pub fn request(&mut self, service: &ObjectName, demand: Option<SlotDemand>) {
        let known = self.demand(service);
        let is_same = match (known, &demand) {
            (Some(known), Some(demand)) => known.is_same(demand),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_same {
            return;
        }
        let namespace = self.namespaces.entry(service.namespace().into()).or_default();
        let requested = demand.as_ref().map_or(0, SlotDemand::requested);
        let former = match demand {
            Some(demand) => namespace.services.insert(service.clone(), demand),
            None => namespace.services.remove(service),
        };
        let former = former.map_or(0, |former| former.requested());
        namespace.requested = namespace.requested + requested - former;
        self.sums.requested = self.sums.requested + requested - former;
        self.changed.insert(service.namespace().into());
    }

    /// Shares the budget. Returns the services that are given more or less slots of a list than
    /// before.
    pub fn share(&mut self) -> Vec<ObjectName> {
        let mut services = Vec::new();
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() {
            return services;
        }
        let is_short = self.sums.requested > self.sums.budget;
        // Services that were reduced may get slots back.
        if is_short || self.sums.reduced > 0 {
            self.share_out(&changed, &mut services);
        } else {
            self.sums.given = self.sums.requested;
            for name in &changed {
                if let Some(namespace) = self.namespaces.get_mut(name) {
                    namespace.give_all();
                }
            }
        }
        for name in changed {
            if self.namespaces.get(&name).is_some_and(|namespace| namespace.services.is_empty()) {
                self.namespaces.remove(&name);
            }
        }
        services
    }

    /// Shares the budget between the namespaces, and then between the services of those whose share
    /// or demand changed.
    fn share_out(&mut self, changed: &BTreeSet<Box<str>>, services: &mut Vec<ObjectName>) {
        let requested = self.namespaces.values().map(|namespace| namespace.requested);
        let most = most_for_each(self.sums.budget, requested.collect());
        for (name, namespace) in &mut self.namespaces {
            let share = namespace.requested.min(most);
            if share != namespace.share || changed.contains(name) {
                namespace.share_out(share, services);
            }
        }
        let namespaces = self.namespaces.values();
        self.sums.given = namespaces.clone().map(|namespace| namespace.given).sum();
        self.sums.reduced = namespaces.map(|namespace| namespace.reduced).sum();
    }

    /// Returns the slots that a service is given.
    pub fn of(&self, service: &ObjectName) -> SlotGrants<'_> {
        SlotGrants { slots: self.demand(service), ranges: None }
    }

    /// Returns the sums of all demands.
    pub fn sums(&self) -> SlotUse {
        self.sums
    }

    fn demand(&self, service: &ObjectName) -> Option<&SlotDemand> {
        self.namespaces.get(service.namespace())?.services.get(service)
    }
}

impl Namespace {
    /// Gives every service the slots that it requests; none may have fewer yet.
    fn give_all(&mut self) {
        (self.share, self.given) = (self.requested, self.requested);
    }

    /// Shares out `share` slots; adds the services that are given more or less than before.
    fn share_out(&mut self, share: u64, changed: &mut Vec<ObjectName>) {
        let before: Vec<u32> = self.services.values().flat_map(SlotDemand::grants).collect();
        let most =
            most_for_each(share, self.services.values().map(SlotDemand::requested).collect());
        let mut left = share;
        for demand in self.services.values_mut() {
            demand.take(most);
            left -= demand.given();
        }
        // The slots left do not suffice for the next grant of every service: the first ones by name
        // get them.
        let mut list = 0;
        while left > 0 && self.take_next_grants(list, &mut left) {
            list += 1;
        }
        let mut before = before.into_iter();
        for (name, demand) in &self.services {
            // All are compared, so that each takes its own part of `before`.
            let own: Vec<_> = demand.grants().collect();
            let former: Vec<_> = before.by_ref().take(own.len()).collect();
            if own != former {
                changed.push(name.clone());
            }
        }
        self.share = share;
        self.given = self.services.values().map(SlotDemand::given).sum();
        self.reduced = self.services.values().filter(|it| it.given() < it.requested()).count();
    }

    /// Gives the list at this index of each service its next grant, as far as `left` suffices.
    /// Returns whether any service has a list at this index.
    fn take_next_grants(&mut self, list: usize, left: &mut u64) -> bool {
        let mut has_list = false;
        for demand in self.services.values_mut() {
            has_list |= demand.take_next_grant(list, left);
        }
        has_list
    }
}

/// Returns the most that each gets of `budget`; no limit if it suffices for all requests.
fn most_for_each(budget: u64, mut requests: Vec<u64>) -> u64 {
    requests.sort_unstable();
    let mut left = budget;
    for (i, request) in requests.iter().enumerate() {
        let even = left / (requests.len() - i) as u64;
        if *request > even {
            return even;
        }
        left -= request;
    }
    u64::MAX
}
