//! Decides what the cleaner does next: delete, list, wait or end. No clock, no I/O.

use std::time::{Duration, Instant};

use ahash::HashSet;
use conntrack::ConntrackTable;
use engine::flow::StaleFlow;
use engine::model::Protocol;

/// Outcome of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// Deleted entries of each family.
    pub entries: [u64; 2],
    /// Duration, retries included.
    pub took: Duration,
    /// Processor time.
    pub busy: Duration,
    /// The kernel answered every request of the pass without an error.
    pub complete: bool,
}

/// Pending work of the cleaner.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Stale flows to delete. One pass takes them all, since its cost hardly depends on their
    /// number.
    flows: HashSet<StaleFlow>,
    /// Connections without an answer to delete. Their pass is no walk, so it does not wait.
    unanswered: HashSet<StaleFlow>,
    limits: Limits,
    /// Time of the next list; `None` before the first request.
    list_at: Option<Instant>,
    /// No pass starts before this; `None` before the first one.
    resting_until: Option<Instant>,
    /// No requested list starts before this; `None` before the first one.
    list_resting_until: Option<Instant>,
    /// Time of the next look at connections without an answer; `None` if none is due.
    look_at: Option<Instant>,
    /// No look starts before this; `None` before the first one.
    look_resting_until: Option<Instant>,
    /// The next look is the second since it was requested.
    is_second_look: bool,
    /// A flow was dropped or a pass failed since the last list.
    has_missed: bool,
    is_closed: bool,
}

/// Limits of the queue and of the lists.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most stale flows in the queue. Further ones are dropped; the next list finds them again.
    pub waiting: usize,
    /// Time between two lists that were not requested.
    pub list_interval: Duration,
    /// Least time between a list and the next requested one.
    pub list_rest: Duration,
}

/// The next action of the thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Delete the entries of these flows.
    Pass(HashSet<StaleFlow>),
    /// List all UDP flows.
    List,
    /// Look at the connections without an answer.
    Look,
    /// Wait for work, at most for this time if there is one.
    Wait(Option<Duration>),
    /// End: the queue is closed and empty.
    End,
}

/// Rest after a pass or a list, as a multiple of its time: each takes at most a hundredth of one
/// processor's time.
const REST: u32 = 99;

/// Longest rest after a pass that takes up to a ninth of it: stale flows are deleted within about a
/// second. Rest after a pass that failed.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Rest after a longer pass, as a multiple of its processor time: passes take at most a tenth of
/// one processor's time, however many entries the table has and services change.
const LEAST_REST: u32 = 9;

