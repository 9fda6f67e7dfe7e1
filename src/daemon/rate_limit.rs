//! A rate of starts: requests, Events, lines of the log.

use std::time::Duration;

use tokio::time::Instant;

/// Rate limiter for starts: a burst, then one per interval. Reads no clock.
#[derive(Clone, Debug)]
pub struct RateLimit {
    interval: Duration,
    burst: u32,
    /// Time at which all starts so far would have ended if each took one interval.
    earned: Option<Instant>,
}

impl RateLimit {
    /// Returns a limiter that allows `burst` starts at once after an idle time, then one per
    /// interval.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, earned: None }
    }

    /// Starts at `now`, if that is allowed. Returns whether it is.
    pub fn try_start(&mut self, now: Instant) -> bool {
        let starts = self.clone().start(now) <= now;
        if starts {
            self.start(now);
        }
        starts
    }

    /// Returns whether a whole burst is allowed at `now`.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.earned.is_none_or(|earned| earned <= now)
    }

    /// Returns the start time of a request that arrives at `now`.
    pub fn start(&mut self, now: Instant) -> Instant {
        let earned = self.earned.map_or(now, |earned| earned.max(now)) + self.interval;
        self.earned = Some(earned);
        let start = earned.checked_sub(self.interval * self.burst).unwrap_or(now);
        start.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);
    const BURST: u32 = 8;

    #[test]
    fn a_burst_starts_at_once_and_then_one_request_a_second() {
        let (mut limit, now) = (RateLimit::new(INTERVAL, BURST), Instant::now());
        for _ in 0..BURST {
            assert_eq!(limit.start(now), now);
        }
        assert_eq!(limit.start(now), now + INTERVAL);
        assert_eq!(limit.start(now), now + INTERVAL * 2);
    }

    #[test]
    fn an_idle_time_allows_a_new_burst() {
        let (mut limit, now) = (RateLimit::new(INTERVAL, BURST), Instant::now());
        for _ in 0..BURST {
            limit.start(now);
        }
        let later = now + INTERVAL * BURST;
        for _ in 0..BURST {
            assert_eq!(limit.start(later), later);
        }
        assert_eq!(limit.start(later), later + INTERVAL);
    }

    #[test]
    fn a_refused_start_delays_no_later_one() {
        let (mut limit, now) = (RateLimit::new(INTERVAL, BURST), Instant::now());
        let started = (0..100).filter(|_| limit.try_start(now)).count();
        assert_eq!(started, 8);
        assert!(limit.try_start(now + INTERVAL) && !limit.try_start(now + INTERVAL));
        assert!(!limit.is_idle(now + INTERVAL) && limit.is_idle(now + INTERVAL * 10));
    }
}
