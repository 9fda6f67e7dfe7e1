//! A VXLAN device to fixed other ends (RFC 7348): `IFLA_VXLAN_*` of `<linux/if_link.h>`, and its entries,
//! `struct ndmsg` of `<linux/neighbour.h>`.
//!
//! A packet to an address gets the hardware address of its neighbour entry, and that leads to the address
//! to which the kernel sends it, in a datagram of UDP. Numbers of rtnetlink are in host byte order,
//! addresses and ports in network byte order.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use nix::errno::Errno;
use nix::libc::{
    IFA_ADDRESS, IFA_LOCAL, IFF_UP, IFLA_ADDRESS, IFLA_AF_SPEC, IFLA_IFNAME, IFLA_INFO_DATA,
    IFLA_INFO_KIND, IFLA_LINKINFO, NDA_DST, NDA_LLADDR, NTF_SELF, NUD_PERMANENT, RT_SCOPE_LINK,
    RTM_DELLINK, RTM_DELNEIGH, RTM_GETLINK, RTM_GETNEIGH, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH,
};

use crate::rtnetlink::{IFINFOMSG_LENGTH, Rtnetlink};
use nft::netlink::attr::{AttrWriter, Attrs};
use nft::netlink::message::{self, CREATE, Message};
use nft::{Family, Value};

use super::neighbours::{NDMSG_LENGTH, NeighbourState, ndmsg};
use super::route::address_of;

/// A hardware address of Ethernet.
pub type HardwareAddress = [u8; 6];

/// What a VXLAN device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// The network identifier, 24 bits.
    pub id: u32,
    /// The port of UDP at all ends.
    pub port: u16,
    /// The address of this end. All ends have the same family.
    pub local: IpAddr,
    /// The hardware address of this end.
    pub hardware_address: HardwareAddress,
}

/// A device that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelDevice {
    /// Index of the interface.
    pub index: u32,
    /// What it is like; `None` for a device of another kind.
    pub vxlan: Option<Vxlan>,
}

/// An entry of a VXLAN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunnelEntry {
    /// Packets to the address get the hardware address.
    Neighbour(IpAddr, HardwareAddress),
    /// Packets with the hardware address are sent to this end.
    End(HardwareAddress, IpAddr),
}

impl TunnelEntry {
    /// Returns whether one replaces the other.
    pub fn has_place_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Neighbour(one, _), Self::Neighbour(other, _)) => one == other,
            (Self::End(one, _), Self::End(other, _)) => one == other,
            (Self::Neighbour(..), Self::End(..)) | (Self::End(..), Self::Neighbour(..)) => false,
        }
    }
}

/// The address of the device, at all ends: of the link alone (RFC 3927).
pub const TUNNEL_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 100, 114);

/// The tunnels of the network namespace of the opening thread.
#[derive(Debug)]
pub struct Tunnels {
    requests: Rtnetlink,
}

