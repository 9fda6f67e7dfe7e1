//! Many clients of one server, and what they have sent and received.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::{ApiServer, Kind};
use tokio::runtime::Runtime;

use super::{client_go, daemon_source};

/// Name of the node of all clients: only its object is different between real ones.
pub(crate) const NODE: &str = "node1";

/// Time between two looks at the clients.
const LOOK: Duration = Duration::from_millis(10);

/// Whose requests are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// The source of the daemon.
    Daemon,
    /// A model of client-go, which kube-proxy uses.
    ClientGo,
}

impl Client {
    /// Returns the name for the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Daemon => "deltaproxy",
            Self::ClientGo => "client-go",
        }
    }
}

/// Clients, with a runtime of their own.
pub(crate) struct Herd {
    runtime: Runtime,
    client: Client,
    kubeconfig: PathBuf,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// What all clients have done.
#[derive(Default)]
struct State {
    /// Beginning of what is measured.
    begin: Option<Instant>,
    /// Version of the server's objects.
    version: u64,
    /// For each client, the resources that it still has to receive, as bits, and when it had all.
    clients: Vec<(u8, Option<Instant>)>,
    /// When each request was answered or failed.
    requests: Requests,
}

/// The requests of all clients.
#[derive(Clone, Default)]
pub(crate) struct Requests {
    answered: Vec<Instant>,
    /// Number of those without an answer.
    pub(crate) refused: usize,
}

impl Requests {
    /// Returns the largest number of answered requests within a time of this length.
    pub(crate) fn most_in(&self, window: Duration) -> usize {
        let times = &self.answered;
        let first = |end: usize| times.partition_point(|time| times[end] - *time >= window);
        (0..times.len()).map(|end| end + 1 - first(end)).max().unwrap_or_default()
    }
}

/// One client's access to what is counted.
#[derive(Clone)]
pub(crate) struct Counter {
    state: Arc<Mutex<State>>,
    number: usize,
}

impl Counter {
    /// Counts a request, which the server answered or refused to connect for.
    pub(crate) fn request(&self, is_answered: bool) {
        let mut state = self.state.lock().unwrap();
        if is_answered {
            state.requests.answered.push(Instant::now());
        } else {
            state.requests.refused += 1;
        }
    }

    /// Returns the version of the server's objects, which do not change while it answers.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().unwrap().version
    }

    /// The client has the present state of this resource.
    pub(crate) fn received(&self, kind: Kind) {
        let mut state = self.state.lock().unwrap();
        let (missing, at) = &mut state.clients[self.number];
        *missing &= !bit(kind);
        if *missing == 0 && at.is_none() {
            *at = Some(Instant::now());
        }
    }
}

fn bit(kind: Kind) -> u8 {
    1 << Kind::ALL.iter().position(|other| *other == kind).unwrap()
}

/// The resources that each client has to receive.
fn all() -> u8 {
    Kind::ALL.into_iter().map(bit).sum()
}

impl Herd {
    pub(crate) fn new(client: Client, server: &ApiServer) -> Self {
        Self {
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                // They load credentials: more would take the processors from the clients.
                .max_blocking_threads(8)
                .enable_all()
                .build()
                .unwrap(),
            client,
            kubeconfig: server.kubeconfig().to_owned(),
            address: server.address(),
            state: Arc::default(),
        }
    }

    /// Starts this number of clients.
    pub(crate) fn start(&self, count: u32, server: &ApiServer) {
        self.state.lock().unwrap().clients = vec![(all(), None); count as usize];
        self.begin(server);
        for number in 0..count as usize {
            let counter = Counter { state: Arc::clone(&self.state), number };
            match self.client {
                Client::Daemon => {
                    self.runtime.spawn(daemon_source::follow(self.kubeconfig.clone(), counter));
                }
                Client::ClientGo => {
                    for kind in Kind::ALL {
                        self.runtime.spawn(client_go::follow(self.address, kind, counter.clone()));
                    }
                }
            }
        }
    }

    /// From now on each client has to receive each resource once more.
    pub(crate) fn expect_changes(&self) {
        let mut state = self.state.lock().unwrap();
        state.clients.fill((all(), None));
        state.requests = Requests::default();
    }

    /// Times count from now on. The objects of the server stay as they are.
    pub(crate) fn begin(&self, server: &ApiServer) {
        let mut state = self.state.lock().unwrap();
        state.begin = Some(Instant::now());
        state.version = server.version();
    }

    /// Waits until all clients have received all resources.
    pub(crate) fn wait(&self, limit: Duration) {
        let end = Instant::now() + limit;
        loop {
            let missing = {
                let clients = &self.state.lock().unwrap().clients;
                clients.iter().filter(|(missing, _)| *missing > 0).count()
            };
            if missing == 0 {
                return;
            }
            assert!(Instant::now() < end, "{missing} clients are not up to date after {limit:?}");
            thread::sleep(LOOK);
        }
    }

    /// Returns the requests.
    pub(crate) fn requests(&self) -> Requests {
        let mut requests = self.state.lock().unwrap().requests.clone();
        requests.answered.sort_unstable();
        requests
    }

    /// Returns the times after which the clients had received all, in order.
    pub(crate) fn ready(&self) -> Vec<Duration> {
        let state = self.state.lock().unwrap();
        let begin = state.begin.unwrap();
        let mut times: Vec<_> =
            state.clients.iter().filter_map(|(_, at)| *at).map(|at| at - begin).collect();
        times.sort_unstable();
        times
    }
}
