//! Rate limit for the lists and watches of one resource.
//!
//! The reflector starts a new watch at once when one ends without an error. Without a limit, a server
//! or proxy that accepts watches and ends them immediately would cause requests in a tight loop.

use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use kube::Client;
use kube::client::Body;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::access::Access;
use super::contact::Link;
use super::request_counts::is_watch;
use super::silence::{Silent, heard};
use crate::rate_limit::RateLimit;

/// Requests that may start at once after an idle time.
const BURST: u32 = 8;

/// Mean time between further requests.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns a client for one resource whose requests are rate-limited, except further pages of a
/// list. Each request uses the newest client.
pub(super) fn rate_limited(access: &Access, link: &Link) -> Client {
    let namespace = access.client().default_namespace().to_owned();
    let (access, link) = (access.clone(), link.clone());
    let limit = Arc::new(Mutex::new(RateLimit::new(INTERVAL, BURST)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (access, link, limit) = (access.clone(), link.clone(), Arc::clone(&limit));
        async move {
            if !is_further_page(request.uri().query()) {
                // Held during the wait: requests of one resource run one after the other.
                let mut limit = limit.lock().await;
                tokio::time::sleep_until(limit.start(Instant::now())).await;
            }
            let query = request.uri().query();
            let is_short = is_watch(query) || is_check(query);
            let silence = if is_short { Silent::Ends } else { Silent::Fails };
            heard(access.client().send(request), silence, &link).await
        }
    });
    Client::new(service, namespace)
}

/// The check before a watch, for one object, is answered as fast as the watch.
fn is_check(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "limit=1"))
}

fn is_further_page(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("continue=")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_further_pages_are_not_limited() {
        assert!(is_further_page(Some("&limit=500&continue=abc")));
        assert!(!is_further_page(Some("&limit=500")));
        assert!(!is_further_page(None));
    }
}
