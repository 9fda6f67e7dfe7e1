//! The slots that a service requests beyond one for each endpoint, and its source and port ranges.
//!
//! A demand depends on objects and settings only, never on the node: it counts all endpoints that
//! may be served, wherever they are. So all nodes come to the same result, and a list of fewer
//! endpoints never needs more.

use nft::family::Family;
use smallvec::SmallVec;

use super::product_limits::{ProductLimits, guarded, range_elements};
use super::{maglev, source_ranges};
use crate::model::{
    Protocol, Scheduler, Service, ServicePort, ServiceView, TargetList, TrafficPolicy,
};
use crate::ruleset::number::{SizeClass, TableSize};

/// The demand of a service, and the slots that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotDemand(SmallVec<[PortLists; 1]>);

/// The slots of each list of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotGrant {
    /// Slots that the service requests.
    pub requested: u32,
    /// Slots that it may use: beyond one for each endpoint, or all those of a hash table.
    pub given: u32,
}

/// The lists of a port in one table: they have the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortLists {
    family: Family,
    /// The position of the port in its service.
    port: usize,
    kind: Kind,
    /// One, or two with local endpoints; the frontends that source ranges guard; the elements of port
    /// ranges.
    count: u32,
    /// Endpoints or nodes of a hash table; `None` for slots to draw.
    in_table: Option<u32>,
    slots: SlotGrant,
}

/// What the slots of a list have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Endpoints,
    /// Nodes, for direct return.
    Nodes,
    /// Source ranges, of all ports alike.
    Ranges,
    /// The port ranges, all or none.
    PortRanges,
}

/// Slots of an endpoint under scheduler `lc`, besides its first one; twice as many with weights,
/// which multiply with shares.
const OF_BALANCED: usize = 8;

/// Slots of a list under scheduler `lc` from which on they are not more than its endpoints.
const MOST_BALANCED: usize = 8_192;

impl SlotDemand {
    /// Returns the demand of a service; `None` if one slot for each endpoint suffices.
    pub fn of(view: &ServiceView<'_>) -> Option<Self> {
        Self::of_lists(view, |_, _| false)
    }

    /// Returns the demand of a service with direct return, which has tables of nodes too; with
    /// `node_ports` also for node ports.
    pub fn with_nodes(view: &ServiceView<'_>, node_ports: bool) -> Option<Self> {
        Self::of_lists(view, |port, family| has_nodes(&view.service, port, family, node_ports))
    }

    /// Returns the demand of a service for source ranges and port ranges; `None` without any.
    pub fn of_ranges(service: &Service) -> Option<Self> {
        let of_family = |family| [of_ranges(service, family), of_port_ranges(service, family)];
        let lists: SmallVec<_> = Family::ALL.into_iter().flat_map(of_family).flatten().collect();
        (!lists.is_empty()).then_some(Self(lists))
    }

    fn of_lists(
        view: &ServiceView<'_>,
        has_nodes: impl Fn(&ServicePort, Family) -> bool,
    ) -> Option<Self> {
        let service = &view.service;
        let (mut demand, range_ports) = (SmallVec::new(), view.range_ports());
        for family in Family::ALL {
            if service.cluster_ips.iter().all(|ip| Family::of(*ip) != family) {
                continue;
            }
            // Those of other protocols have the same lists.
            let of_ranges = range_ports.first().map(|(port, _)| port);
            for (index, port) in service.ports.iter().chain(of_ranges).enumerate() {
                let (requested, in_table) = of_list(view, port, family);
                if requested > 0 {
                    let slots = SlotGrant { requested, given: requested };
                    let (kind, count) =
                        (Kind::Endpoints, count_of_lists(service, port, family).into());
                    demand.push(PortLists { family, port: index, kind, count, in_table, slots });
                }
                let nodes = has_nodes(port, family).then(|| of_nodes(view, (index, port), family));
                demand.extend(nodes.flatten());
            }
        }
        (!demand.is_empty()).then_some(Self(demand))
    }

    /// Returns all slots that the service requests.
    pub(super) fn requested(&self) -> u64 {
        self.0.iter().map(|lists| lists.cost(lists.slots.requested)).sum()
    }

    /// Returns all slots that the service was given.
    pub(super) fn given(&self) -> u64 {
        self.0.iter().map(|lists| lists.cost(lists.slots.given)).sum()
    }

