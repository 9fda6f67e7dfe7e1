//! `run`: the daemon.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::Failure;
use crate::config::{Config, Source};
use crate::conntrack::{Cleaned, Cleaner, Limits};
use crate::engine::Engine;
use crate::kernel::{Nftables, Writer};
use crate::model::{Event, Problem};
use crate::node::{set_conntrack, set_oom_score_adj};
use crate::observe::{Observe, Site, serve_at};
use crate::other_modes;
use crate::run::{Cleaning, Run, WithoutNode};
use crate::source::addresses::{follow_local_addresses, local_addresses};
use crate::source::files;
use crate::source::kube::{
    ApiServer, Contact, OnContact, Outlet, Report, follow_api_server, plural, write_notices,
};

/// Batches of events that may wait for the loop; then the source waits.
const EVENT_QUEUE: usize = 256;

/// Problems that may wait to be written to the API server; more are in the log alone.
const PROBLEM_QUEUE: usize = 64;

/// How long tasks get to end.
const STOP_TIME: Duration = Duration::from_millis(500);

/// How long the deletion of stale flows may take when the daemon stops. The next start finds the
/// rest.
const CLEAN_TIME: Duration = Duration::from_secs(2);

/// Follows the source and keeps the node's tables right until SIGTERM or SIGINT. The tables stay.
///
/// # Errors
/// What stops the daemon from starting.
pub fn run(config: Config, observe: Observe) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Failure::new)?;
    let outcome = runtime.block_on(run_until_stopped(config, observe));
    runtime.shutdown_timeout(STOP_TIME);
    outcome
}

async fn run_until_stopped(config: Config, observe: Observe) -> Result<(), Failure> {
    let kernel = Nftables::open().map_err(Failure::new)?;
    let mut engine = Engine::new(config.routing.clone(), kernel.table_flags());
    let known = local_addresses().map_err(Failure::new)?;
    engine.set_local_addresses(known.clone());
    let writer = Writer::spawn(kernel).map_err(Failure::new)?;

    let mut tasks = JoinSet::new();
    let (sender, addresses) = watch::channel(known);
    tasks.spawn(follow_local_addresses(sender));
    let sites =
        [(Site::Health, config.healthz_bind_address), (Site::Metrics, config.metrics_bind_address)];
    for (site, address) in sites {
        if let Some(address) = address {
            tasks.spawn(serve_at(observe.clone(), site, address));
        }
    }
    let (problems, notices) = mpsc::channel(PROBLEM_QUEUE);
    let events = start_source(&config, &mut tasks, (problems.clone(), notices), &observe)?;
    tracing::info!(node = config.node_name, "started");
    let own = observe.clone();
    let report = move |done: Cleaned| own.flows_cleaned(done.entries as u64, done.took);
    let (cleaner, lists) = Cleaner::spawn(Limits::default(), report).map_err(Failure::new)?;
    // The cleaner's socket loads nf_conntrack, and with it the sysctls.
    set_up_node(&config);
    let cleaner = Arc::new(cleaner);
    let requests = Arc::clone(&cleaner);
    let mut run = Run::new(engine, writer, events, observe, config.min_sync_period);
    run.addresses = Some(addresses);
    run.cleaning = Some(Cleaning::new(move |request| requests.handle(request), lists));
    run.leaving = Some(other_modes::remove_in_background().boxed());
    run.problems = Some(problems);
    run.without_node = without_node(&config.source);
    run.until(stop_signal()?).await.map_err(Failure::new)?;
    if !cleaner.finish(CLEAN_TIME) {
        tracing::warn!("stale UDP flows stay until the next start");
    }
    tracing::info!("stopped; the tables stay and go on working");
    tasks.abort_all();
    Ok(())
}

/// Applies the settings of the node beyond the tables; the daemon works without them. A socket of
/// conntrack must be open: it loads nf_conntrack, and with it the sysctls.
pub(super) fn set_up_node(config: &Config) {
    for error in set_conntrack(&config.conntrack) {
        tracing::warn!("{error}");
    }
    if let Some(score) = config.oom_score_adj
        && let Err(error) = set_oom_score_adj(score)
    {
        tracing::info!("/proc/self/oom_score_adj stays as it is, expected {score}: {error}");
    }
}

/// People who write manifests need not write one for the node; an API server always has it.
fn without_node(source: &Source) -> WithoutNode {
    match source {
        Source::Manifests(_) => WithoutNode::Fit,
        Source::Kubeconfig(_) | Source::InCluster => WithoutNode::Unfit,
    }
}

/// Starts what follows the source; events come out of the receiver. What is said to have been left
/// out is written to the API server too, if there is one.
fn start_source(
    config: &Config,
    tasks: &mut JoinSet<()>,
    (problems, notices): (mpsc::Sender<Problem>, mpsc::Receiver<Problem>),
    observe: &Observe,
) -> Result<mpsc::Receiver<Vec<Event>>, Failure> {
    let (sender, events) = mpsc::channel(EVENT_QUEUE);
    let server = match &config.source {
        Source::Manifests(path) => {
            // Problems are logged where they are found.
            let (problems, mut found) = mpsc::channel(PROBLEM_QUEUE);
            files::follow(path, &config.node_name, sender, problems).map_err(Failure::new)?;
            let observe = observe.clone();
            tasks.spawn(async move {
                while let Some(problems) = found.recv().await {
                    observe.problems(problems.len() as u64);
                }
            });
            return Ok(events);
        }
        Source::Kubeconfig(path) => ApiServer::Kubeconfig(path.clone()),
        Source::InCluster => ApiServer::InCluster,
    };
    let counted = observe.clone();
    let report = move |report| {
        match &report {
            Report::Recovered(_) | Report::Renewed => tracing::info!("{report}"),
            Report::Object(_) | Report::Trouble { .. } => tracing::warn!("{report}"),
        }
        if let Report::Object(problem) = report {
            counted.problems(1);
            let _ = problems.try_send(problem);
        }
    };
    let outlet = Outlet::new(sender, report, observed_contacts(observe.clone()));
    let (node, from, to) = (config.node_name.clone(), server.clone(), server);
    tasks.spawn(async move { follow_api_server(&from, &node, outlet).await });
    let node = config.node_name.clone();
    tasks.spawn(async move { write_notices(&to, &node, notices).await });
    Ok(events)
}

/// Leads what the watches hear to the metrics.
fn observed_contacts(observe: Observe) -> OnContact {
    Arc::new(move |resource, contact| match contact {
        Contact::Heard => observe.watch_heard(plural(resource)),
        Contact::Lost(reason) => observe.watch_lost(plural(resource), reason),
    })
}

/// Ready when the daemon is asked to stop.
pub(super) fn stop_signal() -> Result<impl Future<Output = ()> + Send + use<>, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::new)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::new)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
