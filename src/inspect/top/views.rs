//! Content of one screen. Its texts have no control characters.

use std::time::Duration;

use super::scrape::{COUNTERS, Percentile, TIMES};
use crate::show::Top;

/// Content of one screen.
#[derive(Clone, Debug)]
pub struct TopView {
    /// Report of the daemon, or why it is absent.
    pub daemon: Result<DaemonView, String>,
    /// State of the kernel, or why it cannot be read.
    pub kernel: Result<KernelView, String>,
}

/// Report of the daemon.
#[derive(Clone, Debug, Default)]
pub struct DaemonView {
    pub(super) node: String,
    pub(super) source: String,
    pub(super) version: String,
    pub(super) up: Duration,
    /// Whether the daemon is ready, and what is wrong.
    pub(super) condition: String,
    /// Nothing is wrong.
    pub(super) is_good: bool,
    pub(super) families: Vec<StateRow>,
    pub(super) watches: Vec<StateRow>,
    pub(super) problems: Top<ProblemRow>,
    /// Per second, over [`Self::span`].
    pub(super) rates: Option<[f64; COUNTERS.len()]>,
    /// Time span of rates and recent times; `None` in the first view.
    pub(super) span: Option<Duration>,
    pub(super) times: [TimesRow; TIMES.len()],
}

/// A watch, or the table of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateRow {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) is_good: bool,
    /// Time since its last message or commit.
    pub(super) age: Option<Duration>,
}

/// Times of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TimesRow {
    /// Of the last seconds; `None` in the first view.
    pub(super) recent: Option<Times>,
    /// Since the start of the daemon.
    pub(super) all: Times,
}

/// A count of times and two of their percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) count: f64,
    pub(super) p50: Option<Percentile>,
    pub(super) p99: Option<Percentile>,
}

/// An object, or a part of it, that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProblemRow {
    /// The object is left out now.
    pub(super) is_present: bool,
    pub(super) age: Duration,
    pub(super) count: u64,
    pub(super) object: String,
    pub(super) field: String,
    pub(super) message: String,
}

/// State of the kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelView {
    /// Number of frontends in the tables.
    pub(super) frontends: usize,
    /// Commits of all programs.
    pub(super) commits_per_second: Option<f64>,
    /// Time span of `commits_per_second`.
    pub(super) span: Option<Duration>,
    /// Missing data.
    pub(super) notes: Vec<String>,
    /// `None` if conntrack cannot be read.
    pub(super) services: Option<Top<ServiceRow>>,
    /// `None` if conntrack cannot be read.
    pub(super) draining: Option<Top<DrainingRow>>,
}

/// A port of a service with connections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServiceRow {
    pub(super) service: String,
    pub(super) address: String,
    pub(super) began_per_second: Option<f64>,
    pub(super) active: u32,
    pub(super) new: u32,
    pub(super) ended: u32,
    pub(super) endpoints: usize,
    pub(super) draining: u32,
}

/// An endpoint that is draining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DrainingRow {
    pub(super) service: String,
    pub(super) address: String,
    pub(super) endpoint: String,
    pub(super) connections: u32,
    pub(super) oldest: Option<Duration>,
}

/// Returns the lengths of the lists, in the order of [`ScreenList::ALL`](super::ScreenList::ALL); `None` for a
/// hidden list.
pub(super) fn lengths(view: &TopView) -> [Option<usize>; 3] {
    let kernel = view.kernel.as_ref().ok();
    [
        kernel.and_then(|it| it.services.as_ref()).map(|it| it.rows.len()),
        kernel.and_then(|it| it.draining.as_ref()).map(|it| it.rows.len()),
        view.daemon.as_ref().ok().map(|it| it.problems.rows.len()),
    ]
}
