//! The clock of the servers, and times since 1970.

use std::time::{Instant, SystemTime};

#[allow(clippy::disallowed_methods, reason = "requests come from outside, at times of their own")]
pub(super) fn now() -> Instant {
    Instant::now()
}

pub(super) fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

pub(super) fn since_1970_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
