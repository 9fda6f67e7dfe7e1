//! The clocks of measurements: real time, and the processor time of a thread.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// The time now.
#[expect(clippy::disallowed_methods, reason = "measurements take the time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Processor time that the calling thread has taken, in user space and in the kernel.
pub fn thread_time() -> Duration {
    // This clock always exists; zero would show as an impossible figure.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// What `work` gives, and how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, start.elapsed())
}
