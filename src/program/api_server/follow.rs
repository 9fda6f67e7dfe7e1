//! The API server as the source of the daemon.

use std::sync::Arc;
use std::time::Duration;

use daemon::config::Config;
use daemon::node_readiness::{ReadinessReporter, remove_condition};
use daemon::observe::{Finder, LeftOut, Observe};
use daemon::source::Wanted;
use daemon::source::kube::{
    Contact, OnContact, OnRequest, Outages, Outlet, Progress, SourceReport, follow_api_server,
    plural, write_notices,
};
use daemon::source::notice::Notice;
use engine::model::{Arrival, HostAddresses};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::server::{formats_of, server_of};
use crate::clock::now;
use crate::failure::Failure;
use crate::threads;

/// Time limit for writing the last Event.
const LAST_EVENT_TIME: Duration = Duration::from_secs(5);

/// Starts to follow the API server of the configuration; its events go to `sender`, whose node has
/// tables of an earlier daemon or not. Problems of objects are also written to it as Events, as are
/// the notices of others.
///
/// # Errors
/// The source is not an API server.
pub(crate) fn follow(
    (config, has_tables): (&Config, bool),
    tasks: &mut JoinSet<()>,
    (sender, addresses): (mpsc::Sender<Arrival>, watch::Sender<HostAddresses>),
    (notices, written): (mpsc::Sender<Notice>, mpsc::Receiver<Notice>),
    observe: &Observe,
) -> Result<(), Failure> {
    let server = server_of(&config.source)?;
    observe.awaits_source(now());
    let outages = Outages::default();
    let (counted, noted) = (observe.clone(), outages.clone());
    tasks.spawn(outages.log());
    let report = move |report| {
        noted.note(&report);
        match &report {
            SourceReport::Renewed => tracing::info!("{report}"),
            // Two places, each with a rate of its own.
            SourceReport::Object(_) => tracing::warn!("{report}"),
            SourceReport::Trouble { resource: None, .. } => tracing::warn!("{report}"),
            // Failures of watches are logged together.
            SourceReport::Trouble { resource: Some(_), .. } => tracing::debug!("{report}"),
            SourceReport::Present(..) | SourceReport::Recovered { .. } => {}
        }
        match report {
            SourceReport::Object(problem) => {
                counted.left_out(LeftOut::from(&problem));
                let _ = notices.try_send(Notice::LeftOut(problem));
            }
            SourceReport::Present(object, problems) => {
                let problems: Vec<_> = problems.iter().map(LeftOut::from).collect();
                let object = object.to_string();
                // Those of all objects are over soon, and stay among the solved ones.
                if object.ends_with(" *") {
                    problems.iter().cloned().for_each(|problem| counted.left_out(problem));
                }
                counted.present(Finder::Source, &object, problems);
            }
            SourceReport::Trouble { .. }
            | SourceReport::Recovered { .. }
            | SourceReport::Renewed => {}
        }
    };
    let (contacts, requests) = (observed_contacts(observe.clone()), observed_requests(observe));
    let mut outlet = Outlet::new(sender, report, contacts, Arc::clone(&requests));
    (outlet.addresses, outlet.has_objects) = (Some(addresses), has_tables);
    if config.node_readiness.is_on() {
        let (sender, created) = watch::channel(0);
        outlet.node_created = Some(sender);
        let reporter = ReadinessReporter {
            settings: config.node_readiness,
            node_name: config.node_name.clone(),
            server: server.clone(),
            requests: Arc::clone(&requests),
            observe: observe.clone(),
            created,
            has_tables,
        };
        tasks.spawn(reporter.run());
    }
    let (node, routing) = (config.node_name.clone(), config.routing.clone());
    let (from, to, formats) = (server.clone(), server, formats_of(config));
    tasks.spawn(async move {
        follow_api_server(&from, Wanted::new(&node, &routing), formats, outlet).await;
    });
    let node = config.node_name.clone();
    tasks.spawn(async move { write_notices(&to, &node, written, requests).await });
    Ok(())
}

/// Writes an Event before the daemon ends, if the API server answers soon.
pub(crate) async fn write_last(config: &Config, notice: Notice, observe: &Observe) {
    let Ok(server) = server_of(&config.source) else { return };
    let (notices, written) = mpsc::channel(1);
    // The queue is empty and its receiver exists, so sending succeeds.
    let _ = notices.try_send(notice);
    drop(notices);
    let requests = observed_requests(observe);
    let writing = write_notices(&server, &config.node_name, written, requests);
    let _ = timeout(LAST_EVENT_TIME, writing).await;
}

/// Removes the condition of this node's Node, if the configuration has it. Returns a line if there was
/// one.
///
/// # Errors
/// The API server refused it or did not answer.
pub(crate) fn remove_node_condition(config: &Config) -> Result<Option<String>, Failure> {
    if !config.node_readiness.condition {
        return Ok(None);
    }
    let (server, node) = (server_of(&config.source)?, &config.node_name);
    let removed = threads::runtime(1, 0)?.block_on(remove_condition(&server, node));
    let name = removed.map_err(Failure::new)?;
    Ok(name.map(|name| format!("removed condition {name} of node {node}\n")))
}

/// Returns a function that records contacts of the watches in the metrics.
fn observed_contacts(observe: Observe) -> OnContact {
    Arc::new(move |resource, contact| match contact {
        Contact::Heard => observe.watch_heard(plural(resource), now()),
        Contact::Lost(reason) => observe.watch_lost(plural(resource), reason),
    })
}

/// Returns a function that records requests in the metrics.
fn observed_requests(observe: &Observe) -> OnRequest {
    let observe = observe.clone();
    Arc::new(move |sent, progress| {
        let (target, metrics) = ([sent.method.as_str(), &*sent.host], &observe.metrics().server);
        match progress {
            Progress::Answered { size, code } => metrics.answered(target, size, code),
            Progress::Done { took, size } => metrics.took(target, took, size),
        }
    })
}
