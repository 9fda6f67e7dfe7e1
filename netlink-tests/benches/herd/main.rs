//! What thousands of daemons ask of an API server when all start, or when it restarts.
//!
//! The clients are tasks of this process: the source of the daemon, whose objects are counted and
//! dropped, and the requests of client-go beside it (`client_go.rs`). The server is that of the
//! tests, a thread of this process. `CLIENTS=1000,5000` are the numbers of clients, `SERVICES` the
//! services of 5 endpoints, `ROUNDS` the number of runs.
//!
//! A client is up to date when it has an object of each resource that changed while the server was
//! away, or a list of it.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

mod client_go;
mod daemon_source;
mod herd;
mod wire;

use std::time::Duration;

use daemon::open_files;
use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Fault, Kind, On, Request};
use netlink_tests::builds::number;

use herd::{Client, Herd};
use wire::Wire;

/// Time for which the server is away in a restart.
const AWAY: Duration = Duration::from_secs(10);

/// Time in which watches that were just opened come to rest.
const SETTLE: Duration = Duration::from_secs(3);

/// Nothing takes longer than this.
const LIMIT: Duration = Duration::from_secs(300);

/// Open files of a client: both ends of a connection for each resource.
const FILES: u64 = 8;

/// Open files of all else.
const OTHER_FILES: u64 = 1_000;

/// Seconds that a busy server asks to wait, as priority and fairness does first.
const BUSY: u32 = 1;

/// What happens to all clients at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// All start.
    Start,
    /// All start, and the server is too busy for the first half of the requests.
    BusyStart,
    /// The server restarts and has all changes since.
    Restart,
    /// The server restarts and has no old changes: watches get 410.
    EmptyRestart,
}

impl Case {
    const ALL: [Self; 4] = [Self::Start, Self::BusyStart, Self::Restart, Self::EmptyRestart];

    fn name(self) -> &'static str {
        match self {
            Self::Start => "all start",
            Self::BusyStart => "all start, half of the requests get 429",
            Self::Restart => "server restarts",
            Self::EmptyRestart => "server restarts, versions expired",
        }
    }

    fn is_restart(self) -> bool {
        matches!(self, Self::Restart | Self::EmptyRestart)
    }
}

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    wire::use_all_ports();
    let clients = std::env::var("CLIENTS").ok().filter(|text| !text.is_empty());
    let clients = clients.unwrap_or_else(|| "1000,5000".to_owned());
    println!(
        "| clients | case | of | refused connections | lists | watches | most requests in 0.1 s | in \
         1 s | MB | half up to date, s | all, s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for count in clients.split(',') {
        let count: u32 = count.parse().unwrap();
        let (needed, hard) = (u64::from(count) * FILES + OTHER_FILES, open_files::raise().unwrap());
        if hard < needed {
            println!(
                "{count} clients are left out: they need {needed} open files, and the hard limit is \
                 {hard}. `ulimit -n` as root raises it."
            );
            continue;
        }
        for case in Case::ALL {
            for _ in 0..number("ROUNDS", 1) {
                for client in [Client::Daemon, Client::ClientGo] {
                    run(client, count, case);
                }
            }
        }
    }
}

/// Runs a case and prints its row.
fn run(client: Client, count: u32, case: Case) {
    let server = ApiServer::start();
    fill(&server, number("SERVICES", 100));
    server.encode();
    if case == Case::BusyStart {
        let half = (count / 2) as usize;
        Kind::ALL.into_iter().for_each(|kind| {
            server.misbehave(kind, On::Any, Fault::Busy(BUSY), half);
        });
    }
    let herd = Herd::new(client, &server);
    let (mut wire, mut before) = (Wire::now(), 0);
    herd.start(count, &server);
    herd.wait(LIMIT);
    if case.is_restart() {
        std::thread::sleep(SETTLE);
        server.stop();
        (wire, before) = (Wire::now(), server.requests().len());
        herd.expect_changes();
        change(&server, number("SERVICES", 100));
        if case == Case::EmptyRestart {
            server.compact();
        }
        server.encode();
        std::thread::sleep(AWAY);
        // A client may be faster than the server's acknowledgement.
        herd.begin(&server);
        server.reopen();
        herd.wait(LIMIT);
    }
    let bytes = Wire::now().bytes - wire.bytes;
    let requests = server.requests();
    let (lists, watches) = lists_and_watches(&requests[before..]);
    let requests = herd.requests();
    let ready = herd.ready();
    println!(
        "| {count} | {} | {} | {} | {lists} | {watches} | {} | {} | {:.1} | {:.1} | {:.1} |",
        case.name(),
        client.name(),
        requests.refused,
        requests.most_in(Duration::from_millis(100)),
        requests.most_in(Duration::from_secs(1)),
        bytes as f64 / 1e6,
        ready[ready.len() / 2].as_secs_f64(),
        ready[ready.len() - 1].as_secs_f64(),
    );
}

/// Numbers of lists, streaming ones included, and of other watches.
fn lists_and_watches(requests: &[Request]) -> (usize, usize) {
    let watches = requests.iter().filter(|request| request.on == On::Watch).count();
    (requests.len() - watches, watches)
}

fn fill(server: &ApiServer, services: u32) {
    server.push(node(herd::NODE, "192.168.50.2"));
    server.push(service_cidr("kubernetes", "10.96.0.0/12"));
    server.push_all((0..services).flat_map(|number| [service_of(number, 80), slice_of(number)]));
}

/// Changes an object of each resource.
fn change(server: &ApiServer, services: u32) {
    server.push(node(herd::NODE, "192.168.50.3"));
    server.push(service_cidr("more", "10.112.0.0/12"));
    server.push(service_of(services - 1, 81));
    server.push(slice_of(services));
}

fn service_of(number: u32, port: u16) -> serde_json::Value {
    let [_, _, third, fourth] = number.to_be_bytes();
    service(&format!("default/service-{number}"), &format!("10.96.{third}.{fourth}"), port)
}

fn slice_of(number: u32) -> serde_json::Value {
    let [_, _, third, fourth] = number.to_be_bytes();
    let addresses: Vec<_> = (1..=5).map(|pod| format!("10.{pod}.{third}.{fourth}")).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let name = format!("service-{number}");
    endpoint_slice(&format!("default/{name}-a"), &name, &addresses, 8080)
}
