//! Clocks for measurements: real time, and the CPU time of a thread.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Returns the present time.
#[expect(clippy::disallowed_methods, reason = "measurements take the time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of the calling thread, in user space and in the kernel.
pub fn thread_time() -> Duration {
    // This clock always exists; zero would be visible as an impossible figure.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Returns the result of `work`, and its duration.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, start.elapsed())
}

/// Returns the time between events at a rate per second; 0 is no limit.
pub fn interval(rate: u32) -> Duration {
    Duration::from_secs(1).checked_div(rate).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_an_interval_and_none_is_no_pause() {
        assert_eq!(interval(4), Duration::from_millis(250));
        assert_eq!(interval(0), Duration::ZERO);
    }
}
