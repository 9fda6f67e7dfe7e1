//! A comparison of everything, a few elements at a time: the urgent check, after another program
//! changed the tables in a way that does not name single elements, or the background check.
//!
//! Rules come first: packets pass them first. Orphans have no known key, so the sizes of the sets are
//! compared once all services were. Each service is also compared with its objects.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nft::Family;

use super::corrections::EndedRound;
use super::limits::{KEYS, LEAST_PAUSE, SERVICES};
use super::parts::Origin;
use super::request::{Request, Size};
use crate::diff::Diff;
use crate::model::ObjectName;
use crate::reconcile::{ElementId, Engine, InstalledElement};
use crate::ruleset::SetId;

/// The progress of a comparison of everything.
#[derive(Debug)]
pub(super) struct Round {
    /// The time for all services in the background; `None` turns the check off.
    period: Option<Duration>,
    pub(super) is_urgent: bool,
    began: Instant,
    due: Instant,
    stage: RoundStage,
    /// The services of the last piece whose elements were not in an earlier one.
    services: Vec<ObjectName>,
    /// The service before them; the first elements of the piece may be its last.
    before: Option<ObjectName>,
    /// Elements of the last service that are not looked up yet. A commit may change them meanwhile.
    rest: VecDeque<ElementId>,
    /// Elements that differed.
    pub(super) differences: usize,
    /// Sets that had another size when they were last compared, with the number of times.
    wrong_sizes: Vec<(Family, SetId, i64, u32)>,
}

/// The next part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundStage {
    /// Chains, rules and sets of a table.
    Rules(Family),
    /// The table of direct return.
    DirectReturn,
    /// Addresses for node ports, then elements of services, in the order of names.
    Elements,
    /// The number of elements of each set. Earlier stages find missing elements by their keys.
    Sizes,
    /// The end.
    End,
}

/// Sets to be searched, and sets with another size to be reported.
type WrongSizes = (Vec<(Family, SetId)>, Vec<(Family, SetId, i64)>);

impl Round {
    pub(super) fn new(period: Option<Duration>, now: Instant) -> Self {
        Self {
            period,
            is_urgent: false,
            began: now,
            due: now,
            stage: RoundStage::Rules(Family::Ip),
            services: Vec::new(),
            before: None,
            rest: VecDeque::new(),
            differences: 0,
            wrong_sizes: Vec::new(),
        }
    }

    /// Begins again.
    pub(super) fn restart(&mut self, is_urgent: bool, now: Instant) {
        let wrong_sizes = std::mem::take(&mut self.wrong_sizes);
        *self = Self { is_urgent, wrong_sizes, ..Self::new(self.period, now) };
    }

    pub(super) fn due(&self) -> Option<Instant> {
        (self.is_urgent || self.period.is_some()).then_some(self.due)
    }

    /// Postpones the next piece.
    pub(super) fn pause(&mut self, due: Instant) {
        self.due = due;
    }

    /// Returns the next request. `all` is the number of all installed elements.
    pub(super) fn next(&mut self, engine: &Engine, all: usize, now: Instant) -> (Request, Origin) {
        let (diff, mut elements) = (engine.diff(), 0);
        let request = match self.stage {
            RoundStage::Rules(Family::Ip) => {
                self.stage = RoundStage::Rules(Family::Ip6);
                Request::Rules(Family::Ip)
            }
            RoundStage::Rules(Family::Ip6) if engine.direct().is_some() => {
                self.stage = RoundStage::DirectReturn;
                Request::Rules(Family::Ip6)
            }
            RoundStage::Rules(Family::Ip6) => {
                self.begin_elements(diff);
                Request::Rules(Family::Ip6)
            }
            RoundStage::DirectReturn => {
                self.begin_elements(diff);
                Request::DirectReturn
            }
            RoundStage::Elements => {
                let keys = self.next_keys(diff);
                elements = keys.len();
                Request::Keys(keys)
            }
            RoundStage::Sizes | RoundStage::End => {
                self.stage = RoundStage::End;
                Request::Sizes(engine.tables().written_sets().collect())
            }
        };
        self.due = now + self.pause_after(elements, all);
        (request, if self.is_urgent { Origin::Urgent } else { Origin::Background })
    }

    fn pause_after(&self, elements: usize, all: usize) -> Duration {
        if self.is_urgent {
            return Duration::ZERO;
        }
        let [elements, all] = [elements, all].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        let period = self.period.unwrap_or_default();
        let pause = period.saturating_mul(elements) / all.max(1);
        pause.clamp(LEAST_PAUSE, period.max(LEAST_PAUSE))
    }

    fn next_keys(&mut self, diff: &Diff) -> Vec<ElementId> {
        self.before = self.services.pop().or(self.before.take());
        self.services.clear();
        let mut is_last = false;
        while !is_last && self.rest.len() < KEYS && self.services.len() < SERVICES {
            let last = self.services.last().or(self.before.as_ref());
            match diff.services_after(last, 1).pop() {
                Some(service) => {
                    self.add_elements(Some(&service), diff);
                    self.services.push(service);
                }
                None => is_last = true,
            }
        }
        let keys = self.rest.drain(..KEYS.min(self.rest.len())).collect();
        if is_last && self.rest.is_empty() {
            self.stage = RoundStage::Sizes;
        }
        keys
    }

    fn begin_elements(&mut self, diff: &Diff) {
        self.stage = RoundStage::Elements;
        self.add_elements(None, diff);
    }

    fn add_elements(&mut self, service: Option<&ObjectName>, diff: &Diff) {
        let mut add = |it: InstalledElement| self.rest.push_back(ElementId::of_element(&it));
        diff.each_installed_element(service, &mut add);
    }

    /// Returns the services that have the elements of the last piece.
    pub(super) fn owners(&self) -> Vec<ObjectName> {
        self.before.iter().chain(&self.services).cloned().collect()
    }

    /// Returns the services of which the last piece has the first elements.
    pub(super) fn services(&self) -> &[ObjectName] {
        &self.services
    }

    /// Compares the sizes of sets. Missing elements of services are found by their keys, so a set
    /// that lacks elements counts if it does so twice in a row.
    pub(super) fn wrong_sizes(&mut self, sizes: &[Size]) -> WrongSizes {
        let former = std::mem::take(&mut self.wrong_sizes);
        let (mut searched, mut wrong) = (Vec::new(), Vec::new());
        for Size { family, set, found, written } in sizes.iter().copied() {
            let Some(found) = found else {
                searched.extend(self.is_urgent.then_some((family, set)));
                continue;
            };
            let excess = i64::from(found) - written;
            if excess == 0 {
                continue;
            }
            let known = former.iter().find(|it| (it.0, it.1, it.2) == (family, set, excess));
            let times = known.map_or(0, |it| it.3);
            self.wrong_sizes.push((family, set, excess, times.saturating_add(1)));
            if times == u32::from(excess < 0) {
                wrong.push((family, set, excess));
                searched.extend((excess > 0).then_some((family, set)));
            }
        }
        (searched, wrong)
    }

    /// Ends the round, if all its pieces were compared.
    pub(super) fn end(&mut self, now: Instant) -> Option<EndedRound> {
        if self.stage != RoundStage::End {
            return None;
        }
        let (is_urgent, differences) = (self.is_urgent, self.differences);
        let next = self.began + self.period.unwrap_or_default();
        self.restart(false, next.max(now));
        self.due = self.due.max(now + LEAST_PAUSE);
        Some(if is_urgent { EndedRound::Urgent { differences } } else { EndedRound::Background })
    }

    /// Returns the beginning of the round.
    pub(super) fn began(&self) -> Instant {
        self.began
    }
}
