//! The thread that owns the kernel's socket, and the handle for async code.
//!
//! The kernel processes a transaction inside one system call, which may take seconds, so it needs a
//! thread of its own. Requests run one after the other, in order.

use std::io;
use std::sync::mpsc;
use std::thread;

use nft::Transaction;
use nft::kernel::{CommitError, Committed, Kernel};
use tokio::sync::oneshot;

type Task<K> = Box<dyn FnOnce(&mut K) + Send>;

/// A transaction and its outcome.
pub(super) type Answered = (Transaction, Result<Committed, CommitError>);

/// The thread has ended. Only a panic in a task ends it, which is a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread that talks to the kernel has ended")]
pub struct WriterGone;

/// Handle of the thread that owns a kernel. The thread ends after this is dropped.
#[derive(Debug)]
pub struct Writer<K> {
    tasks: mpsc::Sender<Task<K>>,
}

/// Queued requests that the caller runs by itself, instead of the thread.
#[derive(Debug)]
pub struct Requests<K>(mpsc::Receiver<Task<K>>);

impl<K> Requests<K> {
    /// Runs the next request. Returns false if there is none.
    pub fn run_next(&self, kernel: &mut K) -> bool {
        self.0.try_recv().map(|task| task(kernel)).is_ok()
    }
}

impl<K: Kernel + Send + 'static> Writer<K> {
    /// Returns a writer whose requests the caller runs, for simulations.
    pub fn without_thread() -> (Self, Requests<K>) {
        let (tasks, queue) = mpsc::channel();
        (Self { tasks }, Requests(queue))
    }

    /// Starts the thread, which then owns `kernel`.
    ///
    /// # Errors
    /// The error of the system if it cannot start a thread.
    pub fn spawn(mut kernel: K) -> io::Result<Self> {
        let (writer, requests) = Self::without_thread();
        thread::Builder::new().name("nftables".into()).spawn(move || {
            for task in requests.0 {
                task(&mut kernel);
            }
        })?;
        Ok(writer)
    }

    /// Runs `task` on the thread after all earlier requests and returns its result.
    ///
    /// The task is queued by this call; it runs even if the returned future is dropped.
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
            // A send fails only if the future was dropped; the task has run nevertheless.
            let _ = answer.send(task(kernel));
        });
        let sent = self.tasks.send(task).map_err(|_| WriterGone);
        async move {
            sent?;
            result.await.map_err(|_| WriterGone)
        }
    }

    /// Commits `transaction` and returns it with the outcome. The transaction is queued by this
    /// call.
    ///
    /// # Errors
    /// [`WriterGone`]; the error of the commit itself is in the pair.
    pub fn commit(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Answered, WriterGone>> + Send + use<K> {
        self.run(move |kernel| {
            let outcome = kernel.commit(&transaction);
            (transaction, outcome)
        })
    }
}
