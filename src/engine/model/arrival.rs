//! Events from a source, with the times of their processing so far.

use std::num::NonZeroU64;
use std::time::Instant;

use super::event::Event;

/// Events that a source sends together, in their order.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The events.
    pub events: Vec<Event>,
    /// Time at which the last bytes of the first event were received.
    pub received: Instant,
    /// Time at which all events were parsed.
    pub parsed: Instant,
    /// `metadata.resourceVersion` of the last object of an API server, if it is a number.
    pub resource_version: Option<NonZeroU64>,
}

impl Arrival {
    /// Returns an arrival of events that were not received as bytes, at `now`.
    pub fn new(events: Vec<Event>, now: Instant) -> Self {
        Self { events, received: now, parsed: now, resource_version: None }
    }
}
