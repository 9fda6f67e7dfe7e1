//! How far a run is, on standard error if that is a terminal; and whether somebody wants its end.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shows progress and knows whether to stop. Clones share it.
#[derive(Clone, Debug)]
pub struct Progress {
    part: Arc<Mutex<Part>>,
    stop: Arc<AtomicBool>,
    is_shown: bool,
}

/// What is measured now.
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
    /// Progress of nothing yet; a signal handler may set `stop`.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { part: Arc::default(), stop, is_shown: stderr().is_terminal() }
    }

    /// A part of `steps` steps begins.
    pub fn begin(&self, what: &str, steps: u64) {
        let mut part = self.part();
        *part = Part { what: what.to_owned(), steps, done: 0 };
        self.show(&part);
    }

    /// So many more steps of the part are done.
    pub fn step(&self, steps: u64) {
        let mut part = self.part();
        let before = part.percent();
        part.done += steps;
        // A line for each step would be measured too.
        if part.percent() != before {
            self.show(&part);
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        self.write(CLEAR);
    }

    /// Whether somebody asked for the end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn show(&self, part: &Part) {
        self.write(&format!("{CLEAR}{} {} %", part.what, part.percent()));
    }

    fn write(&self, text: &str) {
        if self.is_shown {
            // The terminal may be closed meanwhile.
            let _ = stderr().lock().write_all(text.as_bytes());
        }
    }

    fn part(&self) -> MutexGuard<'_, Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// To the beginning of the line, and nothing in it (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[K";
