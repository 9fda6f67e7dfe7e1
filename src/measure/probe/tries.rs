//! The tries of one change: started at a limited rate, with any number of them open at a time.
//!
//! A lost packet delays no other try: each starts when it is due.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, Begun, Failure, TryOutcome};
use super::endpoint::Which;
use super::ports::Ports;
use super::settings::Protocol;

/// Time after which a try without an answer is lost. It is less than the 1 s before TCP retransmits
/// its first packet, which would be equivalent to a later try.
const LOST: Duration = Duration::from_millis(500);

/// Minimum and maximum time between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(10));

/// Number of tries after the one that reached the new endpoint, and the time between them.
const AFTERWARDS: (usize, Duration) = (10, Duration::from_millis(1));

/// Most open tries: a process may have 1,024 files by default.
const MAX_OPEN: usize = 400;

/// Longest wait between two checks of a requested stop.
const LOOK: Duration = Duration::from_millis(50);

/// Numbers of tries, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All tries.
    pub tries: u32,
    /// Tries that reached the new endpoint.
    pub new: u32,
    /// Tries that reached the old endpoint.
    pub old: u32,
    /// Part of `old` that started after another try had reached the new endpoint.
    pub old_after_new: u32,
    /// Tries that were refused.
    pub refused: u32,
    /// Tries that failed by routing, a local rule, or ICMP.
    pub unreachable: u32,
    /// Tries without an answer.
    pub lost: u32,
    /// Tries that failed otherwise.
    pub other: u32,
    /// Tries that were left out, because all source ports had been used recently.
    pub left_out: u32,
}

/// Observations of the tries of a change; times since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// First arrival at the new endpoint.
    pub(super) reached: Option<Duration>,
    /// Last arrival at the old endpoint.
    pub(super) last_old: Option<Duration>,
    pub(super) counts: Counts,
}

/// Sender of tries to a Service.
#[derive(Debug)]
pub(super) struct Tries {
    service: SocketAddr,
    protocol: Protocol,
    ports: Ports,
    base: Instant,
    open: Vec<Attempt>,
    /// Tries with an outcome, by start time.
    done: Vec<(Duration, TryOutcome)>,
    left_out: u32,
}

impl Tries {
    pub(super) fn new(service: SocketAddr, protocol: Protocol, base: Instant) -> Self {
        Self {
            service,
            protocol,
            ports: Ports::of_this_machine(protocol),
            base,
            open: Vec::new(),
            done: Vec::new(),
            left_out: 0,
        }
    }

    /// Sends tries until the endpoint is reached and a few times more, or until the limit has
    /// passed or `is_stopped`.
    ///
    /// # Errors
    /// The system failed to create sockets.
    pub(super) fn until(
        &mut self,
        new: Which,
        limit: Duration,
        is_stopped: impl Fn() -> bool,
    ) -> io::Result<Seen> {
        self.open.clear();
        self.done.clear();
        self.left_out = 0;
        let start = self.base.elapsed();
        let (mut due, mut afterwards, mut is_reached) = (start, 0, false);
        loop {
            let now = self.base.elapsed();
            is_reached |= self.collect(now, new);
            let is_over = if is_reached {
                afterwards >= AFTERWARDS.0 && self.open.is_empty()
            } else {
                now - start > limit
            };
            if is_over || is_stopped() {
                break;
            }
            let wants_more = !is_reached || afterwards < AFTERWARDS.0;
            if wants_more && now >= due && self.open.len() < MAX_OPEN {
                self.begin(now)?;
                afterwards += usize::from(is_reached);
                due = now + if is_reached { AFTERWARDS.1 } else { pause(now - start) };
            }
            self.wait(if wants_more { due } else { now + LOOK })?;
        }
        self.open.clear();
        Ok(summary(&self.done, new, self.left_out))
    }

    fn begin(&mut self, now: Duration) -> io::Result<()> {
        match Attempt::begin((self.service, self.protocol), &mut self.ports, now)? {
            Begun::Open(attempt) => self.open.push(attempt),
            Begun::Failed(failure) => self.done.push((now, TryOutcome::Failed(failure))),
            Begun::NoPort => self.left_out += 1,
        }
        Ok(())
    }

