//! Time limits of probes and tests.
//!
//! On a machine that is many times slower than others the variable `DELTAPROXY_TIME_FACTOR`
//! multiplies all of them.

use std::env;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// How long a probe waits for an answer. At four times the load that it can bear, a machine was seen
/// to stand still for half a second.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a hasty probe waits for an answer. Packets between namespaces take microseconds.
pub const SILENCE: Duration = Duration::from_millis(500);

/// Waiting for what comes soon may take so many times as long: beside three other tests on two
/// processors a program got a sixth of its time.
pub(crate) const LENIENCE: u32 = 4;

/// A moment after which waiting ends.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline `limit` from now, or later on a slow machine.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self(now() + stretched(limit))
    }

    /// The remaining time, or `None` once it is over.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        self.0.checked_duration_since(now()).filter(|left| !left.is_zero())
    }
}

/// Asks `look` again and again until it has something.
///
/// # Panics
/// When several times `limit` pass first; the message names `what`.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(limit * LENIENCE);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(deadline.left().is_some(), "{what}: not within {:?}", limit * LENIENCE);
        thread::sleep(Duration::from_millis(2));
    }
}

/// The limit, multiplied by the factor of this machine.
///
/// # Panics
/// If `DELTAPROXY_TIME_FACTOR` is no whole number.
pub fn stretched(limit: Duration) -> Duration {
    limit * *FACTOR
}

static FACTOR: LazyLock<u32> = LazyLock::new(|| match env::var(TIME_FACTOR) {
    Ok(factor) => factor.parse().unwrap_or_else(|_| panic!("{TIME_FACTOR} is no whole number")),
    Err(_) => 1,
});

const TIME_FACTOR: &str = "DELTAPROXY_TIME_FACTOR";

#[expect(clippy::disallowed_methods, reason = "the one clock of the tests")]
fn now() -> Instant {
    Instant::now()
}
