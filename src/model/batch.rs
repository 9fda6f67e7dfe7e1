//! Events on their way from a source, with the times of their way so far.

use std::time::Instant;

use super::Event;

/// Events that a source passes on together, in their order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What the source says.
    pub events: Vec<Event>,
    /// When the last bytes of the first event had arrived.
    pub received: Instant,
    /// When all events were read from their bytes.
    pub parsed: Instant,
}

impl Batch {
    /// Events without bytes, at `now`.
    pub fn new(events: Vec<Event>, now: Instant) -> Self {
        Self { events, received: now, parsed: now }
    }
}
