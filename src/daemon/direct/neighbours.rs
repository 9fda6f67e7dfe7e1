//! Follows the addresses of other nodes on the links of this network namespace, on a thread.
//!
//! The kernel resolves and confirms the hardware addresses: at once when an address is requested or
//! stops being usable, and in rounds, so that an entry is fresh although no packet goes there.

use std::future::pending;
use std::net::IpAddr;
use std::time::Duration;
use std::{io, thread};

use engine::direct::Links;
use tokio::runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::allowed_devices::AllowedDevices;
use super::node_links::{NodeLinks, Scope};
use super::rounds::TICKS;
use super::tunnel::TunnelSettings;

/// Follower of neighbours.
#[derive(Debug)]
pub struct Neighbours;

/// What is followed.
#[derive(Debug)]
pub struct Following {
    /// The addresses of other nodes.
    pub addresses: watch::Receiver<Vec<IpAddr>>,
    /// The devices that lead to them.
    pub devices: AllowedDevices,
    /// The tunnel to those that are on no link.
    pub tunnel: Option<TunnelSettings>,
}

impl Neighbours {
    /// Starts a thread in the network namespace of the calling thread. It sends news at its start
    /// and after each change, until the receiver is dropped. If the receiver is slow, it gets only
    /// the latest news.
    ///
    /// # Errors
    /// The error of the system if it cannot start a thread.
    pub fn follow(following: Following) -> io::Result<mpsc::Receiver<Links>> {
        Self::follow_every(INTERVAL, following)
    }

    /// The same with another time between two confirmations of a neighbour, at least 16 ms.
    ///
    /// # Errors
    /// As for [`Neighbours::follow`].
    pub fn follow_every(
        interval: Duration,
        following: Following,
    ) -> io::Result<mpsc::Receiver<Links>> {
        let (sender, receiver) = mpsc::channel(1);
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let follower = Follower { tick: interval / TICKS, following, news: sender };
        let run = move || runtime.block_on(follower.run());
        thread::Builder::new().name("neighbours".into()).spawn(run)?;
        Ok(receiver)
    }
}

/// What the thread follows, and where it sends its news.
struct Follower {
    /// Time between two parts of a round.
    tick: Duration,
    following: Following,
    news: mpsc::Sender<Links>,
}

/// Why the thread wakes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// A part of a round is due.
    Tick,
    /// Other addresses are requested, or other devices allowed.
    Request,
    /// The kernel sent notifications.
    Kernel,
}

impl Follower {
    /// Sends news until the receiver is dropped.
    async fn run(mut self) {
        while let Err(error) = self.follow().await {
            tracing::warn!("cannot follow the neighbours: {error}; trying again");
            tokio::select! {
                () = self.news.closed() => return,
                () = sleep(RETRY_AFTER) => {}
            }
        }
    }

    /// Sends news until the receiver is dropped.
    async fn follow(&mut self) -> io::Result<()> {
        let mut links = NodeLinks::open(self.following.tunnel.clone())?;
        let notifications = links.notifications()?;
        let mut ticks = interval(self.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut sent, mut current) = (None, None);
        loop {
            // In this order: neither does a stream of notifications delay news and ticks, nor are
            // there news before the first tick, which is due at once and lists everything.
            let wake = tokio::select! {
                biased;
                permit = self.news.reserve(), if sent != current => {
                    let (Ok(permit), Some(news)) = (permit, &current) else { return Ok(()) };
                    permit.send(Links::clone(news));
                    sent.clone_from(&current);
                    continue;
                }
                () = self.news.closed() => return Ok(()),
                _ = ticks.tick() => Wake::Tick,
                () = changed(&mut self.following.addresses) => Wake::Request,
                () = self.following.devices.changed() => Wake::Request,
                () = changed_ends(&mut self.following.tunnel) => Wake::Request,
                ready = notifications.readable() => {
                    // Those that the next look leaves are read at the next tick.
                    ready?.clear_ready();
                    Wake::Kernel
                }
            };
            current = Some(self.turn(&mut links, wake).await?);
        }
    }

    /// Merges what changed, makes the kernel ask neighbours, and returns the news.
    async fn turn(&mut self, links: &mut NodeLinks, wake: Wake) -> io::Result<Links> {
        let scope = match wake {
            Wake::Tick if links.is_round_over() => Scope::Round,
            Wake::Tick | Wake::Kernel => Scope::Notified,
            Wake::Request => Scope::Routes,
        };
        if wake != Wake::Tick {
            sleep(SETTLE_TIME).await;
        }
        if scope != Scope::Notified {
            links.request(&self.following.addresses.borrow_and_update());
        }
        self.catch_up(links, scope)?;
        if wake == Wake::Tick {
            links.ask_next();
        }
        if links.ask_urgent() {
            // Most answers arrive in this time, so that a neighbour that has another hardware
            // address is not reported as failed before.
            sleep(SETTLE_TIME).await;
            self.catch_up(links, Scope::Notified)?;
        }
        Ok(links.news())
    }

    /// Reads what changed, and brings the tunnel up to date with it.
    fn catch_up(&mut self, links: &mut NodeLinks, scope: Scope) -> io::Result<()> {
        if links.catch_up(&mut self.following.devices, scope)? {
            links.dig();
        }
        Ok(())
    }
}

/// Completes when there are other values. Never completes after the sender is dropped.
async fn changed<T>(values: &mut watch::Receiver<T>) {
    if values.changed().await.is_err() {
        pending().await
    }
}

/// Completes when the tunnel has other ends; never without a tunnel.
async fn changed_ends(tunnel: &mut Option<TunnelSettings>) {
    match tunnel {
        Some(tunnel) => changed(&mut tunnel.ends).await,
        None => pending().await,
    }
}

/// Time between two confirmations of a neighbour. The kernel takes an entry for fresh for 15 to 45 s
/// (sysctl `base_reachable_time_ms`).
const INTERVAL: Duration = Duration::from_secs(15);

/// Time in which further changes join the first one.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Time between a failure and the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(5);
