//! Devices of the flowtables: desired and installed devices, and the transactions that install them.
//!
//! These transactions have no other operations. Before Linux 6.16, the kernel removes a device that
//! vanishes, follows one that is renamed, and refuses one that does not exist.

use std::collections::BTreeMap;

use nft::Errno;
use nft::family::Family;
use nft::kernel::{CommitError, Link, LinkChange, LinkNews, Release};
use nft::{Device, MAX_DEVICES, Name, Operation, Transaction};

use crate::flowtable::{Devices, Traits};
use crate::ruleset::{self, flowtable};

/// Devices of the flowtables of both tables.
#[derive(Debug)]
pub struct FlowtableDevices {
    patterns: Devices,
    /// The kernel keeps the name of a device that vanishes.
    keeps_names: bool,
    /// The kernel may accept prefixes of names.
    has_prefixes: bool,
    links: BTreeMap<u32, Link>,
    /// Installed devices with their indexes; `None` while the flowtable is not in place.
    installed: [Option<BTreeMap<Device, u32>>; 2],
    /// Devices that the kernel refused, with their indexes.
    refused: BTreeMap<Device, u32>,
    /// Maximum number of devices in one operation; fewer after a refusal.
    most: usize,
}

impl FlowtableDevices {
    /// Returns the state before any device is known.
    pub fn new(patterns: Devices, release: Option<Release>) -> Self {
        let keeps_names = release.is_some_and(|release| release >= Release::DEVICE_NAMES);
        Self {
            patterns,
            keeps_names,
            has_prefixes: keeps_names,
            links: BTreeMap::new(),
            installed: [None, None],
            refused: BTreeMap::new(),
            most: MAX_DEVICES,
        }
    }

    /// Records devices of the namespace.
    pub fn learn(&mut self, news: LinkNews) {
        match news {
            LinkNews::All(links) => {
                let new: BTreeMap<_, _> = links.into_iter().map(|it| (it.index, it)).collect();
                let gone: Vec<_> =
                    self.links.keys().filter(|index| !new.contains_key(index)).copied().collect();
                gone.into_iter().for_each(|index| self.forget(index));
                new.into_values().for_each(|link| self.learn_one(link));
            }
            LinkNews::Changes(changes) => {
                for change in changes {
                    match change {
                        LinkChange::Is(link) => self.learn_one(link),
                        LinkChange::Gone(index) => self.forget(index),
                    }
                }
            }
        }
    }

    fn learn_one(&mut self, link: Link) {
        let (index, device) = (link.index, device(&link));
        let Some(old) = self.links.insert(index, link) else { return };
        let old = Device::Named(Name::Owned(old.name));
        if old == device || self.keeps_names {
            return;
        }
        for installed in self.installed.iter_mut().flatten() {
            if installed.remove(&old).is_some() {
                installed.insert(device.clone(), index);
            }
        }
    }

    fn forget(&mut self, index: u32) {
        self.links.remove(&index);
        self.refused.retain(|_, refused| *refused != index);
        if !self.keeps_names {
            for installed in self.installed.iter_mut().flatten() {
                installed.retain(|_, installed| *installed != index);
            }
        }
    }

    /// Records that the flowtable of a table is not in place, or that the table is not written.
    pub fn lost(&mut self, family: Family) {
        self.installed[family.index()] = None;
    }

    /// Records the devices of the flowtable of a table as read.
    pub fn observe(&mut self, family: Family, devices: Vec<Device>) {
        self.refused.clear();
        self.most = MAX_DEVICES;
        let named: BTreeMap<_, _> =
            self.links.values().map(|link| (device(link), link.index)).collect();
        let index = |device: &Device| named.get(device).copied().unwrap_or_default();
        let devices = devices.into_iter().map(|it| (it.clone(), index(&it)));
        self.installed[family.index()] = Some(devices.collect());
    }

    /// Records that the flowtable of a table is in place; its known devices stay.
    pub fn created(&mut self, family: Family) {
        self.installed[family.index()].get_or_insert_default();
    }