    /// Returns the slots of the lists of a port; source ranges and port ranges are those of port 0.
    pub(super) fn grant(&self, kind: Kind, family: Family, port: usize) -> Option<SlotGrant> {
        let place = (kind, family, port);
        let mut lists = self.0.iter();
        lists.find(|it| (it.kind, it.family, it.port) == place).map(|lists| lists.slots)
    }

    /// Returns the slots that each list was given.
    pub(super) fn grants(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|lists| lists.slots.given)
    }

    /// Returns whether both request the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let requests = |it: &Self| it.0.iter().map(PortLists::whole).collect::<SmallVec<[_; 1]>>();
        requests(self) == requests(other)
    }

    /// Takes at most `most` slots, spread evenly over the lists, each a possible grant.
    pub(super) fn take(&mut self, most: u64) {
        let cost = |level: u32| self.0.iter().map(|it| it.cost(it.grant_below(level))).sum::<u64>();
        let (mut level, mut above) =
            (0, self.0.iter().map(|it| it.slots.requested).max().unwrap_or(0) + 1);
        while above - level > 1 {
            let middle = level + (above - level) / 2;
            if cost(middle) <= most { level = middle } else { above = middle }
        }
        self.0.iter_mut().for_each(|lists| lists.slots.given = lists.grant_below(level));
    }

    /// Takes the next grant of the lists at this index, if `left` suffices for it. Returns whether
    /// there are lists at this index.
    pub(super) fn take_next_grant(&mut self, index: usize, left: &mut u64) -> bool {
        let Some(lists) = self.0.get_mut(index) else { return false };
        let next = lists.grant_above(lists.slots.given);
        let more = next.map_or(0, |next| lists.cost(next - lists.slots.given));
        if let Some(next) = next.filter(|_| more <= *left) {
            lists.slots.given = next;
            *left -= more;
        }
        true
    }
}

impl PortLists {
    /// Returns the demand as if it was given in full.
    fn whole(&self) -> Self {
        let slots = SlotGrant { given: self.slots.requested, ..self.slots };
        Self { slots, ..*self }
    }

    fn cost(&self, slots: u32) -> u64 {
        u64::from(self.count) * u64::from(slots)
    }

    /// Returns the sizes of hash tables that hold all endpoints, ascending.
    fn tables(&self, endpoints: u32) -> impl Iterator<Item = u32> + use<> {
        let requested = self.slots.requested;
        let sizes = TableSize::ALL.into_iter().map(TableSize::slots);
        sizes.filter(move |slots| (endpoints..=requested).contains(slots))
    }

    /// Returns the largest possible grant of at most `most` slots.
    ///
    /// Only some numbers are possible, so that a small change of other demands changes few grants.
    fn grant_below(&self, most: u32) -> u32 {
        match self.in_table {
            _ if most >= self.slots.requested => self.slots.requested,
            Some(endpoints) => self.tables(endpoints).filter(|it| *it <= most).last().unwrap_or(0),
            None => most - most % distance(most),
        }
    }

    /// Returns the smallest possible grant above `given` slots; `None` if that is the whole demand.
    fn grant_above(&self, given: u32) -> Option<u32> {
        match self.in_table {
            _ if given >= self.slots.requested => None,
            Some(endpoints) => self.tables(endpoints).find(|it| *it > given),
            None => Some((given + distance(given)).min(self.slots.requested)),
        }
    }
}

/// Returns the distance to the next possible grant: an eighth to a quarter of the slots.
fn distance(slots: u32) -> u32 {
    1 << slots.checked_ilog2().unwrap_or(0).saturating_sub(2)
}

/// Returns whether packets to a port of a service come from outside, so that nodes hand them to each
/// other.
fn has_nodes(service: &Service, port: &ServicePort, family: Family, node_ports: bool) -> bool {
    let mut external = service.external_ips.iter().chain(&service.load_balancer_ips);
    let has_node_port = port.node_port.is_some() && port.protocol == Protocol::Tcp;
    node_ports && has_node_port || external.any(|ip| Family::of(*ip) == family)
}

/// Returns the demand for source ranges; `None` without any. The load balancer addresses that this
/// node admits besides are few.
fn of_ranges(service: &Service, family: Family) -> Option<PortLists> {
    let ranges = source_ranges::admitted(&service.source_ranges, family)?.len();
    let requested = u32::try_from(ranges.min(ProductLimits::of(service, family).ranges)).ok()?;
    let count = u32::try_from(guarded(service, family)).ok().filter(|count| *count > 0)?;
    let slots = SlotGrant { requested, given: requested };
    Some(PortLists { family, port: 0, kind: Kind::Ranges, count, in_table: None, slots })
}

