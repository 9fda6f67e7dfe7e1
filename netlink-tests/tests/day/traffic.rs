//! Connections to the service `web`, opened without a pause, each counted for the step in which it
//! began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netlink_tests::scenario::{NODE_PORT, WEB};
use netlink_tests::{Answer, Connection, Host, eventually};

use crate::node::SOON;

/// Clients that connect in threads of their own, and connections that stay open.
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    clients: Vec<Host>,
    threads: Vec<JoinHandle<()>>,
    open: Vec<Open>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    step: AtomicUsize,
    steps: Mutex<Vec<Outcomes>>,
}

/// A connection that stays open, and the server that answered first.
struct Open {
    connection: Connection,
    server: String,
}

/// The outcomes of the connections that began in one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    /// Servers that answered, by destination.
    pub(crate) servers: BTreeMap<&'static str, BTreeSet<String>>,
    /// Failures by destination.
    pub(crate) failed: BTreeMap<&'static str, Vec<String>>,
    /// Connections of each client.
    counts: BTreeMap<usize, usize>,
}

impl Traffic {
    pub(crate) fn start(clients: &[&Host]) -> Self {
        let shared = Arc::new(Shared::default());
        let clients: Vec<Host> = clients.iter().map(|client| (*client).clone()).collect();
        let threads = clients.iter().cloned().enumerate().map(|(number, client)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.connect_until_over(number, &client))
        });
        let threads = threads.collect();
        Self { shared, clients, threads, open: Vec::new() }
    }

    /// Opens connections that stay open.
    #[track_caller]
    pub(crate) fn open(&mut self) {
        for client in &self.clients {
            let connection = client.open_tcp(WEB).unwrap();
            let server = connection.first().server().to_owned();
            self.open.push(Open { connection, server });
        }
    }

    /// Fails if one of the connections that stay open does not answer.
    #[track_caller]
    pub(crate) fn ask_open(&mut self) {
        for open in &mut self.open {
            assert_eq!(open.connection.ask().server(), open.server);
        }
    }

    /// Ends the step: all of its connections have an outcome, some of them begun after this call.
    #[track_caller]
    pub(crate) fn take(&self) -> Outcomes {
        self.wait_for_a_round();
        let step = self.shared.step.fetch_add(1, Ordering::SeqCst);
        // A client that has an outcome of the next step has none left of this one.
        self.wait_for_a_round();
        self.shared.steps.lock().unwrap()[step].clone()
    }

    /// Waits until each client has tried each destination in the present step.
    #[track_caller]
    fn wait_for_a_round(&self) {
        let before = self.counts();
        eventually("connections of all clients", SOON, || {
            let now = self.counts();
            let count = |counts: &BTreeMap<usize, usize>, number| counts.get(&number).copied();
            let has_round = |number| {
                let [before, now] = [&before, &now].map(|it| count(it, number).unwrap_or(0));
                now > before + DESTINATIONS.len()
            };
            (0..self.clients.len()).all(has_round).then_some(())
        });
    }

    fn counts(&self) -> BTreeMap<usize, usize> {
        let step = self.shared.step.load(Ordering::SeqCst);
        let steps = self.shared.steps.lock().unwrap();
        steps.get(step).map(|outcomes| outcomes.counts.clone()).unwrap_or_default()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn connect_until_over(&self, number: usize, client: &Host) {
        for to in DESTINATIONS.into_iter().cycle() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let step = self.step.load(Ordering::SeqCst);
            let answer = client.connect_tcp(to);
            let mut steps = self.steps.lock().unwrap();
            while steps.len() <= step {
                steps.push(Outcomes::default());
            }
            steps[step].add(number, to, &answer);
            drop(steps);
            thread::sleep(PAUSE);
        }
    }
}

impl Outcomes {
    fn add(&mut self, number: usize, to: &'static str, answer: &Answer) {
        *self.counts.entry(number).or_default() += 1;
        if let Answer::From { server, .. } = answer {
            self.servers.entry(to).or_default().insert(server.clone());
        } else {
            self.failed.entry(to).or_default().push(format!("{answer:?}"));
        }
    }
}

/// Where each client connects to, in turn.
const DESTINATIONS: [&str; 2] = [WEB, NODE_PORT];

/// Leaves the processors to the daemon.
const PAUSE: Duration = Duration::from_millis(1);
