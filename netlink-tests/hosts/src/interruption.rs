//! The end of a demonstration by a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// The user interrupted the program.
#[derive(Debug)]
pub struct Interrupted;

/// Whether a signal asked for the end. Signals must not kill us: a folder is to be removed and a
/// daemon to be ended first.
#[derive(Clone, Debug)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Takes SIGINT, SIGTERM and SIGHUP over. Handlers, unlike a mask, do not reach the programs that we start.
    ///
    /// # Panics
    /// If a signal cannot be handled.
    #[must_use]
    pub fn listen() -> Self {
        let flag = Self(Arc::default());
        let raise = flag.clone();
        let runtime = Builder::new_current_thread().enable_io().build().expect("a runtime");
        let context = runtime.enter();
        let [mut interrupt, mut terminate, mut hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .map(|kind| signal(kind).expect("a signal that can be handled"));
        drop(context);
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
            raise.0.store(true, Ordering::Relaxed);
        });
        flag
    }

    /// # Errors
    /// A signal has asked for the end.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}
