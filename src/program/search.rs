//! Searches of the status page: services, draining endpoints and refused packets, read from the kernel outside the
//! loop.
//!
//! One search runs at a time, in a thread of its own. The tables are read at most once in
//! two seconds, and for at most a tenth of the time, whatever the number of searches; likewise
//! conntrack.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conntrack::ConntrackTable;
use daemon::observe::{Query, Search};
use futures::FutureExt;
use inspect::refusals::RefusedPackets;
use inspect::show::{Clients, Connections, Latest, Services, View, format};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use super::clock::{LastRead, now, since_1970};

/// Most frontends or draining endpoints in an answer.
const MOST: usize = 100;

/// Time without a search after which the memory is freed.
const KEPT: Duration = Duration::from_secs(30);

/// Returns the search in the network namespace of this process.
pub(super) fn search() -> Search {
    let found = Arc::new(Mutex::new(Searched::default()));
    Arc::new(move |query: Query| {
        let found = Arc::clone(&found);
        let answer = async move {
            let mut own = Arc::clone(&found).lock_owned().await;
            own.used_at = Some(now());
            if !own.is_forgotten_later {
                own.is_forgotten_later = true;
                tokio::spawn(forget(found));
            }
            // The lock moves into the task, so a disconnected client does not allow a second
            // search.
            let answer = spawn_blocking(move || answer(own, &query));
            answer.await.unwrap_or_else(|error| Err(error.to_string()))
        };
        answer.boxed()
    })
}

fn answer(mut found: OwnedMutexGuard<Searched>, query: &Query) -> Result<Value, String> {
    found.refresh();
    if let Some(error) = &found.error {
        return Err(error.clone());
    }
    match query {
        Query::Services(text) => Ok(matching(found.latest.services(), text)),
        Query::Draining => found.draining_and_refused(),
    }
}

fn matching(services: &Services, text: &str) -> Value {
    let matches = services.search(text, MOST);
    let view = View {
        services,
        connections: None,
        clients: &Clients::default(),
        places: &matches.rows,
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
    let now = since_1970();
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

/// Returns the packets of each reason, of both families.
fn by_reason(refused: &RefusedPackets) -> Value {
    let mut sums = BTreeMap::<&str, u64>::new();
    for ((_, reason), counter) in refused {
        *sums.entry(reason.name()).or_default() += counter.packets;
    }
    json!(sums)
}

/// Frees the memory after [`KEPT`] without a search.
async fn forget(found: Arc<Mutex<Searched>>) {
    loop {
        tokio::time::sleep(KEPT).await;
        let mut found = found.lock().await;
        if found.used_at.is_none_or(|at| at.elapsed() >= KEPT) {
            *found = Searched::default();
            return;
        }
    }
}

/// What was read last.
#[derive(Default)]
struct Searched {
    latest: Latest,
    /// Why there are no services.
    error: Option<String>,
    read: LastRead,
    /// Draining endpoints and refused packets or an error, and their read.
    draining: Option<(Result<Value, String>, LastRead)>,
    used_at: Option<Instant>,
    is_forgotten_later: bool,
}

impl Searched {
    fn refresh(&mut self) {
        if self.read.is_fresh() {
            return;
        }
        let started = now();
        self.error = self.latest.refresh().err().map(|error| error.to_string());
        self.read = LastRead::since(started);
    }

    fn draining_and_refused(&mut self) -> Result<Value, String> {
        if let Some((answer, read)) = &self.draining
            && read.is_fresh()
        {
            return answer.clone();
        }
        let started = now();
        let refused = self.latest.refused().map_err(|error| error.to_string());
        let answer = refused.and_then(|refused| {
            let mut answer = draining(self.latest.services())?;
            answer["refused"] = by_reason(&refused);
            Ok(answer)
        });
        self.draining = Some((answer.clone(), LastRead::since(started)));
        answer
    }
}
