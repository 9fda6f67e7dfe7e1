//! A comparison of everything, a few elements at a time: the urgent check, after another program
//! changed the tables in a way that does not name single elements, or the background check.
//!
//! Rules come first: packets pass them first. Orphans have no known key, so the sizes of the sets are
//! compared once all services were. Each service is also compared with its objects.

use std::time::{Duration, Instant};

use ahash::HashMap;
use nft::Family;

use super::corrections::Ended;
use super::limits::{GROUP, KEYS, LEAST_PAUSE, SERVICES};
use super::request::{Request, Size};
use crate::model::ObjectName;
use crate::ruleset::SetId;
use crate::{Changed, ElementId, Engine, Finding, InstalledElement};

/// The progress of a comparison of everything.
#[derive(Debug)]
pub(super) struct Round {
    /// The time for all services in the background; `None` turns the check off.
    period: Option<Duration>,
    pub(super) is_urgent: bool,
    began: Instant,
    due: Instant,
    stage: Stage,
    /// The last service of the current group; the next group begins after it.
    last: Option<ObjectName>,
    /// Services of the current group that are not compared yet, the next one last.
    waiting: Vec<ObjectName>,
    /// Elements of the last one that are not looked up yet. A commit may change them meanwhile.
    rest: Vec<InstalledElement>,
    /// Elements that differed.
    pub(super) differences: usize,
    /// Sets that had another size when they were last compared, with the number of times.
    wrong_sizes: Vec<(Family, SetId, i64, u32)>,
}

/// The next part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Chains, rules and sets of a table.
    Rules(Family),
    /// Elements of services, in the order of names.
    Services,
    /// Addresses for node ports.
    NodePortIps,
    /// The number of elements of each set. Earlier stages find missing elements by their keys.
    Sizes,
    /// The end.
    End,
}

/// Elements that are looked up together.
#[derive(Debug, Default)]
pub(super) struct Piece {
    elements: Vec<InstalledElement>,
    /// The services that have the elements.
    pub(super) owners: Vec<ObjectName>,
    /// Those of which all elements are looked up now.
    pub(super) services: Vec<ObjectName>,
}

/// The reason of a request.
#[derive(Debug)]
pub(super) enum Asked {
    /// A part is not certain.
    Part,
    /// It is the turn of these elements and services in a comparison of everything.
    Piece(Piece),
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
            stage: Stage::Rules(Family::Ip),
            last: None,
            waiting: Vec::new(),
            rest: Vec::new(),
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

    /// Returns the next request and its piece.
    pub(super) fn next(&mut self, engine: &Engine, all: usize, now: Instant) -> (Request, Piece) {
        let (request, piece, next) = match self.stage {
            Stage::Rules(family) => {
                let next = match family {
                    Family::Ip => Stage::Rules(Family::Ip6),
                    Family::Ip6 => Stage::Services,
                };
                (Request::Rules(family), Piece::default(), next)
            }
            Stage::Services => {
                let piece = self.piece_of_services(engine);
                (piece.request(), piece, self.stage)
            }
            Stage::NodePortIps => {
                let mut piece = Piece::default();
                engine.each_installed_element(None, &mut |it| piece.elements.push(it));
                piece.elements.truncate(KEYS);
                (piece.request(), piece, Stage::Sizes)
            }
            Stage::Sizes | Stage::End => (Request::Sizes, Piece::default(), Stage::End),
        };
        self.due = now + self.pause_after(&piece, all);
        self.stage = next;
        (request, piece)
    }

    fn pause_after(&self, piece: &Piece, all: usize) -> Duration {
        if self.is_urgent {
            return Duration::ZERO;
        }
        let [elements, all] =
            [piece.elements.len(), all].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        let period = self.period.unwrap_or_default();
        let pause = period.saturating_mul(elements) / all.max(1);
        pause.clamp(LEAST_PAUSE, period.max(LEAST_PAUSE))
    }

    fn piece_of_services(&mut self, engine: &Engine) -> Piece {
        if self.waiting.is_empty() {
            self.waiting = engine.services_after(self.last.as_ref(), GROUP);
            self.last = self.waiting.last().cloned().or(self.last.take());
            self.waiting.reverse();
        }
        let mut piece = Piece::default();
        while piece.elements.len() < KEYS && piece.services.len() < SERVICES {
            let Some(service) = self.waiting.pop() else { break };
            // One walk for all pieces of a service: a list may have 65,536 slots.
            if self.rest.is_empty() {
                engine.each_installed_element(Some(&service), &mut |it| self.rest.push(it));
            }
            let left = self.rest.len().saturating_sub(KEYS - piece.elements.len());
            piece.elements.append(&mut self.rest.split_off(left));
            piece.owners.push(service.clone());
            if left == 0 {
                self.rest = Vec::new();
                piece.services.push(service);
            } else {
                self.waiting.push(service);
            }
        }
        if self.waiting.is_empty() && engine.services_after(self.last.as_ref(), 1).is_empty() {
            self.stage = Stage::NodePortIps;
        }
        piece
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
    pub(super) fn end(&mut self, now: Instant) -> Option<Ended> {
        if self.stage != Stage::End {
            return None;
        }
        let (is_urgent, differences) = (self.is_urgent, self.differences);
        let next = self.began + self.period.unwrap_or_default();
        self.restart(false, next.max(now));
        self.due = self.due.max(now + LEAST_PAUSE);
        Some(if is_urgent { Ended::Urgent { differences } } else { Ended::Background })
    }

    /// Returns the beginning of the round.
    pub(super) fn began(&self) -> Instant {
        self.began
    }
}

impl Piece {
    fn request(&self) -> Request {
        Request::Keys(self.elements.iter().map(ElementId::of_element).collect())
    }

    /// Returns the findings that are not the elements as they were installed.
    pub(super) fn differing(&self, mut found: Vec<Changed>) -> Vec<Changed> {
        let expected: HashMap<_, _> =
            self.elements.iter().map(|it| (ElementId::of_element(it), *it)).collect();
        found.retain(|Changed { place, finding }| {
            expected.get(place).is_none_or(|it| *finding != Finding::Present(Some(*it)))
        });
        found
    }

    /// Returns the services whose installed elements are not the desired ones, if they should be.
    pub(super) fn outdated(&self, engine: &Engine) -> Vec<ObjectName> {
        let outdated = self
            .services
            .iter()
            .filter(|service| engine.is_settled() && !engine.is_as_desired(service));
        outdated.cloned().collect()
    }
}
