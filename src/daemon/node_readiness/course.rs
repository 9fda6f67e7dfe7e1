//! When the Node object is read, and when its condition is written. Reads no clock, sends nothing.
//!
//! ```text
//!  Silent --judged--> Differs --read: the same------------------------> Agrees
//!                      | ^ |                                             ^ |
//!                      | | `--read: another, API server lost--> Answered | |
//!                      | |                                        |      | |
//!                      | |             Owed <--read: another------'      | |
//!                      | |             ^ |                               | |
//!                      `-+--read: another `------written-----------------' |
//!                        `-------judged: another, anew, failed-------------'
//! ```
//!
//! A judgement that returns to what the Node shows is not written. A fault must last [`FAULT`]; the
//! next True must last longer after each fault, so that a cause that comes and goes leaves the Node
//! false. The watches of a server that returns begin again before a loss is [`Answered`] twice.
//!
//! [`Answered`]: CourseState::Answered

use std::time::Duration;

use tokio::time::Instant;

use crate::observe::Readiness;

/// Time that a fault must last.
const FAULT: Duration = Duration::from_secs(10);

/// Least time between a write and the next one.
const SPACING: Duration = Duration::from_secs(30);

/// Time that services must work before the Node is true again, doubled by each fault that is written.
const CALM: Duration = Duration::from_secs(30);

/// Limit of that time.
const LONGEST_CALM: Duration = Duration::from_mins(16);

/// Time of being true after which a fault is the first one again.
const STEADY: Duration = Duration::from_hours(1);

/// Time that the watches must stay lost although the API server answers: the longest wait of a watch
/// is half of it.
const CONFIRM: Duration = Duration::from_secs(60);

/// Greatest jitter: the nodes of a cluster may have the same cause.
const JITTER: Duration = Duration::from_secs(10);

/// The same at the first sync, and for a Node that was created anew: pods wait.
const SHORT_JITTER: Duration = Duration::from_secs(1);

/// What the Node has, and what it should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CourseState {
    /// There is no judgement, and the Node keeps what an earlier daemon wrote.
    #[default]
    Silent,
    /// The Node shows `judged`.
    Agrees { judged: Readiness },
    /// The Node may not show `judged`, and is read at `due`. It shows `shown`, where that is known.
    Differs { shown: Option<Readiness>, judged: Readiness, due: Instant },
    /// The Node does not show that the API server is lost. The server answers, so the Node is read
    /// again at `due`.
    Answered { shown: Option<Readiness>, due: Instant },
    /// The Node does not show `judged`, which is written now.
    Owed { judged: Readiness },
}

/// What happens to a [`Course`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CourseInput {
    /// The readiness of this node at present. Repeated, it changes nothing.
    Judged(Readiness),
    /// The Node object was created anew.
    Anew,
    /// The Node was read and shows this; `None` without such a condition.
    Read(Option<Readiness>),
    /// The condition was written.
    Written,
    /// The Node could not be read or written; the next attempt is at least so much later.
    Failed(Duration),
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// None before the next input.
    Wait,
    /// Read the Node at this time.
    ReadAt(Instant),
    /// Write this condition now.
    Write(Readiness),
}

/// The course of the condition. A request is never due before `not_before`.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    state: CourseState,
    not_before: Option<Instant>,
    /// Time since which the Node shows that services work.
    ready_since: Option<Instant>,
    /// Time that services must work before the Node is true; zero before it shows anything of this
    /// daemon.
    calm: Duration,
}

impl Course {
    pub(super) fn next(&self) -> NextStep {
        match self.state {
            CourseState::Silent | CourseState::Agrees { .. } => NextStep::Wait,
            CourseState::Differs { due, .. } | CourseState::Answered { due, .. } => {
                NextStep::ReadAt(due)
            }
            CourseState::Owed { judged } => NextStep::Write(judged),
        }
    }

    /// Returns the last judgement.
    pub(super) fn judged(&self) -> Option<Readiness> {
        match self.state {
            CourseState::Silent => None,
            CourseState::Answered { .. } => Some(Readiness::ApiServerLost),
            CourseState::Agrees { judged }
            | CourseState::Differs { judged, .. }
            | CourseState::Owed { judged } => Some(judged),
        }
    }

