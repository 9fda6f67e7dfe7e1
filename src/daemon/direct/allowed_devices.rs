//! The devices that direct return may use, as configured, and those of them that exist.

use std::future::pending;
use std::net::IpAddr;

use engine::routing::DirectReturn;
use network::{interface_index, interface_name};
use nft::Name;
use tokio::sync::watch;

use crate::source::addresses::interface_with;

/// The devices that lead to other nodes.
#[derive(Clone, Debug)]
pub enum AllowedDevices {
    /// Those with these names.
    Named(Vec<String>),
    /// The one with this address of the node; `None` while the address is unknown.
    OfAddress(watch::Receiver<Option<IpAddr>>),
}

/// A device that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowedDevice {
    /// Index of the interface.
    pub(super) index: u32,
    /// Name of the interface.
    pub(super) name: Name,
}

impl AllowedDevices {
    /// Returns the devices of the settings; without any, the one with the address of the node.
    pub fn of(settings: &DirectReturn, own_address: watch::Receiver<Option<IpAddr>>) -> Self {
        match &*settings.devices {
            [] => Self::OfAddress(own_address),
            names => Self::Named(names.iter().map(|it| it.as_str().to_owned()).collect()),
        }
    }

    /// Returns those of the devices that exist in the calling thread's network namespace, each
    /// once, in the configured order.
    pub(super) fn existing(&mut self) -> Vec<AllowedDevice> {
        let names = match self {
            Self::Named(names) => names.clone(),
            Self::OfAddress(address) => {
                let address = *address.borrow_and_update();
                address.and_then(|it| interface_with(it).ok().flatten()).into_iter().collect()
            }
        };
        let mut devices: Vec<AllowedDevice> = Vec::new();
        for device in names.iter().filter_map(|name| existing(name)) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices
    }

    /// Returns whether it is known which devices these are.
    pub(super) fn are_known(&self) -> bool {
        match self {
            Self::Named(_) => true,
            Self::OfAddress(address) => address.borrow().is_some(),
        }
    }

    /// Completes when the configured devices may be others.
    pub(super) async fn changed(&mut self) {
        if let Self::OfAddress(address) = self
            && address.changed().await.is_ok()
        {
            return;
        }
        pending().await
    }
}

/// Returns the device of this name, which may also be an alternative one or an address label
/// (`eth0:1`): the kernel accepts all of them.
fn existing(name: &str) -> Option<AllowedDevice> {
    let index = interface_index(name).ok()?;
    Some(AllowedDevice { index, name: Name::Owned(interface_name(index)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(mut devices: AllowedDevices) -> Vec<Name> {
        devices.existing().into_iter().map(|device| device.name).collect()
    }

    #[test]
    fn devices_that_exist_are_named_once() {
        let configured = ["absent", "lo", "lo:1", "lo"].map(str::to_owned).to_vec();
        assert_eq!(names(AllowedDevices::Named(configured)), ["lo"]);
    }

    #[test]
    fn the_device_with_the_nodes_address_is_allowed() {
        let of = |address| AllowedDevices::OfAddress(watch::channel(address).1);
        assert_eq!(names(of(Some(IpAddr::from([127, 0, 0, 1])))), ["lo"]);
        assert_eq!(names(of(Some(IpAddr::from([192, 0, 2, 99])))), [""; 0]);
        assert_eq!(names(of(None)), [""; 0]);
    }
}
