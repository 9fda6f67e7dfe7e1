//! The API server as a source: four watches, each restarted after failures.
//!
//! Only this module uses the `kube` crate. Invariants: no answer of a server ends the program or
//! stops another resource; memory is bounded by one page of a list; no failure causes more than
//! about one request per second and resource.

mod access;
mod backoff;
mod careful;
mod client;
mod contact;
mod credentials;
mod error;
mod left_out;
mod line;
mod notices;
mod outages;
mod outlet;
mod patience;
mod rate_limit;
mod requests;
mod resources;
mod rest;
mod silence;
mod trouble;
mod watch;

use access::{Access, Keeper};
pub use client::{ApiServer, load_client};
pub use contact::{Contact, OnContact};
pub use error::SourceError;
use kube::runtime::watcher;
pub use line::Line;
pub use notices::write_notices;
pub use outages::Outages;
pub use outlet::{Outlet, Report, plural};
pub use requests::{OnRequest, Progress, Sent};
pub use rest::{Rest, RestError};
use tokio::task::JoinSet;
use watch::Watch;

use super::objects::{EndpointSlice, Node, Service, ServiceCidr};

/// Selectors of the Services that we route: not assigned to another proxy (KEP-2447), not headless.
const SERVICES: (&str, &str) =
    ("!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None");

/// Selector of the EndpointSlices of Services with a cluster IP.
const ENDPOINT_SLICES: &str = "!service.kubernetes.io/headless";

/// Time in seconds after which the server ends a watch normally.
const WATCH_SECONDS: u32 = 290;

/// Follows the API server for the node of that name until the outlet is closed.
///
/// Failures to load credentials are reported and retried, like an unreachable server. Credentials
/// are loaded again when their files change and when the server rejects them.
pub async fn follow_api_server(server: &ApiServer, node_name: &str, outlet: Outlet) {
    let mut keeper = Keeper::new(server, &outlet);
    let Ok(client) = keeper.first().await else { return };
    let (access, keeping) = keeper.share(client);
    tokio::select! {
        () = follow(&access, node_name, outlet) => {}
        () = keeping => {}
    }
}

/// Follows Services, EndpointSlices, ServiceCIDRs and the Node of that name.
///
/// Returns after the receiver of the outlet's events is dropped. For each resource, events have the
/// order of [`engine::model::Event`], in arrivals. `Relist` is repeated before `Listed` if the
/// connection breaks during a list.
async fn follow(access: &Access, node_name: &str, outlet: Outlet) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let services = config.clone().labels(SERVICES.0).fields(SERVICES.1);
    let slices = config.clone().labels(ENDPOINT_SLICES);
    let node = config.clone().fields(&format!("metadata.name={node_name}"));

    let mut watches = JoinSet::new();
    watches.spawn(Watch::<Service>::new(access, services, node_name, &outlet).run());
    watches.spawn(Watch::<EndpointSlice>::new(access, slices, node_name, &outlet).run());
    watches.spawn(Watch::<Node>::new(access, node, node_name, &outlet).run());
    watches.spawn(Watch::<ServiceCidr>::new(access, config, node_name, &outlet).run());
    watches.join_next().await;
}
