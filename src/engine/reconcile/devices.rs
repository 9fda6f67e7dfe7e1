//! The flowtable's devices as a part of its table: desired and installed ones, and the operations that
//! install them.
//!
//! A step about devices changes nothing else, and follows when nothing else differs. Before Linux 6.16,
//! the kernel removes a device that vanishes, follows one that is renamed, and refuses one that does
//! not exist.
//!
//! Connections of endpoints that are gone must leave the flowtable, so that rules can end them. The
//! kernel takes no single connection out (before 6.4, it refuses to delete one), so all leave: another
//! flowtable replaces it, without devices at first. The others return with their next packet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::link::{Link, LinkChange, LinkNews};
use nft::family::Family;
use nft::kernel::Release;
use nft::{Device, Errno, MAX_DEVICES, Name, Operation};

use crate::flowtable::{Devices, Traits};
use crate::ruleset::base::Base;
use crate::ruleset::{self, flowtable};

/// Shortest time between two replacements of flowtables, so that they are of use where endpoints end
/// all the time.
const REPLACED_EVERY: Duration = Duration::from_secs(1);

/// Devices of the flowtables of both tables.
#[derive(Debug)]
pub(super) struct FlowtableDevices {
    patterns: Devices,
    /// The kernel keeps the name of a device that vanishes.
    keeps_names: bool,
    /// The kernel may accept prefixes of names.
    has_prefixes: bool,
    /// Devices of the namespace by index; `None` until they are known.
    links: Option<BTreeMap<u32, Link>>,
    /// Installed devices with their indexes; `None` while the flowtable is not in place.
    installed: [Option<BTreeMap<Device, u32>>; 2],
    /// Devices that the kernel refused, with their indexes.
    refused: BTreeMap<Device, u32>,
    /// Maximum number of devices in one operation; fewer after a refusal.
    most: usize,
    /// Flowtables that all connections must leave.
    outdated: [bool; 2],
    /// The time of the next replacement, at the earliest.
    may_replace_at: Option<Instant>,
    now: Option<Instant>,
    /// What differs.
    pub(super) next: Option<DeviceChange>,
}

/// Devices that one flowtable gets and loses, or its replacement by one without devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceChange {
    pub(super) family: Family,
    is_replacement: bool,
    gone: Vec<Device>,
    /// With their indexes.
    added: Vec<(Device, u32)>,
}

impl FlowtableDevices {
    /// Returns the state before any device is known.
    pub(super) fn new(patterns: Devices, release: Option<Release>) -> Self {
        let keeps_names = release.is_some_and(|release| release >= Release::DEVICE_NAMES);
        Self {
            patterns,
            keeps_names,
            has_prefixes: keeps_names,
            links: None,
            installed: [None, None],
            refused: BTreeMap::new(),
            most: MAX_DEVICES,
            outdated: [false; 2],
            may_replace_at: None,
            now: None,
            next: None,
        }
    }

