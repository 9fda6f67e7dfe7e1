//! The thread that owns the kernel's socket, and the handle for async code.
//!
//! The kernel processes a transaction inside one system call, which may take seconds, so it needs a
//! thread of its own. A few elements take microseconds, less than to wake that thread, which on busy
//! processors also waits for its turn: if nothing is queued, the caller commits them itself. Requests
//! run one after the other, in order.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;

use futures::future::{self, Either};
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
    /// `None` if the kernel belongs to the caller of [`Requests`].
    idle: Option<Arc<Shared<K>>>,
}

/// The kernel, for the thread and for callers while the thread has nothing to do.
#[derive(Debug)]
struct Shared<K> {
    kernel: Mutex<K>,
    /// Requests that the thread has not completed.
    queued: AtomicUsize,
}

/// Most elements of a transaction that the caller commits itself. The kernel takes about a
/// microsecond for each.
const FEW: usize = 64;

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
        (Self { tasks, idle: None }, Requests(queue))
    }

    /// Starts the thread, which then owns `kernel`.
    ///
    /// # Errors
    /// The error of the system if it cannot start a thread.
    pub fn spawn(kernel: K) -> io::Result<Self> {
        let (writer, requests) = Self::without_thread();
        let shared = Arc::new(Shared { kernel: Mutex::new(kernel), queued: AtomicUsize::new(0) });
        let idle = Some(Arc::clone(&shared));
        thread::Builder::new().name("nftables".into()).spawn(move || {
            for task in requests.0 {
                // A task that panicked has ended this thread; a caller that panicked, the daemon.
                let Ok(mut kernel) = shared.kernel.lock() else { return };
                task(&mut kernel);
                drop(kernel);
                shared.queued.fetch_sub(1, Ordering::Release);
            }
        })?;
        Ok(Self { idle, ..writer })
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
        if let Some(shared) = &self.idle {
            shared.queued.fetch_add(1, Ordering::Relaxed);
        }
        let sent = self.tasks.send(task).map_err(|_| WriterGone);
        async move {
            sent?;
            result.await.map_err(|_| WriterGone)
        }
    }

    /// Commits `transaction` and returns it with the outcome. The transaction is queued by this
    /// call, or committed if it is small and nothing is queued.
    ///
    /// # Errors
    /// [`WriterGone`]; the error of the commit itself is in the pair.
    pub fn commit(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Answered, WriterGone>> + Send + use<K> {
        let is_small = is_small(&transaction);
        let commit = move |kernel: &mut K| {
            let outcome = kernel.commit(&transaction);
            (transaction, outcome)
        };
        match self.idle_kernel().filter(|_| is_small) {
            Some(mut kernel) => Either::Left(future::ready(Ok(commit(&mut kernel)))),
            None => Either::Right(self.run(commit)),
        }
    }

    /// Returns the kernel if the thread has nothing to do.
    fn idle_kernel(&self) -> Option<MutexGuard<'_, K>> {
        let shared = self.idle.as_ref()?;
        let is_idle = shared.queued.load(Ordering::Acquire) == 0;
        shared.kernel.try_lock().ok().filter(|_| is_idle)
    }
}

/// Returns whether a transaction changes a few elements and nothing else.
fn is_small(transaction: &Transaction) -> bool {
    let lengths = transaction.operations.iter().map(|it| it.elements().map(<[_]>::len));
    lengths.sum::<Option<usize>>().is_some_and(|elements| elements <= FEW)
}
