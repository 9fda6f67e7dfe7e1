//! The background check: compares the kernel with the installed state, and that with the objects, a
//! few services at a time.
//!
//! A scope of it is at most 64 lookups by key, made while the loop is idle, so that no commit of
//! ours interferes. Orphans have no known key, so the sizes of the sets are compared once all
//! services were checked.
//!
//! A difference counts if a second lookup confirms it, because another program may be in the
//! middle of a change. Then the finding replaces the installed state, and the usual update writes
//! the difference.

use std::time::{Duration, Instant};

use engine::model::ObjectName;
use engine::ruleset::{self, SetId};
use engine::schedule::Input;
use engine::{Finding, Installed};
use nft::family::Family;
use nft::kernel::{Contents, Kernel, ReadError};

use super::orphans::Search;
use super::sizes::SETS;
use super::urgent_check::Urgent;
use super::{Run, now};
use crate::observe::Observe;
use crate::read_back::{Look, look_up};
use crate::writer::WriterGone;

/// The progress of the background check.
pub struct BackgroundCheck {
    /// The time for all services; `None` turns the check off.
    period: Option<Duration>,
    pub(super) round: Round,
    /// Findings of the first lookup, to be confirmed.
    pub(super) suspects: Vec<Suspect>,
    /// The round at once, after another program changed the tables.
    pub(super) urgent: Option<Urgent>,
    /// The search for elements that are not installed.
    pub(super) search: Option<Search>,
    /// Size differences that caused a search or a read-back; not reported again.
    known_sizes: Vec<(Family, SetId, i64)>,
    /// Sets that lacked elements at the end of the last round.
    lacking: Vec<(Family, SetId, i64)>,
    /// Differences whose repair is not committed yet.
    unrepaired: u64,
}

/// A comparison of everything.
#[derive(Debug)]
pub(super) struct Round {
    due: Instant,
    pub(super) began: Instant,
    stage: Stage,
    /// The last service of the current group; the next group begins after it.
    last: Option<ObjectName>,
    /// Services of the current group that are not checked yet, the next one last.
    waiting: Vec<ObjectName>,
    /// Elements of the last one that are not looked up yet. A commit may change them meanwhile; the
    /// second lookup leaves such elements out.
    rest: Vec<Installed>,
}

/// The next part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Elements of services, in the order of names.
    Services,
    /// Addresses for node ports.
    NodePortIps,
    /// The number of elements of each set. Earlier stages find missing elements by their keys.
    Sizes,
    /// Chains, rules and sets of a table.
    Rules(Family),
    /// The end of a round at once.
    UrgentEnd,
}

/// The scope of one lookup.
#[derive(Debug, Default)]
pub(super) struct LookUpScope {
    elements: Vec<(Option<ObjectName>, Installed)>,
    services: Vec<ObjectName>,
    has_sizes: bool,
    rules: Vec<Family>,
}

/// A difference, or too many to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Suspect {
    /// An element is missing or differs, whether a service has it or not.
    Element(Option<ObjectName>, Installed, Finding),
    /// Too many elements are missing to look up all.
    Many,
    /// The installed state of a service differs from the desired one.
    Outdated(ObjectName),
    /// Difference of a set's size from the expected one; negative if elements are missing.
    Size(Family, SetId, i64),
    /// The kernel does not report the size of a set, so orphans must be searched.
    Uncounted(Family, SetId),
    /// Chains, rules or sets of a table differ from the desired ones.
    Rules(Family),
}

/// Elements looked up at once, which takes some 0.1 ms.
const ELEMENTS: usize = 64;

/// Services rendered at once.
const SERVICES: usize = 16;

/// Services per group; their names are collected together.
const GROUP: usize = 256;

/// Minimum pause between two pieces, so that the check takes a small part of a processor for any
/// number of services.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// Missing elements after which a lookup ends. With more, the tables are read.
const MAX_MISSING: usize = 16;

/// Pause after a scope that could not be read.
const AFTER_ERROR: Duration = Duration::from_secs(60);

/// Pause before a difference is looked up again.
const SECOND_LOOK: Duration = Duration::from_secs(1);