    /// Returns the number of entries in the flowtable of a family.
    pub fn count(&self, family: Family) -> usize {
        self.installed[family.index()].as_ref().map_or(0, BTreeMap::len)
    }

    /// Returns the next transaction; `None` if nothing differs.
    pub fn next_transaction(&self) -> Option<Transaction> {
        let desired = self.desired();
        Family::ALL.into_iter().find_map(|family| self.transaction(family, &desired))
    }

    fn transaction(&self, family: Family, desired: &BTreeMap<Device, u32>) -> Option<Transaction> {
        let installed = self.installed[family.index()].as_ref()?;
        let missing = desired.iter().filter(|(device, index)| match installed.get(*device) {
            Some(_) if self.keeps_names => false,
            Some(installed) => installed != *index,
            None => self.refused.get(*device) != Some(*index),
        });
        let pick = |devices: &mut dyn Iterator<Item = &Device>| -> Vec<Device> {
            devices.take(self.most).cloned().collect()
        };
        let gone = pick(&mut installed.keys().filter(|it| !desired.contains_key(it)));
        let missing = pick(&mut missing.map(|(device, _)| device));
        let (table, flowtable) = (ruleset::table(family), flowtable());
        let mut operations = Vec::new();
        if !gone.is_empty() {
            operations.push(Operation::DeleteDevices(table.clone(), flowtable.clone(), gone));
        }
        // A refusal of one operation says nothing about the other.
        if !missing.is_empty() && (operations.is_empty() || self.most == MAX_DEVICES) {
            operations.push(Operation::AddDevices(table, flowtable, missing));
        }
        (!operations.is_empty()).then_some(Transaction { operations })
    }

    fn desired(&self) -> BTreeMap<Device, u32> {
        let prefixes = if self.has_prefixes { self.patterns.prefixes() } else { Vec::new() };
        let included = self.links.values().filter(|link| {
            let traits = Traits { is_loopback: link.is_loopback, has_master: link.has_master };
            let is_covered = prefixes.iter().any(|prefix| link.name.starts_with(prefix));
            self.patterns.include(&link.name, traits) && !is_covered
        });
        let prefix = |prefix: &&str| (Device::Prefix(Name::Owned((*prefix).to_owned())), 0);
        included.map(|link| (device(link), link.index)).chain(prefixes.iter().map(prefix)).collect()
    }

    /// Records the outcome of a transaction. `missing` are its devices that do not exist any more.
    pub fn answer(
        &mut self,
        transaction: &Transaction,
        outcome: &Result<(), CommitError>,
        missing: &[Device],
    ) -> DeviceAnswer {
        let error = match outcome {
            Ok(()) => {
                self.most = MAX_DEVICES;
                transaction.operations.iter().for_each(|operation| self.applied(operation));
                return DeviceAnswer::Applied;
            }
            Err(error) => error,
        };
        let CommitError::Refused { operation: Some(operation), errno, .. } = error else {
            return DeviceAnswer::ReadBack;
        };
        let Some(operation) = transaction.operations.get(*operation) else {
            return DeviceAnswer::ReadBack;
        };
        let Some(devices) = operation.devices() else { return DeviceAnswer::ReadBack };
        if self.has_prefixes && devices.iter().any(|it| matches!(it, Device::Prefix(_))) {
            self.has_prefixes = false;
            return DeviceAnswer::Again;
        }
        let (missing, present): (Vec<_>, Vec<_>) =
            devices.iter().partition(|device| missing.contains(device));
        let left_out = match (missing.is_empty(), &*present) {
            (false, _) => missing,
            (true, [one]) => vec![*one],
            (true, _) => {
                self.most = (devices.len() / 2).max(1);
                return DeviceAnswer::Again;
            }
        };
        let is_vanished = *errno == Errno::ENOENT;
        for device in left_out {
            let index = self.index_of(device);
            self.refused.insert(device.clone(), index);
            if let Some(installed) = self.installed_of(operation) {
                installed.remove(device);
            }
        }
        if is_vanished { DeviceAnswer::Again } else { DeviceAnswer::LeftOut }
    }