    /// Takes an input at `now`. `random` is from 0 to 1.
    pub(super) fn handle(&mut self, input: CourseInput, now: Instant, random: f64) {
        use CourseInput::{Anew, Failed, Judged, Read, Written};
        use CourseState::{Agrees, Answered, Differs, Owed, Silent};
        let lost = Readiness::ApiServerLost;
        let anew = |judged| {
            let due = now + SHORT_JITTER.mul_f64(random);
            Differs { shown: None, judged, due }
        };
        self.state = match (self.state, input) {
            (state, Judged(new)) if self.judged() == Some(new) => state,
            (Silent, Judged(new)) => self.differs(None, new, (now, random)),
            (Agrees { judged }, Judged(new)) => self.differs(Some(judged), new, (now, random)),
            (Differs { shown, .. } | Answered { shown, .. }, Judged(new)) => match shown {
                Some(shown) if shown == new => Agrees { judged: new },
                shown => self.differs(shown, new, (now, random)),
            },

            (Agrees { judged } | Differs { judged, .. } | Owed { judged }, Anew) => anew(judged),
            (Answered { .. }, Anew) => anew(lost),

            (Differs { judged, .. }, Read(shown)) if shows(shown, judged) => {
                self.agrees(judged, now)
            }
            (Differs { judged, .. }, Read(shown)) if judged == lost => {
                Answered { shown, due: now + CONFIRM }
            }
            (Differs { judged, .. }, Read(_)) => Owed { judged },
            (Answered { .. }, Read(shown)) if shows(shown, lost) => self.agrees(lost, now),
            (Answered { .. }, Read(_)) => Owed { judged: lost },

            (Owed { judged }, Written) => {
                self.not_before = (judged != Readiness::Starting).then(|| now + SPACING);
                self.agrees(judged, now)
            }

            (Agrees { judged } | Differs { judged, .. } | Owed { judged }, Failed(wait)) => {
                self.retry(judged, now + wait)
            }
            (Answered { .. }, Failed(wait)) => self.retry(lost, now + wait),

            (Silent, Anew | Read(_) | Written | Failed(_)) => Silent,
            (agrees @ Agrees { .. }, Read(_) | Written) => agrees,
            (waiting @ (Differs { .. } | Answered { .. }), Written) => waiting,
            (owed @ Owed { .. }, Judged(_) | Read(_)) => owed,
        };
    }

    /// Returns the state after another judgement, with the time of the request that follows.
    fn differs(
        &self,
        shown: Option<Readiness>,
        judged: Readiness,
        (now, random): (Instant, f64),
    ) -> CourseState {
        use Readiness::{ApiServerLost, NodePortsClosed, Ready, Starting, TablesBlocked};
        let (lasting, jitter) = match judged {
            Starting => (Duration::ZERO, SHORT_JITTER),
            Ready if self.calm.is_zero() => (Duration::ZERO, SHORT_JITTER),
            Ready => (self.calm, JITTER),
            ApiServerLost | NodePortsClosed | TablesBlocked => (FAULT, JITTER),
        };
        let earliest = self.not_before.map_or(now, |it| it.max(now)).max(now + lasting);
        CourseState::Differs { shown, judged, due: earliest + jitter.mul_f64(random) }
    }

    fn retry(&mut self, judged: Readiness, due: Instant) -> CourseState {
        self.not_before = Some(due);
        CourseState::Differs { shown: None, judged, due }
    }

    /// The Node shows `judged`. That this daemon starts is no fault, and delays nothing.
    fn agrees(&mut self, judged: Readiness, now: Instant) -> CourseState {
        if judged == Readiness::Ready {
            self.ready_since.get_or_insert(now);
        } else if let Some(since) = self.ready_since.take() {
            let is_rare = now.saturating_duration_since(since) >= STEADY;
            self.calm = if is_rare { CALM } else { (self.calm * 2).min(LONGEST_CALM) };
        }
        if judged != Readiness::Starting {
            self.calm = self.calm.max(CALM);
        }
        CourseState::Agrees { judged }
    }
}

