//! The objects to compare the tables with: those of manifests, or those of an API server.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli::Failure;
use crate::engine::Engine;
use crate::model::{Event, Resource};
use crate::source::addresses::local_addresses;
use crate::source::kube::{ApiServer, Outlet, Report, follow_api_server};

/// How long the server may be silent before everything is listed.
const LIMIT: Duration = Duration::from_secs(30);

/// The same when ServiceCIDRs alone are missing: servers may forbid them or have none.
const SERVICE_CIDRS_LIMIT: Duration = Duration::from_secs(3);

/// Batches of events on their way.
const QUEUE: usize = 64;

/// What comes from the API server.
enum News {
    Events(Vec<Event>),
    /// Why the server cannot be used.
    Trouble(String),
    /// What was left out of an object.
    LeftOut(String),
}

/// An API server that is followed.
pub(super) struct Followed {
    runtime: Runtime,
    news: mpsc::Receiver<News>,
    /// What was left out of objects.
    pub(super) left_out: Vec<String>,
}

impl Followed {
    /// Reads all objects into an engine, and follows their changes from then on.
    ///
    /// # Errors
    /// The server cannot be used, or is silent for too long.
    pub(super) fn start(
        server: ApiServer,
        node_name: String,
        engine: &mut Engine,
    ) -> Result<Self, Failure> {
        server.check().map_err(Failure::new)?;
        engine.set_local_addresses(local_addresses().map_err(Failure::new)?);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Failure::new)?;
        let (sender, news) = mpsc::channel(QUEUE);
        let (events, mut batches) = mpsc::channel(QUEUE);
        let reports = sender.clone();
        let report = move |report| {
            let news = match report {
                // The limit below decides.
                Report::Trouble { resource: Some(Resource::ServiceCidrs), .. } => return,
                Report::Trouble { error, .. } => News::Trouble(error.to_string()),
                Report::Object(problem) => News::LeftOut(problem.to_string()),
                Report::Recovered(_) | Report::Renewed => return,
            };
            // A full queue has enough to say.
            let _ = reports.try_send(news);
        };
        let outlet = Outlet::new(events, report, Arc::new(|_, _| ()), Arc::new(|_, _| ()));
        runtime.spawn(async move { follow_api_server(&server, &node_name, outlet).await });
        runtime.spawn(async move {
            while let Some(batch) = batches.recv().await {
                if sender.send(News::Events(batch.events)).await.is_err() {
                    break;
                }
            }
        });
        let mut followed = Self { runtime, news, left_out: Vec::new() };
        followed.list(engine)?;
        Ok(followed)
    }

    fn list(&mut self, engine: &mut Engine) -> Result<(), Failure> {
        while !engine.is_listed() {
            let cidrs_alone = engine.cluster().unlisted().eq([Resource::ServiceCidrs]);
            let limit = if cidrs_alone { SERVICE_CIDRS_LIMIT } else { LIMIT };
            match self.runtime.block_on(async { timeout(limit, self.news.recv()).await }) {
                Ok(Some(News::Events(events))) => drop(engine.apply(events)),
                Ok(Some(News::LeftOut(problem))) => self.left_out.push(problem),
                Ok(Some(News::Trouble(error))) => return Err(Failure(vec![error])),
                Err(_) if cidrs_alone => {
                    engine.apply([Event::Listed(Resource::ServiceCidrs)]);
                }
                Ok(None) | Err(_) => {
                    let limit = limit.as_secs();
                    let error = format!("the API server listed not everything within {limit} s");
                    return Err(Failure(vec![error]));
                }
            }
        }
        Ok(())
    }

    /// Takes in what has changed meanwhile.
    pub(super) fn catch_up(&mut self, engine: &mut Engine) {
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Events(events) => drop(engine.apply(events)),
                News::LeftOut(problem) => self.left_out.push(problem),
                // The comparison is with what it said before.
                News::Trouble(_) => {}
            }
        }
    }
}
