//! Content of one screen. Its texts have no control characters, but those of rows, which cells
//! escape.

use std::time::Duration;

use super::scrape::{COUNTERS, Percentile, TIMES};
use super::status::ProblemStatus;
use crate::show::{BusyService, DrainingEndpoint, Top};

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
    /// With the time since each.
    pub(super) problems: Top<(Duration, ProblemStatus)>,
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
    pub(super) connections: Option<ConnectionsSample>,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// Connections of our services.
#[derive(Clone, Debug)]
pub struct ConnectionsSample {
    /// First services in the requested order.
    pub services: Top<BusyService>,
    /// The draining endpoints with the most connections.
    pub draining: Top<DrainingEndpoint>,
    /// Time in which `began` was counted; `None` if it was not counted.
    pub since: Option<Duration>,
}

impl ConnectionsSample {
    /// Leaves the first rows of each list.
    pub(super) fn truncate(&mut self, most: usize) {
        self.services.rows.truncate(most);
        self.draining.rows.truncate(most);
    }
}

/// Returns the lengths of the lists, in the order of [`ScreenList::ALL`](super::ScreenList::ALL); `None` for a
/// hidden list.
pub(super) fn lengths(view: &TopView) -> [Option<usize>; 3] {
    let connections = view.kernel.as_ref().ok().and_then(|it| it.connections.as_ref());
    [
        connections.map(|it| it.services.rows.len()),
        connections.map(|it| it.draining.rows.len()),
        view.daemon.as_ref().ok().map(|it| it.problems.rows.len()),
    ]
}
