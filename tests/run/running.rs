//! The daemon's loop on a thread, and what a test waits for.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use daemon::observe::Observe;
use daemon::run::{MissingNode, Parts, RouteLocalnet, Run};
use daemon::source::notice::Notice;
use daemon::writer::Writer;
use engine::model::{Arrival, Event, Problem, Resource};
use engine::{Engine, GRACE};
use fake_kernel::{Fake, Mishap};
use tokio::sync::{mpsc, oneshot};

use crate::kernel::Shared;
use crate::tables::{contents, engine, from_scratch};

/// Nothing takes longer than this.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// A daemon on a thread of its own.
pub(super) struct Daemon {
    pub(super) kernel: Shared,
    pub(super) events: mpsc::Sender<Arrival>,
    pub(super) notices: mpsc::Receiver<Notice>,
    pub(super) observe: Observe,
    /// All events so far.
    pub(super) applied: Vec<Event>,
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Daemon {
    pub(super) fn start(kernel: Fake) -> Self {
        let mut daemon = Self::start_unlisted(engine(), Shared::new(kernel));
        daemon.list(Vec::new());
        daemon
    }

    /// One that waits for its first lists.
    pub(super) fn start_unlisted(engine: Engine, kernel: Shared) -> Self {
        Self::start_with(engine, kernel, None)
    }

    pub(super) fn start_with(
        engine: Engine,
        kernel: Shared,
        route_localnet: Option<RouteLocalnet>,
    ) -> Self {
        Self::start_changed(engine, kernel, |parts| parts.localhost.route_localnet = route_localnet)
    }

    /// Changes the loop before it starts.
    pub(super) fn start_changed(
        engine: Engine,
        kernel: Shared,
        change: impl FnOnce(&mut Parts<Shared>),
    ) -> Self {
        let writer = Writer::spawn(kernel.clone()).unwrap();
        let (events, queue) = mpsc::channel(16);
        let observe = Observe::new();
        let (report, notices) = mpsc::channel(16);
        // As with manifests, of which none has to be a Node.
        let node = ("node".to_owned(), MissingNode::Eligible);
        let mut parts = Parts { notices: Some(report), node, ..Parts::default() };
        change(&mut parts);
        let run = Run::new(engine, writer, queue, observe.clone(), parts);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let ended = runtime.unwrap().block_on(run.until(async { drop(stopped.await) }));
            ended.expect("the kernel's thread goes on");
        });
        Self { kernel, events, notices, observe, applied: Vec::new(), stop, thread }
    }

    /// Sends the first lists, which hold these objects.
    pub(super) fn list(&mut self, mut objects: Vec<Event>) {
        objects.extend(Resource::ALL.map(Event::Listed));
        self.send(objects);
    }

    pub(super) fn send(&mut self, events: Vec<Event>) {
        self.applied.extend(events.clone());
        self.events.blocking_send(Arrival::new(events, Instant::now())).unwrap();
    }

    pub(super) fn expect(&self, mishap: Mishap) {
        self.kernel.with(|kernel| kernel.expect_mishap(mishap));
    }

    /// Waits for the next problem.
    #[track_caller]
    pub(super) fn problem(&mut self) -> Problem {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Ok(Notice::LeftOut(problem)) = self.notices.try_recv() {
                return problem;
            }
            assert!(Instant::now() < deadline, "no problem within {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the tables are what a daemon would write that starts now.
    #[track_caller]
    pub(super) fn wait(&self) {
        let expected = from_scratch(&self.applied);
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            self.wait_for_quiet();
            // Between two transactions the contents may contradict each other, which panics.
            let found = catch_unwind(AssertUnwindSafe(|| self.found()));
            if found.is_ok_and(|found| found == expected) {
                return;
            }
        }
        let found = self.found();
        assert!(found == expected, "{found:#?} is not {expected:#?}");
    }

    /// The meaning of both tables; empty while one is missing.
    pub(super) fn found(&self) -> BTreeMap<String, String> {
        if self.kernel.has_tables() {
            contents(&mut self.kernel.with(|kernel| kernel.clone()))
        } else {
            BTreeMap::new()
        }
    }

    /// Between two transactions there may be lists that no route names, for [`GRACE`]; after one
    /// that went wrong the next one comes 50 ms later.
    pub(super) fn wait_for_quiet(&self) {
        let committed = || self.kernel.with(|kernel| kernel.commits());
        let mut before = usize::MAX;
        while before != committed() {
            before = committed();
            std::thread::sleep(GRACE + Duration::from_millis(150));
        }
    }

    /// Waits until so many transactions were committed since the kernel began.
    #[track_caller]
    pub(super) fn wait_for_commits(&self, count: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.kernel.with(|kernel| kernel.commits()) < count {
            assert!(Instant::now() < deadline, "no {count} commits in {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the loop has taken in all events and the kernel's thread has read the tables.
    #[track_caller]
    pub(super) fn wait_until_taken(&self) {
        self.wait_until_waiting(0);
        std::thread::sleep(Duration::from_millis(100));
    }

    /// Waits until at most so many arrivals wait to be taken in.
    #[track_caller]
    pub(super) fn wait_until_waiting(&self, most: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.events.max_capacity() - self.events.capacity() > most {
            assert!(Instant::now() < deadline, "events wait after {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().expect("the loop ends by itself");
    }
}

#[track_caller]
pub(super) fn wait_for(condition: impl Fn() -> bool) -> Duration {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    started.elapsed()
}

/// The value of a metric, by its name and labels; 0 while it is absent.
pub(super) fn metric(daemon: &Daemon, name: &str) -> f64 {
    let text = daemon.observe.metrics_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// How many syncs of a kind (`full`, `partial`) succeeded or failed.
pub(super) fn syncs(daemon: &Daemon, kind: &str) -> f64 {
    let name = format!("kubeproxy_sync_{kind}_proxy_rules_duration_seconds_count");
    metric(daemon, &format!("{name}{{ip_family=\"IPv4\"}}"))
}