/// Returns the demand for port ranges; `None` without any.
fn of_port_ranges(service: &Service, family: Family) -> Option<PortLists> {
    let count = u32::try_from(range_elements(service, family)).ok().filter(|count| *count > 0)?;
    let slots = SlotGrant { requested: 1, given: 1 };
    Some(PortLists { family, port: 0, kind: Kind::PortRanges, count, in_table: None, slots })
}

/// Returns the demand for the table of a port's nodes; `None` without endpoints.
fn of_nodes(
    view: &ServiceView<'_>,
    (index, port): (usize, &ServicePort),
    family: Family,
) -> Option<PortLists> {
    let nodes = view.endpoints_by_node(port, family).len();
    let requested = maglev::size_for(nodes).slots();
    let in_table = Some(u32::try_from(nodes).unwrap_or(requested).min(requested));
    let slots = SlotGrant { requested, given: requested };
    let lists = PortLists { family, port: index, kind: Kind::Nodes, count: 1, in_table, slots };
    (nodes > 0).then_some(lists)
}

/// Returns the slots that each list of a port requests, and the endpoints if it is a hash table.
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
    let weights = view.annotated_weights(port, family, &mut endpoints).unwrap_or_default();
    let by_weight: usize = weights.iter().map(|weight| usize::from(*weight) - 1).sum();
    let each = if weights.is_empty() { OF_BALANCED } else { 2 * OF_BALANCED };
    let by_load = match view.scheduler_of(port) {
        Scheduler::LeastConnections => (all * each).min(MOST_BALANCED),
        Scheduler::Random | Scheduler::Maglev(_) => 0,
    };
    let most = match view.service.session_affinity {
        Some(_) => SizeClass::LARGEST_SESSION.most(),
        None if port.is_of_ranges() => SizeClass::LARGEST_SESSION.most(),
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

    fn lists(requested: u32, in_table: Option<u32>) -> PortLists {
        let slots = SlotGrant { requested, given: requested };
        let (family, kind) = (Family::Ip, Kind::Endpoints);
        PortLists { family, port: 0, kind, count: 1, in_table, slots }
    }

    #[test]
    fn grants_of_draws_differ_by_a_quarter_at_most() {
        let draws = lists(1_000, None);
        let mut grants: Vec<_> = (0..=1_000).map(|most| draws.grant_below(most)).collect();
        grants.dedup();
        assert_eq!(grants[..13], [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]);
        assert_eq!(grants[grants.len() - 3..], [768, 896, 1_000]);
        for pair in grants.windows(2) {
            assert_eq!(draws.grant_above(pair[0]), Some(pair[1]));
        }
        assert_eq!(draws.grant_above(1_000), None);
    }

    #[test]
    fn a_hash_table_gets_a_size_that_holds_all_endpoints() {
        let table = lists(4_093, Some(100));
        for (most, given) in [(250, 0), (251, 251), (4_092, 1_021), (4_093, 4_093)] {
            assert_eq!(table.grant_below(most), given);
        }
        assert_eq!(table.grant_above(0), Some(251));
        assert_eq!(lists(65_521, Some(300)).grant_above(0), Some(1_021));
        assert_eq!(table.grant_above(4_093), None);
    }

    #[test]
    fn the_lists_of_a_service_share_what_it_is_given() {
        let two = PortLists { count: 2, ..lists(1_000, None) };
        let mut demand =
            SlotDemand([lists(10, None), two, lists(4_093, Some(50))].into_iter().collect());
        assert_eq!(demand.requested(), 10 + 2_000 + 4_093);
        for most in [0, 9, 500, 1_000, 3_000, 6_102, 6_103] {
            demand.take(most);
            assert!(demand.given() <= most, "{most}: {demand:?}");
            let is_whole = demand.given() == demand.requested();
            assert_eq!(is_whole, most == 6_103, "{most}: {demand:?}");
        }
        demand.take(1_000);
        assert!(demand.grants().eq([10, 320, 251]), "{demand:?}");
        let mut left = 1_000;
        assert!(demand.take_next_grant(2, &mut left) && !demand.take_next_grant(3, &mut left));
        assert_eq!((demand.grants().last(), left), (Some(1_021), 230));
    }
}
