//! Progress of a run, on standard error if that is a terminal; and a request to stop it.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Progress display and stop flag. Clones share it.
#[derive(Clone, Debug)]
pub struct Progress {
    part: Arc<Mutex<Part>>,
    stop: Arc<AtomicBool>,
    is_shown: bool,
}

/// The present part of the measurement.
#[derive(Debug, Default)]
struct Part {
    what: String,
    steps: u64,
    done: u64,
}

impl Part {
    fn percent(&self) -> u64 {
        self.done.saturating_mul(100).checked_div(self.steps).unwrap_or_default()
    }
}

impl Progress {
    /// Creates a display without progress; a signal handler may set `stop`.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { part: Arc::default(), stop, is_shown: stderr().is_terminal() }
    }

    /// Begins a part of `steps` steps.
    pub fn begin(&self, what: &str, steps: u64) {
        let mut part = self.part();
        *part = Part { what: what.to_owned(), steps, done: 0 };
        self.show(&part);
    }

    /// Adds completed steps of the part.
    pub fn step(&self, steps: u64) {
        let mut part = self.part();
        let before = part.percent();
        part.done += steps;
        // A line for each step would distort the measurement.
        if part.percent() != before {
            self.show(&part);
        }
    }

    /// Clears the line.
    pub fn clear(&self) {
        self.write(CLEAR);
    }

    /// Returns whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn show(&self, part: &Part) {
        self.write(&format!("{CLEAR}{} {} %", part.what, part.percent()));
    }

    fn write(&self, text: &str) {
        if self.is_shown {
            // The terminal may be closed by now.
            let _ = stderr().lock().write_all(text.as_bytes());
        }
    }

    fn part(&self) -> MutexGuard<'_, Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves to the start of the line and erases it (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[K";
