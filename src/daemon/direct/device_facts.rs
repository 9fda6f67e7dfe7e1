//! What the settings of the allowed devices mean for direct return.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use engine::direct::Unsuitable;
use ipnet::{IpNet, Ipv4Net};
use network::{Rtnetlink, Way};
use nft::key::ROUTE_UNICAST;
use nft::{Errno, Family, Name};

use super::allowed_devices::AllowedDevice;
use super::device_settings::DeviceSettings;
use crate::source::addresses::local_networks;

/// What follows from the settings of all allowed devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceFacts {
    /// Families whose packets cannot be handed on, with the first device that prevents it.
    pub(super) unsuitable: BTreeMap<Family, (Name, Unsuitable)>,
    /// Addresses of other interfaces for which the node answers on the link of a device.
    pub(super) answered: BTreeMap<IpAddr, Name>,
}

impl DeviceFacts {
    /// Reads the facts in the calling thread's network namespace. A device that vanishes meanwhile
    /// is left out.
    ///
    /// # Errors
    /// Errors of netlink, getifaddrs(3) and reading `/proc/sys/net`.
    pub(super) fn read(devices: &[AllowedDevice], requests: &mut Rtnetlink) -> io::Result<Self> {
        let mut facts = Self::default();
        let way_out = interface_to(requests, OUTSIDE)?;
        let networks = local_networks()?;
        for device in devices {
            match DeviceSettings::read(&device.name) {
                Ok(settings) => facts.add(device, &settings, (way_out, &networks)),
                Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(facts)
    }

    fn add(
        &mut self,
        device: &AllowedDevice,
        settings: &DeviceSettings,
        (way_out, networks): (Option<u32>, &[(String, IpNet)]),
    ) {
        let of_bridge = settings.bridge_netfilter.iter();
        let mut reasons: Vec<_> =
            of_bridge.map(|family| (*family, Unsuitable::BridgeWithNetfilter)).collect();
        let leaves_elsewhere = way_out.is_some_and(|interface| interface != device.index);
        if settings.rp_filter == STRICT && leaves_elsewhere {
            reasons.push((Family::Ip, Unsuitable::ReversePathStrict));
        }
        for (family, reason) in reasons {
            self.unsuitable.entry(family).or_insert_with(|| (device.name.clone(), reason));
        }
        if settings.arp_ignore == 0 || settings.arp_announce < BEST_LOCAL {
            for address in answered(&device.name, networks) {
                self.answered.entry(address).or_insert_with(|| device.name.clone());
            }
        }
    }
}

/// Returns the IPv4 addresses of other interfaces that are in the network of a device.
fn answered(device: &str, networks: &[(String, IpNet)]) -> Vec<IpAddr> {
    let of_ipv4 = |network: &IpNet| match network {
        IpNet::V4(network) => Some(*network),
        IpNet::V6(_) => None,
    };
    let on = |wanted: bool| {
        let there = networks.iter().filter(move |(name, _)| (name == device) == wanted);
        there.filter_map(move |(_, network)| of_ipv4(network))
    };
    let links: Vec<Ipv4Net> = on(true).collect();
    let elsewhere = on(false).map(|network| network.addr());
    let found = elsewhere.filter(|address| links.iter().any(|link| link.contains(address)));
    found.map(IpAddr::from).collect()
}

/// Returns the interface that leads to an address, also by a gateway.
fn interface_to(requests: &mut Rtnetlink, address: IpAddr) -> io::Result<Option<u32>> {
    let route = requests.route(address, Way::default())?.ok();
    Ok(route.filter(|route| route.kind == ROUTE_UNICAST).map(|route| route.interface))
}

/// An address that no host has (RFC 5737), so that only the default route leads there.
const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// `rp_filter`: the source must be routed to the device of the packet.
const STRICT: u8 = 1;

/// `arp_announce`: ARP requests have the best address for their target.
const BEST_LOCAL: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> AllowedDevice {
        AllowedDevice { index: 7, name: "eth0".into() }
    }

    fn networks() -> Vec<(String, IpNet)> {
        let networks = [
            ("eth0", "192.168.60.11/24"),
            ("eth0", "fd00:192:168:60::11/64"),
            ("lo", "127.0.0.1/8"),
            ("lo", "192.168.60.200/32"),
            ("lo", "198.51.100.2/32"),
            ("lo", "fd00:192:168:60::200/128"),
        ];
        networks.map(|(name, network)| (name.to_owned(), network.parse().unwrap())).to_vec()
    }

    fn facts(settings: &DeviceSettings, way_out: Option<u32>) -> DeviceFacts {
        let mut facts = DeviceFacts::default();
        facts.add(&device(), settings, (way_out, &networks()));
        facts
    }

    #[test]
    fn a_strict_reverse_path_matters_only_if_clients_are_behind_another_device() {
        let unsuitable = |rp_filter, way_out| {
            let settings = DeviceSettings { rp_filter, ..DeviceSettings::default() };
            facts(&settings, way_out).unsuitable
        };
        let found = BTreeMap::from([(Family::Ip, ("eth0".into(), Unsuitable::ReversePathStrict))]);
        assert_eq!(unsuitable(1, Some(3)), found);
        for (rp_filter, way_out) in [(1, Some(7)), (1, None), (2, Some(3)), (0, Some(3))] {
            assert_eq!(unsuitable(rp_filter, way_out), BTreeMap::new());
        }
    }

    #[test]
    fn a_bridge_is_unsuitable_for_the_families_that_netfilter_sees_first() {
        let bridge_netfilter = vec![Family::Ip6];
        let settings = DeviceSettings { bridge_netfilter, ..DeviceSettings::default() };
        let reason = Unsuitable::BridgeWithNetfilter;
        let found = BTreeMap::from([(Family::Ip6, ("eth0".into(), reason))]);
        assert_eq!(facts(&settings, Some(7)).unsuitable, found);
    }

    #[test]
    fn addresses_of_other_interfaces_in_the_subnet_are_answered_by_default() {
        let answered = |arp_ignore, arp_announce| {
            let settings = DeviceSettings { arp_ignore, arp_announce, ..DeviceSettings::default() };
            facts(&settings, Some(7)).answered
        };
        let found = BTreeMap::from([(IpAddr::from([192, 168, 60, 200]), Name::from("eth0"))]);
        assert_eq!(answered(0, 0), found);
        assert_eq!(answered(0, 2), found);
        assert_eq!(answered(1, 0), found);
        assert_eq!(answered(1, 2), BTreeMap::new());
    }
}
