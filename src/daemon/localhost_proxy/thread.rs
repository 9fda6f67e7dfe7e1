//! The thread of the proxy, and its end.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::limits::ProxyLimits;
use super::listener::ListenerParts;
use super::listeners::Listeners;
use super::ports::ServedPorts;
use super::relay::{CLOSE_TIME, END_TIME};
use super::relays::Relays;
use crate::observe::{ClosedPorts, Observe, Shares};
use crate::source::notice::Notice;

/// The proxy. It ends with the process, or in order after [`Self::stop`].
#[derive(Debug)]
pub struct LocalhostProxy {
    ports: ServedPorts,
    stop: watch::Sender<bool>,
    stopped: oneshot::Receiver<()>,
}

impl LocalhostProxy {
    /// Starts the thread. `notices` receives the ports that cannot be opened.
    ///
    /// # Errors
    /// Errors of the system, such as too many threads.
    pub fn spawn(
        shares: Shares,
        observe: Observe,
        notices: mpsc::Sender<Notice>,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, is_stopped) = watch::channel(false);
        let (ended, stopped) = oneshot::channel();
        let ports = ServedPorts::default();
        let limits = ProxyLimits::of(shares.open_files, shares.localhost);
        let relays = Relays::new(limits, observe.clone(), is_stopped.clone());
        let closed = ClosedPorts::of_localhost(observe, move |problem| {
            // Dropped when the channel is full.
            let _ = notices.try_send(Notice::LeftOut(problem));
        });
        let shared = ListenerParts { ports: ports.clone(), relays, closed };
        thread::Builder::new().name("localhost".into()).spawn(move || {
            serve(&runtime, shared, limits, is_stopped);
            let _ = ended.send(());
        })?;
        Ok(Self { ports, stop, stopped })
    }

    /// Returns the node ports to serve, to be filled.
    pub fn ports(&self) -> ServedPorts {
        self.ports.clone()
    }

    /// Closes the listeners. Open relays have a time limit from now on.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops, and completes when all relays have ended.
    pub async fn end(self) {
        self.stop();
        let _ = self.stopped.await;
    }
}

fn serve(
    runtime: &Runtime,
    shared: ListenerParts,
    limits: ProxyLimits,
    mut is_stopped: watch::Receiver<bool>,
) {
    let relays = shared.relays.clone();
    let mut listeners = Listeners::new(shared, limits);
    runtime.block_on(async {
        tokio::select! {
            () = listeners.follow() => {}
            // An error means that the daemon is gone.
            _ = is_stopped.wait_for(|is_stopped| *is_stopped) => {}
        }
        listeners.close().await;
        // Each relay has an end of its own; this one is for a relay that hangs.
        let _ = timeout(END_TIME + 2 * CLOSE_TIME, relays.ended()).await;
    });
}
