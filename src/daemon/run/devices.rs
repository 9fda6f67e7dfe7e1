//! Makes the devices of the flowtables follow those of the node.
//!
//! The loop does not wait for a transaction about devices. The kernel's thread runs it between
//! those about services.

use engine::{DeviceAnswer, FlowtableDevices, FoundTable, Tables};
use futures::FutureExt;
use futures::future::BoxFuture;
use nft::family::Family;
use nft::kernel::{CommitError, Committed, Contents, Kernel, LinkNews, interface_index};
use nft::{Device, Operation, Transaction};
use tokio::sync::mpsc;

use crate::observe::{self, Cause, Causes, Observe};
use crate::writer::{Writer, WriterGone};

/// The devices of the node, and the transaction about them that is in the kernel.
pub struct DeviceFollowing {
    news: mpsc::Receiver<LinkNews>,
    devices: FlowtableDevices,
    in_flight: Option<BoxFuture<'static, Result<DeviceOutcome, WriterGone>>>,
}

/// A transaction about devices and its outcome.
pub(super) struct DeviceOutcome {
    transaction: Transaction,
    outcome: Result<(), CommitError>,
    /// What the kernel applied.
    committed: Option<Committed>,
    /// Devices of the transaction that do not exist after a refusal.
    missing: Vec<Device>,
}

/// A step of [`DeviceFollowing`].
pub(super) enum DeviceStep {
    /// Devices came or went.
    News(LinkNews),
    /// A transaction was applied or refused.
    Outcome(DeviceOutcome),
}

impl DeviceFollowing {
    /// Returns an instance that receives devices from `news`.
    pub fn new(news: mpsc::Receiver<LinkNews>, devices: FlowtableDevices) -> Self {
        Self { news, devices, in_flight: None }
    }

    /// Waits for a change of devices, or for the outcome of a transaction about them; returns `None`
    /// without flowtables.
    pub(super) async fn step(
        following: &mut Option<Self>,
    ) -> Option<Result<DeviceStep, WriterGone>> {
        let Self { news, in_flight, .. } = following.as_mut()?;
        if let Some(commit) = in_flight {
            let outcome = commit.await;
            *in_flight = None;
            return Some(outcome.map(DeviceStep::Outcome));
        }
        news.recv().await.map(DeviceStep::News).map(Ok)
    }

    /// Processes a step. Returns whether the tables must be read.
    pub(super) fn take(&mut self, step: DeviceStep, observe: &Observe) -> bool {
        let DeviceOutcome { transaction, outcome, committed, missing } = match step {
            DeviceStep::News(news) => {
                self.devices.learn(news);
                return false;
            }
            DeviceStep::Outcome(outcome) => outcome,
        };
        if let Some(committed) = committed {
            record(&transaction, &committed, observe);
        }
        match (self.devices.answer(&transaction, &outcome, &missing), outcome) {
            (DeviceAnswer::LeftOut, Err(error)) => {
                tracing::warn!("a device is left out of the flowtable: {error}");
                false
            }
            (DeviceAnswer::ReadBack, Err(error)) => {
                tracing::warn!("devices of the flowtable: {error}; reading the tables");
                true
            }
            (_, _) => false,
        }
    }

    /// Sends the next transaction about devices; returns whether there is one. The tables must be
    /// in place, except blocked ones.
    pub(super) fn send<K: Kernel + Send + 'static>(
        &mut self,
        tables: &Tables,
        writer: &Writer<K>,
    ) -> bool {
        if self.in_flight.is_some() {
            return false;
        }
        for family in Family::ALL {
            if tables.has_flowtable(family) && tables.blocked(family).is_none() {
                self.devices.created(family)
            } else {
                self.devices.lost(family)
            }
        }
        let Some(transaction) = self.devices.next_transaction() else { return false };
        let commit = writer.run(move |kernel| {
            let (outcome, committed) = match kernel.commit(&transaction) {
                Ok(committed) => (Ok(()), Some(committed)),
                Err(error) => (Err(error), None),
            };
            // Devices may vanish between the notification and the commit.
            let missing = if outcome.is_err() { missing_of(&transaction) } else { Vec::new() };
            DeviceOutcome { transaction, outcome, committed, missing }
        });
        self.in_flight = Some(commit.boxed());
        true
    }

    /// Records the devices of the flowtables that were read, along with the tables.
    pub(super) fn note_read(&mut self, tables: &Tables, found: [Option<Vec<Device>>; 2]) {
        for (family, devices) in Family::ALL.into_iter().zip(found) {
            match devices.filter(|_| tables.has_flowtable(family)) {
                Some(devices) => self.devices.observe(family, devices),
                None => self.devices.lost(family),
            }
        }
    }

    /// Records the devices of the flowtable of one table that was read.
    pub(super) fn note_found(&mut self, family: Family, contents: Option<&Contents>) {
        if let Some(flowtable) = contents.and_then(|contents| contents.flowtables.first()) {
            self.devices.observe(family, flowtable.devices.clone());
        }
    }
}

/// Adds a transaction about devices to the history; it adds and removes these.
fn record(transaction: &Transaction, committed: &Committed, observe: &Observe) {
    let (mut added, mut removed) = (0, 0);
    for operation in &transaction.operations {
        let count = operation.devices().map_or(0, <[_]>::len);
        let is_removal = matches!(operation, Operation::DeleteDevices(..));
        *(if is_removal { &mut removed } else { &mut added }) += count;
    }
    let causes = Causes::only(Cause::Devices);
    tracing::debug!(added, removed, bytes = committed.bytes, %causes, "committed");
    observe.committed_beside(&observe::Transaction {
        added,
        removed,
        causes,
        bytes: committed.bytes,
        family: transaction.family(),
        took: committed.encode_time + committed.kernel_time,
        ..observe::Transaction::default()
    });
}

/// Returns whether a transaction about devices is in the kernel.
pub(super) fn is_committing(following: Option<&DeviceFollowing>) -> bool {
    following.is_some_and(|following| following.in_flight.is_some())
}

/// Returns the devices of the flowtables that were read; `None` for a table without a flowtable.
pub(super) fn devices_of(found: &[FoundTable; 2]) -> [Option<Vec<Device>>; 2] {
    found.each_ref().map(|found| {
        let flowtable = found.contents.as_ref()?.flowtables.first()?;
        Some(flowtable.devices.clone())
    })
}

/// Returns the devices of a transaction that do not exist in this thread's network namespace.
fn missing_of(transaction: &Transaction) -> Vec<Device> {
    let devices = transaction.operations.iter().filter_map(Operation::devices).flatten();
    devices.filter(|device| is_gone(device)).cloned().collect()
}

fn is_gone(device: &Device) -> bool {
    match device {
        Device::Named(name) => interface_index(name).is_err(),
        Device::Prefix(_) => false,
    }
}
