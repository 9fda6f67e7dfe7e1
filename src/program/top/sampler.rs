//! Samples of the daemon and of the kernel.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conntrack::ReopenedTable;
use inspect::show::{Connections, Latest, Order};
use inspect::top::{
    ConnectionsSample, History, KernelSample, ROWS, Report, Sample, Scrape, Status, TopView,
};
use tokio::net::TcpStream;

use crate::client::{AnswerError, get, within};
use crate::clock::{now, since_1970};

/// Readers, and the results of the last reads.
pub(super) struct Sampler {
    daemon: Option<SocketAddr>,
    started: Instant,
    kernel: KernelReader,
    history: History,
    last: Option<Sample>,
}

/// Services and connections of the kernel.
#[derive(Default)]
struct KernelReader {
    latest: Latest,
    conntrack: ReopenedTable,
    /// Last dump, its end, and the time since the dump before.
    connections: Option<(Connections, Instant, Option<Duration>)>,
}

impl Sampler {
    /// Creates a sampler of the daemon at an address, if given, and of this network namespace.
    pub(super) fn new(daemon: Option<SocketAddr>) -> Self {
        let (kernel, history) = (KernelReader::default(), History::default());
        Self { daemon, started: now(), kernel, history, last: None }
    }

    /// Reads everything.
    pub(super) fn sample(&mut self, order: Order) -> TopView {
        let daemon = self.report();
        let kernel = self.kernel.read(order);
        let at = self.started.elapsed();
        let sample = Sample { at, now: since_1970(), daemon, kernel };
        self.last = Some(sample.clone());
        self.history.add(sample)
    }

    /// Returns the last results, with services in another order.
    pub(super) fn sorted(&mut self, order: Order) -> TopView {
        let Some(mut sample) = self.last.take() else { return self.sample(order) };
        if let Ok(kernel) = &mut sample.kernel {
            kernel.connections = self.kernel.connections_sample(order);
        }
        self.last = Some(sample.clone());
        self.history.add(sample)
    }

    fn report(&self) -> Result<Report, String> {
        let address = self.daemon.ok_or("--daemon is empty")?;
        report(address).map_err(|error| format!("{address}: {error}"))
    }
}

/// Time limit of the answers of a daemon.
const TIME: Duration = Duration::from_secs(2);

/// Reads the status and the metrics of the daemon at an address.
fn report(address: SocketAddr) -> Result<Report, AnswerError> {
    within(TIME, async {
        let read = async |path| get(TcpStream::connect(address).await?, path).await;
        let status = Status::parse(&read("/status.json").await?)?;
        let metrics = read("/metrics").await?;
        Ok(Report { status, metrics: Scrape::parse(&String::from_utf8_lossy(&metrics)) })
    })
}

impl KernelReader {
    fn read(&mut self, order: Order) -> Result<KernelSample, String> {
        let generation = self.latest.refresh().map_err(|error| {
            self.connections = None;
            error.to_string()
        })?;
        let mut notes = Vec::new();
        if self.latest.services().is_torn() {
            notes.push("the tables changed while they were read: lines may differ in age".into());
        }
        if let Err(error) = self.read_connections() {
            self.connections = None;
            notes.push(format!("connections are not shown: {error}"));
        }
        if self.connections.as_ref().is_some_and(|(it, ..)| it.left_out() > 0) {
            notes.push("too many pairs of address and endpoint: some are not counted".into());
        }
        Ok(KernelSample {
            generation,
            frontends: self.latest.services().len(),
            notes,
            connections: self.connections_sample(order),
        })
    }

    fn read_connections(&mut self) -> Result<(), String> {
        let former = self.connections.as_ref();
        let services = self.latest.services();
        let read = |table: &mut _| Connections::read(table, services, former.map(|(it, ..)| it));
        let read = self.conntrack.with(read).map_err(|error| error.to_string())?;
        let end = now();
        let since = former.map(|(_, at, _)| end.saturating_duration_since(*at));
        let since = since.filter(|_| read.has_began());
        self.connections = Some((read, end, since));
        Ok(())
    }

    fn connections_sample(&self, order: Order) -> Option<ConnectionsSample> {
        let (connections, _, since) = self.connections.as_ref()?;
        let services = self.latest.services();
        Some(ConnectionsSample {
            services: services.busiest(connections, order, ROWS),
            draining: services.draining_most(connections, ROWS),
            since: *since,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn another_program_or_nobody_at_the_address_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>").unwrap();
        });
        let error = report(address).unwrap_err().to_string();
        assert!(error.starts_with("its answer cannot be parsed: "), "{error}");
        server.join().unwrap();
        assert!(report(address).unwrap_err().to_string().contains("refused"));
    }

    #[test]
    fn silence_has_a_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = report(listener.local_addr().unwrap()).unwrap_err().to_string();
        assert_eq!(error, "there is no answer within 2 s");
    }
}
