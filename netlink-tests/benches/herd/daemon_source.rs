//! The source of the daemon; its objects are dropped.

use std::path::PathBuf;
use std::sync::Arc;

use daemon::source::Wanted;
use daemon::source::kube::{
    ApiServer, Formats, OnContact, OnRequest, Outlet, Progress, follow_api_server,
};
use engine::model::{Event, Resource};
use engine::routing::Routing;
use netlink_tests::apiserver::Kind;
use tokio::sync::mpsc;

use super::herd::{Counter, NODE};

/// Follows the server of this kubeconfig without end.
pub(crate) async fn follow(kubeconfig: PathBuf, counter: Counter) {
    let (events, mut received) = mpsc::channel(16);
    let contacts: OnContact = Arc::new(|_, _| {});
    let for_requests = counter.clone();
    let requests: OnRequest = Arc::new(move |_, progress| {
        if let Progress::Answered { code, .. } = progress {
            for_requests.request(code.is_some());
        }
    });
    let outlet = Outlet::new(events, |_| {}, contacts, requests);
    let (server, routing) = (ApiServer::of_kubeconfig(kubeconfig), Routing::default());
    let following =
        follow_api_server(&server, Wanted::new(NODE, &routing), Formats::default(), outlet);
    let counting = async {
        let mut listing = Vec::new();
        while let Some(arrival) = received.recv().await {
            for event in arrival.events {
                if let Some(kind) = up_to_date(&event, &mut listing) {
                    counter.received(kind);
                }
            }
        }
    };
    tokio::join!(following, counting);
}

/// Returns the resource that is up to date after this event: a change, or the end of a list.
fn up_to_date(event: &Event, listing: &mut Vec<Kind>) -> Option<Kind> {
    let kind = match event {
        Event::Relist(resource) => {
            listing.push(kind(*resource));
            return None;
        }
        Event::Listed(resource) => {
            listing.retain(|other| *other != kind(*resource));
            return Some(kind(*resource));
        }
        Event::Service(_) => Kind::Service,
        Event::EndpointSlice(_) => Kind::EndpointSlice,
        Event::Node(_) | Event::Peer(_) => Kind::Node,
        Event::ServiceCidr(_) => Kind::ServiceCidr,
    };
    (!listing.contains(&kind)).then_some(kind)
}

fn kind(resource: Resource) -> Kind {
    match resource {
        Resource::Services => Kind::Service,
        Resource::EndpointSlices => Kind::EndpointSlice,
        Resource::Nodes => Kind::Node,
        Resource::ServiceCidrs => Kind::ServiceCidr,
    }
}
