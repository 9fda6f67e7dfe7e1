//! An API server for tests: stores, lists and watches objects, and injects planned faults.
//!
//! It speaks HTTP/1.1 on a port of 127.0.0.1, plain or with TLS, in a separate thread in the
//! network namespace of the thread that started it. Invariants: it answers as
//! kube-apiserver 1.36 does (see `traces/README.md`) unless a [`Fault`] was planned, and every
//! request is recorded before it is answered.

#![allow(clippy::expect_used, clippy::unwrap_used)] // A broken test server is a failed test.

mod authority;
mod credentials;
mod fault;
mod form;
mod kind;
pub mod object;
mod request;
mod respond;
mod state;
mod store;
mod stream;
mod target;
mod trace;
mod write;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::NamedTempFile;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use authority::{Authority, Identity};
pub use credentials::Credentials;
pub use fault::{Fault, On};
pub use kind::Kind;
pub use request::Request;

use fault::Plan;
use form::Form;
use state::{Shared, State};
use store::Store;
use test_hosts::link;
use test_hosts::{Deadline, stretched};

/// A running API server; ends when it is dropped.
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    commands: Option<UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
    kubeconfig: NamedTempFile,
}

/// The objects of a server at one time.
#[derive(Debug)]
pub struct Backup(Store);

/// Commands of a test to the server's thread; each is acknowledged.
#[derive(Debug)]
enum Command {
    Disconnect(std::sync::mpsc::Sender<()>),
    Stop(std::sync::mpsc::Sender<()>),
    Reopen(std::sync::mpsc::Sender<()>),
}

