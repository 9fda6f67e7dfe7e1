//! The search of the status page: services as the kernel has them, read beside the loop.
//!
//! One search runs at a time, in a thread of its own. The tables are read at most once in
//! [`SHORTEST`], and for a tenth of the time at most, however many searches there are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use crate::inspect::show::{Clients, Latest, View, format};
use crate::observe::Search;

/// Frontends that an answer has.
const MOST: usize = 100;

/// The shortest time between two reads.
const SHORTEST: Duration = Duration::from_secs(2);

/// Times that a read took, for which none follows.
const REST: u32 = 10;

/// What was read is forgotten after so long without a search.
const KEPT: Duration = Duration::from_secs(30);

/// A search of the network namespace of this process.
pub(super) fn search() -> Search {
    let found = Arc::new(Mutex::new(Found::default()));
    Arc::new(move |text: String| {
        let found = Arc::clone(&found);
        let answer = async move {
            let mut own = Arc::clone(&found).lock_owned().await;
            own.used_at = Some(now());
            if !own.is_forgotten_later {
                own.is_forgotten_later = true;
                tokio::spawn(forget(found));
            }
            // The lock is held there: a client that goes away lets no other search begin.
            let answer = spawn_blocking(move || answer(own, &text));
            answer.await.unwrap_or_else(|error| Err(error.to_string()))
        };
        answer.boxed()
    })
}

fn answer(mut found: OwnedMutexGuard<Found>, text: &str) -> Result<Value, String> {
    found.refresh();
    if let Some(error) = &found.error {
        return Err(error.clone());
    }
    let services = found.latest.services();
    let matches = services.search(text, MOST);
    let view = View {
        services,
        connections: None,
        clients: &Clients::default(),
        places: &matches.places,
        now: Duration::ZERO,
    };
    Ok(json!({
        "services": format::brief(view),
        "matches": matches.count,
        "total": services.len(),
    }))
}

/// Frees the memory after [`KEPT`] without a search.
async fn forget(found: Arc<Mutex<Found>>) {
    loop {
        tokio::time::sleep(KEPT).await;
        let mut found = found.lock().await;
        if found.used_at.is_none_or(|at| at.elapsed() >= KEPT) {
            *found = Found::default();
            return;
        }
    }
}

/// What was read last.
#[derive(Default)]
struct Found {
    latest: Latest,
    /// Why there are none.
    error: Option<String>,
    /// When reading ended, and how long it took.
    read: Option<(Instant, Duration)>,
    used_at: Option<Instant>,
    is_forgotten_later: bool,
}

impl Found {
    fn refresh(&mut self) {
        let is_fresh = |(at, took): (Instant, Duration)| at.elapsed() < SHORTEST.max(took * REST);
        if self.read.is_some_and(is_fresh) {
            return;
        }
        let started = now();
        self.error = self.latest.refresh().err().map(|error| error.to_string());
        self.read = Some((now(), started.elapsed()));
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
