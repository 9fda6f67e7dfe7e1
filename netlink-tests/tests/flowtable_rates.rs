//! Rates of established connections of services, with and without the flowtable.
//!
//! `make bench-flowtable` runs it on a kernel that has flowtables, and prints a table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // It measures.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netlink_tests::scenario::{Manifests, WEB, slice, web_with_node_port};
use netlink_tests::{Answer, Host, Net, Process, eventually};

/// Duration of one measurement.
const TURN: Duration = Duration::from_millis(400);

/// Turns of each measurement, alternately without and with the flowtable.
const TURNS: usize = 9;

/// Connections at the same time where there are many.
const MANY: usize = 16;

/// A node with a pod that serves and one that sends.
struct Lab {
    client: Host,
    pod: Host,
    net: Net,
    is_on: bool,
    _daemon: Process,
    _manifests: Manifests,
}

impl Lab {
    fn start(flowtable: &str) -> Self {
        let net = Net::new();
        let (pod, client) = (net.pod("a", "10.244.1.5"), net.pod("client", "10.244.1.9"));
        let server = pod.serve_tcp(8080, "a");
        let manifests = Manifests::new(&[("web", &web_with_node_port()), ("slice", &slice("a"))]);
        let more = ["--healthz-bind-address=", "--metrics-bind-address=", flowtable];
        let daemon = manifests.run_with(net.node(), &more);
        eventually("a service", Duration::from_secs(30), || {
            matches!(client.connect_tcp(WEB), Answer::From { .. }).then_some(())
        });
        // Devices follow the first commit.
        thread::sleep(Duration::from_secs(1));
        // Each load has a server of its own.
        drop(server);
        Self {
            client,
            pod,
            net,
            is_on: flowtable.ends_with("on"),
            _daemon: daemon,
            _manifests: manifests,
        }
    }
}

/// A way to use a connection.
#[derive(Clone, Copy)]
enum Load {
    /// TCP, as many bytes as possible in writes of this size.
    Stream(usize),
    /// TCP, a question and an answer of this size in turn.
    Questions(usize),
    /// UDP, as many datagrams of this size as possible.
    Datagrams(usize),
}

impl Load {
    fn text(self) -> String {
        match self {
            Self::Stream(size) => format!("TCP stream, writes of {size} bytes"),
            Self::Questions(size) => format!("TCP questions of {size} bytes"),
            Self::Datagrams(size) => format!("UDP datagrams of {size} bytes"),
        }
    }

    /// Returns the rate: bytes, questions or received datagrams a second.
    fn rate(self, lab: &Lab, flows: usize) -> f64 {
        let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let server = self.serve(lab, flows, &count, &is_over);
        let mut clients = Vec::new();
        for _ in 0..flows {
            let is_over = Arc::clone(&is_over);
            clients.push(lab.client.run(|| self.send(is_over)));
        }
        // Every connection exceeds the threshold first.
        if lab.is_on {
            eventually("connections in the flowtable", Duration::from_secs(30), || {
                (lab.net.node().offloaded().len() >= flows).then_some(())
            });
        }
        thread::sleep(TURN / 4);
        let (begin, before) = (Instant::now(), count.load(Ordering::Relaxed));
        thread::sleep(TURN);
        let (took, after) = (begin.elapsed(), count.load(Ordering::Relaxed));
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.into_iter().for_each(|server| server.join().unwrap());
        (after - before) as f64 / took.as_secs_f64()
    }

    fn serve(
        self,
        lab: &Lab,
        flows: usize,
        count: &Arc<AtomicU64>,
        is_over: &Arc<AtomicBool>,
    ) -> Vec<thread::JoinHandle<()>> {
        let limit = Some(Duration::from_millis(200));
        if let Self::Datagrams(size) = self {
            let socket = lab.pod.run(|| UdpSocket::bind("0.0.0.0:8080")).unwrap();
            socket.set_read_timeout(limit).unwrap();
            let (count, is_over) = (Arc::clone(count), Arc::clone(is_over));
            return vec![thread::spawn(move || {
                let mut bytes = vec![0; size];
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((_, from)) = socket.recv_from(&mut bytes) else { continue };
                    // Some answers make the flow an established one.
                    if count.fetch_add(1, Ordering::Relaxed) % 256 < 32 {
                        let _ = socket.send_to(&[1], from);
                    }
                }
            })];
        }
        let listener = lab.pod.run(|| TcpListener::bind("0.0.0.0:8080")).unwrap();
        let (count, is_over) = (Arc::clone(count), Arc::clone(is_over));
        vec![thread::spawn(move || {
            let mut threads = Vec::new();
            for _ in 0..flows {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(limit).unwrap();
                let (count, is_over) = (Arc::clone(&count), Arc::clone(&is_over));
                threads.push(thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while !is_over.load(Ordering::Relaxed) {
                        let Ok(length) = stream.read(&mut bytes) else { continue };
                        if let Self::Questions(_) = self {
                            count.fetch_add(1, Ordering::Relaxed);
                            let _ = stream.write_all(&bytes[..length]);
                        } else {
                            count.fetch_add(length as u64, Ordering::Relaxed);
                        }
                    }
                }));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        })]
    }

    /// Starts a client in the namespace of the calling thread.
    fn send(self, is_over: Arc<AtomicBool>) -> thread::JoinHandle<()> {
        if let Self::Datagrams(size) = self {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(WEB).unwrap();
            return thread::spawn(move || {
                let bytes = vec![7; size];
                while !is_over.load(Ordering::Relaxed) {
                    let _ = socket.send(&bytes);
                }
            });
        }
        let mut stream = TcpStream::connect(WEB).unwrap();
        stream.set_nodelay(true).unwrap();
        let limit = Some(Duration::from_millis(500));
        stream.set_read_timeout(limit).unwrap();
        stream.set_write_timeout(limit).unwrap();
        thread::spawn(move || {
            let (Self::Stream(size) | Self::Questions(size) | Self::Datagrams(size)) = self;
            let bytes = vec![7; size];
            let mut answer = vec![0; size];
            while !is_over.load(Ordering::Relaxed) {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
                if matches!(self, Self::Questions(_)) && stream.read_exact(&mut answer).is_err() {
                    return;
                }
            }
        })
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[test]
#[ignore = "measures for minutes: make bench-flowtable"]
fn rates_with_and_without_the_flowtable() {
    let labs = [Lab::start("--flowtable=off"), Lab::start("--flowtable=on")];
    println!("| load | flows | without (1/s) | with (1/s) | ratio |");
    println!("|---|---|---|---|---|");
    let loads = [
        Load::Stream(1 << 16),
        Load::Stream(64),
        Load::Questions(64),
        Load::Questions(1_400),
        Load::Datagrams(64),
        Load::Datagrams(1_400),
    ];
    for load in loads {
        for flows in [1, MANY] {
            let mut rates = [Vec::new(), Vec::new()];
            for _ in 0..TURNS {
                for (lab, rates) in labs.iter().zip(&mut rates) {
                    rates.push(load.rate(lab, flows));
                }
            }
            let [without, with] = rates.map(median);
            let (text, ratio) = (load.text(), with / without);
            println!("| {text} | {flows} | {without:.0} | {with:.0} | {ratio:.2} |");
        }
    }
}
