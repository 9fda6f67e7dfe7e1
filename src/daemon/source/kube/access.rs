//! The API client in use. It is built again when its files change or the server rejects it.
//!
//! Watches use the newest client for each request and so continue where they were. Open watches are
//! not closed: the old credentials may be the only valid ones.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::backoff::{Backoff, Trouble, random};
use super::client::{self, ApiServer, Connected, start_load};
use super::credentials::digest;
use super::outlet::{Closed, Outlet, SourceReport};
use super::plugin;
use super::room::{Room, Share};
use super::source_error::SourceError;
use super::turns::Turns;

/// Interval of checks whether the files changed.
const LOOK: Duration = Duration::from_secs(2);

/// Rejected requests after which the client is built again from unchanged files: a credential
/// plugin may return another token.
const REJECTIONS: u32 = 3;

/// Least time between two clients from the same files.
const SAME_FILES: Duration = Duration::from_secs(10);

/// Time after which the load of credentials is reported as slow: a plugin may hang.
const SLOW: Duration = Duration::from_secs(30);

/// Shared access to the client in use. Clones share it.
#[derive(Clone)]
pub(super) struct Access {
    client: watch::Receiver<Connected>,
    rejections: mpsc::Sender<()>,
    turns: Turns,
    room: Room,
    /// The versions of the last restore that a watch found.
    restores: (Arc<watch::Sender<String>>, watch::Receiver<String>),
}

impl Access {
    /// Returns the newest client.
    pub(super) fn client(&self) -> Client {
        self.client.borrow().client.clone()
    }

    /// Returns host and port of its server.
    pub(super) fn server(&self) -> Arc<str> {
        Arc::clone(&self.client.borrow().server)
    }

    /// Returns the turns of lists at this server.
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Returns a share of the room for lists.
    pub(super) fn share(&self) -> Share {
        self.room.share()
    }

    /// Reports that the server rejected the client, or the client the server.
    pub(super) fn rejected(&self) {
        // A full queue already has a rejection.
        let _ = self.rejections.try_send(());
    }

    /// Reports to the other watches that versions went back, unless one of them has reported it.
    pub(super) fn report_restore(&mut self, versions: &str) {
        let (sender, receiver) = &mut self.restores;
        let is_reported = receiver.has_changed().is_ok_and(|is| is);
        sender.send_if_modified(|last| {
            let is_new = !is_reported && *last != versions;
            if is_new {
                versions.clone_into(last);
            }
            is_new
        });
        receiver.mark_unchanged();
    }

    /// Waits until another watch reports that versions went back, and returns them.
    pub(super) async fn restored(&mut self) -> String {
        if self.restores.1.changed().await.is_err() {
            std::future::pending().await
        }
        self.restores.1.borrow().clone()
    }

    /// Waits until the client differs from that at the last call.
    pub(super) async fn changed(&mut self) {
        if self.client.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Loader of clients.
pub(super) struct Keeper {
    server: ApiServer,
    outlet: Outlet,
    backoff: Backoff,
    trouble: Trouble,
    /// Digest of the files of the last client, and the time of its creation.
    used: Option<(u64, Instant)>,
    loading: Option<LoadingClient>,
}

/// A client that is being loaded, and the digest of its files.
struct LoadingClient {
    digest: u64,
    client: client::Loading,
}

impl Keeper {
    pub(super) fn new(server: &ApiServer, outlet: &Outlet) -> Self {
        Self {
            server: server.clone(),
            outlet: outlet.clone(),
            backoff: Backoff::default(),
            trouble: Trouble::default(),
            used: None,
            loading: None,
        }
    }

    /// Returns the first client. Retries until there is one.
    pub(super) async fn first(&mut self) -> Result<Connected, Closed> {
        loop {
            if let Some(client) = self.load().await? {
                return Ok(client);
            }
        }
    }

    /// Shares `first`, and replaces it when necessary while the future is polled.
    pub(super) fn share(self, first: Connected) -> (Access, impl Future<Output = ()>) {
        let (sender, client) = watch::channel(first);
        let (rejections, received) = mpsc::channel(1);
        let keeping = async move {
            // Fails only when the outlet is closed, which ends the watches too.
            let _ = self.keep(&sender, received).await;
        };
        let (turns, room) = Default::default();
        let (restores, restored) = watch::channel(String::new());
        let restores = (Arc::new(restores), restored);
        (Access { client, rejections, turns, room, restores }, keeping)
    }

    async fn keep(
        mut self,
        client: &watch::Sender<Connected>,
        mut rejections: mpsc::Receiver<()>,
    ) -> Result<(), Closed> {
        let mut rejected = 0;
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                Some(()) = rejections.recv() => rejected += 1,
            }
            if self.is_due(rejected).await
                && let Some(newer) = self.load().await?
            {
                rejected = 0;
                client.send_replace(newer);
                self.outlet.report(SourceReport::Renewed)?;
            }
        }
    }

    /// Returns whether the client should be built again after this number of rejections.
    async fn is_due(&self, rejected: u32) -> bool {
        let Some((used, since)) = self.used else { return true };
        let is_useless = rejected >= REJECTIONS && since.elapsed() >= SAME_FILES;
        if is_useless {
            plugin::forget();
        }
        is_useless || self.digest().await != used
    }

    /// Builds a client. After a failure, reports it, waits for the backoff and returns `None`.
    async fn load(&mut self) -> Result<Option<Connected>, Closed> {
        let mut loading = match self.loading.take() {
            Some(loading) => loading,
            None => self.start().await,
        };
        let digest = loading.digest;
        let error = match tokio::time::timeout(SLOW, &mut loading.client).await {
            Ok(Ok(Ok(client))) => {
                let is_first = self.used.is_none();
                self.used = Some((digest, Instant::now()));
                if self.trouble.end() && is_first {
                    self.outlet.report(SourceReport::Renewed)?;
                }
                return Ok(Some(client));
            }
            Ok(Ok(Err(error))) => error,
            Ok(Err(error)) => self.server.unusable(&error),
            Err(_) => {
                self.loading = Some(loading);
                SourceError::SlowCredentials(SLOW.as_secs())
            }
        };
        if self.used.is_none() {
            self.outlet.lost_all(error.reason());
        }
        let none = (Duration::ZERO, Duration::ZERO);
        let wait = self.backoff.after_failure(Instant::now(), none, random());
        if self.trouble.is_said(error.to_string(), None) {
            let (resource, server, retry_in) = (None, None, wait);
            self.outlet.report(SourceReport::Trouble { resource, server, error, retry_in })?;
        }
        self.pause(wait, digest).await;
        Ok(None)
    }

    async fn start(&self) -> LoadingClient {
        // Computed before the load, so that a change during the load is detected after it.
        let digest = self.digest().await;
        let client = start_load(&self.server, Arc::clone(&self.outlet.requests));
        LoadingClient { digest, client }
    }

    /// Waits for `wait`, or until the digest of the files changes.
    async fn pause(&self, wait: Duration, tried: u64) {
        let end = Instant::now() + wait;
        while Instant::now() < end && self.digest().await == tried {
            tokio::time::sleep_until(end.min(Instant::now() + LOOK)).await;
        }
    }

    async fn digest(&self) -> u64 {
        let server = self.server.clone();
        // The task fails only by a panic, which is a bug; the files then count as unchanged.
        let none = self.used.map_or(0, |(used, _)| used);
        tokio::task::spawn_blocking(move || digest(&server)).await.unwrap_or(none)
    }
}
