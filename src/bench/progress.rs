//! How far a run is, on standard error if that is a terminal; and whether somebody wants its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows progress and knows whether to stop. Clones share it.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// A bar that is shown once something begins; `stop` is set by somebody else.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { bar: ProgressBar::no_length(), stop }
    }

    /// A part of `steps` steps begins.
    pub fn begin(&self, what: &str, steps: u64) {
        let style = ProgressStyle::with_template("{msg:44} {bar:30} {pos}/{len} {elapsed}");
        if let Ok(style) = style {
            self.bar.set_style(style);
        }
        self.bar.reset();
        self.bar.set_length(steps);
        self.bar.set_message(what.to_owned());
    }

    /// So many more steps of the part are done.
    pub fn step(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Whether somebody asked for the end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