impl ApiServer {
    /// Starts a server without objects. With `API_SERVER_JSON=1` it answers JSON alone.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// The same at another address of this host.
    #[track_caller]
    pub fn start_at(ip: impl Into<IpAddr>) -> Self {
        link::raise_loopback();
        let has_only_json = std::env::var_os("API_SERVER_JSON").is_some();
        let listener = listen((ip.into(), 0).into()).expect("the address has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            state: Mutex::new(State { has_only_json, ..State::default() }),
            recorded: Condvar::new(),
            changed: watch::channel(0).0,
        });
        let (commands, received) = unbounded_channel();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || run(listener, &for_thread, received));
        let kubeconfig = write_kubeconfig(address);
        Self { address, shared, commands: Some(commands), thread: Some(thread), kubeconfig }
    }

    /// Starts a server with the node `node1`, the ServiceCIDR 10.96.0.0/16, and the service `web` at
    /// 10.96.0.10:80 with the endpoint 10.244.1.5:8080.
    #[track_caller]
    pub fn with_web() -> Self {
        Self::with_web_at(Ipv4Addr::LOCALHOST)
    }

    /// The same at another address of this host.
    #[track_caller]
    pub fn with_web_at(ip: impl Into<IpAddr>) -> Self {
        let server = Self::start_at(ip);
        server.push(object::node("node1", "192.168.50.2"));
        server.push(object::service_cidr("kubernetes", "10.96.0.0/16"));
        server.push(object::service("default/web", "10.96.0.10", 80));
        server.push(object::endpoint_slice("default/web-1", "web", &["10.244.1.5"], 8080));
        server
    }

    /// Starts a server with the objects that were recorded from a real one.
    #[track_caller]
    pub fn replaying() -> Self {
        let server = Self::start();
        for kind in Kind::ALL {
            server.state().store.load(kind, &trace::list(kind.list_trace()));
        }
        server
    }

    /// Replays the events of a watch that was recorded in this file of `traces`.
    #[track_caller]
    pub fn replay(&self, kind: Kind, watch_trace: &str) {
        self.change(|store| {
            trace::events(watch_trace).into_iter().for_each(|e| store.replay(kind, e))
        });
    }

    /// Adds or changes an object of the kind in its `kind`. Sets the resource version.
    #[track_caller]
    pub fn push(&self, object: Value) {
        self.change(|store| store.put(Kind::of(&object), object));
    }

    /// Adds or changes objects, all before a watch sends the first.
    #[track_caller]
    pub fn push_all(&self, objects: impl IntoIterator<Item = Value>) {
        self.change(|store| {
            objects.into_iter().for_each(|object| store.put(Kind::of(&object), object));
        });
    }

    /// Deletes an object by `namespace/name`, or `name` where there is no namespace.
    #[track_caller]
    pub fn delete(&self, kind: Kind, name: &str) {
        self.change(|store| store.delete(kind, name));
    }

    /// Forgets the history: watches from before get 410.
    pub fn compact(&self) {
        self.change(Store::compact);
    }

    /// A backup of etcd: all objects as they are now.
    pub fn backup(&self) -> Backup {
        Backup(self.state().store.clone())
    }

    /// Restores a backup: the versions go back to those of then. Real servers are stopped meanwhile.
    pub fn restore(&self, backup: Backup) {
        self.change(|store| *store = backup.0);
    }

    /// Encodes all objects now, so that the first watch is not delayed.
    pub fn encode(&self) {
        let store = &mut self.state().store;
        for form in [Form::Json, Form::Protobuf] {
            Kind::ALL.into_iter().for_each(|kind| drop(store.initial_chunks(kind, form)));
        }
    }

    /// From now on all answers are JSON, as those of a server without protobuf.
    pub fn answer_json(&self) {
        self.state().has_only_json = true;
    }

    /// Plans a fault for the next `times` requests of this kind.
    pub fn misbehave(&self, kind: Kind, on: On, fault: Fault, times: usize) {
        self.state().plan.add(kind, on, fault, times);
    }

    /// Forgets all planned faults.
    pub fn heal(&self) {
        self.state().plan = Plan::default();
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// Waits until the recorded requests satisfy `condition`.
    #[track_caller]
    pub fn wait_for_requests(&self, limit: Duration, condition: impl Fn(&[Request]) -> bool) {
        let (state, waited) = self
            .shared
            .recorded
            .wait_timeout_while(self.state(), stretched(limit), |state| !condition(&state.requests))
            .expect("no holder of the lock panics");
        assert!(!waited.timed_out(), "not within {limit:?}; requests: {:#?}", state.requests);
    }

    /// When the last byte of the last event of a watch was sent.
    pub fn sent_at(&self) -> Option<Instant> {
        self.state().sent_at
    }

    /// The Event objects that clients have written, in order.
    pub fn events(&self) -> Vec<Value> {
        self.state().events.written.clone()
    }

    /// From now on Event objects are refused.
    pub fn forbid_events(&self) {
        self.state().events.forbidden = true;
    }

    /// From now on this verb on this resource is refused with 403, such as `create` on `services`.
    pub fn forbid(&self, verb: &'static str, resource: &'static str) {
        self.state().writes.forbidden.push((verb, resource));
    }

    /// From now on requests with this verb on this resource get no answer.
    pub fn ignore(&self, verb: &'static str, resource: &'static str) {
        self.state().writes.ignored.push((verb, resource));
    }

    /// Another client changes this object just before the next merge patch of an object of its kind.
    pub fn change_before_patch(&self, object: Value) {
        self.state().writes.before_patch = Some(object);
    }

    /// The object with this key, as a watch shows it.
    pub fn object(&self, kind: Kind, key: &str) -> Option<Value> {
        self.state().store.get(kind, key)
    }

    /// From now on new Services get ClusterIPs of IPv6, and no others.
    pub fn allocate_only_ipv6(&self) {
        self.state().writes.has_only_ipv6 = true;
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.state().store.version()
    }

    /// The objects of this kind, by `namespace/name`, or `name` where there is no namespace.
    pub fn names(&self, kind: Kind) -> Vec<String> {
        self.state().store.keys(kind)
    }

    /// From now on Event objects are accepted.
    pub fn allow_events(&self) {
        self.state().events.forbidden = false;
    }

    /// Closes the port and breaks all connections; the objects stay.
    pub fn stop(&self) {
        self.command(Command::Stop);
    }

    /// Opens the same port again.
    pub fn reopen(&self) {
        self.command(Command::Reopen);
    }

    /// From now on new connections have TLS with a new certificate of `authority`, and clients need
    /// one of `clients` if there is one. Breaks all connections.
    pub fn use_tls(&self, authority: &Authority, clients: Option<&Authority>) {
        self.state().tls = Some(authority.acceptor(clients));
        self.command(Command::Disconnect);
    }

    /// From now on requests without this token are refused. Breaks all connections.
    pub fn demand_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
        self.command(Command::Disconnect);
    }

    /// A kubeconfig file for this server without TLS, which lives as long as it does.
    pub fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn command(&self, command: impl FnOnce(std::sync::mpsc::Sender<()>) -> Command) {
        let (done, wait) = std::sync::mpsc::channel();
        let commands = self.commands.as_ref().expect("the server lives until it is dropped");
        commands.send(command(done)).expect("the server's thread lives");
        wait.recv_timeout(Duration::from_secs(10)).expect("the server's thread obeys");
    }

    fn change(&self, change: impl FnOnce(&mut Store)) {
        let version = {
            let mut state = self.state();
            change(&mut state.store);
            state.store.version()
        };
        self.shared.changed.send_replace(version);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A certificate that nothing shows. Without one, clients read all those that the machine trusts,
/// which takes seconds where a processor is emulated; with a real server they have one.
const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/apiserver/authority.pem");

fn write_kubeconfig(address: SocketAddr) -> NamedTempFile {
    let cluster = format!("{{server: \"http://{address}\", certificate-authority: {AUTHORITY:?}}}");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {cluster}}}]\n\
         users: [{{name: test, user: {{token: secret-of-the-test}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    );
    let file = NamedTempFile::new().expect("the temporary folder is writable");
    std::fs::write(file.path(), text).expect("the temporary file is writable");
    file
}

/// The server's thread.
fn run(listener: TcpListener, shared: &Arc<Shared>, mut commands: UnboundedReceiver<Command>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async move {
        let address = listener.local_addr().expect("a bound socket has an address");
        let mut open = Some(tokio::net::TcpListener::from_std(listener).expect("it is a listener"));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    None => return,
                    Some(Command::Disconnect(done)) => {
                        connections.shutdown().await;
                        let _ = done.send(());
                    }
                    Some(Command::Stop(done)) => {
                        open = None;
                        connections.shutdown().await;
                        let _ = done.send(());
                    }
                    Some(Command::Reopen(done)) => {
                        open = Some(bind_again(address).await);
                        let _ = done.send(());
                    }
                },
                socket = accept(open.as_ref()) => {
                    connections.spawn(serve(socket, Arc::clone(shared)));
                }
            }
        }
    });
}

/// Listens with a queue as long as that of kube-apiserver, which is the kernel's default limit.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// Listens on a port that was just closed. A child of another test may still hold the old listener,
/// between `fork` and `exec`.
async fn bind_again(address: SocketAddr) -> tokio::net::TcpListener {
    let deadline = Deadline::after(Duration::from_secs(5));
    loop {
        match listen(address).and_then(tokio::net::TcpListener::from_std) {
            Ok(listener) => return listener,
            Err(error) => assert!(deadline.left().is_some(), "{address} stays in use: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Serves a connection, plain or with TLS.
async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    let _ = socket.set_nodelay(true);
    let tls = shared.lock().tls.clone();
    match tls {
        None => respond::serve(socket, shared).await,
        Some(tls) => {
            // Otherwise the client gets an alert.
            if let Ok(socket) = tls.accept(socket).await {
                respond::serve(socket, shared).await;
            }
        }
    }
}

/// The next connection; never, if the port is closed.
async fn accept(listener: Option<&tokio::net::TcpListener>) -> TcpStream {
    match listener {
        Some(listener) => listener.accept().await.expect("a listener accepts").0,
        None => std::future::pending().await,
    }
}
