//! Makes the devices of the flowtables follow those of the node.
//!
//! The loop does not wait for a transaction about devices. The kernel's thread runs it between
//! those about services.

use engine::schedule::Input;
use engine::{DeviceAnswer, FlowtableDevices, FoundTable};
use futures::FutureExt;
use futures::future::BoxFuture;
use nft::family::Family;
use nft::kernel::{CommitError, Kernel, LinkNews, interface_index};
use nft::{Device, Operation, Transaction};
use tokio::sync::mpsc;

use super::{Run, now};
use crate::writer::WriterGone;

/// The devices of the node, and the transaction about them that is in the kernel.
pub struct DeviceFollowing {
    news: mpsc::Receiver<LinkNews>,
    devices: FlowtableDevices,
    in_flight: Option<BoxFuture<'static, Result<DeviceOutcome, WriterGone>>>,
}

/// A transaction about devices, its outcome, and its devices that do not exist after a refusal.
type DeviceOutcome = (Transaction, Result<(), CommitError>, Vec<Device>);

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

    async fn step(&mut self) -> Result<DeviceStep, WriterGone> {
        if let Some(in_flight) = &mut self.in_flight {
            let outcome = in_flight.await;
            self.in_flight = None;
            return outcome.map(DeviceStep::Outcome);
        }
        match self.news.recv().await {
            Some(news) => Ok(DeviceStep::News(news)),
            None => std::future::pending().await,
        }
    }
}

/// Returns whether a transaction about devices is in the kernel.
pub(super) fn is_committing(following: Option<&DeviceFollowing>) -> bool {
    following.is_some_and(|following| following.in_flight.is_some())
}

/// Waits for a change of devices, or for the outcome of a transaction about them.
pub(super) async fn next_step(
    following: &mut Option<DeviceFollowing>,
) -> Result<DeviceStep, WriterGone> {
    match following {
        Some(following) => following.step().await,
        None => std::future::pending().await,
    }
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Processes a step and sends the next transaction.
    pub(super) fn follow_devices(&mut self, step: DeviceStep) {
        let Some(following) = &mut self.devices else { return };
        match step {
            DeviceStep::News(news) => following.devices.learn(news),
            DeviceStep::Outcome((transaction, outcome, missing)) => {
                match (following.devices.answer(&transaction, &outcome, &missing), outcome) {
                    (DeviceAnswer::LeftOut, Err(error)) => {
                        tracing::warn!("a device is left out of the flowtable: {error}");
                    }
                    (DeviceAnswer::ReadBack, Err(error)) => {
                        tracing::warn!("devices of the flowtable: {error}; reading the tables");
                        self.schedule.handle(Input::ReadNow, now());
                        return;
                    }
                    (_, _) => {}
                }
            }
        }
        self.send_devices();
    }

    /// Sends the next transaction about devices, if the tables are in place.
    pub(super) fn send_devices(&mut self) {
        if self.engine.node().lacks_flowtables() {
            self.devices = None;
        }
        let Some(following) = &mut self.devices else { return };
        if !self.is_synced || following.in_flight.is_some() {
            return;
        }
        for family in Family::ALL {
            if self.engine.tables().has_flowtable(family)
                && self.engine.tables().blocked(family).is_none()
            {
                following.devices.created(family)
            } else {
                following.devices.lost(family)
            }
        }
        let Some(transaction) = following.devices.next_transaction() else { return };
        let commit = self.writer.run(move |kernel| {
            let outcome = kernel.commit(&transaction).map(drop);
            // Devices may vanish between the notification and the commit.
            let missing = if outcome.is_err() { missing_of(&transaction) } else { Vec::new() };
            (transaction, outcome, missing)
        });
        following.in_flight = Some(commit.boxed());
        self.spoil_handover();
    }

    /// Records the devices of the flowtables that were read. The engine has the tables too.
    pub(super) fn note_devices(&mut self, found: [Option<Vec<Device>>; 2]) {
        let Some(following) = &mut self.devices else { return };
        for (family, devices) in Family::ALL.into_iter().zip(found) {
            match devices.filter(|_| self.engine.tables().has_flowtable(family)) {
                Some(devices) => following.devices.observe(family, devices),
                None => following.devices.lost(family),
            }
        }
    }
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
    let is_gone = |device: &&Device| match device {
        Device::Named(name) => interface_index(name).is_err(),
        Device::Prefix(_) => false,
    };
    devices.filter(is_gone).cloned().collect()
}