impl Tunnels {
    /// Opens a socket.
    ///
    /// # Errors
    /// Errors of `socket(2)`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { requests: Rtnetlink::open()? })
    }

    /// Returns the device of a name, `None` if there is none.
    ///
    /// # Errors
    /// The socket failed, or the answer is damaged.
    pub fn find(&mut self, name: &str) -> io::Result<Option<TunnelDevice>> {
        let fixed = [0; IFINFOMSG_LENGTH];
        let mut found = None;
        let each = |message: Message<'_>| {
            if message.kind == RTM_NEWLINK {
                found = decode_device(message.payload);
            }
        };
        let fill = |w: &mut AttrWriter<'_>| w.str(IFLA_IFNAME, name);
        match self.requests.request((RTM_GETLINK, message::ACK), &fixed, fill, each) {
            Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    /// Makes a device that learns no other end, and takes packets whichever device the route to their
    /// source has (`rp_filter` 2, which needs an address: [`TUNNEL_ADDRESS`]). It is up.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`, EOPNOTSUPP without `CONFIG_VXLAN`, EEXIST if there is a device of
    /// the name or with identifier and port, EADDRINUSE if another program has the port. Then there is
    /// no new device.
    pub fn create(&mut self, name: &str, vxlan: &Vxlan) -> io::Result<u32> {
        let fill = |w: &mut AttrWriter<'_>| {
            w.str(IFLA_IFNAME, name);
            w.bytes(IFLA_ADDRESS, &vxlan.hardware_address);
            w.nest(IFLA_LINKINFO, |w| {
                w.str(IFLA_INFO_KIND, VXLAN);
                w.nest(IFLA_INFO_DATA, |w| {
                    w.bytes(IFLA_VXLAN_ID, &vxlan.id.to_ne_bytes());
                    w.be16(IFLA_VXLAN_PORT, vxlan.port);
                    w.bytes(local_attribute(vxlan.local), Value::new().ip(vxlan.local).as_bytes());
                    w.u8(IFLA_VXLAN_LEARNING, 0);
                });
            });
        };
        let flags = CREATE | NLM_F_EXCL;
        self.requests.change(RTM_NEWLINK, flags, &[0; IFINFOMSG_LENGTH], fill)?;
        let Some(TunnelDevice { index, .. }) = self.find(name)? else {
            return Err(Errno::ENODEV.into());
        };
        if let Err(error) = self.set_up(index) {
            // Half a device is of no use; what prevents its removal is of less.
            let _ = self.remove(index);
            return Err(error);
        }
        Ok(index)
    }

    fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut fixed = ifinfomsg(index);
        let loose = |w: &mut AttrWriter<'_>| {
            w.nest(IFLA_AF_SPEC, |w| {
                w.nest(AF_INET, |w| {
                    let value = RP_FILTER_LOOSE.to_ne_bytes();
                    w.nest(IFLA_INET_CONF, |w| w.bytes(IPV4_DEVCONF_RP_FILTER, &value));
                });
            });
        };
        self.requests.change(RTM_NEWLINK, 0, &fixed, loose)?;
        self.add_address(index)?;
        // The flags, and which of them change.
        fixed[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
        fixed[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
        self.requests.change(RTM_NEWLINK, 0, &fixed, |_| {})
    }

    /// Without an address on the device, `__fib_validate_source` takes no packet whose source has a route
    /// by another one.
    fn add_address(&mut self, index: u32) -> io::Result<()> {
        let mut fixed = [0; IFADDRMSG_LENGTH];
        fixed[0] = Family::Ip.number();
        fixed[1] = 32;
        fixed[3] = RT_SCOPE_LINK;
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        let fill = |w: &mut AttrWriter<'_>| {
            w.bytes(IFA_LOCAL, &TUNNEL_ADDRESS.octets());
            w.bytes(IFA_ADDRESS, &TUNNEL_ADDRESS.octets());
        };
        self.requests.change(RTM_NEWADDR, CREATE | NLM_F_REPLACE, &fixed, fill)
    }

    /// Removes a device.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`, ENODEV without the device.
    pub fn remove(&mut self, index: u32) -> io::Result<()> {
        self.requests.change(RTM_DELLINK, 0, &ifinfomsg(index), |_| {})
    }

    /// Returns the permanent entries of a device.
    ///
    /// # Errors
    /// The socket failed, or the answer is damaged.
    pub fn entries(&mut self, index: u32) -> io::Result<BTreeSet<TunnelEntry>> {
        let mut entries = BTreeSet::new();
        for family in Family::ALL {
            let listed = self.requests.neighbours(family)?;
            let fixed = listed
                .into_iter()
                .filter(|it| it.interface == index && it.state == NeighbourState::Permanent);
            let entry = fixed
                .filter_map(|it| Some(TunnelEntry::Neighbour(it.address, it.hardware_address?)));
            entries.extend(entry);
        }
        // With `struct ndmsg` the kernel would list the entries of all devices (`rtnl_fdb_dump`).
        let mut fixed = ifinfomsg(index);
        fixed[0] = AF_BRIDGE;
        let each = |message: Message<'_>| {
            if message.kind == RTM_NEWNEIGH {
                entries.extend(decode_end(message.payload, index));
            }
        };
        self.requests.request((RTM_GETNEIGH, message::DUMP), &fixed, |_| {}, each)?;
        Ok(entries)
    }

    /// Adds an entry to a device, or replaces the one at its place.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`, ENODEV without the device, EAFNOSUPPORT for an end of another family
    /// than the device's address, EINVAL for an address of a family that the device does not have.
    pub fn add(&mut self, index: u32, entry: &TunnelEntry) -> io::Result<()> {
        self.change(RTM_NEWNEIGH, CREATE | NLM_F_REPLACE, index, entry)
    }

    /// Removes an entry of a device.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`, ENODEV without the device, ENOENT without the entry.
    pub fn delete(&mut self, index: u32, entry: &TunnelEntry) -> io::Result<()> {
        self.change(RTM_DELNEIGH, 0, index, entry)
    }

    fn change(&mut self, kind: u16, flags: u16, index: u32, entry: &TunnelEntry) -> io::Result<()> {
        let (family, own, destination, hardware_address) = match entry {
            TunnelEntry::Neighbour(address, hardware_address) => {
                (Family::of(*address).number(), 0, address, hardware_address)
            }
            // An entry of the device itself, not of a bridge that it is a port of.
            TunnelEntry::End(hardware_address, end) => (AF_BRIDGE, NTF_SELF, end, hardware_address),
        };
        let fixed = ndmsg(family, index, NUD_PERMANENT, own);
        let fill = |w: &mut AttrWriter<'_>| {
            w.bytes(NDA_DST, Value::new().ip(*destination).as_bytes());
            w.bytes(NDA_LLADDR, hardware_address);
        };
        self.requests.change(kind, flags, &fixed, fill)
    }
}

