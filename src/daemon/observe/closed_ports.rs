//! Ports that cannot be opened on this node, as problems of their services.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use engine::model::{ObjectName, ObjectRef, Problem, ProblemKind};
use parking_lot::Mutex;

use super::hub::Observe;
use super::problems::{Finder, LeftOut};

/// The present problems of ports of one kind. Clones share them.
#[derive(Clone)]
pub struct ClosedPorts {
    observe: Observe,
    finder: Finder,
    /// Field of a Service that has such a port, and what is said of it.
    words: [&'static str; 2],
    notify: Arc<dyn Fn(Problem) + Send + Sync>,
    of_service: Arc<Mutex<BTreeMap<Arc<str>, PortProblems>>>,
}

/// The problems of a service by port.
type PortProblems = BTreeMap<u16, LeftOut>;

impl ClosedPorts {
    /// Returns no closed health check ports. Each new problem is also sent to `notify`, which must
    /// not block.
    pub fn of_health_checks(
        observe: Observe,
        notify: impl Fn(Problem) + Send + Sync + 'static,
    ) -> Self {
        let words = ["spec.healthCheckNodePort", "cannot be opened on this node, tried again"];
        let (finder, notify) = (Finder::HealthCheckPort, Arc::new(notify));
        Self { observe, finder, words, notify, of_service: Arc::default() }
    }

    /// Does the same for node ports at `[::1]`.
    pub fn of_localhost(
        observe: Observe,
        notify: impl Fn(Problem) + Send + Sync + 'static,
    ) -> Self {
        let words = ["spec.ports[].nodePort", "cannot be opened at [::1], tried again"];
        Self { finder: Finder::LocalhostPort, words, ..Self::of_health_checks(observe, notify) }
    }

    /// Records that a port of a service (`NAMESPACE/NAME`) cannot be opened at present. Reports it
    /// the first time.
    pub fn closed(&self, service: &Arc<str>, port: u16, error: &io::Error) {
        let [field, fault] = self.words;
        let object = ObjectRef::service(&ObjectName::written(service));
        let message = format!("port {port} {fault}: {error}");
        let problem = Problem::new(ProblemKind::ClosedPort, object, field, message);
        let left_out = LeftOut::from(&problem);
        if self.change(service, |ports| ports.insert(port, left_out.clone()).is_some()) {
            return;
        }
        tracing::warn!("{problem}");
        self.observe.left_out(left_out);
        (self.notify)(problem);
    }

    /// Records that a port is open, or no longer wanted for the service.
    pub fn solved(&self, service: &Arc<str>, port: u16) {
        self.change(service, |ports| ports.remove(&port));
    }

    /// Ends the problems of ports that are no longer wanted.
    pub(super) fn retain(&self, is_wanted: impl Fn(&str, u16) -> bool) {
        let services: Vec<_> = self.of_service.lock().keys().cloned().collect();
        for service in services {
            self.change(&service, |ports| ports.retain(|port, _| is_wanted(&service, *port)));
        }
    }

    /// Changes the problems of a service, and shows those that are present.
    fn change<T>(&self, service: &Arc<str>, change: impl FnOnce(&mut PortProblems) -> T) -> T {
        let mut of_service = self.of_service.lock();
        let mut ports = of_service.remove(service).unwrap_or_default();
        let before = ports.len();
        let result = change(&mut ports);
        if before != ports.len() {
            let present = ports.values().cloned().collect();
            self.observe.present(self.finder, service, present);
        }
        if !ports.is_empty() {
            of_service.insert(Arc::clone(service), ports);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_closed_port_is_reported_once_until_it_is_open_or_no_longer_wanted() {
        let (observe, reported) = (Observe::new(), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&reported);
        let ports = ClosedPorts::of_localhost(observe.clone(), move |problem| {
            let expected = "port 1 cannot be opened at [::1], tried again: in use";
            assert_eq!((&*problem.field, &*problem.message), ("spec.ports[].nodePort", expected));
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let (service, error) = (Arc::from("a/b"), io::Error::other("in use"));
        let present = || observe.shared.record.problems.lock().present().as_array().map(Vec::len);
        for end in [true, false] {
            ports.closed(&service, 1, &error);
            ports.closed(&service, 1, &error);
            assert_eq!(present(), Some(1));
            ports.retain(|service, port| (service, port) == ("a/b", 1));
            assert_eq!(present(), Some(1));
            if end {
                ports.solved(&service, 1)
            } else {
                ports.retain(|_, _| false)
            }
            assert_eq!(present(), Some(0));
        }
        assert_eq!(reported.load(Ordering::Relaxed), 2);
    }
}