/// Returns whether a Node that shows `shown` needs no write. A Node that was never ready needs no
/// word that this daemon starts.
fn shows(shown: Option<Readiness>, judged: Readiness) -> bool {
    shown == Some(judged) || judged == Readiness::Starting && shown != Some(Readiness::Ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use CourseInput::{Anew, Failed, Judged, Read, Written};
    use CourseState::{Agrees, Answered, Differs, Owed, Silent};
    use Readiness::{ApiServerLost, NodePortsClosed, Ready, Starting, TablesBlocked};

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn every_input_in_every_state() {
        let now = Instant::now();
        let differs = |shown, judged, after| Differs { shown, judged, due: now + seconds(after) };
        let agrees = |judged| Agrees { judged };
        let owed = |judged| Owed { judged };
        let answered = |shown, after| Answered { shown, due: now + seconds(after) };
        // At the greatest jitter. The first True needs no calm.
        let inputs = [
            Judged(Ready),
            Judged(ApiServerLost),
            Anew,
            Read(None),
            Read(Some(Ready)),
            Written,
            Failed(seconds(7)),
        ];
        let fault = differs(None, ApiServerLost, 20);
        let lost = |shown| differs(shown, ApiServerLost, 3);
        let ready = |shown| differs(shown, Ready, 3);
        #[rustfmt::skip]
        let table = [
            // Judged(Ready)             Judged(ApiServerLost)          Anew                        Read(None)           Read(Some(Ready))          Written                Failed
            (Silent,
            [differs(None, Ready, 1),    fault,                         Silent,                     Silent,              Silent,                    Silent,                Silent]),
            (agrees(Ready),
            [agrees(Ready),              differs(Some(Ready), ApiServerLost, 20), differs(None, Ready, 1), agrees(Ready), agrees(Ready),            agrees(Ready),         differs(None, Ready, 7)]),
            (agrees(ApiServerLost),
            [differs(Some(ApiServerLost), Ready, 1), agrees(ApiServerLost), differs(None, ApiServerLost, 1), agrees(ApiServerLost), agrees(ApiServerLost), agrees(ApiServerLost), differs(None, ApiServerLost, 7)]),
            (ready(None),
            [ready(None),                fault,                         differs(None, Ready, 1),    owed(Ready),         agrees(Ready),             ready(None),           differs(None, Ready, 7)]),
            (lost(Some(Ready)),
            [agrees(Ready),              lost(Some(Ready)),             differs(None, ApiServerLost, 1), answered(None, 60), answered(Some(Ready), 60), lost(Some(Ready)),  differs(None, ApiServerLost, 7)]),
            (answered(Some(Ready), 60),
            [agrees(Ready),              answered(Some(Ready), 60),     differs(None, ApiServerLost, 1), owed(ApiServerLost), owed(ApiServerLost), answered(Some(Ready), 60), differs(None, ApiServerLost, 7)]),
            (answered(None, 60),
            [differs(None, Ready, 1),    answered(None, 60),            differs(None, ApiServerLost, 1), owed(ApiServerLost), owed(ApiServerLost), answered(None, 60),    differs(None, ApiServerLost, 7)]),
            (owed(Ready),
            [owed(Ready),                owed(Ready),                   differs(None, Ready, 1),    owed(Ready),         owed(Ready),               agrees(Ready),         differs(None, Ready, 7)]),
        ];
        for (state, expected) in table {
            for (input, expected) in inputs.into_iter().zip(expected) {
                let mut course = Course { state, ..Course::default() };
                course.handle(input, now, 1.0);
                assert_eq!(course.state, expected, "{state:?}, {input:?}");
            }
        }
    }

    /// A Node with its condition, and the seconds at which this daemon wrote it.
    struct Simulated {
        course: Course,
        begin: Instant,
        shown: Option<Readiness>,
        writes: Vec<(u64, Readiness)>,
    }

    impl Simulated {
        fn new(shown: Option<Readiness>) -> Self {
            Self { course: Course::default(), begin: Instant::now(), shown, writes: Vec::new() }
        }

        /// Runs from one second to another with the readiness of each, as the reporter does.
        fn run(&mut self, times: std::ops::Range<u64>, readiness: impl Fn(u64) -> Readiness) {
            for second in times {
                let now = self.begin + seconds(second);
                let mut handle = |input| self.course.handle(input, now, 0.5);
                handle(Judged(readiness(second)));
                if matches!(self.course.next(), NextStep::ReadAt(due) if due <= now) {
                    self.course.handle(Read(self.shown), now, 0.5);
                }
                if let NextStep::Write(judged) = self.course.next() {
                    self.writes.push((second, judged));
                    self.shown = Some(judged);
                    self.course.handle(Written, now, 0.5);
                }
            }
        }
    }

    #[test]
    fn the_first_true_is_written_within_a_second_and_once() {
        let mut node = Simulated::new(None);
        node.run(0..10_000, |_| Ready);
        assert_eq!(node.writes, [(1, Ready)]);
    }

    #[test]
    fn a_restart_beside_a_true_condition_writes_nothing() {
        let mut node = Simulated::new(Some(Ready));
        node.run(0..10_000, |_| Ready);
        assert_eq!(node.writes, []);
    }

    #[test]
    fn a_node_that_lost_its_tables_is_false_until_its_first_sync_and_then_true_at_once() {
        let mut node = Simulated::new(Some(Ready));
        node.run(0..20, |second| if second < 5 { Starting } else { Ready });
        assert_eq!(node.writes, [(1, Starting), (6, Ready)]);
        let mut new = Simulated::new(None);
        new.run(0..20, |second| if second < 5 { Starting } else { Ready });
        assert_eq!(new.writes, [(6, Ready)]);
    }

    #[test]
    fn a_fault_is_written_once_it_lasts_and_its_end_too() {
        let mut node = Simulated::new(None);
        let fault = |second| match second {
            100..109 | 300..400 => NodePortsClosed,
            _ => Ready,
        };
        node.run(0..1000, fault);
        assert_eq!(node.writes, [(1, Ready), (315, NodePortsClosed), (465, Ready)]);
    }

    #[test]
    fn another_reason_is_written_after_the_least_time() {
        let mut node = Simulated::new(Some(Ready));
        node.run(0..100, |second| if second < 20 { NodePortsClosed } else { TablesBlocked });
        assert_eq!(node.writes, [(15, NodePortsClosed), (50, TablesBlocked)]);
    }

    #[test]
    fn a_cause_that_comes_and_goes_costs_few_writes() {
        const HOURS: u64 = 6;
        for period in [2_u64, 5, 12, 20, 30, 45, 60, 90, 200, 600, 2000] {
            for part in 1..4 {
                let mut node = Simulated::new(Some(Ready));
                let fails = |second| second % period < (period * part).div_ceil(4);
                node.run(
                    0..3600 * HOURS,
                    |second| {
                        if fails(second) { TablesBlocked } else { Ready }
                    },
                );
                let gap = node.writes.windows(2).map(|it| it[1].0 - it[0].0).min();
                assert!(gap.is_none_or(|gap| gap >= 30), "{period}: {:?}", node.writes);
                // Twice for each time of calm.
                assert!(node.writes.len() <= 48, "{period}: {:?}", node.writes);
            }
        }
    }

    #[test]
    fn a_server_that_returns_finds_no_node_unready() {
        let begin = Instant::now();
        let mut course = Course::default();
        let at = |second| begin + seconds(second);
        course.handle(Judged(Ready), at(0), 0.0);
        course.handle(Read(Some(Ready)), at(0), 0.0);
        course.handle(Judged(ApiServerLost), at(300), 0.0);
        // The server answers from here on, and the watches follow.
        course.handle(Read(Some(Ready)), at(310), 0.0);
        course.handle(Judged(Ready), at(340), 0.0);
        assert_eq!(course.state, Agrees { judged: Ready });
    }

    #[test]
    fn a_refusal_is_repeated_after_its_wait_whatever_happens_meanwhile() {
        let now = Instant::now();
        let mut course = Course::default();
        course.handle(Judged(Ready), now, 0.0);
        course.handle(Failed(seconds(300)), now, 0.0);
        for judged in [TablesBlocked, Ready, NodePortsClosed, Ready] {
            course.handle(Judged(judged), now + seconds(1), 0.0);
            assert_eq!(course.next(), NextStep::ReadAt(now + seconds(300)));
        }
    }
}