    /// Records devices of the namespace.
    pub(super) fn learn(&mut self, news: LinkNews) {
        match news {
            LinkNews::All(links) => {
                let new: BTreeMap<_, _> = links.into_iter().map(|it| (it.index, it)).collect();
                let known = self.links.get_or_insert_default();
                let gone: Vec<_> =
                    known.keys().filter(|index| !new.contains_key(index)).copied().collect();
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
        self.compare();
    }

    fn learn_one(&mut self, link: Link) {
        let (index, device) = (link.index, device(&link));
        let Some(old) = self.links.get_or_insert_default().insert(index, link) else { return };
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
        self.links.get_or_insert_default().remove(&index);
        self.refused.retain(|_, refused| *refused != index);
        if !self.keeps_names {
            for installed in self.installed.iter_mut().flatten() {
                installed.retain(|_, installed| *installed != index);
            }
        }
    }

    /// Lets all connections leave the flowtable of a family, because one of its endpoints ended.
    pub(super) fn note_ended(&mut self, family: Family) {
        self.outdated[family.index()] = self.installed[family.index()].is_some();
        self.compare();
    }

    /// Sets the time.
    pub(super) fn note_time(&mut self, now: Instant) {
        self.now = Some(now);
        if self.outdated != [false; 2] {
            self.compare();
        }
    }

    /// Returns when [`Self::note_time`] changes something by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        self.may_replace_at.filter(|at| self.outdated != [false; 2] && Some(*at) > self.now)
    }

    /// Records the devices of the flowtable of a table as read. [`Self::note_in_place`] must follow.
    pub(super) fn observe(&mut self, family: Family, devices: &[Device]) {
        self.refused.clear();
        self.most = MAX_DEVICES;
        let links = self.links.iter().flat_map(BTreeMap::values);
        let named: BTreeMap<_, _> = links.map(|link| (device(link), link.index)).collect();
        let index = |device: &Device| named.get(device).copied().unwrap_or_default();
        let devices = devices.iter().map(|it| (it.clone(), index(it)));
        self.installed[family.index()] = Some(devices.collect());
    }

    /// Records for both families whether the flowtable is in place, and its table may be written. Known
    /// devices stay.
    pub(super) fn note_in_place(&mut self, in_place: [bool; 2]) {
        for (installed, is_in_place) in self.installed.iter_mut().zip(in_place) {
            if is_in_place {
                installed.get_or_insert_default();
            } else {
                *installed = None;
            }
        }
        self.outdated = Family::ALL.map(|it| self.outdated[it.index()] && in_place[it.index()]);
        self.compare();
    }

    /// Finds the next change.
    fn compare(&mut self) {
        let desired = self.desired();
        let difference = |family| self.difference(family, desired.as_ref()?);
        self.next = self.replacement().or_else(|| Family::ALL.into_iter().find_map(difference));
    }

    fn replacement(&self) -> Option<DeviceChange> {
        let family = Family::ALL.into_iter().find(|family| self.outdated[family.index()])?;
        let may_replace = self.may_replace_at.is_none_or(|at| Some(at) <= self.now);
        may_replace.then_some(DeviceChange {
            family,
            is_replacement: true,
            gone: Vec::new(),
            added: Vec::new(),
        })
    }

    fn difference(&self, family: Family, desired: &BTreeMap<Device, u32>) -> Option<DeviceChange> {
        let installed = self.installed[family.index()].as_ref()?;
        let missing = desired.iter().filter(|(device, index)| match installed.get(*device) {
            Some(_) if self.keeps_names => false,
            Some(installed) => installed != *index,
            None => self.refused.get(*device) != Some(*index),
        });
        let gone = installed.keys().filter(|it| !desired.contains_key(it));
        let gone: Vec<_> = gone.take(self.most).cloned().collect();
        // A refusal of one operation says nothing about the other.
        let most = if gone.is_empty() || self.most == MAX_DEVICES { self.most } else { 0 };
        let added = missing.take(most).map(|(device, index)| (device.clone(), *index));
        let added = added.collect();
        let change = DeviceChange { family, is_replacement: false, gone, added };
        (!change.gone.is_empty() || !change.added.is_empty()).then_some(change)
    }

    /// Returns the desired devices with their indexes; `None` until those of the namespace are known.
    fn desired(&self) -> Option<BTreeMap<Device, u32>> {
        let prefixes = if self.has_prefixes { self.patterns.prefixes() } else { Vec::new() };
        let included = self.links.as_ref()?.values().filter(|link| {
            let traits = Traits { is_loopback: link.is_loopback, has_master: link.has_master };
            let is_covered = prefixes.iter().any(|prefix| link.name.starts_with(prefix));
            self.patterns.include(&link.name, traits) && !is_covered
        });
        let prefix = |prefix: &&str| (Device::Prefix(Name::Owned((*prefix).to_owned())), 0);
        let included = included.map(|link| (device(link), link.index));
        Some(included.chain(prefixes.iter().map(prefix)).collect())
    }

    /// Records a change that was applied.
    pub(super) fn applied(&mut self, change: DeviceChange) {
        self.most = MAX_DEVICES;
        if change.is_replacement {
            self.outdated[change.family.index()] = false;
            // That of the other family follows at once.
            if self.outdated == [false; 2] {
                self.may_replace_at = self.now.map(|now| now + REPLACED_EVERY);
            }
        }
        if let Some(installed) = &mut self.installed[change.family.index()] {
            if change.is_replacement {
                installed.clear();
            }
            installed.retain(|device, _| !change.gone.contains(device));
            installed.extend(change.added);
        }
        self.compare();
    }

    /// Records that the kernel refused an operation of a change. The next change is smaller, without
    /// prefixes, or without the device that it refused alone. Returns whether a device that exists is
    /// left out; `None` if the table must be read.
    pub(super) fn refused(
        &mut self,
        change: &DeviceChange,
        operation: Option<usize>,
        errno: Errno,
    ) -> Option<bool> {
        if change.is_replacement {
            self.outdated[change.family.index()] = false;
            return None;
        }
        let is_vanished = errno == Errno::ENOENT;
        let deletes = operation? == 0 && !change.gone.is_empty();
        let count = if deletes { change.gone.len() } else { change.added.len() };
        let has_prefix = change.added.iter().any(|(it, _)| matches!(it, Device::Prefix(_)));
        let mut is_left_out = false;
        if deletes && !is_vanished {
            return None;
        } else if !deletes && has_prefix && self.has_prefixes {
            self.has_prefixes = false;
        } else if count > 1 {
            self.most = count / 2;
        } else if deletes {
            if let Some(installed) = &mut self.installed[change.family.index()] {
                installed.retain(|device, _| !change.gone.contains(device));
            }
        } else {
            self.refused.extend(change.added.iter().cloned());
            // That one vanished is no news.
            is_left_out = !is_vanished;
        }
        self.compare();
        Some(is_left_out)
    }
}

impl DeviceChange {
    /// Returns the operations, those that delete first. `base` is the table of the flowtable.
    pub(super) fn operations(&self, base: Option<&Base>) -> Vec<Operation> {
        if self.is_replacement {
            return base.map(|base| self.replacement(base)).unwrap_or_default();
        }
        let (table, flowtable) = (ruleset::table(self.family), flowtable());
        let added: Vec<_> = self.added.iter().map(|(device, _)| device.clone()).collect();
        let delete = Operation::DeleteDevices(table.clone(), flowtable.clone(), self.gone.clone());
        let operations = [delete, Operation::AddDevices(table, flowtable, added)];
        operations.into_iter().filter(|it| it.devices().is_some_and(|it| !it.is_empty())).collect()
    }