impl BackgroundCheck {
    /// Returns a check of everything once per `period`; zero turns it off.
    pub fn every(period: Duration) -> Self {
        Self {
            period: (!period.is_zero()).then_some(period),
            round: Round::from(now()),
            suspects: Vec::new(),
            urgent: None,
            search: None,
            known_sizes: Vec::new(),
            lacking: Vec::new(),
            unrepaired: 0,
        }
    }

    /// Returns when the next scope is due.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.search {
            Some(Search::Dumping(_)) => None,
            // Its steps need no pauses.
            Some(Search::Comparing { .. } | Search::LookingUp(_)) => Some(self.round.began),
            None if self.period.is_some() || self.urgent.is_some() => Some(self.round.due),
            None => None,
        }
    }

    /// Drops findings after the tables were read back.
    pub(super) fn note_read(&mut self) {
        self.suspects.clear();
        self.lacking.clear();
        self.search = None;
        if let Some(urgent) = self.urgent.take() {
            self.round = urgent.interrupted;
        }
    }

    /// Records a size that caused a search or a read-back.
    pub(super) fn know_size(&mut self, family: Family, set: SetId, excess: i64) {
        self.known_sizes.retain(|it| (it.0, it.1) != (family, set));
        self.known_sizes.push((family, set, excess));
    }

    /// Counts differences that are being repaired.
    pub(super) fn note_difference(&mut self, count: usize) {
        self.unrepaired += u64::try_from(count).unwrap_or(u64::MAX);
    }

    /// Reports repaired differences once the kernel holds the desired state.
    pub(super) fn note_synced(&mut self, observe: &Observe) {
        observe.check_repaired(std::mem::take(&mut self.unrepaired));
    }
}

impl Round {
    /// Returns a round that begins at `now`.
    pub(super) fn from(now: Instant) -> Self {
        let (waiting, rest) = (Vec::new(), Vec::new());
        Self { due: now, began: now, stage: Stage::Services, last: None, waiting, rest }
    }
}

impl LookUpScope {
    /// Returns the chains, rules and sets of tables.
    pub(super) fn rules_of(families: &[Family]) -> Self {
        Self { rules: families.to_vec(), ..Self::default() }
    }
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Returns whether the kernel should hold the installed state and, for the background, also the
    /// desired one.
    pub(super) fn may_check(&self) -> bool {
        let is_usable = if self.reads.check.urgent.is_some() || self.reads.check.search.is_some() {
            self.engine.knows_installed()
        } else {
            self.engine.is_settled()
        };
        is_usable && self.are_tables_in_place() && !self.is_replacing()
    }