    fn index_of(&self, desired: &Device) -> u32 {
        let mut links = self.links.values();
        links.find(|link| device(link) == *desired).map_or(0, |link| link.index)
    }

    fn installed_of(&mut self, operation: &Operation) -> Option<&mut BTreeMap<Device, u32>> {
        self.installed[operation.family()?.index()].as_mut()
    }

    fn applied(&mut self, operation: &Operation) {
        let devices = operation.devices().unwrap_or_default();
        let is_addition = matches!(operation, Operation::AddDevices(..));
        let added = devices.iter().filter(|_| is_addition);
        let added: Vec<_> = added.map(|it| (it.clone(), self.index_of(it))).collect();
        if let Some(installed) = self.installed_of(operation) {
            installed.retain(|device, _| !devices.contains(device));
            installed.extend(added);
        }
    }
}

/// The next step after a transaction about devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAnswer {
    /// The transaction was applied.
    Applied,
    /// It was refused. The next one is smaller, without prefixes, or without the devices that do
    /// not exist (ENOENT).
    Again,
    /// A device was refused with another error. It is left out until it changes.
    LeftOut,
    /// Read the tables back.
    ReadBack,
}

fn device(link: &Link) -> Device {
    Device::Named(Name::Owned(link.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Release = Release { major: 6, minor: 1 };

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.to_owned(), is_loopback: false, has_master: false }
    }

    fn is(index: u32, name: &str) -> LinkChange {
        LinkChange::Is(link(index, name))
    }

    /// Returns devices with flowtables in place, and with these links.
    fn devices(patterns: &str, release: Release, links: &[Link]) -> FlowtableDevices {
        let mut devices = FlowtableDevices::new(patterns.parse().unwrap(), Some(release));
        devices.learn(LinkNews::All(links.to_vec()));
        devices.created(Family::Ip);
        devices
    }

    /// Applies transactions until nothing differs; returns them as text without tables.
    fn settle(devices: &mut FlowtableDevices) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(transaction) = devices.next_transaction() {
            assert!(sent.len() < 100, "{sent:?}");
            for operation in &transaction.operations {
                let text = operation.to_string();
                let verb = text.split(' ').next().unwrap();
                let list = text.split('{').nth(2).unwrap().split('}').next().unwrap();
                sent.push(format!("{verb} {}", list.trim()));
            }
            assert_eq!(devices.answer(&transaction, &Ok(()), &[]), DeviceAnswer::Applied);
        }
        sent
    }

    fn refused(errno: Errno) -> Result<(), CommitError> {
        let (reason, what) = (None, String::new());
        Err(CommitError::Refused { operation: Some(0), element: None, errno, reason, what })
    }

    #[test]
    fn devices_are_added_and_those_that_vanish_need_no_message_before_6_16() {
        let mut old = devices("*", OLD, &[link(2, "eth0"), link(3, "veth1")]);
        assert_eq!(settle(&mut old), ["add \"eth0\", \"veth1\""]);
        old.learn(LinkNews::Changes(vec![LinkChange::Gone(3), is(4, "veth2")]));
        assert_eq!(settle(&mut old), ["add \"veth2\""]);
        let mut new = devices("*", Release::DEVICE_NAMES, &[link(2, "eth0"), link(3, "veth1")]);
        settle(&mut new);
        new.learn(LinkNews::Changes(vec![LinkChange::Gone(3)]));
        assert_eq!(settle(&mut new), ["delete \"veth1\""]);
    }

    #[test]
    fn a_device_that_replaces_its_namesake_is_added_again_before_6_16() {
        let again = LinkNews::Changes(vec![LinkChange::Gone(3), is(9, "veth1")]);
        let mut old = devices("*", OLD, &[link(3, "veth1")]);
        settle(&mut old);
        old.learn(again.clone());
        assert_eq!(settle(&mut old), ["add \"veth1\""]);
        let mut new = devices("*", Release::DEVICE_NAMES, &[link(3, "veth1")]);
        settle(&mut new);
        new.learn(again);
        assert_eq!(settle(&mut new), [""; 0]);
    }

    #[test]
    fn a_renamed_device_is_judged_by_its_new_name() {
        let mut devices = devices("cali*", OLD, &[link(3, "cali1"), link(4, "tmp")]);
        assert_eq!(settle(&mut devices), ["add \"cali1\""]);
        devices.learn(LinkNews::Changes(vec![is(3, "other"), is(4, "cali2")]));
        assert_eq!(settle(&mut devices), ["delete \"other\"", "add \"cali2\""]);
    }

    #[test]
    fn a_fresh_list_replaces_what_was_missed() {
        let mut devices = devices("*", OLD, &[link(2, "eth0"), link(3, "veth1")]);
        settle(&mut devices);
        devices.learn(LinkNews::All(vec![link(2, "eth0"), link(7, "veth1"), link(8, "veth2")]));
        assert_eq!(settle(&mut devices), ["add \"veth1\", \"veth2\""]);
    }

    #[test]
    fn a_vanished_device_is_left_out_and_the_others_are_sent_again() {
        let links = [link(2, "eth0"), link(3, "veth1"), link(4, "veth2")];
        let mut devices = devices("*", OLD, &links);
        let transaction = devices.next_transaction().unwrap();
        let missing = [Device::Named("veth1".into())];
        let answer = devices.answer(&transaction, &refused(Errno::ENOENT), &missing);
        assert_eq!(answer, DeviceAnswer::Again);
        assert_eq!(settle(&mut devices), ["add \"eth0\", \"veth2\""]);
        devices.learn(LinkNews::Changes(vec![LinkChange::Gone(3), is(5, "veth1")]));
        assert_eq!(settle(&mut devices), ["add \"veth1\""]);
    }

    #[test]
    fn a_device_that_the_kernel_refuses_is_found_and_left_out() {
        let names: Vec<_> = (2..100).map(|index| link(index, &format!("d{index}"))).collect();
        let mut devices = devices("*", OLD, &names);
        let bad = Device::Named("d77".into());
        let mut refusals = 0;
        while let Some(transaction) = devices.next_transaction() {
            let adds_bad = |operation: &Operation| matches!(operation, Operation::AddDevices(_, _, devices) if devices.contains(&bad));
            let outcome = if transaction.operations.iter().any(adds_bad) {
                refused(Errno::EOPNOTSUPP)
            } else {
                Ok(())
            };
            refusals += usize::from(outcome.is_err());
            assert!(refusals < 50);
            devices.answer(&transaction, &outcome, &[]);
        }
        assert_eq!(devices.count(Family::Ip), names.len() - 1);
    }

    #[test]
    fn prefixes_are_given_to_a_kernel_that_takes_them_and_names_to_others() {
        let links = [link(2, "eth0"), link(3, "cali1")];
        let mut new = devices("cali*,eth0", Release::DEVICE_NAMES, &links);
        assert_eq!(settle(&mut new), ["add \"eth0\", \"cali*\""]);
        new.learn(LinkNews::Changes(vec![is(4, "cali2")]));
        assert_eq!(settle(&mut new), [""; 0]);

        let mut refusing = devices("cali*,eth0", Release::DEVICE_NAMES, &links);
        let transaction = refusing.next_transaction().unwrap();
        let answer = refusing.answer(&transaction, &refused(Errno::EINVAL), &[]);
        assert_eq!(answer, DeviceAnswer::Again);
        assert_eq!(settle(&mut refusing), ["add \"cali1\", \"eth0\""]);
    }

    #[test]
    fn nothing_is_sent_before_the_flowtable_is_in_place() {
        let mut devices = devices("*", OLD, &[link(2, "eth0")]);
        devices.lost(Family::Ip);
        assert_eq!(devices.next_transaction(), None);
        devices.observe(Family::Ip, vec![Device::Named("old".into())]);
        assert_eq!(settle(&mut devices), ["delete \"old\"", "add \"eth0\""]);
    }

    #[test]
    fn more_devices_than_a_message_takes_are_divided() {
        let names: Vec<_> = (2..600).map(|index| link(index, &format!("d{index}"))).collect();
        let mut devices = devices("*", OLD, &names);
        assert_eq!(settle(&mut devices).len(), 3);
    }
}
