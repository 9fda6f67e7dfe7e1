//! The slots that a service asks for beyond one for each endpoint.
//!
//! A demand depends on objects and settings only, never on the node: it counts all endpoints that
//! may be served, wherever they are. So all nodes come to the same result, and a list of fewer
//! endpoints never needs more.

use nft::family::Family;
use smallvec::SmallVec;

use super::maglev;
use crate::model::{Scheduler, Service, ServicePort, ServiceView, TargetList, TrafficPolicy};
use crate::ruleset::number::{SizeClass, TableSize};

/// The demand of a service, and what it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotDemand(SmallVec<[Lists; 1]>);

/// The slots of each list of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotGrant {
    /// Slots that the service asked for.
    pub asked: u32,
    /// Slots that it may use: beyond one for each endpoint, or all those of a table.
    pub given: u32,
}

/// The lists of a port in one table: they have the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lists {
    family: Family,
    /// The position of the port in its service.
    port: usize,
    /// One, or two with local endpoints.
    count: u8,
    /// Endpoints of a table; `None` for slots to draw.
    in_table: Option<u32>,
    slots: SlotGrant,
}

/// Slots of an endpoint under scheduler `lc`, besides its first one; twice as many with weights,
/// which multiply with shares.
const OF_BALANCED: usize = 8;

/// Slots of a list under scheduler `lc` from which on they are not more than its endpoints.
const MOST_BALANCED: usize = 8_192;

impl SlotDemand {
    /// Returns the demand of a service; `None` if one slot for each endpoint suffices.
    pub fn of(view: &ServiceView<'_>) -> Option<Self> {
        let service = &view.service;
        let mut demand = SmallVec::new();
        for family in Family::ALL {
            if service.cluster_ips.iter().all(|ip| Family::of(*ip) != family) {
                continue;
            }
            for (place, port) in service.ports.iter().enumerate() {
                let (asked, in_table) = of_list(view, port, family);
                if asked > 0 {
                    let slots = SlotGrant { asked, given: asked };
                    let count = count_of_lists(service, port, family);
                    demand.push(Lists { family, port: place, count, in_table, slots });
                }
            }
        }
        (!demand.is_empty()).then_some(Self(demand))
    }

    /// Returns all slots that the service asks for.
    pub(super) fn asked(&self) -> u64 {
        self.0.iter().map(|lists| lists.cost(lists.slots.asked)).sum()
    }

    /// Returns all slots that the service was given.
    pub(super) fn given(&self) -> u64 {
        self.0.iter().map(|lists| lists.cost(lists.slots.given)).sum()
    }

    /// Returns the slots of the lists of a port.
    pub(super) fn grant(&self, family: Family, port: usize) -> Option<SlotGrant> {
        let lists = self.0.iter().find(|lists| (lists.family, lists.port) == (family, port))?;
        Some(lists.slots)
    }

    /// Returns what each list was given.
    pub(super) fn grants(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|lists| lists.slots.given)
    }

    /// Returns whether both ask for the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let asked = |it: &Self| it.0.iter().map(Lists::whole).collect::<SmallVec<[_; 1]>>();
        asked(self) == asked(other)
    }

    /// Takes at most `most` slots, spread evenly over the lists, in steps.
    pub(super) fn take(&mut self, most: u64) {
        let cost = |level: u32| self.0.iter().map(|it| it.cost(it.step_below(level))).sum::<u64>();
        let (mut level, mut above) =
            (0, self.0.iter().map(|it| it.slots.asked).max().unwrap_or(0) + 1);
        while above - level > 1 {
            let middle = level + (above - level) / 2;
            if cost(middle) <= most { level = middle } else { above = middle }
        }
        self.0.iter_mut().for_each(|lists| lists.slots.given = lists.step_below(level));
    }

    /// Takes the next step of the lists of one port, if `left` suffices for it. Returns whether
    /// there are so many lists.
    pub(super) fn take_step(&mut self, place: usize, left: &mut u64) -> bool {
        let Some(lists) = self.0.get_mut(place) else { return false };
        let next = lists.step_above(lists.slots.given);
        let more = next.map_or(0, |next| lists.cost(next - lists.slots.given));
        if let Some(next) = next.filter(|_| more <= *left) {
            lists.slots.given = next;
            *left -= more;
        }
        true
    }
}

impl Lists {
    /// Returns the demand as if it was given.
    fn whole(&self) -> Self {
        let slots = SlotGrant { given: self.slots.asked, ..self.slots };
        Self { slots, ..*self }
    }

    fn cost(&self, slots: u32) -> u64 {
        u64::from(self.count) * u64::from(slots)
    }

    /// Returns the sizes of tables that hold all endpoints, ascending.
    fn tables(&self, endpoints: u32) -> impl Iterator<Item = u32> + use<> {
        let asked = self.slots.asked;
        let sizes = TableSize::ALL.into_iter().map(TableSize::slots);
        sizes.filter(move |slots| (endpoints..=asked).contains(slots))
    }

