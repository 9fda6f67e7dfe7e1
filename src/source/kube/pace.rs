//! Limits how often one resource starts a list or a watch, and how long an answer may be silent.
//!
//! `watcher` starts a new watch at once when one ends without an error. A server or a proxy that
//! accepts watches and ends them immediately would otherwise be asked in a tight loop.

use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use kube::Client;
use kube::client::Body;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::access::Access;
use super::contact::Link;
use super::silence::heard;

/// Requests that may be started without waiting, after a quiet time.
const BURST: u32 = 8;

/// The mean time between requests when more are asked for.
const INTERVAL: Duration = Duration::from_secs(1);

/// A client for one resource whose requests are paced; further pages of a list are not. Each
/// request goes to the newest client.
pub(super) fn paced(access: &Access, link: &Link) -> Client {
    let namespace = access.client().default_namespace().to_owned();
    let (access, link) = (access.clone(), link.clone());
    let pace = Arc::new(Mutex::new(Pace::new(INTERVAL, BURST)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (access, link, pace) = (access.clone(), link.clone(), Arc::clone(&pace));
        async move {
            if !is_further_page(request.uri().query()) {
                // Held while waiting: requests of one resource follow each other.
                let mut pace = pace.lock().await;
                tokio::time::sleep_until(pace.start(Instant::now())).await;
            }
            heard(access.client().send(request), &link).await
        }
    });
    Client::new(service, namespace)
}

fn is_further_page(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("continue=")))
}

/// Spreads starts: a burst, then one per interval. Reads no clock.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    burst: u32,
    /// When a start would have been earned if every start cost one interval.
    earned: Option<Instant>,
}

impl Pace {
    /// So many starts without waiting after a quiet time, and one per interval.
    pub(super) fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst, earned: None }
    }

    /// When a request that is asked for at `now` may start.
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
        let (mut pace, now) = (Pace::new(INTERVAL, BURST), Instant::now());
        for _ in 0..BURST {
            assert_eq!(pace.start(now), now);
        }
        assert_eq!(pace.start(now), now + INTERVAL);
        assert_eq!(pace.start(now), now + INTERVAL * 2);
    }

    #[test]
    fn a_quiet_time_earns_a_new_burst() {
        let (mut pace, now) = (Pace::new(INTERVAL, BURST), Instant::now());
        for _ in 0..BURST {
            pace.start(now);
        }
        let later = now + INTERVAL * BURST;
        for _ in 0..BURST {
            assert_eq!(pace.start(later), later);
        }
        assert_eq!(pace.start(later), later + INTERVAL);
    }

    #[test]
    fn only_further_pages_are_free() {
        assert!(is_further_page(Some("&limit=500&continue=abc")));
        assert!(!is_further_page(Some("&limit=500")));
        assert!(!is_further_page(None));
    }
}
