//! Decides when to commit. Reads no clock and does no I/O.
//!
//! ```text
//! Waiting -+- Ready -----> Idle
//!
//! Idle ----+- Changed ---> Pending   due `min_interval` after the last commit
//!          +- Undone ----> Pending   due at once
//!
//! Pending -+- Committed -> Idle
//!          +- Undone ----> Pending   due at once
//! ```
//!
//! Any other input leaves the state as it is, with its time.
//!
//! [`Doubt`](crate::reconcile::doubt::Doubt) decides whether the tables must be read before the next commit.

use std::time::{Duration, Instant};

/// State machine that decides when the next commit is due.
#[derive(Debug)]
pub struct Schedule {
    state: State,
    min_interval: Duration,
}

/// An event that may change the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Every resource is listed.
    Ready,
    /// Desired and installed state differ.
    Changed,
    /// The kernel holds what was committed.
    Committed,
    /// The kernel refused the transaction, and the installed state is known again.
    Undone,
}

/// Work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read the tables from the kernel, then commit the difference.
    ReadBack,
    /// Commit the difference.
    Commit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not every resource is listed. A commit now would delete services that are not listed yet.
    Waiting,
    /// The kernel holds what was committed at `since`.
    Idle { since: Instant },
    /// A change is to be committed. Later changes do not move `due`.
    Pending { due: Instant },
}

impl Schedule {
    /// Returns a schedule that leaves at least `min_interval` between the end of a commit and the
    /// next.
    pub fn new(min_interval: Duration) -> Self {
        Self { state: State::Waiting, min_interval }
    }

    /// Applies `input`, which happened at `now`.
    pub fn handle(&mut self, input: Input, now: Instant) {
        use Input::{Changed, Committed, Ready, Undone};
        use State::{Idle, Pending, Waiting};
        self.state = match (self.state, input) {
            (Waiting, Ready) => Idle { since: now },
            (Waiting, Changed | Committed | Undone) => Waiting,
            (Idle { .. } | Pending { .. }, Undone) => Pending { due: now },
            (Idle { since }, Changed) => Pending { due: now.max(since + self.min_interval) },
            (Idle { .. } | Pending { .. }, Committed) => Idle { since: now },
            (same @ (Idle { .. } | Pending { .. }), Ready) | (same @ Pending { .. }, Changed) => {
                same
            }
        };
    }

    /// Returns the work that is due and its time. `tables_due` is that of
    /// [`Doubt`](crate::reconcile::doubt::Doubt::tables_due).
    pub fn due(&self, tables_due: Option<Instant>) -> Option<(Instant, Task)> {
        match (self.state, tables_due) {
            (State::Waiting, _) | (State::Idle { .. }, None) => None,
            (State::Idle { .. } | State::Pending { .. }, Some(due)) => Some((due, Task::ReadBack)),
            (State::Pending { due }, None) => Some((due, Task::Commit)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::collections::BTreeSet;

    use Input::{Changed, Committed, Ready, Undone};

    use super::*;

    const MIN_INTERVAL: Duration = Duration::from_secs(1);

    #[track_caller]
    fn check(inputs: &[(u64, Input)], expected: Option<(u64, Task)>) {
        let start = Instant::now();
        let mut schedule = Schedule::new(MIN_INTERVAL);
        for (at, input) in inputs {
            schedule.handle(*input, start + Duration::from_millis(*at));
        }
        let expected = expected.map(|(at, task)| (start + Duration::from_millis(at), task));
        assert_eq!(schedule.due(None), expected);
    }

    #[test]
    fn nothing_is_committed_before_everything_was_listed() {
        check(&[(0, Changed), (10, Undone), (20, Changed)], None);
    }

    #[test]
    fn the_tables_are_read_before_the_next_commit() {
        let start = Instant::now();
        let mut schedule = Schedule::new(MIN_INTERVAL);
        assert_eq!(schedule.due(Some(start)), None, "nothing is listed");
        for input in [Ready, Changed] {
            schedule.handle(input, start);
            assert_eq!(schedule.due(Some(start)), Some((start, Task::ReadBack)));
        }
    }

    #[test]
    fn an_idle_daemon_commits_at_once() {
        check(&[(0, Ready), (0, Committed), (5_000, Changed)], Some((5_000, Task::Commit)));
    }

    /// Case 120 of kube-proxy's behaviour.
    #[test]
    fn a_burst_is_committed_once_and_its_last_change_does_not_delay_it() {
        let burst = [(0, Ready), (0, Committed), (10, Changed), (900, Changed)];
        check(&burst, Some((1_000, Task::Commit)));
    }

    /// Names of all variants of an enum, and of the variant of a value. Does not compile without one.
    macro_rules! names {
        ($type:ident, $all:ident, $name:ident: $($variant:ident)*) => {
            const $all: &[&str] = &[$(stringify!($variant)),*];

            fn $name(value: $type) -> &'static str {
                match value {
                    $($type::$variant { .. } => stringify!($variant)),*
                }
            }
        };
    }

    names!(State, STATES, state_name: Waiting Idle Pending);
    names!(Input, INPUTS, input_name: Ready Changed Committed Undone);

    /// A state, and the states after the inputs in the order of [`INPUTS`].
    type Row = (State, [State; INPUTS.len()]);

    fn every_pair(now: Instant) -> [Row; STATES.len()] {
        let (waiting, idle) = (State::Waiting, State::Idle { since: now });
        let [soon, later, at_once] =
            [700, 1_000, 0].map(|due| State::Pending { due: now + Duration::from_millis(due) });
        //         Ready Changed  Committed  Undone
        [
            (waiting, [idle, waiting, waiting, waiting]),
            (idle, [idle, later, idle, at_once]),
            (soon, [soon, soon, idle, at_once]),
        ]
    }

    #[test]
    fn every_pair_of_state_and_input_leads_to_the_state_in_this_table() {
        let now = Instant::now();
        let table = every_pair(now);
        let inputs = [Ready, Changed, Committed, Undone];
        assert_eq!(table.map(|(state, _)| state_name(state)), STATES);
        assert_eq!(inputs.map(input_name), INPUTS);
        for (state, expected) in table {
            for (input, expected) in inputs.into_iter().zip(expected) {
                let mut schedule = Schedule { state, min_interval: MIN_INTERVAL };
                schedule.handle(input, now);
                assert_eq!(schedule.state, expected, "{state:?} and {input:?}");
            }
        }
    }

    #[test]
    fn the_drawing_has_every_pair_that_changes_the_state() {
        let mut drawn = BTreeSet::new();
        let mut from = "";
        for line in include_str!("schedule.rs").lines().take_while(|line| line.starts_with("//!")) {
            let Some((left, right)) = line.split_once("-> ") else { continue };
            let words = |text: &'static str| {
                text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
            };
            let mut inputs: Vec<_> = words(left).collect();
            if STATES.contains(&inputs[0]) {
                from = inputs.remove(0);
            }
            let to = words(right).next().unwrap();
            drawn.extend(inputs.into_iter().map(|input| (from, input, to)));
        }
        let pairs = every_pair(Instant::now()).into_iter().flat_map(|(state, after)| {
            INPUTS
                .iter()
                .zip(after)
                .filter(move |(_, after)| *after != state)
                .map(move |(input, after)| (state_name(state), *input, state_name(after)))
        });
        assert_eq!(drawn, pairs.collect());
    }
}
