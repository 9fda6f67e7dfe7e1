//! The thread that owns the kernel's socket, and the handle by which async code uses it.
//!
//! The kernel does a whole transaction inside one system call, which may take seconds; on a
//! thread of its own that stops nobody. Requests are done one after the other, in order.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::{CommitError, Committed, Kernel};
use crate::nft::Transaction;

type Task<K> = Box<dyn FnOnce(&mut K) + Send>;

/// A transaction and what came of it.
pub(super) type Outcome = (Transaction, Result<Committed, CommitError>);

/// The thread has ended, which it does only by a panic: a bug in what it was asked to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread that talks to the kernel has ended")]
pub struct WriterGone;

/// The way to the thread that owns a kernel. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Writer<K> {
    tasks: mpsc::Sender<Task<K>>,
}

/// The requests to a kernel, to be run by the caller.
#[derive(Debug)]
pub struct Requests<K>(mpsc::Receiver<Task<K>>);

impl<K> Requests<K> {
    /// Runs the next request; whether there was one.
    pub fn run_next(&self, kernel: &mut K) -> bool {
        self.0.try_recv().map(|task| task(kernel)).is_ok()
    }
}

impl<K: Kernel + Send + 'static> Writer<K> {
    /// A writer whose requests the caller runs, such as a simulation.
    pub fn without_thread() -> (Self, Requests<K>) {
        let (tasks, queue) = mpsc::channel();
        (Self { tasks }, Requests(queue))
    }

    /// Starts the thread, which owns `kernel` from then on.
    ///
    /// # Errors
    /// What the system reports if it cannot start a thread.
    pub fn spawn(mut kernel: K) -> io::Result<Self> {
        let (writer, requests) = Self::without_thread();
        thread::Builder::new().name("nftables".into()).spawn(move || {
            for task in requests.0 {
                task(&mut kernel);
            }
        })?;
        Ok(writer)
    }

    /// Runs `task` on the thread after all earlier requests, and gives its result.
    ///
    /// The thread gets the task at once; it runs even if the returned future is dropped.
    ///
    /// # Errors
    /// [`WriterGone`] if the thread has ended.
    pub fn run<T, F>(
        &self,
        task: F,
    ) -> impl Future<Output = Result<T, WriterGone>> + Send + use<K, T, F>
    where
        T: Send + 'static,
        F: FnOnce(&mut K) -> T + Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        let task: Task<K> = Box::new(move |kernel| {
            // Nobody waits any more if this fails; the task has been done all the same.
            let _ = answer.send(task(kernel));
        });
        let sent = self.tasks.send(task).map_err(|_| WriterGone);
        async move {
            sent?;
            result.await.map_err(|_| WriterGone)
        }
    }

    /// Commits `transaction` and gives it back with the outcome. The thread gets it at once.
    ///
    /// # Errors
    /// [`WriterGone`]; the commit's own errors are in the pair.
    pub fn commit(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Outcome, WriterGone>> + Send + use<K> {
        self.run(move |kernel| {
            let outcome = kernel.commit(&transaction);
            (transaction, outcome)
        })
    }
}
