//! The dumps that find the entries of stale flows.
//!
//! For each dump the kernel walks its whole table (`ctnetlink_dump_table`), and copies the entries
//! that match the filter of the dump. So there are two costs: the number of dumps, and the copied
//! entries of other flows. Which one matters depends on the table: the durations of earlier dumps
//! decide.

use std::collections::BTreeMap;
use std::time::Duration;

use ahash::HashSet;
use engine::flow::StaleFlow;
use engine::model::Protocol;
use nft::family::Family;

use super::filter::Filter;

/// Dumps that find all entries of some stale flows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) grouping: Grouping,
    /// A dump for each.
    pub(super) filters: Vec<Filter>,
}

/// The stale flows that one dump finds. The later ones need fewer dumps, which match more entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Those of one endpoint; if any endpoint may answer, those of one frontend.
    Endpoint,
    /// Those of one frontend.
    Frontend,
    /// Those of one family.
    Family,
}

/// How long a dump took, by grouping.
#[derive(Debug, Default)]
pub(super) struct Durations([Option<Measured>; 3]);

#[derive(Clone, Copy, Debug)]
struct Measured {
    took: Duration,
    /// Dumps of other groupings that were recorded since.
    age: u32,
}

/// Most dumps of one search. It bounds the memory for filters, and the time if the durations
/// mislead.
const MOST_DUMPS: usize = 64;

/// A duration is forgotten after so many records of other groupings: the table may have changed.
/// Else a grouping that was slow once would never be measured again.
const FORGOTTEN_AFTER: u32 = 64;

/// The duration of a dump before any was measured. Only ratios matter.
const ASSUMED: Duration = Duration::from_millis(1);

impl Grouping {
    const ALL: [Self; 3] = [Self::Endpoint, Self::Frontend, Self::Family];

    /// How long a dump takes in relation to the other groupings, as long as it is not measured. With
    /// 50,000 entries, a dump of all takes as long as 16 to 20 that match nothing. Most frontends
    /// have few entries; the lower ratio makes two endpoints of one enough to measure that.
    const fn assumed_ratio(self) -> u32 {
        match self {
            Self::Endpoint => 2,
            Self::Frontend => 3,
            Self::Family => 32,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }

    /// Returns the part of a filter that all filters of a group have in common.
    fn key(self, filter: &Filter) -> Filter {
        let all = Filter::all(filter.family);
        match self {
            Self::Endpoint if !filter.answered_by.is_any() => {
                Filter { answered_by: filter.answered_by, ..all }
            }
            Self::Endpoint | Self::Frontend => Filter { sent_to: filter.sent_to, ..all },
            Self::Family => all,
        }
    }

    /// Returns the filters that together match all of `flows`; `None` if these are too many.
    fn filters(self, flows: &HashSet<StaleFlow>) -> Option<Vec<Filter>> {
        let mut groups: BTreeMap<Filter, Filter> = BTreeMap::new();
        // Those of other protocols are known from the looks at them.
        for flow in flows.iter().filter(|flow| flow.protocol == Protocol::Udp) {
            let filter = Filter::of(flow);
            let group = groups.entry(self.key(&filter)).or_insert(filter);
            *group = group.or(filter);
            if groups.len() > MOST_DUMPS {
                return None;
            }
        }
        Some(groups.into_values().collect())
    }
}

impl Search {
    /// Returns the search that finds any UDP entry.
    pub(super) fn all() -> Self {
        let filters = Family::ALL.map(Filter::all).into();
        Self { grouping: Grouping::Family, filters }
    }
}

impl Durations {
    /// Returns the search for `flows` that is expected to take the least time.
    pub(super) fn choose(&self, flows: &HashSet<StaleFlow>) -> Search {
        let of = |grouping: Grouping| {
            let filters = grouping.filters(flows)?;
            Some(Search { grouping, filters })
        };
        let best = |best: Search, next: Search| {
            // With as many dumps, the earlier grouping matches fewer entries.
            let is_better = next.filters.len() < best.filters.len()
                && self.expected(&next) < self.expected(&best);
            if is_better { next } else { best }
        };
        let searches = Grouping::ALL.into_iter().filter_map(of);
        searches.reduce(best).unwrap_or_else(Search::all)
    }

    /// Records how long the longest dump of a search took.
    pub(super) fn record(&mut self, grouping: Grouping, took: Duration) {
        for measured in &mut self.0 {
            *measured = measured.and_then(Measured::aged);
        }
        self.0[grouping.index()] = Some(Measured { took, age: 0 });
    }

