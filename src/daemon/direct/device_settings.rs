//! What the kernel does with packets of a device, as far as direct return depends on it: the kind of
//! the device, and sysctls of `/proc/sys/net`.

use std::fs;
use std::io;
use std::path::Path;

use network::{LinkKind, link_kind};
use nft::Family;

/// Settings of a device of this network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Kind of the device, and of the one that it is a port of.
    pub kind: LinkKind,
    /// Families whose packets a bridge hands to netfilter at its ports: the ingress chain of the
    /// bridge sees them after translation. Empty for other devices; the chain of a port sees all
    /// packets before.
    pub bridge_netfilter: Vec<Family>,
    /// `rp_filter`: 1 drops IPv4 packets whose source is routed to another device; so does 2 if
    /// the device has no address, otherwise it drops those whose source has no route.
    pub rp_filter: u8,
    /// `arp_ignore`: with 0, the node answers ARP requests for addresses of all its devices.
    pub arp_ignore: u8,
    /// `arp_announce`: below 2, ARP requests may have an address of another device.
    pub arp_announce: u8,
}

impl DeviceSettings {
    /// Reads the settings of the device in the calling thread's network namespace.
    ///
    /// # Errors
    /// ENODEV without such a device; errors of reading `/proc/sys/net`.
    pub fn read(device: &str) -> io::Result<Self> {
        Self::read_below(Path::new("/proc/sys/net"), device, link_kind(device)?)
    }

    fn read_below(sysctls: &Path, device: &str, kind: LinkKind) -> io::Result<Self> {
        // `IN_DEV_MAXCONF` of <linux/inetdevice.h>: the larger of both counts.
        let of_ipv4 = |name: &str| -> io::Result<u8> {
            let read = |device: &str| {
                let conf = sysctls.join("ipv4/conf");
                number(&conf.join(device).join(name))
            };
            Ok(read("all")?.max(read(device)?))
        };
        Ok(Self {
            bridge_netfilter: bridge_netfilter(sysctls, &kind)?,
            kind,
            rp_filter: of_ipv4("rp_filter")?,
            arp_ignore: of_ipv4("arp_ignore")?,
            arp_announce: of_ipv4("arp_announce")?,
        })
    }
}

/// Returns the families whose packets netfilter gets from this device, if it is a bridge.
fn bridge_netfilter(sysctls: &Path, kind: &LinkKind) -> io::Result<Vec<Family>> {
    let mut families = Vec::new();
    if kind.kind.as_deref() != Some("bridge") {
        return Ok(families);
    }
    for (family, sysctl, is_set) in [
        (Family::Ip, "bridge/bridge-nf-call-iptables", kind.calls_iptables),
        (Family::Ip6, "bridge/bridge-nf-call-ip6tables", kind.calls_ip6tables),
    ] {
        match number(&sysctls.join(sysctl)) {
            // `br_nf_pre_routing`: the namespace or the bridge decides.
            Ok(value) if value != 0 || is_set => families.push(family),
            Ok(_) => {}
            // The kernel has not loaded br_netfilter, without which the bridge's option is unused.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(families)
}

fn number(path: &Path) -> io::Result<u8> {
    let named = |error| io::Error::other(format!("{}: {error}", path.display()));
    fs::read_to_string(path)?.trim().parse().map_err(named)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A directory like `/proc/sys/net` with these files.
    fn sysctls(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, value) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }
        root
    }

    fn of_all_and_eth0(values: [[&str; 3]; 2]) -> TempDir {
        let mut files = Vec::new();
        for (device, [rp_filter, ignore, announce]) in ["all", "eth0"].into_iter().zip(values) {
            files.push((format!("ipv4/conf/{device}/rp_filter"), rp_filter));
            files.push((format!("ipv4/conf/{device}/arp_ignore"), ignore));
            files.push((format!("ipv4/conf/{device}/arp_announce"), announce));
        }
        let files: Vec<_> = files.iter().map(|(path, value)| (path.as_str(), *value)).collect();
        sysctls(&files)
    }

    fn bridge(calls_iptables: bool, calls_ip6tables: bool) -> LinkKind {
        LinkKind { kind: Some("bridge".into()), calls_iptables, calls_ip6tables, port_of: None }
    }

    #[test]
    fn the_larger_value_of_the_device_and_of_all_devices_counts() {
        for values in [[["2", "1", "0"], ["1", "0", "2"]], [["1", "1", "2"], ["2", "0", "0"]]] {
            let root = of_all_and_eth0(values);
            let read = DeviceSettings::read_below(root.path(), "eth0", LinkKind::default());
            let settings = read.unwrap();
            let found = (settings.rp_filter, settings.arp_ignore, settings.arp_announce);
            assert_eq!(found, (2, 1, 2));
            assert_eq!(settings.bridge_netfilter, []);
        }
    }

    #[test]
    fn a_bridge_hands_packets_to_netfilter_by_sysctl_or_by_its_option() {
        let sysctls = |ipv4, ipv6| {
            sysctls(&[
                ("bridge/bridge-nf-call-iptables", ipv4),
                ("bridge/bridge-nf-call-ip6tables", ipv6),
            ])
        };
        for (root, kind, expected) in [
            (sysctls("1", "1"), bridge(false, false), &Family::ALL[..]),
            (sysctls("1", "0"), bridge(false, false), &[Family::Ip]),
            (sysctls("0", "1"), bridge(false, false), &[Family::Ip6]),
            (sysctls("0", "0"), bridge(false, false), &[]),
            (sysctls("0", "0"), bridge(true, false), &[Family::Ip]),
            (sysctls("0", "0"), bridge(false, true), &[Family::Ip6]),
            (sysctls("1", "1"), LinkKind::default(), &[]),
        ] {
            assert_eq!(bridge_netfilter(root.path(), &kind).unwrap(), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_bridge_without_br_netfilter_hands_nothing_to_netfilter() {
        let root = sysctls(&[]);
        assert_eq!(bridge_netfilter(root.path(), &bridge(true, true)).unwrap(), []);
    }

    #[test]
    fn an_unreadable_number_names_its_file() {
        let root = of_all_and_eth0([["one", "0", "0"], ["0", "0", "0"]]);
        let error = DeviceSettings::read_below(root.path(), "eth0", LinkKind::default());
        assert!(error.unwrap_err().to_string().contains("all/rp_filter: invalid digit"));
    }
}
