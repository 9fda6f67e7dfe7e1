//! The same for programs of tokio (feature `tokio`).
//!
//! tokio waits for the sockets. Commits and reads block in the kernel, so they run on a thread
//! for blocking work. A future that is dropped leaves its commit running to its end.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::unix::AsyncFd;
use tokio::task;

use crate::difference::Difference;
use crate::kernel::{Nftables, Notifications, Tracer, UpdateError};
use crate::notification::Notification;
use crate::trace::TraceEvent;
use crate::whole::WholeTable;

/// nf_tables of the network namespace in which it was opened; clones share one socket.
///
/// ```no_run
/// use nft_netlink::asynchronous::AsyncNftables;
/// use nft_netlink::kernel::Nftables;
/// use nft_netlink::{TableFamily, WholeTable};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let kernel = AsyncNftables::new(Nftables::open()?);
/// kernel.update(WholeTable::new(TableFamily::Inet, "empty")).await??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncNftables(Arc<Mutex<Nftables>>);

impl AsyncNftables {
    /// Returns a shared handle of an open socket.
    pub fn new(kernel: Nftables) -> Self {
        Self(Arc::new(Mutex::new(kernel)))
    }

    /// Runs `work` with the socket, on a thread for blocking work.
    ///
    /// # Errors
    /// `work` panicked, or the runtime ends.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Nftables) -> T + Send + 'static,
    ) -> io::Result<T> {
        let kernel = Arc::clone(&self.0);
        // A panic of earlier work leaves at most an answer unread, which the next request skips.
        let run = move || work(&mut kernel.lock().unwrap_or_else(PoisonError::into_inner));
        task::spawn_blocking(run).await.map_err(io::Error::other)
    }

    /// Does the same as [`Nftables::update`].
    ///
    /// # Errors
    /// As for [`AsyncNftables::run`], and inside as for [`Nftables::update`].
    pub async fn update(
        &self,
        desired: WholeTable,
    ) -> io::Result<Result<Option<Difference>, UpdateError>> {
        self.run(move |kernel| kernel.update(&desired)).await
    }
}

/// A socket that tokio waits for.
#[derive(Debug)]
struct Waiting<T: AsFd>(AsyncFd<Descriptor<T>>);

#[derive(Debug)]
struct Descriptor<T>(T);

impl<T: AsFd> AsRawFd for Descriptor<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> Waiting<T> {
    #[expect(deprecated, reason = "its successor is unsafe; `T` owns the socket that it returns")]
    fn new(socket: T) -> io::Result<Self> {
        Ok(Self(AsyncFd::new(Descriptor(socket))?))
    }

    /// Waits until `take` returns something.
    async fn next<R>(
        &mut self,
        mut take: impl FnMut(&mut T) -> io::Result<Option<R>>,
    ) -> io::Result<R> {
        loop {
            let mut ready = self.0.readable_mut().await?;
            if let Some(taken) = take(&mut ready.get_inner_mut().0)? {
                return Ok(taken);
            }
            ready.clear_ready();
        }
    }
}

/// Receiver of the kernel's notifications of commits by any program.
#[derive(Debug)]
pub struct AsyncNotifications(Waiting<Notifications>);

impl AsyncNotifications {
    /// Joins the multicast group in this thread's network namespace, in a runtime of tokio.
    ///
    /// # Errors
    /// As for [`Notifications::open`].
    pub fn open() -> io::Result<Self> {
        Ok(Self(Waiting::new(Notifications::open()?)?))
    }

    /// Waits for the next datagram, and calls `each` with its notifications.
    ///
    /// # Errors
    /// Notifications were lost, or the socket failed.
    pub async fn next(&mut self, mut each: impl FnMut(Notification<'_>)) -> io::Result<()> {
        self.0.next(|socket| Ok(socket.take(&mut each)?.then_some(()))).await
    }
}

/// Receiver of trace events.
#[derive(Debug)]
pub struct AsyncTracer(Waiting<Tracer>);

impl AsyncTracer {
    /// Joins the multicast group in this thread's network namespace, in a runtime of tokio.
    ///
    /// # Errors
    /// As for [`Tracer::open`].
    pub fn open() -> io::Result<Self> {
        Ok(Self(Waiting::new(Tracer::open()?)?))
    }

    /// Waits for trace events.
    ///
    /// # Errors
    /// Events were lost or cannot be decoded.
    pub async fn next(&mut self) -> io::Result<Vec<TraceEvent>> {
        let take = |socket: &mut Tracer| {
            let events = socket.take()?;
            Ok((!events.is_empty()).then_some(events))
        };
        self.0.next(take).await
    }
}
