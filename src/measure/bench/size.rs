//! One size of cluster, from the empty table to the last row.

use std::time::Duration;

use super::baseline::{Baseline, Turns};
use super::change::Changes;
use super::cluster::Cluster;
use super::error::BenchError;
use super::memory;
use super::pace::Pace;
use super::pipeline::Pipeline;
use super::report::SizeReport;
use super::settings::BenchSettings;
use super::spreads::Spreads;
use super::watch_frame::WatchFrame;
use crate::figures::{Progress, Row, Unit};

/// Numbers of endpoints of the services that are measured as large ones. One endpoint more than the
/// second puts its endpoint list into another size class.
const LARGE: [u32; 2] = [5_000, 4_096];

/// Objects of a list that are applied together, as by the source.
const GROUP: u32 = 256;

/// Measures one size in the present network namespace, and replaces the content of its tables.
///
/// # Errors
/// See [`BenchError`]. A requested stop is not an error: the report records it.
pub fn measure(
    settings: &BenchSettings,
    services: u32,
    progress: &Progress,
) -> Result<SizeReport, BenchError> {
    let mut bench = Bench::new(settings, services, progress);
    let measured = bench.all();
    progress.clear();
    bench.report.interrupted = progress.is_stopped();
    // Ctrl-C also ends a running nft, which then fails.
    if !bench.report.interrupted {
        measured?;
    }
    Ok(bench.report)
}

/// State of a run.
pub(super) struct Bench<'a> {
    pub(super) settings: &'a BenchSettings,
    pub(super) progress: &'a Progress,
    pub(super) cluster: Cluster,
    pub(super) changes: Changes,
    pub(super) report: SizeReport,
}

impl<'a> Bench<'a> {
    fn new(settings: &'a BenchSettings, services: u32, progress: &'a Progress) -> Self {
        let cluster =
            Cluster::new(services, settings.endpoints, settings.distribution, settings.seed);
        let changes = Changes::new(&cluster, settings.mix, settings.seed);
        let endpoints = cluster.endpoints();
        let report = SizeReport { services, endpoints, ..SizeReport::default() };
        Self { settings, progress, cluster, changes, report }
    }

    fn all(&mut self) -> Result<(), BenchError> {
        let mut pipeline = self.load()?;
        if self.progress.is_stopped() {
            return Ok(());
        }
        drop(pipeline);
        pipeline = self.start_again()?;
        let baseline = self.load_baseline()?;
        self.change_one_by_one(&mut pipeline, baseline.as_ref())?;
        LARGE.iter().try_for_each(|count| self.change_large_service(&mut pipeline, *count))?;
        // The socket of its kernel owns the tables.
        drop(pipeline);
        self.live(baseline)
    }

    /// Loads everything into the empty table.
    fn load(&mut self) -> Result<Pipeline, BenchError> {
        let mut pipeline = Pipeline::open()?;
        let loaded = pipeline.load(self.objects("everything into an empty table"))?;
        let rows = [
            seconds("all objects parsed", loaded.parsed),
            seconds("empty table: all loaded", loaded.applied + loaded.converged),
            seconds("empty table: in the kernel", loaded.in_kernel),
            milliseconds("empty table: longest commit", loaded.longest),
            Row::count("empty table: transactions", loaded.transactions),
        ];
        self.report.rows.extend(rows);
        if let Some([now, most]) = memory::resident() {
            self.report.rows.push(Row::single("memory: all services loaded", Unit::Megabytes, now));
            self.report.rows.push(Row::single("memory at most", Unit::Megabytes, most));
        }
        Ok(pipeline)
    }

    /// Measures a new process that finds the tables up to date.
    fn start_again(&mut self) -> Result<Pipeline, BenchError> {
        let mut pipeline = Pipeline::open()?;
        let loaded = pipeline.load(self.objects("start on the existing table"))?;
        let ready = loaded.parsed + loaded.applied + loaded.read_back + loaded.converged;
        let rows = [
            seconds("start again: ready", ready),
            seconds("start again: tables read back", loaded.read_back),
            Row::count("start again: transactions", loaded.transactions),
        ];
        self.report.rows.extend(rows);
        Ok(pipeline)
    }

