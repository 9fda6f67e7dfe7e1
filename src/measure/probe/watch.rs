//! The probe's own watch of its EndpointSlice, with the arrival time of each version.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use daemon::source::kube::RestClient;
use futures::{StreamExt, pin_mut};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::objects::{slices_path, version};

/// A version of the EndpointSlice, and the arrival time of its event since the start of the run.
type Event = (String, Duration);

/// The watch; ends on drop.
#[derive(Debug)]
pub(super) struct Events {
    received: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

/// Longest time between the effect of a change on packets and its event.
const BEHIND: Duration = Duration::from_secs(2);

/// Time between two attempts to open the watch.
const RETRY: Duration = Duration::from_millis(100);

impl Events {
    /// Watches the EndpointSlices of a namespace from a version on.
    pub(super) fn follow(
        runtime: &Handle,
        rest: RestClient,
        (namespace, version): (&str, String),
        base: Instant,
    ) -> Self {
        let (sender, received) = mpsc::channel();
        let path = slices_path(namespace);
        let task = runtime.spawn(async move { follow(&rest, &path, version, base, &sender).await });
        Self { received, task }
    }

    /// Returns the arrival time of the event with this version; `None` if it does not arrive.
    pub(super) fn arrival(&self, version: &str) -> Option<Duration> {
        while let Ok((seen, at)) = self.received.recv_timeout(BEHIND) {
            if seen == version {
                return Some(at);
            }
        }
        None
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches forever; a watch that ends is reopened at its last version.
async fn follow(
    rest: &RestClient,
    path: &str,
    mut from: String,
    base: Instant,
    sender: &mpsc::Sender<Event>,
) {
    loop {
        if let Ok(objects) = rest.watch(path, &from).await {
            pin_mut!(objects);
            while let Some(Ok(object)) = objects.next().await {
                let at = base.elapsed();
                let Some(seen) = version(&object) else { continue };
                seen.clone_into(&mut from);
                if sender.send((from.clone(), at)).is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
