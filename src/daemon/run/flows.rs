//! The flows and clients that the kernel remembers: stale flows, live connections, clients with
//! affinity.

use conntrack::ConntrackError;
use engine::Engine;
use engine::flow::Flow;
use futures::future::BoxFuture;

use super::cleaning::Cleaning;
use super::clients::Clients;
use super::least_connections::Balancing;
use super::wait::now;
use crate::conntrack::Count;
use crate::observe::Observe;

/// What the loop does about flows. All of it only sends requests, and never blocks the loop.
///
/// A list of flows is requested after each change of the tables that may have translated flows
/// without the engine: a read-back, a repair, elements that another program changed, and rules of
/// other proxy modes.
pub(super) struct Flows {
    /// Deletes stale flows.
    pub(super) cleaning: Option<Cleaning>,
    /// Adjusts weights to live connections, for scheduler `lc`.
    pub(super) balancing: Option<Balancing>,
    /// Removes the rules of other proxy modes; returns whether there were any.
    pub(super) leaving: Option<BoxFuture<'static, bool>>,
    pub(super) clients: Clients,
}

impl Flows {
    /// Deletes the flows that the last commit made stale.
    pub(super) fn clean(&mut self, engine: &mut Engine) {
        let flows = engine.take_stale_flows();
        let has_changed_others = engine.takes_other_connections();
        let have_ranges_changed = engine.takes_changed_ranges();
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.delete(flows);
            if have_ranges_changed {
                cleaning.request_list();
            }
            if has_changed_others {
                cleaning.look();
            }
        }
    }

    /// Deletes those of `flows` that are stale.
    pub(super) fn compare(&self, flows: &[Flow], engine: &mut Engine) {
        if let Some(cleaning) = &self.cleaning {
            cleaning.compare(flows, engine);
        }
    }

    /// Records that flows may have begun by other elements than those written.
    pub(super) fn note_read(&mut self) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.note_read();
        }
    }

    /// Requests a list of flows if one is due. The kernel must hold the desired state.
    pub(super) fn note_synced(&mut self) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.note_synced();
        }
    }

    /// Requests another list of flows if rules of other modes were removed: these may have
    /// translated flows after the first list.
    pub(super) fn note_left(&mut self, has_removed: bool) {
        self.leaving = None;
        if has_removed {
            self.note_read();
            self.note_synced();
        }
    }

    /// Adjusts weights to the connections that were counted; returns whether the count succeeded.
    /// Weights may change although no slot does.
    pub(super) fn balance(
        &mut self,
        count: Result<Count, ConntrackError>,
        engine: &mut Engine,
        observe: &Observe,
    ) -> bool {
        if let Some(balancing) = &mut self.balancing {
            balancing.note_count(now());
        }
        match count {
            Ok(Count { live, connections, took }) => {
                let adjusted = engine.balance(&live);
                let changed = (adjusted.services, adjusted.slots);
                observe.metrics().balancing.counted(connections, took, changed);
                tracing::debug!(connections, ?took, ?adjusted, "counted connections");
                true
            }
            Err(error) => {
                observe.metrics().balancing.failures.inc();
                tracing::warn!("cannot count connections for scheduler lc: {error}");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::mpsc;

    use super::*;
    use crate::conntrack::Request;

    /// A step of the loop.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Read,
        Synced,
        Left(bool),
    }

    #[test]
    fn a_list_of_flows_is_requested_once_after_what_may_have_begun_flows() {
        // Steps, and the lists requested by each.
        let table = [
            (Step::Synced, 1),
            (Step::Synced, 0),
            (Step::Read, 0),
            (Step::Read, 0),
            (Step::Synced, 1),
            (Step::Left(false), 0),
            (Step::Left(true), 1),
            (Step::Synced, 0),
        ];
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let sent = Arc::clone(&requests);
        let (_lists, listed) = mpsc::channel(1);
        let cleaning = Cleaning::new(move |request| sent.lock().unwrap().push(request), listed);
        let mut flows = Flows {
            cleaning: Some(cleaning),
            balancing: None,
            leaving: None,
            clients: Clients::default(),
        };
        for (at, (step, lists)) in table.into_iter().enumerate() {
            match step {
                Step::Read => flows.note_read(),
                Step::Synced => flows.note_synced(),
                Step::Left(has_removed) => flows.note_left(has_removed),
            }
            let requests = std::mem::take(&mut *requests.lock().unwrap());
            assert_eq!(requests.len(), lists, "step {at}, {step:?}");
            assert!(requests.iter().all(|request| matches!(request, Request::List)));
        }
    }
}