    fn expected(&self, search: &Search) -> Duration {
        let count = u32::try_from(search.filters.len()).unwrap_or(u32::MAX);
        self.of_one(search.grouping).saturating_mul(count)
    }

    /// Returns the expected duration of one dump.
    fn of_one(&self, grouping: Grouping) -> Duration {
        let measured = |of: Grouping| Some((of, self.0[of.index()]?.took));
        let (of, took) = measured(grouping)
            .or_else(|| Grouping::ALL.into_iter().find_map(measured))
            .unwrap_or((Grouping::Endpoint, ASSUMED));
        took * grouping.assumed_ratio() / of.assumed_ratio()
    }
}

impl Measured {
    fn aged(self) -> Option<Self> {
        let age = self.age + 1;
        (age <= FORGOTTEN_AFTER).then_some(Self { age, ..self })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::num::NonZeroU16;

    use engine::model::Target;

    use super::super::filter::Compared;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn target(text: &str) -> Target {
        let socket: SocketAddr = text.parse().unwrap();
        Target { address: socket.ip(), port: NonZeroU16::new(socket.port()).unwrap() }
    }

    /// Returns the flows from each frontend to each endpoint.
    fn between(frontends: &[&str], endpoints: &[&str]) -> HashSet<StaleFlow> {
        let flow = |frontend: &&str, endpoint: &&str| {
            StaleFlow::between(target(frontend), target(endpoint))
        };
        frontends.iter().flat_map(|to| endpoints.iter().map(move |by| flow(to, by))).collect()
    }

    fn many(start: &str, count: usize) -> Vec<String> {
        (1..=count).map(|i| format!("{start}.{}.{}:53", i / 256, i % 256)).collect()
    }

    fn durations(measured: &[(Grouping, Duration)]) -> Durations {
        let mut durations = Durations::default();
        measured.iter().for_each(|(grouping, took)| durations.record(*grouping, *took));
        durations
    }

    /// Returns the grouping and the number of dumps.
    fn chosen(durations: &Durations, flows: &HashSet<StaleFlow>) -> (Grouping, usize) {
        let search = durations.choose(flows);
        (search.grouping, search.filters.len())
    }

    #[test]
    fn the_flows_of_an_endpoint_are_found_by_one_dump() {
        let (cluster_ip, external) = ("10.96.0.10:53", "198.51.100.1:5300");
        let one = between(&[cluster_ip], &["10.244.0.1:53"]);
        let search = Durations::default().choose(&one);
        assert_eq!(search.filters, [Filter::of(one.iter().next().unwrap())]);

        let mut flows = between(&[cluster_ip, external], &["10.244.0.1:53"]);
        flows.extend(between(&["[fd01::1]:53", "[fd01::2]:53"], &["[fd00::1]:53"]));
        flows.insert(StaleFlow::to(target(external)));
        let filters = Durations::default().choose(&flows).filters;
        let answered_by = Filter {
            answered_by: Filter::of(one.iter().next().unwrap()).answered_by,
            ..Filter::all(Family::Ip)
        };
        let to_external = Filter::of(&StaleFlow::to(target(external)));
        let six = between(&["[fd01::1]:53"], &["[fd00::1]:53"]);
        // The frontends have one port, and their addresses are no part of a filter.
        let six = Filter::of(six.iter().next().unwrap());
        assert_eq!(
            HashSet::from_iter(filters),
            HashSet::from_iter([answered_by, to_external, six])
        );
    }

    #[test]
    fn a_service_whose_endpoints_are_replaced_quickly_needs_one_dump() {
        let endpoints = many("10.244", 100);
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        let flows = between(&["10.96.0.10:53"], &endpoints);
        let search = Durations::default().choose(&flows);
        assert_eq!(search.grouping, Grouping::Frontend);
        let to = Filter::of(&StaleFlow::to(target("10.96.0.10:53")));
        // The endpoints have one port.
        assert_eq!(
            search.filters,
            [Filter { answered_by: Compared { address: None, ..to.sent_to }, ..to }]
        );
    }

    #[test]
    fn the_flows_of_many_services_and_endpoints_are_found_by_one_dump_for_each_family() {
        let pairs = |count: usize| -> HashSet<StaleFlow> {
            let (frontends, endpoints) = (many("10.96", count), many("10.244", count));
            let flow = |(frontend, endpoint): (&String, &String)| {
                StaleFlow::between(target(frontend), target(endpoint))
            };
            frontends.iter().zip(&endpoints).map(flow).collect()
        };
        let unknown = Durations::default();
        assert_eq!(chosen(&unknown, &pairs(16)), (Grouping::Endpoint, 16));
        let all = unknown.choose(&pairs(17));
        assert_eq!(all.grouping, Grouping::Family);
        // What they have in common stays a part of the filter.
        let Filter { sent_to, answered_by, .. } = all.filters[0];
        assert_eq!((sent_to.address, answered_by.address), (None, None));
        assert_eq!((sent_to.port, answered_by.port), (NonZeroU16::new(53), NonZeroU16::new(53)));

        let mut both = pairs(40);
        both.extend(between(&["[fd01::1]:53"], &["[fd00::1]:54"]));
        assert_eq!(chosen(&unknown, &both), (Grouping::Family, 2));
        // Any durations: the number of dumps has a limit.
        let slow = durations(&[(Grouping::Family, 3_600_000 * MS), (Grouping::Endpoint, MS)]);
        assert_eq!(chosen(&slow, &pairs(MOST_DUMPS)), (Grouping::Endpoint, MOST_DUMPS));
        assert_eq!(chosen(&slow, &pairs(MOST_DUMPS + 1)), (Grouping::Family, 1));
        assert_eq!(unknown.choose(&HashSet::default()).filters, []);
    }

    #[test]
    fn endpoints_that_a_filter_does_not_distinguish_share_a_dump() {
        let endpoints: Vec<_> = (1..=9).map(|i| format!("[fd00::{i}]:53")).collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        let flows = between(&["[fd01::1]:53", "[fd01::2]:54"], &endpoints);
        assert_eq!(chosen(&Durations::default(), &flows), (Grouping::Endpoint, 1));
    }

    #[test]
    fn the_durations_of_earlier_dumps_decide() {
        use Grouping::{Endpoint, Family, Frontend};

        let two = between(&["10.96.0.10:53"], &["10.244.0.1:53", "10.244.0.2:53"]);
        let mut mixed = two.clone();
        mixed.extend(between(&["10.96.0.11:53"], &["10.244.0.3:53"]));
        type Row<'a> = (&'a [(Grouping, Duration)], (Grouping, usize), (Grouping, usize));
        let rows: [Row<'_>; 5] = [
            // Equally fast, of three endpoints: the one that matches less.
            (&[], (Frontend, 1), (Endpoint, 3)),
            // A table with few entries of UDP: the walk is the cost.
            (&[(Endpoint, 4 * MS), (Family, 5 * MS)], (Frontend, 1), (Family, 1)),
            // Many of other frontends.
            (
                &[(Endpoint, 20 * MS), (Frontend, 21 * MS), (Family, 300 * MS)],
                (Frontend, 1),
                (Frontend, 2),
            ),
            // Many of this frontend.
            (
                &[(Endpoint, 20 * MS), (Frontend, 300 * MS), (Family, 300 * MS)],
                (Endpoint, 2),
                (Endpoint, 3),
            ),
            // One of them is measured; the others follow by the assumed ratios.
            (&[(Family, 160 * MS)], (Frontend, 1), (Endpoint, 3)),
        ];
        for (measured, of_two, of_mixed) in rows {
            let durations = durations(measured);
            assert_eq!(chosen(&durations, &two), of_two, "{measured:?}");
            assert_eq!(chosen(&durations, &mixed), of_mixed, "{measured:?}");
        }
    }

    #[test]
    fn a_slow_grouping_is_measured_again_later() {
        let flows =
            between(&["10.96.0.10:53"], &["10.244.0.1:53", "10.244.0.2:53", "10.244.0.3:53"]);
        let mut durations = durations(&[(Grouping::Frontend, 3_000 * MS)]);
        for _ in 0..=FORGOTTEN_AFTER {
            durations.record(Grouping::Endpoint, 20 * MS);
            let is_last = durations.0[Grouping::Frontend.index()].is_none();
            let expected = if is_last { Grouping::Frontend } else { Grouping::Endpoint };
            assert_eq!(chosen(&durations, &flows).0, expected);
        }
        assert_eq!(chosen(&durations, &flows), (Grouping::Frontend, 1));
    }
}
