//! The API server as a source: four watches, each restarted after failures.
//!
//! Only this module uses the `kube` crate. Invariants: no answer of a server ends the program or
//! stops another resource; the lists have a limit of memory; no failure causes more than about one
//! request per second and resource.

mod access;
mod answer;
mod backoff;
mod client;
mod contact;
mod credentials;
mod faulty_objects;
mod format;
mod frames;
mod headers;
mod kubeconfig;
mod limited;
mod line;
mod notices;
mod outages;
mod outlet;
mod p521;
mod parsed;
mod patience;
mod plugin;
#[cfg(test)]
mod recorded;
mod reflector;
mod request_counts;
mod resources;
mod rest;
mod retry;
mod room;
mod route;
mod server_addresses;
mod settings;
mod silence;
mod source_error;
mod tls;
mod turns;
mod url;
mod watch;

use access::{Access, Keeper};
pub use backoff::{Backoff, random};
pub use client::{ApiServer, load_client};
pub use contact::{Contact, OnContact};
pub use format::Formats;
pub use line::{Line, LineError};
pub use notices::write_notices;
pub use outages::Outages;
pub use outlet::{Outlet, SourceReport, plural};
use reflector::Selection;
pub use request_counts::{OnRequest, Progress, Sent};
pub use rest::{RestClient, RestError};
pub use source_error::SourceError;
use tokio::task::JoinSet;
use watch::Watch;

use super::Wanted;
use super::objects::{EndpointSlice, Node, Service, ServiceCidr};

/// Field selector of the Services that are not headless.
const SERVICES: &str = "spec.clusterIP!=None";

/// Selector of the EndpointSlices of Services with a cluster IP.
const ENDPOINT_SLICES: &str = "!service.kubernetes.io/headless";

/// Follows the API server for one node, until the outlet is closed. Objects are requested in
/// `formats`.
///
/// Failures to load credentials are reported and retried, like an unreachable server. Credentials
/// are loaded again when their files change and when the server rejects them.
pub async fn follow_api_server(
    server: &ApiServer,
    wanted: Wanted<'_>,
    formats: Formats,
    outlet: Outlet,
) {
    let mut keeper = Keeper::new(server, &outlet);
    let Ok(client) = keeper.first().await else { return };
    let (access, keeping) = keeper.share(client);
    let addresses = outlet.addresses.clone();
    tokio::select! {
        () = server_addresses::follow(access.clone(), addresses) => {}
        () = follow(&access, wanted, formats, outlet) => {}
        () = keeping => {}
    }
}

/// Follows Services, EndpointSlices, ServiceCIDRs, and this node's Node or all of them.
///
/// Returns after the receiver of the outlet's events is dropped. For each resource, events have the
/// order of [`engine::model::Event`], in arrivals. `Relist` is repeated before `Listed` if the
/// connection breaks during a list.
async fn follow(access: &Access, wanted: Wanted<'_>, formats: Formats, outlet: Outlet) {
    let name = format!("metadata.name={}", wanted.node);
    let labels = wanted.services.label_selector();
    let all = Selection::default();
    let services =
        Selection { labels: Some(labels), fields: Some(SERVICES.to_owned()), ..all.clone() };
    let slices = Selection { labels: Some(ENDPOINT_SLICES.to_owned()), ..all.clone() };
    let fields = (!wanted.other_nodes).then_some(name);
    let nodes = Selection { fields, ..all.clone() };

    let mut watches = JoinSet::new();
    watches.spawn(Watch::<Service>::new(access, services, wanted, formats, &outlet).run());
    watches.spawn(Watch::<EndpointSlice>::new(access, slices, wanted, formats, &outlet).run());
    watches.spawn(Watch::<Node>::new(access, nodes, wanted, formats, &outlet).run());
    watches.spawn(Watch::<ServiceCidr>::new(access, all, wanted, formats, &outlet).run());
    watches.join_next().await;
}
