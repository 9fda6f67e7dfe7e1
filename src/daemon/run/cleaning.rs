//! Stale flows: UDP flows of commits, and all that are found later.

use engine::Engine;
use engine::flow::{Flow, StaleFlow};
use tokio::sync::mpsc;

use crate::conntrack::{FlowList, Request};

/// The channels to the conntrack client, which deletes and lists flows. Never blocks the loop.
pub struct Cleaning {
    requests: Box<dyn Fn(Request) + Send>,
    lists: mpsc::Receiver<FlowList>,
    /// The remainder of a list, to be compared.
    rest: FlowList,
    /// Flows may have begun by tables that this process did not write, or are to endpoints of port
    /// ranges that changed.
    is_list_due: bool,
}

/// Flows compared at once, which takes some 0.1 ms.
const PIECE: usize = 1_024;

impl Cleaning {
    /// Returns an instance that sends requests to `requests` and receives lists from `lists`.
    pub fn new(
        requests: impl Fn(Request) + Send + 'static,
        lists: mpsc::Receiver<FlowList>,
    ) -> Self {
        let rest = FlowList { flows: Vec::new(), is_clean: false };
        Self { requests: Box::new(requests), lists, rest, is_list_due: true }
    }

    pub(super) fn delete(&self, flows: Vec<StaleFlow>) {
        if !flows.is_empty() {
            (self.requests)(Request::Delete(flows));
        }
    }

    /// Looks for connections without an answer that the last commits may have made stale.
    pub(super) fn look(&self) {
        (self.requests)(Request::Look);
    }

    /// Records that the tables are read.
    pub(super) fn note_read(&mut self) {
        self.request_list();
    }

    /// Requests a list once the kernel holds the desired state.
    pub(super) fn request_list(&mut self) {
        self.is_list_due = true;
    }

    /// Requests a list if one is due. The kernel must hold the desired state.
    pub(super) fn note_synced(&mut self) {
        if std::mem::take(&mut self.is_list_due) {
            (self.requests)(Request::List);
        }
    }

    /// Waits for a list and returns a piece of it; returns `None` once the client has ended.
    pub(super) async fn piece(cleaning: &mut Option<Self>) -> Option<Vec<Flow>> {
        let Self { lists, rest, .. } = cleaning.as_mut()?;
        if rest.flows.is_empty() {
            *rest = lists.recv().await?;
        }
        Some(match rest.flows.len().checked_sub(PIECE) {
            None | Some(0) => std::mem::take(&mut rest.flows),
            Some(others) => rest.flows.split_off(others),
        })
    }

    /// Deletes the flows of a piece that are stale under the committed state.
    pub(super) fn compare(&self, piece: &[Flow], engine: &mut Engine) {
        let stale = engine.stale_among(piece);
        if let Some(example) = stale.first() {
            tracing::info!(flows = stale.len(), "found stale flows ({example}, ...)");
        }
        self.delete(stale);
        if self.rest.flows.is_empty() && self.rest.is_clean {
            engine.compared_flows();
        }
    }
}