    /// Returns the frames of all objects, some hundred at a time, until a requested stop.
    pub(super) fn objects(&mut self, what: &str) -> impl Iterator<Item = Vec<WatchFrame>> {
        let services = self.cluster.services();
        self.progress.begin(what, services.into());
        let (cluster, progress) = (&mut self.cluster, self.progress);
        let node = cluster.node(None);
        let added: Vec<WatchFrame> =
            self.changes.added().iter().flat_map(|service| cluster.whole(*service)).collect();
        let groups = (0..services.div_ceil(GROUP)).map_while(move |group| {
            let numbers = group * GROUP..services.min((group + 1) * GROUP);
            progress.step(numbers.len() as u64);
            let frames: Vec<WatchFrame> = numbers.flat_map(|n| cluster.whole(n)).collect();
            (!progress.is_stopped()).then_some(frames)
        });
        [vec![node], added].into_iter().chain(groups)
    }

    /// Loads kube-proxy's layout in a second namespace, if requested.
    fn load_baseline(&mut self) -> Result<Option<Baseline>, BenchError> {
        if !self.settings.baseline {
            return Ok(None);
        }
        self.progress.begin("kube-proxy's layout, loaded by nft", 1);
        let baseline = Baseline::new()?;
        let took = baseline.load(&self.cluster, self.progress)?;
        self.report.rows.extend(took.map(|took| seconds("kube-proxy's layout: all loaded", took)));
        Ok(Some(baseline))
    }

    fn change_one_by_one(
        &mut self,
        pipeline: &mut Pipeline,
        baseline: Option<&Baseline>,
    ) -> Result<(), BenchError> {
        self.progress.begin("one change after the other", self.settings.changes.into());
        let mut spreads = Spreads::default();
        let mut pace = Pace::new(self.settings.rate);
        let mut beside = baseline.map(|baseline| Turns::new(baseline, self.settings.changes));
        for _ in 0..self.settings.changes {
            if self.progress.is_stopped() {
                break;
            }
            let change = self.changes.next(&mut self.cluster);
            pace.wait();
            let stages = pipeline.change(&change.frames)?;
            self.report.committed += u32::from(stages.transactions > 0);
            spreads.add_change(change.deed, &stages);
            if let Some(beside) = &mut beside {
                beside.change(&mut self.cluster, &change)?;
            }
            self.progress.step(1);
        }
        self.report.rows.extend(beside.iter().flat_map(Turns::rows));
        self.report.rows.extend(spreads.rows_of_changes());
        Ok(())
    }

    /// Measures changes of one endpoint of a service with thousands.
    fn change_large_service(
        &mut self,
        pipeline: &mut Pipeline,
        count: u32,
    ) -> Result<(), BenchError> {
        let rounds = self.settings.changes.min(1_000);
        let name = format!("one of {count} endpoints");
        self.progress.begin(&name, rounds.into());
        let change = self.changes.add_service(&mut self.cluster, count);
        pipeline.change(&change.frames)?;
        let mut spreads = Spreads::default();
        let mut pace = Pace::new(self.settings.rate);
        for _ in 0..rounds {
            if self.progress.is_stopped() {
                break;
            }
            let one = self.changes.endpoint_of(&mut self.cluster, change.service);
            pace.wait();
            spreads.add(&name, &pipeline.change(&one.frames)?);
            self.progress.step(1);
        }
        self.report.rows.extend(spreads.rows(&name));
        Ok(())
    }
}

pub(super) fn seconds(name: &str, duration: Duration) -> Row {
    Row::single(name, Unit::Seconds, duration.as_secs_f64())
}

pub(super) fn milliseconds(name: &str, duration: Duration) -> Row {
    Row::single(name, Unit::Milliseconds, duration.as_secs_f64() * 1e3)
}
