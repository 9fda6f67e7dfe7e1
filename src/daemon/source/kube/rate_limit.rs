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
use super::requests::is_watch;
use super::silence::{Silent, heard};

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
            let silence =
                if is_watch(request.uri().query()) { Silent::Ends } else { Silent::Fails };
            heard(access.client().send(request), silence, &link).await
        }
    });
    Client::new(service, namespace)
}

fn is_further_page(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("continue=")))
}

/// Rate limiter for starts: a burst, then one per interval. Reads no clock.
#[derive(Debug)]
pub(super) struct RateLimit {
    interval: Duration,
    burst: u32,
    /// Time at which all starts so far would have ended if each took one interval.
    earned: Option<Instant>,
}

impl RateLimit {
    /// Returns a limiter that allows `burst` starts at once after an idle time, then one per
    /// interval.
    pub(super) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, earned: None }
    }

    /// Returns the start time of a request that arrives at `now`.
    pub(super) fn start(&mut self, now: Instant) -> Instant {
        let earned = self.earned.map_or(now, |earned| earned.max(now)) + self.interval;
        self.earned = Some(earned);
        let start = earned.checked_sub(self.interval * self.burst).unwrap_or(now);
        start.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_starts_at_once_and_then_one_request_a_second() {
        let (mut limit, now) = (RateLimit::new(INTERVAL, BURST), Instant::now());
        for _ in 0..BURST {
            assert_eq!(limit.start(now), now);
        }
        assert_eq!(limit.start(now), now + INTERVAL);
        assert_eq!(limit.start(now), now + INTERVAL * 2);
    }

    #[test]
    fn an_idle_time_allows_a_new_burst() {
        let (mut limit, now) = (RateLimit::new(INTERVAL, BURST), Instant::now());
        for _ in 0..BURST {
            limit.start(now);
        }
        let later = now + INTERVAL * BURST;
        for _ in 0..BURST {
            assert_eq!(limit.start(later), later);
        }
        assert_eq!(limit.start(later), later + INTERVAL);
    }

    #[test]
    fn only_further_pages_are_not_limited() {
        assert!(is_further_page(Some("&limit=500&continue=abc")));
        assert!(!is_further_page(Some("&limit=500")));
        assert!(!is_further_page(None));
    }
}
