//! Decides when to commit. Reads no clock and does no I/O.
//!
//! ```text
//! Waiting -+- Ready -------------> Unknown   due at once
//!
//! Unknown -+- Committed ---------> Idle
//!          +- Refused -----------> Unknown   due later, twice as late each time
//!          +- Undone ------------> Pending   due at once
//!
//! Idle ----+- Changed -----------> Pending   due `min_interval` after the last commit
//!          +- Refused, ReadNow --> Unknown   due at once
//!          +- Undone ------------> Pending   due at once
//!
//! Pending -+- Committed ---------> Idle
//!          +- Refused -----------> Unknown   due after 50 ms
//!          +- ReadNow -----------> Unknown   due at once
//!          +- Undone ------------> Pending   due at once
//! ```
//!
//! Any other input leaves the state as it is, with its time.
//!
//! Where lookups by key do not suffice, a start, a refused transaction, a lost answer and a change
//! by another program take the same path: `Unknown`, read back, commit the difference.

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
    /// The kernel refused the transaction, or its outcome is unknown.
    Refused,
    /// The tables are to be read at once: another program changed one, a blocked one is free, or
    /// a refused transaction was narrowed.
    ReadNow,
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
    /// The kernel's contents are unknown and are read before the next commit.
    Unknown { due: Instant, attempt: u32 },
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
        use Input::{Changed, Committed, ReadNow, Ready, Refused, Undone};
        use State::{Idle, Pending, Unknown, Waiting};
        self.state = match (self.state, input) {
            (Waiting, Ready) => Unknown { due: now, attempt: 0 },
            (Waiting, Changed | Committed | Refused | ReadNow | Undone) => Waiting,
            (Unknown { .. } | Idle { .. } | Pending { .. }, Undone) => Pending { due: now },

            (Unknown { .. } | Pending { .. }, Committed) => Idle { since: now },
            (Unknown { attempt, .. }, Refused) => {
                Unknown { due: now + backoff(attempt), attempt: attempt.saturating_add(1) }
            }
            (unknown @ Unknown { .. }, Ready | Changed | ReadNow) => unknown,

            (Idle { since }, Changed) => Pending { due: now.max(since + self.min_interval) },
            (Idle { .. }, Refused) | (Idle { .. } | Pending { .. }, ReadNow) => {
                Unknown { due: now, attempt: 0 }
            }
            (idle @ Idle { .. }, Ready | Committed) => idle,

            (Pending { .. }, Refused) => Unknown { due: now + backoff(0), attempt: 1 },
            (pending @ Pending { .. }, Ready | Changed) => pending,
        };
    }

    /// Returns the work that is due and its time.
    pub fn due(&self) -> Option<(Instant, Task)> {
        match self.state {
            State::Waiting | State::Idle { .. } => None,
            State::Unknown { due, .. } => Some((due, Task::ReadBack)),
            State::Pending { due } => Some((due, Task::Commit)),
        }
    }
}

/// Returns 50 ms, doubled with each attempt up to about 13 s.
fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(50) * 2u32.pow(attempt.min(8))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::collections::BTreeSet;

    use Input::{Changed, Committed, ReadNow, Ready, Refused, Undone};

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
        assert_eq!(schedule.due(), expected);
    }

    #[test]
    fn nothing_is_committed_before_everything_was_listed() {
        check(&[(0, Changed), (10, ReadNow), (20, Changed)], None);
    }

    #[test]
    fn the_kernel_is_read_before_the_first_commit() {
        check(&[(0, Changed), (10, Ready)], Some((10, Task::ReadBack)));
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

    #[test]
    fn a_refusal_is_followed_by_a_delayed_read_back() {
        let inputs = [(0, Ready), (0, Committed), (2_000, Changed), (2_000, Refused)];
        check(&inputs, Some((2_050, Task::ReadBack)));
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

    names!(State, STATES, state_name: Waiting Unknown Idle Pending);
    names!(Input, INPUTS, input_name: Ready Changed ReadNow Committed Refused Undone);

    /// A state, and the states after the inputs in the order of [`INPUTS`].
    type Row = (State, [State; INPUTS.len()]);

    fn every_pair(now: Instant) -> [Row; STATES.len()] {
        let ms = |n| now + Duration::from_millis(n);
        let unknown = |due, attempt| State::Unknown { due: ms(due), attempt };
        let (waiting, idle) = (State::Waiting, State::Idle { since: now });
        let (start, same) = (unknown(0, 0), unknown(300, 2));
        let (soon, later, at_once) =
            [700, 1_000, 0].map(|due| State::Pending { due: ms(due) }).into();
        //         Ready    Changed  ReadNow  Committed  Refused          Undone
        [
            (waiting, [start, waiting, waiting, waiting, waiting, waiting]),
            (same, [same, same, same, idle, unknown(200, 3), at_once]),
            (idle, [idle, later, start, idle, start, at_once]),
            (soon, [soon, soon, start, idle, unknown(50, 1), at_once]),
        ]
    }

    #[test]
    fn every_pair_of_state_and_input_leads_to_the_state_in_this_table() {
        let now = Instant::now();
        let table = every_pair(now);
        let inputs = [Ready, Changed, ReadNow, Committed, Refused, Undone];
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
