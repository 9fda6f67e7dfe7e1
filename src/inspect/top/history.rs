//! Builds views from samples: rates and recent times need earlier samples.

use std::time::Duration;

use engine::printable::Printable;
use nft::kernel::Generation;

use super::scrape::{Histogram, Scrape};
use super::status::Status;
use super::views::{ConnectionsSample, DaemonView, KernelView, StateRow, Times, TimesRow, TopView};
use super::window::Window;
use crate::show::Top;

/// Most rows of a list.
pub const ROWS: usize = 200;

/// A sample: everything that was read at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Monotonic time.
    pub at: Duration,
    /// Time since 1970.
    pub now: Duration,
    /// Report of the daemon, or why it is absent.
    pub daemon: Result<Report, String>,
    /// State of the kernel, or why it cannot be read.
    pub kernel: Result<KernelSample, String>,
}

/// Answers of the daemon's metrics port.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// `/status.json`.
    pub status: Status,
    /// `/metrics`.
    pub metrics: Scrape,
}

/// State of the kernel.
#[derive(Clone, Debug)]
pub struct KernelSample {
    /// Number of the last commit.
    pub generation: Generation,
    /// Number of frontends in the tables.
    pub frontends: usize,
    /// Missing data, one sentence each.
    pub notes: Vec<String>,
    /// Connections; `None` if conntrack cannot be read.
    pub connections: Option<ConnectionsSample>,
}

/// Samples of the last seconds.
#[derive(Debug, Default)]
pub struct History {
    metrics: Window<Scrape>,
    generations: Window<Generation>,
}

impl History {
    /// Adds a sample and returns the view after it.
    pub fn add(&mut self, sample: Sample) -> TopView {
        let Sample { at, now, daemon, kernel } = sample;
        TopView {
            daemon: daemon.map(|report| self.add_report(at, report)).map_err(|why| {
                self.metrics.clear();
                printable(&why)
            }),
            kernel: kernel.map(|kernel| self.add_kernel((at, now), kernel)).map_err(|why| {
                self.generations.clear();
                printable(&why)
            }),
        }
    }

    fn add_report(&mut self, at: Duration, report: Report) -> DaemonView {
        let Report { status, metrics } = report;
        self.metrics.add(at, metrics);
        let Some((oldest, newest, span)) = self.metrics.ends() else {
            return daemon_view(&status, self.metrics.newest(), None);
        };
        let Some(added) = newest.since(oldest) else {
            // The daemon was restarted.
            let newest = newest.clone();
            self.metrics.clear();
            self.metrics.add(at, newest);
            return daemon_view(&status, self.metrics.newest(), None);
        };
        daemon_view(&status, Some(newest), Some((&added, span)))
    }

    fn add_kernel(&mut self, (at, now): (Duration, Duration), sample: KernelSample) -> KernelView {
        self.generations.add(at, sample.generation);
        let ends = self.generations.ends();
        let commits = ends.map(|(oldest, newest, span)| {
            f64::from(newest.0.wrapping_sub(oldest.0)) / span.as_secs_f64()
        });
        let mut connections = sample.connections;
        connections.iter_mut().for_each(|it| it.truncate(ROWS));
        KernelView {
            frontends: sample.frontends,
            commits_per_second: commits,
            span: ends.map(|(.., span)| span),
            notes: sample.notes.iter().map(|note| printable(note)).collect(),
            connections,
            now,
        }
    }
}

fn daemon_view(
    status: &Status,
    all: Option<&Scrape>,
    recent: Option<(&Scrape, Duration)>,
) -> DaemonView {
    let since = |at_ms: u64| Duration::from_millis(status.now_ms.saturating_sub(at_ms));
    let watches = status.watches.iter().take(ROWS).map(|watch| StateRow {
        name: watch.resource.split('.').next().unwrap_or_default().to_owned(),
        state: match (watch.connected, &watch.reason) {
            (true, _) => "connected".to_owned(),
            (false, Some(reason)) => format!("lost: {reason}"),
            (false, None) => "not connected".to_owned(),
        },
        is_good: watch.connected,
        age: watch.heard_ms.map(since),
    });
    let families = status.families.iter().take(ROWS).map(|family| StateRow {
        name: family.family.clone(),
        state: match (family.programmed, &family.blocked) {
            (true, _) => "programmed".to_owned(),
            (false, Some(blocked)) => blocked.clone(),
            (false, None) => "not programmed".to_owned(),
        },
        is_good: family.programmed,
        age: family.synced_ms.map(since),
    });
    let problems = status.problems.iter().take(ROWS);
    let problems = problems.map(|problem| (since(problem.at_ms), problem.clone())).collect();
    let of =
        |scrape: Option<&Scrape>, place: usize| scrape.map(|scrape| times(&scrape.times()[place]));
    let row = |place| TimesRow {
        recent: of(recent.map(|(scrape, _)| scrape), place),
        all: of(all, place).unwrap_or_default(),
    };
    DaemonView {
        node: printable(status.node.as_deref().unwrap_or_default()),
        source: printable(status.source.as_deref().unwrap_or_default()),
        version: printable(&status.version),
        up: since(status.started_ms),
        condition: condition(status),
        is_good: status.good,
        families: families.collect(),
        watches: watches.collect(),
        problems: Top { rows: problems, count: status.problems.len() },
        rates: recent.map(|(added, span)| added.counters().map(|count| count / span.as_secs_f64())),
        span: recent.map(|(_, span)| span),
        times: std::array::from_fn(row),
    }
}

/// Returns the line of the daemon; older ones have none.
fn condition(status: &Status) -> String {
    match (&status.condition, status.ready) {
        (Some(condition), _) => printable(condition),
        (None, true) => "ready".to_owned(),
        (None, false) => "not ready".to_owned(),
    }
}

fn times(histogram: &Histogram) -> Times {
    Times {
        count: histogram.count(),
        p50: histogram.percentile(50.0),
        p99: histogram.percentile(99.0),
    }
}

fn printable(text: &str) -> String {
    Printable(text).to_string()
}
