//! The API server as a source: four watches, each restarted until it works.
//!
//! This is the only place that names the `kube` crate. What must stay true: nothing that a server
//! answers ends the program or stops another resource; memory is bounded by one page of a list;
//! and no failure, however quick, makes more than about one request a second for each resource.

mod access;
mod backoff;
mod careful;
mod client;
mod contact;
mod credentials;
mod error;
mod line;
mod notices;
mod outlet;
mod pace;
mod requests;
mod rest;
mod silence;
mod trouble;
mod watch;

pub use client::{ApiServer, load_client};
pub use contact::{Contact, OnContact};
pub use error::SourceError;
use kube::runtime::watcher;
pub use line::Line;
pub use notices::{Notice, write_notices};
pub use outlet::{Outlet, Report, plural};
pub use requests::{OnRequest, Progress, Sent};
pub use rest::{Rest, RestError};
use tokio::task::JoinSet;

use super::objects::{EndpointSlice, Node, Service, ServiceCidr};
use access::{Access, Keeper};
use watch::Watch;

/// Selects the Services that are ours: not handed to another proxy (KEP-2447), not headless.
const SERVICES: (&str, &str) =
    ("!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None");

/// Selects the EndpointSlices of Services that have a cluster IP.
const ENDPOINT_SLICES: &str = "!service.kubernetes.io/headless";

/// How long the server keeps one watch open before it ends it in good order.
const WATCH_SECONDS: u32 = 290;

/// Follows the API server for the node of that name until the outlet is closed.
///
/// Credentials that cannot be loaded are reported and tried again, like a server that is away.
/// They are loaded again when their files have changed, and when the server rejects them.
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
/// Returns when the receiver of the outlet's events is gone.
/// For each resource, events come as [`crate::model::Event`] says, in batches. `Relist` can come
/// again before `Listed`, if the connection was lost in the middle of a list.
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