    /// Returns the largest step of at most `most` slots.
    ///
    /// Steps keep most grants as they are when the demands of other services change a little.
    fn step_below(&self, most: u32) -> u32 {
        match self.in_table {
            _ if most >= self.slots.asked => self.slots.asked,
            Some(endpoints) => self.tables(endpoints).filter(|it| *it <= most).last().unwrap_or(0),
            None => most - most % step(most),
        }
    }

    /// Returns the smallest step above `given` slots; `None` if that is all.
    fn step_above(&self, given: u32) -> Option<u32> {
        match self.in_table {
            _ if given >= self.slots.asked => None,
            Some(endpoints) => self.tables(endpoints).find(|it| *it > given),
            None => Some((given + step(given)).min(self.slots.asked)),
        }
    }
}

/// Returns the distance of steps: an eighth to a quarter of the slots.
fn step(slots: u32) -> u32 {
    1 << slots.checked_ilog2().unwrap_or(0).saturating_sub(2)
}

/// Returns the slots that each list of a port asks for, and the endpoints if it is a table.
fn of_list(view: &ServiceView<'_>, port: &ServicePort, family: Family) -> (u32, Option<u32>) {
    let mut endpoints: TargetList = view.serving_endpoints(port, family).into();
    let all = endpoints.len();
    if all < 2 {
        return (0, None);
    }
    if matches!(view.scheduler(), Scheduler::Maglev(_)) {
        let most = TableSize::LARGEST.slots();
        let endpoints = u32::try_from(all).unwrap_or(most).min(most);
        return (maglev::size_for(all).slots(), Some(endpoints));
    }
    let weights = view.weights(port, family, &mut endpoints).unwrap_or_default();
    let by_weight: usize = weights.iter().map(|weight| usize::from(*weight) - 1).sum();
    let each = if weights.is_empty() { OF_BALANCED } else { 2 * OF_BALANCED };
    let by_load = match view.scheduler() {
        Scheduler::LeastConnections => (all * each).min(MOST_BALANCED),
        Scheduler::Random | Scheduler::Maglev(_) => 0,
    };
    let most = match view.service.session_affinity {
        Some(_) => SizeClass::LARGEST_SESSION.most(),
        None => SizeClass::LARGEST.most(),
    };
    (u32::try_from(by_weight.max(by_load)).unwrap_or(most).min(most), None)
}

/// Returns how many lists a port may have on a node: of all endpoints, of the local ones, or both.
fn count_of_lists(service: &Service, port: &ServicePort, family: Family) -> u8 {
    let mut ips = service.external_ips.iter().chain(&service.load_balancer_ips);
    let is_external = port.node_port.is_some() || ips.any(|ip| Family::of(*ip) == family);
    let is_local = service.internal_traffic_policy == TrafficPolicy::Local;
    let is_local_outside = service.external_traffic_policy == TrafficPolicy::Local;
    // Pods and the node itself reach external addresses at all endpoints.
    let needs_all = !is_local || is_external;
    u8::from(needs_all) + u8::from(is_local || is_external && is_local_outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(asked: u32, in_table: Option<u32>) -> Lists {
        let slots = SlotGrant { asked, given: asked };
        Lists { family: Family::Ip, port: 0, count: 1, in_table, slots }
    }

    #[test]
    fn draws_are_given_in_steps_of_at_most_a_quarter() {
        let draws = lists(1_000, None);
        let mut steps: Vec<_> = (0..=1_000).map(|most| draws.step_below(most)).collect();
        steps.dedup();
        assert_eq!(steps[..13], [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]);
        assert_eq!(steps[steps.len() - 3..], [768, 896, 1_000]);
        for pair in steps.windows(2) {
            assert_eq!(draws.step_above(pair[0]), Some(pair[1]));
        }
        assert_eq!(draws.step_above(1_000), None);
    }

    #[test]
    fn a_table_is_given_in_sizes_that_hold_all_endpoints() {
        let table = lists(4_093, Some(100));
        for (most, given) in [(250, 0), (251, 251), (4_092, 1_021), (4_093, 4_093)] {
            assert_eq!(table.step_below(most), given);
        }
        assert_eq!(table.step_above(0), Some(251));
        assert_eq!(lists(65_521, Some(300)).step_above(0), Some(1_021));
        assert_eq!(table.step_above(4_093), None);
    }

    #[test]
    fn the_lists_of_a_service_share_what_it_is_given() {
        let two = Lists { count: 2, ..lists(1_000, None) };
        let mut demand =
            SlotDemand([lists(10, None), two, lists(4_093, Some(50))].into_iter().collect());
        assert_eq!(demand.asked(), 10 + 2_000 + 4_093);
        for most in [0, 9, 500, 1_000, 3_000, 6_102, 6_103] {
            demand.take(most);
            assert!(demand.given() <= most, "{most}: {demand:?}");
            let is_whole = demand.given() == demand.asked();
            assert_eq!(is_whole, most == 6_103, "{most}: {demand:?}");
        }
        demand.take(1_000);
        assert!(demand.grants().eq([10, 320, 251]), "{demand:?}");
        let mut left = 1_000;
        assert!(demand.take_step(2, &mut left) && !demand.take_step(3, &mut left));
        assert_eq!((demand.grants().last(), left), (Some(1_021), 230));
    }
}
