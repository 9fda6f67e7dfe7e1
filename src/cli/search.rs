//! What the status page shows of the kernel: services and draining endpoints, read beside the loop.
//!
//! One search runs at a time, in a thread of its own. The tables are read at most once in
//! [`SHORTEST`], and for a tenth of the time at most, however many searches there are; so is
//! conntrack.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use crate::conntrack::ConntrackTable;
use crate::inspect::show::{Clients, Connections, Latest, Services, View, format};
use crate::observe::{Query, Search};

/// Frontends, or draining endpoints, that an answer has.
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
    Arc::new(move |query: Query| {
        let found = Arc::clone(&found);
        let answer = async move {
            let mut own = Arc::clone(&found).lock_owned().await;
            own.used_at = Some(now());
            if !own.is_forgotten_later {
                own.is_forgotten_later = true;
                tokio::spawn(forget(found));
            }
            // The lock is held there: a client that goes away lets no other search begin.
            let answer = spawn_blocking(move || answer(own, &query));
            answer.await.unwrap_or_else(|error| Err(error.to_string()))
        };
        answer.boxed()
    })
}

fn answer(mut found: OwnedMutexGuard<Found>, query: &Query) -> Result<Value, String> {
    found.refresh();
    if let Some(error) = &found.error {
        return Err(error.clone());
    }
    match query {
        Query::Services(text) => Ok(matching(found.latest.services(), text)),
        Query::Draining => found.draining(),
    }
}

fn matching(services: &Services, text: &str) -> Value {
    let matches = services.search(text, MOST);
    let view = View {
        services,
        connections: None,
        clients: &Clients::default(),
        places: &matches.places,
        now: Duration::ZERO,
    };
    json!({
        "services": format::brief(view),
        "matches": matches.count,
        "total": services.len(),
    })
}

/// Reads conntrack once.
fn draining(services: &Services) -> Result<Value, String> {
    let mut table = ConntrackTable::open().map_err(|error| error.to_string())?;
    let connections = Connections::read(&mut table, services, None);
    let connections = connections.map_err(|error| error.to_string())?;
    let top = services.draining_most(&connections, MOST);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let rows = top.rows.iter().map(|row| {
        let started = row.counts.oldest.map(|oldest| Duration::from_nanos(oldest.get()));
        json!({
            "service": row.label,
            "frontend": row.address,
            "endpoint": row.endpoint,
            "connections": row.counts.live(),
            "oldest_seconds": started.map(|started| now.saturating_sub(started).as_secs()),
        })
    });
    Ok(json!({ "draining": rows.collect::<Value>(), "total": top.count }))
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
    /// The draining endpoints, or why there are none, when reading ended, and how long it took.
    draining: Option<(Result<Value, String>, Instant, Duration)>,
    used_at: Option<Instant>,
    is_forgotten_later: bool,
}

impl Found {
    fn refresh(&mut self) {
        if self.read.is_some_and(is_fresh) {
            return;
        }
        let started = now();
        self.error = self.latest.refresh().err().map(|error| error.to_string());
        self.read = Some((now(), started.elapsed()));
    }

    fn draining(&mut self) -> Result<Value, String> {
        if let Some((answer, at, took)) = &self.draining
            && is_fresh((*at, *took))
        {
            return answer.clone();
        }
        let started = now();
        let answer = draining(self.latest.services());
        self.draining = Some((answer.clone(), now(), started.elapsed()));
        answer
    }
}

fn is_fresh((at, took): (Instant, Duration)) -> bool {
    at.elapsed() < SHORTEST.max(took * REST)
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