    fn replacement(&self, base: &Base) -> Vec<Operation> {
        let (table, flowtable) = (|| ruleset::table(self.family), flowtable());
        // The chain that refers to the flowtable has its name.
        let chain = base.chains.iter().filter(|spec| spec.chain.name == flowtable.name);
        let rules = chain.flat_map(|spec| &*spec.rules);
        let rules = rules.map(|rule| Operation::AddRule(table(), rule.clone()));
        let mut operations = vec![
            Operation::FlushChain(table(), flowtable.name.clone()),
            Operation::DeleteFlowtable(table(), flowtable.name.clone()),
            Operation::AddFlowtable(table(), flowtable.clone()),
        ];
        operations.extend(rules);
        operations
    }
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
        devices.note_in_place([true, false]);
        devices
    }

    /// Applies changes until nothing differs; returns them as text without tables.
    fn settle(devices: &mut FlowtableDevices) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(change) = devices.next.clone() {
            assert!(sent.len() < 100, "{sent:?}");
            for operation in change.operations(None) {
                let text = operation.to_string();
                let verb = text.split(' ').next().unwrap();
                let list = text.split('{').nth(2).unwrap().split('}').next().unwrap();
                sent.push(format!("{verb} {}", list.trim()));
            }
            devices.applied(change);
        }
        sent
    }

    /// Refuses additions of a device until nothing differs; returns how often, and how often a device
    /// was left out.
    fn settle_without(devices: &mut FlowtableDevices, bad: &str, errno: Errno) -> (usize, usize) {
        let bad = Device::Named(Name::Owned(bad.to_owned()));
        let (mut refusals, mut left_out) = (0, 0);
        while let Some(change) = devices.next.clone() {
            assert!(refusals < 50);
            let operations = change.operations(None);
            let adds_bad = |it: &Operation| matches!(it, Operation::AddDevices(_, _, added) if added.contains(&bad));
            match operations.iter().position(adds_bad) {
                None => devices.applied(change),
                Some(operation) => {
                    refusals += 1;
                    let is_left_out = devices.refused(&change, Some(operation), errno).unwrap();
                    left_out += usize::from(is_left_out);
                }
            }
        }
        (refusals, left_out)
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
    fn a_vanished_device_is_left_out_until_it_is_back_and_the_others_are_added() {
        let links = [link(2, "eth0"), link(3, "veth1"), link(4, "veth2")];
        let mut devices = devices("*", OLD, &links);
        assert_eq!(settle_without(&mut devices, "veth1", Errno::ENOENT), (3, 0));
        assert_eq!(devices.installed[0].as_ref().unwrap().len(), 2);
        devices.learn(LinkNews::Changes(vec![LinkChange::Gone(3), is(5, "veth1")]));
        assert_eq!(settle(&mut devices), ["add \"veth1\""]);
    }

    #[test]
    fn a_device_that_the_kernel_refuses_is_found_and_left_out() {
        let names: Vec<_> = (2..100).map(|index| link(index, &format!("d{index}"))).collect();
        let mut devices = devices("*", OLD, &names);
        let (refusals, left_out) = settle_without(&mut devices, "d77", Errno::EOPNOTSUPP);
        assert!(refusals < 10 && left_out == 1, "{refusals} {left_out}");
        assert_eq!(devices.installed[0].as_ref().unwrap().len(), names.len() - 1);
    }

    #[test]
    fn the_refusal_of_an_addition_beside_a_deletion_leaves_the_deletion() {
        let mut devices = devices("*", Release::DEVICE_NAMES, &[link(2, "eth0"), link(3, "veth1")]);
        settle(&mut devices);
        devices.learn(LinkNews::Changes(vec![LinkChange::Gone(3), is(4, "bad")]));
        assert_eq!(settle_without(&mut devices, "bad", Errno::EOPNOTSUPP), (1, 1));
        assert_eq!(devices.installed[0].as_ref().unwrap().len(), 1);
    }

    #[test]
    fn a_device_that_is_not_in_the_flowtable_any_more_is_forgotten() {
        let links = [link(2, "eth0"), link(3, "veth1"), link(4, "veth2")];
        let mut devices = devices("*", Release::DEVICE_NAMES, &links);
        settle(&mut devices);
        devices.learn(LinkNews::All(vec![link(2, "eth0")]));
        let both = devices.next.clone().unwrap();
        assert_eq!(devices.refused(&both, Some(0), Errno::ENOMEM), None, "the table must be read");
        assert_eq!(devices.refused(&both, Some(0), Errno::ENOENT), Some(false));
        let one = devices.next.clone().unwrap();
        assert_eq!(devices.refused(&one, Some(0), Errno::ENOENT), Some(false));
        assert_eq!(settle(&mut devices), ["delete \"veth2\""]);
    }

    #[test]
    fn prefixes_are_given_to_a_kernel_that_takes_them_and_names_to_others() {
        let links = [link(2, "eth0"), link(3, "cali1")];
        let mut new = devices("cali*,eth0", Release::DEVICE_NAMES, &links);
        assert_eq!(settle(&mut new), ["add \"eth0\", \"cali*\""]);
        new.learn(LinkNews::Changes(vec![is(4, "cali2")]));
        assert_eq!(settle(&mut new), [""; 0]);

        let mut refusing = devices("cali*,eth0", Release::DEVICE_NAMES, &links);
        let change = refusing.next.clone().unwrap();
        assert_eq!(refusing.refused(&change, Some(0), Errno::EINVAL), Some(false));
        assert_eq!(settle(&mut refusing), ["add \"cali1\", \"eth0\""]);
    }

    #[test]
    fn nothing_is_sent_before_the_flowtable_is_in_place_and_devices_are_known() {
        let mut devices = FlowtableDevices::new("*".parse().unwrap(), Some(OLD));
        devices.observe(Family::Ip, &[Device::Named("old".into())]);
        assert_eq!(devices.next, None);
        devices.note_in_place([false, false]);
        devices.learn(LinkNews::All(vec![link(2, "eth0")]));
        assert_eq!(devices.next, None);
        devices.observe(Family::Ip, &[Device::Named("old".into())]);
        devices.note_in_place([true, false]);
        assert_eq!(settle(&mut devices), ["delete \"old\"", "add \"eth0\""]);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "some instant to count from")]
    fn connections_leave_a_flowtable_at_once_and_at_most_once_a_second() {
        let mut devices = devices("*", OLD, &[link(2, "eth0")]);
        let start = Instant::now();
        devices.note_time(start);
        settle(&mut devices);
        devices.note_ended(Family::Ip6);
        assert_eq!(devices.next, None, "no flowtable in place");
        let replace = |devices: &mut FlowtableDevices| {
            let change = devices.next.clone().unwrap();
            assert!(change.is_replacement && change.family == Family::Ip, "{change:?}");
            devices.applied(change);
            assert_eq!(settle(devices), ["add \"eth0\""]);
        };
        devices.note_ended(Family::Ip);
        replace(&mut devices);
        assert_eq!(devices.due(), None);
        devices.note_ended(Family::Ip);
        assert_eq!((&devices.next, devices.due()), (&None, Some(start + REPLACED_EVERY)));
        devices.note_time(start + REPLACED_EVERY);
        let refused = devices.next.clone().unwrap();
        assert_eq!(devices.refused(&refused, None, Errno::ENOMEM), None, "the table must be read");
        devices.note_in_place([true, false]);
        assert_eq!(devices.next, None, "it is not tried for ever");
        devices.note_ended(Family::Ip);
        replace(&mut devices);
    }

    #[test]
    fn more_devices_than_a_message_takes_are_divided() {
        let names: Vec<_> = (2..600).map(|index| link(index, &format!("d{index}"))).collect();
        let mut devices = devices("*", OLD, &names);
        assert_eq!(settle(&mut devices).len(), 3);
    }
}
