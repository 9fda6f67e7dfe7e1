//! Reads the kernel's counters for a scrape of the metrics, outside the loop.
//!
//! One read runs at a time, in a thread of its own. The tables are read at most once in
//! two seconds, and for at most a tenth of the time; other scrapes get the last result.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;

use conntrack::{ConntrackTable, ReopenedTable};
use daemon::observe::{
    CountStore, KernelCounts, ReadCounts, RefusedCount, ResetCount, ServiceCounts, ServicePortCount,
};
use futures::FutureExt;
use inspect::counts::{ConnectionSums, MOST_PORTS};
use inspect::refusals::{RefusalSums, ResetSums, refused_packets};
use inspect::show::ended_endpoints;
use inspect::tables::{TableReader, TablesError};
use nft::Counter;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use super::clock::{LastRead, now};

/// Returns a function that reads the counters of the tables in the network namespace of this
/// process, and stores them.
pub(super) fn read_counts(store: CountStore, reads: Reads) -> ReadCounts {
    let sampler = Arc::new(Mutex::new(CountReader { reads, ..CountReader::default() }));
    Arc::new(move || {
        let (sampler, store) = (Arc::clone(&sampler), store.clone());
        let read = async move {
            let sampler = sampler.lock_owned().await;
            // The lock moves into the task, so a disconnected client does not allow a second read.
            let _ = spawn_blocking(move || take_sample(sampler, &store)).await;
        };
        read.boxed()
    })
}

/// The counts to read besides those of refused packets.
#[derive(Clone, Copy, Default)]
pub(super) struct Reads {
    /// Counters of elements.
    pub(super) elements: bool,
    /// Connections in the flowtable.
    pub(super) offloaded: bool,
    /// Ended endpoints.
    pub(super) ended: bool,
}

/// Sums so far, and the last read.
#[derive(Default)]
struct CountReader {
    reads: Reads,
    conntrack: ReopenedTable,
    reader: Option<TableReader>,
    counts: ConnectionSums,
    refusals: RefusalSums,
    resets: ResetSums,
    last: LastRead,
}

fn take_sample(mut sampler: OwnedMutexGuard<CountReader>, store: &CountStore) {
    if sampler.last.is_fresh() {
        return;
    }
    let started = now();
    let offloaded = sampler.count_offloaded();
    store.set(KernelCounts { offloaded, ..sampler.read_tables() });
    sampler.last = LastRead::since(started);
}

impl CountReader {
    fn count_offloaded(&mut self) -> Option<u64> {
        let counted = self.reads.offloaded.then(|| {
            let counted = self.conntrack.with(ConntrackTable::count_offloaded);
            counted.inspect_err(|error| {
                tracing::warn!("cannot count the connections in the flowtable: {error}");
            })
        });
        counted?.ok()
    }

    fn read_tables(&mut self) -> KernelCounts {
        match self.read() {
            Ok(()) => KernelCounts {
                services: self.reads.elements.then(|| service_counts(&self.counts)),
                refused: refused_counts(&self.refusals),
                resets: reset_counts(&self.resets),
                offloaded: None,
            },
            Err(error) => {
                // Before the first commit there are no tables, or those of another program.
                if !matches!(error, TablesError::Missing | TablesError::Foreign(_)) {
                    tracing::warn!("cannot read what the kernel counts: {error}");
                }
                self.reader = None;
                KernelCounts::default()
            }
        }
    }

    fn read(&mut self) -> Result<(), TablesError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none @ None => none.insert(TableReader::open()?),
        };
        let tables = reader.tables()?;
        self.refusals.add(refused_packets(&tables));
        if self.reads.ended {
            let (all, is_whole) = ended_endpoints(reader, &tables, &|_| true)?;
            let counted = all.into_iter().filter_map(|it| {
                let packets = Counter { packets: it.resets, bytes: 0 };
                it.service.map(|service| ((service, it.endpoint), packets))
            });
            self.resets.add(counted.collect(), is_whole);
        }
        if self.reads.elements {
            self.counts.read(reader, &tables)?;
        }
        Ok(())
    }
}

fn refused_counts(refusals: &RefusalSums) -> Vec<RefusedCount> {
    let sums = refusals.sums().iter().map(|((family, reason), counter)| RefusedCount {
        family: *family,
        reason: reason.name(),
        packets: counter.packets,
    });
    sums.collect()
}

/// Returns the counts of the services with the most packets.
fn reset_counts(resets: &ResetSums) -> Vec<ResetCount> {
    let mut counts: Vec<_> = resets.sums().iter().collect();
    counts.sort_by_key(|(_, counter)| Reverse(counter.packets));
    let counts = counts.into_iter().take(MOST_PORTS).map(|(name, counter)| {
        let (namespace, service) = split_name(name);
        ResetCount { namespace, service, packets: counter.packets }
    });
    counts.collect()
}

/// Returns the parts of `namespace/name`.
fn split_name(name: &str) -> (String, String) {
    let (namespace, service) = name.split_once('/').unwrap_or(("", name));
    (namespace.to_owned(), service.to_owned())
}

fn service_counts(counts: &ConnectionSums) -> ServiceCounts {
    let ports = counts.busiest().into_iter().map(|(label, port)| {
        let (name, port_name) = label.split_once(':').unwrap_or((label, ""));
        let (namespace, service) = split_name(name);
        let endpoints = port.endpoints.iter().map(|(target, counter)| {
            // An endpoint of port ranges has no port of its own.
            let own_port = if port_name == "*" { 0 } else { target.port.get() };
            (SocketAddr::new(target.address, own_port), *counter)
        });
        let mut endpoints: Vec<_> = endpoints.collect();
        endpoints.sort_unstable_by_key(|(endpoint, _)| *endpoint);
        ServicePortCount {
            namespace,
            service,
            port: port_name.to_owned(),
            counted: port.counted,
            endpoints,
        }
    });
    ServiceCounts { ports: ports.collect(), total: counts.total() }
}