    /// Checks the next scope, or the differences of the last one again.
    pub(super) async fn check_piece(&mut self) -> Result<(), WriterGone> {
        if self.reads.check.search.is_some() {
            return self.search_step().await;
        }
        let suspects = std::mem::take(&mut self.reads.check.suspects);
        let next = if suspects.is_empty() {
            self.next_scope()
        } else {
            Some((self.scope_of(&suspects), LEAST_PAUSE))
        };
        let Some((scope, pause)) = next else { return self.end_urgent_check().await };
        let is_urgent = self.reads.check.urgent.is_some();
        let [pause, second_look] =
            if is_urgent { [Duration::ZERO; 2] } else { [pause, SECOND_LOOK] };
        let found = match self.look_at(&scope).await? {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("cannot check the tables: {error}");
                self.reads.check.round.due = now() + AFTER_ERROR;
                if is_urgent {
                    self.schedule.handle(Input::ReadNow, now());
                }
                return Ok(());
            }
        };
        self.reads.check.round.due = now() + pause;
        if suspects.is_empty() {
            self.report.observe.checked_services(scope.services.len());
            if !found.is_empty() {
                self.reads.check.round.due = now() + second_look;
                self.reads.check.suspects = found;
            }
            return Ok(());
        }
        let mut confirmed = found;
        confirmed.retain(|it| suspects.contains(it));
        // The second lookup covers the elements that the first one found missing.
        if !confirmed.is_empty() && suspects.contains(&Suspect::Many) {
            confirmed.push(Suspect::Many);
        }
        self.limit_urgent(&mut confirmed);
        self.repair(confirmed).await
    }

    /// Returns the next scope of the round, and the pause after it; `None` at the end of a round at
    /// once.
    fn next_scope(&mut self) -> Option<(LookUpScope, Duration)> {
        if let Some(scope) = self.urgent_scope() {
            return Some((scope, Duration::ZERO));
        }
        let next = match self.reads.check.round.stage {
            Stage::Services => {
                let scope = self.scope_of_services();
                let elements = u32::try_from(scope.elements.len()).unwrap_or(u32::MAX);
                let of_all = u32::try_from(self.report.sizes.elements()).unwrap_or(u32::MAX);
                let period = self.reads.check.period.unwrap_or_default();
                let pause = period.saturating_mul(elements) / of_all.max(1);
                (scope, pause.clamp(LEAST_PAUSE, period.max(LEAST_PAUSE)))
            }
            Stage::Sizes => {
                self.reads.check.round.stage = match self.reads.check.urgent {
                    Some(_) => Stage::UrgentEnd,
                    None => Stage::Rules(Family::Ip),
                };
                (LookUpScope { has_sizes: true, ..LookUpScope::default() }, LEAST_PAUSE)
            }
            Stage::NodePortIps => {
                self.reads.check.round.stage = Stage::Sizes;
                let mut scope = LookUpScope::default();
                let elements = &mut scope.elements;
                self.engine.each_installed(None, &mut |it| elements.push((None, it)));
                elements.truncate(ELEMENTS);
                (scope, LEAST_PAUSE)
            }
            Stage::Rules(family) => {
                let scope = LookUpScope::rules_of(&[family]);
                let pause = match family {
                    Family::Ip => {
                        self.reads.check.round.stage = Stage::Rules(Family::Ip6);
                        LEAST_PAUSE
                    }
                    Family::Ip6 => self.end_round(),
                };
                (scope, pause)
            }
            Stage::UrgentEnd => return None,
        };
        Some(next)
    }

    /// Ends a round; returns the pause before the next one.
    fn end_round(&mut self) -> Duration {
        self.report.observe.check_round_ended();
        let (now, period) = (now(), self.reads.check.period.unwrap_or_default());
        let round = &mut self.reads.check.round;
        let next = round.began + period;
        round.began = next.max(now);
        round.stage = Stage::Services;
        round.last = None;
        next.saturating_duration_since(now).max(LEAST_PAUSE)
    }

    fn scope_of_services(&mut self) -> LookUpScope {
        let round = &mut self.reads.check.round;
        if round.waiting.is_empty() {
            round.waiting = self.engine.services_after(round.last.as_ref(), GROUP);
            round.last = round.waiting.last().cloned().or(round.last.take());
            round.waiting.reverse();
        }
        let mut scope = LookUpScope::default();
        while scope.elements.len() < ELEMENTS && scope.services.len() < SERVICES {
            let Some(service) = round.waiting.pop() else { break };
            // One walk for all pieces of a service: a list may have 65,536 slots.
            if round.rest.is_empty() {
                self.engine.each_installed(Some(&service), &mut |it| round.rest.push(it));
            }
            let left = round.rest.len().saturating_sub(ELEMENTS - scope.elements.len());
            let taken = round.rest.split_off(left);
            scope.elements.extend(taken.into_iter().map(|it| (Some(service.clone()), it)));
            if left == 0 {
                round.rest = Vec::new();
                scope.services.push(service);
            } else {
                round.waiting.push(service);
            }
        }
        let is_group_done = round.waiting.is_empty();
        if is_group_done && self.engine.services_after(round.last.as_ref(), 1).is_empty() {
            round.stage = Stage::NodePortIps;
        }
        scope
    }

    /// Returns the scope that looks up `suspects` again.
    fn scope_of(&self, suspects: &[Suspect]) -> LookUpScope {
        let mut scope = LookUpScope::default();
        for suspect in suspects {
            match suspect {
                Suspect::Element(service, installed, _) => {
                    // A commit may have changed the element since.
                    let mut is_there = false;
                    let service = service.as_ref();
                    self.engine.each_installed(service, &mut |it| is_there |= it == *installed);
                    if is_there {
                        scope.elements.push((service.cloned(), *installed));
                    }
                }
                Suspect::Outdated(service) => scope.services.push(service.clone()),
                Suspect::Size(..) | Suspect::Uncounted(..) => scope.has_sizes = true,
                Suspect::Rules(family) => scope.rules.push(*family),
                Suspect::Many => {}
            }
        }
        scope
    }

    async fn look_at(
        &mut self,
        scope: &LookUpScope,
    ) -> Result<Result<Vec<Suspect>, ReadError>, WriterGone> {
        let mut found = Vec::new();
        if !scope.elements.is_empty() {
            let elements = scope.elements.iter().map(|(_, installed)| *installed).collect();
            let most = if self.reads.check.urgent.is_some() { ELEMENTS } else { MAX_MISSING };
            let look = self.writer.run(move |kernel| look_up(kernel, elements, most));
            let look = match look.await? {
                Ok(look) => look,
                Err(error) => return Ok(Err(error)),
            };
            found.extend(suspects_of(look, &scope.elements));
        }
        if self.engine.is_settled() {
            let is_outdated = |it: &&ObjectName| !self.engine.is_as_desired(it);
            let outdated = scope.services.iter().filter(is_outdated);
            found.extend(outdated.cloned().map(Suspect::Outdated));
        }
        if scope.has_sizes {
            match self.writer.run(count_all).await? {
                Ok(counts) => found.extend(self.wrong_sizes(&counts)),
                Err(error) => return Ok(Err(error)),
            }
        }
        for family in scope.rules.iter().copied() {
            let table = ruleset::table(family);
            let contents: Result<Option<Contents>, _> =
                self.writer.run(move |kernel| kernel.read_table(&table)).await?;
            match contents {
                Ok(contents) if self.engine.are_rules_as_desired(family, contents.as_ref()) => {}
                Ok(_) => found.push(Suspect::Rules(family)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(found))
    }

    /// Returns the sets whose number of elements differs from the number written.
    fn wrong_sizes(&mut self, counts: &[(Family, SetId, Option<u32>)]) -> Vec<Suspect> {
        let mut wrong = Vec::new();
        for (family, set, count) in counts.iter().copied() {
            let Some(count) = count else {
                let is_searched = self.reads.check.urgent.is_some();
                wrong.extend(is_searched.then_some(Suspect::Uncounted(family, set)));
                continue;
            };
            let excess = i64::from(count) - self.report.sizes.size(family, set);
            let size = (family, set, excess);
            match excess {
                0 => {
                    let is_other = |it: &(_, _, _)| (it.0, it.1) != (family, set);
                    self.reads.check.known_sizes.retain(is_other);
                    self.reads.check.lacking.retain(is_other);
                }
                _ if self.reads.check.known_sizes.contains(&size) => {}
                // The next round finds missing elements of services by their keys.
                ..0 if !self.reads.check.lacking.contains(&size) => {
                    self.reads.check.lacking.push(size)
                }
                _ => wrong.push(Suspect::Size(family, set, excess)),
            }
        }
        wrong
    }
}

fn suspects_of(
    Look { differences, is_cut }: Look,
    elements: &[(Option<ObjectName>, Installed)],
) -> impl Iterator<Item = Suspect> {
    let suspect = |(installed, finding)| {
        let of = elements.iter().find(|(_, it)| *it == installed);
        Suspect::Element(of.and_then(|(service, _)| service.clone()), installed, finding)
    };
    differences.into_iter().map(suspect).chain(is_cut.then_some(Suspect::Many))
}

/// Returns the number of elements of each set; `None` if the kernel does not report it.
fn count_all<K: Kernel>(kernel: &mut K) -> Result<Vec<(Family, SetId, Option<u32>)>, ReadError> {
    let mut counts = Vec::new();
    for family in Family::ALL {
        let table = ruleset::table(family);
        for set in SETS {
            let count = kernel.count_elements(&table, set.name())?;
            counts.push((family, set, count));
        }
    }
    Ok(counts)
}