fn ifinfomsg(index: u32) -> [u8; IFINFOMSG_LENGTH] {
    let mut fixed = [0; IFINFOMSG_LENGTH];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed
}

fn local_attribute(local: IpAddr) -> u16 {
    match local {
        IpAddr::V4(_) => IFLA_VXLAN_LOCAL,
        IpAddr::V6(_) => IFLA_VXLAN_LOCAL6,
    }
}

/// Decodes `struct ifinfomsg` and its attributes.
#[deny(clippy::indexing_slicing)]
fn decode_device(payload: &[u8]) -> Option<TunnelDevice> {
    let (fixed, attributes) = payload.split_first_chunk::<IFINFOMSG_LENGTH>()?;
    let [_, _, _, _, a, b, c, d, ..] = *fixed;
    let (mut hardware_address, mut vxlan) = (None, None);
    for attr in Attrs::new(attributes).flatten() {
        match attr.kind {
            IFLA_ADDRESS => hardware_address = attr.payload.try_into().ok(),
            IFLA_LINKINFO => vxlan = decode_vxlan(attr.nested()),
            _ => {}
        }
    }
    let complete = |it: Vxlan| Some(Vxlan { hardware_address: hardware_address?, ..it });
    Some(TunnelDevice { index: u32::from_ne_bytes([a, b, c, d]), vxlan: vxlan.and_then(complete) })
}