    /// Moves tries with an outcome to `done`. Returns whether one of them reached `new`.
    fn collect(&mut self, now: Duration, new: Which) -> bool {
        let known = self.done.len();
        let done = &mut self.done;
        self.open.retain(|attempt| {
            let outcome = attempt.outcome();
            let is_lost = now - attempt.begun > LOST;
            let outcome = outcome.or(is_lost.then_some(TryOutcome::Failed(Failure::Lost)));
            done.extend(outcome.map(|outcome| (attempt.begun, outcome)));
            outcome.is_none()
        });
        let mut latest = done.iter().skip(known);
        latest.any(|(_, outcome)| matches!(outcome, TryOutcome::Reached(which, _) if *which == new))
    }

    /// Waits for an outcome until `due`.
    fn wait(&self, due: Duration) -> io::Result<()> {
        let time = due.saturating_sub(self.base.elapsed()).min(LOOK);
        let mut open: Vec<_> =
            self.open.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)).collect();
        match ppoll(&mut open, Some(TimeSpec::from_duration(time)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the time until the next try, a hundredth of the time since the change. The figure is
/// therefore exact to 1 %, and a slow proxy costs few tries.
fn pause(since: Duration) -> Duration {
    (since / 100).clamp(PAUSES.0, PAUSES.1)
}

fn summary(done: &[(Duration, TryOutcome)], new: Which, left_out: u32) -> Seen {
    let reached = |wanted: Which| {
        done.iter().filter_map(move |(_, outcome)| match outcome {
            TryOutcome::Reached(which, at) if *which == wanted => Some(*at),
            TryOutcome::Reached(..) | TryOutcome::Failed(_) => None,
        })
    };
    let first = reached(new).min();
    let mut counts = Counts { left_out, ..Counts::default() };
    for (begun, outcome) in done {
        counts.tries += 1;
        match outcome {
            TryOutcome::Reached(which, _) if *which == new => counts.new += 1,
            TryOutcome::Reached(..) => {
                counts.old += 1;
                counts.old_after_new += u32::from(first.is_some_and(|first| *begun > first));
            }
            TryOutcome::Failed(Failure::Refused) => counts.refused += 1,
            TryOutcome::Failed(Failure::Unreachable) => counts.unreachable += 1,
            TryOutcome::Failed(Failure::Lost) => counts.lost += 1,
            TryOutcome::Failed(Failure::Other) => counts.other += 1,
        }
    }
    Seen { reached: first, last_old: reached(new.other()).max(), counts }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tries", self.tries)?;
        for (count, what) in [
            (self.old, "reached the old endpoint"),
            (self.refused, "refused"),
            (self.unreachable, "unreachable"),
            (self.lost, "without an answer"),
            (self.other, "failed otherwise or were answered by another program"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn pauses_grow_with_the_time_since_the_change() {
        assert_eq!(pause(Duration::ZERO), Duration::from_micros(100));
        assert_eq!(pause(ms(100)), ms(1));
        assert_eq!(pause(ms(100_000)), ms(10));
    }

    #[test]
    fn the_first_arrival_at_the_new_endpoint_counts_and_failures_have_their_kinds() {
        use TryOutcome::{Failed, Reached};
        let done = [
            (ms(0), Reached(Which::A, ms(1))),
            (ms(1), Failed(Failure::Refused)),
            (ms(2), Failed(Failure::Lost)),
            (ms(2), Failed(Failure::Unreachable)),
            (ms(2), Failed(Failure::Other)),
            // Answers arrive in any order.
            (ms(5), Reached(Which::B, ms(6))),
            (ms(4), Reached(Which::B, ms(5))),
            // Started before the new endpoint was reached.
            (ms(4), Reached(Which::A, ms(7))),
            (ms(8), Reached(Which::A, ms(9))),
        ];
        let counts = Counts {
            tries: 9,
            new: 2,
            old: 3,
            old_after_new: 1,
            refused: 1,
            unreachable: 1,
            lost: 1,
            other: 1,
            left_out: 4,
        };
        let seen = Seen { reached: Some(ms(5)), last_old: Some(ms(9)), counts };
        assert_eq!(summary(&done, Which::B, 4), seen);
    }

    #[test]
    fn without_an_arrival_nothing_is_reached() {
        let done = [(ms(0), TryOutcome::Reached(Which::A, ms(1)))];
        let seen = summary(&done, Which::B, 0);
        assert_eq!((seen.reached, seen.last_old), (None, Some(ms(1))));
        assert_eq!(seen.counts.to_string(), "1 tries, 1 reached the old endpoint");
    }
}
