//! All listeners, as the node ports change.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::limits::ProxyLimits;
use super::listener::ListenerParts;
use super::ports::ChangedPort;

/// The listeners of ports. Each wanted port is in one of the two maps.
pub(super) struct Listeners {
    shared: ListenerParts,
    limits: ProxyLimits,
    open: BTreeMap<u16, (Arc<str>, JoinHandle<()>)>,
    /// Ports above the limit, with their services.
    waiting: BTreeMap<u16, Arc<str>>,
}

impl Listeners {
    pub(super) fn new(shared: ListenerParts, limits: ProxyLimits) -> Self {
        Self { shared, limits, open: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    /// Follows the changes of ports, and never returns.
    pub(super) async fn follow(&mut self) {
        loop {
            for changed in self.shared.ports.take_changed() {
                self.change(changed).await;
            }
            self.open_waiting();
            self.shared.ports.changed().await;
        }
    }

    /// Closes all listeners.
    pub(super) async fn close(mut self) {
        while let Some((_, (_, listener))) = self.open.pop_first() {
            ended(listener).await;
        }
    }

    async fn change(&mut self, (port, service): ChangedPort) {
        if self.open.get(&port).is_some_and(|(holder, _)| Some(holder) == service.as_ref()) {
            return;
        }
        if let Some((former, listener)) = self.open.remove(&port) {
            ended(listener).await;
            self.shared.closed.solved(&former, port);
        }
        if let Some(former) = self.waiting.remove(&port) {
            self.shared.closed.solved(&former, port);
        }
        if let Some(service) = service {
            self.waiting.insert(port, service);
        }
    }

    /// Opens waiting ports within the limit.
    fn open_waiting(&mut self) {
        while self.open.len() < self.limits.listeners
            && let Some((port, service)) = self.waiting.pop_first()
        {
            let listener = self.shared.clone().serve(port, Arc::clone(&service));
            self.open.insert(port, (service, tokio::spawn(listener)));
        }
        let ProxyLimits { open_files, listeners, .. } = self.limits;
        for (port, service) in &self.waiting {
            let why =
                format!("the limit of {open_files} open files allows {listeners} such sockets");
            self.shared.closed.closed(service, *port, &io::Error::other(why));
        }
    }
}

/// Ends a listener. Its socket is closed only when its task has ended.
async fn ended(listener: JoinHandle<()>) {
    listener.abort();
    let _ = listener.await;
}