/// Decodes `IFLA_LINKINFO`; without the hardware address, which is elsewhere.
fn decode_vxlan(info: Attrs<'_>) -> Option<Vxlan> {
    let (mut is_vxlan, mut id, mut port, mut local) = (false, None, None, None);
    for attr in info.flatten() {
        match attr.kind {
            IFLA_INFO_KIND => is_vxlan = attr.str().is_ok_and(|kind| kind == VXLAN),
            IFLA_INFO_DATA => {
                for option in attr.nested().flatten() {
                    match option.kind {
                        IFLA_VXLAN_ID => id = option.payload.try_into().ok(),
                        IFLA_VXLAN_PORT => port = option.be16().ok(),
                        IFLA_VXLAN_LOCAL | IFLA_VXLAN_LOCAL6 => local = address_of(option.payload),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let vxlan =
        Vxlan { id: u32::from_ne_bytes(id?), port: port?, local: local?, hardware_address: [0; 6] };
    is_vxlan.then_some(vxlan)
}

/// Decodes an entry of family `AF_BRIDGE` of a device.
#[deny(clippy::indexing_slicing)]
fn decode_end(payload: &[u8], index: u32) -> Option<TunnelEntry> {
    let (fixed, attributes) = payload.split_first_chunk::<NDMSG_LENGTH>()?;
    let [family, _, _, _, a, b, c, d, ..] = *fixed;
    let (mut end, mut hardware_address) = (None, None);
    for attr in Attrs::new(attributes) {
        let attr = attr.ok()?;
        match attr.kind {
            NDA_DST => end = address_of(attr.payload),
            NDA_LLADDR => hardware_address = attr.payload.try_into().ok(),
            _ => {}
        }
    }
    let is_of_device = family == AF_BRIDGE && u32::from_ne_bytes([a, b, c, d]) == index;
    is_of_device.then_some(TunnelEntry::End(hardware_address?, end?))
}

const VXLAN: &str = "vxlan";
// <linux/netlink.h>
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
// <linux/if_link.h>
const IFLA_INET_CONF: u16 = 1;
const IFLA_VXLAN_ID: u16 = 1;
const IFLA_VXLAN_LOCAL: u16 = 4;
const IFLA_VXLAN_LEARNING: u16 = 7;
const IFLA_VXLAN_PORT: u16 = 15;
const IFLA_VXLAN_LOCAL6: u16 = 17;
/// `IPV4_DEVCONF_RP_FILTER` of `<linux/ip.h>`.
const IPV4_DEVCONF_RP_FILTER: u16 = 8;
const RP_FILTER_LOOSE: u32 = 2;
// <linux/if_addr.h>
const IFADDRMSG_LENGTH: usize = 8;
// <linux/socket.h>
const AF_INET: u16 = 2;
const AF_BRIDGE: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: HardwareAddress = [6, 0x64, 0, 0, 0, 1];

    fn device(kind: &str, local: IpAddr) -> Vec<u8> {
        let mut payload = ifinfomsg(9).to_vec();
        let mut writer = AttrWriter::new(&mut payload);
        writer.bytes(IFLA_ADDRESS, &MAC);
        writer.nest(IFLA_LINKINFO, |w| {
            w.str(IFLA_INFO_KIND, kind);
            w.nest(IFLA_INFO_DATA, |w| {
                w.bytes(IFLA_VXLAN_ID, &7_u32.to_ne_bytes());
                w.bytes(local_attribute(local), Value::new().ip(local).as_bytes());
                w.be16(IFLA_VXLAN_PORT, 4789);
            });
        });
        payload
    }

    fn end(family: u8, index: u32) -> Vec<u8> {
        let mut payload = vec![0; NDMSG_LENGTH];
        payload[0] = family;
        payload[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut writer = AttrWriter::new(&mut payload);
        writer.bytes(NDA_LLADDR, &MAC);
        writer.bytes(NDA_DST, &[192, 0, 2, 1]);
        payload
    }

    #[test]
    fn a_device_has_its_index_and_if_it_is_a_tunnel_its_settings() {
        for local in [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 1])] {
            let vxlan = Vxlan { id: 7, port: 4789, local, hardware_address: MAC };
            let expected = TunnelDevice { index: 9, vxlan: Some(vxlan) };
            assert_eq!(decode_device(&device("vxlan", local)), Some(expected));
            let other = TunnelDevice { index: 9, vxlan: None };
            assert_eq!(decode_device(&device("geneve", local)), Some(other));
        }
    }

    #[test]
    fn only_ends_of_the_device_are_read() {
        let expected = TunnelEntry::End(MAC, [192, 0, 2, 1].into());
        assert_eq!(decode_end(&end(AF_BRIDGE, 9), 9), Some(expected));
        assert_eq!(decode_end(&end(AF_BRIDGE, 8), 9), None);
        assert_eq!(decode_end(&end(2, 9), 9), None);
    }

    #[test]
    fn truncated_messages_never_panic() {
        let (device, end) = (device("vxlan", [192, 0, 2, 1].into()), end(AF_BRIDGE, 9));
        for length in 0..device.len() {
            let _ = decode_device(&device[..length]);
        }
        for length in 0..end.len() {
            let _ = decode_end(&end[..length], 9);
        }
    }

    #[test]
    fn entries_replace_those_of_the_same_key() {
        let neighbour = |last, mac| TunnelEntry::Neighbour([192, 0, 2, last].into(), [mac; 6]);
        let end = |last, mac| TunnelEntry::End([mac; 6], [192, 0, 2, last].into());
        assert!(neighbour(1, 1).has_place_of(&neighbour(1, 2)));
        assert!(!neighbour(1, 1).has_place_of(&neighbour(2, 1)));
        assert!(end(1, 1).has_place_of(&end(2, 1)));
        assert!(!end(1, 1).has_place_of(&end(1, 2)));
        assert!(!end(1, 1).has_place_of(&neighbour(1, 1)));
    }
}