/// Returns the rest after a pass or a look that took `busy` of a processor, and failed or not.
fn rest(busy: Duration, has_failed: bool) -> Duration {
    let rest = if has_failed { LONGEST_REST } else { (busy * REST).min(LONGEST_REST) };
    rest.max(busy * LEAST_REST)
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 1 << 18,
            list_interval: Duration::from_secs(60),
            list_rest: Duration::from_secs(10),
        }
    }
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds stale flows up to the limit. Returns how many were dropped.
    pub(super) fn add(&mut self, flows: Vec<StaleFlow>, now: Instant) -> usize {
        let mut dropped = 0;
        for flow in flows {
            if flow.protocol != Protocol::Udp {
                // A look finds no more than fit into memory.
                self.unanswered.insert(flow);
            } else if self.flows.len() < self.limits.waiting {
                self.flows.insert(flow);
            } else if !self.flows.contains(&flow) {
                dropped += 1;
            }
        }
        if dropped > 0 {
            self.has_missed = true;
            self.request_list(now);
        }
        dropped
    }

    /// Schedules a list for the end of the pause after the last one.
    pub(super) fn request_list(&mut self, now: Instant) {
        let at = self.list_resting_until.map_or(now, |until| until.max(now));
        self.list_at = Some(self.list_at.map_or(at, |planned| planned.min(at)));
    }

    /// Schedules a look, and another one later if it finds something: connections in both have had
    /// time for an answer.
    pub(super) fn request_looks(&mut self, now: Instant) {
        self.look_at = Some(self.look_resting_until.map_or(now, |until| until.max(now)));
        self.is_second_look = false;
    }

    /// Makes the thread end once the queue is empty.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns the action at `now`. A closed queue does not rest.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        if !self.unanswered.is_empty() {
            return Next::Pass(std::mem::take(&mut self.unanswered));
        }
        let until = |at: Instant| at.saturating_duration_since(now);
        let rest = self.resting_until.map_or(Duration::ZERO, until);
        let has_flows = !self.flows.is_empty();
        if has_flows && (self.is_closed || rest.is_zero()) {
            return Next::Pass(std::mem::take(&mut self.flows));
        }
        if self.is_closed {
            return Next::End;
        }
        match [self.look_at, self.list_at].map(|at| at.map(until)) {
            [Some(Duration::ZERO), _] => Next::Look,
            [_, Some(Duration::ZERO)] if !has_flows => Next::List,
            [look, list] => {
                let flows = if has_flows { Some(rest) } else { list };
                Next::Wait([look, flows].into_iter().flatten().min())
            }
        }
    }

    /// Starts the pause after a pass that ended at `now`. Requests a list if the pass failed.
    pub(super) fn passed(&mut self, now: Instant, cleaned: &Cleaned) {
        let until = now + rest(cleaned.busy, !cleaned.complete);
        self.resting_until = self.resting_until.max(Some(until));
        if !cleaned.complete {
            self.has_missed = true;
            self.request_list(now);
        }
    }

    /// Starts the pause after a look that ended at `now` and took `busy` of a processor. Schedules the
    /// second look if the first one has `found` something, and the same again without a result.
    pub(super) fn looked(&mut self, now: Instant, busy: Duration, found: Option<bool>) {
        let until = now + rest(busy, found.is_none());
        self.look_resting_until = Some(until);
        let Some(found) = found else { return self.request_looks(now) };
        self.is_second_look = !self.is_second_look && found;
        let again = until.max(now + ConntrackTable::ANSWERED_WITHIN);
        self.look_at = self.is_second_look.then_some(again);
    }

    /// Starts the pause after a list that ended at `now` and took `took`, and schedules the next
    /// one. Returns whether no flow was missed since the last list.
    pub(super) fn listed(&mut self, now: Instant, took: Duration) -> bool {
        let rest = took * REST;
        self.list_resting_until = Some(now + rest.max(self.limits.list_rest));
        self.list_at = Some(now + rest.max(self.limits.list_interval));
        self.request_looks(now);
        !std::mem::take(&mut self.has_missed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU16;

    use engine::model::Target;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn flow(port: u16) -> StaleFlow {
        let address = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
        StaleFlow::to(Target { address, port: NonZeroU16::new(port).unwrap() })
    }

    #[allow(clippy::disallowed_methods)]
    fn queue(waiting: usize) -> (Queue, Instant) {
        (Queue::new(Limits { waiting, ..Limits::default() }), Instant::now())
    }

    /// A pass on a machine that is so busy that it takes twice its processor time.
    fn cleaned(busy: Duration, complete: bool) -> Cleaned {
        Cleaned { entries: [1, 0], took: 2 * busy, busy, complete }
    }

    /// Returns the flows of each pass, when one flow becomes stale every `interval` for `time` and
    /// each pass takes `cost`. Also returns the longest time from a flow to its pass.
    fn passes(interval: Duration, time: Duration, cost: Duration) -> (Vec<usize>, Duration) {
        let (mut queue, start) = queue(usize::MAX);
        let (mut at, mut due, mut port) = (start, start, 0);
        let (mut passes, mut waiting, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
        while at < start + time {
            while due <= at {
                port += 1;
                assert_eq!(queue.add(vec![flow(port)], at), 0);
                waiting.push(due);
                due += interval;
            }
            match queue.next(at) {
                Next::Pass(flows) => {
                    passes.push(flows.len());
                    longest = waiting.drain(..).map(|since| at - since).fold(longest, Ord::max);
                    at += cost;
                    queue.passed(at, &cleaned(cost, true));
                }
                Next::Wait(Some(rest)) => at += rest,
                Next::Wait(None) => at = due,
                next @ (Next::List | Next::Look | Next::End) => panic!("{next:?}"),
            }
        }
        (passes, longest)
    }

    #[test]
    fn a_flow_after_an_idle_time_is_deleted_at_once() {
        let (passes, longest) = passes(2_000 * MS, 10_000 * MS, 4 * MS);
        assert_eq!((passes, longest), (vec![1; 5], Duration::ZERO));
    }

    #[test]
    fn flows_in_quick_succession_share_passes() {
        let (passes, longest) = passes(20 * MS, 10_000 * MS, 4 * MS);
        assert!((24..=26).contains(&passes.len()), "{passes:?}");
        assert!(passes[1..].iter().all(|flows| (20..=21).contains(flows)), "{passes:?}");
        assert!(longest <= 400 * MS, "{longest:?}");
    }

    #[test]
    fn a_flow_waits_a_second_at_most_for_a_pass_that_takes_long() {
        let (passes, longest) = passes(20 * MS, 10_000 * MS, 100 * MS);
        assert!((9..=10).contains(&passes.len()), "{passes:?}");
        assert!(longest <= LONGEST_REST + 100 * MS, "{longest:?}");
    }

    #[test]
    fn passes_that_take_long_use_a_tenth_of_the_time() {
        let (passes, longest) = passes(20 * MS, 30_000 * MS, 300 * MS);
        assert_eq!(passes.len(), 10, "{passes:?}");
        assert!(longest <= 10 * 300 * MS, "{longest:?}");
    }

    #[test]
    fn a_pass_that_failed_is_followed_by_a_rest() {
        let (mut queue, now) = queue(1);
        queue.passed(now, &cleaned(Duration::ZERO, false));
        assert_eq!(queue.add(vec![flow(53)], now), 0);
        assert_eq!(queue.next(now), Next::Wait(Some(SECOND)));
    }

    #[test]
    fn a_closed_queue_does_not_rest_and_lists_nothing() {
        let (mut queue, now) = queue(1);
        queue.passed(now, &cleaned(10 * MS, true));
        queue.request_list(now);
        assert_eq!(queue.add(vec![flow(53)], now), 0);
        assert_eq!(queue.next(now), Next::Wait(Some(990 * MS)));
        queue.close();
        assert_eq!(queue.next(now), Next::Pass(HashSet::from_iter([flow(53)])));
        assert_eq!(queue.next(now), Next::End);
    }

    #[test]
    fn flows_are_listed_on_request_and_then_at_intervals() {
        let (mut queue, now) = queue(1);
        assert_eq!(queue.next(now), Next::Wait(None), "no list requested");
        queue.request_list(now);
        assert_eq!(queue.next(now), Next::List);
        assert!(queue.listed(now, 10 * MS));
        assert_eq!(queue.next(now), Next::Look);
        queue.looked(now, 10 * MS, Some(false));
        assert_eq!(queue.next(now), Next::Wait(Some(60 * SECOND)));
        queue.request_list(now);
        assert_eq!(queue.next(now), Next::Wait(Some(10 * SECOND)));
        assert!(queue.listed(now, 2 * SECOND));
        queue.looked(now, 10 * MS, Some(false));
        assert_eq!(queue.next(now), Next::Wait(Some(198 * SECOND)), "a hundredth of the time");
    }

    #[test]
    fn flows_are_listed_after_a_pass_that_failed() {
        let (mut queue, now) = queue(1);
        queue.passed(now, &cleaned(10 * MS, true));
        assert_eq!(queue.next(now), Next::Wait(None));
        queue.passed(now, &cleaned(10 * MS, false));
        assert_eq!(queue.next(now), Next::List);
        assert!(!queue.listed(now, 10 * MS));
        assert!(queue.listed(now, 10 * MS));
    }

    #[test]
    fn a_change_causes_a_look_and_one_after_a_second_if_it_found_something() {
        let (mut queue, mut now) = queue(1);
        for found in [true, false] {
            queue.request_looks(now);
            assert_eq!(queue.next(now), Next::Look);
            queue.looked(now, 10 * MS, Some(found));
            assert_eq!(queue.next(now), Next::Wait(found.then_some(SECOND)));
            now += SECOND;
            if found {
                assert_eq!(queue.next(now), Next::Look);
                queue.looked(now, 10 * MS, Some(true));
                assert_eq!(queue.next(now), Next::Wait(None));
                now += SECOND;
            }
        }
    }

    #[test]
    fn a_look_that_fails_is_repeated_after_a_second() {
        let (mut queue, now) = queue(1);
        queue.request_looks(now);
        queue.looked(now, Duration::ZERO, None);
        assert_eq!(queue.next(now), Next::Wait(Some(SECOND)));
        assert_eq!(queue.next(now + SECOND), Next::Look);
    }

    #[test]
    fn looks_after_many_changes_use_a_tenth_of_the_time_and_passes_come_before_them() {
        let (mut queue, now) = queue(1);
        queue.request_looks(now);
        queue.looked(now, 300 * MS, Some(true));
        queue.request_looks(now);
        assert_eq!(queue.next(now), Next::Wait(Some(2_700 * MS)));
        assert_eq!(queue.add(vec![flow(53)], now + 2_700 * MS), 0);
        assert!(matches!(queue.next(now + 2_700 * MS), Next::Pass(_)));
        assert_eq!(queue.next(now + 2_700 * MS), Next::Look);
    }

    #[test]
    fn a_rest_of_passes_delays_neither_a_look_nor_what_it_found() {
        let (mut queue, now) = queue(1);
        queue.passed(now, &cleaned(10 * MS, true));
        assert_eq!(queue.add(vec![flow(53)], now), 0);
        queue.request_looks(now);
        assert_eq!(queue.next(now), Next::Look);
        queue.looked(now, MS, Some(true));
        let found = StaleFlow { protocol: Protocol::Tcp, ..flow(80) };
        assert_eq!(queue.add(vec![found], now), 0);
        assert_eq!(queue.next(now), Next::Pass(HashSet::from_iter([found])));
        queue.passed(now, &cleaned(Duration::ZERO, true));
        assert_eq!(queue.next(now), Next::Wait(Some(990 * MS)), "the rest of the other passes");
    }

    #[test]
    fn a_dropped_flow_causes_a_list_soon() {
        let (mut queue, now) = queue(2);
        assert_eq!(queue.add(vec![flow(1), flow(2), flow(2)], now), 0);
        assert_eq!(queue.add(vec![flow(1), flow(3), flow(4)], now), 2);
        assert_eq!(queue.next(now), Next::Pass(HashSet::from_iter([flow(1), flow(2)])));
        assert_eq!(queue.next(now), Next::List);
        assert!(!queue.listed(now, 10 * MS));
        assert!(queue.listed(now, 10 * MS));
    }
}
