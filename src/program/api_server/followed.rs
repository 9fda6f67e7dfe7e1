//! Objects of an API server, to compare the tables with.

use std::sync::Arc;
use std::time::Duration;

use daemon::config::Config;
use daemon::source::Wanted;
use daemon::source::addresses::local_addresses;
use daemon::source::kube::{Outlet, SourceReport, follow_api_server};
use engine::Engine;
use engine::model::{Arrival, Event, Resource};
use engine::printable::Printable;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::server::{formats_of, server_of};
use crate::failure::Failure;
use crate::threads;

/// Longest silence of the server until everything is listed.
const LIMIT: Duration = Duration::from_secs(30);

/// Likewise if only ServiceCIDRs are missing: servers may forbid them or lack them.
const SERVICE_CIDRS_LIMIT: Duration = Duration::from_secs(3);

/// Capacity of the queues of batches and reports.
const QUEUE: usize = 64;

/// An API server under watch.
pub(crate) struct Followed {
    runtime: Runtime,
    batches: mpsc::Receiver<Arrival>,
    reports: mpsc::Receiver<SourceReport>,
    /// Parts of objects that were left out.
    left_out: Vec<String>,
}

enum News {
    Arrival(Arrival),
    Report(SourceReport),
}

impl Followed {
    /// Reads all objects into an engine, and watches their changes from then on.
    ///
    /// # Errors
    /// The server cannot be used, or is silent for too long.
    pub(crate) fn start(config: &Config, engine: &mut Engine) -> Result<Self, Failure> {
        let server = server_of(&config.source)?;
        let (node, routing) = (config.node_name.clone(), config.routing.clone());
        server.check().map_err(Failure::new)?;
        engine.set_local_addresses(local_addresses().map_err(Failure::new)?);
        let runtime = threads::runtime(1, 0)?;
        let (events, batches) = mpsc::channel(QUEUE);
        let (sender, reports) = mpsc::channel(QUEUE);
        // If the queue is full, its reports suffice.
        let report = move |report| drop(sender.try_send(report));
        let outlet = Outlet::new(events, report, Arc::new(|_, _| ()), Arc::new(|_, _| ()));
        let formats = formats_of(config);
        runtime.spawn(async move {
            follow_api_server(&server, Wanted::new(&node, &routing), formats, outlet).await;
        });
        let mut followed = Self { runtime, batches, reports, left_out: Vec::new() };
        followed.list(engine)?;
        Ok(followed)
    }

    fn list(&mut self, engine: &mut Engine) -> Result<(), Failure> {
        while !engine.is_listed() {
            let cidrs_alone = engine.cluster().unlisted().eq([Resource::ServiceCidrs]);
            let limit = if cidrs_alone { SERVICE_CIDRS_LIMIT } else { LIMIT };
            match self.next(limit) {
                Some(News::Arrival(batch)) => drop(engine.apply(batch.events)),
                // The time limit handles these.
                Some(News::Report(SourceReport::Trouble {
                    resource: Some(Resource::ServiceCidrs),
                    ..
                })) => {}
                Some(News::Report(SourceReport::Trouble { error, server, .. })) => {
                    let at = server.map(|it| format!("{}: ", Printable(&it))).unwrap_or_default();
                    return Err(Failure::new(format!("{at}{error}")));
                }
                Some(News::Report(report)) => self.note(&report),
                None if cidrs_alone => {
                    engine.apply([Event::Listed(Resource::ServiceCidrs)]);
                }
                None => {
                    let limit = limit.as_secs();
                    let error = format!("the API server listed not everything within {limit} s");
                    return Err(Failure::new(error));
                }
            }
        }
        Ok(())
    }

    /// Returns the next message; `None` without one within `limit`.
    fn next(&mut self, limit: Duration) -> Option<News> {
        let (batches, reports) = (&mut self.batches, &mut self.reports);
        self.runtime.block_on(async {
            let next = async {
                tokio::select! {
                    batch = batches.recv() => batch.map(News::Arrival),
                    report = reports.recv() => report.map(News::Report),
                }
            };
            timeout(limit, next).await.ok().flatten()
        })
    }

    /// Applies all changes so far. If the server is unreachable, its last objects are used.
    pub(crate) fn catch_up(&mut self, engine: &mut Engine) {
        while let Ok(batch) = self.batches.try_recv() {
            engine.apply(batch.events);
        }
        while let Ok(report) = self.reports.try_recv() {
            self.note(&report);
        }
    }

    /// Returns the parts of objects that were left out.
    pub(crate) fn left_out(self) -> Vec<String> {
        self.left_out
    }

    fn note(&mut self, report: &SourceReport) {
        if let SourceReport::Object(problem) = report {
            self.left_out.push(problem.to_string());
        }
    }
}
