//! The thread that counts live connections by endpoint.
//!
//! A count walks the kernel's whole table. Only endpoints of the request are counted, so it needs
//! no memory for the other connections.

use std::io;
use std::sync::mpsc as std_mpsc;
use std::thread;
use std::time::Duration;

use conntrack::{Connection, ConntrackError, ReopenedTable, Stage};
use engine::model::LiveConnections;
use tokio::sync::mpsc;

use super::cleaner::now;

/// Outcome of one count.
#[derive(Debug)]
pub struct Count {
    /// The request, with the connections of each endpoint.
    pub live: LiveConnections,
    /// Translated connections that the kernel listed.
    pub connections: u64,
    /// Duration of the dump.
    pub took: Duration,
}

/// Handle of the thread. The thread ends after this is dropped.
#[derive(Debug)]
pub struct ConnectionCounter(std_mpsc::Sender<LiveConnections>);

impl ConnectionCounter {
    /// Starts the thread in the network namespace of the calling thread. The returned channel
    /// receives the outcome of each count; it must be read before the next request.
    ///
    /// # Errors
    /// The error of the system if it cannot start a thread.
    pub fn spawn() -> io::Result<(Self, mpsc::Receiver<Result<Count, ConntrackError>>)> {
        let (requests, waiting) = std_mpsc::channel();
        let (counts, receiver) = mpsc::channel(1);
        thread::Builder::new().name("connections".into()).spawn(move || {
            let mut table = ReopenedTable::default();
            for live in waiting {
                let outcome = count(&mut table, live);
                if counts.blocking_send(outcome).is_err() {
                    return;
                }
            }
        })?;
        Ok((Self(requests), receiver))
    }

    /// Requests a count without blocking.
    pub fn request(&self, endpoints: LiveConnections) {
        // The thread ends only when the receiver of the counts is gone.
        let _ = self.0.send(endpoints);
    }
}

/// Counts the connections of these endpoints.
fn count(table: &mut ReopenedTable, mut live: LiveConnections) -> Result<Count, ConntrackError> {
    let started = now();
    let mut connections = 0;
    let each = |connection: Connection| {
        connections += 1;
        let is_live = connection.stage == Stage::Active && connection.is_assured;
        let key = (connection.protocol, connection.answered_by);
        if let Some(count) = live.endpoints.get_mut(&key).filter(|_| is_live) {
            *count = count.saturating_add(1);
        }
    };
    table.with(|table| table.connections(each))?;
    Ok(Count { live, connections, took: started.elapsed() })
}
