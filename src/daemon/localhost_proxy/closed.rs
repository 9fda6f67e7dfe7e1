//! Node ports that cannot be opened at `[::1]`, as problems of their services.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use engine::model::{ObjectName, ObjectRef, Problem, ProblemKind};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::observe::{Finder, LeftOut, Observe};
use crate::source::notice::Notice;

/// The present problems. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ClosedPorts {
    observe: Observe,
    notices: mpsc::Sender<Notice>,
    of_service: Arc<Mutex<BTreeMap<Arc<str>, PortProblems>>>,
}

/// The problems of a service by port.
type PortProblems = BTreeMap<u16, LeftOut>;

impl ClosedPorts {
    pub(super) fn new(observe: Observe, notices: mpsc::Sender<Notice>) -> Self {
        Self { observe, notices, of_service: Arc::default() }
    }

    /// Records that a port cannot be opened at present. Reports it the first time.
    pub(super) fn closed(&self, service: &Arc<str>, port: u16, error: &io::Error) {
        let problem = Problem {
            kind: ProblemKind::ClosedPort,
            object: ObjectRef::service(&ObjectName::written(service)),
            field: "spec.ports[].nodePort".to_owned(),
            message: format!("port {port} cannot be opened at [::1], tried again: {error}"),
        };
        let left_out = LeftOut::from(&problem);
        let is_known = self.change(service, |ports| ports.insert(port, left_out.clone()).is_some());
        if is_known {
            return;
        }
        tracing::warn!("{problem}");
        self.observe.left_out(left_out);
        // Dropped when the channel is full.
        let _ = self.notices.try_send(Notice::LeftOut(problem));
    }

    /// Records that a port is open, or no longer wanted for the service.
    pub(super) fn solved(&self, service: &Arc<str>, port: u16) {
        self.change(service, |ports| ports.remove(&port));
    }

    /// Changes the problems of a service, and shows those that are present.
    fn change<T>(&self, service: &Arc<str>, change: impl FnOnce(&mut PortProblems) -> T) -> T {
        // Nothing in between two changes can panic.
        let mut of_service = self.of_service.lock();
        let mut ports = of_service.remove(service).unwrap_or_default();
        let before = ports.len();
        let result = change(&mut ports);
        if before != ports.len() {
            let present = ports.values().cloned().collect();
            self.observe.present(Finder::LocalhostPort, service, present);
        }
        if !ports.is_empty() {
            of_service.insert(Arc::clone(service), ports);
        }
        result
    }
}
